"""A job on fewer accelerators: what fails together, the counts below, and the counts that a run has a use for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ironlaw.catalog.records import Node
from ironlaw.estimate.answer.estimate import answer_asked, evaluate
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.bind.question import Bound
from ironlaw.estimate.fabric.placement import slices_of, tray_of
from ironlaw.estimate.planner.best import UNFIT
from ironlaw.estimate.planner.choose import Bounds, Choice, search_row
from ironlaw.estimate.planner.place import place_choice
from ironlaw.estimate.planner.rows import is_given, with_implied
from ironlaw.estimate.planner.space import Space, read_space
from ironlaw.question.fields import Row
from ironlaw.terms import scalar

KEPT = ("tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch_size")  # of a plan whose data-parallel ranks alone become fewer
NEXT = 8  # counts directly below the most that are tried
SHARED = 12  # counts that share the most divisors with the batch that are tried
LEAST = 0.7  # of the accelerators that are left: smaller counts are tried only where none of these works


class Unit(NamedTuple):
    """What fails together: its name, its accelerators, and the counts that are left as more of them fail, largest first."""

    name: str
    size: float
    counts: Iterator[float]


def unit_of(node: Node, gpus: float, share: float) -> Unit:
    """What a job of ``gpus`` accelerators loses together, of which it takes ``share`` in every scale-up domain.

    It is a node; a tray or a rack where a domain has several servers; a slice of a torus.
    """
    slices, tray, whole = slices_of(node), tray_of(node), float(node.accelerators.value)
    if slices and gpus <= share:
        below = [float(chips) for chips in reversed(slices) if chips < gpus]
        return Unit("slice", gpus - below[0] if below else gpus, iter(below))
    if slices or (tray > 1.0 and gpus > share):
        return Unit("slice" if slices else "rack", share, _down(gpus, share))
    return Unit("tray" if tray > 1.0 else "node", whole, _down(gpus, whole))


def _down(gpus: float, size: float) -> Iterator[float]:
    """The counts below ``gpus`` in steps of ``size``."""
    return (float(n) for n in np.arange(gpus - size, 0.0, -size))


def ranks_left(ranks: float, gpus: float, lost: float) -> float:
    """Data-parallel ranks that are whole after ``lost`` of ``gpus`` accelerators failed, as few ranks as possible being hit.

    >>> ranks_left(16.0, 512.0, 8.0), ranks_left(16.0, 512.0, 33.0)
    (15.0, 14.0)
    """
    return float(ranks - np.ceil(lost / (gpus / ranks)))


def counts_to_try(node: Node, most: float, batch: float) -> list[float]:
    """Counts up to ``most`` that a run may use, in order: whole nodes, or slices where one pod holds the job.

    Of many, the next below and those that share most divisors with the batch, down to ``LEAST`` of ``most``.
    """
    slices = [float(chips) for chips in slices_of(node) if chips <= most]
    if slices and most <= slices_of(node)[-1]:
        return slices[-NEXT:]
    unit = float(node.accelerators.value)
    if most < unit:
        return [float(n) for n in range(1, int(most) + 1)]
    counts = [n * unit for n in range(max(int(np.ceil(LEAST * most / unit)), 1), int(most // unit) + 1)]
    shared = sorted(counts, key=lambda n: (-gcd(int(n), int(batch)), -n))[:SHARED]
    return sorted({*counts[-NEXT:], *shared})


@dataclass(frozen=True, eq=False, repr=False)
class Used:
    """A count of accelerators with its best plan, as a search ranks it."""

    row: Row  # as it was asked
    choice: Choice
    seconds: float  # of a step
    counts: Counts

    @property
    def gpus(self) -> float:
        """Accelerators."""
        return self.row.gpus or 0.0

    @property
    def rank(self) -> float:
        """Tokens per second, without what own runs say of the step."""
        return (self.row.global_batch_size or 0.0) * (self.row.seq_len or 0.0) / self.seconds

    @cached_property
    def group(self) -> Group:
        """The estimate of the plan."""
        bound = self.counts.bound
        if is_given(with_implied(self.row, bound.asked.schedule), bound.model):
            return answer_asked(bound.asked.replace(rows=(self.row,)), bound.folders).groups[0]
        return evaluate(place_choice(self.row, self.choice, self.counts.bounds))

    @property
    def rate(self) -> float:
        """Tokens per second, as an estimate answers."""
        return scalar(self.group.throughput["tokens_per_second"])


class Counts:
    """The best plans of one job on many counts of accelerators; each is searched once."""

    def __init__(self, bound: Bound, row: Row, fixed: Mapping[str, Any] = MappingProxyType({})) -> None:
        """``fixed``: values of axes that every plan has, beside those that the row gives."""
        self.bound, self.row = bound, row
        self.space: Space = read_space(bound.asked.space).narrowed(fixed)
        self.bounds = Bounds(bound)
        self._found: dict[Row, Used | None] = {}

    def useful(self, counts: Sequence[float], batch_of: Callable[[float], float]) -> list[Used]:
        """Of some counts those that are faster than every smaller one, in order, with their best plans.

        A count is searched for a plan that beats the smaller counts, so that one that divides badly costs little.
        """
        found: list[Used] = []
        for gpus in sorted(counts):
            row = self.row._replace(gpus=gpus, global_batch_size=batch_of(gpus))
            used = self.best(row, found[-1] if found else None)
            if used is not None and (not found or used.rank > found[-1].rank):
                found.append(used)
        return found

    def best(self, row: Row, other: Used | None = None) -> Used | None:
        """The best plan of a row that fits; None where there is none, or none is faster than another's that keeps memory free."""
        if row in self._found:
            return self._found[row]
        if is_given(with_implied(row, self.bound.asked.schedule), self.bound.model):
            return self._keep(row, self._given(row))
        limit = np.inf
        if other is not None and other.choice.tier == 0:
            limit = (row.global_batch_size or 0.0) * (row.seq_len or 0.0) / other.rank
        choice = search_row(self.bound, row, self.space, self.bounds, limit)
        if choice is None or choice.tier >= UNFIT:
            return None if np.isfinite(limit) else self._keep(row, None)
        return self._keep(row, Used(row, choice, choice.seconds, self))

    def _keep(self, row: Row, used: Used | None) -> Used | None:
        self._found[row] = used
        return used

    def _given(self, row: Row) -> Used | None:
        """A row whose plan is given whole, where it is legal and fits."""
        estimate = answer_asked(self.bound.asked.replace(rows=(row,)), self.bound.folders)
        if not bool(estimate.fits[0]):
            return None
        return Used(row, Choice(row, (), {}), float(estimate.step_seconds[0]), self)
