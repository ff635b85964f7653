"""How much one run of a user's own tells of the others: the law of ``estimate.evidence.correction``, learned from publishers left out.

Runs of one publisher stand in for runs of one user: one is taken as measured, and corrects all others by its held-out error. The share of
an error that a neighbour has too, and how far that reaches, minimise what is left of the errors: the mean over publishers of the sum of the
absolute log errors after the correction over that before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ironlaw.estimate.answer.bands import place_of
from ironlaw.estimate.evidence.correction import OwnRun, covariance
from ironlaw.estimate.evidence.distance import NAMES, SIZES, distance
from ironlaw.validate.predict import Prepared
from ironlaw.validate.score import Scored
from ironlaw.validate.widths import stack_stated

SHARES = tuple(round(0.3 + 0.05 * k, 2) for k in range(14))  # tried; 0.95 at most: a repeated run differs by some per cent
REACHES = (0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.2, 3.3)  # tried, in units of ``distance``
NEAR = 0.15  # distance of a run that is like the question: the same kind, device, format and stack, and sizes within a factor of 2.3


class Pairs(NamedTuple):
    """All pairs of runs of one publisher: distance, log error of the run that corrects and of the corrected one, and its half-width."""

    family: str
    gap: Any
    own: Any
    other: Any
    half_width: Any

    def corrected(self, share: float, reach: float) -> tuple[Any, Any]:
        """(what is left of the log error, half-width of the band) of every pair after the correction by one run."""
        shared = covariance(self.gap, share, reach)
        return self.other - shared * self.own, self.half_width * np.sqrt(1.0 - shared**2)

    def near(self) -> Pairs:
        """Only pairs of runs that are alike."""
        rows = self.gap <= NEAR
        return Pairs(self.family, *(column[rows] for column in self[1:]))


def pairs_of(prepared: Prepared, predicted: Any, half_width: Any) -> list[Pairs]:
    """The pairs of every publisher with two runs or more that have a band. Errors are of ``log(measured / predicted)``."""
    log = np.log(prepared.measured / np.asarray(predicted))
    usable = np.isfinite(log) & np.isfinite(half_width)
    places = []
    for run, (estimate, row) in zip(prepared.runs, prepared.answers, strict=True):
        places.append(place_of(*estimate.place_of(row), stack_stated(run)))
    found = []
    for family in dict.fromkeys(prepared.families.tolist()):
        rows = np.flatnonzero(usable & (prepared.families == family))
        if rows.size < 2:
            continue
        columns = {name: np.array([places[i][name] for i in rows]) for name in (*NAMES, *SIZES)}
        columns["stack"] = np.where(columns["stack"] == "", "the same", columns["stack"])  # a publisher's unknown stack is one stack
        gap = distance({name: column[:, None] for name, column in columns.items()}, columns)
        one, other = np.nonzero(~np.eye(rows.size, dtype=bool))
        found.append(Pairs(family, gap[one, other], log[rows[one]], log[rows[other]], np.asarray(half_width)[rows[other]]))
    return found


def learn(pairs: Sequence[Pairs], without: str = "") -> tuple[float, float]:
    """(share, reach) that leave least of the errors after a correction by one run; publishers weigh the same."""
    scores = {
        (share, reach): float(np.mean([_left_over(p, share, reach) for p in pairs if p.family != without]))
        for share in SHARES
        for reach in REACHES
    }
    return min(scores, key=lambda key: scores[key])


def _left_over(pairs: Pairs, share: float, reach: float) -> float:
    """Sum of the absolute log errors after the correction, over that before."""
    return float(np.abs(pairs.other - covariance(pairs.gap, share, reach) * pairs.own).sum() / np.abs(pairs.other).sum())


def judge(pairs: Sequence[Pairs]) -> dict[str, Any]:
    """Errors before and after a correction by one run, by publisher, each with a law learned without it; for like runs and for all."""
    table = []
    for p in pairs:
        share, reach = learn(pairs, p.family) if len(pairs) > 1 else learn(pairs)
        row: dict[str, Any] = {"family": p.family, "share": share, "reach": reach}
        for name, group in (("like", p.near()), ("all", p)):
            if not group.gap.size:
                continue
            left, width = group.corrected(share, reach)
            row[name] = {
                "pairs": int(group.gap.size),
                "before": float(np.median(np.abs(np.expm1(-group.other)))),
                "after": float(np.median(np.abs(np.expm1(-left)))),
                "coverage": float(np.mean(np.abs(left) <= width)),
                "narrower": float(np.median(width / group.half_width)),
            }
        table.append(row)
    return {"families": table, **{name: _summary([row[name] for row in table if name in row]) for name in ("like", "all")}}


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, float] | None:
    """Figures over publishers, each weighing the same."""
    if not rows:
        return None
    before, after = (np.array([row[name] for row in rows]) for name in ("before", "after"))
    return {
        "families": len(rows),
        "before": float(np.median(before)),
        "after": float(np.median(after)),
        "mean_before": float(before.mean()),
        "mean_after": float(after.mean()),
        "coverage": float(np.mean([row["coverage"] for row in rows])),
        "narrower": float(np.median([row["narrower"] for row in rows])),
    }


def runs_to_correct_by(scored: Scored) -> list[OwnRun]:
    """The runs of a user for a correction file; a run whose error no published run lets judge is left out."""
    found = []
    for i, run in enumerate(scored.prepared.runs):
        estimate, row = scored.prepared.answers[i]
        place = place_of(*estimate.place_of(row), stack_stated(run))
        if np.isfinite(scored.half_width[i]):
            ratio = float(scored.prepared.measured[i] / scored.predicted[i])
            found.append(OwnRun(run.id, {n: _plain(v) for n, v in place.items()}, ratio, float(scored.half_width[i])))
    return found


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, (np.floating, int, float)) and not isinstance(value, bool) else value
