"""Answers of schema version 1, whose warnings are bare sentences, are still read; headlines say what the page prints."""

from __future__ import annotations

import json

import pytest

from ironlaw.cautions.record import sentences
from ironlaw.measure.versus.predicted import read_saved_estimate

ASK = [
    "estimate",
    "llama-3-8b",
    "--on",
    "h100-sxm",
    "--gpus",
    "8",
    "--tp",
    "2",
    "--pp",
    "1",
    "--seq-len",
    "16384",
    "--global-batch-size",
    "64",
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """A file with today's answer, and one as an earlier version wrote it."""
    import contextlib
    import io

    from ironlaw.cli.main import main

    with contextlib.redirect_stdout(out := io.StringIO()):
        assert main([*ASK, "--json"]) == 0
    data = json.loads(out.getvalue())
    assert data["schema_version"] == 2 and [one["code"] for one in data["warnings"]] == ["long-sequence"]
    old = {**data, "schema_version": 1, "warnings": sentences(data["warnings"])}
    del old["headline"]
    folder = tmp_path_factory.mktemp("answers")
    for name, tree in (("new", data), ("old", old)):
        (folder / f"{name}.json").write_text(json.dumps(tree))
    return folder, data


def test_diff_and_a_held_plan_read_both_versions(ask, answers):
    folder, _ = answers
    status, out, err = ask("diff", folder / "old.json", folder / "new.json")
    assert (status, err) == (0, "") and "The answers are the same" in out
    status, out, err = ask("estimate", "--plan", folder / "old.json", "--global-batch-size", "128")
    assert (status, err) == (0, "")


def test_a_comparison_reads_both_versions(answers):
    folder, _ = answers
    old, new = (read_saved_estimate(folder / f"{name}.json") for name in ("old", "new"))
    assert (old.seconds, old.leaves) == (new.seconds, new.leaves)


def test_the_headline_has_the_first_lines_of_the_page(ask, answers):
    lines = ask(*ASK)[1].partition("\n\n")[0].split("\n")
    headline = answers[1]["headline"]
    assert [sentence["text"] for sentence in headline] == lines
    assert [sentence["code"] for sentence in headline][:5] == ["job", "fits", "step", "bound", "plan"]
    step = next(sentence["values"] for sentence in headline if sentence["code"] == "step")
    assert step["seconds"] == answers[1]["step"]["seconds"] and step["mfu"] == answers[1]["throughput"]["mfu"]


def test_the_headline_of_a_question_has_the_lines_below_its_title(ask):
    words = ["scaling", "--parameters", "8B", "--tokens", "160B"]
    title, *lines = ask(*words)[1].partition("\n\n")[0].split("\n")
    data = json.loads(ask(*words, "--json")[1])
    assert (data["title"], [sentence["text"] for sentence in data["headline"]]) == (title, lines)
