"""Files in, diagnosis out: each file read by what it is, looked at, ranks of one job joined, one verdict, findings, a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironlaw.errors import InputError, IronlawError, QuestionError, UnknownNameError
from ironlaw.measure.communication.ranks import Ranks, align
from ironlaw.measure.events import Trace
from ironlaw.measure.findings import findings_of
from ironlaw.measure.findings.finding import Finding
from ironlaw.measure.kernels.names import read_names
from ironlaw.measure.profile import Profile, profile
from ironlaw.measure.profiler_cost import check_profiler_cost, measure_profiler_cost, refuse_dispatch
from ironlaw.measure.read.chrome import TIME_UNITS, read_chrome
from ironlaw.measure.read.memory_timeline import Timeline, read_timeline
from ironlaw.measure.read.nsys import read_nsys
from ironlaw.measure.read.snapshot import Snapshot, read_snapshot
from ironlaw.measure.read.sniff import files_of, kind_of
from ironlaw.measure.verdict import Verdict, judge_job, judge_rank
from ironlaw.measure.versus.compare import Comparison, Measured, compare
from ironlaw.measure.versus.memory import MemoryRow, compare_memory
from ironlaw.measure.versus.parts import find_pace_setter, measure_step
from ironlaw.measure.versus.predicted import load_prediction, run_estimate
from ironlaw.measure.window import Policy
from ironlaw.question.options import read_options
from ironlaw.units import parse

if TYPE_CHECKING:
    from ironlaw.measure.logs.reading import LogReading

CHOICES = ("keep", "drop")
CLOCK_RUNS = 3_600_000_000_000  # [ns] an earlier time may be one since the profiler began, and then says nothing of another file's
_WHOLE = ("gpus", "seq_len", "global_batch_size")


@dataclass(frozen=True)
class Diagnosis:
    """What the files say together; ``data`` is the JSON, ``exit_status`` what a command ends with."""

    profiles: tuple[Profile, ...]
    logs: tuple[LogReading, ...]
    snapshots: tuple[Snapshot, ...]
    timelines: tuple[Timeline, ...]
    ranks: Ranks | None
    verdict: Verdict
    findings: tuple[Finding, ...]
    comparison: Comparison | None
    memory: tuple[MemoryRow, ...]  # measured against predicted
    assumptions: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = field(default=())  # of each profile

    @property
    def exit_status(self) -> int:
        """0 with a verdict, or where none was asked for (a collective's benchmark, memory alone); 4 where it cannot be said."""
        asked = self.profiles or any(log.exit_status == 4 for log in self.logs)
        return 0 if self.verdict.roof is not None or not asked else 4

    def data(self) -> dict[str, Any]:
        """Plain values, as the JSON has them, without the keys common to all answers."""
        files = [{**p.data(), "verdict": v.data()} for p, v in zip(self.profiles, self.verdicts, strict=True)]
        files += [_log_entry(log) for log in self.logs]
        files += [_entry(s.path, None) | {"snapshot": s.data()} for s in self.snapshots]
        files += [_entry(t.path, None) | {"memory_timeline": t.data()} for t in self.timelines]
        told = {"compare": None, "comparison": None} if self.comparison is None else self.comparison.data()
        return {
            "files": files,
            "ranks": None if self.ranks is None else self.ranks.data(self.profiles[0].link),
            "verdict": self.verdict.data(),
            "findings": [f.data() for f in self.findings],
            "compare": told["compare"],
            "memory": [row.data() for row in self.memory] or None,
            "parallel_efficiency": _efficiency(self.logs),
            "comparison": told["comparison"],
        }


def _efficiency(logs: Sequence[LogReading]) -> list[dict[str, Any]] | None:
    """Throughput of logs of one model at several sizes; None where they are not that."""
    if len(logs) < 2:
        return None
    from ironlaw.measure.logs.reading import parallel_efficiency

    try:
        return [asdict(row) for row in parallel_efficiency(logs)]
    except QuestionError:
        return None


def _log_entry(log: LogReading) -> dict[str, Any]:
    return _entry(log.path, log.rates.device if log.rates else None) | {"log": log.data()}


def _entry(path: str, device: str | None) -> dict[str, Any]:
    """The keys of every file's entry, for one that has no window of device time."""
    nothing: dict[str, Any] = {"policy": None, "window": None, "steps": [], "collectives": [], "kernels": [], "idle": None}
    return {"path": path, "device": device, "rank": None, **nothing}


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
    folders: tuple[str, ...] = (),
) -> Diagnosis:
    """Diagnose traces, logs and snapshots; ``question`` holds the options of ``ironlaw.estimate`` for the same run.

    ``unlinked`` and ``last_step`` are ``keep`` or ``drop``; ``patterns`` are files of further names of communication kernels,
    ``kernel_names`` of further names of all others; ``untraced_step`` is what a step takes without a profiler.
    """
    _check_choices(unlinked, last_step, time_unit)
    if against is not None and question and question.get("model"):
        raise QuestionError("--against names an estimate and --model asks for one: give one of the two")
    asked = [Path(p) for p in ([paths] if isinstance(paths, (str, Path)) else paths)]
    files, passed = files_of(asked)
    if not files:
        raise QuestionError("no file given; try: ironlaw diagnose trace.json.gz")
    untraced = _seconds(untraced_step)
    policy = Policy(unlinked, last_step)
    names = read_names(kernel_names) if kernel_names else None

    def look(trace: Trace) -> Profile:
        return profile(trace, policy, on, tuple(map(Path, patterns)), folders, names)

    seen = _Seen()
    for file in files:
        try:
            _read(seen, file, time_unit, look, lambda f: _log(f, on, question or {}, folders))
        except IronlawError as error:
            if file in asked or len(files) == 1:
                raise
            passed.append(f"passed over: {error}")  # of a folder what can be read is, and what is missing is told
    if not (seen.profiles or seen.logs or seen.snapshots or seen.timelines):
        raise InputError(f"none of {len(files)} files could be read; the first: {passed[-len(files)].removeprefix('passed over: ')}")
    profiles = seen.profiles
    profiler_costs = [measure_profiler_cost(p, untraced) for p in profiles] if untraced is not None else []
    if untraced is not None and not profiler_costs:
        raise QuestionError("--untraced-step is compared with the steps of a trace: give one")
    verdicts = tuple(refuse_dispatch(judge_rank(p), profiler_costs[i : i + 1]) for i, p in enumerate(profiles))
    ranks, verdict, said = _together(profiles, verdicts, seen.logs)
    comparison = _compared(seen, against, question, folders)
    return Diagnosis(
        profiles=tuple(profiles),
        logs=tuple(seen.logs),
        snapshots=tuple(seen.snapshots),
        timelines=tuple(seen.timelines),
        ranks=ranks,
        verdict=refuse_dispatch(verdict, profiler_costs),
        findings=findings_of(profiles, ranks, seen.logs, seen.snapshots, profiler_costs),
        comparison=comparison,
        memory=_memory(seen, question, folders),
        assumptions=_assumptions(policy, profiles, on, untraced),
        warnings=tuple(
            dict.fromkeys([*passed, *said, *check_profiler_cost(profiler_costs), *_warnings(seen, comparison, many=len(files) > 1)])
        ),
        verdicts=verdicts,
    )


def _check_choices(unlinked: str, last_step: str, time_unit: str) -> None:
    for name, value, choices in (("unlinked", unlinked, CHOICES), ("last-step", last_step, CHOICES), ("time-unit", time_unit, TIME_UNITS)):
        if value not in choices:
            raise UnknownNameError(f"--{name}", str(value), choices)


@dataclass
class _Seen:
    """What the files turned out to be, each looked at."""

    profiles: list[Profile] = field(default_factory=list)
    logs: list[LogReading] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    timelines: list[Timeline] = field(default_factory=list)


def _read(seen: _Seen, file: Path, time_unit: str, look: Callable[[Trace], Profile], read_a_log: Callable[[Path], LogReading]) -> None:
    """Add what ``file`` is to ``seen``."""
    kind = kind_of(file)
    if kind == "log":
        seen.logs.append(read_a_log(file))
    elif kind == "snapshot":
        seen.snapshots.append(read_snapshot(file))
    elif kind == "timeline":
        seen.timelines.append(read_timeline(file))
    else:
        traces = read_nsys(file) if kind == "nsys" else read_chrome(str(file), time_unit)
        seen.profiles += [look(trace) for trace in _with_work(traces)]


def _warnings(seen: _Seen, comparison: Comparison | None, many: bool) -> Iterator[str]:
    """What was said while reading, of each trace with its path where there are ``many`` files."""
    yield from (f"{p.trace.path}: {w}" if many else w for p in seen.profiles for w in p.warnings)
    yield from (w for log in seen.logs for w in log.warnings)
    yield from (w for s in seen.snapshots for w in s.warnings)
    yield from comparison.warnings if comparison is not None else ()


def _seconds(untraced_step: str | float | None) -> float | None:
    if untraced_step is None:
        return None
    found = parse(untraced_step, "s", "--untraced-step")
    if not 0 < found < float("inf"):
        raise QuestionError(f"--untraced-step {untraced_step}: give the seconds of a step without a profiler, above 0")
    return found


def _log(file: Path, on: str | None, question: Mapping[str, Any], folders: tuple[str, ...]) -> LogReading:
    from ironlaw.measure.logs import read_log
    from ironlaw.measure.logs.reading import log_reading

    given = read_options({name: question[name] for name in (*_WHOLE, "precision", "recompute") if name in question})
    for name in _WHOLE:
        if name in given:
            if isinstance(given[name], list):
                raise QuestionError(f"--{name.replace('_', '-')} {question[name]}: a log is of one run, give one value")
            given[name] = int(given[name])
    return log_reading(read_log(file), question.get("model"), on, folders=folders, **given)


def _with_work(traces: list[Trace]) -> list[Trace]:
    """Traces in which a device did something; all of them where none did, so that the error names the file."""
    return [t for t in traces if len(t.events)] or traces[:1]


def _together(profiles: list[Profile], verdicts: tuple[Verdict, ...], logs: list[LogReading]) -> tuple[Ranks | None, Verdict, list[str]]:
    if not profiles:
        return None, _of_logs(logs), []
    if len(profiles) == 1:
        return None, verdicts[0], []
    if why := _not_one_job(profiles):
        says = f"several files that are not the ranks of one job ({why}): each has its own verdict"
        return None, Verdict(None, None, None, None, says), [says]
    ranks = align([p.trace for p in profiles], [p.classified for p in profiles], [p.counted for p in profiles])
    return ranks, judge_job(profiles, ranks), list(ranks.warnings)


def _not_one_job(profiles: list[Profile]) -> str:
    """Why the traces are not taken for the ranks of one job; nothing where they are."""
    talk = all(p.collectives for p in profiles)
    if len({p.trace.path for p in profiles}) == 1:  # merged ranks, or threads of one
        return "" if talk else "devices of one file without a collective"
    numbers = [p.trace.rank for p in profiles]
    worlds = {p.trace.world_size for p in profiles if p.trace.world_size is not None}
    if len(worlds) > 1:
        return f"of {' and '.join(map(str, sorted(worlds)[:4]))} ranks"
    if None not in numbers:
        again = [n for n in dict.fromkeys(numbers) if numbers.count(n) > 1]
        return f"rank {again[0]} is there {numbers.count(again[0])} times" if again else ""
    if any(n is not None for n in numbers):
        return "some name their rank and some do not"
    return "" if talk and _at_once(profiles) else "none names its rank"


def _at_once(profiles: list[Profile]) -> bool:
    """Whether the windows overlap, on clocks that do not start with the file: profilers called by other tools name no rank."""
    start = [p.trace.base + p.window.start for p in profiles]
    return min(start) > CLOCK_RUNS and max(start) < min(p.trace.base + p.window.end for p in profiles)


def _of_logs(logs: list[LogReading]) -> Verdict:
    """A log may exclude roofs; it names none."""
    if not logs:
        return Verdict(None, None, None, None, "memory alone names no roof")
    timed = [log for log in logs if log.exit_status == 4]
    return Verdict(None, timed[0].gain if timed else None, None, None, (timed or logs)[0].verdict)


def _compared(seen: _Seen, against: str | Path | None, question: Mapping[str, Any] | None, folders: tuple[str, ...]) -> Comparison | None:
    """The first thing with step times against the prediction; None where nobody asked, or where only memory was measured."""
    if against is None and not (question and question.get("model")):
        return None
    predicted = load_prediction({} if against is not None else question or {}, against, folders)
    if predicted is None:
        return None
    if seen.profiles:
        return compare(measure_step(find_pace_setter(seen.profiles)), predicted)
    for log in seen.logs:
        if log.steps is not None:
            device = log.rates.device if log.rates and log.rates.device else ""
            return compare(Measured(log.steps.median, {}, device=device, world_size=log.world_size), predicted)
    if seen.snapshots or seen.timelines:
        return None
    raise QuestionError("nothing to compare with the estimate: give a trace, or a log with step times")


def _memory(seen: _Seen, question: Mapping[str, Any] | None, folders: tuple[str, ...]) -> tuple[MemoryRow, ...]:
    """Peaks against the estimate of the same run; one of each kind is compared."""
    if not (seen.snapshots or seen.timelines) or not (question and question.get("model")):
        return ()
    timeline = seen.timelines[0] if seen.timelines else None
    return tuple(compare_memory(seen.snapshots[0] if seen.snapshots else None, run_estimate(question, folders), timeline))


def _assumptions(policy: Policy, profiles: list[Profile], on: str | None, untraced: float | None) -> tuple[Mapping[str, Any], ...]:
    found: list[Mapping[str, Any]] = []
    if profiles:
        found += [
            {"name": "unlinked", "value": policy.unlinked, "origin": "given" if policy.unlinked == "drop" else "default"},
            {"name": "last_step", "value": policy.last_step, "origin": "given" if policy.last_step == "drop" else "default"},
        ]
    names = sorted({p.accelerator.name for p in profiles if p.accelerator})
    found += [{"name": "accelerator", "value": name, "origin": "given" if on else "chosen"} for name in names]
    if untraced is not None:
        found.append({"name": "untraced_step", "value": untraced, "origin": "given"})
    return tuple(found)
