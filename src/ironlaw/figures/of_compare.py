"""Figures of a comparison of accelerators: money or days of each with its band, and money against time."""

from __future__ import annotations

from typing import Any

from ironlaw.errors import QuestionError
from ironlaw.figures.marks import Answer, Row, Size, Spec, frame, layer, names, quantity, rows_size, tooltip


def _rows(answer: Answer) -> list[Row]:
    """The accelerators whose run ends, the cheapest first, or the fastest where there is no price."""
    rows = [
        {"accelerator": one["accelerator"], "gpus": one["gpus"], "days": one["days_with_failures"], "days_low": one.get("days_low"),
         "days_high": one.get("days_high"), "million_usd": _million(one.get("usd_with_failures")), "usd_low": _million(one.get("usd_low")),
         "usd_high": _million(one.get("usd_high")), "bound": one.get("bound") or ""}
        for one in answer["estimate"] if one.get("days_with_failures") is not None
    ]  # fmt: skip
    if not rows:
        raise QuestionError("no run ends: give --tokens, and accelerators on which the model fits")
    return sorted(rows, key=lambda row: (row["million_usd"] is None, row["million_usd"] or row["days"]))


def _million(value: Any) -> float | None:
    return None if value is None else value / 1e6


def compare(answer: Answer) -> Spec:
    """Money of each accelerator with its band, or days where no price is known; what reaches into the band of the first is too close."""
    rows = _rows(answer)
    priced = all(row["million_usd"] is not None for row in rows)
    key, low, high, title = ("million_usd", "usd_low", "usd_high", "M USD") if priced else ("days", "days_low", "days_high", "days")
    for row in rows:
        row["says"] = f"{row[key]:.3g} {title}, bound by {row['bound']}"
    y = names("accelerator")
    marks = []
    banded = [row for row in rows if row[low] is not None]
    if rows[0][low] is not None:
        marks.append(layer({"type": "rect", "color": "@accent-tint"}, rows[:1], x=quantity(low), x2={"field": high}))
    marks += [
        layer({"type": "rule", "size": 8, "color": "@line2", "opacity": 0.5}, banded, y=y, x=quantity(low), x2={"field": high}),
        layer(
            {"type": "point", "filled": True, "size": 80, "color": "@accent"},
            y=y,
            x=quantity(key, title),
            tooltip=tooltip("accelerator", "says"),
        ),
        layer({"type": "text", "align": "left", "dx": 10, "dy": -9}, y=y, x=quantity(key), text={"field": "bound"}),
    ]
    listed = "; ".join(f"{row['accelerator']} {row['says']}" for row in rows)
    size = rows_size(len(rows), 520)
    return frame(("Which accelerator", str(answer["title"])), f"{listed}.", Size(size.width, size.height + 10 * len(rows)), rows, marks)


def money_time(answer: Answer) -> Spec:
    """Money against days. Money is days times rent, so the band of each lies on the ray of its rent."""
    rows = [row for row in _rows(answer) if row["million_usd"] is not None]
    if not rows:
        raise QuestionError("no accelerator has a price: give --price")
    for row in rows:
        rent = row["million_usd"] / row["days"]
        row["usd_a_day"] = rent * 1e6
        row["says"] = f"{row['million_usd']:.3g} M USD, {row['days']:.3g} days"
    dearest = max(row["usd_a_day"] for row in rows)
    for row in rows:  # bands lie on rays: names stand away from the next ray
        row["side"] = "above" if row["usd_a_day"] == dearest else "below"
    ends = [
        {"accelerator": row["accelerator"], "days": row[end], "million_usd": row[end] * row["usd_a_day"] / 1e6}
        for row in rows for end in ("days_low", "days_high") if row["days_low"] is not None
    ]  # fmt: skip
    rays = [
        {"accelerator": row["accelerator"], "days": part * row["days"], "million_usd": part * row["million_usd"]}
        for row in rows
        for part in (0.0, 1.0)
    ]
    x, y, by = (
        quantity("days", "days of the run, with failures"),
        quantity("million_usd", "M USD"),
        {"field": "accelerator", "type": "nominal"},
    )
    marks = [
        layer({"type": "line", "strokeDash": [1, 3], "color": "@line2"}, rays, x=x, y=y, detail=by),
        layer({"type": "line", "strokeWidth": 8, "strokeCap": "round", "color": "@line2", "opacity": 0.5}, ends, x=x, y=y, detail=by),
        layer({"type": "point", "filled": True, "size": 90, "color": "@accent"}, x=x, y=y, tooltip=tooltip("accelerator", "says")),
        *(
            layer(
                {"type": "text", "align": align, "dx": dx, "dy": dy},
                x=x,
                y=y,
                text={"condition": {"test": f"datum.side === '{side}'", "field": "accelerator"}, "value": ""},
            )
            for side, align, dx, dy in (("above", "right", -8, -12), ("below", "left", 10, 10))
        ),
    ]
    listed = "; ".join(f"{row['accelerator']} {row['says']}" for row in rows)
    return frame(("Money against time", str(answer["title"])), f"{listed}.", Size(500, 300), rows, marks)
