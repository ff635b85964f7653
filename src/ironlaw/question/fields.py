"""The fields of a question, one for every option: made from the rows of ``options``. Types are in ``fields.pyi``, made from them too."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from ironlaw.frozen import Frozen
from ironlaw.question.options import OPTIONS, Option

COLUMNS = tuple(name for name, option in OPTIONS.items() if option.column)
Row = namedtuple("Row", COLUMNS, defaults=[None] * len(COLUMNS))
Row.__doc__ = "The options that may be columns, one value each; None is left open."


def _made(name: str, text: str, taken: Callable[[Option], bool], required: bool) -> Any:
    """A class with a field for every option that is ``taken``."""
    fields = {name: option.default for name, option in OPTIONS.items() if taken(option)}
    made: Any = type(name, (Frozen,), {"__doc__": text, "__module__": __name__})
    made.fields, made.required = fields, frozenset(fields if required else ())
    return made


OfQuestion = _made("OfQuestion", "Options that are no columns; None: a record or a rule decides.", lambda one: not one.column, False)
OfJob = _made("OfJob", "Options that a job has as they are.", lambda one: one.of_job, True)
