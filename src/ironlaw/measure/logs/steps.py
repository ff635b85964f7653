"""Step times in a log: which lines are ordinary steps, and their statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ironlaw.measure.logs import Log
from ironlaw.measure.logs.log import Floats
from ironlaw.measure.noise import deviation

LOADER = ("batch-generator", "batch generator")  # Megatron's timer around next() and the broadcast of the batch
SLOW_START = 1.1  # a first line this much above the median of the others is warm-up even where it is not the run's first
HALF = 3  # lines in each half; with fewer, medians of the halves are not compared


@dataclass(frozen=True)
class Steps:
    """Times of ordinary lines [s]; each line is the mean of its iterations."""

    per: str  # "iteration" or "sample"
    lines: int
    iterations: int
    median: float
    mean: float  # weighted by iterations
    p5: float
    p95: float
    mad: float  # median absolute deviation
    drift: float | None  # median of the second half over that of the first, less one


@dataclass(frozen=True)
class Aside:
    """Lines left out of the median for one reason."""

    reason: str
    iterations: tuple[int, ...]  # at most ten of them
    lines: int
    median: float | None  # [s]


@dataclass(frozen=True)
class Timer:
    """A timer of the framework on the rank that prints. It includes waiting, and timers may be nested."""

    name: str
    seconds: float  # median
    share: float  # of the median step


def timers_of(log: Log, steps: Steps | None) -> tuple[Timer, ...]:
    """The timers of the log as shares of a step, largest first."""
    if steps is None or log.per != "iteration":
        return ()
    timers = [Timer(name, seconds, seconds / steps.median) for name, seconds in log.timers.items()]
    return tuple(sorted(timers, key=lambda t: (-t.share, t.name)))


def loader_share(log: Log, unusual: list[str], timers: tuple[Timer, ...]) -> float | None:
    """The share of a step spent waiting for the loader: as printed, or from its timer."""
    printed = median_of(log.data_share, unusual)
    return printed if printed is not None else next((t.share for t in timers if t.name in LOADER), None)


def set_aside(log: Log) -> list[str]:
    """Why each row is not an ordinary step. The first row of a run is warm-up; in a log that starts later, only if it is slow."""
    unusual = list(log.aside)
    usual = [float(s) for s, why in zip(log.seconds, unusual, strict=True) if not why]
    at = next((i for i, why in enumerate(unusual) if not why), None)
    if log.batch is not None:
        last = log.batch[-1]
        for i, batch in enumerate(log.batch):
            if not unusual[i] and batch != last and not (math.isnan(batch) or math.isnan(last)):
                unusual[i] = "during the batch ramp-up"
    if at is not None and len(usual) > 1 and not unusual[at]:
        first = at == 0 and int(log.iteration[0]) - int(log.averaged[0]) <= 0
        if first:
            unusual[at] = "first line of the run: warm-up"
        elif usual[0] > SLOW_START * float(np.median(usual[1:])):
            unusual[at] = "first ordinary line, slower than those after it: warm-up"
    return unusual


def ordinary_steps(log: Log, unusual: list[str]) -> Steps | None:
    """Statistics of the ordinary lines, None if there are none."""
    ordinary = np.array([not why for why in unusual], np.bool_) & np.isfinite(log.seconds)  # a plain log may have rates alone
    if not ordinary.any():
        return None
    seconds, weight = log.seconds[ordinary], log.averaged[ordinary]
    median = float(np.median(seconds))
    half = len(seconds) // 2
    drift = float(np.median(seconds[-half:]) / np.median(seconds[:half]) - 1.0) if half >= HALF else None
    p5, p95 = (float(v) for v in np.percentile(seconds, (5.0, 95.0)))
    mean = float(np.sum(seconds * weight) / np.sum(weight))
    return Steps(log.per, len(seconds), int(weight.sum()), median, mean, p5, p95, deviation(seconds), drift)


def asides(log: Log, unusual: list[str]) -> tuple[Aside, ...]:
    """The lines left out, by reason."""
    groups = []
    for reason in dict.fromkeys(why for why in unusual if why):
        rows = [i for i, why in enumerate(unusual) if why == reason]
        times = [float(log.seconds[i]) for i in rows if math.isfinite(log.seconds[i])]
        groups.append(Aside(reason, tuple(int(log.iteration[i]) for i in rows[:10]), len(rows), float(np.median(times)) if times else None))
    return tuple(groups)


def median_of(column: Floats | None, unusual: list[str]) -> float | None:
    """The median of a column over the ordinary lines that have a value."""
    if column is None:
        return None
    values = [float(v) for v, why in zip(column, unusual, strict=True) if not why and math.isfinite(v)]
    return float(np.median(values)) if values else None
