"""The best plans of a task: one pass finds the best plan of every mesh row and the Pareto front, a second opens the rows that matter.

The K-th smallest of the rows' best times bounds the K-th smallest of all plans, so the rows at or below it contain the first K.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ironlaw.estimate.wires import domains_taken
from ironlaw.search.grid import (
    ILLEGAL,
    ROWS,
    Front,
    Task,
    evaluate,
    evaluate_cells,
    kinds,
    pareto_indices,
    sum_parts,
    timed_parts,
    usable_choices,
)
from ironlaw.search.mesh import COLUMNS
from ironlaw.search.space import CHOICES, ENDS

# what decides between equal plans: less splitting of the model, then less of everything that needs more of a framework, in this order
SIMPLEST = (
    "pp", "vpp", "cp", "ep", "tp", "etp", *ENDS, "zero", "offload_optimizer", "offload_activations", "recompute", "dp_replicate",
    "micro_batch_size", "sp", "overlap_tp", "overlap_pp", "overlap_grad_reduce", "overlap_param_gather", "overlap_ep",
)  # fmt: skip
OPENED = 256  # rows opened at a time
MOST_CELLS = 1 << 23  # of one call of the laws: with very many choices a call takes fewer rows, or memory runs out
_RETAINED = 1 << 28  # bytes


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The first pass over a task: one value per mesh row, and the number of plans."""

    task: Task
    seconds: Any  # of the row's fastest plan that fits; inf where none does
    device: Any  # a lower bound of the row's smallest memory
    front: Front
    legal: int
    fits: int
    timed: int  # rows timed; fewer than all where the search was stopped
    memo: dict[str, Any] = field(default_factory=dict)  # plans opened before


@dataclass(frozen=True, eq=False, repr=False)
class Plans:
    """Plans of one task as columns, with their step time and device memory."""

    columns: dict[str, Any]
    seconds: Any
    device: Any

    def take(self, index: Any) -> Plans:
        """The plans at ``index``."""
        return Plans({name: column[index] for name, column in self.columns.items()}, self.seconds[index], self.device[index])


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
    seconds, device = np.full(task.mesh.rows, np.inf), np.full(task.mesh.rows, np.inf)
    legal = fits = timed = 0
    points = Front.empty()
    for index, choices in kinds(task):
        width = max(min(ROWS, MOST_CELLS // int(np.prod(choices.shape))), 1)
        for start in range(0, index.size, width):
            at = index[start : start + width]
            block = evaluate(task, at, choices, points)
            seconds[at], device[at], points = block.seconds, block.device, block.front
            legal, fits, timed = legal + block.legal, fits + block.fits, timed + at.size
            if not go_on(block.legal):
                return Sweep(task, seconds, device, points, legal, fits, timed)
    return Sweep(task, seconds, device, points, legal, fits, timed)


def open_rows(task: Task, rows: Any, limit: float = np.inf) -> Plans:
    """Every plan of some mesh rows that fits and takes at most ``limit``."""
    parts = [_open_some(task, rows[start : start + OPENED], limit) for start in range(0, rows.size, OPENED)]
    names = (*COLUMNS, *CHOICES)
    if not parts:
        return Plans({name: np.empty(0) for name in names}, np.empty(0), np.empty(0))
    return join_plans(parts)


def _open_some(task: Task, rows: Any, limit: float) -> Plans:
    """The plans of some mesh rows that fit and take at most ``limit``; all cells of the rows are in memory at once."""
    choices = usable_choices(task, {name: column[rows] for name, column in task.mesh.columns.items()})
    with np.errstate(all="ignore"):
        cells = evaluate_cells(task, rows, choices)
        parts = timed_parts(task, cells.plan, [*cells.masks, cells.fits])
        device = np.broadcast_to(cells.device, (*choices.shape, rows.size))
        pieces = []
        for at, value in sum_parts(task, domains_taken(task.cluster, cells.plan), parts, rows.size):
            seconds = np.broadcast_to(value, (*choices.shape, at.stop - at.start))
            where = np.nonzero((seconds <= limit) & (seconds < ILLEGAL))
            pieces.append(((*where[:-1], where[-1] + at.start), seconds[where]))
    index = tuple(np.concatenate([where[axis] for where, _ in pieces]) for axis in range(len(choices.shape) + 1))
    columns = {name: column[rows[index[-1]]] for name, column in task.mesh.columns.items()}
    for axis, (name, values) in enumerate(zip(CHOICES, choices.values, strict=True)):
        columns[name] = np.array(values, dtype=object if name == "recompute" else np.float64)[index[axis]]
    return Plans(columns, np.concatenate([seconds for _, seconds in pieces]), device[index])


def sort_plans(plans: Plans) -> Plans:
    """Plans with the fastest first; of plans with the same time the simplest first."""
    c = plans.columns
    splits = c["tp"] * c["pp"] * c["cp"] * c["ep"] * c["etp"]
    keys = [splits, *(_as_sort_key(name, c[name]) for name in SIMPLEST)]
    return plans.take(np.lexsort((*reversed(keys), plans.seconds)))


def _as_sort_key(name: str, column: Any) -> Any:
    """A column as numbers to sort by; recomputation by its effort."""
    if name != "recompute":
        return column
    order = sorted(set(column.tolist()), key=lambda how: effort_of(name, how))
    return np.array([order.index(how) for how in column.tolist()], dtype=np.float64)


def effort_of(name: str, value: Any) -> Any:
    """The sort key of a value of a choice: recomputation from none to full."""
    return (value != "none", value == "full", value) if name == "recompute" else value


def fastest_plans(swept: Sweep, number: int) -> Plans:
    """The ``number`` fastest plans of a task, the same as a search through all of them would list."""
    rows = np.flatnonzero(np.isfinite(swept.seconds))
    limit = _nth_smallest(swept.seconds[rows], number)
    rows = rows[swept.seconds[rows] <= limit]
    plans = open_rows(swept.task, rows[:0])
    for start in range(0, rows.size, OPENED):  # each part lowers the limit for the next
        plans = join_plans([plans, open_rows(swept.task, rows[start : start + OPENED], limit)])
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


def join_plans(many: list[Plans]) -> Plans:
    """The plans of several lists, one after the other."""
    columns = {name: np.concatenate([m.columns[name] for m in many]) for name in many[0].columns}
    return Plans(columns, np.concatenate([m.seconds for m in many]), np.concatenate([m.device for m in many]))
