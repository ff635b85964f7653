"""The verb ``ironlaw validate``: score estimates on published runs or a user's runs; ``fit`` fits the constants again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ironlaw.cli.flags import catalog_flag, form_flags
from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import Form, print_note, print_text, read_form, tables_text
from ironlaw.cli.report import write_report
from ironlaw.errors import QuestionError

if TYPE_CHECKING:
    from ironlaw.validate.session import Validation

_EXAMPLES = """
\b
Examples:
  ironlaw validate
  ironlaw validate --by device --memory
  ironlaw validate --runs other_runs.csv --json
  ironlaw validate --mine our_runs.csv --correction ours.toml      (then: ironlaw estimate ... --correction ours.toml)
  ironlaw validate --generic
  ironlaw validate --predictions another_tool.csv
  ironlaw validate --plans
  ironlaw validate --fits runs_that_fitted_or_failed.csv
  ironlaw validate predictions --json      (the scores that ship with the calibration: at once)
  ironlaw validate fit
"""


# what is done in place of scoring runs: the options that go with it, and what it does
MODES = {
    "fit": ((), "validate fit takes no options: it uses the runs and the catalogue that ship"),
    "predictions": (("--json", "--markdown", "--format csv"), "validate predictions has what ships, and allows only --json and --format"),
    "--fits": (("--json", "--catalog"), "--fits scores one table by itself, and allows only --json and --catalog"),
    "--plans": (("--runs", "--json", "--markdown", "--catalog"), "--plans allows only --runs, --json, --markdown and --catalog"),
    "--predictions": (("--runs", "--by", "--json", "--catalog"), "--predictions compares two tools on published runs"),
}


@click.command("validate", cls=AnswerCommand, epilog=_EXAMPLES)
@click.argument("action", required=False, type=click.Choice(["fit", "predictions"]))
@click.option("--runs", metavar="CSV", help="score the runs of this table (default: the table that ships)")
@click.option("--mine", metavar="CSV", help="score your own runs")
@click.option("--correction", metavar="TOML", help="with --mine: write a correction file for ironlaw estimate --correction")
@click.option("--memory", is_flag=True, help="also score measured memory")
@click.option("--peaks", metavar="CSV", help="with --memory: table of measured peaks (default: the table that ships)")
@click.option(
    "--fits", metavar="CSV", help="score a table of runs that fitted or failed: how likely each was said to fit, and its peak memory"
)
@click.option("--generic", is_flag=True, help="also score every run with the record that a stack outside the catalogue would get")
@click.option("--predictions", metavar="CSV", help="score another tool's predictions (id, step_time_s) beside ours on the same rows")
@click.option("--plans", is_flag=True, help="compare published plans with the best plans of searches")
@click.option(
    "--by",
    metavar="KEY",
    default="family",
    show_default=True,
    help="group by family, stack, device, support (kind of run), apart (why a row is outside the headline), or a column of the table",
)
@click.option("--markdown", is_flag=True, help="the same as --format markdown")
def command(
    action: str | None,
    runs: str | None,
    mine: str | None,
    correction: str | None,
    memory: bool,
    peaks: str | None,
    fits: str | None,
    generic: bool,
    predictions: str | None,
    plans: bool,
    by: str,
    markdown: bool,
    as_json: bool,
    how: str | None,
    short: bool,
    html: str | None,
    catalog: tuple[str, ...],
) -> int:
    """Score the estimates on published runs, each predicted with constants fitted without its family."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.validate import session
    from ironlaw.validate.runs import RUNS
    from ironlaw.validate.score import far_apart

    if markdown and how not in (None, "markdown"):
        raise QuestionError(f"--markdown and --format {how}: give one of them")
    form = read_form("markdown" if markdown else how, as_json, short=short, html=html)
    as_json, markdown = form.name == "json", form.name == "markdown"
    folders = given_folders(catalog)
    given = {
        "fit": action == "fit", "predictions": action == "predictions", "--runs": runs, "--mine": mine, "--correction": correction,
        "--memory": memory, "--peaks": peaks, "--fits": fits, "--generic": generic, "--predictions": predictions, "--plans": plans,
        "--by": by != "family", "--json": as_json, "--markdown": markdown, "--format csv": form.name == "csv", "--short": short,
        "--html": html, "--catalog": catalog,
    }  # fmt: skip
    _refuse_together([name for name, value in given.items() if value not in (None, False, ())])
    if action == "fit":
        return _fit()
    if action == "predictions":
        return _shipped(form)
    if fits is not None:
        return _fits(Path(fits), folders, as_json)
    if plans:
        return _plans(Path(runs) if runs is not None else RUNS, folders, as_json, markdown)
    if correction is not None:
        from ironlaw.estimate.evidence.correction import check_correction_target

        check_correction_target(correction)
    scored = Path(next((file for file in (mine, runs) if file is not None), RUNS))
    session.check_grouping(scored, by)
    if predictions is not None:
        return _predictions(Path(predictions), scored, by, folders, as_json)
    scores = session.validate(scored, memory or peaks is not None, folders, Path(peaks) if peaks is not None else None, generic)
    if correction is not None:
        _write_correction(scores, Path(correction), scored)
    _print_scores(scores, by, folders, form)
    if (mine or runs) and form.name == "table":
        skipped = [f"line {row.line} ({row.id}): {row.reason}" for row in scores.held_out.skipped]
        for line in (*skipped, *far_apart(scores.held_out)):
            print_note(line)
    return 0 if scores.held_out.prepared.runs else 1


def _print_scores(scores: Validation, by: str, folders: tuple[str, ...], form: Form) -> None:
    """Print the scores of runs in the form that is asked for."""
    write_report(form, "validate", lambda: json.loads(_scores_json(scores, by, folders)))
    if form.name == "json":
        text = _scores_json(scores, by, folders)
    elif form.name == "csv" or form.table:
        from ironlaw.report.tables import data_answer
        from ironlaw.validate import session

        text = tables_text(data_answer("Validation", session.data(scores, by), _TABLES), form)
    else:
        text = _scores_page(scores, by, form)
    print_text(text + "\n")


def _scores_json(scores: Validation, by: str, folders: tuple[str, ...]) -> str:
    """The scores of runs as JSON."""
    from ironlaw.estimate.answer.as_data import common_keys
    from ironlaw.validate import session
    from ironlaw.validate.score import far_apart

    data = {**common_keys([], far_apart(scores.held_out), folders), **session.data(scores, by)}
    return json.dumps(data, indent=1, allow_nan=False, default=float)


def _scores_page(scores: Validation, by: str, form: Form) -> str:
    """The scores of runs as Markdown or as a page of text."""
    from ironlaw.report import validation
    from ironlaw.report.brief import brief_page

    if form.name == "markdown":
        return validation.markdown(scores)
    page = validation.text(scores, by)
    return brief_page(page, ()) if form.short else page + _generic(scores)


def _shipped(form: Form) -> int:
    """Print the validation that ships: as JSON, as tables, or how good the predictions are and where they were worst."""
    from ironlaw.validate import shipped

    found = shipped.read_shipped()
    if form.name == "json":
        from ironlaw.estimate.answer.as_data import common_keys

        text = json.dumps({**common_keys([], [], ()), **found}, indent=1, allow_nan=False)
    elif form.name in ("csv", "markdown"):
        from ironlaw.report.tables import data_answer

        text = tables_text(data_answer("Predictions of published runs", found, _TABLES), form)
    else:
        from ironlaw.report.validation import shipped_text

        text = shipped_text(found)
    print_text(text + "\n")
    return 0


_TABLES = {"groups": "Groups", "predictions": "Predictions", "skipped_rows": "Rows that are not scored"}


def _fits(path: Path, folders: tuple[str, ...], as_json: bool) -> int:
    """Print what is predicted of runs that fitted or failed."""
    from ironlaw.validate import fits, odds

    rows = fits.fits(path, folders)
    if as_json:
        from ironlaw.estimate.answer.as_data import common_keys

        data = {
            **common_keys([], [], folders),
            "schema_version": fits.SCHEMA_VERSION,
            "fits": {**fits.summary(rows), "odds": odds.odds(rows)},
        }
        print_text(json.dumps(data, indent=1, allow_nan=False, default=float) + "\n")
    else:
        from ironlaw.report import fits as report

        print_text(report.text(rows) + "\n")
    return 0 if any(row.probability is not None for row in rows) else 1


def _refuse_together(given: list[str]) -> None:
    """Refuse options that do not go together."""
    if "--runs" in given and "--mine" in given:
        raise QuestionError("--runs scores published runs and --mine your own runs: give one of them")
    if "--correction" in given and "--mine" not in given:
        raise QuestionError("--correction needs your own runs: give --mine CSV")
    for mode, (allowed, does) in MODES.items():
        others = [name for name in given if name != mode and name not in allowed]
        if mode in given and others:
            raise QuestionError(f"{does}; without {', '.join(others)}")


def _predictions(given: Path, path: Path, by: str, folders: tuple[str, ...], as_json: bool) -> int:
    """Score another tool's predictions of published runs beside ours."""
    from ironlaw.estimate.answer.table import read_table
    from ironlaw.validate import others, session

    read = others.read_predictions(given, {cells.get("id", "") for _, cells in read_table(path)} - {""})
    compared = others.compare(read, session.validate(path, folders=folders).held_out, by)
    if as_json:
        print_text(json.dumps({"schema_version": others.SCHEMA_VERSION, **compared}, indent=1, allow_nan=False) + "\n")
    else:
        from ironlaw.report.validation import others_text

        print_text(others_text(compared) + "\n")
    return 0 if compared["scored"] else 1


def _generic(scores: Validation) -> str:
    """The table of both kinds of record, where it was asked for."""
    from ironlaw.report.validation import generic_text

    return "" if scores.generic is None else "\n\n" + generic_text(scores.held_out, scores.generic)


def _plans(path: Path, folders: tuple[str, ...], as_json: bool, markdown: bool) -> int:
    """Print published plans beside the best plans of searches."""
    from ironlaw.report import published_plans as report
    from ironlaw.report.estimate import page
    from ironlaw.search.published import compare
    from ironlaw.validate import jobs, plans

    prepared, predicted = plans.gather(path, folders)
    rows = jobs.compare_jobs(prepared, page, folders, predicted)
    comparison = {
        "schema_version": plans.SCHEMA_VERSION,
        "rule": plans.RULE,
        "plans": jobs.summary(rows, prepared, predicted),
        "jobs": rows,
        "compared": [plans.judge(compare(case)) for case in plans.published(prepared)],
        "orders": plans.orders(prepared, predicted),
    }
    if as_json:
        print_text(json.dumps(comparison, indent=1, allow_nan=False, default=sorted) + "\n")
    else:
        print_text((report.markdown(comparison) if markdown else report.text(comparison)) + "\n")
    return 0 if rows else 1


def _fit() -> int:
    """Fit on the runs that ship; write constants, bands and the record of the fit."""
    from ironlaw.validate import fit, record, runs, session
    from ironlaw.validate.predict import prepare

    listed, _ = runs.read_runs()
    prepared, _ = prepare(listed)
    fitted = fit.solve_all(prepared)
    for c in fit.constants():
        click.echo(f"{c.name:<22} {fitted.values[c.name]:.4g}   (first {c.first:.4g})")
    generic, _ = prepare(runs.read_runs(generic=True)[0])
    record.write_fit(prepared, generic, fitted, session.spreads(prepared))
    click.echo(f"wrote {record.SYSTEMS}, {record.BANDS}, {fit.RECORD}")
    click.echo("next: python tools/predictions.py writes the predictions that ship, with these constants")
    return 0


def _write_correction(scores: Validation, path: Path, source: Path) -> None:
    """Write the correction of step times from a user's runs; refuse where none was scored."""
    from ironlaw.estimate.answer.bands import level_law
    from ironlaw.estimate.evidence.correction import write_correction
    from ironlaw.validate.own_runs import runs_to_correct_by

    runs = runs_to_correct_by(scores.in_sample)
    if not runs:
        raise QuestionError(f"--correction needs a scored run with an error band, {source.name} has none")
    correction = write_correction(path, runs, source, *level_law())
    there = correction.level(correction.places).factor
    times = f"{there.min():.3f}" if there.max() - there.min() < 0.0005 else f"{there.min():.3f} to {there.max():.3f}"
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    print_note(f"wrote {path}: steps times {times} at these runs, less further away, from {count} of {source.name}")


command.params += [*form_flags(), catalog_flag()]
