"""Mixers of models with two kinds of tokens: cross-attention, and the products before and behind the layers of a tower."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.attention import Attention, head_shapes
from ironlaw.estimate.layer.mixer import Mixer, Products
from ironlaw.estimate.layer.sizes import Shapes, elementwise
from ironlaw.job import Job
from ironlaw.law import activations, parameters
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf


class CrossAttention(Attention):
    """Attention whose keys and values come from ``source_tokens`` tokens, ``source_size`` wide, that an encoder made."""

    name, prefix = "cross", "cross-attention "
    crosses = True

    def parameters(self, model: Model) -> Any:
        """Count the four projections; keys and values read the encoder's width."""
        narrower = model.hidden_size - (model.source_size or model.hidden_size)
        return super().parameters(model) - 2.0 * narrower * model.num_key_value_heads * model.head_dim

    def matmul(self, model: Model) -> Any:
        """Count the weights of the four projections."""
        return model.head_dim * (2.0 * model.hidden_size * model.num_attention_heads) + source_weights(model)

    def products(self, job: Job, s: Shapes) -> Products:
        """List the projections: queries and output for the sequence, keys and values for the source."""
        width = float(job.model.source_size or job.model.hidden_size)
        return {
            "query-key-value": (s.tokens, s.heads * s.head_dim, s.hidden),
            "source key-value": (source_rows(job, s), 2.0 * s.kv_heads * s.head_dim, width),
            "attention output": head_shapes(s)["attention output"],
        }

    def activations(self, job: Job, plan: Plan, s: Shapes, cast_share: float, core_kept: Any) -> list[Term]:
        """List queries and output of the sequence, keys and values of the source, and the scores where attention is not flash."""
        del cast_share
        m, e, flash = job.model, job.precision.activation_bytes, float(job.flash)
        width = 2.0 * s.heads * s.head_dim * s.tokens
        kept = width + 2.0 * s.kv_heads * s.head_dim * source_rows(job, s)
        sizes = {"tokens": 1.0, "intermediate_size": kept, "saved": 1.0, "tp": 1.0, "bytes_per_element": e}
        scores = {"tokens": s.tokens, "seq_len": m.source_tokens, "num_attention_heads": m.num_attention_heads, "flash": flash}
        return [
            leaf("attention", activations.mlp, "B", **sizes),
            leaf(
                "attention scores",
                activations.attention_scores,
                "B",
                times=core_kept,
                **scores,
                dropout=float(m.dropout),
                tp=plan.tp,
                bytes_per_element=e,
            ),
        ]


def source_rows(job: Job, s: Shapes) -> Any:
    """Tokens of the sources of a micro-batch, which a rank projects to keys and values."""
    return s.sequences * job.model.source_tokens


def source_weights(model: Model) -> Any:
    """Weights that make the keys and values of a source."""
    return 2.0 * (model.source_size or model.hidden_size) * model.num_key_value_heads * model.head_dim


class OuterProducts(Mixer):
    """The products that make patches or frames into tokens of a tower, and those of the projector behind it. Each rank has all of them."""

    name, prefix = "products", "products "
    launches = 6.0  # the patches' product, positions, a norm, two products and an activation of a projector

    def parameters(self, model: Model) -> Any:
        """Count the weights and biases of the products, and the parameters outside them and the layers."""
        count: Any = float(model.other_parameters)
        for product in model.products:
            weights = parameters.mlp(product.inputs, product.outputs, 0.0, 0.0) / 2.0
            count = count + weights + (product.outputs if product.bias else 0.0)
        return count

    def matmul(self, model: Model) -> Any:
        """Count the weights, each by the rows that it multiplies for a token of the tower."""
        return sum(product.rows * product.inputs * product.outputs for product in model.products)

    def replicated(self, model: Model) -> tuple[Any, ...]:
        """Count all parameters: tensor-parallel ranks do not split them."""
        return (self.parameters(model),)

    def replicated_linear(self, model: Model) -> float:
        """Count the weights of the products."""
        return float(sum(product.inputs * product.outputs for product in model.products))

    def products(self, job: Job, s: Shapes) -> Products:
        """List the products in order."""
        rows = s.sequence_tokens
        listed = enumerate(job.model.products, 1)
        return {f"outer product {i}": (p.rows * rows, float(p.outputs), float(p.inputs)) for i, p in listed}

    def memory_bound(self, cluster: Cluster, job: Job, s: Shapes, ratio: float, backward: bool) -> list[Term]:
        """Time the positions, norms and activation functions between the products: each output is read and written."""
        del backward  # an output and its gradient have the same bytes
        moved: Any = 0.0
        for product in job.model.products:
            moved = moved + product.rows * s.sequence_tokens * product.outputs
        return [elementwise(cluster, "positions, norms and activation", 4.0 * ratio * moved, 3.0)]

    def activations(self, job: Job, plan: Plan, s: Shapes, cast_share: float, core_kept: Any) -> list[Term]:
        """List the input of every product."""
        del plan, cast_share, core_kept
        width = sum(product.rows * product.inputs for product in job.model.products)
        sizes = {"tokens": s.sequence_tokens, "intermediate_size": float(width), "saved": 1.0, "tp": 1.0}
        return [leaf("inputs of products", activations.mlp, "B", **sizes, bytes_per_element=job.precision.activation_bytes)]
