"""What a shell completes behind an option: names of the catalogue, choices, on and off. Reads names of files only, no numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from ironlaw.catalog import load
from ironlaw.catalog.records import KINDS
from ironlaw.question.options import Option

Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem[Any]]"]  # click before 8.5 has no CompletionItem[Any]
FILES = ("FILE", "CSV", "TOML", "A.json")  # metavars of options that name a file


def completer_of(name: str, option: Option) -> Completer | None:
    """What completes the value of one option; None where nothing is known of it."""
    if option.records:
        return complete_records(option.records, files=name == "model")
    if option.metavar.strip("[]") in FILES:
        return complete_files
    return _complete_words(option.kind.choices) if option.kind.choices else None


def complete_records(kind: str, files: bool = False) -> Completer:
    """Complete names of a kind of record, also the last of a comma list; ``files``: or a file."""

    def complete(ctx: click.Context, param: click.Parameter, written: str) -> list[CompletionItem[Any]]:
        """The names that begin with what is written."""
        del param
        folders = tuple(ctx.params.get("catalog") or ())
        items = _begin_with(load.names(kind, folders), written)
        return items or ([CompletionItem(written, type="file")] if files else [])

    return complete


def complete_kinds(ctx: click.Context, param: click.Parameter, written: str) -> list[CompletionItem[Any]]:
    """Complete kinds of records."""
    del ctx, param
    return _begin_with([*KINDS, "terms", "options"], written)


def complete_clouds(ctx: click.Context, param: click.Parameter, written: str) -> list[CompletionItem[Any]]:
    """Complete names of clouds."""
    del ctx, param
    return _begin_with(load.names("clouds"), written)


def complete_every_record(ctx: click.Context, param: click.Parameter, written: str) -> list[CompletionItem[Any]]:
    """Complete names of records of every kind."""
    del ctx, param
    return _begin_with(sorted({name for kind in KINDS for name in load.names(kind)}), written)


def complete_figures(ctx: click.Context, param: click.Parameter, written: str) -> list[CompletionItem[Any]]:
    """Complete names of figures, and behind one the name of a file."""
    del param
    if ctx.params.get("words"):
        return [CompletionItem(written, type="file")]
    from ironlaw.figures.table import FIGURES

    return _begin_with(list(FIGURES), written)


def complete_files(ctx: click.Context, param: click.Parameter, written: str) -> list[CompletionItem[Any]]:
    """Let the shell complete the name of a file."""
    del ctx, param
    return [CompletionItem(written, type="file")]


def complete_forms(ctx: click.Context, param: click.Parameter, written: str) -> list[CompletionItem[Any]]:
    """Complete the value of --format."""
    del ctx, param
    return _begin_with(["table", "json", "csv", "markdown"], written)


def _complete_words(words: tuple[str, ...]) -> Completer:
    def complete(ctx: click.Context, param: click.Parameter, written: str) -> list[CompletionItem[Any]]:
        """The words that begin with what is written."""
        del ctx, param
        return _begin_with(list(words), written)

    return complete


def _begin_with(names: list[str], written: str) -> list[CompletionItem[Any]]:
    """The names that begin with the last item of what is written; the items before it stay."""
    before, comma, last = written.rpartition(",")
    return [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last.lower())]
