"""The page of a diagnosis: the verdict, the parts of the window, the gain without each bottleneck, findings and the comparison.

The page is written from the data of the JSON, so a saved diagnosis prints the same page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence, headline_data, sentences
from ironlaw.estimate.answer.as_data import common_keys
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.throughput import describe_data, tabulate_suspects
from ironlaw.report.answer import table_lines
from ironlaw.report.logs import efficiency_lines, log_lines, logs_lines, memory_lines, memory_text_lines, snapshot_lines, timeline_lines
from ironlaw.report.terminal import Ink, bar

MOST_ROWS = 12
LEAST_SHARE = 0.0005  # of the predicted step: a smaller difference is not shown
PARTS = (
    ("compute", "compute_us"),
    ("exposed communication", "exposed_comm_us"),
    ("exposed copy", "exposed_memcpy_us"),
    ("idle", "idle_us"),
)


def diagnosis_data(
    data: Mapping[str, Any], assumptions: Iterable[Mapping[str, Any]], warnings: Iterable[str], folders: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Add the keys of every answer to ``data``."""
    return {**common_keys(assumptions, warnings, folders), "headline": headline_data(_headline(data, Ink(False))), **data}


def diagnosis_page(data: Mapping[str, Any], colour: bool = False) -> str:
    """The page of a diagnosis."""
    ink, data = Ink(colour), _printable(data)
    parts: list[list[str]] = [list(_headline(data, ink))]
    files = data["files"]
    if len(files) > 1:
        parts.append(list(_overview(files, ink)))
    else:
        parts += [list(block) for file in files for block in _file(file, ink)]
    parts += [
        list(_ranks(data.get("ranks"), ink)),
        list(_roofs(data["verdict"], ink)),
        list(_findings(data["findings"], ink)),
        list(_comparison(data, ink)),
        list(memory_lines(data.get("memory") or [], data.get("memory_run"), ink)),
        list(efficiency_lines(data.get("parallel_efficiency") or [], ink)),
        [ink.bad("warning: ") + w for w in sentences(data.get("warnings", []))],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _printable(data: Any) -> Any:
    """Replace control characters in every text of ``data``, such as the name of a kernel."""
    if isinstance(data, str):
        return data if data.isprintable() else "".join(c if c.isprintable() else "?" for c in data)
    if isinstance(data, Mapping):
        return {key: _printable(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_printable(value) for value in data]
    return data


def _utilisation(file: Mapping[str, Any]) -> str | None:
    """MFU and HFU with their definition, or why there are none."""
    utilisation = file.get("utilisation")
    if not utilisation:
        return None
    if utilisation["mfu"] is None:
        return f"no MFU: {utilisation['reason']}"
    mfu, hfu = (units.share(utilisation[name]) for name in ("mfu", "hfu"))
    return f"MFU {mfu}, HFU {hfu} of {utilisation['denominator']}: {utilisation['numerator']}"


def _headline(data: Mapping[str, Any], ink: Ink) -> Iterator[Sentence]:
    """The files, the verdict, and the next bottleneck."""
    if not data["files"]:
        yield Sentence(ink.bold("a measured throughput"), "throughput")
    for file in data["files"][:1] if len(data["files"]) > 1 else data["files"]:
        yield Sentence(ink.bold(_title(file)), "file")
    if len(data["files"]) > 1:
        yield Sentence(f"and {len(data['files']) - 1} more files", "more-files", {"files": len(data["files"])})
    verdict = data["verdict"]
    yield Sentence(
        (ink.good if verdict["roof"] else ink.bad)(verdict["says"]), "verdict", {"roof": verdict["roof"], "gain": verdict["gain"]}
    )
    if verdict["roof"]:
        line = f"next bottleneck: {verdict['next'] or 'none'}; {verdict['unattributed']:.1%} unexplained"
        mixed = f"; {verdict['mixed_with']} is too close to rank" if verdict.get("mixed_with") else ""
        yield Sentence(line + mixed, "next-bottleneck", {"next": verdict["next"], "unattributed": verdict["unattributed"]})


def _title(file: Mapping[str, Any]) -> str:
    """The title of one file: its name, device and rank, or the kind of log or memory file."""
    words = [str(file["path"]).rsplit("/", 1)[-1]]
    if "log" in file:
        return f"{words[0]}: {file['log']['format']} log"
    if "snapshot" in file:
        return f"{words[0]}: memory snapshot"
    if "memory_timeline" in file:
        return f"{words[0]}: memory timeline"
    if "memory_text" in file:
        entries = file["memory_text"]["entries"]
        return f"{words[0]}: {entries[0]['form'] if entries else 'DeepSpeed estimate of model states'}"
    device = file["device"] or "unnamed device"
    accelerator = f" ({file['accelerator']})" if file.get("accelerator") else ""
    rank = "" if file["rank"] is None else f", rank {file['rank']}" + (f" of {file['world_size']}" if file.get("world_size") else "")
    policy = file["policy"]
    steps = f"{len(file['steps'])} step" + ("s" if len(file["steps"]) != 1 else "")
    return f"{words[0]}: {device}{accelerator}{rank}; {steps}; --unlinked {policy['unlinked']}, --last-step {policy['last_step']}"


def _file(file: Mapping[str, Any], ink: Ink) -> Iterator[Iterator[str]]:
    """The sections of one file."""
    if "log" in file:
        yield log_lines(file["log"], ink)
    elif "snapshot" in file:
        yield snapshot_lines(file["snapshot"], ink)
    elif "memory_timeline" in file:
        yield timeline_lines(file["memory_timeline"], ink)
    elif "memory_text" in file:
        yield memory_text_lines(file["memory_text"], ink)
    else:
        yield _window(file, ink)
        yield _steps(file["steps"], ink)
        yield _collectives(file["collectives"], ink)
        yield _kernels(file["kernels"], ink)


def _window(file: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """The parts of the window with bars, idle time by reason, and remarks on communication."""
    window = file["window"]
    wall = max(window["wall_us"], 1e-9)
    yield ink.bold(f"Time in the window of {_time(window['wall_us'])}")

    def line(name: str, us: float, depth: int = 1) -> str:
        return f"{'  ' * depth}{name:<{32 - 2 * depth}}{_time(us):>12} {us / wall:>6.1%} {bar(us / wall)}".rstrip()

    for name, key in PARTS:
        yield line(name, window[key])
        if name == "idle":
            for reason, us in file["idle"].items():
                if us:
                    yield line(reason.removesuffix("_us").replace("_", " "), us, 2)
    if (utilisation := _utilisation(file)) is not None:
        yield f"  {utilisation}"
    hidden = window["comm_us"] - window["exposed_comm_us"]
    if window["comm_us"]:
        yield ink.dim(f"  total communication {_time(window['comm_us'])}, of which {_time(hidden)} is hidden by compute")
    for name, why in list(file["communication"]["reasons"].items())[:3]:
        yield ink.dim(f"  communication: {_short(name)}, {why}")
    for k in file["communication"]["unclassified"][:3]:
        yield f"  not counted as communication, though the name contains {k['suspect']!r}: {_short(k['name'])} ({_time(k['us'])})"


def _steps(steps: list[Mapping[str, Any]], ink: Ink) -> Iterator[str]:
    """A table of the steps and their parts, where there are several."""
    if len(steps) < 2:
        return
    rows = []
    for step in steps[:MOST_ROWS]:
        shown = {k: _seconds(step.get(k)) for _, k in (("", "device_us"), *PARTS)}
        rows.append({"number": str(step["number"]), "host": step["wall_us"] / 1e6, **shown})
    columns = [Column("number", "step"), Column("host", "host", "s"), Column("device_us", "device", "s")]
    columns += [Column(key, name, "s") for name, key in PARTS]
    yield from table_lines(Table("steps", "Steps", tuple(columns), rows), ink)


def _seconds(us: float | None) -> float | None:
    return None if us is None else us / 1e6


def _collectives(collectives: list[Mapping[str, Any]], ink: Ink) -> Iterator[str]:
    """A table of the collectives of one rank."""
    if not collectives:
        return
    rows = [
        {**c, **{name: c["kernel_ns"][name] * 1e-9 for name in ("best", "median")}} | {name: c[name]["best"] for name in ("algbw", "busbw")}
        for c in collectives[:MOST_ROWS]
    ]
    columns = (
        Column("operation", "collective"),
        Column("bytes", "bytes", "B"),
        Column("ranks", "ranks"),
        Column("count", "calls"),
        Column("best", "best", "s"),
        Column("median", "median", "s"),
        Column("algbw", "algbw", "B/s"),
        Column("busbw", "busbw", "B/s"),
        Column("label", "rates are a"),
    )
    yield from table_lines(Table("collectives", "Collectives, by size", columns, rows), ink)


def _kernels(kernels: list[Mapping[str, Any]], ink: Ink) -> Iterator[str]:
    """A table of the longest kernels."""
    if not kernels:
        return
    rows = []
    for k in kernels[:MOST_ROWS]:
        rows.append({**k, "name": _short(k["kernel"]), "total": k["total_ns"] * 1e-9, "roof": _roof(k)})
    columns = (
        Column("kind", "kind"),
        Column("name", "kernel"),
        Column("count", "calls"),
        Column("total", "total", "s"),
        Column("flop_per_second", "FLOP/s", "FLOP/s"),
        Column("bytes_per_second", "B/s", "B/s"),
        Column("of_peak", "of peak", "%"),
        Column("of_achievable", "of achievable", "%"),
        Column("roof", "roof"),
    )
    yield from table_lines(Table("kernels", "Kernels, longest first", columns, rows), ink)


def _short(name: str, most: int = 40) -> str:
    return name if len(name) <= most else name[: most - 3] + "..."


def _roof(kernel: Mapping[str, Any]) -> str:
    """The roof of a kernel, why it is above it, and whether it ran again."""
    roof = str(kernel["roof"]) + (" (assumed)" if kernel.get("assumed") else "")
    return ", ".join([roof, *([kernel["beats"]] if kernel.get("beats") else []), *(["recomputed"] if kernel.get("recompute") else [])])


def _overview(files: list[Mapping[str, Any]], ink: Ink) -> Iterator[str]:
    """A line for each file, where several were diagnosed."""
    yield from logs_lines([file for file in files if "log" in file], ink)
    rows = []
    for file in files:
        if "log" in file:
            continue
        window = file.get("window") or {}
        rows.append(
            {"file": str(file["path"]).rsplit("/", 1)[-1], "rank": None if file["rank"] is None else str(file["rank"])}
            | {key: _seconds(window.get(key)) for key in ("wall_us", *(k for _, k in PARTS))}
            | {"roof": (file.get("verdict") or {}).get("roof")}
        )
    columns = [Column("file", "file"), Column("rank", "rank"), Column("wall_us", "window", "s")]
    columns += [Column(key, name, "s") for name, key in PARTS] + [Column("roof", "roof")]
    if rows:
        yield from table_lines(Table("files", "Files", tuple(columns), rows), ink)


def _ranks(ranks: Mapping[str, Any] | None, ink: Ink) -> Iterator[str]:
    """Transfer and waiting of the ranks together, and a table of their collectives."""
    if not ranks:
        return
    clock = ranks["clock"]["ends_apart_ns"]
    yield (
        f"{len(ranks['ranks'])} ranks, {ranks['collectives']} collectives: {ranks['transfer_ns'] / 1e3:,.1f} us of transfer,"
        f" {ranks['skew_ns'] / 1e6:,.2f} ms of waiting (sum over ranks); ends on the ranks are at most {clock['max'] / 1e3:g} us apart"
    )
    rows = ranks["meetings"][:MOST_ROWS]
    if not rows:
        return
    columns = (
        Column("operation", "collective"),
        Column("bytes", "bytes", "B"),
        Column("transfer", "transfer", "s"),
        Column("skew", "longest wait", "s"),
        Column("late_rank", "late rank"),
        Column("busbw", "busbw", "B/s"),
    )
    shown = [
        {**r, "transfer": r["transfer_ns"] * 1e-9, "skew": max(r["wait_ns"].values()) * 1e-9, "late_rank": str(r["late_rank"])}
        for r in rows
    ]
    yield from table_lines(Table("ranks", "Collectives across ranks", columns, shown), ink)


def _roofs(verdict: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """A table of the speed-up without each bottleneck."""
    rows = [
        {**r, "charged": r["charged_us"] / 1e6, "least": f"{r['gain'][0]:.2f}x", "most": f"{r['gain'][1]:.2f}x", "says": r["says"]}
        for r in verdict["ranking"]
    ]
    if rows:
        columns = (
            Column("roof", "bottleneck"),
            Column("charged", "time", "s"),
            Column("least", "at least"),
            Column("most", "at most"),
            Column("says", "why"),
        )
        yield from table_lines(Table("roofs", "Speed-up without each bottleneck", columns, rows), ink)


def _findings(findings: list[Mapping[str, Any]], ink: Ink) -> Iterator[str]:
    """Findings by name: the worst one in full, and the number of other files with the same."""
    if findings:
        yield ink.bold("Findings")
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for finding in findings:
        by_name.setdefault(finding["name"], []).append(finding)
    for name, group in by_name.items():
        first = group[0]
        lost = f" ({first['seconds_lost'] * 1e3:.1f} ms lost)" if first.get("seconds_lost") else ""
        repeats = f"; the same in {len(group) - 1} more files" if len(group) > 1 else ""
        yield f"  {ink.bold(name)}{lost}: {first['says']}{repeats}"
        yield f"    try: {first['advice']} ({first['docs']})"


def _comparison(data: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """The comparison with the estimate: a sentence, and the largest differences."""
    comparison = data.get("comparison")
    if not comparison:
        yield from _say_what_to_give(data["files"], ink)
        return
    yield ink.bold(comparison["sentence"])
    if len(data["files"]) > 1 and comparison["rank"] is not None:
        yield f"compared is rank {comparison['rank']}, which waits least for the others"
    yield from _measured_run(comparison, ink)
    rows = [r for r in data["compare"] or [] if abs(r["share"]) >= LEAST_SHARE][:MOST_ROWS]
    columns = (
        Column("term", "term"),
        Column("measured_seconds", "measured", "s"),
        Column("predicted_seconds", "predicted", "s"),
        Column("difference_seconds", "difference", "s"),
        Column("share", "of predicted step", "%"),
    )
    if rows:
        yield from table_lines(Table("compare", "Step, measured and predicted", columns, rows), ink)


def _say_what_to_give(files: list[Mapping[str, Any]], ink: Ink) -> Iterator[str]:
    """For one log of training without a comparison: what to give, so that the causes of its time are ranked."""
    if len(files) != 1 or not (log := files[0].get("log")) or not (log["steps"] or log["tokens_per_second"]):
        return
    given = {said.split(":")[0] for said in log["said"] if said.endswith("(given)")}
    known = {*log["run"], *(name for name, words in (("model", "model"), ("on", "device")) if words in given)}
    lacking = [words for name, words in NEEDED if name not in known]
    if not lacking:
        return
    yield ink.dim(f"to rank what could explain its time against an estimate of the same run, give {', '.join(lacking)}")


NEEDED = (  # options of a comparison, by the name of what a log may give
    ("model", "--model MODEL"), ("on", "--on ACCELERATOR"), ("gpus", "--gpus N"), ("seq_len", "--seq-len N"),
    ("global_batch_size", "--global-batch-size N"),
)  # fmt: skip


def _measured_run(comparison: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """The measured and predicted rates with their MFUs, what could explain the difference, and the command that shows more."""
    run = comparison.get("measured_run")
    if not run:
        return
    yield from describe_data(run)
    if run["suspects"]:
        yield from table_lines(tabulate_suspects(run["suspects"]), ink)
    if comparison.get("next_command"):
        yield ink.dim(f"every operator of the predicted step: {comparison['next_command']}")


def _time(us: float) -> str:
    """A time given in microseconds, with a unit."""
    if us >= 1e6:
        return f"{us / 1e6:,.3f} s"
    return f"{us / 1e3:,.3f} ms" if us >= 1e3 else f"{us:,.3f} us"
