"""The kinds of command: what every command that prints an answer has, and help in groups, short or whole."""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ironlaw.cli.flags import read_words
from ironlaw.question.options import GROUPS, OPTIONS, Option, heading_of
from ironlaw.question.synonyms import resolve

OUTPUT = "Output"
_OUTPUT = ("explain", "as_json", "how", "short", "quiet", "cite", "csv_file", "parquet_file", "redact", "catalog")
_WIDEST = 30  # of the column of flags
_FEW = 30  # a command with at most so many options shows them all
_LONG = 14  # a group of more of a verb's own options is left to --help-all
_LAST = ("--json", "--format", "--short", "--quiet", "--catalog", "--help-all", "-h")  # in the help
_ALL, _QUIET = "ironlaw.help_all", "ironlaw.quiet"


class AnswerCommand(click.Command):
    """A command that prints an answer: switches may stand alone, ``--quiet`` prints nothing, ``--help-all`` shows every option."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        quiet = "print nothing but errors: the exit status is the answer"
        self.params += [
            click.Option(["--quiet"], is_flag=True, expose_value=False, callback=_remember_quiet, help=quiet),
            click.Option(["--help-all"], is_flag=True, expose_value=False, is_eager=True, callback=_show_all, help="show every option"),
        ]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters in the order of the help: those of every command last."""
        return sorted(super().get_params(ctx), key=lambda param: _LAST.index(param.opts[0]) if param.opts[0] in _LAST else -1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of the command line, and options in the words of other tools."""
        words, others = read_words(args, self)
        left = super().parse_args(ctx, words)
        if others and not ctx.resilient_parsing:
            given = {name: value for name, value in ctx.params.items() if value is not None}
            ctx.params |= resolve({**given, **others}, {param.name or "" for param in self.params})
        return left

    def invoke(self, ctx: click.Context) -> Any:
        """Answer; with ``--quiet`` print neither the answer nor notes. An error is still reported, by the caller."""
        if not ctx.meta.get(_QUIET):
            return super().invoke(ctx)
        if ctx.params.get("as_json") or ctx.params.get("how"):
            raise click.UsageError("--quiet prints nothing: leave out --quiet, or --json and --format")
        with open(os.devnull, "w", encoding="utf-8") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
            status = super().invoke(ctx)
        if status == 2:  # an answer whose page says what is wrong
            click.echo("ironlaw: no plan of this question is legal: leave out --quiet to read why", err=True)
        return status


def _remember_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Keep ``--quiet`` for the call."""
    del param
    ctx.meta[_QUIET] = value


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the whole help and stop."""
    del param
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class GroupedCommand(AnswerCommand):
    """A command whose help prints its options by subject: the model, its own, those of an estimate as in every verb, output.

    ``table``: its options; ``own``: the heading of those that have none. Of a verb with many options ``--help`` shows the usual ones,
    and names the others under their headings.
    """

    def __init__(self, *args: Any, table: Mapping[str, Option] = OPTIONS, own: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.own = own
        named: dict[str, list[str]] = {"Model": []}
        for name, option in table.items():
            named.setdefault(heading_of(name, option, own), []).append(name)
        theirs = [heading for heading in named if heading not in GROUPS]
        self.headings = list(dict.fromkeys(["Model", *theirs, own, *GROUPS, OUTPUT]))
        named[OUTPUT] = list(_OUTPUT)
        self.place_of = {name: (heading, at) for heading, names in named.items() for at, name in enumerate(names)}
        long = {heading for heading in theirs if heading != own and len(named[heading]) > _LONG}
        usual = {name for name, option in OPTIONS.items() if option.usual}
        self.folded = {name for name, (heading, _) in self.place_of.items() if heading in long or (heading in GROUPS and name not in usual)}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of every group under its heading, all in two columns; then the names of those that only --help-all shows."""
        sections: dict[str, list[tuple[int, tuple[str, str]]]] = {heading: [] for heading in self.headings}
        named: dict[str, list[tuple[int, str]]] = {heading: [] for heading in self.headings}
        whole = ctx.meta.get(_ALL, False) or len(self.params) <= _FEW
        for param in self.get_params(ctx):
            name = param.name or ""
            if isinstance(param, click.Argument):
                record = ("MODEL", OPTIONS["model"].help.removeprefix("model: ")) if name == "model" else None
            else:
                record = param.get_help_record(ctx)
            if record:
                at = len(_OUTPUT) + ("--help" in param.opts)
                heading, at = (OUTPUT, at) if {"--help", "--help-all"} & set(param.opts) else self.place_of.get(name, (self.own, 0))
                if whole or name not in self.folded or isinstance(param, click.Argument):
                    sections[heading].append((at, record))
                else:
                    named[heading].append((at, param.opts[0]))
        width = min(_WIDEST, max(len(flag) for rows in sections.values() for _, (flag, _) in rows))
        _write(formatter, {heading: [row for _, row in sorted(rows, key=lambda p: p[0])] for heading, rows in sections.items()}, width)
        more = {heading: ", ".join(flag for _, flag in sorted(rows)) for heading, rows in named.items() if rows}
        if more:
            with formatter.section(f"More, shown by {ctx.command_path} --help-all"):
                for heading, flags in more.items():  # click would break a flag at its hyphens
                    lines = textwrap.wrap(flags, formatter.width - width - 4, break_on_hyphens=False)
                    formatter.write(
                        "".join(
                            f"  {word.ljust(width)}  {line}\n" for word, line in zip([heading, *[""] * len(lines)], lines, strict=False)
                        )
                    )


def _write(formatter: click.HelpFormatter, sections: Mapping[str, Sequence[tuple[str, str]]], width: int) -> None:
    """Write sections that have rows, their first columns equally wide."""
    for heading, rows in sections.items():
        if rows:
            with formatter.section(heading):
                formatter.write_dl([(flag.ljust(width), text) for flag, text in rows], col_max=_WIDEST)
