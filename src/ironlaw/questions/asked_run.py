"""The run that a question about money, failures or data asks about: estimated, or given as accelerator hours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.cluster import Cluster
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.what_if.near_counts import describe_counts, nearest_counts, no_such_plan
from ironlaw.estimate.what_if.offers import describe_offers, offers
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.forms import need
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.terms import scalar


@dataclass(frozen=True, eq=False, repr=False)
class AskedRun:
    """A run as it is paid for. Times are seconds; ``wall`` includes failures where they are estimated."""

    title: str
    cluster: Cluster
    gpus: float
    useful: float
    wall: float
    busy: float | None  # share of a step in which accelerators compute or move memory; None: unknown
    group: Group | None  # the estimate; None: hours were given
    assumptions: Assumptions
    warnings: list[Caution]


def estimate_plan(values: Mapping[str, Any], folders: tuple[str, ...]) -> Group:
    """The plan that an estimate of these options chooses, with its run."""
    need(values, "model", "on", "gpus")
    estimate = answer({k: v for k, v in values.items() if k in ESTIMATE}, folders)
    group = estimate.groups[0]
    if not bool(group.legal[0]):
        raise no_such_plan(estimate)
    if not bool(group.memory.fits[0]):
        remedies = describe_offers(offers(estimate)) + describe_counts(nearest_counts(estimate))
        return group.replace(warnings=(*group.warnings, caution("does-not-fit", remedies=remedies)))
    return group


def run_of(values: Mapping[str, Any], folders: tuple[str, ...]) -> AskedRun:
    """The estimated run of MODEL on --tokens, or the run of --gpu-hours on --gpus."""
    if "gpu_hours" in values:
        return _given_hours(values, folders)
    group = estimate_plan(values, folders)
    run = group.run
    assert run is not None
    warnings = list(group.warnings)
    useful, wall = scalar(run.seconds), scalar(run.failures.seconds)
    if math.isnan(wall):
        warnings.append(caution("failures-left-out"))
        wall = useful
    gpus = scalar(group.plan.gpus)
    title = f"{group.job.model.title}, {units.show(run.tokens, 'token')}, on {gpus:,.0f} {group.cluster.accelerator.title}"
    busy = scalar(group.shares["compute"]) + scalar(group.shares["hbm"])
    return AskedRun(
        title=title, cluster=group.cluster, gpus=gpus, useful=useful, wall=wall, busy=busy, group=group,
        assumptions=list(group.assumptions), warnings=warnings,
    )  # fmt: skip


def _given_hours(values: Mapping[str, Any], folders: tuple[str, ...]) -> AskedRun:
    """The run that --gpu-hours and --gpus describe, without an estimate."""
    assumptions: Assumptions = []
    cluster = cluster_of(values, folders, assumptions)
    gpus, hours = values["gpus"], values["gpu_hours"]
    seconds = hours * 3600.0 / gpus
    assume(assumptions, "failures", "inside the hours given", "default")
    title = f"{units.amount(hours)} GPU-hours on {gpus:,.0f} {cluster.accelerator.title}"
    return AskedRun(
        title=title, cluster=cluster, gpus=gpus, useful=seconds, wall=seconds, busy=None, group=None, assumptions=assumptions, warnings=[]
    )
