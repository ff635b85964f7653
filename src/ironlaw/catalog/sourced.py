"""Numbers with a unit and a source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

GRADES = ("vendor", "measured", "fitted", "paper", "press", "announced", "guess")  # best first


class Source(NamedTuple):
    """Where a number comes from: ``grade`` is one of GRADES, ``read`` the ISO date of reading it."""

    key: str
    title: str
    url: str
    read: str
    grade: str

    def line(self) -> str:
        """The source as one line of text."""
        return f"{self.title} <{self.url}> (read {self.read}, {self.grade})"


ASKED = Source("asked", "given in the question", "", "", "guess")  # the source of a value that the user gives


class Sourced(NamedTuple):
    """A value in SI ``unit``, the ``text`` it was read from, and its source."""

    value: float
    unit: str
    text: str
    source: Source | None
    note: str = ""

    def __float__(self) -> float:
        return self.value


class Reading:
    """The sources of the values that are read while it is active, in the order of reading, and the records they are in.

    Records are decoded anew, so that nothing which was computed from them before hides that a value is read.
    """

    def __init__(self) -> None:
        self.sources: dict[Source, None] = {}
        self.records: dict[Any, Any] = {}
        seen = self.sources

        class Watched(Sourced):
            """A value that notes its source when it is read."""

            @property
            def value(self) -> float:
                if self.source is not None:
                    seen[self.source] = None
                return self[0]

        self.kind: type[Sourced] = Watched


READING: ContextVar[Reading | None] = ContextVar("reading", default=None)


@contextmanager
def watch_sources(reading: Reading | None) -> Iterator[None]:
    """Note in ``reading`` the sources of the values of the catalogue that are read inside the ``with`` block; None notes nothing."""
    token = READING.set(reading)
    try:
        yield
    finally:
        READING.reset(token)


def make_sourced(value: float, unit: str, text: str, source: Source | None, note: str = "") -> Sourced:
    """A value of a file with its source; one that notes its source when read, where sources are watched."""
    reading = READING.get()
    return (Sourced if reading is None else reading.kind)(value, unit, text, source, note)


def sustain(alone: Sourced, share: Sourced) -> Sourced:
    """A benchmarked value times the share of it that is sustained inside a step; its text has both, its source is the benchmark's."""
    text = f"{alone.text} alone, {share.text} of it sustained"
    return Sourced(alone.value * share.value, alone.unit, text, alone.source, alone.note)
