"""The verb ``ironlaw catalog list|show|check``."""

from __future__ import annotations

import json
from typing import Any

import click

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.records import KINDS
from ironlaw.catalog.schema import Schema
from ironlaw.cli.complete import complete_clouds, complete_every_record, complete_kinds
from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import Form, print_line, print_text, read_form, tables_text
from ironlaw.errors import QuestionError, UnknownNameError, one_line
from ironlaw.question.options import OPTIONS


@click.group("catalog", no_args_is_help=False)
@click.option("--catalog", multiple=True, metavar="DIR", help="folder of your records, which override the shipped ones")
@click.pass_context
def command(ctx: click.Context, catalog: tuple[str, ...]) -> None:
    """Print or check the records of accelerators, models, prices and so on, with their sources."""
    ctx.obj = load.given_folders(catalog)


CODES = ("sites",)  # kinds whose other names are codes that people look for, such as the regions of clouds
LISTS = ("terms", "options")  # what else has a list: the names of explained terms, and of options


@command.command("list", cls=AnswerCommand)
@click.argument("kind", required=False, shell_complete=complete_kinds)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.option("--format", "how", metavar="HOW", help="table, json, csv or markdown (default: table)")
@click.pass_obj
def list_names(folders: tuple[str, ...], kind: str | None, as_json: bool, how: str | None) -> int:
    """Print the names of all records, or of one KIND with what each is.

    KIND is accelerators, models, frameworks and so on; `terms`, the names that --explain takes; or `options`, those of an estimate.
    """
    form = read_form(how, as_json)
    if kind is not None:
        return _list_kind(kind, folders, form)
    names = {k: load.names(k, folders) for k in KINDS}
    if form.name == "json":
        print_text(json.dumps(names, indent=1) + "\n")
    elif form.name == "table":
        for name, members in names.items():
            print_line(f"{name} ({len(members)})")
            print_line(click.wrap_text(", ".join(members), 110, "  ", "  "))
    else:
        rows = [{"kind": k, "name": name} for k, members in names.items() for name in members]
        _print_rows("names", rows, form)
    return 0


def _list_kind(kind: str, folders: tuple[str, ...], form: Form) -> int:
    """Print the names of one kind, and a line about each."""
    if kind in LISTS:
        rows = _terms(folders) if kind == "terms" else _options()
    else:
        kind = _read_kind(kind) or kind
        codes = _list_codes(kind, folders)
        rows = [{"name": name, "is": load.record(kind, name, folders).title + codes.get(name, "")} for name in load.names(kind, folders)]
    if form.name == "json":
        listed: dict[str, Any] = {kind: [row["name"] for row in rows]}
        if kind not in LISTS:
            from ironlaw.report.cards import cards

            listed["cards"] = cards(kind, folders)
        print_text(json.dumps(listed, indent=1, allow_nan=False) + "\n")
    elif form.name == "table":
        print_line(f"{kind} ({len(rows)})")
        width = max((len(row["name"]) for row in rows), default=0)
        for row in rows:
            print_line(f"  {row['name']:<{width}}  {row['is']}".rstrip())
    else:
        _print_rows(kind, rows, form)
    return 0


def _list_codes(kind: str, folders: tuple[str, ...]) -> dict[str, str]:
    """The other names of each record in brackets, for kinds whose other names are codes."""
    by_name: dict[str, list[str]] = {}
    for spelling, name in load.written_aliases(folders)[kind].items() if kind in CODES else ():
        by_name.setdefault(name, []).append(spelling)
    return {name: f" ({', '.join(codes)})" for name, codes in by_name.items()}


def _print_rows(name: str, rows: list[dict[str, str]], form: Form) -> None:
    """Print names as CSV or Markdown."""
    from ironlaw.questions.answer import Answer
    from ironlaw.report.tables import rows_table

    print_text(tables_text(Answer(f"Catalogue: {name}", (), [rows_table(name, name, rows)]), form) + "\n")


def _options() -> list[dict[str, str]]:
    """Every option of an estimate with its help."""
    return [{"name": f"--{name.replace('_', '-')}", "is": option.help} for name, option in OPTIONS.items() if name != "model"]


_TYPICAL = (  # questions whose answers together have the terms that an estimate can have
    {"model": "llama-3-8b", "gpus": 64, "tp": 2, "pp": 2, "cp": 2, "zero": 1, "tokens": 1e12},
    {"model": "deepseek-v3", "gpus": 2048, "tp": 1, "pp": 16, "ep": 64, "zero": 1, "tokens": 1e12},
    {"model": "llama-3-8b", "gpus": 8, "tp": 1, "pp": 1, "zero": 3, "lora_rank": 16, "offload": "activations", "evaluate_every": 100},
)


def _terms(folders: tuple[str, ...]) -> list[dict[str, str]]:
    """The names of the terms of typical estimates; --explain list prints those of one answer."""
    from ironlaw.estimate.answer.estimate import answer
    from ironlaw.question.read import read_options
    from ironlaw.report.explanation import term_names

    names: dict[str, None] = {}
    for question in _TYPICAL:
        names |= dict.fromkeys(term_names(answer(read_options({"on": "h100-sxm", **question}), folders)))
    return [{"name": name, "is": ""} for name in names]


def _read_kind(kind: str | None) -> str | None:
    """The kind of record with this plural or singular name."""
    if kind is None or kind in KINDS:
        return kind
    plural = next((k for k, singular in load.SINGULAR.items() if singular == kind), None)
    if plural is None:
        raise UnknownNameError("kind of record", kind, [*KINDS, *LISTS])
    return plural


@command.command("show", cls=AnswerCommand)
@click.argument("name", shell_complete=complete_every_record)
@click.option("--kind", metavar="KIND", help="kind of record, where several have the name")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.option("--format", "how", metavar="HOW", help="table or json (default: table)")
@click.pass_obj
def show(folders: tuple[str, ...], name: str, kind: str | None, as_json: bool, how: str | None) -> int:
    """Print the values of the records called NAME, with their sources."""
    form = read_form(how, as_json)
    if form.name in ("csv", "markdown"):
        raise QuestionError(f"--format {form.name}: a record is no table; give table or json")
    kind = _read_kind(kind)
    records = []
    for k in [kind] if kind else KINDS:
        try:
            records.append((k, load.record(k, name, folders)))
        except UnknownNameError:
            continue
    if not records:
        raise UnknownNameError("record", name, [n for k in ([kind] if kind else KINDS) for n in load.names(k, folders)])
    if form.name == "json":
        from ironlaw.report.records import plain_data

        print_text(json.dumps({k: plain_data(record) for k, record in records}, indent=1) + "\n")
        return 0
    for k, record in records:
        print_line(f"{load.SINGULAR[k]} {record.name}: {record.title}")
        for line in _describe(record, "  "):
            print_line(line)
    return 0


def _describe(record: Any, pad: str) -> list[str]:
    """A record as indented lines of value and source."""
    from ironlaw.catalog.sourced import Source, Sourced
    from ironlaw.report.records import fields_of

    lines = []
    for name, value in fields_of(record):
        if isinstance(value, Sourced):
            lines.append(f"{pad}{name} = {value.text}{f' ({value.note})' if value.note else ''}")
            lines.append(f"{pad}    {value.source.line() if value.source else 'no source'}")
        elif isinstance(value, Source):
            lines.append(f"{pad}source of the plain numbers: {value.line()}")
        elif isinstance(value, dict) and value and not isinstance(next(iter(value.values())), str):
            for key, item in value.items():
                if isinstance(item, Sourced):
                    lines.append(f"{pad}{name}.{key} = {item.text}{f' ({item.note})' if item.note else ''}")
                    lines.append(f"{pad}    {item.source.line() if item.source else 'no source'}")
                else:
                    lines.append(f"{pad}{name}.{key}")
                    lines += _describe(item, pad + "  ")
        elif isinstance(value, tuple) and value and isinstance(value[0], Schema):
            for item in value:
                lines.append(f"{pad}{name}")
                lines += _describe(item, pad + "  ")
        elif isinstance(value, Schema):
            lines.append(f"{pad}{name}")
            lines += _describe(value, pad + "  ")
        elif value not in (None, (), {}, ""):
            lines.append(f"{pad}{name} = {value}")
    return lines


@command.command("clouds", cls=AnswerCommand)
@click.argument("cloud", required=False, shell_complete=complete_clouds)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.option("--format", "how", metavar="HOW", help="table, json, csv or markdown (default: table)")
@click.pass_obj
def list_clouds(folders: tuple[str, ...], cloud: str | None, as_json: bool, how: str | None) -> int:
    """Print what clouds rent for training, or one CLOUD: each instance type, its node record, network and price.

    An instance type is also a name of its node: --node p5.48xlarge.
    """
    from ironlaw.catalog.clouds import instances
    from ironlaw.cli.output import json_text
    from ironlaw.questions.answer import Answer, Column, Table, filled_columns
    from ironlaw.report.answer import answer_page

    form, rows = read_form(how, as_json), instances(folders, cloud or "")
    columns = (
        Column("cloud", "cloud"), Column("instance", "instance type"), Column("accelerator", "accelerator"), Column("count", "count", "1"),
        Column("node", "node"), Column("network", "network", "B/s"), Column("per_accelerator", "of one accelerator", "B/s"),
        Column("usd_per_hour", "USD/h of one", "USD"), Column("priced", "price of"), Column("missing", "what is missing"),
    )  # fmt: skip
    if form.name == "json":
        print_text(json_text({"instances": rows}) + "\n")
        return 0
    known = sum(row["node"] is not None for row in rows)
    headline = [f"{known} of {len(rows)} instance types have a node record; --node takes their names"]
    answer = Answer("What clouds rent for training", headline, [Table("instances", "Instance types", filled_columns(columns, rows), rows)])
    print_text((answer_page(answer) if form.name == "table" else tables_text(answer, form)) + "\n")
    return 0


@command.command("check", cls=AnswerCommand)
@click.option("--stale-after", metavar="DAYS", default="365", help="name prices that are older than this (default: 365)")
@click.option("--strict", is_flag=True, help="exit with status 1 also where a price is stale (default: where a record is wrong)")
@click.pass_obj
def check(folders: tuple[str, ...], stale_after: str, strict: bool) -> int:
    """Check every record: schema, a source for every number, and values that contradict each other; name prices that are old."""
    from datetime import date

    from ironlaw.catalog.audit import audit, stale_prices, unverified
    from ironlaw.estimate.layer.counts import count_problem

    problems = audit(folders)
    if not problems:
        counts = [count_problem(load.record("models", name, folders)) for name in load.names("models", folders)]
        problems = [f"models: {problem}" for problem in counts if problem]
    for problem in problems:
        print_line(one_line(problem))
    days = units.parse_count(stale_after.strip().removesuffix("days").removesuffix("d"), "--stale-after")
    stale = [] if problems else stale_prices(days, date.today().isoformat(), folders)
    for line in stale:
        print_line(one_line(f"stale: {line}"))
    records = sum(len(load.names(k, folders)) for k in KINDS)
    print_line(
        f"{records} records, {len(problems)} problems, {len(unverified(folders))} sources cited from memory, not yet checked,"
        f" {len(stale)} groups of prices older than {days:g} days"
    )
    return 1 if problems or (strict and stale) else 0
