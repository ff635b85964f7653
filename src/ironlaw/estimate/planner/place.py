"""The plans of all rows of a question, as columns: rows that share a job stand together."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.bind.question import Bound, framework_of
from ironlaw.estimate.planner.best import UNFIT
from ironlaw.estimate.planner.choose import Bounds, Choice, Faster, bind_variant, choose
from ironlaw.estimate.planner.remedies import NONE, Remedies, remedies_of
from ironlaw.estimate.planner.rows import plan_of_rows
from ironlaw.estimate.planner.space import read_space
from ironlaw.frozen import Frozen
from ironlaw.plan import Plan
from ironlaw.question.fields import Row


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
    remedies: tuple[Remedies, ...]  # batches and numbers of accelerators that are much faster
    faster: tuple[Faster | None, ...]  # the fastest plan, where another was preferred for its evidence


def place(bound: Bound) -> list[Placed]:
    """A plan for every row: the given one, else the best of the space (``best.best_plan``); rows that are alike are searched once."""
    space = read_space(bound.asked.space)
    bounds = Bounds(bound)
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
    alone = {row: remedies_of(bound, row, space, bounds, choice) for row, choice in choices.items() if len(bound.asked.rows) == 1}
    return [_place(bounds[variant], name, unasked, index, choices, alone) for (name, variant, unasked), index in shared.items()]


def _place(
    bound: Bound, framework: str, bind_again: bool, index: list[int], choices: dict[Row, Choice], remedies: dict[Row, Remedies]
) -> Placed:
    """The rows at ``index``, which share a job, with their plans."""
    asked = [bound.asked.rows[i] for i in index]
    listed = [choices[row] for row in asked]
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
        tuple(remedies.get(row, NONE) for row in asked),
        tuple(choice.faster for choice in listed),
    )


def place_choice(row: Row, choice: Choice, bounds: Bounds) -> Placed:
    """The plan that was chosen for one row; ``bounds`` has the question bound for its variant."""
    own = bounds[tuple(choice.variant.items())]
    own = own.replace(asked=own.asked.replace(rows=(row,)))
    return _place(own, framework_of(own, row), bool(choice.row.offload) and not row.offload, [0], {row: choice}, {})
