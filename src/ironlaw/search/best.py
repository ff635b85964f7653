"""The best plans of a task: one pass finds the best of every mesh row and the front, a second opens the rows that matter.

The K-th smallest of the rows' best times bounds the K-th smallest of all plans, so the rows at or below it hold the first K.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ironlaw.search.grid import BARRED, ROWS, Front, Task, cells_of, choices_of, evaluate, kinds, sums, times_of, unbeaten
from ironlaw.search.mesh import COLUMNS
from ironlaw.search.space import CHOICES, ENDS

# fewest ways a model is split, then fewest of everything that needs more of a stack, in this order
SIMPLEST = (
    "pp", "vpp", "cp", "ep", "tp", "etp", *ENDS, "zero", "offload_optimizer", "offload_activations", "recompute", "dp_replicate",
    "micro_batch_size", "sp", "overlap_tp", "overlap_pp", "overlap_grad_reduce", "overlap_param_gather", "overlap_ep",
)  # fmt: skip
OPENED = 256  # rows opened at a time
MOST_CELLS = 1 << 23  # of one call of the laws: with very many choices it takes fewer rows, or memory runs out
_KEPT = 1 << 28


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The first pass over a task: one value a mesh row, and how many plans that was."""

    task: Task
    seconds: Any  # of the row's fastest plan that fits; inf where none does
    device: Any  # a bound from below of what the row's leanest plan holds
    front: Front
    legal: int
    fits: int
    timed: int  # rows done; less than all where the search was stopped
    memo: dict[str, Any] = field(default_factory=dict)  # what was opened before


@dataclass(frozen=True, eq=False, repr=False)
class Plans:
    """Plans of one task as columns, best first, with their step time and device memory."""

    columns: dict[str, Any]
    seconds: Any
    device: Any

    def take(self, index: Any) -> Plans:
        """The plans at ``index``."""
        return Plans({name: column[index] for name, column in self.columns.items()}, self.seconds[index], self.device[index])


def keep_pages() -> None:
    """Tell glibc's allocator to keep freed pages: arrays of half a megabyte come and go a hundred thousand times in a search,
    and having the kernel clear them each time takes as long as filling them. Elsewhere nothing happens.
    """
    with contextlib.suppress(OSError, AttributeError):
        allocator = ctypes.CDLL(None)
        for setting in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            allocator.mallopt(setting, _KEPT)


def sweep(task: Task, go_on: Callable[[int, int], bool] = lambda *_: True) -> Sweep:
    """The best of every mesh row. ``go_on(plans, rows)`` is asked after every block; where it says no, the rest stays undone."""
    seconds, device = np.full(task.mesh.rows, np.inf), np.full(task.mesh.rows, np.inf)
    legal = fits = done = 0
    points = Front.empty()
    for index, choices in kinds(task):
        width = max(min(ROWS, MOST_CELLS // int(np.prod(choices.shape))), 1)
        for start in range(0, index.size, width):
            at = index[start : start + width]
            block = evaluate(task, at, choices, points)
            seconds[at], device[at], points = block.seconds, block.device, block.front
            legal, fits, done = legal + block.legal, fits + block.fits, done + at.size
            if not go_on(block.legal, at.size):
                return Sweep(task, seconds, device, points, legal, fits, done)
    return Sweep(task, seconds, device, points, legal, fits, done)


def opened(task: Task, rows: Any, limit: float = np.inf) -> Plans:
    """Every plan of some mesh rows that fits and takes at most ``limit``."""
    found = [_opened(task, rows[start : start + OPENED], limit) for start in range(0, rows.size, OPENED)]
    names = (*COLUMNS, *CHOICES)
    if not found:
        return Plans({name: np.empty(0) for name in names}, np.empty(0), np.empty(0))
    return merged(found)


def _opened(task: Task, rows: Any, limit: float) -> Plans:
    choices = choices_of(task, {name: column[rows] for name, column in task.mesh.columns.items()})
    with np.errstate(all="ignore"):
        plan, masks, device, fits = cells_of(task, rows, choices)
        parts = times_of(task, plan, [*masks, fits])
        held = np.broadcast_to(device, (*choices.shape, rows.size))
        pieces = []
        for at, value in sums(task, task.mesh.columns["gpus"][rows], parts, rows.size):
            seconds = np.broadcast_to(value, (*choices.shape, at.stop - at.start))
            where = np.nonzero((seconds <= limit) & (seconds < BARRED))
            pieces.append(((*where[:-1], where[-1] + at.start), seconds[where]))
    index = tuple(np.concatenate([where[axis] for where, _ in pieces]) for axis in range(len(choices.shape) + 1))
    columns = {name: column[rows[index[-1]]] for name, column in task.mesh.columns.items()}
    for axis, (name, values) in enumerate(zip(CHOICES, choices.values, strict=True)):
        columns[name] = np.array(values, dtype=object if name == "recompute" else np.float64)[index[axis]]
    return Plans(columns, np.concatenate([seconds for _, seconds in pieces]), held[index])


def in_order(plans: Plans) -> Plans:
    """Fastest first; plans of one time simplest first."""
    c = plans.columns
    ways = c["tp"] * c["pp"] * c["cp"] * c["ep"] * c["etp"]
    keys = [ways, *(_amount(name, c[name]) for name in SIMPLEST)]
    return plans.take(np.lexsort((*reversed(keys), plans.seconds)))


def _amount(name: str, column: Any) -> Any:
    """A column as numbers to order by: recomputation by its share of the layers, then by its name."""
    if name != "recompute":
        return column
    known = {how: effort_of(name, how) for how in set(column.tolist())}
    order = sorted(known, key=lambda how: known[how])
    return np.array([order.index(how) for how in column.tolist()], dtype=np.float64)


def effort_of(name: str, value: Any) -> Any:
    """How much a value of a choice asks of a stack, to compare by: of recomputation none first, full last."""
    return (value != "none", value == "full", value) if name == "recompute" else value


def top(swept: Sweep, number: int) -> Plans:
    """The first ``number`` plans of a task, as a search through all of them would list them."""
    rows = np.flatnonzero(np.isfinite(swept.seconds))
    limit = _nth(swept.seconds[rows], number)
    rows = rows[swept.seconds[rows] <= limit]
    plans = opened(swept.task, rows[:0])
    for start in range(0, rows.size, OPENED):  # fewer rows than plans: what they hold is seen part by part
        plans = merged([plans, opened(swept.task, rows[start : start + OPENED], limit)])
        limit = _nth(plans.seconds, number)
        plans = plans.take(np.flatnonzero(plans.seconds <= limit))
    return in_order(plans).take(slice(0, number))


def _nth(seconds: Any, number: int) -> float:
    """The ``number``-th smallest; infinity where there are fewer."""
    return float(np.partition(seconds, number - 1)[number - 1]) if seconds.size >= number else np.inf


def front(swept: Sweep) -> Plans:
    """The plans that fit and no other beats in both step time and device memory, fastest first; of equals the simplest."""
    found = swept.front
    held = found.device <= capacity(swept.task)
    plans = opened(swept.task, np.unique(found.row[held]), float(found.seconds[held].max(initial=0.0)))
    plans = in_order(plans.take(unbeaten(plans.seconds, plans.device)))
    _, first = np.unique(plans.seconds, return_index=True)
    return plans.take(first)


def capacity(task: Task) -> float:
    """Bytes a job may use of one accelerator."""
    device = task.cluster.accelerator
    return float((device.memory_usable or device.memory_capacity).value)


def merged(many: list[Plans]) -> Plans:
    """Plans of several lists, one after the other."""
    columns = {name: np.concatenate([m.columns[name] for m in many]) for name in many[0].columns}
    return Plans(columns, np.concatenate([m.seconds for m in many]), np.concatenate([m.device for m in many]))
