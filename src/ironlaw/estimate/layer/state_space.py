"""Layers that keep a state instead of attending: Mamba-2 and gated delta rule (linear attention).

Both project tokens to queries, keys, values and gates, convolve them over a few tokens, run a chunked scan whose cost
grows with the sequence and not with its square, and project back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate import wires
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.sizes import Shapes, elementwise, kernel
from ironlaw.job import Job
from ironlaw.law import flops, traffic
from ironlaw.plan import Plan
from ironlaw.terms import Term

CHUNK = 128.0  # tokens Mamba-2 handles as one matrix product (chunk_size of the published configs)
DELTA_CHUNK = 64.0  # tokens the gated delta rule handles as one (flash-linear-attention)
BACKWARD_FLOP = 2.0
MAMBA_BACKWARD_BYTES = 3.0  # of the forward bytes: states and scores computed again, then the gradients of x, B, C, states and scores
LAYOUT_KERNELS = {"mamba": (3.0, 3.0), "linear": (12.0, 14.0)}  # of convolution and gates: forward and backward
SCAN_KERNELS = {"mamba": (5.0, 14.0), "linear": (6.0, 11.0)}  # forward and backward


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


def convolution(cluster: Cluster, job: Job, s: Shapes, kind: Kind, ratio: float, backward: bool) -> Term:
    """The short convolution, its activation, the gates, and the copies into the scan's layout."""
    share, launched = s.heads / job.model.num_attention_heads, LAYOUT_KERNELS[kind.mixer][1 if backward else 0]
    if kind.mixer == "mamba":  # fused: each tensor read and written
        _, mixed, out = widths(job, kind)
        return elementwise(cluster, "convolution and gates", ratio * 2.0 * share * s.tokens * (3.0 * mixed + 4.0 * out), launched)
    moved = job.precision.activation_bytes * share * s.tokens * delta_layout(job, backward)
    return elementwise(cluster, "convolution and gates", moved, launched)


def launched(kind: Kind) -> float:
    """Kernels the forward of a layer launches for its state."""
    return LAYOUT_KERNELS[kind.mixer][0] + SCAN_KERNELS[kind.mixer][0] if kind.mixer in SCAN_KERNELS else 0.0


def delta_layout(job: Job, backward: bool) -> float:
    """Elements a gated-delta layer reads and writes for a token between its projections and its scan.

    Counted in Megatron Core's ssm/gated_delta_net.py. Forward, read and written each: all convolved columns transposed and convolved;
    queries and keys made contiguous and normalised, then read once and written for every value head; values and gate made contiguous;
    the norm of the output, and its product with the gate (two reads). Backward the same steps: a convolution reads its input and a
    gradient, a norm likewise, the gate's product reads three and writes two.
    """
    m = job.model
    keys, values = float(m.linear_num_key_heads * m.linear_key_head_dim), float(m.linear_num_value_heads * m.linear_value_head_dim)
    mixed, copied = 2.0 * keys + values, (10.0 if backward else 8.0) * keys  # both, without what repeats them for the value heads
    if m.linear_num_value_heads > m.linear_num_key_heads:
        copied += 2.0 * keys + 2.0 * m.linear_num_value_heads * m.linear_key_head_dim
    return 5.0 * mixed + copied + 12.0 * values if backward else 4.0 * mixed + copied + 9.0 * values


def scan(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind, backward: bool) -> list[Term]:
    """The chunked scan of the state; nothing for a layer without a mixer."""
    if kind.mixer == "none":
        return []
    m, share = job.model, s.heads / job.model.num_attention_heads
    length, e = plan.seq_len / plan.cp, job.precision.activation_bytes  # context ranks scan whole sequences for their share of heads
    if kind.mixer == "mamba":
        groups = np.maximum(m.mamba_n_groups * share, 1.0)
        shape = (plan.micro_batch_size, length, m.mamba_num_heads * share, float(m.mamba_head_dim), float(m.ssm_state_size), CHUNK, groups)
        flop, moved = flops.mamba_scan(*shape), traffic.mamba_scan(*shape, e) * (MAMBA_BACKWARD_BYTES if backward else 1.0)
    else:
        heads = m.linear_num_value_heads * share
        size = (plan.micro_batch_size, length, heads, float(m.linear_key_head_dim), float(m.linear_value_head_dim), DELTA_CHUNK)
        flop = flops.delta_rule_scan(*size)
        moved = traffic.delta_rule_scan_backward(*size, e) if backward else traffic.delta_rule_scan(*size, e)
    wide, launches = job.precision.wide, SCAN_KERNELS[kind.mixer][1 if backward else 0]
    return [kernel(cluster, "state scan", flop * (BACKWARD_FLOP if backward else 1.0), moved, wide, cluster.gemm(wide), launches=launches)]


def exchange(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """Context parallel: send the scan's inputs out by heads, and its output back by tokens."""
    _, mixed, out = widths(job, kind)
    share = s.heads / job.model.num_attention_heads
    size = (mixed + 2.0 * out) * share * s.tokens * job.precision.activation_bytes
    return wires.all_to_all(cluster, plan, "heads for tokens", plan.cp, size, plan.tp)
