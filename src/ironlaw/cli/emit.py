"""``ironlaw emit``: a plan as the configuration of a framework, with what starts it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ironlaw import __version__
from ironlaw.cli.complete import complete_files
from ironlaw.cli.flags import catalog_flag
from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import json_text, print_note, print_text
from ironlaw.errors import MissingOptionError, QuestionError
from ironlaw.files import check_output, write_file
from ironlaw.shown import SCHEMA_VERSION

if TYPE_CHECKING:
    from ironlaw.launch.write.emit import Configuration

FRAMEWORKS = "megatron|bridge|torchtitan|deepspeed|accelerate|nemo|maxtext|axolotl|torchtune"
LAUNCHERS = "torchrun|slurm|kubernetes"
_EXAMPLES = """
\b
Examples:
  ironlaw estimate llama-3-70b --on h100-sxm --gpus 64 --json > plan.json
  ironlaw emit plan.json --for megatron -o pretrain.sh
  ironlaw emit plan.json --for torchtitan --launcher slurm -o train.toml
  ironlaw emit plan.json#2 --for bridge               (the second plan of a search)
  ironlaw emit run.toml --for axolotl --json
"""


@click.command("emit", cls=AnswerCommand, epilog=_EXAMPLES)
@click.argument("plan", required=False, shell_complete=complete_files)
@click.option("--for", "framework", metavar=FRAMEWORKS, shell_complete=lambda *_: FRAMEWORKS.split("|"), help="the framework that runs it")
@click.option("--version", "release", metavar="V", help="version of the framework; default: that of its table")
@click.option(
    "--launcher",
    metavar=LAUNCHERS,
    default="torchrun",
    shell_complete=lambda *_: LAUNCHERS.split("|"),
    help="what starts the processes; default: torchrun, or the framework's own",
)
@click.option("-o", "--output", metavar="FILE", help="write the configuration to FILE, and what starts it beside it; default: print both")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def command(
    plan: str | None, framework: str | None, release: str | None, launcher: str, output: str | None, as_json: bool, catalog: tuple[str, ...]
) -> int:
    """Write PLAN as the configuration of a framework: an answer (--json, --html) or a question.toml.

    Every line has its reason. What the framework cannot express is an error that names it. Exit status: 0 written, 2 it cannot be
    expressed, 3 an input cannot be read.
    """
    from ironlaw.catalog.load import given_folders
    from ironlaw.launch.write.emit import emit

    if plan is None:
        raise MissingOptionError("missing PLAN: an answer from --json or --html, or a question.toml", option="plan")
    if framework is None:
        raise MissingOptionError(f"missing --for {FRAMEWORKS}", option="framework")
    if as_json and output is not None:
        raise QuestionError("--json prints the files: leave out --json or -o")
    if output is not None:
        check_output(output, "-o")
    folders = given_folders(catalog)
    written = emit(options_of_plan(plan, folders), framework, release or "", launcher, folders, Path(output).name if output else "")
    if as_json:
        print_text(json_text(data_of(written)) + "\n")
    elif output is None:
        print_files(written)
    else:
        write_files(written, Path(output))
    return 0


def options_of_plan(plan: str, folders: tuple[str, ...]) -> dict[str, Any]:
    """The options that ask for the plan in a file: those of an answer, of a search its best plan, or those of a question."""
    from ironlaw.question.read import read_options

    del folders
    if plan.endswith(".toml"):
        from ironlaw.cli.estimate import read_toml

        return read_options(read_toml(Path(plan)), Path(plan).name)
    from ironlaw.estimate.answer.saved import read_answer

    return read_answer(plan).held


def print_files(written: Configuration) -> None:
    """The files one after the other, each under its name."""
    for name, text in written.files.items():
        if len(written.files) > 1:
            print_text(f"{'' if name == next(iter(written.files)) else chr(10)}==> {name} <==\n")
        print_text(text)


def write_files(written: Configuration, output: Path) -> None:
    """Write the files into the folder of the first."""
    for name, text in written.files.items():
        write_file(output.parent / name, text.encode(), "-o")
        print_note(f"{output.parent / name} written")


def data_of(written: Configuration) -> dict[str, Any]:
    """A configuration as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": __version__,
        "framework": {
            "name": written.framework,
            "title": written.title,
            "version": written.version,
            "url": written.url,
            "read": written.read,
        },
        "files": [{"name": name, "text": text} for name, text in written.files.items()],
        "lines": [
            {"key": line.key, "value": line.value, "option": line.of or None, "why": line.why or None, "part": line.part}
            for line in written.lines
        ],
        "environment": [{"name": one.name, "value": one.value, "why": one.why, "url": one.url or None} for one in written.environment],
    }


command.params += [catalog_flag()]
