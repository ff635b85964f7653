"""Any number of accelerators is answered by every verb, or refused with the reason and the nearest numbers that work; one exit status."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import ironlaw
from ironlaw.estimate.what_if.near_counts import candidates, counts_that_work, nearest_counts

MODELS = ("llama-3-8b", "llama-3-70b", "qwen-3-235b-a22b", "deepseek-v3")
DEVICES = ("h100-sxm", "b200-sxm", "gb200", "mi300x", "tpu-v5p")
RUN = ("--tokens", "100B", "--price", "2.5")
VERBS = {
    "estimate": RUN, "plan": RUN, "compare": ("--price", "2.5"), "solve": (*RUN, "--solve-for", "time"), "money": RUN, "goodput": RUN[:2],
    "sweep": RUN, "optimize": (), "sites": (*RUN, "--sites", "2", "--wan-bandwidth", "10GB/s", "--latency", "1ms"),
}  # fmt: skip
WORKS = re.compile(r"(?:number of accelerators: [\d,]+ to|that works?(?: is| are|:)) ([\d,]+)(?: (?:and|or) ([\d,]+))?")


def asked(ask: Any, verb: str, *words: Any) -> tuple[int, str]:
    """The exit status of a verb, and all that it prints on one line."""
    status, out, err = ask(verb, *words, *VERBS[verb])
    return status, " ".join((out + err).split())


@pytest.mark.slow
@pytest.mark.parametrize("on", DEVICES)
@pytest.mark.parametrize("model", MODELS)
def test_2000_accelerators_are_answered_by_every_verb_or_refused_with_counts_that_work(model, on, ask):
    for verb in VERBS:
        status, text = asked(ask, verb, model, "--on", on, "--gpus", 2000)
        if status:
            assert status in (1, 2)
            assert WORKS.search(text), f"{verb}: {text[:300]}"


IMPOSSIBLE = (  # no plan is legal
    ("llama-3-8b", "--on", "h100-sxm", "--gpus", "9", "--tp", "2"),
    ("llama-3-8b", "--on", "h100-sxm", "--gpus", "3", "--tp", "8"),
    ("qwen-3-0.6b", "--on", "a100-sxm-80gb", "--gpus", "10", "--pp", "4"),
)


@pytest.mark.parametrize("question", IMPOSSIBLE, ids=" ".join)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "sites"])
def test_an_impossible_plan_is_a_wrong_question_for_every_verb(verb, question, ask):
    """Exit status 2, the rule that is broken, and the nearest numbers of accelerators, both of which have a plan."""
    status, text = asked(ask, verb, *question)
    assert status == 2
    assert "do not factor" in text or "divides the accelerators" in text
    nearest = {int(count.replace(",", "")) for found in WORKS.findall(text) for count in found if count}
    assert nearest
    at = question.index("--gpus") + 1
    for count in nearest:
        assert asked(ask, "estimate", *question[:at], count, *question[at + 1 :])[0] == 0


@pytest.mark.parametrize("verb", VERBS)
def test_a_job_that_does_not_fit_is_answered_with_no_by_every_verb(verb, ask):
    status, text = asked(ask, verb, "llama-3-70b", "--on", "h100-sxm", "--gpus", 2)
    assert status == 1
    if verb not in ("optimize", "sites"):  # which propose other remedies
        assert WORKS.search(text)


@pytest.mark.parametrize(
    ("question", "counts"),
    [
        ({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 1999, "global_batch_size": 512}, (1984.0, 2048.0)),
        ({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 2000, "tp": 8, "pp": 3}, (1992.0, 2016.0)),
        ({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 12, "tp": 2, "pp": 2, "cp": 1, "dp_replicate": 1, "dp_shard": 4}, (16.0,)),
        ({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 3}, ()),
    ],
)
def test_the_nearest_counts(question, counts):
    """1,984 and 2,048: of whole nodes next to 1,999 the first whose ranks divide 512 sequences. tp 3 divides no 32 heads on any count."""
    estimate = ironlaw.estimate(**question)
    assert not estimate.legal[0]
    assert nearest_counts(estimate) == counts
    for count in counts:
        assert ironlaw.estimate(**{**question, "gpus": count}).fits[0]


def test_counts_are_tried_from_the_nearest_on():
    below, above = candidates(2000.0, 1, 8)
    near = [next(below) for _ in range(8)]
    assert near == [2000.0 - 8.0 * n for n in range(1, 9)]
    assert [next(above) for _ in range(3)] == [2008.0, 2016.0, 2024.0]
    below, above = candidates(3.0, 2, 8)
    assert list(below) == [2.0]
    assert next(above) == 4.0


def test_json_has_the_counts_too(ask):
    status, out, _ = ask("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", 9, "--tp", 2, "--json")
    assert (status, json.loads(out)["nearest_gpus"]) == (2, [8.0, 16.0])
    status, out, _ = ask("compare", "llama-3-8b", "--on", "h100-sxm,a100-sxm-80gb", "--gpus", 9, "--tp", 2, "--json")
    assert status == 2
    refused = json.loads(out)["refused"]
    assert [row["nearest_gpus"] for row in refused] == [[8.0, 16.0]] * 2
    assert all("accelerators that work are 8 and 16" in row["why_not"] for row in refused)


def test_a_count_that_divides_badly_names_its_neighbours_though_a_plan_is_legal():
    """By hand: every multiple of a node works. 1,999 has a legal plan that is too large; so have 8 on one node, which need more."""

    def whole_nodes(count):
        return count % 8 == 0 and count >= 64

    assert counts_that_work(whole_nodes, 1999.0, 1, 8, True) == (1992.0, 2000.0)
    assert counts_that_work(whole_nodes, 8.0, 1, 8, True) == (64.0,)
