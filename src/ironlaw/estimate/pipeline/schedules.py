"""Pipeline schedules: one row each, with the properties that a step, its memory and its rules use.

No other module compares the name of a schedule. docs/how-to/add-a-schedule.md says how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ironlaw.estimate.pipeline import bubbles, orders
from ironlaw.estimate.pipeline.bubbles import Loads
from ironlaw.estimate.pipeline.orders import Order
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.law import pipeline
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf

ROUNDING = 1e-9  # of a lower bound, whose sums round in another order


class Schedule(Frozen):
    """One pipeline schedule."""

    name: str
    passes: Callable[[Plan, Loads], Any]  # from the first pass of a step to the end of its last
    passes_at_least: Callable[[Plan, Loads], Any]  # a time that this is never below, which takes few operations
    order: Order  # what each rank runs, for a simulation
    in_flight: Callable[[Job, Plan, Any], Any]  # micro-batches whose activations a stage holds, by the index of the stage
    takes_chunks: bool = False  # a rank may have several chunks of layers (vpp > 1)
    needs_chunks: bool = False  # it is the schedule to ask for where a rank has several
    forwards_first: bool = False  # all forward passes run before any backward pass
    stages_per_rank: float = 1.0  # 2: a rank runs one stage from either end of the pipeline
    pairs_micro_batches: bool = False  # the forward of one micro-batch runs beside the backward of another, which hides expert exchange
    fills_waits: bool = False  # what its weight gradients fill, waits of the backward pass fill too: for the host, and for what ZeRO shards
    overlaps_experts: bool = False  # may run with overlap ep
    never_best: bool = False  # another takes no longer and no more memory, so a search leaves it out
    scored: bool = False  # published runs with it were compared with their estimates, so there is an error band


def microbatch_group(job: Job, plan: Plan) -> Any:
    """Micro-batches a chunk runs before the next chunk's turn."""
    return job.microbatch_group or plan.pp


def bubble(
    schedule: Schedule, plan: Plan, loads: Loads, slowest_stage_time: Any, exposed: Any, limit: Any = np.inf, others: Sequence[Term] = ()
) -> Term:
    """Time in which the slowest stage waits for others; ``exposed`` is what the filling and draining of the pipeline adds to the passes.

    Where that and ``others`` add up to more than ``limit``, something that also does and is no longer than the time is enough: no passes
    are run.
    """
    m = plan.num_microbatches
    if np.all(np.isposinf(limit)) or not np.any(plan.pp > 1.0):
        passes = schedule.passes(plan, loads)
    else:
        least = schedule.passes_at_least(plan, loads)
        waiting = least * (1.0 - ROUNDING) + exposed - m * slowest_stage_time
        shape = np.broadcast_shapes(np.shape(waiting), *map(np.shape, loads.columns()))
        left = _over_axes(np.maximum, limit, shape) - sum(_over_axes(np.fmin, part.value, shape) for part in others)
        wanted = waiting <= left
        passes = np.where(wanted, schedule.passes(plan, loads.replace(wanted=wanted)), least)
    passes = np.where(plan.pp > 1.0, passes + exposed, m * slowest_stage_time)
    times = {"passes_time": passes, "slowest_stage_time": slowest_stage_time}
    return leaf("pipeline bubble", pipeline.waiting_time, "s", "pipeline", num_microbatches=m, **times)


def _over_axes(best: np.ufunc, value: Any, shape: tuple[int, ...]) -> Any:
    """The best of a column over the axes that ``shape`` does not have."""
    value = np.asarray(value)
    shape = (1,) * (value.ndim - len(shape)) + shape[max(len(shape) - value.ndim, 0) :]
    axes = tuple(axis for axis, (size, other) in enumerate(zip(value.shape, shape, strict=True)) if size > other)
    for axis in axes:
        value = best.reduce(value, axis=axis, keepdims=True)
    return value


def _by_distance_to_end(job: Job, plan: Plan, stage: Any) -> Any:
    return pipeline.in_flight_interleaved(plan.pp, plan.vpp, stage, plan.num_microbatches, microbatch_group(job, plan))


def _all(job: Job, plan: Plan, stage: Any) -> Any:
    del job, stage
    return np.where(plan.pp > 1, plan.num_microbatches, 1.0)


def _one_more_than_stages(job: Job, plan: Plan, stage: Any) -> Any:
    del job, stage
    return np.where(plan.pp > 1, np.minimum(plan.pp + 1.0, plan.num_microbatches), 1.0)


_ONE_FORWARD_ONE_BACKWARD: dict[str, Any] = {
    "passes": bubbles.chunked,
    "passes_at_least": bubbles.chunked_at_least,
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
        Schedule(
            "gpipe",
            bubbles.forwards_first,
            bubbles.forwards_first,
            orders.ALL_FORWARD_FIRST,
            _all,
            forwards_first=True,
            never_best=True,
            scored=True,
        ),
        Schedule("zero-bubble", bubbles.put_off, bubbles.no_bound, orders.WEIGHT_GRADIENTS_PUT_OFF, _by_distance_to_end, fills_waits=True),
        Schedule(
            "dualpipe",
            bubbles.both_ways,
            bubbles.no_bound,
            orders.TWO_DIRECTIONS,
            _one_more_than_stages,
            stages_per_rank=2.0,
            pairs_micro_batches=True,
        ),
    )
}


def searched() -> tuple[str, ...]:
    """The schedules that a search tries; that of several chunks is the default's where vpp > 1."""
    return tuple(row.name for row in SCHEDULES.values() if not (row.never_best or row.needs_chunks))


def schedule_of(job: Job) -> Schedule:
    """The schedule of a job."""
    return SCHEDULES[job.schedule]


def one_chunk(asked: str | None) -> bool:
    """True where the schedule that a question names has one chunk a rank; with no schedule named vpp is open."""
    return asked is not None and not SCHEDULES[asked].needs_chunks


def name_in_plan(job: Job, vpp: Any) -> str:
    """The name of the schedule that a plan runs: the default with several chunks a rank is interleaved."""
    return next(row.name for row in SCHEDULES.values() if row.needs_chunks) if vpp > 1 else job.schedule
