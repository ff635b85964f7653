"""What an optimizer keeps for the parameters of a rank: states like the weights, and states with the shape of a matrix's sides.

The shapes of states are rows of one table. Where ranks split a matrix (tensor or expert parallelism) each treats its part as a matrix
of its own, as Megatron Core does by default (``muon-tp-mode blockwise``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ironlaw.catalog.optimizer import Optimizer
from ironlaw.estimate.layer.matrices import Matrix, classes, stage_matrices, table_matrices
from ironlaw.estimate.pipeline.stages import Pace, Stage
from ironlaw.job import Job
from ironlaw.law import states
from ironlaw.plan import Plan


class Shape(NamedTuple):
    """A shape of a state: its elements for a matrix, and for each parameter of a vector; what it is called."""

    label: str
    elements: Callable[[Optimizer, Any, Any, float], Any]
    of_vector: float


def smaller_side(rows: Any, columns: Any) -> Any:
    """The smaller side m of a matrix."""
    return np.minimum(rows, columns)


def rank_of(rule: Optimizer, rows: Any, columns: Any, asked: float) -> Any:
    """The rank of a matrix's projected gradient: as asked, or the record's share of the smaller side; no more than that side."""
    share = 0.0 if rule.rank is None else rule.rank.value
    small = smaller_side(rows, columns)
    return np.minimum(asked, small) if asked else share * small


def squares(rule: Optimizer, rows: Any, columns: Any) -> Any:
    """Elements of the square factors of a matrix: of all its blocks; none for a side longer than the longest that has one."""
    block = np.inf if rule.block is None else rule.block.value
    longest = np.inf if rule.largest_side is None else rule.largest_side.value
    if np.isfinite(longest):
        return np.where(rows <= longest, rows**2, 0.0) + np.where(columns <= longest, columns**2, 0.0)
    return states.block_sides(rows, columns, block)


SHAPES = {
    "parameter": Shape("", lambda _rule, rows, columns, _rank: rows * columns, 1.0),
    "sides": Shape("sums of rows and columns", lambda _rule, rows, columns, _rank: rows + columns, 1.0),
    "rows": Shape("one for each row", lambda _rule, rows, _columns, _rank: rows + 0.0, 0.0),
    "squares": Shape("square factors", lambda rule, rows, columns, _rank: squares(rule, rows, columns), 0.0),
    "projector": Shape(
        "projectors", lambda rule, rows, columns, rank: smaller_side(rows, columns) * rank_of(rule, rows, columns, rank), 0.0
    ),
    "projected": Shape("projected", lambda rule, rows, columns, rank: np.maximum(rows, columns) * rank_of(rule, rows, columns, rank), 0.0),
}


class Kept(NamedTuple):
    """A state of one class of parameters on one rank before ZeRO shards it: elements outside experts and in them, bytes of one."""

    name: str
    common: Any
    routed: Any
    size: float


def kept_on_rank(job: Job, plan: Plan, stage: Stage) -> list[Kept]:
    """The states of a stage's parameters on one rank, by class and by shape, of a job whose parameters are not updated alike."""
    listed = []
    for part, counts in classes(job, stage).items():
        rule = job.optimizer.of(part)
        entire = np.minimum(counts.entire, counts.common)
        common = (counts.common - entire) / plan.tp + entire
        routed = counts.routed / plan.expert_ways
        listed.append(Kept(part, common, routed, rule.state_bytes))
        for state in rule.states.values():
            if state.shape != "parameter":
                row = SHAPES[state.shape]
                shaped = _shaped(job, plan, stage, part, rule, row)
                if part == "vectors":
                    shaped = row.of_vector * common, row.of_vector * routed
                listed.append(Kept(f"{part}, {row.label}", *shaped, state.bytes.value))
    return listed


def _shaped(job: Job, plan: Plan, stage: Stage, part: str, rule: Optimizer, row: Shape) -> tuple[Any, Any]:
    """Elements of a state of a shape on one rank: outside experts, and in them."""
    common: Any = 0.0 * stage.layers
    routed: Any = 0.0 * stage.layers
    for layers, matrix in matrices_of(job, stage, part):
        count, rows, columns = matrix.on_rank(plan)
        elements = layers * count * row.elements(rule, rows, columns, job.optimizer.rank)
        common, routed = (common, routed + elements) if matrix.routed else (common + elements, routed)
    return common, routed


def matrices_of(job: Job, stage: Stage, part: str) -> list[tuple[Any, Matrix]]:
    """The matrices of a class; adapters are updated as parameters alone."""
    if job.lora_rank or part == "vectors":
        return []
    return stage_matrices(job, stage) if part == "matrices" else table_matrices(job, stage)


def largest_matrices(job: Job, plan: Plan, stage: Stage) -> tuple[Any, Any]:
    """Parameters of the largest matrix of a rank that cannot be shared: outside experts and in them; 0 where parts can be."""
    return _largest(job, plan, stage, lambda _part, rows, columns: rows * columns)


def largest_states(job: Job, plan: Plan, stage: Stage) -> tuple[Any, Any]:
    """Bytes of the states of the matrix that has most, where a rank has whole matrices: outside experts and in them; else 0."""

    def size(part: str, rows: Any, columns: Any) -> Any:
        rule, held = job.optimizer.of(part), 0.0 * rows
        for state in rule.states.values():
            held = held + state.bytes.value * SHAPES[state.shape].elements(rule, rows, columns, job.optimizer.rank)
        return held

    return _largest(job, plan, stage, size)


def _largest(job: Job, plan: Plan, stage: Stage, size: Callable[[str, Any, Any], Any]) -> tuple[Any, Any]:
    """The largest ``size(class, rows, columns)`` of a rank's matrices, where ZeRO gives whole matrices to ranks."""
    common: Any = 0.0 * stage.layers
    routed: Any = 0.0 * stage.layers
    if job.optimizer.matrices.shards != "matrices":
        return common, routed
    for part in ("matrices", "tables"):
        for layers, matrix in matrices_of(job, stage, part):
            _, rows, columns = matrix.on_rank(plan)
            one = np.where(layers > 0, size(part, rows, columns), 0.0)
            common, routed = (common, np.maximum(routed, one)) if matrix.routed else (np.maximum(common, one), routed)
    return common, routed


def mean_of(job: Job, stage: Stage, of: Callable[[Optimizer], float]) -> Any:
    """A number of the optimizer for each parameter, averaged over the parameters of a stage."""
    rules = job.optimizer
    if len(rules.records) == 1:
        return of(rules.matrices)
    every: Any = 0.0
    weighted: Any = 0.0
    for part, counts in classes(job, stage).items():
        count = counts.common + counts.routed
        every, weighted = every + count, weighted + count * of(rules.of(part))
    return weighted / np.maximum(every, 1.0)


def mean_at(job: Job, pace: Pace, of: Callable[[Optimizer], float]) -> Any:
    """The same on the stage that sets the pace; one number where all classes are updated alike."""
    if len(job.optimizer.records) == 1:
        return of(job.optimizer.matrices)
    return pace.of(lambda stage: mean_of(job, stage, of))


def traffic_of_update(job: Job, pace: Pace) -> Any:
    """Bytes that the update of a parameter reads and writes, averaged over the parameters of the stage that sets the pace."""
    return mean_at(job, pace, lambda rule: rule.traffic.value)
