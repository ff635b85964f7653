"""A step time that no plan of a mesh row beats, from the terms that every choice pays; and memory that every plan of a row needs.

A step is at least its micro-batches on the slowest stage and the time in which that stage waits for the others. A layer's kernels and
its collectives within tensor, context and expert groups read few axes, so the laws time each combination of those axes once, with the
most favourable value of every choice. What else a plan may add (sharded states, hand-overs, gradients, the optimizer, offloading) is
left out, and so is the addition of gradients, which ZeRO may shard. Every law that is left in grows with the times it is given, so the
bound holds for every plan of the row. Memory is that of the plan of a row which is sharded most, with the leanest choices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.documents.columns import Sequences, computed
from ironlaw.estimate.fabric.placement import Placement
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.trained import stage_trained
from ironlaw.estimate.memory.offloading import host_update
from ironlaw.estimate.memory.total import memory, memory_of_first
from ironlaw.estimate.network.sharding import gradient_reduction, shared_table_reduction, stage_weights, weight_gather
from ironlaw.estimate.pipeline.hand_overs import hand_over
from ironlaw.estimate.pipeline.schedules import schedule_of
from ironlaw.estimate.pipeline.stages import Pace, Stage, slowest, stages
from ironlaw.estimate.planner.grid import Choices, Task, usable_choices
from ironlaw.estimate.planner.layers import distinct_rows, jobs_alike, least_of_choices, placement_of_rows, time_rows
from ironlaw.estimate.planner.mesh import plan_of
from ironlaw.estimate.planner.space import CHOICES, ENDS
from ironlaw.estimate.step.optimizer_step import optimizer
from ironlaw.estimate.step.step import heads_of, loads_of, through_stages, whole_step
from ironlaw.frozen import same_but
from ironlaw.plan import Plan
from ironlaw.question import defaults
from ironlaw.terms import Term, fold

BOUNDED = ("recompute", "zero", "offload_optimizer")  # choices, in their order, that a bound has values for
REPLICAS = ("dp_replicate", "dp_shard")
ROUNDING = 1e-9  # of a bound: its sums round in another order than those of a step
LEANEST = {  # the value of a choice that needs least memory; the others are compared
    **dict.fromkeys(("offload_activations", "offload_parameters", "offload_nvme"), max),
    **dict.fromkeys(("overlap_grad_reduce", "overlap_param_gather", "overlap_tp", "overlap_pp", "overlap_ep"), min),
}


def step_at_least(task: Task, rows: Any, choices: Choices, sharded: bool) -> Any:
    """Seconds that no plan of some rows beats, by value of each choice in BOUNDED and row.

    If ``sharded``, with the collectives of sharded weights and gradients, the optimizer and hand-overs, which takes longer to compute;
    without them the bound has one value for all values of ZeRO and of offloading.
    """
    columns = {name: column[rows] for name, column in task.mesh.columns.items()}
    documents = task.job.documents
    if documents is None or not documents.cp_by_length or np.all(columns["cp"] == 1.0):
        return _at_least(task, columns, choices, sharded)
    every: Any = 0.0
    for cp in np.unique(columns["cp"]):  # the sum over the context ranks that documents take is the step without waiting
        own = columns["cp"] == cp
        some = {name: column[own] if column.size else column for name, column in columns.items()}
        plan = plan_of(some, task.global_batch_size, task.seq_len)
        one = Sequences.of(documents, plan.replace(micro_batch_size=1.0, cp=np.float64(cp)))
        least: Any = 0.0
        for level in one.levels(plan.replace(cp=np.float64(cp))):
            sizes = {name: float(np.ravel(getattr(level.plan, name))[0]) for name in ("global_batch_size", "seq_len")}
            alone = task.replace(job=task.job.replace(documents=level.sequences), **sizes)
            moved = {**some, "cp": level.plan.cp + 0.0 * some["cp"], "dp_shard": level.plan.dp_shard}
            least = least + level.share * _at_least(alone, moved, choices, sharded)
        every = np.zeros((*least.shape[:-1], rows.size)) if np.ndim(every) == 0 else every
        every[..., own] = least
    return every


def _at_least(task: Task, columns: dict[str, Any], choices: Choices, sharded: bool) -> Any:
    """What ``step_at_least`` says of rows whose sequences all take the context ranks of their row."""
    job, placed = task.job, placement_of_rows(task, columns)
    # without sharded weights replicas and shards are alike but for the place of their ranks
    first, of_row = distinct_rows([*(column for name, column in columns.items() if sharded or name not in REPLICAS), *placed])
    plan = plan_of({name: column[first] for name, column in columns.items()}, task.global_batch_size, task.seq_len)
    seconds, which = time_rows(task, plan, Placement(*(column[first] for column in placed)), choices, sharded)
    job, plan = computed(job, plan)
    with np.errstate(all="ignore"):
        embedding, head = (least_of_choices(time)[..., which] for time in (seconds.embedding, seconds.head))
        classes = stages(job, plan)

        def least_of(layers: dict[Kind, Any]) -> dict[Kind, Any]:
            """The least of the time of a layer of each kind."""
            return {kind: least_of_choices(time)[..., which] for kind, time in layers.items()}

        one_layer = least_of(seconds.layers)
        through = through_stages(job, classes, one_layer, embedding, head)
        slow = slowest(classes, through).pick([time for stage, time in zip(classes, through, strict=True) if not stage.shadowed])
        between: Any = 0.0
        parts = []
        if sharded:
            both = (seconds.beside_forward, seconds.beside_backward)
            beside = [through_stages(job, classes, least_of(way), embedding, head) for way in both]
            parts = [Term("once a step", _once_a_step(task.replace(job=job), plan, choices, classes, slow, beside), "s")]
            hop = hand_over(job, task.cluster, plan.replace(sp=1.0)).value
            between = np.where(plan.pp > 1.0, 2.0 * plan.vpp * (1.0 - max(choices.of("overlap_pp")) * (plan.vpp > 1.0)), 0.0) * hop
            slow = slow + between
        loads = loads_of(job, plan, classes, one_layer, (embedding, head), (between, 0.0), (0.5, 0.0))  # the bound reads no share
        passes = schedule_of(job).passes_at_least(plan, loads)
        waiting = np.where(plan.pp > 1.0, np.maximum(passes - slow * plan.num_microbatches, 0.0), 0.0)
        parts = [Term("micro-batches", slow * plan.num_microbatches, "s"), Term("pipeline bubble", waiting, "s"), *parts]
        least = whole_step(task.cluster, placed.domains[first].astype(np.float64), parts).value
        return np.where(np.isnan(least), 0.0, least)[..., of_row]  # outside a law's domain nothing is excluded


def _once_a_step(task: Task, plan: Plan, choices: Choices, classes: list[Stage], slow: Any, left: list[list[Any]]) -> Any:
    """What a stage adds once a step at least: exposed reduction and gather, optimizer; of the stage that adds least.

    The reduction hides behind a backward pass and the gather behind a forward pass. ``left`` is what each stage's micro-batch takes
    beside a forward and beside a backward pass, behind which collectives of the whole job may hide. A longer micro-batch may hide more,
    but by no more than it is longer; so the sum with a micro-batch (with two, where both are exposed) is at least what is left and the
    collective.
    """
    zero, offload = (np.array(choices.of(name)).reshape(shape) for name, shape in (("zero", (-1, 1, 1)), ("offload_optimizer", (-1, 1))))
    job, cluster, plan = task.job, task.cluster, plan.replace(zero=zero, offload_optimizer=offload)
    shared: Any = fold(shared_table_reduction(job, cluster, plan))
    least: Any = np.inf
    for stage, beside_forward, beside_backward in zip(classes, *left, strict=True):
        reduced = gradient_reduction(job, cluster, plan, *stage_trained(job, stage)) + beside_backward - slow
        gathered = weight_gather(job, cluster, plan, *stage_weights(job, stage)) + beside_forward - slow
        both = np.where(plan.num_microbatches >= 2.0, reduced + gathered, 0.0)
        added = np.maximum(np.maximum(reduced, gathered), np.maximum(both, 0.0))
        pace = Pace((stage,), 0.0 * plan.pp)
        added = added + fold([optimizer(job, cluster, plan, pace), *host_update(job, cluster, plan, pace)])
        least = np.where(stage.count > 0, np.minimum(least, added), least)
    return least + shared


def memory_at_least(task: Task, rows: Any, choices: Choices, first: bool = False) -> Any:
    """Bytes that every plan of some rows needs, by value of each choice in BOUNDED and row; ``first``: on its first stage alone.

    The rows that differ in chunks, replicas and dispatcher alone share the memory of one: with one chunk a rank, all data-parallel ranks
    sharing the states where some do, and no buffers of a dispatcher. Chunks hold more micro-batches in
    flight, but for those with the embedding in a short first stage, which are told apart.
    """
    columns = {name: column[rows] for name, column in task.mesh.columns.items()}
    ranks = columns["dp_replicate"] * columns["dp_shard"]
    shards = np.where(columns["dp_shard"] > 1.0, ranks, 1.0)
    segments = any(how.startswith("segments:") for how in choices.of("recompute"))  # a chunk's layers are the most of a segment
    chunks = columns["vpp"] if task.job.count_embedding or segments else np.where(columns["first_stage_layers"] >= 0.0, columns["vpp"], 1.0)
    columns |= {"dp_shard": shards, "dp_replicate": ranks / shards, "vpp": chunks}
    own, which = distinct_rows([column for column in columns.values() if column.size])
    lean = choices.only({name: (LEANEST[name](choices.of(name)),) for name in CHOICES if name in LEANEST})
    plan = plan_of({name: column[own] for name, column in columns.items()}, task.global_batch_size, task.seq_len, **lean.columns())
    job = task.job.replace(moe_dispatcher=defaults.DISPATCHER)
    with np.errstate(all="ignore"):
        needed = memory_of_first(job, task.cluster, plan) if first else memory(job, task.cluster, plan).device
        device = np.broadcast_to(needed, (*lean.shape, own.size))
    others = tuple(axis for axis, name in enumerate(CHOICES) if name not in BOUNDED)
    device = device.min(axis=others)
    return np.where(np.isnan(device), 0.0, device)[..., which]


def may_take(task: Task, within: float, columns: dict[str, Any]) -> Any:
    """False for mesh rows all of whose plans take more than ``within`` seconds, however they split their layers (``work_at_least``).

    ``task`` has no mesh yet. Documents that take context ranks by their length are not judged.
    """
    documents = task.job.documents
    if documents is not None and documents.cp_by_length:
        return np.ones(columns["gpus"].shape, dtype=bool)
    return work_at_least(task, columns) * (1.0 - ROUNDING) <= within


def work_at_least(task: Task, columns: dict[str, Any]) -> Any:
    """Seconds that no plan of some rows beats, whatever its stages and chunks: the work of all layers, spread evenly over the stages."""
    choices, placed = usable_choices(task, columns), placement_of_rows(task, columns)
    fewest = _fewest_on_first(task, columns)
    ranks = columns["dp_replicate"] * columns["dp_shard"]
    read = [column for name, column in columns.items() if name not in (*REPLICAS, *ENDS, "vpp")]
    first, of_row = distinct_rows([*read, ranks, fewest, *placed])
    plan = plan_of({name: column[first] for name, column in columns.items()}, task.global_batch_size, task.seq_len)
    seconds, which = time_rows(task, plan, Placement(*(column[first] for column in placed)), choices, sharded=False)
    job, plan = computed(task.job, plan)
    with np.errstate(all="ignore"):
        whole = seconds.embedding + heads_of(job) * seconds.head + sum(kind.count * time for kind, time in seconds.layers.items())
        work = least_of_choices(whole).min(axis=0)[0, 0, which]
        work = (work - _not_counted(task, seconds.layers, plan, fewest[first], which)) / plan.pp
        parts = [Term("micro-batches", np.maximum(work, 0.0) * plan.num_microbatches, "s")]
        least = whole_step(task.cluster, placed.domains[first].astype(np.float64), parts).value
        return np.where(np.isnan(least), 0.0, least)[of_row]


def _fewest_on_first(task: Task, columns: dict[str, Any]) -> Any:
    """The fewest layers that the first stage has in any split that ``ends`` tries; 0 where the question lists the layers of end stages."""
    layers, pp = float(task.job.model.num_hidden_layers), columns["pp"]
    if any(isinstance(task.space.of(axis), tuple) for axis in ENDS) or task.job.layers_per_stage:
        return np.where(pp > 1.0, 0.0, layers)
    most_on_last = np.ceil(layers / pp)
    by_rule, counted = np.floor((layers - most_on_last) / np.maximum(pp - 1.0, 1.0)), np.floor((layers + 2.0) / pp) - 1.0
    return np.where(pp > 1.0, np.maximum(np.minimum(by_rule, counted), 0.0), layers)


def _not_counted(task: Task, one_layer: dict[Kind, Any], plan: Plan, fewest: Any, which: Any) -> Any:
    """Work that a step may leave out: stages of a class count as its first, which may have layers of a kind that the others do not have."""
    inner = [kind for kind in one_layer if kind.place not in ("tower", "end")]
    edges = {edge for kind in inner for edge in (kind.first, kind.last)} - {0.0, float(task.job.model.num_hidden_layers)}
    if not edges and not any(kind.alike for kind in inner):
        return 0.0
    longest: Any = 0.0
    for kind in inner:
        longest = np.maximum(longest, one_layer[kind])
    most = longest.reshape(-1, longest.shape[-1]).max(axis=0)[which]
    beyond = np.maximum(max(edges, default=np.inf) - fewest, 0.0) if not any(kind.alike for kind in inner) else np.inf
    return np.where(plan.pp > 2.0, (plan.pp - 2.0) * beyond * most, 0.0)


def bounds_alike(one: Task, other: Task) -> bool:
    """True for tasks with the same rows and bounds: their jobs differ in dispatchers that send alike, if at all."""
    return one.mesh is other.mesh and same_but(one.cluster, other.cluster) and jobs_alike(one.job, other.job)
