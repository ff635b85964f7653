"""The record of a warning. It is its own sentence, so a page prints it as it is; everything else of it is data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ironlaw import units

PAGE = "docs/warnings.md"  # has a heading for every code
OTHER = "other"  # the code of a sentence without a record, such as one of an answer that an earlier version saved


class Row(NamedTuple):
    """A code's row in the table of warnings.

    ``sentence`` and ``action`` are templates: ``{seconds:@s}`` is a value with its unit, ``{names:and}`` a list joined by "and",
    ``{action}`` the action, any other format that of Python.
    """

    sentence: str
    action: str = ""  # what to do
    option: str | None = None  # the option that it speaks of


class _Value:
    """A value as a template prints it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __format__(self, form: str) -> str:
        if form.startswith("@"):
            unit, _, digits = form[1:].partition(",")
            return units.show(float(self.value), unit, int(digits or 3))
        if form in _JOINED:
            return _JOINED[form].join(map(str, self.value))
        return format(self.value, form)

    def __repr__(self) -> str:
        return repr(self.value)


_JOINED = {"and": " and ", "list": ", "}


class Sentence(str):
    """A sentence of a headline, with a code and the values [SI] that it tells. Nothing of it changes.

    >>> one = Sentence("bound by compute (83% of the step)", "bound", {"by": "compute", "share": 0.83})
    >>> headline_data([one, "and more"])[1]
    {'code': 'detail', 'text': 'and more', 'values': {}}
    """

    code: str
    values: Mapping[str, Any]

    def __new__(cls, sentence: str, code: str, values: Mapping[str, Any] | None = None) -> Sentence:
        """A sentence with its code and values."""
        made = super().__new__(cls, sentence)
        made.__dict__.update(code=code, values=MappingProxyType(dict(values or {})))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Sentence, (str(self), self.code, dict(self.values))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Sentence.{name} is frozen")


def headline_data(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The sentences of a headline as plain data; one without a code is the ``answer`` where it is the first, else a ``detail``."""
    data = []
    for at, line in enumerate(lines):
        code, values = (line.code, line.values) if isinstance(line, Sentence) else ("detail" if at else "answer", {})
        data.append({"code": code, "text": str(line), "values": _plain(values)})
    return data


class Caution(str):
    """A warning: its sentence, with the code, option, values [SI] and action from which the sentence was made. Nothing of it changes.

    >>> one = Caution.of(Row("{gpus:,.0f} take {seconds:@s}: {action}", "give --gpus", "gpus"), "too-slow", gpus=1024.0, seconds=0.25)
    >>> one
    '1,024 take 250 ms: give --gpus'
    >>> one.code, one.option, one.action, dict(one.values), one.anchor
    ('too-slow', 'gpus', 'give --gpus', {'gpus': 1024.0, 'seconds': 0.25}, 'docs/warnings.md#too-slow')
    """

    code: str
    option: str | None
    values: Mapping[str, Any]
    action: str

    def __new__(
        cls, sentence: str, code: str = OTHER, option: str | None = None, values: Mapping[str, Any] | None = None, action: str = ""
    ) -> Caution:
        """The warning of a sentence."""
        made = super().__new__(cls, sentence)
        made.__dict__.update(code=code, option=option, values=MappingProxyType(dict(values or {})), action=action)
        return made

    @classmethod
    def of(cls, row: Row, code: str, option: str | None = None, /, **values: Any) -> Caution:
        """The warning that a row makes of these values."""
        shown = {name: _Value(value) for name, value in values.items()}
        action = row.action.format_map(shown)
        return cls(row.sentence.format_map({**shown, "action": _Value(action)}), code, option or row.option, values, action)

    @property
    def sentence(self) -> str:
        """The warning as text."""
        return str(self)

    @property
    def anchor(self) -> str:
        """The place in the docs that describes the code."""
        return f"{PAGE}#{self.code}"

    def within(self, where: str) -> Caution:
        """The warning about a part of an answer, such as a file or a job, which its sentence names first.

        >>> Caution("no steps", "no-steps").within("rank0.json")
        'rank0.json: no steps'
        """
        return Caution(f"{where}: {self}", self.code, self.option, {**self.values, "where": where}, self.action)

    def __reduce__(self) -> tuple[Any, ...]:
        return Caution, (str(self), self.code, self.option, dict(self.values), self.action)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Caution.{name} is frozen")


def as_record(warning: str | Mapping[str, Any]) -> dict[str, Any]:
    """A warning as plain data. A bare sentence, which answers of schema version 1 have, gets the code ``other``.

    >>> as_record("left out: a part")["code"]
    'other'
    """
    if isinstance(warning, Mapping):
        return dict(warning)
    one = warning if isinstance(warning, Caution) else Caution(warning)
    values = {name: _plain(value) for name, value in one.values.items()}
    return {"code": one.code, "option": one.option, "values": values, "sentence": str(one), "action": one.action, "anchor": one.anchor}


def read_record(warning: str | Mapping[str, Any]) -> Caution:
    """A warning from its plain data, or from the bare sentence that answers of schema version 1 have.

    >>> one = Caution("no steps", "no-steps", values={"files": 1})
    >>> read_record(as_record(one)) == one, read_record("no steps").code
    (True, 'other')
    """
    if isinstance(warning, str):
        return warning if isinstance(warning, Caution) else Caution(warning)
    code, action = str(warning.get("code", OTHER)), str(warning.get("action", ""))
    return Caution(str(warning.get("sentence", "")), code, warning.get("option"), warning.get("values"), action)


def sentences(warnings: Iterable[str | Mapping[str, Any]]) -> list[str]:
    """The sentences of warnings, each once; of records as of the texts that earlier versions saved."""
    return list(dict.fromkeys(str(read_record(one)) for one in warnings))


def without(warnings: Iterable[Caution], code: str) -> list[Caution]:
    """The warnings that have another code."""
    return [one for one in warnings if one.code != code]


def only(warnings: Iterable[Caution], code: str) -> list[Caution]:
    """The warnings that have a code."""
    return [one for one in warnings if one.code == code]


def _plain(value: Any) -> Any:
    """A value as JSON has it; None where a number is not finite."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
