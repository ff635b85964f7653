"""Computation of one layer of a kind for one micro-batch on one rank, as Term trees: forward, backward, recompute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer import adapters, casts, experts, frozen_weights, gradients, memory_bound
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.mixer import Mixer, Products
from ironlaw.estimate.layer.products import (
    ACTIVATED,
    DENSE_MLP,
    LAST_PRODUCTS,
    SHARED_ACTIVATED,
    SHARED_EXPERTS,
    UP_PROJECTIONS,
    mlp_shapes,
    product_key,
)
from ironlaw.estimate.layer.sizes import Operator, Shapes, gemm, once_for_sizes, operator_of
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.precision import INPUT_GRADIENT, OUTPUT, WEIGHT_GRADIENT
from ironlaw.terms import Term, total

MODULES: dict[str, tuple[str, Callable[[Operator], bool]]] = {  # columns of modules that are recomputed, and the operators of each
    "recompute_up": ("up-projections", lambda operator: operator.name in UP_PROJECTIONS),
    "recompute_mlp": ("dense MLP", lambda operator: operator.name in (*DENSE_MLP, ACTIVATED)),
    "recompute_moe": ("experts", lambda operator: operator.behind_dispatch or operator.name == "router"),
    "recompute_shared": ("shared experts", lambda operator: operator.name in (*SHARED_EXPERTS, SHARED_ACTIVATED)),
}
PASSES = FORWARD, BACKWARD, RECOMPUTE = "forward", "backward", "recompute"  # keys of the passes over a layer


class Operators(NamedTuple):
    """The operators of one pass over a layer, in the groups that recomputation repeats."""

    products: list[Term]
    core: list[Term]  # attention or the scan
    memory_bound: list[Term]


def linear_forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """The layer's GEMMs, forward."""
    terms = mixer_forward(cluster, job, plan, s, kind.mixer) + _forward(cluster, job_of_mlp(job, kind), mlp_shapes(job, s, kind))
    terms += adapters.forward(cluster, job, plan, s, kind)
    terms += frozen_weights.dequantised(cluster, job, plan, s, kind)
    return terms + (experts.linear_forward(cluster, job, plan, s) if kind.routed else [])


def linear_backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """The layer's GEMMs, backward: the input gradient is (m, n) by (n, k), the weight gradient (k, m) by (m, n)."""
    terms = mixer_backward(cluster, job, plan, s, kind.mixer) + _backward(cluster, job_of_mlp(job, kind), mlp_shapes(job, s, kind))
    terms += adapters.backward(cluster, job, plan, s, kind)
    terms += frozen_weights.dequantised(cluster, job, plan, s, kind) + frozen_weights.transposed(cluster, job, plan, s, kind)
    return terms + (experts.linear_backward(cluster, job, plan, s) if kind.routed else [])


def job_of_mlp(job: Job, kind: Kind) -> Job:
    """The job for a layer's MLP outside its routed experts: shared experts may stay wide."""
    return casts.job_of_shared(job) if kind.routed else job


@once_for_sizes
def mixer_forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, mixer: Mixer) -> list[Term]:
    """The GEMMs of a mixer, forward."""
    del plan
    return _forward(cluster, job, mixer.products(job, s))


@once_for_sizes
def mixer_backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, mixer: Mixer) -> list[Term]:
    """The GEMMs of a mixer, backward."""
    del plan
    return _backward(cluster, job, mixer.products(job, s))


def _forward(cluster: Cluster, job: Job, shapes: Products) -> list[Term]:
    return [gemm(cluster, job, f"{name} gemm", *mnk, key=product_key(name, OUTPUT)) for name, mnk in shapes.items()]


def _backward(cluster: Cluster, job: Job, shapes: Products) -> list[Term]:
    terms = []
    for name, (m, n, k) in shapes.items():
        terms.append(gemm(cluster, job, f"{name} dgrad", m, k, n, key=product_key(name, INPUT_GRADIENT)))
        if not job.lora_rank:
            key = product_key(name, WEIGHT_GRADIENT)
            terms.append(gemm(cluster, job, f"{name} wgrad", k, n, m, result=gradients.written(job), key=key))
    return terms


def forward_operators(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Operators:
    """The operators of one pass forward."""
    return Operators(
        linear_forward(cluster, job, plan, s, kind),
        kind.mixer.core(cluster, job, plan, s),
        memory_bound.memory_bound(cluster, job, plan, s, kind),
    )


def forward(operators: Operators) -> Term:
    """One pass forward, without its collectives."""
    return total("forward", [*operators.products, *operators.core, *operators.memory_bound], key=FORWARD)


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


def inside_segment(plan: Plan) -> Any:
    """Of the layers of a segment that share a checkpoint, the share that has another layer of it behind: its output is needed again."""
    return 1.0 - 1.0 / plan.recompute_segment


def recomputes_experts(plan: Plan, kind: Kind) -> Any:
    """The share of a kind's layers that dispatch their rows to experts a second time."""
    return plan.recompute_layers + (1.0 - plan.recompute_layers) * plan.recompute_moe * float(kind.routed)


def modules_again(plan: Plan, operators: Operators) -> list[Term]:
    """The time of repeating the modules that a plan names: their products and the memory-bound operators between them.

    What the plan repeats by kind of operator, such as all products, is not repeated once more for a module.
    """
    parts = []
    for column, (name, belongs) in MODULES.items():
        share = getattr(plan, column)
        if not np.any(share):
            continue
        if column == "recompute_shared":  # recomputing the whole mixture repeats them already
            share = np.maximum(share - plan.recompute_moe, 0.0)
        groups = (
            ("products", operators.products, plan.recompute_linear),
            ("memory-bound operators", operators.memory_bound, plan.recompute_elementwise),
        )
        again = [
            total(of, [t for t in terms if belongs(operator_of(t))], times=(1.0 - plan.recompute_layers) * np.maximum(share - by_kind, 0.0))
            for of, terms, by_kind in groups
        ]
        parts.append(total(f"{name} again", [part for part in again if part.parts]))
    return [part for part in parts if part.parts]


def recompute(job: Job, plan: Plan, kind: Kind, operators: Operators) -> Term:
    """The time of repeating operators of the forward pass: of whole layers, in other layers those that the plan names."""
    other_layers = 1.0 - plan.recompute_layers
    linear = plan.recompute_layers + other_layers * plan.recompute_linear
    core = plan.recompute_layers + (other_layers * plan.recompute_attention if kind.mixer.attends else 0.0)  # a scan saves its tensors
    bytes_bound = plan.recompute_layers + other_layers * plan.recompute_elementwise
    trained = 1.0 if kind.trained else 0.0
    products, within = operators.products, []
    modules = modules_again(plan, operators)
    if job.framework.compiled_recompute:
        last = [t for t in products if operator_of(t).name in LAST_PRODUCTS]
        products = [t for t in products if operator_of(t).name not in LAST_PRODUCTS]
        if np.any(plan.recompute_segment > 1):
            within = [total("last product again, but for the last layer of a segment", last, times=linear * inside_segment(plan))]
    return total(
        "recompute",
        [
            total("linear layers again", products, times=linear),
            *within,
            total("attention core again", operators.core, times=core),
            total("memory-bound operators again", operators.memory_bound, times=bytes_bound),
            *modules,
        ],
        times=trained,
        key=RECOMPUTE,
    )
