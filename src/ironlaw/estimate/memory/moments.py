"""Moments of a step at which memory peaks: what is in memory at one of them only.

    loss       all saved activations, the logits and what the loss makes of them
    backward   all saved activations, the layer that runs backward, gradients of its tensors
    end        the gradients of all weights, and the first layer, which runs backward last
    update     the gradients of all weights, and what the optimizer allocates

Where gradients stay between steps, or several micro-batches are summed, they are in memory at every moment. The fullest moment of a
plan is its peak; terms of the others count 0 in the tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.layer import experts
from ironlaw.estimate.layer.counts import expert_width
from ironlaw.estimate.layer.kinds import Kind, kinds, layer_of_kind, layers_of, plan_of_kind
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.layer.updates import mean_of
from ironlaw.estimate.memory.activations import elements, hidden_state
from ironlaw.estimate.memory.states import optimizer_parameters
from ironlaw.estimate.network import overlapped_experts
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.law import states
from ironlaw.law._domain import ratio
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold, leaf, total

LOSS, BACKWARD, END, UPDATE = range(4)

# tensors as wide as the MLP that are gradients at once: the chain rule through ``down(act(gate) * up)`` has those of the product, of
# act(gate) and of up; through ``down(act(up))`` those of the activation's output and of its input
WIDE_GRADIENTS = {True: 3.0, False: 2.0}
HIDDEN_GRADIENTS = 2.0  # of the residual stream: of a block's output, and of its input as the block returns it


class Moment(Frozen):
    """Which moment is the peak of every plan, as columns of 0 and 1."""

    loss: Any = 1.0
    backward: Any = 1.0
    gradients: Any = 1.0  # the gradients of all weights are in memory
    saved: Any = 1.0  # the activations of all micro-batches in flight are
    layer: Any = 1.0  # a layer runs backward
    update: Any = 0.0


def summed(job: Job, plan: Plan) -> Any:
    """1 where gradients are in memory during all of a step: they stay between steps, or those of an earlier micro-batch do."""
    if job.optimizer_in_backward:
        return 0.0 * plan.num_microbatches
    return np.where((plan.num_microbatches > 1) | (not job.framework.lazy_gradients), 1.0, 0.0)


def peak(job: Job, plan: Plan, gradients: Any, saved: Any, loss: Any, layer: Any, update: Any) -> Moment:
    """The fullest moment of every plan, from the bytes of what is in memory at some moments only."""
    kept, made = summed(job, plan), 0.0 if job.optimizer_in_backward else 1.0
    during, after = kept * gradients + saved, made * gradients
    largest, *others = during + loss, during + layer, after + layer, after + made * update
    ahead = []  # of each moment but the first, where it is fuller than all before it
    for size in others:
        ahead.append(size > largest)
        largest = np.maximum(largest, size)
    updating = ahead[2]
    late = updating | ahead[1]
    backward = ahead[0] & ~late
    at_loss, at_update = 1.0 - (late | ahead[0]), 1.0 * updating
    in_layer = 1.0 * (backward | (late & ~updating))
    return Moment(at_loss, 1.0 * backward, np.maximum(kept, made * late), 1.0 - late, in_layer, at_update)


def layer_gradients(job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """Gradients of the tensors of one layer that are in memory at once: of its MLP's wide tensors and of the residual stream."""
    job, s = layer_of_kind(job, plan, s, kind)
    plan = plan_of_kind(plan, kind)
    model, e = job.model, job.precision.activation_bytes
    count = WIDE_GRADIENTS[model.gated_mlp]
    terms = [hidden_state("gradients of the residual stream", job, plan, s, HIDDEN_GRADIENTS)]
    if kind.routed:
        rows = experts.rows(job, plan, s)
        terms.append(elements("gradients in experts", rows, model.moe_intermediate_size / plan.etp, e, count))
        stated = job.framework.expert_row_gradients
        copies = 1.0 if stated is None else stated.value
        terms.append(elements("gradients of rows of experts", rows, float(expert_width(model)), e, copies))
    elif kind.has_mlp:
        terms.append(elements("gradients in the MLP", s.tokens, s.ffn, e, count))
    return terms


def running_layer(job: Job, plan: Plan, stage: Stage, saved: dict[Kind, list[Term]], gradients: dict[Kind, list[Term]]) -> list[Term]:
    """The layer that runs backward: what it computed again where layers are recomputed, and gradients of its tensors.

    With segments all layers of one are computed again before the backward pass of its last layer. Where kinds of layers mix, a segment
    is counted as if all its layers were of the largest kind, up to all layers of a chunk.
    """
    some = np.minimum(stage.layers, 1.0)
    sizes = {kind.name.replace(" ", "_"): fold(parts) for kind, parts in saved.items()}
    flowing = {kind.name.replace(" ", "_"): fold(parts) for kind, parts in gradients.items()}
    again = np.where(plan.recompute_layers > 0, 1.0, 0.0) * some
    if np.any(plan.recompute_segment > 1):
        again = again * _layers_of_segment(job, plan, stage, sizes)
    return [
        leaf("layer being recomputed", overlapped_experts.largest, "B", times=again, **sizes),
        leaf("gradients of a layer's tensors", overlapped_experts.largest, "B", times=some, **flowing),
        *overlapped_experts.paired_layer_memory(plan, stage.layers, sizes),
    ]


def _layers_of_segment(job: Job, plan: Plan, stage: Stage, sizes: dict[str, Any]) -> Any:
    """Layers of the largest kind that hold as much as a segment: as many as it has, at most what all layers of a chunk hold."""
    every: Any = 0.0
    for kind, size in zip(kinds(job.model), sizes.values(), strict=True):
        every = every + float(kind.trained) * layers_of(stage, kind, job.model) * size
    largest = overlapped_experts.largest(**sizes)
    chunk = np.maximum(ratio(every, largest) / plan.vpp, 1.0)
    return np.where(plan.recompute_segment > 1, np.minimum(plan.recompute_segment, chunk), 1.0)


def hooked_gradients(job: Job, plan: Plan, s: Shapes, stage: Stage) -> list[Term]:
    """Gradients of the inputs of layers with frozen weights, which the hooks of some frameworks keep until the backward pass ends."""
    if not (job.framework.frozen_hooks and job.lora_rank):
        return []
    layers: Any = 0.0
    for kind in kinds(job.model):
        layers = layers + layers_of(stage, kind, job.model)
    sharded = np.where((plan.zero == 3) & (plan.shard_ranks > 1), 1.0, 0.0)
    return [hidden_state("gradients that hooks keep", job, plan, s, sharded * layers)]


def update_copies(job: Job, plan: Plan, stage: Stage) -> list[Term]:
    """Tensors that the optimizer's update allocates for all weights at once: temporaries of every weight, or of a rank's flat shard."""
    copies = job.framework.optimizer_copies
    if copies is None or job.optimizer.matrices.one_by_one:
        return []
    moments = mean_of(job, stage, lambda rule: rule.state_bytes) / 2.0
    if not np.any(moments):
        return []
    size = leaf(
        "temporaries of the update",
        states.state,
        "B",
        parameters=optimizer_parameters(job, plan, stage),
        bytes_per_parameter=moments * copies.value,
        shards=1.0,
    )
    return [total("optimizer's update", [size], times=1.0 - plan.offload_optimizer * job.offload_fraction)]
