"""Activations that one layer keeps of one micro-batch for the backward pass, tensor by tensor.

Sums of the laws in ``law/activations``. ``memory/total`` multiplies them by layers and by micro-batches in flight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.estimate.layer import adapters, casts, experts, residuals
from ironlaw.estimate.layer.counts import expert_width, norms_of
from ironlaw.estimate.layer.frozen_weights import BITSANDBYTES
from ironlaw.estimate.layer.kinds import Kind, kinds, layer_of_kind, layers_of, plan_of_kind
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job
from ironlaw.law import activations
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf


def layer_activations(job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """The activations of one layer and one micro-batch, where the layer is not recomputed in full.

    Where the cast input of a linear layer is kept, its wide copy is freed, unless another operator keeps it: a norm keeps its input,
    the attention kernel its output, the router its own input.
    """
    job = casts.job_of_kind(job, kind)
    job, s = layer_of_kind(job, plan, s, kind)
    plan = plan_of_kind(plan, kind)
    if not kind.blocks:
        return kind.mixer.activations(job, plan, s, cast_share(job), 1.0 - plan.recompute_attention)
    model, e = job.model, job.precision.activation_bytes
    dropout = float(model.dropout)
    linear_kept = mlp_kept(plan, kind)
    cheap_kept = 1.0 - plan.recompute_elementwise
    inputs = input_bytes_kept(job, kind)
    norm_share = e / (e + inputs * 2.0 / kind.blocks)  # a norm's input is kept where its output is computed again
    mixer = kind.mixer.activations(job, plan, s, cast_share(job), 1.0 - plan.recompute_attention)
    streams = residual_activations(job, plan, s, kind, cheap_kept)
    if job.lora_rank:
        return [
            *activations_beside_frozen(job, plan, s, kind),
            *streams,
            *norm_copies(job, plan, s, kind, cheap_kept),
            *mixer,
            *mlp_activations(job, plan, s, kind, linear_kept, cheap_kept),
        ]
    return [
        leaf(
            "norms and residuals",
            activations.norms_and_residuals,
            "B",
            times=norm_share + (1.0 - norm_share) * cheap_kept,
            tokens=s.tokens,
            hidden_size=model.hidden_size,
            norms=norms_of(model, kind),
            dropout=dropout,
            tp=plan.tp,
            sp=plan.sp,
            bytes_per_element=e,
            input_bytes=with_source(job, inputs),
        ),
        *streams,
        *norm_copies(job, plan, s, kind, cheap_kept),
        *mixer,
        *cast_copies(job, s, kind),
        *mlp_activations(job, plan, s, kind, linear_kept, cheap_kept),
    ]


def activations_beside_frozen(job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """With adapters: inputs of norms, inputs of linear layers that have an adapter, and the tensors inside adapters.

    A frozen product passes a gradient on with its weight alone: autograd keeps no input for it, nor do Megatron
    (``LinearWithFrozenWeight``) and Transformer Engine (``ln_out if weight.requires_grad else None``).
    """
    model, e = job.model, job.precision.activation_bytes
    inputs = float(kind.mixer.blocks > 0.0 and adapters.keeps_input(job, kind, "qkv", "q", "k", "v", "q_down", "kv_down"))
    of_mlp = ("fc1", "gate", "up", "router", *(("shared_experts",) if kind.routed else ()))
    into_mlp = adapters.keeps_input(job, kind, *of_mlp) if kind.has_mlp else False
    masks = 2.0 * float(model.dropout) / e  # one byte each, in elements
    kept = norms_of(model, kind) + masks + (inputs + float(into_mlp)) * (1.0 - plan.recompute_elementwise)
    middle = adapters.elements_kept(job, s, kind)
    terms = [hidden_state("norms and residuals", job, plan, s, kept), elements("inside adapters", middle, 1.0, e)]
    if job.framework.adapter_input_bytes is not None:
        terms.append(elements("copies of adapters' inputs", adapters.copies_of_inputs(job, s, kind), 1.0, 1.0))
    return terms


def norm_copies(job: Job, plan: Plan, s: Shapes, kind: Kind, kept: Any) -> list[Term]:
    """Wide copies of the inputs of a layer's norms, which an eager norm keeps."""
    copies = copies_of_norm(job)
    if not copies:
        return []
    return [hidden_state("copies in norms", job, plan, s, norms_of(job.model, kind) * copies * kept)]


def copies_of_norm(job: Job) -> float:
    """Wide copies that an eager norm keeps of its input, in its bytes. torch's layer norm is one kernel, which keeps none."""
    stated = job.framework.norm_copies
    if stated is None or job.model.norm.startswith("layernorm"):
        return 0.0
    return stated.value / job.precision.activation_bytes


def residual_activations(job: Job, plan: Plan, s: Shapes, kind: Kind, kept: Any) -> list[Term]:
    """What residual connections keep beside the inputs of norms: streams and blocks' outputs, sums, the second embedding."""
    model, terms = job.model, []
    if model.hc_mult or model.attn_res_block_size:
        terms.append(hidden_state("residual streams", job, plan, s, residuals.saved_states(model, kind.blocks, kept)))
    if model.hidden_size_per_layer_input:  # the second embedding, the gate before and behind its activation, and their product
        terms.append(hidden_state("per-layer embedding", job, plan, s))
        terms.append(
            elements("inside the per-layer embedding", s.tokens, 4.0 * model.hidden_size_per_layer_input, job.precision.activation_bytes)
        )
    return terms


def hidden_state(name: str, job: Job, plan: Plan, s: Shapes, times: Any = None) -> Term:
    """One hidden state of one micro-batch, ``times`` over."""
    sizes = {"tokens": s.tokens, "hidden_size": job.model.hidden_size, "tp": plan.tp, "sp": plan.sp}
    return leaf(name, activations.checkpoint, "B", times=times, **sizes, bytes_per_element=job.precision.activation_bytes)


def checkpoint_width(job: Job, plan: Plan) -> Any:
    """Bytes of a checkpoint over those of a hidden state: norms in fp32, which PEFT makes of them beside weights that bitsandbytes packs,
    write it in fp32, unless FSDP casts their weights."""
    stated = job.framework.packed_hidden_bytes
    if stated is None or job.frozen_weights != BITSANDBYTES:
        return 1.0
    cast = (plan.zero == 3) & (plan.shard_ranks > 1)
    return np.where(cast, 1.0, stated.value / job.precision.activation_bytes)


def elements(name: str, rows: Any, width: Any, size: float, times: Any = None) -> Term:
    """A tensor of one rank: ``rows`` by ``width`` elements of ``size`` bytes, ``times`` over."""
    return leaf(name, activations.checkpoint, "B", times=times, tokens=rows, hidden_size=width, tp=1.0, sp=0.0, bytes_per_element=size)


def input_bytes_kept(job: Job, kind: Kind) -> float:
    """Bytes kept for an element of a linear block's input: the mean of mixer and MLP, where a missing block counts 0.

    A router keeps its input wide, and the shared experts use the same tensor. Each of the two down-projections of latent attention
    keeps a cast input.
    """
    cast, wide = casts.input_bytes(job), job.precision.activation_bytes
    mixer = cast * (kind.mixer.cast_inputs(job.model) if casts.keeps_inputs(job) else 1.0)
    into_mlp = wide if kind.routed else cast
    return (mixer * kind.mixer.blocks + into_mlp * float(kind.has_mlp)) / 2.0


def with_source(job: Job, inputs: float) -> Any:
    """The bytes of a linear block's input; where the cast input is kept, with the framework record's source for that."""
    record = job.framework.narrow_inputs
    if record is None or not casts.keeps_inputs(job):
        return inputs
    return Sourced(inputs, "B", f"{inputs:.4g} B", record.source, record.note)


def cast_copies(job: Job, s: Shapes, kind: Kind) -> list[Term]:
    """Cast copies of tensors that are also kept wide: the attention's output, and the input that router and shared experts share."""
    if not casts.keeps_cast_copies(job):
        return []
    rows: Any = kind.mixer.kept_wide(job, s)
    if kind.routed and job.model.shared_expert_intermediate_size and casts.job_of_shared(job) is job:
        rows = rows + s.hidden * s.sequence_tokens
    return [elements("cast copies beside wide tensors", 1.0, rows, job.precision.operand_bytes)]


def mlp_activations(job: Job, plan: Plan, s: Shapes, kind: Kind, linear_kept: Any, cheap_kept: Any) -> list[Term]:
    """The wide tensors of a dense MLP, or of shared and routed experts with the rows copied to them."""
    model, e = job.model, job.precision.activation_bytes
    kept = mlp_tensors(job, cheap_kept, input_share(job, kind, "fc2"))

    def wide(name: str, tokens: Any, size: float, tp: Any, saved: Any = kept, also_kept: Any = 1.0) -> Term:
        times = np.minimum(linear_kept, also_kept)
        return leaf(name, activations.mlp, "B", times=times, tokens=tokens, intermediate_size=size, saved=saved, tp=tp, bytes_per_element=e)

    if not kind.has_mlp:
        return []
    if not kind.routed:
        return [wide("mlp", s.tokens, model.intermediate_size, plan.tp)]
    rows, share = experts.rows(job, plan, s), input_share(casts.job_of_experts(job), kind, "experts")
    # after the activation function rows are scaled by the router's probability; the kernels of gated experts do both at once
    scaled = mlp_tensors(job, cheap_kept, share if model.gated_mlp else 1.0)
    if not model.gated_mlp:
        scaled = scaled + share * cheap_kept
    terms = [
        wide("experts", rows, model.moe_intermediate_size, plan.etp, scaled),
        elements("rows of experts", rows, expert_width(model), e, kept_rows(job, share) * linear_kept),
    ]
    if model.moe_latent_size:  # before rows are sent to experts, and after they come back
        terms.append(wide("latents of experts", s.tokens / plan.tp, model.moe_latent_size, 1.0, 2.0))
    if model.shared_expert_intermediate_size:
        shared = mlp_tensors(job, cheap_kept, input_share(casts.job_of_shared(job), kind, "fc2", "shared_experts"))
        terms.append(wide("shared experts", s.tokens, model.shared_expert_intermediate_size, plan.tp, shared, 1.0 - plan.recompute_shared))
    return terms


def mlp_kept(plan: Plan, kind: Kind) -> Any:
    """The share of the wide tensors of a layer's MLP or experts that is kept: what recomputes all products, or them alone, leaves."""
    return 1.0 - np.maximum(plan.recompute_linear, plan.recompute_moe if kind.routed else plan.recompute_mlp)


def cast_share(job: Job) -> float:
    """Bytes of a linear layer's input as it is kept, over its bytes in the wide type."""
    return casts.input_bytes(job) / job.precision.activation_bytes


def input_share(job: Job, kind: Kind, *operators: str) -> float:
    """Bytes kept of one operator's input, over its wide bytes. With adapters: 1 where the operator has one, else 0."""
    return float(adapters.keeps_input(job, kind, *operators)) if job.lora_rank else cast_share(job)


def kept_rows(job: Job, share: float) -> float:
    """Copies of the experts' rows that are kept: their input, and their output unless gated experts scale it themselves.

    Where the kernel of the gated activation applies the router's probability, the sum over experts keeps nothing for its backward.
    """
    stated = job.framework.saved_expert_rows
    copies = stated.value if job.model.gated_mlp and stated is not None else 2.0
    return copies - 1.0 + share


def mlp_tensors(job: Job, cheap_kept: Any, last: float) -> Any:
    """Wide tensors that an MLP keeps: gate, up and what the framework adds; without a gate the activation's input and output.

    ReLU keeps one of the two. The last tensor is the second product's input, of which the share ``last`` is kept; where that is cast,
    ReLU's output is kept beside it.
    """
    if job.model.gated_mlp:
        return 2.0 + (job.framework.saved_activation_tensors.value - 1.0 + last) * cheap_kept
    if job.model.hidden_act == "relu":
        return 1.0 + (last if last < 1.0 else 0.0) * cheap_kept
    return 1.0 + last * cheap_kept


def checkpoints_of(job: Job, plan: Plan, stage: Stage) -> Any:
    """Checkpoints that one micro-batch keeps on a stage: one for each segment of a chunk's recomputed layers."""
    layers = trained_layers(job, stage) * plan.recompute_layers
    if not np.any(plan.recompute_segment > 1):
        return layers
    segments = plan.vpp * np.ceil(layers / (plan.vpp * plan.recompute_segment))
    return np.where(plan.recompute_segment > 1, np.minimum(segments, layers), layers)


def trained_layers(job: Job, stage: Stage) -> Any:
    """Layers of a stage that have a backward pass."""
    layers = stage.layers
    for kind in kinds(job.model):
        if not kind.trained and kind.place != "tower":
            layers = layers - layers_of(stage, kind, job.model)
    return layers
