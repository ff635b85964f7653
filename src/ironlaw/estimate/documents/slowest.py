"""The slowest of many ranks whose work varies: sums of independent micro-batches by discrete convolution, maxima by powers.

Work is put on a grid that keeps its mean: each value is shared between its two neighbours. A sum of n micro-batches has the n-th power of
the grid's discrete Fourier transform, and the largest of d ranks has the d-th power of the cumulated shares. The grid has POINTS points
over at most SPREAD standard deviations of the sum beside the range of one micro-batch, and its error is below a thousandth of the work.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ironlaw.frozen import Frozen

POINTS = 8192  # of the grid
SPREAD = 12.0  # standard deviations of a sum that the grid covers on either side, beside the range of one micro-batch


class Work(Frozen):
    """Work of a sequence over its mean: values, and how likely each is."""

    values: Any
    shares: Any

    @classmethod
    def of(cls, work: Any, shares: Any) -> Work:
        """The work of sequences in any unit."""
        mean = float(np.sum(work * shares))
        return cls(work / mean if mean > 0.0 else np.ones_like(work), shares)


class Slowest(NamedTuple):
    """Work of the slowest rank over the mean of all ranks: expected, median and 95th percentile; and the largest micro-batch of a rank.

    Under a balance the largest sequence of the step over a rank's share, which is below 1 where it is no limit.
    """

    expected: Any
    median: Any
    high: Any
    largest: Any


EVEN = Slowest(1.0, 1.0, 1.0, 1.0)


def convolved(values: Any, shares: Any, number: float) -> tuple[Any, Any]:
    """The distribution of the mean of ``number`` independent draws, on a grid.

    >>> values, shares = convolved(np.array([0.0, 2.0]), np.array([0.5, 0.5]), 2.0)
    >>> round(float(np.sum(values * shares)), 9), round(float(np.sum(shares[np.abs(values - 1.0) < 0.01])), 6)
    (1.0, 0.5)
    """
    mean = float(np.sum(values * shares))
    low, high = float(np.min(values)), float(np.max(values))
    deviation = float(np.sqrt(np.sum((values - mean) ** 2 * shares)))
    if number <= 1.0 or high - low <= 1e-12 * max(mean, 1e-300):
        return values, shares
    spread = SPREAD * deviation * np.sqrt(number)
    down, up = (min(number * reach, spread + reach) for reach in (mean - low, high - mean))  # how far the sum may be from its mean
    step = 1.02 * (down + up) / POINTS
    position = (values - mean) / step
    below = np.floor(position)
    upper = position - below
    grid = np.zeros(POINTS)
    np.add.at(grid, below.astype(np.int64) % POINTS, shares * (1.0 - upper))
    np.add.at(grid, (below.astype(np.int64) + 1) % POINTS, shares * upper)
    summed = np.fft.irfft(np.fft.rfft(grid) ** number, POINTS)
    start = int(np.floor(-down / step)) - 1  # the grid goes round: the first point that a sum may have
    order = (start + np.arange(POINTS)) % POINTS
    kept = np.maximum(summed[order], 0.0)
    return mean + (start + np.arange(POINTS)) * step / number, kept / kept.sum()


def largest_of(values: Any, shares: Any, number: float) -> tuple[Any, Any]:
    """The distribution of the largest of ``number`` independent draws of ascending ``values``."""
    if number <= 1.0:
        return values, shares
    cumulated = np.minimum(np.cumsum(shares), 1.0)
    cumulated[-1] = 1.0
    return values, np.diff(cumulated**number, prepend=0.0)


def _ascending(work: Work) -> tuple[Any, Any]:
    order = np.argsort(work.values, kind="stable")
    return work.values[order], work.shares[order]


@lru_cache(maxsize=8192)
def slowest(work: Work, balance: str, micro_batch: float, number: float, ranks: float, in_step: float) -> Slowest:
    """The slowest of ``ranks`` that run ``number`` micro-batches of ``micro_batch`` sequences each.

    Groups of ``in_step`` ranks meet in every micro-batch and run it at the pace of their slowest; the groups meet once a step.

    >>> even = Work.of(np.array([1.0, 3.0]), np.array([0.5, 0.5]))
    >>> slowest(even, "none", 1.0, 1.0, 2.0, 1.0).expected  # work 0.5 or 1.5: the larger of two is 1.5 with probability 3/4
    1.25
    """
    if ranks <= 1.0 and number <= 1.0:
        return EVEN
    return BALANCES[balance](work, micro_batch, number, ranks, in_step)


def _at_random(work: Work, micro_batch: float, number: float, ranks: float, in_step: float) -> Slowest:
    """Every rank draws its sequences at random."""
    if float(np.max(work.values)) == float(np.min(work.values)):
        return EVEN
    values, shares = convolved(*_ascending(work), micro_batch)
    values, shares = largest_of(values, shares, in_step)
    most = float(np.sum(np.multiply(*largest_of(values, shares, number))))
    values, shares = convolved(values, shares, number)
    values, shares = largest_of(values, shares, max(ranks / in_step, 1.0))
    cumulated = np.cumsum(shares)
    middle, high = (float(values[min(int(np.searchsorted(cumulated, at)), values.size - 1)]) for at in (0.5, 0.95))
    return Slowest(max(float(np.sum(values * shares)), 1.0), middle, high, max(most, 1.0))


def _sorted(work: Work, micro_batch: float, number: float, ranks: float, in_step: float) -> Slowest:
    """The micro-batches of a step are sorted by work, and ranks that run together take neighbours: one rank has the largest of each."""
    del in_step
    if float(np.max(work.values)) == float(np.min(work.values)):
        return EVEN
    values, shares = convolved(*_ascending(work), micro_batch)
    cumulated, every = np.cumsum(shares), number * ranks
    place = np.arange(1.0, every + 1.0) / (every + 1.0) if every <= 1e6 else np.linspace(0.0, 1.0, 1_000_001)[1:]
    ordered = values[np.minimum(np.searchsorted(cumulated, place), values.size - 1)]
    mean = float(np.mean(ordered))
    last = np.ceil(np.arange(1.0, number + 1.0) * ordered.size / number).astype(np.int64) - 1
    expected = max(float(np.mean(ordered[last])) / mean, 1.0)
    return Slowest(expected, expected, expected, max(float(ordered[-1]) / mean, 1.0))


def _by_flops(work: Work, micro_batch: float, number: float, ranks: float, in_step: float) -> Slowest:
    """Sequences are dealt so that ranks have equal work: no rank has more than its share, but for the largest sequence of the step.

    The largest over that share is below 1 where it is no limit. It is what a perfect packer reaches, and a greedy one nearly. Where ranks
    meet in every micro-batch, each micro-batch is dealt so.
    """
    values, shares = _ascending(work)
    held, dealt = (micro_batch, in_step) if in_step > 1.0 else (micro_batch * number, ranks)  # sequences of a rank's share, and shares
    largest = float(np.sum(np.multiply(*largest_of(values, shares, held * dealt)))) / held
    most = float(np.sum(np.multiply(*largest_of(*convolved(values, shares, micro_batch), number))))
    return Slowest(largest, largest, largest, max(most, 1.0))


BALANCES = {"none": _at_random, "sorted": _sorted, "flops": _by_flops}
