"""Micro-batches whose activations a pipeline stage holds, by layer and by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.pipeline.schedules import microbatch_group, schedule_of
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job
from ironlaw.law import pipeline
from ironlaw.plan import Plan


def in_flight_per_layer(job: Job, plan: Plan, stage: Stage) -> Any:
    """Micro-batches that a layer of the stage holds on average: less where its short chunk, with the loss, holds the fewest.

    Layers fill the chunks of a rank; the embedding or the loss takes the place of layers in its first or its last chunk.
    """
    schedule = schedule_of(job)
    mean = schedule.in_flight(job, plan, stage.index)
    if not schedule.takes_chunks or not np.any(plan.vpp > 1):
        return mean
    layers = np.maximum(stage.layers, 1.0)
    full = np.ceil(layers / plan.vpp)
    embedding = stage.embedding * (job.count_embedding | (plan.first_stage_layers >= 0.0))
    missing = np.where(plan.vpp > 1, np.minimum(plan.vpp * full - layers, full), 0.0)
    first, last = _in_flight_of_chunk(job, plan, stage, 0.0), _in_flight_of_chunk(job, plan, stage, plan.vpp - 1.0)
    short = np.where(stage.head > 0, last, np.where(embedding > 0, first, mean))
    return mean + missing * (mean - short) / layers


def in_flight_of_last_chunk(job: Job, plan: Plan, stage: Stage) -> Any:
    """Micro-batches of the chunk that holds the last layers of a stage."""
    schedule = schedule_of(job)
    if not schedule.takes_chunks:
        return schedule.in_flight(job, plan, stage.index)
    return _in_flight_of_chunk(job, plan, stage, plan.vpp - 1.0)


def _in_flight_of_chunk(job: Job, plan: Plan, stage: Stage, chunk: Any) -> Any:
    return pipeline.in_flight_chunk(plan.pp, plan.vpp, stage.index, plan.num_microbatches, microbatch_group(job, plan), chunk)
