"""The time of one optimizer step as a Term tree.

    step = num_microbatches * (slowest stage's layers + embedding + head + p2p)     forward, backward, recompute, TP, FSDP
         + pipeline bubble + exposed gradient reduction + exposed parameter gather + optimizer

The slowest stage sets the pace in steady state; the step waits for the other stages once, in the bubble.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.documents.columns import Sequences, computed
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer import adapters, casts, experts, gradients, passes, uneven
from ironlaw.estimate.layer.counts import embedding_parameters, output_matrix, output_width
from ironlaw.estimate.layer.kinds import Kind, kinds, layer_of_kind, layers_of, plan_of_kind
from ironlaw.estimate.layer.sizes import Shapes, elementwise, gemm, host_time, of_predictions
from ironlaw.estimate.layer.trained import layer_trained
from ironlaw.estimate.layer.untrained import UNTRAINED, reference_job, reference_passes, reference_plan
from ironlaw.estimate.memory import offloading
from ironlaw.estimate.memory.paging import paging
from ironlaw.estimate.memory.states import optimizer_parameters, pages
from ironlaw.estimate.memory.total import memory
from ironlaw.estimate.network import context, overlapped_experts, sharding, tensor
from ironlaw.estimate.network.sharding import Waits, data_parallel, exposed, fully_sharded, shared_table_reduction
from ironlaw.estimate.pipeline import hand_overs
from ironlaw.estimate.pipeline.bubbles import Loads
from ironlaw.estimate.pipeline.schedules import bubble, microbatch_group, schedule_of
from ironlaw.estimate.pipeline.stages import Pace, Stage, slowest, stages, unpaired_stages
from ironlaw.estimate.step import load_imbalance
from ironlaw.estimate.step.optimizer_step import optimizer
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.law import kernels, overlap, traffic
from ironlaw.law import pipeline as law_pipeline
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold, leaf, total

STEP, MICRO_BATCHES, STRAGGLERS = "step", "micro-batches", "stragglers"  # keys of terms that others look up


class LayerTimes(Frozen):
    """What one layer adds to a micro-batch: its terms, and the times that schedules and later collectives need."""

    terms: list[Term]
    forward: Any
    backward: Any  # with what it recomputes
    weight: Any  # weight gradients alone
    hidden: Any  # the part of its experts' communication that other micro-batches hide
    waits: Waits
    data: Any  # further waits of the backward pass, for data
    scattered: Any  # of these, for weights and gradients that are sharded


class Step(Frozen):
    """The time of a step as a tree, and the class of stages that sets the pace in every row."""

    tree: Term
    pace: Pace
    forward_share: Any  # forward share of a micro-batch's computation: the cost of an evaluation relative to a step


def step(job: Job, cluster: Cluster, plan: Plan) -> Step:
    """The step of every plan of a batch."""
    parts, pace, (forward, backward) = step_parts(job, cluster, plan)
    return Step(whole_step(cluster, group_links.domains_taken(cluster, plan), parts), pace, forward / (forward + backward))


def whole_step(cluster: Cluster, domains: Any, parts: list[Term]) -> Term:
    """The sum of a step's parts, the waiting for stragglers of all ``domains``, which grows with it, and the fixed per-step overhead."""
    busy = fold(parts)
    lost = leaf(
        "stragglers and jitter",
        overlap.scale_loss,
        "s",
        "network",
        key=STRAGGLERS,
        time=busy,
        domains=domains,
        loss=cluster.systems.scale_loss,
    )
    fixed = leaf("fixed per-step overhead", _as_is, "s", "dispatch", seconds=cluster.systems.step_overhead)
    return Term("step", busy + lost.value + fixed.value, "s", parts=[*parts, lost, fixed], key=STEP)


def step_parts(job: Job, cluster: Cluster, plan: Plan, limit: Any = np.inf) -> tuple[list[Term], Pace, tuple[Any, Any]]:
    """The parts of a step before they are summed, the stages that set its pace, and one micro-batch's forward and backward there.

    A search sums the parts in blocks: each part has the shape of the axes it depends on, their sum the shape of all axes. Where documents
    have many lengths the parts are those of mean micro-batches, and waiting for the slowest is added to them. Of plans that take more
    than ``limit`` seconds the parts may be shorter, but add up to more than that.
    """
    if job.documents is None:
        return even_parts(job, cluster, plan, limit)
    if job.documents.cp_by_length and np.any(plan.cp > 1.0):
        levels = Sequences.of(job.documents, plan).levels(plan)
        found = [even_parts(job.replace(documents=level.sequences), cluster, level.plan) for level in levels]
        parts = load_imbalance.mixed([(level.ranks, level.share, parts) for level, (parts, _, _) in zip(levels, found, strict=True)])
        pace = found[-1][1]
        forward, backward = (sum(level.share * passes[way] for level, (_, _, passes) in zip(levels, found, strict=True)) for way in (0, 1))
    else:
        mean_job, mean_plan = computed(job, plan)
        parts, pace, (forward, backward) = even_parts(mean_job, cluster, mean_plan)
    return [*parts, *load_imbalance.waits(job, plan, parts)], pace, (forward, backward)


def even_parts(job: Job, cluster: Cluster, plan: Plan, limit: Any = np.inf) -> tuple[list[Term], Pace, tuple[Any, Any]]:
    """The parts of a step whose micro-batches all take as long; of ``limit`` see ``step_parts``."""
    one = micro_batch(job, cluster, plan)
    pace, forward, backward, hop = one.pace, one.forward, one.backward, one.hop
    reduced, gathered = data_parallel(job, cluster, plan, pace, forward, backward, one.waits)
    parts = [
        total("micro-batches", one.terms, times=plan.num_microbatches, key=MICRO_BATCHES),
        *hand_overs.of_warm_up_and_flush(job, plan, hop, one.layers, one.passes[0] / (one.passes[0] + one.passes[1])),
        reduced,
        *shared_table_reduction(job, cluster, plan),
        gathered,
        *casts.kept_weights(cluster, job, plan, pace),
        *untrained_passes(job, cluster, plan),
        *loss_scaling(job, cluster, plan, pace),
        optimizer(job, cluster, plan, pace),
        *offloading.optimizer_traffic(job, cluster, plan, pace, backward, one.waits.either + one.waits.backward + one.data + reduced.value),
        *([paging(cluster, memory(job, cluster, plan).paged)] if pages(job) else []),
    ]
    parts.insert(1, bubble(schedule_of(job), plan, one.loads, fold(one.terms), one.exposed, limit, parts))
    return parts, pace, one.passes


class MicroBatch(Frozen):
    """One micro-batch on the stage that sets the pace, and what it takes on the others."""

    pace: Pace
    terms: list[Term]
    layers: Any  # of the terms, all layers [s]
    forward: Any  # computation of the forward pass of the layers [s]
    backward: Any  # of the backward pass, with what it recomputes
    waits: Waits
    data: Any  # further waits of the backward pass, for data [s]
    hop: Term  # one hand-over
    alone: Any  # what passes that fill or drain the pipeline take longer, because no other micro-batch is beside them [s]
    exposed: Any  # this, and hand-overs beside chunks: while the pipeline fills and drains, and what is longer than a chunk [s]
    loads: Loads
    passes: tuple[Any, Any]  # forward and backward, whose ratio divides a stage's time [s]


def micro_batch(job: Job, cluster: Cluster, plan: Plan) -> MicroBatch:
    """The terms of one micro-batch, and the times that schedules and collectives of the whole job need."""
    s, classes = Shapes.of(job, plan), stages(job, plan)
    per_kind = {kind: layer_times(job, cluster, plan, s, kind, classes[0]) for kind in kinds(job.model)}
    one_layer = {kind: fold(layer.terms) for kind, layer in per_kind.items()}
    embedding, head = embedding_term(job, cluster, plan, s), head_term(job, cluster, plan, s)
    hop = hand_overs.hand_over(job, cluster, plan)
    through = partial(through_stages, job, classes, embedding=embedding.value, head=head.value)
    times = through(one_layer)
    pace = slowest(classes, times)

    counts = {kind: pace.of(partial(layers_of, kind=kind, model=job.model)) for kind in per_kind}
    forward: Any = 0.0
    backward: Any = 0.0
    weight: Any = 0.0
    waits, data, scattered = Waits(), 0.0, 0.0
    for kind, layer in per_kind.items():
        forward = forward + counts[kind] * layer.forward
        backward = backward + counts[kind] * layer.backward
        weight = weight + counts[kind] * layer.weight
        waits = waits.plus(layer.waits.times(counts[kind]))
        data = data + counts[kind] * layer.data
        scattered = scattered + counts[kind] * layer.scattered
    passes_alone = passes_or_of_a_layer(list(per_kind.values()), forward, backward)
    forward_share = passes_alone[0] / (passes_alone[0] + passes_alone[1])
    layers = [total(kind.name, layer.terms, times=counts[kind], key=kind) for kind, layer in per_kind.items()]
    waited_for = total("stage to stage", [hop], times=np.where(plan.pp > 1, 2.0 * plan.vpp * (1.0 - hand_overs.overlapped(plan)), 0.0))
    longer_than_chunks = hand_overs.beside_chunks(plan, hop, fold(layers), forward_share)
    terms = [
        *layers,
        total("embedding", [embedding], times=pace.of(lambda stage: stage.embedding)),
        total("output layer and loss", [head], times=pace.of(lambda stage: stage.head) * heads_of(job)),
        waited_for,
        *longer_than_chunks,
    ]
    hidden = {kind: layer.hidden for kind, layer in per_kind.items()}
    alone: Any = 0.0
    if any(np.any(time > 0) for time in hidden.values()):
        longer = through({kind: one_layer[kind] + time for kind, time in hidden.items()})
        alone = through_pipeline(classes, longer) - through_pipeline(classes, times)
        alone = np.maximum(alone - sum(counts[kind] * time for kind, time in hidden.items()), 0.0) / plan.vpp
    filling = weight + schedule_of(job).fills_waits * (waits.either + waits.backward + scattered)
    shares = forward_share, filling / fold(terms)
    beside = np.where(plan.pp > 1, hand_overs.overlapped(plan), 0.0) * hop.value
    loads = loads_of(job, plan, classes, one_layer, (embedding.value, head.value), (waited_for.value, beside), shares)
    exposed = alone + 2.0 * plan.pp * beside + plan.num_microbatches * fold(longer_than_chunks)
    return MicroBatch(pace, terms, fold(layers), forward, backward, waits, data, hop, alone, exposed, loads, passes_alone)


def passes_or_of_a_layer(layers: Sequence[LayerTimes], forward: Any, backward: Any) -> tuple[Any, Any]:
    """Both passes of a stage's layers, whose ratio divides its time; of a layer of each kind where the stage has the loss alone."""
    empty = forward + backward <= 0.0
    if not np.any(empty):
        return forward, backward
    one, other = sum(layer.forward for layer in layers), sum(layer.backward for layer in layers)
    return np.where(empty, one, forward), np.where(empty, other, backward)


def _as_is(seconds: Any) -> Any:
    """A time from the record, unchanged: ``seconds``."""
    return seconds


def heads_of(job: Job) -> float:
    """Output layers of a model: one, and one for each further token that it predicts."""
    return 1.0 + job.model.num_nextn_predict_layers


def through_stages(job: Job, classes: list[Stage], one_layer: dict[Kind, Any], embedding: Any, head: Any) -> list[Any]:
    """Forward and backward of one micro-batch through the layers of each class of stages, with the embedding and the heads it holds."""
    heads = heads_of(job)
    return [_layers_time(job, c, one_layer) + c.embedding * embedding + c.head * heads * head for c in classes]


def _layers_time(job: Job, stage: Stage, one_layer: dict[Kind, Any]) -> Any:
    """Forward and backward of one micro-batch through the layers of a stage."""
    time: Any = 0.0
    for kind, value in one_layer.items():
        time = time + layers_of(stage, kind, job.model) * value
    return time


def loads_of(
    job: Job,
    plan: Plan,
    classes: list[Stage],
    one_layer: dict[Kind, Any],
    ends: tuple[Any, Any],
    hops: tuple[Any, Any],
    shares: tuple[Any, Any],
) -> Loads:
    """What one micro-batch takes on each stage; ``ends`` are the embedding and one output layer.

    ``hops`` are what hand-overs add to every stage, and one that runs beside chunks; ``shares`` those of the forward pass and of weight
    gradients in every time.
    """
    if any(stage.halves is not None for stage in classes):
        classes = unpaired_stages(job, plan)
    (embedding, head), (between, beside) = ends, hops
    first, last = ({kind: time for kind, time in one_layer.items() if kind.place == place} for place in ("tower", "end"))
    heads = heads_of(job) * head
    return Loads(
        classes,
        [time + between for time in through_stages(job, classes, one_layer, embedding, head)],
        [stage.embedding * embedding + _layers_time(job, stage, first) for stage in classes],
        [stage.head * heads + _layers_time(job, stage, last) for stage in classes],
        *shares,
        beside,
        group=microbatch_group(job, plan),
    )


def through_pipeline(classes: list[Stage], times: list[Any]) -> Any:
    """Forward and backward of one micro-batch through all stages, without hand-overs."""
    through = classes[0].count * times[0]
    for c, t in zip(classes[1:], times[1:], strict=True):
        through = through + c.count * t
    return through


def layer_times(job: Job, cluster: Cluster, plan: Plan, s: Shapes, kind: Kind, first: Stage) -> LayerTimes:
    """One layer's time in a micro-batch: computation, exposed communication, and launches that the host is late with."""
    job = casts.job_of_kind(job, kind)
    job, s = layer_of_kind(job, plan, s, kind)
    plan = plan_of_kind(plan, kind)
    once_forward = passes.forward_operators(cluster, job, plan, s, kind)
    forward = passes.forward(once_forward)
    backward = passes.backward(cluster, job, plan, s, kind)
    again = passes.recompute(job, plan, kind, once_forward)
    device = forward.value + backward.value + again.value
    pass_count = 2.0 + plan.recompute_layers if kind.trained else 1.0 + 0.0 * plan.recompute_layers
    dispatches = pass_count if not kind.trained else 2.0 + passes.recomputes_experts(plan, kind)
    exposed_tp = tensor.tensor_parallel(cluster, job, plan, s, kind, forward, backward)
    ring = [context.context_parallel(job, cluster, plan, s, kind)] if kind.mixer.blocks else []
    routed, hidden = [], 0.0
    if kind.routed:
        exchange = overlapped_experts.expert_parallel(job, cluster, plan, s, kind, (forward, backward, again), dispatches)
        routed, hidden = [exchange.time], exchange.hidden
    ringing = context.ring_waits(plan, kind, ring[0]) if ring else Waits()
    inside = fold([exposed_tp, *routed]) / pass_count  # collectives of a layer's own ranks: weights come and gradients go beside them too
    split = tensor.waits_beside_products(exposed_tp, pass_count)
    later = backward.value + again.value
    beside = forward.value + inside + ringing.forward, later + (pass_count - 1.0) * inside + ringing.backward
    sharded = fully_sharded(job, cluster, plan, kind, *beside)
    offloaded = [
        *offloading.activation_traffic(job, cluster, plan, s, kind, first, forward.value, later),
        *offloading.parameter_traffic(job, cluster, plan, kind, forward.value, later),
    ]
    waits = fold([exposed_tp, *ring, *routed, sharded, *offloaded])  # while the device waits for data the host launches on
    ahead = (fold([exposed_tp, *ring, *routed]) - ringing.forward - ringing.backward) / pass_count  # of these, in the forward pass
    ahead = ahead + ringing.forward + fold([sharded.parts[0], *offloaded[::2]])
    started = tensor.launched(job, plan, kind, forward), sharding.launched(plan, kind)
    host = host_dispatch(
        job, cluster, plan, kind, forward.value + ahead, device + waits, tuple(sum(one) for one in zip(*started, strict=True))
    )
    summed = gradients.accumulation(cluster, job, plan, *layer_trained(job, kind))
    return LayerTimes(
        terms=[forward, backward, again, summed, exposed_tp, *ring, *routed, sharded, *offloaded, host],
        forward=forward.value,
        backward=later,
        weight=passes.weight_gradients(backward),
        hidden=hidden,
        waits=waits_of(host).plus(ringing).plus(split),
        data=waits - ahead - ringing.backward - split.backward,
        scattered=sharded.value - sharded.parts[0].value,
    )


def host_dispatch(job: Job, cluster: Cluster, plan: Plan, kind: Kind, forward: Any, whole: Any, collectives: tuple[Any, Any]) -> Term:
    """Time in which the device waits for the host to launch kernels, over a layer's passes; the host runs ahead into the next pass.

    ``forward`` and ``whole`` are the times of the forward pass and of all passes without it: computation, and waits for data.
    ``collectives`` are those that the host starts in the forward pass, and in the others; one takes as long as several operators.
    With experts that drop no tokens it cannot: it waits for their counts in every layer's forward pass, and starts the next one
    without a lead.
    """
    launched, launch = operators(job, plan, kind), host_time(job.framework, cluster)
    count = 3.0 + plan.recompute_layers if kind.trained else 1.0
    from_python = job.framework.operators_per_layer.value > 0 and job.cuda_graphs == "none"  # else a program or a graph starts them
    stated = cluster.systems.operators_per_collective
    each = stated.value if from_python and stated is not None else 0.0

    def late_launches(name: str, times: Any, started: Any, seconds: Any) -> Term:
        """Time that the device waits for launches while it works ``seconds``."""
        kernels_launched = launched * times + each * started
        return leaf(name, kernels.dispatch_shortfall, "s", "dispatch", operators=kernels_launched, host_time=launch, device_time=seconds)

    ahead, later = collectives
    if not kind.routed or job.capacity_factor or not kind.trained:
        return late_launches("host dispatch", count, ahead + later, whole)
    parts = [
        late_launches("host dispatch, forward", 1.0, ahead, forward),
        late_launches("host dispatch, backward", count - 1.0, later, whole - forward),
    ]
    return total("host dispatch", parts)


def waits_of(host: Term) -> Waits:
    """The time that a layer's device waits for its host, by pass where that is known."""
    if not host.parts:
        return Waits(either=host.value)
    forward, backward = host.parts
    return Waits(forward=forward.value, backward=backward.value)


def operators(job: Job, plan: Plan, kind: Kind) -> Any:
    """Kernels that a layer's forward pass launches: of any layer, of a state's scan, of routing, and of each expert on the rank.

    Narrow formats cast an expert's operands in separate kernels.
    """
    if job.cuda_graphs == "full":
        return 0.0
    f, graphs = job.framework, captured_modules(job)
    mixer = f.operators_per_layer.value * kind.mixer.blocks / 2.0
    if f.operators_per_layer.value:  # a compiled program launches nothing
        mixer += kind.mixer.launches
    count = mixer * (kind.mixer.graph_module not in graphs)
    mlp_captured = not graphs.isdisjoint({"moe", "moe_router"} if kind.routed and "mlp" not in graphs else {"mlp"})
    count += f.operators_per_layer.value * float(kind.has_mlp) / 2.0 * (not mlp_captured)
    count += adapters.operators(job, kind) * (not graphs)
    if not kind.routed or "moe" in graphs:
        return count
    routed = f.operators_per_routed_layer.value * (1.0 - sum(ROUTING_CAPTURED.get(module, 0.0) for module in graphs))
    launches = experts.launches_of_product(casts.job_of_experts(job))
    local = uneven.held_experts(job, plan)
    return count + routed + (launches * f.operators_per_expert.value + experts.bias_operators(job)) * local


# of the kernels of a routed layer: Megatron Core, core/transformer/moe/router.py (gating 3, scores and top-k 7, loss of the balance 12) and
# token_dispatcher.py, preprocess (counts of rows and their copies to the host 8); 10 of the 40 move rows. Counted from the source
ROUTING_CAPTURED = {"moe_router": 0.55, "moe_preprocess": 0.2}


def captured_modules(job: Job) -> frozenset[str]:
    """The modules that run as captured graphs, by the names of Megatron Core's scopes; graphs of a whole step are not asked here."""
    named = {"none": "", "partial": "attn,mlp,mamba"}.get(job.cuda_graphs, job.cuda_graphs)
    return frozenset(named.split(",")) - {""}


def embedding_term(job: Job, cluster: Cluster, plan: Plan, s: Shapes) -> Term:
    """Look-up forward, scatter-add backward, and the sum over the vocabulary's shards."""
    e = job.precision.activation_bytes
    moved = s.tokens * s.hidden * e
    if job.model.products:  # patches take the place of a table; their product is a layer
        return total("embedding", [elementwise(cluster, "positions", 5.0 * moved)])
    reduce = group_links.collective(cluster, plan, "all-reduce", "all_reduce", plan.tp, moved, 1.0)
    frozen = job.lora_rank or job.model.frozen_layers
    summed = gradients.accumulation(cluster, job, plan, embedding_parameters(job.model), fused=False)
    scatter = [] if frozen else [elementwise(cluster, "scatter-add", 3.0 * moved), summed]
    return total("embedding", [elementwise(cluster, "look-up", 2.0 * moved), *scatter, reduce])


def outputs_of_rank(job: Job, plan: Plan) -> Any:
    """Outputs of a token that one tensor-parallel rank computes; a score is computed on every rank."""
    return np.maximum(output_width(job.model) / plan.tp, 1.0)


def head_term(job: Job, cluster: Cluster, plan: Plan, s: Shapes) -> Term:
    """Final norm, output projection and cross-entropy, forward and backward."""
    s = of_predictions(job.model, plan, s)
    e, vocab = job.precision.activation_bytes, outputs_of_rank(job, plan)
    logits = s.tokens * vocab
    chunked = job.framework.chunked_output and job.chunked_logits  # also finds the gradient of a weight that is frozen
    trained = not job.lora_rank or chunked
    compute = [
        *output_products(job, cluster, s, vocab, trained, chunked),
        elementwise(cluster, "cross-entropy", job.framework.loss_bytes.value * logits * e / 2.0),
        elementwise(cluster, "final norm", 2.5 * job.framework.norm_bytes.value * s.sequence_tokens * s.hidden * e / 2.0),
    ]
    busy = fold(compute)
    summed = [] if job.lora_rank else [gradients.accumulation(cluster, job, plan, output_matrix(job.model))]
    weights = vocab * job.model.hidden_size
    gradient_bytes = weights * job.framework.gradient_reduce_bytes.value
    sharded = np.where(plan.zero == 3, 1.0, 0.0)
    shards = np.where(plan.zero == 3, plan.shard_ranks, 1.0)
    gather = group_links.collective(cluster, plan, "gather", "all_gather", shards, weights * job.precision.parameter_bytes, plan.tp)
    scatter = group_links.collective(cluster, plan, "scatter", "reduce_scatter", shards, gradient_bytes, plan.tp)
    reduce = group_links.collective(cluster, plan, "all-reduce", "all_reduce", plan.tp, s.tokens * s.hidden * e, 1.0)
    return total(
        "output layer and loss",
        [*compute, *summed, reduce, exposed(cluster, "exposed gather and scatter", busy, fold([gather, gather, scatter]), sharded)],
    )


def output_products(job: Job, cluster: Cluster, s: Shapes, vocab: Any, trained: bool, chunked: bool) -> list[Term]:
    """The products of the output layer, each in the format that the framework record names for it, and that repeated in backward."""
    formats = job.framework.output_formats
    backward = formats.get("gradients", "")
    size = (s.tokens, vocab, s.hidden)
    products = [gemm(cluster, job, "output gemm", *size, wide=True, stated=formats.get("output", ""))]
    if chunked:
        products.append(gemm(cluster, job, "output gemm again", *size, wide=True, stated=formats.get("again", "")))
    products.append(gemm(cluster, job, "output dgrad", s.tokens, s.hidden, vocab, wide=True, stated=backward))
    if trained:
        written = gradients.written(job)
        products.append(gemm(cluster, job, "output wgrad", s.hidden, vocab, s.tokens, wide=True, result=written, stated=backward))
    if job.model.head == "masked":  # a dense layer before the output layer, which no rank splits
        square = (s.tokens, s.hidden, s.hidden)
        products += [gemm(cluster, job, f"transform {which}", *square, wide=True) for which in ("gemm", "dgrad", "wgrad")]
    return products


OF_LOSS = 0.5  # assumed share of a loss's bytes that its forward pass moves: it reads the logits, backward writes their gradient


def untrained_passes(job: Job, cluster: Cluster, plan: Plan) -> list[Term]:
    """The time of the passes of a step that train nothing; none for the next token."""
    if job.objective is None:
        return []
    name = "teacher" if job.teacher is not None else "reference"
    rows = (
        (f"{name} model, forward", reference_passes(job), job, plan),
        ("forward without gradient", float(job.objective.extra_passes), job.replace(teacher=None), plan),
    )
    return [
        total(label, forward_alone(reference_job(of), cluster, reference_plan(of, at)), times=passes, key=UNTRAINED)
        for label, passes, of, at in rows
        if passes
    ]


def forward_alone(job: Job, cluster: Cluster, plan: Plan) -> list[Term]:
    """One forward pass of a batch through a model whose layers are all frozen: its micro-batches, and the filling of the pipeline."""
    s, classes = Shapes.of(job, plan), stages(job, plan)
    per_kind = {kind: layer_times(job, cluster, plan, s, kind, classes[0]) for kind in kinds(job.model)}
    one_layer = {kind: fold(layer.terms) for kind, layer in per_kind.items()}
    embedding, head = embedding_term(job, cluster, plan, s), head_forward(job, cluster, plan, s)
    hop = hand_overs.hand_over(job, cluster, plan)
    times = through_stages(job, classes, one_layer, embedding=embedding.value, head=head.value)
    pace = slowest(classes, times)
    layers = [
        total(kind.name, layer.terms, times=pace.of(partial(layers_of, kind=kind, model=job.model)), key=kind)
        for kind, layer in per_kind.items()
    ]
    micro_batch = [
        *layers,
        total("embedding", [embedding], times=pace.of(lambda stage: stage.embedding)),
        total("output layer", [head], times=pace.of(lambda stage: stage.head)),
        total("stage to stage", [hop], times=np.where(plan.pp > 1, plan.vpp, 0.0)),
    ]
    through = through_pipeline(classes, times) + np.where(plan.pp > 1, plan.pp * plan.vpp, 0.0) * hop.value
    slowest_stage = np.minimum(fold(micro_batch), through)
    return [
        total("micro-batches", micro_batch, times=plan.num_microbatches),
        leaf("pipeline fill", law_pipeline.bubble_time, "s", "pipeline", pipeline_time=through, slowest_stage_time=slowest_stage, vpp=1.0),
    ]


def head_forward(job: Job, cluster: Cluster, plan: Plan, s: Shapes) -> Term:
    """Final norm, output projection and the log-probabilities, forward."""
    e, outputs = job.precision.activation_bytes, outputs_of_rank(job, plan)
    stated = job.framework.output_formats.get("output", "")
    reduce = group_links.collective(cluster, plan, "all-reduce", "all_reduce", plan.tp, s.tokens * s.hidden * e, 1.0)
    shards = np.where(plan.zero == 3, plan.shard_ranks, 1.0)
    weights = outputs * s.hidden * job.precision.parameter_bytes
    return total(
        "output layer",
        [
            gemm(cluster, job, "output gemm", s.tokens, outputs, s.hidden, wide=True, stated=stated),
            elementwise(cluster, "log-probabilities", OF_LOSS * job.framework.loss_bytes.value * s.tokens * outputs * e / 2.0),
            elementwise(cluster, "final norm", job.framework.norm_bytes.value * s.sequence_tokens * s.hidden * e / 2.0),
            reduce,
            group_links.collective(cluster, plan, "gather", "all_gather", shards, weights, plan.tp),
        ],
    )


def loss_scaling(job: Job, cluster: Cluster, plan: Plan, pace: Pace) -> list[Term]:
    """With fp16: divide gradients by the scale of the loss, and look for infinities, before the update."""
    if job.precision.name != "fp16":
        return []
    moved = traffic.unscale(pace.of(lambda stage: optimizer_parameters(job, plan, stage)), job.framework.gradient_bytes.value)
    return [elementwise(cluster, "loss scale taken out", moved)]
