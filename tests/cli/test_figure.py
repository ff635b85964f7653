"""``ironlaw figure``: a figure of a question or of a saved answer, as a file or in words; nothing is written where something is wrong."""

from __future__ import annotations

import csv
import importlib.util
import json

import pytest

from ironlaw.errors import UnsupportedError
from ironlaw.figures import convert
from ironlaw.figures.table import FIGURES

QUESTION = (
    "llama-3-8b",
    "--on",
    "h100-sxm",
    "--gpus",
    8,
    "--tp",
    2,
    "--pp",
    1,
    "--zero",
    1,
    "--micro-batch-size",
    1,
    "--global-batch-size",
    64,
)
HAS_CONVERTER = importlib.util.find_spec("vl_convert") is not None


def test_a_figure_of_a_question_is_that_of_its_saved_answer(ask, tmp_path):
    status, out, _ = ask("estimate", *QUESTION, "--json")
    (tmp_path / "answer.json").write_text(out)
    asked, saved = ask("figure", "roofs", *QUESTION, "--json"), ask("figure", "roofs", tmp_path / "answer.json", "--json")
    assert status == asked[0] == saved[0] == 0 and asked[1] == saved[1]
    rows = json.loads(asked[1])["data"]["values"]
    assert {row["kind"]: row["share"] for row in rows if row["kind"] != "rest"}.items() <= json.loads(out)["bound"]["shares"].items()


def test_a_report_is_drawn_like_an_answer(ask, tmp_path):
    ask("estimate", *QUESTION, "--html", tmp_path / "report.html")
    assert ask("figure", "waterfall", tmp_path / "report.html")[0] == 0


def test_data_and_specification_need_no_extra(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "converter", lambda: pytest.fail("the extra is asked for"))
    for ending in ("csv", "json"):
        status, out, err = ask("figure", "waterfall", *QUESTION, "-o", tmp_path / f"a.{ending}")
        assert (status, out) == (0, "") and "the figure is in" in err
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[-1]["loss"] == "MFU" and set(rows[0]) == {"loss", "kind", "share"}
    assert json.loads((tmp_path / "a.json").read_text())["$schema"].startswith("https://vega.github.io")


def test_a_picture_without_the_extra_says_which(ask, tmp_path, monkeypatch):
    def missing():
        raise UnsupportedError('a figure as SVG needs vl_convert: pip install "ironlaw[figures]"')

    monkeypatch.setattr(convert, "converter", missing)
    status, _, err = ask("figure", "waterfall", "no-such-model", "-o", tmp_path / "a.svg")
    assert status == 2 and "ironlaw[figures]" in err and err.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.skipif(not HAS_CONVERTER, reason="vl-convert is missing: pip install ironlaw[figures]")
@pytest.mark.parametrize(("ending", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_a_picture_is_written(ask, tmp_path, ending, begins):
    status, _, err = ask("figure", "roofs", *QUESTION, "-o", tmp_path / f"a.{ending}", "--theme", "dark")
    assert (status, err.count("\n")) == (0, 1) and (tmp_path / f"a.{ending}").read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("waterfal", *QUESTION), "nearest: waterfall"),
        (("waterfall", "llama-3-9b", *QUESTION[1:]), "nearest: llama-3-8b"),
        (("waterfall", *QUESTION, "--theme", "lihgt"), "nearest: light"),
        (("waterfall", *QUESTION, "-o", "a.gif"), "must end in .svg"),
        (("waterfall", *QUESTION, "--no-such-option", 1), "no-such-option"),
        (("scaling", *QUESTION), "list"),
        (("size-money", *QUESTION[:5], "--global-batch-size", 64), "--tokens"),
        ((), "ironlaw figure --list"),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) and words else "none",
)
def test_what_is_wrong_is_said_in_a_line_and_nothing_is_written(ask, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    status, out, err = ask("figure", *words, *(() if "-o" in words else ("--output", "x.json")))
    assert (status, out, err.count("\n")) == (2, "", 1) and said in err and not list(tmp_path.iterdir())


def test_the_list_names_every_figure_its_verb_and_an_example(ask):
    _, out, _ = ask("figure", "--list")
    assert [line.split()[0] for line in out.splitlines()] == list(FIGURES)
    listed = json.loads(ask("figure", "--list", "--json")[1])
    assert [one["name"] for one in listed] == list(FIGURES) and all(
        one["example"].startswith(f"ironlaw figure {one['name']}") for one in listed
    )


def test_without_a_file_a_figure_is_told_in_words(ask):
    status, out, _ = ask("figure", "roofs", *QUESTION)
    assert status == 0 and "is bound by compute" in out and "| compute |" in out
