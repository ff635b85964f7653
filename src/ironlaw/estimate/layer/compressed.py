"""Compressed attention (DeepSeek-V4): a window of tokens and compressed entries, one key-value head, a grouped low-rank output.

Tensor-parallel ranks split query heads and groups of the output; each has the whole latents, key-value head, compressor and indexer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.attention import Attention, flash
from ironlaw.estimate.layer.mixer import Products
from ironlaw.estimate.layer.sizes import Shapes, elementwise
from ironlaw.job import Job
from ironlaw.law import activations, compressed, parameters
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf

_SIZES = ("hidden_size", "num_attention_heads", "head_dim", "q_lora_rank", "o_groups", "o_lora_rank")
_INDEXER = ("hidden_size", "q_lora_rank", "index_n_heads", "index_head_dim", "compress_ratio")


class CompressedAttention(Attention):
    """A window and compressed entries; an indexer may pick entries. Always one fused kernel."""

    name, prefix = "compressed", "compressed-attention "
    windowed = True
    assumed = "one fused kernel over window and entries at the rate of flash attention; entries made by one kernel"

    def parameters(self, model: Model) -> Any:
        """Count projections, norms, sinks, compressor and indexer."""
        return compressed.attention(*(getattr(model, size) for size in _SIZES)) + _compressing(model)

    def matmul(self, model: Model) -> Any:
        """Count the projections, those of compressor and indexer included."""
        return compressed.attention_matmul(*(getattr(model, size) for size in _SIZES)) + _compressing_matmul(model)

    def replicated(self, model: Model) -> tuple[Any, ...]:
        """Count the projections to latents with their norms, the compressor and the indexer."""
        return ((model.hidden_size + 1.0) * (model.q_lora_rank + model.head_dim), _compressing(model))

    def replicated_linear(self, model: Model) -> float:
        """Count the projections to latents, of the compressor and of the indexer."""
        return float(model.hidden_size * (model.q_lora_rank + model.head_dim) + _compressing_matmul(model))

    def products(self, job: Job, s: Shapes) -> Products:
        """List the projections: to latents on the sequence-parallel share, of query heads, of groups of the output, and back."""
        m, share = job.model, s.heads / job.model.num_attention_heads
        shapes = {
            "query down": (s.sequence_tokens, float(m.q_lora_rank), s.hidden),
            "key-value down": (s.sequence_tokens, float(m.head_dim), s.hidden),
            "query up": (s.tokens, s.heads * s.head_dim, float(m.q_lora_rank)),
            # each group's rows meet its own matrix: as many operations as one product of all heads with the rank of one group
            "attention output down": (s.tokens, float(m.o_lora_rank), s.heads * s.head_dim),
            "attention output": (s.tokens, s.hidden, m.o_groups * m.o_lora_rank * share),
        }
        if m.compress_ratio:
            shapes["compressor"] = (s.sequence_tokens, 2.0 * windows(m) * m.head_dim, s.hidden)
        if m.index_topk:
            shapes["indexer query"] = (s.tokens, float(m.index_n_heads * m.index_head_dim), float(m.q_lora_rank))
            shapes["indexer key and weights"] = (s.tokens, 4.0 * m.index_head_dim + m.index_n_heads, s.hidden)
        return shapes

    def core(self, cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> list[Term]:
        """Time one fused kernel over window and entries, and the indexer's scores of entries."""
        return flash(cluster, job, plan, s, backward)

    def memory_bound(self, cluster: Cluster, job: Job, s: Shapes, ratio: float, backward: bool) -> list[Term]:
        """Time the rotation of queries, key and output, the norms of heads and latents, and the sums of tokens to entries."""
        m, f = job.model, job.framework
        unit, e = job.precision.activation_bytes / 2.0, job.precision.activation_bytes
        turned = s.tokens * (2.0 * s.heads + 1.0) * m.qk_rope_head_dim
        normed = s.tokens * s.heads * s.head_dim + s.sequence_tokens * (m.q_lora_rank + m.head_dim)
        terms = [
            elementwise(cluster, "rotary embedding", unit * f.rotary_bytes.value * turned, 2.0),
            elementwise(cluster, "query and key norms", ratio * f.norm_bytes.value * normed, 3.0),
        ]
        if m.compress_ratio:
            overlap, times = windows(m) - 1.0, 2.0 if backward else 1.0
            moved = compressed.pooling_traffic(s.sequence_tokens, m.head_dim, m.compress_ratio, overlap, e)
            if m.index_topk:
                moved = moved + compressed.pooling_traffic(s.sequence_tokens, m.index_head_dim, m.compress_ratio, overlap, e)
            terms.append(elementwise(cluster, "entries of tokens", times * moved, 2.0))
        return terms

    def cast_inputs(self, model: Model) -> float:
        """Count the cast inputs that are kept: one each of queries, key-value and compressor."""
        return 2.0 + float(bool(model.compress_ratio))

    def kept_wide(self, job: Job, s: Shapes) -> Any:
        """Count the elements that are kept wide: the output of the kernel."""
        return s.heads * s.head_dim * s.tokens

    def activations(self, job: Job, plan: Plan, s: Shapes, cast_share: float, core_kept: Any) -> list[Term]:
        """List latents, queries before and after their norm, keys, the kernel's output and its rotated copy, groups, indexer."""
        m, e = job.model, job.precision.activation_bytes
        inside = m.num_attention_heads * m.head_dim * (3.0 + cast_share) + m.o_groups * m.o_lora_rank * cast_share
        down = (1.0 + cast_share) * m.q_lora_rank + m.head_dim
        keys = float(m.head_dim)
        if m.compress_ratio:  # values and scores of every token, and the entry before and after its norm
            down = down + 2.0 * windows(m) * m.head_dim
            keys = keys + 2.0 * m.head_dim / m.compress_ratio

        def kept(name: str, width: Any, tp: Any, sp: Any) -> Term:
            sizes = {"tokens": s.tokens, "hidden_size": width, "tp": tp, "sp": sp, "bytes_per_element": e}
            return leaf(name, activations.checkpoint, "B", **sizes)

        terms = [
            leaf("attention", activations.mlp, "B", tokens=s.tokens, intermediate_size=inside, saved=1.0, tp=plan.tp, bytes_per_element=e),
            kept("latents", down, plan.tp, plan.sp),
            kept("keys and entries", keys, 1.0, 0.0),
        ]
        if m.index_topk:
            picked = np.minimum(plan.seq_len / m.compress_ratio, m.index_topk) * 4.0 / e
            width = m.index_n_heads * (m.index_head_dim + 1.0) + 4.0 * m.index_head_dim + 2.0 * m.index_head_dim / m.compress_ratio
            terms.append(kept("indexer", width + picked, 1.0, 0.0))
        return terms


def windows(model: Model) -> float:
    """Windows of tokens that an entry covers: two where an indexer picks entries, else one."""
    return 2.0 if model.index_topk else 1.0


def _compressing(model: Model) -> Any:
    """Parameters of compressor and indexer."""
    if not model.compress_ratio:
        return 0.0
    count = compressed.compressor(model.hidden_size, model.head_dim, model.compress_ratio, windows(model) - 1.0)
    return count + (compressed.indexer(*(getattr(model, size) for size in _INDEXER)) if model.index_topk else 0.0)


def _compressing_matmul(model: Model) -> Any:
    """Weights of compressor and indexer that multiply each token."""
    if not model.compress_ratio:
        return 0.0
    count = 2.0 * windows(model) * model.hidden_size * model.head_dim
    if model.index_topk:
        count = count + parameters.indexer_matmul(model.hidden_size, model.q_lora_rank, model.index_n_heads, model.index_head_dim)
        count = count + 3.0 * model.hidden_size * model.index_head_dim  # values and scores of two windows, where there is else one key
    return count
