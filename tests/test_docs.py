"""The documentation says what the program does: pages are current, links lead somewhere, nothing is left undocumented."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import paths
from ironlaw.cli.main import VERBS
from ironlaw.estimate.legality.rules import RULES
from ironlaw.estimate.planner.space import AXES
from ironlaw.question.options import OPTIONS
from ironlaw.search.question import OWN

ROOT = paths.ROOT
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"), *(ROOT / "changelog.d").glob("*.md")])
RECORDS = sorted((DOCS / "adr").glob("[0-9]*.md"))
HEADINGS = ["Status", "Date", "Context", "Decision", "Consequences"]
SLOW = ("docs/validation.md", "docs/plans-against-published.md")  # every published run, and a search for many of them
TYPES = ("added", "changed", "fixed", "numbers")


spec = importlib.util.spec_from_file_location("docs", ROOT / "tools" / "docs.py")
docs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(docs)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """A page without its code blocks and code spans."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture
def tool():
    """``tools/docs.py`` as a module."""
    return docs


@pytest.mark.parametrize(
    ("path", "make"),
    [pytest.param(path, make, id=name(path), marks=pytest.mark.slow if name(path) in SLOW else ()) for path, make in docs.computed()],
)
def test_a_page_is_current(path, make):
    stale = path.read_text(encoding="utf-8") != docs.current(make)
    assert not stale, f"{name(path)} is stale: run python tools/docs.py"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        aim = (path.parent / file).resolve() if file else path
        assert aim.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(aim), f"{target}: no such heading"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_pages_stand_alone(path):
    """No path of somebody's machine in a page."""
    found = re.search(r"(?<![\w.])/(work|tmp|home|root|Users)/|\.\./shared", path.read_text(encoding="utf-8"))
    assert found is None, found


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_documented(option):
    assert f"| `{option}` |" in (DOCS / "reference" / "options.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", OWN)
def test_every_option_of_a_search_is_documented(option):
    _, found, table = (DOCS / "reference" / "options.md").read_text(encoding="utf-8").partition("## Options of a search")
    assert found
    assert f"| `{option}` |" in table


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_of_a_search_is_documented(axis):
    assert f"`{axis}`" in (DOCS / "how-to" / "narrow-the-search.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_documented(verb):
    assert f"## `ironlaw {verb}`" in (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_documented(rule):
    assert f"| `{rule}` | {RULES[rule]}" in (DOCS / "rules.md").read_text(encoding="utf-8")


def test_every_how_to_is_listed():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert [p.name for p in sorted((DOCS / "how-to").glob("*.md")) if f"(how-to/{p.name})" not in index] == []


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem[:4])
def test_decisions_have_their_headings_and_are_listed(path):
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == HEADINGS
    assert re.search(r"^## Date\n\n\d{4}-\d{2}-\d{2}$", text, flags=re.MULTILINE)
    assert f"({path.name})" in (DOCS / "adr" / "README.md").read_text(encoding="utf-8")


def test_decisions_are_numbered_without_gaps():
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_fragments_have_a_known_type():
    wrong = [p.name for p in (ROOT / "changelog.d").glob("*.md") if p.name != "README.md" and p.name.split(".")[-2] not in TYPES]
    assert wrong == []


def test_the_readme_says_how_wrong_before_it_shows_an_answer():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    answer = text.index("<!-- run")
    assert text.index("<!-- headline -->") < text.index("<!-- /headline -->") < answer
    assert text.index("](docs/validation.md)") < answer


@pytest.mark.parametrize("record", ["{}", '{"headline": {}}', '{"headline": {"family_median_abs_error": null}}', None])
def test_a_readme_without_a_fit_says_so(record, tmp_path, monkeypatch, tool):
    path = tmp_path / "fit.json"
    if record is not None:
        path.write_text(record, encoding="utf-8")
    monkeypatch.setattr("ironlaw.validate.fit.RECORD", path)
    assert tool.headline().startswith("No fit is recorded")


def test_the_headline_stands_between_its_markers(tmp_path, monkeypatch, tool):
    path = tmp_path / "fit.json"
    path.write_text(
        '{"headline": {"family_median_abs_error": 0.0821, "pooled_median_abs_error": 0.06, "p90_abs_error": 0.2, "band_coverage": 0.81}}',
        encoding="utf-8",
    )
    page = tmp_path / "README.md"
    page.write_text("<!-- headline -->\nold\n<!-- /headline -->\nrest\n", encoding="utf-8")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr("ironlaw.validate.fit.RECORD", path)
    lines = tool.live(page).splitlines()
    assert (lines[0], lines[-2:]) == ("<!-- headline -->", ["<!-- /headline -->", "rest"])
    assert "**8.2 %** over families, 6.0 % over all runs" in lines[1]
    assert "81 % of a family's runs" in lines[2]


def test_a_shipped_record_is_shown_as_it_stands():
    shown = re.findall(
        r"<!-- shipped (\S+) -->\n```toml\n(.*?)^```$", (DOCS / "how-to" / "add-a-model.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert shown
    for name, text in shown:
        assert text == (ROOT / "src" / "ironlaw" / "catalog" / "data" / name).read_text(encoding="utf-8")


def test_a_stale_page_is_named(tmp_path, monkeypatch, capsys, tool):
    """The check notices an output that the program does not print, and says which file."""
    page = tmp_path / "README.md"
    page.write_text("<!-- run -->\n```console\n$ ironlaw --version\nnothing of the kind\n```\n", encoding="utf-8")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "REFERENCE", {})
    assert tool.main(["--check"]) == 1
    assert "README.md is stale" in capsys.readouterr().err
    assert tool.main([]) == 0
    assert tool.main(["--check"]) == 0
    page.write_text("<!-- run -->\n```console\n$ ironlaw estimate no-such-model --on h100-sxm --gpus 8\n```\n", encoding="utf-8")
    assert tool.main(["--check"]) == 1
    assert "exit status 2, expected 0" in capsys.readouterr().err
