"""The fields of a ``config.json``, each read with its type checked."""

from __future__ import annotations

import math
from typing import Any

from ironlaw.errors import InputError, UnsupportedError

LARGEST_COUNT = 10**12
LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_transformer_layers")
MOST_LAYERS = 10**5  # readers write lists of layers out


class Fields:
    """The fields of one config, each read with its type checked; errors name the field, the value and the file."""

    def __init__(self, config: dict[str, Any], where: str, prefix: str = "") -> None:
        self.config, self.where, self.prefix = config, where, prefix
        self.understood: set[str] = set()  # every field that was asked for
        self.left_out: list[str] = []  # what a reader knows of and a Model does not hold

    def with_defaults(self, defaults: dict[str, Any]) -> Fields:
        """The same fields, with ``defaults`` for those that are absent or null."""
        present = {name: value for name, value in self.config.items() if value is not None}
        other = Fields(defaults | present, self.where, self.prefix)
        other.understood, other.left_out = self.understood, self.left_out
        return other

    def with_values(self, values: dict[str, Any]) -> Fields:
        """The same fields, with ``values`` in the place of what the file says."""
        other = Fields(self.config | values, self.where, self.prefix)
        other.understood, other.left_out = self.understood, self.left_out
        return other

    def weightless(self, *names: str) -> None:
        """Says that the fields ``names`` hold no parameters, whatever their values."""
        self.understood.update(names)

    def size(self, *names: str, default: int | None = None) -> int:
        """A whole number above zero, under the first of ``names`` that the file has."""
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise InputError(f"{self.where}: required field '{self.prefix}{names[0]}' is missing")
            return default
        whole = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        if isinstance(value, bool) or not whole or not 0 < value <= LARGEST_COUNT or value != int(value):
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {shown(value)}, a whole number above 0 is expected")
        if name in LAYER_COUNTS and value > MOST_LAYERS:
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {shown(value)}, at most {MOST_LAYERS:,} layers are expected")
        return int(value)

    def count(self, *names: str, default: int = 0) -> int:
        """A whole number, zero included, under the first of ``names`` that the file has."""
        name, value = self._find(names)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0:
            return 0
        return default if value is None else self.size(name)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        self.understood.add(name)
        value = self.config.get(name)
        if value is None:
            if default is None:
                raise InputError(f"{self.where}: required field '{self.prefix}{name}' is missing")
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {shown(value)}, true or false is expected")
        return value

    def text(self, *names: str, default: str | None = None) -> str:
        """A string, under the first of ``names`` that the file has."""
        name, value = self._find(names)
        if value is None and default is not None:
            return default
        if value is None:
            raise InputError(f"{self.where}: required field '{self.prefix}{names[0]}' is missing")
        if not isinstance(value, str):
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {shown(value)}, a text is expected")
        return value

    def any_dropout(self, *names: str, default: float = 0.0) -> bool:
        """Whether one of the dropout rates is above zero."""
        rates = [self._rate(name, default) for name in names]
        return any(rate > 0.0 for rate in rates)

    def inner(self, name: str) -> Fields:
        """The object under ``name``; an absent one is empty."""
        value = self.config.get(name)
        if value is not None and not isinstance(value, dict):
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {shown(value)}, an object is expected")
        return Fields(value or {}, self.where, f"{self.prefix}{name}.")

    def refuse(self, name: str, because: str) -> UnsupportedError:
        """The error for a field that is understood and not modelled."""
        return UnsupportedError(f"{self.where}: field '{self.prefix}{name}' = {shown(self.config.get(name))} is not understood: {because}")

    def _find(self, names: tuple[str, ...]) -> tuple[str, Any]:
        self.understood.update(names)
        present = [name for name in names if self.config.get(name) is not None]
        return (present[0], self.config[present[0]]) if present else (names[0], None)

    def _rate(self, name: str, default: float) -> float:
        self.understood.add(name)
        value = self.config.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {shown(value)}, a rate from 0 to 1 is expected")
        return float(value)


def shown(value: Any) -> str:
    """A value as an error shows it, never long."""
    if isinstance(value, int) and abs(value) > LARGEST_COUNT**2:
        return "a number of astronomical size"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
