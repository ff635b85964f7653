"""One layer's times for every combination of the axes that it reads: most mesh rows share a combination with others.

A layer's kernels and its collectives within tensor, context and expert groups read few axes, so the laws time each combination once.
What a layer does not read is as it likes it best: a batch without end, one chunk, nothing offloaded. So a search with many batches
meets the same combinations again: its tasks share the times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.documents.columns import computed
from ironlaw.estimate.fabric.placement import Placement, placement
from ironlaw.estimate.layer.dispatchers import dispatcher_of
from ironlaw.estimate.layer.kinds import Kind, kinds
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.pipeline.stages import stages
from ironlaw.estimate.planner.grid import Choices, Task
from ironlaw.estimate.planner.mesh import COLUMNS, plan_of
from ironlaw.estimate.planner.space import CHOICES
from ironlaw.estimate.step.step import LayerTimes, embedding_term, head_term, layer_times
from ironlaw.frozen import same_but
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold

LAYER_AXES = ("gpus", "tp", "cp", "ep", "etp", "micro_batch_size")  # of a mesh row: what a layer reads beside its placement
LAYER_CHOICES = ("sp", "overlap_tp", "overlap_ep")  # of the choices, beside recomputation and ZeRO
ENDLESS = 1e15  # sequences of a batch: all but none of the micro-batches of a layer have another one beside them
_MOST_WHOLE, _MOST_CODE = 1 << 24, 1 << 62


def time_layers(job: Job, task: Task, layers: Plan) -> tuple[dict[Kind, LayerTimes], Any, Any]:
    """The times of one layer of every kind, of the embedding and of an output layer, for some combinations."""
    shapes, first_stage = Shapes.of(job, layers), stages(job, layers)[0]
    times = {kind: layer_times(job, task.cluster, layers, shapes, kind, first_stage) for kind in kinds(job.model)}
    embedding, head = (summed(term(job, task.cluster, layers, shapes).parts) for term in (embedding_term, head_term))
    return times, embedding, head


class Seconds(NamedTuple):
    """What one layer of every kind, the embedding and one output layer take, by choice and combination of what a layer reads [s].

    Of sharded layers the least over all choices that no bound has values for, and what a layer takes beside each of its passes.
    """

    layers: dict[Kind, Any]
    embedding: Any
    head: Any
    beside_forward: dict[Kind, Any]
    beside_backward: dict[Kind, Any]


class LayerTables:
    """The times of single layers that the tasks of a search share, by combination: computed when one of them first asks."""

    def __init__(self) -> None:
        self._tables: list[tuple[Job, Cluster, Any, Table]] = []

    def of(self, task: Task, read: Any) -> Table:
        """The table of a task's job and cluster; ``read`` are the choices that its layers read."""
        key = (task.seq_len, read)
        for job, cluster, known, table in self._tables:
            if known == key and same_but(cluster, task.cluster) and jobs_alike(job, task.job):
                return table
        self._tables.append((task.job, task.cluster, key, Table()))
        return self._tables[-1][-1]


class Table:
    """Columns of values by combination."""

    def __init__(self) -> None:
        self._place: dict[bytes, int] = {}
        self._values: Any = None

    def of(self, combinations: Any, compute: Callable[[Any], Any]) -> Any:
        """The values of some combinations, one a row; ``compute`` returns those of the rows that are not known, in the last axis."""
        keys = [row.tobytes() for row in combinations]
        new = np.array([at for at, key in enumerate(keys) if key not in self._place], dtype=np.int64)
        if new.size:
            found = compute(new)
            self._place |= {keys[at]: len(self._place) + number for number, at in enumerate(new.tolist())}
            self._values = found if self._values is None else np.concatenate([self._values, found], axis=-1)
        return self._values[..., [self._place[key] for key in keys]]


def time_rows(task: Task, plan: Plan, placed: Placement, choices: Choices, sharded: bool) -> tuple[Seconds, Any]:
    """The times of layers for every combination of what a layer of some rows reads, and the number of the combination of every row."""
    read = [getattr(plan, axis) for axis in LAYER_AXES] + [plan.pp > 1.0]  # DualPipe hides nothing without a pipeline
    read += [placed.share, placed.unit, placed.block, placed.least]
    read += [plan.dp_shard] if sharded else []
    first, which = distinct_rows(read)
    columns = {name: np.broadcast_to(getattr(plan, name), (plan.rows,))[first] for name in COLUMNS} | {"vpp": np.ones(first.size)}

    def times_of(some: Any) -> Any:
        """The times of some of the combinations, as one array."""
        layers = plan_of_layers(task, {name: column[some] for name, column in columns.items()}, choices, sharded)
        return _listed(task, layers, sharded)

    every = kinds(task.job.model)
    if task.tables is None or task.job.documents is not None:
        return _named(every, times_of(np.arange(first.size))), which
    varied = [choices.of(name) for name in _varied(sharded)]
    combinations = np.stack([np.asarray(column, dtype=np.float64)[first] for column in read], axis=1)
    return _named(every, task.tables.of(task, (varied, sharded)).of(combinations, times_of)), which


def _listed(task: Task, layers: Plan, sharded: bool) -> Any:
    """The columns of ``Seconds`` one after the other, each with an axis for every choice."""
    job, layers = computed(task.job, layers)  # mean sequences: waiting for the slowest only adds to them
    window = task.cluster.systems.gradient_window.value
    with np.errstate(all="ignore"):
        times, *ends = time_layers(job, task, layers)
        whole = [summed(layer.terms) for layer in times.values()]
        found = [*whole, *ends]
        for way in ("forward", "backward") if sharded else ():
            passes = (getattr(layer, way) + layer.waits.either + getattr(layer.waits, way) for layer in times.values())
            found += [one - window * seconds for one, seconds in zip(whole, passes, strict=True)]
    shape = np.broadcast_shapes(*(np.shape(getattr(layers, name)) for name in ("recompute_layers", "zero", *LAYER_CHOICES, "tp")))
    columns = [np.broadcast_to(column, shape) for column in found]
    return np.stack([least_of_choices(column) for column in columns] if sharded else columns)


def _named(every: Sequence[Kind], values: Any) -> Seconds:
    """The columns of ``_listed`` by name."""
    number = len(every)
    layers, forward, backward = (dict(zip(every, values[at:], strict=False)) for at in (0, number + 2, 2 * number + 2))
    return Seconds(layers, values[number], values[number + 1], forward, backward)


def least_of_choices(value: Any) -> Any:
    """The least of a column over all choices but those in BOUNDED: (recomputation, ZeRO, offloading, combinations)."""
    return value.reshape(*value.shape[:2], -1, value.shape[-1]).min(axis=2, keepdims=True)


def jobs_alike(one: Job, other: Job) -> bool:
    """True for jobs that differ in dispatchers that send alike, if at all."""
    return same_but(one, other, "moe_dispatcher") and dispatcher_of(one).sends_once == dispatcher_of(other).sends_once


def _varied(sharded: bool) -> tuple[str, ...]:
    """The choices that layers read."""
    return ("recompute", *LAYER_CHOICES, *(["zero"] if sharded else []))


def plan_of_layers(task: Task, columns: dict[str, Any], choices: Choices, sharded: bool) -> Plan:
    """Rows as plans of their layers alone: a choice that no layer reads is off."""
    favourable = choices.only({name: (0.0,) for name in CHOICES if name not in _varied(sharded)})
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
