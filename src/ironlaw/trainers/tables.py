"""The tables of trainers: which keys mean what. Each is a file of ``data``; ``data/trainers.toml`` says how a file is recognised."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ironlaw.files import parse_toml, read_shipped
from ironlaw.frozen import Frozen

DATA = Path(__file__).parent / "data"


class Trainer(NamedTuple):
    """How a trainer's file is recognised: its syntax, and groups of keys of each of which one is there; or the program that is started."""

    name: str
    title: str
    syntaxes: tuple[str, ...]
    marks: tuple[tuple[str, ...], ...]
    without: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


class Row(NamedTuple):
    """What one key means: the fact that it gives, and how its value becomes that of the fact."""

    to: str = ""
    map: Mapping[str, Any] | None = None  # by the value in lower case; None: the value as it is
    each: bool = False  # the value is several words, each of them mapped
    approximate: str = ""  # it changes the answer, and is not counted: why
    since: str = ""  # the version that has it first
    until: str = ""  # the last version that reads it
    matches: Sequence[tuple[str, Mapping[str, Any]]] = ()  # the facts of the first pattern that the value matches; $1 is its group
    on: str = ""  # a true value gives this, a false one nothing


class Default(NamedTuple):
    """What a trainer takes where the file gives no such fact."""

    value: Any
    why: str  # "" where the value says what the trainer is, and no choice of its own
    since: str = ""


class Table(Frozen):
    """The keys of one trainer."""

    name: str
    title: str
    framework: str
    version: str
    url: str
    read: str
    takes: Mapping[str, Row]
    ignored: Mapping[str, str]
    refused: Mapping[str, str]
    defaults: Mapping[str, Default]
    includes: Mapping[str, str]
    models: Mapping[str, str]

    def row(self, key: str) -> tuple[str, Any]:
        """What is said of a key: ``takes`` and its row, ``ignored`` or ``refused`` and why, ``include`` and a trainer, or "" for nothing.

        The key itself counts before a pattern, and before a table that it stands in.
        """
        plain = key.replace("[]", "")
        for name in _above(plain):
            if name in self.includes:
                return ("include", self.includes[name]) if name == plain else ("", None)
            for what, listed in (("takes", self.takes), ("refused", self.refused), ("ignored", self.ignored)):
                if name in listed and (what != "takes" or name == plain):
                    return what, listed[name]
            for what, listed in (("refused", self.refused), ("ignored", self.ignored)):
                found = next((why for pattern, why in listed.items() if "*" in pattern and fnmatch.fnmatchcase(name, pattern)), None)
                if found is not None:
                    return what, found
        return "", None

    @property
    def known(self) -> list[str]:
        """All keys that are in the table."""
        return [key for key in (*self.takes, *self.ignored, *self.refused, *self.includes) if "*" not in key]


def _above(key: str) -> list[str]:
    """A key, and the tables that it stands in, the innermost first.

    >>> _above("a.b.c")
    ['a.b.c', 'a.b', 'a']
    """
    parts = key.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


@cache
def trainers() -> tuple[Trainer, ...]:
    """All trainers, in the order in which a file is compared with them."""
    found = parse_toml(read_shipped(DATA / "trainers.toml"), "trainers.toml")
    return tuple(
        Trainer(
            name,
            row["title"],
            tuple(row["syntaxes"]),
            tuple(tuple(group.split("|")) for group in row.get("marks", ())),
            tuple(row.get("without", ())),
            tuple(row.get("programs", ())),
        )
        for name, row in found.items()
    )


def recognise(keys: Collection[str], syntax: str, program: Collection[str] = ()) -> Trainer | None:
    """The trainer that a file is for, by its syntax and its keys, or by the program that a script starts; None for none that is known.

    >>> recognise(["base_model", "micro_batch_size"], "yaml").title
    'axolotl'
    """
    names = {part for key in keys for part in _above(key.replace("[]", ""))}
    for trainer in trainers():
        if syntax not in trainer.syntaxes or set(trainer.without) & names:
            continue
        started = any(word.rpartition("/")[2] in trainer.programs for word in program)
        if started or (trainer.marks and all(set(group) & names for group in trainer.marks)):
            return trainer
    return None


@cache
def table_of(name: str) -> Table:
    """The table of a trainer; what it is ``like`` gives the rows that it has not itself."""
    data = parse_toml(read_shipped(DATA / f"{name}.toml"), f"{name}.toml")
    parents = [table_of(other) for other in data.get("like", ())]
    own: dict[str, dict[str, Any]] = {
        "takes": {key: _row(value) for key, value in data.get("takes", {}).items()},
        "ignored": _by_key(data.get("ignored", {})),
        "refused": _by_key(data.get("refused", {})),
        "includes": dict(data.get("includes", {})),
    }
    mine = {key for table in own.values() for key in table}
    merged = {
        what: {**{key: value for parent in parents for key, value in getattr(parent, what).items() if key not in mine}, **table}
        for what, table in own.items()
    }
    defaults = {fact: value for parent in parents for fact, value in parent.defaults.items()}
    defaults |= {fact: _default(value) for fact, value in data.get("defaults", {}).items()}
    defaults = {fact: default for fact, default in defaults.items() if default.value != ""}
    models = {key: value for parent in parents for key, value in parent.models.items()} | dict(data.get("models", {}))
    source = data["source"]
    return Table(
        name=name, title=data["title"], framework=data["framework"], version=data["version"], url=source["url"], read=str(source["read"]),
        defaults=defaults, models=models, **merged,
    )  # fmt: skip


def _row(value: Any) -> Row:
    return Row(value) if isinstance(value, str) else Row(**value)


def _default(value: Any) -> Default:
    return Default(**value) if isinstance(value, dict) else Default(value, "")


def _by_key(listed: Mapping[str, str]) -> dict[str, str]:
    """Reasons by key, of a table of keys by reason."""
    return {key: why for why, keys in listed.items() for key in keys.split()}
