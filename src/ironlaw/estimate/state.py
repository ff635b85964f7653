"""Layers that keep a state instead of attending: Mamba-2 and gated delta rule (linear attention).

Both project tokens to queries, keys, values and gates, convolve them over a few tokens, run a chunked scan whose cost
grows with the sequence and not with its square, and project back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate import tiers
from ironlaw.estimate.kinds import Kind
from ironlaw.estimate.parts import Shapes, elementwise, kernel
from ironlaw.law import flops
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.terms import Term

CHUNK = 128.0  # tokens Mamba-2 handles as one matrix product (chunk_size of the published configs)
DELTA_CHUNK = 64.0  # and the gated delta rule (flash-linear-attention)
BACKWARD_FLOP = 2.0


def widths(job: Job, kind: Kind) -> tuple[float, float, float]:
    """(columns of the input projection, columns convolved, columns of the output projection's input)."""
    m = job.model
    if kind.mixer == "mamba":
        inner = float(m.mamba_num_heads * m.mamba_head_dim)
        mixed = inner + 2.0 * m.mamba_n_groups * m.ssm_state_size
        return inner + mixed + m.mamba_num_heads, mixed, inner
    keys = float(m.linear_num_key_heads * m.linear_key_head_dim)
    values = float(m.linear_num_value_heads * m.linear_value_head_dim)
    return 2.0 * keys + 2.0 * values + 2.0 * m.linear_num_value_heads, 2.0 * keys + values, values


def shapes(job: Job, s: Shapes, kind: Kind) -> dict[str, tuple[Any, Any, Any]]:
    """The two projections, sharded by heads: (m, n, k)."""
    into, _, out = widths(job, kind)
    share = s.heads / job.model.num_attention_heads
    return {"state in": (s.tokens, into * share, s.hidden), "state out": (s.tokens, s.hidden, out * share)}


def convolution(cluster: Cluster, job: Job, s: Shapes, kind: Kind, ratio: float) -> Term:
    """The short convolution, its activation and the gates: each tensor read and written."""
    _, mixed, out = widths(job, kind)
    share = s.heads / job.model.num_attention_heads
    return elementwise(cluster, "convolution and gates", ratio * 2.0 * share * s.tokens * (3.0 * mixed + 4.0 * out), 3.0)


def scan(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind, backward: bool) -> list[Term]:
    """The chunked scan of the state; nothing for a layer without a mixer."""
    if kind.mixer == "none":
        return []
    m, share = job.model, s.heads / job.model.num_attention_heads
    length = plan.seq_len / plan.cp  # every context rank scans whole sequences for its share of the heads
    if kind.mixer == "mamba":
        groups = np.maximum(m.mamba_n_groups * share, 1.0)
        heads = m.mamba_num_heads * share
        flop = flops.mamba_scan(plan.micro_batch_size, length, heads, float(m.mamba_head_dim), float(m.ssm_state_size), CHUNK, groups)
    else:
        heads = m.linear_num_value_heads * share
        flop = flops.delta_rule_scan(
            plan.micro_batch_size, length, heads, float(m.linear_key_head_dim), float(m.linear_value_head_dim), DELTA_CHUNK
        )
    into, _, out = widths(job, kind)
    moved = job.precision.activation_bytes * share * s.tokens * (into + 2.0 * out)
    if backward:
        flop, moved = flop * BACKWARD_FLOP, moved * BACKWARD_FLOP
    wide = job.precision.wide
    return [kernel(cluster, "state scan", flop, moved, wide, cluster.gemm(wide))]


def exchange(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """Context parallel: the scan's inputs go out by heads and its output comes back by tokens."""
    _, mixed, out = widths(job, kind)
    share = s.heads / job.model.num_attention_heads
    size = (mixed + 2.0 * out) * share * s.tokens * job.precision.activation_bytes
    return tiers.all_to_all(cluster, plan, "heads for tokens", plan.cp, size, plan.tp)
