"""What makes a run much faster that is not its plan: the page names it, with figures that an estimate of it confirms."""

from __future__ import annotations

import json
import re

import pytest

from ironlaw import estimate
from ironlaw.cautions.record import sentences
from ironlaw.estimate.answer.bands import likely_rate

IDLE = re.compile(r"([\d,]+) of your ([\d,]+) process (\d+)% (more|fewer) tokens/s .*: leave ([\d,]+) idle")


def idle_line(lines):
    """The numbers of the line that says how many accelerators to leave idle; None where there is none."""
    found = next((match for line in lines if (match := IDLE.fullmatch(line))), None)
    if found is None:
        return None
    count, gpus, idle = (int(found[place].replace(",", "")) for place in (1, 2, 5))
    assert count + idle == gpus
    return count, (1 if found[4] == "more" else -1) * int(found[3]) / 100


@pytest.mark.parametrize(("model", "gpus"), [("llama-3-70b", 8191), ("llama-3-70b", 2003)])
def test_a_number_without_divisors_is_told_how_many_to_leave_idle(model, gpus):
    question = {"model": model, "on": "h100-sxm"}
    found = estimate(**question, gpus=gpus)
    count, more = idle_line(sentences(found.row(0)["warnings"]))
    better = estimate(**question, gpus=count)
    assert 0.9 * gpus <= count < gpus
    times = better.tokens_per_second[0] / found.tokens_per_second[0]
    assert times - 1.0 == pytest.approx(more, abs=0.0051)


@pytest.mark.slow
def test_fewer_accelerators_that_do_more_are_named_though_each_does_little_more():
    """3,584 of 3,600 process 8 % more: less than a tenth for each, and still more for less."""
    count, more = idle_line(sentences(estimate("deepseek-v3", on="h100-sxm", gpus=3600).row(0)["warnings"]))
    assert count == 3584 and more > 0.05


def test_a_batch_above_its_limit_is_named():
    """8,191 is a prime, so each accelerator has a sequence: 67 M tokens, where the limit is 4 Mi (with a quarter more to divide well)."""
    found = estimate("llama-3-8b", on="h100-sxm", gpus=8191)
    assert found.groups[0].plan.global_batch_size[0] == 8191
    assert any("the batch of 67.1 M tokens is above the limit of 5 Mi" in line for line in sentences(found.row(0)["warnings"]))
    within = estimate("llama-3-8b", on="h100-sxm", gpus=997, tokens=15e12)  # one sequence each is 8 M, and the limit is 16 Mi
    assert within.groups[0].plan.global_batch_size[0] == 997
    assert not [line for line in sentences(within.row(0)["warnings"]) if "above the limit" in line]


@pytest.mark.parametrize("gpus", [512, 768, 1280, 1920, 4096])
def test_numbers_that_divide_well_get_no_such_line(gpus):
    assert idle_line(sentences(estimate("llama-3-70b", on="h100-sxm", gpus=gpus).row(0)["warnings"])) is None


@pytest.mark.parametrize("gpus", [1300, 1500, 3000, 6000, 12000])
def test_no_awkward_number_is_a_tenth_slower_than_its_better_neighbour_without_a_line(gpus):
    """The neighbours are the round numbers of nodes below and above."""
    question = {"model": "llama-3-70b", "on": "h100-sxm"}
    round_counts = sorted(8 * odd * 2**power for odd in (1, 3, 5, 7) for power in range(12))
    near = [max(n for n in round_counts if n < gpus), min(n for n in round_counts if n > gpus)]
    best = max(float(estimate(**question, gpus=n).mfu[0]) for n in near)
    found = estimate(**question, gpus=gpus)
    assert float(found.mfu[0]) >= 0.9 * best or idle_line(sentences(found.row(0)["warnings"])) is not None


def test_a_small_batch_on_many_accelerators_is_named_with_the_batch_to_take():
    question = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16384}
    found = estimate(**question, global_batch_size=512)
    (line,) = (line for line in sentences(found.row(0)["warnings"]) if "is small for" in line)
    batch, times = re.search(r"--global-batch-size (\d+) \(32 Mi\) likely gives ([\d.]+) times", line).groups()
    better = estimate(**question, global_batch_size=int(batch))
    assert likely_rate(better.tokens_per_second[0] / found.tokens_per_second[0]) == pytest.approx(float(times), abs=0.051)
    assert not [line for line in sentences(better.row(0)["warnings"]) if "is small for" in line and float(times) > 8]


@pytest.mark.parametrize("verb", ["estimate", "plan", "solve", "money", "compare", "sweep", "goodput"])
def test_every_verb_says_that_a_batch_splits_badly(ask, verb):
    question = ("llama-3-8b", "--on", "h100-sxm", "--gpus", "64", "--global-batch-tokens", "999424", "--tokens", "1T")
    more = {"solve": ("--solve-for", "time"), "plan": ("--fix", "cp=1,vpp=1")}.get(verb, ())
    warnings = sentences(json.loads(ask(verb, *question, *more, "--json")[1])["warnings"])
    assert any("a batch of 122 splits badly over 64 GPUs: --global-batch-size 128 likely gives" in line for line in warnings)
