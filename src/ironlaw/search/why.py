"""Why one plan is faster than another: the difference of their steps, term by term."""

from __future__ import annotations

from typing import Any

from ironlaw.estimate.answer import Group
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.step import MICRO_BATCHES
from ironlaw.terms import Term, scalar

SMALLEST = 0.001  # of the step: a smaller difference is left out


def step_terms(group: Group, at: int) -> dict[str, float]:
    """Seconds of a step by term: the parts of layers by name, then the other terms of the step. They sum to the step."""
    seconds: dict[str, float] = {}

    def add(term: Term, factor: float, depth: int) -> None:
        layers = isinstance(term.key, Kind) and term.key.name.endswith("layers")
        if depth < 3 and term.parts and (depth == 0 or term.key == MICRO_BATCHES or layers):
            inner = factor * scalar(term.times, at)
            for part in term.parts:
                add(part, inner, depth + 1)
        else:
            seconds[term.name] = seconds.get(term.name, 0.0) + scalar(term.value, at) * factor

    add(group.step.tree, 1.0, 0)
    return seconds


def difference(base: tuple[Group, int], other: tuple[Group, int]) -> list[dict[str, Any]]:
    """Seconds that ``other`` takes longer (above 0) or shorter than ``one``, largest first; small terms are left out."""
    first, second = step_terms(*base), step_terms(*other)
    whole = sum(first.values())
    rows = [(name, second.get(name, 0.0) - first.get(name, 0.0)) for name in {**first, **second}]
    large = [row for row in rows if abs(row[1]) > SMALLEST * whole]
    return [{"term": name, "seconds": seconds} for name, seconds in sorted(large, key=lambda row: -abs(row[1]))]
