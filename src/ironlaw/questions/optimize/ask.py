"""Answer ``ironlaw optimize``: the flowchart of utilisation, or advice on a plan."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer
from ironlaw.questions.optimize.advice import advise
from ironlaw.questions.optimize.options import MEASURED, OWN
from ironlaw.questions.optimize.rules_of_thumb import flowchart


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about optimisations; QuestionError where its options contradict each other."""
    asked = {name: values.pop(name) for name in OWN if name in values}
    if "model" not in values and any(name in asked for name in MEASURED):
        return flowchart(asked, folders)
    return advise(values, asked, folders)
