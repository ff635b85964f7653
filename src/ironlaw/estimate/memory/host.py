"""Host memory that offloading needs, and how much of it there is."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.kinds import kinds, layers_of
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.layer.trained import stage_trained
from ironlaw.estimate.memory.activations import layer_activations
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
    """Bytes of a gradient as it arrives in the host: the type of the states it updates."""
    return HOST_GRADIENT if master_bytes(job) else job.precision.parameter_bytes


def optimizer_parameters(job: Job, plan: Plan, stage: Stage) -> Any:
    """Parameters of a stage whose optimizer states one accelerator updates, on the device or in the host."""
    common, routed = stage_trained(job, stage)
    own = common / plan.tp / states.zero_shards(1.0, plan.zero, plan.shard_ranks)
    if job.model.num_experts:
        own = own + routed / plan.expert_ways / states.zero_shards(1.0, plan.zero, plan.expert_shard_ranks)
    return own


def master_bytes(job: Job) -> float:
    """Bytes of a master weight in the host, beside the moments; 0 where the optimizer updates the weights themselves."""
    return states.OPTIMIZERS[job.optimizer].master_bytes if job.precision.master_weights else 0.0


def share_on_device(job: Job, plan: Plan, stage: Stage) -> Any:
    """The share of a stage's activations that stays on the device: layers that are not offloaded, and two in transfer."""
    if not np.any(plan.offload_activations > 0):
        return 1.0
    share, in_flight = offloaded_share(job, stage), in_flight_per_layer(job, plan, stage)
    on_device = (1.0 - share) + share * np.minimum(2.0 / np.maximum(stage.layers * in_flight, 1.0), 1.0)
    return np.where(plan.offload_activations > 0, on_device, 1.0)


def host_memory(job: Job, plan: Plan, stage: Stage) -> Term:
    """Host memory for one accelerator of a stage: optimizer states, the gradients that update them, and activations."""
    kept = states.OPTIMIZERS[job.optimizer].state_bytes
    states_and_gradients = [
        leaf(
            name,
            states.state,
            "B",
            times=plan.offload_optimizer * job.offload_fraction,
            parameters=optimizer_parameters(job, plan, stage),
            bytes_per_parameter=size,
            shards=1.0,
        )
        for name, size in (("master weights", master_bytes(job)), ("optimizer states", kept), ("gradients", gradient_bytes(job)))
    ]
    s, in_flight, offloaded = Shapes.of(job, plan), in_flight_per_layer(job, plan, stage), 1.0 - share_on_device(job, plan, stage)
    saved: Any = 0.0
    for kind in kinds(job.model):
        if kind.trained:
            saved = saved + layers_of(stage, kind, job.model) * fold(layer_activations(job, plan, s, kind))
    activations = leaf("activations", _part, "B", size=saved * in_flight * (1.0 - plan.recompute_layers), fraction=offloaded)
    return total("held in the host for one accelerator", [*states_and_gradients, activations])


def host_capacity(cluster: Cluster, plan: Plan) -> Any:
    """Host memory for each accelerator of the job; infinite where the node record has none."""
    whole = cluster.node.host_memory_capacity
    return np.inf if whole is None else whole.value / sharing_host(cluster, plan)


def _part(size: Any, fraction: Any) -> Any:
    """A part of a size: ``fraction size``."""
    return size * fraction
