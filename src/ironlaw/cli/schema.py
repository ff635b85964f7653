"""``ironlaw schema``: print the JSON Schema of what a verb prints with ``--json``, or the options of all verbs as data."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ironlaw import __version__
from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import json_text
from ironlaw.earlier import first_name
from ironlaw.errors import NoEffectError, UnknownNameError
from ironlaw.files import read_shipped
from ironlaw.question.options import OPTIONS, Option, flag, why_left_out
from ironlaw.shown import SCHEMA_VERSION

SCHEMAS = Path(__file__).parents[1] / "schemas"

_EXAMPLES = """
\b
Examples:
  ironlaw schema
  ironlaw schema estimate > estimate.schema.json
  ironlaw schema --options --json > options.json
"""


@click.command("schema", cls=AnswerCommand, epilog=_EXAMPLES)
@click.argument("verb", required=False)
@click.option("--options", is_flag=True, help="print the options of VERB, or of all verbs: type, unit, choices, bounds, default")
@click.option("--json", "as_json", is_flag=True, help="with --options: print them as JSON")
def command(verb: str | None, options: bool, as_json: bool) -> int:
    """Print the JSON Schema (draft 2020-12) of the answers of VERB with --json, of errors or of options; without VERB, the names."""
    verb = first_name(verb) if verb else None
    if options:
        return _print_options(verb, as_json)
    if as_json:
        raise NoEffectError("--json has no effect without --options, a schema is JSON: give both, or leave --json out")
    names = sorted(path.stem for path in SCHEMAS.glob("*.json"))
    if verb is None:
        sys.stdout.write("\n".join(names) + "\n")
        return 0
    if verb not in names:
        raise UnknownNameError("verb", verb, names)
    sys.stdout.write(read_shipped(SCHEMAS / f"{verb}.json"))
    return 0


def _print_options(verb: str | None, as_json: bool) -> int:
    """Print the rows of options: those of an estimate, and by verb those that only it has or reads in another way."""
    from ironlaw.question.as_data import table_data

    tables = _tables()
    if verb is not None and verb not in tables:
        raise UnknownNameError("verb", verb, list(tables))
    rows = {name: table_data(table, name.capitalize()) for name, table in tables.items() if verb in (None, name)}
    if verb not in (None, "estimate"):  # with those that it shares with an estimate, so that all its options are here
        rows = {"estimate": [row for row in table_data(OPTIONS, "Estimate") if not why_left_out(row["name"], verb)], **rows}
    if as_json:
        sys.stdout.write(json_text({"schema_version": SCHEMA_VERSION, "tool_version": __version__, "options": rows}) + "\n")
        return 0
    for name, listed in rows.items():
        sys.stdout.write(f"{name}\n" + "".join(f"  {_line(row)}\n" for row in listed))
    return 0


def _tables() -> dict[str, dict[str, Option]]:
    """By verb, the options that it does not share with ``estimate``, or reads in another way; those of ``estimate`` itself are all."""
    from ironlaw.cli.main import VERBS
    from ironlaw.search.question import OWN

    modules = {verb: module for verb, (module, _) in VERBS.items() if module.startswith("questions.")}
    tables = {verb: import_module(f"ironlaw.{module}").OPTIONS for verb, module in modules.items()}
    own = {verb: {name: option for name, option in table.items() if OPTIONS.get(name) is not option} for verb, table in tables.items()}
    return {"estimate": OPTIONS, "plan": OWN, **own}


def _line(row: dict[str, Any]) -> str:
    """One option on one line: its flag, what it takes, and its default."""
    bounds = "..".join(f"{row[end]:g}" if row[end] is not None else "" for end in ("least", "most"))
    takes = " | ".join(row["choices"]) or " | ".join(row["takes"])
    parts = [f"{flag(row['name']):<28} {takes}", row["unit"], bounds if bounds != ".." else "", row["otherwise"]]
    return "; ".join(part for part in parts if part)
