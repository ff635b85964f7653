"""How answers show themselves in Python: as text in a terminal, as a small table in a notebook, and as plain data.

The text is the first lines of the page of the same answer on the command line. A table in HTML has escaped texts and no scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from ironlaw import units
from ironlaw.errors import UnsupportedError, plain_text
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.answer.group import Group
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.report.answer import answer_csv, answer_data, answer_markdown, cell, is_text, table_lines
from ironlaw.report.estimate import headline as estimate_headline
from ironlaw.report.estimate import mesh_words, row_line, verdict
from ironlaw.report.terminal import Ink

ROWS = 20  # of a table that are shown
DRAWN = 200  # rows of a figure
_PLAIN = Ink(False)


def text(answer: Any) -> str:
    """An answer as its first lines, without what steers a terminal."""
    return plain_text("\n".join(_lines(answer)))


def _lines(answer: Any) -> Iterable[str]:
    """The first lines of an answer of any kind."""
    if isinstance(answer, Estimate):
        return _estimate_lines(answer)
    if isinstance(answer, Answer):
        return [answer.title, *answer.headline, *_table_names(answer)]
    if isinstance(answer, Table):
        return [*table_lines(_first_rows(answer), _PLAIN), *_left_out(len(answer.rows))]
    return _other_lines(answer)


def _estimate_lines(answer: Estimate) -> list[str]:
    """The verdict of one row, or a line for each of several."""
    if answer.rows == 1:
        return list(verdict(*answer.place_of(0), _PLAIN))
    shown = min(answer.rows, ROWS)
    return [f"Estimates of {answer.rows} rows", *(row_line(answer, i) for i in range(shown)), *_left_out(answer.rows)]


def _table_names(answer: Answer) -> list[str]:
    """The tables of an answer in one line."""
    listed = [f"{table.name} ({len(table.rows)} {'row' if len(table.rows) == 1 else 'rows'})" for table in answer.tables if table.rows]
    return [f"tables: {', '.join(listed)}"] if listed else []


def _left_out(rows: int) -> list[str]:
    return [f"... {rows - ROWS:,} more rows"] if rows > ROWS else []


def _first_rows(table: Table) -> Table:
    return Table(table.name, table.title, table.columns, table.rows[:ROWS])


def _other_lines(answer: Any) -> Iterator[str]:
    """The first lines of a search, of one of its plans, or of a diagnosis."""
    from ironlaw.search.answer import Choice, SearchResult

    if isinstance(answer, Choice):
        yield _choice_line(answer)
    elif isinstance(answer, SearchResult):
        from ironlaw.report import search
        from ironlaw.search.as_data import search_data

        found = search_data(answer, advice=False, outlined=False)
        parts = [search.head, search.best] if found["plans"] else [search.head, search.no_plan]
        yield from (line for part in parts for line in part(found, _PLAIN))
    else:
        from ironlaw.report.diagnosis import diagnosis_page

        yield "\n".join(diagnosis_page(data(answer, False)).split("\n\n")[:3])


def _choice_line(choice: Any) -> str:
    """A plan of a search in one line."""
    plan = {name: int(value) if isinstance(value, float) else value for name, value in choice.values.items()}
    setting = choice.setting
    return (
        f"{int(setting.gpus):,} x {setting.on}, {setting.framework}, {mesh_words(plan)}, zero {plan['zero']}, micro-batch"
        f" {plan['micro_batch_size']}, recompute {plan['recompute']}: step {units.show(choice.seconds, 's')},"
        f" {units.show(choice.device, 'B')} per accelerator"
    )


# --- notebooks

_COLUMNS = (
    Column("model", "model"), Column("accelerator", "accelerator"), Column("gpus", "GPUs", "1"), Column("global_batch_size", "batch", "1"),
    Column("seq_len", "tokens", "1"), Column("tp", "tp", "1"), Column("pp", "pp", "1"), Column("dp", "dp", "1"),
    Column("micro_batch_size", "micro-batch", "1"), Column("fits", "fits"), Column("device_bytes", "memory", "B"),
    Column("step_seconds", "step", "s"), Column("tokens_per_second", "tokens/s", "1"), Column("mfu", "MFU", "%"),
    Column("bound", "bound by"), Column("days", "days", "1"), Column("usd", "cost", "USD"),
)  # fmt: skip
_STYLE = 'style="text-align:left"'


def html(answer: Any) -> str:
    """An answer as HTML: an estimate as its first screen, a search as its plans, others as a title and a table."""
    from ironlaw.search.answer import SearchResult

    if isinstance(answer, SearchResult) or (isinstance(answer, Estimate) and answer.rows == 1):
        from ironlaw.page.notebook import card

        return card("estimate", answer.to_dict()) if isinstance(answer, Estimate) else card("plan", data(answer, False))
    if isinstance(answer, Estimate):
        columns = answer.to_columns()
        rows = [{name: values[i] for name, values in columns.items()} for i in range(min(answer.rows, ROWS))]
        shown = tuple(c for c in _COLUMNS if any(row.get(c.key) is not None for row in rows))
        lines = _estimate_lines(answer)
        return _html_lines(lines[:1]) + _html_table(Table("rows", "", shown, rows), answer.rows)
    if isinstance(answer, Answer):
        first = next((table for table in answer.tables if table.rows and table.columns), None)
        return _html_lines([answer.title, *answer.headline, *_table_names(answer)]) + ("" if first is None else html(first))
    if isinstance(answer, Table):
        return _html_table(_first_rows(answer), len(answer.rows))
    lines = text(answer).split("\n")
    return f"<b>{escape(lines[0])}</b><pre>{escape(chr(10).join(lines[1:]))}</pre>"


def mime_bundle(answer: Any, include: Any, exclude: Any) -> dict[str, Any]:
    """The forms that a notebook may show: text, HTML, and the first figure in Vega-Lite where the answer has one."""
    from ironlaw.figures.picture import VEGA_LITE, chosen

    kinds = chosen(dict.fromkeys(("text/plain", "text/html", VEGA_LITE)), include, exclude)
    made: dict[str, Any] = {}
    if "text/plain" in kinds:
        made["text/plain"] = repr(answer)
    if "text/html" in kinds:
        made["text/html"] = html(answer)
    if VEGA_LITE in kinds and (names := figures(answer)):
        made[VEGA_LITE] = figure(answer, names[0]).to_dict()
    return made


def figures(answer: Any) -> list[str]:
    """The names of the figures that an answer has."""
    from ironlaw.figures.table import drawn_of

    verb, plain = _drawable(answer)
    return list(drawn_of(verb, plain)) if verb else []


def figure(answer: Any, name: str) -> Any:
    """A figure of an answer, by default its first; an error where the answer has none of this name."""
    from ironlaw.figures.picture import Picture
    from ironlaw.figures.table import draw, drawn_of

    verb, plain = _drawable(answer)
    if name:
        return Picture(name, draw(name, plain))
    specs = drawn_of(verb, plain)
    if not specs:
        raise UnsupportedError(f"a {type(answer).__name__} of this question has no figure; ironlaw figure --list has them")
    return Picture(*next(iter(specs.items())))


def _drawable(answer: Any) -> tuple[str, Any]:
    """The verb of an answer and its plain data, as figures read them; "" for a part of an answer."""
    from ironlaw.search.answer import SearchResult

    if isinstance(answer, Estimate):
        if answer.rows == 1:
            timed = answer.timeline() if answer.to_dict()["step"]["seconds"] is not None else None
            return "estimate", {**answer.to_dict(), **({"timeline": timed} if timed else {})}
        return "estimate", [answer[at].to_dict() for at in range(min(answer.rows, DRAWN))]
    if isinstance(answer, SearchResult):
        return "plan", data(answer, False)
    if isinstance(answer, Answer):
        plain = data(answer, False)
        return str((plain.get("asked") or {}).get("verb") or ""), plain
    return ("diagnose", data(answer, False)) if hasattr(answer, "verdicts") else ("", {})


def _html_lines(lines: Sequence[str]) -> str:
    """A title in bold, and lines below it."""
    return f"<b>{escape(lines[0])}</b>" + "".join(f"<br>{escape(line)}" for line in lines[1:])


def _html_table(table: Table, rows: int) -> str:
    """A table; numbers with their units on the right."""
    head = "".join(f"<th {_STYLE}>{escape(column.title)}</th>" for column in table.columns)
    styles = [f"<td {_STYLE}>" if is_text(table, column) else "<td>" for column in table.columns]
    body = "".join(
        "<tr>" + "".join(f"{style}{escape(cell(row.get(c.key), c))}</td>" for style, c in zip(styles, table.columns, strict=True)) + "</tr>"
        for row in table.rows
    )
    caption = f"<caption {_STYLE}>{escape(table.title)}</caption>" if table.title else ""
    more = "".join(f"<p>{escape(line)}</p>" for line in _left_out(rows))
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


# --- data


def data(answer: Any, explain: bool) -> Any:
    """An answer as plain data, as ``--json`` prints it."""
    if isinstance(answer, Answer):
        return answer_data(answer, explain)
    if isinstance(answer, Table):
        from ironlaw.report.answer import json_value

        return [{key: json_value(value) for key, value in row.items()} for row in answer.rows]
    from ironlaw.search.answer import SearchResult

    if isinstance(answer, SearchResult):
        from ironlaw.search.as_data import search_data

        return search_data(answer, explain)
    if hasattr(answer, "verdicts"):
        from ironlaw.report.diagnosis import diagnosis_data

        return diagnosis_data(answer.data(), answer.assumptions, answer.warnings, answer.folders)
    raise UnsupportedError(f"a {type(answer).__name__} has no form as plain data; its estimate has")


def headline(group: Group, at: int, layouts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first lines of one row of an estimate as plain data."""
    return estimate_headline(group, at, layouts=layouts)


def search_headline(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The first lines of the page of a search as plain data."""
    from ironlaw.report.search import headline

    return headline(data)


def asked_data(verb: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A verb, and the options as they were given, as plain data."""
    from ironlaw.report import answer

    return answer.asked_data(verb, given)


def plan_columns(result: Any) -> dict[str, list[Any]]:
    """The plans that the page of a search lists, by column."""
    from ironlaw.search.as_data import plan_table, search_data

    rows = plan_table(search_data(result, advice=False, outlined=False))
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def markdown(answer: Any, table: str) -> str:
    """The tables of an answer as Markdown."""
    found = _tabled(answer)
    return answer_markdown(found, table or ("" if isinstance(answer, Answer) else found.tables[0].name))


def csv(answer: Any, table: str) -> str:
    """The tables of an answer as CSV."""
    return answer_csv(_tabled(answer, False), table)


def _tabled(answer: Any, units_shown: bool = True) -> Answer:
    """An answer whose table are its columns; their names have the unit, so that headings need none."""
    if isinstance(answer, Answer):
        return answer
    if isinstance(answer, Table):
        return Answer(answer.title, (), [answer])
    if not hasattr(answer, "to_columns"):
        raise UnsupportedError(f"a {type(answer).__name__} has no table")
    columns, named = answer.to_columns(), answer.column_units() if units_shown else {}
    count = len(next(iter(columns.values()), ()))
    rows = [{name: values[i] for name, values in columns.items()} for i in range(count)]
    name = "estimates" if isinstance(answer, Estimate) else "plans"
    table = Table(name, name.capitalize(), tuple(Column(n, n.replace("_", " "), named.get(n, "")) for n in columns), rows)
    return Answer(next(iter(_lines(answer))), (), [table])
