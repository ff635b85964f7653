"""The matrix products of one layer outside its experts, by name."""

from __future__ import annotations

from typing import Any

from ironlaw.estimate.layer import state_space
from ironlaw.estimate.layer.counts import index_share
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.sizes import Operator, Shapes
from ironlaw.job import Job

LAST_PRODUCTS = ("mlp out", "shared expert out", "experts out")  # backward needs their input, not their output

ROUTED_EXPERTS = ("experts in", "experts out")
SHARED_EXPERTS = ("shared expert in", "shared expert out", "shared expert gate", "shared expert up")  # the last two in adapters alone


def product_key(name: str, computes: str, of_adapter: bool = False) -> Operator:
    """The key of a matrix product of a layer, or of one of the two products of the adapter beside it."""
    return Operator("adapter" if of_adapter else name, computes, behind_dispatch=name in (*ROUTED_EXPERTS, *SHARED_EXPERTS))


def linear_shapes(job: Job, s: Shapes, kind: Kind) -> dict[str, tuple[Any, Any, Any]]:
    """The layer's dense GEMMs forward, by name: (m, n, k). A routed layer's are attention and shared experts."""
    return {**mixer_shapes(job, s, kind), **mlp_shapes(job, s, kind)}


def mixer_shapes(job: Job, s: Shapes, kind: Kind) -> dict[str, tuple[Any, Any, Any]]:
    """The GEMMs of a layer's mixer: attention, or a state layer."""
    if kind.mixer in ("linear", "mamba"):
        return state_space.shapes(job, s, kind)
    if kind.mixer == "none":
        return {}
    if job.model.kv_lora_rank:
        return latent_shapes(job, s)
    made = head_shapes(s)
    if job.model.attention_output_gate:
        m, n, k = made["query-key-value"]
        made["query-key-value"] = (m, n + s.heads * s.head_dim, k)
    if job.model.attention_k_eq_v:
        m, n, k = made["query-key-value"]
        made["query-key-value"] = (m, n - s.kv_heads * s.head_dim, k)
    return made


def head_shapes(s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """Products (m, n, k) of multi-head, grouped-query and multi-query attention."""
    return {
        "query-key-value": (s.tokens, (s.heads + 2.0 * s.kv_heads) * s.head_dim, s.hidden),
        "attention output": (s.tokens, s.hidden, s.heads * s.head_dim),
    }


def latent_shapes(job: Job, s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """Products (m, n, k) of latent attention: down-projections on the sequence-parallel share, up-projections by heads."""
    m = job.model
    query_key = float(m.qk_nope_head_dim + m.qk_rope_head_dim)
    shapes = {
        "key-value down": (s.sequence_tokens, float(m.kv_lora_rank + m.qk_rope_head_dim), s.hidden),
        "key-value up": (s.tokens, s.heads * float(m.qk_nope_head_dim + m.v_head_dim), float(m.kv_lora_rank)),
        "query up": (s.tokens, s.heads * query_key, float(m.q_lora_rank) if m.q_lora_rank else s.hidden),
        "attention output": (s.tokens, s.hidden, s.heads * float(m.v_head_dim)),
    }
    if m.q_lora_rank:
        shapes["query down"] = (s.sequence_tokens, float(m.q_lora_rank), s.hidden)
    if m.index_topk:  # every tensor-parallel rank has the whole indexer; mean over the layers
        rows = index_share(m) * s.tokens
        shapes["indexer query"] = (rows, float(m.index_n_heads * m.index_head_dim), float(m.q_lora_rank))
        shapes["indexer key and weights"] = (rows, float(m.index_head_dim + m.index_n_heads), s.hidden)
    return shapes


def dense_shapes(s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """The two GEMMs of a dense MLP; gate and up are one."""
    return {"mlp in": (s.tokens, s.wide, s.hidden), "mlp out": (s.tokens, s.hidden, s.ffn)}


def mlp_shapes(job: Job, s: Shapes, kind: Kind) -> dict[str, tuple[Any, Any, Any]]:
    """The dense MLP, or a routed layer's shared experts; layers for further tokens project two hidden states to one."""
    shapes = {}
    if kind.place == "end":
        shapes["further-token projection"] = (s.sequence_tokens, s.hidden, 2.0 * s.hidden)
    if kind.mlp == "none":
        return shapes
    if not kind.routed:
        return {**shapes, **dense_shapes(s)}
    if job.model.shared_expert_intermediate_size:
        ratio = job.model.shared_expert_intermediate_size / job.model.intermediate_size
        shapes["shared expert in"] = (s.tokens, s.wide * ratio, s.hidden)
        shapes["shared expert out"] = (s.tokens, s.hidden, s.ffn * ratio)
    return shapes
