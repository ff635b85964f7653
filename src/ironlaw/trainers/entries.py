"""The settings of a file, whatever its syntax: dotted key, value, line and column. No parser here runs anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ironlaw.errors import InputError
from ironlaw.frozen import Frozen

MOST_ENTRIES = 20_000  # settings of a file; an alias may stand for many
DEEPEST = 40  # tables in tables


class Entry(NamedTuple):
    """One setting: its key with dots between the tables that it stands in, its value, and where it stands, from 1."""

    key: str
    value: Any
    line: int
    column: int = 1


class Unresolved(NamedTuple):
    """A value that only the running program knows, as it is written."""

    text: str

    def __str__(self) -> str:
        return self.text


class Parsed(Frozen):
    """A file as settings; ``launcher`` has those of the program that starts the trainer, and ``program`` the trainer's words."""

    name: str
    syntax: str
    entries: tuple[Entry, ...]
    launcher: tuple[Entry, ...] = ()
    program: tuple[str, ...] = ()


def wrong(name: str, line: int, why: str) -> InputError:
    """The error of a file that cannot be read, with its line."""
    return InputError(f"{name}:{line}: {why}")


def flattened(value: Any, key: str, at: Callable[[str], tuple[int, int]], depth: int = 0) -> Iterator[Entry]:
    """The settings below a value; a list of plain values is one setting, of tables one for each key, under ``key[]``.

    >>> [entry.key for entry in flattened({"a": {"b": [1, 2]}, "c": [{"d": 3}]}, "", lambda key: (1, 1))]
    ['a.b', 'c[].d']
    """
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from flattened(item, f"{key}.{name}" if key else str(name), at, depth + 1)
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for item in value:
            yield from flattened(item, f"{key}[]", at, depth + 1)
    else:
        yield Entry(key, value, *at(key))


def counted(entries: Iterator[Entry], name: str) -> tuple[Entry, ...]:
    """Entries, unless there are more than a configuration has."""
    kept: list[Entry] = []
    for entry in entries:
        kept.append(entry)
        if len(kept) > MOST_ENTRIES:
            raise wrong(name, entry.line, f"more than {MOST_ENTRIES:,} settings: no configuration of a trainer")
    return tuple(kept)


_INTERPOLATION = re.compile(r"\$\{([\w.]+)\}")


def interpolated(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Entries whose ``${key}`` of the same file have values; what an environment or a resolver gives stays unresolved.

    >>> interpolated((Entry("n", 4, 1), Entry("m", "${n}", 2), Entry("k", "${oc.env:K}", 3)))[1:]
    (Entry(key='m', value=4, line=2, column=1), Entry(key='k', value=Unresolved(text='${oc.env:K}'), line=3, column=1))
    """
    values = {entry.key: entry.value for entry in entries}

    def resolved(value: Any, depth: int = 0) -> Any:
        if not isinstance(value, str) or ("${" not in value and "{{" not in value):
            return value
        whole = _INTERPOLATION.fullmatch(value.strip())
        if whole and whole[1] in values and depth < DEEPEST:
            return resolved(values[whole[1]], depth + 1)
        return Unresolved(value)

    return tuple(entry._replace(value=resolved(entry.value)) for entry in entries)
