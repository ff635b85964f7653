"""Hidden states handed from one pipeline stage to the next: what one hand-over costs, and what of all of them shows in a step."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.pipeline.schedules import microbatch_group
from ironlaw.job import Job
from ironlaw.law import overlap
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf, total

BESIDE_CHUNKS, WARM_UP_AND_FLUSH = "beside chunks", "warm-up and flush"  # keys of terms that others look up


def hand_over(job: Job, cluster: Cluster, plan: Plan) -> Term:
    """One hand-over of a micro-batch's activations to the next stage: each tensor-parallel rank sends its share.

    Without sequence parallel every rank holds all of it: one share each goes over, and the receivers gather the rest
    (Narayanan et al., SC21, section 4.1).
    """
    size = plan.tokens * job.model.hidden_size * handed_over(job.model) * job.precision.activation_bytes
    hop = group_links.point_to_point(cluster, plan, "p2p", size / plan.tp, plan.pp, plan.gpus / plan.pp)
    gather = group_links.collective(cluster, plan, "gather the shares", "all_gather", plan.tp, size, 1.0)
    return total("hand-over", [hop, total("gather", [gather], times=np.where((plan.sp > 0) | (plan.tp == 1), 0.0, 1.0))])


def handed_over(model: Model) -> float:
    """Hidden states that a layer hands to the next: one, all residual streams, or all sums that later layers attend to."""
    if model.hc_mult:
        return float(model.hc_mult)
    return sources(model) if model.attn_res_block_size else 1.0


def sources(model: Model) -> float:
    """Sums that a block attends to, mean of the layers: the embedding, the groups of layers before, and the one under way."""
    groups = model.num_hidden_layers / model.attn_res_block_size
    return 2.0 + max(groups - 1.0, 0.0) / 2.0


def overlapped(plan: Plan) -> Any:
    """1 where hand-overs run beside computation: another chunk of an interleaved schedule is there to compute."""
    return plan.overlap_pp * (plan.vpp > 1)


def beside_chunks(plan: Plan, hop: Term, layers: Any, forward_share: Any) -> list[Term]:
    """The part of the overlapped hand-overs that takes longer than the chunk they overlap, forward and backward.

    Copies between two ranks take few channels, so computation beside them is not slowed.
    """
    times = np.where(plan.pp > 1, plan.vpp * overlapped(plan), 0.0)
    if not np.any(times > 0):
        return []
    parts = [
        leaf(f"longer than a chunk {direction}", overlap.exposed_after_overlap, "s", "network", times,
             compute=chunk, communication=hop.value, slowdown=0.0)
        for direction, chunk in zip(("forward", "backward"), _chunk(plan, layers, forward_share), strict=True)
    ]  # fmt: skip
    return [total("hand-overs beside chunks", parts, key=BESIDE_CHUNKS)]


def of_warm_up_and_flush(job: Job, plan: Plan, hop: Term, layers: Any, forward_share: Any) -> list[Term]:
    """Hand-overs of an interleaved schedule's warm-up and flush, which no pass in the other direction hides.

    Each rank runs all its chunks but one for a group of micro-batches before its first backward, and after its last forward
    (Megatron-LM, core/pipeline_parallel/schedules.py: without overlap_p2p_comm_warmup_flush).
    """
    passes = np.minimum((plan.vpp - 1.0) * microbatch_group(job, plan), plan.vpp * plan.num_microbatches)
    times = np.where(plan.pp > 1, passes * overlapped(plan), 0.0)
    if not np.any(times > 0):
        return []
    parts = [
        leaf(f"hand-overs of the {phase}", overlap.hidden, "s", "network", times, communication=hop.value, window=chunk)
        for phase, chunk in zip(("warm-up", "flush"), _chunk(plan, layers, forward_share), strict=True)
    ]
    return [total("pipeline fill and drain transfers", parts, key=WARM_UP_AND_FLUSH)]


def _chunk(plan: Plan, layers: Any, forward_share: Any) -> tuple[Any, Any]:
    """Computation of one chunk of layers: forward, and backward."""
    chunk = layers / plan.vpp
    return chunk * forward_share, chunk * (1.0 - forward_share)
