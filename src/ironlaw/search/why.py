"""Why one plan is faster than another: the difference of their steps, term by term."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.answer import Group
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.step import MICRO_BATCHES
from ironlaw.terms import Term

WORTH_A_WORD = 0.001  # of the step


def step_terms(group: Group, at: int) -> dict[str, float]:
    """Seconds of a step by term: what every layer does by its part, the rest by its own name. They sum to the step."""
    found: dict[str, float] = {}

    def book(term: Term, factor: float, path: int) -> None:
        layers = isinstance(term.key, Kind) and term.key.name.endswith("layers")
        split = term.parts and (path == 0 or term.key == MICRO_BATCHES or layers)
        if split and path < 3:
            inner = factor * _at(term.times, at)
            for part in term.parts:
                book(part, inner, path + 1)
        else:
            found[term.name] = found.get(term.name, 0.0) + _at(term.value, at) * factor

    book(group.step.tree, 1.0, 0)
    return found


def _at(value: Any, at: int) -> float:
    column = np.ravel(value)
    return float(column[at if column.size > 1 else 0])


def difference(one: tuple[Group, int], other: tuple[Group, int]) -> list[dict[str, Any]]:
    """What ``other`` takes longer (above 0) or shorter than ``one``, in order of size; small terms left out."""
    first, second = step_terms(*one), step_terms(*other)
    whole = sum(first.values())
    rows = [(name, second.get(name, 0.0) - first.get(name, 0.0)) for name in {**first, **second}]
    told = [row for row in rows if abs(row[1]) > WORTH_A_WORD * whole]
    return [{"term": name, "seconds": seconds} for name, seconds in sorted(told, key=lambda row: -abs(row[1]))]
