"""The laws behind the terms of an answer, whose literature it cites."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ironlaw.terms import Term


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
