"""The figure of an accelerator's prices over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.errors import QuestionError
from ironlaw.figures.marks import Answer, Size, Spec, frame, layer, quantity, tooltip

HOUR = 3600.0
TERMS = {"on-demand": "on demand", "reserved": "reserved", "spot": "spot"}


def price_history(answer: Answer) -> Spec:
    """USD for an hour of an accelerator by date: a line through the provider whose price is in use, a ring around that price."""
    found = answer["prices"]
    listed = found["price"] if isinstance(found, Mapping) else found
    if not listed:
        raise QuestionError("no price of this record is known: name an accelerator that has one")
    used: Any = answer.get("price_in_use") or max([one for one in listed if one["term"] == "on-demand"] or listed, key=_day)
    rows = [
        {"date": _day(one), "usd_per_hour": one["per_hour"]["value"] * HOUR, "provider": one["provider"], "region": one["region"],
         "term": TERMS.get(one["term"], one["term"]), "on_demand": one["term"] == "on-demand", "in_use": one == used,
         "of_used": one["provider"] == used["provider"], "says": f"{one['per_hour']['value'] * HOUR:.2f} USD/h"}
        for one in sorted(listed, key=_day)
    ]  # fmt: skip
    name = found.get("title") if isinstance(found, Mapping) else answer["title"]
    last = next(row for row in rows if row["in_use"])
    x: Spec = {"field": "date", "type": "temporal", "title": None, "axis": {"labelOverlap": True, "format": "%b %Y", "tickCount": 5}}
    y = quantity("usd_per_hour", "USD per accelerator and hour")
    same = [row for row in rows if row["of_used"] and row["term"] == last["term"]]
    said = tooltip("provider", "region", "term", "date", "says")
    marks = [
        layer({"type": "line", "color": "@accent", "strokeWidth": 1.5}, same, x=x, y=y),
        layer(
            {"type": "point", "size": 60, "fillOpacity": 1, "opacity": 1}, x=x, y=y, tooltip=said,
            shape={"condition": {"test": "datum.on_demand", "value": "circle"}, "value": "diamond"},
            fill={"condition": [{"test": "!datum.on_demand", "value": "@bg"}, {"test": "datum.of_used", "value": "@accent"}],
                  "value": "@line2"},
            stroke={"condition": [{"test": "!datum.on_demand", "value": "@ink"}, {"test": "datum.of_used", "value": "@accent"}],
                    "value": "@line2"},
        ),
        layer({"type": "point", "size": 240, "color": "@accent", "strokeWidth": 1.5}, [last], x=x, y=y),
        layer({"type": "text", "dy": -16, "align": "right", "color": "@accent", "fontWeight": 620}, [last], x=x, y=y,
              text={"value": f"{last['says']}, in use"}),
    ]  # fmt: skip
    providers = len({row["provider"] for row in rows})
    lows = min(row["usd_per_hour"] for row in rows), max(row["usd_per_hour"] for row in rows)
    says = (
        f"{len(rows)} prices of {providers} {'provider' if providers == 1 else 'providers'} from {rows[0]['date']} to {rows[-1]['date']}, "
        f"{lows[0]:.2f} to {lows[1]:.2f} USD/h; in use {last['says']} of {last['provider']}, {last['date']}."
    )
    heading = "line: the provider in use; diamonds: reserved or spot"
    return frame(("Price history", f"{str(name).partition(',')[0]}; {heading}"), says, Size(620, 280), rows, marks)


def _day(one: Answer) -> str:
    """The day of a price; a date without its month or day is of its first."""
    parts = str(one["date"])[:10].split("-")
    return "-".join([*parts, *["01"] * (3 - len(parts))])
