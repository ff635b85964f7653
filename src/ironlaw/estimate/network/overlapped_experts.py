"""Two micro-batches side by side: the all-to-all of one behind the computation of the other (``overlap ep``).

Megatron Core's ``--overlap-moe-expert-parallel-comm`` runs the forward of one micro-batch and the backward of another layer by
layer, on two streams (core/pipeline_parallel/combined_1f1b.py, core/models/common/model_chunk_schedule_plan.py):

    communication   combine backward | dispatch forward | dispatch backward | combine forward
    computation     attention forward | experts backward | experts forward  | attention backward

``delay_wgrad_compute`` takes weight gradients out of the backward of a block: weight gradients of experts run beside dispatch backward,
weight gradients of attention beside the next combine backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer import experts
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.sizes import Shapes, operator_of
from ironlaw.estimate.network.sharding import exposed
from ironlaw.estimate.pipeline.schedules import microbatch_group, schedule_of
from ironlaw.job import Job
from ironlaw.law import pipeline
from ironlaw.plan import Plan
from ironlaw.precision import WEIGHT_GRADIENT
from ironlaw.terms import Term, fold, leaf, total


class ExpertParallel(NamedTuple):
    """What a layer's dispatch and combine add to it, and what of their time other micro-batches hide.

    Where the pipeline fills or drains no other micro-batch is there, and what is hidden elsewhere shows.
    """

    time: Term
    hidden: Any = 0.0


def _conditions(job: Job, plan: Plan) -> dict[str, Any]:
    """Conditions of overlap ep: the line that is printed where one fails, and whether the plan meets it.

    Megatron Core checks them for --overlap-moe-expert-parallel-comm (core/transformer/transformer_config.py).
    """
    model = job.model
    return {
        "overlap ep needs ep > 1, got {ep:g}": plan.ep > 1,
        f"overlap ep needs 1f1b or interleaved, schedule {job.schedule} pairs no micro-batches or does so by itself": (
            schedule_of(job).overlaps_experts
        ),
        "overlap ep with pp {pp:g} needs vpp > 1: Megatron Core pairs micro-batches only in the interleaved schedule": (
            (plan.pp == 1) | (plan.vpp > 1)
        ),
        "overlap ep excludes recomputation of whole layers or of experts, which would dispatch again": (
            (plan.recompute_layers == 0) & (plan.recompute_linear == 0) & (plan.recompute_moe == 0)
        ),
        f"overlap ep allows at most one multi-token-prediction layer, {model.name} has {model.num_nextn_predict_layers}": (
            model.num_nextn_predict_layers <= 1
        ),
        f"overlap ep needs a model in two bytes, {job.precision.name} is wider": job.precision.parameter_bytes <= 2.0,
    }


def may_pair(job: Job, plan: Plan) -> Any:
    """True where the plan may hide its all-to-all behind another micro-batch, or does not ask for it."""
    if not np.any(plan.overlap_ep > 0):
        return np.bool_(not job.delay_wgrad_compute)
    allowed: Any = np.True_
    for condition in _conditions(job, plan).values():
        allowed = allowed & condition
    return np.where(plan.overlap_ep > 0, allowed, not job.delay_wgrad_compute)


def unmet_condition(job: Job, plan: Plan, values: dict[str, Any], at: int) -> str:
    """The line of the first condition of overlap ep that row ``at`` does not meet."""
    if not np.broadcast_to(plan.overlap_ep, (plan.rows,))[at]:
        return "delay_wgrad_compute needs overlap ep: Megatron Core delays weight gradients only beside the all-to-all"
    return next(text.format(**values) for text, met in _conditions(job, plan).items() if not np.broadcast_to(met, (plan.rows,))[at])


def unpaired_share(job: Job, plan: Plan) -> Any:
    """Share of a step's passes that run without another micro-batch beside them; 1 where micro-batches are not paired."""
    share = pipeline.lone_share(plan.vpp, plan.num_microbatches, microbatch_group(job, plan))
    return np.where(plan.overlap_ep > 0, share, 1.0)


def expert_parallel(
    job: Job, cluster: Cluster, plan: Plan, s: Shapes, kind: Kind, computed: tuple[Term, Term, Term], passes: Any
) -> ExpertParallel:
    """Dispatch and combine of every pass: waited for, except where another micro-batch computes meanwhile (DualPipe, overlap ep).

    ``computed`` are forward, backward and what it recomputes.
    """
    forward = experts.communication(cluster, job, plan, s)
    backward = forward if job.dispatch_precision != "fp8-forward" else experts.communication(cluster, job, plan, s, backward=True)
    whole = total("expert parallel", [forward.whole], times=passes)
    if backward is not forward:
        trained = float(kind.trained)
        both = [total("forward", [forward.whole], times=passes - trained), total("backward", [backward.whole], times=trained)]
        whole = total("expert parallel", both)
    if schedule_of(job).pairs_micro_batches:
        beside = fold(list(computed)) * (plan.pp > 1)  # one stage alone runs one micro-batch at a time
        return ExpertParallel(exposed(cluster, "expert parallel", beside, whole.value))
    if not kind.trained or not np.any(plan.overlap_ep > 0):
        return ExpertParallel(whole)
    return _overlapped(cluster, job, plan, computed, whole, [forward.dispatch, forward.combine, backward.dispatch, forward.combine])


def _overlapped(
    cluster: Cluster, job: Job, plan: Plan, computed: tuple[Term, Term, Term], whole: Term, moved: list[Term]
) -> ExpertParallel:
    """Exposed time of dispatch and combine: all of ``whole`` where nothing runs beside them, else what two windows cannot hide.

    ``moved`` are dispatch and combine, forward and backward. Gathers and scatters inside experts (etp) run between dispatch and
    product, on the stream of the computation, and show.
    """
    forward, backward, again = computed
    before, inner = _split(forward), _split(forward, experts=True)
    after, inner_after = _split(backward) + _split(again), _split(backward, experts=True) + _split(again, experts=True)
    if job.delay_wgrad_compute:
        all_products, wgrad = _split(backward, wgrad=True), _split(backward, experts=True, wgrad=True)
        before, after = before + all_products, after - all_products
        inner, inner_after = inner + wgrad, inner_after - wgrad
    dispatch, combine, gradients, combined = (term.value for term in moved)
    beside = [
        exposed(cluster, "combine backward beside attention forward", before, gradients),
        exposed(cluster, "dispatch forward beside experts backward", inner_after, dispatch),
        exposed(cluster, "dispatch backward beside experts forward", inner, combined),
        exposed(cluster, "combine forward beside attention backward", after, combine),
    ]
    inside = leaf("gather and scatter inside experts", _left, "s", "network", whole=whole.value, moved=fold(moved))
    share = unpaired_share(job, plan)
    unpaired, paired = total("beside no other micro-batch", [whole], times=share), [*beside, inside]
    time = total("expert parallel", [unpaired, total("beside another micro-batch", paired, times=1.0 - share)])
    return ExpertParallel(time, whole.value - time.value)


def _split(term: Term, experts: bool = False, wgrad: bool = False) -> Any:
    """Time of the operators of a pass that run after the dispatch (``experts``) or before it; with ``wgrad`` weight gradients alone."""
    value: Any = 0.0
    for part in term.parts:
        operator = operator_of(part)
        if part.parts:
            value = value + _split(part, experts, wgrad)
        elif operator.behind_dispatch == experts and (operator.computes == WEIGHT_GRADIENT or not wgrad):
            value = value + part.value
    return value * term.times


def _left(whole: Any, moved: Any) -> Any:
    """Communication that is not moved to another stream: ``whole - moved``."""
    return np.maximum(whole - moved, 0.0)


def paired_layer_memory(plan: Plan, layers: Any, sizes: dict[str, Any]) -> list[Term]:
    """Memory of the second copy of a layer while a pair runs: forward saves one before backward of the other micro-batch frees its own.

    Pairing adds one warm-up forward, which replaces the forward that 1F1B runs before each backward: chunks in flight stay the same.
    """
    if not np.any(plan.overlap_ep > 0):
        return []
    times = plan.overlap_ep * np.minimum(layers, 1.0)
    return [leaf("layer of the paired micro-batch", largest, "B", times=times, **sizes)]


def largest(**sizes: Any) -> Any:
    """The largest of a layer of each kind: ``max(sizes)``."""
    most: Any = 0.0
    for size in sizes.values():
        most = np.maximum(most, size)
    return most
