"""Pipeline schedules: one row each, with the properties that a step, its memory and its rules use.

No other module compares the name of a schedule. docs/how-to/add-a-schedule.md says how to add one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ironlaw.estimate.pipeline import orders
from ironlaw.estimate.pipeline.orders import Order
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.law import pipeline
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf


class MicroBatch(Frozen):
    """Times of one micro-batch, forward and backward: columns over the plans."""

    all_stages: Any  # through the whole pipeline
    slowest_stage: Any  # on the stage that sets the pace
    forward: Any  # of that stage's layers: forward pass
    backward: Any  # backward pass with what it recomputes
    weight: Any  # of it, weight gradients alone
    waits: Any  # time in which its rank waits that may fall into the weight gradients: for its host, and for what ZeRO shards


class Schedule(Frozen):
    """One pipeline schedule."""

    name: str
    bubble: Callable[[Plan, MicroBatch], Term]  # time in which a stage waits for others
    order: Order  # what each rank runs, for a simulation
    in_flight: Callable[[Job, Plan, Any], Any]  # micro-batches whose activations a stage holds, by the index of the stage
    takes_chunks: bool = False  # a rank may have several chunks of layers (vpp > 1)
    needs_chunks: bool = False  # it is the schedule to ask for where a rank has several
    forwards_first: bool = False  # all forward passes run before any backward pass
    stages_per_rank: float = 1.0  # 2: a rank runs one stage from either end of the pipeline
    pairs_micro_batches: bool = False  # the forward of one micro-batch runs beside the backward of another, which hides expert exchange
    overlaps_experts: bool = False  # may run with overlap ep
    scored: bool = False  # published runs with it were compared with their estimates, so there is an error band


def microbatch_group(job: Job, plan: Plan) -> Any:
    """Micro-batches a chunk runs before the next chunk's turn."""
    return job.microbatch_group or plan.pp


def _fill_and_drain(plan: Plan, micro_batch: MicroBatch) -> Term:
    times = {"pipeline_time": micro_batch.all_stages, "slowest_stage_time": micro_batch.slowest_stage}
    return leaf("pipeline bubble", pipeline.bubble_time, "s", "pipeline", vpp=plan.vpp, **times)


def _filled_by_weight_gradients(plan: Plan, micro_batch: MicroBatch) -> Term:
    times = {"pipeline_time": micro_batch.all_stages, "slowest_stage_time": micro_batch.slowest_stage}
    filling = micro_batch.weight + micro_batch.waits
    return leaf("pipeline bubble", pipeline.zero_bubble_time, "s", "pipeline", pp=plan.pp, weight_time=filling, **times)


def _two_directions(plan: Plan, micro_batch: MicroBatch) -> Term:
    times = {"forward_time": micro_batch.forward, "backward_time": micro_batch.backward, "weight_time": micro_batch.weight}
    return leaf("pipeline bubble", pipeline.dualpipe_time, "s", "pipeline", pp=plan.pp, **times)


def _by_distance_to_end(job: Job, plan: Plan, stage: Any) -> Any:
    return pipeline.in_flight_interleaved(plan.pp, plan.vpp, stage, plan.num_microbatches, microbatch_group(job, plan))


def _all(job: Job, plan: Plan, stage: Any) -> Any:
    del job, stage
    return np.where(plan.pp > 1, plan.num_microbatches, 1.0)


def _one_more_than_stages(job: Job, plan: Plan, stage: Any) -> Any:
    del job, stage
    return np.where(plan.pp > 1, np.minimum(plan.pp + 1.0, plan.num_microbatches), 1.0)


_ONE_FORWARD_ONE_BACKWARD: dict[str, Any] = {
    "bubble": _fill_and_drain,
    "order": orders.ONE_FORWARD_ONE_BACKWARD,
    "in_flight": _by_distance_to_end,
    "takes_chunks": True,
    "overlaps_experts": True,
    "scored": True,
}
SCHEDULES = {
    row.name: row
    for row in (
        Schedule("1f1b", **_ONE_FORWARD_ONE_BACKWARD),  # the default: interleaved where vpp > 1
        Schedule("interleaved", needs_chunks=True, **_ONE_FORWARD_ONE_BACKWARD),
        Schedule("gpipe", _fill_and_drain, orders.ALL_FORWARD_FIRST, _all, forwards_first=True, scored=True),
        Schedule("zero-bubble", _filled_by_weight_gradients, orders.WEIGHT_GRADIENTS_PUT_OFF, _by_distance_to_end),
        Schedule("dualpipe", _two_directions, orders.TWO_DIRECTIONS, _one_more_than_stages, stages_per_rank=2.0, pairs_micro_batches=True),
    )
}


def schedule_of(job: Job) -> Schedule:
    """The schedule of a job."""
    return SCHEDULES[job.schedule]


def one_chunk(asked: str | None) -> bool:
    """True where the schedule that a question names has one chunk a rank; with no schedule named vpp is open."""
    return asked is not None and not SCHEDULES[asked].needs_chunks


def name_in_plan(job: Job, vpp: Any) -> str:
    """The name of the schedule that a plan runs: the default with several chunks a rank is interleaved."""
    return next(row.name for row in SCHEDULES.values() if row.needs_chunks) if vpp > 1 else job.schedule
