"""The command of a question: its flags from its options, its answer as a page, JSON or an explanation."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from ironlaw.cli.estimate import wants_colour
from ironlaw.estimate.options import Option


def command_of(verb: str, options: Mapping[str, Option], summary: str, examples: str, positional: str | None = None) -> click.Command:
    """The click command of ``ironlaw.questions.VERB``; ``positional`` names the option that may stand without its flag."""

    def run(explain: str | None, as_json: bool, catalog: tuple[str, ...], **flags: Any) -> int:
        from ironlaw.catalog.load import given_folders

        given = {name: value for name, value in flags.items() if value is not None and value != ()}
        answer = importlib.import_module(f"ironlaw.questions.{verb}").ask(given, given_folders(catalog))
        from ironlaw.report import questions

        if as_json:
            text = json.dumps(questions.answer_data(answer, explain is not None), indent=1, allow_nan=False)
        elif explain is not None:
            text = questions.answer_explained(answer, explain)
        else:
            text = questions.answer_page(answer, colour=wants_colour())
        sys.stdout.write(text + "\n")
        return 0 if answer.feasible else 1

    params: list[click.Parameter] = [click.Argument([positional], required=False)] if positional else []
    for name, option in options.items():
        if name != positional:
            params.append(click.Option([f"--{name.replace('_', '-')}", name], metavar=option.metavar, help=option.help))
    params += [
        click.Option(
            ["--explain"], is_flag=False, flag_value="all", metavar="[TERM]", help="formula, inputs and sources of TERM, or of everything"
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON"),
        click.Option(["--catalog"], multiple=True, metavar="DIR", help="a folder of your own records; overrides what ships"),
    ]
    return click.Command(verb, params=params, callback=run, help=summary, epilog="\b\nExamples:\n" + examples)
