"""Beside states and activations: where ZeRO 3 gathers weights, workspaces of libraries, buffers of dispatchers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.counts import common_parameters, largest_experts, largest_operand, routed_parameters
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.network.sharding import layer_weights, linear_bytes
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.estimate.wires import inner_ranks
from ironlaw.job import Job
from ironlaw.law import exchanges
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf


def gather_buffers(job: Job, plan: Plan, stage: Stage) -> Term:
    """ZeRO-3: two units' whole weights (one in use, one prefetched) and one's whole gradients: layers, matrices, or the table."""
    wide = job.precision.parameter_bytes
    gradient = 0.0 if job.lora_rank else job.framework.gradient_reduce_bytes.value  # adapters' own are small
    table = np.ceil(np.maximum(stage.embedding, stage.head)) * (job.model.vocab_size * job.model.hidden_size) / plan.tp
    biggest = table * (2.0 * wide + gradient)
    for kind in kinds(job.model):
        whole = common_parameters(job.model, kind) / plan.tp + routed_parameters(job.model, kind) / plan.expert_ways
        weights = [size / ways for size, ways in zip(layer_weights(job, kind), (plan.tp, plan.expert_ways), strict=True)]
        size = 2.0 * (weights[0] + weights[1]) + gradient * whole
        if job.framework.gather_unit == "matrix":
            whole = np.maximum(largest_operand(job.model, kind) / plan.tp, largest_experts(job.model, kind) / plan.expert_ways)
            size = (2.0 * (wide if kind.wide else linear_bytes(job)) + gradient) * whole
        biggest = np.maximum(biggest, size)
    held = np.where((plan.zero == 3) & (plan.shard_ranks > 1), 1.0, 0.0)
    return leaf("gather buffers", _held, "B", size=biggest, fraction=held)


def _held(size: Any, fraction: Any) -> Any:
    """Buffers of the largest unit where weights are gathered: ``fraction size``."""
    return size * fraction


def workspace(job: Job, cluster: Cluster) -> list[Term]:
    """What the libraries of matrix products keep for themselves, which depends on the device."""
    f, architecture = job.framework, cluster.accelerator.architecture
    made = [leaf("library workspace", _as_is, "B", size=f.workspaces.get(architecture, f.workspace))]
    if job.model.num_experts and job.grouped_experts and architecture in f.grouped_workspaces:
        made.append(leaf("workspace of grouped products", _as_is, "B", size=f.grouped_workspaces[architecture]))
    return made


# DeepEP's own configurations (deep_ep/buffer.py, get_dispatch_config and get_combine_config): 20 multiprocessors, which Megatron Core
# takes too (--moe-deepep-num-sms), 128 tokens a queue between nodes, and by ranks of the group the tokens of a queue inside one
NODE, CHANNELS, OUTER_SLOTS = 8.0, 10.0, 128.0
SLOTS = ((8.0, 256.0), (64.0, 288.0), (128.0, 560.0), (np.inf, 720.0))


def dispatcher(job: Job, cluster: Cluster, plan: Plan, s: Shapes) -> list[Term]:
    """What DeepEP and HybridEP allocate for themselves, beside what the framework's allocator holds."""
    if not job.model.num_experts or job.moe_dispatcher == "alltoall":
        return []
    sent, name = np.where(plan.ep > 1, 1.0, 0.0), f"buffers of {job.moe_dispatcher}"
    hidden = float(job.model.hidden_size)
    if job.moe_dispatcher == "deepep":
        inner = np.minimum(plan.ep, NODE)
        slots = np.select([plan.ep <= ranks for ranks, _ in SLOTS], [tokens for _, tokens in SLOTS])
        held = {"channels": CHANNELS, "slots": slots, "outer_slots": OUTER_SLOTS}
        ways = {"hidden_size": hidden, "inner_ranks": inner, "outer_ranks": np.maximum(plan.ep / NODE, 1.0)}
        return [leaf(name, exchanges.deepep_buffers, "B", times=sent, **ways, **held)]
    inner = inner_ranks(cluster, plan, plan.ep, plan.etp)
    own, count = s.tokens / plan.tp, float(job.model.num_experts)
    ways = {"num_experts": count, "inner_ranks": inner, "outer_ranks": plan.ep / inner}
    return [leaf(name, exchanges.hybridep_buffers, "B", times=sent, tokens=own, hidden_size=hidden, **ways)]


def _as_is(size: Any) -> Any:
    """A size read from the record as it stands: ``size``."""
    return size
