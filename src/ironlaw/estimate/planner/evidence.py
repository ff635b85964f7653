"""The best plan by its time and its evidence: of plans that are predicted nearly alike the one that published runs measured.

A plan's score is ``time price^n``, n its values that no published run of this kind of stack and model measured
(``estimate.evidence.support``), and one more where there are published layouts of its kind and size and it is none of them
(``planner.published``). The price of one is the difference below which two plans of a job were measured in the predicted order no more
often than by chance (``told_apart`` of the bands record): what nobody measured must be faster by more than can be told.

``score >= time``, so that only plans up to the score of the fastest matter. Where the fastest rests on measured runs, nothing is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ironlaw.estimate.evidence.support import never_measured, never_measured_degrees
from ironlaw.estimate.planner.best import UNFIT, Best, Block, Fastest, Visit, best_of, first_of_equals, visits_of
from ironlaw.estimate.planner.bounds import ROUNDING
from ironlaw.estimate.planner.grid import Task, rooms, row_minimum, usable_choices
from ironlaw.estimate.planner.mesh import plan_of
from ironlaw.estimate.planner.plans import Plans, join_plans, open_rows, sort_plans
from ironlaw.estimate.planner.published import is_published
from ironlaw.estimate.planner.space import CHOICES
from ironlaw.plan import RECOMPUTE, Plan, recompute_columns

TIMED = 1024  # rows that are timed at once, to find those whose plans are worth to be opened
OPENED = 64  # rows whose plans are scored at once
FEW = 1 << 15  # plans of all tasks that are opened without asking bounds first, which take as long


class Preferred(NamedTuple):
    """The best plan by score, and the fastest; the same one where the fastest has the best score."""

    best: Best
    fastest: Best
    final: bool = True  # False where a plan with a better score than the fastest may be left
    score: float = np.inf  # of the fastest, where it keeps memory free


def preferred_plan(
    tasks: Sequence[Task], limit: float = np.inf, by_score: bool = True, visits: list[Visit] | None = None
) -> Preferred | None:
    """The plan of the best score that keeps to the room of the fastest (``best.best_plan``). None where there is no plan within ``limit``.

    Where no plan fits, the leanest is both. Without ``by_score`` the fastest is both. ``visits`` are those of the tasks, where they have
    begun.
    """
    if visits is None and by_score and np.isinf(limit) and (found := _preferred_of_few(tasks)):
        return found
    visits = visits_of(tasks) if visits is None else visits
    fastest = best_of(visits, tasks, limit)
    if fastest is None:
        return None
    score = float(scores(tasks[fastest.task], fastest.plan)[0])
    known = score if fastest.tier == 0 else np.inf
    if fastest.tier == UNFIT or score == fastest.plan.seconds[0]:
        return Preferred(fastest, fastest, score=known)
    return Preferred(_best_score(visits, tasks, fastest) if by_score else fastest, fastest, by_score, known)


def go_on(tasks: Sequence[Task], visits: list[Visit], found: Preferred) -> Preferred:
    """The plan of the best score, where only the fastest was looked for."""
    return found._replace(best=_best_score(visits, tasks, found.fastest), final=True)


def _preferred_of_few(tasks: Sequence[Task]) -> Preferred | None:
    """The plan of the best score of a few meshes, all of whose plans are opened; None where there are many, or none fits."""
    some = [(at, task) for at, task in enumerate(tasks) if task.mesh.rows]
    if not some or sum(task.mesh.rows * prod(usable_choices(task, task.mesh.columns).shape) for _, task in some) > FEW:
        return None
    plans = [open_rows(task, np.arange(task.mesh.rows)) for _, task in some]
    for tier, room in enumerate(rooms(tasks[0])):
        inside = [one.take(np.flatnonzero(one.device <= room)) for one in plans]
        fastest = first_of_equals(inside, [at for at, _ in some], tier)
        if fastest is not None:
            best, least = fastest, float(scores(tasks[fastest.task], fastest.plan)[0])
            known = least if tier == 0 else np.inf
            for (at, task), own in zip(some, inside, strict=True):
                best, least = _better(best, least, at, task, own)
            return Preferred(best, fastest, score=known)
    return None


def score_of(tasks: Sequence[Task], visits: list[Visit], fastest: Fastest) -> float:
    """The score of the fastest plan; infinity where it does not keep memory free."""
    best = fastest.opened(visits, tasks) if fastest.tier == 0 else None
    return np.inf if best is None else float(scores(tasks[best.task], best.plan)[0])


def _best_score(visits: Sequence[Visit], tasks: Sequence[Task], fastest: Best) -> Best:
    """The plan of the best score within the room of the fastest; of equals the simplest, and the one of the first task."""
    best, least = fastest, float(scores(tasks[fastest.task], fastest.plan)[0])
    for visit in visits:
        task, at = visit.task, tasks.index(visit.task)
        room = rooms(task)[fastest.tier]
        rows, bound, price = _hopeful_rows(visit, room, least)
        for start in range(0, rows.size, TIMED):
            if bound[start] > least:
                break
            some = slice(start, start + TIMED)  # before plans are opened, of many rows at once
            timed = _score_at_least(visit, rows[some], price[some], room, least)
            order = np.argsort(timed, kind="stable")
            for first in range(0, order.size, OPENED):  # the best first: it leaves few of the others
                near = order[first : first + OPENED]
                near = near[timed[near] <= least]
                if not near.size:
                    break
                best, least = _better(best, least, at, task, open_rows(task, rows[some][near], least, room))
    return best


def _better(best: Best, least: float, at: int, task: Task, plans: Plans) -> tuple[Best, float]:
    """The best of a plan, whose score is ``least``, and of some plans of the task at ``at``; and its score."""
    if not plans.seconds.size:
        return best, least
    score = scores(task, plans)
    lowest = float(score.min())
    if lowest > least or (lowest == least and at > best.task):
        return best, least
    alike = plans.take(np.flatnonzero(score == lowest))
    if lowest == least and at == best.task:
        alike = join_plans([best.plan, alike])
    first = sort_by_score(task, alike).take(slice(0, 1))
    same = at == best.task and all(column[0] == best.plan.columns[name][0] for name, column in first.columns.items())
    return (best if same else Best(at, first, best.tier)), lowest


def _score_at_least(visit: Visit, rows: Any, price: Any, room: float, least: float) -> Any:
    """A bound of the score of some rows within ``room``, from the times of their plans that may have a score of at most ``least``."""
    block, found = Block(visit, rows, room, least / price.min()), np.full(rows.size, np.inf)
    at = np.flatnonzero(block.least * price <= least)
    if at.size:
        found[at] = block.times(at, least / price.min()) * price[at] * (1.0 - ROUNDING)
    return found


def _hopeful_rows(visit: Visit, room: float, least: float) -> tuple[Any, Any, Any]:
    """The rows whose plans may have a score of at most ``least`` within ``room``, a bound of it, lowest first, and their least price."""
    task = visit.task
    rows = np.flatnonzero((visit.leanest <= room) & (row_minimum(visit.least) <= least))
    price = row_price(task, rows)
    near = price * row_minimum(visit.least[..., rows]) <= least
    rows, price = rows[near], price[near]
    bound = price * visit.within(rows, visit.tighter.of(rows), room) if rows.size else np.empty(0)
    order = np.argsort(bound, kind="stable")[: np.count_nonzero(bound <= least)]
    return rows[order], bound[order], price[order]


def scores(task: Task, plans: Plans) -> Any:
    """``time price^n`` of some plans of a task [s]."""
    measured = evidence_scores(task, plans)
    return measured * task.price ** (~is_published(task.published, plans.columns)) if task.published else measured


def evidence_scores(task: Task, plans: Plans) -> Any:
    """``time price^n`` of some plans [s], n their values that no published run measured alone."""
    if task.price == 1.0 or not plans.seconds.size:
        return plans.seconds
    return plans.seconds * task.price ** never_measured(task.job, as_plan(task, plans), task.cluster.accelerator.architecture)


def row_price(task: Task, rows: Any) -> Any:
    """``price^n`` that no plan of some rows is below: by their degrees, and by the axes of published layouts that rows have."""
    columns = {name: column[rows] for name, column in task.mesh.columns.items()}
    other = ~is_published(task.published, columns) if task.published else 0
    return task.price ** (never_measured_degrees(task.job, columns, task.seq_len) + other)


def sort_by_score(task: Task, plans: Plans) -> Plans:
    """Plans with the best score first; of equals the fastest, then the simplest."""
    plans = sort_plans(plans)
    return plans.take(np.argsort(scores(task, plans), kind="stable"))


def as_plan(task: Task, plans: Plans) -> Plan:
    """Opened plans as the columns of a Plan."""
    hows, which = np.unique(plans.columns["recompute"].astype(str), return_inverse=True)
    fractions = np.array([recompute_columns(how, task.job.framework.selective_recompute) for how in hows])[which]
    columns = {name: column for name, column in plans.columns.items() if name not in CHOICES}
    choices = {name: plans.columns[name] for name in CHOICES if name != "recompute"}
    choices |= {name: fractions[:, at] for at, name in enumerate(RECOMPUTE)}
    return plan_of(columns, task.global_batch_size, task.seq_len, **choices)
