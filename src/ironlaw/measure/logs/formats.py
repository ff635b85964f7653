"""The table of log formats, ``measure/data/logs.toml``, and the one reader of all rows that say how a line is read.

A row names the line of a step by a regular expression and its numbers by the text before them. Trainers whose lines need more than that
have a module of their own; their rows name it, so that the list of formats is one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ironlaw.measure.logs.log import OPTIONAL, Log, Notes, Rows, clock, number, ranked
from ironlaw.measure.read.toml import shipped

NEAR = 800  # characters from the number of a step to the mark of its line, where a log is recognised
BLOCK = 500  # lines of a step's block
UNITS = {
    "": 1.0, "s": 1.0, "ms": 1e-3, "%": 1e-2, "B": 1.0, "MB": 2.0**20, "GB": 1e9, "GiB": 2.0**30,
}  # fmt: skip
_NUMBER = re.compile(
    r"[ \t]{0,16}(?:np\.float\d\d\()?(?P<value>[+-]?\d[\d,]{0,20}(?:\.\d{0,18})?(?:[eE][+-]?\d{1,3})?|nan|NaN)\s?(?P<prefix>[kKMG]\b)?"
)
_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}


@dataclass(frozen=True)
class Field:
    """A number of a step line: what it gives, the text before it, and its unit."""

    gives: str
    before: str
    scale: float


@dataclass(frozen=True)
class Format:
    """A format of logs: a row of the table."""

    name: str
    trainers: tuple[str, ...]
    url: str
    read: str  # the day on which the source was read; "recalled" where it was not opened
    module: str = ""  # of this package, for formats that need more than a row
    gives: tuple[str, ...] = ()
    mark: str = ""
    step: re.Pattern[str] | None = None
    block: bool = False
    overwrites: bool = False
    tokens_of: str = "gpu"
    fields: tuple[Field, ...] = ()
    said: tuple[tuple[str, str, re.Pattern[str]], ...] = field(default=())

    @property
    def sign(self) -> re.Pattern[bytes]:
        """What recognises the format: the line of a step, with its mark."""
        step, mark = (self.step.pattern if self.step else "(?!)"), re.escape(self.mark)
        return re.compile((step if self.mark in step.replace("\\", "") else rf"{step}[^\n\r]{{0,{NEAR}}}?{mark}").encode())


WORDS = {  # of the list of formats
    "seconds": "time", "rate": "time", "tokens_per_second": "tokens/s", "tflops": "TFLOP/s", "claim.mfu": "MFU", "batch": "batch",
    "consumed": "batch", "data_share": "loader", "loss": "loss", "world_size": "devices", "seq_length": "sequence",
    "micro_batch_size": "batch", "tokens_per_iteration": "batch",
}  # fmt: skip


@cache
def table() -> tuple[Format, ...]:
    """All formats, in the order in which they are tried.

    >>> [row.name for row in table() if "Composer" in row.trainers]
    ['composer']
    """
    return tuple(_format(row) for row in shipped("logs.toml")["format"])


def json_keys() -> Mapping[str, Any]:
    """The keys of JSON lines, as the table lists them."""
    keys: Mapping[str, Any] = shipped("logs.toml")["json"]
    return keys


def fields_of(rows: Iterable[list[str]]) -> tuple[Field, ...]:
    """Fields as the table writes them."""
    return tuple(Field(gives, before, UNITS[unit]) for gives, before, unit in rows)


def _format(row: Mapping[str, Any]) -> Format:
    """A row of the file, with what it gives in the words of the list of formats."""
    fields = fields_of(row.get("fields", ()))
    said = tuple((name, mark, re.compile(pattern)) for name, mark, pattern in row.get("said", ()))
    found = [*(f.gives for f in fields), *(name for name, _, _ in said)]
    words = [WORDS.get(name.removeprefix("argument."), "memory" if "memory" in name else "timers") for name in found]
    return Format(
        name=row["name"],
        trainers=tuple(row["trainers"]),
        url=row["url"],
        read=row["read"],
        module=row.get("module", ""),
        gives=tuple(row.get("gives") or dict.fromkeys(words)),
        mark=row.get("mark", ""),
        step=re.compile(row["step"]) if "step" in row else None,
        block=row.get("block", False),
        overwrites=row.get("overwrites", False),
        tokens_of=row.get("tokens_of", "gpu"),
        fields=fields,
        said=said,
    )


def read_by_table(form: Format, text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a log by a row of the table."""
    assert form.step is not None
    reading = _Reading(form, notes)
    for whole_line in text:
        rank, line = ranked(whole_line)
        match = form.step.search(line) if form.mark in line else None
        if match is not None:
            reading.begin(match, line, rank)
        elif reading.values is not None:
            reading.more(line)
        else:
            reading.say(line)
    return reading.log()


class _Reading:
    """The steps of a log that is read by a row of the table."""

    def __init__(self, form: Format, notes: Notes) -> None:
        self.form, self.notes, self.rows = form, notes, Rows(notes)
        self.values: dict[str, float] | None = None  # of the step whose block is read
        self.at: tuple[int, int | None, float | None] = (0, None, None)  # its number, rank and time stamp
        self.left = 0  # lines that may still belong to it
        self.counted = 0
        self.inner: list[tuple[int, int]] = []  # first and last number of the micro-batch, and of the step
        self.consumed: list[tuple[int, float]] = []

    def begin(self, match: re.Match[str], line: str, rank: int | None) -> None:
        """A step line: the numbers on it, and those of its block, if it has one."""
        self.end()
        groups = match.groupdict()
        self.counted += 1
        step = int(groups["step"]) if groups.get("step") else self.counted
        if groups.get("inner"):
            self.inner = [*self.inner[:1], (int(groups["inner"]), step)]
        self.at, self.values, self.left = (step, rank, clock(line)), {}, BLOCK if self.form.block else 0
        self._take(line)
        if not self.form.block:
            self.end()

    def more(self, line: str) -> None:
        """A line of the block of a step."""
        self.left -= 1
        if self.left <= 0:
            self.end()
        else:
            self._take(line)

    def say(self, line: str) -> None:
        """A line outside of steps: a setting of the run, or a device."""
        for name, mark, pattern in self.form.said:
            if mark in line and (match := pattern.search(line)):
                self.notes.argument(name, match[1].replace(",", ""))
        if line.startswith("|"):
            self.notes.device(line)

    def _take(self, line: str) -> None:
        """Add the numbers of a line to those of the step."""
        assert self.values is not None
        for entry in self.form.fields:
            if entry.gives in self.values:
                continue
            at = line.find(entry.before)
            if at < 0 or (match := _NUMBER.match(line, at + len(entry.before))) is None:
                continue
            value = number(match["value"])
            if match["value"].lower() == "nan":
                self.values[entry.gives] = math.nan
            elif value is not None:
                self.values[entry.gives] = value * _PREFIXES.get(match["prefix"] or "", 1.0) * entry.scale

    def end(self) -> None:
        """Make a row of the step that was read."""
        if self.values is None:
            return
        values, self.values = self.values, None
        step, rank, when = self.at
        add_step(self.rows, step, rank, when, values)
        if "consumed" in values and rank in (None, 0):
            self.consumed = [*self.consumed[-1:], (step, values["consumed"])]

    def log(self) -> Log:
        """The log of all steps."""
        self.end()
        self._scale()
        if len(self.consumed) == 2 and (steps := self.consumed[1][0] - self.consumed[0][0]) > 0:
            batch = (self.consumed[1][1] - self.consumed[0][1]) / steps
            if batch >= 1.0 and batch == int(batch):
                self.notes.argument("global_batch_size", str(int(batch)))
        return with_rates_alone(self.rows.log(self.form.name, tokens_of=self.form.tokens_of))

    def _scale(self) -> None:
        """Where lines give the time of a micro-batch: the time of a step is that of all its micro-batches."""
        if len(self.inner) == 2:
            (first, start), (last, end) = self.inner
            each = round((last - first) / (end - start)) if end > start and last > first else 1
            for row in self.rows.rows:
                row.seconds *= max(each, 1)


def add_step(rows: Rows, step: int, rank: int | None, when: float | None, values: dict[str, float]) -> None:
    """Add a step with its numbers: columns as a row, claims, timers and arguments to the notes."""
    notes, seconds, rate = rows.notes, values.get("seconds"), values.get("rate")
    if seconds is None and rate is not None and rate > 0:
        seconds = 1.0 / rate
    lost = math.isnan(values.get("loss", 0.0))
    columns = {name: value for name, value in values.items() if name in OPTIONAL and math.isfinite(value)}
    rows.add(step, math.nan if seconds is None else seconds, rank=rank, clock=when, unusual="loss is nan" if lost else "", **columns)
    for name, value in values.items():
        kind, _, what = name.partition(".")
        if kind == "claim" and value > 0:
            notes.claims[what] = max(value, notes.claims.get(what, 0.0)) if "memory" in what else value
        elif kind == "timer" and value >= 0 and (what in notes.timers or len(notes.timers) < 100):
            notes.timers.setdefault(what, []).append(value)
        elif kind == "argument" and value > 0:
            notes.argument(what, f"{value:.0f}")


def with_rates_alone(log: Log) -> Log:
    """The log; where no line has a time, lines with a rate of tokens are ordinary."""
    if log.tokens_per_second is None or any(why == "" for why in log.aside):
        return log
    return replace(log, aside=tuple("" if why.startswith("no time") else why for why in log.aside))
