"""Stored runs as plain data and as pages: the list, one run, a comparison, a gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import sentences
from ironlaw.cautions.table import caution
from ironlaw.estimate.answer.as_data import common_keys
from ironlaw.measure.read.limits import printable
from ironlaw.measure.runs.differences import NS, window_parts
from ironlaw.measure.runs.gate import LEAST_SAMPLES, NOISE_TIMES
from ironlaw.measure.runs.saved_diagnosis import BESIDE, TERMS, WALL, Sample, medians, values_by_step
from ironlaw.measure.runs.store import GatedRun, StoredRun
from ironlaw.report.columns import set_rows
from ironlaw.report.terminal import Ink

NAMES = {
    "wall": "step",
    "compute": "compute",
    "exposed_comm": "exposed communication",
    "exposed_memcpy": "exposed copies",
    "idle": "idle",
    "comm": "communication, hidden too",
    "memcpy": "copies, hidden too",
    "busy": "busy",
}


def add_common_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    """Add the keys of every answer, without reading the catalogue."""
    common = common_keys(data.get("assumptions", []), data.get("warnings", []))
    return common | {key: value for key, value in data.items() if key not in common}


def run_data(run: StoredRun) -> dict[str, Any]:
    """A stored run as plain data."""
    data = asdict(run)
    step = data.pop("step_ns")
    return {**{k: v for k, v in data.items() if k not in ("number", "store", "new")}, "step_seconds": None if step is None else step * NS}


# The list


def list_data(runs: Sequence[StoredRun], store: str) -> dict[str, Any]:
    """The list of runs as plain data."""
    return {"store": store, "runs": [run_data(run) for run in runs]}


def list_page(data: Mapping[str, Any], colour: bool = False) -> str:
    """One line for each run."""
    ink, runs = Ink(colour), data["runs"]
    if not runs:
        return f"no runs in {plain(data['store'])}: store one with `ironlaw diagnose FILE --keep` or `ironlaw runs add`"
    head = ["run", "label", "stored (UTC)", "step", "steps", "bottleneck", "device", "ranks", ""]
    rows = [
        [
            r["id"],
            r["label"] or "-",
            _date(r["kept_at"]),
            _seconds(r["step_seconds"]),
            str(r["steps"]),
            r["roof"] or "-",
            ", ".join(d for d in _setting(r, "hardware", "devices") if d) or "-",
            str(_setting(r, "hardware", "ranks") or "-"),
            "contended" if r["contended"] else "",
        ]
        for r in runs
    ]
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''} in {plain(data['store'])}"
    return "\n".join([ink.bold(count), *table(head, rows, ink, right={3, 4, 7})])


def _setting(run: Mapping[str, Any], part: str, key: str) -> Any:
    settings = run["settings"].get(part)
    return settings.get(key, "") if isinstance(settings, dict) else ""


# One run


def show_data(run: StoredRun, diagnosis: Mapping[str, Any], samples: Sequence[Sample]) -> dict[str, Any]:
    """A run with its diagnosis and the medians of its steps, as plain data."""
    step_medians = {name: value * NS for name, value in medians(values_by_step(samples)).items()}
    return {"run": run_data(run), "store": run.store, "step_medians": step_medians, "diagnosis": dict(diagnosis)}


def show_page(data: Mapping[str, Any], colour: bool = False) -> str:
    """One run on one screen: origin, step time, bottleneck, files, parts of the window."""
    ink = Ink(colour)
    return "\n\n".join("\n".join(lines) for lines in (list(_head(data, ink)), list(_files(data, ink)), list(_parts(data, ink))) if lines)


def _head(data: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """Origin, step time and bottleneck of one run."""
    run, diagnosis = data["run"], data["diagnosis"]
    yield ink.bold(f"run {_name(run)}")
    yield f"stored {_date(run['kept_at'])} UTC, {run['origin']}, by ironlaw {plain(run['tool_version'])}; fingerprint {run['fingerprint']}"
    if run["step_seconds"] is not None:
        yield f"step {ink.bold(_seconds(run['step_seconds']))}, median of {run['steps']}"
    verdict = diagnosis.get("verdict") or {}
    if run["roof"]:
        gain = verdict.get("gain")
        pair = isinstance(gain, list) and len(gain) == 2 and all(isinstance(g, (int, float)) for g in gain)
        faster = f", {gain[0]:.2f}x to {gain[1]:.2f}x faster without it" if pair and gain is not None else ""
        after = f", then {plain(str(verdict['next']))}" if verdict.get("next") else ""
        yield f"bound by {ink.bold(plain(run['roof']))}{faster}{after}"
    if run["contended"]:
        yield ink.bad("contended: others used the machine")
    if diagnosis.get("redacted") is True:
        yield "redacted: names are hashed"


def _files(data: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """A table of the files of one run."""
    rows = [
        [
            str(e["rank"]) if e.get("rank") is not None else "-",
            e.get("device") or "-",
            str(len(e.get("steps") or (e.get("log") or {}).get("samples_seconds") or ())),
            _seconds(_us(e.get("window"), "wall_us")),
            e["path"],
        ]
        for e in data["diagnosis"]["files"]
    ]
    yield from table(["rank", "device", "steps", "window", "file"], rows[:16], ink, right={0, 2, 3})
    if len(rows) > 16:
        yield f"  ... {len(rows) - 16} more files (--json shows all)"


def _us(window: Mapping[str, Any] | None, key: str) -> float | None:
    value = (window or {}).get(key)
    return value * 1e-6 if isinstance(value, (int, float)) else None


def _parts(data: Mapping[str, Any], ink: Ink) -> Iterator[str]:
    """The parts of the window of one run."""
    window, _ = window_parts(data["diagnosis"])
    if WALL not in window:
        return
    wall = window[WALL]
    rows = [[NAMES[t], _seconds(window[t]), f"{window[t] / wall:.1%}" if wall else "-"] for t in TERMS if t in window]
    rows += [["window", _seconds(wall), ""]]
    rows += [[f"({NAMES[t]})", _seconds(window[t]), f"{window[t] / wall:.1%}" if wall else "-"] for t in BESIDE[:2] if t in window]
    yield from table(["window, mean over ranks", "time", "share"], rows, ink, right={1, 2})


# Two runs


def compare_data(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison of two runs as plain data."""
    warnings = []
    if differing := comparison["settings_that_differ"]:
        warnings.append(caution("fingerprints-differ", names=differing))
    if any(run.contended for run in (comparison["a"], comparison["b"])):
        warnings.append(caution("machine-shared"))
    return {**comparison, "a": run_data(comparison["a"]), "b": run_data(comparison["b"]), "warnings": warnings}


def compare_page(data: Mapping[str, Any], colour: bool = False) -> str:
    """The step times first, then the parts, the largest difference first."""
    ink, a, b = Ink(colour), data["a"], data["b"]
    difference = data["step"]["difference"]
    first = [ink.bold(f"{_name(b)} compared with {_name(a)}")]
    if difference is None:
        first.append("one of the runs has no step times: only windows are compared")
    else:
        shift = difference["shift"]
        word = "slower" if difference["seconds"] > 0 else "faster"
        relative = f" ({_percent(shift)})" if shift is not None else ""
        first.append(
            f"the median step is {_seconds(abs(difference['seconds']))} {word}{relative}; `ironlaw runs gate` checks whether this is noise"
        )
    if data["roof"]["a"] or data["roof"]["b"]:
        first.append(f"bottleneck of A: {plain(data['roof']['a'] or '-')}; of B: {plain(data['roof']['b'] or '-')}")
    parts = [first, _spread_lines(data, ink)]
    window = data["window"]
    if window["terms"]:
        rows = [*window["terms"], window["wall"]] if window["wall"] else window["terms"]
        parts.append(_term_lines(f"window: {window['of']}", rows, ink))
    if data["steps"]:
        parts.append(_term_lines("median over steps", data["steps"], ink))
    parts.append([ink.bad("warning: ") + w for w in sentences(data["warnings"])])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _spread_lines(data: Mapping[str, Any], ink: Ink) -> list[str]:
    """The step times of both runs: median, quartiles, least and most."""
    rows = []
    for key in ("a", "b"):
        s = data["step"][key]
        if s is not None:
            low, high = s["quartiles"]
            times = [_seconds(x) for x in (s["median"], low, high, s["least"], s["most"])]
            rows.append([_name(data[key]), str(s["count"]), *times])
    return list(table(["run", "steps", "median", "p25", "p75", "least", "most"], rows, ink, right={1, 2, 3, 4, 5, 6})) if rows else []


def _term_lines(title: str, rows: Sequence[Mapping[str, Any]], ink: Ink) -> list[str]:
    """A table that compares the parts of two runs."""
    cells = [
        [
            "all" if r["term"] == WALL else NAMES[r["term"]],
            _seconds(r["a"]),
            _seconds(r["b"]),
            _signed(r["difference"]),
            _percent(r["ratio"] - 1) if r["ratio"] is not None else "-",
        ]
        for r in rows
    ]
    return list(table([title, "A", "B", "B - A", ""], cells, ink, right={1, 2, 3, 4}))


# A gate


def gate_data(gated: GatedRun, across: bool) -> dict[str, Any]:
    """The verdict of a gate, its reasons and its checks, as plain data."""
    checks = [
        {
            "quantity": c.quantity,
            "baseline_seconds": c.baseline_ns * NS,
            "run_seconds": c.candidate_ns * NS,
            "shift": c.shift,
            "threshold": c.threshold,
            "noise": c.noise,
            "noise_from_runs": c.learned_from if c.noise is not None else 0,
            "samples": list(c.samples),
            "p_slower": c.p_slower,
            "p_faster": c.p_faster,
            "verdict": c.verdict,
        }
        for c in gated.gate.checks
    ]
    return {
        "verdict": gated.gate.verdict,
        "exit_status": gated.gate.exit_status,
        "reasons": list(gated.gate.reasons),
        "across": across,
        "baseline": run_data(gated.baseline),
        "run": run_data(gated.run),
        "checks": checks,
        "warnings": list(gated.gate.warnings),
    }


def gate_page(data: Mapping[str, Any], colour: bool = False) -> str:
    """The verdict, its reasons, and a table of the checks."""
    ink = Ink(colour)
    mark = {"slower": ink.bad, "inconclusive": ink.bold}.get(data["verdict"], ink.good)
    parts = [[f"{mark(data['verdict'])}: {_name(data['run'])} compared with {_name(data['baseline'])}", *map(plain, data["reasons"])]]
    if data["checks"]:
        rows = [
            [
                NAMES[c["quantity"]],
                _seconds(c["baseline_seconds"]),
                _seconds(c["run_seconds"]),
                _percent(c["shift"]),
                f"{c['threshold']:.1%}",
                f"{c['p_slower']:.2g}",
                "within the limit" if c["verdict"] == "inconclusive" and c["quantity"] != WALL else c["verdict"],
            ]
            for c in data["checks"]
        ]
        head = ["part of a step", "baseline", "run", "shift", "limit", "p slower", ""]
        parts.append(list(table(head, rows, ink, right={1, 2, 3, 4, 5})))
        c = data["checks"][0]
        if c["noise"] is not None:
            parts[-1].append(
                f"limit: the larger of 3.0% and {NOISE_TIMES:g} x noise {c['noise']:.2%}, learned from {c['noise_from_runs']} other runs;"
                f" {c['samples'][0]} and {c['samples'][1]} steps, at least {LEAST_SAMPLES} each"
            )
    parts.append([ink.bad("warning: ") + w for w in sentences(data["warnings"])])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


# A run that was stored, labelled or deleted


def change_data(run: StoredRun, done: str) -> dict[str, Any]:
    """A change to a stored run, as plain data."""
    is_repeat = done == "kept" and not run.new
    warnings = [caution("already-stored")] if is_repeat else []
    if run.renamed:
        warnings = [caution("label-replaced", old=plain(run.renamed))]
    return {"done": done, "new": run.new, "store": run.store, "run": run_data(run), "warnings": warnings}


def change_page(data: Mapping[str, Any], colour: bool = False) -> str:
    """One line, and warnings."""
    ink, run = Ink(colour), data["run"]
    step = f", step {_seconds(run['step_seconds'])} over {run['steps']}" if run["step_seconds"] is not None else ""
    lines = [f"{data['done']}: run {_name(run)}{step}, in {plain(data['store'])}"]
    return "\n".join(lines + [ink.bad("warning: ") + w for w in sentences(data["warnings"])])


# Layout


def table(head: Sequence[str], rows: Sequence[Sequence[str]], ink: Ink, right: set[int]) -> Iterator[str]:
    """Lay out rows under their heads; the columns in ``right`` are aligned to the right."""
    left = set(range(len(head))) - right
    first, *lines = set_rows([head, *([plain(cell) for cell in row] for row in rows)], left, "  ")
    yield from (ink.dim(first), *lines)


def plain(text: str) -> str:
    """Text from a file without control characters of a terminal."""
    return printable(text, None)


def _name(run: Mapping[str, Any]) -> str:
    return f"{run['id']} ({plain(run['label'])})" if run["label"] else str(run["id"])


def _date(text: str) -> str:
    return plain(text[:19].replace("T", " "))


def _seconds(value: float | None) -> str:
    return "-" if value is None else units.show(value, "s", 4)


def _percent(value: float) -> str:
    """A signed percentage; zero is +0.0%."""
    return f"{round(value, 3) + 0.0:+.1%}"


def _signed(value: float) -> str:
    return ("-" if value < 0 else "+") + _seconds(abs(value))
