"""Memory beside states and activations: buffers of gathered weights, workspaces of libraries, buffers of dispatchers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.counts import common_parameters, largest_experts, largest_operand, output_width, routed_parameters
from ironlaw.estimate.layer.dispatchers import dispatcher_of
from ironlaw.estimate.layer.frozen_weights import packed, unpacked_bytes
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.memory.states import keeps_gathered
from ironlaw.estimate.network.sharding import layer_weights, linear_bytes
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf


def gather_buffers(job: Job, plan: Plan, stage: Stage) -> Term:
    """Buffers of ZeRO-3 and of weights in the host: whole weights of two units (in use, prefetched) and whole gradients of one.

    A unit is a layer, a matrix, or the embedding, whichever is largest.
    """
    gathered = np.where((plan.zero == 3) & (plan.shard_ranks > 1) | (plan.offload_parameters > 0), 1.0, 0.0)
    if not np.any(gathered):
        return leaf("gather buffers", share_of, "B", size=0.0, fraction=gathered)
    wide = job.precision.parameter_bytes
    gradient = 0.0 if job.lora_rank else job.framework.gradient_reduce_bytes.value  # gradients of adapters are small
    table = np.ceil(np.maximum(stage.embedding, stage.head)) * (job.model.vocab_size * job.model.hidden_size) / plan.tp
    copies = 2.0 * (1.0 - keeps_gathered(job, plan))  # of weights; what is kept whole needs no buffer beside it
    biggest = table * (copies * wide + gradient)
    for kind in kinds(job.model):
        whole = common_parameters(job.model, kind) / plan.tp + routed_parameters(job.model, kind) / plan.expert_ways
        weights = [size / ways for size, ways in zip(layer_weights(job, kind), (plan.tp, plan.expert_ways), strict=True)]
        size = copies * (weights[0] + weights[1]) + gradient * whole
        if job.framework.gather_unit == "matrix":
            whole = np.maximum(largest_operand(job.model, kind) / plan.tp, largest_experts(job.model, kind) / plan.expert_ways)
            size = (copies * (wide if kind.wide else linear_bytes(job)) + gradient) * whole
        biggest = np.maximum(biggest, size)
    return leaf("gather buffers", share_of, "B", size=biggest, fraction=gathered)


def unpacked_weights(job: Job, plan: Plan, stage: Stage) -> tuple[list[Term], list[Term]]:
    """Four-bit weights in 16 bits while a product reads them: of the output layer at the loss, and of the largest matrix of a layer."""
    if not packed(job):
        return [], []
    size, largest = unpacked_bytes(job), 0.0
    for kind in kinds(job.model):
        largest = max(largest, largest_operand(job.model, kind), largest_experts(job.model, kind) / max(job.model.num_experts, 1))
    of_layer = leaf("unpacked weights of a layer", share_of, "B", size=size * largest / plan.tp, fraction=np.minimum(stage.layers, 1.0))
    if not job.framework.packed_output:
        return [], [of_layer]
    table = output_width(job.model) * job.model.hidden_size / plan.tp
    return [leaf("unpacked weights of the output layer", share_of, "B", size=size * table, fraction=np.ceil(stage.head))], [of_layer]


def workspace(job: Job, cluster: Cluster) -> list[Term]:
    """Workspaces that libraries of matrix products allocate; their size depends on the device."""
    f, row_of = job.framework, cluster.accelerator.row_of
    terms = [leaf("library workspace", as_is, "B", size=row_of(f.workspaces, f.workspace))]
    grouped = row_of(f.grouped_workspaces, None)
    if job.model.num_experts and job.grouped_experts and grouped is not None:
        terms.append(leaf("workspace of grouped products", as_is, "B", size=grouped))
    return terms


def dispatcher_buffers(job: Job, cluster: Cluster, plan: Plan, s: Shapes) -> list[Term]:
    """Buffers that a dispatcher such as DeepEP allocates outside the framework's allocator."""
    allocate = dispatcher_of(job).buffers
    if not job.model.num_experts or allocate is None:
        return []
    return [allocate(f"buffers of {job.moe_dispatcher}", job, cluster, plan, s)]


def as_is(size: Any) -> Any:
    """A size from the record, unchanged: ``size``."""
    return size


def share_of(size: Any, fraction: Any) -> Any:
    """A part or multiple of a size: ``fraction size``."""
    return size * fraction
