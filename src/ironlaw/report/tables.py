"""The tables of an estimate, a search, a diagnosis, stored runs and a validation, for ``--format csv`` and ``--format markdown``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ironlaw.cautions.record import read_record
from ironlaw.estimate.answer.as_data import warnings
from ironlaw.estimate.answer.columns import estimate_row
from ironlaw.estimate.answer.term_data import number
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.report import estimate as pages
from ironlaw.report.terminal import Ink

if TYPE_CHECKING:
    from ironlaw.estimate.answer.estimate import Estimate

_UNITS = (("_seconds", "s"), ("seconds", "s"), ("_bytes", "B"), ("bytes", "B"), ("share", "%"), ("mfu", "%"))


def estimate_answer(estimate: Estimate, every_column: bool = True) -> Answer:
    """An estimate as tables: its rows; of a single row also the parts of the step and of the memory."""
    rows = range(estimate.rows)
    table = rows_table("estimates", "Estimates", [estimate_row(*estimate.place_of(i)) for i in rows])
    tables = [table if every_column else replace(table, columns=filled_columns(table.columns, table.rows))]
    group, at = estimate.place_of(0)
    ink = Ink(False)
    if estimate.rows > 1 or number(group.step.tree.value, at) is None:
        return Answer("Estimates", [pages.row_line(estimate, i) for i in rows], tables)
    step = number(group.step.tree.value, at)
    times = [
        {"part": name, "level": depth, "seconds": seconds, "share": seconds / step}
        for name, seconds, depth, _ in pages.time_lines(group.step.tree, at, number(group.step.tree.times, at), every=True)
    ]
    tree, capacity = group.memory.tree, group.memory.capacity
    held = [
        {"part": term.name, "bytes": number(term.value, at), "share": number(term.value, at) / capacity}
        for term in (*tree["allocated"].parts, *tree["reserved"].parts[1:], *tree.parts[1:])
    ]
    title, *headline = pages.verdict(group, at, ink)
    tables += [rows_table("time", "Where the step goes", times), rows_table("memory", "Memory of the fullest GPU", held)]
    return Answer(title, headline, tables, warnings=warnings(group, at))


def data_answer(title: str, data: Mapping[str, Any], paths: Mapping[str, str]) -> Answer:
    """The lists of objects in the JSON of an answer as tables; ``paths``: the heading of each, by its place such as ``sizes.by_gpus``."""
    tables = []
    for path, heading in paths.items():
        found: Any = data
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        if found:
            tables.append(rows_table(path.rpartition(".")[2], heading, [found] if isinstance(found, Mapping) else found))
    return Answer(title, (), tables, warnings=[read_record(one) for one in data.get("warnings", ())])


def rows_table(name: str, title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of plain data as a table whose columns are their keys; an object in a cell becomes columns, a list a text."""
    flat = [dict(_flat(row)) for row in rows]
    keys = dict.fromkeys(key for row in flat for key in row)
    return Table(name, title, tuple(Column(key, key.replace("_", " "), _unit(key)) for key in keys), flat)


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """The cells of one row."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}_")
        elif isinstance(value, (list, tuple)):
            if not any(isinstance(item, (Mapping, list, tuple)) for item in value):
                yield prefix + key, " ".join(str(item) for item in value)
        else:
            yield prefix + key, value


def _unit(key: str) -> str:
    return next((unit for ending, unit in _UNITS if key == ending or (key.endswith(ending) and ending.startswith("_"))), "")
