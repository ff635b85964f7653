"""The sources that an estimate used: of the values that were read to compute it, and the literature of its laws.

The plan of every row is evaluated once more while every value of the catalogue notes that it is read, so that an answer pays for its
citations only when they are asked for, and a value that another plan would have needed is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.catalog.citations import Citations, cite
from ironlaw.catalog.sourced import Reading, watch_sources
from ironlaw.estimate.as_data import row_data, trees_of
from ironlaw.terms import Term

if TYPE_CHECKING:
    from ironlaw.estimate.answer import Estimate


def citations_of(estimate: Estimate) -> Citations:
    """The citations of all rows of an estimate."""
    with watch_sources(reading := Reading()):
        terms = evaluate_again(estimate)
    return cite(reading.sources, laws_of(terms))


def evaluate_again(estimate: Estimate) -> list[Term]:
    """The terms of an estimate, whose plans are evaluated once more; under a watch its records are read anew."""
    from ironlaw.estimate.answer import Estimate, evaluate_plans

    places = [estimate.place_of(row) for row in range(estimate.rows)]
    terms = []
    for group in dict.fromkeys(group for group, _ in places):
        rows = [at for other, at in places if other is group]
        again = evaluate_plans(group, rows, estimate.folders)
        alone = Estimate((again,), len(rows), estimate.folders, estimate.asked)
        for at in range(len(rows)):
            row_data(alone, at)
        terms += trees_of(again)
    return terms


def laws_of(terms: Iterable[Term]) -> dict[Callable[..., Any], None]:
    """The laws of terms, in order, without those below a node that no row runs."""
    found: dict[Callable[..., Any], None] = {}

    def visit(node: Term) -> None:
        if not np.any(np.asarray(node.times)):
            return
        if node.law is not None:
            found[node.law] = None
        for part in node.parts:
            visit(part)

    for term in terms:
        visit(term)
    return found
