"""Micro-batches whose activations a pipeline stage holds, by schedule, by layer and by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job
from ironlaw.law import pipeline
from ironlaw.plan import Plan


def micro_batches_in_flight(job: Job, plan: Plan, stage: Stage) -> Any:
    """Micro-batches a stage holds activations of: all with GPipe, pp + 1 with DualPipe, else by its distance to the end."""
    if job.schedule == "gpipe":
        return np.where(plan.pp > 1, plan.num_microbatches, 1.0)
    if job.schedule == "dualpipe":
        return np.where(plan.pp > 1, np.minimum(plan.pp + 1.0, plan.num_microbatches), 1.0)
    return pipeline.in_flight_interleaved(plan.pp, plan.vpp, stage.index, plan.num_microbatches, microbatch_group(job, plan))


def microbatch_group(job: Job, plan: Plan) -> Any:
    """Micro-batches a chunk runs before the next chunk's turn."""
    return job.microbatch_group or plan.pp


def in_flight_per_layer(job: Job, plan: Plan, stage: Stage) -> Any:
    """Micro-batches that a layer of the stage holds on average: less where its short chunk, with the loss, holds the fewest.

    Layers fill the chunks of a rank; what embedding or loss leave less is missing in its first or its last chunk.
    """
    held = micro_batches_in_flight(job, plan, stage)
    if job.schedule in ("gpipe", "dualpipe") or not np.any(plan.vpp > 1):
        return held
    layers = np.maximum(stage.layers, 1.0)
    full = np.ceil(layers / plan.vpp)
    embedding = stage.embedding * (job.count_embedding | (plan.first_stage_layers >= 0.0))
    missing = np.where(plan.vpp > 1, np.minimum(plan.vpp * full - layers, full), 0.0)
    last = in_flight_of_last_chunk(job, plan, stage)
    first = pipeline.in_flight_chunk(plan.pp, plan.vpp, stage.index, plan.num_microbatches, microbatch_group(job, plan), 0.0)
    short = np.where(stage.head > 0, last, np.where(embedding > 0, first, held))
    return held + missing * (held - short) / layers


def in_flight_of_last_chunk(job: Job, plan: Plan, stage: Stage) -> Any:
    """Micro-batches of the chunk that holds the last layers of a stage."""
    if job.schedule in ("gpipe", "dualpipe"):
        return micro_batches_in_flight(job, plan, stage)
    return pipeline.in_flight_chunk(plan.pp, plan.vpp, stage.index, plan.num_microbatches, microbatch_group(job, plan), plan.vpp - 1.0)
