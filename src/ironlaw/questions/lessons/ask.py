"""Answer ``ironlaw lessons``: a table, the flowchart of utilisation, or advice on a plan."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ironlaw.questions.answer import Answer
from ironlaw.questions.lessons.advice import advise
from ironlaw.questions.lessons.options import MEASURED, OWN
from ironlaw.questions.lessons.rules_of_thumb import flowchart


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about optimisations; QuestionError where its options contradict each other."""
    if "table" in values:
        table = values.pop("table")
        module = import_module(f"ironlaw.questions.lessons.tables.{table.replace('-', '_')}")
        answer: Answer = module.table(values, folders)
        return answer
    lesson = {name: values.pop(name) for name in OWN if name in values}
    if "model" not in values and any(name in lesson for name in MEASURED):
        return flowchart(lesson, folders)
    return advise(values, lesson, folders)
