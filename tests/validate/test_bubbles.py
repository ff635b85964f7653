"""The law of the bubble against the simulation: random layouts, grouped stages, the bound of a search, and the plan of an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.estimate.pipeline.bubbles import Loads, chunked_at_least
from ironlaw.estimate.pipeline.schedules import SCHEDULES
from ironlaw.estimate.step.timeline import timeline
from ironlaw.validate.bubbles import bubble_error, bubble_error_max, law_and_simulation, random_layout

WITHIN = 0.01  # of the passes of a step
EXACT = ("1f1b", "gpipe")


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_the_law_is_the_simulation_on_random_layouts(name):
    random = np.random.default_rng(7)
    within = 1e-9 if name in EXACT else WITHIN
    for _ in range(25):
        law, simulated, _ = law_and_simulation(random_layout(SCHEDULES[name], random))
        assert law == pytest.approx(simulated, rel=within)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_500_random_layouts_are_within_a_hundredth(seed):
    assert bubble_error_max(500, seed) <= WITHIN


def grouped(loads: Loads) -> Loads:
    """The same loads with equal neighbours in one class, as stages by the rule come."""
    kept: list[int] = []
    counts: list[Any] = []
    for at, stage in enumerate(loads.classes):
        last = loads.classes[kept[-1]] if kept else None
        alike = last is not None and at < len(loads.classes) - 1 and kept[-1] > 0 and np.array_equal(last.layers, stage.layers)
        if alike:
            counts[-1] = counts[-1] + 1.0
        else:
            kept.append(at)
            counts.append(stage.count)
    classes = [loads.classes[at].replace(count=count) for at, count in zip(kept, counts, strict=True)]
    return loads.replace(classes=classes, **{name: [getattr(loads, name)[at] for at in kept] for name in ("times", "first", "last")})


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_stages_in_classes_take_what_they_take_one_by_one(name):
    random = np.random.default_rng(8)
    for _ in range(12):
        schedule, plan, loads = random_layout(SCHEDULES[name], random)
        assert schedule.passes(plan, grouped(loads)) == pytest.approx(schedule.passes(plan, loads), rel=1e-12)


@pytest.mark.parametrize("name", ["1f1b", "interleaved"])
def test_no_law_is_below_the_bound_of_a_search(name):
    random = np.random.default_rng(9)
    for _ in range(150):
        schedule, plan, loads = random_layout(SCHEDULES[name], random)
        bound = chunked_at_least(plan, loads)
        assert bound <= schedule.passes(plan, loads) * (1.0 + 1e-12)
        assert bound == chunked_at_least(plan, loads.replace(forward_share=0.5 * np.ones(1))), "a bound knows no share"
        assert bound >= plan.num_microbatches * loads.slowest


def test_equal_chunks_wait_as_narayanan_states():
    """Narayanan et al., 2021, section 2.2.2: (p - 1) / (v m) of the ideal time, here without embedding and loss."""
    _, plan, loads = random_layout(SCHEDULES["interleaved"], np.random.default_rng(10))
    stages, chunks, m = float(plan.pp[0]), float(plan.vpp[0]), float(plan.num_microbatches[0])
    equal, none = 2.0 * chunks * np.ones(1), np.zeros(1)
    classes = [stage.replace(layers=equal) for stage in loads.classes]
    even = loads.replace(classes=classes, times=[equal] * len(classes), first=[none] * len(classes), last=[none] * len(classes))
    ideal = m * equal
    assert SCHEDULES["interleaved"].passes(plan, even) - ideal == pytest.approx(ideal * (stages - 1.0) / (chunks * m))


ASK = {"on": "h100-sxm", "gpus": 64, "tp": 2, "pp": 4, "zero": 1, "micro_batch_size": 1, "global_batch_size": 128, "seq_len": 4096}
PLANS = [
    {"vpp": 4},
    {"vpp": 3},
    {"vpp": 1, "last_stage_layers": 5},
    {"vpp": 1, "schedule": "gpipe", "framework": "generic"},
    {"vpp": 1, "schedule": "zero-bubble", "framework": "generic"},
    {"vpp": 1, "schedule": "dualpipe", "framework": "generic"},
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_plan_takes_what_its_events_take(plan):
    group, at = ironlaw.estimate("llama-3-8b", recompute="none", **{**ASK, **plan}).place_of(0)
    assert abs(bubble_error(group, at) or 0.0) <= WITHIN


def test_a_plan_that_no_schedule_runs_is_refused_and_not_simulated():
    for plan in ({"pp": 3}, {"pp": 4, "global_batch_size": 32}):
        asked = {**ASK, "gpus": 48, "vpp": 1, "schedule": "dualpipe", "framework": "generic", "recompute": "none", **plan}
        assert not ironlaw.estimate("llama-3-8b", **asked).legal[0]


def test_one_stage_has_no_bubble_to_compare():
    group, at = ironlaw.estimate("llama-3-8b", recompute="none", **{**ASK, "pp": 1, "vpp": 1}).place_of(0)
    assert bubble_error(group, at) is None
    assert timeline(group.job, group.cluster, group.plan).busy.size == 1


def test_unequal_chunks_wait_longer_than_equal_ones():
    """80 layers on 8 ranks: 10 a rank are two equal chunks, or three of 4, 3 and 3 that wait as long as chunks of 4 would."""
    ask = {**ASK, "tp": 4, "pp": 8, "global_batch_size": 64, "recompute": "full"}
    group, at = ironlaw.estimate("llama-3-70b", vpp=3, **ask).place_of(0)
    busy, waited = (group.step.tree[name].value[at] for name in ("micro-batches", "pipeline bubble"))
    as_equal = 7.0 / (3.0 * 32.0) * busy
    assert 1.1 * as_equal < waited < 1.3 * as_equal
