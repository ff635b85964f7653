"""``ironlaw schema``: print the JSON Schema of what a verb prints with ``--json``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ironlaw.cli.help import AnswerCommand
from ironlaw.errors import UnknownNameError
from ironlaw.files import read_shipped

SCHEMAS = Path(__file__).parents[1] / "schemas"

_EXAMPLES = """
\b
Examples:
  ironlaw schema
  ironlaw schema estimate > estimate.schema.json
"""


@click.command("schema", cls=AnswerCommand, epilog=_EXAMPLES)
@click.argument("verb", required=False)
def command(verb: str | None) -> int:
    """Print the JSON Schema (draft 2020-12) of the answers of VERB with --json; without VERB, the verbs that have one."""
    names = sorted(path.stem for path in SCHEMAS.glob("*.json"))
    if verb is None:
        sys.stdout.write("\n".join(names) + "\n")
        return 0
    if verb not in names:
        raise UnknownNameError("verb", verb, names)
    sys.stdout.write(read_shipped(SCHEMAS / f"{verb}.json"))
    return 0
