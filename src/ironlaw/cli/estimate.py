"""``ironlaw estimate``: one question from flags or a TOML file, or many from a CSV."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from ironlaw import files
from ironlaw.cli.cite import write_cited
from ironlaw.cli.complete import complete_records
from ironlaw.cli.flags import catalog_flag, explain_flag, flags_of, form_flags
from ironlaw.cli.help import GroupedCommand
from ironlaw.cli.output import Form, json_text, print_line, print_note, print_text, read_form, tables_text, wants_colour
from ironlaw.cli.report import write_report
from ironlaw.cli.trainer_file import options_of_file
from ironlaw.errors import MissingOptionError, QuestionError, one_line, speaking_of
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import columns_of, from_sections

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ironlaw.estimate.answer.estimate import Estimate
    from ironlaw.estimate.what_if.change_options import Held
    from ironlaw.estimate.what_if.left_open import Settings
    from ironlaw.estimate.what_if.offers import Offer

_EXAMPLES = """
\b
Examples:
  ironlaw estimate llama-3-70b --on h100-sxm --gpus 512 --tokens 15T
  ironlaw estimate path/to/config.json --on a100-sxm-80gb --gpus 64 --tp 8 --pp 4 --explain "pipeline bubble"
  ironlaw estimate hidden_size=2048,num_hidden_layers=24,num_attention_heads=16,vocab_size=50257 --on rtx-4090 --gpus 1
  ironlaw estimate run.toml --json
  ironlaw estimate llama-3-70b --on h100-sxm --gpus 64..512 --format csv     (64, 128, 256 and 512, a row each)
  ironlaw estimate train_gpt.sh --on h100-sxm --gpus 64      (a Megatron-LM launch script)
  ironlaw estimate axolotl.yaml --on h100-sxm --gpus 8       (a trainer's configuration; ironlaw read says what is understood)
  ironlaw estimate llama-3-8b,ds_zero3.json --on h100-sxm --gpus 8
  ironlaw estimate --rows runs.csv
"""


@click.command("estimate", cls=GroupedCommand, own="Input", epilog=_EXAMPLES)
@click.argument("model", required=False, shell_complete=complete_records("models", files=True))
@click.option("--rows", metavar="CSV", help="answer every line of a CSV whose header names options")
@click.option("--timeline", is_flag=True, help="with --json: when each pass runs on each stage of the pipeline")
@click.option("--plan", "held", metavar="FILE", help="hold the plan of an answer (--json) and change only the options given")
def command(
    model: str | None,
    rows: str | None,
    timeline: bool,
    held: str | None,
    explain: str | None,
    as_json: bool,
    how: str | None,
    short: bool,
    cite: bool,
    html: str | None,
    catalog: tuple[str, ...],
    **flags: Any,
) -> int:
    """Estimate a run of MODEL: a catalogue name, a config.json, dimensions, a run.toml with the question, a Megatron-LM script."""
    from ironlaw.catalog.load import given_folders

    form = read_form(how, as_json, explain, short, cite, html)
    if timeline:
        if form.name != "json" or rows is not None:
            raise QuestionError("--timeline gives the passes of one question as data: give --json, and leave --rows out")
        form = form._replace(timeline=True)
    catalog = given_folders(catalog)
    if cite and rows is not None:
        raise QuestionError("--cite asks one question, --rows asks many: leave one out")
    if html is not None and rows is not None:
        raise QuestionError("--html shows one answer, --rows asks for many: leave one out")
    options = columns_of({name: value for name, value in flags.items() if value is not None})
    if held is not None:
        if rows is not None:
            raise QuestionError("--plan asks one answer again, --rows asks many questions: leave one out")
        return _show_held(held, model, options, catalog, form)
    if rows is not None:
        from pathlib import Path

        return _answer_rows(Path(rows), {**options, **({"model": model} if model else {})}, catalog, form)
    question, where = question_of(model, options)
    from ironlaw.estimate.answer.estimate import answer
    from ironlaw.question.read import read_options

    estimate = answer({**read_options(question, where), **read_options(options)}, catalog)
    return show(estimate, form)


def _show_held(path: str, model: str | None, flags: dict[str, Any], folders: tuple[str, ...], form: Form) -> int:
    """Print the plan of an answer with the options that change, beside the plan that the tool would choose."""
    from ironlaw.estimate.what_if.change_options import hold
    from ironlaw.question.read import read_options

    question, where = question_of(model, flags) if model else ({}, "")
    held = hold(path, {**read_options(question, where), **read_options(flags)}, folders)
    return show(held.after, form, held)


def question_of(model: str | None, flags: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The options that the positional argument gives, and the file they come from: a TOML question, a launch script, or a model."""
    if model is None:
        example = "ironlaw estimate llama-3-8b --on h100-sxm --gpus 8"
        raise MissingOptionError(f"missing MODEL: a catalogue name, config.json, dimensions or run.toml; try: {example}", option="model")
    from pathlib import Path

    if (run := options_of_file(model, flags, OPTIONS)) is not None:
        return run, ""
    path = Path(model)
    if (launched := read_launch_file(path, flags)) is not None:
        return launched, path.name
    return (read_toml(path), path.name) if model.endswith(".toml") else ({"model": model}, "")


def read_launch_file(path: Path, flags: dict[str, Any]) -> dict[str, Any] | None:
    """The options of a launch script or configuration of another framework; None for any other file. Nothing in it is run."""
    from ironlaw.launch import readers
    from ironlaw.question.readers import whole

    with speaking_of("gpus", flags.get("gpus")):
        ranks = int(whole(flags["gpus"], "--gpus")) if "gpus" in flags and not isinstance(flags["gpus"], list) else None
    launched = readers.read_launch_file(path, ranks, flags.get("on"))
    for rule in launched[1] if launched else ():
        print_note(f"{path.name}: {rule}")
    return launched[0] if launched else None


def read_toml(path: Path) -> dict[str, Any]:
    """The options of a TOML question, at the top or in [plan], [cluster], [run], [training]; [model] has dimensions."""
    options = from_sections(files.read_toml(path, "a question"), path.name)
    beside = path.parent / str(options.get("model", ""))
    if isinstance(options.get("model"), str) and ("/" in options["model"] or options["model"].endswith(".json")) and files.is_there(beside):
        options["model"] = str(beside)
    return options


def show(estimate: Estimate, form: Form, held: Held | None = None) -> int:
    """Print one answer; the exit status is 0 if the plan fits. ``held``: how it came from another answer."""
    from ironlaw.estimate.legality.rules import broken
    from ironlaw.estimate.what_if.left_open import describe_settings, settings_left_open
    from ironlaw.estimate.what_if.near_counts import nearest_counts, no_such_plan
    from ironlaw.estimate.what_if.offers import offers
    from ironlaw.report.whole_answer import whole_answer

    group, at = estimate.place_of(0)
    settings = settings_left_open(estimate) if estimate.rows == 1 and form.explain is None and not form.cite else None
    if estimate.rows == 1 and form.name != "json" and broken(group.job, group.plan, group.rules, at):
        instead = f"; {describe_settings(settings)}" if settings else ""
        raise no_such_plan(estimate, f" from {held.saved.name}" if held else "", instead)
    unfit = estimate.rows == 1 and form.explain is None and not estimate.fits[0]
    near, offered = (nearest_counts(estimate), offers(estimate)) if unfit else (None, ())
    if form.explain is not None:
        from ironlaw.report.explanation import explain as explained

        text = explained(estimate, form.explain)  # in JSON too: it refuses a term that the answer does not have
    write_report(form, "estimate", lambda: _report_data(estimate, whole_answer(estimate, None, held, near, offered, settings)))
    if form.name == "json":
        data = whole_answer(estimate, form.explain, held, near, offered, settings)
        if form.timeline:
            for index, row in enumerate(data if isinstance(data, list) else [data]):
                row["timeline"] = estimate.timeline(index)
        text = json_text(data)
    elif form.explain is None and not form.cite:
        text = _page(estimate, form, held, near or (), offered, settings)
    if form.cite:
        write_cited(estimate, data if form.name == "json" else None)
        return max(row_status(estimate, i) for i in range(estimate.rows))
    print_text(text + "\n")
    return max(row_status(estimate, i) for i in range(estimate.rows))


def _report_data(estimate: Estimate, data: Any) -> Any:
    """What a report draws: the answer, or for several rows their table."""
    if isinstance(data, dict):
        return data
    from ironlaw.report.answer import answer_data
    from ironlaw.report.tables import estimate_answer

    return answer_data(estimate_answer(estimate, False), False)


def _page(
    estimate: Estimate, form: Form, held: Held | None, near: Sequence[float], offered: Sequence[Offer], settings: Settings | None
) -> str:
    """The answer as a page, as its first lines, as a line for each of several rows, or as tables."""
    if form.name != "table":
        from ironlaw.report.tables import estimate_answer

        return tables_text(estimate_answer(estimate, form.name == "csv"), form)
    from ironlaw.report.estimate import page, row_line

    if estimate.rows > 1:
        return "\n".join(row_line(estimate, i) for i in range(estimate.rows))
    if form.short:
        from ironlaw.report.brief import brief_estimate

        return brief_estimate(estimate, colour=wants_colour(), offered=offered, settings=settings)
    return page(estimate, colour=wants_colour(), held=held, near=near, offered=offered, settings=settings)


def row_status(estimate: Estimate, index: int) -> int:
    """0 for a row that fits, 1 for one that does not fit or has no estimate, 2 for a plan that breaks a rule."""
    group, at = estimate.place_of(index)
    if not group.legal[at]:
        return 2
    return 0 if group.memory.fits[at] and not math.isnan(group.step.tree.value[at]) else 1


def _answer_rows(path: Path, flags: dict[str, Any], folders: tuple[str, ...], form: Form) -> int:
    """Answer a CSV: one line (or JSON object, or row) per row, in order; a wrong row prints its error and does not stop the others."""
    from ironlaw.estimate.answer.table import answer_rows, read_table, strange_headers
    from ironlaw.report.estimate import row_line

    if form.explain is not None:
        raise QuestionError("--explain does not go with --rows: ask about one row")
    rows = read_table(path)
    for word in strange_headers(rows, folders):
        print_note(word)
    status, separator, table, errors = 0, "[\n ", [], []
    for item in answer_rows(path, flags, folders, rows):
        if item.estimate is None:
            assert item.error is not None
            status = max(status, item.error.exit_status)
            errors.append(f"line {item.line}: {item.error}")
            data: dict[str, Any] = {"error": item.error.data()}
            text = f"no: {item.error}"
        else:
            status = max(status, row_status(item.estimate, item.index))
            data = _row_data(item.estimate, item.index, form)
            text = row_line(item.estimate, item.index) if form.name == "table" else ""
        if form.name == "json":  # written as they come: ten thousand rows, each with its tree, do not fit into memory
            row = json_text({"id": item.label, "line": item.line, **data})
            print_text(separator + row.replace("\n", "\n "))
            separator = ",\n "
        elif form.name == "table":
            print_line(one_line(f"{item.label:<22} {text}"))
        else:
            table.append({"id": item.label, "line": item.line, "error": data.pop("error", {}).get("message"), **data})
    if form.name == "json":
        print_text("\n]\n")
    elif form.name != "table":
        from ironlaw.questions.answer import Answer
        from ironlaw.report.tables import rows_table

        answers = rows_table("estimates", "Estimates", table)
        print_text(tables_text(Answer(f"Estimates of {path.name}", (), [answers]), form) + "\n")
    if errors:
        print_note(f"{path.name}: {len(errors):,} of {len(rows):,} rows cannot be answered; the first is {errors[0]}")
    return status


def _row_data(estimate: Estimate, index: int, form: Form) -> dict[str, Any]:
    """One row as the object of the JSON, or as the row of a table."""
    if form.name == "json":
        return estimate.row(index)
    if form.name == "table":
        return {}
    from ironlaw.estimate.answer.columns import estimate_row

    return estimate_row(*estimate.place_of(index))


_GPUS = OPTIONS["gpus"].replace(says="total accelerators: N, a list, or LO..HI, which doubles; a row for each", metavar="N|A,B|LO..HI")
command.params += [*flags_of({**OPTIONS, "gpus": _GPUS}), explain_flag(), *form_flags(cite=True), catalog_flag()]
