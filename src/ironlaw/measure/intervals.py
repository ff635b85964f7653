"""Sets of instants as sorted, disjoint half-open intervals of int64 nanoseconds: union, intersection, difference, length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ironlaw.measure.events import Column

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Instants:
    """Disjoint intervals ``[start, end)`` in order."""

    start: Column
    end: Column

    @property
    def length(self) -> int:
        """The total length in ns."""
        return int((self.end - self.start).sum())

    def __and__(self, other: Instants) -> Instants:
        return _where(self, other, lambda a, b: a & b)

    def __sub__(self, other: Instants) -> Instants:
        return _where(self, other, lambda a, b: a & ~b)

    def __or__(self, other: Instants) -> Instants:
        return union(np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end]))

    def covers(self, times: Column) -> Mask:
        """Which of ``times`` are in one of the intervals.

        >>> union(np.array([0, 5]), np.array([4, 7])).covers(np.array([3, 4, 5])).tolist()
        [True, False, True]
        """
        if not len(self.start):
            return np.zeros(len(times), bool)
        at = np.searchsorted(self.start, times, "right") - 1
        return np.asarray((at >= 0) & (times < self.end[np.maximum(at, 0)]))


NOTHING = Instants(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Column, end: Column) -> Instants:
    """The instants in any of the intervals, which may overlap and come in any order.

    >>> both = union(np.array([5, 0, 2]), np.array([7, 3, 4]))
    >>> both.start.tolist(), both.end.tolist(), both.length
    ([0, 5], [4, 7], 6)
    """
    some = end > start
    start, end = start[some], end[some]
    if not len(start):
        return NOTHING
    order = np.argsort(start, kind="stable")
    start, latest_end = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate([[True], start[1:] > latest_end[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Instants(start[first], latest_end[last])


def gaps(covered: Instants, span: tuple[int, int] | None = None) -> Instants:
    """The instants between the intervals of ``covered``; with ``span`` also those before the first and after the last.

    >>> gaps(union(np.array([0, 5]), np.array([4, 7]))).length
    1
    >>> gaps(union(np.array([0, 5]), np.array([4, 7])), (0, 9)).length
    3
    """
    if span is None:
        return Instants(covered.end[:-1], covered.start[1:])
    start, end = np.append(np.int64(span[0]), covered.end), np.append(covered.start, np.int64(span[1]))
    return Instants(start[end > start], end[end > start])


def _where(a: Instants, b: Instants, rule: Callable[[Mask, Mask], Mask]) -> Instants:
    """The instants where ``rule`` is true of (in ``a``, in ``b``)."""
    times = np.unique(np.concatenate([a.start, a.end, b.start, b.end]))
    if len(times) < 2:
        return NOTHING
    holds = rule(a.covers(times[:-1]), b.covers(times[:-1]))
    return union(times[:-1][holds], times[1:][holds])
