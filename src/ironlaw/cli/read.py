"""``ironlaw read``: what is understood of a trainer's configuration, from which line, and what is not."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from ironlaw import __version__
from ironlaw.cli.complete import complete_files
from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import json_text, print_line, print_text
from ironlaw.errors import InputError
from ironlaw.shown import SCHEMA_VERSION

if TYPE_CHECKING:
    from ironlaw.trainers.read import Reading
    from ironlaw.trainers.walk import Told

_EXAMPLES = """
\b
Examples:
  ironlaw read train.yaml --gpus 64
  ironlaw read training_args.yaml fsdp.yaml --gpus 8      (a trainer's file and the launcher's)
  ironlaw read ds_zero3.json --json
  ironlaw read recipes.py:pretrain_8b                     (one recipe of several in a file)
"""


@click.command("read", cls=AnswerCommand, epilog=_EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
@click.option("--gpus", metavar="N", help="accelerators of the run, where no file says how many")
@click.option("--all", "everything", is_flag=True, help="list the settings too that change neither time nor memory")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def command(files: tuple[str, ...], gpus: str | None, everything: bool, as_json: bool) -> int:
    """Read trainers' configurations and print the run that they describe, each option with its line.

    Nothing in a file is run. Exit status: 0 all settings are understood, 1 some are not, 3 a file cannot be read.
    """
    from ironlaw.trainers.suffixes import SYNTAXES

    reading = reading_of(files, gpus)
    if reading is None:
        raise InputError(f"{files[0]}: no configuration of a trainer that is known; files that are read end in {' '.join(SYNTAXES)}")
    if as_json:
        print_text(json_text(data_of(reading)) + "\n")
    else:
        for line in lines_of(reading, files, everything):
            print_line(line)
    return 0 if reading.understood else 1


def reading_of(files: tuple[str, ...], gpus: str | None) -> Reading | None:
    """What files say together."""
    from ironlaw.question.readers import whole
    from ironlaw.trainers.read import read_trainer_files

    return read_trainer_files(",".join(files), int(whole(gpus, "--gpus")) if gpus is not None else None, megatron=True)


def data_of(reading: Reading) -> dict[str, Any]:
    """A reading as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": __version__,
        "trainer": {"name": reading.trainer, "version": reading.version, "url": reading.url, "read": reading.read},
        "files": list(reading.files),
        "understood": reading.understood,
        "options": reading.options,
        "origin": {
            name: {"file": fact.file, "line": fact.line, "column": fact.column, "key": fact.key, "written": _plain(fact.written)}
            for name, fact in reading.origin.items()
        },
        "unknown": [told_data(told) for told in reading.unknown],
        "refused": [told_data(told) for told in reading.refused],
        "assumed": [told_data(told) for told in reading.assumed],
        "ignored": [told_data(told) for told in reading.ignored],
        "needed": list(reading.needed),
    }


def told_data(told: Told) -> dict[str, Any]:
    """A setting and what is said of it; a rule has no key."""
    where = {"file": told.file, "line": told.line, "column": told.column} if told.line else {"file": None, "line": None, "column": None}
    return {"key": told.key or None, "value": _plain(told.value), **where, "why": told.why}


def _plain(value: Any) -> Any:
    """A value that JSON has; any other as text."""
    plain = isinstance(value, (str, int, bool, type(None))) or (isinstance(value, float) and isfinite(value))
    return value if plain else str(value)


def lines_of(reading: Reading, files: tuple[str, ...], everything: bool) -> list[str]:
    """A reading as a page: the run, what was taken for granted, what is not understood, and how to ask for it."""
    from ironlaw.trainers.read import place

    lines = [f"{reading.trainer} {reading.version}; keys as of {reading.url} ({reading.read})", "Understood"]
    for name, value in reading.options.items():
        fact = reading.origin.get(name)
        shown = ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else value
        lines.append(f"  {name:<20} {shown!s:<28} {f'{fact.place} {fact.key}' if fact else 'see assumed'}".rstrip())
    for title, told in (("Assumed", reading.assumed), ("Refused", reading.refused), ("Unknown", reading.unknown)):
        if told:
            lines.append(title)
            lines += [f"  {f'{place(one)}: ' if one.line else ''}{f'{one.key}: ' if one.key else ''}{one.why}" for one in told]
    if everything:
        lines += ["Ignored", *(f"  {place(one)}: {one.key}: {one.why}" for one in reading.ignored)]
    else:
        lines.append(f"Ignored: {len(reading.ignored)} settings that change neither time nor memory, or are off (--all lists them)")
    if reading.needed:
        lines.append(f"Needed: {', '.join({'model': 'MODEL', 'gpus': '--gpus N'}.get(name, name) for name in reading.needed)}")
    elif reading.understood:
        lines.append(f"Ask: ironlaw estimate {','.join(files)} --on ACCELERATOR --gpus {reading.gpus or 'N'}")
    return lines
