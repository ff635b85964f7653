"""The plan of one row: as given, or the best plan of the space that the row leaves open, with the batch where the question gives none."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ironlaw.estimate.bind.batch import batch_range
from ironlaw.estimate.bind.question import Bound, bind_question, framework_of, with_batch
from ironlaw.estimate.evidence.support import never_measured_names
from ironlaw.estimate.planner.batch import pick_batch, rough_space
from ironlaw.estimate.planner.best import UNFIT, Best, Visit, fastest_of, may_fit, visits_of
from ironlaw.estimate.planner.bounds import ROUNDING
from ironlaw.estimate.planner.evidence import Preferred, as_plan, go_on, preferred_plan, score_of
from ironlaw.estimate.planner.grid import Task
from ironlaw.estimate.planner.layers import LayerTables
from ironlaw.estimate.planner.rows import (
    LAYOUT_AXES,
    OPEN_AXES,
    close_by_rule,
    columns_of,
    given_axes,
    given_space,
    is_given,
    row_of,
    with_implied,
)
from ironlaw.estimate.planner.space import Space, read_space
from ironlaw.estimate.planner.tasks import offered, task_of, usable_space, variants_of
from ironlaw.job import Job
from ironlaw.question import defaults
from ironlaw.question.fields import Row


class Choice(NamedTuple):
    """A row with a plan: as given or chosen."""

    row: Row
    chosen: tuple[str, ...]
    variant: dict[str, Any]
    tier: int = 0  # how much memory the plan keeps free: see ``best.Best``
    seconds: float = 0.0  # of a step, where the plan was searched
    faster: Faster | None = None  # the fastest plan, where the plan was preferred for its evidence
    final: bool = True  # False where only the fastest plan was looked for, and one with more evidence may be preferred
    score: Callable[[], float] = lambda: np.inf  # of the fastest plan, where it keeps memory free: no better plan takes longer
    go_on: Callable[[], Choice] | None = None  # the choice with the preferred plan, where it is not final and no row was left out


class Faster(NamedTuple):
    """A plan that is predicted faster than the chosen one and has more values that no published run measured."""

    row: Row
    seconds: float
    never_measured: tuple[str, ...]


class Search(NamedTuple):
    """The tasks of a row with the options of the job of each, the space without what the stack lacks, and the visits of the tasks."""

    variants: list[dict[str, Any]]
    tasks: list[Task]
    space: Space
    visits: list[Visit]


class Bounds(dict[Any, Bound]):
    """The question bound for each variant of its job; what its searches share: times of layers, and the first search of what few run.

    A second search of what few run goes on where the first ended.
    """

    def __init__(self, bound: Bound | None = None) -> None:
        super().__init__({} if bound is None else {(): bound})
        self._seldom: dict[Row, Search] = {}
        self.tables = LayerTables()

    def of_seldom(self, bound: Bound, row: Row, space: Space) -> Search:
        """The search of a row with what few run, in the space of the question."""
        if row in self._seldom:
            return self._seldom[row]
        variants, tasks, own = tasks_of_row(bound, row, space, self, seldom=True)
        found = Search(variants, tasks, own, visits_of(tasks))
        if not self._seldom:
            self._seldom[row] = found
        return found


def choose(bound: Bound, row: Row, space: Space, bounds: Bounds) -> Choice:
    """The plan of one row, and its batch where the question gives none. ``bounds`` keeps the question bound for each variant."""
    job, filled = bound.job(framework_of(bound, row)), with_implied(row, bound.asked.schedule)
    if is_given(filled, bound.model):
        closed = close_by_rule(job, filled)
        if row.global_batch_size is None:
            usual = batch_range(bound, row).usual
            closed = closed._replace(global_batch_size=defaults.batch_of_ranks(_sequences_at_once(job, closed), usual))
        return Choice(closed, _open_axes(bound, row, LAYOUT_AXES), {})
    if row.global_batch_size is not None:
        return search_row(bound, row, space, bounds) or _without_plan(bound, row)
    rough = is_rough(bound, space)
    choice = choose_batch(bound, row, space, bounds, rough)
    if not rough or not choice.seconds:
        return choice
    row = row._replace(global_batch_size=choice.row.global_batch_size)
    known = search_row(bound, row, space, bounds, choice.seconds * (1.0 + ROUNDING), within=choice.score()) if choice.tier == 0 else None
    return known or search_row(bound, row, space, bounds, doubtful=choice.tier == UNFIT) or _without_plan(bound, row)


def is_rough(bound: Bound, space: Space) -> bool:
    """True where batches and numbers of accelerators are compared in a part of the space: a mixture has many plans."""
    return bool(bound.model.num_experts) and not space.own


def choose_batch(bound: Bound, row: Row, space: Space, bounds: Bounds, rough: bool = False) -> Choice:
    """The batch of a row that gives none, with its best plan in a space; ``rough``: with its fastest in a part of it.

    Batches are compared by their fastest plans.
    """
    allowed = batch_range(bound, row)
    batches = allowed.to_try(row.gpus or 1.0, row.micro_batch_size or 1.0)
    found: dict[float, Choice] = {}

    def rate(batch: float, least: float) -> float:
        first = found.get(batches[0])
        fitting = first is not None and first.tier == UNFIT  # another batch is of use only where it fits
        limit = batch / least if least else np.inf
        choice = search_row(bound, row._replace(global_batch_size=batch), space, bounds, limit, rough, fitting, by_score=False)
        if choice is None:
            return 0.0
        found[batch] = choice
        return 0.0 if choice.tier else batch / choice.seconds

    batch = pick_batch(batches, rate, defaults.widest_batch(batches, row.gpus or 1.0))
    if not found:  # no number of ranks divides such a batch: the least batch above that does
        batch = defaults.batch_of_ranks((row.gpus or 1.0) * (row.micro_batch_size or 1.0), allowed.usual)
        rate(batch, 0.0)
    elif batch not in found or found[batch].tier:
        batch = min(found, key=lambda one: (found[one].tier, batches.index(one)))
    row, choice = row._replace(global_batch_size=batch), found.get(batch)
    if choice is None:
        return _without_plan(bound, row)
    if rough or choice.final:
        return choice
    if choice.go_on is not None:
        return choice.go_on()
    limit = np.inf if choice.tier else choice.seconds * (1.0 + ROUNDING)  # the fastest is known
    return search_row(bound, row, space, bounds, limit, within=choice.score()) or choice


def _sequences_at_once(job: Job, row: Row) -> float:
    """Sequences that all data-parallel ranks of a closed row start together."""
    return defaults.sequences_at_once(row.gpus, row.tp, row.pp, row.cp, row.vpp, row.micro_batch_size, job.microbatch_group)


def _without_plan(bound: Bound, row: Row) -> Choice:
    """A row for which no plan is legal, closed by rule: the rules say which of them the given axes break."""
    job, filled = bound.job(framework_of(bound, row)), with_implied(row, bound.asked.schedule)
    return Choice(close_by_rule(job, filled), _open_axes(bound, row, LAYOUT_AXES), {})


def search_row(
    bound: Bound,
    row: Row,
    space: Space,
    bounds: Bounds,
    limit: float = np.inf,
    rough: bool = False,
    fitting: bool = False,
    by_score: bool = True,
    within: float = np.inf,
    doubtful: bool = False,
) -> Choice | None:
    """The best plan of a row with a batch (``best.best_plan``); None where no plan is legal, or none is within ``limit`` seconds.

    ``rough``: of the part of the space in which batches are compared. ``fitting``: None also where bounds of memory say that no plan fits.
    Without ``by_score`` the fastest plan, whatever its evidence. ``within`` is the score of a plan of the row, where one is known.
    ``doubtful``: probably no plan fits, which bounds of memory are asked first.
    """
    within = within if by_score else limit
    if by_score and np.isfinite(limit) and np.isinf(within):  # the fastest plan says which rows may have one that is preferred
        fastest = search_row(bound, row, space, bounds, limit, rough, fitting, by_score=False)
        if fastest is None or fastest.final:
            return fastest
        limit, within = fastest.seconds * (1.0 + ROUNDING), fastest.score()
    named = bool(bound.asked.framework)
    hopeless = doubtful and not named and np.isinf(limit) and not may_fit(bounds.of_seldom(bound, row, space).visits)
    if hopeless:  # what few run includes what many run
        variants, tasks, own, visits = bounds.of_seldom(bound, row, space)
    else:
        variants, tasks, own = tasks_of_row(bound, row, space, bounds, rough=rough, within=within)
        visits = visits_of(tasks)
    if rough and not by_score and ((fastest := _fastest(row, tasks, visits, limit, fitting)) or np.isfinite(limit)):
        return fastest
    skipped = not hopeless and (fitting or (doubtful and not named)) and not may_fit(visits)
    best = None if skipped else preferred_plan(tasks, limit, by_score, visits)
    if not named and not hopeless and np.isinf(limit) and (best is None or best.fastest.tier == UNFIT):  # nothing else fits: what few run
        rare = bounds.of_seldom(bound, row, space)
        if not (fitting or (rough and best)) or may_fit(rare.visits):
            variants, tasks, own, visits = rare
            best = preferred_plan(tasks, limit, by_score, visits)
    if best is None:
        return None
    search, known = Search(variants, tasks, own, visits), best
    found = _choice_of(bound, row, search, best)
    if best.final or np.isfinite(within):
        return found
    return found._replace(go_on=lambda: _choice_of(bound, row, search, go_on(tasks, visits, known)))


def _choice_of(bound: Bound, row: Row, search: Search, best: Preferred) -> Choice:
    """The choice of a row whose best plan was found."""
    variants, tasks, own, _ = search
    preferred, values = best.best, _values(best.best)
    searched = (*LAYOUT_AXES, *(axis for axis in OPEN_AXES if any(map(own.varies, columns_of(axis)))))
    chosen = _open_axes(bound, row, searched)
    seconds, score = float(preferred.plan.seconds[0]), best.score
    found = Choice(row_of(row, values), chosen, variants[preferred.task], preferred.tier, seconds, None, best.final, lambda: score)
    return found if best.best is best.fastest else found._replace(faster=_faster(row, tasks, best.fastest))


def _fastest(row: Row, tasks: list[Task], visits: list[Visit], limit: float, fitting: bool) -> Choice | None:
    """How long the fastest plan of a row takes, without its plan; None where none is within ``limit``, or none fits."""
    found = None if fitting and not may_fit(visits) else fastest_of(visits, limit)
    if found is None or found.tier == UNFIT:
        return None
    return Choice(row, (), {}, found.tier, found.seconds, None, False, partial(score_of, tasks, visits, found))


def _values(best: Best) -> dict[str, Any]:
    """The values of a best plan by axis."""
    return {name: column[0] for name, column in best.plan.columns.items()}


def _faster(row: Row, tasks: list[Task], fastest: Best) -> Faster:
    """The fastest plan of a row, with what of it no published run measured."""
    task = tasks[fastest.task]
    names = never_measured_names(task.job, as_plan(task, fastest.plan), task.cluster.accelerator.architecture)
    return Faster(row_of(row, _values(fastest)), float(fastest.plan.seconds[0]), names)


def search_settings(bound: Bound) -> Choice | None:
    """The best plan with the axes of a given plan, over the settings that it leaves open: overlap, end stages, schedule, dispatcher.

    The question has one row, with a whole plan and a batch. None where no such plan is legal, or none fits.
    """
    (row,) = bound.asked.rows
    job, space = bound.job(framework_of(bound, row)), read_space(None)
    closed = close_by_rule(job, with_implied(row, bound.asked.schedule))._replace(overlap=row.overlap)
    bounds = Bounds(bound)
    variants, tasks, _ = tasks_of_row(bound, closed, space, bounds, closed=False)
    found = preferred_plan(tasks)
    if found is None or found.best.tier == UNFIT:
        return None
    best = found.best
    return Choice(row_of(closed, _values(best)), (), variants[best.task], best.tier, float(best.plan.seconds[0]))


def tasks_of_row(
    bound: Bound,
    row: Row,
    space: Space,
    bounds: Bounds,
    seldom: bool = False,
    rough: bool = False,
    closed: bool = True,
    within: float = np.inf,
    first: bool = False,
) -> tuple[list[dict[str, Any]], list[Task], Space]:
    """The tasks of a row with a batch, the options of the job of each, and the space without what the framework does not have.

    ``closed``: where the row gives a whole plan, the axes that it leaves out follow their rules. Rows all of whose plans take more than
    ``within`` seconds are left out of the tasks. ``first``: no task after the first that has rows.
    """
    given = given_axes(bound.asked, row)
    job = bound.job(framework_of(bound, row))
    narrowed = space.narrowed(given)
    space = offered(given_space(narrowed, bound, job, row.gpus or 1.0) if closed else narrowed, bound, job, seldom)
    space = rough_space(space) if rough else space
    sizes = {"gpus": row.gpus or 1.0, "global_batch_size": row.global_batch_size or 1.0, "seq_len": row.seq_len or 1.0}
    variants = variants_of(space, sizes["seq_len"], given)
    tasks: list[Task] = []
    for variant in variants:
        own = _variant_of(bound, variant, bounds)
        usable = usable_space(space, own, sizes["gpus"], sizes["seq_len"])
        tasks.append(task_of(usable, own, own.job(framework_of(own, row)), sizes, tasks, within, bounds.tables))
        if first and tasks[-1].mesh.rows:
            break
    return variants, tasks, space


def _open_axes(bound: Bound, row: Row, axes: Collection[str]) -> tuple[str, ...]:
    """Of some axes those that a row does not give; a dense model has no experts to place."""
    return tuple(n for n in OPEN_AXES if n in axes and getattr(row, n) is None and (n not in ("ep", "etp") or bound.model.num_experts))


def _variant_of(bound: Bound, variant: dict[str, Any], bounds: Bounds) -> Bound:
    """The question bound for a variant of its job; bound once."""
    key = tuple(variant.items())
    if key not in bounds:
        bounds[key] = bind_variant(bound, variant)
    return bounds[key]


def bind_variant(bound: Bound, options: dict[str, Any]) -> Bound:
    """The question bound with other options, which the user did not give."""
    return with_batch(bind_question(bound.asked.replace(**options), bound.folders, bound.money is not None))
