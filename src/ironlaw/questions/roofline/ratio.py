"""The roof that explains the ratio of speeds measured on two devices."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.cautions.table import caution
from ironlaw.errors import UnsupportedError
from ironlaw.estimate.bind.cluster import bind_precision
from ironlaw.precision import PRECISIONS
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.roofline.roofs import TOLERANCE, given_rate
from ironlaw.terms import leaf, plain, scalar


def answer(_question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The datasheet ratios that agree with the measured ratio."""
    need(values, "on", "against")
    notes: Assumptions = []
    tolerance = values.get("tolerance", TOLERANCE)
    if "tolerance" not in values:
        assume(notes, "tolerance", TOLERANCE, "default")
    device, against = (load.record("accelerators", values[name], folders) for name in ("on", "against"))
    name = values.get("precision") or bind_precision(device.name, folders)
    peak = PRECISIONS[name].peak
    for record in (device, against):
        if peak not in record.peak:
            raise UnsupportedError(f"--precision {name}: {record.name} has no such rate; it has {', '.join(record.peak)}")
    hbm = [
        given_rate(values[option], "B/s") if option in values else record.hbm_bandwidth
        for option, record in (("bandwidth", device), ("against_bandwidth", against))
    ]
    pairs: list[tuple[str, Any, Any, str]] = [
        ("HBM bandwidth", hbm[0], hbm[1], "B/s"),
        (f"{name} FLOP/s", device.peak[peak], against.peak[peak], "FLOP/s"),
    ]
    if device.scale_up_bandwidth is not None and against.scale_up_bandwidth is not None:
        pairs.append(("scale-up bandwidth", device.scale_up_bandwidth, against.scale_up_bandwidth, "B/s"))
    measured = [leaf(f"measured {first:g}/{second:g}", _quotient, "1", first=first, second=second) for first, second in values["ratio"]]
    low, high = min(scalar(term) for term in measured), max(scalar(term) for term in measured)
    ratios = [leaf(f"{label} ratio", _quotient, "1", first=first, second=second) for label, first, second, _ in pairs]
    rows = [_ratio_row(*pair, scalar(term), (low, high), tolerance) for pair, term in zip(pairs, ratios, strict=True)]
    follows = [str(row["what"]) for row in rows if row["follows"]]
    speeds = values["ratio"][0]
    moved = [
        leaf(f"bytes each on {record.name}", _quotient, "B", first=rate, second=speed)
        for record, rate, speed in zip((device, against), hbm, speeds, strict=True)
    ]
    measured_range = f"{low:.3f}" if low == high else f"{low:.3f} to {high:.3f}"
    headline = [
        f"measured {device.name} over {against.name}: {measured_range}; {_say_verdict(follows)}",
        "if HBM were the roof, one sample, frame or step (whatever was counted) would move "
        + " and ".join(f"{scalar(term) / 1e9:,.4g} GB on {record.name}" for term, record in zip(moved, (device, against), strict=True)),
    ]
    columns = (
        Column("what", "roof"), Column("first", device.name), Column("second", against.name), Column("ratio", "ratio", "1"),
        Column("off", "off by", "%"), Column("follows", "agrees"),
    )  # fmt: skip
    return Answer(
        title="What explains a speed ratio",
        headline=headline,
        tables=[Table("ratios", "Ratios", columns, rows)],
        terms=[*measured, *ratios, *moved],
        values={"ratio_low": low, "ratio_high": high, "follows": follows},
        assumptions=notes,
        warnings=[caution("not-only-bandwidth")] if "HBM bandwidth" in follows else [],
        feasible=bool(follows),
        folders=folders,
    )


def _ratio_row(
    what: str, first: Any, second: Any, unit: str, ratio: float, measured: tuple[float, float], tolerance: float
) -> dict[str, Any]:
    """The row of one rate: the ratio of the two devices, and whether it explains the measured one."""
    off = max(measured[0] / ratio, ratio / measured[1], 1.0) - 1.0  # from the nearer end of the measured range
    return {
        "what": what, "ratio": ratio, "off": off, "follows": off <= tolerance, "first": units.show(plain(first), unit, 4),
        "second": units.show(plain(second), unit, 4),
    }  # fmt: skip


def _say_verdict(follows: list[str]) -> str:
    """Which rates explain the measured ratio."""
    if len(follows) == 1:
        return f"it agrees with {follows[0]}: a strong hint, not a proof"
    if follows:
        return f"it agrees with {' and '.join(follows)}: these two devices cannot separate them"
    return "it agrees with none of them: overhead, the network or the input sets the speed, or different roofs on the two"


def _quotient(first: Any, second: Any) -> Any:
    """One over the other: ``first / second``."""
    return first / second
