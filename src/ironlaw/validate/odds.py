"""Whether odds hold: of runs that were said to fit with a probability, how many ran.

Every stack is scored with the spread of memory that a stack without runs borrows, to which no table of runs that fitted or failed
contributes: its own runs are left out. ``odds`` counts by probability; ``holds`` says whether the two ends keep their promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ironlaw.validate.fits import Fit

LIKELY, UNLIKELY = 0.9, 0.1  # at least this, and less than this, are the two ends
WRONG = 0.05  # of each end, the share that may end otherwise
BINS = ((0.0, UNLIKELY), (UNLIKELY, 0.5), (0.5, LIKELY), (LIKELY, 1.0))


def odds(rows: Sequence[Fit]) -> dict[str, Any]:
    """Counts by probability over all rows, and over the rows of every stack."""
    return {**counted(rows), "stacks": {stack: counted([r for r in rows if r.stack == stack]) for stack in stacks(rows)}}


def stacks(rows: Iterable[Fit]) -> list[str]:
    """The stacks with a row that is scored."""
    return sorted({r.stack for r in rows if r.held_out is not None})


def counted(rows: Sequence[Fit]) -> dict[str, Any]:
    """Rows, what ran and what was said on average, by probability; and whether the ends hold."""
    scored = [r for r in rows if r.held_out is not None and r.asked is not None]
    bins = [_of_bin(scored, low, high) for low, high in BINS]
    likely, unlikely = bins[-1], bins[0]
    failed, ran = likely["rows"] - likely["ran"], unlikely["ran"]
    return {
        "rows": len(scored),
        "bins": bins,
        "likely": likely["rows"],
        "likely_failed": failed,
        "unlikely": unlikely["rows"],
        "unlikely_ran": ran,
        "holds": failed <= WRONG * likely["rows"] and ran <= WRONG * unlikely["rows"],
    }


def _of_bin(scored: Sequence[Fit], low: float, high: float) -> dict[str, Any]:
    """The rows that were said to fit with a probability of at least ``low`` and less than ``high``; the last one has its end."""
    found = [r for r in scored if low <= _said(r) < high or (high == 1.0 and _said(r) == 1.0)]
    ran = sum(r.asked is not None and r.asked.ran for r in found)
    said = sum(_said(r) for r in found) / len(found) if found else None
    return {"from": low, "to": high, "rows": len(found), "ran": ran, "said": said}


def _said(row: Fit) -> float:
    return 0.0 if row.held_out is None else row.held_out
