"""Rows of the busiest rank of experts over the mean, where the loads of the experts are given.

In every layer and micro-batch a rank's rows are its share of the loads, and the noise of routing: tokens that choose at random
(``law.experts.routing_deviation``). All ranks of a group wait for the busiest at the all-to-all, so a layer takes the time of the
largest of them; its mean and its variance are found by integration over independent normal numbers. A step adds up many layers and
micro-batches, so the sum is normal; the groups of expert-parallel ranks wait for one another where gradients are reduced, so the step
takes the time of the slowest group (``law.experts.slowest_of``). Loads may also drift from step to step: that part is the same in all
micro-batches and groups of a step, and only the layers even it out.

Left out: tokens of one text that choose alike; that busier layers may gather on one pipeline stage.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ironlaw.estimate.layer.counts import visited
from ironlaw.estimate.layer.expert_places import PLACEMENTS, slots_of
from ironlaw.estimate.layer.sizes import Shapes, once_for_sizes
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.law import _normal, experts
from ironlaw.plan import Plan

POINTS, REACH = 97, 7.0  # of the integral over the rows of the busiest rank: points, and standard deviations around the largest mean
PROFILE = 16  # rows that stand for those of the experts of the busiest ranks
PEAK_QUANTILE = 0.99  # of the rows of a micro-batch, for the memory that it needs


class Loads(Frozen):
    """The loads of a model's experts, and where the experts are."""

    shares: Any  # layers by experts, or one row for all layers; each row sums to 1
    chosen_of: float  # experts that a token chooses from
    visited: float  # experts that it visits
    layers: float  # routed layers of the model
    noise: bool  # tokens choose at random with these shares; False: every micro-batch has exactly these loads
    spread: float = 0.0  # deviation of an expert's load from step to step over its mean
    placement: str = "in-order"
    redundant: float = 0.0
    described: str = ""


class ExpertLoad(Frozen):
    """Loads as a job uses them: of a step of which ``quantile`` is the probability to be as fast, or of one micro-batch."""

    loads: Loads
    quantile: float = 0.5
    one_micro_batch: bool = False


def at_the_peak(job: Job) -> Job:
    """The job with the rows of the busiest micro-batch of a hundred, which memory must hold."""
    if job.expert_load is None:
        return job
    return job.replace(expert_load=job.expert_load.replace(quantile=PEAK_QUANTILE, one_micro_batch=True))


def held_experts(job: Job, plan: Plan) -> Any:
    """Experts that a rank holds, redundant ones included."""
    load = job.expert_load
    redundant = load.loads.redundant if load is not None and load.loads.placement == "redundant" else 0.0
    return slots_of(job.model.num_experts, redundant, plan.ep) if redundant else job.model.num_experts / plan.ep


def copies(job: Job, plan: Plan) -> Any:
    """Experts that all ranks together hold over those of the model: 1 without redundant experts."""
    return held_experts(job, plan) * plan.ep / job.model.num_experts if job.expert_load is not None else 1.0


def imbalance(job: Job, plan: Plan, s: Shapes) -> Any:
    """Rows of a rank's experts over the mean: of the busiest rank, or of every rank with a capacity factor."""
    if job.capacity_factor or job.expert_load is None:
        return job.capacity_factor or job.expert_imbalance
    return _from_loads(None, job, plan, s, job.expert_load)


@once_for_sizes
def _from_loads(cluster: None, job: Job, plan: Plan, s: Shapes, load: ExpertLoad) -> Any:
    """The sum over layers and micro-batches of the busiest rank's rows over the mean, in the slowest group of ranks, for each of them."""
    del cluster
    loads = load.loads
    rows = experts.routed_rows(s.tokens, visited(job.model), plan.tp, plan.etp, 1.0)
    mean, variance, drift = busiest(loads, plan.ep, rows)
    if not (loads.noise or loads.spread):
        return mean
    groups = np.maximum(plan.gpus / plan.expert_ways, 1.0)
    of_stage = np.maximum(loads.layers / plan.pp, 1.0)
    summed = of_stage if load.one_micro_batch else of_stage * np.maximum(plan.num_microbatches, 1.0)
    chance, drifts = np.sqrt(variance / summed), np.sqrt(drift / of_stage)
    usual = experts.slowest_of(groups, 0.5)
    late = np.hypot((experts.slowest_of(groups, load.quantile) - usual) * chance, experts.slowest_of(1.0, load.quantile) * drifts)
    return mean + usual * chance + late


def busiest(loads: Loads, ep: Any, rows: Any) -> tuple[Any, Any, Any]:
    """Mean of the busiest rank's rows over the mean of the ranks, over layers, for columns of ranks and of rows a rank.

    With it its variance by chance, which every micro-batch draws anew, and its variance from step to step.
    """
    ep, rows = np.broadcast_arrays(np.asarray(ep, dtype=np.float64), np.asarray(rows, dtype=np.float64))
    pairs, which = np.unique(np.stack([ep.ravel(), rows.ravel()]), axis=1, return_inverse=True)
    found = np.array([_busiest_of(loads, rank, row) for rank, row in pairs.T.tolist()])[np.ravel(which)]
    mean, chance, drift = (column.reshape(ep.shape) for column in found.T)
    return mean, chance, drift


@lru_cache(4096)
def _busiest_of(loads: Loads, ep: float, rows: float) -> tuple[float, float, float]:
    """The busiest of ``ep`` ranks that have ``rows`` on average; nan where the ranks do not divide the experts."""
    if not np.isfinite(ep) or ep < 1 or loads.shares.shape[1] % ep:
        return np.nan, np.nan, np.nan
    ratios = ranks_of(loads, int(ep))
    if not (loads.noise or loads.spread) or not rows > 0:
        return float(ratios.max(axis=1).mean()), 0.0, 0.0
    chance = experts.routing_deviation(rows * ratios, loads.chosen_of, loads.visited) / rows if loads.noise else 0.0 * ratios
    drift = loads.spread * np.sqrt(np.square(placed(loads, int(ep))).sum(axis=2)) * ep
    deviations = np.hypot(chance, drift)
    largest, variance = largest_of(ratios, deviations)
    # all rows together are given: what the independent numbers vary together is taken out, for the rank that is most often the busiest
    together = (np.square(deviations) * ratios).max(axis=1) / ep
    variance = np.maximum(variance - together, 0.0)
    of_drift = np.square(drift).sum() / max(np.square(deviations).sum(), 1e-300)
    mean, variance = float(np.maximum(largest, ratios.max(axis=1)).mean()), float(variance.mean())
    return mean, variance * (1.0 - of_drift), variance * of_drift


@lru_cache(512)
def placed(loads: Loads, ep: int) -> Any:
    """The shares of the experts of every rank: layers, ranks, experts of a rank."""
    slots = int(slots_of(loads.shares.shape[1], loads.redundant if loads.placement == "redundant" else 0.0, ep))
    return PLACEMENTS[loads.placement](loads.shares, ep, slots)


def ranks_of(loads: Loads, ep: int) -> Any:
    """Rows of every rank over the mean, by layer: each layer's sum to ``ep``."""
    return placed(loads, ep).sum(axis=2) * ep


def largest_of(means: Any, deviations: Any) -> tuple[Any, Any]:
    """Mean and variance of the largest of independent normal numbers along the last axis: the integral of ``1 - product of Phi``.

    >>> mean, variance = largest_of(np.array([[0.0, 0.0]]), np.array([[1.0, 1.0]]))  # 1 / sqrt(pi), 1 - 1 / pi
    >>> round(float(mean[0]), 4), round(float(variance[0]), 4)
    (0.5642, 0.6817)
    """
    from_ = (means - REACH * deviations).max(axis=-1)
    to = (means + REACH * deviations).max(axis=-1)
    width = to - from_
    x = from_[..., None] + width[..., None] * np.linspace(0.0, 1.0, POINTS)
    spread = np.where(deviations > 0, deviations, 1e-12)
    z = (x[..., None] - means[..., None, :]) / spread[..., None, :]
    above = 1.0 - np.exp(_normal.log_below(z).sum(axis=-1))
    above[..., 0] = 1.0
    mean = np.trapezoid(above, x, axis=-1)
    ends = np.square(width / (POINTS - 1.0)) / 6.0  # the integrand rises with slope 1 where it begins and ends flat (Euler-Maclaurin)
    square = 2.0 * np.trapezoid((x - from_[..., None]) * above, x, axis=-1) + ends
    return from_ + mean, np.maximum(square - np.square(mean), 0.0)


def profile(job: Job, plan: Plan) -> Any:
    """Rows of the busiest rank's experts over their mean, as a last axis of few values around 1; None where all experts have the same."""
    if job.capacity_factor or job.expert_load is None:
        return None
    rows = experts.routed_rows(plan.tokens, visited(job.model), plan.tp, plan.etp, 1.0)
    ep, rows = np.broadcast_arrays(np.asarray(plan.ep, dtype=np.float64), np.asarray(rows, dtype=np.float64))
    pairs, which = np.unique(np.stack([ep.ravel(), rows.ravel()]), axis=1, return_inverse=True)
    found = [_profile_of(job.expert_load.loads, *pair) for pair in pairs.T.tolist()]
    if all(np.all(values == 1.0) for values in found):
        return None
    return np.array(found)[np.ravel(which)].reshape(*ep.shape, PROFILE)


@lru_cache(4096)
def _profile_of(loads: Loads, ep: float, rows: float) -> Any:
    """Quantiles of the rows of the experts of every layer's busiest rank over their mean, where a rank has ``rows`` on average."""
    if not np.isfinite(ep) or ep < 1 or loads.shares.shape[1] % ep or not rows > 0:
        return np.ones(PROFILE)
    ranks = placed(loads, int(ep))
    of_busiest = np.take_along_axis(ranks, ranks.sum(axis=2).argmax(axis=1)[:, None, None], axis=1).ravel() * ep
    deviations = experts.routing_deviation(rows * of_busiest, loads.chosen_of, loads.visited) / rows if loads.noise else 0.0 * of_busiest
    chance = _normal.point_with_above(1.0 - (np.arange(PROFILE) + 0.5) / PROFILE)  # normal numbers that stand for all of them
    values = np.sort(np.maximum(of_busiest[:, None] + deviations[:, None] * chance, 0.0).ravel())
    if np.ptp(values) <= 1e-12:
        return np.ones(PROFILE)
    picked = np.interp((np.arange(PROFILE) + 0.5) / PROFILE, (np.arange(values.size) + 0.5) / values.size, values)
    return picked / picked.mean()


def dropped_share(loads: Loads, rows_a_expert: float, capacity_factor: float, tokens: float) -> float:
    """Share of the rows that experts of a capacity drop, expected: over layers and experts, what each has above its capacity.

    ``rows_a_expert`` is the mean of an expert for the ``tokens`` that are routed together, each of which visits it at most once.
    """
    capacity, mean = capacity_factor * rows_a_expert, loads.shares * loads.shares.shape[1] * rows_a_expert
    deviation = np.sqrt(np.maximum(mean * (1.0 - np.minimum(mean / tokens, 1.0)), 0.0)) if loads.noise else 0.0 * mean
    above = experts.overflow_rows(mean, deviation, capacity)
    return float(np.minimum(above.mean() / rows_a_expert, 1.0))
