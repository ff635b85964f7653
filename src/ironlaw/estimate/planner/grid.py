"""Mesh rows times choices, evaluated by ``memory`` and ``step`` with the choices on leading axes and the rows last.

Broadcasting saves work: every term of a step has the shape of the axes it reads, and only their sum has the shape of all. A *kind* is
a set of rows that can use the same choices. A choice that changes nothing in a row is masked there, so that every cell that counts is
a legal plan and no two cells are the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric.group_links import domain_ranks
from ironlaw.estimate.legality import rules
from ironlaw.estimate.memory.total import memory
from ironlaw.estimate.planner.mesh import Mesh, plan_of
from ironlaw.estimate.planner.space import CHOICES, Space
from ironlaw.estimate.step.step import step_parts, whole_step
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.plan import RECOMPUTE, Plan, recompute_columns
from ironlaw.terms import Term

if TYPE_CHECKING:
    from ironlaw.estimate.planner.layers import LayerTables

ILLEGAL = 1e200  # seconds of a cell that is no legal plan: infinity would become nan where a law multiplies it by 0
UNSQUEEZED = 1.0 - 1e-9  # of the capacity: a plan that needs more leaves the allocator no slack
CELLS = 65536  # of one sum, which fit into a core's cache
ROWS = 2048  # of one call of the laws
MOST_CELLS = 1 << 23  # of one call of the laws: with very many choices a call takes fewer rows, or memory runs out


class Task(Frozen):
    """One job on one cluster with its batch and sequence length; a search ranks its plans by step time."""

    job: Job
    cluster: Cluster
    mesh: Mesh
    space: Space
    global_batch_size: float
    seq_len: float
    margin: float  # share of device memory that the best plan keeps free if any plan does
    price: float = 1.0  # what a value that no published run measured must be faster by, as a factor; see ``planner.evidence``
    published: tuple[Mapping[str, Any], ...] = ()  # axes of the published layouts near the job; see ``planner.published``
    open_space: Space | None = None  # with the choices of layers that the question gives left open; None: the space itself
    tables: LayerTables | None = None  # times of layers that the tasks of a search share; see ``planner.layers``


def rooms(task: Task) -> tuple[float, float, float]:
    """Bytes that a plan may need, the better first: with the margin free, with slack for the allocator, and all.

    The best plan is the fastest within the first of these that any plan keeps to.
    """
    usable, most = task.cluster.accelerator.usable_memory, task.cluster.room
    return (min((1.0 - task.margin) * usable, most), min(UNSQUEEZED * usable, most), most)


class Choices(Frozen):
    """The values to try for each choice, in the order of CHOICES."""

    values: tuple[tuple[Any, ...], ...]
    selective: tuple[str, ...]  # what the framework recomputes by --recompute selective

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each choice."""
        return tuple(len(v) for v in self.values)

    def of(self, name: str) -> tuple[Any, ...]:
        """The values of one choice."""
        return self.values[CHOICES.index(name)]

    def only(self, values: Mapping[str, tuple[Any, ...]]) -> Choices:
        """These choices with other values for some of them."""
        return Choices(tuple(values.get(name, old) for name, old in zip(CHOICES, self.values, strict=True)), self.selective)

    def columns(self) -> dict[str, Any]:
        """The choices as columns, one leading axis each."""
        columns: dict[str, Any] = {}
        for axis, (name, values) in enumerate(zip(CHOICES, self.values, strict=True)):
            shape = [1] * (len(CHOICES) + 1)
            shape[axis] = len(values)
            if name == "recompute":
                fractions = np.array([recompute_columns(how, self.selective) for how in values])
                columns |= {column: fractions[:, i].reshape(shape) for i, column in enumerate(RECOMPUTE)}
            else:
                columns[name] = np.array(values, dtype=np.float64).reshape(shape)
        return columns


def distinct_masks(task: Task, plan: Plan, choices: Choices) -> list[Any]:
    """One mask per choice: true where the choice changes the plan, and at one value where it changes nothing.

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
    changes_plan = {
        "zero": sharded,
        "sp": plan.tp > 1.0,
        "overlap_tp": (plan.tp > 1.0) & (plan.sp > 0.0) & (plan.tp <= domain_ranks(task.cluster, plan)),
        "overlap_grad_reduce": np.where(plan.zero >= 2.0, replicated, reduced),
        "overlap_param_gather": ((plan.zero == 1.0) | (plan.zero == 2.0)) & sharded,
        "overlap_pp": (plan.pp > 1.0) & (plan.vpp > 1.0),
        "overlap_ep": plan.ep > 1.0,
    }
    return [
        mask | (getattr(plan, name) == min(values))
        for name, values in zip(CHOICES, choices.values, strict=True)
        if len(values) > 1 and (mask := changes_plan.get(name)) is not None
    ]


def usable_choices(task: Task, columns: dict[str, Any]) -> Choices:
    """The values of every choice that some row of ``columns`` can use; one value where none can."""
    defaults = {"sp": float(task.job.framework.able.sp)} | {f"overlap_{name.replace('-', '_')}": 1.0 for name in task.job.framework.overlap}
    values = {name: task.space.of(name) or (defaults.get(name, 0.0),) for name in CHOICES}
    if task.space.of("recompute") is None:
        values["recompute"] = ("none",)
    if task.space.of("zero") is None:
        values["zero"] = (float(task.job.framework.default_zero),)
    selective = task.job.framework.selective_recompute
    hows = [str(how) for how in values["recompute"]]
    values["recompute"] = tuple({recompute_columns(how, selective): how for how in reversed(hows)}.values())[::-1]
    if task.cluster.accelerator.pcie_bandwidth is None and task.cluster.accelerator.c2c_bandwidth is None:
        values |= {name: (0.0,) for name in CHOICES if name.startswith("offload_")}
    if not np.any(columns["tp"] > 1.0):
        values |= {name: (min(values[name]),) for name in ("sp", "overlap_tp")}
    if not np.any(columns["vpp"] > 1.0):
        values["overlap_pp"] = (min(values["overlap_pp"]),)
    if not np.any(columns["ep"] > 1.0):
        values["overlap_ep"] = (min(values["overlap_ep"]),)
    unsharded = columns["dp_shard"] == 1.0
    if np.all(unsharded) and not task.job.model.num_experts and np.all(columns["cp"] == 1.0):
        values["zero"] = (min(values["zero"]),)
    elif not np.any(unsharded) and len(values["zero"]) > 1:
        values["zero"] = tuple(z for z in values["zero"] if z > 0.0) or values["zero"]
    return Choices(tuple(values[name] for name in CHOICES), selective)


class Cells(Frozen):
    """The cells of a block, each column in the shape of the axes it reads."""

    plan: Plan
    masks: list[Any]  # true where a cell is a legal plan unlike all others
    device: Any  # bytes
    fits: Any

    @cached_property
    def legal(self) -> Any:
        """True where a cell is a legal plan unlike all others."""
        return all_true(self.masks)

    @cached_property
    def fitting(self) -> Any:
        """True where some legal plan fits, in the shape of memory."""
        legal = np.broadcast_to(self.legal, np.broadcast_shapes(np.shape(self.legal), self.device.shape))
        inner = tuple(axis for axis, size in enumerate(self.device.shape) if size < legal.shape[axis])
        return self.fits & (legal.any(axis=inner, keepdims=True) if inner else legal)


def legal_masks(task: Task, index: Any, choices: Choices) -> tuple[Plan, list[Any]]:
    """The plans of a block of rows, and masks that are all true where a cell is a legal plan unlike all others."""
    columns = {name: column[index] for name, column in task.mesh.columns.items()}
    plan = plan_of(columns, task.global_batch_size, task.seq_len, **choices.columns())
    return plan, [*distinct_masks(task, plan, choices), rules.legal(rules.legality(task.job, plan))]


def all_true(masks: list[Any]) -> Any:
    """True where every mask is; small masks are combined first."""
    combined, *others = sorted(masks, key=np.size)
    for mask in others:
        combined = combined & mask
    return combined


def evaluate_cells(task: Task, index: Any, choices: Choices) -> Cells:
    """The plans of a block of rows, their masks and their memory."""
    plan, masks = legal_masks(task, index, choices)
    needed = memory(task.job, task.cluster, plan)
    return Cells(plan, masks, needed.device, needed.fits)


def timed_parts(task: Task, plan: Plan, masks: list[Any], limit: Any = np.inf) -> list[Term]:
    """The parts of a step, with a penalty where a mask is false; adding 0 to the others is exact.

    Where a plan takes more than ``limit``, the sum of its parts may be less, but is more than ``limit``.
    """
    parts, _, _ = step_parts(task.job, task.cluster, plan, limit)
    values = [np.asarray(part.value) for part in parts]
    for allowed in masks:
        values = _with_penalty(values, np.where(allowed, 0.0, ILLEGAL))
    return [Term(part.name, value, part.unit) for part, value in zip(parts, values, strict=True)]


def reduce_free_choices(parts: list[Term], device: tuple[int, ...]) -> list[Term]:
    """The parts with the best value of every choice that memory does not depend on and that only one part reads.

    A sum rounds monotonically in each of its terms, so the smallest sum has the smallest term. Choosing the value in that one term is
    therefore exact, and saves the sums of its other values.
    """
    values = [part.value for part in parts]
    for axis in range(-len(device), -1):
        owners = [at for at, value in enumerate(values) if value.ndim >= -axis and value.shape[axis] > 1]
        if len(owners) == 1 and device[axis] == 1:
            values[owners[0]] = np.fmin.reduce(values[owners[0]], axis=axis, keepdims=True)
    return [Term(part.name, value, part.unit) for part, value in zip(parts, values, strict=True)]


def _with_penalty(values: list[Any], penalty: Any) -> list[Any]:
    """Add ``penalty`` to the first value that has all axes of the penalty, or else to the last value."""
    large = (at for at, value in enumerate(values) if np.broadcast_shapes(value.shape, np.shape(penalty)) == value.shape)
    chosen = next(large, len(values) - 1)
    return [value + penalty if at == chosen else value for at, value in enumerate(values)]


def sum_parts(task: Task, domains: Any, parts: list[Term], rows: int) -> Iterator[tuple[slice, Any]]:
    """The step time of every cell, in slices of rows that stay in cache."""
    shape = np.broadcast_shapes(*(part.value.shape for part in parts))
    width = max(CELLS // max(prod(shape[:-1]), 1), 1)
    for start in range(0, rows, width):
        at = slice(start, min(start + width, rows))
        cut = [Term(p.name, p.value[..., at] if p.value.ndim and p.value.shape[-1] > 1 else p.value, p.unit) for p in parts]
        yield at, whole_step(task.cluster, domains[at], cut).value


def row_minimum(value: Any) -> Any:
    """The smallest value of every row, over all choices."""
    return value.min(axis=tuple(range(value.ndim - 1)))
