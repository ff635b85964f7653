"""What the host holds of what is offloaded, and how much room it has."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.kinds import kinds, layers_of
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.layer.trained import stage_trained
from ironlaw.estimate.memory.activations import saved_per_layer
from ironlaw.estimate.pipeline.in_flight import in_flight_per_layer
from ironlaw.estimate.pipeline.stages import Stage, offloaded_share
from ironlaw.job import Job
from ironlaw.law import states
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold, leaf, total

HOST_GRADIENT = 4.0  # bytes: gradients are widened on the device and arrive in the type of the master weights


def sharing_host(cluster: Cluster, plan: Plan) -> Any:
    """Accelerators of the job on one host."""
    return np.minimum(plan.gpus, cluster.node.accelerators.value)


def gradient_bytes(job: Job) -> float:
    """Bytes of a gradient as it arrives in the host: those of the states it is added to."""
    return HOST_GRADIENT if master_bytes(job) else job.precision.parameter_bytes


def held_parameters(job: Job, plan: Plan, stage: Stage) -> Any:
    """Parameters of a stage whose states one accelerator would hold, before it is said where."""
    common, routed = stage_trained(job, stage)
    own = common / plan.tp / states.zero_shards(1.0, plan.zero, plan.shard_ranks)
    if job.model.num_experts:
        own = own + routed / plan.expert_ways / states.zero_shards(1.0, plan.zero, plan.expert_shard_ranks)
    return own


def master_bytes(job: Job) -> float:
    """Bytes of a master weight that the host keeps beside the moments; 0 where weights are updated as they are."""
    return states.OPTIMIZERS[job.optimizer].master_bytes if job.precision.master_weights else 0.0


def left_on_device(job: Job, plan: Plan, stage: Stage) -> Any:
    """Of a stage's saved activations, the share that stays: layers that are not offloaded, and two that are on their way."""
    if not np.any(plan.offload_activations > 0):
        return 1.0
    share, in_flight = offloaded_share(job, stage), in_flight_per_layer(job, plan, stage)
    left = (1.0 - share) + share * np.minimum(2.0 / np.maximum(stage.layers * in_flight, 1.0), 1.0)
    return np.where(plan.offload_activations > 0, left, 1.0)


def host_memory(job: Job, plan: Plan, stage: Stage) -> Term:
    """What the host holds for one accelerator of a stage: optimizer states with the gradients they take, and activations."""
    kept = states.OPTIMIZERS[job.optimizer].state_bytes
    held = [
        leaf(
            name,
            states.state,
            "B",
            times=plan.offload_optimizer * job.offload_fraction,
            parameters=held_parameters(job, plan, stage),
            bytes_per_parameter=size,
            shards=1.0,
        )
        for name, size in (("master weights", master_bytes(job)), ("optimizer states", kept), ("gradients", gradient_bytes(job)))
    ]
    s, in_flight, gone = Shapes.of(job, plan), in_flight_per_layer(job, plan, stage), 1.0 - left_on_device(job, plan, stage)
    saved: Any = 0.0
    for kind in kinds(job.model):
        if kind.trained:
            saved = saved + layers_of(stage, kind, job.model) * fold(saved_per_layer(job, plan, s, kind))
    away = leaf("activations", _part, "B", size=saved * in_flight * (1.0 - plan.recompute_layers), fraction=gone)
    return total("held in the host for one accelerator", [*held, away])


def host_capacity(cluster: Cluster, plan: Plan) -> Any:
    """Host memory for each accelerator of the job; infinite where the node record does not say it."""
    whole = cluster.node.host_memory_capacity
    return np.inf if whole is None else whole.value / sharing_host(cluster, plan)


def _part(size: Any, fraction: Any) -> Any:
    """A part of a size: ``fraction size``."""
    return size * fraction
