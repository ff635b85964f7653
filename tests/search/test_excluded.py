"""A search that times what a bound leaves, against every plan of its space: the best, the list, the front, what is near, and the counts."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.errors import IronlawError
from ironlaw.estimate.planner.evidence import sort_by_score
from ironlaw.estimate.planner.grid import Task, rooms
from ironlaw.estimate.planner.plans import Plans, open_rows, sort_plans
from ironlaw.question.defaults import NEAR
from ironlaw.search.answer import best_of_each_kind
from ironlaw.search.sweep import KIND_AXES, Sweep, kind_numbers, pareto_indices, pareto_plans, sweep

MODELS = ("llama-3-8b", "mixtral-8x7b", "qwen-3-0.6b", "deepseek-v2-lite", "nemotron-h-8b", "gemma-3-4b")
DEVICES = ("h100-sxm", "a100-sxm-40gb", "mi300x", "tpu-v5p", "gb200", "rtx-4090")
SEEDS = range(24)


def drawn(seed: int) -> dict[str, Any]:
    """A question with the default space, a few hundred to a hundred thousand plans."""
    r = random.Random(seed)
    asked: dict[str, Any] = {"model": r.choice(MODELS), "on": r.choice(DEVICES), "gpus": r.choice((2, 4, 6, 8, 12, 16))}
    asked["global_batch_size"] = asked["gpus"] * r.choice((1, 2, 4)) * r.choice((1, 1, 3))
    asked["seq_len"] = r.choice((1024, 2048, 8192))
    for name, values in (("recompute", ("none", "full")), ("zero", (1, 3)), ("offload", ("none",)), ("schedule", ("1f1b", "zero-bubble"))):
        if r.random() < 0.15:
            asked[name] = r.choice(values)
    return asked


@cache
def found_of(seed: int) -> Any:
    """The search of a question; None where it is refused."""
    try:
        return ironlaw.search(**drawn(seed))
    except IronlawError:
        return None


@cache
def every_plan(seed: int) -> Plans:
    """Every legal plan of a question, whether it fits or not."""
    task = found_of(seed).settings[0].swept.task
    return open_rows(task, np.arange(task.mesh.rows), fitting=False)


def swept_of(seed: int) -> Sweep:
    """A sweep of a question's task; none where there are no plans."""
    found = found_of(seed)
    if found is None or not found.settings[0].swept.task.mesh.rows:
        pytest.skip("no plan is legal")
    return sweep(found.settings[0].swept.task)


def fitting(task: Task, plans: Plans) -> list[Plans]:
    """The plans within each of ``rooms`` that fit, the host's memory too."""
    fit = open_rows(task, np.arange(task.mesh.rows))
    return [fit.take(np.flatnonzero(fit.device <= room)) for room in rooms(task)] if plans.seconds.size else []


def rows_of(plans: Plans) -> list[tuple[Any, ...]]:
    columns = zip(*(column.tolist() for column in plans.columns.values()), strict=True)
    return list(zip(plans.seconds.tolist(), plans.device.tolist(), columns, strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_answer_is_that_of_every_plan(seed):
    swept, plans = swept_of(seed), every_plan(seed)
    within = fitting(swept.task, plans)
    for counted, timed in ((swept.legal, plans), (swept.fits, within[-1] if within else plans)):  # a few legal plans have no time
        assert 0 <= counted - timed.seconds.size <= 1e-2 * timed.seconds.size
    assert swept.timed + swept.excluded == swept.legal and swept.timed >= 0 and swept.excluded >= 0
    good = next((some for some in within if some.seconds.size), None)
    if good is None:
        assert not np.isfinite(swept.seconds).any()
        assert not plans.seconds.size or swept.leanest() <= plans.device.min()
        return
    assert swept.seconds.min() == good.seconds.min()
    best = np.full(2 ** len(KIND_AXES), np.inf)
    np.minimum.at(best, kind_numbers(good.columns), good.seconds)
    np.testing.assert_array_equal(swept.best[swept.room], best)
    limit = (1.0 + NEAR) * good.seconds.min()
    near = swept.open(np.flatnonzero(swept.settle(limit) <= limit), limit)
    assert sorted(rows_of(near)) == sorted(rows_of(good.take(np.flatnonzero(good.seconds <= limit))))
    front = sort_plans(within[-1].take(pareto_indices(within[-1].seconds, within[-1].device)))
    front = front.take(np.unique(front.seconds, return_index=True)[1])
    assert rows_of(pareto_plans(swept)) == rows_of(front)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_longer_list_is_that_of_every_plan(seed):
    """Plans that were not timed at first are timed where the list is so long."""
    swept_of(seed)
    found, plans = found_of(seed), every_plan(seed)
    good = next((some for some in fitting(found.settings[0].swept.task, plans) if some.seconds.size), None)
    listed = found.first(300)
    task = found.settings[0].swept.task
    expected = [] if good is None else rows_of(sort_by_score(task, good).take(slice(0, 300)))
    assert [(c.seconds, c.device, tuple(c.values.values())) for c in listed] == expected
    of_kinds = sorted((int(kind_numbers(choice.values)), choice.seconds) for choice in best_of_each_kind(found.settings[0]))
    if good is None:
        assert of_kinds == []
        return
    ordered = sort_by_score(task, good)
    kinds, first = np.unique(kind_numbers(ordered.columns), return_index=True)
    assert of_kinds == list(zip(kinds.tolist(), ordered.seconds[first].tolist(), strict=True))


def test_most_plans_are_excluded():
    swept = [found_of(seed).settings[0].swept for seed in SEEDS if found_of(seed) is not None]
    large = [one for one in swept if one.legal > 20_000]  # no verb tries the host's memory unasked, nor what a stack cannot run
    assert len(large) > 3
    assert np.median([one.timed / one.legal for one in large]) < 0.5


def test_dispatchers_are_compared_as_each_alone():
    """They share bounds; the best plan of all is the best of each."""
    question = {"model": "deepseek-v2-lite", "on": "h100-sxm", "gpus": 16, "global_batch_size": 64, "seq_len": 4096}
    alone = [ironlaw.estimate(**question, moe_dispatcher=name).step_seconds[0] for name in ("alltoall", "deepep", "hybridep")]
    assert ironlaw.estimate(**question).step_seconds[0] == min(alone)
