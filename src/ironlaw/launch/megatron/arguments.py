"""Megatron-LM arguments by name, each read with its type checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ironlaw.errors import MissingOptionError, UnknownNameError, ValueRangeError


class Arguments:
    """Arguments by name, and the rules applied so far to turn them into options."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.given: dict[str, Any] = {}
        for name, value in values.items():
            if value is not None and value is not False:
                self.given["--" + str(name).lstrip("-").replace("_", "-")] = value
        self.rules: list[str] = []

    def rule(self, text: str) -> None:
        """Record a rule, once."""
        if text not in self.rules:
            self.rules.append(text)

    def has(self, name: str) -> bool:
        """Whether a switch is given; the value false counts as absent."""
        return str(self.given.get(f"--{name}", False)).lower() not in ("false", "none")

    def text(self, name: str, default: str = "") -> str:
        """The words of a value, with blanks between them."""
        value = self.given.get(f"--{name}", default)
        return " ".join(str(v) for v in value).strip() if isinstance(value, (list, tuple)) else str(value).strip()

    def words(self, name: str, default: str) -> set[str]:
        """The distinct words of a list."""
        return set(self.items(name, default))

    def items(self, name: str, default: str = "") -> list[str]:
        """The items of a list, separated by blanks or commas, in brackets or not."""
        return re.sub(r"[\[\],'\"]", " ", self.text(name, default)).split()

    def one_of(self, name: str, known: tuple[str, ...]) -> str:
        """One of the words ``known``; the first is the default."""
        value = self.text(name, known[0])
        if value not in known:
            raise UnknownNameError(f"value of --{name}", value, known)
        return value

    def whole(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        """A whole number of at least ``least``."""
        value = self.given.get(f"--{name}")
        return default if value is None else whole_number(value, f"--{name}", least)

    def needed(self, *names: str) -> int:
        """The whole number under the first of ``names`` that is given."""
        for name in names:
            value = self.whole(name)
            if value is not None:
                return value
        raise MissingOptionError(f"missing Megatron argument --{names[0]}")

    def number(self, name: str, default: float) -> float:
        """A number."""
        value = self.given.get(f"--{name}", default)
        try:
            number = float("not a number" if isinstance(value, bool) else value)
        except (TypeError, ValueError, OverflowError):
            raise ValueRangeError(f"--{name} is {value!r}, must be a number") from None
        if not math.isfinite(number):
            raise ValueRangeError(f"--{name} is {value!r}, must be a number")
        return number


def whole_number(value: Any, flag: str, least: int = 1) -> int:
    """A whole number of at least ``least``; the error for a shell variable without a value says so."""
    if value is True:
        raise ValueRangeError(f"{flag} has no value, must be a whole number")
    try:
        number = float("not a number" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        hint = ": a variable without a value in the script, replace it by its value" if "$" in str(value) or "`" in str(value) else ""
        raise ValueRangeError(f"{flag} is {str(value)!r}, must be a whole number{hint}") from None
    if not least <= number <= 1e15 or number != int(number):
        raise ValueRangeError(f"{flag} is {value}, must be a whole number of at least {least}")
    return int(number)
