"""Gradients of a step's micro-batches, summed: inside the product that makes them, or in a pass over them behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.sizes import elementwise
from ironlaw.job import Job
from ironlaw.law import traffic
from ironlaw.plan import Plan
from ironlaw.terms import Term


def written(job: Job) -> float:
    """Bytes that a weight gradient's product moves for each weight: read and written where it adds to the stored sum, else written."""
    return 2.0 * job.framework.gradient_bytes.value if job.framework.fused_wgrad else job.precision.activation_bytes


def accumulation(cluster: Cluster, job: Job, plan: Plan, common: Any, routed: Any = 0.0, fused: bool = True) -> Term:
    """Time to add the gradients of one micro-batch to the sum of the earlier ones, of ``common`` and ``routed`` parameters.

    Whole gradients are summed in the type they are reduced in; with ZeRO 2 and 3 a rank adds what it receives to its shard.
    ``fused``: a matrix product computes them, and may add them itself.
    """
    moved = _added(job, plan, common / plan.tp, plan.shard_ranks, fused)
    if not np.all(np.equal(routed, 0.0)):
        moved = moved + _added(job, plan, routed / plan.expert_ways, plan.expert_shard_ranks, fused)
    summed = (moved > 0.0) * (1.0 - 1.0 / plan.num_microbatches)  # the first micro-batch finds nothing to add to
    return elementwise(cluster, "gradient accumulation", moved, times=summed)


def _added(job: Job, plan: Plan, parameters: Any, ranks: Any, fused: bool) -> Any:
    """Bytes moved to add the gradients of ``parameters``, sharded over ``ranks`` where ZeRO scatters them; none inside a product."""
    f = job.framework
    reduced, stored = f.gradient_reduce_bytes.value, f.gradient_bytes.value
    bytes_moved = 0.0 if fused and f.fused_wgrad else traffic.accumulation(parameters, job.precision.activation_bytes, reduced)
    return np.where((plan.zero >= 2) & (ranks > 1.0), traffic.accumulation(parameters / ranks, reduced, stored), bytes_moved)
