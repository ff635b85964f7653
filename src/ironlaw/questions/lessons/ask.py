"""Answer ``ironlaw lessons``: a table, the flowchart of utilisation, or advice on a plan."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ironlaw.errors import QuestionError
from ironlaw.questions.answer import Answer, need, read
from ironlaw.questions.lessons.advice import advise
from ironlaw.questions.lessons.options import OPTIONS, OWN, TABLES
from ironlaw.questions.lessons.rules_of_thumb import flowchart

MEASURED = ("gpu_utilization", "memory_used", "out_of_memory")


def ask(given: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about optimisations; QuestionError where its options contradict each other."""
    values = read(given, OPTIONS, "lessons")
    lesson = {name: values.pop(name) for name in OWN if name in values}
    table = lesson.get("table")
    takes = TABLES[table].takes if table else ()
    unused = [name for name in ("price", "grid", "pue") if name in values and "tokens" not in values and name not in takes]
    if unused:
        raise QuestionError(f"--{unused[0]} has no effect without --tokens: give both")
    for name in lesson:
        with_table = [other for other, row in TABLES.items() if name in row.takes]
        if with_table and name not in takes and name != "dataset":
            raise QuestionError(f"--{name.replace('_', '-')} has no effect without --table {with_table[0]}: give both")
    if table:
        module = import_module(f"ironlaw.questions.lessons.tables.{table.replace('-', '_')}")
        answer: Answer = module.table({**values, **{name: lesson[name] for name in takes if name in lesson}}, folders)
        return answer
    if "model" not in values and any(name in lesson for name in MEASURED):
        return flowchart(lesson, folders)
    need(values, "model", "on", "gpus")
    return advise(values, lesson, folders)
