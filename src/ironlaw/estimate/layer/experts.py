"""The routed part of a mixture-of-experts layer: router, permutation, grouped GEMMs, all-to-all.

Tokens are routed from their sequence-parallel share (``tokens / tp``). Every expert-parallel rank receives as many rows as
it sends, times the imbalance (``uneven``); with a capacity factor it computes that many instead, padded or dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer import casts, gradients, uneven
from ironlaw.estimate.layer.casts import job_of_experts
from ironlaw.estimate.layer.counts import expert_width, visited
from ironlaw.estimate.layer.dispatchers import dispatcher_of
from ironlaw.estimate.layer.products import product_key
from ironlaw.estimate.layer.sizes import Operator, Shapes, elementwise, gemm, kernel, once_for_sizes
from ironlaw.job import Job
from ironlaw.law import experts, flops
from ironlaw.plan import Plan
from ironlaw.precision import INPUT_GRADIENT, OUTPUT, WEIGHT_GRADIENT
from ironlaw.terms import Term, total

TILE = 128.0  # rows of the tiles of grouped GEMM kernels where the framework record has none
FUSED_ROUTING = 16.0  # bytes for each token and expert where the record has none: softmax and top-k in fp32, two reads and two writes
PERMUTATIONS = 4.0  # kernels that move rows to experts, sort them by expert, and move them back
BACKWARD_ROUTING = 0.5  # of the kernels of routing: maps and counts are made forward only
# a number dispatched in fp8 with its part of a scale: 4 bytes for 128, as DeepSeek-V3 quantises activations (section 3.3.2) and
# DeepEP sends them (deep_ep/buffer.py, dispatch), read 2026-11-22
FP8_BYTES = 1.0 + 4.0 / 128.0
_PERMUTED, _ACTIVATED, _CAST = (Operator(name, behind_dispatch=True) for name in ("permutation", "activation", "cast"))


def rows(job: Job, plan: Plan, s: Shapes) -> Any:
    """Rows the experts of one rank compute."""
    return experts.routed_rows(s.tokens, visited(job.model), plan.tp, plan.etp, 1.0) * uneven.imbalance(job, plan, s)


def width(job: Job, plan: Plan) -> Any:
    """Columns of an expert's first GEMM on one rank: gate and up together."""
    return job.model.moe_intermediate_size / plan.etp * (2.0 if job.model.gated_mlp else 1.0)


def choices(job: Job) -> float:
    """Experts that the router chooses from, including experts that compute nothing."""
    return float(job.model.num_experts + job.model.zero_expert_num)


def latent_shapes(job: Job, plan: Plan, s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """The projections to the experts' latent width and back, (m, n, k), on each rank's tokens; none where experts have the full width."""
    latent, tokens = float(job.model.moe_latent_size), s.tokens / plan.tp
    return {"latent in": (tokens, latent, s.hidden), "latent out": (tokens, s.hidden, latent)} if latent else {}


def grouped_gemm(cluster: Cluster, job: Job, plan: Plan, name: str, m: Any, n: Any, k: Any, key: Operator) -> Term:
    """One GEMM an expert of the rank, all in one kernel: ``m`` rows in all, ``n`` by ``k`` weights each."""
    p, wgrad = job_of_experts(job).precision, key.computes == WEIGHT_GRADIENT
    product = p.product(key.computes)
    operand = p.operand_bytes if product.narrow else p.activation_bytes
    local = uneven.held_experts(job, plan)
    weights = local * n * k * (gradients.written(job) if wgrad else operand)
    moved = weights + m * k * operand + m * n * (operand if wgrad else p.activation_bytes)
    flop = flops.gemm(computed_rows(job, plan, m, local), n, k)
    return kernel(cluster, name, flop, moved, product.peak, cluster.experts(product.gemm), launches=product_launches(job, local), key=key)


def computed_rows(job: Job, plan: Plan, m: Any, local: Any) -> Any:
    """Rows that the tiles of a rank's ``local`` experts compute for the ``m`` it has; with given loads for groups of unequal rows."""
    f = job.framework
    tile = TILE if f.expert_tile is None else f.expert_tile.value
    if f.straddling_tiles:
        return experts.straddling_rows(m, local, tile)
    loads = uneven.profile(job, plan)
    if loads is None:
        return experts.padded_rows(m, local, tile)
    return experts.padded_rows(np.asarray(m)[..., None] * loads, np.asarray(local)[..., None], tile).mean(axis=-1)


def product_launches(job: Job, local: Any) -> Any:
    """Launches of one grouped product that follow each other: one kernel for all experts, or one for each expert on several streams."""
    streams = job.framework.expert_streams
    if streams is None:
        return 1.0
    return np.maximum(local / (streams.value if job.grouped_experts else 1.0), 1.0)


@once_for_sizes
def linear_forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> list[Term]:
    """Router and the experts' GEMMs."""
    m, w, hidden = rows(job, plan, s), width(job, plan), float(expert_width(job.model))
    narrow = job.model.moe_intermediate_size / plan.etp
    return [
        gemm(cluster, job, "router gemm", s.tokens / plan.tp, choices(job), s.hidden, wide=True, key=product_key("router", OUTPUT)),
        *(gemm(cluster, job, f"{name} gemm", *mnk, key=product_key(name, OUTPUT)) for name, mnk in latent_shapes(job, plan, s).items()),
        grouped_gemm(cluster, job, plan, "experts in gemm", m, w, hidden, product_key("experts in", OUTPUT)),
        grouped_gemm(cluster, job, plan, "experts out gemm", m, hidden, narrow, product_key("experts out", OUTPUT)),
    ]


@once_for_sizes
def linear_backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> list[Term]:
    """dgrad and wgrad of router and experts."""
    m, w, hidden = rows(job, plan, s), width(job, plan), float(expert_width(job.model))
    narrow, tokens, count = job.model.moe_intermediate_size / plan.etp, s.tokens / plan.tp, choices(job)
    latents = latent_shapes(job, plan, s)
    terms = [
        gemm(cluster, job, "router dgrad", tokens, s.hidden, count, wide=True, key=product_key("router", INPUT_GRADIENT)),
        *(gemm(cluster, job, f"{name} dgrad", m, k, n, key=product_key(name, INPUT_GRADIENT)) for name, (m, n, k) in latents.items()),
        grouped_gemm(cluster, job, plan, "experts in dgrad", m, hidden, w, product_key("experts in", INPUT_GRADIENT)),
        grouped_gemm(cluster, job, plan, "experts out dgrad", m, narrow, hidden, product_key("experts out", INPUT_GRADIENT)),
    ]
    if job.lora_rank:  # router and experts are frozen
        return terms
    return [
        *terms,
        gemm(cluster, job, "router wgrad", s.hidden, count, tokens, wide=True, key=product_key("router", WEIGHT_GRADIENT)),
        *(gemm(cluster, job, f"{name} wgrad", k, n, m, key=product_key(name, WEIGHT_GRADIENT)) for name, (m, n, k) in latents.items()),
        grouped_gemm(cluster, job, plan, "experts in wgrad", m, w, hidden, product_key("experts in", WEIGHT_GRADIENT)),
        grouped_gemm(cluster, job, plan, "experts out wgrad", m, hidden, narrow, product_key("experts out", WEIGHT_GRADIENT)),
    ]


@once_for_sizes
def memory_bound(cluster: Cluster, job: Job, plan: Plan, s: Shapes, activation: float, backward: bool) -> list[Term]:
    """Memory-bound operators of routed experts: rows permuted and summed back, activation function, router scores, casts.

    ``activation`` is bytes for each element of the wide tensor. Permutation back moves as much as permutation to the experts.
    """
    p, m = job.precision, rows(job, plan, s)
    copied = p.activation_bytes * float(expert_width(job.model)) * row_copies(job, plan, s, backward)
    parts = [
        elementwise(cluster, "permute and unpermute", copied, PERMUTATIONS, cluster.row_bandwidth, key=_PERMUTED),
        elementwise(cluster, "experts' activation function", activation * m * width(job, plan), key=_ACTIVATED),
        routing_scores(cluster, job, plan, s, backward),
        *added_bias(cluster, job, plan, s, backward),
    ]
    return parts + expert_casts(cluster, job, plan, s, backward)


def adds_bias(job: Job) -> bool:
    """True where kernels of their own add the bias of an expert's second product.

    Their sizes come from the host, so a graph of the whole step cannot hold them: recipes with such graphs fuse the experts.
    """
    return job.model.expert_bias and job.framework.expert_bias_bytes is not None and job.cuda_graphs != "full"


def added_bias(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool) -> list[Term]:
    """Time to add the bias, weighted by the router's probability, to what the experts put out; none where the product adds it.

    The bias of the first product is part of that product.
    """
    f = job.framework
    if not adds_bias(job) or f.expert_bias_bytes is None:
        return []
    stated = f.expert_bias_bytes_backward if backward and f.expert_bias_bytes_backward is not None else f.expert_bias_bytes
    elements = rows(job, plan, s) * float(expert_width(job.model))
    launched = bias_operators(job) * uneven.held_experts(job, plan)
    return [elementwise(cluster, "bias of experts", stated.value * elements, launched, key=_ACTIVATED)]


def launches_of_product(job: Job) -> float:
    """Launches of one expert's product: itself and, in narrow formats, its casts and the kernels that order their scales.

    A mean over the three products of training. Where the record says nothing both operands are cast at every use.
    """
    if not any(product.narrow for product in job.precision.products.values()):
        return 1.0
    stated = job.framework.expert_launches.get(job.precision.known_as)
    return 3.0 if stated is None else stated.value


def bias_operators(job: Job) -> float:
    """Kernels that add the bias of one expert, forward."""
    count = job.framework.expert_bias_operators
    return count.value if adds_bias(job) and count is not None else 0.0


def expert_casts(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool) -> list[Term]:
    """Casts of the experts' products: rows in and the activation's output forward, the gradients of both outputs backward.

    Rows dispatched in fp8 are cast once on the rank that sends them. With the scales of DeepSeek-V3 (fp8-block) one product reads them
    as they arrive, and they are only transposed for the other; in other formats they are cast again.
    """
    job = job_of_experts(job)
    if not job.precision.narrow:
        return []
    p, m, sent, hidden = job.precision, rows(job, plan, s), dispatches_fp8(job, backward), float(expert_width(job.model))
    w, inner = width(job, plan), job.model.moe_intermediate_size / plan.etp
    ready = sent and p.known_as == "fp8-block" and casts.keeps_inputs(job)
    first = w if backward else inner
    moved = casts.activation_cast_bytes(cluster, job, m, first, 1.0, backward)
    moved = moved + casts.activation_cast_bytes(cluster, job, m, hidden, 1.0, backward, fused=ready)
    if backward and not casts.keeps_inputs(job) and not job.lora_rank and p.product(WEIGHT_GRADIENT).narrow:
        moved = moved + casts.cast_bytes(job, m * (hidden + inner), 1.0)
    weights = uneven.held_experts(job, plan) * hidden * (w + inner)
    if backward and not job.lora_rank:
        moved = moved + casts.turned_back_bytes(job, m * (hidden + inner), weights)
    terms = []
    if any(product.narrow for product in p.products.values()):
        rotated = casts.rotated_elements(job, m * (hidden + first), m * (hidden + inner), backward)
        terms = [casts.cast_kernels(cluster, job, "experts' casts", moved, rotated, 2.0 * casts.kernels_of_cast(job), _CAST)]
    if sent:
        elements = s.tokens / plan.tp * hidden
        terms.append(elementwise(cluster, "casts before dispatch", (p.activation_bytes + FP8_BYTES) * elements))
    return terms + casts.weight_casts(cluster, job, plan, "experts' weight casts", weights, plan.expert_shard_ranks, backward, _CAST)


def row_copies(job: Job, plan: Plan, s: Shapes, backward: bool) -> Any:
    """Rows of the hidden state read and written between a rank's tokens and its experts, in one pass.

    A dispatcher that sends a row once to each rank delivers it unsorted, one copy for all of the rank's experts. NCCL's all-to-all
    delivers one copy for each expert in the order of ranks, and a rank with several experts sorts them.
    """
    f, m, tokens = job.framework, rows(job, plan, s), s.tokens / plan.tp
    padded = f.padding_copies.value if f.padding_copies is not None and job_of_experts(job).precision.narrow else 0.0
    stated = f.row_copies_backward if backward and f.row_copies_backward is not None else f.row_copies
    if stated is not None:
        return experts.rows_moved(tokens, m, stated.value + padded)
    if dispatcher_of(job).sends_once:
        received = m * experts.distinct_share(plan.ep, *routing(job))
        return experts.rows_moved(received, m, 2.0 + padded)
    return experts.rows_moved(tokens, m, np.where(job.model.num_experts / plan.ep > 1.0, 6.0, 2.0) + padded)


def routing_scores(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool) -> Term:
    """Time to turn router logits into maps of rows: tensors of tokens by experts, written by many small kernels unless these are fused."""
    f = job.framework
    stated = f.routing_bytes_backward if backward and f.routing_bytes_backward is not None else f.routing_bytes
    moved = s.tokens / plan.tp * choices(job) * (FUSED_ROUTING if stated is None else stated.value)
    launched = max(f.operators_per_routed_layer.value - PERMUTATIONS, PERMUTATIONS)
    return elementwise(cluster, "routing scores", moved, launched * (BACKWARD_ROUTING if backward else 1.0))


def dispatches_fp8(job: Job, backward: bool) -> bool:
    """True where a pass dispatches in eight bits: rows forward, gradients of the experts' output backward."""
    return job.dispatch_precision == "fp8" or (job.dispatch_precision == "fp8-forward" and not backward)


def routing(job: Job) -> tuple[float, float, float]:
    """Experts of a token, groups of experts, and groups that a token's experts may lie in."""
    return visited(job.model), float(job.model.n_group), float(job.model.topk_group)


def exchange(cluster: Cluster, job: Job, plan: Plan, s: Shapes, name: str, element: float) -> Term:
    """Send rows of ``element`` bytes a number to the ranks of their experts, or back."""
    spread = uneven.imbalance(job, plan, s)
    sent = s.tokens / plan.tp * visited(job.model) * expert_width(job.model) * element * spread
    if dispatcher_of(job).sends_once:
        return group_links.sent_once(cluster, plan, name, plan.ep, sent, plan.etp, routing(job))
    return group_links.all_to_all(cluster, plan, name, plan.ep, sent, plan.etp)


class Communication(NamedTuple):
    """What one pass sends between the ranks of experts."""

    whole: Term
    dispatch: Term
    combine: Term


@once_for_sizes
def communication(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> Communication:
    """One pass: rows dispatched to their experts and combined again; with etp gathered and scattered inside an expert."""
    e = job.precision.activation_bytes
    dispatch = combine = exchange(cluster, job, plan, s, "all-to-all", e)
    moved = total("dispatch and combine", [combine], times=2.0)
    if dispatches_fp8(job, backward):
        dispatch = exchange(cluster, job, plan, s, "dispatch in fp8", FP8_BYTES)
        moved = total("dispatch and combine", [dispatch, combine])
    size = s.tokens / plan.tp * visited(job.model) * expert_width(job.model) * e * uneven.imbalance(job, plan, s) * plan.etp
    gather = group_links.collective(cluster, plan, "all-gather", "all_gather", plan.etp, size, 1.0)
    scatter = group_links.collective(cluster, plan, "reduce-scatter", "reduce_scatter", plan.etp, size, 1.0)
    inside = np.where(plan.etp > 1, 1.0, 0.0)
    gathered, scattered = total("gather inside experts", [gather], times=inside), total("scatter inside experts", [scatter], times=inside)
    return Communication(total("expert parallel", [moved, gathered, scattered]), dispatch, combine)
