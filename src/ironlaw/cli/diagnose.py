"""``ironlaw diagnose``: traces, logs and snapshots to the roof that binds, and why the run differs from the prediction."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from ironlaw.cli.estimate import wants_colour
from ironlaw.question.options import OPTIONS

_EXAMPLES = """
\b
Examples:
  ironlaw diagnose trace.json.gz
  ironlaw diagnose traces/ --unlinked drop --json          (a folder with the ranks of one job)
  ironlaw diagnose rank0.json.gz --model llama-3-8b --on h100-sxm --gpus 8 --micro-batch-size 2
  ironlaw diagnose rank0.json.gz --against estimate.json   (what `ironlaw estimate --json` said before)
  ironlaw diagnose train.log --on v100-sxm-32gb
  ironlaw diagnose trace.json.gz --keep --label before     (then: ironlaw runs compare before after)
"""


def _flags(command: click.Command) -> click.Command:
    """The options of an estimate of the same run."""
    command.params.append(click.Option(["--model"], metavar="MODEL", help="the run's model: compare the measurement with its estimate"))
    for name, option in OPTIONS.items():
        if name != "model":
            command.params.append(click.Option([f"--{name.replace('_', '-')}", name], metavar=option.metavar, help=option.help))
    return command


@click.command("diagnose", epilog=_EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="FILE|FOLDER...")
@click.option("--unlinked", default="keep", metavar="keep|drop", help="device events whose launch is not in the file [keep]")
@click.option("--last-step", default="keep", metavar="keep|drop", help="what the last step launched [keep]")
@click.option("--against", metavar="FILE", help="a saved `ironlaw estimate --json` of the same run to compare with")
@click.option("--patterns", multiple=True, metavar="FILE", help="further names of communication kernels, as TOML")
@click.option("--kernel-names", multiple=True, metavar="FILE", help="names, classes and number formats of all other kernels, as TOML")
@click.option("--time-unit", default="us", metavar="us|ms|ns", help="unit of ts and dur in a Chrome trace [us, as its format says]")
@click.option("--untraced-step", metavar="TIME", help="what a step takes without a profiler: says what the profiler cost")
@click.option("--keep", is_flag=True, help="keep the diagnosis in the store of `ironlaw runs`")
@click.option("--label", metavar="NAME", help="a name for the kept run")
@click.option("--store", metavar="FILE", help="the store to keep it in")
@click.option("--redact", is_flag=True, help="replace names of paths, functions and hosts by hashes in what is printed")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.option("--catalog", multiple=True, metavar="DIR", help="a folder of your own records; overrides what ships")
def command(
    files: tuple[str, ...],
    unlinked: str,
    last_step: str,
    against: str | None,
    patterns: tuple[str, ...],
    kernel_names: tuple[str, ...],
    time_unit: str,
    untraced_step: str | None,
    keep: bool,
    label: str | None,
    store: str | None,
    redact: bool,
    as_json: bool,
    model: str | None,
    catalog: tuple[str, ...],
    **question: Any,
) -> int:
    """Say what bound a run: profiler traces, logs and memory snapshots, one or all ranks, read by content."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.errors import QuestionError
    from ironlaw.measure.diagnose import diagnose
    from ironlaw.report.diagnosis import diagnosis_data, diagnosis_page

    if (label is not None or store is not None) and not keep:
        raise QuestionError("--label and --store say how a diagnosis is kept: give --keep")
    folders = given_folders(catalog)
    asked = {name: value for name, value in question.items() if value is not None}
    if model is not None:
        asked = _question_of(model, asked)
    found = diagnose(
        files,
        unlinked=unlinked,
        last_step=last_step,
        time_unit=time_unit,
        on=question.get("on"),
        against=against,
        patterns=patterns,
        kernel_names=kernel_names,
        untraced_step=untraced_step,
        question=asked,
        folders=folders,
    )
    data = diagnosis_data(found.data(), found.assumptions, found.warnings, folders)
    if keep:
        _keep(data, label, store)
    if redact:
        from ironlaw.measure.runs.redact import redacted

        data = redacted(data)
    text = json.dumps(data, indent=1, allow_nan=False) if as_json else diagnosis_page(data, colour=wants_colour())
    sys.stdout.write(text + "\n")
    return found.exit_status


def _question_of(model: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options of an estimate: MODEL may be a question or a launch script, as for ``ironlaw estimate``."""
    from ironlaw.cli.estimate import question_of

    asked, _ = question_of(model, given)
    return {**asked, **given}


def _keep(data: dict[str, Any], label: str | None, store: str | None) -> None:
    from ironlaw.measure.runs.store import keep

    kept = keep(data, label, store)
    click.echo(f"ironlaw: kept as {kept.id}" + (f" ({label})" if label else ""), err=True)


command = _flags(command)
