"""Which view draws the answer of a verb: the one it has, or the generic one of titles, lines and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ironlaw.page import compare, diagnose, estimate, generic, money, optimize, plan, sites, validation
from ironlaw.page.figure import Draws, no_figure
from ironlaw.page.parts import View

VIEWS: dict[str, Callable[[Mapping[str, Any]], View]] = {
    "diagnose": diagnose.view, "money": money.view,
}  # fmt: skip
FIGURED: dict[str, Callable[[Mapping[str, Any], Draws], View]] = {  # views with figures
    "estimate": estimate.view, "plan": plan.view, "compare": compare.view, "validate": validation.view,
    "sites": sites.view, "optimize": optimize.view,
}  # fmt: skip


def view_of(verb: str, answer: Mapping[str, Any], draws: Draws = no_figure) -> View:
    """The view of an answer, its figures by ``draws``; several rows, of a verb that has a view for one, are tables like any other."""
    if verb == "estimate" and "plan" not in answer:
        return generic.view(answer)
    if verb in FIGURED:
        return FIGURED[verb](answer, draws)
    return VIEWS.get(verb, generic.view)(answer)
