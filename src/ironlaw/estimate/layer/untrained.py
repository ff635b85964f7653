"""The job and the plan of a forward pass that trains nothing: of a frozen reference, of a teacher, or of the trained model itself.

Losses on preferences compare the trained model with a frozen copy of it, distillation with a teacher. Such a pass is that of a model
with all layers frozen: the same layers, collectives and gathers, without a backward pass and without kept activations. Adapters need no
copy: without them the frozen weights are the reference.
"""

from __future__ import annotations

import numpy as np

from ironlaw.job import Job
from ironlaw.plan import BY_RULE, Plan

UNTRAINED = "untrained"  # key of the passes that train nothing


def reference_passes(job: Job) -> float:
    """Forward passes of the reference over a batch in each step."""
    return 0.0 if job.objective is None or job.precomputed_reference else float(job.objective.reference_passes)


def sequences_of_example(job: Job) -> float:
    """Sequences that a micro-batch holds together: the answers that a loss compares."""
    return 1.0 if job.objective is None else float(job.objective.sequences)


def reference_job(job: Job) -> Job:
    """The job of the reference or of the teacher: all of its layers frozen, no adapters, nothing beside it."""
    model = job.teacher or job.model
    model = model.replace(frozen_layers=model.num_hidden_layers, num_nextn_predict_layers=0)
    own = {} if job.teacher is None else {"layers_per_stage": (), "frozen_weights": "", "expert_load": None}
    return job.replace(model=model, lora_rank=0.0, lora_targets=(), objective=None, teacher=None, mtp_stage=None, **own)


def reference_plan(job: Job, plan: Plan) -> Plan:
    """The plan of the reference: that of the step; a teacher splits its layers by the rule, and a dense one has no expert ranks."""
    if job.teacher is None:
        return plan
    one = np.ones_like(plan.ep)
    by_rule = {"first_stage_layers": BY_RULE * one, "last_stage_layers": BY_RULE * one}
    return plan.replace(vpp=one, **by_rule, **({} if job.teacher.num_experts else {"ep": one, "etp": one}))
