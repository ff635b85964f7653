"""The tables of frameworks: which key says which fact of a plan, how, since which version, and why. Each is a file of ``data``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ironlaw.errors import UnknownNameError, ValueRangeError
from ironlaw.files import parse_toml, read_shipped
from ironlaw.frozen import Frozen

DATA = Path(__file__).parent / "data"
FRAMEWORKS = ("megatron", "bridge", "torchtitan", "deepspeed", "accelerate", "nemo", "maxtext", "axolotl", "torchtune")  # words of --for
YOURS = "yours: set it"  # why of a line that no plan decides


class Key(NamedTuple):
    """One key of a framework: the fact that it says, and when and how it is written."""

    key: str
    of: str = ""  # the fact whose value it has
    value: Any = None  # instead of a fact's: the value that is written
    map: Mapping[str, Any] | None = None  # value of the fact -> what is written; "*" any other, "" nothing; None: the fact as it is
    when: Mapping[str, Any] = {}  # facts that must have one of some values, else the key is left out
    says: tuple[str, ...] = ()  # further facts that it says
    why: str = ""  # with facts in braces
    part: str = "file"  # or program: an argument of the program that is started
    since: str = ""  # the first version that reads it
    until: str = ""  # the last
    form: str = ""  # number: a word as a number; list: words in brackets


class Variable(NamedTuple):
    """An environment variable of a run."""

    name: str
    value: str
    why: str
    when: Mapping[str, Any] = {}
    url: str = ""


class Table(Frozen):
    """How one framework is configured."""

    name: str
    title: str
    stacks: tuple[str, ...]  # records of the catalogue that it runs; the first is taken for a plan of another
    version: str
    file: str
    syntax: str  # yaml | toml | json: a file; shell, overrides: arguments, --NAME VALUE or NAME=VALUE
    start: str  # torchrun | accelerate | deepspeed | tune | python
    program: str  # what the launcher starts, with {file}
    dialect: str  # flags: the facts are the arguments of Megatron-LM; plan: they are the options of a plan
    url: str
    read: str
    keys: tuple[Key, ...]
    environment: tuple[Variable, ...]
    always: Mapping[str, tuple[Any, ...]]  # fact -> values that it has without a key
    models: Mapping[str, str]
    why: Mapping[str, str]


@cache
def table_of(name: str) -> Table:
    """The table of a framework by the word of ``--for``."""
    if name not in FRAMEWORKS:
        raise UnknownNameError("--for", name, FRAMEWORKS)
    data = parse_toml(read_shipped(DATA / f"{name}.toml"), f"{name}.toml")
    source = data["source"]
    return Table(
        name=name, title=data["title"], stacks=tuple(data["stacks"]), version=data["version"], file=data["file"], syntax=data["syntax"],
        start=data["start"], program=data["program"], dialect=data.get("dialect", "plan"), url=source["url"], read=str(source["read"]),
        keys=tuple(_key(row) for row in data.get("keys", ())), environment=tuple(Variable(**row) for row in data.get("environment", ())),
        always={fact: tuple(values) for fact, values in data.get("always", {}).items()}, models=data.get("models", {}),
        why=data.get("why", {}),
    )  # fmt: skip


def _key(row: Mapping[str, Any]) -> Key:
    return Key(**{**row, "says": tuple(row.get("says", ()))})


def keys_of(table: Table, version: str) -> list[Key]:
    """The keys that a version reads.

    >>> [key.key for key in keys_of(table_of("axolotl"), "0.11") if key.of == "cp"]
    ['sequence_parallel_degree']
    """
    asked = numbers_of(version)
    return [key for key in table.keys if numbers_of(key.since) <= asked and (not key.until or asked <= numbers_of(key.until))]


def numbers_of(version: str) -> tuple[int, ...]:
    """The numbers of a version, to compare; none for none.

    >>> numbers_of("0.16.1") > numbers_of("0.9"), numbers_of("")
    (True, ())
    """
    if version and not re.fullmatch(r"v?\d+(\.\d+){0,3}", version):
        raise ValueRangeError(f"--version is {version!r}, must be numbers with dots such as 0.16")
    return tuple(int(number) for number in re.findall(r"\d+", version))
