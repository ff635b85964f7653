"""A saved answer as the page draws it: whose answer it is, what was given, and answers of earlier versions in today's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Answer = Mapping[str, Any]
_BY_KEYS = (("plan", {"plans", "space"}), ("estimate", {"step", "memory", "plan"}), ("diagnose", {"files", "findings"}))


def verb_of(answer: Any) -> str | None:
    """The verb that gave an answer; None for what is no answer of ironlaw.

    >>> verb_of({"schema_version": 2, "step": {}, "memory": {}, "plan": {}}), verb_of({"schema_version": 2, "asked": {"verb": "money"}})
    ('estimate', 'money')
    """
    if not isinstance(answer, Mapping) or "schema_version" not in answer:
        return None
    for verb, keys in _BY_KEYS:
        if keys <= answer.keys():
            return verb
    asked = answer.get("asked")
    if isinstance(asked, Mapping) and isinstance(asked.get("verb"), str):
        return str(asked["verb"])
    return "validate" if {"predictions", "groups"} <= answer.keys() else None


def in_todays_form(answer: Answer) -> dict[str, Any]:
    """An answer with sentences as records, where an earlier version wrote bare texts, and without those that it did not have.

    >>> in_todays_form({"headline": ["fits"]})["headline"]
    [{'code': 'detail', 'text': 'fits', 'values': {}}]
    """
    said = [{"code": "detail", "text": one, "values": {}} if isinstance(one, str) else one for one in answer.get("headline") or []]
    return {**answer, "headline": said}


def given_texts(answer: Answer) -> dict[str, str]:
    """The options that were given, as an address has them.

    >>> given_texts({"asked": {"given": {"gpus": 8, "sp": True, "on": ["h100-sxm", "b200-sxm"]}}})
    {'gpus': '8', 'sp': 'on', 'on': 'h100-sxm,b200-sxm'}
    """
    asked = answer.get("asked")
    given = asked.get("given") if isinstance(asked, Mapping) else None
    return {str(name): _text(value) for name, value in given.items()} if isinstance(given, Mapping) else {}


def _text(value: Any) -> str:
    """A value as an option is written."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_text(item)}" for name, item in value.items())
    return ",".join(map(_text, value)) if isinstance(value, (list, tuple)) else str(value)
