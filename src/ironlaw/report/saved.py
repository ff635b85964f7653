"""Saved answers as they are shown again: read from a file in today's form, and drawn with an error that names what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ironlaw.earlier import check_version, rename_rates
from ironlaw.errors import InputError
from ironlaw.files import read_saved

Drawn = TypeVar("Drawn")


def read_answer(path: Path) -> tuple[str, dict[str, Any]]:
    """The verb and the answer in a file, in today's form; InputError for other files, and for answers that are not read."""
    from ironlaw.estimate.answer.saved import LARGEST
    from ironlaw.page.saved import in_todays_form, verb_of

    data = read_saved(path, LARGEST)
    if isinstance(data, list) and len(data) == 1:
        data = data[0]
    verb = verb_of(data)
    if verb is None:
        raise InputError(f"{path}: no answer of ironlaw: give a file from --json or --html")
    check_version(data["schema_version"], str(path))
    if verb == "estimate" and isinstance(data.get("throughput"), dict):
        data["throughput"] = rename_rates(data["throughput"])
    return verb, in_todays_form(data)


def drawn(name: str, draw: Callable[[], Drawn]) -> Drawn:
    """What a function draws; InputError where the answer lacks a part, or has one of another kind."""
    try:
        return draw()
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        missing = f"without {error}" if isinstance(error, KeyError) else "a part of it is not what an answer has"
        raise InputError(f"{name}: cannot be shown: {missing}; ask the question again with --json") from None
