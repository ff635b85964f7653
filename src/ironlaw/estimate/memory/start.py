"""Moments before the first step at which memory may peak: while weights are loaded, and while the optimizer is initialised.

    loading        weights that are packed, and those that still have the type in which they were loaded
    initialising   weights, the buffer into which all of them are copied, and the buffer of gradients

What exists during a step only is not in memory then, but the breakdown of memory keeps the parts of a step: a term has what such a moment
needs more than the step. Stacks that move weights over one matrix at a time have no such peak.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.layer.frozen_weights import BITSANDBYTES
from ironlaw.estimate.memory.states import loaded_bytes
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.terms import Term, fold, leaf

MOMENTS = ("step", "loading", "initialising")
LOADING, INITIALISING = (f"more while {moment}" for moment in MOMENTS[1:])
BEFORE_THE_FIRST_STEP = {"loading": "weights before they are packed", "initialising": "weights beside their flat copy"}


def with_start(job: Job, plan: Plan, stage: Stage, parts: list[Term]) -> list[Term]:
    """The parts of allocated memory in a step, and what the fullest moment before the first step needs more: ``max(size - step, 0)``.

    Only ranks that hold whole weights have such a moment: with ZeRO 3 a rank loads its shard; the flat copy is that of a distributed
    optimizer, which is ZeRO 1.
    """
    loads = job.framework.packs_after_loading and job.frozen_weights == BITSANDBYTES
    copies = job.framework.flat_weights and not job.lora_rank  # frozen weights are in no buffer
    if not (loads or copies):
        return parts
    whole = np.where((plan.zero == 3) & (plan.shard_ranks > 1), 0.0, 1.0)
    if loads:
        name, size = LOADING, loaded_bytes(job, plan, stage)
    else:
        name, size = INITIALISING, np.where(plan.zero == 1, _beside_flat_copies(parts), 0.0)
    return [*parts, leaf(name, _more, "B", "weights", size=whole * size, step=fold(parts))]


def _more(size: Any, step: Any) -> Any:
    """What a moment before the first step needs more than a step: ``max(size - step, 0)``."""
    return np.maximum(size - step, 0.0)


def _beside_flat_copies(parts: list[Term]) -> Any:
    """Weights, the buffer that they are copied into, and buffers of gradients; experts have buffers apart, which are made last."""
    held = {part.key: part for part in parts if part.key in ("weights", "gradients")}
    weights, gradients = held["weights"], held["gradients"]
    if len(weights.parts) != 2:
        return 2.0 * weights.value + gradients.value
    (common, experts), (of_common, of_experts) = ([part.value for part in held[key].parts] for key in ("weights", "gradients"))
    return weights.value + np.maximum(common + of_common, experts + of_common + of_experts)


def moment_of(tree: Term) -> Any:
    """The moment at which each row of a breakdown of device memory is: 0 in a step, 1 while loading, 2 while initialising."""
    names = {part.name: part.value for part in tree["allocated"].parts}
    return np.where(names.get(LOADING, 0.0) > 0.0, 1, np.where(names.get(INITIALISING, 0.0) > 0.0, 2, 0))
