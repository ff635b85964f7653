"""Answer ``ironlaw textbook``: each chapter by its own module."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ironlaw.questions.answer import Answer

RUN: dict[str, tuple[str, str]] = {  # chapters that are no table: their module and function
    "three-roof": ("three_roof_answer", "ask_three_roof"),
    "sweep": ("sweep", "ask_sweep"),
    "ten-sites": ("ten_sites", "study"),
    "critical-batch": ("critical_batch", "ask_critical_batch"),
}


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer of a chapter."""
    chapter = values.pop("chapter")
    module, name = RUN.get(chapter, (f"tables.{chapter.replace('-', '_')}", "table"))
    run: Callable[[dict[str, Any], tuple[str, ...]], Answer] = getattr(import_module(f"ironlaw.questions.textbook.{module}"), name)
    return run(values, folders)
