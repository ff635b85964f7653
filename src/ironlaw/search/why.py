"""Why one plan is faster than another: the difference of their steps, term by term."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.answer import Group
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.step import MICRO_BATCHES
from ironlaw.terms import Term

SMALLEST = 0.001  # of the step: smaller differences are left out


def step_terms(group: Group, at: int) -> dict[str, float]:
    """Seconds of a step by term; layers are split into their parts. The terms sum to the step."""
    seconds: dict[str, float] = {}

    def book(term: Term, factor: float, path: int) -> None:
        layers = isinstance(term.key, Kind) and term.key.name.endswith("layers")
        split = term.parts and (path == 0 or term.key == MICRO_BATCHES or layers)
        if split and path < 3:
            inner = factor * _at(term.times, at)
            for part in term.parts:
                book(part, inner, path + 1)
        else:
            seconds[term.name] = seconds.get(term.name, 0.0) + _at(term.value, at) * factor

    book(group.step.tree, 1.0, 0)
    return seconds


def _at(value: Any, at: int) -> float:
    column = np.ravel(value)
    return float(column[at if column.size > 1 else 0])


def difference(one: tuple[Group, int], other: tuple[Group, int]) -> list[dict[str, Any]]:
    """Seconds that each term of ``other`` takes longer (above 0) or shorter than in ``one``, largest first, without small terms."""
    first, second = step_terms(*one), step_terms(*other)
    whole = sum(first.values())
    rows = [(name, second.get(name, 0.0) - first.get(name, 0.0)) for name in {**first, **second}]
    large = [row for row in rows if abs(row[1]) > SMALLEST * whole]
    return [{"term": name, "seconds": seconds} for name, seconds in sorted(large, key=lambda row: -abs(row[1]))]
