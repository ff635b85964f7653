"""What one layer keeps of one micro-batch for the backward pass, tensor by tensor.

Composition of ``law/activations``; how many layers and micro-batches are kept is told in ``memory``.
"""

from __future__ import annotations

from typing import Any

from ironlaw.estimate import adapters, experts, state
from ironlaw.estimate.counts import core_head_dim, norms_of
from ironlaw.estimate.kinds import Kind
from ironlaw.estimate.parts import Shapes
from ironlaw.law import activations
from ironlaw.plan import Job, Plan
from ironlaw.terms import Term, leaf


def saved_per_layer(job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """What one layer keeps of one micro-batch when nothing of it is recomputed in full."""
    model, e = job.model, job.precision.activation_bytes
    dropout = float(model.dropout)
    scores_kept = 1.0 - plan.recompute_attention
    linear_kept = 1.0 - plan.recompute_linear
    cheap_kept = 1.0 - plan.recompute_elementwise
    mixer = saved_attention(job, plan, s, scores_kept) if kind.mixer == "attention" else saved_state(job, s, kind)
    if job.lora_rank:
        return [*saved_beside_frozen(job, plan, s, kind), *mixer, *saved_mlp(job, plan, s, kind, linear_kept, cheap_kept)]
    return [
        leaf(
            "norms and residuals",
            activations.norms_and_residuals,
            "B",
            times=0.5 + 0.5 * cheap_kept,
            tokens=s.tokens,
            hidden_size=model.hidden_size,
            norms=norms_of(model),
            dropout=dropout,
            tp=plan.tp,
            sp=plan.sp,
            bytes_per_element=e,
        ),
        *mixer,
        *saved_mlp(job, plan, s, kind, linear_kept, cheap_kept),
    ]


def saved_beside_frozen(job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """With adapters: inputs of the norms; inputs of linear layers that have one, for no other weight has a gradient; and its middle.

    A frozen product needs its weight alone to pass a gradient on: autograd keeps no input for it, nor do Megatron
    (``LinearWithFrozenWeight``) and Transformer Engine (``ln_out if weight.requires_grad else None``).
    """
    model, e = job.model, job.precision.activation_bytes
    inputs = float(kind.mixer != "none" and adapters.keeps_input(job, kind, "qkv", "q", "k", "v"))
    into_mlp = adapters.keeps_input(job, kind, "fc1", "gate", "up", "router") if kind.mlp != "none" else False
    masks = 2.0 * float(model.dropout) / e  # one byte each, in elements
    kept = norms_of(model) + masks + (inputs + float(into_mlp)) * (1.0 - plan.recompute_elementwise)
    middle = adapters.kept_elements(job, s, kind)
    return [
        leaf(
            "norms and residuals",
            activations.checkpoint,
            "B",
            times=kept,
            tokens=s.tokens,
            hidden_size=model.hidden_size,
            tp=plan.tp,
            sp=plan.sp,
            bytes_per_element=e,
        ),
        leaf("inside adapters", activations.checkpoint, "B", tokens=middle, hidden_size=1.0, tp=1.0, sp=0.0, bytes_per_element=e),
    ]


def saved_attention(job: Job, plan: Plan, s: Shapes, scores_kept: Any) -> list[Term]:
    """Queries, keys, values and output; the scores where attention is not flash."""
    model, e = job.model, job.precision.activation_bytes
    flash, dropout = float(job.flash), float(model.dropout)
    return [
        *saved_latents(job, plan, s),
        leaf(
            "attention",
            activations.attention,
            "B",
            tokens=s.tokens,
            num_attention_heads=model.num_attention_heads,
            num_key_value_heads=model.num_attention_heads if model.kv_lora_rank else model.num_key_value_heads,
            head_dim=core_head_dim(model),
            flash=flash,
            tp=plan.tp,
            bytes_per_element=e,
        ),
        leaf(
            "attention scores",
            activations.attention_scores,
            "B",
            times=scores_kept,
            tokens=s.tokens,
            seq_len=plan.seq_len,
            num_attention_heads=model.num_attention_heads,
            flash=flash,
            dropout=dropout,
            tp=plan.tp,
            bytes_per_element=e,
        ),
    ]


def saved_latents(job: Job, plan: Plan, s: Shapes) -> list[Term]:
    """Latent attention keeps each latent before and behind its norm, and the key's part with position."""
    model = job.model
    if not model.kv_lora_rank:
        return []
    return [
        leaf(
            "latents",
            activations.checkpoint,
            "B",
            tokens=s.tokens,
            hidden_size=2.0 * (model.q_lora_rank + model.kv_lora_rank) + model.qk_rope_head_dim,
            tp=plan.tp,
            sp=plan.sp,
            bytes_per_element=job.precision.activation_bytes,
        )
    ]


def saved_state(job: Job, s: Shapes, kind: Kind) -> list[Term]:
    """A state layer keeps its projections before and after the convolution, and the scan's output."""
    if kind.mixer == "none":
        return []
    into, mixed, out = state.widths(job, kind)
    share = s.heads / job.model.num_attention_heads
    return [
        leaf(
            "attention",
            activations.mlp,
            "B",
            tokens=s.tokens,
            intermediate_size=(into + mixed + 2.0 * out) * share,
            saved=1.0,
            tp=1.0,
            bytes_per_element=job.precision.activation_bytes,
        )
    ]


def saved_mlp(job: Job, plan: Plan, s: Shapes, kind: Kind, linear_kept: Any, cheap_kept: Any) -> list[Term]:
    """The wide tensors of a dense MLP, or of shared and routed experts with the rows copied to them."""
    model, e = job.model, job.precision.activation_bytes
    kept = saved_mlp_tensors(job, cheap_kept, adapters.keeps_input(job, kind, "fc2"))

    def wide(name: str, tokens: Any, size: float, tp: Any, saved: Any = kept) -> Term:
        return leaf(
            name,
            activations.mlp,
            "B",
            times=linear_kept,
            tokens=tokens,
            intermediate_size=size,
            saved=saved,
            tp=tp,
            bytes_per_element=e,
        )

    if kind.mlp == "none":
        return []
    if not kind.routed:
        return [wide("mlp", s.tokens, model.intermediate_size, plan.tp)]
    rows = experts.rows(job, plan, s)
    kept = saved_mlp_tensors(job, cheap_kept, adapters.keeps_input(job, kind, "experts"))
    # behind the activation function rows are scaled by the router's probability; the kernels of gated experts do both at once
    scaled = kept if model.gated_mlp else kept + cheap_kept
    made = [
        wide("experts", rows, model.moe_intermediate_size, plan.etp, scaled),
        leaf(
            "rows of experts",
            activations.checkpoint,
            "B",
            times=(kept_rows(job) - (0.0 if adapters.keeps_input(job, kind, "experts") else 1.0)) * linear_kept,
            tokens=rows,
            hidden_size=model.hidden_size,
            tp=1.0,
            sp=0.0,
            bytes_per_element=e,
        ),
    ]
    if model.shared_expert_intermediate_size:
        shared = saved_mlp_tensors(job, cheap_kept, adapters.keeps_input(job, kind, "fc2"))
        made.append(wide("shared experts", s.tokens, model.shared_expert_intermediate_size, plan.tp, shared))
    return made


def kept_rows(job: Job) -> float:
    """Copies of the rows sent to experts that stay: what goes in, and what comes out unless gated experts scale it themselves.

    Where the kernel of the gated activation applies the router's probability, the sum over experts needs nothing for its backward.
    """
    inside = job.framework.saved_expert_rows
    return inside.value if job.model.gated_mlp and inside is not None else 2.0


def saved_mlp_tensors(job: Job, cheap_kept: Any, product: bool = True) -> Any:
    """Wide tensors an MLP keeps: gate, up and what the framework adds; plain: the activation's input and output, ReLU one.

    ``product``: with the input of the last linear layer, which only the gradient of its weight or of an adapter needs.
    """
    less = 0.0 if product else 1.0
    if job.model.gated_mlp:
        return 2.0 + (job.framework.saved_activation_tensors.value - less) * cheap_kept
    return 1.0 + (0.0 if job.model.hidden_act == "relu" else 1.0 - less) * cheap_kept
