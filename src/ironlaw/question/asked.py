"""A question as one typed object: a field for every option, and one row for every value of the column options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from ironlaw.errors import MissingOptionError, QuestionError
from ironlaw.question import defaults
from ironlaw.question.assumptions import printed
from ironlaw.question.fields import COLUMNS, OfQuestion, Row
from ironlaw.question.forms import check_pairs
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import flat, is_column
from ironlaw.question.words import readings_of


class Asked(OfQuestion):
    """The options of an estimate: those of ``fields.OfQuestion``, and rows of those that may be columns."""

    rows: tuple[Row, ...] = (Row(),)
    given: Mapping[str, Any] = MappingProxyType({})  # options the user gave, as the assumptions print them
    readings: tuple[tuple[str, str], ...] = ()  # of values with two readings: what was written, and how it was read


SCALARS = frozenset(OfQuestion.fields)


def asked_of(options: Mapping[str, Any], only: Collection[str] = ()) -> Asked:
    """Make an Asked of values that ``read_options`` has read: of all, or of the names in ``only``.

    Names that are no option of an estimate are left out.
    """
    return with_options(Asked(), {name: value for name, value in options.items() if not only or name in only})


def with_options(asked: Asked, options: Mapping[str, Any]) -> Asked:
    """A question with more options given, or other values of them; None leaves an option open.

    A list of values for a column option gives as many rows.
    """
    columns = {name: flat(value) if is_column(value) else [value] for name, value in options.items() if name in COLUMNS}
    rows = max((len(asked.rows), *(len(column) for column in columns.values())))
    for name, column in columns.items():
        if len(column) not in (1, rows):
            raise QuestionError(f"{name} has {len(column)} values, other columns {rows}: columns must have one length")
    given = {**asked.given, **{name: _summary(value) for name, value in options.items() if name in SCALARS or name in columns}}
    return asked.replace(
        rows=tuple(
            asked.rows[i if len(asked.rows) > 1 else 0]._replace(**{name: c[i if len(c) > 1 else 0] for name, c in columns.items()})
            for i in range(rows)
        ),
        given={name: value for name, value in given.items() if value is not None},
        readings=tuple(dict.fromkeys([*asked.readings, *readings_of(options)])),
        **{name: value for name, value in options.items() if name in SCALARS},
    )


def _summary(value: Any) -> Any:
    return f"{len(value)} values" if is_column(value) else printed(value)


# --- checks that need no record

MEANING = {"model": "argument MODEL", "on": "option --on ACCELERATOR", "gpus": "option --gpus N"}


def require(asked: Asked, *names: str) -> None:
    """Refuse a question that lacks one of ``names``."""
    for name in names:
        if name not in asked.given:
            raise MissingOptionError(f"missing {MEANING[name]}", option=name)


def check(asked: Asked) -> None:
    """Refuse options that contradict each other."""
    given = asked.given
    if asked.mtp_stage is not None and not asked.mtp_stage < len(asked.layers_per_stage):
        raise QuestionError("--mtp-stage needs --layers-per-stage and must be one of its stages, counted from 0")
    check_pairs(given, OPTIONS)
    if asked.cp_by_length and asked.packing not in defaults.WHOLE_PACKINGS:
        raise QuestionError(
            f"--cp-by-length packs whole documents, --packing {asked.packing} does not: use {' or '.join(defaults.WHOLE_PACKINGS)}"
        )
    for row in asked.rows:
        if asked.layers_per_stage and row.pp not in (None, float(len(asked.layers_per_stage))):
            stages = len(asked.layers_per_stage)
            raise QuestionError(f"--layers-per-stage lists {stages} stages, --pp asks for {printed(row.pp)} stages")
