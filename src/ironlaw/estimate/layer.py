"""One layer of a kind for one micro-batch on one rank, as Term trees: forward, backward, recompute, collectives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.catalog.records import AttentionConstants
from ironlaw.estimate import experts, state, tiers
from ironlaw.estimate.counts import index_share, norms_of
from ironlaw.estimate.kinds import Kind, kinds, sized
from ironlaw.estimate.parts import Shapes, elementwise, gemm, kernel
from ironlaw.law import flops, kernels, traffic
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.terms import Term, total

FLASH_BACKWARD_FLOP = 2.5  # five GEMMs of the score size instead of two: the scores are computed again
UNFUSED_BACKWARD_FLOP = 2.0


def linear_shapes(job: Job, s: Shapes, kind: Kind) -> dict[str, tuple[Any, Any, Any]]:
    """The layer's dense GEMMs forward, by name: (m, n, k). A routed layer's are attention and shared experts."""
    return {**mixer_shapes(job, s, kind), **mlp_shapes(job, s, kind)}


def adapted_shapes(job: Job, s: Shapes, kind: Kind) -> dict[str, tuple[Any, Any, Any]]:
    """The linear layers that have an adapter when only adapters are trained."""
    return linear_shapes(job, s, kind) if job.lora_targets == "all" else mixer_shapes(job, s, kind)


def mixer_shapes(job: Job, s: Shapes, kind: Kind) -> dict[str, tuple[Any, Any, Any]]:
    """The GEMMs of what mixes a layer's tokens."""
    if kind.mixer in ("linear", "mamba"):
        return state.shapes(job, s, kind)
    if kind.mixer == "none":
        return {}
    if job.model.kv_lora_rank:
        return latent_shapes(job, s)
    made = head_shapes(s)
    if job.model.attention_output_gate:
        m, n, k = made["query-key-value"]
        made["query-key-value"] = (m, n + s.heads * s.head_dim, k)
    if job.model.attention_k_eq_v:
        m, n, k = made["query-key-value"]
        made["query-key-value"] = (m, n - s.kv_heads * s.head_dim, k)
    return made


def head_shapes(s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """Multi-head, grouped-query and multi-query attention."""
    return {
        "query-key-value": (s.tokens, (s.heads + 2.0 * s.kv_heads) * s.head_dim, s.hidden),
        "attention output": (s.tokens, s.hidden, s.heads * s.head_dim),
    }


def latent_shapes(job: Job, s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """Latent attention: down-projections on the sequence-parallel share, up-projections by heads."""
    m = job.model
    query_key = float(m.qk_nope_head_dim + m.qk_rope_head_dim)
    shapes = {
        "key-value down": (s.sequence_tokens, float(m.kv_lora_rank + m.qk_rope_head_dim), s.hidden),
        "key-value up": (s.tokens, s.heads * float(m.qk_nope_head_dim + m.v_head_dim), float(m.kv_lora_rank)),
        "query up": (s.tokens, s.heads * query_key, float(m.q_lora_rank) if m.q_lora_rank else s.hidden),
        "attention output": (s.tokens, s.hidden, s.heads * float(m.v_head_dim)),
    }
    if m.q_lora_rank:
        shapes["query down"] = (s.sequence_tokens, float(m.q_lora_rank), s.hidden)
    if m.index_topk:  # every tensor-parallel rank has the whole indexer; mean over the layers
        rows = index_share(m) * s.tokens
        shapes["indexer query"] = (rows, float(m.index_n_heads * m.index_head_dim), float(m.q_lora_rank))
        shapes["indexer key and weights"] = (rows, float(m.index_head_dim + m.index_n_heads), s.hidden)
    return shapes


def dense_shapes(s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """The two GEMMs of a dense MLP; gate and up are one."""
    return {"mlp in": (s.tokens, s.wide, s.hidden), "mlp out": (s.tokens, s.hidden, s.ffn)}


def mlp_shapes(job: Job, s: Shapes, kind: Kind) -> dict[str, tuple[Any, Any, Any]]:
    """The dense MLP, or a routed layer's shared experts; layers for further tokens project two hidden states to one."""
    shapes = {}
    if kind.place == "end":
        shapes["further-token projection"] = (s.sequence_tokens, s.hidden, 2.0 * s.hidden)
    if kind.mlp == "none":
        return shapes
    if not kind.routed:
        return {**shapes, **dense_shapes(s)}
    if job.model.shared_expert_intermediate_size:
        ratio = job.model.shared_expert_intermediate_size / job.model.intermediate_size
        shapes["shared expert in"] = (s.tokens, s.wide * ratio, s.hidden)
        shapes["shared expert out"] = (s.tokens, s.hidden, s.ffn * ratio)
    return shapes


def linear_forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """The layer's GEMMs, forward."""
    made = [gemm(cluster, job, f"{name} gemm", *mnk) for name, mnk in linear_shapes(job, s, kind).items()]
    made += adapters(cluster, job, adapted_shapes(job, s, kind), backward=False)
    return made + (experts.linear_forward(cluster, job, plan, s) if kind.routed else [])


def linear_backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """dgrad is (m, n) by (n, k); wgrad (k, m) by (m, n)."""
    made = []
    for name, (m, n, k) in linear_shapes(job, s, kind).items():
        made.append(gemm(cluster, job, f"{name} dgrad", m, k, n))
        if not job.lora_rank:
            made.append(gemm(cluster, job, f"{name} wgrad", k, n, m))
    made += adapters(cluster, job, adapted_shapes(job, s, kind), backward=True)
    return made + (experts.linear_backward(cluster, job, plan, s) if kind.routed else [])


def attended_span(job: Job, plan: Plan) -> Any:
    """Tokens attention reaches over: the sequence, or the document packed into it."""
    return np.minimum(plan.seq_len, job.document_length) if job.document_length else plan.seq_len


def adapters(cluster: Cluster, job: Job, shapes: dict[str, tuple[Any, Any, Any]], backward: bool) -> list[Term]:
    """The low-rank pair beside each linear layer, when only adapters are trained; experts have none."""
    if not job.lora_rank:
        return []
    made, r = [], job.lora_rank
    for name, (m, n, k) in shapes.items():
        if backward:
            made += [
                gemm(cluster, job, f"{name} adapter dgrad", m, k, r, wide=True),
                gemm(cluster, job, f"{name} adapter dgrad up", m, r, n, wide=True),
            ]
            made += [
                gemm(cluster, job, f"{name} adapter wgrad", k, r, m, wide=True),
                gemm(cluster, job, f"{name} adapter up wgrad", r, n, m, wide=True),
            ]
        else:
            made += [
                gemm(cluster, job, f"{name} adapter", m, r, k, wide=True),
                gemm(cluster, job, f"{name} adapter up", m, n, r, wide=True),
            ]
    return made


def mean_key_length(job: Job, plan: Plan) -> Any:
    """Keys a causal query sees, averaged over local and global layers; those that an indexer picked where there is one."""
    model, span = job.model, attended_span(job, plan)
    share = model.sliding_window_layers / model.num_hidden_layers
    everywhere = flops.attended_length(span, model.index_topk)  # a token among the first attends to all before it
    if share == 0.0:
        return everywhere
    if model.attention_chunk_size:
        return share * flops.chunked_length(span, model.attention_chunk_size) + (1.0 - share) * everywhere
    return share * flops.attended_length(span, model.sliding_window) + (1.0 - share) * everywhere


def model_key_length(job: Job, plan: Plan) -> Any:
    """The same averaged over the layers that attend, each by its width: what the model's operations are counted with."""
    if not job.model.layer_groups:
        return mean_key_length(job, plan)
    seen: Any = 0.0
    width = 0.0
    for kind in kinds(job.model):
        if kind.mixer == "attention":
            own = replace(job, model=sized(job.model, kind))
            part = kind.count * own.model.num_attention_heads * own.model.head_dim
            seen, width = seen + part * mean_key_length(own, plan), width + part
    return seen / width if width else mean_key_length(job, plan)


def flash_constants(cluster: Cluster, job: Job) -> tuple[AttentionConstants, float]:
    """The constants of the attention kernel this framework runs on this architecture, and what an older kernel keeps of them."""
    known = cluster.calibration.attention
    wanted = job.attention_kernel or job.framework.flash_generation.get(cluster.accelerator.architecture, "")
    rate = 1.0
    if wanted == "flash-1":
        wanted, rate = "flash-2", cluster.systems.first_flash.value
    if wanted == "flash-2" and "flash-3" in known:
        rate = rate * cluster.systems.older_flash.value
    if job.model.kv_lora_rank and "mla" in known:  # where latent attention was measured too far from what flash's constants say
        return known["mla"], rate
    return known.get(wanted) or next(iter(known.values())), rate


def core(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind, backward: bool = False) -> list[Term]:
    """What a layer does across tokens: attention, or the scan of a state."""
    if kind.mixer == "attention":
        return attention(cluster, job, plan, s, backward)
    return state.scan(cluster, job, plan, s, kind, backward)


def attention(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> list[Term]:
    """The attention core: one flash kernel, or batched GEMMs with the scores moved through HBM."""
    e = job.precision.activation_bytes
    if job.flash:
        c, kept = flash_constants(cluster, job)
        width = picked_head_dim(job.model) if job.model.index_topk else s.head_dim
        flop = flops.attention_core(plan.micro_batch_size, plan.seq_len / plan.cp, mean_key_length(job, plan), s.heads, width)
        moved = traffic.flash_attention(plan.micro_batch_size, plan.seq_len / plan.cp, s.heads, s.kv_heads, s.head_dim, e)
        ranks = 1.0 if job.cp_method == "all-to-all" else plan.cp  # a ring splits a kernel's sequence, all-to-all its heads
        efficiency = kernels.saturating_efficiency(
            attended_span(job, plan) / ranks, c.forward_efficiency.value * kept, c.saturation_length.value
        )
        if c.saturation_rows is not None:  # the rows of a rank's kernel: ring and all-to-all leave each 1 / cp of them
            rows = plan.micro_batch_size * (plan.seq_len / plan.cp) * s.heads
            efficiency = efficiency * kernels.device_filling(rows, c.saturation_rows.value)
        if backward:
            flop, moved = flop * FLASH_BACKWARD_FLOP, moved * FLASH_BACKWARD_FLOP
            ratio = c.backward_time_ratio.value * cluster.systems.attention_backward.value
            efficiency = efficiency * FLASH_BACKWARD_FLOP / ratio
        wide = job.precision.wide
        core = kernel(cluster, "flash attention", flop, moved, wide, cluster.gemm(wide), efficiency)
        return [core, *index_scores(cluster, job, plan, backward)]
    ratio = job.framework.backward_traffic_ratio.value if backward else 1.0
    flop = flops.attention_core(plan.micro_batch_size, plan.seq_len / plan.cp, plan.seq_len, s.heads, s.head_dim)
    scores = plan.micro_batch_size * (plan.seq_len / plan.cp) * plan.seq_len * s.heads
    gemm_scores = 2.0 * e * scores * (2.0 if backward else 1.0)  # the batched GEMMs write the scores and read them
    softmax = (job.framework.score_bytes.value * (e / 2.0) * ratio) * scores
    return [
        kernel(
            cluster,
            "attention batched gemms",
            flop * (UNFUSED_BACKWARD_FLOP if backward else 1.0),
            gemm_scores,
            aligned_peak(cluster, job),
            cluster.gemm(job.precision.wide),
        ),
        elementwise(cluster, "attention mask, softmax, dropout", softmax, 3.0),
    ]


def picked_head_dim(model: Model) -> float:
    """Mean width of a query-key and a value product over picked keys: all heads share the latent, which is not unfolded by head."""
    return model.kv_lora_rank + model.qk_rope_head_dim / 2.0


def index_scores(cluster: Cluster, job: Job, plan: Plan, backward: bool) -> list[Term]:
    """An indexer scores every key before a query; its gradients come from the picked ones alone (DeepSeek-V3.2, section 2.1.1)."""
    m = job.model
    if not m.index_topk:
        return []
    span = attended_span(job, plan)
    keys = flops.attended_length(span, m.index_topk if backward else 0.0)
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
    """The peak batched GEMMs over heads run at: matrix units need rows of whole 16 bytes, else plain units do the work."""
    wide = job.precision.wide
    unaligned = (job.model.head_dim * job.precision.activation_bytes) % ALIGNMENT != 0.0
    return "fp32" if unaligned and "fp32" in cluster.accelerator.peak else wide


def memory_bound(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind, backward: bool = False) -> list[Term]:
    """Norms, residual additions, rotary embedding, the MLP's activation function, and casts of narrow formats."""
    model, f = job.model, job.framework
    ratio = (f.backward_traffic_ratio.value if backward else 1.0) * job.precision.activation_bytes / 2.0
    hidden, norms = s.sequence_tokens * s.hidden, norms_of(model, kind)
    groups = [
        elementwise(cluster, "norms", ratio * f.norm_bytes.value * norms * hidden, norms),
        elementwise(cluster, "residuals", ratio * f.residual_bytes.value * kind.blocks * hidden, kind.blocks),
    ]
    shapes = linear_shapes(job, s, kind)
    wide = [n for name, (_, n, _) in shapes.items() if name in ("mlp in", "shared expert in")]
    if wide:
        groups.append(elementwise(cluster, "activation function", ratio * f.activation_bytes.value * s.tokens * wide[0]))
    if model.position_embedding == "rope" and kind.mixer == "attention":
        rotated = s.tokens * (s.heads + s.kv_heads) * s.head_dim
        groups.append(elementwise(cluster, "rotary embedding", ratio * f.rotary_bytes.value * rotated))
    if model.qk_norm and kind.mixer == "attention":
        normed = s.tokens * (s.heads + s.kv_heads) * s.head_dim
        groups.append(elementwise(cluster, "query and key norms", ratio * f.norm_bytes.value * normed, 2.0))
    if kind.mixer in ("linear", "mamba"):
        groups.append(state.convolution(cluster, job, s, kind, ratio))
    if job.precision.cast_bytes:
        groups.append(elementwise(cluster, "casts", job.precision.cast_bytes * cast_elements(shapes, backward), 4.0))
    return groups + (experts.memory_bound(cluster, job, plan, s, ratio) if kind.routed else [])


def cast_elements(shapes: dict[str, tuple[Any, Any, Any]], backward: bool) -> Any:
    """Elements quantised in one pass: each linear layer's input forward, its output's gradient backward."""
    count: Any = 0.0
    for m, n, k in shapes.values():
        count = count + m * (n if backward else k)
    return count


def tensor_parallel(cluster: Cluster, job: Job, plan: Plan, kind: Kind) -> Term:
    """Collectives of one pass over a layer: two all-reduces of its activations, or their two halves when sp is on.

    A reduce-scatter and an all-gather move what one all-reduce moves; they are timed apart where the tier's record does so.
    Routed experts take their tokens from the sequence-parallel share: only attention and shared experts need the pair.
    """
    pairs = kind.blocks - (1.0 if kind.routed and not job.model.shared_expert_intermediate_size else 0.0)
    size = plan.tokens * job.model.hidden_size * job.precision.activation_bytes
    reduce = tiers.collective(cluster, plan, "all-reduce", "all_reduce", plan.tp, size, 1.0)
    gather = tiers.collective(cluster, plan, "all-gather", "all_gather", plan.tp, size, 1.0)
    scatter = tiers.collective(cluster, plan, "reduce-scatter", "reduce_scatter", plan.tp, size, 1.0)
    off, on = np.where(plan.sp > 0, 0.0, pairs), np.where(plan.sp > 0, pairs, 0.0)
    parts = [total(f"{t.name}s", [t], times=n) for t, n in ((reduce, off), (gather, on), (scatter, on))]
    return total("tensor parallel", parts)


def context_parallel(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> Term:
    """What context ranks send each other for one attention: keys and values round a ring, or heads for tokens by all-to-all.

    Backward a ring carries the gradients of keys and values along; all-to-all moves as much back as forward.
    """
    e = job.precision.activation_bytes
    if job.cp_method == "all-to-all":
        size = (2.0 * s.heads + 2.0 * s.kv_heads) * s.head_dim * s.tokens * e
        return tiers.all_to_all(cluster, plan, "heads for tokens", plan.cp, size, plan.tp)
    block = 2.0 * s.kv_heads * s.head_dim * s.tokens * e
    return tiers.ring_pass(cluster, plan, "keys and values round the ring", plan.cp, block * (2.0 if backward else 1.0), plan.tp)


def forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """One pass forward, without its collectives."""
    parts = linear_forward(cluster, job, plan, s, kind)
    return total("forward", [*parts, *core(cluster, job, plan, s, kind), *memory_bound(cluster, job, plan, s, kind)])


def backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """One pass backward, without its collectives."""
    parts = [
        *linear_backward(cluster, job, plan, s, kind),
        *core(cluster, job, plan, s, kind, backward=True),
        *memory_bound(cluster, job, plan, s, kind, backward=True),
    ]
    return total("backward", parts, times=1.0 if kind.trained else 0.0)


LAST_PRODUCTS = ("mlp out gemm", "shared expert out gemm", "experts out gemm")  # backward needs their input, not their output


def recompute(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """What is computed a second time: whole layers, and in the others the operators the plan names."""
    rest = 1.0 - plan.recompute_layers
    linear = plan.recompute_layers + rest * plan.recompute_linear
    again = plan.recompute_layers + rest * plan.recompute_attention
    bytes_bound = plan.recompute_layers + rest * plan.recompute_elementwise
    trained = 1.0 if kind.trained else 0.0
    products = linear_forward(cluster, job, plan, s, kind)
    if job.framework.compiled_recompute:
        products = [t for t in products if t.name not in LAST_PRODUCTS]
    return total(
        "recompute",
        [
            total("linear layers again", products, times=linear),
            total("attention core again", core(cluster, job, plan, s, kind), times=again),
            total("memory-bound operators again", memory_bound(cluster, job, plan, s, kind), times=bytes_bound),
        ],
        times=trained,
    )
