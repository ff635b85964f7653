"""The run that a question about money or failures is about: estimated, or given as accelerator hours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.questions.answer import need

if TYPE_CHECKING:
    from ironlaw.cluster import Cluster
    from ironlaw.estimate.answer import Group
    from ironlaw.estimate.bind.records import Assumptions


@dataclass(frozen=True, eq=False, repr=False)
class Work:
    """A run as it is paid for. Times are seconds; ``wall`` has failures in it where they were estimated."""

    title: str
    cluster: Cluster
    gpus: float
    useful: float
    wall: float
    busy: float | None  # share of a step in which accelerators compute or move memory; None: not known
    group: Group | None  # of the estimate
    assumptions: Assumptions
    warnings: list[str]


def one(value: Any) -> float:
    """The number of a column of length one."""
    return float(value.ravel()[0]) if hasattr(value, "ravel") else float(value)


def asked(value: float, unit: str, text: str) -> Sourced:
    """A number of the question, for an explanation."""
    return Sourced(value, unit, text, ASKED)


def amount(value: Any, flag: str) -> float:
    """A count above zero that need not be whole, such as 1.2M."""
    number = units.parse_count(value, flag)
    if not 0 < number <= 1e15:
        raise ValueRangeError(f"{flag} is {value}, must be more than 0 and at most 1e15")
    return number


def share(value: Any, flag: str) -> float:
    """A share above 0 and at most 1, such as 0.6 or 60%."""
    number = units.parse(value, "1", flag)
    if not 0 < number <= 1:
        raise ValueRangeError(f"{flag} is {value}, must be above 0 and at most 1")
    return number


def with_unit(unit: str, example: str) -> Callable[[Any, str], float]:
    """A reader of quantities whose unit must be written, because two are usual."""

    def read(value: Any, flag: str) -> float:
        if isinstance(value, (int, float)) or str(value).strip()[-1:].isdecimal():
            raise ValueRangeError(f"{flag} is {value}, which has no unit: write it as {example}")
        number = units.parse(value, unit, flag)
        if not 0 <= number <= 1e15:
            raise ValueRangeError(f"{flag} is {value}, must be from 0 to 1e15")
        return number

    return read


def without_effect(values: Mapping[str, Any], used: tuple[str, ...], given: str) -> None:
    """Refuse options of an estimate, but for ``used``, where the run is given and nothing is estimated."""
    for name in values:
        if name in ESTIMATE and name not in used:
            raise QuestionError(f"--{name.replace('_', '-')} has no effect with {given}, which stands for the estimate: leave one out")


def estimated(values: Mapping[str, Any], folders: tuple[str, ...]) -> Group:
    """The one plan an estimate of these options has, with its run."""
    from ironlaw.estimate.answer import answer

    need(values, "model", "on", "gpus")
    found = answer({k: v for k, v in values.items() if k in ESTIMATE}, folders)
    group = found.groups[0]
    if not bool(group.legal[0]):
        raise QuestionError(f"on {values['gpus']:,.0f} accelerators this plan cannot exist: ask ironlaw estimate for the rule it breaks")
    return group


def work_of(values: Mapping[str, Any], folders: tuple[str, ...]) -> Work:
    """The run of a model and tokens, estimated; or that of --gpu-hours on --gpus."""
    if "gpu_hours" in values and "model" in values:
        raise QuestionError("give MODEL (the hours are estimated) or --gpu-hours, not both")
    if "gpu_hours" in values:
        return _given(values, folders)
    if "model" not in values:
        raise QuestionError("the question lacks a run: give MODEL with --tokens, or --gpu-hours")
    need(values, "on", "gpus", "tokens")
    group = estimated(values, folders)
    run = group.run
    assert run is not None
    warnings = list(group.warnings)
    if not bool(group.memory.fits[0]):
        warnings.append("the plan does not fit in memory: see ironlaw estimate")
    useful, wall = one(run.seconds.value), one(run.failures.seconds.value)
    if math.isnan(wall):  # the job hardly gets on, and the estimate has said so
        warnings.append("the run is counted without failures: with them it never finishes in any useful time")
        wall = useful
    gpus = one(group.plan.gpus)
    title = f"{group.job.model.title}, {units.show(run.tokens, 'token')}, on {gpus:,.0f} {group.cluster.accelerator.title}"
    busy = one(group.shares["compute"]) + one(group.shares["hbm"])
    return Work(title, group.cluster, gpus, useful, wall, busy, group, list(group.assumptions), warnings)


def _given(values: Mapping[str, Any], folders: tuple[str, ...]) -> Work:
    from ironlaw.estimate.bind.records import assume, bind_cluster, bind_precision

    need(values, "on", "gpus")
    without_effect(values, ("on", "gpus", "node", "fabric", "price", "grid", "pue", "restart_time"), "--gpu-hours")
    notes: Assumptions = []
    cluster = bind_cluster({"precision": bind_precision(values["on"], folders), **values}, folders, notes)
    gpus, hours = values["gpus"], values["gpu_hours"]
    seconds = hours * 3600.0 / gpus
    assume(notes, "failures", "inside the hours given", "default")
    title = f"{hours:,.0f} GPU-hours on {gpus:,.0f} {cluster.accelerator.title}"
    return Work(title, cluster, gpus, seconds, seconds, None, None, notes, [])
