"""A diagnosis as HTML, from the plain data of ``ironlaw diagnose --json``: verdict, window, lanes, gains, findings, the estimate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from htpy import Element, Node, code, details, div, li, p, span, strong, summary, ul
from markupsafe import Markup, escape

from ironlaw.page.estimate import TITLES, question_block, sources_block, warnings
from ironlaw.page.parts import Cell, Segment, View, bar, block, meter, rows_table
from ironlaw.page.timeline import timeline
from ironlaw.page.words import DASH, FIXED, MINUS, quantity, share, thousands, whole

Answer = Mapping[str, Any]

BINDS = {  # a roof: what the run waits for or spends its time on, when it binds
    "compute": "products take the time", "hbm": "memory traffic takes the time", "network": "communication is exposed",
    "data": "the device waits for data", "dispatch": "the device waits for its launches", "copy": "copies are exposed",
    "skew": "ranks wait for the last one",
}  # fmt: skip
PARTS = {  # kind and whether the device waits: the name of a part of the window
    ("compute", False): "compute-bound", ("hbm", False): "HBM-bound", ("network", False): "exposed communication",
    ("copy", False): "exposed copies", ("data", True): "waits for data", ("dispatch", True): "waits for launches", ("idle", True): "idle",
}  # fmt: skip
COLOURS = {"skew": "network", "unknown": "idle"}  # of roofs that are no kind of work
SAME = 0.0005  # of the predicted step: a smaller difference is none
SHOWN = 12  # rows of a table, findings: the rest folds
MOST_RANKS, MOST_MEETINGS = 32, 60  # of the map of waits


def view(answer: Answer) -> View:
    """The view of a diagnosis."""
    return View(subject(answer), verdict(answer), lead(answer), sections(answer), sources_block(answer))


def subject(answer: Answer) -> str:
    """The files, their devices, and how many steps they have."""
    files = answer["files"]
    if not files:
        return "A measured throughput"
    first = _file_words(files[0])
    return first if len(files) == 1 else f"{first}; and {len(files) - 1} more {'file' if len(files) == 2 else 'files'}"


def _file_words(file: Answer) -> str:
    """What one file is."""
    name = str(file["path"]).rsplit("/", 1)[-1]
    if "log" in file:
        return f"{name}, {file['log']['format']} log"
    if not file.get("window"):
        return f"{name}, memory"
    device = file.get("accelerator") or file["device"] or "unnamed device"
    steps = len(file["steps"])
    return f"{name}, {device}, {whole(file['events'])} device events, {steps} {'step' if steps == 1 else 'steps'}"


def verdict(answer: Answer) -> str:
    """The bottleneck in a sentence; the difference from the estimate where a trace or log names no bottleneck."""
    found = answer["verdict"]
    if found["roof"] and found["roof"] in BINDS:
        return f"{_capital(found['side'] or found['roof'])}-bound: {BINDS[found['roof']]}."
    if answer.get("comparison"):
        return _capital(str(answer["comparison"]["sentence"]).partition("; ")[0]) + "."
    return _capital(str(found["says"]).partition("; ")[0]) + "."


def lead(answer: Answer) -> Node:
    """Why it is the bottleneck, what is won without it, and which is the next."""
    found = answer["verdict"]
    if not found["roof"]:
        rest = str(found["says"]).partition("; ")[2]
        first = str(found["says"]).partition("; ")[0] if answer.get("comparison") else ""
        return [p[f"{_capital(text)}."] for text in (first, rest) if text]
    says = str(found["says"]).partition(": ")[2] or str(found["says"])
    reason, _, _ = says.rpartition("; ")
    low, high = found["gain"]
    faster = f"{low:.2f} to {high:.2f}" if high - low >= 0.005 else f"{low:.2f}"
    mixed = f"; {found['mixed_with']} is too close to rank" if found.get("mixed_with") else ""
    left = found["unattributed"] or 0.0
    unexplained = "nothing is unexplained" if left < SAME else f"{share(left)} is unexplained"
    return [
        p[f"{_capital(reason or says)}. Without that the run would be {faster}{FIXED}times as fast."],
        p[f"The next bottleneck: {found['next'] or 'none'}{mixed}; {unexplained}."],
    ]


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def sections(answer: Answer) -> Element:
    """All that stands below the verdict."""
    traces = [file for file in answer["files"] if file.get("partition")]
    single = len(traces) == 1
    return div(".view")[
        traces and window_block(traces),
        traces and _timeline_block(traces),
        traces and div(".columns.of-tables")[gains_block(answer["verdict"]), gaps_block(traces)],
        findings_block(answer["findings"], traces),
        ranks_block(answer.get("ranks")),
        compare_block(answer),
        memory_block(answer.get("memory")),
        (file_block(file) for file in answer["files"] if not file.get("window")),
        single and kernels_block(traces[0]),
        len(traces) > 1 and files_block(traces),
        efficiency_block(answer.get("parallel_efficiency")),
        warnings(answer),
        question_block(answer) if answer.get("assumptions") else None,
    ]


# --- the window


def window_block(traces: Sequence[Answer]) -> Element:
    """The window cut into kinds of work and of waiting; of several ranks their mean."""
    wall = sum(file["window"]["wall_us"] for file in traces) / len(traces)
    sizes: dict[tuple[str, bool], float] = dict.fromkeys(PARTS, 0.0)
    for part in (part for file in traces for part in file["partition"]):
        key = (part["kind"], bool(part["waits"]))
        sizes[key] = sizes.get(key, 0.0) + part["us"] / len(traces)
    segments = [
        Segment(f"{kind} waits" if waits else kind, PARTS.get((kind, waits), kind), share(size / wall) if wall else "", size)
        for (kind, waits), size in sizes.items()
        if size > 0.0
    ]
    of = f"of each of {len(traces)} ranks, in the mean, " if len(traces) > 1 else ""
    described = f"Of a window of {quantity(wall / 1e6, 's')}: {', '.join(f'{one.name} {one.text}' for one in segments)}"
    return block(
        f"Where the window of {quantity(wall / 1e6, 's')} {of}went",
        meter(segments, max(wall, sum(one.size for one in segments)) or 1.0, described),
        aside=[_utilisation(traces[0]) if len(traces) == 1 else None, "solid: the device works; hatched: it waits"],
    )


def _utilisation(file: Answer) -> Node:
    """The share of the peak that the model's FLOPs reach."""
    found = file.get("utilisation")
    if not found or found["mfu"] is None:
        return None
    return ["MFU ", strong[share(found["mfu"])], f" of {found['denominator'].partition(' of ')[0]}; "]


def _timeline_block(traces: Sequence[Answer]) -> Node:
    """The lanes of the window."""
    drawn = timeline(traces)
    steps = len(traces[0]["steps"])
    about = f"{steps} {'step' if steps == 1 else 'steps'}" if len(traces) == 1 else f"the busiest stream of each of {len(traces)} ranks"
    return drawn and block("Timeline", drawn, aside=[about, span(".keys")["; keys + \u2212 zoom, [ ] gaps, f fits"]])


def gains_block(found: Answer) -> Node:
    """How much faster the run would be without each bottleneck, as an interval."""
    rows = found["ranking"]
    if not rows:
        return block("Gain without each roof", p(".note")["No time of the window could be saved."])
    most = max(*(row["gain"][1] for row in rows), 1.01)
    drawn = [
        [
            Cell([span(class_=f"swatch {COLOURS.get(row['roof'], row['roof'])}"), strong[TITLES.get(row["roof"], row["roof"])]]),
            Cell(quantity(row["charged_us"] / 1e6, "s"), True),
            Cell(_interval(row, most)),
            Cell(strong[f"{row['gain'][0]:.2f} to {row['gain'][1]:.2f}{FIXED}\u00d7"], True),
        ]
        for row in rows
    ]
    heads = [Cell("Roof"), Cell("Charged", True), Cell(span(".scale")[f"1 to {most:.2f} times as fast"]), Cell("Faster", True)]
    why = [li[strong[TITLES.get(row["roof"], row["roof"])], f": {row['says']}"] for row in rows]
    return block(
        "Gain without each roof",
        rows_table(heads, drawn, caption="Gain without each roof"),
        details(".more")[summary["Why"], ul(".further")[why]],
        aside="interval, not a promise",
    )


def _interval(row: Answer, most: float) -> Element:
    """The interval of a gain on a scale from 1."""
    low, high = ((gain - 1.0) / (most - 1.0) for gain in row["gain"])
    kind = COLOURS.get(row["roof"], row["roof"])
    return span(".bars")[span(class_=f"fill {kind}", style=f"left:{low * 100.0:.2f}%;width:{max(high - low, 0.01) * 100.0:.2f}%")]


def gaps_block(traces: Sequence[Answer]) -> Node:
    """Idle time by the length of its gaps and by cause."""
    sizes: dict[tuple[float, str], list[float]] = {}
    for row in (row for file in traces for row in file["gap_classes"]):
        counted = sizes.setdefault((row["from_us"], row["kind"]), [0.0, 0.0, row["to_us"] or 0.0])
        counted[0] += row["count"]
        counted[1] += row["us"]
    count, total = sum(one[0] for one in sizes.values()), sum(one[1] for one in sizes.values())
    most = max((one[1] for one in sizes.values()), default=0.0) or 1.0
    rows = [
        [
            Cell(_length(start, end)), Cell(PARTS.get((kind, True), kind)), Cell(bar(f"{kind} waits", us / most)),
            Cell(quantity(us / 1e6, "s"), True), Cell(whole(number), True),
        ]
        for (start, kind), (number, us, end) in sorted(sizes.items(), key=lambda pair: (-pair[0][0], pair[0][1]))
    ]  # fmt: skip
    heads = [Cell("Length"), Cell("Cause"), Cell(span(".scale")["to scale"]), Cell("Idle", True), Cell("Gaps", True)]
    drawn = rows_table(heads, rows, caption="Gaps") if rows else p(".note")["The device was never idle."]
    return block("Gaps", drawn, aside=f"{whole(count)} gaps, {quantity(total / 1e6, 's')} idle")


def _length(start: float, end: float) -> str:
    """A class of lengths in words."""
    if not end:
        return f"over {quantity(start / 1e6, 's', exact=True)}"
    first, last = (quantity(edge / 1e6, "s", exact=True) for edge in (start, end))
    return f"{first} to {last}" if start else f"under {last}"


# --- what to try


def findings_block(findings: Sequence[Answer], traces: Sequence[Answer]) -> Node:
    """The findings: what was seen, what to try, and how much time it could save; the same in several files once."""
    if not findings:
        return block("What to try", p(".note")["No finding: nothing that ironlaw knows a remedy for was seen."]) if traces else None
    groups: dict[str, list[Answer]] = {}
    for one in findings:
        groups.setdefault(one["name"], []).append(one)
    window = traces[0]["window"]["wall_us"] if traces else None
    drawn = [_finding(group, window) for group in groups.values()]
    rest = drawn[SHOWN:]
    return block(
        "What to try",
        div(".findings")[drawn[:SHOWN], rest and details(".more")[summary[f"{len(rest)} more findings"], rest]],
        aside="gains do not add up",
        id="findings",
    )


def _finding(group: Sequence[Answer], window: float | None) -> Element:
    """One finding: the worst of its files in full."""
    first = group[0]
    more = f" The same in {len(group) - 1} more {'file' if len(group) == 2 else 'files'}." if len(group) > 1 else ""
    lost = first.get("seconds_lost")
    of = f" of {quantity(window / 1e6, 's')}" if window else ""
    return div(".finding")[
        p(".head")[strong[_capital(first["name"].replace("-", " "))], lost and span(".gain")["up to ", strong[quantity(lost, "s")], of]],
        p(".further")[f"{_capital(first['says'])}.{more}"],
        first.get("advice") and code(".command")[first["advice"]],
        first.get("docs") and p(".note")[first["docs"]],
    ]


# --- ranks


def ranks_block(ranks: Answer | None) -> Node:
    """Who waits for whom: the collectives of a job, and a map of the waits of every rank in them."""
    if not ranks:
        return None
    meetings = ranks["meetings"]
    rows = [
        [
            Cell(row["operation"]), Cell(quantity(row["bytes"], "B"), True), Cell(quantity(row["transfer_ns"] / 1e9, "s"), True),
            Cell(quantity(max(row["wait_ns"].values()) / 1e9, "s"), True), Cell(str(row["late_rank"]), True),
            Cell(quantity(row["busbw"], "B/s"), True),
        ]
        for row in meetings[:SHOWN]
    ]  # fmt: skip
    heads = [
        Cell("Collective"), Cell("Size", True), Cell("Transfer", True), Cell("Longest wait", True), Cell("Last rank", True),
        Cell("Bus rate", True),
    ]  # fmt: skip
    waits, moves = quantity(ranks["skew_ns"] / 1e9, "s"), quantity(ranks["transfer_ns"] / 1e9, "s")
    missing = f" Ranks {', '.join(map(str, ranks['missing'][:SHOWN]))} have no trace." if ranks["missing"] else ""
    return block(
        f"{len(ranks['ranks'])} ranks: who waits",
        p[f"{moves} of transfer and {waits} of waiting, in the sum over ranks, in {whole(ranks['collectives'])} collectives.{missing}"],
        len(meetings) > 1 and Markup(_wait_map(ranks)),
        rows and rows_table(heads, rows, caption="Collectives across ranks"),
        aside="the stronger the colour, the longer a rank waits" if len(meetings) > 1 else None,
    )


def _wait_map(ranks: Answer) -> str:
    """Waits by collective, from the left, and rank, from the top: five depths of one hue."""
    meetings, numbers = ranks["meetings"][:MOST_MEETINGS], ranks["ranks"][:MOST_RANKS]
    most = max((wait for one in meetings for wait in one["wait_ns"].values()), default=0) or 1
    wide, high = 720.0 / len(meetings), 18.0
    depths: dict[int, list[str]] = {}
    for column, one in enumerate(meetings):
        for row, rank in enumerate(numbers):
            wait = one["wait_ns"].get(str(rank), 0) / most
            depths.setdefault(min(int(wait * 5.0), 4), []).append(
                f"M{column * wide:.1f} {row * high:.1f}h{wide - 1.0:.1f}v16h-{wide - 1.0:.1f}z"
            )
    last = max(meetings, key=lambda one: max(one["wait_ns"].values()))
    longest = f"the longest, {quantity(most / 1e9, 's')}, for rank {last['late_rank']}"
    says = f"Waits of {len(numbers)} ranks in {len(meetings)} collectives; {longest}"
    body = "".join(f'<path class="depth-{depth}" d="{"".join(steps)}"/>' for depth, steps in sorted(depths.items()))
    tall = len(numbers) * high
    names = "".join(f'<text x="-8" y="{row * high + 13.0:.1f}" text-anchor="end">rank {rank}</text>' for row, rank in enumerate(numbers))
    return f'<svg class="plot waits-map" viewBox="-56 0 776 {tall:.0f}" role="img" aria-label="{escape(says)}">{body}{names}</svg>'


# --- measured against predicted


def compare_block(answer: Answer) -> Node:
    """The measured step beside the estimate of the same run, term by term; for a log what could explain the difference."""
    found = answer.get("comparison")
    if not found:
        return None
    first, _, rest = str(found["sentence"]).partition("; ")
    band = found.get("band")
    inside = {True: "inside", False: "outside"}.get(found.get("inside_band"))
    times = f"{quantity(found['measured_seconds'], 's')} measured, {quantity(found['predicted_seconds'], 's')} predicted"
    banded = f", {inside} the band of {quantity(band[0], 's')} to {quantity(band[1], 's')}" if band and inside else ""
    return block(
        "Measured against predicted",
        p(".lead")[strong[f"{_capital(first)}."], f" {times}{banded}."],
        rest and p(".note")[f"{_capital(rest)}."],
        answer.get("compare") and _terms_table(answer["compare"]),
        _suspects(found.get("measured_run")),
        aside=f"{found['model']} on {found['accelerator']}",
        id="compare",
    )


def _terms_table(rows: Sequence[Answer]) -> Element:
    """Each term: a line at what is predicted, a dot at what was measured."""
    most = max(max(row["measured_seconds"], row["predicted_seconds"]) for row in rows) or 1.0
    drawn: list[list[Cell]] = []
    marked: int | None = None
    for row in rows:
        differs = abs(row["share"]) >= SAME
        marked = len(drawn) if marked is None and differs else marked
        said: Node = strong[_signed(row["difference_seconds"])] if differs else span(".note")["as predicted"]
        drawn.append([
            Cell(row["term"]), *(Cell(quantity(_rounded(row[name]), "s"), True) for name in ("measured_seconds", "predicted_seconds")),
            Cell(_dumbbell(row["measured_seconds"] / most, row["predicted_seconds"] / most)), Cell(said, True),
        ])  # fmt: skip
    scale = f"0 to {quantity(most, 's')}: line predicted, dot measured"
    heads = [Cell("Term"), Cell("Measured", True), Cell("Predicted", True), Cell(span(".scale")[scale]), Cell("Difference", True)]
    return rows_table(heads, drawn, marked, "Measured against predicted")


def _rounded(seconds: float) -> float:
    """Seconds without what is only rounding."""
    return seconds if abs(seconds) >= 1e-9 else 0.0


def _dumbbell(measured: float, predicted: float) -> Element:
    """A tick and a dot on one scale, and the line between them."""
    low, high = sorted((measured, predicted))
    return span(".dumbbell")[
        span(".between", style=f"left:{low * 100.0:.2f}%;width:{(high - low) * 100.0:.2f}%"),
        span(".tick", style=f"left:{predicted * 100.0:.2f}%"),
        span(".dot", style=f"left:{measured * 100.0:.2f}%"),
    ]


def _signed(seconds: float) -> str:
    """A difference with its sign."""
    return f"{'+' if seconds > 0.0 else MINUS}{quantity(abs(seconds), 's')}"


def _suspects(run: Answer | None) -> Node:
    """Rates of a run that a log or a throughput gives, and what could explain the difference from the estimate."""
    if not run:
        return None
    rows = [
        [
            Cell(strong[one["part"]]), Cell(quantity(one["takes"], "s"), True), Cell(quantity(one["would_take"], "s"), True),
            Cell(one.get("fault") or ""), Cell(share(one["explains"]) if one.get("explains") is not None else DASH, True),
            Cell(one.get("check") or ""),
        ]
        for one in run["suspects"]
    ]  # fmt: skip
    heads = [
        Cell("Part of the step"), Cell("Predicted", True), Cell("Needed", True), Cell("Usual fault"), Cell("Explains", True),
        Cell("What to check"),
    ]  # fmt: skip
    rates = f"{whole(run['tokens_per_second'])} tokens/s measured, {whole(run['predicted_tokens_per_second'])} predicted"
    return [
        p[f"{rates}; MFU {share(run['mfu'])} against {share(run['predicted_mfu'])}."],
        rows and rows_table(heads, rows, caption="What could explain the difference"),
    ]


def memory_block(rows: Sequence[Answer] | None) -> Node:
    """Memory of a snapshot beside the estimate."""
    if not rows:
        return None
    drawn = [
        [
            Cell(strong[one["term"]]), Cell(quantity(one["measured"], "B"), True), Cell(quantity(one["predicted"], "B"), True),
            Cell(DASH if one.get("error") is None else share(one["error"]), True), Cell(one.get("note") or ""),
        ]
        for one in rows
    ]  # fmt: skip
    heads = [Cell("Memory"), Cell("Measured", True), Cell("Predicted", True), Cell("Error", True), Cell("")]
    return block("Memory, measured against predicted", rows_table(heads, drawn, caption="Memory, measured against predicted"))


# --- files


def kernels_block(file: Answer) -> Node:
    """The longest kernels, each under its roof."""
    kernels = file["kernels"][:SHOWN]
    if not kernels:
        return None
    work = file["window"]["compute_us"] * 1e3 or 1.0
    most = kernels[0]["total_ns"] or 1
    rows = [
        [
            Cell([strong[one["kernel"]], div(".note")[_kernel_words(one)]]), Cell(whole(one["count"]), True),
            Cell(quantity(one["total_ns"] / 1e9, "s"), True), Cell(share(one["total_ns"] / work), True),
            Cell(bar(one["roof"] if one["roof"] in BINDS else "rest", one["total_ns"] / most)),
            Cell(share(one.get("of_achievable"), 0), True),
        ]
        for one in kernels
    ]  # fmt: skip
    heads = [
        Cell("Kernel"), Cell("Calls", True), Cell("Total", True), Cell("Of all kernels", True), Cell(span(".scale")["to scale"]),
        Cell("Of achievable", True),
    ]  # fmt: skip
    rest = len(file["kernels"]) - len(kernels)
    return block("Longest kernels", rows_table(heads, rows, caption="Longest kernels"), aside=f"{rest} more" if rest > 0 else None)


def _kernel_words(one: Answer) -> str:
    """The kind of a kernel, its operator, and its roof."""
    roof = f"{one['roof']}{' (assumed)' if one.get('assumed') else ''}"
    return ", ".join(str(word) for word in (one["kind"], one.get("operator"), f"roof: {roof}") if word)


def files_block(traces: Sequence[Answer]) -> Element:
    """A row for each trace of a job."""
    rows = [
        [
            Cell(str(one["path"]).rsplit("/", 1)[-1]), Cell("" if one["rank"] is None else str(one["rank"]), True),
            *(Cell(quantity(one["window"][key] / 1e6, "s"), True) for key in ("wall_us", "compute_us", "exposed_comm_us", "idle_us")),
            Cell((one.get("verdict") or {}).get("roof") or DASH),
        ]
        for one in traces
    ]  # fmt: skip
    names = ("Rank", "Window", "Compute", "Exposed communication", "Idle")
    heads = [Cell("File"), *(Cell(name, True) for name in names), Cell("Roof")]
    return block("Each rank", rows_table(heads, rows, caption="Each rank"))


def file_block(file: Answer) -> Element:
    """A log or a memory file: every plain value that was read from it."""
    inside: Answer = next((file[key] for key in ("log", "snapshot", "memory_timeline", "memory_text") if key in file), {})
    pairs = list(_plain_values(inside))
    drawn = [li[span[name], strong[text]] for name, text in pairs]
    more = drawn[2 * SHOWN :]
    return block(
        f"Read from {str(file['path']).rsplit('/', 1)[-1]}",
        ul(".pairs")[drawn[: 2 * SHOWN]],
        more and details(".more")[summary[f"{len(more)} more values"], ul(".pairs")[more]],
    )


_UNITS = {"seconds": "s", "bytes": "B", "us": "s", "ns": "s"}
_OWN = ("path", "verdict", "exit_status")  # said elsewhere on the page
_SCALES = {"us": 1e-6, "ns": 1e-9}


def _plain_values(data: Answer, before: str = "") -> Iterator[tuple[str, str]]:
    """Names and texts of the values below an object, without lists of objects; the unit is the last word of a name."""
    for name, value in data.items():
        last = name.rpartition("_")[2]
        words = name.removesuffix(f"_{last}") if last in _UNITS else name
        title = f"{before} {words.replace('_', ' ')}".strip()
        if name in _OWN:
            continue
        if isinstance(value, Mapping):
            yield from _plain_values(value, title)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            unit = _UNITS.get(last)
            yield title, quantity(value * _SCALES.get(last, 1.0), unit) if unit else thousands(f"{value:,.6g}")
        elif isinstance(value, (str, bool)) and value not in ("", False):
            yield title, "yes" if value is True else str(value)
        elif isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            yield title, "; ".join(value)


def efficiency_block(rows: Sequence[Answer] | None) -> Node:
    """Throughput of one model on several numbers of accelerators."""
    if not rows:
        return None
    drawn = [[Cell(whole(one["gpus"]), True), Cell(f"{one['per_gpu']:,.4g}", True), Cell(share(one["efficiency"]), True)] for one in rows]
    heads = [Cell("GPUs", True), Cell("Tokens/s of each", True), Cell("Efficiency", True)]
    return block("Throughput by number of accelerators", rows_table(heads, drawn, caption="Throughput by number of accelerators"))
