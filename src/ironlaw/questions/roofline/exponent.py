"""The exponent of measured times over sizes, by least squares over logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.errors import import_extra
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.roofline.ratio import NOT_ONLY_BANDWIDTH
from ironlaw.terms import leaf, scalar

ENOUGH = 5  # sizes needed for a verdict
LINEAR = (0.2, 0.8, 1.1)  # exponents: flat below the first, linear between the last two
SUPERLINEAR = 1.2
VERDICTS = {
    "flat": "flat: latency or launches, not yet a roof",
    "sublinear": "sublinear: part of the time is overhead, not yet a roof",
    "linear": "in proportion: limited by bandwidth or compute (or by an allocator that copies)",
    "between": "more than in proportion, not yet superlinear",
    "superlinear": "superlinear: suspect allocator fragmentation, format conversions, a cache that is too small, "
    "or work that grows as a square (attention)",
}
FALLS = "time falls as size grows, which no real cost does: check which time belongs to which size, and that runs were warm"
COLUMNS = (
    Column("size", "size", "1"), Column("time", "time", "s"), Column("size_ratio", "size ratio", "1"),
    Column("time_ratio", "time ratio", "1"), Column("exponent", "exponent since the row above", "1"),
)  # fmt: skip


def answer(_question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The exponent of time over size with its interval, and the exponents between neighbours."""
    sizes, times = (np.array(side) for side in zip(*values["scaling"], strict=True))
    x, y = np.log(sizes) - np.mean(np.log(sizes)), np.log(times) - np.mean(np.log(times))
    exponent = leaf("exponent", _slope, "1", covariance=float(np.mean(x * y)), variance=float(np.mean(x * x)))
    dx, dy = sizes - np.mean(sizes), times - np.mean(times)
    growth = leaf("time of one more unit of size", _slope, "s", covariance=float(np.mean(dx * dy)), variance=float(np.mean(dx * dx)))
    fixed = leaf("time at size 0", _intercept, "s", time=float(np.mean(times)), slope=growth.value, size=float(np.mean(sizes)))
    value, count = scalar(exponent), len(set(sizes.tolist()))
    edges = (0.2, 1.0 - values["tolerance"], 1.0 + values["tolerance"]) if "tolerance" in values else LINEAR
    band = _classify(value, edges)
    terms, verdict, extra = [exponent, growth, fixed], "inconclusive", {}
    interval = f"no interval and no verdict from {len(times)} times: give {ENOUGH} sizes or more"
    if len(times) > 2:
        student = import_extra("scipy.stats", "stats", "the interval of an exponent").t
        spread = max(float(np.mean(y * y)) - float(np.mean(x * y)) ** 2 / float(np.mean(x * x)), 0.0)
        half = leaf(
            "half of the 95 % interval", _half_width, "1", quantile=float(student.ppf(0.975, len(times) - 2)), spread=spread,
            variance=float(np.mean(x * x)), points=float(len(times)),
        )  # fmt: skip
        terms.append(half)
        low, high = value - scalar(half), value + scalar(half)
        if count >= ENOUGH and _classify(low, edges) == _classify(high, edges):
            verdict = band
        conclusion = f"verdict {verdict}" if count >= ENOUGH else f"no verdict from {count} sizes, give {ENOUGH} or more"
        interval = f"95 % interval {low:.3f} to {high:.3f} over {len(times)} times: {conclusion}"
        extra = {"low": low, "high": high}
    meaning = VERDICTS[band]
    if band == "sublinear":
        meaning += f"; a straight line leaves {units.show(scalar(fixed), 's', 3)} at size 0"
    warnings = [NOT_ONLY_BANDWIDTH] if band == "linear" else [FALLS] if value < -LINEAR[0] else []
    if verdict == "inconclusive" and count >= ENOUGH:
        warnings.append("the interval covers more than one verdict: measure a wider range of sizes, several times each")
    only = "by the exponent alone, " if verdict == "inconclusive" else ""
    headline = [f"time is proportional to size to the power {value:.3f}: {only}{meaning}", interval]
    tables = [Table("points", "Measured", COLUMNS, _point_rows(values["scaling"]))]
    return Answer("Time against size", headline, tables, terms, {"verdict": verdict, **extra}, [], warnings, folders=folders)


def _point_rows(points: tuple[tuple[float, float], ...]) -> list[dict[str, Any]]:
    """A row for each measured point, with the exponent since the point before it."""
    (first_size, first_time), previous = points[0], points[0]
    rows = []
    for size, time in points:
        grown = size > previous[0]
        rows.append({
            "size": size, "time": time, "size_ratio": size / first_size, "time_ratio": time / first_time,
            "exponent": float(np.log(time / previous[1]) / np.log(size / previous[0])) if grown else None,
        })  # fmt: skip
        previous = (size, time)
    return rows


def _classify(exponent: float, edges: tuple[float, float, float]) -> str:
    """The verdict on an exponent; a difference of 1e-8 from a limit counts as rounding."""
    flat, low, high = edges
    if exponent < flat:
        return "flat"
    if exponent < low - 1e-8:
        return "sublinear"
    if exponent <= high + 1e-8:
        return "linear"
    return "between" if high == LINEAR[2] and exponent < SUPERLINEAR else "superlinear"


def _half_width(quantile: Any, spread: Any, variance: Any, points: Any) -> Any:
    """Half of the interval of a least-squares slope: ``quantile sqrt(spread / ((points - 2) variance))``."""
    return quantile * np.sqrt(spread / ((points - 2.0) * variance))


def _slope(covariance: Any, variance: Any) -> Any:
    """The slope of least squares: ``covariance / variance``."""
    return covariance / variance


def _intercept(time: Any, slope: Any, size: Any) -> Any:
    """Time where the least-squares line meets size 0: ``time - slope size``."""
    return time - slope * size
