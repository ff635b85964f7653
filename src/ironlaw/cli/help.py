"""Help of a command whose options are printed in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ironlaw.question.options import GROUPS, OPTIONS

OUTPUT = "Output"
_OUTPUT = ("explain", "as_json", "how", "cite", "csv_file", "parquet_file", "redact", "catalog")
_WIDEST = 30  # of the column of flags


class GroupedCommand(click.Command):
    """A command whose help prints its options by subject: the model, its own, those of an estimate as in every verb, output.

    ``groups``: headings of its own options; ``own``: the heading of those that no group names.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]] | None = None, own: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.own = own
        named = {**GROUPS, OUTPUT: _OUTPUT, **(groups or {})}
        self.headings = list(dict.fromkeys(["Model", *(groups or {}), own, *GROUPS, OUTPUT]))
        self.place_of = {name: (heading, at) for heading, names in named.items() for at, name in enumerate(names)}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of every group under its heading, all in two columns."""
        sections: dict[str, list[tuple[int, tuple[str, str]]]] = {heading: [] for heading in self.headings}
        for param in self.get_params(ctx):
            name = param.name or ""
            if isinstance(param, click.Argument):
                record = ("MODEL", OPTIONS["model"].help.removeprefix("model: ")) if name == "model" else None
            else:
                record = param.get_help_record(ctx)
            if record:
                heading, at = (OUTPUT, len(_OUTPUT)) if "--help" in param.opts else self.place_of.get(name, (self.own, 0))
                sections[heading].append((at, record))
        width = min(_WIDEST, max(len(flag) for rows in sections.values() for _, (flag, _) in rows))
        for heading, rows in sections.items():
            if rows:
                ordered = [row for _, row in sorted(rows, key=lambda placed: placed[0])]
                with formatter.section(heading):
                    formatter.write_dl([(flag.ljust(width), text) for flag, text in ordered], col_max=_WIDEST)
