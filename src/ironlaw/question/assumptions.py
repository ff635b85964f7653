"""The list of assumptions of an answer: every value that was given, defaulted, chosen or overridden."""

from __future__ import annotations

from typing import Any

Assumptions = list[dict[str, Any]]


def assume(assumptions: Assumptions, name: str, value: Any, origin: str) -> None:
    """Add the value taken for ``name`` and its origin: given, chosen, default or override."""
    assumptions.append({"name": name, "value": value, "origin": origin})


def printed(value: Any) -> Any:
    """A value as assumptions and messages print it: whole numbers as int, a set as a comma list.

    >>> printed(512.0), printed(frozenset({"tp", "pp"})), printed(frozenset())
    (512, 'pp,tp', 'none')
    """
    if isinstance(value, frozenset):
        return ",".join(sorted(value)) or "none"
    return int(value) if isinstance(value, float) and value.is_integer() else value
