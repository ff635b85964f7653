"""Tables of runs that fitted or failed: what is predicted of each, and how likely it was to fit.

``fits_readers`` knows the headers.
``fits(path)`` predicts every row that can be asked; ``summary`` turns the rows into figures.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.errors import InputError, IronlawError
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.answer.table import answer_many, read_table
from ironlaw.estimate.memory.errors import borrowed_odds
from ironlaw.question.read import read_options
from ironlaw.validate.fill import SkipError, number
from ironlaw.validate.fits_readers import HEADERS, Asked, Cells, Reader
from ironlaw.validate.peaks import RunMemory, figures
from ironlaw.validate.runs import DATA, short_reason

GIB = 2.0**30
UPDATED = ("weights", "weights of adapters", "gradients", "master weights", "optimizer states")  # in memory when the optimizer runs
SCHEMA_VERSION = 1
SHIPPED = DATA / "fits_prime_rl.csv"
LIKELY = 0.5  # probability to fit above which a run counts as said to fit
OUT_OF_MEMORY = re.compile(r"out ?of ?memory|\bOOM\b", re.IGNORECASE)


@dataclass(frozen=True)
class Fit:
    """One row: its prediction beside what happened. ``reason`` says why a row has no prediction, or no error of its peak."""

    name: str
    line: int
    group: str  # framework, and adapters or full fine-tuning
    asked: Asked | None = None
    accelerator: str = ""
    predicted_bytes: float | None = None
    probability: float | None = None
    reason: str = ""
    stack: str = ""  # whose table the row is from
    held_out: float | None = None  # the probability by the spread of other stacks

    @property
    def error(self) -> float | None:
        """Predicted / measured - 1; None where the table states no peak that compares."""
        if self.asked is None or self.asked.measured_bytes is None or self.predicted_bytes is None:
            return None
        return self.predicted_bytes / self.asked.measured_bytes - 1.0

    @property
    def verdict(self) -> str:
        """What happened, and whether it was said to fit."""
        if self.asked is None or self.probability is None:
            return "not predicted"
        said = "said to fit" if self.probability >= LIKELY else "said not to fit"
        return f"{'ran' if self.asked.ran else 'failed'}, {said}"

    @property
    def out_of_memory(self) -> bool:
        """True for a failure whose text says that memory ran out."""
        return self.asked is not None and not self.asked.ran and bool(OUT_OF_MEMORY.search(self.asked.failed_with))


def fits(path: Path, folders: tuple[str, ...] = ()) -> list[Fit]:
    """Every row of a table, in its order. Raises InputError for a file that is not such a table."""
    table = read_table(path)
    stack, read = reader_of(path, table[0][1])
    rows: list[Fit] = []
    questions: dict[int, dict[str, Any]] = {}
    lengths = _companions(table)
    for at, (line, stated) in enumerate(table):
        name = stated.get("name") or stated.get("file") or f"line {line}"
        length = stated.get("tokens_per_sample") or lengths.get(_companion(stated), "")
        try:
            asked = read({**stated, "tokens_per_sample": length}, folders)
            given = {key: value for key, value in asked.options.items() if value is not None}
            questions[at] = read_options(given, f"line {line}")
            group = f"{asked.options['framework']}, {'adapters' if 'lora_rank' in asked.options else 'full'}"
            rows.append(Fit(name, line, group, asked, stack=stack))
        except (SkipError, IronlawError) as reason:
            rows.append(Fit(name, line, "", reason=short_reason(str(reason))))
    answered, wrong = answer_many(list(questions.values()), folders)
    for place, at in enumerate(questions):
        rows[at] = _with_answer(rows[at], wrong.get(place) or answered[place])
    return rows


def reader_of(path: Path, cells: Cells) -> tuple[str, Reader]:
    """The stack whose table has this header, and its reader. InputError that names the columns that the nearest header has beside these."""
    missing = {name: [c for c in columns if c not in cells] for name, (columns, _) in HEADERS.items()}
    nearest = min(missing, key=lambda name: len(missing[name]) / len(HEADERS[name][0]))
    if missing[nearest]:
        raise InputError(f"{path}: no table of runs that fitted or failed: add the columns {', '.join(missing[nearest])}")
    return nearest, HEADERS[nearest][1]


def _companion(cells: Cells) -> tuple[str, str]:
    return cells.get("source_file", ""), cells.get("model_name_or_path", "")


def _companions(table: Sequence[tuple[int, Cells]]) -> dict[tuple[str, str], str]:
    """Median tokens of a sample by file and model; rows that failed have none of their own."""
    found: dict[tuple[str, str], list[float]] = {}
    for _, cells in table:
        if (mean := number(cells.get("tokens_per_sample"))) > 0:
            found.setdefault(_companion(cells), []).append(mean)
            found.setdefault((_companion(cells)[0], ""), []).append(mean)
    medians = {key: str(statistics.median(values)) for key, values in found.items()}
    return {_companion(cells): medians.get(_companion(cells)) or medians.get((_companion(cells)[0], ""), "") for _, cells in table}


def _with_answer(row: Fit, answer: tuple[Estimate, int] | IronlawError) -> Fit:
    """A row with its prediction, or with the reason why it has none."""
    if isinstance(answer, IronlawError):
        return Fit(row.name, row.line, row.group, reason=short_reason(str(answer)))
    group, at = answer[0].place_of(answer[1])
    if not bool(np.broadcast_to(group.legal, group.index.shape)[at]):
        broken = [name for name, passed in group.rules.items() if not bool(np.broadcast_to(passed, group.index.shape)[at])]
        return Fit(row.name, row.line, row.group, reason=f"no such plan: {', '.join(broken)}")
    asked = row.asked
    assert asked is not None
    at_row = partial(_number, group.index.shape, at)
    size = at_row(group.memory.reserved if asked.kind == "reserved" else group.memory.allocated)
    least = sum(at_row(part.value) for part in group.memory.tree["allocated"].parts if part.key in UPDATED)
    if asked.measured_bytes is not None and asked.measured_bytes < least:
        why = f"its peak is below the {least / GIB:.1f} GiB of weights, gradients and states that it states"
        return Fit(row.name, row.line, row.group, reason=why, stack=row.stack)
    likely = None if group.likely is None else at_row(group.likely.value)
    others = borrowed_odds(group.memory, group.cluster, group.folders)
    reason = next((rule for rule in asked.rules if rule.startswith("no peak")), "")
    held_out = None if others is None else at_row(others)
    return Fit(row.name, row.line, row.group, asked, group.cluster.accelerator.name, size, likely, reason, row.stack, held_out)


def _number(shape: tuple[int, ...], at: Any, column: Any) -> float:
    """The value of one row of a column."""
    return float(np.broadcast_to(column, shape)[at])


def shipped_memories(folders: tuple[str, ...] = ()) -> list[tuple[str, RunMemory]]:
    """(family, memory) of the rows of the table that ships: prime-rl's, which measured reserved memory."""
    return [
        ("prime-rl", RunMemory(r.name, r.asked.kind, r.predicted_bytes, r.asked.measured_bytes, r.group.partition(",")[0], r.accelerator))
        for r in fits(SHIPPED, folders)
        if r.error is not None and r.asked is not None and r.predicted_bytes is not None and r.asked.measured_bytes is not None
    ]


# --- figures -------------------------------------------------------------------------------------------------------------


def summary(rows: Sequence[Fit]) -> dict[str, Any]:
    """Counts and errors over all rows, the same by group, and a line for every row."""
    return {**counts(rows), "groups": {name: counts([r for r in rows if r.group == name]) for name in _groups(rows)}, "lines": lines(rows)}


def _groups(rows: Iterable[Fit]) -> list[str]:
    return sorted({r.group for r in rows if r.probability is not None})


def counts(rows: Sequence[Fit]) -> dict[str, Any]:
    """Rows, what ran and failed and what was said of it, and errors of the stated peaks."""
    scored = [r for r in rows if r.probability is not None and r.asked is not None]
    ran, failed = ([r for r in scored if r.asked.ran is flag] for flag in (True, False))  # type: ignore[union-attr]
    errors = figures(r.error for r in scored if r.error is not None)
    silent = [r for r in failed if not r.out_of_memory]
    return {
        "rows": len(rows),
        "scored": len(scored),
        "ran": len(ran),
        "ran_refused": sum(r.probability < LIKELY for r in ran if r.probability is not None),
        "failed": len(failed),
        "failed_passed": sum(r.probability > LIKELY for r in failed if r.out_of_memory and r.probability is not None),
        "failed_without_text": len(silent),
        "failed_without_text_passed": sum(r.probability > LIKELY for r in silent if r.probability is not None),
        "median_abs_error": errors["median_abs_error"],
        "p90_abs_error": errors["p90_abs_error"],
        "bias": errors["bias"],
        "peaks": errors["n"],
    }


def lines(rows: Iterable[Fit]) -> list[dict[str, Any]]:
    """Every row as plain data."""
    return [
        {
            "name": r.name,
            "line": r.line,
            "group": r.group,
            "predicted_gib": None if r.predicted_bytes is None else r.predicted_bytes / GIB,
            "measured_gib": None if r.asked is None or r.asked.measured_bytes is None else r.asked.measured_bytes / GIB,
            "kind": "" if r.asked is None else r.asked.kind,
            "error": r.error,
            "probability": r.probability,
            "held_out": r.held_out,
            "verdict": r.verdict,
            "reason": r.reason,
            "rules": [] if r.asked is None else list(r.asked.rules),
        }
        for r in rows
    ]
