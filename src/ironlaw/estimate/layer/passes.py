"""Computation of one layer of a kind for one micro-batch on one rank, as Term trees: forward, backward, recompute."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.catalog.records import AttentionConstants
from ironlaw.cluster import Cluster
from ironlaw.estimate.layer import adapters, experts, frozen_weights, gradients, memory_bound, state_space
from ironlaw.estimate.layer.context_methods import method_of
from ironlaw.estimate.layer.counts import index_share
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.products import LAST_PRODUCTS, linear_shapes, product_key
from ironlaw.estimate.layer.sequence import attended_span, sequence_ranks, slowest_key_length
from ironlaw.estimate.layer.sizes import INPUT_GRADIENT, OUTPUT, WEIGHT_GRADIENT, Shapes, elementwise, gemm, kernel, operator_of
from ironlaw.job import Job
from ironlaw.law import flops, kernels, masks, traffic
from ironlaw.plan import Plan
from ironlaw.terms import Term, total

FLASH_BACKWARD_FLOP = 2.5  # five GEMMs of the score size instead of two: the scores are computed again
UNFUSED_BACKWARD_FLOP = 2.0
FLASH_KERNELS, UNFUSED_KERNELS = ("flash",), ("batched gemms", "softmax")  # keys of the kernels of attention
PASSES = FORWARD, BACKWARD, RECOMPUTE = "forward", "backward", "recompute"  # keys of the passes over a layer


def linear_forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """The layer's GEMMs, forward."""
    made = [gemm(cluster, job, f"{name} gemm", *mnk, key=product_key(name, OUTPUT)) for name, mnk in linear_shapes(job, s, kind).items()]
    made += adapters.forward(cluster, job, plan, s, kind)
    made += frozen_weights.dequantised(cluster, job, plan, s, kind)
    return made + (experts.linear_forward(cluster, job, plan, s) if kind.routed else [])


def linear_backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """dgrad is (m, n) by (n, k); wgrad (k, m) by (m, n)."""
    made = []
    for name, (m, n, k) in linear_shapes(job, s, kind).items():
        made.append(gemm(cluster, job, f"{name} dgrad", m, k, n, key=product_key(name, INPUT_GRADIENT)))
        if not job.lora_rank:
            key = product_key(name, WEIGHT_GRADIENT)
            made.append(gemm(cluster, job, f"{name} wgrad", k, n, m, result=gradients.written(job), key=key))
    made += adapters.backward(cluster, job, plan, s, kind)
    made += frozen_weights.dequantised(cluster, job, plan, s, kind) + frozen_weights.transposed(cluster, job, plan, s, kind)
    return made + (experts.linear_backward(cluster, job, plan, s) if kind.routed else [])


def flash_constants(cluster: Cluster, job: Job) -> tuple[AttentionConstants, float]:
    """The constants of the attention kernel that the framework runs on the device, and the share of its rate that an older kernel has."""
    known = cluster.calibration.attention
    wanted = job.attention_kernel or job.framework.flash_generation.get(cluster.accelerator.architecture, "")
    rate = 1.0
    if wanted == "flash-1":
        wanted, rate = "flash-2", cluster.systems.first_flash.value
    if wanted == "flash-2" and "flash-3" in known:
        rate = rate * cluster.systems.older_flash.value
    if job.model.kv_lora_rank and "mla" in known:  # measured for latent attention, where flash's constants were too far off
        return known["mla"], rate
    return known.get(wanted) or next(iter(known.values())), rate


def core(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind, backward: bool = False) -> list[Term]:
    """The part of a layer that works across tokens: attention, or the scan of a state."""
    if kind.mixer == "attention":
        return attention(cluster, job, plan, s, backward)
    return state_space.scan(cluster, job, plan, s, kind, backward)


def attention(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> list[Term]:
    """The attention core: one flash kernel, or batched GEMMs with the scores moved through HBM."""
    e = job.precision.activation_bytes
    if job.flash:
        c, rate = flash_constants(cluster, job)
        width = picked_head_dim(job.model) if job.model.index_topk else s.head_dim
        flop = flops.attention_core(plan.micro_batch_size, plan.seq_len / plan.cp, slowest_key_length(job, plan), s.heads, width)
        moved = traffic.flash_attention(plan.micro_batch_size, plan.seq_len / plan.cp, s.heads, s.kv_heads, s.head_dim, e)
        # a ring splits a kernel's keys, all-to-all its heads; where keys are gathered a kernel has all of them
        ranks = 1.0 if method_of(job).gathers_keys else sequence_ranks(job, plan)
        efficiency = kernels.saturating_efficiency(
            attended_span(job, plan) / ranks, c.forward_efficiency.value * rate, c.saturation_length.value
        )
        if c.saturation_rows is not None:  # the rows of a rank's kernel: every method leaves each 1 / cp of them
            rows = plan.micro_batch_size * (plan.seq_len / plan.cp) * s.heads
            efficiency = efficiency * kernels.device_filling(rows, c.saturation_rows.value)
        if backward:
            flop, moved = flop * FLASH_BACKWARD_FLOP, moved * FLASH_BACKWARD_FLOP
            ratio = c.backward_time_ratio.value * cluster.systems.attention_backward.value
            efficiency = efficiency * FLASH_BACKWARD_FLOP / ratio
        wide = job.precision.wide
        core = kernel(cluster, "flash attention", flop, moved, wide, cluster.gemm(wide), efficiency, key=FLASH_KERNELS[0])
        return [core, *index_scores(cluster, job, plan, backward)]
    flop = flops.attention_core(plan.micro_batch_size, plan.seq_len / plan.cp, plan.seq_len, s.heads, s.head_dim)
    scores = plan.micro_batch_size * (plan.seq_len / plan.cp) * plan.seq_len * s.heads
    gemm_scores = 2.0 * e * scores * (2.0 if backward else 1.0)  # the batched GEMMs write the scores and read them
    softmax = memory_bound.scores(job, backward) * scores
    return [
        kernel(
            cluster,
            "attention batched gemms",
            flop * (UNFUSED_BACKWARD_FLOP if backward else 1.0),
            gemm_scores,
            aligned_peak(cluster, job),
            cluster.gemm(job.precision.wide),
            key=UNFUSED_KERNELS[0],
        ),
        elementwise(cluster, "attention mask, softmax, dropout", softmax, 3.0, key=UNFUSED_KERNELS[1]),
    ]


def picked_head_dim(model: Model) -> float:
    """Mean width of a query-key and a value product over picked keys, where all heads read the latent itself."""
    return model.kv_lora_rank + model.qk_rope_head_dim / 2.0


def index_scores(cluster: Cluster, job: Job, plan: Plan, backward: bool) -> list[Term]:
    """An indexer scores every earlier key of a query; its gradients come from the picked keys alone (DeepSeek-V3.2, section 2.1.1)."""
    m = job.model
    if not m.index_topk:
        return []
    span = attended_span(job, plan)
    keys = masks.attended_length(span, m.index_topk if backward else 0.0)
    length = plan.seq_len / plan.cp
    flop = flops.indexer(plan.micro_batch_size, length, keys, m.index_n_heads, m.index_head_dim) * (2.0 if backward else 1.0)
    share = index_share(m)
    heads = m.index_n_heads * (m.index_head_dim + 1.0)
    moved = job.precision.activation_bytes * plan.micro_batch_size * (length * heads + plan.seq_len * m.index_head_dim)
    written = 4.0 * plan.micro_batch_size * length * keys  # scores in fp32, written for the choice and read by it
    wide = job.precision.wide
    return [kernel(cluster, "index scores", share * flop, share * (moved + 2.0 * written), wide, cluster.gemm(wide))]


ALIGNMENT = 16.0  # bytes a row of an operand must be a multiple of for matrix units


def aligned_peak(cluster: Cluster, job: Job) -> str:
    """The peak rate of batched GEMMs over heads: matrix units need rows of whole 16 bytes, else vector units compute."""
    wide = job.precision.wide
    unaligned = (job.model.head_dim * job.precision.activation_bytes) % ALIGNMENT != 0.0
    return "fp32" if unaligned and "fp32" in cluster.accelerator.peak else wide


def forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """One pass forward, without its collectives."""
    parts = linear_forward(cluster, job, plan, s, kind)
    return total(
        "forward", [*parts, *core(cluster, job, plan, s, kind), *memory_bound.memory_bound(cluster, job, plan, s, kind)], key=FORWARD
    )


def backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """One pass backward, without its collectives."""
    parts = [
        *linear_backward(cluster, job, plan, s, kind),
        *core(cluster, job, plan, s, kind, backward=True),
        *memory_bound.memory_bound(cluster, job, plan, s, kind, backward=True),
    ]
    return total("backward", parts, times=1.0 if kind.trained else 0.0, key=BACKWARD)


def weight_gradients(backward: Term) -> Any:
    """Of a backward pass, the time of weight gradients."""
    return backward.times * sum(part.value for part in backward.parts if operator_of(part).computes == WEIGHT_GRADIENT)


def recompute(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """Computation that is repeated: of whole layers, and in other layers of the operators that the plan names."""
    rest = 1.0 - plan.recompute_layers
    linear = plan.recompute_layers + rest * plan.recompute_linear
    attention_share = plan.recompute_layers + (
        rest * plan.recompute_attention if kind.mixer == "attention" else 0.0
    )  # a scan saves its tensors
    bytes_bound = plan.recompute_layers + rest * plan.recompute_elementwise
    trained = 1.0 if kind.trained else 0.0
    products = linear_forward(cluster, job, plan, s, kind)
    if job.framework.compiled_recompute:
        products = [t for t in products if operator_of(t).name not in LAST_PRODUCTS]
    return total(
        "recompute",
        [
            total("linear layers again", products, times=linear),
            total("attention core again", core(cluster, job, plan, s, kind), times=attention_share),
            total("memory-bound operators again", memory_bound.memory_bound(cluster, job, plan, s, kind), times=bytes_bound),
        ],
        times=trained,
        key=RECOMPUTE,
    )
