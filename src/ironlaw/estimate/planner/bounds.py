"""A step time that no plan of a mesh row beats, from the terms that every choice pays.

A step is at least its micro-batches on the slowest stage and the time in which that stage waits for the others. A layer's kernels and
its collectives within tensor, context and expert groups read few axes, so the laws time each combination of those axes once, with the
most favourable value of every choice. What else a plan may add (sharded states, hand-overs, gradients, the optimizer, offloading) is
left out, and so is the addition of gradients, which ZeRO may shard. Every law that is left in grows with the times it is given, so the
bound holds for every plan of the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.layer.trained import stage_trained
from ironlaw.estimate.network.sharding import gradient_reduction, stage_weights, weight_gather
from ironlaw.estimate.pipeline.schedules import MicroBatch, schedule_of
from ironlaw.estimate.pipeline.stages import Stage, slowest, stages
from ironlaw.estimate.placement import placement
from ironlaw.estimate.planner.grid import Choices, Task
from ironlaw.estimate.planner.mesh import COLUMNS, plan_of
from ironlaw.estimate.planner.space import CHOICES
from ironlaw.estimate.step import embedding_term, head_term, layer_times, through_pipeline, through_stages, whole_step
from ironlaw.estimate.wires import domains_taken
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold

LAYER_AXES = ("gpus", "tp", "cp", "ep", "etp", "micro_batch_size")  # of a mesh row: what a layer reads beside its placement
LAYER_CHOICES = ("sp", "overlap_tp", "overlap_ep")  # of the choices, beside recomputation and ZeRO
ENDLESS = 1e15  # sequences of a batch: all but none of the micro-batches of a layer have another one beside them


def step_at_least(task: Task, rows: Any, choices: Choices, sharded: bool) -> Any:
    """Seconds that no plan of some rows beats, by value of recomputation, value of ZeRO and row.

    If ``sharded``, with the collectives of sharded weights and gradients in the layers, which takes longer to compute; without
    them the bound has one value for all values of ZeRO.
    """
    job, columns = task.job, {name: column[rows] for name, column in task.mesh.columns.items()}
    plan = plan_of(columns, task.global_batch_size, task.seq_len)
    layers, which = _distinct_layers(task, plan, choices, sharded)
    with np.errstate(all="ignore"):
        shapes, first = Shapes.of(job, layers), stages(job, layers)[0]
        times = {kind: layer_times(job, task.cluster, layers, shapes, kind, first) for kind in kinds(job.model)}
        one_layer = {kind: _least(layer.terms, layers)[..., which] for kind, layer in times.items()}
        ends = (_least(term(job, task.cluster, layers, shapes).parts, layers)[..., which] for term in (embedding_term, head_term))
        classes = stages(job, plan)
        through = through_stages(job, classes, one_layer, *ends)
        slow = slowest(classes, through).pick([time for stage, time in zip(classes, through, strict=True) if not stage.shadowed])
        pipeline = through_pipeline(classes, through)
        # what fills a bubble (weight gradients, waiting) is not known here: as much as there is leaves only that of plain schedules
        bubble = schedule_of(job).bubble(plan, MicroBatch(pipeline, np.minimum(slow, pipeline), *4 * (pipeline,)))
        parts = [Term("micro-batches", slow * plan.num_microbatches, "s"), bubble]
        if sharded:
            parts.append(Term("gradients and weights", _once_a_step(task, plan, choices, classes, slow), "s"))
        least = whole_step(task.cluster, domains_taken(task.cluster, plan), parts).value
        return np.where(np.isnan(least), 0.0, least)  # outside a law's domain nothing is excluded


def _once_a_step(task: Task, plan: Plan, choices: Choices, classes: list[Stage], slow: Any) -> Any:
    """What shows of reducing gradients and gathering weights on the stage that sends least, each behind a whole micro-batch.

    With one micro-batch they may be behind the same one, and the longer of the two is counted.
    """
    stages_of_zero = np.array(choices.values[CHOICES.index("zero")]).reshape(-1, 1)
    plan = plan.replace(zero=stages_of_zero)
    reduced: Any = np.inf
    gathered: Any = np.inf
    for stage in classes:
        reduction = gradient_reduction(task.job, task.cluster, plan, *stage_trained(task.job, stage))
        gather = weight_gather(task.job, task.cluster, plan, *stage_weights(task.job, stage))
        reduced = np.where(stage.count > 0, np.minimum(reduced, reduction), reduced)
        gathered = np.where(stage.count > 0, np.minimum(gathered, gather), gathered)
    both = np.maximum(reduced - slow, 0.0) + np.maximum(gathered - slow, 0.0)
    return np.where(plan.num_microbatches > 1.0, both, np.maximum(np.maximum(reduced, gathered) - slow, 0.0))


def _distinct_layers(task: Task, plan: Plan, choices: Choices, sharded: bool) -> tuple[Plan, Any]:
    """A row for every combination of what a layer reads, as a plan, and the number of the combination of every row.

    The rest is as a layer likes it: a batch without end, so that with overlap ep there is always another micro-batch, one chunk, and
    nothing offloaded.
    """
    read = [getattr(plan, axis) for axis in LAYER_AXES] + [plan.pp > 1.0]  # DualPipe hides nothing without a pipeline
    read += [column for name, column in placement(task.cluster, plan)._asdict().items() if name in ("share", "unit", "block")]
    read += [plan.dp_shard] if sharded else []
    code: Any = 0.0
    for column in read:
        values, number = np.unique(column, return_inverse=True)
        code = code * float(values.size) + number
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    columns = {name: np.broadcast_to(getattr(plan, name), (plan.rows,))[first] for name in COLUMNS} | {"vpp": np.ones(first.size)}
    varied = ("recompute", *LAYER_CHOICES, *(["zero"] if sharded else []))
    favourable = Choices(
        tuple(values if name in varied else (0.0,) for name, values in zip(CHOICES, choices.values, strict=True)), choices.selective
    )
    return plan_of(columns, ENDLESS, task.seq_len, **favourable.columns()), which


def _least(terms: Any, layers: Plan) -> Any:
    """The least of a sum of terms over all choices but recomputation and ZeRO, without the addition of gradients."""
    return _spread(fold([term for term in terms if term.name != "gradient accumulation"]), layers).min(axis=2)


def _spread(value: Any, layers: Plan) -> Any:
    """A column as (values of recomputation, of ZeRO, all other choices, combinations)."""
    shape = np.broadcast_shapes(*(np.shape(getattr(layers, name)) for name in ("recompute_layers", "zero", *LAYER_CHOICES, "tp")))
    return np.broadcast_to(value, shape).reshape(*shape[:2], -1, shape[-1])
