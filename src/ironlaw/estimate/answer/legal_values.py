"""The values that each axis of a plan may take: of this model, this number of accelerators and this stack, the other axes as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.abilities import has
from ironlaw.catalog.sourced import watch_sources
from ironlaw.divisors import divisors
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.bind.cluster import can_run
from ironlaw.estimate.legality.rules import legal, legality
from ironlaw.estimate.pipeline.schedules import one_chunk
from ironlaw.job import Job
from ironlaw.plan import BY_RULE, RECOMPUTE, Plan, recompute_columns
from ironlaw.precision import precision_of
from ironlaw.question.defaults import CP_METHODS, DISPATCHERS, SCHEDULES

Values = dict[str, float]  # of one plan, by the names of its columns
_SPLITS = ("tp", "pp", "cp")  # axes whose ranks leave the others to data parallelism
MOST_CHUNKS = 1024  # of layers a rank: more are no model's
_STAGES = (0.0, 1.0, 2.0, 3.0)  # of ZeRO
_RECOMPUTE = ("none", "selective", "full")
# axes of the job, not of its plan: their values, and whether they say something of a job
_OF_JOB: dict[str, tuple[tuple[str, ...], Callable[[Job], bool]]] = {
    "schedule": (SCHEDULES, lambda _: True),
    "cp_method": (CP_METHODS, lambda _: True),
    "moe_dispatcher": (DISPATCHERS, lambda job: bool(job.model.num_experts)),
}


def legal_values(group: Group, at: int) -> dict[str, list[Any]]:
    """The legal values of each axis of the plan of row ``at``, by axis; memory is not looked at.

    One axis changes, and what has to follow it follows: data-parallel ranks are what tensor, pipeline and context ranks leave of the
    accelerators; other stages are split evenly; without tensor parallelism there is no sequence parallelism.
    """
    with watch_sources(None):  # what other precisions cite is not of this answer
        return _legal_values(group, at)


def _legal_values(group: Group, at: int) -> dict[str, list[Any]]:
    now = {name: float(np.broadcast_to(getattr(group.plan, name), (group.plan.rows,))[at]) for name in Plan.fields}
    found = dict(_numbers(group.job, now))
    found["recompute"] = [
        how for how in _RECOMPUTE if _all_kept(group.job, [{**now, **_recomputed(how, group.job.framework.selective_recompute)}])[0]
    ]
    for axis, (names, says) in _OF_JOB.items():
        if says(group.job):
            found[axis] = [name for name in names if _runs(group.job, axis, name, now)]
    return {**found, "precision": _precisions(group)}


def _numbers(job: Job, now: Values) -> Iterator[tuple[str, list[Any]]]:
    """The axes of numbers with their legal values; the rules are asked once for all."""
    candidates = dict(_candidates(job, now))
    plans = [_changed(job, now, axis, value) for axis, values in candidates.items() for value in values]
    kept = iter(_all_kept(job, plans))
    for axis, values in candidates.items():
        yield axis, [value for value in values if next(kept)]


def _candidates(job: Job, now: Values) -> Iterator[tuple[str, Sequence[float]]]:
    """The values of each axis that could be legal, by what they must divide."""
    gpus, ranks = int(now["gpus"]), max(int(now["dp_replicate"] * now["dp_shard"]), 1)  # 0 of a plan that cannot be
    yield from ((axis, divisors(gpus)) for axis in _SPLITS)
    yield "vpp", tuple(float(chunks) for chunks in range(1, min(int(job.model.num_hidden_layers // now["pp"]), MOST_CHUNKS) + 1))
    if job.model.num_experts:
        yield "ep", divisors(gpus)
        yield "etp", divisors(int(now["tp"]))
    yield "dp_replicate", divisors(ranks)
    yield "zero", _STAGES
    yield "micro_batch_size", divisors(max(int(now["global_batch_size"] // ranks), 1))


def _changed(job: Job, now: Values, axis: str, value: float) -> Values:
    """The plan with another value of one axis, and with what follows it."""
    plan = {**now, axis: value}
    if axis == "pp" and value != now["pp"]:
        plan |= {"first_stage_layers": BY_RULE, "last_stage_layers": BY_RULE}
    if axis == "pp" and value == 1.0:
        plan["vpp"] = 1.0
    if axis == "tp":
        plan["sp"] = float(value > 1.0 and bool(now["sp"] if now["tp"] > 1.0 else job.framework.able.sp))
        plan["etp"] = value if now["etp"] == now["tp"] > 1.0 else now["etp"]
    return {**plan, **_data_parallel(plan)}


def _data_parallel(plan: Values) -> Values:
    """Replicas and shards of the ranks that the other axes leave: as many replicas as there were, where they divide them."""
    ranks = plan["gpus"] / (plan["tp"] * plan["pp"] * plan["cp"])
    if plan["zero"] == 0.0:
        return {"dp_replicate": ranks, "dp_shard": 1.0}
    copies = max(plan["dp_replicate"], 1.0)
    if plan["dp_shard"] == 1.0 or ranks % copies:
        copies = 1.0
    return {"dp_replicate": copies, "dp_shard": ranks / copies}


def _all_kept(job: Job, plans: Sequence[Mapping[str, float]]) -> list[bool]:
    """Whether each plan keeps every rule."""
    columns = {name: np.array([plan[name] for plan in plans]) for name in Plan.fields}
    kept: list[bool] = np.broadcast_to(legal(legality(job, Plan(**columns))), (len(plans),)).tolist()
    return kept


def _recomputed(how: str, selective: tuple[str, ...]) -> Values:
    return dict(zip(RECOMPUTE, recompute_columns(how, selective), strict=True))


def _runs(job: Job, axis: str, name: str, now: Values) -> bool:
    """Whether the stack of a job runs the plan with another schedule, context method or dispatcher."""
    if axis == "schedule" and one_chunk(name) and now["vpp"] > 1.0:
        return False
    able = {"schedule": job.framework.able.schedules, "cp_method": job.framework.able.cp, "moe_dispatcher": job.framework.able.dispatchers}
    return has(able[axis], name) and _all_kept(job.replace(**{axis: name}), [now])[0]


def _precisions(group: Group) -> list[str]:
    """The precisions that the device multiplies in and the stack has."""
    able, accelerator, calibration = group.job.framework.able.precisions, group.cluster.accelerator, group.cluster.calibration
    names = [name for name in load.names("precisions", group.folders) if has(able, name)]
    return [name for name in names if can_run(precision_of(name, group.folders), accelerator, calibration)]
