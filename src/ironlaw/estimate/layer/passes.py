"""Computation of one layer of a kind for one micro-batch on one rank, as Term trees: forward, backward, recompute."""

from __future__ import annotations

from typing import Any

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer import adapters, experts, frozen_weights, gradients, memory_bound
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.products import LAST_PRODUCTS, linear_shapes, product_key
from ironlaw.estimate.layer.sizes import INPUT_GRADIENT, OUTPUT, WEIGHT_GRADIENT, Shapes, gemm, operator_of
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.terms import Term, total

PASSES = FORWARD, BACKWARD, RECOMPUTE = "forward", "backward", "recompute"  # keys of the passes over a layer


def linear_forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """The layer's GEMMs, forward."""
    terms = [gemm(cluster, job, f"{name} gemm", *mnk, key=product_key(name, OUTPUT)) for name, mnk in linear_shapes(job, s, kind).items()]
    terms += adapters.forward(cluster, job, plan, s, kind)
    terms += frozen_weights.dequantised(cluster, job, plan, s, kind)
    return terms + (experts.linear_forward(cluster, job, plan, s) if kind.routed else [])


def linear_backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """The layer's GEMMs, backward: the input gradient is (m, n) by (n, k), the weight gradient (k, m) by (m, n)."""
    terms = []
    for name, (m, n, k) in linear_shapes(job, s, kind).items():
        terms.append(gemm(cluster, job, f"{name} dgrad", m, k, n, key=product_key(name, INPUT_GRADIENT)))
        if not job.lora_rank:
            key = product_key(name, WEIGHT_GRADIENT)
            terms.append(gemm(cluster, job, f"{name} wgrad", k, n, m, result=gradients.written(job), key=key))
    terms += adapters.backward(cluster, job, plan, s, kind)
    terms += frozen_weights.dequantised(cluster, job, plan, s, kind) + frozen_weights.transposed(cluster, job, plan, s, kind)
    return terms + (experts.linear_backward(cluster, job, plan, s) if kind.routed else [])


def forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """One pass forward, without its collectives."""
    parts = linear_forward(cluster, job, plan, s, kind)
    return total(
        "forward", [*parts, *kind.mixer.core(cluster, job, plan, s), *memory_bound.memory_bound(cluster, job, plan, s, kind)], key=FORWARD
    )


def backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """One pass backward, without its collectives."""
    parts = [
        *linear_backward(cluster, job, plan, s, kind),
        *kind.mixer.core(cluster, job, plan, s, backward=True),
        *memory_bound.memory_bound(cluster, job, plan, s, kind, backward=True),
    ]
    return total("backward", parts, times=1.0 if kind.trained else 0.0, key=BACKWARD)


def weight_gradients(backward: Term) -> Any:
    """The time of the weight gradients in a backward pass."""
    return backward.times * sum(part.value for part in backward.parts if operator_of(part).computes == WEIGHT_GRADIENT)


def recompute(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """The time of recomputation: of whole layers, and in the other layers of the operators that the plan names."""
    other_layers = 1.0 - plan.recompute_layers
    linear = plan.recompute_layers + other_layers * plan.recompute_linear
    core = plan.recompute_layers + (other_layers * plan.recompute_attention if kind.mixer.attends else 0.0)  # a scan saves its tensors
    bytes_bound = plan.recompute_layers + other_layers * plan.recompute_elementwise
    trained = 1.0 if kind.trained else 0.0
    products = linear_forward(cluster, job, plan, s, kind)
    if job.framework.compiled_recompute:
        products = [t for t in products if operator_of(t).name not in LAST_PRODUCTS]
    return total(
        "recompute",
        [
            total("linear layers again", products, times=linear),
            total("attention core again", kind.mixer.core(cluster, job, plan, s), times=core),
            total("memory-bound operators again", memory_bound.memory_bound(cluster, job, plan, s, kind), times=bytes_bound),
        ],
        times=trained,
        key=RECOMPUTE,
    )
