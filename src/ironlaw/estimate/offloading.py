"""What is held in host memory, and what moving it over PCIe or a chip-to-chip link costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import CatalogError
from ironlaw.estimate.kinds import Kind
from ironlaw.estimate.parts import Shapes
from ironlaw.estimate.saved import saved_per_layer
from ironlaw.estimate.stages import Pace, Stage, offloaded_share
from ironlaw.estimate.trained import stage_trained
from ironlaw.law import collectives, overlap, states
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.terms import Term, fold, leaf


def host_link(cluster: Cluster) -> Sourced:
    """What joins an accelerator to its host's memory: a chip-to-chip link where it has one, else PCIe."""
    link = cluster.accelerator.c2c_bandwidth or cluster.accelerator.pcie_bandwidth
    if link is None:
        raise CatalogError(f"accelerator {cluster.accelerator.name} has neither c2c_bandwidth nor pcie_bandwidth, which offload needs")
    return link


def optimizer_traffic(job: Job, cluster: Cluster, plan: Plan, pace: Pace) -> list[Term]:
    """Once a step: gradients out, the host's update, updated weights back; one after the other."""
    if not np.any(plan.offload_optimizer > 0):
        return []

    def local(stage: Stage) -> Any:
        common, routed = stage_trained(job, stage)
        own = common / plan.tp / states.zero_shards(1.0, plan.zero, plan.shard_ranks)
        return own + routed / plan.expert_ways / states.zero_shards(1.0, plan.zero, plan.expert_shard_ranks)

    held = pace.of(local)
    moved = held * (job.framework.gradient_bytes.value + job.precision.parameter_bytes)
    return [
        leaf(
            "optimizer states to the host",
            collectives.point_to_point,
            "s",
            "network",
            times=plan.offload_optimizer,
            size=moved,
            bandwidth=host_link(cluster),
            latency=0.0,
        ),
        leaf(
            "optimizer in the host",
            states.host_update,
            "s",
            "dispatch",
            times=plan.offload_optimizer,
            parameters=held,
            accelerators=cluster.node.accelerators,
            host_rate=cluster.systems.host_update_rate,
        ),
    ]


def activation_traffic(
    job: Job, cluster: Cluster, plan: Plan, s: Shapes, kind: Kind, first: Stage, forward: Any, backward: Any
) -> list[Term]:
    """A layer's saved activations out beside its forward and back beside its backward: what that adds to them."""
    if not np.any(plan.offload_activations > 0) or not kind.trained:
        return []
    saved = fold(saved_per_layer(job, plan, s, kind)) * (1.0 - plan.recompute_layers)
    moving = collectives.point_to_point(saved, host_link(cluster).value, 0.0)
    slowdown = cluster.overlap_slowdown

    def exposed(name: str, compute: Any) -> Term:
        inputs = {"compute": compute, "communication": moving, "slowdown": slowdown}
        share = offloaded_share(job, first) * plan.offload_activations
        return leaf(name, overlap.exposed_after_overlap, "s", "network", share, **inputs)

    return [exposed("activations to the host", forward), exposed("activations from the host", backward)]
