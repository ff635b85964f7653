"""``ironlaw plan``: search for the best plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ironlaw.cli.cite import write_cited
from ironlaw.cli.complete import complete_records
from ironlaw.cli.flags import catalog_flag, explain_flag, flags_of, form_flags
from ironlaw.cli.help import GroupedCommand
from ironlaw.cli.output import Form, json_text, print_line, print_note, print_text, read_form, tables_text, wants_colour
from ironlaw.cli.report import write_report
from ironlaw.cli.trainer_file import options_of_file
from ironlaw.errors import MissingOptionError, QuestionError, import_extra
from ironlaw.files import check_output, write_file
from ironlaw.question.options import OPTIONS
from ironlaw.search.question import OWN

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer
    from ironlaw.search.answer import Choice, SearchResult
    from ironlaw.search.question import Question

_EXAMPLES = """
\b
Examples:
  ironlaw plan llama-3-70b --on h100-sxm --gpus 512 --global-batch-size 512 --tokens 1T
  ironlaw plan llama-3-70b --on h100-sxm,mi300x --gpus 64..2048 --tokens 2T --deadline 30 --minimize cost
  ironlaw plan llama-3-8b --on h100-sxm --budget 200k --deadline 14 --tokens 1T --price 2.5
  ironlaw plan deepseek-v3 --on h800 --gpus 2048 --global-batch-size 15360 --fix ep=64,tp=1 --forbid "pp>16"
  ironlaw plan gpt-3-175b --on a100-sxm-80gb --gpus 1024 --global-batch-size 1536 --top 100 --csv plans.csv
  ironlaw plan llama-3-70b --on h100-sxm --gpus 512 --describe-space
"""


@click.command("plan", cls=GroupedCommand, own="Search", epilog=_EXAMPLES)
@click.argument("model", required=False, shell_complete=complete_records("models", files=True))
@click.option("--describe-space", is_flag=True, help="print the axes, their values and the number of meshes; search nothing")
@click.option("--csv", "csv_file", is_flag=False, flag_value="-", metavar="[FILE]", help="write the listed plans as CSV, or print it")
@click.option("--parquet", "parquet_file", metavar="FILE", help="write the listed plans as Parquet (needs pyarrow)")
def command(
    model: str | None,
    describe_space: bool,
    explain: str | None,
    as_json: bool,
    how: str | None,
    short: bool,
    csv_file: str | None,
    parquet_file: str | None,
    cite: bool,
    html: str | None,
    catalog: tuple[str, ...],
    **flags: Any,
) -> int:
    """Search the plans for MODEL: a catalogue name, a config.json, dimensions, or a question.toml with the options.

    Times every layout of the accelerators, and prints the best plan and why, the next best of other kinds, how many accelerators to
    use, and what to buy next.
    """
    from ironlaw.catalog.load import given_folders
    from ironlaw.search.question import read_question

    form = read_form(how, as_json, explain, short, cite, html)
    if form.name != "table" and csv_file == "-":
        raise QuestionError("--csv prints the list of plans: leave out --csv, or --json and --format")
    options = {name: value for name, value in flags.items() if value is not None}
    for option, name in (("--csv", csv_file), ("--parquet", parquet_file)):
        if name is not None and (option, name) != ("--csv", "-"):
            check_output(name, option)
    folders = given_folders(catalog)
    question = read_question(*_read_options(model, options), folders)
    if describe_space:
        if csv_file or parquet_file or html or explain is not None or form.name in ("csv", "markdown"):
            raise QuestionError("--describe-space searches nothing: leave out --csv, --parquet, --html, --format and --explain")
        return _describe(question, folders, form.name == "json")
    return _search(question, folders, form, csv_file, parquet_file)


def _read_options(model: str | None, flags: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The options of a question file or a model's name, replaced by those of flags, and the name of the file."""
    if model is None:
        raise MissingOptionError(
            "missing MODEL; try: ironlaw plan llama-3-8b --on h100-sxm --gpus 64 --global-batch-size 512", option="model"
        )
    if (run := options_of_file(model, flags, {*OPTIONS, *OWN}, searching=True)) is not None:
        return {**run, **flags}, ""
    if not model.endswith(".toml"):
        return {"model": model, **flags}, ""
    from ironlaw.cli.estimate import read_toml

    return {**read_toml(Path(model)), **flags}, Path(model).name


def _search(question: Question, folders: tuple[str, ...], form: Form, csv_file: str | None, parquet_file: str | None) -> int:
    """Search, then print or write the result; 1 where no plan meets the question, 2 where none is legal."""
    from ironlaw.search.answer import run
    from ironlaw.search.as_data import plan_table, search_data

    tables = csv_file is not None or parquet_file is not None
    result = run(question, folders)
    explained = _explain_best(result, result.listed()[0], form.explain) if form.explain is not None else ""
    data = search_data(result, form.explain is not None, advice=not tables or form.name != "table", outlined=form.name == "json")
    write_report(form, "plan", lambda: data)
    if parquet_file is not None:
        write_parquet(plan_table(data), parquet_file)
    if csv_file is not None:
        write_csv(plan_table(data), csv_file)
    if form.cite:
        write_cited(result, data if form.name == "json" else None)
    elif form.name == "json":
        print_text(json_text(data) + "\n")
    elif explained:
        print_text(explained + "\n")
    elif form.name != "table":
        print_text(tables_text(_tables(data, plan_table(data)), form) + "\n")
    elif not tables:
        print_text(_page(result, data, form))
    elif not data["plans"]:
        print_note("no plan meets the question; run it without --csv and --parquet to see why")
    if data["plans"]:
        return 0
    return 1 if data["space"]["legal"] or result.partial else 2


def _page(result: SearchResult, data: dict[str, Any], form: Form) -> str:
    """The page of a search, or its first lines."""
    if form.short:
        from ironlaw.report.brief import brief_search

        return brief_search(data, colour=wants_colour()) + "\n"
    from ironlaw.report.search import page

    return page(data, colour=wants_colour()) + "\n" + _stage_arguments(result, data)


def _explain_best(result: SearchResult, choices: list[Choice], term: str) -> str:
    """A term of the best plan's estimate, or every term; nothing where no plan meets the question. A term it lacks is refused."""
    if not choices:
        return ""
    from ironlaw.report.explanation import explain

    estimate, row = result.explained(choices)[0]
    return explain(estimate, term, row)


def _tables(data: dict[str, Any], plans: list[dict[str, Any]]) -> Answer:
    """The plans, the Pareto front and the numbers of accelerators as tables."""
    from ironlaw.report.tables import data_answer

    question = data["question"]
    paths = {"listed": "Plans, best first", "pareto": "Pareto front", "sizes.by_gpus": "Numbers of accelerators", "misses": "What to relax"}
    return data_answer(f"{question['model']} on {', '.join(question['on'])}", {**data, "listed": plans}, paths)


def _stage_arguments(result: SearchResult, data: dict[str, Any]) -> str:
    """Megatron-LM's arguments for the stages of the best plan, where they differ in length."""
    from shlex import join

    from ironlaw.launch.flags import takes_megatron_arguments
    from ironlaw.launch.megatron.patterns import stage_flags

    plan = data["plans"][0]["plan"] if data["plans"] else {}
    if "layers_per_stage" not in plan or not takes_megatron_arguments(plan["framework"]):
        return ""
    further = result.settings[0].bound.model.num_nextn_predict_layers
    return f"Stages in Megatron-LM: {join(stage_flags(plan['layers_per_stage'], plan['vpp'], further))}\n"


def write_csv(rows: list[dict[str, Any]], name: str) -> None:
    """Write the rows as CSV into a file, whole or not at all, or on standard output."""
    import csv
    import io

    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if name == "-":
        print_text(text.getvalue())
        return
    write_file(name, text.getvalue().encode(), "--csv")


def write_parquet(rows: list[dict[str, Any]], path: str) -> None:
    """Write the rows as Parquet, whole or not at all."""
    pyarrow = import_extra("pyarrow", "tables", "--parquet (--csv needs nothing)")
    parquet = import_extra("pyarrow.parquet", "tables", "--parquet (--csv needs nothing)")
    import io

    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
    write_file(path, sink.getvalue(), "--parquet")


def _describe(question: Question, folders: tuple[str, ...], as_json: bool) -> int:
    """Print the axes of a space and the number of meshes of each setting."""
    from ironlaw.estimate.planner.unsearched import describe_unsearched
    from ironlaw.report.terminal import short
    from ironlaw.search.answer import describe_space

    data = describe_space(question, folders)
    if as_json:
        from ironlaw.estimate.answer.as_data import common_keys

        print_text(json_text({**common_keys([], [], folders), **data}) + "\n")
        return 0
    print_line(f"{data['title']}")
    for axis, row in data["axes"].items():
        print_line(f"  {axis:<22}{row['size'] if row['size'] is not None else '-':>5}  {', '.join(short(v) for v in row['values'])}")
    print_line(f"  not searched: {describe_unsearched(data['not_searched'])}")
    for rule in data["forbidden"]:
        print_line(f"  forbidden: {rule}")
    for row in data["settings"]:
        print_line(f"{row['gpus']:>9,.0f} x {row['accelerator']:<18}{row['rows']:>10,} meshes, at most {row['choices']:,} choices each")
    print_line(f"total: {data['rows']:,} meshes, at most {data['most_plans']:,} plans")
    return 0


command.params += [*flags_of({**OWN, **{name: option for name, option in OPTIONS.items() if name not in OWN}})]
command.params += [explain_flag(), *form_flags(cite=True), catalog_flag()]
