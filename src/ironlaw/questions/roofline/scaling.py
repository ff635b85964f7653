"""What measured speeds follow: the ratio of two devices, and the exponent of time against size."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.errors import UnsupportedError
from ironlaw.estimate.bind.cluster import bind_precision
from ironlaw.job import PRECISIONS
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Column, Table, need
from ironlaw.questions.roofline.roofs import TOLERANCE, given
from ironlaw.terms import Term, leaf, plain

COMPUTE_TOO = (
    "a product bound by compute grows in proportion to its rows too, so time in proportion to size alone does not say bandwidth: "
    "compare the intensity with the ridge point (roofline --gemm)"
)
FALLS = "time falls as size grows, which no cost of size does: check which time is of which size, and that runs were warm"


def answer(question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The answer of --ratio or of --scaling."""
    return _ratio(values, folders) if question == "ratio" else _scaling(values, folders)


def _ratio(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Which datasheet ratio the measured ratio agrees with."""
    need(values, "on", "against")
    notes: Assumptions = []
    tolerance = values.get("tolerance", TOLERANCE)
    if "tolerance" not in values:
        assume(notes, "tolerance", TOLERANCE, "default")
    one, other = (load.record("accelerators", values[name], folders) for name in ("on", "against"))
    name = values.get("precision") or bind_precision(one.name, folders)
    peak = PRECISIONS[name].peak
    for record in (one, other):
        if peak not in record.peak:
            raise UnsupportedError(f"--precision {name}: {record.name} has no such rate; it has {', '.join(record.peak)}")
    hbm = [
        given(values[option], "B/s") if option in values else record.hbm_bandwidth
        for option, record in (("bandwidth", one), ("against_bandwidth", other))
    ]
    measured = [leaf(f"measured {first:g}/{second:g}", _quotient, "1", first=first, second=second) for first, second in values["ratio"]]
    low, high = min(float(term.value) for term in measured), max(float(term.value) for term in measured)
    pairs = {"HBM bandwidth": hbm, f"{name} FLOP/s": [one.peak[peak], other.peak[peak]]}
    if one.scale_up_bandwidth is not None and other.scale_up_bandwidth is not None:
        pairs["scale-up bandwidth"] = [one.scale_up_bandwidth, other.scale_up_bandwidth]
    terms: list[Term] = list(measured)
    rows, follows = [], []
    for what, (first, second) in pairs.items():
        term = leaf(f"{what} ratio", _quotient, "1", first=first, second=second)
        value = float(term.value)
        off = max(low / value, value / high, 1.0) - 1.0  # from the nearer end of what was measured
        rows.append({"what": what, "one": plain(first), "other": plain(second), "ratio": value, "off": off, "follows": off <= tolerance})
        terms.append(term)
        if off <= tolerance:
            follows.append(what)
    told = f"{low:.3f}" if low == high else f"{low:.3f} to {high:.3f}"
    if len(follows) == 1:
        verdict = f"it follows {follows[0]}: a strong hint, not a proof"
    elif follows:
        verdict = f"it agrees with {' and '.join(follows)}: these two devices cannot tell them apart"
    else:
        verdict = "it follows none of them: overhead, the network or the input sets the speed, or different roofs on the two"
    each = [
        leaf(f"bytes each on {record.name}", _quotient, "B", first=rate, second=speeds[at])
        for at, (record, rate) in enumerate(((one, hbm[0]), (other, hbm[1])))
        for speeds in values["ratio"][:1]
    ]
    headline = [
        f"measured {one.name} over {other.name}: {told}; {verdict}",
        "were HBM the roof, one sample, frame or step (whatever was counted) would move "
        + " and ".join(f"{float(term.value) / 1e9:,.4g} GB on {record.name}" for term, record in zip(each, (one, other), strict=True)),
    ]
    columns = (
        Column("what", "roof"),
        Column("first", one.name),
        Column("second", other.name),
        Column("ratio", "ratio", "1"),
        Column("off", "off by", "%"),
        Column("follows", "agrees"),
    )
    for row in rows:
        unit = "FLOP/s" if "FLOP" in row["what"] else "B/s"
        row |= {"first": units.show(row.pop("one"), unit, 4), "second": units.show(row.pop("other"), unit, 4)}
    extra = {"ratio_low": low, "ratio_high": high, "follows": follows}
    warnings = [COMPUTE_TOO] if "HBM bandwidth" in follows else []
    return Answer(
        "What a speed ratio follows",
        headline,
        [Table("ratios", "Ratios", columns, rows)],
        [*terms, *each],
        extra,
        notes,
        warnings,
        bool(follows),
        folders,
    )


def _scaling(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The exponent of time against size, by least squares over logarithms, with its interval; and between neighbours."""
    sizes, times = (np.array(side) for side in zip(*values["scaling"], strict=True))
    x, y = np.log(sizes) - np.mean(np.log(sizes)), np.log(times) - np.mean(np.log(times))
    exponent = leaf("exponent", _slope, "1", covariance=float(np.mean(x * y)), variance=float(np.mean(x * x)))
    dx, dy = sizes - np.mean(sizes), times - np.mean(times)
    growth = leaf("time of one more unit of size", _slope, "s", covariance=float(np.mean(dx * dy)), variance=float(np.mean(dx * dx)))
    fixed = leaf("time at size 0", _intercept, "s", time=float(np.mean(times)), slope=growth.value, size=float(np.mean(sizes)))
    value, count = float(exponent.value), len(set(sizes.tolist()))
    spread = max(float(np.mean(y * y)) - float(np.mean(x * y)) ** 2 / float(np.mean(x * x)), 0.0)
    edges = (0.2, 1.0 - values["tolerance"], 1.0 + values["tolerance"]) if "tolerance" in values else LINEAR
    band = _band(value, edges)
    word = WORDS[band] + (f"; a straight line leaves {units.show(float(fixed.value), 's', 3)} at size 0" if band == "sublinear" else "")
    terms = [exponent, growth, fixed]
    verdict, extra = "inconclusive", {}
    if len(times) > 2:
        half = leaf(
            "half of the 95 % interval", _half_width, "1", quantile=_student(len(times) - 2), spread=spread,
            variance=float(np.mean(x * x)), points=float(len(times)),
        )  # fmt: skip
        terms.append(half)
        low, high = value - float(half.value), value + float(half.value)
        if count >= ENOUGH and _band(low, edges) == _band(high, edges):
            verdict = band
        sure = f"verdict {verdict}" if count >= ENOUGH else f"no verdict from {count} sizes, give {ENOUGH} or more"
        told = f"95 % interval {low:.3f} to {high:.3f} over {len(times)} times: {sure}"
        extra = {"low": low, "high": high}
    else:
        told = f"no interval and no verdict from {len(times)} times: give {ENOUGH} sizes or more"
    first = values["scaling"][0]
    rows = []
    previous = None
    for size, time in values["scaling"]:
        row = {"size": size, "time": time, "size_ratio": size / first[0], "time_ratio": time / first[1], "exponent": None}
        if previous is not None and size > previous[0]:
            row["exponent"] = float(np.log(time / previous[1]) / np.log(size / previous[0]))
        rows.append(row)
        previous = (size, time)
    columns = (
        Column("size", "size", "1"),
        Column("time", "time", "s"),
        Column("size_ratio", "size ratio", "1"),
        Column("time_ratio", "time ratio", "1"),
        Column("exponent", "exponent since the row above", "1"),
    )
    warnings = [COMPUTE_TOO] if band == "linear" else [FALLS] if value < -LINEAR[0] else []
    if verdict == "inconclusive" and count >= ENOUGH:
        warnings.append("the interval reaches over more than one verdict: measure a wider range of sizes, several times each")
    alone = "taken alone, " if verdict == "inconclusive" else ""
    headline = [f"time goes with size to the power {value:.3f}: {alone}{word}", told]
    tables = [Table("points", "Measured", columns, rows)]
    return Answer("Time against size", headline, tables, terms, {"verdict": verdict, **extra}, [], warnings, folders=folders)


ENOUGH = 5  # sizes below which no verdict is given
LINEAR = (0.2, 0.8, 1.1)  # exponents: flat below, in proportion between the last two; superlinear from 1.2
SUPERLINEAR = 1.2
WORDS = {
    "flat": "flat: latency or launches, not yet a roof",
    "sublinear": "sublinear: overhead is part of it, not yet a roof",
    "linear": "in proportion: a bandwidth or the compute roof binds (or an allocator that copies)",
    "between": "more than in proportion, not yet superlinear",
    "superlinear": "superlinear: suspect allocator fragmentation, format conversions, a cache that no longer holds, "
    "or work that grows as a square (attention)",
}


def _band(exponent: float, edges: tuple[float, float, float]) -> str:
    """The verdict of an exponent; a hundred-millionth over an edge is rounding."""
    flat, low, high = edges
    if exponent < flat:
        return "flat"
    if exponent < low - 1e-8:
        return "sublinear"
    if exponent <= high + 1e-8:
        return "linear"
    return "between" if high == LINEAR[2] and exponent < SUPERLINEAR else "superlinear"


def _student(freedom: int) -> float:
    """Student's t for a 95 % interval: a table, then its expansion in 1 / freedom."""
    known = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
    if freedom <= len(known):
        return known[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4.0 * freedom) + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * freedom**2)


def _half_width(quantile: Any, spread: Any, variance: Any, points: Any) -> Any:
    """Half of the interval of a slope of least squares: ``quantile sqrt(spread / ((points - 2) variance))``."""
    return quantile * np.sqrt(spread / ((points - 2.0) * variance))


def _quotient(first: Any, second: Any) -> Any:
    """One over the other: ``first / second``."""
    return first / second


def _slope(covariance: Any, variance: Any) -> Any:
    """The slope of least squares: ``covariance / variance``."""
    return covariance / variance


def _intercept(time: Any, slope: Any, size: Any) -> Any:
    """Where the line of least squares meets size 0: ``time - slope size``."""
    return time - slope * size
