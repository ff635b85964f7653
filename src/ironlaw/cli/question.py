"""The command of a question: flags from its options; the answer as a page, JSON, CSV, Markdown or an explanation."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ironlaw.cli.cite import check_cite, cite_flag, write_cited
from ironlaw.cli.help import GroupedCommand
from ironlaw.cli.output import json_text, wants_colour
from ironlaw.errors import QuestionError, UnknownNameError
from ironlaw.question.options import Option

FORMS = ("table", "json", "csv", "markdown")


def _parse_format(how: str | None, as_json: bool, explain: str | None) -> tuple[str, str]:
    """The form of the answer, and the name of the table to print ("" for all)."""
    form, _, table = (("json" if as_json else "table") if how is None else how.strip()).partition(":")
    if form not in FORMS:
        raise UnknownNameError("--format", form, FORMS)
    if as_json and form != "json":
        raise QuestionError(f"--json and --format {form} contradict each other: leave one out")
    if form in ("csv", "markdown"):
        if explain is not None:
            raise QuestionError(f"--explain prints text or JSON, not {form}: leave --format out")
        if how and ":" in how and not table:
            raise QuestionError(f"--format {how}: name a table after the colon")
    elif table:
        raise QuestionError(f"--format {how}: only csv and markdown take a table's name")
    return form, table


def question_command(
    verb: str,
    options: Mapping[str, Option],
    summary: str,
    examples: str,
    arguments: Sequence[str] = ("model",),
    groups: Mapping[str, Sequence[str]] | None = None,
) -> click.Command:
    """The click command of ``ironlaw.questions.VERB``; ``arguments``, such as MODEL, need no flag.

    ``groups``: headings of the verb's own options in its help.
    ``options`` come from ``ironlaw.questions.VERB.options``, which is light; ``ironlaw.questions.VERB.ask`` is imported when it runs.
    """

    def run(explain: str | None, as_json: bool, how: str | None, cite: bool, catalog: tuple[str, ...], **flags: Any) -> int:
        """Answer the question of the verb and print the answer in the chosen form; the exit status is 1 where it is not feasible."""
        from ironlaw.questions.answer import answer_question
        from ironlaw.report import answer as report

        form, table = _parse_format(how, as_json, explain)
        if cite:
            check_cite(form, explain is not None)
        asked = {name: value for name, value in flags.items() if value is not None and value != ()}
        answer = answer_question(verb, asked, catalog, cite)
        if cite:
            write_cited(answer, report.answer_data(answer, explain is not None) if form == "json" else None)
            return answer.exit_status
        if form == "json":
            if explain is not None:
                report.answer_explained(answer, explain)  # refuses a term that the answer does not have
            text = json_text(report.answer_data(answer, explain is not None))
        elif explain is not None:
            text = report.answer_explained(answer, explain)
        elif form == "csv":
            text = report.answer_csv(answer, table)
        elif form == "markdown":
            text = report.answer_markdown(answer, table)
        else:
            text = report.answer_page(answer, colour=wants_colour())
        sys.stdout.write(text + "\n")
        return answer.exit_status

    params: list[click.Parameter] = [
        click.Argument([name], required=False, metavar=None if name == "model" else options[name].metavar) for name in arguments
    ]
    for name, option in options.items():
        if name not in arguments:
            params.append(click.Option([f"--{name.replace('_', '-')}", name], metavar=option.metavar, help=option.help))
    params += [
        click.Option(
            ["--explain"],
            is_flag=False,
            flag_value="all",
            metavar="[TERM]",
            help="formula, inputs and sources of TERM (default: every term)",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON"),
        click.Option(
            ["--format", "how"],
            metavar="HOW",
            help="table, json, csv or markdown; csv:NAME prints one table, by its JSON key (default: table)",
        ),
        cite_flag(),
        click.Option(["--catalog"], multiple=True, metavar="DIR", help="folder of your records, which override the shipped ones"),
    ]
    epilog = "\b\nExamples:\n" + examples
    return GroupedCommand(verb, params=params, callback=run, help=summary, epilog=epilog, groups=groups, own=verb.capitalize())
