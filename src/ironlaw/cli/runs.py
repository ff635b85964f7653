"""``ironlaw runs list|show|compare|gate|add|export|import|forget|label``: measured runs stored on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import Form, print_note, print_text, read_form, tables_text, wants_colour
from ironlaw.files import check_output, write_file

_EXAMPLES = """
\b
Examples:
  ironlaw diagnose trace.json.gz --keep --label main
  ironlaw runs add diagnosis.json --label candidate
  ironlaw runs gate main                          (compare the latest run with the newest one labelled main)
  ironlaw runs compare main latest
  ironlaw runs export main --redact -o run.json   (names are hashed; on the other machine: ironlaw runs import run.json)

RUN is an id, the start of an id, a label (the newest run with it) or `latest`.
"""


@click.group("runs", epilog=_EXAMPLES, no_args_is_help=False)
def command() -> None:
    """Store measured runs on this machine: list, show, compare, gate."""


def _add_common_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every verb."""
    verb = click.option("--json", "as_json", is_flag=True, help="print JSON")(verb)
    verb = click.option("--format", "how", metavar="HOW", help="table, json, csv or markdown (default: table)")(verb)
    return click.option(
        "--store", metavar="FILE", help="the store, an SQLite file (default: $IRONLAW_STORE, else the folder for user data)"
    )(verb)


def _print(form: Form, data: dict[str, Any], page: Callable[..., str]) -> None:
    """Print the answer, as JSON with the keys of every answer, as tables or as a page."""
    from ironlaw.report.runs import add_common_keys

    if form.name == "json":
        text = json.dumps(add_common_keys(data), indent=1, allow_nan=False)
    elif form.name == "table":
        text = page(data, wants_colour())
    else:
        from ironlaw.report.tables import data_answer

        text = tables_text(data_answer("Stored runs", data, _TABLES), form)
    print_text(text + "\n")


_TABLES = {  # by their place in the JSON
    "runs": "Runs", "run": "Run", "step_medians": "Median times of a step", "window.terms": "Window", "steps": "Parts of a step",
    "checks": "Checks",
}  # fmt: skip


@command.command(cls=AnswerCommand, name="list")
@click.option("--label", metavar="NAME", help="only runs with this label")
@click.option("-n", "--most", type=click.IntRange(min=1), metavar="N", help="only the N newest")
@_add_common_options
def list_runs(label: str | None, most: int | None, store: str | None, how: str | None, as_json: bool) -> int:
    """List the stored runs, the newest first."""
    from ironlaw.measure.runs import store as runs
    from ironlaw.report import runs as report

    _print(
        read_form(how, as_json), report.list_data(runs.list_runs(store, label, most), str(store or runs.default_path())), report.list_page
    )
    return 0


@command.command(cls=AnswerCommand, name="show")
@click.argument("run")
@_add_common_options
def show(run: str, store: str | None, how: str | None, as_json: bool) -> int:
    """Show one run: origin, steps, window and verdict; with --json the whole diagnosis."""
    from ironlaw.measure.runs import store as runs
    from ironlaw.report import runs as report

    stored, diagnosis = runs.load_run(run, store)
    _print(read_form(how, as_json), report.show_data(stored, diagnosis, runs.load_samples(stored.id, store)), report.show_page)
    return 0


@command.command(cls=AnswerCommand, name="compare")
@click.argument("a")
@click.argument("b")
@_add_common_options
def compare(a: str, b: str, store: str | None, how: str | None, as_json: bool) -> int:
    """Compare run B with run A: steps and parts of the window, the largest difference first."""
    from ironlaw.measure.runs.differences import compare_runs
    from ironlaw.report import runs as report

    _print(read_form(how, as_json), report.compare_data(compare_runs(a, b, store)), report.compare_page)
    return 0


@command.command(cls=AnswerCommand, name="gate")
@click.argument("baseline")
@click.argument("run", default="latest")
@click.option("--across", is_flag=True, help="compare even if the fingerprints differ or others used the machine")
@_add_common_options
def gate(baseline: str, run: str, across: bool, store: str | None, how: str | None, as_json: bool) -> int:
    """Check RUN (default: latest) against BASELINE. Exit status: 0 not slower, 1 slower, 4 inconclusive."""
    from ironlaw.measure.runs import store as runs
    from ironlaw.report import runs as report

    gated = runs.gate_run(baseline, run, store, across)
    _print(read_form(how, as_json), report.gate_data(gated, across), report.gate_page)
    return gated.gate.exit_status


@command.command(cls=AnswerCommand, name="add")
@click.argument("diagnosis")
@click.option("--label", metavar="NAME", help="a label for the run; a label of several runs means the newest")
@click.option("--contended", is_flag=True, help="others used the machine: gate then needs --across")
@_add_common_options
def add(diagnosis: str, label: str | None, contended: bool, store: str | None, how: str | None, as_json: bool) -> int:
    """Store a diagnosis from `ironlaw diagnose --json`."""
    from ironlaw.measure.runs import saved_diagnosis
    from ironlaw.measure.runs import store as runs

    data = saved_diagnosis.check_diagnosis(saved_diagnosis.read_diagnosis(diagnosis), diagnosis)
    return _report_change(read_form(how, as_json), runs.save_run(data, label, store, origin="added", contended=contended), "kept")


@command.command(cls=AnswerCommand, name="import")
@click.argument("file")
@click.option("--label", metavar="NAME", help="a label for the run (default: the label it was exported with)")
@_add_common_options
def import_run(file: str, label: str | None, store: str | None, how: str | None, as_json: bool) -> int:
    """Store a run from `ironlaw runs export`."""
    from ironlaw.measure.runs.exchange import import_run

    return _report_change(read_form(how, as_json), import_run(file, label, store), "kept")


@command.command(cls=AnswerCommand, name="export")
@click.argument("run")
@click.option("--redact", is_flag=True, help="hash paths, hosts, users and all names but those of public libraries; numbers stay")
@click.option("--name", "names", multiple=True, metavar="WORD", help="with --redact: also hide this word everywhere")
@click.option("-o", "--output", metavar="FILE", help="write to this file (default: print)")
@click.option("--store", metavar="FILE", help="the store, an SQLite file (default: $IRONLAW_STORE, else the folder for user data)")
def export(run: str, redact: bool, names: tuple[str, ...], output: str | None, store: str | None) -> int:
    """Export a run as one JSON file, for `ironlaw runs import`."""
    from ironlaw.errors import QuestionError
    from ironlaw.measure.runs.exchange import export_run

    if names and not redact:
        raise QuestionError("--name needs --redact")
    if output is not None:
        check_output(output, "--output")
    text = json.dumps(export_run(run, store, redact, names), indent=1, allow_nan=False) + "\n"
    if output is None:
        print_text(text)
        return 0
    write_file(output, text.encode(), "--output")
    print_note(f"wrote {output}{'; names are hashed: read the file before you send it' if redact else ''}")
    return 0


@command.command(cls=AnswerCommand, name="forget")
@click.argument("run")
@_add_common_options
def forget(run: str, store: str | None, how: str | None, as_json: bool) -> int:
    """Delete a run from the store."""
    from ironlaw.measure.runs import store as runs

    return _report_change(read_form(how, as_json), runs.delete_run(run, store), "forgotten")


@command.command(cls=AnswerCommand, name="label")
@click.argument("run")
@click.argument("name")
@_add_common_options
def label_run(run: str, name: str, store: str | None, how: str | None, as_json: bool) -> int:
    """Set the label of a run; an empty NAME removes it."""
    from ironlaw.measure.runs import store as runs

    return _report_change(read_form(how, as_json), runs.label_run(run, name or None, store), "labelled")


def _report_change(form: Form, run: Any, done: str) -> int:
    """Print what was changed in the store."""
    from ironlaw.report import runs as report

    _print(form, report.change_data(run, done), report.change_page)
    return 0
