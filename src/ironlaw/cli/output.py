"""What every verb decides when it prints: the form of the answer, colour or none, the whole page or its first lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ironlaw.errors import QuestionError, UnknownNameError, one_line, plain_text
from ironlaw.files import check_output

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer

FORMS = ("table", "json", "csv", "markdown")


class Form(NamedTuple):
    """How an answer is printed: table, json, csv or markdown; the name of the only table ("": all); the term explained; shortened."""

    name: str
    table: str
    explain: str | None
    short: bool
    cite: bool = False  # print the sources
    html: str | None = None  # the file of the report
    timeline: bool = False  # with the passes of a step


def read_form(
    how: str | None, as_json: bool, explain: str | None = None, short: bool = False, cite: bool = False, html: str | None = None
) -> Form:
    """The form that the flags of ``form_flags`` and ``--explain`` ask for; an error where they contradict each other."""
    if html is not None:
        check_output(html, "--html")
    form, _, table = (("json" if as_json else "table") if how is None else how.strip()).partition(":")
    if form not in FORMS:
        raise UnknownNameError("--format", form, FORMS)
    if as_json and form != "json":
        raise QuestionError(f"--json and --format {form} contradict each other: leave one out")
    if short and (form != "table" or explain is not None):
        raise QuestionError("--short prints the first lines of the page: leave out --json, --format and --explain")
    if form in ("csv", "markdown"):
        if explain is not None:
            raise QuestionError(f"--explain prints text or JSON, not {form}: leave --format out")
        if how and ":" in how and not table:
            raise QuestionError(f"--format {how}: name a table after the colon")
    elif table:
        raise QuestionError(f"--format {how}: only csv and markdown take a table's name")
    if cite and (form not in ("table", "json") or short):
        raise QuestionError(f"--cite prints BibTeX or JSON, not {'the first lines of a page' if short else form}: leave one out")
    if cite and explain is not None and form != "json":
        raise QuestionError("--cite and --explain print different texts: leave one out")
    return Form(form, table, explain, short, cite, html)


def tables_text(answer: Answer, form: Form) -> str:
    """The tables of an answer as CSV or Markdown."""
    from ironlaw.report import answer as report

    return report.answer_csv(answer, form.table) if form.name == "csv" else report.answer_markdown(answer, form.table)


def wants_colour() -> bool:
    """Colour on a terminal, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_text(text: str) -> None:
    """Write text to standard output without what steers a terminal, whatever files it quotes; on a terminal with the emphasis of pages."""
    sys.stdout.write(plain_text(text, wants_colour()))


def print_line(text: str) -> None:
    """Write a line to standard output, as ``print_text``."""
    print_text(text + "\n")


def print_note(message: str) -> None:
    """Write a line beside the answer, to standard error."""
    click.echo(f"ironlaw: {one_line(message)}", err=True)


def json_text(data: Any) -> str:
    """Plain data as JSON, one space a level; a number that is not finite is an error."""
    import json  # only an answer in JSON pays for the import

    return json.dumps(data, indent=1, allow_nan=False)
