"""The answer of any verb but estimate and plan: as a page, JSON, CSV or Markdown, and explained."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import headline_data
from ironlaw.errors import UnknownNameError, UnsupportedError
from ironlaw.estimate.answer.as_data import common_keys
from ironlaw.estimate.answer.term_data import Origins, labels, laws_of, sources_data, term_data, term_sources, times_above, walk_paths
from ironlaw.estimate.answer.whole_counts import whole_counts
from ironlaw.questions.answer import Answer, Column, Table, heading
from ironlaw.report.columns import set_line
from ironlaw.report.explanation import LISTED, NAMES, node_lines
from ironlaw.report.terminal import Ink, short
from ironlaw.terms import Term

WIDEST = 160  # columns of a line of a table
NARROWEST = 24  # columns of a text that goes on over several lines


def answer_data(answer: Answer, explain: bool = False) -> dict[str, Any]:
    """The answer as plain data with the keys that every answer has; each table has its own name as key."""
    origins = Origins.of(answer.terms) if explain else None
    return whole_counts({
        **_head_data(answer),
        **{name: json_value(value) for name, value in answer.values.items()},
        **{table.name: [{key: json_value(value) for key, value in row.items()} for row in table.rows] for table in answer.tables},
        "terms": {term.name.replace(" ", "_"): term_data(term, 0, explain, origins) for term in answer.terms},
        **({"laws": laws_of(answer.terms)} if explain else {}),
        "sources": sources_data(term_sources(answer.terms)),
    })  # fmt: skip


def _head_data(answer: Answer) -> dict[str, Any]:
    """The keys that every answer begins with, what it says, and what was asked."""
    return {
        **common_keys(answer.assumptions, answer.warnings, answer.folders),
        "title": answer.title,
        "headline": headline_data(answer.headline),
        "feasible": answer.feasible,
        "asked": asked_data(answer.verb, answer.given),
    }


def asked_data(verb: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A verb, and the options as they were given."""
    return {"verb": verb, "given": {name: json_value(_as_given(value)) for name, value in given.items()}}


def explained_data(answer: Answer, term: str) -> dict[str, Any]:
    """What ``answer_explained`` prints of a name or a path as plain data: the terms with their paths, laws and sources, and no table."""
    found, origins = _found(answer, term), Origins.of(answer.terms)
    trees = [tree for tree, _ in found]
    return {
        **_head_data(answer),
        "terms": {},
        "explained": [term_data(tree, 0, True, origins, path, times_above(answer.terms, path, 0)) for tree, path in found],
        "laws": laws_of(trees),
        "sources": sources_data(term_sources(trees)),
    }


def _as_given(value: Any) -> Any:
    """An option as it was given; a model's dimensions, a set or a path as text where JSON has no such value."""
    plain = isinstance(value, (str, bool, int, float, list, tuple, dict)) or hasattr(value, "tolist")
    return value if plain else str(value)


def json_value(value: Any) -> Any:
    """A value for JSON: arrays as lists, numbers that are not finite as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def answer_page(answer: Answer, colour: bool = False) -> str:
    """The answer as text: headline, tables, warnings, assumptions."""
    ink = Ink(colour)
    parts: list[list[str]] = [[ink.bold(answer.title), *answer.headline]]
    parts += [list(table_lines(table, ink)) for table in answer.tables if table.rows and table.on_page]
    parts.append([*_not_shown(answer, ink), *_notes(answer, ink)])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _not_shown(answer: Answer, ink: Ink) -> Iterator[str]:
    """The tables and columns that the page leaves out, and how to have them."""
    tables = [table.name for table in answer.tables if table.rows and not table.on_page]
    columns = dict.fromkeys(c.title for t in answer.tables if t.rows and t.on_page for c in t.columns if not c.on_page and c.title)
    if tables or columns:
        words = [*(["tables " + ", ".join(tables)] if tables else []), *(["columns " + ", ".join(columns)] if columns else [])]
        yield ink.dim(f"not shown: {'; '.join(words)} (--format markdown, csv:TABLE or json)")


def table_lines(table: Table, ink: Ink) -> Iterator[str]:
    """A table as text: texts on the left of their columns, numbers with their units on the right; long texts on several lines."""
    columns = [column for column in table.columns if column.on_page]
    cells = [[cell(row.get(column.key), column) for column in columns] for row in table.rows]
    texts = [is_text(table, column) for column in columns]
    widths = [max(len(column.title), *(len(line[i]) for line in cells)) for i, column in enumerate(columns)]
    if table.name != "plot":
        widths = _narrowed(widths, texts, [len(column.title) for column in columns])
    left = [i for i, text in enumerate(texts) if text]

    def line(values: Sequence[str]) -> str:
        return set_line(values, widths, left, "  ")

    yield ink.bold(table.title)
    yield ink.dim(line([column.title for column in columns]))
    for values in cells:
        folded = [wrap(v, w, break_on_hyphens=False) or [""] if len(v) > w else [v] for v, w in zip(values, widths, strict=True)]
        for part in zip_longest(*folded, fillvalue=""):
            yield line(part)


def _narrowed(widths: list[int], texts: list[bool], titles: list[int]) -> list[int]:
    """Widths of columns that fit the width of a page, where its widest texts go on over several lines."""
    narrowed = list(widths)
    least = [max(NARROWEST, title) for title in titles]
    while sum(narrowed) + 2 * len(narrowed) > WIDEST:
        wide = [i for i, text in enumerate(texts) if text and narrowed[i] > least[i]]
        if not wide:
            break
        widest = max(wide, key=lambda i: narrowed[i])
        narrowed[widest] -= 1
    return narrowed


def cell(value: Any, column: Column) -> str:
    """One value in the unit of its column."""
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
    """The tables as CSV: SI values, units in the headings; each of several tables starts with its name. ``name`` chooses one table."""
    tables = _tables(answer, name)
    if not tables:
        raise UnsupportedError("this answer has no table to print as CSV; --format json has its values")
    parts = []
    for table in tables:
        file = io.StringIO()
        if len(tables) > 1:
            file.write(f"# {table.name}: {table.title}\n")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([heading(column) for column in table.columns])
        lines.writerows([_csv(row.get(column.key)) for column in table.columns] for row in table.rows)
        parts.append(file.getvalue())
    return "\n".join(parts).rstrip("\n")


def _csv(value: Any) -> Any:
    value = json_value(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else json.dumps(value) if isinstance(value, (list, dict)) else value


def answer_markdown(answer: Answer, name: str = "") -> str:
    """The answer as Markdown: headline, tables, warnings; ``name`` chooses one table alone."""
    tables = ["\n".join(_markdown(table)) for table in _tables(answer, name)]
    if name:
        return tables[0]
    headline = "\n".join(f"- {line}" for line in answer.headline)
    warnings = "\n".join(f"- warning: {line}" for line in dict.fromkeys(answer.warnings))
    return "\n\n".join(part for part in (f"# {answer.title}", headline, *tables, warnings) if part)


def _markdown(table: Table) -> Iterator[str]:
    cells = [[cell(row.get(column.key), column) for column in table.columns] for row in table.rows]
    if table.name == "plot":
        yield from (f"## {table.title}", "", "```text", *(line[0] for line in cells), "```")
        return
    yield from (f"## {table.title}", "")
    yield "| " + " | ".join(column.title or " " for column in table.columns) + " |"
    yield "|" + "|".join("---" if is_text(table, column) else "--:" for column in table.columns) + "|"
    for line in cells:
        yield "| " + " | ".join(item.replace("|", "\\|").replace("\n", " ") or " " for item in line) + " |"


def _tables(answer: Answer, name: str) -> list[Table]:
    """The tables that have rows, or the one called ``name``."""
    filled = [table for table in answer.tables if table.rows]
    if not name:
        return filled
    if not any(table.name == name for table in filled):
        raise UnknownNameError("table", name, [table.name for table in filled])
    return [table for table in filled if table.name == name]


def is_text(table: Table, column: Column) -> bool:
    """True where a column has no number."""
    return all(not isinstance(row.get(column.key), (int, float)) or isinstance(row.get(column.key), bool) for row in table.rows)


def _notes(answer: Answer, ink: Ink) -> Iterator[str]:
    for warning in dict.fromkeys(answer.warnings):
        yield ink.bad("warning: ") + warning
    assumed = [f"{a['name']} {short(a['value'])}" for a in answer.assumptions if a["origin"] in ("default", "chosen")]
    if assumed:
        yield ink.bold("Assumed") + ink.dim(": ") + ", ".join(assumed)


def answer_explained(answer: Answer, term: str = "") -> str:
    """The terms of the answer, or those called ``term``, with formula, inputs and sources."""
    if term.lower() == NAMES:
        return "\n".join(_names(answer))
    return "\n\n".join("\n".join(node_lines(tree, 0)) for tree, _ in _found(answer, term))


def _names(answer: Answer) -> list[str]:
    """The names of all terms of an answer."""
    return list(dict.fromkeys(node.name for tree in answer.terms for node in tree.walk()))


def _found(answer: Answer, term: str) -> list[tuple[Term, str]]:
    """The term at a path, or else the last of a name, with its path; all roots where none is named."""
    folded = term.lower().replace("_", " ")
    if not folded or folded == "all":
        return [(tree, label) for tree, label in labels(answer.terms)]
    nodes = [(node, path) for tree in answer.terms for node, path in walk_paths(tree)]
    found = [(node, path) for node, path in nodes if "/" in term and path.lower() == folded]
    named = {node.name: (node, path) for node, path in nodes if node.name.lower() == folded}
    if not found and not named:
        raise UnknownNameError("term", term, _names(answer), more=LISTED)
    return found[:1] or list(named.values())
