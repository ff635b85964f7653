"""The table of all warnings, and how one is made."""

from __future__ import annotations

from typing import Any

from ironlaw.cautions.of_estimates import ROWS as OF_ESTIMATES
from ironlaw.cautions.of_questions import ROWS as OF_QUESTIONS
from ironlaw.cautions.of_traces import ROWS as OF_TRACES
from ironlaw.cautions.record import Caution, Row

ROOMS = {
    "Estimates and searches": OF_ESTIMATES,
    "Questions": OF_QUESTIONS,
    "Diagnoses, stored runs and validations": OF_TRACES,
}  # by headings of their page
WARNINGS: dict[str, Row] = {code: row for rows in ROOMS.values() for code, row in rows.items()}


def caution(code: str, option: str | None = None, /, **values: Any) -> Caution:
    """The warning of a code, its sentence formed from ``values`` [SI].

    >>> caution("left-out", item="hc_mult 4")
    'left out: hc_mult 4'
    """
    return Caution.of(WARNINGS[code], code, option, **values)
