"""Data parallelism: weights gathered, gradients reduced, and their exposed time beside the computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer.casts import gathered_bytes, job_of_experts
from ironlaw.estimate.layer.counts import common_parameters, linear_experts, linear_parameters, routed_parameters, stage_linear
from ironlaw.estimate.layer.frozen_weights import stored_bytes
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.trained import layer_trained, stage_trained
from ironlaw.estimate.pipeline.stages import Pace, Stage
from ironlaw.job import Job
from ironlaw.law import overlap
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold, leaf, total

Pair = Sequence[Any]  # for parameters outside the experts, and in them


class Overlapped(NamedTuple):
    """The key of a term of communication that overlaps computation; it names the collectives."""

    group: str  # tensor | context | layer (weights and gradients of one) | gradients | weights (of a step)
    collectives: tuple[str, ...] = ()


def exposed(
    cluster: Cluster, name: str, compute: Any, communication: Any, times: Any = None, key: Overlapped | None = None, idle: Any = None
) -> Term:
    """The time that ``communication`` adds to ``compute``, and to ``idle`` time beside it, when both run at once; the network's."""
    law, waits = (overlap.exposed_after_overlap, {}) if idle is None else (overlap.exposed_beside_idle, {"idle": idle})
    return leaf(
        name, law, "s", "network", times, key, compute=compute, **waits, communication=communication, slowdown=cluster.overlap_slowdown
    )


_GATHER, _SCATTER, _BOTH = (Overlapped("layer", names) for names in (("gather",), ("scatter",), ("gather", "scatter")))


def fully_sharded(job: Job, cluster: Cluster, plan: Plan, kind: Kind, forward: Any, backward: Any) -> Term:
    """Exposed communication of ZeRO-3 in one layer: weights gathered for forward and for backward, gradients scattered.

    ZeRO-2 also scatters its gradients every micro-batch.
    """
    all_three = np.where(plan.zero == 3, 1.0, 0.0)
    only_two = np.where(plan.zero == 2, 1.0, 0.0)
    gather = fold(gathers(job, cluster, plan, *layer_weights(job, kind))) if np.any(plan.zero == 3) else 0.0
    scatter = fold(scatters(job, cluster, plan, *layer_trained(job, kind))) if np.any(plan.zero >= 2) else 0.0
    parts = [exposed(cluster, "exposed gather, forward", forward, gather, all_three, _GATHER)]
    if kind.trained:
        parts.append(exposed(cluster, "exposed gather and scatter, backward", backward, gather + scatter, all_three, _BOTH))
        parts.append(exposed(cluster, "exposed scatter, backward", backward, scatter, only_two, _SCATTER))
    return total("sharded data parallel", parts)


def launched(plan: Plan, kind: Kind) -> tuple[Any, Any]:
    """Collectives of sharded weights and gradients that the host starts in a layer's forward pass, and in its other passes."""
    each = (2.0 if kind.routed else 1.0) * np.where(plan.shard_ranks > 1, 1.0, 0.0)
    later = np.where(plan.zero == 3, 2.0, 0.0) + np.where(plan.zero == 2, 1.0, 0.0)
    return each * np.where(plan.zero == 3, 1.0, 0.0), each * later * float(kind.trained)


def layer_weights(job: Job, kind: Kind) -> tuple[Any, Any]:
    """Bytes of one layer's weights as they are gathered: outside its experts, and in them."""
    model = job.model
    return (
        weight_bytes(job, common_parameters(model, kind), linear_parameters(model, kind)),
        weight_bytes(job_of_experts(job), routed_parameters(model, kind), linear_experts(model, kind)),
    )


def stage_weights(job: Job, stage: Stage) -> tuple[Any, Any]:
    """Bytes of a stage's trained weights as they are gathered after the update: outside its experts, and in them."""
    common, routed = stage_trained(job, stage)
    if job.lora_rank:  # adapters are wide
        return common * job.precision.parameter_bytes, routed * job.precision.parameter_bytes
    linear, experts, _ = stage_linear(job.model, stage, trained=True)
    return weight_bytes(job, common, linear), weight_bytes(job_of_experts(job), routed, experts)


def weight_bytes(job: Job, parameters: Any, linear: Any) -> Any:
    """Bytes of ``parameters`` as they are gathered; ``linear`` of them are weights of narrow linear layers."""
    wide = job.precision.parameter_bytes
    return parameters * wide - linear * (wide - linear_bytes(job))


def linear_bytes(job: Job) -> float:
    """Bytes of a linear layer's weight as it is gathered: the stored type beside adapters, else the type of the precision."""
    return stored_bytes(job) if job.frozen_weights else gathered_bytes(job)


def gathers(job: Job, cluster: Cluster, plan: Plan, common: Any, routed: Any) -> list[Term]:
    """The gathers of weights: ``common`` and ``routed`` bytes each over their own ranks."""
    ranks, sizes = (plan.shard_ranks, plan.expert_shard_ranks), (common / plan.tp, routed / plan.expert_ways)
    return _collectives(job, cluster, plan, "all_gather", ("gather weights", "gather experts"), ranks, sizes)


def scatters(job: Job, cluster: Cluster, plan: Plan, common: Any, routed: Any) -> list[Term]:
    """The scatters of gradients: ``common`` and ``routed`` parameters each over their own ranks."""
    names, ranks = ("scatter gradients", "scatter experts' gradients"), (plan.shard_ranks, plan.expert_shard_ranks)
    return _collectives(job, cluster, plan, "reduce_scatter", names, ranks, _reduced_bytes(job, plan, common, routed))


def _reduced_bytes(job: Job, plan: Plan, common: Any, routed: Any) -> tuple[Any, Any]:
    """Bytes of the gradients that one rank reduces: of ``common`` and of ``routed`` parameters."""
    size = job.framework.gradient_reduce_bytes.value
    return common / plan.tp * size, routed / plan.expert_ways * size


def _collectives(
    job: Job, cluster: Cluster, plan: Plan, operation: str, names: Pair, ranks: Pair, sizes: Pair, strides: Pair = ()
) -> list[Term]:
    """One collective for the parameters outside the experts, and one for those in the experts of a mixture."""
    rows = zip(names, ranks, sizes, strides or (plan.tp, plan.expert_ways), strict=True)
    # InfiniBand adds for one process group, which Megatron-LM makes the data-parallel one (--use-sharp): not also for that of experts
    terms = (
        group_links.collective(cluster, plan, name, operation, n, size, stride, sharp=at == 0)
        for at, (name, n, size, stride) in enumerate(rows)
    )
    return list(islice(terms, 2 if job.model.num_experts else 1))


class Waits(NamedTuple):
    """Time of one micro-batch in which a rank waits for its host or for a ring, beside which collectives of the whole job may run."""

    either: Any = 0.0  # in one of the two passes: where the host runs ahead from one into the next, only their sum is known
    forward: Any = 0.0
    backward: Any = 0.0

    def times(self, count: Any) -> Waits:
        """The same for several layers."""
        return Waits(*(count * value for value in self))

    def plus(self, other: Waits) -> Waits:
        """Both together."""
        return Waits(*(a + b for a, b in zip(self, other, strict=True)))


def data_parallel(job: Job, cluster: Cluster, plan: Plan, pace: Pace, forward: Any, backward: Any, waits: Waits) -> tuple[Term, Term]:
    """Once a step: gradients reduced behind the last backward, weights gathered before the next forward.

    Both also hide behind the time in which the rank waits. The two are in different micro-batches, so they share that time only
    where a step has one micro-batch.
    """
    window = cluster.systems.gradient_window.value
    last, first = window * plan.overlap_grad_reduce, window * plan.overlap_param_gather
    common, routed = (pace.stacked(counts) for counts in zip(*(stage_trained(job, stage) for stage in pace.classes), strict=True))
    reduction = pace.pick(gradient_reduction(job, cluster, plan, common, routed))
    weights = (pace.stacked(sizes) for sizes in zip(*(stage_weights(job, stage) for stage in pace.classes), strict=True))
    gather = pace.pick(weight_gather(job, cluster, plan, *weights))
    idle = last * (waits.either + waits.backward)
    reduced = exposed(cluster, "exposed gradient reduction", last * backward, reduction, key=Overlapped("gradients"), idle=idle)
    beside_compute = overlap.exposed_after_overlap(last * backward, reduction, cluster.overlap_slowdown.value)
    used = np.where(plan.num_microbatches == 1, np.maximum(beside_compute - reduced.value - last * waits.backward, 0.0), 0.0)
    idle = np.maximum(first * waits.either - used, 0.0) + first * waits.forward
    gathered = exposed(cluster, "exposed weight gather", first * forward, gather, key=Overlapped("weights"), idle=idle)
    return reduced, gathered


def gradient_reduction(job: Job, cluster: Cluster, plan: Plan, common: Any, routed: Any) -> Any:
    """Time of reducing the gradients of ``common`` and ``routed`` parameters, alone on the wires."""
    time = 0.0 * common  # with the axis of the stages
    for runs, reduce in _ways_to_reduce(job, plan):
        if np.any(runs):
            time = time + fold(reduce(job, cluster, plan, common, routed)) * runs
    return time


def reductions(job: Job, cluster: Cluster, plan: Plan, common: Any, routed: Any) -> list[tuple[Any, list[Term]]]:
    """The collectives that reduce gradients, each group with a column that is 1 where it runs."""
    return [(runs, reduce(job, cluster, plan, common, routed)) for runs, reduce in _ways_to_reduce(job, plan)]


def _ways_to_reduce(job: Job, plan: Plan) -> list[tuple[Any, Callable[..., list[Term]]]]:
    """Groups of collectives with a column that is 1 where they run: with states sharded, with nothing sharded, and over replicas.

    With ZeRO-3 only the reduction over replicas runs here; the scatters of ZeRO-2 and ZeRO-3 are booked in the layers. An optimizer
    that gives whole matrices to ranks has whole gradients summed with ZeRO-1 (Megatron Core, layer_wise_optimizer.py).
    """
    by_matrix = job.optimizer.matrices.shards == "matrices"
    states_sharded = np.where((plan.zero == 1) & (not by_matrix), 1.0, 0.0)
    summed = np.where((plan.zero == 0) | ((plan.zero == 1) & by_matrix), 1.0, 0.0)
    return [(states_sharded, scatters), (summed, _sums), (1.0 - summed, _sums_over_replicas)]


def _sums(job: Job, cluster: Cluster, plan: Plan, common: Any, routed: Any) -> list[Term]:
    """All-reduces of whole gradients."""
    names, ranks = ("all-reduce", "all-reduce of experts"), (plan.dp * plan.cp, plan.expert_ranks)
    return _collectives(job, cluster, plan, "all_reduce", names, ranks, _reduced_bytes(job, plan, common, routed))


def _sums_over_replicas(job: Job, cluster: Cluster, plan: Plan, common: Any, routed: Any) -> list[Term]:
    """All-reduces of shards of gradients over replicas."""
    shards = plan.tp * plan.cp * plan.dp_shard
    strides = shards, np.maximum(shards, plan.expert_ways)  # a copy of the experts may span replicas
    sizes = _reduced_bytes(job, plan, common, routed)
    sizes = sizes[0] / plan.shard_ranks, sizes[1] / plan.expert_shard_ranks
    names, ranks = ("all-reduce over replicas", "all-reduce of experts over replicas"), (plan.dp_replicate, plan.expert_replicas)
    return _collectives(job, cluster, plan, "all_reduce", names, ranks, sizes, strides)


def shared_table_reduction(job: Job, cluster: Cluster, plan: Plan) -> list[Term]:
    """All-reduce of the embedding's gradient between the first and the last stage, where both hold the table.

    They do with tied embeddings and with layers for further tokens. Megatron-LM reduces it after all other gradients, in the
    gradients' type (core/distributed/finalize_model_grads.py).
    """
    model = job.model
    shared = model.tie_word_embeddings or model.num_nextn_predict_layers
    if not shared or job.lora_rank or (model.frozen_layers and not model.tie_word_embeddings) or not np.any(plan.pp > 1):
        return []
    shards = np.where(plan.zero >= 2, plan.shard_ranks, 1.0)  # from ZeRO-2 on a rank holds the gradient of its shard
    size = model.vocab_size * model.hidden_size / plan.tp / shards * job.framework.gradient_reduce_bytes.value
    ends, stride = np.where(plan.pp > 1, 2.0, 1.0), plan.gpus / 2.0  # both ends are in one domain only if it holds the whole job
    return [group_links.collective(cluster, plan, "tied-embedding all-reduce", "all_reduce", ends, size, stride)]


def weight_gather(job: Job, cluster: Cluster, plan: Plan, common: Any, routed: Any) -> Any:
    """Time of gathering ``common`` and ``routed`` bytes of updated weights, alone on the wires; frozen weights are not gathered."""
    gather = 0.0 * common + fold(gathers(job, cluster, plan, common, routed))  # with the axis of the stages
    return gather * np.where((plan.zero == 1) | (plan.zero == 2), 1.0, 0.0)
