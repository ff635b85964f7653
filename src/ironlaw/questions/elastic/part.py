"""A part of an answer: sentences, tables, terms and warnings on one subject."""

from __future__ import annotations

from dataclasses import dataclass, field

from ironlaw.cautions.record import Caution
from ironlaw.questions.answer import Table
from ironlaw.terms import Term


@dataclass(frozen=True)
class Part:
    """What one subject adds to an answer."""

    headline: list[str]
    tables: list[Table]
    terms: list[Term]
    warnings: list[Caution] = field(default_factory=list)
