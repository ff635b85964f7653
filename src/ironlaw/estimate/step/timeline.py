"""One step of one plan event by event: what its pipeline does when, for a drawing, and to compare with the law of its bubble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.documents.columns import computed
from ironlaw.estimate.pipeline.bubbles import both_directions
from ironlaw.estimate.pipeline.orders import KINDS
from ironlaw.estimate.pipeline.schedules import name_in_plan, schedule_of
from ironlaw.estimate.pipeline.simulation import Timeline, simulate
from ironlaw.estimate.step.step import micro_batch
from ironlaw.job import Job
from ironlaw.plan import Plan

if TYPE_CHECKING:
    from ironlaw.estimate.answer.group import Group


def timeline(job: Job, cluster: Cluster, plan: Plan) -> Timeline:
    """The passes of one step of a plan, which is a column of one row, by the seconds that the estimate gives its layers.

    Documents of many lengths are taken as mean ones, and what experts hide behind other micro-batches is hidden everywhere.
    """
    if job.documents is not None:
        job, plan = computed(job, plan)
    one, schedule = micro_batch(job, cluster, plan), schedule_of(job)
    stages, chunks, micro_batches, group = (_whole(value) for value in (plan.pp, plan.vpp, plan.num_microbatches, one.loads.group))
    forward, backward, weight = one.loads.passes(stages, chunks)
    if schedule.order.both_ways:
        forward, backward, weight = (both_directions(passes) for passes in (forward, backward, weight))
        micro_batches += micro_batches % 2
    beside = float(np.ravel(one.loads.hand_over)[0])
    return simulate(schedule.order, forward[..., 0], backward[..., 0], micro_batches, weight[..., 0], beside, group)


EVENTS = 4096  # passes in the data of a timeline; of a longer step those at both ends


def timeline_data(group: Group, at: int) -> dict[str, Any] | None:
    """The passes of one step as plain data: seconds of every stage and chunk, and when each pass runs; None for an illegal plan.

    Columns of ``events`` are passes in the order of their start. Of a step of more than ``EVENTS`` passes those in the middle, which
    repeat, are left out; ``left_out`` says how many, and from when to when.
    """
    if not np.broadcast_to(group.legal, group.index.shape)[at]:
        return None
    plan = group.plan.take([at])
    found = timeline(group.job, group.cluster, plan)
    order = np.lexsort((found.stage, found.start))
    half = EVENTS // 2
    shown = order if order.size <= EVENTS else np.concatenate([order[:half], order[-half:]])
    missing = None
    if order.size > EVENTS:
        missing = {"passes": int(order.size - EVENTS), "start": float(found.start[order[half]]), "end": float(found.start[order[-half]])}
    columns = {name: getattr(found, name)[shown].tolist() for name in ("stage", "chunk", "micro_batch", "kind", "start", "end")}
    seconds = float(found.seconds)
    return {
        "schedule": name_in_plan(group.job, _whole(plan.vpp)),
        "seconds": seconds,
        "stages": int(found.stage.max()) + 1,
        "chunks": int(found.chunk.max()) + 1,
        "micro_batches": int(found.micro_batch.max()) + 1,
        "kinds": list(KINDS),
        "passes": _passes_data(found),
        "waits": [seconds - busy for busy in found.busy.tolist()],
        "events": columns,
        "left_out": missing,
    }


def _passes_data(found: Timeline) -> list[dict[str, Any]]:
    """Seconds of one micro-batch on every chunk of every stage by kind of pass."""
    rows: dict[tuple[int, int], dict[str, float]] = {}
    for stage, chunk, kind, start, end in zip(found.stage, found.chunk, found.kind, found.start, found.end, strict=True):
        rows.setdefault((int(stage), int(chunk)), {}).setdefault(KINDS[kind], float(end - start))
    return [{"stage": stage, "chunk": chunk, "seconds": seconds} for (stage, chunk), seconds in sorted(rows.items())]


def _whole(value: Any) -> int:
    """The whole number of a column of one row."""
    return round(float(np.ravel(value)[0]))
