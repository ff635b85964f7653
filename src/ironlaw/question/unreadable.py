"""Values that no option can have, whatever it is: refused before any reader sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ironlaw.errors import QuestionError, ValueRangeError

LARGEST = 10**300  # near the end of floats: a larger whole number overflows
MOST_CHARACTERS = 200_000  # of a text
DEEPEST = 8  # lists in lists


def refuse_unreadable(value: Any, name: Callable[[], str], depth: int = 0) -> None:
    """Refuse a null character, a whole number of more than 300 digits, a very long text, and lists that are nested deep.

    ``name`` spells the option in the error. A null character is the end of a file's name to the system, and of no other use.

    >>> refuse_unreadable([8, "a"], lambda: "--gpus")
    >>> refuse_unreadable("a\\0b", lambda: "--lengths")
    Traceback (most recent call last):
    ironlaw.errors.ValueRangeError: --lengths has a null character: leave it out
    """
    if isinstance(value, str):
        if "\0" in value:
            raise ValueRangeError(f"{name()} has a null character: leave it out")
        if len(value) > MOST_CHARACTERS:
            raise ValueRangeError(f"{name()} has {len(value):,} characters, must have at most {MOST_CHARACTERS:,}")
    elif isinstance(value, int):
        if not -LARGEST < value < LARGEST:
            raise ValueRangeError(f"{name()} has more than 300 digits, must be smaller")
    elif isinstance(value, (list, tuple, set, frozenset, Mapping)):
        if depth >= DEEPEST:
            raise QuestionError(f"{name()} is nested deeper than {DEEPEST} levels")
        if isinstance(value, Mapping):
            for key in value:
                refuse_unreadable(key, name, depth + 1)
        for item in value.values() if isinstance(value, Mapping) else value:
            if not isinstance(item, float):  # the items of most columns
                refuse_unreadable(item, name, depth + 1)
