"""Figures of a search: time against memory, money against time, plans of other kinds, what to buy next."""

from __future__ import annotations

from collections.abc import Sequence

from ironlaw.errors import QuestionError
from ironlaw.figures.marks import (
    GIB,
    MEDIUM,
    Answer,
    Row,
    Size,
    Spec,
    frame,
    kind_colour,
    layer,
    names,
    percent,
    quantity,
    rows_size,
    shown,
    signed,
    tooltip,
    with_room,
)

AXES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_shard", "dp_replicate", "zero")
ROOFS = ("compute", "hbm", "network", "pipeline", "dispatch", "data")


def _words(plan: Answer) -> str:
    """The axes of a plan that are not 1."""
    return " ".join(f"{axis} {plan[axis]}" for axis in AXES if plan.get(axis) not in (None, 1)) or "one accelerator"


def _best(answer: Answer) -> Answer:
    """The best plan; an error where no plan meets the question."""
    if not answer["plans"]:
        raise QuestionError("no plan meets the question: there is nothing to draw")
    return answer["plans"][0]


def _subject(answer: Answer) -> str:
    plan = _best(answer)["plan"]
    return f"{plan['model']} on {plan['gpus']:,.0f} {plan['accelerator']}"


def pareto_memory(answer: Answer) -> Spec:
    """Step time against memory: the plans of the best size that no other beats in both."""
    best = _best(answer)
    plan, step, memory = best["plan"], best["step"], best["memory"]
    rows = _front(answer)
    limit, near = memory["capacity_bytes"] / GIB, step["seconds"] * (1.0 + answer["told_apart"])
    for row in rows:
        row["too_close"] = row["step_seconds"] <= near
    x = quantity("step_seconds", "step, s", zero=False)
    highest = max([limit, *(row["GiB"] for row in rows)])
    y = quantity("GiB", "memory of the fullest accelerator, GiB", domain=with_room(highest, 0.2))  # for the names above the limit
    at = {"step_seconds": step["seconds"], "GiB": memory["device"] / GIB, "plan": _words(plan)}
    marks = [
        layer({"type": "rule", "size": 2}, [{"GiB": limit}], y=quantity("GiB")),
        layer(
            {"type": "text", "align": "right", "dy": 14, "x": "width"},  # below: the names of plans stand above
            [{"GiB": limit}],
            y=quantity("GiB"),
            text={"value": f"limit {limit:.3g} GiB"},
        ),
        layer({"type": "line", "interpolate": "step-after", "color": "@line2"}, x=x, y=y),
        layer(
            {"type": "point", "filled": True, "size": 45, "fillOpacity": 1, "stroke": "@ink2"},
            x=x,
            y=y,
            fill={"condition": {"test": "datum.too_close", "value": "@line2"}, "value": "@bg"},
            tooltip=tooltip("plan", "says"),
        ),
    ]
    if band := step.get("band"):
        marks.insert(
            0,
            layer(
                {"type": "rule", "size": 8, "color": "@accent", "opacity": 0.3},
                [{**at, "low": band[0], "high": band[1]}],
                x=quantity("low"),
                x2={"field": "high"},
                y=y,
            ),
        )
    marks.append(layer({"type": "point", "filled": True, "size": 90, "color": "@accent"}, [at], x=x, y=y))
    named = _named({**at, "name": f"best: {_words(plan)}"}, rows)
    marks += [_label(one, x, y, limit) for one in named if one is named[0] or abs(one["GiB"] - at["GiB"]) > 0.06 * limit]
    listed = "; ".join(f"{one['name']}, {one['step_seconds']:.3g} s, {one['GiB']:.3g} GiB" for one in named)
    says = f"{len(rows)} plans that no other beats in time and memory, limit {limit:.3g} GiB. {listed}."
    return frame(("Time against memory", _subject(answer)), says, Size(500, 300), rows, marks)


def _named(best: Row, rows: Sequence[Row]) -> list[Row]:
    """The plans that are worth a name: the best, the leanest, the fastest."""
    if not rows:
        return [best]
    leanest, fastest = min(rows, key=lambda row: row["GiB"]), min(rows, key=lambda row: row["step_seconds"])
    others = [row for row in (("leanest", leanest), ("fastest", fastest)) if row[1]["plan"] != best["plan"]]
    return [best, *({**row, "name": f"{word}: {row['plan']}"} for word, row in others)]


def _label(one: Row, x: Spec, y: Spec, limit: float) -> Spec:
    """The name of a plan above its point, on the side with more room; of a point just under the limit above the line of the limit."""
    if 0.0 < limit - one["GiB"] < 0.12 * limit:
        one = {**one, "GiB": limit}
    right = one["name"].startswith("leanest")
    mark = {"type": "text", "align": "right" if right else "left", "dx": 4 if right else 10, "dy": -24 if right else -10, "limit": 240}
    return layer(mark, [one], x=x, y=y, text={"field": "name"})


def _front(answer: Answer) -> list[Row]:
    """The plans of the front that run on the size of the best plan, fastest first; of them those that need less memory than all before."""
    best = _best(answer)["plan"]
    alike = [one for one in answer["pareto"] if one["accelerator"] == best["accelerator"] and one["gpus"] == best["gpus"]]
    rows: list[Row] = []
    for one in sorted(alike, key=lambda one: (one["step_seconds"], one["device_bytes"])):
        if not rows or one["device_bytes"] < rows[-1]["bytes"]:
            size = one["device_bytes"]
            rows.append({
                "plan": _words(one["plan"]), "step_seconds": one["step_seconds"], "bytes": size, "GiB": size / GIB,
                "says": f"{shown(one['step_seconds'], 's')}, {shown(size, 'B')}",
            })  # fmt: skip
    return rows


def size_money(answer: Answer) -> Spec:
    """Money against days: the best plan of each number of accelerators."""
    sizes = [one for one in answer["sizes"]["by_gpus"] if one.get("usd") is not None and one.get("days") is not None]
    if not sizes:
        raise QuestionError("no size has a price and an end: give --tokens, and a price where the catalogue has none")
    rows = []
    for one in sorted(sizes, key=lambda one: (one["accelerator"], one["days"])):
        band = (one.get("bands") or {}).get("cost")
        rows.append(
            {
                "accelerator": one["accelerator"],
                "gpus": one["gpus"],
                "days": one["days"],
                "million_usd": one["usd"] / 1e6,
                "low": band[0] / 1e6 if band else None,
                "high": band[1] / 1e6 if band else None,
                "says": f"{one['gpus']:,.0f}" if one["gpus"] & (one["gpus"] - 1) == 0 else "",
            }
        )
    x = quantity("days", "days of the run (log)", log=True)
    y = quantity("million_usd", "M USD", zero=True)
    best = _best(answer)["plan"]
    chosen = [row for row in rows if row["gpus"] == best["gpus"] and row["accelerator"] == best["accelerator"]]
    by = {"field": "accelerator", "type": "nominal"}
    marks = [
        layer(
            {"type": "area", "color": "@line2", "opacity": 0.3},
            [row for row in rows if row["low"] is not None],
            x=x,
            y=quantity("low"),
            y2={"field": "high"},
            detail=by,
        ),
        layer({"type": "line", "color": "@line2"}, x=x, y=y, detail=by),
        layer(
            {"type": "point", "filled": True, "fill": "@bg", "stroke": "@ink2", "size": 45, "fillOpacity": 1},
            x=x,
            y=y,
            tooltip=tooltip("accelerator", "gpus", "days", "million_usd"),
        ),
        layer({"type": "point", "filled": True, "size": 90, "color": "@accent"}, chosen, x=x, y=y),
        layer({"type": "text", "dy": 16}, x=x, y=y, text={"field": "says"}),
    ]
    listed = "; ".join(f"{row['gpus']:,.0f} x {row['accelerator']} {row['days']:.3g} days, {row['million_usd']:.3g} M USD" for row in rows)
    return frame(
        ("How many accelerators", str(best["model"])),
        f"Money and days of the best plan of each size: {listed}.",
        Size(MEDIUM.width, 250),
        rows,
        marks,
    )


def plans(answer: Answer) -> Spec:
    """The best plans of different kinds, each with its band."""
    best = _best(answer)["step"]["seconds"]
    rows = []
    for at, one in enumerate(answer["plans"]):
        band, seconds = one["step"].get("band"), one["step"]["seconds"]
        likely = f", the fastest with {one['fastest_probability']:.0%}" if one.get("fastest_probability") is not None else ""
        rows.append(
            {
                "plan": f"{at + 1}. {_words(one['plan'])}",
                "step_seconds": seconds,
                "low": band[0] if band else None,
                "high": band[1] if band else None,
                "against_best": seconds / best - 1.0,
                "says": f"{shown(seconds, 's')}, {signed(seconds / best - 1.0)}{likely}",
            }
        )
    y, x = names("plan", labelLimit=260), quantity("step_seconds", "step, s", zero=False)
    marks = [
        layer({"type": "rule", "strokeDash": [4, 4], "color": "@line2"}, [{"step_seconds": best}], x=quantity("step_seconds")),
        layer(
            {"type": "rule", "size": 8, "color": "@line2", "opacity": 0.4},
            [row for row in rows if row["low"] is not None],
            y=y,
            x=quantity("low"),
            x2={"field": "high"},
        ),
        layer({"type": "tick", "thickness": 3, "height": 16, "color": "@ink"}, y=y, x=x, tooltip=tooltip("plan", "says")),
    ]
    listed = "; ".join(f"{row['plan']}: {row['says']}" for row in rows)
    return frame(("Plans of other kinds", _subject(answer)), f"{listed}.", rows_size(len(rows), 560), rows, marks)


def advice(answer: Answer) -> Spec:
    """What a little more of each resource would give, the plan held."""
    found = sorted((one for one in answer["advice"] if one["about"] == "resource"), key=lambda one: -one["gain"])
    rows = [
        {
            "resource": f"{one['name']} {one['change']}",
            "kind": one["bound"] if one["bound"] in ROOFS else "workspace",
            "gain": one["gain"],
            "at_best": one.get("at_best"),
            "usd": one.get("usd"),
            "says": percent(one["gain"]) + (f", worth {one['usd']:,.0f} USD" if one.get("usd") else ""),
        }
        for one in found
    ]
    y, x = (
        names("resource"),
        quantity("gain", "faster by", domain=with_room(max((row["gain"] for row in rows), default=0.0), 0.6), format=".0%"),
    )
    marks = [
        layer({"type": "bar", "height": {"band": 0.6}}, y=y, x=x, color=kind_colour(rows), tooltip=tooltip("resource", "says")),
        layer({"type": "text", "align": "left", "dx": 4}, y=y, x=x, text={"field": "says"}),
    ]
    listed = "; ".join(f"{row['resource']} {row['says']}" for row in rows)
    return frame(
        ("What to buy next", _subject(answer)), f"One change each, the plan held: {listed}.", rows_size(len(rows), 560), rows, marks
    )
