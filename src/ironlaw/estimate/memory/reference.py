"""Memory of a frozen reference or a teacher beside the trained model: its weights, and its logits at the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.layer.counts import stage_common, stage_routed
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.layer.untrained import reference_job, reference_passes, reference_plan
from ironlaw.estimate.memory.loss import scores
from ironlaw.estimate.pipeline.stages import Stage, stages
from ironlaw.job import Job
from ironlaw.law import states
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf, total


def reference_memory(job: Job, plan: Plan, s: Shapes, stage: Stage) -> list[Term]:
    """Weights of the reference or the teacher on one rank of a stage, and its logits beside those of the trained model.

    ZeRO 3 shards a copy as it shards the trained weights. With adapters the frozen weights are the copy. A teacher has stages of its
    own: every rank is charged with those of its fullest stage.
    """
    if job.objective is None or not reference_passes(job):
        return []
    terms = [] if job.lora_rank and job.teacher is None else [_copied_weights(job, plan, stage)]
    alive = job.objective.reference_logits
    if alive is not None:
        of = reference_job(job)
        logits = scores(of, reference_plan(job, plan), "logits of the reference", s.tokens, alive.value)
        terms.append(total("logits of the reference", [logits], times=np.ceil(stage.head)))
    return terms


def _copied_weights(job: Job, plan: Plan, stage: Stage) -> Term:
    """The frozen weights of the reference or the teacher on one rank."""
    of, at = reference_job(job), reference_plan(job, plan)
    if job.teacher is None:
        common, routed = stage_common(of.model, stage), stage_routed(of.model, stage)
    else:
        classes = stages(of, at)
        common, routed = (_most(count, of.model, classes) for count in (stage_common, stage_routed))
    parts = [
        leaf(name, states.state, "B", parameters=count, bytes_per_parameter=job.precision.parameter_bytes, shards=shards)
        for name, count, shards in (
            ("outside experts", common / at.tp, states.zero_shards(3.0, at.zero, at.shard_ranks)),
            ("experts", routed / at.expert_ways, states.zero_shards(3.0, at.zero, at.expert_shard_ranks)),
        )[: 2 if of.model.num_experts else 1]
    ]
    return total("weights of the teacher" if job.teacher is not None else "weights of the reference", parts).of_kind("weights")


def _most(count: Callable[[Model, Stage], Any], model: Model, classes: list[Stage]) -> Any:
    """The largest of what is counted on the stages of a model."""
    most: Any = 0.0
    for stage in classes:
        most = np.maximum(most, np.where(stage.count > 0, count(model, stage), 0.0))
    return most
