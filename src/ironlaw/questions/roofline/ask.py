"""Answer ``ironlaw roofline``: call the module of the question that the options ask."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ironlaw.errors import NoEffectError
from ironlaw.question.forms import choose
from ironlaw.questions.answer import Answer
from ironlaw.questions.roofline.options import FORMS


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer one roofline question."""
    form = choose(values, FORMS)
    name = form.when[0] if form.when else "on"
    if "tolerance" in values and "baseline" in (form.takes or ()) and "baseline" not in values:
        raise NoEffectError("--tolerance has no effect without --baseline: give both")
    if name == "optimizer":
        values["folders"] = folders  # of the catalogue, where its record is
    answer: Answer = import_module(f"ironlaw.questions.roofline.{form.module}").answer(name, values, folders)
    return answer
