"""The answer of every question: headline, tables with units, Terms that explain the numbers, assumptions and warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ironlaw.cautions.record import Caution
from ironlaw.earlier import respell
from ironlaw.errors import QuestionError, UnknownNameError, UnknownOptionError, nearest_names, speaking_of
from ironlaw.question.forms import Form, check_form, check_pairs, choose
from ironlaw.question.options import Option, flag, why_left_out
from ironlaw.question.synonyms import resolve
from ironlaw.question.words import PerParameter, readings_of
from ironlaw.questions.textbook.options import where_moved
from ironlaw.shown import Columns, Shown

if TYPE_CHECKING:  # a question's --help loads no numpy
    from ironlaw.catalog.citations import Citations
    from ironlaw.catalog.sourced import Source
    from ironlaw.question.assumptions import Assumptions
    from ironlaw.terms import Term


@dataclass(frozen=True)
class Column:
    """A column of a table: its key in JSON, its heading, its SI unit ("" for a text, "1" for a number, "%" for a share)."""

    key: str
    title: str
    unit: str = ""
    on_page: bool = True  # False: in JSON, CSV and Markdown alone


@dataclass(frozen=True, repr=False)
class Table(Shown, Columns):
    """Rows of plain SI values by key; None where there is no answer. ``len()``, an index and a loop give rows."""

    name: str  # its key in JSON
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    on_page: bool = True  # False: in JSON, CSV and Markdown alone

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> Mapping[str, Any]:
        return self.rows[at]

    def to_columns(self) -> dict[str, list[Any]]:
        """The cells by heading, which has the unit, as in the CSV."""
        return {heading(column): [_plain_cell(row.get(column.key)) for row in self.rows] for column in self.columns}

    def column_units(self) -> dict[str, str]:
        """The SI unit by heading; "" for texts and pure numbers."""
        return {heading(column): si_unit(column) for column in self.columns}


class Tables(tuple[Table, ...]):
    """The tables of an answer, in the order of the page; ``tables["name"]`` is the one of a name."""

    __slots__ = ()

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, str):
            return super().__getitem__(at)
        found = next((table for table in self if table.name == at), None)
        if found is None:
            raise UnknownNameError("table", at, [table.name for table in self])
        return found


def si_unit(column: Column) -> str:
    """The unit of a column; "" for a text, a number or a share."""
    return "" if column.unit in ("1", "%") else column.unit.removeprefix("decimal ")


def heading(column: Column) -> str:
    """The key of a column with its unit, as a CSV and a data frame have it.

    >>> heading(Column("step", "step time", "s")), heading(Column("mfu", "MFU", "%"))
    ('step [s]', 'mfu')
    """
    return column.key + (f" [{si_unit(column)}]" if si_unit(column) else "")


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Shown):
    """One answer; where ``feasible`` is False the answer is no.

    ``tables["name"]`` is a table, ``answer["name"]`` the value of a term, a further value, or the rows of a table.
    """

    title: str
    headline: Sequence[str]  # sentences, the answer first
    tables: Sequence[Table] = ()
    terms: Sequence[Term] = ()  # the Term of every number in the headline
    values: Mapping[str, Any] = field(default_factory=dict)  # more plain values for the JSON
    assumptions: Assumptions = field(default_factory=list)
    warnings: Sequence[Caution] = ()
    feasible: bool = True
    folders: tuple[str, ...] = ()
    possible: bool = True  # False: no plan of the question is legal, so the question is wrong (exit status 2)
    verb: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)  # options as they were given
    catalog: tuple[str, ...] = ()  # folders as they were given
    read: tuple[Source, ...] | None = None  # the sources of values that were read; None: not watched

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", Tables(self.tables))

    def table(self, name: str) -> Table:
        """The table of a name, which is its key in the JSON."""
        found: Table = Tables(self.tables)[name]
        return found

    @property
    def exit_status(self) -> int:
        """0 where the answer is yes, 1 where it is no, 2 where no plan of the question is legal."""
        return 2 if not self.possible else int(not self.feasible)

    def citations(self) -> Citations:
        """The sources that this answer used: of values that were read, and the literature of its laws. As text they are BibTeX.

        Answers the question once more, unless its sources were watched from the start.
        """
        from ironlaw.catalog.citations import cite
        from ironlaw.estimate.answer.citations import laws_of

        answer = self if self.read is not None else answer_question(self.verb, self.given, self.catalog, cite=True)
        return cite(answer.read or (), laws_of(answer.terms))

    def to_pandas(self, table: str = "") -> Any:
        """A table as a pandas DataFrame: the first one, or that of a name."""
        if not self.tables:
            raise QuestionError("to_pandas(): this answer has no table")
        return (self.table(table) if table else self.tables[0]).to_pandas()

    def __getitem__(self, name: str) -> Any:
        """The value of a term, a further value, or the rows of a table, by name."""
        for term in self.terms:
            if term.name.replace(" ", "_") == name or term.name == name:
                return term.value
        for table in self.tables:
            if table.name == name:
                return table.rows
        return self.values[name]


def _plain_cell(value: Any) -> Any:
    """A cell as a Python value; None where a number is not finite."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(given: Mapping[str, Any], options: Mapping[str, Option], verb: str) -> dict[str, Any]:
    """Read and check the values of ``given``; the error of an unknown name lists the nearest ones, or why the verb leaves it out."""
    values: dict[str, Any] = {}
    for raw, value in given.items():
        name = raw.replace("-", "_")
        if value is None:
            continue
        if name not in options:
            if why := why_left_out(name, verb):
                raise UnknownOptionError(f"{verb} has no {flag(name)}: {why}; leave it out", option=name)
            if where := where_moved(verb, name):
                raise UnknownOptionError(f"{verb} has no {flag(name)}: it belongs to {where}", option=name)
            near = nearest_names(name, options)
            raise UnknownOptionError(f"{verb} has no option {raw!r}; nearest: {', '.join(near or options)}", option=raw, nearest=near)
        with speaking_of(name, value):
            values[name] = options[name].read(value, flag(name))
    return values


def filled_columns(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns that have a value in some row."""
    return tuple(column for column in columns if any(row.get(column.key) not in (None, "") for row in rows))


def answer_question(verb: str, options: Mapping[str, Any], catalog: tuple[str, ...], cite: bool = False) -> Answer:
    """Answer the question of a verb; its module is imported here, so that importing the verb stays light.

    With ``cite`` the sources of the values that are read are noted for ``citations``.
    """
    from ironlaw.catalog.load import given_folders

    if cite:
        from ironlaw.catalog.sourced import Reading, watch_sources

        with watch_sources(reading := Reading()):
            answered = answer_question(verb, options, catalog)
        return replace(answered, read=tuple(reading.sources))

    folders = given_folders(catalog)
    verb, given = respell(verb, options)
    table = options_of(verb, given)
    given = resolve(given, table)
    values = read(given, table, verb)
    _check_names(values, folders)
    if isinstance(values.get("tokens"), PerParameter):
        from ironlaw.estimate.bind.model import with_tokens

        values = with_tokens(values, folders)
    readings = readings_of(values)
    answer = ask_verb(verb, values, folders)
    told = {(item["name"], item["value"]) for item in answer.assumptions}
    added = [{"name": name, "value": value, "origin": "default"} for name, value in readings if (name, value) not in told]
    return replace(answer, assumptions=[*added, *answer.assumptions], verb=verb, given=given, catalog=tuple(catalog))


def options_of(verb: str, given: Mapping[str, Any]) -> Mapping[str, Option]:
    """The options of a verb; of one whose chapters read an option in several ways, those of the chapter that is asked for."""
    module = import_module(f"ironlaw.questions.{verb}.options")
    table: Mapping[str, Option] = module.options_of(given) if hasattr(module, "options_of") else module.OPTIONS
    return table


def ask_verb(verb: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Answer the question of values that were read: find its form, check what they do together, and call its module."""
    module = import_module(f"ironlaw.questions.{verb}.options")
    forms: Sequence[Form] = getattr(module, "FORMS", (Form(f"ironlaw {verb}"),))
    form = choose(values, forms)
    check_pairs(values, options_of(verb, values))
    check_form(values, form, forms)
    answer: Answer = import_module(f"ironlaw.questions.{verb}.ask").ask(values, folders)
    return answer


NAMES = {"node": "nodes", "fabric": "fabrics", "framework": "frameworks"}  # options that name records, by the kind of record


def _check_names(values: Mapping[str, Any], folders: tuple[str, ...]) -> None:
    """Refuse a name that the catalogue does not have, also in a form of the question that does not use it: it is a slip."""
    for option, kind in NAMES.items():
        if option in values:
            from ironlaw.catalog.load import resolve

            for name in [values[option]] if isinstance(values[option], str) else values[option]:
                resolve(kind, name, folders)
