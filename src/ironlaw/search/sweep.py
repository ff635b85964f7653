"""All plans of a task: one pass finds the best plans of every kind and the Pareto front, a second opens the rows that matter.

The first pass counts every plan and times those that a bound does not exclude (``planner/bounds``). The K-th smallest of the rows' best
times bounds the K-th smallest of all plans, so the rows at or below it contain the first K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.estimate.planner.best import TIMED, Visit
from ironlaw.estimate.planner.bounds import ROUNDING
from ironlaw.estimate.planner.evidence import row_price, scores, sort_by_score
from ironlaw.estimate.planner.grid import (
    MOST_CELLS,
    ROWS,
    Cells,
    Choices,
    Task,
    all_true,
    evaluate_cells,
    legal_masks,
    rooms,
    row_minimum,
    usable_choices,
)
from ironlaw.estimate.planner.plans import OPENED, Plans, join_plans, open_rows, sort_plans
from ironlaw.estimate.planner.space import ENDS
from ironlaw.estimate.planner.timing import Timed, over_cells, time_cells
from ironlaw.progress import counted
from ironlaw.question.defaults import NEAR

KIND_AXES = ("tp", "pp", "cp", "ep")  # axes of the mesh that plans of one kind use alike
MORE = 1.1  # times the memory of a device
SAMPLE = 384  # rows that are timed first
FEW = 384  # rows: a smaller kind joins the mixed kind, since a call of the laws costs as much as this many rows
COUNTED = 2 * ROWS  # rows of one call of the laws of memory alone: twice as many take 70 MB more and no less time


@dataclass(eq=False, repr=False)
class Sweep:
    """The first pass over a task: one value per mesh row, and the number of plans.

    Plans that a bound excludes are not timed: they are slower than the best plan of their kind and slower than the plans near the best,
    and a plan of the front is as fast and needs no more memory. ``settle`` times them where a question needs more.
    """

    task: Task
    times: Any  # of every row's fastest timed plan within each of ``rooms``; inf where there is none
    least: Any  # seconds that no plan of the row beats which fits, is within each of ``rooms`` and was not timed; inf where all were
    device: Any  # a lower bound of the row's smallest memory
    exact: Any  # true where it was computed for all plans of the row
    kind: Any  # of every row: which axes of the mesh it uses
    best: Any  # time of the fastest timed plan of every kind within each of ``rooms``
    front: Front
    legal: int = 0
    fits: int = 0
    rows: int = 0  # rows visited; fewer than all where the search was stopped
    timed: int = 0  # plans timed
    memo: dict[str, Any] = field(default_factory=dict)  # plans opened before

    @classmethod
    def begin(cls, task: Task) -> Sweep:
        """A sweep that has visited no row."""
        number = task.mesh.rows
        times, least = (np.full((len(rooms(task)), number), np.inf) for _ in range(2))
        best = np.full((len(rooms(task)), 2 ** len(KIND_AXES)), np.inf)
        unknown = np.full(number, np.inf), np.zeros(number, dtype=bool)
        return cls(task, times, least, *unknown, kind_numbers(task.mesh.columns), best, Front.empty())

    @property
    def room(self) -> int:
        """Which of ``rooms`` the best plan keeps to: the first that any plan keeps to; the last where none fits."""
        return next((i for i, best in enumerate(self.best) if np.isfinite(best).any()), len(self.times) - 1)

    @property
    def seconds(self) -> Any:
        """Step time of every row's fastest timed plan within the room that the best plan keeps to; inf where there is none."""
        return self.times[self.room]

    @property
    def excluded(self) -> int:
        """Legal plans that were not timed."""
        return self.legal - self.timed

    def settle(self, limit: Any) -> Any:
        """``seconds``, after every plan that may take at most ``limit`` (for all rows, or one for each row) was timed."""
        rows = np.flatnonzero(np.isfinite(self.least[self.room]) & (self.least[self.room] <= limit))
        choices = usable_choices(self.task, {name: column[rows] for name, column in self.task.mesh.columns.items()})
        width = max(min(ROWS, MOST_CELLS // int(np.prod(choices.shape))), 1)
        for start in range(0, rows.size, width):
            index = rows[start : start + width]
            with np.errstate(all="ignore"):
                cells = evaluate_cells(self.task, index, choices)
            most = np.broadcast_to(limit, self.device.shape)[index]
            timed = time_cells(self.task, index, choices, cells.masks, cells.fits | True, np.arange(index.size), most)
            seconds, low = timed.known(most)
            for times, least, room in zip(self.times, self.least, rooms(self.task), strict=True):
                inside = cells.fits & (cells.device <= room)
                times[index] = np.minimum(times[index], row_minimum(np.where(inside, seconds, np.inf)))
                least[index] = row_minimum(np.where(inside, low, np.inf))
        return self.seconds

    def leanest(self, among: Any = True) -> float:
        """The smallest memory of the rows that ``among`` names; infinity where there are none."""
        rows = np.flatnonzero(np.broadcast_to(among, self.device.shape) & np.isfinite(self.device))
        rows = rows[np.argsort(self.device[rows], kind="stable")]  # by a lower bound of their memory, which opening a row makes exact
        lowest = np.inf
        for start in range(0, rows.size, OPENED):
            block = rows[start : start + OPENED]
            if self.device[block[0]] > lowest:  # and so is the bound of every later row
                break
            self._open_memory(block[~self.exact[block]])
            lowest = min(lowest, float(self.device[block].min()))
        return lowest

    def _open_memory(self, rows: Any) -> None:
        """Replace the lower bound of the memory of some rows by that of their leanest plan."""
        if not rows.size:
            return
        choices = usable_choices(self.task, {name: column[rows] for name, column in self.task.mesh.columns.items()})
        with np.errstate(all="ignore"):
            self.device[rows] = row_minimum(evaluate_cells(self.task, rows, choices).device)
        self.exact[rows] = True

    def open(self, rows: Any, limit: float = np.inf) -> Plans:
        """Every plan of some rows that takes at most ``limit`` and keeps to the room of the best plan."""
        return open_rows(self.task, rows, limit, rooms(self.task)[self.room])

    def count(self, index: Any, choices: Choices, visit: Visit) -> int:
        """Count the plans of a block of rows that no plan needs to be timed of; the number of legal plans."""
        lean, bound = visit.lean.of(index), visit.bound(index)
        for least, room in zip(self.least, rooms(self.task), strict=True):
            least[index] = row_minimum(np.where(lean <= room, bound, np.inf))
        heavy = row_minimum(lean) > self.task.cluster.room  # none of their plans fits
        self.device[index] = row_minimum(lean)
        legal = 0
        if heavy.any():
            with np.errstate(all="ignore"):
                masks = legal_masks(self.task, index[heavy], choices)[1]
            legal = count_true(all_true(masks), (*choices.shape, int(heavy.sum())))
            self.legal, self.rows = self.legal + legal, self.rows + int(heavy.sum())
        return legal if heavy.all() else legal + self._count_cells(index[~heavy], choices)[0]

    def visit(self, index: Any, choices: Choices, visit: Visit) -> int:
        """Count the plans of a block of rows, and time those that no bound excludes; the number of legal plans."""
        legal, cells = self._count_cells(index, choices)
        self._time(index, choices, cells, over_cells(visit.tighter.of(index), choices, visit.choices))
        return legal

    def _count_cells(self, index: Any, choices: Choices) -> tuple[int, Cells]:
        """Count the plans of a block of rows and those of them that fit."""
        with np.errstate(all="ignore"):
            cells = evaluate_cells(self.task, index, choices)
        self.device[index], self.exact[index] = row_minimum(cells.device), True
        shape = (*choices.shape, index.size)
        legal = count_true(cells.legal, shape)
        self.legal, self.rows = self.legal + legal, self.rows + index.size
        self.fits += count_true(cells.legal & cells.fits, shape)
        return legal, cells

    def hopeful(self, index: Any, lean: Any, bound: Any) -> Any:
        """Rows that may have a plan to time, by bounds of their memory and time; those of the lowest bound first."""
        hopeful = self._hopeful(index, lean <= self.task.cluster.room, lean, bound)
        least = row_minimum(np.where(hopeful, bound, np.inf))
        return index[np.argsort(least, kind="stable")[: np.count_nonzero(np.isfinite(least))]]

    def _hopeful(self, index: Any, fits: Any, device: Any, bound: Any) -> Any:
        """Cells that may be the best of their kind, near the best, or on the front."""
        return bound <= self._limit(index, fits, device)

    def _limit(self, index: Any, fits: Any, device: Any) -> Any:
        """The time that a cell of this memory must not exceed to be the best of its kind, near the best, or on the front."""
        limit = np.where(device <= most_memory(self.task), self.front.limit(device), -np.inf)
        for best, room in zip(self.best[: self.room + 1], rooms(self.task), strict=False):
            near = np.maximum(best, (1.0 + NEAR) * best.min())[self.kind[index]]
            limit = np.where(fits & (device <= room), np.maximum(limit, near), limit)
        return limit

    def _time(self, index: Any, choices: Choices, cells: Cells, bound: Any) -> None:
        """Time the hopeful cells of a block, those of a few rows of low bound first where no time is known, and keep what they show."""
        fitting = [cells.fitting & (cells.device <= room) for room in rooms(self.task)]
        admitted = cells.fits | (cells.device > self.task.cluster.room)  # to the front: not where the host's memory is too small
        known = np.zeros(cells.device.shape, dtype=bool)
        rows, width = np.arange(index.size), ROWS if np.isfinite(self.best).any() else TIMED
        while rows.size:
            limit = self._limit(index, cells.fitting, cells.device)
            hopeful = (bound <= limit) & ~known
            least = row_minimum(np.where(hopeful, bound, np.inf))[rows]
            rows = rows[np.argsort(least, kind="stable")[: np.count_nonzero(np.isfinite(least))]]
            at, rows, width = np.sort(rows[:width]), rows[width:], ROWS
            if not at.size:
                break
            timed = time_cells(self.task, index, choices, cells.masks, hopeful, at, limit)
            self.timed += self._count(timed, choices, cells)
            seconds, low = timed.known(timed.cut(limit))
            beyond = np.isfinite(low)
            bound = np.maximum(bound, timed.placed(np.where(beyond, low, -np.inf), known.shape, -np.inf))
            owner, device = np.broadcast_to(index[at], seconds.shape), np.broadcast_to(timed.cut(cells.device), seconds.shape)
            ahead = timed.cut(admitted) & np.isfinite(seconds) & (seconds <= self.front.limit(device))
            if ahead.any():
                self.front = self.front.with_points(seconds[ahead], device[ahead], owner[ahead])
            for times, best, inside in zip(self.times, self.best, fitting, strict=True):
                times[index[at]] = np.minimum(times[index[at]], row_minimum(np.where(timed.cut(inside), seconds, np.inf)))
                np.minimum.at(best, self.kind[index[at]], times[index[at]])
            known |= timed.placed(~beyond, known.shape, False)
        self.least[:, index] = np.stack([row_minimum(np.where(inside & ~known, bound, np.inf)) for inside in fitting])

    def _count(self, timed: Timed, choices: Choices, cells: Cells) -> int:
        """Legal plans among the cells that were timed."""
        values = [len(v) if used is None else int(np.count_nonzero(used)) for v, used in zip(choices.values, timed.used, strict=True)]
        return count_true(all_true([timed.cut(mask) for mask in cells.masks]), (*values, timed.at.size))


def most_memory(task: Task) -> float:
    """Bytes that plans of interest need at most: a device with a tenth more memory is asked for, too."""
    return float(max(task.cluster.room, MORE * task.cluster.accelerator.usable_memory))


def kind_numbers(columns: dict[str, Any]) -> Any:
    """A number for each combination of axes that are used."""
    return sum(((columns[axis] > 1.0) * 2**i for i, axis in enumerate(KIND_AXES)), np.int64(0))


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


def kinds(task: Task, rows: Any) -> Iterator[tuple[Any, Choices]]:
    """Some rows by kind, and the choices to vary for them. Kinds of few rows are joined; masks keep their cells distinct."""
    c = {name: column[rows] for name, column in task.mesh.columns.items()}
    given = np.maximum(*(c[axis] for axis in ENDS)) >= 0.0
    uneven = np.where(c["pp"] > 1.0, 1.0 + ((task.job.model.num_hidden_layers % c["pp"] > 0.0) | given), 0.0)
    sharded = np.where(c["dp_shard"] > 1.0, 2.0, 1.0 * (c["cp"] * c["dp_replicate"] > 1.0))
    key = ((uneven * 3.0 + sharded) * 2.0 + (c["tp"] > 1.0)) * 2.0 + (c["vpp"] > 1.0)
    _, which, count = np.unique(key, return_inverse=True, return_counts=True)
    which = np.where(count[which] < FEW, -1, which)
    for kind in np.unique(which):
        index = np.flatnonzero(which == kind)
        yield rows[index], usable_choices(task, {name: column[index] for name, column in c.items()})


def count_true(mask: Any, shape: tuple[int, ...]) -> int:
    """True cells of a mask that is broadcast to ``shape``."""
    return int(np.count_nonzero(mask)) * (prod(map(int, shape)) // max(int(np.size(mask)), 1))


def sweep(task: Task, go_on: Callable[[int], bool] = lambda _: True) -> Sweep:
    """The best plan of every kind, those near the best, and the front. Stops after the first block for which ``go_on(plans)`` is false."""
    swept = Sweep.begin(task)
    if not task.mesh.rows:
        return swept
    with counted("meshes", task.mesh.rows) as count:

        def told(plans: int) -> bool:
            """Tell how many meshes were visited, and the best time so far."""
            best = float(swept.best.min())
            count.tell(swept.rows, units.show(best, "s") if np.isfinite(best) else "")
            return go_on(plans)

        _visit_all(swept, told)
    return swept


def _visit_all(swept: Sweep, go_on: Callable[[int], bool]) -> None:
    """Visit the rows of a sweep: a sample, those that may matter in the order of their bound, and all others to be counted."""
    task = swept.task
    visit = Visit(task)
    order = np.argsort(row_minimum(visit.least), kind="stable")
    sample = np.zeros(order.size, dtype=bool)
    sample[:: max(order.size // SAMPLE, 1)] = True  # rows of all bounds, for times to beat
    if not _in_blocks(swept.visit, task, order[sample], visit, go_on):
        return
    order, excluded, width = order[~sample], [], ROWS
    while order.size:
        rows, order, width = order[:width], order[width:], 2 * width
        hopeful = swept.hopeful(rows, visit.lean.of(rows), visit.least[..., rows])
        hopeful = swept.hopeful(hopeful, visit.lean.of(hopeful), visit.tighter.of(hopeful))
        excluded.append(np.setdiff1d(rows, hopeful, assume_unique=True))
        if not _in_blocks(swept.visit, task, hopeful, visit, go_on):
            return
    for index, choices in kinds(task, np.concatenate([order, *excluded])):
        if not _in_blocks(swept.count, task, index, visit, go_on, choices):
            break


Look = Callable[[Any, Choices, Visit], int]


def _in_blocks(look: Look, task: Task, rows: Any, visit: Visit, go_on: Callable[[int], bool], choices: Choices | None = None) -> bool:
    """Look at rows in blocks; False as soon as ``go_on`` stops it. Without ``choices`` those that the rows can use."""
    width = ROWS if choices is None else COUNTED
    choices = choices or usable_choices(task, {name: column[rows] for name, column in task.mesh.columns.items()})
    width = max(min(width, MOST_CELLS // int(np.prod(choices.shape))), 1)
    return all(go_on(look(rows[start : start + width], choices, visit)) for start in range(0, rows.size, width))


def fastest_plans(swept: Sweep, number: int) -> Plans:
    """The ``number`` fastest plans of a task, the same as a search through all of them would list."""
    for _ in range(2):  # the first limit may be far off
        seconds = swept.settle(_nth_smallest(swept.seconds, number))
    rows = np.flatnonzero(np.isfinite(seconds))
    limit = _nth_smallest(seconds[rows], number)
    rows = rows[seconds[rows] <= limit]
    plans = swept.open(rows[:0])
    for start in range(0, rows.size, OPENED):  # each part lowers the limit for the next
        plans = join_plans([plans, swept.open(rows[start : start + OPENED], limit)])
        limit = _nth_smallest(plans.seconds, number)
        plans = plans.take(np.flatnonzero(plans.seconds <= limit))
    return sort_plans(plans).take(slice(0, number))


def preferred_plans(swept: Sweep, number: int) -> Plans:
    """The ``number`` plans of the best scores (``planner.evidence``), the same as a search through all plans would list."""
    key = f"preferred {number}"
    if key not in swept.memo:
        swept.memo[key] = _search_preferred(swept, number)
    found: Plans = swept.memo[key]
    return found


def _search_preferred(swept: Sweep, number: int) -> Plans:
    """``preferred_plans``, searched for."""
    fastest = fastest_plans(swept, number)
    most = scores(swept.task, fastest)
    if np.all(most == fastest.seconds):  # a slower plan has no better score
        return fastest
    limit = float(most.max())
    within = within_score(swept, limit)
    plans = swept.open(np.flatnonzero(swept.settle(within) <= within), limit)
    return sort_by_score(swept.task, plans).take(slice(0, number))


def within_score(swept: Sweep, score: Any) -> Any:
    """The step time of each row of a task above which none of its plans has a score of at most ``score``, for all rows or for each."""
    return score / row_price(swept.task, np.arange(swept.task.mesh.rows)) * (1.0 + ROUNDING)


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
