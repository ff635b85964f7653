"""The verb ``ironlaw catalog list|show|check``."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from ironlaw.catalog import load
from ironlaw.catalog.records import KINDS
from ironlaw.catalog.schema import Schema
from ironlaw.errors import UnknownNameError


@click.group("catalog")
@click.option("--catalog", multiple=True, metavar="DIR", help="folder of your records, which override the shipped ones")
@click.pass_context
def command(ctx: click.Context, catalog: tuple[str, ...]) -> None:
    """Print or check the records of accelerators, models, prices and so on, with their sources."""
    ctx.obj = load.given_folders(catalog)


@command.command("list")
@click.argument("kind", required=False)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.pass_obj
def list_names(folders: tuple[str, ...], kind: str | None, as_json: bool) -> int:
    """Print the names of all records, or of one KIND (accelerators, models, sites, ...) with their other names."""
    kind = _read_kind(kind)
    names = {k: load.names(k, folders) for k in ([kind] if kind else KINDS)}
    if as_json:
        sys.stdout.write(json.dumps(names, indent=1) + "\n")
        return 0
    for name, members in names.items():
        click.echo(f"{name} ({len(members)})")
        click.echo(click.wrap_text(", ".join(members), 110, "  ", "  "))
    if kind and (other := load.aliases(folders)[kind]):
        click.echo(f"other names ({len(other)})")
        by_name: dict[str, list[str]] = {}
        for spelling, name in other.items():
            by_name.setdefault(name, []).append(spelling)
        for name, spellings in sorted(by_name.items()):
            click.echo(f"  {name}: {', '.join(spellings)}")
    return 0


def _read_kind(kind: str | None) -> str | None:
    """The kind of record with this plural or singular name."""
    if kind is None or kind in KINDS:
        return kind
    plural = next((k for k, singular in load.SINGULAR.items() if singular == kind), None)
    if plural is None:
        raise UnknownNameError("kind of record", kind, KINDS)
    return plural


@command.command("show")
@click.argument("name")
@click.option("--kind", metavar="KIND", help="kind of record, where several have the name")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.pass_obj
def show(folders: tuple[str, ...], name: str, kind: str | None, as_json: bool) -> int:
    """Print the values of the records called NAME, with their sources."""
    kind = _read_kind(kind)
    records = []
    for k in [kind] if kind else KINDS:
        try:
            records.append((k, load.record(k, name, folders)))
        except UnknownNameError:
            continue
    if not records:
        raise UnknownNameError("record", name, [n for k in ([kind] if kind else KINDS) for n in load.names(k, folders)])
    if as_json:
        sys.stdout.write(json.dumps({k: _plain_data(record) for k, record in records}, indent=1) + "\n")
        return 0
    for k, record in records:
        click.echo(f"{load.SINGULAR[k]} {record.name}: {record.title}")
        for line in _describe(record, "  "):
            click.echo(line)
    return 0


def _fields(record: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(record, name)) for name in record.fields if name not in ("name", "title")]


def _describe(record: Any, pad: str) -> list[str]:
    """A record as indented lines of value and source."""
    from ironlaw.catalog.sourced import Source, Sourced

    lines = []
    for name, value in _fields(record):
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


def _plain_data(value: Any) -> Any:
    """A record as data for JSON."""
    from ironlaw.catalog.sourced import Source, Sourced

    if isinstance(value, Sourced):
        source = value.source
        return {"value": value.value, "unit": value.unit, "text": value.text, "note": value.note, "source": _plain_data(source)}
    if isinstance(value, Source):
        return {"key": value.key, "title": value.title, "url": value.url, "read": value.read, "grade": value.grade}
    if isinstance(value, dict):
        return {k: _plain_data(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return [_plain_data(v) for v in value]
    if isinstance(value, Schema):
        return {"name": getattr(value, "name", None), "title": getattr(value, "title", None)} | {
            k: _plain_data(v) for k, v in _fields(value)
        }
    return value


@command.command("check")
@click.pass_obj
def check(folders: tuple[str, ...]) -> int:
    """Check every record: schema, a source for every number, and values that contradict each other."""
    from ironlaw.catalog.audit import audit, unverified
    from ironlaw.estimate.layer.counts import count_problem

    problems = audit(folders)
    if not problems:
        counts = [count_problem(load.record("models", name, folders)) for name in load.names("models", folders)]
        problems = [f"models: {problem}" for problem in counts if problem]
    for problem in problems:
        click.echo(problem)
    records = sum(len(load.names(k, folders)) for k in KINDS)
    click.echo(f"{records} records, {len(problems)} problems, {len(unverified(folders))} sources cited from memory, not yet checked")
    return 1 if problems else 0
