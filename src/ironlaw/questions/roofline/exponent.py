"""The exponent of measured times over sizes, by least squares over logarithms; jitter and peak memory beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.cautions.table import caution
from ironlaw.errors import import_extra
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.roofline.roofs import TOLERANCE
from ironlaw.questions.roofline.sized_times import SizedTimes
from ironlaw.terms import Term, leaf, scalar

FLAT = 0.2  # exponents below it: time hardly depends on size
LINEAR = (0.8, 1.1)  # exponents that count as in proportion
CONFIDENCE = 0.95
CLASSES = ("sublinear", "linear", "superlinear")
MEANINGS = {
    "flat": "time hardly depends on size: latency or launches set it, not yet a roof",
    "sublinear": "part of the time is overhead, not yet a roof",
    "linear": "limited by bandwidth or compute (or by an allocator that copies)",
    "superlinear": "suspect allocator fragmentation, format conversions, a cache that is too small, or work that grows as a square"
    " (attention)",
}
COLUMNS = (
    Column("size", "size", "1"), Column("time", "time (p50)", "s"), Column("p99", "p99", "s"), Column("jitter", "p99 over p50", "1"),
    Column("count", "times", "1"), Column("size_ratio", "size ratio", "1"), Column("time_ratio", "period ratio", "1"),
    Column("exponent", "exponent since the row above", "1"), Column("allocated", "peak allocated", "B"),
    Column("reserved", "peak reserved", "B"), Column("overhang", "reserved over allocated", "1"),
)  # fmt: skip


def answer(_question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The exponent of time over size with its interval, what the interval excludes, jitter, and the peaks of the allocator."""
    points: Sequence[SizedTimes] = values["scaling"]
    sizes, times = _fitted_points(points)
    x, y = np.log(sizes) - np.mean(np.log(sizes)), np.log(times) - np.mean(np.log(times))
    exponent = leaf("exponent", _slope, "1", covariance=float(np.mean(x * y)), variance=float(np.mean(x * x)))
    dx, dy = sizes - np.mean(sizes), times - np.mean(times)
    growth = leaf("time of one more unit of size", _slope, "s", covariance=float(np.mean(dx * dy)), variance=float(np.mean(dx * dx)))
    fixed = leaf("time at size 0", _intercept, "s", time=float(np.mean(times)), slope=growth.value, size=float(np.mean(sizes)))
    first, last = points[0], points[-1]
    ends = leaf("exponent between the ends", _exponent_of, "1", time_ratio=_p50(last) / _p50(first), size_ratio=last.size / first.size)
    linear = (1.0 - values["tolerance"], 1.0 + values["tolerance"]) if "tolerance" in values else LINEAR
    half = _half_interval(x, y)
    value, terms, extra = scalar(exponent), [exponent, ends, growth, fixed], {}
    possible: tuple[str, ...] = CLASSES
    interval = "two sizes, once each, give no interval: the exponent alone is no verdict"
    if half is not None:
        low, high = value - scalar(half), value + scalar(half)
        possible = tuple(name for name in CLASSES if _overlaps(name, low, high, linear))
        extra = {"low": low, "high": high}
        terms.append(half)
        from_what = f"{len(points)} sizes" if len(points) > 2 else f"{len(times)} times at two sizes"
        interval = f"{CONFIDENCE:.0%} interval {low:.3f} to {high:.3f} from {from_what}: {_say(possible)}"
    verdict = possible[0] if len(possible) == 1 else "inconclusive" if len(possible) == 3 else f"not {_excluded(possible)[0]}"
    reading = _classify(value, linear)
    meaning = MEANINGS["flat" if value < FLAT else reading]
    if reading == "sublinear":
        meaning += f"; a straight line leaves {units.show(scalar(fixed), 's', 3)} at size 0"
    headline = [
        f"time is proportional to size to the power {value:.3f}, {'' if len(possible) == 1 else 'by that alone '}{reading}: {meaning}",
        interval,
        f"from size {first.size:g} to {last.size:g} the period grows {_p50(last) / _p50(first):.3g} times for"
        f" {last.size / first.size:.3g} times the size: exponent {scalar(ends):.3f} between the ends",
        *_say_jitter(points),
        *_say_memory(points),
    ]
    warnings = [caution("time-falls")] if value < -FLAT else []
    warnings += [caution("not-only-bandwidth")] if "linear" in possible and reading == "linear" else []
    warnings += [caution("several-readings")] if len(possible) > 1 and half is not None else []
    rows = _point_rows(points)
    tables = [Table("points", "Measured", filled_columns(COLUMNS, rows), rows)]
    data = {"verdict": verdict, "excluded": list(_excluded(possible)), **extra}
    return Answer("Time against size", headline, tables, terms, data, [], warnings, folders=folders)


def _fitted_points(points: Sequence[SizedTimes]) -> tuple[Any, Any]:
    """Sizes and times of the fit: the median of each size, so that a late step does not bend it; of two sizes all times.

    Times at one size share what is peculiar to that size, so many times at few sizes say less than their number.
    """
    if len(points) > 2:
        return np.array([point.size for point in points]), np.array([_p50(point) for point in points])
    return np.array([point.size for point in points for _ in point.times]), np.array([time for point in points for time in point.times])


def _half_interval(x: Any, y: Any) -> Term | None:
    """Half of the interval of a slope by Student's t with two degrees of freedom less than points; None from two points."""
    if len(x) < 3:
        return None
    student = import_extra("scipy.stats", "stats", "the interval of an exponent").t
    variance = float(np.mean(x * x))
    spread = max(float(np.mean(y * y)) - float(np.mean(x * y)) ** 2 / variance, 0.0)
    quantile = float(student.ppf((1.0 + CONFIDENCE) / 2.0, len(x) - 2))
    return leaf(
        f"half of the {CONFIDENCE:.0%} interval",
        _half_width,
        "1",
        quantile=quantile,
        spread=spread,
        variance=variance,
        points=float(len(x)),
    )


def _overlaps(name: str, low: float, high: float, linear: tuple[float, float]) -> bool:
    """Whether an interval allows a class; 1e-8 counts as rounding."""
    start, end = {"sublinear": (-np.inf, linear[0]), "linear": linear, "superlinear": (linear[1], np.inf)}[name]
    slack = 1e-8 if name == "linear" else -1e-8
    return bool(low < end + slack and high > start - slack)


def _excluded(possible: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in CLASSES if name not in possible)


def _say(possible: Sequence[str]) -> str:
    """What the interval leaves, and what it excludes."""
    if len(possible) == 1:
        return f"verdict {possible[0]}"
    if len(possible) == len(CLASSES):
        return "no verdict, it excludes none of sublinear, linear and superlinear"
    return f"{' or '.join(possible)}, not {' nor '.join(_excluded(possible))}"


def _say_jitter(points: Sequence[SizedTimes]) -> list[str]:
    """A sentence on p99 over p50 by size, where times allow one."""
    jitters = [(point, _p99(point)) for point in points if _p99(point) is not None]
    if not jitters:
        return []
    (first, low), (last, high) = jitters[0], jitters[-1]
    assert low is not None and high is not None
    small, large = low / _p50(first), high / _p50(last)
    grows = large > small * (1.0 + TOLERANCE)
    word = "jitter grows with size: suspect the allocator or a shared resource" if grows else "jitter does not grow with size"
    return [f"p99 is {small:.3g} times p50 at size {first.size:g} and {large:.3g} times at {last.size:g}: {word}"]


def _say_memory(points: Sequence[SizedTimes]) -> list[str]:
    """Sentences on the peaks of the allocator: how they grow, and whether what is reserved runs away."""
    lines = []
    held = [point for point in points if point.allocated is not None]
    if len(held) > 1:
        first, last = held[0], held[-1]
        grown = float(_exponent_of(last.allocated / first.allocated, last.size / first.size))  # type: ignore[operator]
        lines.append(f"peak allocated memory grows with the power {grown:.3f} from size {first.size:g} to {last.size:g}")
    both = [point for point in held if point.reserved is not None]
    if len(both) > 1:
        small, large = (point.reserved / point.allocated for point in (both[0], both[-1]))  # type: ignore[operator]
        word = "an allocator cliff: it reserves ever more than it gives out" if large > small * (1.0 + TOLERANCE) else "no allocator cliff"
        lines.append(f"reserved over allocated memory goes from {small:.3g} to {large:.3g}: {word}")
    return lines


def _p50(point: SizedTimes) -> float:
    return float(np.median(point.times))


def _p99(point: SizedTimes) -> float | None:
    """The 99th percentile: given, or of several times; None from one time."""
    if point.p99 is not None:
        return point.p99
    return float(np.percentile(point.times, 99.0)) if len(point.times) > 1 else None


def _point_rows(points: Sequence[SizedTimes]) -> list[dict[str, Any]]:
    """A row for each size, with the exponent since the size before it."""
    rows, previous = [], points[0]
    for point in points:
        p50, p99 = _p50(point), _p99(point)
        grown = point.size / previous.size
        rows.append({
            "size": point.size, "time": p50, "p99": p99, "jitter": None if p99 is None else p99 / p50,
            "count": len(point.times) if len(point.times) > 1 else None, "size_ratio": point.size / points[0].size,
            "time_ratio": p50 / _p50(points[0]),
            "exponent": float(_exponent_of(p50 / _p50(previous), grown)) if grown > 1.0 else None,
            "allocated": point.allocated, "reserved": point.reserved,
            "overhang": point.reserved / point.allocated if point.reserved is not None and point.allocated is not None else None,
        })  # fmt: skip
        previous = point
    return rows


def _classify(exponent: float, linear: tuple[float, float]) -> str:
    """The class of an exponent; a difference of 1e-8 from a limit counts as rounding."""
    if exponent < linear[0] - 1e-8:
        return "sublinear"
    return "linear" if exponent <= linear[1] + 1e-8 else "superlinear"


def _half_width(quantile: Any, spread: Any, variance: Any, points: Any) -> Any:
    """Half of the interval of a least-squares slope: ``quantile sqrt(spread / ((points - 2) variance))``."""
    return quantile * np.sqrt(spread / ((points - 2.0) * variance))


def _exponent_of(time_ratio: Any, size_ratio: Any) -> Any:
    """The exponent between two sizes: ``log(time_ratio) / log(size_ratio)``."""
    return np.log(time_ratio) / np.log(size_ratio)


def _slope(covariance: Any, variance: Any) -> Any:
    """The slope of least squares: ``covariance / variance``."""
    return covariance / variance


def _intercept(time: Any, slope: Any, size: Any) -> Any:
    """Time where the least-squares line meets size 0: ``time - slope size``."""
    return time - slope * size
