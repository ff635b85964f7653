"""The site without a server: every link leads to a file of it, nothing runs, and it is written whole or not at all."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from ironlaw.errors import InputError
from ironlaw.files import FOLDER_MARK, write_folder
from ironlaw.page import words
from ironlaw.web import site

SHOWN = ("accelerators", "grids")  # kinds of records of which it has pages
GRID = site.Grid(("llama-3-8b", "llama-3-70b"), ("h100-sxm",), (8, 16), "1T")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site with a small catalogue and a small documentation, below a path."""
    docs = tmp_path_factory.mktemp("docs")
    (docs / "how-to").mkdir()
    (docs / "index.md").write_text(
        "# Start\n\n[one](how-to/one.md#a-part), [code](../src/x.py), <script>alert(1)</script>\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n![p](p.png)\n"
    )
    (docs / "how-to" / "one.md").write_text("# One\n\n<!-- run -->\n```console\n$ ls <a>\n```\n\n## A part\n\n[back](../index.md)\n")
    (docs / "p.png").write_bytes(b"png")
    target = tmp_path_factory.mktemp("host") / "below" / "a path"
    target.parent.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "KINDS", SHOWN)
        write_folder(target, site.pages(GRID, docs))
    return target


def links(path: Path) -> list[str]:
    return [unescape(found) for found in re.findall(r'\b(?:href|src)="([^"]*)"', path.read_text())]


def test_every_link_leads_to_a_file_from_wherever_the_site_stands(built):
    pages = sorted(built.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        for link in links(page):
            record = re.search(r"catalog/([a-z-]+)/", link)
            if link.startswith(("https://", "http://", "#")) or (record and record[1] not in SHOWN):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / unquote(name)).resolve()
            assert target.is_file() and target.is_relative_to(built.resolve()), (page, link)
            if anchor:
                assert f'id="{anchor}"' in target.read_text(), (page, link)


def test_nothing_runs_and_nothing_is_loaded_from_elsewhere(built):
    for page in built.rglob("*.html"):
        text = unescape(page.read_text()) if "docs" not in page.parts else page.read_text().replace("&#39;", "'")
        assert "<script" not in text and "<iframe" not in text and "default-src 'none'" in text
        assert not re.search(r'<(?:link|img)[^>]*="https?://', text)


def test_an_estimate_shows_its_answer_and_its_neighbours(built):
    data = json.loads((built / "estimate/llama-3-8b/h100-sxm/8.json").read_text())
    text = (built / "estimate/llama-3-8b/h100-sxm/8.html").read_text()
    shown = words.quantity(data["step"]["seconds"], "s")
    assert shown in re.sub(r"<[^>]+>", "", text) and "../../../estimate/llama-3-70b/h100-sxm/8.html" in text and "h100-sxm/16.html" in text
    table = (built / "estimate.html").read_text()
    assert str(words.days(data["run"]["days_with_failures"])) in table and "does not fit" in table


def test_an_answer_of_the_site_is_opened_and_asked_again(built, ask):
    path = built / "estimate/llama-3-8b/h100-sxm/8.json"
    assert ask("again", path)[0] == 0


def test_the_documentation_is_text_with_anchors_and_tables(built):
    text = (built / "docs/index.html").read_text()
    assert "&lt;script&gt;" in text and "<td>1</td>" in text and 'href="how-to/one.html#a-part"' in text and "src/x.py" not in text
    other = (built / "docs/how-to/one.html").read_text()
    assert "$ ls &lt;a&gt;" in other and '<h2 id="a-part">' in other and "run --" not in other


# --- folders


def test_a_folder_of_others_is_left_as_it_is(tmp_path, ask):
    (tmp_path / "mine").write_text("mine")
    for words_of, said in (
        ((tmp_path,), "did not write"),
        ((tmp_path / "mine",), "a file"),
        ((tmp_path / "no" / "such",), "no such folder"),
    ):
        status, out, err = ask("site", "build", *words_of)
        assert (status, out, err.count("\n")) == (3, "", 1) and said in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_is_written_anew_and_what_was_in_it_goes(tmp_path):
    target = tmp_path / "site"
    assert write_folder(target, [("a/b.html", b"1"), ("c.html", b"2")]) == 2
    assert write_folder(target, [("c.html", b"3")]) == 1
    assert sorted(path.name for path in target.iterdir()) == [FOLDER_MARK, "c.html"] and (target / "c.html").read_bytes() == b"3"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_folder_whose_content_fails_stays_as_it_was(tmp_path):
    target = tmp_path / "site"
    write_folder(target, [("a.html", b"1")])

    def content():
        yield "b.html", b"2"
        raise InputError("no more")

    with pytest.raises(InputError, match="no more"):
        write_folder(target, content())
    assert (target / "a.html").read_bytes() == b"1" and not (target / "b.html").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize(
    ("option", "value", "status"), [("--models", "llama-3-9b", 2), ("--gpus", "8,x", 2), ("--gpus", "0", 2), ("--docs", "/no/such", 3)]
)
def test_a_wrong_grid_is_refused_before_anything_is_written(option, value, status, ask, tmp_path):
    found, _, err = ask("site", "build", tmp_path / "site", option, value)
    assert found == status and err.count("\n") == 1 and not (tmp_path / "site").exists()
