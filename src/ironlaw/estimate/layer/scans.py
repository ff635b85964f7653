"""Mixers that scan a state: Kimi Delta Attention, lightning attention (MiniMax-01) and Mamba-1. The base has what they share."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.mixer import Products
from ironlaw.estimate.layer.sizes import Shapes, kernel
from ironlaw.estimate.layer.state_mixer import StateMixer
from ironlaw.job import Job
from ironlaw.law import activations, mixers, scans
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf

KDA_CHUNK = 64.0  # tokens that Kimi Delta Attention handles as one (flash-linear-attention, fla/ops/kda)
LIGHTNING_BLOCK = 256.0  # tokens of a block of lightning attention (BLOCK of MiniMax-Text-01's modeling code)
DELTA_BACKWARD_BYTES, LIGHTNING_BACKWARD_BYTES = 2.5, 2.5  # of the forward bytes; assumed, as the gated delta rule's are 2.25
SELECTIVE_BACKWARD_FLOP = 3.0  # the states again, and the gradients of the input and of the decays
SELECTIVE_BACKWARD_BYTES = 2.0  # x, steps, gate, output and its gradient read, three gradients written: 8 tensors to the forward's 4


class KimiDelta(StateMixer):
    """Kimi Delta Attention: the gated delta rule with a decay for each channel."""

    name, prefix = "kda", "Kimi-Delta "
    assumed = "kernels of flash-linear-attention, chunks of 64; backward moves 2.5 times the bytes of forward"
    layout_kernels, scan_kernels = (8.0, 10.0), (6.0, 11.0)

    def parameters(self, model: Model) -> Any:
        """Count the projections, the convolutions, the parameters of each head and channel, and the gated norm."""
        return mixers.kimi_delta(*_delta_sizes(model), model.linear_conv_kernel_dim, model.linear_gate_rank)

    def matmul(self, model: Model) -> Any:
        """Count the projections."""
        return mixers.kimi_delta_matmul(*_delta_sizes(model), model.linear_gate_rank)

    def replicated(self, model: Model) -> tuple[Any, ...]:
        """Count the projections to the latents of decays and gate, and the norm that heads share."""
        return (self.replicated_linear(model), model.linear_key_head_dim)

    def replicated_linear(self, model: Model) -> float:
        """Count the projections to the latents of decays and gate."""
        return float(model.hidden_size * (model.linear_key_head_dim + model.linear_gate_rank))

    def widths(self, model: Model) -> tuple[float, float, float]:
        """Return the columns of (queries, keys, values, gate and steps; convolved ones, and decays in fp32 as two; values)."""
        inner = _inner(model)
        return 4.0 * inner + model.linear_num_value_heads, 5.0 * inner, inner

    def products(self, job: Job, s: Shapes) -> Products:
        """List the projections: of heads, of the latents that every rank has, and from these."""
        m, share = job.model, s.heads / job.model.num_attention_heads
        inner, heads, rank = _inner(m) * share, m.linear_num_value_heads * share, float(m.linear_gate_rank)
        ranks = {"gate up": (s.tokens, inner, rank)} if rank else {}
        return {
            "state in": (s.tokens, (3.0 if rank else 4.0) * inner + heads, s.hidden),
            "decay and gate down": (s.tokens, m.linear_key_head_dim + rank, s.hidden),
            "decay up": (s.tokens, inner, float(m.linear_key_head_dim)),
            **ranks,
            "state out": (s.tokens, s.hidden, inner),
        }

    def moved(self, job: Job, ratio: float, backward: bool) -> tuple[float, float]:
        """Elements that a layer reads and writes for a token between its projections and its scan.

        Counted in flash-linear-attention, fla/layers/kda.py, for each channel. Forward: q, k and v convolved (6), q and k normalised (4),
        decays made in fp32 and summed along a chunk (7), the norm of the output with its gate (3). Backward: the convolutions read a
        gradient too (9), as the norms do (6), decays (8), the gated norm reads three and writes two (5).
        """
        return job.precision.activation_bytes, (28.0 if backward else 20.0) * _inner(job.model)

    def scan(self, job: Job, plan: Plan, share: Any, backward: bool) -> tuple[Any, Any]:
        """Count chunks as matrix products, and the states between chunks."""
        m = job.model
        size = (plan.micro_batch_size, plan.seq_len / plan.cp, m.linear_num_value_heads * share, float(m.linear_key_head_dim), KDA_CHUNK)
        moved = scans.kimi_delta_traffic(*size, job.precision.activation_bytes)
        return scans.kimi_delta_scan(*size), moved * (DELTA_BACKWARD_BYTES if backward else 1.0)


class Lightning(StateMixer):
    """Lightning attention: linear attention with a fixed decay for each head, in blocks."""

    name, prefix = "lightning", "lightning-attention "
    assumed = "Lightning Attention-2 in blocks of 256; backward moves 2.5 times the bytes of forward"
    layout_kernels, scan_kernels = (5.0, 7.0), (2.0, 4.0)

    def parameters(self, model: Model) -> Any:
        """Count the projections and the norm of all heads."""
        return mixers.lightning(*_delta_sizes(model))

    def matmul(self, model: Model) -> Any:
        """Count the projections."""
        return self.parameters(model) - _inner(model)

    def widths(self, model: Model) -> tuple[float, float, float]:
        """Return the columns of (queries, keys, values and gate; queries, keys and values behind their activation; values)."""
        inner = _inner(model)
        return 4.0 * inner, 3.0 * inner, inner

    def moved(self, job: Job, ratio: float, backward: bool) -> tuple[float, float]:
        """Elements read and written for a token and channel: the activation of q, k and v (6), the output's norm (2) and gate (3)."""
        return job.precision.activation_bytes, (17.0 if backward else 11.0) * _inner(job.model)

    def scan(self, job: Job, plan: Plan, share: Any, backward: bool) -> tuple[Any, Any]:
        """Count blocks as matrix products, and the states between blocks."""
        m, length = job.model, plan.seq_len / plan.cp
        size = (plan.micro_batch_size, length, m.linear_num_value_heads * share, float(m.linear_key_head_dim), LIGHTNING_BLOCK)
        moved = scans.lightning_traffic(*size, job.precision.activation_bytes)
        return scans.lightning_scan(*size), moved * (LIGHTNING_BACKWARD_BYTES if backward else 1.0)


class ShortConvolution(StateMixer):
    """The gated short convolution of LFM2: no state but the last few tokens, which context ranks would trade in no time."""

    name, prefix, graph_module = "conv", "convolution ", "attn"
    assumed = "two gates and a convolution of one kernel each; tokens traded between context ranks take no time"
    layout_kernels, scan_kernels = (3.0, 4.0), (0.0, 0.0)
    exchanges = False

    def parameters(self, model: Model) -> Any:
        """Count the projections and the filters."""
        return mixers.short_convolution(model.hidden_size, model.conv_kernel)

    def matmul(self, model: Model) -> Any:
        """Count the projections."""
        return 4.0 * float(model.hidden_size) ** 2

    def widths(self, model: Model) -> tuple[float, float, float]:
        """Return the columns of (two gates and x; x behind its gate; the output)."""
        return 3.0 * model.hidden_size, float(model.hidden_size), float(model.hidden_size)

    def moved(self, job: Job, ratio: float, backward: bool) -> tuple[float, float]:
        """Elements read and written for a token and channel: a gate before (3) and behind (3), the convolution (2).

        Backward a gate reads three and writes two (5), the convolution reads its input and a gradient (3).
        """
        return job.precision.activation_bytes, (13.0 if backward else 8.0) * job.model.hidden_size

    def core(self, cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> list[Term]:
        """Scan nothing."""
        return []


class Mamba1(StateMixer):
    """Mamba-1: the selective scan, one fused kernel on vector units. Ranks split its channels."""

    name, prefix, graph_module = "mamba_1", "mamba-1 ", "mamba"
    assumed = "the fused selective scan on vector units at the efficiency of matrix products; ranks split channels"
    layout_kernels, scan_kernels = (2.0, 2.0), (1.0, 1.0)
    sizes = ("hidden_size", "mamba_intermediate_size", "ssm_state_size", "time_step_rank")

    def parameters(self, model: Model) -> Any:
        """Count the projections, the convolution, and the parameters of each channel."""
        sizes = (*(getattr(model, size) for size in self.sizes), model.conv_kernel, float(model.mamba_norms))
        return mixers.mamba_1(*sizes)

    def matmul(self, model: Model) -> Any:
        """Count the projections."""
        return mixers.mamba_1_matmul(*(getattr(model, size) for size in self.sizes))

    def replicated(self, model: Model) -> tuple[Any, ...]:
        """Count the norms of steps, B and C."""
        return (float(model.mamba_norms) * _steps(model),)

    def widths(self, model: Model) -> tuple[float, float, float]:
        """Return the columns of (x and gate; x; the output)."""
        inner = float(model.mamba_intermediate_size)
        return 2.0 * inner, inner, inner

    def products(self, job: Job, s: Shapes) -> Products:
        """List the projections: to x and gate, to steps, B and C, of the steps, and back. Ranks sum the narrow second one."""
        m, share = job.model, s.heads / job.model.num_attention_heads
        inner = m.mamba_intermediate_size * share
        return {
            "state in": (s.tokens, 2.0 * inner, s.hidden),
            "steps, B and C": (s.tokens, _steps(m), inner),
            "steps": (s.tokens, inner, float(m.time_step_rank)),
            "state out": (s.tokens, s.hidden, inner),
        }

    def moved(self, job: Job, ratio: float, backward: bool) -> tuple[float, float]:
        """Elements read and written for a token: the convolution and its activation, fused; backward they also read a gradient."""
        return ratio * 2.0, (3.0 if backward else 2.0) * job.model.mamba_intermediate_size

    def scan(self, job: Job, plan: Plan, share: Any, backward: bool) -> tuple[Any, Any]:
        """Count every state of every channel and token."""
        m = job.model
        size = (plan.micro_batch_size, plan.seq_len / plan.cp, m.mamba_intermediate_size * share, float(m.ssm_state_size))
        moved = scans.selective_traffic(*size, job.precision.activation_bytes)
        return scans.selective_scan(*size), moved * (SELECTIVE_BACKWARD_BYTES if backward else 1.0)

    def core(self, cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> list[Term]:
        """Time the selective scan on vector units, whose rate in fp32 stands in the record of the accelerator."""
        flop, moved = self.scan(job, plan, s.heads / job.model.num_attention_heads, backward)
        flop, wide = flop * (SELECTIVE_BACKWARD_FLOP if backward else 1.0), job.precision.wide
        vector = "fp32" if "fp32" in cluster.accelerator.peak else wide
        launches = self.scan_kernels[1 if backward else 0]
        return [kernel(cluster, "selective scan", flop, moved, vector, cluster.gemm(wide), launches=launches)]

    def activations(self, job: Job, plan: Plan, s: Shapes, cast_share: float, core_kept: Any) -> list[Term]:
        """List x and the gate, steps, B and C, and the scan's output; the fused function computes the rest again.

        mamba_ssm/ops/selective_scan_interface.py, MambaInnerFn with checkpoint_lvl 1 saves these.
        """
        m, e = job.model, job.precision.activation_bytes
        width = 3.0 * m.mamba_intermediate_size * (s.heads / m.num_attention_heads) + _steps(m)
        return [leaf("attention", activations.mlp, "B", tokens=s.tokens, intermediate_size=width, saved=1.0, tp=1.0, bytes_per_element=e)]


def _delta_sizes(model: Model) -> tuple[int, int, int]:
    return model.hidden_size, model.linear_num_value_heads, model.linear_key_head_dim


def _inner(model: Model) -> float:
    """Channels of all heads."""
    return float(model.linear_num_value_heads * model.linear_key_head_dim)


def _steps(model: Model) -> float:
    """Columns of steps, B and C of Mamba-1."""
    return float(np.float64(model.time_step_rank + 2 * model.ssm_state_size))
