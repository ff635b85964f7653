"""One step of one plan event by event: what its pipeline does when, for a drawing, and to compare with the law of its bubble."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.documents.columns import computed
from ironlaw.estimate.pipeline.bubbles import both_directions
from ironlaw.estimate.pipeline.schedules import schedule_of
from ironlaw.estimate.pipeline.simulation import Timeline, simulate
from ironlaw.estimate.step import micro_batch
from ironlaw.job import Job
from ironlaw.plan import Plan


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


def _whole(value: Any) -> int:
    """The whole number of a column of one row."""
    return round(float(np.ravel(value)[0]))
