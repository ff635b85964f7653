"""The best plan of some tasks: the fastest that keeps memory free, found without timing every plan, and exactly.

Rows are visited in the order of a time that none of their plans beats. Memory is computed first; a row whose plans all need too much, or
cannot be faster than the best so far, is not timed. The search ends where the bound of the next row exceeds the best time: rows that are
not visited have no better plan, and none that is as good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ironlaw import units
from ironlaw.estimate.planner.bounds import BOUNDED, ROUNDING, bounds_alike, memory_at_least, step_at_least
from ironlaw.estimate.planner.grid import MOST_CELLS, ROWS, Choices, Task, evaluate_cells, rooms, row_minimum, usable_choices
from ironlaw.estimate.planner.pages import keep_pages
from ironlaw.estimate.planner.plans import Plans, open_rows, sort_plans
from ironlaw.estimate.planner.timing import all_but, keep_used, over_cells, time_cells
from ironlaw.progress import counted

FIRST = 128  # rows of a task whose bound is tightened first, to have a time to beat
MANY = 8 * ROWS  # rows of which the bound is tightened at once
TIMED = 64  # rows of a block that are timed first, to have a time to beat
MANY_PAGES = 4096  # rows of a task whose arrays have many pages
UNFIT = 3  # after the tiers of ``rooms``: the plan does not fit


class Best(NamedTuple):
    """The best plan: the position of its task, its values, time and memory."""

    task: int
    plan: Plans
    tier: int  # of ``rooms`` that it keeps to, the best being 0; UNFIT where no plan fits


class Visit:
    """A task while it is searched: bounds of its rows, by value of the choices in BOUNDED, and of the least memory of each row."""

    def __init__(self, task: Task, twin: Visit | None = None) -> None:
        """``twin`` is the visit of a task with the same bounds."""
        self.task, number = task, task.mesh.rows
        self.choices = usable_choices(task, task.mesh.columns)
        self.leanest = np.zeros(number)  # exact where every plan of a row was visited
        self.twin = twin
        self.tighter: Known
        self.lean: Known
        if twin is not None:
            self.tighter, self.lean = twin.tighter, twin.lean
            return
        shape = tuple(len(self.choices.of(name)) for name in BOUNDED)
        self.tighter, self.lean = Known(shape, number, self._tighten), Known(shape, number, self._bound_memory)

    @cached_property
    def least(self) -> Any:
        """The bound of the time of every row that is computed first."""
        if self.twin is not None:
            return self.twin.least
        return step_at_least(self.task, np.arange(self.task.mesh.rows), self.choices, sharded=False) * (1.0 - ROUNDING)

    @cached_property
    def may_fit(self) -> bool:
        """False where every row needs more memory at least than there is: rows whose first stage does not are looked at more closely."""
        if self.twin is not None:
            fit, self.leanest = self.twin.may_fit, np.maximum(self.leanest, self.twin.leanest)
            return fit
        room, every = rooms(self.task)[-1], np.arange(self.task.mesh.rows)
        self.leanest = np.maximum(self.leanest, row_minimum(memory_at_least(self.task, every, self.choices, first=True)) * (1.0 - ROUNDING))
        rows = np.flatnonzero(self.leanest <= room)
        return bool(np.any(np.isfinite(self.within(rows, np.zeros(rows.shape), room)))) if rows.size else False

    def _tighten(self, rows: Any) -> Any:
        """The bound of the time with the collectives of sharded weights."""
        return np.maximum(step_at_least(self.task, rows, self.choices, sharded=True) * (1.0 - ROUNDING), self.least[..., rows])

    def _bound_memory(self, rows: Any) -> Any:
        """The bound of the memory; of many rows that of their first stage, where it says that no plan fits."""
        if rows.size < MANY // 4:
            return memory_at_least(self.task, rows, self.choices) * (1.0 - ROUNDING)
        needed = np.array(memory_at_least(self.task, rows, self.choices, first=True)) * (1.0 - ROUNDING)
        light = np.flatnonzero(row_minimum(needed) <= rooms(self.task)[-1])
        if light.size:
            needed[..., light] = memory_at_least(self.task, rows[light], self.choices) * (1.0 - ROUNDING)
        return needed

    def bound(self, rows: Any) -> Any:
        """The tighter bound of rows of which it is known, the other bound of the others."""
        known = self.tighter.knows(rows)
        bound = np.array(np.broadcast_to(self.least[..., rows], (*self.tighter.shape, rows.size)))
        bound[..., known] = self.tighter.of(rows[known])
        return bound

    def within(self, rows: Any, bound: Any, room: float) -> Any:
        """The least ``bound`` of each of some rows over the values of choices that may keep to ``room``; infinity where none does."""
        lean = self.lean.of(rows)
        self.leanest[rows] = np.maximum(self.leanest[rows], row_minimum(lean))
        return row_minimum(np.where(lean <= room, bound, np.inf))


class Queue:
    """The rows of a task that may have a plan within some room, the lowest bound of their time first."""

    def __init__(self, visit: Visit, room: float, limit: float) -> None:
        self.visit, self.room, self.times = visit, room, np.full(visit.task.mesh.rows, np.inf)
        rows = np.flatnonzero(visit.leanest <= room)
        bound = row_minimum(visit.least[..., rows]) if rows.size else np.empty(0)
        self.rows, self.bound = sort_rows(rows, bound, limit)

    def time_next(self, width: int, limit: float) -> float:
        """Time the plans of the next rows that fit and may take at most ``limit``, after tightening their bound; the least time so far."""
        visit, hopeful = self.visit, int(np.searchsorted(self.bound, limit, side="right"))
        rows, self.rows, self.bound = self.rows[: min(width, hopeful)], self.rows[width:hopeful], self.bound[width:hopeful]
        if not rows.size:
            return limit
        left, bound = sort_rows(rows, visit.within(rows, visit.least[..., rows], self.room), limit)
        width = ROWS if np.isfinite(limit) else FIRST
        while left.size:
            rows, left, bound = left[:width], left[width:], bound[width:]
            rows, _ = sort_rows(rows, visit.within(rows, visit.tighter.of(rows), self.room), limit)
            limit = _time_rows(visit, rows, self.times, self.room, limit)
            left, bound, width = *sort_rows(left, bound, limit), min(8 * width, MANY)
        return limit


def sort_rows(rows: Any, bound: Any, limit: float) -> tuple[Any, Any]:
    """Of some rows those of a finite bound of at most ``limit``, the lowest first, and their bounds."""
    order = np.argsort(bound, kind="stable")
    order = order[: np.count_nonzero((bound <= limit) & np.isfinite(bound))]
    return rows[order], bound[order]


def visits_of(tasks: Sequence[Task]) -> list[Visit]:
    """A visit of every task that has rows. Tasks whose dispatchers differ in their buffers alone have the same bounds."""
    visits: list[Visit] = []
    if max((task.mesh.rows for task in tasks), default=0) > MANY_PAGES:
        keep_pages()
    for task in tasks:
        if task.mesh.rows:
            twin = next((visit for visit in visits if bounds_alike(visit.task, task)), None)
            visits.append(Visit(task, twin))
    return visits


class Known:
    """A value of every row, by value of the choices in BOUNDED, computed for a row when it is first asked for."""

    def __init__(self, shape: tuple[int, ...], rows: int, compute: Callable[[Any], Any]) -> None:
        self.shape, self._compute = shape, compute
        self._place = np.full(rows, -1)  # of a row in ``_values``
        self._values = np.empty((*shape, 0))

    def knows(self, rows: Any) -> Any:
        """True for rows of which the value was asked for."""
        return self._place[rows] >= 0

    def raise_to(self, usable: Sequence[Any], rows: Any, least: Any) -> None:
        """Raise the values of some rows, which are known, to at least one number for each row, where the choices are ``usable``."""
        at = np.ix_(*usable, self._place[rows])
        self._values[at] = np.maximum(self._values[at], least)

    def of(self, rows: Any) -> Any:
        """The values of some rows."""
        new = rows[self._place[rows] < 0]
        if new.size:
            self._place[new] = self._values.shape[-1] + np.arange(new.size)
            found = np.broadcast_to(self._compute(new), (*self._values.shape[:-1], new.size))
            self._values = np.concatenate([self._values, found], axis=-1)
        return self._values[..., self._place[rows]]


def best_plan(tasks: Sequence[Task], limit: float = np.inf) -> Best | None:
    """The fastest plan that keeps memory free (``rooms``); where none does, the fastest that fits; where none fits, the leanest.

    Of equal plans the simplest, and the one of the first task. None where no task has a legal plan. With a ``limit``, only plans that
    keep memory free and take at most so many seconds.
    """
    return best_of(visits_of(tasks), tasks, limit)


def best_of(visits: list[Visit], tasks: Sequence[Task], limit: float = np.inf) -> Best | None:
    """``best_plan`` of tasks whose visits have begun."""
    fastest = fastest_of(visits, limit)
    return None if fastest is None else fastest.opened(visits, tasks)


class Fastest(NamedTuple):
    """The fastest plans of some tasks before they are opened: their time, infinity where none fits, and the rows of every task."""

    seconds: float
    tier: int  # as of ``Best``
    room: float
    rows: list[Any]

    def opened(self, visits: list[Visit], tasks: Sequence[Task]) -> Best | None:
        """The first of these plans."""
        fitting = self.tier != UNFIT
        plans = [open_rows(v.task, r, self.seconds, self.room, fitting) for v, r in zip(visits, self.rows, strict=True)]
        return first_of_equals(plans, [tasks.index(v.task) for v in visits], self.tier)


def fastest_of(visits: list[Visit], limit: float = np.inf) -> Fastest | None:
    """The fastest plans that keep memory free; where none does, the fastest that fit; where none fits, the leanest."""
    if not visits:
        return None
    for tier, room in enumerate(rooms(visits[0].task)):
        seconds, rows = _fastest_rows(visits, room, limit)
        if np.isfinite(seconds):
            return Fastest(seconds, tier, room, rows)
        if np.isfinite(limit):
            return None
    room, rows = _leanest_rows(visits)
    return Fastest(np.inf, UNFIT, room, rows) if np.isfinite(room) else None


def may_fit(visits: Sequence[Visit]) -> bool:
    """False where no plan of some tasks fits: every row needs more memory at least than there is. True says nothing."""
    return any(visit.may_fit for visit in visits)


def least_memory(task: Task, choices: Choices) -> Any:
    """Bytes that every plan of a row of a task needs at least, by row."""
    return row_minimum(memory_at_least(task, np.arange(task.mesh.rows), choices)) * (1.0 - ROUNDING)


def first_of_equals(plans: list[Plans], owners: list[int], tier: int) -> Best | None:
    """The first of the fastest plans, the simplest first; of equal plans of two tasks the first task's."""
    firsts = [(float(p.seconds.min()), at) for at, p in enumerate(plans) if p.seconds.size]
    if not firsts:
        return None
    at = min(firsts)[1]
    return Best(owners[at], sort_plans(plans[at]).take(slice(0, 1)), tier)


def _fastest_rows(visits: list[Visit], room: float, limit: float) -> tuple[float, list[Any]]:
    """The least time up to ``limit`` of a plan within ``room``, infinity where there is none; and the rows of every task that have it.

    The first rows of all tasks are timed before further rows of any, so that all tasks have a good time to beat.
    """
    queues, width = [Queue(visit, room, limit) for visit in visits], 2 * ROWS
    number = sum(queue.rows.size for queue in queues)
    with counted("meshes", number) as count:
        while left := sum(queue.rows.size for queue in queues):
            count.tell(number - left, units.show(limit, "s") if np.isfinite(limit) else "")
            for queue in sorted(queues, key=lambda one: float(one.bound.min(initial=np.inf))):
                limit = queue.time_next(width, limit)
            width *= 4
    least = min(float(queue.times.min(initial=np.inf)) for queue in queues)
    if least > limit or not np.isfinite(least):
        return np.inf, []
    return least, [np.flatnonzero(queue.times == least) for queue in queues]


def _time_rows(visit: Visit, rows: Any, times: Any, room: float, limit: float) -> float:
    """Time the plans of rows that may take at most ``limit`` and keep to ``room``; the least time so far."""
    width = min(ROWS, max(MOST_CELLS // int(np.prod(visit.choices.shape)), 1))
    for start in range(0, rows.size, width):
        limit = _time_block(Block(visit, rows[start : start + width], room, limit), times, limit)
    return limit


def _time_block(block: Block, times: Any, limit: float) -> float:
    """Time the rows of a block that may take at most ``limit``, those with the lowest bound first; the least time so far."""
    for first in block.by_bound():
        at = first[block.least[first] <= limit]
        if not at.size:
            break
        times[block.rows[at]] = block.times(at, limit)
        limit = min(limit, float(times[block.rows[at]].min()))
    return limit


class Block:
    """Rows whose memory is computed, and the bound of each over the plans that are within ``room``.

    With a ``limit`` the memory is computed of the values of recomputation and ZeRO that may keep to it.
    """

    def __init__(self, visit: Visit, rows: Any, room: float, limit: float) -> None:
        self.visit, self.task, self.rows = visit, visit.task, rows
        self.choices = usable_choices(self.task, self._columns(rows))
        usable = [np.isin(visit.choices.of(name), self.choices.of(name)) for name in BOUNDED]
        if np.isfinite(limit):
            hopeful = (visit.tighter.of(rows) <= limit) & (visit.lean.of(rows) <= room)
            usable = [use & hopeful.any(axis=all_but(axis, hopeful.ndim)) for axis, use in enumerate(usable)]
        self.usable, self.least = [np.flatnonzero(use) for use in usable], np.full(rows.size, np.inf)
        if not all(use.any() for use in usable):
            return
        self.choices = self.choices.only({name: keep_used(visit.choices.of(name), use) for name, use in zip(BOUNDED, usable, strict=True)})
        with np.errstate(all="ignore"):
            self.cells = evaluate_cells(self.task, rows, self.choices)
        if not np.isfinite(limit):
            legal = np.broadcast_to(self.cells.legal, (*self.choices.shape, rows.size)).any(axis=tuple(range(len(self.choices.shape))))
            visit.leanest[rows] = np.where(legal, row_minimum(self.cells.device), np.inf)  # a row without a legal plan is not visited again
        self.inside = self.cells.fitting & (self.cells.device <= room)
        inside = np.flatnonzero(self.inside.reshape(-1, rows.size).any(axis=0))
        self.bound = np.full((*self.inside.shape[:-1], rows.size), np.inf)
        if inside.size:
            self.bound[..., inside] = np.where(self.inside[..., inside], self._bound_of(rows[inside]), np.inf)
        self.least = row_minimum(self.bound)

    def _bound_of(self, rows: Any) -> Any:
        """The bound of some rows, with an axis for every choice."""
        return over_cells(self.visit.tighter.of(rows), self.choices, self.visit.choices)

    def _columns(self, rows: Any) -> dict[str, Any]:
        return {name: column[rows] for name, column in self.task.mesh.columns.items()}

    def by_bound(self) -> Iterator[Any]:
        """Positions of rows in the order of their bound, few at first: the first of them give a time to beat."""
        order, start, width = np.argsort(self.least, kind="stable")[: np.count_nonzero(np.isfinite(self.least))], 0, TIMED
        while start < order.size:
            yield order[start : start + width]
            start, width = start + width, 8 * width

    def times(self, at: Any, limit: float) -> Any:
        """The best time of the rows ``at`` these positions, over the values of choices that may give ``limit`` or less."""
        timed = time_cells(self.task, self.rows, self.choices, self.cells.masks, self.bound <= limit, at, limit)
        untimed = np.where(timed.cells(self.bound.shape)[..., at], np.inf, self._bound_of(self.rows[at]))
        # what was learned holds for plans of any memory: for another room, and for dispatchers that send alike
        learned = np.minimum(row_minimum(timed.seconds), row_minimum(untimed)) * (1.0 - ROUNDING)
        self.visit.tighter.raise_to(self.usable, self.rows[at], learned)
        return row_minimum(np.where(timed.cut(self.inside), timed.seconds, np.inf))


def _leanest_rows(visits: list[Visit]) -> tuple[float, list[Any]]:
    """The least memory of a legal plan, and the rows of every task that have such a plan."""
    least = [np.full(v.task.mesh.rows, np.inf) for v in visits]
    lowest = np.inf
    for visit, device in zip(visits, least, strict=True):
        some = np.argsort(visit.leanest, kind="stable")[: 8 * FIRST]
        visit.within(some, np.zeros(some.shape), room=np.inf)  # where the bound of their first stage alone was known
        order = np.argsort(visit.leanest, kind="stable")
        order, width = order[: np.count_nonzero(np.isfinite(visit.leanest))], FIRST
        while order.size and visit.leanest[order[0]] <= lowest:
            rows, order, width = order[:width], order[width:], min(2 * width, ROWS)
            rows = rows[visit.leanest[rows] <= lowest]
            choices = usable_choices(visit.task, {name: column[rows] for name, column in visit.task.mesh.columns.items()})
            with np.errstate(all="ignore"):
                cells = evaluate_cells(visit.task, rows, choices)
                needed = np.broadcast_to(cells.device, (*choices.shape, rows.size))
                for mask in cells.masks:
                    needed = np.where(mask, needed, np.inf)
            device[rows] = row_minimum(needed)
            lowest = min(lowest, float(device[rows].min()))
    return lowest, [np.flatnonzero(d == lowest) for d in least]
