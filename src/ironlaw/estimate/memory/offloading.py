"""Time that offloading adds to a step: the host's optimizer update, and copies to host memory and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import CatalogError
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.memory.activations import layer_activations
from ironlaw.estimate.memory.host import gradient_bytes, master_bytes, optimizer_parameters, sharing_host
from ironlaw.estimate.pipeline.stages import Pace, Stage, offloaded_share
from ironlaw.job import Job
from ironlaw.law import collectives, overlap, states, traffic
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold, leaf

ON_DEVICE = 4.0  # bytes of gradient read and weight written in the table of optimizers; the host moves its own types instead


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


def optimizer_traffic(job: Job, cluster: Cluster, plan: Plan, pace: Pace, backward: Any) -> list[Term]:
    """Once a step: gradients copied to the host, the host's update, updated weights copied back.

    They run one after the other. Two exceptions: some frameworks copy gradients beside the backward pass; with ``offload_overlap``
    the host updates tensor by tensor, both directions of the link run beside the update, and the longest counts.
    """
    if not np.any(plan.offload_optimizer > 0):
        return []
    updated = pace.of(lambda stage: optimizer_parameters(job, plan, stage)) * job.offload_fraction
    link, wide = host_link(cluster), gradient_bytes(job)
    state_traffic = states.OPTIMIZERS[job.optimizer].traffic_bytes - ON_DEVICE
    moved = states.host_traffic(state_traffic, wide, job.precision.parameter_bytes, master_bytes(job))
    update = leaf(
        "optimizer in the host",
        states.host_update,
        "s",
        "dispatch",
        times=plan.offload_optimizer,
        parameters=updated,
        accelerators=sharing_host(cluster, plan),
        bytes_per_parameter=moved,
        bandwidth=host_bandwidth(cluster),
        bandwidth_fraction=cluster.systems.host_bandwidth_fraction,
    )

    def copy(name: str, size: float) -> Term:
        parts = {"size": traffic.optimizer_step(updated, size), "bandwidth": link, "latency": 0.0}
        return leaf(name, collectives.point_to_point, "s", "network", times=plan.offload_optimizer, **parts)

    def beside(name: str, compute: Any, communication: Any, slowdown: Any) -> Term:
        inputs = {"compute": compute, "communication": communication, "slowdown": slowdown}
        return leaf(name, overlap.exposed_after_overlap, "s", "network", times=plan.offload_optimizer, **inputs)

    out, back = copy("gradients to the host", wide), copy("weights from the host", job.precision.parameter_bytes)
    if job.offload_overlap:
        return [update, beside("copies beside the host's optimizer", update.value, np.maximum(out.value, back.value), 0.0)]
    if job.framework.offload_gradients_early:
        window = cluster.systems.gradient_window.value * backward
        out = beside(out.name, window, out.value, cluster.overlap_slowdown)
    return [out, update, back]


def activation_traffic(
    job: Job, cluster: Cluster, plan: Plan, s: Shapes, kind: Kind, first: Stage, forward: Any, backward: Any
) -> list[Term]:
    """Time that copies of a layer's activations add: to the host beside its forward pass, and back beside its backward pass."""
    if not np.any(plan.offload_activations > 0) or not kind.trained:
        return []
    saved = fold(layer_activations(job, plan, s, kind)) * (1.0 - plan.recompute_layers)
    moving = collectives.point_to_point(saved, host_link(cluster).value, 0.0)
    slowdown = cluster.overlap_slowdown

    def exposed(name: str, compute: Any) -> Term:
        inputs = {"compute": compute, "communication": moving, "slowdown": slowdown}
        share = offloaded_share(job, first) * plan.offload_activations
        return leaf(name, overlap.exposed_after_overlap, "s", "network", share, **inputs)

    return [exposed("activations to the host", forward), exposed("activations from the host", backward)]
