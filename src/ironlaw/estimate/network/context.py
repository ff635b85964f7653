"""Context parallelism: what ranks that share a sequence send each other for attention, its exposed time, and its memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer.context_methods import method_of
from ironlaw.estimate.layer.kinds import Kind, kinds
from ironlaw.estimate.layer.sequence import head_ranks, sequence_ranks
from ironlaw.estimate.layer.sizes import Shapes, once_for_sizes
from ironlaw.estimate.network.sharding import Overlapped, Waits, exposed
from ironlaw.job import Job
from ironlaw.law import activations
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold, leaf, total


def context_parallel(job: Job, cluster: Cluster, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """Time that context parallelism adds to a layer.

    Passes round a ring run beside attention and add what it does not hide; exchanged heads and gathered keys are waited for.
    Attention that is recomputed needs its keys and values, or its heads, a second time.
    """
    if not np.any(plan.cp > 1):
        return total("context parallel", [])
    active = np.where(plan.cp > 1, 1.0, 0.0)
    trained = float(kind.trained)
    if kind.mixer.exchanges:  # a scan needs whole sequences: heads are exchanged for tokens and back
        exchange = kind.mixer.exchange(cluster, job, plan, s)
        times = active * (1.0 + (1.0 + plan.recompute_layers) * trained)
        return total("context parallel", [total("heads for tokens and back", [exchange], times=times)])
    recomputed = trained * recomputed_cores(plan)
    parts, method = [], method_of(job)
    if method.trades_heads:  # nothing to hide behind: attention waits for its heads
        times = active * (1.0 + trained + recomputed)
        parts.append(total("heads for tokens and back", [exchange_heads(cluster, job, plan, s)], times=times))
    if method.passes_blocks:
        for direction, times in (("forward", active * (1.0 + recomputed)), ("backward", active * trained)):
            core = fold(kind.mixer.core(cluster, job, plan, s, direction == "backward"))
            passed = ring(cluster, job, plan, s, direction == "backward").value
            parts.append(exposed(cluster, f"exposed ring, {direction}", core, passed, times, Overlapped("context", (direction,))))
    if method.gathers_keys:  # attention waits for all keys; backward gathers them anew, and adds up their gradients
        gather, scatter = gather_keys(cluster, job, plan, s)
        parts.append(total("keys and values gathered", [gather], times=active * (1.0 + trained + recomputed)))
        parts.append(total("gradients of keys and values scattered", [scatter], times=active * trained))
    return total("context parallel", parts)


def recomputed_cores(plan: Plan) -> Any:
    """Share of the layers whose attention core runs again in the backward pass."""
    return plan.recompute_layers + (1.0 - plan.recompute_layers) * plan.recompute_attention


def ring_waits(plan: Plan, kind: Kind, term: Term) -> Waits:
    """The waits for a ring within the time that context parallelism adds to a layer, by pass."""
    by_direction = {part.key.collectives[0]: part.value for part in term.parts if isinstance(part.key, Overlapped)}
    ahead, behind = by_direction.get("forward", 0.0), by_direction.get("backward", 0.0)
    once = ahead / (1.0 + float(kind.trained) * recomputed_cores(plan))
    return Waits(forward=once, backward=ahead - once + behind)


@once_for_sizes
def exchange_heads(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> Term:
    """Queries, keys and values sent out by heads, and the output sent back; backward their gradients, as many bytes."""
    size = (2.0 * s.heads + 2.0 * s.kv_heads) * s.head_dim * s.tokens * job.precision.activation_bytes
    return group_links.all_to_all(cluster, plan, "heads for tokens", head_ranks(job, plan), size, plan.tp)


@once_for_sizes
def ring(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> Term:
    """Keys and values passed round the ranks that hold different tokens; backward also their gradients.

    Where ranks have traded heads for tokens a block has more tokens of fewer heads, and is as large.
    """
    block = key_value_bytes(job, s) * (2.0 if backward else 1.0)
    return group_links.ring_pass(cluster, plan, "keys and values round the ring", sequence_ranks(job, plan), block, _stride(job, plan))


@once_for_sizes
def gather_keys(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> tuple[Term, Term]:
    """All keys and values gathered on every rank, and their gradients scattered to the ranks that own them."""
    size, n = key_value_bytes(job, s) * plan.cp, plan.cp
    gather = group_links.collective(cluster, plan, "keys and values to all", "all_gather", n, size, plan.tp)
    return gather, group_links.collective(cluster, plan, "gradients to their owners", "reduce_scatter", n, size, plan.tp)


def key_value_bytes(job: Job, s: Shapes) -> Any:
    """Bytes of the keys and values of one rank's tokens."""
    return 2.0 * s.kv_heads * s.head_dim * s.tokens * job.precision.activation_bytes


def _stride(job: Job, plan: Plan) -> Any:
    return plan.tp * head_ranks(job, plan) if method_of(job).has_two_levels else plan.tp


def attention_buffers(job: Job, plan: Plan, s: Shapes) -> list[Term]:
    """Buffers of one layer's attention for keys and values of other ranks, while the layer runs.

    With all-to-all a rank has as many bytes as before, in another order.
    """
    method = method_of(job)
    attends = any(kind.mixer.attends for kind in kinds(job.model))
    if not attends or not np.any(plan.cp > 1) or not (method.passes_blocks or method.gathers_keys):
        return []
    shape = {
        "tokens": s.tokens,
        "n": sequence_ranks(job, plan),
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "bytes_per_element": job.precision.activation_bytes,
    }
    if method.gathers_keys:
        buffer = leaf("keys, values and their gradients of all ranks", activations.gathered_attention, "B", **shape)
    else:
        buffer = leaf("keys, values and partial outputs of the ring", activations.ring_attention, "B", num_attention_heads=s.heads, **shape)
    return [total("attention over context ranks", [buffer], times=np.where(plan.cp > 1, 1.0, 0.0))]
