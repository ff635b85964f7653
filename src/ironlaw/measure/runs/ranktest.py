"""The rank test of two samples (Mann and Whitney), exact where samples are small and also with ties.

H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables is stochastically larger than the other", Annals of
Mathematical Statistics 18 (1947) 50-60. Ties get the mean of their ranks; the variance with ties is that of E. L. Lehmann,
"Nonparametrics: statistical methods based on ranks" (1975), section 1.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EXACT_UP_TO = 50  # values in both samples; C(50, 25) = 1.3e14 still counts exactly in int64


@dataclass(frozen=True)
class RankTest:
    """How likely a shift at least as large is by chance, in each direction."""

    u: float  # pairs in which the second sample is larger, ties counted half
    p_larger: float  # that the second sample's ranks are this high by chance
    p_smaller: float
    exact: bool


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> RankTest:
    """Whether ``second`` tends to be larger than ``first``, or smaller; both one-sided.

    >>> mann_whitney([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]).p_larger == 1 / 252
    True
    """
    n, m = len(first), len(second)
    if not n or not m:
        raise ValueError("a rank test needs values in both samples")
    ranks = midranks_doubled(np.concatenate([np.asarray(first, float), np.asarray(second, float)]))
    total = int(ranks[n:].sum())  # twice the sum of ranks of the second sample
    u = total / 2 - m * (m + 1) / 2
    if n + m <= EXACT_UP_TO:
        counts = rank_sum_counts(ranks, m)
        every = math.comb(n + m, m)
        return RankTest(u, int(counts[total:].sum()) / every, int(counts[: total + 1].sum()) / every, True)
    # the normal approximation, with the variance for ties and half a step for continuity
    size = n + m
    _, ties = np.unique(ranks, return_counts=True)
    spread = n * m / 12 * (size + 1 - float((ties.astype(float) ** 3 - ties).sum()) / (size * (size - 1)))
    if spread <= 0:  # every value is the same
        return RankTest(u, 1.0, 1.0, False)
    sigma = math.sqrt(spread)
    return RankTest(u, _above((u - n * m / 2 - 0.5) / sigma), _above((n * m / 2 - u - 0.5) / sigma), False)


def midranks_doubled(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Twice the rank of each value, ties at their mean rank: whole numbers.

    >>> midranks_doubled(np.array([3.0, 1.0, 3.0])).tolist()
    [5, 2, 5]
    """
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1).astype(np.int64)


def rank_sum_counts(ranks: NDArray[np.int64], chosen: int) -> NDArray[np.int64]:
    """How many ways to choose ``chosen`` of ``ranks`` have each sum: every assignment of ranks to samples is as likely."""
    counts = np.zeros((chosen + 1, int(ranks.sum()) + 1), np.int64)
    counts[0, 0] = 1
    for rank in ranks.tolist():
        counts[1:, rank:] += counts[:-1, :-rank].copy()
    ways: NDArray[np.int64] = counts[chosen]
    return ways


def _above(z: float) -> float:
    """The chance of a standard normal variable above ``z``."""
    return 0.5 * math.erfc(z / math.sqrt(2))
