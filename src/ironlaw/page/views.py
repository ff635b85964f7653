"""Which view draws the answer of a verb: the one it has, or the generic one of titles, lines and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ironlaw.page import compare, diagnose, estimate, generic, plan, sites, validation
from ironlaw.page.parts import View

VIEWS: dict[str, Callable[[Mapping[str, Any]], View]] = {
    "estimate": estimate.view, "plan": plan.view, "compare": compare.view, "validate": validation.view,
    "diagnose": diagnose.view, "sites": sites.view,
}  # fmt: skip


def view_of(verb: str, answer: Mapping[str, Any]) -> View:
    """The view of an answer; several rows, of a verb that has a view for one, are tables like any other."""
    if verb == "estimate" and "plan" not in answer:
        return generic.view(answer)
    return VIEWS.get(verb, generic.view)(answer)
