"""Weights, gradients, master weights and optimizer states of a stage on one rank, each sharded from its ZeRO stage on."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.casts import cast_copy_bytes, keeps_weights
from ironlaw.estimate.layer.counts import stage_common, stage_linear, stage_replicated, stage_routed, stage_tables
from ironlaw.estimate.layer.frozen_weights import stored_bytes
from ironlaw.estimate.layer.trained import stage_trained
from ironlaw.estimate.pipeline.schedules import schedule_of
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job
from ironlaw.law import states
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf, total


def model_states(job: Job, cluster: Cluster, plan: Plan, stage: Stage) -> list[Term]:
    """Weights, gradients, master weights and optimizer states, each sharded from its ZeRO stage on.

    Only narrow linear layers have cast copies; where weights are gathered as they were cast, no wide weight is kept beside them.
    """
    optimizer = states.OPTIMIZERS[job.optimizer]
    f, precision = job.framework, job.precision
    # the sharded parameters are the master weights; frozen weights, and weights the optimizer updates directly, need none
    as_master = f.parameter_bytes is not None and precision.master_weights and optimizer.master_bytes > 0.0 and not job.lora_rank
    stored = f.parameter_bytes if as_master else precision.parameter_bytes
    separate_master = precision.master_weights and f.parameter_bytes is None
    gradient = f.gradient_bytes.value

    copies_a_rank = np.where(plan.pp > 1, schedule_of(job).stages_per_rank, 1.0)
    counts = stage_common(job.model, stage), stage_routed(job.model, stage)
    trained = stage_trained(job, stage)
    on_device = 1.0 - plan.offload_optimizer * job.offload_fraction

    whole = largest_matrix(job, plan, stage)
    replicated = stage_replicated(job.model, stage)
    linear, experts, down = stage_linear(job.model, stage)
    wide = (*counts, replicated)
    if keeps_weights(job) and job.fp8_param_gather:
        wide = (counts[0] - linear, counts[1] - experts, replicated - down)
    entire_trained = 0.0 if job.lora_rank else replicated

    def kind(name: str, size: Any, from_stage: float, counts: tuple[Any, Any, Any] = (*trained, entire_trained)) -> Term:
        common_count, routed_count, entire = counts
        copies = copies_a_rank if from_stage > 1.0 else 1.0  # whose states the two ranks of a stage share
        entire = np.minimum(entire, common_count)
        local = copies * ((common_count - entire) / plan.tp + entire)
        own = copies * routed_count / plan.expert_ways
        shards = states.zero_shards(from_stage, plan.zero, plan.shard_ranks)
        if from_stage == 1.0:
            shards = np.minimum(shards, np.maximum(local / np.maximum(whole, 1.0), 1.0))
        common = leaf(name, states.state, "B", parameters=local, bytes_per_parameter=size, shards=shards)
        if not job.model.num_experts:
            return common
        shards = states.zero_shards(from_stage, plan.zero, plan.expert_shard_ranks)
        routed = leaf(f"{name}, experts", states.state, "B", parameters=own, bytes_per_parameter=size, shards=shards)
        return total(name, [common, routed])

    if job.frozen_weights:
        weights = frozen_weights(job, plan, stage)
    else:
        weights = [
            kind("weights", stored, 3.0, wide),
            kind("low-precision copies of weights", cast_copy_bytes(job, cluster), 3.0, (linear, experts, down)),
        ]
    if job.lora_rank:
        weights.append(kind("weights of adapters", precision.parameter_bytes, 3.0))
    return [
        *weights,
        kind("gradients", gradient, 2.0),
        kind("master weights", on_device * optimizer.master_bytes if separate_master else 0.0, 1.0),
        kind("optimizer states", on_device * optimizer.state_bytes, 1.0),
        *table_states(job, plan, stage, on_device),
    ]


def frozen_weights(job: Job, plan: Plan, stage: Stage) -> list[Term]:
    """Frozen weights beside adapters, as they are stored; embedding and output layer keep the type of the precision."""
    copies_a_rank = np.where(plan.pp > 1, schedule_of(job).stages_per_rank, 1.0)
    tables = stage_tables(job.model, stage)
    shards, apart = (states.zero_shards(3.0, plan.zero, ranks) for ranks in (plan.shard_ranks, plan.expert_shard_ranks))
    wide, small = job.precision.parameter_bytes, stored_bytes(job)
    layers = stage_common(job.model, stage) - tables
    made = [
        leaf("weights of layers", states.state, "B", parameters=copies_a_rank * layers / plan.tp, bytes_per_parameter=small, shards=shards),
        leaf(
            "weights of embedding and output layer", states.state, "B", parameters=tables / plan.tp, bytes_per_parameter=wide, shards=shards
        ),
    ]
    if job.model.num_experts:
        own = copies_a_rank * stage_routed(job.model, stage) / plan.expert_ways
        made.append(leaf("weights of experts", states.state, "B", parameters=own, bytes_per_parameter=small, shards=apart))
    return [total("weights", made)]


def largest_matrix(job: Job, plan: Plan, stage: Stage) -> Any:
    """Parameters of the largest matrix that one rank must update whole (Muon cannot split the embedding); 0 for other optimizers."""
    if job.optimizer != "muon" or job.lora_rank:
        return 0.0
    return np.ceil(np.maximum(stage.embedding, stage.head)) * job.model.vocab_size * job.model.hidden_size / plan.tp


def table_states(job: Job, plan: Plan, stage: Stage, on_device: Any) -> list[Term]:
    """With Muon, the additional states of embedding and output layer, which AdamW updates."""
    if job.optimizer != "muon" or job.lora_rank:
        return []
    tables = stage_tables(job.model, stage) / plan.tp
    whole = largest_matrix(job, plan, stage)
    shards = states.zero_shards(1.0, plan.zero, plan.shard_ranks)
    beyond = states.OPTIMIZERS["adamw"].state_bytes - states.OPTIMIZERS["muon"].state_bytes
    return [
        leaf(
            "optimizer states, embedding and output layer",
            states.state,
            "B",
            parameters=tables,
            bytes_per_parameter=on_device * beyond,
            shards=np.minimum(shards, np.maximum(tables / np.maximum(whole, 1.0), 1.0)),
        )
    ]
