"""No plan of the default space that keeps as much memory free is faster than the best: plans drawn, and plans made by hand.

Plans are given axis by axis as a user gives them; nothing of the planner finds, bounds or times them.
"""

from __future__ import annotations

import random
from math import gcd
from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.estimate.planner.grid import UNSQUEEZED

OVERLAPS = ("grad-reduce", "param-gather", "tp", "pp", "ep")
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "global_batch_size": 256},
    {"model": "llama-3-70b", "on": "h100-sxm", "gpus": 480, "global_batch_size": 480},
    {"model": "llama-3-70b", "on": "gb200", "gpus": 96, "global_batch_size": 384},
    {"model": "qwen-3-0.6b", "on": "tpu-v5p", "gpus": 24, "global_batch_size": 96},
    {"model": "gemma-3-4b", "on": "a100-sxm-80gb", "gpus": 40, "global_batch_size": 320},
    {"model": "llama-3-8b", "on": "mi300x", "gpus": 16, "global_batch_size": 64, "seq_len": 32768},
    {"model": "mixtral-8x7b", "on": "h100-sxm", "gpus": 64, "global_batch_size": 256, "seq_len": 4096},
    {"model": "deepseek-v2-lite", "on": "b200-sxm", "gpus": 32, "global_batch_size": 128, "precision": "fp8"},
)
PLANS = 1300  # of each question, so that all have more than 10,000


def divisors(number: float) -> list[int]:
    return [n for n in range(1, int(number) + 1) if number % n == 0]


def drawn(question: dict[str, Any], r: random.Random, names: tuple[str, ...]) -> dict[str, Any] | None:
    """A plan of the default space whose ranks factor; None where this draw has none."""
    plan: dict[str, Any] = {"tp": r.choice((1, 1, 2, 4, 8, 16)), "cp": r.choice((1, 1, 1, 2, 4, 8))}
    if question["gpus"] % (plan["tp"] * plan["cp"]):
        return None
    plan["pp"] = r.choice(divisors(question["gpus"] // (plan["tp"] * plan["cp"])))
    ranks = question["gpus"] // (plan["tp"] * plan["cp"] * plan["pp"])
    share = question["global_batch_size"] / ranks
    if share != int(share):
        return None
    plan["micro_batch_size"] = r.choice([n for n in (1, 2, 4, 8, 16, 32) if share % n == 0])
    plan["vpp"] = r.choice((1, 2, 3, 4, 5, 6, 7, 8, 10, 12)) if plan["pp"] > 1 else 1
    plan["ep"] = r.choice((1, 2, 4, 8, 16, 32, 64)) if "ep" in names else 1
    plan["zero"] = r.choice((0, 1, 1, 2, 3))
    plan["dp_replicate"] = ranks if plan["zero"] == 0 else r.choice(divisors(ranks))
    plan["recompute"] = r.choice(("none", "none", "selective", "every:2", "full"))
    plan["sp"] = plan["tp"] > 1 and r.random() < 0.8
    plan["overlap"] = frozenset(name for name in names if name in OVERLAPS and r.random() < 0.7)
    plan["offload"] = frozenset({"optimizer"} if r.random() < 0.05 else ())
    return plan


def overlaps_of(best: Any) -> tuple[str, ...]:
    """What the framework of an answer can overlap: the default space has no more."""
    framework = best.groups[0].job.framework
    return (*framework.overlap, *framework.able.overlap)


def room_of(best: Any) -> float:
    """The bytes within which the best plan was found: with the margin free where it keeps it."""
    group = best.groups[0]
    usable = group.cluster.accelerator.usable_memory
    with_margin, unsqueezed = (1.0 - group.margin) * usable, UNSQUEEZED * usable
    return next((room for room in (with_margin, unsqueezed) if best.device_bytes[0] <= room), group.cluster.room)


def columns(plans: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [plan[name] for plan in plans] for name in plans[0]}


def faster(question: dict[str, Any], best: Any, found: Any) -> list[int]:
    """Rows that keep to the room of the best plan and take less time."""
    inside = found.fits & (found.device_bytes <= room_of(best))
    return list(np.flatnonzero(inside & (found.step_seconds < best.step_seconds[0])))


@pytest.mark.slow
@pytest.mark.parametrize("at", range(len(QUESTIONS)))
def test_no_drawn_plan_beats_the_best(at):
    question, r = QUESTIONS[at], random.Random(at)
    best = ironlaw.estimate(**question)
    assert best.fits[0]
    routed = best.groups[0].job.model.num_experts > 0
    names = (*overlaps_of(best), *(("ep",) if routed else ()))
    given = dict(best.groups[0].variant)
    legal = fitting = 0
    seen: set[Any] = set()
    while legal < PLANS:
        plans = [plan for _ in range(4000) if (plan := drawn(question, r, names)) is not None]
        new = [plan for plan in plans if tuple(plan.values()) not in seen]
        seen |= {tuple(plan.values()) for plan in new}
        found = ironlaw.estimate(**question, **given, **columns(new))
        legal += int(found.legal.sum())
        fitting += int(found.fits.sum())
        if rows := faster(question, best, found):
            pytest.fail(f"{new[rows[0]]} takes {found.step_seconds[rows[0]]:.6g} s, the best {best.step_seconds[0]:.6g} s")
    assert fitting > 100


HAND = {  # by position of the question: plans that engineers would write, one axis after the other
    0: """
        dp_shard=64 zero=3 mbs=1 | dp_shard=64 zero=3 mbs=2 | dp_shard=64 zero=3 mbs=4 recompute=full | dp_shard=64 zero=2 mbs=1
        dp_shard=64 zero=1 mbs=1 recompute=selective | dp_replicate=8 dp_shard=8 zero=3 mbs=1
        dp_replicate=8 dp_shard=8 zero=1 mbs=1
        dp_replicate=8 dp_shard=8 zero=2 mbs=2 recompute=every:2 | dp_replicate=64 zero=0 mbs=1 recompute=full
        tp=2 dp_shard=32 zero=1 mbs=1 | tp=2 dp_shard=32 zero=1 mbs=2 | tp=2 dp_shard=32 zero=3 mbs=2
        tp=2 dp_shard=32 zero=1 mbs=1 sp=off
        tp=4 dp_shard=16 zero=1 mbs=1 | tp=4 dp_shard=16 zero=1 mbs=4 | tp=8 dp_shard=8 zero=1 mbs=2
        tp=8 dp_replicate=8 zero=0 mbs=1
        tp=16 dp_shard=4 zero=1 mbs=4 | pp=2 dp_shard=32 zero=1 mbs=1 | pp=2 vpp=4 dp_shard=32 zero=1 mbs=1
        pp=4 vpp=8 dp_shard=16 zero=1 mbs=1
        tp=2 pp=2 dp_shard=16 zero=1 mbs=1 | tp=2 pp=2 vpp=8 dp_shard=16 zero=1 mbs=2 | tp=2 pp=4 vpp=2 dp_shard=8 zero=1 mbs=1
        cp=2 dp_shard=32 zero=1 mbs=1 | cp=2 tp=2 dp_shard=16 zero=1 mbs=1 | dp_shard=64 zero=1 mbs=1 overlap=none
        dp_shard=64 zero=1 mbs=1 overlap=grad-reduce | tp=2 dp_shard=32 zero=1 mbs=1 overlap=tp
        dp_shard=64 zero=1 mbs=1 offload=optimizer
    """,
    1: """
        tp=8 pp=5 vpp=4 dp_shard=12 zero=1 mbs=1 | tp=8 pp=5 vpp=8 dp_shard=12 zero=1 mbs=1
        tp=8 pp=5 vpp=16 dp_shard=12 zero=1 mbs=1
        tp=8 pp=10 vpp=4 dp_shard=6 zero=1 mbs=1 | tp=8 pp=4 vpp=5 dp_shard=15 zero=1 mbs=1
        tp=8 pp=4 vpp=10 dp_shard=15 zero=1 mbs=1
        tp=4 pp=5 vpp=8 dp_shard=24 zero=1 mbs=1 | tp=4 pp=8 vpp=10 dp_shard=15 zero=1 mbs=1
        tp=4 pp=8 vpp=5 dp_shard=15 zero=1 mbs=1
        tp=4 pp=10 vpp=8 dp_shard=12 zero=1 mbs=1 | tp=4 pp=10 vpp=4 dp_shard=12 zero=1 mbs=1
        tp=4 pp=4 vpp=10 dp_shard=30 zero=1 mbs=1
        tp=4 pp=20 vpp=4 dp_shard=6 zero=1 mbs=1 | tp=2 pp=8 vpp=10 dp_shard=30 zero=1 mbs=1
        tp=2 pp=10 vpp=8 dp_shard=24 zero=1 mbs=1
        tp=2 pp=16 vpp=5 dp_shard=15 zero=1 mbs=1 | tp=2 pp=20 vpp=4 dp_shard=12 zero=1 mbs=1
        pp=16 vpp=5 dp_shard=30 zero=1 mbs=1
        pp=20 vpp=4 dp_shard=24 zero=1 mbs=1 | pp=40 vpp=2 dp_shard=12 zero=1 mbs=1 | dp_shard=480 zero=3 mbs=1 recompute=full
        dp_replicate=4 dp_shard=120 zero=3 mbs=1 recompute=full | tp=8 dp_shard=60 zero=3 mbs=1
        tp=8 dp_shard=60 zero=3 mbs=2 recompute=full
        tp=2 dp_shard=240 zero=3 mbs=1 recompute=full | tp=4 pp=2 vpp=10 dp_shard=60 zero=1 mbs=1 recompute=full
        tp=8 pp=3 dp_shard=20 zero=1 mbs=1 | tp=4 pp=3 dp_shard=40 zero=1 mbs=1
        tp=4 pp=6 dp_shard=20 zero=1 mbs=1 recompute=selective
        tp=4 cp=2 pp=5 vpp=8 dp_shard=12 zero=1 mbs=1 | tp=8 pp=5 vpp=8 dp_replicate=12 zero=0 mbs=1
        tp=8 pp=10 vpp=8 dp_replicate=6 zero=0 mbs=1 | tp=4 pp=5 vpp=8 dp_shard=24 zero=2 mbs=1
        tp=4 pp=5 vpp=8 dp_shard=24 zero=1 mbs=2 recompute=full
        tp=8 pp=6 last_stage_layers=10 dp_shard=10 zero=1 mbs=1 | tp=8 pp=6 vpp=2 last_stage_layers=10 dp_shard=10 zero=1 mbs=1
        tp=4 pp=8 vpp=10 dp_shard=15 zero=1 mbs=1 overlap=none | tp=8 pp=4 vpp=10 dp_shard=15 zero=1 mbs=2 recompute=every:2
    """,
    3: """
        dp_shard=24 zero=1 mbs=1 | dp_shard=24 zero=1 mbs=2 | dp_shard=24 zero=1 mbs=4 | dp_shard=24 zero=3 mbs=4
        dp_replicate=24 zero=0 mbs=2
        dp_replicate=24 zero=0 mbs=4 | dp_replicate=2 dp_shard=12 zero=1 mbs=4 | dp_shard=24 zero=2 mbs=4 recompute=selective
        dp_shard=24 zero=3 mbs=4 recompute=full | dp_replicate=6 dp_shard=4 zero=1 mbs=1 | tp=2 dp_shard=12 zero=1 mbs=8
        tp=2 dp_shard=12 zero=1 mbs=4
        tp=4 dp_shard=6 zero=1 mbs=16 | tp=8 dp_shard=3 zero=1 mbs=32 | pp=2 dp_shard=12 zero=1 mbs=1
        pp=4 dp_shard=6 zero=1 mbs=2
        cp=2 dp_shard=12 zero=1 mbs=2 | cp=4 dp_shard=6 zero=1 mbs=4 | dp_shard=24 zero=1 mbs=4 overlap=none
        dp_replicate=3 dp_shard=8 zero=3 mbs=2
    """,
    6: """
        ep=8 dp_shard=64 zero=1 mbs=1 | ep=8 dp_shard=64 zero=1 mbs=2 | ep=4 dp_shard=64 zero=1 mbs=1
        ep=2 dp_shard=64 zero=1 mbs=1
        ep=8 dp_shard=64 zero=3 mbs=1 | ep=8 dp_shard=64 zero=3 mbs=2 recompute=full | dp_shard=64 zero=3 mbs=1 recompute=full
        tp=2 ep=8 dp_shard=32 zero=1 mbs=1 | tp=4 ep=8 dp_shard=16 zero=1 mbs=1 | tp=8 ep=8 dp_shard=8 zero=1 mbs=1
        pp=2 ep=8 dp_shard=32 zero=1 mbs=1 | pp=2 vpp=4 ep=8 dp_shard=32 zero=1 mbs=1 | pp=4 vpp=8 ep=8 dp_shard=16 zero=1 mbs=1
        pp=4 vpp=4 ep=4 dp_shard=16 zero=1 mbs=1 | pp=8 vpp=4 ep=8 dp_shard=8 zero=1 mbs=1
        tp=2 pp=4 ep=8 dp_shard=8 zero=1 mbs=1
        tp=2 pp=4 vpp=8 ep=8 dp_shard=8 zero=1 mbs=1 | pp=4 vpp=8 ep=8 dp_shard=16 zero=1 mbs=2
        ep=8 dp_replicate=8 dp_shard=8 zero=1 mbs=1
        ep=8 dp_shard=64 zero=2 mbs=1 | cp=2 ep=8 dp_shard=32 zero=1 mbs=1 | ep=8 dp_shard=64 zero=1 mbs=1 recompute=selective
        pp=2 ep=8 dp_shard=32 zero=1 mbs=2 recompute=every:2 | pp=4 vpp=8 ep=8 dp_shard=16 zero=1 mbs=1 overlap=all
    """,
}


def made(text: str) -> list[dict[str, Any]]:
    """The plans of a text: axes that are not named are 1 or off, and what the framework overlaps is on."""
    plans = []
    for item in text.replace("\n", "|").split("|"):
        words = dict(word.split("=") for word in item.split())
        if words:
            plans.append({"micro_batch_size" if name == "mbs" else name: value for name, value in words.items()})
    return plans


@pytest.mark.slow
@pytest.mark.parametrize("at", HAND)
def test_no_plan_made_by_hand_beats_the_best(at):
    question, plans = QUESTIONS[at], made(HAND[at])
    best = ironlaw.estimate(**question)
    base = {"tp": 1, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "dp_replicate": 1, "dp_shard": 1, "recompute": "none"}
    legal = 0
    for plan in plans:
        found = ironlaw.estimate(**question, **best.groups[0].variant, **{**base, **plan})
        legal += bool(found.legal[0])
        assert not faster(question, best, found), plan
    assert legal >= 0.9 * len(plans), f"only {legal} of {len(plans)} are legal"


def test_at_least_100_plans_are_made_by_hand():
    assert sum(len(made(text)) for text in HAND.values()) >= 100
    assert len(QUESTIONS) * PLANS >= 10_000
    assert all(gcd(q["gpus"], q["global_batch_size"]) > 1 for q in QUESTIONS)
