"""Numbers with a unit and a source."""

from __future__ import annotations

from typing import NamedTuple

GRADES = ("vendor", "measured", "paper", "press", "guess")  # best first


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


def sustain(alone: Sourced, share: Sourced) -> Sourced:
    """A benchmarked value times the share of it that is sustained inside a step; its text has both, its source is the benchmark's."""
    text = f"{alone.text} alone, {share.text} of it sustained"
    return Sourced(alone.value * share.value, alone.unit, text, alone.source, alone.note)
