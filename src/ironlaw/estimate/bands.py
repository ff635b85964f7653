"""Error bands: how far a run like this one was from its prediction when its family was not used to fit it.

``ironlaw validate fit`` finds a half-width for each kind of run that has published runs. Other runs have no band: a wide band
would suggest knowledge that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.records import Bands
from ironlaw.estimate.memory.errors import ANY, memory_spread
from ironlaw.estimate.pipeline.schedules import schedule_of

if TYPE_CHECKING:
    from ironlaw.estimate.answer import Group

SCALE = 256.0  # accelerators beyond which stragglers, fabrics and unpublished settings widen the errors
LAUNCH_BOUND = 0.1  # share of the step lost to dispatch from which a run counts as launch-bound
_LEAST = 1e-9  # half-width: below it the plan predicted fastest is

SUPPORTS = {
    "dense": "a dense model on a device whose operators were measured",
    "dense at scale": "a dense model on such a device, on more than 256 accelerators",
    "mixture": "a mixture of experts",
    "prior device": "a device whose constants are priors",
    "launch-bound": "a model so small that the host sets the pace",
}


def supports(group: Group, at: int) -> str:
    """Which kind of published runs supports this row's band: a key of SUPPORTS, or ``""`` where none does."""
    kind = _if_measured(group, at)
    return "prior device" if kind not in ("", "mixture") and _on_priors(group) else kind


def _on_priors(group: Group) -> bool:
    return group.cluster.calibration.grade != "measured"


def _if_measured(group: Group, at: int) -> str:
    """The kind of run this would be on a device whose operators were measured."""
    job, model = group.job, group.job.model
    offloaded = (group.plan.offload_optimizer, group.plan.offload_activations)
    offloads = any(np.broadcast_to(flag, group.index.shape)[at] for flag in offloaded)
    staged = np.broadcast_to(group.plan.pp, group.index.shape)[at] > 1  # with one stage no schedule applies
    unscored = staged and not schedule_of(job).scored
    if job.lora_rank or offloads or model.frozen_layers or model.mamba_layers or unscored:
        return ""
    if model.num_experts or model.linear_attention_layers:
        return "mixture"
    idle = np.broadcast_to(group.shares["dispatch"], group.index.shape)
    if idle[at] > LAUNCH_BOUND:
        return "launch-bound"
    return "dense at scale" if np.broadcast_to(group.plan.gpus, group.index.shape)[at] > SCALE else "dense"


def width(kind: str, folders: tuple[str, ...] = ()) -> tuple[float, float] | None:
    """(half-width in log, coverage) of a kind of run; None where nothing supports one."""
    record: Bands = load.record("bands", "default", folders)
    half = record.step.get(kind)
    return None if half is None else (half.value, record.coverage.value)


def widened(group: Group, at: int) -> tuple[float, float] | None:
    """(half-width in log, coverage) of a row; on a device whose constants are priors, wider by the variance that priors add.

    Only dense runs on such devices were scored, so priors add the difference to dense runs: ``w^2 + prior^2 - dense^2``.
    """
    band = width(_if_measured(group, at), group.folders)
    prior, dense = width("prior device", group.folders), width("dense", group.folders)
    if band is None or not _on_priors(group) or prior is None or dense is None:
        return band
    return float(np.sqrt(band[0] ** 2 + max(prior[0] ** 2 - dense[0] ** 2, 0.0))), band[1]


def step_band(group: Group, at: int, seconds: float | None) -> list[float] | None:
    """``[lo, hi, coverage]`` of a step time [s], or None."""
    half_width = widened(group, at)
    if half_width is not None and group.correction is not None:  # the spread of the user's runs replaces the published one
        half_width = (group.correction.half_width, half_width[1])
    return None if half_width is None or seconds is None else banded(seconds, *half_width)


def told_apart(folders: tuple[str, ...] = ()) -> float:
    """The smallest predicted difference between two plans of one job that decides which is faster, as a fraction."""
    record: Bands = load.record("bands", "default", folders)
    return record.told_apart.value


def difference_width(group: Group, at: int) -> tuple[float, float] | None:
    """(half-width in log, coverage) of the ratio of two step times of one job; None where a catalogue has none."""
    record: Bands = load.record("bands", "default", group.folders)
    kind = _if_measured(group, at)
    half = record.difference.get(kind if kind in record.difference else ANY)
    return None if half is None else (half.value, record.coverage.value)


def likely_fastest(seconds: Any, half_width: float, coverage: float) -> Any:
    """How likely each plan of one job is truly the fastest of them: ``T^(-1/b) / sum T^(-1/b)``, ``b = half_width / (2 artanh coverage)``.

    The log error of a predicted step has a part that all plans of a job share, which changes no order, and a part of its own. The own
    parts are taken as independent, alike and Gumbel-distributed. The difference of two is then logistic with scale b, so that
    ``coverage`` of the differences lie within ``half_width``, and the share in which a plan is the least is a formula (Luce, Individual
    Choice Behavior, 1959; McFadden, Conditional logit analysis, 1974). Plans that look alike get no common part of their own:
    of published pairs those that differ in three axes or more are not further from their predicted ratio than those that differ in one.

    >>> [round(float(p), 2) for p in likely_fastest([10.0, 10.0, 10.5], 0.16, 0.8)]
    [0.4, 0.4, 0.2]
    """
    scale = max(half_width, _LEAST) / (2.0 * np.arctanh(coverage))
    weights = np.exp(-(np.log(seconds) - np.log(np.min(seconds))) / scale)
    return weights / weights.sum()


def memory_band(group: Group, size: float | None) -> list[float] | None:
    """``[lo, hi, coverage]`` of what a device holds [B], or None."""
    spread = memory_spread(group.job.framework.name, group.cluster.accelerator.name, group.folders)
    if spread is None or size is None:
        return None
    return banded(size * float(np.exp(spread.centre.value)), spread.half_width.value, spread.coverage.value)


def banded(value: float, half_width: float, coverage: float) -> list[float]:
    """A value and its band in log: ``value exp(-w), value exp(w)``.

    >>> [round(v, 3) for v in banded(2.0, 0.1, 0.8)]
    [1.81, 2.21, 0.8]
    """
    return [float(value * np.exp(-half_width)), float(value * np.exp(half_width)), coverage]


def why_no_band(group: Group, at: int) -> str | None:
    """The warning of an estimate without a band."""
    return None if supports(group, at) else "no error band: no published run like this one was scored"
