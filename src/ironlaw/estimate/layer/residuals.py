"""What a layer has in place of plain residual additions, or beside them: hyper-connections, attention residuals, per-layer embeddings.

Their kernels are not public; each is taken as fused as its paper describes it. Residual streams are split as the hidden state is, by
sequence parallelism; the weights are whole on every tensor-parallel rank.
"""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.products import product_key
from ironlaw.estimate.layer.sizes import Shapes, elementwise, gemm
from ironlaw.estimate.pipeline.hand_overs import sources
from ironlaw.job import Job
from ironlaw.law import residuals
from ironlaw.precision import INPUT_GRADIENT, OUTPUT, WEIGHT_GRADIENT
from ironlaw.terms import Term

KERNELS = 3.0  # of a block's hyper-connections: the sum before it, the doubly stochastic matrix, the mix behind it
BACKWARD_SOURCES = 2.0  # a source of attention residuals is read, and its gradient is read and written, where it is read forward


def memory_bound(cluster: Cluster, job: Job, s: Shapes, kind: Kind, backward: bool) -> list[Term]:
    """Time the coefficients and the mixing of streams, the sums over earlier layers, and the second embedding, in one pass."""
    m, e, blocks = job.model, job.precision.activation_bytes, kind.blocks
    terms: list[Term] = []
    if m.hc_mult:
        law = residuals.hyper_connection_traffic_backward if backward else residuals.hyper_connection_traffic
        moved = law(s.sequence_tokens * blocks, s.hidden, m.hc_mult, e)
        terms += [*_coefficients(cluster, job, s, blocks, backward), elementwise(cluster, "residual streams", moved, KERNELS * blocks)]
    if m.attn_res_block_size:
        moved = residuals.attention_residual_traffic(s.sequence_tokens * blocks, s.hidden, sources(m), e)
        terms.append(elementwise(cluster, "attention residuals", moved * (BACKWARD_SOURCES if backward else 1.0), blocks))
    if m.hidden_size_per_layer_input:  # an activation and a product on the narrow width, a norm and an addition on the wide one
        moved = e * (4.0 * s.tokens * m.hidden_size_per_layer_input + 5.0 * s.sequence_tokens * s.hidden)
        terms.append(elementwise(cluster, "per-layer embedding", moved * (2.0 if backward else 1.0), 4.0))
    return terms


def _coefficients(cluster: Cluster, job: Job, s: Shapes, blocks: float, backward: bool) -> list[Term]:
    """The product of all streams of a token that gives the coefficients of its mixing, wide whatever the precision."""
    n = float(job.model.hc_mult)
    rows, columns, width = s.sequence_tokens * blocks, (2.0 + n) * n, n * s.hidden
    if not backward:
        return [gemm(cluster, job, "stream weights gemm", rows, columns, width, wide=True, key=product_key("stream weights", OUTPUT))]
    terms = [gemm(cluster, job, "stream weights dgrad", rows, width, columns, wide=True, key=product_key("stream weights", INPUT_GRADIENT))]
    if not job.lora_rank:
        key = product_key("stream weights", WEIGHT_GRADIENT)
        terms.append(gemm(cluster, job, "stream weights wgrad", width, columns, rows, wide=True, key=key))
    return terms


def saved_states(model: Model, blocks: float, kept: Any) -> Any:
    """Hidden states that a layer keeps beside the inputs of its norms; ``kept``: 1 where memory-bound operators are not recomputed.

    Hyper-connections keep the streams before a block and the block's output. Recomputed, they keep one set of streams a layer, and the
    outputs, from which the others follow. Attention residuals keep the sum under way of each block, and their share of a group's sum.
    """
    states: Any = 0.0
    if model.hc_mult:
        states = states + blocks + model.hc_mult * (blocks * kept + (1.0 - kept))
    if model.attn_res_block_size:
        states = states + blocks * kept + 1.0 / model.attn_res_block_size
    return states
