"""The fields of a ``config.json``, each read with its type checked."""

from __future__ import annotations

import math
from typing import Any

from ironlaw.errors import InputError, UnsupportedError, quote

LARGEST_COUNT = 10**12
LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_transformer_layers")
MOST_LAYERS = 10**5  # readers write lists of layers out


class Fields:
    """The fields of one config, each read with its type checked; errors name the field, the value and the file."""

    def __init__(self, config: dict[str, Any], where: str, prefix: str = "") -> None:
        self.config, self.where, self.prefix = config, where, prefix
        self.read: set[str] = set()  # names of the fields that were read or ignored
        self.left_out: list[str] = []  # parts of the model that a Model cannot describe
        self.inner_fields: list[Fields] = []  # objects inside this one that were read

    def with_defaults(self, defaults: dict[str, Any]) -> Fields:
        """The same fields, with ``defaults`` for those that are absent or null."""
        present = {name: value for name, value in self.config.items() if value is not None}
        return self._replace(defaults | present)

    def with_values(self, values: dict[str, Any]) -> Fields:
        """The same fields, with ``values`` in place of those in the file."""
        return self._replace(self.config | values)

    def _replace(self, config: dict[str, Any]) -> Fields:
        other = Fields(config, self.where, self.prefix)
        other.read, other.left_out, other.inner_fields = self.read, self.left_out, self.inner_fields
        return other

    def ignore(self, *names: str) -> None:
        """Accept the fields ``names`` with any value, because they add no parameters."""
        self.read.update(names)

    def size(self, *names: str, default: int | None = None) -> int:
        """A whole number above zero, under the first of ``names`` that the file has."""
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise self.missing(names[0])
            return default
        is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        if isinstance(value, bool) or not is_number or not 0 < value <= LARGEST_COUNT or value != int(value):
            raise self.wrong(name, "a whole number above 0")
        if name in LAYER_COUNTS and value > MOST_LAYERS:
            raise self.wrong(name, f"at most {MOST_LAYERS:,} layers")
        return int(value)

    def count(self, *names: str, default: int = 0) -> int:
        """A whole number, zero included, under the first of ``names`` that the file has."""
        name, value = self._find(names)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0:
            return 0
        return default if value is None else self.size(name)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        name, value = self._find((name,))
        if value is None:
            if default is None:
                raise self.missing(name)
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, *names: str, default: str | None = None) -> str:
        """A string, under the first of ``names`` that the file has."""
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise self.missing(names[0])
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def numbers(self, name: str, count: int, whole: bool = False) -> list[float]:
        """A list of ``count`` numbers from above 0 to 1e6, whole ones with ``whole``."""
        _, listed = self._find((name,))
        if not isinstance(listed, list) or len(listed) != count or not all(_is_positive(item, whole) for item in listed):
            raise self.wrong(name, f"a list of {count} {'whole ' if whole else ''}numbers above 0")
        return [float(item) for item in listed]

    def number(self, name: str) -> float:
        """A number from above 0 to 1e6."""
        _, value = self._find((name,))
        if not _is_positive(value):
            raise self.wrong(name, "a number above 0")
        return float(value)

    def any_dropout(self, *names: str, default: float = 0.0) -> bool:
        """Whether one of the dropout rates is above zero."""
        return max([self._rate(name, default) for name in names]) > 0.0

    def inner(self, name: str) -> Fields:
        """The object under ``name``; an absent one is empty."""
        value = self.config.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return self.child(value or {}, name)

    def child(self, value: dict[str, Any], name: str) -> Fields:
        """The fields of an object inside this one; what stays unread there is refused as it is here."""
        self.read.add(name.partition("[")[0])
        inner = Fields(value, self.where, f"{self.prefix}{name}.")
        self.inner_fields.append(inner)
        return inner

    def missing(self, name: str, instead: str = "") -> InputError:
        """The error for a field that the file must have."""
        return InputError(f"{self.where}: required field '{self.prefix}{name}'{f' (or {instead!r})' if instead else ''} is missing")

    def wrong(self, name: str, expected: str) -> InputError:
        """The error for a field whose value has the wrong type or size."""
        return InputError(f"{self.where}: field '{self.prefix}{name}' is {quote(self.config.get(name))}, expected {expected}")

    def refuse(self, name: str, what: str) -> UnsupportedError:
        """The error for a field that describes something a Model cannot describe."""
        return UnsupportedError(f"{self.where}: not modelled: {what} (field '{self.prefix}{name}' = {quote(self.config.get(name))})")

    def contradict(self, name: str, because: str) -> UnsupportedError:
        """The error for a field that contradicts another."""
        return UnsupportedError(f"{self.where}: field '{self.prefix}{name}' is {quote(self.config.get(name))}, but {because}")

    def _find(self, names: tuple[str, ...]) -> tuple[str, Any]:
        self.read.update(names)
        return next(((name, self.config[name]) for name in names if self.config.get(name) is not None), (names[0], None))

    def _rate(self, name: str, default: float) -> float:
        _, value = self._find((name,))
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
            raise self.wrong(name, "a rate from 0 to 1")
        return float(value)


def _is_positive(value: Any, whole: bool = False) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0.0 < value < 1e6 and not (whole and value != int(value))
