"""A distribution of lengths as two arrays: lengths in tokens, ascending, and the share of the documents that has each."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from ironlaw.frozen import Frozen

LONGEST = 1e9  # tokens of a document; a longer one is a typing error


class Histogram(Frozen):
    """Lengths [token], ascending and distinct, and their shares, which sum to 1."""

    lengths: Any
    shares: Any

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Histogram:
        """The distribution of pairs of a length and a count; equal lengths are put together.

        >>> made = Histogram.of([(4, 1), (2, 1), (4, 2)])
        >>> made.lengths.tolist(), made.shares.tolist()
        ([2.0, 4.0], [0.25, 0.75])
        """
        rows = np.array(list(pairs), dtype=np.float64).reshape(-1, 2)
        rows = rows[rows[:, 1] > 0.0]
        lengths, which = np.unique(rows[:, 0], return_inverse=True)
        counts = np.bincount(which.ravel(), weights=rows[:, 1])
        return cls(lengths, counts / counts.sum())

    @cached_property
    def mean(self) -> float:
        """Mean length of a document [token]."""
        return float(np.sum(self.lengths * self.shares))

    @cached_property
    def of_a_token(self) -> float:
        """Mean length of the document of a random token [token]: the sum of the squares over the sum."""
        return float(np.sum(self.lengths**2 * self.shares)) / self.mean

    @property
    def longest(self) -> float:
        """The longest document [token]."""
        return float(self.lengths[-1])

    @cached_property
    def cumulated(self) -> Any:
        """Share of the documents that are at most as long as each length."""
        total = np.cumsum(self.shares)
        total[-1] = 1.0
        return total

    def quantile(self, share: Any) -> Any:
        """The length that a ``share`` of the documents does not exceed [token]."""
        return self.lengths[np.minimum(np.searchsorted(self.cumulated, share - 1e-12), self.lengths.size - 1)]

    def largest_of(self, number: float) -> Histogram:
        """The distribution of the longest of ``number`` independent documents: the cumulated shares to that power.

        >>> Histogram.of([(1, 1), (3, 1)]).largest_of(2).mean  # 1 with probability 1/4
        2.5
        """
        raised = self.cumulated**number
        shares = np.diff(raised, prepend=0.0)
        kept = shares > 0.0
        return Histogram(self.lengths[kept], shares[kept])

    def capped(self, most: float) -> Histogram:
        """The distribution where longer documents are cut to ``most`` tokens and the rest of them is lost."""
        if self.longest <= most:
            return self
        return Histogram.of(zip(np.minimum(self.lengths, most), self.shares, strict=True))

    def chunked(self, most: float) -> Histogram:
        """The distribution of pieces where longer documents are cut into chunks of ``most`` tokens and a rest; no token is lost."""
        if self.longest <= most:
            return self
        whole = np.floor(self.lengths / most)
        rest = self.lengths - whole * most
        pairs = [*zip(np.full(whole.size, most), whole * self.shares, strict=True)]
        pairs += [(left, share) for left, share in zip(rest, self.shares, strict=True) if left >= 0.5]
        return Histogram.of(pairs)

    def sample(self, number: int, seed: int) -> Any:
        """``number`` lengths in a random order, which are the quantiles at the middles of as many equal shares [token].

        So their mean is that of the distribution up to the width of one share, and only the order is random.
        """
        order = np.argsort(np.random.default_rng(seed).random(number), kind="stable")
        return self.quantile((np.arange(number) + 0.5) / number)[order]
