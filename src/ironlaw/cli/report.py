"""``--html FILE``: the answer of any verb as a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import click

from ironlaw.cli.output import Form, print_note
from ironlaw.files import write_file

_OF_THE_PAGE = {"--html": True, "--format": True, "--json": False, "--short": False}  # flags of the form, and whether a word follows


def write_report(form: Form, verb: str, data: Callable[[], Any]) -> None:
    """Write the report of an answer where one was asked for; ``data`` makes the plain data of the answer."""
    if form.html is None:
        return
    from ironlaw.page.report import report

    text = report(data(), verb, question_words(click.get_current_context().find_root().obj or ()), date.today())
    write_file(form.html, text.encode(), "--html")
    print_note(f"the report is in {form.html}")


def question_words(words: Sequence[str]) -> list[str]:
    """The words of a command without those that choose its form.

    >>> question_words(["estimate", "llama-3-8b", "--html", "a.html", "--json", "--format=csv", "--on", "h100-sxm"])
    ['estimate', 'llama-3-8b', '--on', 'h100-sxm']
    """
    left, kept = list(words), []
    while left:
        word = left.pop(0)
        name, equals, _ = word.partition("=")
        if name not in _OF_THE_PAGE:
            kept.append(word)
        elif _OF_THE_PAGE[name] and not equals and left:
            left.pop(0)
    return kept
