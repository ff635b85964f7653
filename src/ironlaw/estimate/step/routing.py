"""What uneven routing does to a row: the busiest rank by layer, late steps, and rows that a capacity factor drops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.estimate.layer import uneven
from ironlaw.estimate.layer.counts import visited
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.step.step import step
from ironlaw.law import experts

if TYPE_CHECKING:
    from ironlaw.estimate.answer.group import Group
    from ironlaw.job import Job
    from ironlaw.plan import Plan

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def routing_data(group: Group, at: int) -> dict[str, Any] | None:
    """The routing of a row; None where neither loads nor a capacity factor are given.

    ``step_seconds`` has the times that a step stays within in 50, 95 and 99 of 100 steps. With a capacity factor every rank computes
    the same rows, so they are one time; ``dropless_seconds`` is then the step that drops nothing.
    """
    job = group.job
    if not job.model.num_experts or not (job.expert_load or job.capacity_factor):
        return None
    plan = group.plan.take([at])
    seconds = _step_times(group, job, plan, at)
    data: dict[str, Any] = {"capacity_factor": job.capacity_factor or None, "step_seconds": seconds}
    loads = _loads(job)
    if job.expert_load is not None:
        rows = experts.routed_rows(plan.tokens, visited(job.model), plan.tp, plan.etp, 1.0)
        mean, variance, drift = uneven.busiest(loads, plan.ep, rows)
        ep = float(plan.ep[0])
        by_layer = uneven.ranks_of(loads, int(ep)).max(axis=1).tolist() if np.isfinite(mean[0]) else []
        data |= {
            "load": loads.described,
            "placement": loads.placement,
            "experts_held": float(np.ravel(uneven.held_experts(job, plan))[0]),
            "noise": loads.noise,
            "spread": loads.spread,
            "busiest": float(mean[0]),
            "busiest_deviation": float(np.sqrt(variance[0] + drift[0])),
            "busiest_by_layer": by_layer,
            "busiest_at_the_peak": float(np.ravel(_peak_of(job, plan))[0]),
        }
    if job.capacity_factor:
        tokens = float(np.ravel(plan.tokens / plan.tp)[0])
        rows_of_one = tokens * loads.visited / loads.shares.shape[1]
        data["dropped_share"] = uneven.dropped_share(loads, rows_of_one, job.capacity_factor, tokens)
        data["dropless_seconds"] = _step_times(group, job.replace(capacity_factor=0.0), plan, at)
    return data


def _step_times(group: Group, job: Job, plan: Plan, at: int) -> dict[str, float]:
    """The step by quantile, with what the user's own runs say of it."""
    corrected = 1.0 if group.level is None else float(np.broadcast_to(group.level.factor, (group.plan.rows,))[at])
    load = job.expert_load
    times = {}
    with np.errstate(all="ignore"):
        for name, quantile in QUANTILES.items():
            of_quantile = job if load is None else job.replace(expert_load=load.replace(quantile=quantile))
            if name == "p50" or (load is not None and not job.capacity_factor):
                times[name] = corrected * float(np.ravel(step(of_quantile, group.cluster, plan).tree.value)[0])
    return {name: times.get(name, times["p50"]) for name in QUANTILES}


def _peak_of(job: Job, plan: Plan) -> Any:
    """Rows of the busiest rank over the mean that memory holds."""
    from ironlaw.estimate.layer.sizes import Shapes

    peak = uneven.at_the_peak(job.replace(capacity_factor=0.0))
    return uneven.imbalance(peak, plan, Shapes.of(peak, plan))


def _loads(job: Job) -> uneven.Loads:
    """The loads that are given; else even loads with the noise of routing."""
    if job.expert_load is not None:
        given: uneven.Loads = job.expert_load.loads
        return given
    count = int(job.model.num_experts)
    layers = sum(kind.count for kind in kinds(job.model) if kind.routed)
    even = np.full((1, count), 1.0 / count)
    return uneven.Loads(even, float(count), min(visited(job.model), float(count)), layers, True, described="uniform")
