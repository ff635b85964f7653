"""How far long work is: what is counted, the best so far, and the line of a terminal."""

from __future__ import annotations

import sys

import pytest

import ironlaw
from ironlaw.cli.main import ProgressLine
from ironlaw.progress import Progress, counted, steps, watched

ASKED = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16}


def told(ask) -> list[Progress]:
    """What is told while a function works, without the ends."""
    found = []
    with watched(found.append):
        ask()
    assert found[-1] is None
    return [one for one in found if one is not None]


def test_a_search_counts_its_meshes_to_the_last_and_its_best_falls():
    found = told(lambda: ironlaw.plan(**ASKED, global_batch_size=64))
    meshes = [one for one in found if one.what == "meshes"]
    done = [one.done for one in meshes]
    result = ironlaw.plan(**ASKED, global_batch_size=64).to_dict()
    assert done == sorted(done) and done[-1] == meshes[-1].of == result["space"]["rows"]
    assert meshes[-1].best and meshes[-1].best.endswith("s")


@pytest.mark.parametrize(
    ("what", "verb", "options"),
    [
        ("accelerators", "compare", {**ASKED, "on": "h100-sxm,a100-sxm-80gb"}),
        ("techniques", "optimize", ASKED),
        ("runs", "sweep", {**ASKED, "gpus": [8, 16], "tokens": "1T"}),
        ("losses", "elastic", ASKED),
        (
            "numbers of accelerators",
            "solve",
            {"model": "llama-3-8b", "on": "h100-sxm", "tokens": "1T", "deadline": 60, "solve_for": "gpus"},
        ),
        ("meshes", "estimate", ASKED),
    ],
)
def test_every_verb_that_searches_tells_how_far_it_is(what, verb, options):
    found = [one for one in told(lambda: getattr(ironlaw, verb)(**options)) if one.what == what]
    assert found and all(one.of is None or one.done <= one.of for one in found)
    if what not in ("numbers of accelerators", "meshes"):  # of which the number is not known before, or that are counted for every batch
        assert [one.done for one in found] == [*range(1 if verb == "compare" else 0, found[-1].of + 1)]


def test_the_outermost_count_is_shown():
    found = told(lambda: [list(steps("ab", "inner")) for _ in steps("xyz", "outer")])
    assert {one.what for one in found} == {"outer"} and len(found) == 4


def test_a_loop_that_fails_leaves_no_count_behind():
    found = []
    with watched(found.append):
        with pytest.raises(ZeroDivisionError):
            for _ in steps([1, 2], "numbers"):
                1 / 0
        with counted("others", 1) as count:
            count.tell(1)
    assert found[-2:] == [Progress("others", 1, 1), None]


def test_the_progress_of_a_search_is_a_line_in_python():
    lines = []
    ironlaw.plan(**ASKED, global_batch_size=64, progress=lines.append)
    assert lines and all(" of " in line and "meshes" in line for line in lines)


def test_a_line_is_written_over_and_cleared(monkeypatch, capsys):
    line = ProgressLine("Ctrl-C stops it")
    line.show(Progress("meshes", 1, 2))
    assert capsys.readouterr().err == ""  # within the first second
    line.since -= 2.0
    line.show(Progress("meshes", 1, 2, "7 s"))
    line.show(Progress("meshes", 2, 2, "7 s"))  # too soon after the last
    line.show(None)
    assert capsys.readouterr().err == "\r\x1b[K1 of 2 meshes, best so far 7 s (Ctrl-C stops it)\r\x1b[K"
    line.show(None)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "stderr", open(1, "w", closefd=False))
    line.show(Progress("meshes", 2, 2))
