"""A run as a whole: the share of its time that made progress, when its step time changed, and the ranks or hosts that are slow.

The time of a run is divided into parts that sum to it: useful iterations at the usual step time (the median
of the fastest stretch between two changes), what iterations took beyond it (the
first apart), iterations that were skipped or made again after a restart, and time between the lines of steps, where lines have time stamps.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ironlaw.measure.logs import Log
from ironlaw.measure.logs.log import Floats, Integers
from ironlaw.measure.logs.steps import Steps

LEAST = 3  # lines with a time: fewer are no run
SIDE = 5  # lines on each side of a change
CHANGED = 0.03  # of the step time: a smaller change is no news
SURE = 1.95  # of Kolmogorov's statistic: chance passes it once in a thousand logs
MOST_CHANGES = 8
APART = 0.05  # of the median over ranks: a rank that is slower is a straggler
SCORE = 0.75  # of relative performance, below which the detector of NVIDIA's resiliency extension warns
SKIPPED = ("skipped", "nan")  # in the reason of a line


@dataclass(frozen=True)
class Change:
    """From one line on, steps take another time."""

    iteration: int
    before_seconds: float  # medians of the lines before and after
    after_seconds: float
    at_seconds: float | None  # since the first line

    @property
    def ratio(self) -> float:
        """After over before."""
        return self.after_seconds / self.before_seconds


@dataclass(frozen=True)
class Straggler:
    """A rank that is slower than the median rank, or a host whose detector says so."""

    name: str
    ratio: float  # its time over that of the median


@dataclass(frozen=True)
class WholeRun:
    """The time of a run [s] in parts that sum to ``wall_seconds``."""

    wall_seconds: float
    usual_seconds: float  # of a step: the median of the fastest stretch between two changes
    useful_seconds: float  # distinct iterations at the usual step time
    warm_up_seconds: float  # beyond it, on the first line
    slower_seconds: float  # beyond it, on all other lines
    skipped_seconds: float
    repeated_seconds: float  # iterations that were made again after a restart
    between_seconds: float | None  # between the steps that lines tell of; None without time stamps
    iterations: int  # distinct
    restarts: int
    events: dict[str, tuple[int, float]]  # by kind: how many, and the seconds that lines print
    changes: tuple[Change, ...]
    stragglers: tuple[Straggler, ...]

    @property
    def goodput(self) -> float:
        """The share of the time of distinct iterations at the usual step time."""
        return self.useful_seconds / self.wall_seconds

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        events = [{"kind": kind, "count": count, "seconds": seconds or None} for kind, (count, seconds) in self.events.items()]
        changes = [asdict(change) | {"ratio": change.ratio} for change in self.changes]
        return asdict(self) | {"goodput": self.goodput, "events": events, "changes": changes}


def whole_run(log: Log, unusual: list[str], steps: Steps | None) -> WholeRun | None:
    """The run as a whole; None for a log with too few lines that have a time."""
    timed = np.isfinite(log.seconds) & (log.seconds > 0)
    if steps is None or log.per != "iteration" or timed.sum() < LEAST:
        return None
    taken = np.where(timed, log.seconds * log.averaged, 0.0)
    repeated, restarts = made_again(log.iteration)
    skipped = np.array([any(word in why for word in SKIPPED) for why in unusual], np.bool_) & ~repeated
    ramp = np.array(["ramp-up" in why for why in unusual], np.bool_) & ~repeated & ~skipped
    good = timed & ~repeated & ~skipped & ~ramp
    changes = _changes(log, unusual, timed)
    usual = min([steps.median, *(seconds for one in changes for seconds in (one.before_seconds, one.after_seconds))])
    useful = float(usual * log.averaged[good].sum() + taken[ramp].sum())
    beyond = taken - usual * log.averaged
    first = np.array(["warm-up" in why for why in unusual], np.bool_) & good
    wall, between = float(taken.sum()), None
    if (clocked := _clocked(log, taken)) is not None:
        between = max(0.0, clocked - wall)
        wall += between
    return WholeRun(
        wall_seconds=wall,
        usual_seconds=usual,
        useful_seconds=useful,
        warm_up_seconds=float(beyond[first].sum()),
        slower_seconds=float(beyond[good & ~first].sum()),
        skipped_seconds=float(taken[skipped].sum()),
        repeated_seconds=float(taken[repeated].sum()),
        between_seconds=between,
        iterations=int(log.averaged[timed & ~repeated].sum()),
        restarts=restarts,
        events=dict(log.events),
        changes=changes,
        stragglers=stragglers_of(log),
    )


def made_again(iteration: Integers) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], int]:
    """The lines whose iteration a later attempt makes again, and the number of restarts.

    >>> made_again(np.array([1, 2, 3, 4, 3, 4, 5]))
    (array([False, False,  True,  True, False, False, False]), 1)
    """
    starts = np.flatnonzero(np.diff(iteration) < 0) + 1
    again = np.zeros(len(iteration), np.bool_)
    for start in starts[-1000:]:
        again[:start] |= iteration[:start] >= iteration[start]
    return again, len(starts)


def _clocked(log: Log, taken: Floats) -> float | None:
    """The time from the start of the first line's steps to the last time stamp; None without time stamps that rise."""
    if log.clock is None:
        return None
    known = np.flatnonzero(np.isfinite(log.clock))
    if len(known) < LEAST or np.any(np.diff(log.clock[known]) < 0):
        return None
    return float(log.clock[known[-1]] - log.clock[known[0]] + taken[: known[0] + 1].sum())


def _changes(log: Log, unusual: list[str], timed: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[Change, ...]:
    """Where the step time of ordinary lines changes, in order."""
    rows = np.flatnonzero(timed & np.array([not why for why in unusual], np.bool_))
    if len(rows) < 2 * SIDE:
        return ()
    seconds = log.seconds[rows]
    edges = sorted(change_points(seconds))
    starts, ends = [0, *edges[:-1]], [*edges[1:], len(rows)]
    if not edges:
        return ()
    elapsed = np.cumsum(np.where(timed, log.seconds * log.averaged, 0.0))
    changes = []
    for at, start, end in zip(edges, starts, ends, strict=True):
        before, after = float(np.median(seconds[start:at])), float(np.median(seconds[at:end]))
        row = int(rows[at])
        since = float(elapsed[row - 1]) if row else None
        if log.clock is not None and math.isfinite(log.clock[row] - log.clock[0]):
            since = float(log.clock[row] - log.clock[0])
        changes.append(Change(int(log.iteration[row]), before, after, since))
    return tuple(changes)


def change_points(seconds: Floats) -> list[int]:
    """The rows from which a series has another median: where most rows before are below its median and most after above, or the reverse.

    >>> change_points(np.array([1.0] * 20 + [2.0] * 20))
    [20]
    """
    found, open_parts = list[int](), [(0, len(seconds))]
    while open_parts and len(found) < MOST_CHANGES:
        start, end = open_parts.pop(0)
        part = seconds[start:end]
        if len(part) < 2 * SIDE:
            continue
        signs = np.sign(part - (np.median(part) if np.median(part) != part.max() else part.mean()))
        walk = np.abs(np.cumsum(signs - signs.mean()))
        cut = int(np.argmax(walk[SIDE - 1 : len(part) - SIDE])) + SIDE
        before, after = float(np.median(part[:cut])), float(np.median(part[cut:]))
        if walk[cut - 1] < SURE * math.sqrt(len(part)) * max(float(signs.std()), 0.1) or abs(after / before - 1.0) < CHANGED:
            continue
        found.append(start + cut)
        open_parts += [(start, start + cut), (start + cut, end)]
    return found


def stragglers_of(log: Log) -> tuple[Straggler, ...]:
    """Ranks whose own step time is above the median over ranks, and hosts that a detector scores low; the slowest first."""
    slow = []
    if len(log.ranks) > 2:
        usual = float(np.median([seconds for _, seconds in log.ranks.values()]))
        slow += [Straggler(name, seconds / usual) for name, (_, seconds) in log.ranks.items() if seconds > usual * (1.0 + APART)]
    slow += [Straggler(name, 1.0 / max(score, 1e-3)) for name, score in log.nodes.items() if score < SCORE]
    return tuple(sorted(slow, key=lambda one: (-one.ratio, one.name))[:MOST_CHANGES])
