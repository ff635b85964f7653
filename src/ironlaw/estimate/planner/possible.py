"""Whether a question has any plan that fits, found without timing a plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ironlaw.estimate.bind.batch import batch_range
from ironlaw.estimate.bind.question import Bound
from ironlaw.estimate.legality.rules import legal, legality
from ironlaw.estimate.memory.total import memory
from ironlaw.estimate.planner.best import least_memory, may_fit, visits_of
from ironlaw.estimate.planner.choose import Bounds, tasks_of_row
from ironlaw.estimate.planner.grid import MOST_CELLS, Task, all_true, evaluate_cells, legal_masks, rooms, usable_choices
from ironlaw.estimate.planner.place import place
from ironlaw.estimate.planner.rows import is_given, with_implied
from ironlaw.estimate.planner.space import Space, read_space
from ironlaw.question import defaults

ROWS = 256  # of one block: the leanest rows come first, so the first block often has a plan that fits


def has_plan(bound: Bound) -> bool | None:
    """True where the first row of a question has a plan that fits, False where no legal plan fits, None where no plan is legal."""
    if _gives_plan(bound):
        placed = place(bound)[0]
        job, cluster = placed.bound.job(placed.framework), placed.bound.cluster
        if not np.all(legal(legality(job, placed.plan))):
            return None
        return bool(np.all(memory(job, cluster, placed.plan).fits))
    tasks = _first_tasks(bound, first=True)
    return any_fits(tasks[0]) if tasks else None


def may_have_plan(bound: Bound) -> bool:
    """False where no plan of the first row of a question fits, found from lower bounds of memory alone. True says nothing."""
    return _gives_plan(bound) or may_fit(visits_of(_first_tasks(bound, seldom=not bound.asked.framework)))


def _gives_plan(bound: Bound) -> bool:
    """True where the first row of a question leaves no axis of its plan open."""
    return is_given(with_implied(bound.asked.rows[0], bound.asked.schedule), bound.model)


def _first_tasks(bound: Bound, seldom: bool = False, first: bool = False) -> list[Task]:
    """The tasks of the first row of a question that have legal meshes; the ``first`` of them alone.

    Where the question gives no batch, it is the first of the planner's that has a legal plan: how much memory a plan needs hardly
    depends on it.
    """
    row, space, bounds = bound.asked.rows[0], read_space(bound.asked.space), Bounds(bound)
    gpus, micro = row.gpus or 1.0, row.micro_batch_size or 1.0
    allowed = batch_range(bound, row)
    batches = [row.global_batch_size] if row.global_batch_size else allowed.to_try(gpus, micro)
    for batch in batches or [defaults.batch_of_ranks(gpus * micro, allowed.usual)]:
        row = row._replace(global_batch_size=batch)
        tasks = [task for task in tasks_of_row(bound, row, space, bounds, seldom, first=first)[1] if task.mesh.rows]
        if tasks:
            return tasks
    return []


def _leanest(space: Space) -> Space:
    """A space with the values of open choices that need least memory: a plan that fits is nearly always among them."""
    lean = {"recompute": "full", "zero": 3.0, "offload_optimizer": 1.0}
    held = {axis: (value,) for axis, value in lean.items() if axis not in space.given and value in (space.of(axis) or ())}
    return replace(space, values={**space.values, **held})


def any_fits(task: Task) -> bool:
    """True where a plan of a task fits; rows that need least come first, and rows of which no plan can fit are not evaluated."""
    task = task.replace(space=_leanest(task.space))
    choices = usable_choices(task, task.mesh.columns)
    width = max(min(ROWS, MOST_CELLS // int(np.prod(choices.shape))), 1)
    most, least = rooms(task)[-1], least_memory(task, choices)
    order = np.argsort(least, kind="stable")[: np.count_nonzero(least <= most)]
    for start in range(0, order.size, width):
        with np.errstate(all="ignore"):
            cells = evaluate_cells(task, order[start : start + width], choices)
        inside = cells.fits & (cells.device <= most)
        for mask in cells.masks:
            inside = inside & mask
        if np.any(inside):
            return True
    return False


def any_legal(task: Task) -> bool:
    """True where a task has a legal plan, of whatever memory: no law of memory or time is asked.

    A mesh row may have no legal plan: where the space fixes an overlap that the row cannot have, for example.
    """
    width = max(min(ROWS, MOST_CELLS // int(np.prod(usable_choices(task, task.mesh.columns).shape))), 1)
    for start in range(0, task.mesh.rows, width):
        rows = np.arange(start, min(start + width, task.mesh.rows))
        choices = usable_choices(task, {name: column[rows] for name, column in task.mesh.columns.items()})
        with np.errstate(all="ignore"):
            if np.any(all_true(legal_masks(task, rows, choices)[1])):
                return True
    return False
