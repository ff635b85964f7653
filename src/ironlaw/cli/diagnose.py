"""``ironlaw diagnose``: find the bottleneck of a run in traces, logs and snapshots, and compare the run with its prediction."""

from __future__ import annotations

from typing import Any

import click

from ironlaw.cli.cite import write_cited
from ironlaw.cli.complete import complete_files
from ironlaw.cli.flags import catalog_flag, flags_of, form_flags
from ironlaw.cli.help import GroupedCommand
from ironlaw.cli.output import json_text, print_note, print_text, read_form, tables_text, wants_colour
from ironlaw.cli.report import write_report
from ironlaw.question.options import OPTIONS, TOKENS_PER_SECOND, Option

_EXAMPLES = """
\b
Examples:
  ironlaw diagnose trace.json.gz
  ironlaw diagnose traces/ --unlinked drop --json          (a folder with all ranks of one job)
  ironlaw diagnose rank0.json.gz --model llama-3-8b --on h100-sxm --gpus 8 --micro-batch-size 2
  ironlaw diagnose rank0.json.gz --against estimate.json   (a saved `ironlaw estimate --json`)
  ironlaw diagnose train.log --on v100-sxm-32gb
  nvidia-smi | ironlaw diagnose -                          (or a message of "out of memory", from the clipboard)
  ironlaw diagnose train.log --model llama-3-8b --on h100-sxm --gpus 64   (ranks what could explain the time)
  ironlaw diagnose --tokens-per-second 150k --model llama-2-7b --on h100-sxm --gpus 64
  ironlaw diagnose trace.json.gz --keep --label before     (then: ironlaw runs compare before after)
"""


@click.command("diagnose", cls=GroupedCommand, own="Diagnosis", epilog=_EXAMPLES)
@click.argument("files", nargs=-1, metavar="[FILE|FOLDER]...", shell_complete=complete_files)
@click.option(
    "--unlinked", default="keep", metavar="keep|drop", help="keep or drop device events whose launch is not in the file (default: keep)"
)
@click.option("--last-step", default="keep", metavar="keep|drop", help="keep or drop kernels that the last step launched (default: keep)")
@click.option("--against", metavar="FILE", help="compare with a saved `ironlaw estimate --json` of the same run")
@click.option("--patterns", multiple=True, metavar="FILE", help="TOML file with more names of communication kernels")
@click.option(
    "--kernel-names", multiple=True, metavar="FILE", help="TOML file with more names, classes and number formats of other kernels"
)
@click.option(
    "--time-unit", default="us", metavar="us|ms|ns", help="unit of ts and dur in a Chrome trace (default: us, as the format specifies)"
)
@click.option("--untraced-step", metavar="TIME", help="step time without a profiler; shows what the profiler cost")
@click.option("--tokens-per-second", metavar=TOKENS_PER_SECOND.metavar, help=f"with --model: {TOKENS_PER_SECOND.help}; needs no FILE")
@click.option("--keep", is_flag=True, help="store the diagnosis for `ironlaw runs`")
@click.option("--label", metavar="NAME", help="with --keep: a label for the run")
@click.option("--store", metavar="FILE", help="with --keep: the store, an SQLite file (default: as in `ironlaw runs`)")
@click.option("--redact", is_flag=True, help="print hashes in place of paths, private names and hosts")
def command(
    files: tuple[str, ...],
    unlinked: str,
    last_step: str,
    against: str | None,
    patterns: tuple[str, ...],
    kernel_names: tuple[str, ...],
    time_unit: str,
    untraced_step: str | None,
    tokens_per_second: str | None,
    keep: bool,
    label: str | None,
    store: str | None,
    redact: bool,
    as_json: bool,
    how: str | None,
    short: bool,
    model: str | None,
    cite: bool,
    html: str | None,
    catalog: tuple[str, ...],
    **question: Any,
) -> int:
    """Find the bottleneck of a run in profiler traces, logs or memory snapshots, of one rank or all."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.errors import QuestionError
    from ironlaw.files import STANDARD_INPUT, keep_standard_input
    from ironlaw.measure.diagnose import diagnose
    from ironlaw.report.brief import brief_page
    from ironlaw.report.diagnosis import diagnosis_data, diagnosis_page
    from ironlaw.report.tables import data_answer

    form = read_form(how, as_json, short=short, cite=cite, html=html)
    if (label is not None or store is not None) and not keep:
        raise QuestionError("--label and --store need --keep")
    folders = given_folders(catalog)
    options = {name: value for name, value in question.items() if value is not None}
    if model is not None:
        options = _read_question(model, options)
    if STANDARD_INPUT in files:
        keep_standard_input()
    diagnosis = diagnose(
        files,
        unlinked=unlinked,
        last_step=last_step,
        time_unit=time_unit,
        on=question.get("on"),
        against=against,
        patterns=patterns,
        kernel_names=kernel_names,
        untraced_step=untraced_step,
        tokens_per_second=tokens_per_second,
        question=options,
        folders=folders,
    )
    data = diagnosis_data(diagnosis.data(), diagnosis.assumptions, diagnosis.warnings, folders)
    if keep:
        _store(data, label, store)
    if redact:
        from ironlaw.measure.runs.redact import redact_diagnosis

        data = redact_diagnosis(data)
    write_report(form, "diagnose", lambda: data)
    if form.cite:
        write_cited(diagnosis, data if form.name == "json" else None)
        return diagnosis.exit_status
    if form.name == "json":
        text = json_text(data)
    elif form.name == "table":
        text = diagnosis_page(data, colour=wants_colour())
        text = brief_page(text, data["warnings"], wants_colour()) if short else text
    else:
        text = tables_text(data_answer("Diagnosis", data, _TABLES), form)
    print_text(text + "\n")
    return diagnosis.exit_status


_TABLES = {  # by their place in the JSON
    "verdict.ranking": "Speed-up without each bottleneck", "findings": "Findings", "compare": "Step, measured and predicted",
    "memory": "Memory, measured and predicted", "parallel_efficiency": "Throughput by number of GPUs", "files": "Files",
}  # fmt: skip


def _read_question(model: str, flags: dict[str, Any]) -> dict[str, Any]:
    """Read the options of an estimate; MODEL may be a question file or a launch script, as for ``ironlaw estimate``."""
    from ironlaw.cli.estimate import question_of

    options, _ = question_of(model, flags)
    return {**options, **flags}


def _store(data: dict[str, Any], label: str | None, store: str | None) -> None:
    """Save the diagnosis in the store, and print the id of the run."""
    from ironlaw.measure.runs.store import save_run

    run = save_run(data, label, store)
    print_note(f"stored as {run.id}" + (f" ({label})" if label else ""))


_MODEL = Option(OPTIONS["model"].read, "the model of the run; compares the run with its estimate", "MODEL")
command.params += [*flags_of({**OPTIONS, "model": _MODEL}, without=()), *form_flags(cite=True), catalog_flag()]
