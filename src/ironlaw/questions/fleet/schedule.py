"""A schedule of jobs whose number of accelerators is chosen once and fixed while they run.

Several renewable resources bind: the accelerators of each pool, and its power and the power of all. A schedule is better, in this order,
where it loses less value to missed deadlines, where its last job ends earlier, where jobs of value end earlier, and where jobs take less
accelerator time.

Small questions are answered exactly. Among the best schedules is one in which no job can start earlier (Sprecher, Kolisch and Drexl,
Semi-active, active and non-delay schedules for the resource-constrained project scheduling problem, European Journal of Operational
Research 80, 1995, https://doi.org/10.1016/0377-2217(93)E0294-8). It is found when jobs are placed in the order of their starts, each as
early as the ones before allow. A branch and bound tries every order and every count, and cuts what cannot be better. It stops after
``NODES`` placements; then the best schedule found and the bound say how far it may be from the best.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

NODES = 400_000  # placements that the branch and bound tries
TRIALS = 12_000  # schedules that the local search tries
STARTS = 8  # schedules that the local search starts from
SLACK = 1e-9  # relative, of a comparison of times


class Mode(NamedTuple):
    """One way to run a job."""

    pool: int
    held: float  # accelerators of the pool that it takes, whole racks where a job takes whole racks
    seconds: float
    power: float = 0.0


@dataclass(frozen=True)
class Task:
    """A job to schedule; it is done in time where it ends by its deadline."""

    modes: tuple[Mode, ...]
    deadline: float
    value: float = 1.0


@dataclass(frozen=True)
class Limits:
    """What all running jobs may take together."""

    capacity: tuple[float, ...]  # accelerators of each pool
    pool_power: tuple[float, ...]
    power: float = math.inf

    def usable(self, mode: Mode) -> bool:
        """True where a job alone may run so."""
        return mode.held <= self.capacity[mode.pool] and mode.power <= min(self.pool_power[mode.pool], self.power)


class Placed(NamedTuple):
    """A job in the schedule."""

    task: int
    mode: Mode
    start: float

    @property
    def end(self) -> float:
        """When the job is done."""
        return self.start + self.mode.seconds


class Score(NamedTuple):
    """What makes a schedule better; the first that differs decides."""

    missed: float  # value of jobs that end after their deadline
    end: float  # of the last job
    weighted: float  # value times end, summed
    work: float  # accelerator seconds


class Schedule(NamedTuple):
    """A schedule, in the order of the starts, and what is known of it."""

    placed: tuple[Placed, ...]
    score: Score
    bound: float  # no schedule of these counts ends earlier
    exact: bool  # every schedule was tried or cut
    left_out: tuple[int, ...]  # tasks that no mode of fits the limits


def schedule(tasks: Sequence[Task], limits: Limits, nodes: int = NODES, trials: int = TRIALS) -> Schedule:
    """The best schedule of some tasks that the search finds.

    >>> two = [Task((Mode(0, 4, 10.0), Mode(0, 8, 6.0)), 100.0)] * 2  # side by side on 4 of 8 each, or one after the other on 8
    >>> found = schedule(two, Limits((8.0,), (math.inf,)))
    >>> [(placed.mode.held, placed.start) for placed in found.placed], found.score.end, found.exact
    ([(4, 0.0), (4, 0.0)], 10.0, True)
    """
    usable = [Task(_useful(task, limits), task.deadline, task.value) for task in tasks]
    left_out = tuple(at for at, task in enumerate(usable) if not task.modes)
    search = _Search(usable, [at for at in range(len(usable)) if at not in left_out], limits, nodes)
    search.improve(trials)
    search.branch()
    lost = sum(tasks[at].value for at in left_out)
    score = search.score._replace(missed=search.score.missed + lost)
    bound = least_end([usable[at] for at in search.tasks], limits)
    placed = tuple(sorted(search.best, key=lambda one: (one.start, one.task)))
    return Schedule(placed, score, score.end if search.whole and not score.missed else min(bound, score.end), search.whole, left_out)


def _useful(task: Task, limits: Limits) -> tuple[Mode, ...]:
    """The modes that the limits allow, without those that take no less of anything and no less time than another; the fastest first."""
    kept: list[Mode] = []
    for mode in sorted((mode for mode in task.modes if limits.usable(mode)), key=lambda m: (m.seconds, m.held, m.power, m.pool)):
        if not any(other.pool == mode.pool and other.held <= mode.held and other.power <= mode.power for other in kept):
            kept.append(mode)
    return tuple(kept)


def least_end(tasks: Sequence[Task], limits: Limits) -> float:
    """A time T before which no schedule ends.

    A job that ends by T runs in a mode of at most T, and takes at least the least share of a pool times its time of such modes. All pools
    do at most one share each. T is the first time for which the shares of all jobs are at most T times the pools; the same holds for every
    set of pools and the jobs that can use no other pool, and for energy under a limit of power.

    >>> wide = Task((Mode(0, 4, 10.0), Mode(0, 8, 6.0)), 100.0)
    >>> least_end([wide] * 3, Limits((8.0,), (math.inf,)))  # in modes of 10 they take 15; no mode is between 10 and 15
    15.0
    """
    found = 0.0
    if math.isfinite(limits.power):
        found = _first_time([[(mode.seconds, mode.power * mode.seconds / limits.power) for mode in task.modes] for task in tasks], 1)
    pools = range(len(limits.capacity))
    for size in range(1, len(limits.capacity) + 1):
        for chosen in combinations(pools, size):
            bound_here = [task for task in tasks if all(mode.pool in chosen for mode in task.modes)]
            found = max(found, _first_time([[(mode.seconds, _share(mode, limits)) for mode in task.modes] for task in bound_here], size))
    return found


def _first_time(modes: Sequence[Sequence[tuple[float, float]]], size: int) -> float:
    """The first time by which jobs of these times and shares can all be done: between two times of modes their shares stay the same."""
    if not modes:
        return 0.0
    longest = max(min(seconds for seconds, _ in of_job) for of_job in modes)
    times = [longest, *sorted({seconds for of_job in modes for seconds, _ in of_job if seconds > longest}), math.inf]
    for time, after in pairwise(times):
        work = math.fsum(min(share for seconds, share in of_job if seconds <= time) for of_job in modes) / size
        if max(time, work) < after:
            return max(time, work)
    raise AssertionError("the last time is infinite")


def _share(mode: Mode, limits: Limits) -> float:
    """The share of its pool that a job takes, times its time."""
    return mode.held * mode.seconds / limits.capacity[mode.pool]


class _Search:
    """The best schedule so far, made better by a local search and by branch and bound."""

    def __init__(self, all_tasks: Sequence[Task], tasks: Sequence[int], limits: Limits, nodes: int) -> None:
        self.all, self.tasks, self.limits, self.nodes = all_tasks, list(tasks), limits, nodes
        self.best: list[Placed] = []
        self.score = Score(math.inf, math.inf, math.inf, math.inf)
        self.whole = True
        self.least = {at: min((mode.seconds for mode in all_tasks[at].modes), default=0.0) for at in tasks}
        self.times = {at: [mode.seconds for mode in all_tasks[at].modes] for at in tasks}  # the modes are sorted by their times
        self.shares = {at: list(accumulate((_share(mode, limits) for mode in all_tasks[at].modes), min)) for at in tasks}

    # --- a first schedule, made better

    def improve(self, trials: int) -> None:
        """List schedules of several orders and counts, then moves of one job's count and swaps of two jobs in the order."""
        orders = [
            sorted(self.tasks, key=key)
            for key in (
                lambda at: (self.all[at].deadline, -self.all[at].value, at),
                lambda at: (-self.all[at].value, self.all[at].deadline, at),
                lambda at: (-self.least[at], at),
                lambda at: (-self.shares[at][-1], at),
            )
        ]
        starts = [(order, modes) for order in orders for modes in self._first_modes()]
        ranked = sorted(range(len(starts)), key=lambda at: (self._try(*starts[at]), at))
        for at in ranked[:STARTS]:
            trials = self._climb(*starts[at], trials)

    def _climb(self, order: list[int], modes: dict[int, Mode], trials: int) -> int:
        """Take the first move that makes a schedule better until none does; the trials that are left."""
        best = self._try(order, modes)
        better = True
        while better:
            better = False
            for new_order, new_modes in self._neighbours(order, modes):
                if trials <= 0:
                    return 0
                trials -= 1
                score = self._try(new_order, new_modes)
                if _better(score, best):
                    order, modes, best, better = new_order, new_modes, score, True
                    break
        return trials

    def _first_modes(self) -> list[dict[int, Mode]]:
        """The fastest mode of every job, the one of least work, and those that take the largest part of a pool that is still allowed."""
        fastest = {at: self.all[at].modes[0] for at in self.tasks}
        leanest = {at: min(self.all[at].modes, key=lambda m: (_share(m, self.limits), m)) for at in self.tasks}
        found = [fastest, leanest]
        for part in (0.75, 0.5, 0.34, 0.25, 0.125):
            chosen = {}
            for at in self.tasks:
                allowed = [m for m in self.all[at].modes if m.held <= part * self.limits.capacity[m.pool]]
                chosen[at] = min(allowed, key=lambda m: (m.seconds, m)) if allowed else leanest[at]
            found.append(chosen)
        return found

    def _neighbours(self, order: list[int], modes: dict[int, Mode]) -> list[tuple[list[int], dict[int, Mode]]]:
        found = [(order, {**modes, at: mode}) for at in order for mode in self.all[at].modes if mode != modes[at]]
        for i, j in combinations(range(len(order)), 2):
            swapped = list(order)
            swapped[i], swapped[j] = swapped[j], swapped[i]
            found.append((swapped, modes))
        return found

    def _try(self, order: Sequence[int], modes: dict[int, Mode]) -> tuple[float, ...]:
        """The list schedule of an order, kept where it is the best: its score, with how late jobs are after the value that is missed."""
        placed: list[Placed] = []
        for at in order:
            placed.append(Placed(at, modes[at], earliest(placed, modes[at], self.limits)))
        self._keep(placed)
        late = math.fsum(self.all[one.task].value * max(one.end - self.all[one.task].deadline, 0.0) for one in placed)
        missed, *others = score_of(placed, self.all)
        return (missed, late, *others)

    def _keep(self, placed: list[Placed]) -> None:
        """Keep a schedule where it is the best so far."""
        score = score_of(placed, self.all)
        if _better(score, self.score):
            self.best, self.score = sorted(placed, key=lambda one: (one.start, one.task)), score

    # --- every schedule

    def branch(self) -> None:
        """Place jobs in the order of their starts, in every way that may be better than the best schedule so far."""
        self._extend([], 0.0, frozenset(self.tasks), Score(0.0, 0.0, 0.0, 0.0))

    def _extend(self, placed: list[Placed], now: float, left: frozenset[int], so_far: Score) -> None:
        if not left:
            self._keep(placed)
            return
        steps = []
        for at in sorted(left):
            if any(other < at and self.all[other] == self.all[at] for other in left):
                continue  # the same job twice: the first goes first
            for mode in self.all[at].modes:
                self.nodes -= 1
                if self.nodes < 0:
                    self.whole = False
                    return
                start = _start_after(placed, now, mode, self.limits)
                if placed and start == now and at < placed[-1].task:
                    continue  # of jobs that start together the order is that of the file
                one = Placed(at, mode, start)
                score = _add(so_far, one, self.all[at])
                bound = self._bound(placed, one, left - {at}, score)
                if _better(bound, self.score):
                    steps.append((bound, at, one, score))
        for bound, at, one, score in sorted(steps, key=lambda step: step[:2]):
            if _better(bound, self.score):
                self._extend([*placed, one], one.start, left - {at}, score)

    def _bound(self, placed: list[Placed], one: Placed, left: frozenset[int], score: Score) -> Score:
        """A score that no completion of a partial schedule beats, its parts one by one.

        Where no more value is missed than in the best schedule, a job that is left must end no later than that schedule, which leaves it
        fewer modes.
        """
        now = one.start
        missed, end, weighted = score.missed, score.end, score.weighted
        for at in left:
            task, done = self.all[at], now + self.least[at]
            missed += task.value if done > task.deadline * (1.0 + SLACK) else 0.0
            end = max(end, done)
            weighted += task.value * done
        if missed < self.score.missed * (1.0 - SLACK):
            return Score(missed, end, weighted, 0.0)
        work = sum(max(p.end - now, 0.0) * p.mode.held / self.limits.capacity[p.mode.pool] for p in placed) + _share(one.mode, self.limits)
        most = (self.score.end - now) * (1.0 + SLACK)
        for at in left:
            usable = bisect_right(self.times[at], most)
            if not usable:
                return Score(missed, math.inf, weighted, 0.0)
            work += self.shares[at][usable - 1]
        return Score(missed, max(end, now + work / len(self.limits.capacity)), weighted, 0.0)


def score_of(placed: Sequence[Placed], tasks: Sequence[Task]) -> Score:
    """The score of a schedule."""
    score = Score(0.0, 0.0, 0.0, 0.0)
    for one in placed:
        score = _add(score, one, tasks[one.task])
    return score


def _add(score: Score, one: Placed, task: Task) -> Score:
    late = one.end > task.deadline * (1.0 + SLACK)
    return Score(
        score.missed + (task.value if late else 0.0),
        max(score.end, one.end),
        score.weighted + task.value * one.end,
        score.work + one.mode.held * one.mode.seconds,
    )


def _better(one: Sequence[float], other: Sequence[float]) -> bool:
    """True where the first part that differs by more than rounding is smaller."""
    for a, b in zip(one, other, strict=True):
        if a < b - SLACK * abs(b) if math.isfinite(b) else a < b:
            return True
        if a > b + SLACK * abs(b):
            return False
    return False


def _start_after(placed: Sequence[Placed], now: float, mode: Mode, limits: Limits) -> float:
    """The first time from ``now`` on at which a job may start, where no other starts later than ``now``: what runs only becomes less."""
    for time in (now, *sorted({one.end for one in placed if one.end > now})):
        if _room(placed, time, mode, limits):
            return time
    raise AssertionError("a job alone keeps to the limits")


def _room(placed: Sequence[Placed], time: float, mode: Mode, limits: Limits) -> bool:
    """True where a job may run at a time beside those that run then."""
    held, pool_power, power = mode.held, mode.power, mode.power
    for one in placed:
        if one.start <= time < one.end:
            power += one.mode.power
            if one.mode.pool == mode.pool:
                held += one.mode.held
                pool_power += one.mode.power
    most = limits.pool_power[mode.pool] * (1.0 + SLACK)
    return held <= limits.capacity[mode.pool] and pool_power <= most and power <= limits.power * (1.0 + SLACK)


def earliest(placed: Sequence[Placed], mode: Mode, limits: Limits) -> float:
    """The first time at which a job may start and run to its end beside the others."""
    for time in (0.0, *sorted({one.end for one in placed})):
        events = [time, *(one.start for one in placed if time < one.start < time + mode.seconds)]
        if all(_room(placed, event, mode, limits) for event in events):
            return time
    raise AssertionError("a job alone keeps to the limits")
