"""What one accelerator of each pipeline stage must hold at the peak of a step, as Term trees.

    allocated = weights + gradients + master weights + optimizer states + activations + logits + gather buffers + workspace
    reserved  = allocated + what the caching allocator cannot reuse
    device    = reserved + context + communicators

Stages differ: the first holds the embedding and most micro-batches in flight, the last the logits. Every class of equal
stages is computed; the fullest is the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.estimate import experts, state
from ironlaw.estimate.counts import common_parameters, core_head_dim, norms_of, routed_parameters, stage_common, stage_routed
from ironlaw.estimate.kinds import Kind, kinds, layers_of
from ironlaw.estimate.parts import Shapes
from ironlaw.estimate.stages import Stage, stages
from ironlaw.estimate.trained import stage_trained
from ironlaw.law import activations, pipeline, states
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.terms import Term, fold, leaf, total


@dataclass(frozen=True)
class Memory:
    """The tree of the fullest stage and its three totals, columns in bytes."""

    tree: Term
    allocated: Any
    reserved: Any
    device: Any
    capacity: float
    fits: Any
    stage_names: tuple[str, ...]
    which: Any


def memory(job: Job, cluster: Cluster, plan: Plan) -> Memory:
    """The memory of every plan of a batch at its fullest stage."""
    classes = stages(job, plan)
    trees = [stage_memory(job, plan, c) for c in classes]
    values = [np.where(c.count > 0, t.value, 0.0) for c, t in zip(classes, trees, strict=True)]
    best, which = values[0], 0.0 * values[0]
    for i, value in enumerate(values[1:], 1):
        fuller = value > best
        best, which = np.where(fuller, value, best), np.where(fuller, float(i), which)
    tree = _pick(trees, which)
    allocated = tree["allocated"].value * np.ones_like(best)
    reserved = tree["reserved"].value * np.ones_like(best)
    usable = cluster.accelerator.memory_usable or cluster.accelerator.memory_capacity
    return Memory(tree, allocated, reserved, best, usable.value, best <= usable.value, tuple(c.name for c in classes), which)


def _pick(trees: list[Term], which: Any) -> Term:
    """The tree whose every node has, in each row, the value it has in the chosen tree of that row."""

    def choose(columns: list[Any]) -> Any:
        chosen = columns[0]
        for i, item in enumerate(columns[1:], 1):
            chosen = np.where(which == i, item, chosen)
        return chosen

    first = trees[0]
    inputs = {
        key: item if hasattr(item, "source") or isinstance(item, str) else choose([t.inputs[key] for t in trees])
        for key, item in first.inputs.items()
    }
    return Term(
        first.name,
        choose([t.value for t in trees]),
        first.unit,
        first.law,
        inputs,
        [_pick(list(parts), which) for parts in zip(*(t.parts for t in trees), strict=True)],
        choose([t.times for t in trees]),
        first.bound,
    )


def stage_memory(job: Job, plan: Plan, stage: Stage) -> Term:
    """The device memory of one class of stages."""
    f = job.framework
    s = Shapes.of(job, plan)
    allocated = total(
        "allocated",
        [
            *model_states(job, plan, stage),
            activation_memory(job, plan, s, stage),
            logits(job, plan, s, stage),
            gather_buffers(job, plan, stage),
            leaf("library workspace", _as_is, "B", size=f.workspace),
        ],
    )
    reserved = total("reserved", [allocated, leaf("allocator slack", _share, "B", size=allocated.value, fraction=f.allocator_slack)])
    groups = 1.0 * (plan.tp > 1) + (plan.pp > 1) + (plan.expert_ways > 1) + (plan.cp > 1) + (plan.dp_shard > 1) + (plan.dp_replicate > 1)
    return total(
        "device",
        [
            reserved,
            leaf("driver context", _as_is, "B", size=f.context),
            leaf("communicators", _share, "B", size=f.communicator, fraction=groups),
        ],
    )


def model_states(job: Job, plan: Plan, stage: Stage) -> list[Term]:
    """Weights, gradients, master weights and optimizer states, each sharded from its ZeRO stage on."""
    kept = states.OPTIMIZERS[job.optimizer]
    f, precision = job.framework, job.precision
    stored = f.parameter_bytes if f.parameter_bytes is not None and precision.master_weights else precision.parameter_bytes
    separate_master = precision.master_weights and f.parameter_bytes is None
    gradient = f.gradient_bytes.value if precision.master_weights else precision.parameter_bytes

    twice = np.where((plan.pp > 1) & (job.schedule == "dualpipe"), 2.0, 1.0)  # DualPipe runs two stages on a rank
    held = stage_common(job.model, stage), stage_routed(job.model, stage)
    trained = stage_trained(job, stage)
    on_device = 0.0 if "optimizer" in job.offload else 1.0

    def kind(name: str, size: Any, from_stage: float) -> Term:
        common_count, routed_count = held if name in ("weights", "low-precision copies of weights") else trained
        copies = twice if from_stage > 1.0 else 1.0  # whose states the two ranks of a stage share
        local = copies * common_count / plan.tp
        own = copies * routed_count / plan.expert_ways
        shards = states.zero_shards(from_stage, plan.zero, plan.shard_ranks)
        common = leaf(name, states.state, "B", parameters=local, bytes_per_parameter=size, shards=shards)
        if not job.model.num_experts:
            return common
        shards = states.zero_shards(from_stage, plan.zero, plan.expert_shard_ranks)
        routed = leaf(f"{name}, experts", states.state, "B", parameters=own, bytes_per_parameter=size, shards=shards)
        return total(name, [common, routed])

    return [
        kind("weights", stored, 3.0),
        kind("low-precision copies of weights", precision.copy_bytes, 3.0),
        kind("gradients", gradient, 2.0),
        kind("master weights", on_device * kept.master_bytes if separate_master else 0.0, 1.0),
        kind("optimizer states", on_device * kept.state_bytes, 1.0),
    ]


def saved_per_layer(job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """What one layer keeps of one micro-batch when nothing of it is recomputed in full."""
    model, e = job.model, job.precision.activation_bytes
    dropout = float(model.dropout)
    scores_kept = 1.0 - plan.recompute_attention
    linear_kept = 1.0 - plan.recompute_linear
    cheap_kept = 1.0 - plan.recompute_elementwise
    mixer = saved_attention(job, plan, s, scores_kept) if kind.mixer == "attention" else saved_state(job, s, kind)
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


def saved_attention(job: Job, plan: Plan, s: Shapes, scores_kept: Any) -> list[Term]:
    """Queries, keys, values and output; the scores where attention is not flash."""
    model, e = job.model, job.precision.activation_bytes
    flash, dropout = float(job.flash), float(model.dropout)
    return [
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
    kept = saved_mlp_tensors(job, cheap_kept)

    def wide(name: str, tokens: Any, size: float, tp: Any) -> Term:
        return leaf(
            name,
            activations.mlp,
            "B",
            times=linear_kept,
            tokens=tokens,
            intermediate_size=size,
            saved=kept,
            tp=tp,
            bytes_per_element=e,
        )

    if kind.mlp == "none":
        return []
    if not kind.routed:
        return [wide("mlp", s.tokens, model.intermediate_size, plan.tp)]
    rows = experts.rows(job, plan, s)
    made = [
        wide("experts", rows, model.moe_intermediate_size, plan.etp),
        leaf(
            "rows of experts",
            activations.checkpoint,
            "B",
            times=2.0 * linear_kept,
            tokens=rows,
            hidden_size=model.hidden_size,
            tp=1.0,
            sp=0.0,
            bytes_per_element=e,
        ),
    ]
    if model.shared_expert_intermediate_size:
        made.append(wide("shared experts", s.tokens, model.shared_expert_intermediate_size, plan.tp))
    return made


def saved_mlp_tensors(job: Job, cheap_kept: Any) -> Any:
    """Wide tensors an MLP keeps: gate, up and what the framework adds; plain: the activation's input and output, ReLU one."""
    if job.model.gated_mlp:
        return 2.0 + job.framework.saved_activation_tensors.value * cheap_kept
    return 1.0 + (0.0 if job.model.hidden_act == "relu" else 1.0) * cheap_kept


def micro_batches_in_flight(job: Job, plan: Plan, stage: Stage) -> Any:
    """Micro-batches a stage holds activations of: all with GPipe, pp + 1 with DualPipe, else by its distance to the end."""
    if job.schedule == "gpipe":
        return np.where(plan.pp > 1, plan.num_microbatches, 1.0)
    if job.schedule == "dualpipe":
        return np.where(plan.pp > 1, np.minimum(plan.pp + 1.0, plan.num_microbatches), 1.0)
    return pipeline.in_flight_interleaved(plan.pp, plan.vpp, stage.index, plan.num_microbatches)


def activation_memory(job: Job, plan: Plan, s: Shapes, stage: Stage) -> Term:
    """Activations of the micro-batches in flight: whole layers, checkpoints of recomputed ones, and the one being redone."""
    in_flight = micro_batches_in_flight(job, plan, stage)
    saved = {kind: saved_per_layer(job, plan, s, kind) for kind in kinds(job.model)}
    boundary = leaf(
        "checkpoints",
        activations.checkpoint,
        "B",
        times=stage.layers * in_flight * plan.recompute_layers,
        tokens=s.tokens,
        hidden_size=job.model.hidden_size,
        tp=plan.tp,
        sp=plan.sp,
        bytes_per_element=job.precision.activation_bytes,
    )
    away = "activations" in job.offload  # two layers stay: one leaving, one computed
    on_device = np.minimum(2.0 / np.maximum(stage.layers * in_flight, 1.0), 1.0) if away else 1.0
    working = np.where(plan.recompute_layers > 0, 1.0, 0.0) * np.minimum(stage.layers, 1.0)
    return total(
        "activations",
        [
            *(
                total(
                    f"saved {kind.name}",
                    parts,
                    times=float(kind.trained) * on_device * layers_of(stage, kind, job.model) * in_flight * (1.0 - plan.recompute_layers),
                )
                for kind, parts in saved.items()
            ),
            boundary,
            leaf("layer being recomputed", _largest, "B", times=working, **{k.name.replace(" ", "_"): fold(p) for k, p in saved.items()}),
        ],
    )


def logits(job: Job, plan: Plan, s: Shapes, stage: Stage) -> Term:
    """On the stage that computes the loss: logits, their softmax and gradient, the last norm's and the projection's input."""
    e = job.precision.activation_bytes
    inputs = leaf(
        "inputs of norm and projection",
        activations.checkpoint,
        "B",
        times=2.0,
        tokens=s.tokens,
        hidden_size=job.model.hidden_size,
        tp=plan.tp,
        sp=plan.sp,
        bytes_per_element=e,
    )
    scores = leaf(
        "logits",
        activations.logits,
        "B",
        tokens=s.tokens,
        vocab_size=job.model.vocab_size,
        tp=plan.tp,
        bytes_per_logit=job.framework.logit_memory.value * e / 2.0,
    )
    alive = (1.0 + job.model.num_nextn_predict_layers) * np.where(
        (plan.pp > 1) & (job.schedule == "gpipe"), plan.num_microbatches, 1.0
    )  # one set a head; GPipe computes no backward before all forwards
    return total("logits and loss", [inputs, scores], times=stage.head * alive)


def gather_buffers(job: Job, plan: Plan, stage: Stage) -> Term:
    """ZeRO-3: two layers' whole weights (one in use, one prefetched) and one layer's whole gradients, or the output layer's."""
    table = np.maximum(stage.embedding, stage.head) * (job.model.vocab_size * job.model.hidden_size) / plan.tp
    biggest = table
    for kind in kinds(job.model):
        whole = common_parameters(job.model, kind) / plan.tp + routed_parameters(job.model, kind) / plan.expert_ways
        biggest = np.maximum(biggest, whole)
    units = np.where((plan.zero == 3) & (plan.shard_ranks > 1), 1.0, 0.0) * biggest
    return leaf(
        "gather buffers",
        states.state,
        "B",
        parameters=units,
        bytes_per_parameter=2.0 * job.precision.parameter_bytes + job.framework.gradient_reduce_bytes.value,
        shards=1.0,
    )


def _largest(**sizes: Any) -> Any:
    """The largest of a layer of each kind: ``max(sizes)``."""
    largest: Any = 0.0
    for size in sizes.values():
        largest = np.maximum(largest, size)
    return largest


def _as_is(size: Any) -> Any:
    """A size read from the record as it stands: ``size``."""
    return size


def _share(size: Any, fraction: Any) -> Any:
    """A part or multiple of a size: ``fraction size``."""
    return size * fraction
