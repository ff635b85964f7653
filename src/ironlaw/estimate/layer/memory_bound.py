"""Memory-bound operators between a layer's products: norms, additions, activation functions, copies, sums of gradients.

Forward bytes come from the framework's record. Backward bytes follow from what each operator reads and writes: the gradient of an
addition is a sum of two gradients, the gradient of a rotation is a rotation.
"""

from __future__ import annotations

from typing import Any

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer import casts, experts, residuals
from ironlaw.estimate.layer.attention import DROPOUT
from ironlaw.estimate.layer.counts import norms_of
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.products import ACTIVATED, SHARED_ACTIVATED, linear_shapes
from ironlaw.estimate.layer.sizes import Operator, Shapes, elementwise
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.terms import Term

FROZEN_NORM = 0.75  # of the bytes of a norm's backward pass: without the pass that sums the gradient of its weight
BIASED = {  # products, and the model's field that is set where they add a bias
    "query-key-value": "query_key_value_bias",
    "attention output": "attention_output_bias",
    "mlp in": "mlp_bias",
    "mlp out": "mlp_bias",
}


def memory_bound(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind, backward: bool = False) -> list[Term]:
    """All memory-bound operators of one pass over a layer, forward or backward."""
    model, f = job.model, job.framework
    unit = job.precision.activation_bytes / 2.0
    ratio = (f.backward_traffic_ratio.value if backward else 1.0) * unit
    frozen_share = FROZEN_NORM if backward and job.lora_rank else 1.0
    hidden, norms = s.sequence_tokens * s.hidden, norms_of(model, kind)
    shapes = linear_shapes(job, s, kind)
    normed = ratio * f.norm_bytes.value * norms * hidden
    fused = min(casts.fused_norms(job, shapes), norms)
    if not backward and fused:
        normed = normed - fused * (job.precision.activation_bytes - job.precision.operand_bytes) * hidden
    groups = [elementwise(cluster, "norms", frozen_share * normed, norms)]
    if not model.hc_mult:
        groups.append(elementwise(cluster, "residuals", unit * residual(job, backward) * kind.blocks * hidden, kind.blocks))
    groups += residuals.memory_bound(cluster, job, s, kind, backward)
    wide = [n for name, (_, n, _) in shapes.items() if name in ("mlp in", "shared expert in")]
    if wide:
        key = Operator(SHARED_ACTIVATED if kind.routed else ACTIVATED, behind_dispatch=kind.routed)
        groups.append(elementwise(cluster, "activation function", unit * activation(job, backward) * s.tokens * wide[0], key=key))
    groups += kind.mixer.memory_bound(cluster, job, s, ratio, backward)
    if backward and not job.lora_rank:
        groups += bias_gradients(cluster, job, shapes)
    groups += casts.casts(cluster, job, plan, shapes, backward)
    return groups + (experts.memory_bound(cluster, job, plan, s, unit * activation(job, backward), backward) if kind.routed else [])


def residual(job: Job, backward: bool) -> float:
    """Bytes for each element of a residual addition, and of dropout before it where the model has any."""
    f = job.framework
    dropout_bytes = DROPOUT if f.dropout_bytes is None else f.dropout_bytes.value
    return f.residual_bytes.value + float(job.model.dropout) * (DROPOUT if backward else dropout_bytes)


def activation(job: Job, backward: bool) -> float:
    """Bytes for each element of the MLP's wide tensor.

    Backward reads the tensor and a gradient and writes a gradient; with a gate the read gradient has half as many columns.
    """
    gradient = 5.0 / 3.0 if job.model.gated_mlp else 1.5
    return job.framework.activation_bytes.value * (gradient if backward else 1.0)


def bias_gradients(cluster: Cluster, job: Job, shapes: dict[str, tuple[Any, Any, Any]]) -> list[Term]:
    """Gradients of biases: the output gradient is read again and summed over tokens, unless the product's kernel does it."""
    biased = [name for name, field in BIASED.items() if name in shapes and getattr(job.model, field)]
    if job.framework.fused_bias_gradients or not biased:
        return []
    read: Any = 0.0
    for name in biased:
        m, n, _ = shapes[name]
        read = read + m * n
    return [elementwise(cluster, "bias gradients", job.precision.activation_bytes * read, float(len(biased)))]
