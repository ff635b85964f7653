"""Answer ``ironlaw roofline``: find which question the options ask, and call its module."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ironlaw.errors import QuestionError
from ironlaw.questions.answer import Answer, read
from ironlaw.questions.roofline.options import OPTIONS, QUESTIONS


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer one roofline question; QuestionError where several are asked, or with options of another."""
    values = read(options, OPTIONS, "roofline")
    if values.get("tiers") is False:
        del values["tiers"]
    asked = [name for name in QUESTIONS if name in values and name != "on"]
    if "optimizer" in asked and ("model" in asked or "census" in asked):  # there it names the optimizer of the step
        asked.remove("optimizer")
    if "tiers" in asked and "model" in asked:  # there it names the weights that are moved
        asked.remove("model")
    if len(asked) > 1:
        raise QuestionError(f"roofline answers one question at a time, given {' and '.join(_describe(name) for name in asked)}")
    if not asked and "on" not in values:
        flags = ", ".join("--" + name for name in QUESTIONS if name not in ("model", "on"))
        raise QuestionError(f"roofline needs MODEL, one of {flags}, or --on alone")
    name = asked[0] if asked else "on"
    question = QUESTIONS[name]
    for option in values:
        if option not in question.takes and option != name:
            raise QuestionError(f"--{option.replace('_', '-')} does not go with {_describe(name)}")
    if "baseline" in values and "measured" not in values:
        raise QuestionError("--baseline is compared with --measured: give both")
    if "tolerance" in values and "baseline" in question.takes and "baseline" not in values:
        raise QuestionError("--tolerance has no effect without --baseline: give both")
    if name == "optimizer":
        values["folders"] = folders  # of the catalogue, where its record is
    answer: Answer = import_module(f"ironlaw.questions.roofline.{question.module}").answer(name, values, folders)
    return answer


def _describe(question: str) -> str:
    return {"on": "--on alone", "model": "a MODEL"}.get(question, f"--{question}")
