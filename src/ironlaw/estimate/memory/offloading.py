"""Offloading: the host memory that it needs, and the time that the host's optimizer update and copies add to a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import CatalogError
from ironlaw.estimate.layer.counts import common_parameters, routed_parameters, stage_common, stage_routed
from ironlaw.estimate.layer.frozen_weights import stored_bytes
from ironlaw.estimate.layer.kinds import Kind, layers_of
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.layer.trained import layer_trained
from ironlaw.estimate.layer.updates import mean_at, mean_of
from ironlaw.estimate.memory.activations import checkpoint_width, checkpoints_of, hidden_state, layer_activations
from ironlaw.estimate.memory.buffers import share_of
from ironlaw.estimate.memory.states import optimizer_parameters, stores_masters
from ironlaw.estimate.network.sharding import exposed
from ironlaw.estimate.pipeline.hand_overs import handed_over
from ironlaw.estimate.pipeline.in_flight import in_flight_per_layer
from ironlaw.estimate.pipeline.stages import Pace, Stage, offloaded_share
from ironlaw.job import Job
from ironlaw.law import collectives, overlap, states, traffic
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold, leaf, total

ON_DEVICE = 4.0  # bytes of gradient read and weight written in the table of optimizers; the host moves its own types instead
HOST_GRADIENT = 4.0  # bytes: gradients are widened on the device and arrive in the type of the master weights


def sharing_host(cluster: Cluster, plan: Plan) -> Any:
    """Accelerators of the job on one host."""
    return np.minimum(plan.gpus, cluster.node.accelerators.value)


def gradient_bytes(job: Job) -> float:
    """Bytes of a gradient as it arrives in the host: the type of the states it updates."""
    return HOST_GRADIENT if master_bytes(job) else job.precision.parameter_bytes


def master_bytes(job: Job) -> float:
    """Bytes of a master weight in the host, beside the moments; 0 where the optimizer updates the weights themselves."""
    stored = job.framework.parameter_bytes
    updates_them = stored is not None and stored.value <= job.precision.parameter_bytes
    return job.optimizer.master_bytes if job.precision.master_weights and not updates_them else 0.0


def share_on_device(job: Job, plan: Plan, stage: Stage) -> Any:
    """The share of a stage's activations that stays on the device: layers that are not offloaded, and two in transfer."""
    if not np.any(plan.offload_activations > 0):
        return 1.0
    share, in_flight = offloaded_share(job, stage), in_flight_per_layer(job, plan, stage)
    on_device = (1.0 - share) + share * np.minimum(2.0 / np.maximum(stage.layers * in_flight, 1.0), 1.0)
    return np.where(plan.offload_activations > 0, on_device, 1.0)


def host_memory(job: Job, plan: Plan, stage: Stage, layers: Mapping[Kind, list[Term]]) -> Term:
    """Host memory for one accelerator of a stage: optimizer states, the gradients that update them, and activations.

    ``layers`` are the activations of one layer of each kind.
    """
    state_bytes = mean_of(job, stage, lambda rule: rule.state_bytes)
    in_memory = 1.0 - plan.offload_nvme
    states_and_gradients = [
        leaf(
            name,
            states.state,
            "B",
            kind,
            times=plan.offload_optimizer * job.offload_fraction * times,
            parameters=optimizer_parameters(job, plan, stage),
            bytes_per_parameter=size,
            shards=1.0,
        )
        for name, kind, size, times in (
            ("master weights", "optimizer", master_bytes(job), in_memory),
            ("optimizer states", "optimizer", state_bytes, in_memory),
            ("gradients", "gradients", gradient_bytes(job), 1.0),
        )
    ]
    if np.any(plan.offload_parameters > 0):
        states_and_gradients.append(host_weights(job, plan, stage))
    in_flight, offloaded = in_flight_per_layer(job, plan, stage), 1.0 - share_on_device(job, plan, stage)
    saved: Any = 0.0
    for kind, parts in layers.items():
        if kind.trained:
            saved = saved + layers_of(stage, kind, job.model) * fold(parts)
    one = hidden_state("checkpoints", job, plan, Shapes.of(job, plan), handed_over(job.model)).value
    checkpoints = one * checkpoints_of(job, plan, stage) * checkpoint_width(job, plan)
    held = (saved * (1.0 - plan.recompute_layers) + checkpoints) * in_flight
    activations = leaf("activations", share_of, "B", "activations", size=held, fraction=offloaded)
    return total("held in the host for one accelerator", [*states_and_gradients, activations])


def host_weights(job: Job, plan: Plan, stage: Stage) -> Term:
    """Weights in the host beside the master weights: as they are stored, or none where the stored weights are the master weights."""
    common, routed = stage_common(job.model, stage) / plan.tp, stage_routed(job.model, stage) / plan.expert_ways
    shards = states.zero_shards(3.0, plan.zero, plan.shard_ranks), states.zero_shards(3.0, plan.zero, plan.expert_shard_ranks)
    size = 0.0 if stores_masters(job) else weight_in_host(job)
    parameters = common / shards[0] + routed / shards[1]
    weights = leaf("weights", states.state, "B", times=plan.offload_parameters, parameters=parameters, bytes_per_parameter=size, shards=1.0)
    return weights.of_kind("weights")


def weight_in_host(job: Job) -> float:
    """Bytes of a weight as it is stored in the host, and as it crosses the link: it is cast on the device."""
    if job.lora_rank:
        frozen = job.framework.frozen_bytes
        return stored_bytes(job) if job.frozen_weights or frozen is None else frozen.value
    stored = job.framework.parameter_bytes
    return job.precision.parameter_bytes if stored is None else stored.value


def parameter_traffic(job: Job, cluster: Cluster, plan: Plan, kind: Kind, forward: Any, backward: Any) -> list[Term]:
    """Time that weights in the host add to a layer: its shard comes for the forward pass and for the backward pass, its gradient leaves.

    Both run beside the layer's computation, as the next layer's weights are fetched ahead. Each micro-batch moves them. Left out: the
    embedding and the output layer, gradients that are added in the host.
    """
    if not np.any(plan.offload_parameters > 0):
        return []
    common, routed = common_parameters(job.model, kind), routed_parameters(job.model, kind)
    ways = plan.tp * states.zero_shards(3.0, plan.zero, plan.shard_ranks)
    expert_ways = plan.expert_ways * states.zero_shards(3.0, plan.zero, plan.expert_shard_ranks)
    trained = layer_trained(job, kind)
    weights = (common / ways + routed / expert_ways) * weight_in_host(job)
    gradients = (trained[0] / ways + trained[1] / expert_ways) * job.framework.gradient_bytes.value
    link = host_link(cluster).value
    coming, leaving = (collectives.point_to_point(size, link, 0.0) for size in (weights, gradients))
    terms = [exposed(cluster, "weights from the host, forward", forward, coming, plan.offload_parameters)]
    if kind.trained:  # the link runs both ways at once
        terms.append(exposed(cluster, "weights from the host, backward", backward, np.maximum(coming, leaving), plan.offload_parameters))
    return terms


def host_capacity(cluster: Cluster, plan: Plan) -> Any:
    """Host memory for each accelerator of the job; infinite where the node record has none."""
    capacity = cluster.node.host_memory_capacity
    return np.inf if capacity is None else capacity.value / sharing_host(cluster, plan)


def host_link(cluster: Cluster) -> Sourced:
    """The link between an accelerator and its host's memory: chip to chip where it has one, else its share of PCIe."""
    link = cluster.accelerator.c2c_bandwidth
    if link is not None:
        return link
    link, sharing = cluster.accelerator.pcie_bandwidth, cluster.node.accelerators_per_host_link
    if link is None:
        raise CatalogError(f"accelerator {cluster.accelerator.name} has neither c2c_bandwidth nor pcie_bandwidth, which offload needs")
    if sharing is None:
        return link
    return Sourced(link.value / sharing.value, link.unit, f"{link.text} shared by {sharing.text}", link.source, link.note)


def host_bandwidth(cluster: Cluster) -> Sourced:
    """The memory bandwidth of the whole host: its record's, or that of a usual server."""
    return cluster.node.host_memory_bandwidth or cluster.systems.host_memory_bandwidth


GRADIENTS_OUT, UPDATE, WEIGHTS_BACK, BESIDE, DRIVES = (
    "gradients to the host", "optimizer in the host", "weights from the host", "copies beside the host's optimizer",
    "states from and to NVMe",
)  # fmt: skip
HOST_OPTIMIZER = (GRADIENTS_OUT, UPDATE, WEIGHTS_BACK, BESIDE, DRIVES)  # what an optimizer in host memory adds to a step


def host_update(job: Job, cluster: Cluster, plan: Plan, pace: Pace) -> list[Term]:
    """The update of the optimizer's states in the host, once a step; none where nothing is offloaded."""
    if not np.any(plan.offload_optimizer > 0):
        return []
    state_traffic = mean_at(job, pace, lambda rule: rule.traffic.value) - ON_DEVICE
    if not job.framework.fused_host_optimizer:  # with its parameters in the host, the framework's own optimizer runs there
        state_traffic = state_traffic * np.where(plan.offload_parameters > 0, job.framework.optimizer_passes.value, 1.0)
    update = leaf(
        UPDATE,
        states.host_update,
        "s",
        "dispatch",
        times=plan.offload_optimizer,
        parameters=pace.of(lambda stage: optimizer_parameters(job, plan, stage)) * job.offload_fraction,
        accelerators=sharing_host(cluster, plan),
        bytes_per_parameter=states.host_traffic(state_traffic, gradient_bytes(job), job.precision.parameter_bytes, master_bytes(job)),
        bandwidth=host_bandwidth(cluster),
        bandwidth_fraction=cluster.systems.host_bandwidth_fraction,
    )
    return [update]


def optimizer_traffic(job: Job, cluster: Cluster, plan: Plan, pace: Pace, backward: Any, idle: Any) -> list[Term]:
    """Once a step: gradients copied to the host, the host's update, updated weights copied back.

    They run one after the other. Two exceptions: some frameworks copy gradients beside the backward pass, and beside ``idle`` time in
    which the device waits for its host or for other links; with ``offload_overlap``
    the host updates tensor by tensor, both directions of the link run beside the update, and the longest counts.
    """
    if not np.any(plan.offload_optimizer > 0):
        return []
    updated = pace.of(lambda stage: optimizer_parameters(job, plan, stage)) * job.offload_fraction
    (update,) = host_update(job, cluster, plan, pace)
    link, wide = host_link(cluster), gradient_bytes(job)
    moved = plan.offload_optimizer * (1.0 - plan.offload_parameters)  # parameters in the host are updated where they are

    def copy(name: str, size: float) -> Term:
        parts = {"size": traffic.optimizer_step(updated, size), "bandwidth": link, "latency": 0.0}
        return leaf(name, collectives.point_to_point, "s", "network", times=moved, **parts)

    def beside(name: str, compute: Any, communication: Any, slowdown: Any) -> Term:
        inputs = {"compute": compute, "communication": communication, "slowdown": slowdown}
        return leaf(name, overlap.exposed_after_overlap, "s", "network", times=moved, **inputs)

    out, back = copy(GRADIENTS_OUT, wide), copy(WEIGHTS_BACK, job.precision.parameter_bytes)
    stored = stored_on_drives(job, cluster, plan, pace, update)
    if job.offload_overlap:
        return [update, beside(BESIDE, update.value, np.maximum(out.value, back.value), 0.0), *stored]
    if job.framework.offload_gradients_early:
        window = cluster.systems.gradient_window.value
        inputs = {"compute": window * backward, "idle": window * idle, "communication": out.value, "slowdown": cluster.overlap_slowdown}
        out = leaf(out.name, overlap.exposed_beside_idle, "s", "network", times=moved, **inputs)
    return [out, update, back, *stored]


def stored_on_drives(job: Job, cluster: Cluster, plan: Plan, pace: Pace, update: Term) -> list[Term]:
    """Time that states on NVMe add: they are read for the update and written after it, piece by piece beside the host's computation."""
    if not np.any(plan.offload_nvme > 0):
        return []
    size = mean_at(job, pace, lambda rule: rule.state_bytes) + master_bytes(job)
    moved = states.drive_time(
        pace.of(lambda stage: optimizer_parameters(job, plan, stage)) * job.offload_fraction,
        sharing_host(cluster, plan), size, drive_bandwidth(cluster).value,
    )  # fmt: skip
    inputs = {"compute": update.value, "communication": moved, "slowdown": 0.0}
    return [leaf(DRIVES, overlap.exposed_after_overlap, "s", "network", times=plan.offload_nvme, **inputs)]


def drive_bandwidth(cluster: Cluster) -> Sourced:
    """The bandwidth of all NVMe drives of the host: its record's, or that of a published server."""
    return cluster.node.nvme_bandwidth or cluster.systems.nvme_bandwidth


def activation_traffic(
    job: Job, cluster: Cluster, plan: Plan, s: Shapes, kind: Kind, first: Stage, forward: Any, backward: Any
) -> list[Term]:
    """Time that copies of a layer's activations add: to the host beside its forward pass, and back beside its backward pass.

    Of a layer that is recomputed in full its checkpoint is copied, of a segment that of its first layer.
    """
    if not np.any(plan.offload_activations > 0) or not kind.trained:
        return []
    checkpoint = hidden_state("checkpoints", job, plan, s, handed_over(job.model) * checkpoint_width(job, plan)).value
    checkpoint = checkpoint * plan.recompute_layers / plan.recompute_segment
    saved = fold(layer_activations(job, plan, s, kind)) * (1.0 - plan.recompute_layers) + checkpoint
    moving = collectives.point_to_point(saved, host_link(cluster).value, 0.0)
    share = offloaded_share(job, first) * plan.offload_activations
    names = {"activations to the host": forward, "activations from the host": backward}
    return [exposed(cluster, name, compute, moving, share) for name, compute in names.items()]
