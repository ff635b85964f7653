"""The timeline of a trace as HTML and SVG: one lane a stream, one path a kind of work, hatched gaps, marks where steps begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from htpy import Element, Node, details, div, li, p, span, summary, ul
from markupsafe import Markup

from ironlaw.page.parts import Cell, rows_table
from ironlaw.page.words import quantity

Answer = Mapping[str, Any]

WIDTH, HEIGHT = 1200.0, 20.0  # units of a lane's drawing: it is stretched to the width of the page
MOST_LANES = 12  # drawn; a job of many ranks has one lane a rank
MOST_GAPS = 60  # gaps that are drawn and can be visited, the longest
LABELLED = 0.07  # of the window: a shorter gap has no words in it
LISTED = 10  # gaps of the table
HOST_KINDS = {"data loading": "data", "synchronisation": "copy", "allocator": "pipeline", "host launch": "dispatch"}
HOST_SAYS = {
    "data loading": "loads data",
    "synchronisation": "waits for the device",
    "allocator": "asks for memory",
    "host launch": "launches",
}


def timeline(files: Sequence[Answer]) -> Node:
    """The lanes of one trace, or the busiest lane of each of several ranks; None where no file has lanes."""
    traces = [file for file in files if file.get("lanes") and file.get("window")]
    if not traces:
        return None
    single = len(traces) == 1
    first = traces[0]
    lanes = [(first, lane) for lane in first["lanes"]] if single else [(one, _busiest(one)) for one in traces]
    wall = max(one["window"]["wall_us"] for one in traces) or 1.0
    left_out = len(lanes) - MOST_LANES + (first.get("lanes_left_out", 0) if single else 0)
    return div(".timeline")[
        div(".lanes", tabindex="0", role="group", aria_label=_says(traces, wall))[
            div(".stretch")[
                _marks(first, wall) if single else None,
                (_lane(file, lane, wall, single) for file, lane in lanes[:MOST_LANES]),
                single and list(_hosts(first, wall)),
                _axis(wall),
            ]
        ],
        single and bool(first.get("host_lanes")) and _host_legend(first["host_lanes"]),
        left_out > 0 and p(".note")[f"{left_out} more lanes with less work are not drawn."],
        _gaps_table(first) if single else None,
    ]


def _busiest(file: Answer) -> Answer:
    """The lane of a trace with most work."""
    found: Answer = max(file["lanes"], key=lambda lane: lane["busy_us"])
    return found


def _says(traces: Sequence[Answer], wall: float) -> str:
    """The timeline in a sentence."""
    idle = sum(one["window"]["idle_us"] for one in traces) / len(traces)
    of = "each of its ranks" if len(traces) > 1 else "the device"
    return f"Timeline of {quantity(wall / 1e6, 's')}, in which {of} idled {quantity(idle / 1e6, 's')}"


def _marks(file: Answer, wall: float) -> Node:
    """Where steps begin on the device, as many as have room."""
    steps = [step for step in file["steps"] if step.get("device_start_us") is not None]
    apart = max(len(steps) // 12, 1)
    drawn = [
        span(".mark", style=f"left:{max(step['device_start_us'], 0.0) / wall * 100.0:.3f}%")[f"step {step['number']}"]
        for step in steps[::apart]
    ]
    return drawn and div(".lane.marks", aria_hidden="true")[span(".of"), div(".band")[drawn]]


def _lane(file: Answer, lane: Answer, wall: float, single: bool) -> Element:
    """One lane: what it is, the drawing, and the gaps between its work."""
    name = f"stream {lane['stream']}" if single else f"rank {file['rank']}" if file.get("rank") is not None else _short(file["path"])
    widest = max(file["lanes"], key=lambda one: one["busy_us"]) is lane
    return div(".lane")[
        span(".of", title=f"device {lane['device']}, stream {lane['stream']}, {lane['events']} events")[name],
        div(".band")[Markup(_drawing(lane, wall)), widest and list(_gaps(file, wall))],
    ]


def _hosts(file: Answer, wall: float) -> Iterator[Element]:
    """The threads that launch: what each did while the device worked or waited; a pale thread waits for the device."""
    for at, lane in enumerate(file.get("host_lanes") or [], 1):
        kinds = [HOST_KINDS.get(what, "rest") for what in lane["what"]]
        said = f"thread {lane['thread']}, {lane['launches']} launches"
        yield div(".lane.host")[span(".of", title=said)[f"host {at}"], div(".band")[Markup(_drawing({**lane, "kind": kinds}, wall))]]


def _host_legend(lanes: Sequence[Answer]) -> Element:
    """What the colours of the host's lanes are, and how long each thread did it."""
    listed = dict.fromkeys(what for lane in lanes for what in lane["what"])
    drawn = []
    for what in listed:
        spent = [
            sum(end - start for start, end, one in zip(lane["start_us"], lane["end_us"], lane["what"], strict=True) if one == what)
            for lane in lanes
        ]
        kind = HOST_KINDS.get(what, "rest")
        drawn.append(li[span(class_=f"swatch {kind}"), f"host: {HOST_SAYS.get(what, what)} {quantity(max(spent) / 1e6, 's')}"])
    return ul(".legend")[drawn]


def _short(path: str) -> str:
    return str(path).rsplit("/", 1)[-1]


def _drawing(lane: Answer, wall: float) -> str:
    """The work of a lane: one path for each kind, so that a long trace has few elements."""
    paths: dict[str, list[str]] = {}
    for start, end, kind in zip(lane["start_us"], lane["end_us"], lane["kind"], strict=True):
        at, wide = start / wall * WIDTH, max((end - start) / wall * WIDTH, 0.4)
        paths.setdefault(kind, []).append(f"M{at:.1f} 0h{wide:.1f}v{HEIGHT:g}h-{wide:.1f}z")
    drawn = "".join(f'<path class="work-{kind}" d="{"".join(steps)}"/>' for kind, steps in paths.items())
    return f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" aria-hidden="true" focusable="false">{drawn}</svg>'


def _gaps(file: Answer, wall: float) -> Iterator[Element]:
    """The longest gaps, in their order, hatched in the colour of what is waited for."""
    longest = sorted(file["gaps"], key=lambda gap: -gap["us"])[:MOST_GAPS]
    for gap in sorted(longest, key=lambda gap: gap["start_us"]):
        wide = gap["us"] / wall
        if wide < 0.0015:
            continue
        length = quantity(gap["us"] / 1e6, "s")
        yield div(
            class_=f"gap {gap['kind']} waits",
            style=f"left:{gap['start_us'] / wall * 100.0:.3f}%;width:{wide * 100.0:.3f}%",
            title=f"{length}, {gap['cause']}; after {gap['before'] or 'nothing'}, before {gap['after'] or 'nothing'}",
        )[wide >= LABELLED and span(".plate")[f"idle {length}"]]


def _axis(wall: float) -> Element:
    """Five marks of time below the lanes."""
    step = next(size * 10.0**power for power in range(-1, 12) for size in (1.0, 2.0, 5.0) if wall / (size * 10.0**power) <= 6.0)
    marks = [at * step for at in range(int(wall / step) + 1)]
    return div(".lane.marks", aria_hidden="true")[span(".of"), div(".band")[(_mark_of_axis(mark, wall) for mark in marks)]]


def _mark_of_axis(mark: float, wall: float) -> Element:
    """A mark of the axis; the last is left of its place where it would leave the page."""
    place = mark / wall
    return span(class_=["at", place > 0.95 and "end"], style=f"left:{place * 100.0:.3f}%")[
        quantity(mark / 1e6, "s", exact=True) if mark else "0"
    ]


def _gaps_table(file: Answer) -> Node:
    """The longest gaps as a table: what those who do not see the lanes read."""
    gaps = sorted(file["gaps"], key=lambda gap: -gap["us"])[:LISTED]
    heads = [Cell("Starts at", True), Cell("Idle", True), Cell("Cause"), Cell("Step", True), Cell("After"), Cell("Before")]
    rows = [
        [
            Cell(quantity(gap["start_us"] / 1e6, "s"), True), Cell(quantity(gap["us"] / 1e6, "s"), True), Cell(gap["cause"]),
            Cell("" if gap["step"] is None else str(gap["step"]), True), Cell(gap["before"] or ""), Cell(gap["after"] or ""),
        ]
        for gap in gaps
    ]  # fmt: skip
    return gaps and details(".more")[summary[f"The {len(gaps)} longest gaps"], rows_table(heads, rows, caption="The longest gaps")]
