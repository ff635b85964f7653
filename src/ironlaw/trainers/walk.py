"""A parsed file and the table of its trainer become facts, each with its line; what is not understood is listed and never dropped."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ironlaw.errors import nearest_names, quote
from ironlaw.trainers.entries import Entry, Parsed, Unresolved
from ironlaw.trainers.tables import Row, Table

OFF = (False, None, "", 0, "false", "none", "null", "no", "off", "disabled")
LISTS = "|"  # between the words of a fact that several keys give, such as what is offloaded


class Fact(NamedTuple):
    """A value that a file gives, and where."""

    value: Any
    file: str
    key: str
    line: int
    column: int = 1
    written: Any = None

    @property
    def place(self) -> str:
        """``FILE:LINE``."""
        return f"{self.file}:{self.line}"


class Told(NamedTuple):
    """A setting of a file, or a rule, and what is said of it."""

    why: str
    key: str = ""
    value: Any = None
    file: str = ""
    line: int = 0
    column: int = 0
    id: str = ""  # the kind of finding that a check makes of it; "": none, or one that is refused because it is not modelled


class Walked:
    """What a file says: facts by name, and the settings that are ignored, refused, unknown, or counted otherwise than they are."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.ignored: list[Told] = []
        self.refused: list[Told] = []
        self.unknown: list[Told] = []
        self.assumed: list[Told] = []
        self.denied: set[tuple[str, str]] = set()  # values of facts whose switch is off: no default gives them
        self.left: set[str] = set()  # facts that a file leaves to the trainer with the word auto

    def take(self, name: str, fact: Fact) -> None:
        """Keep a fact; one that a setting before it says otherwise is refused. Facts whose name ends in ``+`` are added up."""
        before = self.facts.get(name)
        if before is not None and name.endswith("+"):
            fact = fact._replace(value=LISTS.join(dict.fromkeys([*str(before.value).split(LISTS), str(fact.value)])))
        elif before is not None and not same(before.value, fact.value):
            why = f"says {quote(fact.value)}, and {before.key} of {before.place} says {quote(before.value)}"
            self.refused.append(Told(why, fact.key, fact.written, fact.file, fact.line, fact.column, "contradiction"))
            return
        elif before is not None:
            return
        self.facts[name] = fact


def same(one: Any, other: Any) -> bool:
    """True for values that are equal as numbers or as words.

    >>> same("4", 4.0), same("Llama", "llama"), same(1, 2)
    (True, True, False)
    """
    try:
        return float(one) == float(other)
    except (TypeError, ValueError):
        return str(one).lower() == str(other).lower()


Include = Callable[[Entry, str, Walked], None]  # reads the file, or the table, that a setting names


def walk(parsed: Parsed, table: Table, walked: Walked, include: Include) -> None:
    """Add what a file says to ``walked``; ``include`` reads files that it names."""
    for entry in parsed.entries:
        what, row = table.row(entry.key)
        if what == "takes":
            _take(entry, row, parsed.name, walked)
        elif what == "include":
            if entry.value not in OFF:
                include(entry, row, walked)
        elif what == "ignored":
            walked.ignored.append(_told(entry, parsed.name, row))
        elif what == "refused":
            off = _is_off(entry.value)
            (walked.ignored if off else walked.refused).append(_told(entry, parsed.name, "off" if off else row))
        else:
            near = nearest_names(entry.key, table.known, 3)
            why = f"no key of {table.title} that is known here" + (f"; nearest: {', '.join(near)}" if near else "")
            walked.unknown.append(_told(entry, parsed.name, why))


def _is_off(value: Any) -> bool:
    """True for the value of a switch that is off, and for an empty list or table."""
    return value in ([], {}) or (not isinstance(value, (list, dict)) and (str(value).lower() if isinstance(value, str) else value) in OFF)


def _told(entry: Entry, file: str, why: str, kind: str = "") -> Told:
    return Told(why, entry.key, entry.value, file, entry.line, entry.column, kind)


def _take(entry: Entry, row: Row, file: str, walked: Walked) -> None:
    """The facts of one setting whose key is in the table."""
    if row.until:
        walked.assumed.append(_told(entry, file, f"read as {row.to or 'before'}; versions after {row.until} do not read it", "old-name"))
    if (entry.value is None or entry.value in ("", "auto", [])) and str(entry.value).lower() not in (row.map or ()):
        walked.left.update([row.to] if entry.value == "auto" else [])
        walked.ignored.append(_told(entry, file, "left to the trainer"))
        return
    if isinstance(entry.value, Unresolved) or (isinstance(entry.value, list) and any(isinstance(v, Unresolved) for v in entry.value)):
        walked.refused.append(
            _told(entry, file, f"its value {quote(str(entry.value))} is known only where it runs: write it out", "known-when-run")
        )
        return
    if row.approximate:
        why = f"not counted: {row.approximate}"
        (walked.ignored if _is_off(entry.value) else walked.assumed).append(_told(entry, file, "off" if _is_off(entry.value) else why))
        return
    if row.on:
        if _is_off(entry.value):
            walked.denied.add((row.to, row.on))
            walked.ignored.append(_told(entry, file, "off"))
        else:
            walked.take(row.to, Fact(row.on, file, entry.key, entry.line, entry.column, entry.value))
        return
    for value in _words(entry.value) if row.each else [entry.value]:
        _give(entry, row, value, file, walked)


def _words(value: Any) -> list[str]:
    """The words of a value: the items of a list, or of a text with blanks or commas."""
    return [str(item) for item in value] if isinstance(value, list) else str(value).replace(",", " ").split()


def _give(entry: Entry, row: Row, value: Any, file: str, walked: Walked) -> None:
    """The facts of one value by its row."""
    if row.matches:
        found = next(((match, given) for pattern, given in row.matches if (match := re.fullmatch(pattern, str(value).strip()))), None)
        for name, one in found[1].items() if found else ():
            read = found[0][1] if one == "$1" and found else one
            walked.take(name, Fact(read, file, entry.key, entry.line, entry.column, entry.value))
        if found is None:
            walked.refused.append(_told(entry, file, f"the value {quote(value)} is not understood"))
        return
    if row.map is None:
        plain = ",".join(map(str, value)) if isinstance(value, list) else value
        walked.take(row.to, Fact(plain, file, entry.key, entry.line, entry.column, entry.value))
        return
    folded = str(value).strip().lower()
    given = row.map.get(folded, row.map.get("*"))
    if given is None:
        known = ", ".join(word for word in row.map if word != "*")
        walked.refused.append(_told(entry, file, f"the value {quote(value)} is not understood; understood are {known}"))
    elif given == "":
        walked.ignored.append(_told(entry, file, "off"))
    elif isinstance(given, str) and given.startswith("refuse: "):
        walked.refused.append(_told(entry, file, given[8:]))
    elif isinstance(given, str) and given.startswith("approximate: "):
        walked.assumed.append(_told(entry, file, f"not counted: {given[13:]}"))
    else:
        for name, one in (given if isinstance(given, dict) else {row.to: given}).items():
            walked.take(name, Fact(value if one == "=" else one, file, entry.key, entry.line, entry.column, entry.value))
