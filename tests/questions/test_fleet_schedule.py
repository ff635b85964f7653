"""Schedules of moldable jobs: small fleets by brute force, bounds, relations."""

from __future__ import annotations

import math
import random
from itertools import pairwise, permutations, product

import pytest

from ironlaw.questions.fleet.schedule import Limits, Mode, Placed, Score, Task, earliest, least_end, schedule, score_of

FREE = math.inf


def limits(*capacity, power=FREE, pool_power=None):
    return Limits(capacity, pool_power or (FREE,) * len(capacity), power)


def drawn(seed, jobs, pools=1):
    """Random jobs: each has some counts, which take less time the more there are, and often more accelerator time."""
    r = random.Random(seed)
    tasks = []
    for _ in range(jobs):
        modes = []
        for pool in range(pools):
            work = r.uniform(20.0, 120.0) * (1.0 if pool == 0 else 0.6)
            modes += [Mode(pool, held, work / held ** r.uniform(0.7, 1.0), 10.0 * held) for held in r.sample((1, 2, 3, 4, 6, 8), 3)]
        tasks.append(Task(tuple(modes), r.choice((15.0, 30.0, 60.0, 400.0)), r.choice((1.0, 2.0, 5.0))))
    return tasks


def brute_force(tasks, limit):
    """The best score of every order, every count, each job as early as those before it allow."""
    best = Score(*[math.inf] * 4)
    usable = [[mode for mode in task.modes if limit.usable(mode)] for task in tasks]
    for modes in product(*usable):
        for order in permutations(range(len(tasks))):
            placed = []
            for at in order:
                placed.append(Placed(at, modes[at], earliest(placed, modes[at], limit)))
            best = min(best, score_of(placed, tasks))
    return best


def close(one, other):
    return all(a == pytest.approx(b, rel=1e-6) for a, b in zip(one, other, strict=True))


def check(found, tasks, limit):
    """Every job once, within all limits at every start."""
    assert sorted([one.task for one in found.placed] + list(found.left_out)) == list(range(len(tasks)))
    for one in found.placed:
        running = [p for p in found.placed if p.start <= one.start < p.end]
        for pool, capacity in enumerate(limit.capacity):
            inside = [p for p in running if p.mode.pool == pool]
            assert sum(p.mode.held for p in inside) <= capacity
            assert sum(p.mode.power for p in inside) <= limit.pool_power[pool] * (1 + 1e-6)
        assert sum(p.mode.power for p in running) <= limit.power * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_small_fleets_are_the_best_of_all(seed):
    tasks, limit = drawn(seed, 4), limits(8.0)
    found = schedule(tasks, limit)
    check(found, tasks, limit)
    assert found.exact
    assert close(found.score, brute_force(tasks, limit))


@pytest.mark.parametrize("seed", range(6))
def test_two_pools_and_a_power_limit_too(seed):
    tasks, limit = drawn(100 + seed, 3, pools=2), limits(8.0, 4.0, power=90.0)
    found = schedule(tasks, limit)
    check(found, tasks, limit)
    assert found.exact
    assert close(found.score, brute_force(tasks, limit))


def test_worked_by_hand():
    """Three jobs of 10 days on 4 of 8: two side by side, then one: 20 days. On all 8 each takes 6: 18 days. Two and then one on 8: 16."""
    jobs = [Task((Mode(0, 4, 10.0), Mode(0, 8, 6.0)), 100.0)] * 3
    found = schedule(jobs, limits(8.0))
    assert found.score.end == 16.0
    assert found.exact
    assert sorted(one.mode.held for one in found.placed) == [4, 4, 8]


def test_a_deadline_decides_before_the_end():
    """The job of 9 days must be first to be done by day 9; then both on 4 of 8 take 10 days, one after the other on 8 of 8 take 14."""
    late = Task((Mode(0, 8, 9.0),), 9.0)
    other = Task((Mode(0, 4, 8.0), Mode(0, 8, 5.0)), 100.0)
    found = schedule([other, late], limits(8.0))
    assert [(one.task, one.start) for one in found.placed] == [(1, 0.0), (0, 9.0)]
    assert (found.score.missed, found.score.end) == (0.0, 14.0)


def test_of_two_deadlines_the_one_of_more_value_is_met():
    jobs = [Task((Mode(0, 8, 9.0),), 10.0, 1.0), Task((Mode(0, 8, 9.0),), 10.0, 3.0)]
    found = schedule(jobs, limits(8.0))
    assert found.score.missed == 1.0
    assert found.placed[0].task == 1


def test_a_power_limit_puts_jobs_one_after_the_other():
    jobs = [Task((Mode(0, 4, 10.0, 50.0),), 100.0)] * 2
    assert schedule(jobs, limits(8.0)).score.end == 10.0
    assert schedule(jobs, limits(8.0, power=80.0)).score.end == 20.0


def test_a_job_that_no_pool_holds_is_left_out():
    found = schedule([Task((Mode(0, 16, 1.0),), 9.0, 2.0), Task((Mode(0, 8, 1.0),), 9.0)], limits(8.0))
    assert found.left_out == (0,)
    assert found.score.missed == 2.0


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_is_below_the_schedule(seed):
    tasks = drawn(200 + seed, 8, pools=2)
    limit = limits(12.0, 8.0)
    found = schedule(tasks, limit, nodes=5_000, trials=500)
    check(found, tasks, limit)
    assert 0.0 < found.bound <= found.score.end * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_a_larger_reservation_is_never_worse(seed):
    tasks = drawn(300 + seed, 4)
    ends = [schedule(tasks, limits(capacity)) for capacity in (8.0, 9.0, 12.0, 16.0)]
    for small, large in pairwise(ends):
        assert least_end(tasks, limits(16.0)) <= least_end(tasks, limits(8.0)) + 1e-9
        assert large.score.missed <= small.score.missed + 1e-9
        if large.score.missed == small.score.missed:
            assert large.score.end <= small.score.end * (1 + 1e-6)


def test_the_same_question_has_the_same_answer():
    tasks, limit = drawn(1, 9, pools=2), limits(8.0, 8.0)
    assert schedule(tasks, limit, nodes=3_000) == schedule(tasks, limit, nodes=3_000)


def test_a_search_that_is_cut_off_says_so():
    tasks, limit = drawn(2, 9), limits(16.0)
    cut = schedule(tasks, limit, nodes=50, trials=10)
    assert not cut.exact
    assert cut.bound == pytest.approx(min(least_end(tasks, limit), cut.score.end))
    assert schedule(tasks, limit, nodes=20_000).score <= cut.score
