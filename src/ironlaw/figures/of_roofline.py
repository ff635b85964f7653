"""Figures of a roofline: operators below their roofs, and communication beside computation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ironlaw.errors import QuestionError
from ironlaw.figures.marks import (
    LARGE,
    Answer,
    Row,
    Size,
    Spec,
    frame,
    kind_colour,
    layer,
    names,
    powers,
    quantity,
    rows_size,
    shown,
    tooltip,
)

END = 6.0  # of the last value of the axis over that of a point: one that is nearer has its name at the left
NAMED = 6  # operators with their names
HIGHER, FARTHER = 0.35, 2.0  # e-folds between points whose names do not overlap


def roofline(answer: Answer) -> Spec:
    """Operators by FLOP for each byte and FLOP/s, below the slope of the memory and the roof of the arithmetic."""
    rows = [_operator(one) for one in answer["operators"] if one.get("flop") and one.get("bytes") and _seconds(one)]
    if not rows:
        raise QuestionError("no operator does arithmetic: give --gemm, --attention, --shapes or a MODEL")
    roofs = _roofs(answer)
    least, most = min(0.5, *(row["flop_per_byte"] for row in rows)), max(2000.0, *(2.0 * row["flop_per_byte"] for row in rows))
    x = quantity("flop_per_byte", "FLOP for each byte of HBM (log)", log=True, domain=(least, most), values=powers(least, most))
    low = min([row["tflops"] for row in rows] + [least * bandwidth / 1e12 for _, bandwidth in roofs]) / 2.0
    high = 2.0 * max([peak / 1e12 for peak, _ in roofs] or [row["tflops"] for row in rows])
    y = quantity("tflops", "TFLOP/s (log)", log=True, domain=(low, high), format="~s", values=powers(low, high))
    marks = [_roof(peak, bandwidth, least, most, x, y) for peak, bandwidth in roofs]
    for peak, bandwidth in roofs:
        ridge = peak / bandwidth
        marks.append(
            layer(
                {"type": "rule", "strokeDash": [2, 3], "color": "@line2"},
                [{"flop_per_byte": ridge}],
                x=quantity("flop_per_byte", log=True, domain=(least, most)),
            )
        )
        label = [{"flop_per_byte": most, "tflops": peak / 1e12, "name": f"{peak / 1e12:,.0f} TFLOP/s"}]
        marks.append(layer({"type": "text", "align": "right", "dy": -8, "fontWeight": 600}, label, x=x, y=y, text={"field": "name"}))
    stems = [row for row in rows if row["roof_tflops"] is not None]
    marks += [
        layer({"type": "rule", "color": "@line2"}, stems, x=x, y=quantity("tflops", log=True), y2={"field": "roof_tflops"}),
        layer(
            {"type": "point", "filled": True, "strokeWidth": 2, "fillOpacity": 1},
            x=x,
            y=y,
            color=kind_colour(rows, legend=True),
            fill={
                "condition": {"test": "datum.expected", "field": "kind", "type": "nominal", "scale": kind_colour(rows)["scale"]},
                "value": "@bg",
            },
            size={"field": "seconds", "type": "quantitative", "scale": {"range": [30, 300]}, "legend": None},
            tooltip=tooltip("operator", "says"),
        ),
    ]
    for align, named in _sides(_named(rows), most):
        mark = {"type": "text", "align": align, "dx": -10 if align == "right" else 10, "dy": 4, "limit": 160}
        marks.append(layer(mark, named, x=x, y=y, text={"field": "operator"}))
    return frame(("Roofline", str(answer["title"])), _described(rows, roofs), LARGE, rows, marks)


def _named(rows: Sequence[Row]) -> list[Row]:
    """The longest operators that are far enough from each other for their names."""
    found: list[Row] = []
    for row in sorted(rows, key=lambda row: -row["seconds"]):
        apart = all(
            abs(math.log(row["tflops"] / other["tflops"])) > HIGHER
            or abs(math.log(row["flop_per_byte"] / other["flop_per_byte"])) > FARTHER
            for other in found
        )
        if len(found) < NAMED and apart:
            found.append(row)
    return found


def _sides(named: Sequence[Row], most: float) -> list[tuple[str, list[Row]]]:
    """Operators whose names stand at their right, where the roof above leaves room, and those too near the right end."""
    near_end = [row for row in named if row["flop_per_byte"] * END > most]
    rest = [row for row in named if row not in near_end]
    return [(align, rows) for align, rows in (("left", rest), ("right", near_end)) if rows]


def _described(rows: Sequence[Row], roofs: Sequence[tuple[float, float]]) -> str:
    """The roofs and how many operators each binds."""
    counted = {kind: sum(1 for row in rows if row["kind"] == kind) for kind in dict.fromkeys(row["kind"] for row in rows)}
    ridges = "; ".join(f"{shown(peak, 'FLOP/s')} and {shown(rate, 'B/s')} meet at {peak / rate:.0f} FLOP/B" for peak, rate in roofs)
    listed = ", ".join(f"{row['operator']} {row['flop_per_byte']:.3g} FLOP/B, {row['says']}" for row in rows[:8])
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    return f"{ridges or 'Operators'}. {', '.join(f'{count} bound by {kind}' for kind, count in counted.items())}: {listed}{more}."


def _seconds(one: Answer) -> float | None:
    """The time of an operator: in a step, expected, or the least."""
    found: float | None = one.get("time") or one.get("expected_time") or one.get("least_time")
    return found


def _operator(one: Answer) -> Row:
    """An operator as a point; hollow where only its least time is known."""
    seconds = _seconds(one)
    assert seconds is not None
    name = one["operator"] + (f", {one['where']}" if one.get("where") else "")
    roof = one.get("attainable_rate")
    rate = one["flop"] / seconds
    return {
        "operator": name, "kind": one["roof"] if one["roof"] in ("compute", "hbm", "network", "dispatch") else "rest", "flop": one["flop"],
        "bytes": one["bytes"], "flop_per_byte": one["intensity"], "tflops": rate / 1e12, "seconds": seconds,
        "roof_tflops": None if roof is None else roof / 1e12, "expected": bool(one.get("time") or one.get("expected_time")),
        "says": shown(seconds, "s") + (f", {rate / roof:.0%} of its roof" if roof else ""),
    }  # fmt: skip


def _roofs(answer: Answer) -> list[tuple[float, float]]:
    """Arithmetic [FLOP/s] and bandwidth [B/s] of each number format: of the operators, or of the device of a step."""
    found = {}
    for one in answer["operators"]:
        if (rate := one.get("attainable_rate")) and (ridge := one.get("ridge_point")):
            bandwidth = rate / one["intensity"] if one["intensity"] < ridge else rate / ridge
            found[round(math.log(bandwidth * ridge), 6), round(math.log(bandwidth), 6)] = (bandwidth * ridge, bandwidth)
    if not found:
        values: Answer = next((line["values"] for line in answer["headline"] if line["code"] == "step"), {})
        if values.get("peak") and values.get("ridge"):
            found[0.0, 0.0] = (values["peak"], values["peak"] / values["ridge"])
    return list(found.values())


def _roof(peak: float, bandwidth: float, least: float, most: float, x: Spec, y: Spec) -> Spec:
    """The slope of the memory and the roof of the arithmetic, each in its colour."""
    ridge = peak / bandwidth
    points = [
        {"flop_per_byte": least, "tflops": least * bandwidth / 1e12, "roof": "hbm"},
        {"flop_per_byte": ridge, "tflops": peak / 1e12, "roof": "hbm"},
        {"flop_per_byte": ridge, "tflops": peak / 1e12, "roof": "compute"},
        {"flop_per_byte": most, "tflops": peak / 1e12, "roof": "compute"},
    ]
    colour = {"field": "roof", "type": "nominal", "scale": {"domain": ["compute", "hbm"], "range": ["@compute", "@hbm"]}, "legend": None}
    return layer({"type": "line", "strokeWidth": 3}, points, x=x, y=y, stroke=colour)


def overlap(answer: Answer) -> Spec:
    """Communication beside computation: how long each collective takes alone, and how much of it still shows."""
    hidden = [one for one in answer["hidden"] if one["alone"] > 0.0]
    if not hidden:
        raise QuestionError("no collective of this plan runs beside computation")
    rows = []
    for one in hidden:
        name = one["collective"]
        beside = max(one["alone"] - one["shown"], 0.0)
        parts = (("beside computation", beside, 0.0, beside), ("shows", one["shown"], beside, beside + one["shown"]))
        rows += [
            {"collective": name, "part": part, "seconds": seconds, "from": start, "to": end, "says": shown(seconds, "s")}
            for part, seconds, start, end in parts
        ]
    colour = {
        "field": "part",
        "type": "nominal",
        "legend": {"columns": 2},
        "scale": {"domain": ["beside computation", "shows"], "range": ["@sunk", "@network"]},
    }
    y, x = names("collective", dict.fromkeys(row["collective"] for row in rows), labelLimit=280), quantity("from", "s of a step")
    marks = [
        layer(
            {"type": "bar", "height": {"band": 0.6}, "stroke": "@line2"},
            y=y,
            x=x,
            x2={"field": "to"},
            color=colour,
            tooltip=tooltip("collective", "part", "says"),
        )
    ]
    listed = "; ".join(f"{one['collective']} {shown(one['alone'], 's')}, of it {shown(one['shown'], 's')} shows" for one in hidden)
    size = rows_size(len(hidden), 620, 90)
    return frame(("Communication beside computation", str(answer["title"])), f"{listed}.", Size(size.width, size.height), rows, marks)
