"""Read the options of a question: from a command line, a TOML file, a CSV or Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.errors import QuestionError, UnknownOptionError, nearest_names, speaking_of
from ironlaw.question import synonyms
from ironlaw.question.options import OPTIONS, flag
from ironlaw.question.readers import counts


def read_options(given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Read and check the values of ``given``; an unknown name or a wrong value is an error that names the option and the file."""
    values: dict[str, Any] = {}
    for raw, value in synonyms.resolve(given, OPTIONS, lambda name: flag(name, where)).items():
        name = raw.replace("-", "_")
        if name not in OPTIONS:
            near = nearest_names(name, OPTIONS)
            hint = ", ".join(near or OPTIONS)
            raise UnknownOptionError(f"unknown option {raw!r}{' in ' + where if where else ''}; nearest: {hint}", option=raw, nearest=near)
        if value is None:
            continue
        option = OPTIONS[name]
        with speaking_of(name, value):
            if option.column and is_column(value) and not (option.names and all(isinstance(v, str) for v in value)):
                values[name] = [option.read(v, flag(name, where)) for v in flat(value)]
            else:
                values[name] = option.read(value, flag(name, where))
    return values


SECTIONS = ("plan", "cluster", "run", "training")  # tables of a question in TOML; [model] has dimensions


def from_sections(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options of a question in TOML, at the top or in a section; ``where`` names it in errors.

    >>> from_sections({"model": "gpt-2", "cluster": {"on": "h100-sxm", "gpus": 8}}, "run.toml")
    {'model': 'gpt-2', 'on': 'h100-sxm', 'gpus': 8}
    """
    options: dict[str, Any] = {}
    for key, value in table.items():
        items = value if isinstance(value, dict) and key in SECTIONS else {key: value}
        for name, item in items.items():
            if name in options:
                raise QuestionError(f"{name} is given twice in {where}")
            options[name] = item
    return options


def is_column(value: Any) -> bool:
    """True for a sequence or array of values, not for a text or a set of names."""
    return not isinstance(value, (str, bytes, Mapping, set, frozenset)) and hasattr(value, "__len__")


def flat(value: Any) -> list[Any]:
    """A column's items as Python values."""
    return value.ravel().tolist() if hasattr(value, "ravel") else list(value)


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
