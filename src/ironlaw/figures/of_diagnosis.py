"""Figures of a diagnosis: the window, its timeline and gaps, what would help, measured against predicted, ranks."""

from __future__ import annotations

from ironlaw.errors import QuestionError
from ironlaw.figures.marks import (
    MEDIUM,
    WIDE,
    Answer,
    Row,
    Size,
    Spec,
    bar_of,
    faded,
    frame,
    hatch,
    kind_colour,
    layer,
    names,
    outline,
    percent,
    quantity,
    rows_size,
    shown,
    signed,
    stack,
    tooltip,
)

ROOF_KINDS = ("compute", "hbm", "network", "pipeline", "dispatch", "data", "copy")
CLASSES = {1.0: "1 to 10 us", 10.0: "10 to 100 us", 100.0: "0.1 to 1 ms", 1e3: "1 to 10 ms", 1e4: "10 to 100 ms", 1e5: "over 100 ms"}


def _traced(answer: Answer, part: str) -> Answer:
    """The first file that has a part of a trace; an error where none has."""
    found = next((file for file in answer["files"] if file.get(part)), None)
    if found is None:
        raise QuestionError(f"no file of this diagnosis has a {part.replace('_', ' ')}: give a trace")
    return found


def _file(found: Answer) -> str:
    return str(found["path"]).rpartition("/")[2]


def partition(answer: Answer) -> Spec:
    """Where the time of the window went."""
    found = _traced(answer, "partition")
    whole = sum(one["us"] for one in found["partition"])
    rows = stack(
        [
            {"row": "window", "what": one["what"], "kind": one["kind"], "waits": one["waits"], "ms": one["us"] / 1e3,
             "says": f"{shown(one['us'] * 1e-6, 's')}, {percent(one['us'] / whole)}"}
            for one in found["partition"] if one["us"] > 0.0
        ],
        "ms", whole / 1e3,
    )  # fmt: skip
    x = quantity("from", "ms", domain=(0.0, whole / 1e3), grid=False)
    listed = "; ".join(f"{row['what']} {row['says']}" for row in rows)
    says = f"The window of {shown(whole * 1e-6, 's')}: {listed}."
    title = ("Where the window went", _file(found))
    return frame(title, says, Size(WIDE.width, 150), rows, bar_of(rows, x), resolve={"scale": {"color": "independent"}})


def timeline(answer: Answer) -> Spec:
    """What each stream of the device ran, merged to the pixel, and the longest gaps."""
    found = _traced(answer, "lanes")
    rows: list[Row] = []
    lanes = []
    for lane in found["lanes"]:
        name = f"device {lane['device']}, stream {lane['stream']}"
        lanes.append(name)
        rows += [
            {"lane": name, "kind": kind, "start_ms": start / 1e3, "end_ms": end / 1e3}
            for start, end, kind in zip(lane["start_us"], lane["end_us"], lane["kind"], strict=True)
        ]
    gaps = [
        {"lane": "gaps", "kind": one["kind"], "waits": True, "cause": one["cause"], "start_ms": one["start_us"] / 1e3,
         "end_ms": (one["start_us"] + one["us"]) / 1e3, "says": shown(one["us"] * 1e-6, "s")}
        for one in found.get("gaps") or []
    ]  # fmt: skip
    last = max(row["end_ms"] for row in [*rows, *gaps])
    y, x = names("lane", [*lanes, "gaps"]), quantity("start_ms", "ms", domain=(0.0, last), grid=False)
    colour = kind_colour([*rows, *gaps], legend=True)
    marks = [
        {
            **layer(
                {"type": "rect", "height": {"band": 0.7}, "clip": True},
                y=y,
                x=x,
                x2={"field": "end_ms"},
                color=colour,
                tooltip=tooltip("kind", "start_ms", "end_ms"),
            ),
            "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}],
        },
        layer(
            {"type": "rect", "height": {"band": 0.7}, "clip": True},
            gaps,
            y=y,
            x=x,
            x2={"field": "end_ms"},
            color=colour,
            stroke=outline(),
            fillOpacity=faded(),
            tooltip=tooltip("cause", "says"),
        ),
        *hatch([*rows, *gaps], x, y, 0.7),
    ]
    longest = max(gaps, key=lambda one: one["end_ms"] - one["start_ms"], default=None)
    gap = f" The longest gap is {longest['says']}: {longest['cause']}." if longest else ""
    left = f" {found['lanes_left_out']} lanes are not in the file." if found.get("lanes_left_out") else ""
    says = f"{len(rows)} merged intervals of {found['events']:,} events in {last:,.0f} ms.{gap}{left}"
    return frame(("Timeline", _file(found)), says, Size(WIDE.width, 100 + 40 * (len(lanes) + 1)), rows, marks)


def gaps(answer: Answer) -> Spec:
    """Few long gaps or many short ones: idle time by the length of gaps and their cause."""
    found = _traced(answer, "gap_classes")
    rows = [
        {"length": CLASSES.get(one["from_us"], f"from {shown(one['from_us'] * 1e-6, 's')}"), "kind": one["kind"], "cause": one["cause"],
         "count": one["count"], "ms": one["us"] / 1e3, "waits": True, "says": f"{one['count']:,} gaps, {shown(one['us'] * 1e-6, 's')}"}
        for one in found["gap_classes"]
    ]  # fmt: skip
    ends: dict[str, float] = {}
    for row in rows:
        row["from"] = ends.get(row["length"], 0.0)
        row["to"] = ends[row["length"]] = row["from"] + row["ms"]
    y, x = names("length", dict.fromkeys(row["length"] for row in rows)), quantity("from", "idle, ms")
    marks = [
        layer(
            {"type": "bar", "height": {"band": 0.6}},
            y=y,
            x=x,
            x2={"field": "to"},
            color=kind_colour(rows, legend=True),
            stroke=outline(),
            fillOpacity=faded(),
            tooltip=tooltip("cause", "says"),
        ),
        *hatch(rows, x, y, 0.6),
    ]
    listed = "; ".join(f"{row['length']}, {row['cause']}: {row['says']}" for row in rows)
    return frame(
        ("Gaps by length", _file(found)),
        f"Idle time by the length of gaps. {listed}.",
        rows_size(len({row["length"] for row in rows}), MEDIUM.width, 96),
        rows,
        marks,
    )


def roof_gains(answer: Answer) -> Spec:
    """How much faster the run would be without each bottleneck: the bar is the interval."""
    ranking = answer["verdict"]["ranking"]
    rows = [
        {
            "roof": one["roof"],
            "kind": one["roof"] if one["roof"] in ROOF_KINDS else "rest",
            "at_least": one["gain"][0],
            "at_most": one["gain"][1],
            "says": f"{one['gain'][0]:.2f} to {one['gain'][1]:.2f} times",
            "why": one["says"],
        }
        for one in ranking
    ]
    y = names("roof")
    most = max((row["at_most"] for row in rows), default=1.0)
    x = quantity("at_least", "times as fast without it", domain=(1.0, 1.0 + 1.4 * (most - 1.0) + 1e-9))
    marks = [
        layer({"type": "rule"}, [{"at_least": 1.0}], x=quantity("at_least")),
        layer(
            {"type": "bar", "height": {"band": 0.6}},
            y=y,
            x=x,
            x2={"field": "at_most"},
            color=kind_colour(rows),
            stroke=outline(),
            tooltip=tooltip("roof", "says", "why"),
        ),
        layer({"type": "text", "align": "left", "dx": 4}, y=y, x=quantity("at_most"), text={"field": "says"}),
    ]
    listed = "; ".join(f"{row['roof']} {row['says']}" for row in rows)
    return frame(
        ("What would help", "gain without each bottleneck: at least, at most"),
        f"Gain without each bottleneck: {listed}.",
        rows_size(len(rows), 480),
        rows,
        marks,
    )


def measured_predicted(answer: Answer) -> Spec:
    """Each term of a step, measured and predicted."""
    if not answer.get("compare"):
        raise QuestionError("nothing is compared: diagnose a trace with --against an estimate, or with its model and accelerators")
    rows = [_compared(one) for one in answer["compare"]]
    y = names("term")
    marks = [
        layer({"type": "rule", "size": 2, "color": "@line2"}, y=y, x=quantity("predicted_ms"), x2={"field": "measured_ms"}),
        layer({"type": "tick", "thickness": 3, "height": 16}, y=y, x=quantity("predicted_ms", "ms: tick predicted, point measured")),
        layer(
            {"type": "point", "filled": True, "size": 70, "color": "@accent"},
            y=y,
            x=quantity("measured_ms"),
            tooltip=tooltip("term", "says"),
        ),
    ]
    listed = "; ".join(f"{row['term']}: {row['says']}" for row in rows)
    return frame(
        ("Measured against predicted", f"{answer['comparison']['model']} on {answer['comparison']['accelerator']}"),
        f"{answer['comparison']['sentence']} {listed}.",
        rows_size(len(rows), 480),
        rows,
        marks,
    )


def _compared(one: Answer) -> Row:
    """A term of a step, measured and predicted."""
    measured, predicted = one["measured_seconds"], one["predicted_seconds"]
    says = f"{shown(measured, 's')} measured, {shown(predicted, 's')} predicted ({signed(one['share'])} of the step)"
    return {"term": one["term"], "measured_ms": measured * 1e3, "predicted_ms": predicted * 1e3, "says": says}


def ranks(answer: Answer) -> Spec:
    """How long each rank waited in each collective: the rank that others wait for is pale."""
    if not answer.get("ranks"):
        raise QuestionError("one rank alone does not say who is late: give the traces of all ranks, or their folder")
    meetings = answer["ranks"]["meetings"]
    rows = [
        {"collective": at, "operation": one["operation"], "rank": rank, "wait_ms": wait / 1e6, "late_rank": one["late_rank"]}
        for at, one in enumerate(meetings)
        for rank, wait in one["wait_ns"].items()
    ]
    ordered = [str(rank) for rank in answer["ranks"]["ranks"]]
    x = {"field": "collective", "type": "ordinal", "title": "collective", "axis": {"labelAngle": 0, "labelOverlap": True}}
    colour = {
        "field": "wait_ms", "type": "quantitative", "scale": {"range": ["@sunk", "@network"], "type": "linear", "interpolate": "rgb"},
        "legend": {"title": "waits, ms", "gradientLength": 160, "titleColor": "@ink2"},
    }  # fmt: skip
    marks = [
        layer(
            {"type": "rect", "stroke": "@bg"},
            y=names("rank", ordered),
            x=x,
            color=colour,
            tooltip=tooltip("operation", "rank", "wait_ms", "late_rank"),
        )
    ]
    late: dict[str, int] = {}
    for one in meetings:
        late[str(one["late_rank"])] = late.get(str(one["late_rank"]), 0) + 1
    latest = max(late, key=lambda rank: late[rank])
    says = f"{len(meetings)} collectives of {len(ordered)} ranks; rank {latest} came last in {late[latest]} of them."
    return frame(
        ("Which rank is late", "wait of each rank in each collective"), says, Size(WIDE.width, 110 + 20 * len(ordered)), rows, marks
    )
