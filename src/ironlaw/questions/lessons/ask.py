"""Answer ``ironlaw lessons``: a table, the flowchart of utilisation, or advice on a plan."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ironlaw.errors import QuestionError
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.questions.answer import Answer, need, read
from ironlaw.questions.lessons.advice import advise
from ironlaw.questions.lessons.options import OPTIONS, OWN, TABLES
from ironlaw.questions.lessons.rules_of_thumb import flowchart

MEASURED = ("gpu_utilization", "memory_used", "out_of_memory")
THRESHOLDS = {"data_bound_below": "gpu_utilization", "memory_bound_above": "memory_used"}
OF_TABLES = ("shares", "precisions", "parameters", "mfu", "deadline", "sizes")  # own options of single tables


def ask(given: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about optimisations; QuestionError where its options contradict each other."""
    values = read(given, OPTIONS, "lessons")
    if "table" in values:
        table = values.pop("table")
        _refuse_idle(table, values)
        module = import_module(f"ironlaw.questions.lessons.tables.{table.replace('-', '_')}")
        answer: Answer = module.table(values, folders)
        return answer
    lesson = {name: values.pop(name) for name in OWN if name in values}
    for name in OF_TABLES:
        if name in lesson:
            table = next(table for table, one in TABLES.items() if name in one.takes)
            raise QuestionError(f"{_flag(name)} has no effect without --table {table}: give both")
    for name, measured in THRESHOLDS.items():
        if name in lesson and measured not in lesson:
            raise QuestionError(f"{_flag(name)} has no effect without {_flag(measured)}: give both")
    if "model" not in values and any(name in lesson for name in MEASURED):
        return flowchart(lesson, folders)
    need(values, "model", "on", "gpus")
    return advise(values, lesson, folders)


def _refuse_idle(name: str, values: Mapping[str, Any]) -> None:
    """Refuse options that a table does not read, by name."""
    table = TABLES[name]
    known = {*table.takes, *(ESTIMATE if table.of_model and "model" in values else ("model",) if table.of_model else ())}
    own = [f"it sets {_flag(option)} itself" for option in values if option in table.without]
    if own:
        raise QuestionError(f"--table {name}: {own[0]}, leave it out")
    idle = [option for option in values if option not in known]
    if idle:
        takes = ", ".join("MODEL" if option == "model" else _flag(option) for option in sorted(known - set(table.without), key=_order))
        more = " (with MODEL also the options of an estimate)" if table.of_model and "model" not in values else ""
        takes = "all options of an estimate" if table.of_model and "model" in values else takes or "no options"
        raise QuestionError(f"--table {name}: {_flag(idle[0])} has no effect on it; it takes {takes}{more}")


def _order(option: str) -> tuple[bool, str]:
    return option != "model", option


def _flag(option: str) -> str:
    return "MODEL" if option == "model" else f"--{option.replace('_', '-')}"
