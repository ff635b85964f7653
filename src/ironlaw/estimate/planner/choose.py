"""The plan of every row of a question: as given, or the best plan of the space that the row leaves open."""

from __future__ import annotations

from collections.abc import Collection
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from ironlaw.estimate.bind.batch import batch_range
from ironlaw.estimate.bind.question import Bound, bind_question, framework_of, with_batch
from ironlaw.estimate.planner.batch import pick_batch
from ironlaw.estimate.planner.best import UNFIT, best_plan
from ironlaw.estimate.planner.grid import Task
from ironlaw.estimate.planner.rows import (
    LAYOUT_AXES,
    OPEN_AXES,
    close_by_rule,
    columns_of,
    given_axes,
    given_space,
    is_given,
    plan_of_rows,
    row_of,
    with_implied,
)
from ironlaw.estimate.planner.space import Space, read_space
from ironlaw.estimate.planner.tasks import offered, task_of, usable_space, variants_of
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.question import defaults
from ironlaw.question.asked import Row


class Placed(Frozen):
    """The plans of rows that share a job: columns, the rows of the question they answer, and what was chosen in each."""

    bound: Bound
    framework: str
    variant: dict[str, Any]  # options that were chosen for the job
    plan: Plan
    index: Any
    recompute: tuple[str, ...]
    chosen: tuple[tuple[str, ...], ...]
    tight: tuple[bool, ...]  # the plan was chosen, and keeps too little memory free because none keeps more
    better_batch: tuple[tuple[float, float] | None, ...]  # a batch near the given one that is much faster, and how many times


class Choice(NamedTuple):
    """A row with a plan: as given or chosen."""

    row: Row
    chosen: tuple[str, ...]
    variant: dict[str, Any]
    tier: int = 0  # how much memory the plan keeps free: see ``best.Best``
    seconds: float = 0.0  # of a step, where the plan was searched
    better_batch: tuple[float, float] | None = None


def place(bound: Bound) -> list[Placed]:
    """A plan for every row: the given one, else the best of the space (``best.best_plan``); rows that are alike are searched once."""
    space = read_space(bound.asked.space)
    bounds: dict[Any, Bound] = {(): bound}
    choices: dict[Row, Choice] = {}
    for row in bound.asked.rows:
        if row not in choices:
            choices[row] = choose(bound, row, space, bounds)
    shared: dict[Any, list[int]] = {}
    for index, row in enumerate(bound.asked.rows):
        choice = choices[row]
        variant = tuple(choice.variant.items())
        unasked = bool(choice.row.offload) and not row.offload  # the question binds no host
        shared.setdefault((framework_of(bounds[variant], row), variant, unasked), []).append(index)
    return [_place(bounds[variant], name, unasked, index, choices) for (name, variant, unasked), index in shared.items()]


def _place(bound: Bound, framework: str, bind_again: bool, index: list[int], choices: dict[Row, Choice]) -> Placed:
    """The rows at ``index``, which share a job, with their plans."""
    listed = [choices[bound.asked.rows[i]] for i in index]
    rows = [choice.row for choice in listed]
    if bind_again:
        bound = bind_variant(bound, {"rows": tuple(rows)})
    return Placed(
        bound,
        framework,
        listed[0].variant,
        plan_of_rows(bound.job(framework), rows),
        np.array(index, dtype=np.int64),
        tuple(str(row.recompute) for row in rows),
        tuple(choice.chosen for choice in listed),
        tuple(0 < choice.tier < UNFIT for choice in listed),
        tuple(choice.better_batch for choice in listed),
    )


def choose(bound: Bound, row: Row, space: Space, bounds: dict[Any, Bound]) -> Choice:
    """The plan of one row, and its batch where the question gives none. ``bounds`` keeps the question bound for each variant."""
    job, filled = bound.job(framework_of(bound, row)), with_implied(row, bound.asked.schedule)
    if is_given(filled, bound.model):
        closed = close_by_rule(job, filled)
        if row.global_batch_size is None:
            usual = batch_range(bound, row).usual
            closed = closed._replace(global_batch_size=defaults.batch_of_ranks(_sequences_at_once(job, closed), usual))
        return Choice(closed, _open_axes(bound, row, LAYOUT_AXES), {})
    if row.global_batch_size is not None:
        choice = search_row(bound, row, space, bounds) or _without_plan(bound, row)
        better = better_batch(bound, row, space, bounds, choice.seconds) if len(bound.asked.rows) == 1 else None
        return choice._replace(better_batch=better)
    allowed = batch_range(bound, row)
    batches = allowed.to_try(row.gpus or 1.0, row.micro_batch_size or 1.0)
    found: dict[float, Choice] = {}

    def rate(batch: float, least: float) -> float:
        choice = search_row(bound, row._replace(global_batch_size=batch), space, bounds, batch / least if least else np.inf)
        if choice is None:
            return 0.0
        found[batch] = choice
        return 0.0 if choice.tier else batch / choice.seconds

    batch = pick_batch(batches, rate)
    if not found:  # no number of ranks divides such a batch: the least batch above that does
        batch = defaults.batch_of_ranks((row.gpus or 1.0) * (row.micro_batch_size or 1.0), allowed.usual)
        rate(batch, 0.0)
    elif batch not in found or found[batch].tier:
        batch = min(found, key=lambda one: (found[one].tier, batches.index(one)))
    return found.get(batch) or _without_plan(bound, row._replace(global_batch_size=batch))


def better_batch(bound: Bound, row: Row, space: Space, bounds: dict[Any, Bound], seconds: float) -> tuple[float, float] | None:
    """A batch near the given one with a plan that gives much more tokens per second, and how many times; None where there is none.

    Only a batch that shares few divisors with the number of accelerators is worth the search.
    """
    given, gpus = row.global_batch_size or 0.0, row.gpus or 1.0
    low, high = (1.0 - defaults.NEAR_BATCH) * given, (1.0 + defaults.NEAR_BATCH) * given
    near = defaults.batches(gpus, given, low, high, row.micro_batch_size or 1.0) if given >= defaults.FEW_SEQUENCES else []
    shared = gcd(int(given), int(gpus))
    best: tuple[float, float] | None = None
    for batch in near:
        if gcd(int(batch), int(gpus)) < defaults.MUCH_SHARED * shared:
            continue
        least = best[1] if best else 1.0 / (1.0 - defaults.BATCH_COST)
        choice = search_row(bound, row._replace(global_batch_size=batch), space, bounds, seconds / least * batch / given)
        if choice is not None and seconds > 0.0:
            best = batch, seconds / choice.seconds * batch / given
    return best


def _sequences_at_once(job: Job, row: Row) -> float:
    """Sequences that all data-parallel ranks of a closed row start together; with chunks, for a whole group of micro-batches."""
    ranks = (row.gpus or 1.0) / ((row.tp or 1.0) * (row.pp or 1.0) * (row.cp or 1.0))
    group = 1.0 if row.vpp in (None, 1.0) or job.microbatch_group else row.pp or 1.0
    return max(ranks * (row.micro_batch_size or 1.0) * group, 1.0)


def _without_plan(bound: Bound, row: Row) -> Choice:
    """A row for which no plan is legal, closed by rule: the rules say which of them the given axes break."""
    job, filled = bound.job(framework_of(bound, row)), with_implied(row, bound.asked.schedule)
    return Choice(close_by_rule(job, filled), _open_axes(bound, row, LAYOUT_AXES), {})


def place_choice(row: Row, choice: Choice, bounds: dict[Any, Bound]) -> Placed:
    """The plan that was chosen for one row; ``bounds`` has the question bound for its variant."""
    own = bounds[tuple(choice.variant.items())]
    own = own.replace(asked=own.asked.replace(rows=(row,)))
    return _place(own, framework_of(own, row), bool(choice.row.offload) and not row.offload, [0], {row: choice})


def search_row(bound: Bound, row: Row, space: Space, bounds: dict[Any, Bound], limit: float = np.inf) -> Choice | None:
    """The best plan of a row with a batch (``best.best_plan``); None where no plan is legal, or none is within ``limit`` seconds."""
    whole, (variants, tasks, space) = space, tasks_of_row(bound, row, space, bounds)
    best = best_plan(tasks, limit)
    if not bound.asked.framework and np.isinf(limit) and (best is None or best.tier == UNFIT):  # nothing else fits: what few run
        variants, tasks, space = tasks_of_row(bound, row, whole, bounds, seldom=True)
        best = best_plan(tasks, limit)
    if best is None:
        return None
    values = {name: column[0] for name, column in best.plan.columns.items()}
    searched = (*LAYOUT_AXES, *(axis for axis in OPEN_AXES if any(map(space.varies, columns_of(axis)))))
    chosen = _open_axes(bound, row, searched)
    return Choice(row_of(row, values), chosen, variants[best.task], best.tier, float(best.plan.seconds[0]))


def tasks_of_row(
    bound: Bound, row: Row, space: Space, bounds: dict[Any, Bound], seldom: bool = False
) -> tuple[list[dict[str, Any]], list[Task], Space]:
    """The tasks of a row with a batch, the options of the job of each, and the space without what the framework does not have."""
    given = given_axes(bound.asked, row)
    job = bound.job(framework_of(bound, row))
    space = offered(given_space(space.narrowed(given), bound, job, row.gpus or 1.0), bound, job.framework, seldom)
    sizes = {"gpus": row.gpus or 1.0, "global_batch_size": row.global_batch_size or 1.0, "seq_len": row.seq_len or 1.0}
    variants = variants_of(space, sizes["seq_len"], given)
    tasks: list[Task] = []
    for variant in variants:
        own = _variant_of(bound, variant, bounds)
        usable = usable_space(space, own, sizes["gpus"], sizes["seq_len"])
        tasks.append(task_of(usable, own, own.job(framework_of(own, row)), sizes, tasks))
    return variants, tasks, space


def _open_axes(bound: Bound, row: Row, axes: Collection[str]) -> tuple[str, ...]:
    """Of some axes those that a row does not give; a dense model has no experts to place."""
    return tuple(n for n in OPEN_AXES if n in axes and getattr(row, n) is None and (n not in ("ep", "etp") or bound.model.num_experts))


def _variant_of(bound: Bound, variant: dict[str, Any], bounds: dict[Any, Bound]) -> Bound:
    """The question bound for a variant of its job; bound once."""
    key = tuple(variant.items())
    if key not in bounds:
        bounds[key] = bind_variant(bound, variant)
    return bounds[key]


def bind_variant(bound: Bound, options: dict[str, Any]) -> Bound:
    """The question bound with other options, which the user did not give."""
    return with_batch(bind_question(bound.asked.replace(**options), bound.folders, bound.money is not None))
