"""Attention: multi-head, grouped-query, multi-query or latent, with or without an indexer that picks keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.catalog.records import AttentionConstants
from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.context_methods import method_of
from ironlaw.estimate.layer.mixer import Mixer, Products
from ironlaw.estimate.layer.sequence import attended_span, sequence_ranks, slowest_key_length
from ironlaw.estimate.layer.sizes import Shapes, core_head_dim, elementwise, kernel, once_for_sizes
from ironlaw.job import Job
from ironlaw.law import activations, compressed, flops, kernels, masks, parameters, traffic
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf

FLASH_BACKWARD_FLOP = 2.5  # five GEMMs of the score size instead of two: the scores are computed again
UNFUSED_BACKWARD_FLOP = 2.0
FLASH_KERNELS, UNFUSED_KERNELS = ("flash",), ("batched gemms", "softmax")  # keys of the kernels of attention
ALIGNMENT = 16.0  # bytes a row of an operand must be a multiple of for matrix units
DROPOUT = 5.0  # bytes of dropout as a separate kernel, of elements of 2: read, written, and a byte of mask; backward as much
NARROW_BYTES = 0.625  # of the bytes of the kernel, where of four tensors three are in one byte instead of two
SOFTMAX_BACKWARD = 1.5  # of its bytes forward: reads what it wrote and the gradient, writes one

_LATENT = ("hidden_size", "num_attention_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


class Attention(Mixer):
    """Attention of all heads, or through latents (``kv_lora_rank``)."""

    name, prefix = "attention", ""
    blocks = 1.0
    attends = True

    def parameters(self, model: Model) -> Any:
        """Count all weights of one layer's attention."""
        if model.kv_lora_rank:
            count = parameters.latent_attention(*(getattr(model, size) for size in _LATENT)) + index_parameters(model)
            return count + gate_weights(model)
        count = parameters.attention(
            model.hidden_size,
            model.num_attention_heads,
            model.num_key_value_heads,
            model.head_dim,
            float(model.query_key_value_bias),
            float(model.attention_output_bias),
            float(model.qk_norm),
        )
        if model.qk_norm and model.qk_norm_heads:  # a weight for each channel of each head, of which one head's are counted above
            count = count + model.head_dim * (model.num_attention_heads + model.num_key_value_heads - 2.0)
        if model.attention_k_eq_v:
            count = count - model.hidden_size * model.num_key_value_heads * model.head_dim
        if model.kv_shared:
            count = count - 2.0 * model.hidden_size * model.num_key_value_heads * model.head_dim
            count = count - (float(model.qk_norm) + 2.0 * float(model.query_key_value_bias) * model.num_key_value_heads) * model.head_dim
        sinks = model.num_attention_heads if model.attention_sinks else 0.0
        return count + gate_weights(model) + sinks + index_parameters(model)

    def matmul(self, model: Model) -> Any:
        """Count the weights of the projections and of the indexer."""
        if model.kv_lora_rank:
            count = parameters.latent_attention_matmul(*(getattr(model, size) for size in _LATENT))
            indexer = parameters.indexer_matmul(*_indexer_sizes(model)) if model.index_topk else 0.0
            return count + index_share(model) * indexer + gate_weights(model)
        keys = model.num_key_value_heads * key_copies(model)
        count = model.hidden_size * model.head_dim * (2.0 * model.num_attention_heads + keys)
        indexer = model.hidden_size * (model.index_n_heads + 1.0) * model.index_head_dim if model.index_topk else 0.0
        return count + gate_weights(model) + indexer

    def replicated(self, model: Model) -> tuple[Any, ...]:
        """Count the indexer, and the down-projections of latent attention with their norms."""
        if not model.kv_lora_rank:
            return (index_parameters(model),) if model.index_topk else ()
        down = (model.hidden_size + 1.0) * (model.q_lora_rank + model.kv_lora_rank)
        return index_parameters(model), down, model.hidden_size * model.qk_rope_head_dim

    def replicated_linear(self, model: Model) -> float:
        """Count the down-projections of latent attention."""
        return model.hidden_size * (model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim) if model.kv_lora_rank else 0.0

    def products(self, job: Job, s: Shapes) -> Products:
        """List the projections; with an output gate or with keys that are also values the first is wider or narrower."""
        model = job.model
        if model.kv_lora_rank:
            return latent_shapes(job, s)
        shapes = head_shapes(s)
        m, n, k = shapes["query-key-value"]
        if model.attention_output_gate:
            n = n + s.heads * s.head_dim
        if model.attention_head_gate:
            n = n + s.heads
        n = n - (2.0 - key_copies(model)) * s.kv_heads * s.head_dim
        if model.index_topk:  # every tensor-parallel rank has the whole indexer
            shapes["indexer query"] = (s.tokens, float(model.index_n_heads * model.index_head_dim), s.hidden)
            shapes["indexer key and weights"] = (s.tokens, float(model.index_head_dim), s.hidden)
        return shapes | {"query-key-value": (m, n, k)}

    def core(self, cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> list[Term]:
        """Time one flash kernel, or batched GEMMs with the scores moved through HBM."""
        return (flash if job.flash else unfused)(cluster, job, plan, s, backward)

    def memory_bound(self, cluster: Cluster, job: Job, s: Shapes, ratio: float, backward: bool) -> list[Term]:
        """Time rotary embedding, norms of queries and keys, and copies that a framework makes before and after flash attention."""
        model, f = job.model, job.framework
        unit = job.precision.activation_bytes / 2.0
        terms = []
        turned = s.tokens * (s.heads + s.kv_heads) * s.head_dim
        if model.position_embedding == "rope":
            terms.append(elementwise(cluster, "rotary embedding", unit * f.rotary_bytes.value * turned))
        if model.qk_norm:
            terms.append(elementwise(cluster, "query and key norms", ratio * f.norm_bytes.value * turned, 2.0))
        if f.attention_copies and job.flash:
            end = " backward" if backward else ""
            inputs, output = (f.attention_copies[f"{name}{end}"].value for name in ("inputs", "output"))
            copied = inputs * (s.heads + 2.0 * s.kv_heads) + output * s.heads
            terms.append(elementwise(cluster, "attention copies", unit * copied * s.tokens * s.head_dim, 4.0))
        return terms

    def cast_inputs(self, model: Model) -> float:
        """Count the cast inputs that are kept: one for each of the two down-projections of latent attention."""
        return 2.0 if model.kv_lora_rank else 1.0

    def kept_wide(self, job: Job, s: Shapes) -> Any:
        """Count the elements that are kept wide: the output of the flash kernel."""
        return s.heads * s.head_dim * s.tokens if job.flash else 0.0

    def activations(self, job: Job, plan: Plan, s: Shapes, cast_share: float, core_kept: Any) -> list[Term]:
        """List latents, queries, keys, values and output of attention; also the scores where attention is not flash."""
        m, e, heads = job.model, job.precision.activation_bytes, job.model.num_attention_heads
        keys = heads if m.kv_lora_rank or job.framework.repeated_keys else m.num_key_value_heads
        flash, tp, again = float(job.flash), plan.tp, bool(m.kv_lora_rank and np.any(plan.recompute_up))
        shared = {"tokens": s.tokens, "num_attention_heads": heads, "num_key_value_heads": keys, "head_dim": core_head_dim(m)}
        scores = {"tokens": s.tokens, "seq_len": plan.seq_len, "num_attention_heads": heads, "flash": flash, "dropout": float(m.dropout)}
        return [
            *(latent_activations(job, plan, s, cast_share) if m.kv_lora_rank else []),
            *([] if again else [leaf("attention", activations.attention, "B", **shared, flash=flash, tp=tp, bytes_per_element=e)]),
            *(attention_without_inputs(job, plan, s) if again else []),
            *self.normed(job, plan, s),
            leaf("attention scores", activations.attention_scores, "B", times=core_kept, **scores, tp=tp, bytes_per_element=e),
        ]

    def normed(self, job: Job, plan: Plan, s: Shapes) -> list[Term]:
        """Queries and keys as their norms keep them, beside those that attention keeps."""
        m = job.model
        if not m.qk_norm:
            return []
        width = (m.num_attention_heads + (0.0 if m.kv_lora_rank else m.num_key_value_heads)) * m.head_dim
        sizes = {"tokens": s.tokens, "intermediate_size": width, "tp": plan.tp, "bytes_per_element": job.precision.activation_bytes}
        return [leaf("inputs of the norms of queries and keys", activations.mlp, "B", saved=1.0, **sizes)]


def gate_weights(model: Model) -> float:
    """Weights of the gate on attention's output: as wide as the output, or one number a head."""
    heads = model.num_attention_heads
    width = heads * (model.v_head_dim if model.kv_lora_rank else model.head_dim) if model.attention_output_gate else 0.0
    return float(model.hidden_size * (width + (heads if model.attention_head_gate else 0.0)))


def key_copies(model: Model) -> float:
    """Projections to keys and to values: two, one where values are the keys, none where both are those of a layer before."""
    return 0.0 if model.kv_shared else 1.0 if model.attention_k_eq_v else 2.0


def index_share(model: Model) -> float:
    """Share of the sparse-attention layers that have an indexer."""
    return model.index_layers / model.num_hidden_layers if model.index_layers else 1.0


def _indexer_sizes(model: Model) -> tuple[float, ...]:
    """The sizes of an indexer of latent attention; without a latent of queries its queries come from the hidden state."""
    return model.hidden_size, model.q_lora_rank or model.hidden_size, model.index_n_heads, model.index_head_dim


def index_parameters(model: Model) -> Any:
    """The indexer of a layer, mean over the layers; without latent attention queries come from the hidden state, and blocks are picked."""
    if not model.index_topk:
        return 0.0
    if not model.kv_lora_rank:
        return compressed.block_indexer(model.hidden_size, model.index_n_heads, model.index_head_dim)
    return index_share(model) * parameters.indexer(*_indexer_sizes(model))


def head_shapes(s: Shapes) -> Products:
    """Products (m, n, k) of multi-head, grouped-query and multi-query attention."""
    return {
        "query-key-value": (s.tokens, (s.heads + 2.0 * s.kv_heads) * s.head_dim, s.hidden),
        "attention output": (s.tokens, s.hidden, s.heads * s.head_dim),
    }


def latent_shapes(job: Job, s: Shapes) -> Products:
    """Products (m, n, k) of latent attention: down-projections on the sequence-parallel share, up-projections by heads."""
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
    if m.attention_output_gate:
        shapes["attention gate"] = (s.tokens, s.heads * float(m.v_head_dim), s.hidden)
    if m.index_topk:  # every tensor-parallel rank has the whole indexer; mean over the layers
        rows = index_share(m) * s.tokens
        shapes["indexer query"] = (rows, float(m.index_n_heads * m.index_head_dim), float(m.q_lora_rank or m.hidden_size))
        shapes["indexer key and weights"] = (rows, float(m.index_head_dim + m.index_n_heads), s.hidden)
    return shapes


def flash_constants(cluster: Cluster, job: Job) -> tuple[AttentionConstants, float]:
    """The constants of the attention kernel that the framework runs on the device, and the share of its rate that an older kernel has."""
    known = cluster.calibration.attention
    wanted = job.attention_kernel or cluster.accelerator.row_of(job.framework.flash_generation, "")
    rate = 1.0
    if wanted == "flash-1":
        wanted, rate = "flash-2", cluster.systems.first_flash.value
    if wanted == "flash-2" and "flash-3" in known:
        rate = rate * cluster.systems.older_flash.value
    if job.model.kv_lora_rank and "mla" in known:  # measured for latent attention, where flash's constants were too far off
        return known["mla"], rate
    return known.get(wanted) or next(iter(known.values())), rate


@once_for_sizes
def flash(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool) -> list[Term]:
    """The flash kernel, and before it the indexer's scores."""
    c, rate = flash_constants(cluster, job)
    width = picked_head_dim(job.model) if job.model.index_topk and job.model.kv_lora_rank else s.head_dim
    length, wide = plan.seq_len / plan.cp, job.precision.wide
    flop = flops.attention_core(plan.micro_batch_size, length, slowest_key_length(job, plan), s.heads, width)
    moved = traffic.flash_attention(plan.micro_batch_size, length, s.heads, s.kv_heads, s.head_dim, job.precision.activation_bytes)
    # a ring splits a kernel's keys, all-to-all its heads; where keys are gathered a kernel has all of them
    ranks = 1.0 if method_of(job).gathers_keys else sequence_ranks(job, plan)
    efficiency = kernels.saturating_efficiency(
        attended_span(job, plan) / ranks, c.forward_efficiency.value * rate, c.saturation_length.value
    )
    if c.saturation_rows is not None:  # the rows of a rank's kernel: every method leaves each 1 / cp of them
        efficiency = efficiency * kernels.device_filling(plan.micro_batch_size * length * s.heads, c.saturation_rows.value)
    if backward:
        flop, moved = flop * FLASH_BACKWARD_FLOP, moved * FLASH_BACKWARD_FLOP
        efficiency = efficiency * FLASH_BACKWARD_FLOP / (c.backward_time_ratio.value * cluster.systems.attention_backward.value)
    if narrow(job, backward):  # queries, keys and values in one byte, the output wide
        share = cluster.systems.fp8_flash
        efficiency, moved = efficiency * (1.0 if share is None else share.value), moved * NARROW_BYTES
        casts = [elementwise(cluster, "attention casts", cast_elements(s, backward) * (job.precision.activation_bytes + 1.0), 3.0)]
        core = kernel(cluster, "flash attention", flop, moved, "fp8", cluster.gemm(wide), efficiency, key=FLASH_KERNELS[0])
        return [core, *casts, *index_scores(cluster, job, plan, backward)]
    core = kernel(cluster, "flash attention", flop, moved, wide, cluster.gemm(wide), efficiency, key=FLASH_KERNELS[0])
    return [core, *index_scores(cluster, job, plan, backward)]


def narrow(job: Job, backward: bool) -> bool:
    """True where a pass computes attention's products in fp8."""
    return job.attention_precision == "fp8" or (job.attention_precision == "fp8-forward" and not backward)


def cast_elements(s: Shapes, backward: bool) -> Any:
    """Elements that are cast for a pass in fp8: queries, keys and values; backward the gradient of the output."""
    return s.tokens * s.head_dim * (s.heads if backward else s.heads + 2.0 * s.kv_heads)


@once_for_sizes
def unfused(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool) -> list[Term]:
    """Batched GEMMs that write the scores and read them, and between these mask, softmax and dropout."""
    length, gemms = plan.seq_len / plan.cp, cluster.gemm(job.precision.wide)
    keys = job.model.source_tokens or plan.seq_len
    flop = flops.attention_core(plan.micro_batch_size, length, keys, s.heads, s.head_dim)
    flop = flop * (UNFUSED_BACKWARD_FLOP if backward else 1.0)
    scores = plan.micro_batch_size * length * keys * s.heads
    moved = 2.0 * job.precision.activation_bytes * scores * (2.0 if backward else 1.0)
    softmax = job.framework.score_bytes.value * (SOFTMAX_BACKWARD if backward else 1.0)
    softmax = (softmax + float(job.model.dropout) * DROPOUT) * job.precision.activation_bytes / 2.0 * scores
    return [
        kernel(cluster, "attention batched gemms", flop, moved, aligned_peak(cluster, job), gemms, key=UNFUSED_KERNELS[0]),
        elementwise(cluster, "attention mask, softmax, dropout", softmax, 3.0, key=UNFUSED_KERNELS[1]),
    ]


def picked_head_dim(model: Model) -> float:
    """Mean width of a query-key and a value product over picked keys, where all heads read the latent itself."""
    return model.kv_lora_rank + model.qk_rope_head_dim / 2.0


def index_scores(cluster: Cluster, job: Job, plan: Plan, backward: bool) -> list[Term]:
    """Time the indexer: it scores every earlier key of a query; gradients come only from the picked keys (DeepSeek-V3.2, section 2.1.1)."""
    m = job.model
    if not m.index_topk:
        return []
    entry = float(max(m.compress_ratio, 1))  # tokens that a scored key stands for
    keys = scored_keys(m, attended_span(job, plan), backward)
    length = plan.seq_len / plan.cp
    flop = index_flop(m, plan.micro_batch_size, length, keys, backward)
    share = index_share(m)
    heads = m.index_n_heads * (m.index_head_dim + 1.0)
    moved = job.precision.activation_bytes * plan.micro_batch_size * (length * heads + plan.seq_len / entry * m.index_head_dim)
    written = 4.0 * plan.micro_batch_size * length * keys  # scores in fp32, written for the choice and read by it
    wide = job.precision.wide
    return [kernel(cluster, "index scores", share * flop, share * (moved + 2.0 * written), wide, cluster.gemm(wide))]


def scored_keys(model: Model, span: Any, backward: bool) -> Any:
    """Keys that an indexer scores for a query of a document: all before it, backward the picked ones."""
    return masks.attended_length(span / float(max(model.compress_ratio, 1)), model.index_topk if backward else 0.0)


def index_flop(model: Model, batch: Any, length: Any, keys: Any, backward: bool) -> Any:
    """FLOPs of an indexer's scores in one pass of a layer: ``indexer``, twice backward."""
    return flops.indexer(batch, length, keys, model.index_n_heads, model.index_head_dim) * (2.0 if backward else 1.0)


def aligned_peak(cluster: Cluster, job: Job) -> str:
    """The peak rate of batched GEMMs over heads: matrix units need rows of whole 16 bytes, else vector units compute."""
    wide = job.precision.wide
    unaligned = (job.model.head_dim * job.precision.activation_bytes) % ALIGNMENT != 0.0
    return "fp32" if unaligned and "fp32" in cluster.accelerator.peak else wide


def attention_without_inputs(job: Job, plan: Plan, s: Shapes) -> list[Term]:
    """What latent attention keeps where up-projections write queries, keys and values again: its output, and sums of its softmax."""
    m, e = job.model, job.precision.activation_bytes
    sizes = {"tokens": s.tokens, "saved": m.num_attention_heads, "tp": plan.tp, "bytes_per_element": e}
    inputs = 2.0 * (m.qk_nope_head_dim + m.qk_rope_head_dim) + m.v_head_dim
    heads = {"num_attention_heads": m.num_attention_heads, "num_key_value_heads": 0.0, "head_dim": 0.0, "flash": float(job.flash)}
    return [
        leaf("queries, keys and values", activations.mlp, "B", times=1.0 - plan.recompute_up, intermediate_size=inputs, **sizes),
        leaf("output of attention", activations.mlp, "B", intermediate_size=m.v_head_dim, **sizes),
        leaf("sums of the softmax", activations.attention, "B", tokens=s.tokens, tp=plan.tp, bytes_per_element=e, **heads),
    ]


def latent_activations(job: Job, plan: Plan, s: Shapes, cast_share: float) -> list[Term]:
    """Latent attention keeps each latent before its norm, after it as a linear layer's input, and the key's part with position.

    An indexer keeps its queries, its key before and after the norm, one weight a head, and the keys it picked (4 bytes each).
    """
    m, e = job.model, job.precision.activation_bytes

    def kept(name: str, times: float | None, width: Any, tp: Any, sp: Any) -> Term:
        sizes = {"tokens": s.tokens, "hidden_size": width, "tp": tp, "sp": sp, "bytes_per_element": e}
        return leaf(name, activations.checkpoint, "B", times=times, **sizes)

    terms = [kept("latents", None, (1.0 + cast_share) * (m.q_lora_rank + m.kv_lora_rank) + m.qk_rope_head_dim, plan.tp, plan.sp)]
    if m.index_topk:
        picked = np.minimum(plan.seq_len, m.index_topk) * 4.0 / e
        width = m.index_n_heads * (m.index_head_dim + 1.0) + 2.0 * m.index_head_dim + picked
        terms.append(kept("indexer", index_share(m), width, 1.0, 0.0))
    return terms
