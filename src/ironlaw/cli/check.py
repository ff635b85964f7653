"""``ironlaw check``: does a trainer's configuration run, does it fit, and what is slow."""

from __future__ import annotations

from typing import Any

import click

from ironlaw import __version__
from ironlaw.cli.complete import complete_files, complete_records
from ironlaw.cli.flags import catalog_flag
from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import json_text, print_line, print_text
from ironlaw.errors import QuestionError, UnknownNameError
from ironlaw.shown import SCHEMA_VERSION

FORMS = ("text", "json", "sarif", "github")
_EXAMPLES = """
\b
Examples:
  ironlaw check train.yaml --on h100-sxm --gpus 64
  ironlaw check training_args.yaml,fsdp.yaml --on h100-sxm       (two files of one run)
  ironlaw check configs/*.yaml                                    (settings alone; each file is a run)
  ironlaw check train.yaml --on h100-sxm --gpus 64 --format sarif > findings.sarif
"""


@click.command("check", cls=AnswerCommand, epilog=_EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
@click.option(
    "--on", metavar="ACCELERATOR", shell_complete=complete_records("accelerators"), help="accelerator of the run, by catalogue name"
)
@click.option("--gpus", metavar="N", help="accelerators of the run, where no file says how many")
@click.option("--seq-len", metavar="N", help="tokens of a sequence, where no file says how many")
@click.option("--format", "how", metavar="HOW", help=f"{', '.join(FORMS)} (default: text)")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def command(
    files: tuple[str, ...], on: str | None, gpus: str | None, seq_len: str | None, how: str | None, as_json: bool, catalog: tuple[str, ...]
) -> int:
    """Check trainers' configurations, each FILE a run (FILE,FILE are one), and print every finding with its line.

    Exit status: 0 nothing but notes, 1 errors or warnings. With --on and --gpus the run is estimated: shapes, what the stack can run,
    memory, and the changes that make a step faster. Nothing in a file is run.
    """
    from ironlaw.catalog.load import given_folders
    from ironlaw.checks.check import check
    from ironlaw.question.read import read_options

    form = (how or ("json" if as_json else "text")).strip().lower()
    if form not in FORMS:
        raise UnknownNameError("--format", form, FORMS)
    if as_json and form != "json":
        raise QuestionError(f"--json and --format {form} contradict each other: leave one out")
    flags = {"on": on, "gpus": gpus, "seq_len": seq_len}
    given = read_options({name: value for name, value in flags.items() if value is not None})
    folders = given_folders(catalog)
    if on is not None:
        from ironlaw.catalog import load

        load.record("accelerators", on, folders)  # a wrong name is a wrong question, and no finding
    found = [finding for file in files for finding in check(file, given, folders)]
    _print(form, found)
    return 1 if any(finding.severity != "note" for finding in found) else 0


def _print(form: str, found: list[Any]) -> None:
    """Print findings in their form."""
    from ironlaw.checks import forms

    if form == "json":
        data = {"schema_version": SCHEMA_VERSION, "tool_version": __version__, "findings": [forms.data_of(one) for one in found]}
        print_text(json_text(data) + "\n")
    elif form == "sarif":
        print_text(json_text(forms.sarif(found, __version__)) + "\n")
    else:
        for one in found:
            print_line(forms.annotation(one) if form == "github" else forms.line_of(one))
        if not found and form == "text":
            print_line("no findings")


command.params += [catalog_flag()]
