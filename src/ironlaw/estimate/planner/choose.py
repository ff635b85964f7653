"""The plan of every row of a question: as given, or the best plan of the space that the row leaves open."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from ironlaw.estimate.bind.question import Bound, bind_question, framework_of, with_batch
from ironlaw.estimate.planner.best import best_plan
from ironlaw.estimate.planner.rows import (
    LAYOUT_AXES,
    OPEN_AXES,
    close_by_rule,
    columns_of,
    given_axes,
    is_given,
    plan_of_rows,
    row_of,
    with_implied,
)
from ironlaw.estimate.planner.space import Space, read_space
from ironlaw.estimate.planner.tasks import offered, task_of, usable_space, variants_of
from ironlaw.frozen import Frozen
from ironlaw.plan import Plan
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


class Choice(NamedTuple):
    """A row with a plan: as given or chosen."""

    row: Row
    chosen: tuple[str, ...]
    variant: dict[str, Any]
    tight: bool = False


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
        tuple(choice.tight for choice in listed),
    )


def choose(bound: Bound, row: Row, space: Space, bounds: dict[Any, Bound]) -> Choice:
    """The plan of one row. ``bounds`` keeps the question bound for each variant of the job, for other rows."""
    job, given = bound.job(framework_of(bound, row)), given_axes(bound.asked, row)
    filled = with_implied(row, bound.asked.schedule)
    if is_given(filled, bound.model):
        return Choice(close_by_rule(job, filled), _open_axes(bound, row, LAYOUT_AXES), {})
    space = offered(space.narrowed(given), bound, job.framework)
    sizes = {"gpus": row.gpus or 1.0, "global_batch_size": row.global_batch_size or 1.0, "seq_len": row.seq_len or 1.0}
    variants = variants_of(space, sizes["seq_len"], given)
    tasks = []
    for variant in variants:
        own = _variant_of(bound, variant, bounds)
        usable = usable_space(space, own, sizes["gpus"], sizes["seq_len"])
        tasks.append(task_of(usable, own, own.job(framework_of(own, row)), sizes))
    best = best_plan(tasks)
    if best is None:  # no plan is legal: the rules say which the given axes break
        return Choice(close_by_rule(job, filled), _open_axes(bound, row, LAYOUT_AXES), {})
    values = {name: column[0] for name, column in best.plan.columns.items()}
    searched = (*LAYOUT_AXES, *(axis for axis in OPEN_AXES if any(map(space.varies, columns_of(axis)))))
    return Choice(row_of(row, values), _open_axes(bound, row, searched), variants[best.task], best.tight)


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
