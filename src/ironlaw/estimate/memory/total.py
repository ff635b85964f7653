"""Memory of one accelerator of each pipeline stage at the peak of a step, as Term trees.

    allocated = weights + gradients + master weights + optimizer states + activations + logits + buffers + workspace
    reserved  = allocated + memory that the caching allocator keeps unused
    device    = reserved + context + communicators

Stages differ: the first holds the embedding and the most micro-batches in flight, the last the logits. Each class of equal
stages is computed; the answer is the fullest one.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.documents.columns import fullest
from ironlaw.estimate.layer import uneven
from ironlaw.estimate.layer.kinds import Kind, kinds, layer_of_kind, layers_of, sized
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.memory import autocast, moments
from ironlaw.estimate.memory.activations import checkpoint_width, checkpoints_of, hidden_state, layer_activations
from ironlaw.estimate.memory.buffers import as_is, dispatcher_buffers, gather_buffers, share_of, unpacked_weights, workspace
from ironlaw.estimate.memory.loss import deferred_logits, logits
from ironlaw.estimate.memory.offloading import host_capacity, host_memory, share_on_device
from ironlaw.estimate.memory.paging import PAGES, pages_in_host
from ironlaw.estimate.memory.reference import reference_memory
from ironlaw.estimate.memory.start import with_start
from ironlaw.estimate.memory.states import model_states, pages
from ironlaw.estimate.network.context import attention_buffers
from ironlaw.estimate.pipeline.hand_overs import handed_over
from ironlaw.estimate.pipeline.in_flight import in_flight_of_last_chunk, in_flight_per_layer
from ironlaw.estimate.pipeline.stages import Stage, stages
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.law import activations
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold, leaf, total

GRADIENTS = ("gradients", "whole gradients")
# keys of the parts of allocated memory that stay between steps
STATES = (
    "weights",
    "low-precision copies of weights",
    "weights of adapters",
    "weights of the reference",
    "weights of the teacher",
    "gradients",
    "master weights",
    "optimizer states",
    "library workspace",
    "workspace of grouped products",
)


class Memory(Frozen):
    """Device memory of the fullest stage of every plan. Its tree is built when it is read, which a search never does."""

    trees: list[Term]  # of every class of stages
    which: Any  # index of the fullest
    device: Any  # [B]
    capacity: float
    fits: Any
    stage_names: tuple[str, ...]
    hosts: tuple[Term, ...] = ()  # host memory of an accelerator, by class of stages; empty where nothing is offloaded
    host_capacity: Any = np.inf  # [B] for one accelerator

    @cached_property
    def host(self) -> Any:
        """Host memory of one accelerator on the stage that needs most [B]; 0 where nothing is offloaded."""
        most: Any = 0.0
        for tree in self.hosts:
            most = np.maximum(most, tree.value)
        return most * np.ones_like(self.device)

    @property
    def paged(self) -> Any:
        """Bytes of pages of optimizer states in the host, for the accelerator that has most; 0 where states are no pages."""
        most: Any = 0.0
        for tree in self.hosts:
            for part in tree.parts:
                most = np.maximum(most, part.value) if part.name == PAGES else most
        return most

    @cached_property
    def host_tree(self) -> Term:
        """The breakdown of host memory on the stage that needs most."""
        return _pick(list(self.hosts), np.argmax(np.stack([np.broadcast_to(t.value, self.device.shape) for t in self.hosts]), axis=0))

    @cached_property
    def tree(self) -> Term:
        """The breakdown of the fullest stage."""
        return _pick(self.trees, self.which)

    @property
    def allocated(self) -> Any:
        """Bytes of tensors."""
        return self.tree["allocated"].value * np.ones_like(self.device)

    @property
    def reserved(self) -> Any:
        """Bytes the caching allocator holds."""
        return self.tree["reserved"].value * np.ones_like(self.device)

    @property
    def needed(self) -> Any:
        """Bytes without the memory that the allocator gives back when the device runs short."""
        return self.device - self.tree["allocator slack"].value


def memory(job: Job, cluster: Cluster, plan: Plan) -> Memory:
    """The memory of every plan of a batch at its fullest stage, with the fullest sequences where documents have many lengths."""
    job, plan = fullest(uneven.at_the_peak(job), plan)
    classes = [stage for stage in stages(job, plan) if not stage.shadowed]
    layers = Layers.of(job, plan)
    trees = [stage_memory(job, cluster, plan, c, layers) for c in classes]
    values = [np.where(c.count > 0, t.value, 0.0) for c, t in zip(classes, trees, strict=True)]
    best, which = values[0], 0.0 * values[0]
    for i, value in enumerate(values[1:], 1):
        fuller = value > best
        best, which = np.where(fuller, value, best), np.where(fuller, float(i), which)
    usable = cluster.accelerator.usable_memory
    fits = best <= cluster.room
    names = tuple(c.name for c in classes)
    if not (np.any(plan.offload_optimizer > 0) or np.any(plan.offload_activations > 0) or pages(job)):
        return Memory(trees, which, best, usable, fits, names)
    hosts = tuple(host_memory(job, plan, c, layers.saved) for c in classes)
    if pages(job):
        moved = [pages_in_host(job, cluster, plan, c, tree.value) for c, tree in zip(classes, trees, strict=True)]
        hosts = tuple(total(host.name, [*host.parts, page]) for host, page in zip(hosts, moved, strict=True))
    room = host_capacity(cluster, plan)
    best = best + 0.0 * plan.offload_nvme  # whether a plan fits depends on this axis: on the host's memory, not on the device's
    for c, tree in zip(classes, hosts, strict=True):
        fits = fits & ((tree.value <= room) | ~(c.count > 0))
    return Memory(trees, which, best, usable, fits, names, hosts, room)


def memory_of_first(job: Job, cluster: Cluster, plan: Plan) -> Any:
    """Bytes of every plan of a batch on its first stage, which are at most those of the fullest."""
    job, plan = fullest(uneven.at_the_peak(job), plan)
    return stage_memory(job, cluster, plan, stages(job, plan)[0], Layers.of(job, plan)).value


def last_stage_memory(job: Job, cluster: Cluster, plan: Plan) -> Term:
    """The tree of the stage that computes the loss, which many logs report."""
    trees: list[Term] = []
    job = uneven.at_the_peak(job)
    which, layers = np.zeros(plan.rows), Layers.of(job, plan)
    for stage in stages(job, plan):
        if np.any((stage.count > 0) & (stage.head > 0)):
            which = np.where((stage.count > 0) & (stage.head > 0), float(len(trees)), which)
            trees.append(stage_memory(job, cluster, plan, stage, layers))
    return _pick(trees, which)


def _pick(trees: list[Term], which: Any) -> Term:
    """One tree out of several of the same shape: in each row every node has its value from the tree that is chosen for the row."""

    def choose(columns: list[Any]) -> Any:
        """The value of each row from the column of the tree that is chosen for it."""
        chosen = columns[0]
        for i, item in enumerate(columns[1:], 1):
            if item is not columns[0]:
                chosen = np.where(which == i, item, chosen)
        return chosen

    first = trees[0]
    inputs = {
        key: item if hasattr(item, "source") or isinstance(item, str) else choose([t.inputs[key] for t in trees])
        for key, item in first.inputs.items()
    }
    return Term(
        first.name,
        choose([t.value for t in trees]),
        first.unit,
        first.law,
        inputs,
        [_pick(list(parts), which) for parts in zip(*(t.parts for t in trees), strict=True)],
        choose([t.times for t in trees]),
        first.bound,
        first.key,
    )


class Layers(Frozen):
    """What one layer of each kind has in memory for one micro-batch, the same on every stage."""

    sizes: Shapes
    saved: dict[Kind, list[Term]]  # activations it keeps for the backward pass
    gradients: dict[Kind, list[Term]]  # gradients of its tensors, while it runs backward

    @classmethod
    def of(cls, job: Job, plan: Plan) -> Layers:
        """The layers of every plan."""
        s, each = Shapes.of(job, plan), kinds(job.model)
        saved = {kind: [*layer_activations(job, plan, s, kind), *autocast.input_copies(job, plan, s, kind)] for kind in each}
        return cls(s, saved, {kind: moments.layer_gradients(job, plan, s, kind) for kind in each})


def stage_memory(job: Job, cluster: Cluster, plan: Plan, stage: Stage, layers: Layers) -> Term:
    """The device memory of one class of stages."""
    f = job.framework
    allocated = total("allocated", allocated_parts(job, cluster, plan, stage, layers))
    groups = 1.0 * (plan.tp > 1) + (plan.pp > 1) + (plan.expert_ways > 1) + (plan.cp > 1) + (plan.dp_shard > 1) + (plan.dp_replicate > 1)
    outside_allocator = [
        leaf("driver context", as_is, "B", size=f.context),
        leaf("communicators", share_of, "B", size=f.communicator, fraction=groups),
        *dispatcher_buffers(job, cluster, plan, layers.sizes),
    ]
    usable = cluster.accelerator.usable_memory
    free = np.maximum(usable - fold([allocated, *outside_allocator]), 0.0)
    slack = leaf("allocator slack", _slack, "B", size=allocated.value, fraction=f.allocator_slack, left=free)
    of_library = [part.of_kind("workspace") for part in outside_allocator]
    return total("device", [total("reserved", [allocated, slack.of_kind("slack")]), *of_library])


def allocated_parts(job: Job, cluster: Cluster, plan: Plan, stage: Stage, layers: Layers) -> list[Term]:
    """The tensors of one class of stages at the fullest moment of a run."""
    s = layers.sizes
    held = model_states(job, cluster, plan, stage)
    saved = saved_activations(job, plan, s, stage, layers.saved)
    at_loss, at_layer = unpacked_weights(job, plan, stage)
    losing = [logits(job, plan, s, stage), *(part.of_kind("weights") for part in at_loss)]
    waiting = deferred_logits(job, plan, s, stage)
    running = moments.running_layer(job, plan, stage, layers.saved, layers.gradients)
    beside = [
        *attention_buffers(job, plan, s),
        *moments.hooked_gradients(job, plan, s, stage),
        *(part.of_kind("weights") for part in at_layer),
    ]
    updated = moments.update_copies(job, plan, stage)
    gradients = fold([part for part in held if part.key in GRADIENTS])
    copies = autocast.weight_copies(job, plan, stage)
    layer = fold([*running, *beside])
    at = moments.peak(job, plan, gradients, fold([*saved, *copies]), fold(losing), layer, fold(updated))
    parts = [
        *(part.repeated(at.gradients) if part.key in GRADIENTS else part for part in held),
        total("activations", [*(part.repeated(at.saved) for part in saved), *(part.repeated(at.layer) for part in running)]),
        *(part.repeated(at.saved).of_kind("weights") for part in copies),
        *(part.repeated(at.loss) for part in losing),
        *waiting,
        *(part.repeated(at.layer) for part in beside),
        *(part.repeated(at.update).of_kind("optimizer") for part in updated),
        *reference_memory(job, plan, s, stage),
        transit_buffers(job, plan, s),
        gather_buffers(job, plan, stage).of_kind("weights"),
        *(part.of_kind("workspace") for part in workspace(job, cluster)),
    ]
    return with_start(job, plan, stage, [part if part.bound else part.of_kind("activations") for part in parts])


def saved_activations(job: Job, plan: Plan, s: Shapes, stage: Stage, saved: dict[Kind, list[Term]]) -> list[Term]:
    """Activations of the micro-batches in flight: of whole layers, and the checkpoints of recomputed layers or segments."""
    in_flight, at_end = in_flight_per_layer(job, plan, stage), in_flight_of_last_chunk(job, plan, stage)
    on_device = share_on_device(job, plan, stage)
    own = [tower_checkpoints(job, plan, s, stage, kind, in_flight * on_device) for kind in saved if kind.tower and kind.has_mlp]
    wide = np.maximum(checkpoint_width(job, plan), 1.0 + autocast.casts(job, plan) * (4.0 / job.precision.activation_bytes - 1.0))
    count = handed_over(job.model) * checkpoints_of(job, plan, stage) * wide
    boundary = hidden_state("checkpoints", job, plan, s, count * in_flight * on_device)
    return [
        *(
            total(
                f"saved {kind.name}",
                parts,
                times=float(kind.trained)
                * on_device
                * layers_of(stage, kind, job.model)
                * (np.where(stage.head > 0, at_end, in_flight) if kind.place == "end" else in_flight)
                * (1.0 - plan.recompute_layers),
            )
            for kind, parts in saved.items()
        ),
        boundary,
        *own,
        *([cached_keys(job, plan, s, stage, in_flight * on_device)] if job.key_value_cache else []),
    ]


def tower_checkpoints(job: Job, plan: Plan, s: Shapes, stage: Stage, kind: Kind, in_flight: Any) -> Term:
    """Checkpoints of the recomputed layers of a tower, as wide as the tower."""
    layers = float(kind.trained) * layers_of(stage, kind, job.model) * plan.recompute_layers
    job_of_kind, sizes = layer_of_kind(job, plan, s, kind)
    return hidden_state(f"checkpoints of {kind.name}", job_of_kind, plan, sizes, layers * in_flight)


def cached_keys(job: Job, plan: Plan, s: Shapes, stage: Stage, in_flight: Any) -> Term:
    """Keys and values that the cache of recomputed layers holds until their micro-batch is through; other layers keep them anyway."""
    e, parts = job.precision.activation_bytes, []
    for kind in kinds(job.model):
        if kind.attends_along:
            model = sized(job.model, kind)
            width = 2.0 * model.num_key_value_heads * model.head_dim
            if model.kv_lora_rank:
                width = model.num_attention_heads * (model.qk_nope_head_dim + model.qk_rope_head_dim + model.v_head_dim)
            times = layers_of(stage, kind, job.model) * plan.recompute_layers * in_flight
            parts.append(
                leaf(
                    "keys and values",
                    activations.mlp,
                    "B",
                    times=times,
                    tokens=s.tokens,
                    intermediate_size=width,
                    saved=1.0,
                    tp=plan.tp,
                    bytes_per_element=e,
                )
            )
    return total("key-value cache", parts, unit="B")


def transit_buffers(job: Job, plan: Plan, s: Shapes) -> Term:
    """Hidden states between two pipeline stages: one received and one sent, forward and backward."""
    state = hidden_state("hidden state", job, plan, s)
    return total("hidden states in transit", [state], times=np.where(plan.pp > 1, 4.0 * handed_over(job.model), 0.0))


def _slack(size: Any, fraction: Any, left: Any) -> Any:
    """Memory that the allocator keeps unused; it frees this memory when the device runs short: ``min(fraction size, left)``."""
    return np.minimum(size * fraction, left)
