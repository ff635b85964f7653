"""The matrix products of one layer outside its experts, by name."""

from __future__ import annotations

from typing import Any

from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.sizes import Operator, Shapes
from ironlaw.job import Job

LAST_PRODUCTS = ("mlp out", "shared expert out", "experts out")  # backward needs their input, not their output

ACTIVATED, SHARED_ACTIVATED = "activation of the MLP", "activation of shared experts"  # keys of activation functions
UP_PROJECTIONS = ("query up", "key-value up")
DENSE_MLP = ("mlp in", "mlp out")
ROUTED_EXPERTS = ("experts in", "experts out")
SHARED_EXPERTS = ("shared expert in", "shared expert out", "shared expert gate", "shared expert up")  # the last two in adapters alone


def product_key(name: str, computes: str, of_adapter: bool = False) -> Operator:
    """The key of a matrix product of a layer, or of one of the two products of the adapter beside it."""
    return Operator("adapter" if of_adapter else name, computes, behind_dispatch=name in (*ROUTED_EXPERTS, *SHARED_EXPERTS))


def linear_shapes(job: Job, s: Shapes, kind: Kind) -> dict[str, tuple[Any, Any, Any]]:
    """The layer's dense GEMMs forward, by name: (m, n, k). A routed layer's are attention and shared experts."""
    return {**kind.mixer.products(job, s), **mlp_shapes(job, s, kind)}


def per_layer_shapes(job: Job, s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """The products of a layer's second embedding: its share of the projection of all layers, the gate, and the projection back."""
    width = float(job.model.hidden_size_per_layer_input)
    if not width:
        return {}
    rows = s.sequence_tokens
    return {
        "per-layer input": (rows, width, s.hidden),
        "per-layer gate": (rows, width, s.hidden),
        "per-layer projection": (rows, s.hidden, width),
    }


def dense_shapes(s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """The two GEMMs of a dense MLP; gate and up are one."""
    return {"mlp in": (s.tokens, s.wide, s.hidden), "mlp out": (s.tokens, s.hidden, s.ffn)}


def mlp_shapes(job: Job, s: Shapes, kind: Kind) -> dict[str, tuple[Any, Any, Any]]:
    """The dense MLP, or a routed layer's shared experts; layers for further tokens project two hidden states to one."""
    shapes = per_layer_shapes(job, s)
    if kind.place == "end":
        shapes["further-token projection"] = (s.sequence_tokens, s.hidden, 2.0 * s.hidden)
    if kind.has_mlp and not kind.routed:
        shapes |= dense_shapes(s)
    elif kind.routed and job.model.shared_expert_intermediate_size:
        ratio = job.model.shared_expert_intermediate_size / job.model.intermediate_size
        shapes["shared expert in"] = (s.tokens, s.wide * ratio, s.hidden)
        shapes["shared expert out"] = (s.tokens, s.hidden, s.ffn * ratio)
    return shapes
