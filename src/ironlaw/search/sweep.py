"""All plans of a task: one pass finds the best plan of every mesh row and the Pareto front, a second opens the rows that matter.

The K-th smallest of the rows' best times bounds the K-th smallest of all plans, so the rows at or below it contain the first K.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ironlaw.estimate.planner.grid import (
    ILLEGAL,
    MOST_CELLS,
    ROWS,
    Choices,
    Task,
    evaluate_cells,
    reduce_free_choices,
    rooms,
    row_minimum,
    sum_parts,
    timed_parts,
    usable_choices,
)
from ironlaw.estimate.planner.plans import OPENED, Plans, join_plans, open_rows, sort_plans
from ironlaw.estimate.planner.space import ENDS
from ironlaw.estimate.wires import domains_taken

FEW = 384  # rows: a smaller kind joins the mixed kind, since a call of the laws costs as much as this many rows
_RETAINED = 1 << 28  # bytes


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The first pass over a task: one value per mesh row, and the number of plans."""

    task: Task
    times: Any  # of every row's fastest plan within each of ``rooms``; inf where there is none
    device: Any  # a lower bound of the row's smallest memory
    front: Front
    legal: int
    fits: int
    timed: int  # rows timed; fewer than all where the search was stopped
    memo: dict[str, Any] = field(default_factory=dict)  # plans opened before

    @cached_property
    def room(self) -> int:
        """Which of ``rooms`` the best plan keeps to: the first that any plan keeps to; the last where none fits."""
        return next((i for i, times in enumerate(self.times) if np.isfinite(times).any()), len(self.times) - 1)

    @property
    def seconds(self) -> Any:
        """Step time of every row's fastest plan within the room that the best plan keeps to; inf where there is none."""
        return self.times[self.room]

    def open(self, rows: Any, limit: float = np.inf) -> Plans:
        """Every plan of some rows that takes at most ``limit`` and keeps to the room of the best plan."""
        return open_rows(self.task, rows, limit, rooms(self.task)[self.room])


@dataclass(frozen=True, eq=False, repr=False)
class Front:
    """Plans that no other beats in both step time and device memory, fastest first, with the mesh row of each."""

    seconds: Any
    device: Any
    row: Any

    @classmethod
    def empty(cls) -> Front:
        """No points yet."""
        return cls(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))

    def with_points(self, seconds: Any, device: Any, row: Any) -> Front:
        """The front of these points and others."""
        seconds, device, row = np.append(self.seconds, seconds), np.append(self.device, device), np.append(self.row, row)
        best = pareto_indices(seconds, device)
        return Front(seconds[best], device[best], row[best])

    def limit(self, device: Any) -> Any:
        """The time that a plan of this memory must beat: that of the fastest point that needs no more memory."""
        times, sizes = np.append(np.inf, self.seconds[::-1]), self.device[::-1]
        return times[np.searchsorted(sizes, device, side="right")]


def pareto_indices(seconds: Any, device: Any) -> Any:
    """Indices of the points that no other beats (as good in one, better in the other), by time; equal points all stay."""
    order = np.lexsort((device, seconds))
    leanest = np.minimum.accumulate(np.append(np.inf, device[order]))[:-1]
    ahead = device[order] < leanest
    last = np.maximum.accumulate(np.where(ahead, np.arange(order.size), -1))
    same = (seconds[order] == seconds[order][last]) & (device[order] == device[order][last])
    return order[ahead | same]


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """The results of a block of rows, and the number of its plans."""

    times: Any  # of the fastest plan of each row within each of ``rooms``; inf where there is none
    device: Any  # a lower bound of the smallest memory of each row
    front: Front  # of this block and the blocks before; it includes plans that do not fit
    legal: int
    fits: int


def kinds(task: Task) -> Iterator[tuple[Any, Choices]]:
    """The rows of every kind, and the choices to vary for them. Kinds of few rows are joined; masks keep their cells distinct."""
    c = task.mesh.columns
    given = np.maximum(*(c[axis] for axis in ENDS)) >= 0.0
    uneven = np.where(c["pp"] > 1.0, 1.0 + ((task.job.model.num_hidden_layers % c["pp"] > 0.0) | given), 0.0)
    sharded = np.where(c["dp_shard"] > 1.0, 2.0, 1.0 * (c["cp"] * c["dp_replicate"] > 1.0))
    key = ((uneven * 3.0 + sharded) * 2.0 + (c["tp"] > 1.0)) * 2.0 + (c["vpp"] > 1.0)
    _, which, count = np.unique(key, return_inverse=True, return_counts=True)
    which = np.where(count[which] < FEW, -1, which)
    for kind in np.unique(which):
        index = np.flatnonzero(which == kind)
        yield index, usable_choices(task, {name: column[index] for name, column in c.items()})


def evaluate(task: Task, index: Any, choices: Choices, front: Front) -> Block:
    """The best plan of every row of a block, and the front with the plans of the block."""
    with np.errstate(all="ignore"):
        cells = evaluate_cells(task, index, choices)
        device = cells.device
        parts = reduce_free_choices(timed_parts(task, cells.plan, cells.masks), device.shape)
        seconds = np.empty((*device.shape[:-1], index.size))  # the best time of every combination that memory depends on
        inner = tuple(axis for axis, size in enumerate(device.shape[:-1]) if size == 1)
        for at, value in sum_parts(task, domains_taken(task.cluster, cells.plan), parts, index.size):
            seconds[..., at] = np.fmin.reduce(value, axis=inner, keepdims=True)
        seconds = np.where(seconds < ILLEGAL, seconds, np.inf)  # a masked cell, or one outside a law's domain, is no plan
        device = np.broadcast_to(device, seconds.shape)
        ahead = seconds < front.limit(device)
        if ahead.any():
            rows = np.broadcast_to(index, seconds.shape)
            front = front.with_points(seconds[ahead], device[ahead], rows[ahead])
        legal, shape = _all_true(cells.masks), (*choices.shape, index.size)
        times = np.stack([row_minimum(np.where(cells.fits & (device <= room), seconds, np.inf)) for room in rooms(task)])
        return Block(times, row_minimum(device), front, count_true(legal, shape), count_true(legal & cells.fits, shape))


def _all_true(masks: list[Any]) -> Any:
    """True where every mask is; small masks are combined first."""
    combined = masks[0]
    for mask in sorted(masks[1:], key=np.size):
        combined = combined & mask
    return combined


def count_true(mask: Any, shape: tuple[int, ...]) -> int:
    """True cells of a mask that is broadcast to ``shape``."""
    return int(np.count_nonzero(mask)) * (prod(shape) // max(int(np.size(mask)), 1))


def keep_pages() -> None:
    """Make glibc's allocator keep freed pages; does nothing with other C libraries.

    A search allocates and frees arrays of half a megabyte a hundred thousand times. Without this the kernel clears their pages each
    time, which takes as long as filling them.
    """
    with contextlib.suppress(OSError, AttributeError):
        allocator = ctypes.CDLL(None)
        for setting in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            allocator.mallopt(setting, _RETAINED)


def sweep(task: Task, go_on: Callable[[int], bool] = lambda _: True) -> Sweep:
    """The best plan of every mesh row. Stops after the first block for which ``go_on(plans)`` is false."""
    times, device = np.full((len(rooms(task)), task.mesh.rows), np.inf), np.full(task.mesh.rows, np.inf)
    legal = fits = timed = 0
    points = Front.empty()
    for index, choices in kinds(task):
        width = max(min(ROWS, MOST_CELLS // int(np.prod(choices.shape))), 1)
        for start in range(0, index.size, width):
            at = index[start : start + width]
            block = evaluate(task, at, choices, points)
            times[:, at], device[at], points = block.times, block.device, block.front
            legal, fits, timed = legal + block.legal, fits + block.fits, timed + at.size
            if not go_on(block.legal):
                return Sweep(task, times, device, points, legal, fits, timed)
    return Sweep(task, times, device, points, legal, fits, timed)


def fastest_plans(swept: Sweep, number: int) -> Plans:
    """The ``number`` fastest plans of a task, the same as a search through all of them would list."""
    rows = np.flatnonzero(np.isfinite(swept.seconds))
    limit = _nth_smallest(swept.seconds[rows], number)
    rows = rows[swept.seconds[rows] <= limit]
    plans = swept.open(rows[:0])
    for start in range(0, rows.size, OPENED):  # each part lowers the limit for the next
        plans = join_plans([plans, swept.open(rows[start : start + OPENED], limit)])
        limit = _nth_smallest(plans.seconds, number)
        plans = plans.take(np.flatnonzero(plans.seconds <= limit))
    return sort_plans(plans).take(slice(0, number))


def _nth_smallest(seconds: Any, number: int) -> float:
    """The ``number``-th smallest; infinity where there are fewer."""
    return float(np.partition(seconds, number - 1)[number - 1]) if seconds.size >= number else np.inf


def pareto_plans(swept: Sweep) -> Plans:
    """The plans that fit and that no other beats in both step time and device memory, fastest first; of equals the simplest."""
    front = swept.front
    fits = front.device <= swept.task.cluster.room
    plans = open_rows(swept.task, np.unique(front.row[fits]), float(front.seconds[fits].max(initial=0.0)))
    plans = sort_plans(plans.take(pareto_indices(plans.seconds, plans.device)))
    _, first = np.unique(plans.seconds, return_index=True)
    return plans.take(first)
