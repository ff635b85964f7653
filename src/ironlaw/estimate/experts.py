"""The routed part of a mixture-of-experts layer: router, permutation, grouped GEMMs, all-to-all.

Tokens are routed from their sequence-parallel share (``tokens / tp``). Every expert-parallel rank receives as many rows as
it sends, times the imbalance; with a capacity factor it computes that many instead, padded or dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate import tiers
from ironlaw.estimate.counts import expert_width, visited
from ironlaw.estimate.parts import Shapes, elementwise, gemm, kernel
from ironlaw.law import experts, flops
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.terms import Term, total

TILE = 128.0  # rows of the tiles that grouped GEMM kernels use


def rows(job: Job, plan: Plan, s: Shapes) -> Any:
    """Rows the experts of one rank compute."""
    factor = job.capacity_factor or job.expert_imbalance
    return experts.routed_rows(s.tokens, visited(job.model), plan.tp, plan.etp, 1.0) * factor


def width(job: Job, plan: Plan) -> Any:
    """Columns of an expert's first GEMM on one rank: gate and up together."""
    return job.model.moe_intermediate_size / plan.etp * (2.0 if job.model.gated_mlp else 1.0)


def choices(job: Job) -> float:
    """What the router chooses from: experts, and those that compute nothing."""
    return float(job.model.num_experts + job.model.zero_expert_num)


def latent_shapes(job: Job, plan: Plan, s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """The projections to the experts' latent and back, (m, n, k), on each rank's own tokens; none where experts see the full width."""
    latent, own = float(job.model.moe_latent_size), s.tokens / plan.tp
    return {"latent in": (own, latent, s.hidden), "latent out": (own, s.hidden, latent)} if latent else {}


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
    m, w, hidden = rows(job, plan, s), width(job, plan), float(expert_width(job.model))
    narrow = job.model.moe_intermediate_size / plan.etp
    return [
        gemm(cluster, job, "router gemm", s.tokens / plan.tp, choices(job), s.hidden, wide=True),
        *(gemm(cluster, job, f"{name} gemm", *mnk) for name, mnk in latent_shapes(job, plan, s).items()),
        grouped_gemm(cluster, job, plan, "experts in gemm", m, w, hidden),
        grouped_gemm(cluster, job, plan, "experts out gemm", m, hidden, narrow),
    ]


def linear_backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> list[Term]:
    """dgrad and wgrad of router and experts."""
    m, w, hidden = rows(job, plan, s), width(job, plan), float(expert_width(job.model))
    narrow, own, count = job.model.moe_intermediate_size / plan.etp, s.tokens / plan.tp, choices(job)
    between = latent_shapes(job, plan, s)
    made = [
        gemm(cluster, job, "router dgrad", own, s.hidden, count, wide=True),
        *(gemm(cluster, job, f"{name} dgrad", m, k, n) for name, (m, n, k) in between.items()),
        grouped_gemm(cluster, job, plan, "experts in dgrad", m, hidden, w),
        grouped_gemm(cluster, job, plan, "experts out dgrad", m, narrow, hidden),
    ]
    if job.lora_rank:  # router and experts are frozen
        return made
    return [
        *made,
        gemm(cluster, job, "router wgrad", s.hidden, count, own, wide=True),
        *(gemm(cluster, job, f"{name} wgrad", k, n, m) for name, (m, n, k) in between.items()),
        grouped_gemm(cluster, job, plan, "experts in wgrad", m, w, hidden, wgrad=True),
        grouped_gemm(cluster, job, plan, "experts out wgrad", m, hidden, narrow, wgrad=True),
    ]


def memory_bound(cluster: Cluster, job: Job, plan: Plan, s: Shapes, ratio: float) -> list[Term]:
    """Rows copied to their experts' order and summed back, the activation function, scores and top-k."""
    m, own = rows(job, plan, s), s.tokens / plan.tp
    hidden = float(expert_width(job.model))
    moved = ratio * 2.0 * hidden * (2.0 * own + 2.0 * m)
    scores = ratio * own * choices(job) * 16.0  # softmax and top-k in fp32: two reads, two writes
    made = [
        elementwise(cluster, "permute and unpermute", moved, 4.0),
        elementwise(cluster, "experts' activation function", ratio * job.framework.activation_bytes.value * m * width(job, plan)),
        elementwise(cluster, "routing scores", scores, 4.0),
    ]
    if job.precision.cast_bytes:
        made.append(elementwise(cluster, "experts' casts", job.precision.cast_bytes * m * (hidden + width(job, plan)), 2.0))
    return made


def communication(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> Term:
    """One pass: rows dispatched to their experts and combined again; with etp gathered and scattered inside an expert."""
    e = job.precision.activation_bytes
    sent = s.tokens / plan.tp * visited(job.model) * expert_width(job.model) * e * (job.capacity_factor or job.expert_imbalance)
    once = visited(job.model) if job.moe_dispatcher in ("deepep", "hybridep") else 0.0
    dispatch = tiers.all_to_all(cluster, plan, "all-to-all", plan.ep, sent, plan.etp, once)
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
