"""The command of a question: flags from its options; the answer as a page, JSON, CSV, Markdown or an explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ironlaw.cli.cite import write_cited
from ironlaw.cli.complete import completer_of
from ironlaw.cli.flags import catalog_flag, explain_flag, flags_of, form_flags
from ironlaw.cli.help import GroupedCommand
from ironlaw.cli.output import json_text, print_text, read_form, tables_text, wants_colour
from ironlaw.cli.report import write_report
from ironlaw.cli.trainer_file import options_of_file
from ironlaw.question.options import Option
from ironlaw.questions.textbook.options import earlier_options

SEARCHING = ("compare", "solve", "sweep", "elastic")  # verbs that look for the plan of each accelerator or count


def question_command(
    verb: str, options: Mapping[str, Option], summary: str, examples: str, arguments: Sequence[str] = ("model",)
) -> click.Command:
    """The click command of ``ironlaw.questions.VERB``; ``arguments``, such as MODEL, need no flag.

    ``options`` come from ``ironlaw.questions.VERB.options``, which is light; ``ironlaw.questions.VERB.ask`` is imported when it runs.
    """

    def run(
        explain: str | None,
        as_json: bool,
        how: str | None,
        short: bool,
        cite: bool,
        html: str | None,
        catalog: tuple[str, ...],
        **flags: Any,
    ) -> int:
        """Answer the question of the verb and print the answer in the chosen form; the exit status is 1 where it is not feasible."""
        from ironlaw.questions.answer import answer_question
        from ironlaw.report import answer as report
        from ironlaw.report.brief import brief_page
        from ironlaw.report.explanation import names_term

        form = read_form(how, as_json, explain, short, cite, html)
        asked = {name: value for name, value in flags.items() if value is not None and value != ()}
        if (ran := options_of_file(asked.get("model"), asked, options, verb in SEARCHING)) is not None:
            asked = {**{name: value for name, value in asked.items() if name != "model"}, **ran}
        answer = answer_question(verb, asked, catalog, cite)
        write_report(form, verb, lambda: report.answer_data(answer, explain is not None))
        if cite:
            write_cited(answer, report.answer_data(answer, explain is not None) if form.name == "json" else None)
            return answer.exit_status
        if form.name == "json":
            if explain is not None:
                report.answer_explained(answer, explain)  # refuses a term that the answer does not have
            text = json_text(
                report.explained_data(answer, explain) if names_term(explain) else report.answer_data(answer, explain is not None)
            )
        elif explain is not None:
            text = report.answer_explained(answer, explain)
        elif form.name == "table":
            text = report.answer_page(answer, colour=wants_colour())
            text = brief_page(text, answer.warnings, wants_colour()) if short else text
        else:
            text = tables_text(answer, form)
        print_text(text + "\n")
        return answer.exit_status

    params: list[click.Parameter] = [
        click.Argument(
            [name],
            required=False,
            metavar=None if name == "model" else options[name].metavar,
            shell_complete=completer_of(name, options[name]),
        )
        for name in arguments
    ]
    earlier = earlier_options(verb, options)
    params += [*flags_of(options, arguments), *flags_of(earlier, hidden=True), explain_flag(), *form_flags(cite=True), catalog_flag()]
    epilog = "\b\nExamples:\n" + examples
    return GroupedCommand(verb, params=params, callback=run, help=summary, epilog=epilog, table=options, own=verb.capitalize())
