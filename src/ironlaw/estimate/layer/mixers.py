"""The table of mixers, and two of those that scan a state: Mamba-2 and the gated delta rule (linear attention)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.layer.attention import Attention
from ironlaw.estimate.layer.compressed import CompressedAttention
from ironlaw.estimate.layer.mixer import Mixer
from ironlaw.estimate.layer.scans import KimiDelta, Lightning, Mamba1, ShortConvolution
from ironlaw.estimate.layer.sources import CrossAttention, OuterProducts
from ironlaw.estimate.layer.state_mixer import StateMixer
from ironlaw.job import Job
from ironlaw.law import flops, mixers, traffic
from ironlaw.plan import Plan

CHUNK = 128.0  # tokens Mamba-2 handles as one matrix product (chunk_size of the published configs)
DELTA_CHUNK = 64.0  # tokens the gated delta rule handles as one (flash-linear-attention)
MAMBA_BACKWARD_BYTES = 3.0  # of the forward bytes: states and scores computed again, then the gradients of x, B, C, states and scores


class Mamba(StateMixer):
    """Mamba-2. Its convolution and gates are fused: each tensor is read and written once."""

    name, prefix, graph_module = "mamba", "mamba ", "mamba"
    layout_kernels, scan_kernels = (3.0, 3.0), (5.0, 14.0)
    sizes = ("hidden_size", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "mamba_n_groups", "conv_kernel")

    def parameters(self, model: Model) -> Any:
        """Count the projections, the convolution, the parameters of each head, and the gated norm."""
        return mixers.mamba(*(getattr(model, size) for size in self.sizes))

    def matmul(self, model: Model) -> Any:
        """Count the projections."""
        return mixers.mamba_matmul(*(getattr(model, size) for size in self.sizes[:-1]))

    def widths(self, model: Model) -> tuple[float, float, float]:
        """Return the columns of (gate, x, B, C and steps; x, B and C; the heads)."""
        inner = float(model.mamba_num_heads * model.mamba_head_dim)
        mixed = inner + 2.0 * model.mamba_n_groups * model.ssm_state_size
        return inner + mixed + model.mamba_num_heads, mixed, inner

    def moved(self, job: Job, ratio: float, backward: bool) -> tuple[float, float]:
        """Return the bytes of an element, and the elements of all convolved columns and the gate."""
        _, mixed, out = self.widths(job.model)
        return ratio * 2.0, 3.0 * mixed + 4.0 * out

    def scan(self, job: Job, plan: Plan, share: Any, backward: bool) -> tuple[Any, Any]:
        """Count chunks as matrix products, and the states between chunks."""
        m = job.model
        heads, groups = m.mamba_num_heads * share, np.maximum(m.mamba_n_groups * share, 1.0)
        size = (plan.micro_batch_size, plan.seq_len / plan.cp, heads, float(m.mamba_head_dim), float(m.ssm_state_size), CHUNK, groups)
        moved = traffic.mamba_scan(*size, job.precision.activation_bytes)
        return flops.mamba_scan(*size), moved * (MAMBA_BACKWARD_BYTES if backward else 1.0)


class LinearAttention(StateMixer):
    """The gated delta rule."""

    name, prefix = "linear", "linear-attention "
    layout_kernels, scan_kernels = (12.0, 14.0), (6.0, 11.0)
    sizes = (
        "hidden_size",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )

    def parameters(self, model: Model) -> Any:
        """Count the projections, the convolution, the parameters of each head, and the gated norm."""
        return mixers.linear_attention(*(getattr(model, size) for size in self.sizes))

    def matmul(self, model: Model) -> Any:
        """Count the projections."""
        return mixers.linear_attention_matmul(*(getattr(model, size) for size in self.sizes[:-1]))

    def widths(self, model: Model) -> tuple[float, float, float]:
        """Return the columns of (queries, keys, values, gate, beta and decay; queries, keys and values; values)."""
        keys, values = _keys_and_values(model)
        return 2.0 * keys + 2.0 * values + 2.0 * model.linear_num_value_heads, 2.0 * keys + values, values

    def moved(self, job: Job, ratio: float, backward: bool) -> tuple[float, float]:
        """Elements a layer reads and writes for a token between its projections and its scan.

        Counted in Megatron Core's ssm/gated_delta_net.py. Forward, read and written each: all convolved columns transposed and convolved;
        queries and keys made contiguous and normalised, then read once and written for every value head; values and gate made contiguous;
        the norm of the output, and its product with the gate (two reads). Backward the same steps: a convolution reads its input and a
        gradient, a norm likewise, the gate's product reads three and writes two.
        """
        m = job.model
        keys, values = _keys_and_values(m)
        mixed, copied = 2.0 * keys + values, (10.0 if backward else 8.0) * keys  # both, without what repeats them for the value heads
        if m.linear_num_value_heads > m.linear_num_key_heads:
            copied += 2.0 * keys + 2.0 * m.linear_num_value_heads * m.linear_key_head_dim
        elements = 5.0 * mixed + copied + 12.0 * values if backward else 4.0 * mixed + copied + 9.0 * values
        return job.precision.activation_bytes, elements

    def scan(self, job: Job, plan: Plan, share: Any, backward: bool) -> tuple[Any, Any]:
        """Count chunks as matrix products, and the states between chunks."""
        m = job.model
        heads, dims = m.linear_num_value_heads * share, (float(m.linear_key_head_dim), float(m.linear_value_head_dim))
        size, e = (plan.micro_batch_size, plan.seq_len / plan.cp, heads, *dims, DELTA_CHUNK), job.precision.activation_bytes
        return flops.delta_rule_scan(*size), traffic.delta_rule_scan_backward(*size, e) if backward else traffic.delta_rule_scan(*size, e)


def _keys_and_values(model: Model) -> tuple[float, float]:
    """Columns of all keys, and of all values, of a gated delta rule."""
    keys = float(model.linear_num_key_heads * model.linear_key_head_dim)
    return keys, float(model.linear_num_value_heads * model.linear_value_head_dim)


_ATTENDING = (Attention(), CompressedAttention(), CrossAttention())
_SCANNING = (LinearAttention(), KimiDelta(), Lightning(), Mamba(), Mamba1(), ShortConvolution())
MIXERS = {row.name: row for row in (*_ATTENDING, *_SCANNING, OuterProducts(), Mixer())}
