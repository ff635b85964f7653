"""Figures of one estimate: memory, roofs, from the peak to the MFU, where a step goes, the nearest runs, the pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from ironlaw.figures.marks import (
    GIB,
    MEMORY,
    NAMES,
    TIME,
    WIDE,
    Answer,
    Row,
    Size,
    Spec,
    bar_of,
    frame,
    kind_colour,
    kind_of,
    layer,
    names,
    outline,
    percent,
    quantity,
    rows_size,
    shown,
    signed,
    stack,
    stripes,
    tooltip,
    with_room,
)

DEEPEST = 3  # levels of the tree of a step that are drawn
LEAST = 0.005  # of a step: a smaller term is counted, not drawn
LOSSES = (  # of the waterfall: key, what it is called, its kind
    ("kernels", "kernels below the peak", "compute"),
    ("memory_bound", "memory-bound work", "hbm"),
    ("recomputation", "recomputation", "compute"),
    ("untrained", "layers not trained", "compute"),
    ("network", "network", "network"),
    ("pipeline", "pipeline", "pipeline"),
    ("host", "host", "dispatch"),
    ("data", "data", "data"),
    ("rest", "the rest", "rest"),
)
PASSES = {"forward": "@compute", "backward": "@backward", "input gradients": "@backward", "weight gradients": "@pipeline"}


def subject(answer: Answer) -> str:
    """What an estimate is of, in a few words."""
    plan = answer["plan"]
    return f"{plan['model']} on {plan['gpus']:,.0f} {plan['accelerator']}"


def memory_bar(answer: Answer) -> Spec:
    """The memory of the fullest accelerator against its limit."""
    memory = answer["memory"]
    limit, device, band = memory["capacity_bytes"] / GIB, memory["device"] / GIB, memory.get("band")
    sizes = memory_kinds(answer)
    most = max([limit * 1.02, device * 1.02, *([band[1] / GIB] if band else [])])
    rows = stack(
        [
            {"row": "device", "what": NAMES.get(kind, kind), "kind": kind, "GiB": size / GIB, "says": shown(size, "B")}
            for kind, size in sizes.items()
        ],
        "GiB",
        most,
    )
    x = quantity("from", "GiB", domain=(0.0, most), grid=False)
    margin = limit * (1.0 - memory.get("margin", 0.0))
    marks = [
        layer(
            {"type": "rect", "fill": "@bad-tint", "stroke": "@bad"}, [{"from": margin, "to": limit}],
            x=quantity("from", domain=(0.0, most)), x2={"field": "to"},
        ),
        *bar_of(rows, x),
        layer({"type": "rule", "size": 3}, [{"limit": limit}], x=quantity("limit")),
        layer(
            {"type": "text", "align": "right", "dx": 2, "y": -8, "fontWeight": 600}, [{"limit": limit}], x=quantity("limit"),
            text={"value": f"limit {limit:.3g} GiB"},
        ),
    ]  # fmt: skip
    if band:
        ends = [{"low": band[0] / GIB, "high": band[1] / GIB, "device": device, "row": "band"}]
        y = {"field": "row", "type": "nominal", "axis": None}
        marks.append(layer({"type": "rule", "size": 2}, ends, x=quantity("low"), x2={"field": "high"}, y=y))
        marks.append(layer({"type": "point", "filled": True, "size": 50}, ends, x=quantity("device"), y=y))
    ends_said = f"; {band[2]:.0%} band {shown(band[0], 'B')} to {shown(band[1], 'B')}" if band else ""
    parts = ", ".join(f"{row['what']} {row['says']}" for row in rows)
    says = f"{shown(memory['device'], 'B')} of {shown(memory['capacity_bytes'], 'B')} on the fullest accelerator{ends_said}: {parts}."
    return frame(
        ("Memory of the fullest accelerator", subject(answer)),
        says,
        Size(WIDE.width, 170),
        rows,
        marks,
        resolve={"scale": {"color": "independent"}},
    )


def memory_kinds(answer: Answer) -> dict[str, float]:
    """Bytes of each kind of memory, in the order of the bar."""
    kinds = answer["memory"]["tree"]["kinds"]
    order = [*MEMORY, *(kind for kind in kinds if kind not in MEMORY)]
    return {kind: kinds[kind] for kind in order if kinds.get(kind, 0.0) > 0.0}


def roofs(answer: Answer) -> Spec:
    """What bounds a step: the share of each roof."""
    shares = {kind: part for kind, part in answer["bound"]["shares"].items() if part > 0.0}
    if (rest := 1.0 - sum(shares.values())) > 5e-4:
        shares["rest"] = rest
    rows = stack(
        [
            {"row": "step", "what": NAMES.get(kind, kind), "kind": kind, "share": part, "says": percent(part)}
            for kind, part in shares.items()
        ],
        "share",
        1.0,
    )
    x = quantity("from", "share of the step", domain=(0.0, max(1.0, sum(shares.values()))), format=".0%", grid=False)
    parts = ", ".join(f"{row['what']} {row['says']}" for row in rows)
    says = f"A step takes {shown(answer['step']['seconds'], 's')} and is bound by {answer['bound']['by']}: {parts}."
    title = ("What bounds the step", subject(answer))
    return frame(title, says, Size(WIDE.width, 150), rows, bar_of(rows, x), resolve={"scale": {"color": "independent"}})


MIDDLE = 0.4  # share of the peak: what a loss further right is called stands at the left of its bar


def waterfall(answer: Answer) -> Spec:
    """From the peak of the accelerator to the MFU, loss by loss."""
    found = answer["mfu_waterfall"]
    left = 1.0
    rows: list[Row] = [{"loss": "peak", "kind": "rest", "share": 1.0, "from": 0.0, "to": 1.0, "says": "100 %"}]
    for key, name, kind in LOSSES:
        if found[key] != 0.0:
            rows.append(
                {"loss": name, "kind": kind, "share": found[key], "from": left - found[key], "to": left, "says": signed(-found[key])}
            )
            left -= found[key]
    rows.append({"loss": "MFU", "kind": "compute", "share": found["mfu"], "from": 0.0, "to": found["mfu"], "says": percent(found["mfu"])})
    y = names("loss")
    x = quantity("from", "share of the peak", domain=(0.0, 1.3), format=".0%", values=[0.0, 0.25, 0.5, 0.75, 1.0])
    bars = layer(
        {"type": "bar", "cornerRadius": 2, "height": {"band": 0.6}},
        y=y, x=x, x2={"field": "to"}, color=kind_colour(rows), stroke=outline(), tooltip=tooltip("loss", "says"),
    )  # fmt: skip
    for row in rows:
        row["side"] = "left" if row["to"] > MIDDLE and row["from"] > MIDDLE else "right"
    left_of, right_of = (
        layer(
            {"type": "text", "align": align, "dx": dx},
            y=y, x={**x, "field": edge}, text={"condition": {"test": f"datum.side === '{side}'", "field": "says"}, "value": ""},
        )
        for side, align, dx, edge in (("left", "right", -4, "from"), ("right", "left", 4, "to"))
    )  # fmt: skip
    lost = sorted(rows[1:-1], key=lambda row: -row["share"])
    listed = ", ".join(f"{row['loss']} {row['says']}" for row in lost)
    says = f"The MFU is {percent(found['mfu'])} of the peak. Lost: {listed}."
    return frame(("From the peak to the MFU", subject(answer)), says, rows_size(len(rows), 460), rows, [bars, left_of, right_of])


def step_tree(answer: Answer) -> Spec:
    """Where a step goes: its terms, indented by depth, each split by kind."""
    seconds = answer["step"]["seconds"]
    terms = list(_terms(answer["step"]["tree"], 0, seconds))
    small = sum(1 for one in _leaves(answer["step"]["tree"], 0) if 0.0 < one["total"] < LEAST * seconds)
    unit, size = ("ms", 1e3) if seconds < 1.0 else ("s", 1.0)
    rows = []
    for node in terms:
        kinds = node.get("kinds") or {kind_of(node): node["total"]}
        ordered = [kind for kind in (*TIME, *kinds) if kinds.get(kind, 0.0) > 0.0]
        rows += [
            {
                "path": node["path"],
                "term": node["name"],
                "kind": kind,
                "seconds": kinds[kind],
                unit: kinds[kind] * size,
                "total": node["total"] * size,
                "says": f"{shown(node['total'], 's')}  {percent(node['total'] / seconds)}",
            }
            for kind in dict.fromkeys(ordered)
        ]
    indent = "'\u200b' + pad('', 2 * (length(split(datum.value, '/')) - 2), '\u2003', 'left') + peek(split(datum.value, '/'))"
    y = names("path", labelExpr=indent, labelAlign="left", labelPadding=210, labelLimit=205)
    bars = layer(
        {"type": "bar", "height": {"band": 0.6}},
        y=y,
        x=quantity(unit, f"time of the term, {unit}", domain=with_room(seconds * size)),
        color=kind_colour(rows, legend=True),
        stroke=outline(),
        order={"value": 0},
        tooltip=tooltip("path", "kind", "says"),
    )
    firsts = [row for at, row in enumerate(rows) if at == 0 or rows[at - 1]["path"] != row["path"]]
    text = layer({"type": "text", "align": "left", "dx": 4}, firsts, y=y, x=quantity("total"), text={"field": "says"})
    top = ", ".join(f"{node['name']} {shown(node['total'], 's')}" for node in terms if node["path"].count("/") == 1)
    fewer = f" {small} smaller terms are not drawn." if small else ""
    says = f"A step takes {shown(seconds, 's')}: {top}.{fewer}"
    return frame(("Where a step goes", subject(answer)), says, rows_size(len(terms), 640, 90), rows, [bars, text])


def _terms(node: Answer, depth: int, whole: float) -> Iterator[Answer]:
    """The terms below a node that are large enough to be drawn, each before its parts."""
    for part in node["parts"]:
        if part["total"] >= LEAST * whole:
            yield part
            if depth + 1 < DEEPEST:
                yield from _terms(part, depth + 1, whole)


def _leaves(node: Answer, depth: int) -> Iterator[Answer]:
    """All terms below a node down to the deepest level that is drawn."""
    for part in node["parts"]:
        yield part
        if depth + 1 < DEEPEST:
            yield from _leaves(part, depth + 1)


def nearest_runs(answer: Answer) -> Spec:
    """How wrong the predictions of the nearest published runs are, in the band of this estimate."""
    seconds, band = answer["step"]["seconds"], answer["step"].get("band")
    rows = [
        {
            "run": run["id"],
            "error": run["error"],
            "measured_seconds": run["measured_seconds"],
            "predicted_seconds": run["predicted_seconds"],
            "differs": ", ".join(run["differs"]),
            "says": signed(run["error"]),
        }
        for run in answer["nearest_runs"]
    ]
    y, x = names("run"), quantity("error", "predicted over measured, less 1", format="+.0%")
    marks = [layer({"type": "rule"}, [{"error": 0.0}], x=quantity("error"))]
    if band:
        ends = [{"error": band[0] / seconds - 1.0, "to": band[1] / seconds - 1.0}]
        marks.insert(0, layer({"type": "rect", "color": "@line2", "opacity": 0.25}, ends, x=quantity("error"), x2={"field": "to"}))
    marks.append(
        layer({"type": "point", "filled": True, "size": 70, "color": "@accent"}, y=y, x=x, tooltip=tooltip("run", "says", "differs"))
    )
    marks.append(layer({"type": "text", "align": "left", "dx": 8}, y=y, x=x, text={"field": "says"}))
    listed = ", ".join(f"{row['run']} {row['says']}" for row in rows) or "none"
    says = f"Errors of the nearest published runs: {listed}."
    return frame(("The nearest published runs", subject(answer)), says, rows_size(len(rows)), rows, marks)


def _span(start: float, end: float) -> Row:
    """When a pass runs, to the microsecond: there are thousands of them."""
    return {"start_ms": round(start * 1e3, 3), "end_ms": round(end * 1e3, 3)}


def pipeline(answer: Answer) -> Spec:
    """When each pass runs on each stage, and where a stage waits."""
    found = answer["timeline"]
    events, kinds = found["events"], found["kinds"]
    rows = [
        {"stage": f"stage {stage}", "pass": kinds[kind], "chunk": chunk, "micro_batch": micro, **_span(start, end)}
        for stage, chunk, micro, kind, start, end in zip(
            *(events[name] for name in ("stage", "chunk", "micro_batch", "kind", "start", "end")), strict=True
        )
    ]
    present = [kind for kind in kinds if any(row["pass"] == kind for row in rows)]
    stages = [f"stage {at}" for at in range(found["stages"])]
    last = max((row["end_ms"] for row in rows), default=0.0)
    waits = [{"stage": name, "start_ms": 0.0, "end_ms": last} for name in stages]
    y, x = names("stage", stages), quantity("start_ms", "ms", domain=(0.0, last), grid=False)
    colour = {
        "field": "pass",
        "type": "nominal",
        "scale": {"domain": present, "range": [PASSES[kind] for kind in present]},
        "legend": {"columns": 4},
    }
    marks = [
        {
            **layer(
                {"type": "rect", "height": {"band": 0.8}, "fill": "@sunk", "stroke": "@line2"}, waits, y=y, x=x, x2={"field": "end_ms"}
            ),
            "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}],
        },
        stripes(waits, x, y, 0.8),
        layer(
            {"type": "rect", "height": {"band": 0.8}, "stroke": "@bg", "strokeWidth": 0.25, "clip": True},
            y=y,
            x=x,
            x2={"field": "end_ms"},
            color=colour,
            tooltip=tooltip("stage", "pass", "chunk", "micro_batch"),
        ),
    ]
    waiting = ", ".join(f"stage {at} {shown(wait, 's')}" for at, wait in enumerate(found["waits"]))
    left = " The middle of the step, which repeats, is left out." if found["left_out"] else ""
    says = (
        f"{found['schedule']}: {found['stages']} stages with {found['chunks']} chunks each pass {found['micro_batches']} micro-batches in "
        f"{shown(found['seconds'], 's')}. Waiting: {waiting}.{left}"
    )
    about = f"{found['stages']} stages x {found['chunks']} chunks, {found['micro_batches']} micro-batches; drag to move, wheel to zoom"
    return frame(("The pipeline", about), says, Size(WIDE.width, 90 + 36 * len(stages)), rows, marks)
