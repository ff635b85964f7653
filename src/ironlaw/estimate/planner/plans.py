"""Plans as columns: every plan of some mesh rows with its time and memory, and the order that decides between equal plans."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.fabric.group_links import domains_taken
from ironlaw.estimate.planner.grid import ILLEGAL, Task, evaluate_cells, sum_parts, timed_parts, usable_choices
from ironlaw.estimate.planner.mesh import COLUMNS
from ironlaw.estimate.planner.space import CHOICES, ENDS
from ironlaw.frozen import Frozen

# what decides between equal plans: less splitting of the model, then less of everything that needs more of a framework, in this order
SIMPLEST = (
    "pp", "vpp", "cp", "ep", "tp", "etp", *ENDS, "zero", "offload_optimizer", "offload_activations", "offload_parameters", "offload_nvme",
    "recompute", "dp_replicate", "micro_batch_size", "sp", "overlap_tp", "overlap_pp", "overlap_grad_reduce", "overlap_param_gather",
    "overlap_ep",
)  # fmt: skip
OPENED = 256  # rows opened at a time


class Plans(Frozen):
    """Plans of one task as columns, with their step time and device memory."""

    columns: dict[str, Any]
    seconds: Any
    device: Any

    def take(self, index: Any) -> Plans:
        """The plans at ``index``."""
        return Plans({name: column[index] for name, column in self.columns.items()}, self.seconds[index], self.device[index])


def open_rows(task: Task, rows: Any, limit: float = np.inf, room: float = np.inf, fitting: bool = True) -> Plans:
    """Every plan of some mesh rows that takes at most ``limit`` seconds, needs at most ``room`` bytes, and, if ``fitting``, fits."""
    parts = [_open_some(task, rows[start : start + OPENED], limit, room, fitting) for start in range(0, rows.size, OPENED)]
    names = (*COLUMNS, *CHOICES)
    if not parts:
        return Plans({name: np.empty(0) for name in names}, np.empty(0), np.empty(0))
    return join_plans(parts)


def _open_some(task: Task, rows: Any, limit: float, room: float, fitting: bool) -> Plans:
    choices = usable_choices(task, {name: column[rows] for name, column in task.mesh.columns.items()})
    with np.errstate(all="ignore"):
        cells = evaluate_cells(task, rows, choices)
        inside = (cells.device <= room) & (cells.fits if fitting else True)
        parts = timed_parts(task, cells.plan, [*cells.masks, inside], limit)
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


def join_plans(many: list[Plans]) -> Plans:
    """The plans of several lists, one after the other."""
    columns = {name: np.concatenate([m.columns[name] for m in many]) for name in many[0].columns}
    return Plans(columns, np.concatenate([m.seconds for m in many]), np.concatenate([m.device for m in many]))
