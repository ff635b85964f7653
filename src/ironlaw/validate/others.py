"""Score predictions of any tool on the rows of the published table, beside ours on the same rows."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ironlaw.errors import InputError, nearest_names
from ironlaw.estimate.answer.table import read_table
from ironlaw.files import read_shipped
from ironlaw.validate.fill import number
from ironlaw.validate.fit import COVERAGE
from ironlaw.validate.runs import DATA
from ironlaw.validate.score import Scored, by_device, group_key, interval_scores

SCHEMA_VERSION = 1
SHIPPED = DATA / "predictions"
TIMES = ("step_time_s", "tokens_per_s_per_gpu")  # a table of predictions has one of these columns
LONGEST = 1e9  # seconds


class Prediction(NamedTuple):
    """A tool's prediction of a row: its line, and seconds or tokens/s per accelerator, with the ends of a band where it has one."""

    line: int
    value: float
    low: float | None
    high: float | None


class Predictions(NamedTuple):
    """The predictions of a tool by id, and what they are: one of TIMES."""

    unit: str
    rows: dict[str, Prediction]


def read_predictions(path: Path, known: set[str]) -> Predictions:
    """A table of predictions with the columns id, one of TIMES, and optionally lo and hi in the same unit.

    Raises InputError for a column that is missing, an id that is unknown or given twice, and a cell that is no number above 0.
    """
    lines = read_table(path)
    columns = set(lines[0][1])
    units = [name for name in TIMES if name in columns]
    if "id" not in columns or len(units) != 1:
        raise InputError(f"{path}: needs a column id and one of {' and '.join(TIMES)}; has {', '.join(sorted(columns - {''}))}")
    if ("lo" in columns) != ("hi" in columns):
        raise InputError(f"{path}: a band needs both columns lo and hi")
    found: dict[str, Prediction] = {}
    for line, cells in lines:
        name = cells["id"]
        if name not in known:
            near = nearest_names(name, sorted(known))
            raise InputError(
                f"{path}: line {line}: no row {name!r} in the published table{'; nearest: ' + ', '.join(near) if near else ''}"
            )
        if name in found:
            raise InputError(f"{path}: line {line}: {name} is given twice, first in line {found[name].line}")
        value = _positive(path, line, units[0], cells[units[0]])
        ends = [_positive(path, line, end, cells[end]) if cells.get(end) else None for end in ("lo", "hi")]
        if (ends[0] is None) != (ends[1] is None) or (ends[0] is not None and ends[1] is not None and not ends[0] <= value <= ends[1]):
            raise InputError(f"{path}: line {line}: {units[0]} {value:g} must lie between lo and hi, which a row has both or neither")
        found[name] = Prediction(line, value, *ends)
    return Predictions(units[0], found)


def _positive(path: Path, line: int, column: str, cell: str) -> float:
    value = number(cell)
    if not 0.0 < value < LONGEST:
        raise InputError(f"{path}: line {line}: {column} is {cell!r}, must be a number above 0, with a point for decimals")
    return value


def compare(theirs: Predictions, scored: Scored, by: str = "family") -> dict[str, Any]:
    """Errors of a tool's predictions and of ours, and of one efficiency a device, on the rows that have both; by group and for all."""
    p = scored.prepared
    at = {run.id: i for i, run in enumerate(p.runs)}
    rows = np.array([at[name] for name in theirs.rows if name in at], dtype=int)
    given = [theirs.rows[p.runs[i].id] for i in rows]
    seconds, low, high = (
        np.array([_seconds(theirs.unit, getattr(row, name), p.runs[i].asked[0]) for row, i in zip(given, rows, strict=True)])
        for name in ("value", "low", "high")
    )
    if theirs.unit != TIMES[0]:
        low, high = high, low  # the highest rate is the shortest step
    base = by_device(p)
    groups: dict[str, list[int]] = {}
    for k, i in enumerate(rows):
        groups.setdefault(group_key(p, int(i), by), []).append(k)
    skipped = {row.id: row.reason for row in scored.skipped}

    def figures(name: str, members: Any) -> dict[str, Any]:
        index = rows[members]
        measured = p.measured[index]
        own_low, own_high = (scored.predicted[index] * np.exp(sign * scored.half_width[index]) for sign in (-1.0, 1.0))
        return {
            "group": name,
            "n": len(members),
            "theirs": _errors(seconds[members] / measured, low[members] / measured, high[members] / measured),
            "ours": _errors(scored.predicted[index] / measured, own_low / measured, own_high / measured),
            "one_efficiency": _errors(base[index] / measured) if np.isfinite(base[index]).all() else None,
        }

    return {
        "rows": len(theirs.rows),
        "scored": len(rows),
        "not_scored": [
            {"id": name, "line": row.line, "reason": skipped.get(name, "not scored")} for name, row in theirs.rows.items() if name not in at
        ],
        "all": figures("all", np.arange(len(rows))) if len(rows) else None,
        "groups": [figures(name, np.array(members)) for name, members in groups.items()],
        "predictions": [
            {
                "id": p.runs[i].id,
                "measured_s": float(p.measured[i]),
                "predicted_s": float(seconds[k]),
                "error": float(seconds[k] / p.measured[i] - 1.0),
                "our_predicted_s": float(scored.predicted[i]),
                "our_error": float(scored.error[i]),
            }
            for k, i in enumerate(rows)
        ],
    }


def _seconds(unit: str, value: float | None, options: Mapping[str, Any]) -> float:
    """A prediction as a step time [s]; nan where there is none."""
    if value is None:
        return math.nan
    return value if unit == TIMES[0] else float(options["global_batch_size"] * options["seq_len"] / options["gpus"] / value)


def _errors(ratio: Any, low: Any = None, high: Any = None) -> dict[str, float | None]:
    """Figures of predicted / measured - 1, and of bands around it, in the words of ``ironlaw validate``.

    >>> found = _errors(np.array([1.1, 0.8]), np.array([0.9, 0.7]), np.array([1.2, 0.9]))
    >>> round(found["median_abs_error"], 2), round(found["bias"], 2), found["band_coverage"]
    (0.15, -0.05, 0.5)
    """
    error = ratio - 1.0
    banded = np.isfinite(low) & np.isfinite(high) if low is not None else np.zeros(len(ratio), dtype=bool)
    found: dict[str, float | None] = {
        "median_abs_error": float(np.median(np.abs(error))),
        "mean_abs_error": float(np.mean(np.abs(error))),
        "p90_abs_error": float(np.quantile(np.abs(error), 0.9)),
        "worst": float(error[np.argmax(np.abs(error))]),
        "bias": float(np.median(error)),
        "band_coverage": None,
        "interval_score": None,
    }
    if banded.any():
        middle, half = np.sqrt(low[banded] * high[banded]), 0.5 * np.log(high[banded] / low[banded])
        found["band_coverage"] = float(np.mean((low[banded] <= 1.0) & (high[banded] >= 1.0)))
        found["interval_score"] = float(np.mean(interval_scores(middle - 1.0, half, 1.0 - COVERAGE)))
    return found


def shipped(scored: Scored) -> list[dict[str, Any]]:
    """The predictions of other tools that ship, on the rows that a validation scored; a tool without such a row is left out."""
    known = {run.id for run in scored.prepared.runs}
    found = []
    for name, source in tomllib.loads(read_shipped(SHIPPED / "sources.toml")).items():
        path = SHIPPED / f"{name}.csv"
        rows = read_predictions(path, {cells["id"] for _, cells in read_table(path)})
        common = {row: value for row, value in rows.rows.items() if row in known}
        if common:
            found.append({"tool": name, "title": source["title"], "url": source["url"], **compare(rows._replace(rows=common), scored)})
    return found
