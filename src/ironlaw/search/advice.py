"""What would speed up a plan most: a tenth more of each resource; where its bound changes; how it scales."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.estimate import Estimate, answer_asked
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.step.step import step
from ironlaw.job import Job
from ironlaw.question.asked import with_options
from ironlaw.search.answer import Choice, SearchResult, asked_of_choices
from ironlaw.search.sweep import MORE

BATCHES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Resource:
    """A resource one can buy more of: its name, the bound it belongs to, and the job and cluster with more of it."""

    name: str
    bound: str
    job: Job
    cluster: Cluster


def resources(job: Job, cluster: Cluster) -> list[Resource]:
    """The job and cluster with a tenth more of one resource each."""
    device, node, fabric = cluster.accelerator, cluster.node, cluster.fabric
    faster = device.replace(peak={name: more(value) for name, value in device.peak.items()})
    streaming = device.replace(hbm_bandwidth=more(device.hbm_bandwidth))
    joined = node.replace(scale_up_bandwidth=more(node.scale_up_bandwidth))
    if node.nic_bandwidth is not None:
        wired = cluster.replace(node=node.replace(nic_bandwidth=more(node.nic_bandwidth)))
    else:
        wired = cluster.replace(fabric=fabric.replace(nic_bandwidth=more(fabric.nic_bandwidth)))
    host = job.framework.host_time_per_operator
    quick = job.framework.replace(host_time_per_operator=more(host, 1.0 / MORE))
    return [
        Resource("peak FLOP/s", "compute", job, cluster.replace(accelerator=faster)),
        Resource("HBM bandwidth", "hbm", job, cluster.replace(accelerator=streaming)),
        Resource("scale-up bandwidth", "network", job, cluster.replace(node=joined)),
        Resource("NIC bandwidth", "network", job, wired),
        Resource("host speed", "dispatch", job.replace(framework=quick), cluster),
    ]


def more(value: Sourced, factor: float = MORE) -> Sourced:
    """A sourced number, increased by a factor."""
    return Sourced(value.value * factor, value.unit, f"{factor:g} times {value.text}", value.source, value.note)


def advise(result: SearchResult, choice: Choice, estimate: tuple[Estimate, int]) -> list[dict[str, Any]]:
    """All advice on a plan: resources by their gain, then where the bound changes, then how it scales."""
    return [
        *sensitivities(choice, estimate[0].place_of(estimate[1]), result.folders),
        *crossovers(choice, result.folders),
        *scaling(choice, result.folders),
    ]


def sensitivities(choice: Choice, place: tuple[Group, int], folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """What a tenth more of each resource gains, and what it would gain at best; largest first."""
    group, at = place
    plan = group.plan.take(np.array([at]))
    shares = _roof_shares(group, at)
    with np.errstate(all="ignore"):
        now = float(step(group.job, group.cluster, plan).tree.value[0])
        times = [(r, float(step(r.job, r.cluster, plan).tree.value[0])) for r in resources(group.job, group.cluster)]
    tenth = f"+{MORE - 1.0:.0%}"
    rows = [_resource_row(choice, r.name, tenth, now, seconds, shares[r.bound], r.bound) for r, seconds in times]
    rows.append(_resource_row(choice, "HBM capacity", tenth, choice.seconds, fastest_with_more_memory(choice), None, "capacity"))
    doubled = _time_with_batch_doubled(choice, folders)
    if doubled is not None:
        rows.append(_resource_row(choice, "global batch", "x2", now, doubled, None, "pipeline"))
    return sorted(rows, key=lambda row: -row["gain"])


def _roof_shares(group: Group, at: int) -> dict[str, float]:
    """Share of the step of each roof."""
    return {name: float(np.broadcast_to(column, group.index.shape)[at]) for name, column in group.shares.items()}


def _resource_row(choice: Choice, name: str, change: str, now: float, then: float, share: float | None, bound: str) -> dict[str, Any]:
    """The gain from more of one resource. ``at_best``: the gain if the whole share of its roof went away, by Amdahl's law."""
    saved = None
    if choice.setting.bound.asked.tokens is not None:
        cost = choice.setting.objectives(np.array([choice.seconds, choice.seconds * then / now]))["cost"]
        saved = float(cost[0] - cost[1]) if np.isfinite(cost).all() else None
    return {
        "about": "resource",
        "name": name,
        "change": change,
        "bound": bound,
        "seconds": then,
        "gain": now / then - 1.0,
        "at_best": share / (1.0 - share) if share is not None and share < 1.0 else None,
        "usd": saved,
    }


def fastest_with_more_memory(choice: Choice) -> float:
    """Step time of the fastest plan of this setting that fits into a tenth more memory."""
    front = choice.setting.swept.front
    return min(choice.seconds, float(front.seconds[front.device <= choice.setting.capacity * MORE].min(initial=np.inf)))


def _time_with_batch_doubled(choice: Choice, folders: tuple[str, ...]) -> float | None:
    """Time for as many sequences as now, in steps of twice the batch; None where that plan is illegal."""
    doubled = {"global_batch_tokens": None, "global_batch_size": 2.0 * choice.setting.batch}
    try:
        estimate = answer_asked(with_options(asked_of_choices([choice]), doubled), folders)
    except IronlawError:
        return None
    return float(estimate.step_seconds[0]) / 2.0 if estimate.legal[0] else None


@dataclass(frozen=True)
class Point:
    """The plan at another batch, sequence length or number of accelerators."""

    change: dict[str, Any]  # the options that differ
    by: str  # the roof that binds
    lost_to: str  # the largest roof beside compute
    seconds: float
    rate: float  # tokens per second
    fits: bool


def crossovers(choice: Choice, folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Where the bound changes as batch, sequence length or accelerators grow and the rest of the plan stays."""
    batches = [{"global_batch_size": v} for v in _whole_multiples(choice.setting.batch, BATCHES)]
    lengths = [{"seq_len": v} for v in _whole_multiples(choice.setting.seq_len, LENGTHS)]
    larger = [with_more_accelerators(choice, factor) for factor in SIZES]
    axes = (("batch", "global_batch_size", batches), ("sequence", "seq_len", lengths), ("accelerators", "gpus", larger))
    rows = [_find_crossover(name, option, evaluate_changes(choice, folders, changes)) for name, option, changes in axes]
    return [row for row in rows if row]


def _whole_multiples(value: float, factors: tuple[float, ...]) -> list[float]:
    """The multiples of a value by ``factors`` that are whole numbers of at least 1."""
    return [value * f for f in factors if value * f >= 1.0 and value * f == int(value * f)]


def with_more_accelerators(choice: Choice, factor: float) -> dict[str, Any]:
    """The changes that put the plan on ``factor`` times the accelerators: more data-parallel ranks of the kind it has."""
    axis = "dp_shard" if choice.values["zero"] > 0 else "dp_replicate"
    return {"gpus": choice.setting.gpus * factor, axis: float(choice.values[axis]) * factor}


def evaluate_changes(choice: Choice, folders: tuple[str, ...], changes: list[dict[str, Any]]) -> list[Point]:
    """The plan under each set of changes; illegal ones are left out."""
    if not changes:
        return []
    asked = with_options(asked_of_choices([choice]), {"global_batch_tokens": None, "global_batch_size": choice.setting.batch})
    columns = {name: [float(change.get(name, getattr(asked.rows[0], name))) for change in changes] for name in changes[0]}
    estimate = answer_asked(with_options(asked, columns), folders)
    points = []
    for i, change in enumerate(changes):
        group, at = estimate.place_of(i)
        seconds = float(estimate.step_seconds[i])
        if group.legal[at] and np.isfinite(seconds):
            shares = _roof_shares(group, at)
            roof = max(shares, key=lambda name: shares[name])
            lost_to = max((name for name in shares if name != "compute"), key=lambda name: shares[name])
            points.append(Point(change, roof, lost_to, seconds, float(estimate.tokens_per_second[i]), bool(estimate.fits[i])))
    return points


def _find_crossover(name: str, option: str, points: list[Point]) -> dict[str, Any]:
    """One axis: the bound and the largest loss at each value, and between which values they change."""
    if len(points) < 2:
        return {}
    rows = [
        {"value": p.change[option], "by": p.by, "lost_to": p.lost_to, "seconds": p.seconds, "rate": p.rate, "fits": p.fits} for p in points
    ]
    changes = [
        {"from": a["value"], "to": b["value"], "was": a[what], "becomes": b[what], "what": what}
        for what in ("by", "lost_to")
        for a, b in pairwise(rows)
        if a[what] != b[what]
    ]
    return {"about": "crossover", "name": name, "points": rows, "changes": changes}


def scaling(choice: Choice, folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Tokens per second per accelerator on 2, 4 and 8 times as many, relative to now: with the same batch, and with a larger one."""
    batch, gpus = choice.setting.batch, choice.setting.gpus
    larger = [with_more_accelerators(choice, factor) for factor in SIZES]
    larger_batch = [{**change, "global_batch_size": batch * factor} for change, factor in zip(larger, SIZES, strict=True)]
    rows = []
    for name, changes in (("batch held", larger), ("batch grown along", larger_batch)):
        points = evaluate_changes(choice, folders, changes)
        rates = {p.change["gpus"] / gpus: p.rate / p.change["gpus"] for p in points}
        if 1.0 in rates:
            efficiencies = [{"gpus": gpus * f, "efficiency": r / rates[1.0]} for f, r in sorted(rates.items()) if f > 1.0]
            rows.append({"about": "scaling", "name": name, "points": efficiencies})
    return [row for row in rows if row["points"]]
