"""Mesh rows times choices, evaluated by ``memory`` and ``step`` with the choices on leading axes and the rows last.

Broadcasting factors the work: every term of a step has the shape of the axes it reads, and only their sum has the shape of
all axes. A *kind* is a set of rows for which the same choices have an effect. A choice without effect in a row is masked there, so
that every cell that counts is a different legal plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate import rules
from ironlaw.estimate.candidates import recompute_columns
from ironlaw.estimate.memory.total import memory
from ironlaw.estimate.step import step_parts, whole_step
from ironlaw.estimate.wires import domain_ranks
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.search.mesh import Mesh, plan_of
from ironlaw.search.space import CHOICES, ENDS, Space
from ironlaw.terms import Term

_RECOMPUTE = ("recompute_layers", "recompute_attention", "recompute_linear", "recompute_elementwise")
BARRED = 1e200  # seconds of a cell that is no plan: infinity would turn into nan where a law multiplies it by 0
CELLS = 65536  # of one sum: what stays in a core's cache
ROWS = 2048  # of one call of the laws
FEW = 384  # rows below which a kind joins the mixed kind: one call of the laws costs as much as this many rows


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """One job on one cluster, whose plans a search ranks by step time: accelerators, batch and sequence are given."""

    job: Job
    cluster: Cluster
    mesh: Mesh
    space: Space
    global_batch_size: float
    seq_len: float


@dataclass(frozen=True, eq=False, repr=False)
class Choices:
    """The values to try of each choice in a kind, in the order of CHOICES."""

    values: tuple[tuple[Any, ...], ...]
    selective: tuple[str, ...]  # what the framework recomputes by --recompute selective

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each has."""
        return tuple(len(v) for v in self.values)

    def columns(self) -> dict[str, Any]:
        """The choices as columns, each on a leading axis of its own."""
        made: dict[str, Any] = {}
        for axis, (name, values) in enumerate(zip(CHOICES, self.values, strict=True)):
            shape = [1] * (len(CHOICES) + 1)
            shape[axis] = len(values)
            if name == "recompute":
                fractions = np.array([recompute_columns(how, self.selective) for how in values])
                made |= {column: fractions[:, i].reshape(shape) for i, column in enumerate(_RECOMPUTE)}
            else:
                made[name] = np.array(values, dtype=np.float64).reshape(shape)
        return made


def distinct(task: Task, plan: Plan, choices: Choices) -> list[Any]:
    """One mask for each choice: true where the choice has an effect, or where it has its lowest value.

    A choice with one value is never masked.
    """
    job = task.job
    sharded = plan.dp_shard * plan.cp > 1.0
    reduced = plan.dp * plan.cp > 1.0
    replicated = plan.dp_replicate > 1.0
    if job.model.num_experts:
        sharded = sharded | (plan.tp * plan.cp * plan.dp_shard / plan.expert_ways > 1.0)
        reduced = reduced | (plan.expert_ranks > 1.0)
        replicated = replicated | (plan.expert_ways > plan.tp * plan.cp * plan.dp_shard) | (plan.dp_replicate > 1.0)
    has_effect = {
        "zero": sharded,
        "sp": plan.tp > 1.0,
        "overlap_tp": (plan.tp > 1.0) & (plan.sp > 0.0) & (plan.tp <= domain_ranks(task.cluster, plan)),
        "overlap_grad_reduce": np.where(plan.zero >= 2.0, replicated, reduced),
        "overlap_param_gather": ((plan.zero == 1.0) | (plan.zero == 2.0)) & sharded,
        "overlap_pp": (plan.pp > 1.0) & (plan.vpp > 1.0),
        "overlap_ep": plan.ep > 1.0,
        "offload_activations": plan.recompute_layers < 1.0,
    }
    return [
        mask | (getattr(plan, name) == min(values))
        for name, values in zip(CHOICES, choices.values, strict=True)
        if len(values) > 1 and (mask := has_effect.get(name)) is not None
    ]


def kinds(task: Task) -> Iterator[tuple[Any, Choices]]:
    """Rows of each kind, and the choices to vary for them. Kinds of few rows become one; masks keep their cells distinct."""
    c = task.mesh.columns
    given = np.maximum(*(c[axis] for axis in ENDS)) >= 0.0
    uneven = np.where(c["pp"] > 1.0, 1.0 + ((task.job.model.num_hidden_layers % c["pp"] > 0.0) | given), 0.0)
    sharded = np.where(c["dp_shard"] > 1.0, 2.0, 1.0 * (c["cp"] * c["dp_replicate"] > 1.0))
    key = ((uneven * 3.0 + sharded) * 2.0 + (c["tp"] > 1.0)) * 2.0 + (c["vpp"] > 1.0)
    _, which, count = np.unique(key, return_inverse=True, return_counts=True)
    which = np.where(count[which] < FEW, -1, which)
    for kind in np.unique(which):
        index = np.flatnonzero(which == kind)
        yield index, choices_of(task, {name: column[index] for name, column in c.items()})


def choices_of(task: Task, columns: dict[str, Any]) -> Choices:
    """The values of every choice that some row of ``columns`` can use; one value where none can."""
    habit = {"sp": 1.0} | {f"overlap_{name.replace('-', '_')}": 1.0 for name in task.job.framework.overlap}
    tried = {name: task.space.of(name) or (habit.get(name, 0.0),) for name in CHOICES}
    if task.space.of("recompute") is None:
        tried["recompute"] = ("none",)
    if task.space.of("zero") is None:
        tried["zero"] = (float(task.job.framework.default_zero),)
    selective = task.job.framework.selective_recompute
    hows = [str(how) for how in tried["recompute"]]
    tried["recompute"] = tuple({recompute_columns(how, selective): how for how in reversed(hows)}.values())[::-1]
    if task.cluster.accelerator.pcie_bandwidth is None and task.cluster.accelerator.c2c_bandwidth is None:
        tried |= {name: (0.0,) for name in CHOICES if name.startswith("offload_")}
    if not np.any(columns["tp"] > 1.0):
        tried |= {name: (min(tried[name]),) for name in ("sp", "overlap_tp")}
    if not np.any(columns["vpp"] > 1.0):
        tried["overlap_pp"] = (min(tried["overlap_pp"]),)
    if not np.any(columns["ep"] > 1.0):
        tried["overlap_ep"] = (min(tried["overlap_ep"]),)
    whole = columns["dp_shard"] == 1.0
    if np.all(whole) and not task.job.model.num_experts and np.all(columns["cp"] == 1.0):
        tried["zero"] = (min(tried["zero"]),)
    elif not np.any(whole) and len(tried["zero"]) > 1:
        tried["zero"] = tuple(z for z in tried["zero"] if z > 0.0) or tried["zero"]
    return Choices(tuple(tried[name] for name in CHOICES), selective)


@dataclass(frozen=True, eq=False, repr=False)
class Front:
    """The Pareto front of step time and device memory, fastest first, with the mesh row of each point."""

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
        kept = unbeaten(seconds, device)
        return Front(seconds[kept], device[kept], row[kept])

    def limit(self, device: Any) -> Any:
        """The time that a plan with this much device memory must beat: of the fastest point that needs no more memory."""
        times, sizes = np.append(np.inf, self.seconds[::-1]), self.device[::-1]
        return times[np.searchsorted(sizes, device, side="right")]


def unbeaten(seconds: Any, device: Any) -> Any:
    """Indices of the Pareto front in order of time; of equal points all are kept."""
    order = np.lexsort((device, seconds))
    leanest = np.minimum.accumulate(np.append(np.inf, device[order]))[:-1]
    ahead = device[order] < leanest
    last = np.maximum.accumulate(np.where(ahead, np.arange(order.size), -1))
    same = (seconds[order] == seconds[order][last]) & (device[order] == device[order][last])
    return order[ahead | same]


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """The best times of a block of rows, its front, and the number of its plans."""

    seconds: Any  # of the fastest plan of each row that fits; inf where none does
    device: Any  # a lower bound of the device memory of each row's smallest plan
    front: Front  # of time and memory, merged with the front before; plans that do not fit are included
    legal: int
    fits: int


def cells_of(task: Task, index: Any, choices: Choices) -> tuple[Plan, list[Any], Any, Any]:
    """The plan of a block, its masks, its device memory, and whether each cell fits; each at the shape it needs."""
    columns = {name: column[index] for name, column in task.mesh.columns.items()}
    plan = plan_of(columns, task.global_batch_size, task.seq_len, **choices.columns())
    needed = memory(task.job, task.cluster, plan)
    masks = [*distinct(task, plan, choices), rules.legal(rules.legality(task.job, plan))]
    return plan, masks, needed.device, needed.fits


def times_of(task: Task, plan: Plan, masks: list[Any]) -> list[Term]:
    """The parts of a step, with BARRED added where a mask is false and 0 elsewhere, which is exact."""
    parts, _, _ = step_parts(task.job, task.cluster, plan)
    values = [np.asarray(part.value) for part in parts]
    for allowed in masks:
        values = _with_penalty(values, np.where(allowed, 0.0, BARRED))
    return [Term(part.name, value, part.unit) for part, value in zip(parts, values, strict=True)]


def decided(parts: list[Term], device: tuple[int, ...]) -> list[Term]:
    """The parts, with each choice that one part alone depends on, and memory does not, reduced to its best value.

    A rounded sum is monotonic in each of its terms, so the smallest sum has the smallest term. Deciding such a choice in its own
    term is exact, and its other values need no sums.
    """
    values = [part.value for part in parts]
    for axis in range(-len(device), -1):
        owners = [at for at, value in enumerate(values) if value.ndim >= -axis and value.shape[axis] > 1]
        if len(owners) == 1 and device[axis] == 1:
            values[owners[0]] = np.fmin.reduce(values[owners[0]], axis=axis, keepdims=True)
    return [Term(part.name, value, part.unit) for part, value in zip(parts, values, strict=True)]


def _with_penalty(values: list[Any], penalty: Any) -> list[Any]:
    """The values with ``penalty`` added to the first one that has all its axes, else to the last."""
    large = (at for at, value in enumerate(values) if np.broadcast_shapes(value.shape, np.shape(penalty)) == value.shape)
    chosen = next(large, len(values) - 1)
    return [value + penalty if at == chosen else value for at, value in enumerate(values)]


def sums(task: Task, gpus: Any, parts: list[Term], rows: int) -> Iterator[tuple[slice, Any]]:
    """The step time of every cell, in slices of rows that stay in cache."""
    shape = np.broadcast_shapes(*(part.value.shape for part in parts))
    width = max(CELLS // max(prod(shape[:-1]), 1), 1)
    for start in range(0, rows, width):
        at = slice(start, min(start + width, rows))
        cut = [Term(p.name, p.value[..., at] if p.value.ndim and p.value.shape[-1] > 1 else p.value, p.unit) for p in parts]
        yield at, whole_step(task.cluster, gpus[at], cut).value


def evaluate(task: Task, index: Any, choices: Choices, front: Front) -> Block:
    """The best plan of every row of a block, and what it adds to the front."""
    with np.errstate(all="ignore"):
        plan, masks, device, fits = cells_of(task, index, choices)
        parts = decided(times_of(task, plan, masks), device.shape)
        cells = np.empty((*device.shape[:-1], index.size))  # the best time of every combination that differs in memory
        inner = tuple(axis for axis, size in enumerate(device.shape[:-1]) if size == 1)
        for at, value in sums(task, task.mesh.columns["gpus"][index], parts, index.size):
            cells[..., at] = np.fmin.reduce(value, axis=inner, keepdims=True)
        cells = np.where(cells < BARRED, cells, np.inf)  # masked cells, and cells outside a law's domain, are no plans
        device = np.broadcast_to(device, cells.shape)
        ahead = cells < front.limit(device)
        if ahead.any():
            rows = np.broadcast_to(index, cells.shape)
            front = front.with_points(cells[ahead], device[ahead], rows[ahead])
        legal, shape = _all(masks), (*choices.shape, index.size)
        return Block(lowest(np.where(fits, cells, np.inf)), lowest(device), front, count(legal, shape), count(legal & fits, shape))


def lowest(value: Any) -> Any:
    """The least of every row, over all choices."""
    return value.reshape(-1, value.shape[-1]).min(axis=0)


def _rank(value: Any) -> int:
    return int(np.size(value))


def _all(masks: list[Any]) -> Any:
    together = masks[0]
    for mask in sorted(masks[1:], key=_rank):
        together = together & mask
    return together


def count(mask: Any, shape: tuple[int, ...]) -> int:
    """True cells of a mask laid over ``shape``."""
    return int(np.count_nonzero(mask)) * (prod(shape) // max(int(np.size(mask)), 1))
