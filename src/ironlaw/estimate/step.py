"""The time of one optimizer step as a Term tree.

    step = num_microbatches * (slowest stage's layers + embedding + head + p2p)     forward, backward, recompute, TP, FSDP
         + pipeline bubble + exposed gradient reduction + exposed parameter gather + optimizer

The slowest stage sets the pace in steady state; the others are waited for once, in the bubble.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.estimate import experts, layer, offloading, state, tiers
from ironlaw.estimate.kinds import Kind, kinds, layers_of
from ironlaw.estimate.parts import Shapes, elementwise, gemm
from ironlaw.estimate.sharding import data_parallel, exposed, fully_sharded, parameter_bytes
from ironlaw.estimate.stages import Pace, Stage, slowest, stages
from ironlaw.estimate.trained import stage_trained
from ironlaw.law import kernels, overlap, pipeline, states, traffic
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.terms import Term, fold, leaf, total


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """The tree, and which stage class sets the pace in every row."""

    tree: Term
    pace: Pace
    forward_share: Any  # of a micro-batch's computation: what an evaluation costs of a step


def step(job: Job, cluster: Cluster, plan: Plan) -> Step:
    """The step of every plan of a batch."""
    parts, pace, (forward, backward) = step_parts(job, cluster, plan)
    return Step(whole_step(cluster, plan.gpus, parts), pace, forward / (forward + backward))


def whole_step(cluster: Cluster, gpus: Any, parts: list[Term]) -> Term:
    """The sum of a step's parts, and what grows with their sum: waiting for the slowest, and the fixed work of a step."""
    domains, busy = np.ceil(gpus / cluster.node.scale_up_size.value), fold(parts)
    lost = leaf("stragglers and jitter", overlap.scale_loss, "s", "network", time=busy, domains=domains, loss=cluster.systems.scale_loss)
    fixed = leaf("fixed work of a step", _as_is, "s", "dispatch", seconds=cluster.systems.step_overhead)
    return Term("step", busy + lost.value + fixed.value, "s", parts=[*parts, lost, fixed])


def step_parts(job: Job, cluster: Cluster, plan: Plan) -> tuple[list[Term], Pace, tuple[Any, Any]]:
    """What a step is made of, not yet summed; which stages set its pace; forward and backward of one micro-batch on them.

    A search sums the parts in blocks: each has the shape of the axes it depends on, their sum that of all of them.
    """
    s = Shapes.of(job, plan)
    classes = stages(job, plan)
    per_kind = {kind: layer_parts(job, cluster, plan, s, kind, classes[0]) for kind in kinds(job.model)}
    one_layer = {kind: fold(parts) for kind, parts in per_kind.items()}
    embedding, head = embedding_term(job, cluster, plan, s), head_term(job, cluster, plan, s)
    heads = 1.0 + job.model.num_nextn_predict_layers
    hop = point_to_point(job, cluster, plan)
    times = [_stage_time(job, c, one_layer) + c.embedding * embedding.value + c.head * heads * head.value for c in classes]
    pace = slowest(classes, times)

    exposed_hops = np.where(plan.pp > 1, 2.0 * plan.vpp * (1.0 - plan.overlap_pp * (plan.vpp > 1)), 0.0)
    held = {kind: pace.of(partial(layers_of, kind=kind, model=job.model)) for kind in per_kind}
    with_head = pace.of(lambda stage: stage.head)
    micro_batch = [
        *(total(kind.name, parts, times=held[kind]) for kind, parts in per_kind.items()),
        total("embedding", [embedding], times=pace.of(lambda stage: stage.embedding)),
        total("output layer and loss", [head], times=with_head * heads),
        total("stage to stage", [hop], times=exposed_hops),
    ]
    one_micro_batch = fold(micro_batch)
    pipeline_time = _pipeline_time(classes, times, hop.value, plan)
    forward, backward, weight = _passes(held, per_kind)
    gradients, parameters = data_parallel(job, cluster, plan, pace, forward, backward)
    parts = [
        total("micro-batches", micro_batch, times=plan.num_microbatches),
        bubble(job, plan, pipeline_time, np.minimum(one_micro_batch, pipeline_time), (forward, backward, weight)),
        gradients,
        parameters,
        optimizer(job, cluster, plan, pace),
        *offloading.optimizer_traffic(job, cluster, plan, pace),
    ]
    return parts, pace, (forward, backward)


def _as_is(seconds: Any) -> Any:
    """A time read from the record as it stands: ``seconds``."""
    return seconds


def bubble(job: Job, plan: Plan, pipeline_time: Any, slowest: Any, passes: tuple[Any, Any, Any]) -> Term:
    """What the schedule leaves a stage waiting for."""
    forward, backward, weight = passes
    waiting = {"pipeline_time": pipeline_time, "slowest_stage_time": slowest}
    if job.schedule == "dualpipe":
        times = {"forward_time": forward, "backward_time": backward, "weight_time": weight}
        return leaf("pipeline bubble", pipeline.dualpipe_time, "s", "pipeline", pp=plan.pp, **times)
    if job.schedule == "zero-bubble":
        return leaf("pipeline bubble", pipeline.zero_bubble_time, "s", "pipeline", pp=plan.pp, weight_time=weight, **waiting)
    return leaf("pipeline bubble", pipeline.bubble_time, "s", "pipeline", vpp=plan.vpp, **waiting)


def _stage_time(job: Job, stage: Stage, one_layer: dict[Kind, Any]) -> Any:
    """One micro-batch through the layers of a stage and back."""
    time: Any = 0.0
    for kind, value in one_layer.items():
        time = time + layers_of(stage, kind, job.model) * value
    return time


def _pipeline_time(classes: list[Stage], times: list[Any], hop: Any, plan: Plan) -> Any:
    """One micro-batch through all stages and back."""
    through = classes[0].count * times[0]
    for c, t in zip(classes[1:], times[1:], strict=True):
        through = through + c.count * t
    return through + np.where(plan.pp > 1, 2.0 * plan.pp * plan.vpp, 0.0) * hop


def layer_parts(job: Job, cluster: Cluster, plan: Plan, s: Shapes, kind: Kind, first: Stage) -> list[Term]:
    """One layer's share of a micro-batch: computation, exposed collectives, and what its host cannot launch in time."""
    job, s = Shapes.of_kind(job, plan, s, kind)
    forward = layer.forward(cluster, job, plan, s, kind)
    backward = layer.backward(cluster, job, plan, s, kind)
    again = layer.recompute(cluster, job, plan, s, kind)
    device = forward.value + backward.value + again.value
    tensor = layer.tensor_parallel(cluster, job, plan, kind)
    passes = 2.0 + plan.recompute_layers if kind.trained else 1.0 + 0.0 * plan.recompute_layers
    shown = exposed_tensor_parallel(cluster, plan, tensor, passes)
    ring = [context_parallel(job, cluster, plan, s, kind)] if kind.mixer != "none" else []
    routed = [expert_parallel(job, cluster, plan, s, device, passes)] if kind.routed else []
    network = fold([shown, *ring, *routed])
    host = leaf(
        "host dispatch",
        kernels.dispatch_shortfall,
        "s",
        "dispatch",
        operators=operators(job, plan, kind) * (3.0 + plan.recompute_layers if kind.trained else 1.0),
        host_time=host_time(job, cluster),
        device_time=device + network,
    )
    inside = fold([shown, *routed]) / passes  # collectives of a layer's own ranks: weights come and gradients go beside them too
    sharded = fully_sharded(job, cluster, plan, kind, forward.value + inside, backward.value + again.value + (passes - 1.0) * inside)
    away = offloading.activation_traffic(job, cluster, plan, s, kind, first, forward.value, backward.value + again.value)
    return [forward, backward, again, shown, *ring, *routed, sharded, *away, host]


def exposed_tensor_parallel(cluster: Cluster, plan: Plan, tensor: Term, passes: Any) -> Term:
    """Tensor-parallel communication of every pass: waited for, or cut into pieces that run beside their GEMM."""
    beside = (plan.overlap_tp > 0) & (plan.tp <= tiers.domain_ranks(cluster, plan))  # pieces go over scale-up links alone
    if not np.any(beside):
        return total("tensor parallel", [tensor], times=passes)
    share = cluster.systems.tp_exposed
    if not np.all(beside):
        shown: Any = np.where(beside, share.value, 1.0)
        share = Sourced(shown, share.unit, f"{share.text} where overlapped, else 1", share.source, share.note)
    return leaf("tensor parallel", overlap.partly_exposed, "s", "network", communication=tensor.value * passes, share=share)


def host_time(job: Job, cluster: Cluster) -> Any:
    """What the host needs to launch one operator: the framework's record, slower in stacks of before 2023."""
    base, factor = job.framework.host_time_per_operator, cluster.systems.legacy_host_time
    if not job.framework.legacy:
        return base
    return Sourced(base.value * factor.value, base.unit, f"{base.text}, {factor.text} times that in a legacy stack", base.source)


def expert_parallel(job: Job, cluster: Cluster, plan: Plan, s: Shapes, device: Any, passes: Any) -> Term:
    """Dispatch and combine of every pass: waited for, but in DualPipe, where another micro-batch computes meanwhile."""
    pass_by = experts.communication(cluster, job, plan, s)
    if job.schedule == "dualpipe":
        return exposed(cluster, "expert parallel", device, pass_by.value * passes)
    return total("expert parallel", [pass_by], times=passes)


def operators(job: Job, plan: Plan, kind: Kind) -> Any:
    """Kernels a layer's forward launches: those of every layer, of routing, and of each expert on the rank.

    Narrow formats cast an expert's operands by themselves: two more launches a GEMM.
    """
    f = job.framework
    if job.cuda_graphs == "full" or (job.cuda_graphs == "partial" and not kind.routed):
        return 0.0
    count = f.operators_per_layer.value * kind.blocks / 2.0 * (job.cuda_graphs == "none")
    if not kind.routed:
        return count
    narrow = 3.0 if job.precision.cast_bytes else 1.0
    own = job.model.num_experts / plan.ep
    return count + f.operators_per_routed_layer.value + narrow * f.operators_per_expert.value * own


def context_parallel(job: Job, cluster: Cluster, plan: Plan, s: Shapes, kind: Kind) -> Term:
    """What a ring's passes add to the attention they run beside, forward (and its recompute) and backward; or all-to-all."""
    if kind.mixer != "attention":  # a scan needs whole sequences: heads are exchanged for tokens and back
        there = state.exchange(cluster, job, plan, s, kind)
        active = np.where(plan.cp > 1, 1.0, 0.0)
        passes = active * (1.0 + (1.0 + plan.recompute_layers) * float(kind.trained))
        return total("context parallel", [total("heads for tokens and back", [there], times=passes)])
    core = fold(layer.attention(cluster, job, plan, s))
    core_backward = fold(layer.attention(cluster, job, plan, s, backward=True))
    there, back = layer.context_parallel(cluster, job, plan, s), layer.context_parallel(cluster, job, plan, s, backward=True)
    active = np.where(plan.cp > 1, 1.0, 0.0)
    back_too = 1.0 if kind.trained else 0.0
    rest = 1.0 - plan.recompute_layers
    again = back_too * (plan.recompute_layers + rest * plan.recompute_attention)
    if job.cp_method == "all-to-all":  # nothing to hide behind: attention waits for its heads
        passes = active * (1.0 + back_too + again)
        return total("context parallel", [total("heads for tokens and back", [there], times=passes)])
    return total(
        "context parallel",
        [
            exposed(cluster, "exposed ring, forward", core, there.value, active * (1.0 + again)),
            exposed(cluster, "exposed ring, backward", core_backward, back.value, active * back_too),
        ],
    )


def embedding_term(job: Job, cluster: Cluster, plan: Plan, s: Shapes) -> Term:
    """Look-up forward, scatter-add backward, and the sum over the vocabulary's shards."""
    e = job.precision.activation_bytes
    moved = s.tokens * s.hidden * e
    reduce = tiers.collective(cluster, plan, "all-reduce", "all_reduce", plan.tp, moved, 1.0)
    return total(
        "embedding",
        [elementwise(cluster, "look-up", 2.0 * moved), elementwise(cluster, "scatter-add", 3.0 * moved), reduce],
    )


def head_term(job: Job, cluster: Cluster, plan: Plan, s: Shapes) -> Term:
    """Final norm, output projection and cross-entropy, forward and backward."""
    e, vocab = job.precision.activation_bytes, job.model.vocab_size / plan.tp
    logits = s.tokens * vocab
    compute = [
        gemm(cluster, job, "output gemm", s.tokens, vocab, s.hidden, wide=True),
        gemm(cluster, job, "output dgrad", s.tokens, s.hidden, vocab, wide=True),
        *([] if job.lora_rank else [gemm(cluster, job, "output wgrad", s.hidden, vocab, s.tokens, wide=True)]),
        elementwise(cluster, "cross-entropy", job.framework.loss_bytes.value * logits * e / 2.0),
        elementwise(cluster, "final norm", 2.5 * job.framework.norm_bytes.value * s.sequence_tokens * s.hidden * e / 2.0),
    ]
    busy = fold(compute)
    weights = job.model.vocab_size * job.model.hidden_size / plan.tp
    gradients = weights * job.framework.gradient_reduce_bytes.value
    gather = tiers.collective(cluster, plan, "gather", "all_gather", plan.shard_ranks, weights * parameter_bytes(job), plan.tp)
    scatter = tiers.collective(cluster, plan, "scatter", "reduce_scatter", plan.shard_ranks, gradients, plan.tp)
    sharded = np.where(plan.zero == 3, 1.0, 0.0)
    tensor = tiers.collective(cluster, plan, "all-reduce", "all_reduce", plan.tp, s.tokens * s.hidden * e, 1.0)
    return total(
        "output layer and loss",
        [*compute, tensor, exposed(cluster, "exposed gather and scatter", busy, fold([gather, gather, scatter]), sharded)],
    )


def point_to_point(job: Job, cluster: Cluster, plan: Plan) -> Term:
    """One hand-over of a micro-batch's activations to the next stage: each tensor-parallel rank sends its share.

    Without sequence parallel every rank holds all of it: one share each goes over, and the receivers gather the rest
    (Narayanan et al., SC21, section 4.1).
    """
    whole = plan.tokens * job.model.hidden_size * job.precision.activation_bytes
    hop = tiers.point_to_point(cluster, plan, "p2p", whole / plan.tp, plan.gpus / plan.pp)
    gather = tiers.collective(cluster, plan, "gather the shares", "all_gather", plan.tp, whole, 1.0)
    return total("hand-over", [hop, total("gather", [gather], times=np.where((plan.sp > 0) | (plan.tp == 1), 0.0, 1.0))])


def _passes(held: dict[Kind, Any], per_kind: dict[Kind, list[Term]]) -> tuple[Any, Any, Any]:
    """Computation of one micro-batch on the pace-setting stage: forward, backward with its recompute, weight gradients."""
    forward: Any = 0.0
    backward: Any = 0.0
    weight: Any = 0.0
    for kind, parts in per_kind.items():
        count = held[kind]
        forward = forward + count * parts[0].value
        backward = backward + count * (parts[1].value + parts[2].value)
        weight = weight + count * parts[1].times * sum(t.value for t in parts[1].parts if t.name.endswith("wgrad"))
    return forward, backward, weight


def optimizer(job: Job, cluster: Cluster, plan: Plan, pace: Pace) -> Term:
    """Gradient norm and update: every state read and written once, times the framework's passes."""

    def local(stage: Stage) -> Any:
        common, routed = stage_trained(job, stage)
        own = common / plan.tp / states.zero_shards(1.0, plan.zero, plan.shard_ranks)
        if job.model.num_experts:
            own = own + routed / plan.expert_ways / states.zero_shards(1.0, plan.zero, plan.expert_shard_ranks)
        return own

    kept = states.OPTIMIZERS[job.optimizer].traffic_bytes * job.framework.optimizer_passes.value
    # where the host updates, the device reads gradients for their norm and writes weights
    left = job.framework.gradient_bytes.value + job.precision.parameter_bytes
    touched = np.where(plan.offload_optimizer > 0, left, kept)
    constants = cluster.elementwise
    return leaf(
        "optimizer",
        kernels.memory_time,
        "s",
        "hbm",
        traffic=traffic.optimizer_step(pace.of(local), touched),
        bandwidth=cluster.accelerator.hbm_bandwidth,
        bandwidth_fraction=constants.bandwidth_fraction,
        launch=constants.launch,
    )
