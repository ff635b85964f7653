"""Step times of the cells of a block that may matter: rows and values of choices without such a cell are not timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ironlaw.estimate.fabric.group_links import domains_taken
from ironlaw.estimate.planner.bounds import BOUNDED, ROUNDING
from ironlaw.estimate.planner.grid import ILLEGAL, Choices, Task, reduce_free_choices, sum_parts, timed_parts
from ironlaw.estimate.planner.mesh import plan_of
from ironlaw.estimate.planner.space import CHOICES


class Timed(NamedTuple):
    """Step times of some rows of a block at the values of choices that are used, each choice that memory does not read at its best."""

    at: Any  # positions of the rows in the block
    used: list[Any]  # for each choice the values that are used; None where all are
    seconds: Any  # infinity where a cell is no legal plan

    def cut(self, column: Any) -> Any:
        """A column of the block at these rows and values; axes of one value stay."""
        column = np.asarray(column)
        if column.ndim and column.shape[-1] > 1:
            column = column[..., self.at]
        for axis, keep in zip(range(-2, -column.ndim - 1, -1), reversed(self.used), strict=False):
            if keep is not None and column.shape[axis] > 1:
                column = np.compress(keep, column, axis=axis)
        return column

    def cells(self, shape: tuple[int, ...]) -> Any:
        """True for the cells of a block of this shape that were timed."""
        timed = np.zeros(shape[-1], dtype=bool)
        timed[self.at] = True
        for axis, keep in enumerate(self.used):
            if keep is not None:
                timed = timed & keep.reshape(*(-1 if other == axis else 1 for other in range(len(shape) - 1)), 1)
        return timed

    def known(self, limit: Any) -> tuple[Any, Any]:
        """Times up to ``limit``, infinity for others; and where they take longer a bound of the time, else infinity."""
        beyond = np.isfinite(self.seconds) & (self.seconds > limit)
        return np.where(beyond, np.inf, self.seconds), np.where(beyond, self.seconds * (1.0 - ROUNDING), np.inf)

    def placed(self, column: Any, shape: tuple[int, ...], other: Any) -> Any:
        """A column of these rows and values in a block of this shape, ``other`` in its other cells."""
        whole = np.full(shape, other)
        used = (np.arange(size) if keep is None else np.flatnonzero(keep) for size, keep in zip(shape, self.used, strict=False))
        whole[np.ix_(*used, self.at)] = column
        return whole


def time_cells(task: Task, rows: Any, choices: Choices, masks: Sequence[Any], hopeful: Any, at: Any, limit: Any = np.inf) -> Timed:
    """Time the cells of a block that are ``hopeful``, and others of their rows and values, at the positions ``at`` of ``rows``.

    ``hopeful`` has the shape of memory; ``masks`` are true where a cell is a legal plan unlike all others. Of cells that take more than
    ``limit`` (one for all, or in the shape of memory) it is enough that they do: their times are between the two.
    """
    found = Timed(at, [_used(hopeful[..., at], axis) for axis in range(hopeful.ndim - 1)], None)
    values = tuple(v if used is None else keep_used(v, used) for v, used in zip(choices.values, found.used, strict=True))
    columns = {name: column[rows[at]] for name, column in task.mesh.columns.items()}
    plan = plan_of(columns, task.global_batch_size, task.seq_len, **Choices(values, choices.selective).columns())
    shape = found.cut(hopeful).shape
    inner = tuple(axis for axis, size in enumerate(shape[:-1]) if size == 1)
    seconds = np.empty((*shape[:-1], at.size))
    with np.errstate(all="ignore"):
        parts = reduce_free_choices(timed_parts(task, plan, [found.cut(mask) for mask in masks], found.cut(limit)), shape)
        for some, value in sum_parts(task, domains_taken(task.cluster, plan), parts, at.size):
            seconds[..., some] = np.fmin.reduce(value, axis=inner, keepdims=True)
    return found._replace(seconds=np.where(seconds < ILLEGAL, seconds, np.inf))  # a masked cell, or one outside a law's domain, is no plan


def keep_used(values: tuple[Any, ...], used: Any) -> tuple[Any, ...]:
    """The values that are used."""
    return tuple(value for value, use in zip(values, used, strict=True) if use)


def _used(hopeful: Any, axis: int) -> Any:
    """True for the values of an axis that some cell may use; None where memory has one value for all."""
    return None if hopeful.shape[axis] == 1 else hopeful.any(axis=all_but(axis, hopeful.ndim))


def all_but(axis: int, number: int) -> tuple[int, ...]:
    """Of so many axes all but one."""
    return tuple(other for other in range(number) if other != axis)


def over_cells(bound: Any, choices: Choices, every: Choices) -> Any:
    """A bound by the values of BOUNDED in ``every`` and row, at the values of ``choices``, with an axis for every choice."""
    usable = [np.flatnonzero(np.isin(every.of(name), choices.of(name))) for name in BOUNDED]
    rows = bound.shape[-1]
    bound = np.broadcast_to(bound, (*(len(every.of(name)) for name in BOUNDED), rows))[np.ix_(*usable, np.arange(rows))]
    return bound.reshape(*(len(choices.of(name)) if name in BOUNDED else 1 for name in CHOICES), rows)
