"""What a reader of values takes and gives, as data: help, completion, signatures and schemas are drawn from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Read = TypeVar("Read", bound=Callable[..., Any])


class Kind(NamedTuple):
    """One kind of value."""

    takes: tuple[str, ...]  # annotations of what Python may give
    gives: str  # annotation of what the reader returns
    unit: str  # of a bare number; "1": a pure number; "": a name, a switch or a count
    choices: tuple[str, ...]  # the only names that it may be; empty: any
    least: float | None  # of a number
    most: float | None
    metavar: str  # how help shows a value
    samples: tuple[str, ...]  # values that it may have


_KINDS: dict[Callable[..., Any], Kind] = {}


def kind(
    *takes: str,
    gives: str = "float",
    unit: str = "",
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    metavar: str = "N",
    samples: tuple[str, ...] = (),
) -> Callable[[Read], Read]:
    """Say of a reader what it takes and gives; a decorator."""
    types = tuple(dict.fromkeys(takes))

    def note(read: Read) -> Read:
        _KINDS[read] = Kind(types, gives, unit, choices, least, most, metavar, samples or choices)
        return read

    return note


def kind_of(read: Callable[..., Any]) -> Kind:
    """The kind of a reader; of one that says nothing, any value.

    >>> kind_of(len).takes
    ('Any',)
    """
    return _KINDS.get(read) or Kind(("Any",), "Any", "", (), None, None, "N", ())
