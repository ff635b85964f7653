"""One layer's times for every combination of the axes that it reads: most mesh rows share a combination with others.

A layer's kernels and its collectives within tensor, context and expert groups read few axes, so the laws time each combination once.
What a layer does not read is as it likes it best: a batch without end, one chunk, nothing offloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ironlaw.estimate.fabric.placement import Placement, placement
from ironlaw.estimate.layer.kinds import Kind, kinds
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.pipeline.stages import stages
from ironlaw.estimate.planner.grid import Choices, Task
from ironlaw.estimate.planner.mesh import COLUMNS, plan_of
from ironlaw.estimate.planner.space import CHOICES
from ironlaw.estimate.step.step import LayerTimes, embedding_term, head_term, layer_times
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold

LAYER_AXES = ("gpus", "tp", "cp", "ep", "etp", "micro_batch_size")  # of a mesh row: what a layer reads beside its placement
LAYER_CHOICES = ("sp", "overlap_tp", "overlap_ep")  # of the choices, beside recomputation and ZeRO
ENDLESS = 1e15  # sequences of a batch: all but none of the micro-batches of a layer have another one beside them
_MOST_WHOLE, _MOST_CODE = 1 << 24, 1 << 62


def time_layers(job: Job, task: Task, layers: Plan) -> tuple[dict[Kind, LayerTimes], Any, Any]:
    """The times of one layer of every kind, of the embedding and of an output layer, for the combinations of ``distinct_layers``."""
    shapes, first_stage = Shapes.of(job, layers), stages(job, layers)[0]
    times = {kind: layer_times(job, task.cluster, layers, shapes, kind, first_stage) for kind in kinds(job.model)}
    embedding, head = (summed(term(job, task.cluster, layers, shapes).parts) for term in (embedding_term, head_term))
    return times, embedding, head


def distinct_layers(task: Task, plan: Plan, placed: Placement, choices: Choices, sharded: bool) -> tuple[Plan, Any]:
    """A row for every combination of what a layer reads, as a plan, and the number of the combination of every row."""
    read = [getattr(plan, axis) for axis in LAYER_AXES] + [plan.pp > 1.0]  # DualPipe hides nothing without a pipeline
    read += [placed.share, placed.unit, placed.block, placed.least]
    read += [plan.dp_shard] if sharded else []
    first, which = distinct_rows(read)
    columns = {name: np.broadcast_to(getattr(plan, name), (plan.rows,))[first] for name in COLUMNS} | {"vpp": np.ones(first.size)}
    return plan_of_layers(task, columns, choices, sharded), which


def plan_of_layers(task: Task, columns: dict[str, Any], choices: Choices, sharded: bool) -> Plan:
    """Rows as plans of their layers alone: a choice that no layer reads is off."""
    varied = ("recompute", *LAYER_CHOICES, *(["zero"] if sharded else []))
    favourable = choices.only({name: (0.0,) for name in CHOICES if name not in varied})
    return plan_of(columns, ENDLESS, task.seq_len, **favourable.columns())


def placement_of_rows(task: Task, columns: dict[str, Any]) -> Placement:
    """The placement of rows; those whose groups span as many ranks are placed once."""
    first, which = distinct_rows([columns[name] for name in ("gpus", "tp", "cp", "pp", "ep", "etp", "dp_shard")])
    some = {name: column[first] for name, column in columns.items()}
    placed = placement(task.cluster, plan_of(some, task.global_batch_size, task.seq_len))
    return Placement(*(np.broadcast_to(column, first.shape)[which] for column in placed))


def summed(terms: Sequence[Term]) -> Any:
    """The sum of terms but for the addition of gradients, which ZeRO may shard."""
    return fold([term for term in terms if term.name != "gradient accumulation"])


def distinct_rows(columns: Sequence[Any]) -> tuple[Any, Any]:
    """The first row of every combination of the values of some columns, and the number of the combination of every row.

    >>> first, which = distinct_rows([np.array([4.0, 1.0, 4.0]), np.array([2.0, 2.0, 2.0])])
    >>> first[which].tolist()
    [0, 1, 0]
    """
    code, size = np.zeros(columns[0].size, dtype=np.int64), 1
    for column in columns:
        numbers, most = _numbered(column)
        if size * most > _MOST_CODE:
            code = np.unique(code, return_inverse=True)[1]
            size = int(code.max()) + 1
        code, size = code * most + numbers, size * most
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return first, which


def _numbered(column: Any) -> tuple[Any, int]:
    """A column as whole numbers from 0 on, alike where its values are, and how many they may be."""
    least, most = float(column.min()), float(column.max())
    whole = column.astype(np.int64)
    if least == most:
        return 0, 1
    if most - least < _MOST_WHOLE and np.array_equal(whole, column):
        return whole - int(least), int(most - least) + 1
    values, numbers = np.unique(column, return_inverse=True)
    return numbers, int(values.size)
