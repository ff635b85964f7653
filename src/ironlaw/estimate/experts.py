"""The routed part of a mixture-of-experts layer: router, permutation, grouped GEMMs, all-to-all.

Tokens are routed from their sequence-parallel share (``tokens / tp``). Every expert-parallel rank receives as many rows as
it sends, times the imbalance; with a capacity factor it computes that many instead, padded or dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate import tiers
from ironlaw.estimate.parts import Shapes, elementwise, gemm, kernel
from ironlaw.law import experts, flops
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.terms import Term, total

TILE = 128.0  # rows of the tiles that grouped GEMM kernels use


def rows(job: Job, plan: Plan, s: Shapes) -> Any:
    """Rows the experts of one rank compute."""
    factor = job.capacity_factor or job.expert_imbalance
    return experts.routed_rows(s.tokens, float(job.model.num_experts_per_tok), plan.tp, plan.etp, 1.0) * factor


def width(job: Job, plan: Plan) -> Any:
    """Columns of an expert's first GEMM on one rank: gate and up together."""
    return job.model.moe_intermediate_size / plan.etp * (2.0 if job.model.gated_mlp else 1.0)


def grouped_gemm(cluster: Cluster, job: Job, plan: Plan, name: str, m: Any, n: Any, k: Any, wgrad: bool = False) -> Term:
    """One GEMM an expert of the rank, all in one kernel: ``m`` rows in all, ``n`` by ``k`` weights each."""
    p = job.precision
    local = job.model.num_experts / plan.ep
    computed = experts.padded_rows(m, local, TILE)
    weights = local * n * k * (p.activation_bytes if wgrad else p.operand_bytes)
    moved = weights + m * k * p.operand_bytes + m * n * (p.operand_bytes if wgrad else p.activation_bytes)
    return kernel(cluster, name, flops.gemm(computed, n, k), moved, p.peak, cluster.experts(p.gemm))


def linear_forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> list[Term]:
    """Router and the experts' GEMMs."""
    m, w, hidden = rows(job, plan, s), width(job, plan), s.hidden
    narrow = job.model.moe_intermediate_size / plan.etp
    return [
        gemm(cluster, job, "router gemm", s.tokens / plan.tp, float(job.model.num_experts), hidden, wide=True),
        grouped_gemm(cluster, job, plan, "experts in gemm", m, w, hidden),
        grouped_gemm(cluster, job, plan, "experts out gemm", m, hidden, narrow),
    ]


def linear_backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> list[Term]:
    """dgrad and wgrad of router and experts."""
    m, w, hidden = rows(job, plan, s), width(job, plan), s.hidden
    narrow, own, count = job.model.moe_intermediate_size / plan.etp, s.tokens / plan.tp, float(job.model.num_experts)
    made = [
        gemm(cluster, job, "router dgrad", own, hidden, count, wide=True),
        grouped_gemm(cluster, job, plan, "experts in dgrad", m, hidden, w),
        grouped_gemm(cluster, job, plan, "experts out dgrad", m, narrow, hidden),
    ]
    if job.lora_rank:  # router and experts are frozen
        return made
    return [
        *made,
        gemm(cluster, job, "router wgrad", hidden, count, own, wide=True),
        grouped_gemm(cluster, job, plan, "experts in wgrad", m, w, hidden, wgrad=True),
        grouped_gemm(cluster, job, plan, "experts out wgrad", m, hidden, narrow, wgrad=True),
    ]


def memory_bound(cluster: Cluster, job: Job, plan: Plan, s: Shapes, ratio: float) -> list[Term]:
    """Rows copied to their experts' order and summed back, the activation function, scores and top-k."""
    m, own = rows(job, plan, s), s.tokens / plan.tp
    moved = ratio * 2.0 * s.hidden * (2.0 * own + 2.0 * m)
    scores = ratio * own * job.model.num_experts * 16.0  # softmax and top-k in fp32: two reads, two writes
    made = [
        elementwise(cluster, "permute and unpermute", moved, 4.0),
        elementwise(cluster, "experts' activation function", ratio * job.framework.activation_bytes.value * m * width(job, plan)),
        elementwise(cluster, "routing scores", scores, 4.0),
    ]
    if job.precision.cast_bytes:
        made.append(elementwise(cluster, "experts' casts", job.precision.cast_bytes * m * (s.hidden + width(job, plan)), 2.0))
    return made


def communication(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> Term:
    """One pass: rows dispatched to their experts and combined again; with etp gathered and scattered inside an expert."""
    e = job.precision.activation_bytes
    sent = s.tokens / plan.tp * job.model.num_experts_per_tok * s.hidden * e * (job.capacity_factor or job.expert_imbalance)
    if job.moe_dispatcher in ("deepep", "hybridep"):
        routing = float(job.model.num_experts_per_tok), float(job.model.n_group), float(job.model.topk_group)
        dispatch = tiers.sent_once(cluster, plan, "all-to-all", plan.ep, sent, plan.etp, routing)
    else:
        dispatch = tiers.all_to_all(cluster, plan, "all-to-all", plan.ep, sent, plan.etp)
    gather = tiers.collective(cluster, plan, "all-gather", "all_gather", plan.etp, sent * plan.etp, 1.0)
    scatter = tiers.collective(cluster, plan, "reduce-scatter", "reduce_scatter", plan.etp, sent * plan.etp, 1.0)
    inside = np.where(plan.etp > 1, 1.0, 0.0)
    return total(
        "expert parallel",
        [
            total("dispatch and combine", [dispatch], times=2.0),
            total("gather inside experts", [gather], times=inside),
            total("scatter inside experts", [scatter], times=inside),
        ],
    )
