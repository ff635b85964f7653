"""Published runs as questions: every row of a run table becomes options and a measured step time, by rules it reports.

A row that cannot be mapped is a ``Skipped`` with its reason and line; nothing is guessed in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.errors import IronlawError
from ironlaw.estimate.table import options_of, read_table
from ironlaw.question.options import read_options
from ironlaw.validate.fill import FILLS, Apart, Row, SkipError, number, positive, short, variants
from ironlaw.validate.prose import Cells

DATA = Path(__file__).parent / "data"
RUNS = DATA / "runs.csv"


@dataclass(frozen=True)
class Measured:
    """What a row says of its step: seconds, or model FLOP/s of one accelerator by a convention of its own."""

    seconds: float | None
    flop_per_second: float = 0.0
    tokens_per_gpu: float = 0.0  # of one step
    half_attention: bool = False  # attention counted as the causal half

    def step_seconds(self, group: Any, at: int) -> float:
        """The measured step time [s]; a Group tells how many FLOPs a token of the model takes."""
        if self.seconds is not None:
            return self.seconds
        per_token = np.ravel(group.throughput["mfu_causal" if self.half_attention else "mfu"].inputs["flop_per_token"])
        return float(self.tokens_per_gpu * per_token[at if per_token.size > 1 else 0] / self.flop_per_second)


@dataclass(frozen=True)
class Run:
    """One published run: the options that ask for it (several where a blank is bracketed), and what was measured."""

    id: str
    line: int
    family: str
    cells: Mapping[str, str]
    asked: tuple[dict[str, Any], ...]
    measured: Measured
    rules: tuple[str, ...]
    apart: tuple[Apart, ...]  # why it does not count in the headline; empty: it counts


@dataclass(frozen=True)
class Skipped:
    """A row that asks nothing this version can answer, and why."""

    id: str
    line: int
    family: str
    reason: str


def read_runs(path: Path = RUNS, folders: tuple[str, ...] = ()) -> tuple[list[Run], list[Skipped]]:
    """The runs of a table and the rows that were skipped. Raises InputError for a file that is no table."""
    runs: list[Run] = []
    skipped: list[Skipped] = []
    for line, cells in read_table(path):
        name = cells.get("id") or cells.get("name") or f"line {line}"
        family = cells.get("family") or path.stem
        try:
            runs.append(map_row(name, line, family, cells, folders))
        except SkipError as reason:
            skipped.append(Skipped(name, line, family, str(reason)))
    return runs, skipped


def map_row(name: str, line: int, family: str, cells: Cells, folders: tuple[str, ...] = ()) -> Run:
    """One row as a Run; raises SkipError with a reason where it cannot be one."""
    if cells.get(""):
        raise SkipError(f"more cells than the header: {short(cells[''])!r}")
    row = Row(as_columns({k: v for k, v in cells.items() if k}, folders), folders)
    try:
        for rule in FILLS:
            rule(row)
        measured = measurement(row)
        asked = []
        for variant in variants(row):
            options = options_of(variant, folders)
            options.pop("tokens", None)
            asked.append(read_options(options, f"line {line}"))
    except IronlawError as error:
        raise SkipError(short_reason(str(error))) from None
    return Run(name, line, family, row.cells, tuple(asked), measured, tuple(row.rules), tuple(row.apart))


def as_columns(cells: Cells, folders: tuple[str, ...] = ()) -> Cells:
    """The cells under the headers of a run table, where a user's own table names the options of a question."""
    columns: dict[str, str] = {}
    for column, option in load.aliases(folders)["columns"].items():
        if not column.endswith("-filled"):
            columns.setdefault(option, column.replace("-", "_"))
    given = {name: columns.get(name.replace("-", "_").lower(), name) for name in cells}
    return {name if given[name] in cells else given[name]: cell for name, cell in cells.items()}


def short_reason(message: str) -> str:
    """A message without the line it was met on and the names it suggests, so that like reasons count together.

    >>> short_reason("unknown model 'x' in line 3; nearest: y")
    "unknown model 'x'"
    """
    return re.sub(r" in line \d+", "", message).partition(";")[0]


def measurement(row: Row) -> Measured:
    """How the row's step time is read: as stated, from tokens/s, or from FLOP/s by the convention the row names."""
    cells = row.cells
    step, rate, flops = (positive(cells, n) for n in ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu"))
    tokens = number(cells["global_batch_seqs"]) * number(cells["seq_len"]) / number(cells["gpus"])
    if step > 0:
        return Measured(step)
    if rate > 0:
        row.rules.append("step time from tokens/s per GPU")
        return Measured(tokens / rate)
    if flops > 0:
        convention = cells.get("flops_convention", "").lower()
        if "recompute" in convention and "no recompute" not in convention:
            raise SkipError("only FLOP/s that count recompute")
        if not re.search(r"full|non-causal|half|halv", convention):
            raise SkipError("only FLOP/s, by no stated convention")
        half = bool(re.search(r"at half|halved", convention)) and "full" not in convention
        row.rules.append(f"step time from model FLOP/s, attention counted {'at half' if half else 'in full'}")
        return Measured(None, flops * 1e12, tokens, half)
    raise SkipError("no step time, tokens/s or FLOP/s")
