"""Readers of option values that several questions share: lists, values by name, days, dollars, counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ironlaw import units
from ironlaw.errors import ValueRangeError
from ironlaw.question.options import OPTIONS, duration, positive, text, whole

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def list_of(reader: Callable[[Any, str], Any]) -> Callable[[Any, str], tuple[Any, ...]]:
    """Make a reader of a comma list, or of a sequence, whose items ``reader`` reads."""

    def read(value: Any, flag: str) -> tuple[Any, ...]:
        """Read each item of a list."""
        items = value if isinstance(value, (list, tuple)) else str(value).split(",") if isinstance(value, str) else [value]
        if not items:
            raise ValueRangeError(f"{flag} is empty: give at least one value")
        return tuple(reader(item.strip() if isinstance(item, str) else item, flag) for item in items)

    return read


names = list_of(text)


def counts(value: Any, flag: str) -> tuple[float, ...]:
    """Read counts: ``64``; a list ``64,96,128``; or ``64..512``, which doubles from the first to the last.

    >>> counts("64..512", "--gpus"), counts("8,12", "--gpus"), counts("96..400", "--gpus")
    ((64.0, 128.0, 256.0, 512.0), (8.0, 12.0), (96.0, 192.0, 384.0, 400.0))
    """
    first, dots, last = value.partition("..") if isinstance(value, str) else (value, "", "")
    if not dots:
        return tuple(dict.fromkeys(list_of(whole)(value, flag)))
    low, high = whole(first, flag), whole(last, flag)
    if low > high:
        raise ValueRangeError(f"{flag} is {value}: the range ends before it begins")
    return (*(low * 2.0**i for i in range(50) if low * 2.0**i < high), high)


def by_name(reader: Callable[[Any, str], Any]) -> Callable[[Any, str], dict[str, Any]]:
    """Make a reader of ``A=..,B=..`` as values by name, or of one value for all names, whose key is ``""``."""

    def read(value: Any, flag: str) -> dict[str, Any]:
        """Read the value of each name."""
        if not isinstance(value, Mapping):
            items = [item.partition("=") for item in str(value).split(",")] if "=" in str(value) else [("", "=", value)]
            value = {name.strip(): item for name, _, item in items}
        return {name: reader(item.strip() if isinstance(item, str) else item, f"{flag} {name}".strip()) for name, item in value.items()}

    return read


def for_each(reader: Callable[[Any, str], Any]) -> Callable[[Any, str], tuple[Any, ...] | dict[str, Any]]:
    """Make a reader of one value for all, a comma list in order, or ``NAME=VALUE`` pairs. A name may be a pair ``LAT,LON``.

    >>> for_each(text)("a,b", "--grid"), for_each(text)("oslo=norway,46.02,8.96=switzerland", "--grid")
    (('a', 'b'), {'oslo': 'norway', '46.02,8.96': 'switzerland'})
    """
    in_order = list_of(reader)

    def read(value: Any, flag: str) -> tuple[Any, ...] | dict[str, Any]:
        """Read the values in order, or by name."""
        if isinstance(value, Mapping):
            pairs = {str(name).strip(): item for name, item in value.items()}
        else:
            items = value if isinstance(value, (list, tuple)) else str(value).split(",") if isinstance(value, str) else [value]
            named = ["=" in item if isinstance(item, str) else False for item in items]
            if not any(named):
                return in_order(value, flag)
            pairs, latitude = {}, ""
            for item, has_name in zip(items, named, strict=True):
                if not has_name and (latitude or units.bare_number(item) is None):
                    raise ValueRangeError(f"{flag}: {item} has no name, but other values have: write all as NAME=VALUE or none")
                if not has_name:
                    latitude = f"{str(item).strip()},"
                    continue
                name, _, one = str(item).partition("=")
                pairs[latitude + name.strip()] = one
                latitude = ""
            if latitude:
                raise ValueRangeError(f"{flag}: {latitude[:-1]} has no name, but other values have: write all as NAME=VALUE or none")
        return {name: reader(item.strip() if isinstance(item, str) else item, f"{flag} {name}") for name, item in pairs.items()}

    return read


def zero_or_more(unit: str) -> Callable[[Any, str], float]:
    """Make a reader of quantities in ``unit``, 0 for none."""

    def read(value: Any, flag: str) -> float:
        return 0.0 if str(value).strip() in ("0", "0.0", "none") else positive(unit)(value, flag)

    return read


def with_unit(unit: str, example: str) -> Callable[[Any, str], float]:
    """Make a reader of quantities whose unit must be written, because two units are usual."""

    def read(value: Any, flag: str) -> float:
        """Read a quantity with its unit."""
        if units.bare_number(value) is not None:
            raise ValueRangeError(f"{flag} is {value}, which has no unit: write it as {example}")
        number = units.parse(value, unit, flag)
        if not 0 <= number <= 1e15:
            raise ValueRangeError(f"{flag} is {value}, must be from 0 to 1e15")
        return number

    return read


def days(value: Any, flag: str) -> float:
    """Read a time; a bare number is days."""
    number = units.bare_number(value)
    return duration(value if number is None else f"{number} days", flag)


def money(value: Any, flag: str) -> float:
    """Read US dollars: a number, ``2M``, ``USD 2M``, ``2,000,000``."""
    spelled = str(value).upper().replace("USD", "").replace("$", "")
    number = units.parse_count(_THOUSANDS.sub("", spelled).strip(), flag)
    if not 0 < number <= 1e15:
        raise ValueRangeError(f"{flag} is {value}, must be more than 0 and at most 1e15 USD")
    return number


def amount(value: Any, flag: str) -> float:
    """Read a count above zero that need not be whole, such as 1.2M."""
    number = units.parse_count(value, flag)
    if not 0 < number <= 1e15:
        raise ValueRangeError(f"{flag} is {value}, must be more than 0 and at most 1e15")
    return number


def columns_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command line with the comma lists of columns as lists: ``--gpus 64..512``, ``--tp 1,2,4``; row i takes each i-th.

    >>> columns_of({"gpus": "8..32", "tp": "1,2,4", "seq_len": "4k"})
    {'gpus': [8.0, 16.0, 32.0], 'tp': ['1', '2', '4'], 'seq_len': '4k'}
    """
    read: dict[str, Any] = {}
    for name, value in options.items():
        several = isinstance(value, str) and OPTIONS[name].column and name not in _WORDS
        if several and name == "gpus" and ("," in value or ".." in value):
            read[name] = list(counts(value, "--gpus"))
        elif several and "," in value:
            read[name] = [item.strip() for item in value.split(",")]
        else:
            read[name] = value
    return read


_WORDS = ("recompute", "overlap", "offload")  # columns whose single value may have commas
