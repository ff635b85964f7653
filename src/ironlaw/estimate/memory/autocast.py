"""What ``torch.autocast`` keeps in memory: 16-bit copies of fp32 weights and of fp32 inputs, and residuals that stay in fp32.

Autocast casts the operands of every product. The embedding of fp32 weights is fp32, and so is every sum of a residual and a product's
output; each product keeps a cast copy of its input, so three products that read one tensor keep three. Where FSDP or DeepSpeed hold the
weights in 16 bits, nothing is fp32 and nothing is cast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.layer.counts import head_parameters, norms_of, stage_linear
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.memory.activations import hidden_state
from ironlaw.estimate.memory.states import stores_masters
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job
from ironlaw.law import states
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf, total


def casts(job: Job, plan: Plan) -> Any:
    """1 where products cast fp32 weights: no plan that shards weights or states over ranks holds them in 16 bits."""
    if not (job.framework.autocast and stores_masters(job)):
        return 0.0
    return np.where((plan.zero == 0) | (plan.shard_ranks <= 1), 1.0, 0.0)


def input_copies(job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """What one layer keeps of one micro-batch beside the other terms: fp32 in place of 16 bits at norms, an input for each product.

    ``norms (4 - e) + e (further products that read the input of attention, and of the MLP)``, for each element of the hidden state.
    """
    cast, model = casts(job, plan), job.model
    if kind.tower or not np.any(cast):
        return []
    e = job.precision.activation_bytes
    apart = 0.0 if job.framework.fused_projections else 1.0
    further = apart * (2.0 * float(kind.mixer.attends) + float(model.gated_mlp and kind.has_mlp and not kind.routed))
    return [hidden_state("copies by autocast", job, plan, s, cast * (norms_of(model, kind) * (4.0 - e) / e + further))]


def weight_copies(job: Job, plan: Plan, stage: Stage) -> list[Term]:
    """16-bit copies of the weights of products, which the backward pass reads; with checkpoints each is made again."""
    cast = casts(job, plan)
    if not np.any(cast):
        return []
    common, routed, _ = stage_linear(job.model, stage)
    count = (common + stage.head * head_parameters(job.model)) / plan.tp + routed / plan.expert_ways
    size = leaf("cast weights", states.state, "B", parameters=count, bytes_per_parameter=job.precision.parameter_bytes, shards=1.0)
    return [total("copies of weights by autocast", [size], times=cast * (1.0 - plan.recompute_layers))]
