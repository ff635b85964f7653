"""``ironlaw runs list|show|compare|gate|add|export|import|forget|label``: measured runs kept on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

_EXAMPLES = """
\b
Examples:
  ironlaw diagnose trace.json.gz --keep --label main
  ironlaw runs add diagnosis.json --label candidate
  ironlaw runs gate main                          (the latest run against the newest labelled main)
  ironlaw runs compare main latest
  ironlaw runs export main --redact -o run.json   (names hashed; then: ironlaw runs import run.json)

RUN is an id, the start of one, a label (its newest run) or `latest`.
"""


@click.group("runs", epilog=_EXAMPLES)
def command() -> None:
    """Keep measured runs on this machine: list, show, compare, gate. Nothing leaves it."""


def _common(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every verb here takes."""
    verb = click.option("--json", "as_json", is_flag=True, help="print JSON")(verb)
    return click.option(
        "--store", metavar="FILE", help="the store, an SQLite file (default: $IRONLAW_STORE, else the folder for a user's data)"
    )(verb)


def _print(as_json: bool, data: dict[str, Any], page: Callable[..., str]) -> None:
    """The answer as JSON with the keys every answer has, or as a page."""
    from ironlaw.cli.estimate import wants_colour
    from ironlaw.report.runs import with_common_keys

    if as_json:
        sys.stdout.write(json.dumps(with_common_keys(data), indent=1, allow_nan=False) + "\n")
    else:
        sys.stdout.write(page(data, wants_colour()) + "\n")


@command.command("list")
@click.option("--label", metavar="NAME", help="only runs of this label")
@click.option("-n", "--most", type=click.IntRange(min=1), metavar="N", help="only the N newest")
@_common
def list_runs(label: str | None, most: int | None, store: str | None, as_json: bool) -> int:
    """The runs that are kept, the newest first."""
    from ironlaw.measure.runs import store as runs
    from ironlaw.report import runs as report

    _print(as_json, report.list_data(runs.listed(store, label, most), str(store or runs.default_path())), report.list_page)
    return 0


@command.command("show")
@click.argument("run")
@_common
def show(run: str, store: str | None, as_json: bool) -> int:
    """One run: where it comes from, its steps, its window and its verdict; with --json its whole diagnosis."""
    from ironlaw.measure.runs import store as runs
    from ironlaw.report import runs as report

    kept, diagnosis = runs.shown(run, store)
    _print(as_json, report.show_data(kept, diagnosis, runs.samples(kept.id, store)), report.show_page)
    return 0


@command.command("compare")
@click.argument("a")
@click.argument("b")
@_common
def compare(a: str, b: str, store: str | None, as_json: bool) -> int:
    """Run B beside run A: steps and the parts of the window, ranked by the seconds between them."""
    from ironlaw.measure.runs.differences import compared
    from ironlaw.report import runs as report

    _print(as_json, report.compare_data(compared(a, b, store)), report.compare_page)
    return 0


@command.command("gate")
@click.argument("baseline")
@click.argument("run", default="latest")
@click.option("--across", is_flag=True, help="compare runs of different fingerprints, or of a machine that others used")
@_common
def gate(baseline: str, run: str, across: bool, store: str | None, as_json: bool) -> int:
    """RUN (the latest) against BASELINE: exit status 0 no slower, 1 slower, 4 cannot be told."""
    from ironlaw.measure.runs import store as runs
    from ironlaw.report import runs as report

    found = runs.gated(baseline, run, store, across)
    _print(as_json, report.gate_data(found, across), report.gate_page)
    return found.gate.exit_status


@command.command("add")
@click.argument("diagnosis")
@click.option("--label", metavar="NAME", help="a name for the run; several runs may bear it, and it means the newest")
@click.option("--contended", is_flag=True, help="others used the machine: a gate takes the run only with --across")
@_common
def add(diagnosis: str, label: str | None, contended: bool, store: str | None, as_json: bool) -> int:
    """Keep a diagnosis that `ironlaw diagnose --json` wrote."""
    from ironlaw.measure.runs import recorded
    from ironlaw.measure.runs import store as runs

    data = recorded.checked(recorded.read(diagnosis), diagnosis)
    return _said(runs.keep(data, label, store, origin="added", contended=contended), "kept", as_json)


@command.command("import")
@click.argument("file")
@click.option("--label", metavar="NAME", help="a name for the run, in place of the one it was exported with")
@_common
def import_run(file: str, label: str | None, store: str | None, as_json: bool) -> int:
    """Keep a run that `ironlaw runs export` wrote."""
    from ironlaw.measure.runs.exchange import imported

    return _said(imported(file, label, store), "kept", as_json)


@command.command("export")
@click.argument("run")
@click.option("--redact", is_flag=True, help="hash paths, hosts, users and names that are not of public libraries; numbers stay")
@click.option("--name", "names", multiple=True, metavar="WORD", help="with --redact: hide this word too, wherever it stands")
@click.option("-o", "--output", metavar="FILE", help="write to this file (default: print)")
@click.option("--store", metavar="FILE", help="the store, an SQLite file (default: $IRONLAW_STORE, else the folder for a user's data)")
def export(run: str, redact: bool, names: tuple[str, ...], output: str | None, store: str | None) -> int:
    """A run as one JSON file, for `ironlaw runs import`."""
    from ironlaw.errors import QuestionError
    from ironlaw.measure.runs.exchange import exported

    if names and not redact:
        raise QuestionError("--name hides words of a redacted export: give --redact too")
    text = json.dumps(exported(run, store, redact, names), indent=1, allow_nan=False) + "\n"
    if output is None:
        sys.stdout.write(text)
        return 0
    _write(output, text)
    click.echo(f"ironlaw: wrote {output}{', names hashed: read it before you send it' if redact else ''}", err=True)
    return 0


def _write(output: str, text: str) -> None:
    """The whole file or none of it."""
    import contextlib
    import os
    import tempfile
    from pathlib import Path

    from ironlaw.errors import InputError

    made = ""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=Path(output).parent, prefix=".ironlaw-", delete=False) as file:
            made = file.name
            file.write(text)
        os.replace(made, output)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise InputError(f"{output}: cannot be written: {getattr(error, 'strerror', None) or error}") from error


@command.command("forget")
@click.argument("run")
@_common
def forget(run: str, store: str | None, as_json: bool) -> int:
    """Delete a run from the store."""
    from ironlaw.measure.runs import store as runs

    return _said(runs.forgotten(run, store), "forgotten", as_json)


@command.command("label")
@click.argument("run")
@click.argument("name")
@_common
def label_run(run: str, name: str, store: str | None, as_json: bool) -> int:
    """Name a run; an empty NAME takes its label away."""
    from ironlaw.measure.runs import store as runs

    return _said(runs.labelled(run, name or None, store), "labelled", as_json)


def _said(kept: Any, done: str, as_json: bool) -> int:
    from ironlaw.report import runs as report

    _print(as_json, report.kept_data(kept, done), report.kept_page)
    return 0
