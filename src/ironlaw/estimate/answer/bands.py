"""Error bands: how far a run like this one was from its prediction when its publisher was not used to fit it.

The half-width of a step's band is a sum: a base, the distance from the published runs, and parts for what is not known of a question.
``ironlaw validate fit`` learns the parts with whole publishers left out and with whole stack records left out
(docs/adr/0026-bands-by-distance.md). A part is never negative, so a question further away never has a narrower band.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.records import Bands
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.estimate.evidence.distance import TRAITS, UNKNOWN, Positions, log2, positions
from ironlaw.estimate.evidence.published_runs import Evidence, mean_gap, near_data, nearest, read_evidence
from ironlaw.estimate.memory.errors import ANY, memory_spread
from ironlaw.estimate.pipeline.schedules import schedule_of
from ironlaw.estimate.planner.remedies import Other, Remedies

if TYPE_CHECKING:
    from ironlaw.estimate.answer.group import Group

SCALE = 256.0  # accelerators beyond which stragglers, fabrics and unpublished settings widen the errors
LAUNCH_BOUND = 0.1  # share of the step lost to dispatch from which a run counts as launch-bound
FEW = 6.0  # doublings: a job on fewer than 64 accelerators is small
_LEAST = 1e-9  # half-width: below it the plan predicted fastest is

PARTS = {  # of a half-width: what each is multiplied by
    "base": "every question",
    "distance": "mean distance of the nearest run of each of the three nearest publishers",
    "unknown stack": "the training stack was assumed, not stated",
    "unknown facts": "a published run does not state its recomputation, graphs, chunks or precision",
    "few accelerators": "doublings below 64 accelerators, over 6",
    "overlap of experts": "the all-to-all of experts overlaps another micro-batch",
}

KINDS = {
    "adapters": "low-rank adapters or frozen layers",
    "hybrid": "a model with state-space or linear-attention layers",
    "mixture": "a mixture of experts",
    "prior device": "a device whose constants are priors",
    "launch-bound": "a model so small that the host sets the pace",
    "dense at scale": "a dense model on more than 256 accelerators",
    "dense": "a dense model on a device whose operators were measured",
}


def kind_of(group: Group, at: int) -> str:
    """The kind of a run, under which its errors are listed: the first key of KINDS that applies."""
    where = place_of(group, at)
    found = {
        "adapters": where["adapters"],
        "hybrid": where["hybrid"],
        "mixture": where["mixture"],
        "prior device": group.cluster.calibration.grade != "measured",
        "launch-bound": _share(group, "dispatch", at) > LAUNCH_BOUND,
        "dense at scale": where["gpus"] > SCALE,
    }
    return next((kind for kind, applies in found.items() if applies), "dense")


def place_of(group: Group, at: int, stated: bool | None = None) -> Positions:
    """Where a row is among the published runs; ``stated``: its stack is known (None: known where the question names it)."""
    if stated is None:
        stated = group.asked is None or "framework" in group.asked.given
    columns = positions(group.job, group.cluster, group.plan, stated)
    return {name: _at(column, group, at) if name in ("gpus", "seq_len") else column for name, column in columns.items()}


def _at(column: Any, group: Group, at: int) -> float:
    return float(np.broadcast_to(column, group.index.shape)[at])


def _share(group: Group, roof: str, at: int) -> float:
    return _at(group.shares[roof], group, at)


def offloads(group: Group, at: int) -> bool:
    """True where a row keeps states or activations in the memory of the host."""
    return any(bool(_at(flag, group, at)) for flag in (group.plan.offload_optimizer, group.plan.offload_activations))


def unsupported(group: Group, at: int, evidence: Evidence) -> str:
    """The kind of run that no published run has, for which a band would claim knowledge that nobody has; ``""`` where there is none."""
    where = place_of(group, at)
    missing = [trait for trait in TRAITS if where[trait] and not evidence.has(trait)]
    if offloads(group, at) and not evidence.has("offloaded"):
        missing.append("offloading")
    staged = _at(group.plan.pp, group, at) > 1  # with one stage no schedule applies
    if staged and not schedule_of(group.job).scored:
        missing.append(f"schedule {group.job.schedule}")
    return ", ".join(missing)


def multiples(
    group: Group, at: int, evidence: Evidence, *, without: str = "", stated: bool | None = None, unknown: bool = False
) -> dict[str, float]:
    """What multiplies each of PARTS in the half-width of a row. ``without``: a publisher whose runs are no evidence."""
    where = place_of(group, at, stated)
    return {
        "base": 1.0,
        "distance": mean_gap(nearest(where, evidence, without)),
        "unknown stack": float(where["stack"] == UNKNOWN),
        "unknown facts": float(unknown),
        "few accelerators": max(0.0, 1.0 - float(log2(where["gpus"])) / FEW),
        "overlap of experts": float(_at((group.plan.overlap_ep > 0.0) & (group.plan.ep > 1.0), group, at)),
    }


def width_parts(multiple: Mapping[str, float], coefficients: Mapping[str, float]) -> dict[str, float]:
    """The parts of a half-width in log, largest last to add: ``coefficient * multiple`` of each of PARTS.

    >>> width_parts({"base": 1.0, "distance": 0.5}, {"base": 0.1, "distance": 0.2})
    {'base': 0.1, 'distance': 0.1}
    """
    return {name: coefficients.get(name, 0.0) * value for name, value in multiple.items()}


def coefficients(folders: tuple[str, ...] = ()) -> dict[str, float]:
    """What ``ironlaw validate fit`` learned for each of PARTS."""
    record: Bands = load.record("bands", "default", folders)
    return {name: float(part.value) for name, part in record.width.items()}


def parts_of_band(group: Group, at: int, *, unknown: bool = False, stated: bool | None = None) -> dict[str, float] | None:
    """The parts of the half-width of a row, before any correction; None where no published run supports a band."""
    evidence = read_evidence()
    if unsupported(group, at, evidence):
        return None
    return width_parts(multiples(group, at, evidence, unknown=unknown, stated=stated), coefficients(group.folders))


def widened(group: Group, at: int) -> tuple[float, float] | None:
    """(half-width in log, coverage) of a row, after a correction by own runs where there is one; None where nothing supports one."""
    parts = parts_of_band(group, at)
    if parts is None:
        return None
    left = 1.0 if group.level is None else float(np.broadcast_to(group.level.left, group.index.shape)[at])
    record: Bands = load.record("bands", "default", group.folders)
    return fsum(parts.values()) * left, float(record.coverage.value)


def step_band(group: Group, at: int, seconds: float | None) -> list[float] | None:
    """``[lo, hi, coverage]`` of a step time [s], or None."""
    half_width = None if seconds is None else widened(group, at)
    return None if half_width is None or seconds is None else banded(seconds, *half_width)


# values of a run that are its time at a fixed rate: accelerators, rent, rated power, carbon of a kWh
OF_TIME = (
    "days", "gpu_hours", "usd", "kwh", "kg_co2e", "days_with_failures", "usd_with_failures", "kwh_with_failures", "kg_co2e_with_failures",
)  # fmt: skip


def run_bands(group: Group, at: int, run: Mapping[str, Any] | None) -> dict[str, list[float] | None] | None:
    """``[lo, hi, coverage]`` of time, money, energy and carbon of a run, each in the unit of its value; None for a row without a band.

    All of them are the time of the run at a fixed rate, so one error moves them together: their bands are not independent. Checkpoints
    take the same time however long a step is; that small part is widened with the rest.
    """
    width = None if run is None else widened(group, at)
    if run is None or width is None:
        return None
    return {name: None if run[name] is None else banded(run[name], *width) for name in OF_TIME}


def nearest_runs(group: Group, at: int) -> list[dict[str, Any]]:
    """The published runs that are nearest to a row, one of each of three publishers, as plain data."""
    evidence, where = read_evidence(), place_of(group, at)
    return near_data(where, nearest(where, evidence), evidence)


def band_data(group: Group, at: int) -> dict[str, Any] | None:
    """The half-width of a row in log, its parts, and what would narrow it to what; None where it has no band."""
    parts, found = parts_of_band(group, at), widened(group, at)
    if parts is None or found is None:
        return None
    half, coverage = found
    left = half / fsum(parts.values())  # what own runs leave of the published width
    narrower = {}
    if parts["unknown stack"] > 0.0:
        narrower["name the stack: --framework"] = left * fsum((parts_of_band(group, at, stated=True) or parts).values())
    if group.level is None:
        narrower["one measured step of your own: ironlaw validate --mine"] = half * float(np.sqrt(1.0 - level_law(group.folders)[0] ** 2))
    return {
        "half_width": half,
        "coverage": coverage,
        "parts": {name: width for name, width in parts.items() if width > 0.0},
        "narrower": [{"what": what, "half_width": width} for what, width in sorted(narrower.items(), key=lambda item: item[1])],
    }


def level_law(folders: tuple[str, ...] = ()) -> tuple[float, float]:
    """(share, reach) of the law by which own runs correct others; see ``correction.covariance``."""
    record: Bands = load.record("bands", "default", folders)
    return float(record.level["share"].value), float(record.level["reach"].value)


def told_apart(folders: tuple[str, ...] = ()) -> float:
    """The smallest predicted difference between two plans of one job that decides which is faster, as a fraction."""
    record: Bands = load.record("bands", "default", folders)
    return record.told_apart.value


def difference_width(group: Group, at: int) -> tuple[float, float] | None:
    """(half-width in log, coverage) of the ratio of two step times of one job; None where a catalogue has none."""
    record: Bands = load.record("bands", "default", group.folders)
    kind = kind_of(group, at)
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


def gain_slope(folders: tuple[str, ...] = ()) -> float:
    """How much of a predicted log ratio of two plans of one job was measured; 1 where a catalogue does not say."""
    record: Bands = load.record("bands", "default", folders)
    return 1.0 if record.gain_slope is None else record.gain_slope.value


def likely_ratio(ratio: Any, slope: float) -> Any:
    """The ratio of the step times of two plans of one job that is to be expected from a predicted one: ``ratio^slope``.

    A search picks what is predicted fastest, so it picks errors too: measured log ratios of published plans are ``slope`` of predicted
    ones, learned with families left out (``validate.plans.slope``).

    >>> round(float(likely_ratio(1.108, 0.77)), 3)
    1.082
    """
    return np.power(ratio, slope)


def likely_rate(times: Any, folders: tuple[str, ...] = (), accelerators: Any = 1.0) -> Any:
    """How many times the tokens per second to expect of what is predicted to give ``times``: ``accelerators (times / accelerators)^slope``.

    Every printed gain over another plan is corrected by this or by ``likely_ratio``. ``accelerators`` is how many times as many the other
    plan has: a count is no prediction, so that the rate of each is corrected alone.

    >>> round(float(likely_rate(1.2)), 2), float(likely_rate(0.5, accelerators=0.5))
    (1.15, 0.5)
    """
    return accelerators * likely_ratio(times / accelerators, gain_slope(folders))


def likely_remedies(remedies: Remedies, folders: tuple[str, ...] = ()) -> Remedies:
    """What makes a run faster, each with the gain that is to be expected of the predicted one.

    That of fewer accelerators is as predicted: no pairs of runs say how such gains shrink, and each count is estimated by itself.
    """

    def likely(other: Other | None) -> Other | None:
        return None if other is None else other._replace(times=float(likely_rate(other.times, folders)))

    return remedies._replace(near_batch=likely(remedies.near_batch), larger_batch=likely(remedies.larger_batch))


def winner_bias(probability: float, half_width: float, coverage: float) -> float:
    """How much longer than predicted the plan that is predicted fastest may take for having been picked: ``P^-b - 1``, a ceiling.

    Under the law of ``likely_fastest`` the plan picked takes ``b ln(1 / P)`` in log longer than the truly fastest, in the mean. Plans that
    are truly alike would be mispredicted by as much: the best of n by ``b ln n``. Of published plans of one job 1.5 % was seen where it
    says 3.7 %.

    >>> round(winner_bias(0.25, 0.144, 0.8), 3)
    0.095
    """
    return float(probability ** (-half_width / (2.0 * np.arctanh(coverage))) - 1.0)


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


def why_no_band(group: Group, at: int) -> list[Caution]:
    """The warning of an estimate without a band."""
    kind = unsupported(group, at, read_evidence())
    return [caution("no-error-band", kind=kind)] if kind else []
