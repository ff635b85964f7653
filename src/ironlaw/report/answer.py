"""An answer of ``questions`` as a page, as JSON, CSV or Markdown, and explained."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import Any

from ironlaw import units
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import UnknownNameError, UnsupportedError
from ironlaw.estimate.as_data import common_keys, term_data
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.report.explanation import node_lines
from ironlaw.report.terminal import Ink, short


def answer_data(answer: Answer, explain: bool = False) -> dict[str, Any]:
    """The answer as plain data with the keys every answer has; tables stand under their own names."""
    return {
        **common_keys(answer.assumptions, answer.warnings, answer.folders),
        "title": answer.title,
        "headline": list(answer.headline),
        "feasible": answer.feasible,
        **{name: _plain(value) for name, value in answer.values.items()},
        **{table.name: [{key: _plain(value) for key, value in row.items()} for row in table.rows] for table in answer.tables},
        "terms": {term.name.replace(" ", "_"): term_data(term, 0, explain) for term in answer.terms},
        "sources": _sources(answer),
    }


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _sources(answer: Answer) -> dict[str, dict[str, str]]:
    found = {}
    for term in answer.terms:
        for node in term.walk():
            for item in node.inputs.values():
                source = item.source if isinstance(item, Sourced) else None
                if source is not None and source.url:
                    found[source.key] = {"title": source.title, "url": source.url, "read": source.read, "grade": source.grade}
    return dict(sorted(found.items()))


def answer_page(answer: Answer, colour: bool = False) -> str:
    """The answer as text: headline, tables, warnings, assumptions."""
    ink = Ink(colour)
    parts: list[list[str]] = [[ink.bold(answer.title), *answer.headline]]
    parts += [list(table_lines(table, ink)) for table in answer.tables if table.rows]
    parts.append(list(_notes(answer, ink)))
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def table_lines(table: Table, ink: Ink) -> Iterator[str]:
    """A table with its columns set right, numbers with their units."""
    cells = [[cell(row.get(column.key), column) for column in table.columns] for row in table.rows]
    widths = [max(len(column.title), *(len(line[i]) for line in cells)) for i, column in enumerate(table.columns)]
    texts = [_is_text(table, column) for column in table.columns]

    def line(values: list[str]) -> str:
        return "  " + "  ".join(v.ljust(w) if t else v.rjust(w) for v, w, t in zip(values, widths, texts, strict=True)).rstrip()

    yield ink.bold(table.title)
    yield ink.dim(line([column.title for column in table.columns]))
    for values in cells:
        yield line(values)


def cell(value: Any, column: Column) -> str:
    """One value as its column shows it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if column.unit == "%":
        return f"{value:.1%}"
    if column.unit == "USD":
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
    return units.show(float(value), column.unit or "1", 4) if column.unit not in ("", "1") else _number(float(value))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def answer_csv(answer: Answer, name: str = "") -> str:
    """The tables as CSV: plain SI values, units in the headings. Each of several starts with its name; ``name`` asks for one."""
    tables = _tables(answer, name)
    if not tables:
        raise UnsupportedError("this answer has no table to print as CSV; --format json has its values")
    parts = []
    for table in tables:
        file = io.StringIO()
        if len(tables) > 1:
            file.write(f"# {table.name}: {table.title}\n")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([column.key + (f" [{_si(column.unit)}]" if _si(column.unit) else "") for column in table.columns])
        lines.writerows([_csv(row.get(column.key)) for column in table.columns] for row in table.rows)
        parts.append(file.getvalue())
    return "\n".join(parts).rstrip("\n")


def _si(unit: str) -> str:
    return "" if unit in ("1", "%") else unit


def _csv(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else json.dumps(value) if isinstance(value, (list, dict)) else value


def answer_markdown(answer: Answer, name: str = "") -> str:
    """The answer as Markdown: headline, tables, warnings; ``name`` asks for one table alone."""
    tables = ["\n".join(_markdown(table)) for table in _tables(answer, name)]
    if name:
        return tables[0]
    told = "\n".join(f"- {line}" for line in answer.headline)
    warned = "\n".join(f"- warning: {line}" for line in dict.fromkeys(answer.warnings))
    return "\n\n".join(part for part in (f"# {answer.title}", told, *tables, warned) if part)


def _markdown(table: Table) -> Iterator[str]:
    cells = [[cell(row.get(column.key), column) for column in table.columns] for row in table.rows]
    if table.name == "plot":
        yield from (f"## {table.title}", "", "```text", *(line[0] for line in cells), "```")
        return
    yield from (f"## {table.title}", "")
    yield "| " + " | ".join(column.title or " " for column in table.columns) + " |"
    yield "|" + "|".join("---" if _is_text(table, column) else "--:" for column in table.columns) + "|"
    for line in cells:
        yield "| " + " | ".join(item.replace("|", "\\|").replace("\n", " ") or " " for item in line) + " |"


def _tables(answer: Answer, name: str) -> list[Table]:
    """The tables that have rows, or the one of a name."""
    found = [table for table in answer.tables if table.rows]
    if not name:
        return found
    if not any(table.name == name for table in found):
        raise UnknownNameError("table", name, [table.name for table in found])
    return [table for table in found if table.name == name]


def _is_text(table: Table, column: Column) -> bool:
    """True where a column holds no number."""
    return all(not isinstance(row.get(column.key), (int, float)) or isinstance(row.get(column.key), bool) for row in table.rows)


def _notes(answer: Answer, ink: Ink) -> Iterator[str]:
    for warning in dict.fromkeys(answer.warnings):
        yield ink.bad("warning: ") + warning
    taken = [f"{a['name']} {short(a['value'])}" for a in answer.assumptions if a["origin"] in ("default", "chosen")]
    if taken:
        yield ink.bold("Assumed") + ink.dim(": ") + ", ".join(taken)


def answer_explained(answer: Answer, term: str = "") -> str:
    """The trees of the answer, or those of a name, with formula, inputs and sources."""
    wanted = term.lower().replace("_", " ")
    everything = {node.name: node for tree in answer.terms for node in tree.walk()}
    trees = list(answer.terms)
    if wanted and wanted != "all":
        trees = [node for name, node in everything.items() if name.lower() == wanted]
        if not trees:
            raise UnknownNameError("term", term, everything)
    return "\n\n".join("\n".join(node_lines(tree, 0)) for tree in trees)
