"""Diagnose files: read each by its content, analyse it, join the ranks of one job; give a verdict, findings and a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironlaw.catalog.sourced import Reading, watch_sources
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import InputError, IronlawError, QuestionError, UnknownNameError, quote
from ironlaw.measure.communication.ranks import Ranks, align
from ironlaw.measure.events import Trace
from ironlaw.measure.findings import findings_of
from ironlaw.measure.findings.finding import Finding
from ironlaw.measure.kernels.names import read_names
from ironlaw.measure.lanes import picture_data
from ironlaw.measure.profile import Profile, profile
from ironlaw.measure.profiler_cost import check_profiler_cost, measure_profiler_cost, refuse_dispatch
from ironlaw.measure.read.chrome import TIME_UNITS, read_chrome
from ironlaw.measure.read.memory_text import MemoryText, read_entries, read_memory_text
from ironlaw.measure.read.memory_timeline import Timeline, read_timeline
from ironlaw.measure.read.nsys import read_nsys
from ironlaw.measure.read.snapshot import Snapshot, read_snapshot
from ironlaw.measure.read.sniff import files_of, kind_of
from ironlaw.measure.verdict import Verdict, judge_job, judge_rank
from ironlaw.measure.versus.compare import Comparison, compare
from ironlaw.measure.versus.memory import MemoryRow, compare_memory
from ironlaw.measure.versus.parts import find_pace_setter, measure_step
from ironlaw.measure.versus.predicted import load_prediction, run_estimate
from ironlaw.measure.window import Policy
from ironlaw.question.options import TOKENS_PER_SECOND, flag
from ironlaw.question.read import read_options
from ironlaw.shown import Shown
from ironlaw.units import parse

if TYPE_CHECKING:
    from ironlaw.catalog.citations import Citations
    from ironlaw.catalog.sourced import Source
    from ironlaw.measure.logs import Log
    from ironlaw.measure.logs.reading import LogReading

CHOICES = ("keep", "drop")
CLOCK_RUNS = 3_600_000_000_000  # [ns] an earlier time may count from the start of the profiler, and cannot be compared between files
_WHOLE = ("gpus", "seq_len", "global_batch_size")


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """The diagnosis of all files; ``data`` gives the JSON, ``exit_status`` the exit status of the command."""

    profiles: tuple[Profile, ...]
    logs: tuple[LogReading, ...]
    snapshots: tuple[Snapshot, ...]
    timelines: tuple[Timeline, ...]
    texts: tuple[MemoryText, ...]
    ranks: Ranks | None
    verdict: Verdict
    findings: tuple[Finding, ...]
    comparison: Comparison | None
    memory: tuple[MemoryRow, ...]  # measured against predicted
    memory_run: Mapping[str, Any] | None  # the run that the prediction of memory is of, what was assumed, and ways to fit
    assumptions: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[Caution, ...] = ()
    verdicts: tuple[Verdict, ...] = field(default=())  # of each profile
    folders: tuple[str, ...] = ()
    read: tuple[Source, ...] = ()  # the sources of the values of the catalogue that were read

    def citations(self) -> Citations:
        """The sources of the devices' values, and of the estimate that the run is compared with. As text they are BibTeX."""
        from ironlaw.catalog.citations import cite

        return cite(self.read)

    @property
    def exit_status(self) -> int:
        """0 with a verdict, or for files that need none (a benchmark of collectives, memory alone); 4 if the verdict is inconclusive."""
        needs_verdict = self.profiles or any(log.exit_status == 4 for log in self.logs)
        return 0 if self.verdict.roof is not None or not needs_verdict else 4

    def data(self) -> dict[str, Any]:
        """Plain data for the JSON, without the keys common to all answers."""
        files = [{**p.data(), **picture_data(p), "verdict": v.data()} for p, v in zip(self.profiles, self.verdicts, strict=True)]
        files += [_file_data(log.path, log.rates.device if log.rates else None) | {"log": log.data()} for log in self.logs]
        files += [_file_data(s.path) | {"snapshot": s.data()} for s in self.snapshots]
        files += [_file_data(t.path) | {"memory_timeline": t.data()} for t in self.timelines]
        files += [_file_data(t.path) | {"memory_text": t.data()} for t in self.texts]
        comparison = {"compare": None, "comparison": None} if self.comparison is None else self.comparison.data()
        return {
            "files": files,
            "ranks": None if self.ranks is None else self.ranks.data(self.profiles[0].link),
            "verdict": self.verdict.data(),
            "findings": [f.data() for f in self.findings],
            "compare": comparison["compare"],
            "memory": [row.data() for row in self.memory] or None,
            "memory_run": None if self.memory_run is None else dict(self.memory_run),
            "parallel_efficiency": _efficiency(self.logs),
            "comparison": comparison["comparison"],
        }


def _efficiency(logs: Sequence[LogReading]) -> list[dict[str, Any]] | None:
    """Throughput in logs of one model on several numbers of GPUs; None if the logs are something else."""
    if len(logs) < 2:
        return None
    from ironlaw.measure.logs.reading import parallel_efficiency

    try:
        return [asdict(row) for row in parallel_efficiency(logs)]
    except QuestionError:
        return None


def _file_data(path: str, device: str | None = None) -> dict[str, Any]:
    """The JSON of a file without device events: the keys that every file has, without values."""
    return {
        "path": path, "device": device, "rank": None, "policy": None, "window": None, "steps": [], "collectives": [], "kernels": [],
        "idle": None,
    }  # fmt: skip


def diagnose(
    paths: str | Path | Iterable[str | Path],
    *,
    unlinked: str = "keep",
    last_step: str = "keep",
    time_unit: str = "us",
    on: str | None = None,
    against: str | Path | None = None,
    patterns: Sequence[str | Path] = (),
    kernel_names: Sequence[str | Path] = (),
    question: Mapping[str, Any] | None = None,
    untraced_step: str | float | None = None,
    tokens_per_second: str | float | None = None,
    folders: tuple[str, ...] = (),
) -> Diagnosis:
    """Diagnose traces, logs and snapshots; ``question`` has the options of ``ironlaw.estimate`` for the same run.

    ``unlinked`` and ``last_step`` are ``keep`` or ``drop``. ``patterns`` are files with more names of communication kernels,
    ``kernel_names`` files with more names of other kernels. ``untraced_step`` is the step time without a profiler.
    ``tokens_per_second`` is a measured throughput of all accelerators, of a log without one, or without any file.
    """
    with watch_sources(reading := Reading()):
        found = _diagnose(
            paths, unlinked, last_step, time_unit, on, against, patterns, kernel_names, question, untraced_step, tokens_per_second, folders
        )
    return replace(found, read=tuple(reading.sources))


def _paths_of(given: Any, name: str) -> list[Path]:
    """The files that an argument names: one, or several."""
    items: list[Any] = [given] if isinstance(given, (str, Path)) else list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(item, (str, Path)) for item in items):
        raise QuestionError(f"{name} is {quote(given)}, must be the name of a file, or a list of names")
    return [Path(item) for item in items]


def _diagnose(
    paths: str | Path | Iterable[str | Path],
    unlinked: str,
    last_step: str,
    time_unit: str,
    on: str | None,
    against: str | Path | None,
    patterns: Sequence[str | Path],
    kernel_names: Sequence[str | Path],
    question: Mapping[str, Any] | None,
    untraced_step: str | float | None,
    tokens_per_second: str | float | None,
    folders: tuple[str, ...],
) -> Diagnosis:
    """The diagnosis of files."""
    _check_choices(unlinked, last_step, time_unit)
    if against is not None and question and question.get("model"):
        raise QuestionError("--against and --model both name a prediction: give one of them")
    named, patterns, kernel_names = (
        _paths_of(given, name) for given, name in ((paths, "paths"), (patterns, "--patterns"), (kernel_names, "--kernel-names"))
    )
    if question is not None and not isinstance(question, Mapping):
        raise QuestionError(f"question is {quote(question)}, must be a table of options")
    if against is not None:
        _paths_of(against, "--against")
    rate = None if tokens_per_second is None else TOKENS_PER_SECOND.read(tokens_per_second, "--tokens-per-second")
    files, skipped = files_of(named)
    if not files and rate is None:
        raise QuestionError("no FILE given; try: ironlaw diagnose trace.json.gz")
    untraced = _read_untraced_step(untraced_step)
    policy = Policy(unlinked, last_step)
    names = read_names(kernel_names) if kernel_names else None

    def analyse(trace: Trace) -> Profile:
        return profile(trace, policy, on, tuple(map(Path, patterns)), folders, names)

    readings = _Readings()
    for file in files:
        try:
            _add_file(readings, file, time_unit, analyse, lambda log: _interpret_log(log, on, question or {}, folders))
        except IronlawError as error:
            if file in named or len(files) == 1:
                raise
            skipped.append(caution("file-skipped-over", why=str(error)))
    if files and not readings.read_any:
        raise InputError(f"none of {len(files)} files could be read; the first: {skipped[-len(files)].values['why']}")
    _check_throughput(rate, readings, against, question)
    profiles = readings.profiles
    profiler_costs = [measure_profiler_cost(p, untraced) for p in profiles] if untraced is not None else []
    if untraced is not None and not profiler_costs:
        raise QuestionError("--untraced-step needs a trace: give one")
    verdicts = tuple(refuse_dispatch(judge_rank(p), profiler_costs[i : i + 1]) for i, p in enumerate(profiles))
    memory = bool(readings.snapshots or readings.timelines or readings.texts)
    ranks, verdict, rank_warnings = _join_ranks(profiles, verdicts, readings.logs, memory)
    comparison, why_not = _compare(readings, against, question, rate, folders)
    several = len(files) > 1
    memory_rows, memory_run = _memory(readings, question, folders)
    warnings = [*skipped, *rank_warnings, *why_not, *check_profiler_cost(profiler_costs), *_warnings(readings, comparison, many=several)]
    return Diagnosis(
        profiles=tuple(profiles),
        logs=tuple(readings.logs),
        snapshots=tuple(readings.snapshots),
        timelines=tuple(readings.timelines),
        texts=tuple(readings.texts),
        ranks=ranks,
        verdict=refuse_dispatch(verdict, profiler_costs),
        findings=findings_of(profiles, ranks, readings.logs, readings.snapshots, profiler_costs, readings.texts),
        comparison=comparison,
        memory=memory_rows,
        memory_run=memory_run,
        assumptions=_assumptions(policy, profiles, on, untraced),
        warnings=tuple(dict.fromkeys(warnings)),
        verdicts=verdicts,
        folders=folders,
    )


def _check_throughput(rate: float | None, readings: _Readings, against: str | Path | None, question: Mapping[str, Any] | None) -> None:
    """Refuse a measured throughput beside a trace, which has its own steps, or without the run it belongs to."""
    if rate is None:
        return
    if readings.profiles:
        raise QuestionError("--tokens-per-second goes with a log or alone: a trace has its own steps")
    if against is None and not (question and question.get("model")):
        raise QuestionError("--tokens-per-second needs --model, --on and --gpus: the run it was measured on")


def _check_choices(unlinked: str, last_step: str, time_unit: str) -> None:
    """Refuse a value of an option that is not one of its choices."""
    for name, value, choices in (("unlinked", unlinked, CHOICES), ("last-step", last_step, CHOICES), ("time-unit", time_unit, TIME_UNITS)):
        if value not in choices:
            raise UnknownNameError(f"--{name}", str(value), choices)


@dataclass
class _Readings:
    """The analysed files, by kind."""

    profiles: list[Profile] = field(default_factory=list)
    logs: list[LogReading] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    timelines: list[Timeline] = field(default_factory=list)
    texts: list[MemoryText] = field(default_factory=list)

    @property
    def read_any(self) -> bool:
        """Whether any file could be read."""
        return bool(self.profiles or self.logs or self.snapshots or self.timelines or self.texts)


def _add_file(
    readings: _Readings, file: Path, time_unit: str, analyse: Callable[[Trace], Profile], interpret: Callable[[Log], LogReading]
) -> None:
    """Read ``file`` and add it to ``readings``."""
    kind = kind_of(file)
    if kind == "log":
        from ironlaw.measure.logs import read_log

        log = read_log(file)
        readings.logs.append(interpret(log))
        if entries := read_entries(log.printed):
            readings.texts.append(MemoryText(str(file), entries))
    elif kind == "memory":
        readings.texts.append(read_memory_text(file))
    elif kind == "snapshot":
        readings.snapshots.append(read_snapshot(file))
    elif kind == "timeline":
        readings.timelines.append(read_timeline(file))
    else:
        traces = read_nsys(file) if kind == "nsys" else read_chrome(str(file), time_unit)
        readings.profiles += [analyse(trace) for trace in _keep_with_events(traces)]


def _warnings(readings: _Readings, comparison: Comparison | None, many: bool) -> Iterator[Caution]:
    """The warnings of all files; with ``many`` files, a warning of a trace begins with its path."""
    yield from (w.within(p.trace.path) if many else w for p in readings.profiles for w in p.warnings)
    yield from (w for log in readings.logs for w in log.warnings)
    yield from (w for s in readings.snapshots for w in s.warnings)
    yield from comparison.warnings if comparison is not None else ()


def _read_untraced_step(untraced_step: str | float | None) -> float | None:
    """The step time without a profiler in seconds; None where it is not given."""
    if untraced_step is None:
        return None
    seconds = parse(untraced_step, "s", "--untraced-step")
    if not 0 < seconds < float("inf"):
        raise QuestionError(f"--untraced-step {untraced_step}: give the step time without a profiler, more than 0")
    return seconds


def _interpret_log(log: Log, on: str | None, question: Mapping[str, Any], folders: tuple[str, ...]) -> LogReading:
    """The rates of a log, with the job that the question describes."""
    from ironlaw.measure.logs.reading import log_reading

    options = read_options({name: question[name] for name in (*_WHOLE, "precision", "recompute") if name in question})
    for name in _WHOLE:
        if name in options:
            if isinstance(options[name], list):
                raise QuestionError(f"{flag(name)} {question[name]}: a log has one run: give one value")
            options[name] = int(options[name])
    return log_reading(log, question.get("model"), on, folders=folders, **options)


def _keep_with_events(traces: list[Trace]) -> list[Trace]:
    """Traces with device events; the first one if none has any, so that the error names the file."""
    return [t for t in traces if len(t.events)] or traces[:1]


def _join_ranks(
    profiles: list[Profile], verdicts: tuple[Verdict, ...], logs: list[LogReading], memory: bool
) -> tuple[Ranks | None, Verdict, list[Caution]]:
    """Align the traces of one job, and give its verdict; files of different jobs have no common verdict."""
    if not profiles:
        return None, _judge_logs(logs, memory), []
    if len(profiles) == 1:
        return None, verdicts[0], []
    if why := _why_not_one_job(profiles):
        warning = caution("not-one-job", why=why)
        return None, Verdict(None, None, None, None, warning), [warning]
    ranks = align([p.trace for p in profiles], [p.classified for p in profiles], [p.counted for p in profiles])
    return ranks, judge_job(profiles, ranks), list(ranks.warnings)


def _why_not_one_job(profiles: list[Profile]) -> str:
    """Why the traces cannot be the ranks of one job; empty where they can."""
    communicate = all(p.collectives for p in profiles)
    if len({p.trace.path for p in profiles}) == 1:  # merged ranks, or threads of one
        return "" if communicate else "several devices in one file, without collectives"
    numbers = [p.trace.rank for p in profiles]
    worlds = {p.trace.world_size for p in profiles if p.trace.world_size is not None}
    if len(worlds) > 1:
        return f"jobs of {' and '.join(map(str, sorted(worlds)[:4]))} ranks"
    if None not in numbers:
        repeated = [n for n in dict.fromkeys(numbers) if numbers.count(n) > 1]
        return f"rank {repeated[0]} occurs {numbers.count(repeated[0])} times" if repeated else ""
    if any(n is not None for n in numbers):
        return "some have a rank number and some do not"
    return "" if communicate and _overlap_in_time(profiles) else "none has a rank number"


def _overlap_in_time(profiles: list[Profile]) -> bool:
    """Whether the windows overlap in time of day. Needed for profilers that record no rank number."""
    start = [p.trace.base + p.window.start for p in profiles]
    return min(start) > CLOCK_RUNS and max(start) < min(p.trace.base + p.window.end for p in profiles)


def _judge_logs(logs: list[LogReading], memory: bool) -> Verdict:
    """The verdict of logs: a log can rule out bottlenecks, but not name one."""
    if not logs and not memory:
        return Verdict(None, None, None, None, "a throughput alone does not show the bottleneck")
    if not logs:
        return Verdict(None, None, None, None, "memory alone does not show the bottleneck")
    timed = [log for log in logs if log.exit_status == 4]
    return Verdict(None, timed[0].gain if timed else None, None, None, (timed or logs)[0].verdict)


def _compare(
    readings: _Readings,
    against: str | Path | None,
    question: Mapping[str, Any] | None,
    tokens_per_second: float | None,
    folders: tuple[str, ...],
) -> tuple[Comparison | None, list[Caution]]:
    """Compare the first file with step times with the prediction, and why there is no comparison; None where none was asked for."""
    if against is None and not (question and question.get("model")):
        return _compare_by_log(readings.logs, question or {}, folders)
    if readings.profiles:
        predicted = load_prediction({} if against is not None else question or {}, against, folders)
        assert predicted is not None
        return compare(measure_step(find_pace_setter(readings.profiles)), predicted), []
    timed = next((log for log in readings.logs if log.steps is not None or log.tokens_per_second is not None), None)
    if timed is not None or tokens_per_second is not None:
        from ironlaw.measure.versus.from_log import compare_log

        return compare_log(timed, tokens_per_second, against, question or {}, folders)
    if readings.snapshots or readings.timelines or readings.texts:
        return None, []
    raise QuestionError("no step times to compare with the estimate: give a trace, a log with step times, or --tokens-per-second")


def _compare_by_log(
    logs: list[LogReading], question: Mapping[str, Any], folders: tuple[str, ...]
) -> tuple[Comparison | None, list[Caution]]:
    """Compare one log whose arguments describe its model and its step, where the accelerator is given; else no comparison."""
    from ironlaw.measure.logs.asked import missing_for_tokens
    from ironlaw.measure.versus.from_log import compare_log

    if len(logs) != 1 or not question.get("on") or logs[0].steps is None or "model" not in logs[0].run:
        return None, []
    if missing_for_tokens({**logs[0].run, **question}) or not (question.get("gpus") or logs[0].run.get("gpus")):
        return None, []
    try:
        return compare_log(logs[0], None, None, question, folders)
    except IronlawError as error:
        return None, [caution("no-estimate-of-the-log", error.option, why=str(error))]


def _memory(
    readings: _Readings, question: Mapping[str, Any] | None, folders: tuple[str, ...]
) -> tuple[tuple[MemoryRow, ...], Mapping[str, Any] | None]:
    """Measured peaks of memory against the estimate of the simplest run that the question allows, and that run."""
    from ironlaw.measure.versus.plain_run import assumed_facts, describe_run, fill_simply, ways_to_fit

    texts = [text for text in readings.texts if text.entries]
    if not (readings.snapshots or readings.timelines or texts) or not (question and question.get("model")):
        return (), None
    filled, assumed = fill_simply(question)
    estimate = run_estimate(filled, folders)
    rows = compare_memory(
        readings.snapshots[0] if readings.snapshots else None,
        estimate,
        readings.timelines[0] if readings.timelines else None,
        texts[0].fullest if texts else None,
    )
    ran_out = any(text.fullest.failed for text in texts)
    ways = ways_to_fit(filled, folders) if ran_out else None
    taken = [*assumed, *assumed_facts(filled, estimate)]
    return tuple(rows), {"plan": describe_run(estimate), "assumed": taken, "ways_to_fit": ways}


def _assumptions(policy: Policy, profiles: list[Profile], on: str | None, untraced: float | None) -> tuple[Mapping[str, Any], ...]:
    """The policy, the accelerator and the untraced step time that the diagnosis assumed, each with its origin."""
    assumptions: list[Mapping[str, Any]] = []
    if profiles:
        assumptions += [
            {"name": "unlinked", "value": policy.unlinked, "origin": "given" if policy.unlinked == "drop" else "default"},
            {"name": "last_step", "value": policy.last_step, "origin": "given" if policy.last_step == "drop" else "default"},
        ]
    names = sorted({p.accelerator.name for p in profiles if p.accelerator})
    assumptions += [{"name": "accelerator", "value": name, "origin": "given" if on else "chosen"} for name in names]
    if untraced is not None:
        assumptions.append({"name": "untraced_step", "value": untraced, "origin": "given"})
    return tuple(assumptions)
