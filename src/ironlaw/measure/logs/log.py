"""A training log as columns, one row for each line that reports iterations, with the arguments that the log printed.

Logs come from other machines: coloured, cut, with lines of several ranks mixed. ``lines`` streams a log within limits of time and memory;
``Rows`` collects what a reader finds in it. Nothing is averaged here: a row that is not an ordinary step keeps its time and the reason.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import InputError
from ironlaw.measure.read.limits import Deadline, open_bytes
from ironlaw.measure.read.toml import shipped

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST = 4 << 30  # bytes of a log, unpacked
LONGEST = 1 << 14  # bytes of a line; argument dumps and iteration lines are below 4 KiB
ROWS = 5_000_000
SECONDS = 600.0
AGES = 1e9  # [s] no step takes 30 years
OPTIONAL = ("tokens_per_second", "tflops", "loss", "memory", "data_share", "power", "batch")
MEMORY = ("out of memory", "Max_MA ", "RESOURCE_EXHAUSTED", "Out of memory")  # in lines about device memory
WRAPPED = 11  # lines after a message of "out of memory" that a terminal may have broken
_NODE = re.compile(r"\bRank=\d{1,7} Node=(\S{1,100}) Score=(\d{1,3}(?:\.\d{1,6})?)\b")
JITTER = 2  # ranks that print without a prefix run at most this many iterations ahead of each other

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]{0,200}\x07|[@-Z\\-_])|\[\d{1,3}(?:;\d{1,3}){0,5}m")
_PREFIX = re.compile(
    r"\s*(?:\[default(?P<a>\d{1,6})\]:|\[rank(?P<b>\d{1,6})\]:|\[\d+,(?P<c>\d{1,6})\]<std(?:out|err)>:|(?P<d>\d{1,6}): |std(?:out|err): )"
)
_CLOCK = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_SMI = re.compile(r"^\| {1,8}\d{1,4} {1,8}(\S.{0,60}?) {1,40}(?:On|Off|N/A) {1,8}\| {1,8}[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:")


@cache
def _events() -> tuple[tuple[str, tuple[str, ...], tuple[tuple[re.Pattern[str], float], ...]], ...]:
    """What lines tell of beside steps: its kind, words of such lines, and patterns of how long it took with the seconds of their unit."""
    rows = shipped("logs.toml")["event"]
    scale = {"ms": 1e-3, "s": 1.0}
    return tuple((row["kind"], tuple(row["words"]), tuple((re.compile(p), scale[unit]) for p, unit in row["took"])) for row in rows)


@dataclass(frozen=True)
class Calls:
    """Timed calls of a collective, one row for each call on a rank (or for a mean that the benchmark printed)."""

    collective: str  # "all_reduce", "" where the log does not say
    rank: Integers  # -1 for a row of all ranks
    number: Integers  # the k-th call of this size on this rank, from 0
    size: Floats  # [B] of the tensor
    seconds: Floats
    algorithm_bandwidth: Floats  # [B/s], as printed
    bus_bandwidth: Floats  # [B/s], as printed
    in_place: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.size)


@dataclass(frozen=True)
class Log:
    """One log. Columns have one row for each line that reports iterations; an optional column is None if the log lacks it."""

    path: str
    format: str
    iteration: Integers
    seconds: Floats  # per ``per``, mean over ``averaged`` iterations; nan if the line has no time
    averaged: Integers  # number of iterations in the mean
    aside: tuple[str, ...]  # why a row is not an ordinary step; "" for ordinary steps
    per: str = "iteration"  # unit of the seconds: "iteration", or "sample" in MLPerf logs without a batch size
    world_size: int | None = None
    tokens_per_second: Floats | None = None
    tokens_of: str = "gpu"  # whether tokens_per_second is per "gpu" or per "job"
    tflops: Floats | None = None  # per GPU, as printed
    loss: Floats | None = None
    memory: Floats | None = None  # [B]
    data_share: Floats | None = None  # of a step, waiting for the loader
    power: Floats | None = None  # [W] per GPU
    batch: Floats | None = None  # sequences per iteration; they grow during a batch ramp-up
    clock: Floats | None = None  # [s] time stamps of the lines
    events: dict[str, tuple[int, float]] = field(default_factory=dict)  # by kind: how many lines tell of one, and the seconds they print
    nodes: dict[str, float] = field(default_factory=dict)  # relative performance by host, as a detector of stragglers prints it
    ranks: dict[str, tuple[int, float]] = field(default_factory=dict)  # by rank or host: its lines, and their median time [s]
    arguments: dict[str, str] = field(default_factory=dict)
    claims: dict[str, float] = field(default_factory=dict)  # totals that the log prints, in SI units
    timers: dict[str, float] = field(default_factory=dict)  # [s] per step: medians of the framework's timers on the rank that prints
    device_name: str = ""
    devices: int | None = None  # listed by nvidia-smi on one node, which is not the world size
    calls: Calls | None = None
    skipped: dict[str, int] = field(default_factory=dict)  # number of lines left out, by reason
    warnings: tuple[Caution, ...] = ()
    printed: tuple[str, ...] = ()  # lines about device memory

    def __len__(self) -> int:
        return len(self.iteration)


@dataclass
class Notes:
    """The content of a log besides rows: arguments, claims, timers, devices, warnings."""

    path: str
    arguments: dict[str, str] = field(default_factory=dict)
    claims: dict[str, float] = field(default_factory=dict)
    timers: dict[str, list[float]] = field(default_factory=dict)  # [s] by name, one value for each line
    device_name: str = ""
    devices: int = 0
    printed: list[str] = field(default_factory=list)  # lines about device memory, for read/memory_text
    events: dict[str, tuple[int, float]] = field(default_factory=dict)
    nodes: dict[str, float] = field(default_factory=dict)
    wrapped: int = 0  # following lines that may belong to a message about memory
    skipped: Counter[str] = field(default_factory=Counter)
    warnings: dict[Caution, None] = field(default_factory=dict)  # in order, each once

    def warn(self, warning: Caution) -> None:
        """Store a warning once; at most 100, so that a hostile file cannot fill memory."""
        if len(self.warnings) < 100:
            self.warnings[warning] = None

    def memory(self, line: str) -> None:
        """Store a line about device memory, and the lines into which a terminal may have broken it; at most 1,000 of them."""
        if ("emory" in line or "Max_MA " in line or "RESOURCE_" in line) and any(sign in line for sign in MEMORY):
            self.wrapped = WRAPPED if "Max_MA " not in line else 0
        elif self.wrapped and line.strip():
            self.wrapped -= 1
        else:
            self.wrapped = 0
            return
        if len(self.printed) < 1000:
            self.printed.append(line[:4096])

    def event(self, line: str) -> None:
        """Count a line that tells of a checkpoint or an evaluation, with the time that it prints; keep the score of a host."""
        if "Node=" in line and (match := _NODE.search(line)) and (match[1] in self.nodes or len(self.nodes) < 100_000):
            self.nodes[match[1]] = min(self.nodes.get(match[1], math.inf), float(match[2]))
        for kind, words, timers in _events():
            if any(word in line for word in words):
                count, seconds = self.events.get(kind, (0, 0.0))
                took = next((float(m[1]) * scale for pattern, scale in timers if (m := pattern.search(line))), None)
                self.events[kind] = (count + 1, seconds) if took is None else (count, seconds + took)

    def argument(self, name: str, value: str) -> None:
        """Store an argument; the first value counts, because later ones come from other ranks."""
        if len(self.arguments) < 5000:
            self.arguments.setdefault(name, value.strip()[:500])

    def device(self, line: str) -> bool:
        """Whether ``line`` is a device row of nvidia-smi; if so, count it and store its name."""
        match = _SMI.match(line)
        if match:
            self.device_name = self.device_name or match[1].strip()
            self.devices += 1
        return match is not None

    def world_size(self) -> int | None:
        """Number of ranks from the arguments, None if they do not contain it."""
        return whole(self.arguments.get("world_size", ""))


@dataclass
class _Row:
    iteration: int
    seconds: float
    rank: int | None
    aside: str
    clock: float
    values: dict[str, float]
    averaged: int = 1
    fresh: bool = False  # first of an attempt: no line before it to measure from


class Rows:
    """Rows in the order a reader finds them. ``log`` drops lines of other ranks and makes columns."""

    def __init__(self, notes: Notes) -> None:
        self.notes, self.rows = notes, list[_Row]()

    def add(
        self, iteration: int, seconds: float = math.nan, *, rank: int | None = None, unusual: str = "", clock: float | None = None,
        **values: float | None,
    ) -> None:  # fmt: skip
        """Add a line; ``unusual`` says why it is no ordinary step.

        Without ``seconds``, its time is measured by ``clock`` from the previous line of the same rank.
        """
        if len(self.rows) >= ROWS:
            raise InputError(f"{self.notes.path}: more than {ROWS} iteration lines; cut the log")
        present = {k: v for k, v in values.items() if v is not None}
        self.rows.append(_Row(iteration, seconds, rank, unusual, math.nan if clock is None else clock, present))

    def log(self, form: str, averages: bool = False, **extra: object) -> Log:
        """Make the log. ``averages``: a line is the mean over the iterations since the previous line."""
        ranks = self._times_of_ranks()
        rows = self._drop_repeats(self._keep_one_rank())
        _fill_times(rows, averages)
        for row in rows:
            if not row.aside and not math.isfinite(row.seconds):
                row.aside = "no time: there is no earlier line to measure from"
            elif not row.aside and not 0.0 < row.seconds < AGES:
                row.aside = "no time: the printed value is not a step time"
        notes = self.notes
        columns = {name: _optional([r.values.get(name, math.nan) for r in rows]) for name in OPTIONAL}
        fields: dict[str, object] = {
            "iteration": np.array([r.iteration for r in rows], np.int64),
            "seconds": np.array([r.seconds for r in rows], np.float64),
            "averaged": np.array([r.averaged for r in rows], np.int64),
            "aside": tuple(r.aside for r in rows),
            "world_size": notes.world_size(),
            "arguments": notes.arguments,
            "claims": notes.claims,
            "timers": {name: float(np.median(times[1:] or times)) for name, times in notes.timers.items()},  # the first is warm-up
            "device_name": notes.device_name,
            "devices": notes.devices or None,
            "skipped": dict(notes.skipped),
            "warnings": tuple(notes.warnings),
            "printed": tuple(notes.printed),
            "clock": _optional([r.clock for r in rows]),
            "events": dict(notes.events),
            "nodes": dict(notes.nodes),
            "ranks": ranks,
            **columns,
            **extra,
        }
        return Log(notes.path, form, **fields)  # type: ignore[arg-type]

    def _times_of_ranks(self) -> dict[str, tuple[int, float]]:
        """The lines of each rank and their median time, where several ranks print times of their own."""
        times: dict[int, list[float]] = {}
        for row in self.rows:
            if row.rank is not None and math.isfinite(row.seconds):
                times.setdefault(row.rank, []).append(row.seconds)
        if len(times) < 2:
            return {}
        return {f"rank {rank}": (len(found), float(np.median(found[1:] or found))) for rank, found in sorted(times.items())}

    def _keep_one_rank(self) -> list[_Row]:
        """The rows of the lowest rank, where several ranks print the same iterations."""
        ranks = {row.rank for row in self.rows if row.rank is not None}
        if len(ranks) < 2:
            return self.rows
        lowest = min(ranks)
        rows = [row for row in self.rows if row.rank == lowest]
        self.notes.skipped["an iteration line of another rank"] += len(self.rows) - len(rows)
        return rows

    def _drop_repeats(self, rows: list[_Row]) -> list[_Row]:
        """Take each iteration once per attempt. A log has restarted if it goes back further than ranks can drift apart."""
        distinct, seen, top = list[_Row](), set[int](), -1
        for row in rows:
            if distinct and row.iteration < top - JITTER:
                self.notes.warn(caution("restarted", top=top, iteration=row.iteration))
                seen, top = set(), -1
                row.aside = row.aside or "first iteration after a restart"
                row.fresh = True
            if row.iteration in seen:
                self.notes.skipped["the same iteration again (another rank)"] += 1
                continue
            seen.add(row.iteration)
            top = max(top, row.iteration)
            distinct.append(row)
        return distinct


def _fill_times(rows: list[_Row], averages: bool) -> None:
    """Set the number of iterations of each row, and take missing times from the clock."""
    before: _Row | None = None
    for row in rows:
        if before is not None and not row.fresh and row.iteration > before.iteration:
            steps = row.iteration - before.iteration
            if not math.isfinite(row.seconds) and row.clock > before.clock:
                row.seconds, row.averaged = (row.clock - before.clock) / steps, steps
            elif averages:
                row.averaged = steps
        before = row
    if averages and len(rows) > 1:
        rows[0].averaged = max(1, min(rows[0].iteration, rows[1].averaged))


def _optional(values: list[float]) -> Floats | None:
    column = np.array(values, np.float64)
    return None if np.all(np.isnan(column)) else column


def states(path: str | Path, notes: Notes) -> Iterator[str]:
    """Stream the lines of ``path``, with every state of a progress bar that carriage returns overwrite; too long ones are skipped."""
    deadline = Deadline(path, SECONDS)
    with open_bytes(path, MOST) as stream, io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline=None) as text:
        count, whole = 0, True  # whether the last piece ended its line
        while piece := text.readline(LONGEST):
            count += 1
            if count % 4096 == 0:
                deadline.check()
            before, whole = whole, piece.endswith("\n")
            if before and (whole or len(piece) < LONGEST):
                line = plain(piece.rstrip("\n"))
                notes.memory(line)
                notes.event(line)
                yield line
            elif before:
                notes.skipped[f"longer than {LONGEST} bytes"] += 1


def lines(path: str | Path, notes: Notes) -> Iterator[str]:
    """Stream the lines of ``path`` without colours; lines longer than ``LONGEST`` are skipped and counted."""
    deadline = Deadline(path, SECONDS)
    with open_bytes(path, MOST) as stream:
        count = 0
        while raw := stream.readline(LONGEST):
            count += 1
            if count % 4096 == 0:
                deadline.check()
            if len(raw) == LONGEST and not raw.endswith(b"\n"):
                notes.skipped[f"longer than {LONGEST} bytes"] += 1
                while raw and not raw.endswith(b"\n"):
                    raw = stream.readline(1 << 20)
                    deadline.check()
                continue
            # a progress bar overwrites its line: only the text after the last carriage return is visible
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            line = plain(text.rsplit("\r", 1)[-1])
            notes.memory(line)
            notes.event(line)
            yield line


def plain(text: str) -> str:
    """Remove terminal colours, also those that lost their escape character in a copy.

    >>> plain("\\x1b[31mstep:\\x1b[0m 4"), plain("[32mtps: 3[0m")
    ('step: 4', 'tps: 3')
    """
    return _ANSI.sub("", text) if "\x1b" in text or "[" in text else text


def ranked(line: str) -> tuple[int | None, str]:
    """Split a line into the rank that a launcher wrote before it, and the rest.

    >>> ranked("[default3]: iteration 5"), ranked("[1,0]<stdout>:# nThread"), ranked("12: loss"), ranked("loss: 3")
    ((3, ' iteration 5'), (0, '# nThread'), (12, 'loss'), (None, 'loss: 3'))
    """
    match = _PREFIX.match(line)
    if match is None:
        return None, line
    rank = next((v for v in match.groups() if v is not None), None)
    return (None if rank is None else int(rank)), line[match.end() :]


def clock(line: str) -> float | None:
    """The first date and time in ``line`` in seconds, None if there is none.

    >>> clock("[titan] 2026-02-24 19:46:19,145 - root") - clock("[titan] 2026-02-24 19:46:17,145 - root")
    2.0
    """
    match = _CLOCK.search(line)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(v) for v in match.groups()[:6])
    try:
        whole_seconds = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return max(0.0, whole_seconds) + max(0, second - 59) + float(f"0.{match[7] or 0}")


def number(text: str | None) -> float | None:
    """Parse a number, with or without thousands separators; None for anything else, or beyond 1e30.

    >>> number("10,050"), number(" 1.5e3 "), number("nan"), number("1e999"), number("1.2.3"), number(None)
    (10050.0, 1500.0, None, None, None, None)
    """
    if text is None or len(text) > 60 or "_" in text:
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if value == 0.0 or 1e-30 <= abs(value) <= 1e30 else None


def whole(text: str | None) -> int | None:
    """Parse a whole number of at most 15 digits; None for anything else.

    >>> whole("8,030,261,248"), whole("4.0"), whole("None")
    (8030261248, None, None)
    """
    digits = (text or "").replace(",", "").strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 15 else None
