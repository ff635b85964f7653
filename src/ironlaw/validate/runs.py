"""Turn the rows of a run table into questions: options and a measured step time, with the rules applied.

A row that cannot be asked becomes a ``Skipped`` with its line and reason.
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
from ironlaw.estimate.answer.table import options_of, read_table
from ironlaw.question.read import read_options
from ironlaw.validate.fill import FILLS, Apart, Row, SkipError, micro_batches, number, positive, short, variants
from ironlaw.validate.prose import Cells
from ironlaw.validate.stack import Known

DATA = Path(__file__).parent / "data"
RUNS = DATA / "runs.csv"
PUBLISHED = "published"  # the space of plans of a run: what its source does not say is what its stack does by default


@dataclass(frozen=True)
class Measured:
    """The measurement of a row: seconds, or model FLOP/s of one accelerator by the row's convention."""

    seconds: float | None
    flop_per_second: float = 0.0
    tokens_per_gpu: float = 0.0  # of one step
    half_attention: bool = False  # causal attention counted at half

    def step_seconds(self, group: Any, at: int) -> float:
        """The measured step time [s]; ``group`` has the model's FLOPs per token."""
        if self.seconds is not None:
            return self.seconds
        per_token = np.ravel(group.throughput["mfu" if self.half_attention else "mfu_full_square"].inputs["flop_per_token"])
        return float(self.tokens_per_gpu * per_token[at if per_token.size > 1 else 0] / self.flop_per_second)


@dataclass(frozen=True)
class Run:
    """A published run: its options (two sets where an unknown value is tried at both ends of its range) and its measurement."""

    id: str
    line: int
    family: str
    cells: Mapping[str, str]
    asked: tuple[dict[str, Any], ...]
    measured: Measured
    rules: tuple[str, ...]
    apart: tuple[Apart, ...]  # why it does not count in the headline; empty: it counts
    stack: Known = Known.NAME  # how the record of its stack was found
    among_micro_batches: bool = False  # the questions try the micro-batches that it may have run; see predict.near_fastest


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be asked, and why."""

    id: str
    line: int
    family: str
    reason: str


def read_runs(path: Path = RUNS, folders: tuple[str, ...] = (), generic: bool = False) -> tuple[list[Run], list[Skipped]]:
    """The runs of a table and the skipped rows. Raises InputError for a file that is not a table.

    ``generic``: every run with the framework record that a stranger's stack would get.
    """
    runs: list[Run] = []
    skipped: list[Skipped] = []
    for line, cells in read_table(path):
        name = cells.get("id") or cells.get("name") or f"line {line}"
        family = cells.get("family") or path.stem
        try:
            runs.append(map_row(name, line, family, cells, folders, generic))
        except SkipError as reason:
            skipped.append(Skipped(name, line, family, str(reason)))
    return runs, skipped


def map_row(name: str, line: int, family: str, cells: Cells, folders: tuple[str, ...] = (), generic: bool = False) -> Run:
    """One row as a Run. Raises SkipError with the reason if it cannot be asked."""
    if cells.get(""):
        raise SkipError(f"more cells than the header: {short(cells[''])!r}")
    row = Row(as_columns({k: v for k, v in cells.items() if k}, folders), folders, generic=generic)
    try:
        for rule in FILLS:
            rule(row)
        measured = read_measurement(row)
        questions, sizes = [], micro_batches(row)
        for variant in variants(row):
            options = options_of(variant, folders)
            options.pop("tokens", None)
            options.setdefault("space", PUBLISHED)
            questions.append(read_options(options, f"line {line}"))
    except IronlawError as error:
        raise SkipError(short_reason(str(error))) from None
    except (ArithmeticError, ValueError) as error:  # a cell that no rule expected: it costs its own row, not the table
        raise SkipError(f"a cell has a value that cannot be used: {short(str(error))}") from None
    return Run(name, line, family, row.cells, tuple(questions), measured, tuple(row.rules), tuple(row.apart), row.stack, bool(sizes))


def as_columns(cells: Cells, folders: tuple[str, ...] = ()) -> Cells:
    """The cells under the headers of run tables; a user's table may have names of options instead."""
    columns: dict[str, str] = {}
    for column, option in load.aliases(folders)["columns"].items():
        if not column.endswith("-filled"):
            columns.setdefault(option, column.replace("-", "_"))
    column_of = {name: columns.get(name.replace("-", "_").lower(), name) for name in cells}
    return {name if column_of[name] in cells else column_of[name]: cell for name, cell in cells.items()}


def short_reason(message: str) -> str:
    """A message without line number and suggestions, so that equal reasons are counted together.

    >>> short_reason("unknown model 'x' in line 3; nearest: y")
    "unknown model 'x'"
    """
    return re.sub(r" in line \d+", "", message).partition(";")[0]


def read_measurement(row: Row) -> Measured:
    """The row's step time: as stated, from tokens/s, or from FLOP/s by the row's convention."""
    cells = row.cells
    step, rate, tflops = (positive(cells, n) for n in ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu"))
    tokens = number(cells["global_batch_seqs"]) * number(cells["seq_len"]) / number(cells["gpus"])
    if step > 0:
        return Measured(step)
    if rate > 0:
        row.rules.append("step time from tokens/s per GPU")
        return Measured(tokens / rate)
    if tflops > 0:
        half = counts_half_attention(cells.get("flops_convention", ""))
        row.rules.append(f"step time from model FLOP/s, attention counted {'at half' if half else 'in full'}")
        return Measured(None, tflops * 1e12, tokens, half)
    raise SkipError("no step time, tokens/s or FLOP/s")


def counts_half_attention(convention: str) -> bool:
    """Whether a source counts causal attention at half in its FLOP/s, by its words. SkipError where they do not tell the model's FLOPs.

    >>> counts_half_attention("model FLOPs, attention halved"), counts_half_attention("no recompute, full attention")
    (True, False)
    """
    words = convention.lower()
    if "recompute" in words and "no recompute" not in words:
        raise SkipError("only FLOP/s that include recomputation, by flops_convention")
    in_full = "full" in words or "non-causal" in words
    at_half = "at half" in words or "halved" in words
    if not (in_full or "half" in words or "halv" in words):
        raise SkipError("only FLOP/s, and flops_convention does not say how attention is counted")
    return at_half and "full" not in words
