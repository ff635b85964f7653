"""What would help the chosen plan most: a little more of each resource, where its bound changes, and how it scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer import Estimate, Group, answer_asked
from ironlaw.estimate.step import step
from ironlaw.job import Job
from ironlaw.question.asked import with_options
from ironlaw.search.answer import Choice, Found, asked_of_choices

MORE = 1.1  # of a resource
BATCHES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Resource:
    """A roof one can buy more of: its name, the bound it belongs to, and a cluster or job that has more of it."""

    name: str
    bound: str
    job: Job
    cluster: Cluster


def resources(job: Job, cluster: Cluster) -> list[Resource]:
    """The job on clusters with a tenth more of one thing each."""
    device, node, fabric = cluster.accelerator, cluster.node, cluster.fabric
    faster = device.replace(peak={name: more(value) for name, value in device.peak.items()})
    streaming = device.replace(hbm_bandwidth=more(device.hbm_bandwidth))
    joined = node.replace(scale_up_bandwidth=more(node.scale_up_bandwidth))
    if node.nic_bandwidth is not None:
        wired = replace(cluster, node=node.replace(nic_bandwidth=more(node.nic_bandwidth)))
    else:
        wired = replace(cluster, fabric=fabric.replace(nic_bandwidth=more(fabric.nic_bandwidth)))
    host = job.framework.host_time_per_operator
    quick = job.framework.replace(host_time_per_operator=more(host, 1.0 / MORE))
    return [
        Resource("peak FLOP/s", "compute", job, replace(cluster, accelerator=faster)),
        Resource("HBM bandwidth", "hbm", job, replace(cluster, accelerator=streaming)),
        Resource("scale-up bandwidth", "network", job, replace(cluster, node=joined)),
        Resource("NIC bandwidth", "network", job, wired),
        Resource("host speed", "dispatch", replace(job, framework=quick), cluster),
    ]


def more(value: Sourced, factor: float = MORE) -> Sourced:
    """A sourced number, larger by a factor."""
    return Sourced(value.value * factor, value.unit, f"{factor:g} times {value.text}", value.source, value.note)


def advise(found: Found, choice: Choice, place: tuple[Estimate, int]) -> list[dict[str, Any]]:
    """Everything worth saying of a plan, what helps most first."""
    return [
        *sensitivities(choice, place[0].place_of(place[1]), found.folders),
        *crossovers(choice, found.folders),
        *scaling(choice, found.folders),
    ]


def sensitivities(choice: Choice, place: tuple[Group, int], folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """What a tenth more of each resource gains the plan, and what it would gain at best; largest first."""
    group, at = place
    plan = group.plan.take(np.array([at]))
    shares = {name: float(np.broadcast_to(column, group.index.shape)[at]) for name, column in group.shares.items()}
    with np.errstate(all="ignore"):
        now = float(step(group.job, group.cluster, plan).tree.value[0])
        times = [(r, float(step(r.job, r.cluster, plan).tree.value[0])) for r in resources(group.job, group.cluster)]
    made = [_told(choice, r.name, f"+{MORE - 1.0:.0%}", now, seconds, shares[r.bound], r.bound) for r, seconds in times]
    beyond = with_more_memory(choice)
    made.append(_told(choice, "HBM capacity", f"+{MORE - 1.0:.0%}", choice.seconds, beyond, None, "capacity"))
    batch = _batch_doubled(choice, folders)
    if batch is not None:
        made.append(_told(choice, "global batch", "x2", now, batch, None, "pipeline"))
    return sorted(made, key=lambda row: -row["gain"])


def _told(choice: Choice, name: str, change: str, now: float, then: float, share: float | None, bound: str) -> dict[str, Any]:
    """One line of advice. ``at_best``: the gain if the whole share of that roof went away, by Amdahl's law."""
    gain = now / then - 1.0
    row: dict[str, Any] = {"about": "resource", "name": name, "change": change, "bound": bound, "seconds": then, "gain": gain}
    row["at_best"] = None if share is None else (share / (1.0 - share) if share < 1.0 else None)
    row["usd"] = None
    if choice.setting.bound.asked.tokens is not None:
        cost = choice.setting.worth(np.array([choice.seconds, choice.seconds * then / now]))["cost"]
        row["usd"] = float(cost[0] - cost[1]) if np.isfinite(cost).all() else None
    return row


def with_more_memory(choice: Choice) -> float:
    """Step time of the fastest plan that a tenth more memory would hold, at this setting."""
    limit, best = choice.setting.capacity * MORE, choice.seconds
    for s in choice.setting.sweeps:
        held = s.front.device <= limit
        best = min(best, float(s.front.seconds[held].min(initial=np.inf)))
    return best


def _batch_doubled(choice: Choice, folders: tuple[str, ...]) -> float | None:
    """Time of a step for each batch of before, where the batch is twice as large."""
    doubled = {"global_batch_tokens": None, "global_batch_size": 2.0 * choice.setting.batch}
    try:
        found = answer_asked(with_options(asked_of_choices([choice]), doubled), folders)
    except IronlawError:
        return None
    return float(found.step_seconds[0]) / 2.0 if found.legal[0] else None


def crossovers(choice: Choice, folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Where the largest roof changes as batch, sequence or accelerators grow, the rest of the plan held."""
    batch, length = choice.setting.batch, choice.setting.seq_len
    made = []
    for name, option, values in (
        ("batch", "global_batch_size", [batch * f for f in BATCHES]),
        ("sequence", "seq_len", [length * f for f in LENGTHS]),
    ):
        rows = _along(choice, folders, [{option: v} for v in values if v >= 1.0 and v == int(v)])
        made.append(_crossing(name, [(row[option], at) for row, at in rows]))
    rows = _along(choice, folders, [grown(choice, factor) for factor in SIZES])
    made.append(_crossing("accelerators", [(row["gpus"], at) for row, at in rows]))
    return [row for row in made if row]


def grown(choice: Choice, factor: float) -> dict[str, Any]:
    """The plan on ``factor`` times the accelerators: more data parallel of the kind it has."""
    axis = "dp_shard" if choice.values["zero"] > 0 else "dp_replicate"
    return {"gpus": choice.setting.gpus * factor, axis: float(choice.values[axis]) * factor}


def _along(choice: Choice, folders: tuple[str, ...], changes: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The plan under each set of changes that is legal: the changes, with bound, step time and rate."""
    if not changes:
        return []
    asked = with_options(asked_of_choices([choice]), {"global_batch_tokens": None, "global_batch_size": choice.setting.batch})
    columns = {name: [float(change.get(name, getattr(asked.rows[0], name))) for change in changes] for name in changes[0]}
    found = answer_asked(with_options(asked, columns), folders)
    made = []
    for i, change in enumerate(changes):
        group, at = found.place_of(i)
        if not group.legal[at] or not np.isfinite(found.step_seconds[i]):
            continue
        shares = {name: float(np.broadcast_to(c, group.index.shape)[at]) for name, c in group.shares.items()}
        by = max(shares, key=lambda name: shares[name])
        lost = max((name for name in shares if name != "compute"), key=lambda name: shares[name])
        rate = float(found.tokens_per_second[i])
        made.append(
            (change, {"by": by, "lost_to": lost, "seconds": float(found.step_seconds[i]), "rate": rate, "fits": bool(found.fits[i])})
        )
    return made


def _crossing(name: str, points: list[tuple[float, dict[str, Any]]]) -> dict[str, Any]:
    """One axis: the bound and the largest loss at each value, and between which values they change."""
    if len(points) < 2:
        return {}
    listed = [{"value": value, **at} for value, at in points]
    changes = [
        {"from": a["value"], "to": b["value"], "was": a[what], "becomes": b[what], "what": what}
        for what in ("by", "lost_to")
        for a, b in pairwise(listed)
        if a[what] != b[what]
    ]
    return {"about": "crossover", "name": name, "points": listed, "changes": changes}


def scaling(choice: Choice, folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Tokens per second and accelerator on 2, 4 and 8 times as many, over that of now: with the batch held, and grown along."""
    batch, gpus = choice.setting.batch, choice.setting.gpus
    held = _along(choice, folders, [grown(choice, factor) for factor in SIZES])
    along = _along(choice, folders, [{**grown(choice, factor), "global_batch_size": batch * factor} for factor in SIZES])
    made = []
    for name, rows in (("batch held", held), ("batch grown along", along)):
        rates = {change["gpus"] / gpus: at["rate"] / change["gpus"] for change, at in rows}
        if 1.0 in rates:
            points = [{"gpus": gpus * f, "efficiency": r / rates[1.0]} for f, r in sorted(rates.items()) if f > 1.0]
            made.append({"about": "scaling", "name": name, "points": points})
    return [row for row in made if row["points"]]
