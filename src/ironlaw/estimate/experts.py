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
# a number dispatched in fp8 with its part of a scale: 4 bytes for 128, as DeepSeek-V3 quantises activations (section 3.3.2) and
# DeepEP sends them (deep_ep/buffer.py, dispatch), read 2026-11-22
FP8_BYTES = 1.0 + 4.0 / 128.0


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


def memory_bound(cluster: Cluster, job: Job, plan: Plan, s: Shapes, ratio: float, backward: bool = False) -> list[Term]:
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
        made += casts(cluster, job, plan, s, backward)
    return made


def casts(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool) -> list[Term]:
    """Operands of the experts quantised; rows that are dispatched in fp8 once where they start.

    With the scales of DeepSeek-V3 (fp8-block) a product takes them as they come; with others they are quantised again.
    """
    m, sent = rows(job, plan, s), narrow(job, backward)
    taken = 0.0 if sent and job.precision.name == "fp8-block" else s.hidden
    made = [elementwise(cluster, "experts' casts", job.precision.cast_bytes * m * (taken + width(job, plan)), 2.0)]
    if sent:
        own = s.tokens / plan.tp * s.hidden
        made.append(elementwise(cluster, "casts before dispatch", (job.precision.activation_bytes + FP8_BYTES) * own))
    return made


def narrow(job: Job, backward: bool) -> bool:
    """Whether what is dispatched in a pass goes in eight bits: rows forward, the gradients of what experts gave backward."""
    return job.dispatch_precision == "fp8" or (job.dispatch_precision == "fp8-forward" and not backward)


def exchange(cluster: Cluster, job: Job, plan: Plan, s: Shapes, name: str, element: float) -> Term:
    """Rows of ``element`` bytes a number to the ranks of their experts, or back."""
    spread = job.capacity_factor or job.expert_imbalance
    sent = s.tokens / plan.tp * job.model.num_experts_per_tok * s.hidden * element * spread
    if job.moe_dispatcher in ("deepep", "hybridep"):
        routing = float(job.model.num_experts_per_tok), float(job.model.n_group), float(job.model.topk_group)
        return tiers.sent_once(cluster, plan, name, plan.ep, sent, plan.etp, routing)
    return tiers.all_to_all(cluster, plan, name, plan.ep, sent, plan.etp)


def communication(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> Term:
    """One pass: rows dispatched to their experts and combined again; with etp gathered and scattered inside an expert."""
    e = job.precision.activation_bytes
    combine = exchange(cluster, job, plan, s, "all-to-all", e)
    moved = total("dispatch and combine", [combine], times=2.0)
    if narrow(job, backward):
        moved = total("dispatch and combine", [exchange(cluster, job, plan, s, "dispatch in fp8", FP8_BYTES), combine])
    whole = s.tokens / plan.tp * job.model.num_experts_per_tok * s.hidden * e * (job.capacity_factor or job.expert_imbalance) * plan.etp
    gather = tiers.collective(cluster, plan, "all-gather", "all_gather", plan.etp, whole, 1.0)
    scatter = tiers.collective(cluster, plan, "reduce-scatter", "reduce_scatter", plan.etp, whole, 1.0)
    inside = np.where(plan.etp > 1, 1.0, 0.0)
    return total(
        "expert parallel",
        [
            moved,
            total("gather inside experts", [gather], times=inside),
            total("scatter inside experts", [scatter], times=inside),
        ],
    )


def dispatched(one_pass: Term) -> tuple[Term, Term]:
    """Dispatch and combine of one pass of ``communication``."""
    moved = one_pass["dispatch and combine"].parts
    return moved[0], moved[-1]
