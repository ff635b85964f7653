"""Any answer as HTML: its title, its lines, and every table it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from htpy import Node, div, p

from ironlaw.page.estimate import sources_block, warnings
from ironlaw.page.parts import Cell, View, block, rows_table
from ironlaw.page.words import quantity, thousands

HEADS = ("title", "headline", "warnings", "sources", "records", "schema_version", "tool_version", "calibration_version", "catalog_hash")


def view(answer: Mapping[str, Any]) -> View:
    """The view of an answer of a verb that has none of its own."""
    lines = lines_of(answer)
    blocks = [table_block(name, rows) for name, rows in answer.items() if name not in HEADS and _is_table(rows)]
    first, rest = (lines[0], lines[1:]) if lines else (str(answer.get("title", "")), [])
    return View(
        str(answer.get("title", "")), first, [p[line] for line in rest], div(".view")[blocks, warnings(answer)], sources_block(answer)
    )


def lines_of(answer: Mapping[str, Any]) -> list[str]:
    """The lines of an answer's headline: texts in older answers, records in newer ones."""
    return [str(line if isinstance(line, str) else line["text"]) for line in answer.get("headline") or []]


def _is_table(rows: Any) -> bool:
    return isinstance(rows, list) and bool(rows) and all(isinstance(row, dict) for row in rows)


def table_block(name: str, rows: Sequence[Mapping[str, Any]], units: Mapping[str, str] | None = None) -> Node:
    """A list of objects as a table: every plain value that any of them has; ``units``: SI units of keys whose values are quantities."""
    keys = [
        key for key in dict.fromkeys(key for row in rows for key in row) if not any(isinstance(row.get(key), (dict, list)) for row in rows)
    ]
    title = name.replace("_", " ").capitalize()
    numbers = {key: all(isinstance(row.get(key), (int, float)) and not isinstance(row.get(key), bool) for row in rows) for key in keys}
    body = [[Cell(_text(row.get(key), (units or {}).get(key, "")), numbers[key]) for key in keys] for row in rows]
    return block(title, rows_table([Cell(key.replace("_", " "), numbers[key]) for key in keys], body, caption=title))


def _text(value: Any, unit: str = "") -> str:
    if value is None:
        return ""
    if unit:
        return quantity(value, unit)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return thousands(f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}")
    return thousands(f"{value:,}") if isinstance(value, int) else str(value)
