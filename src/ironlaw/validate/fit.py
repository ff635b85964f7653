"""Fit the global constants on published runs; each family is scored with constants fitted without it.

    minimise   sum over rows |e + u| w  +  1/2 sum over constants (log(value / first) / log(spread))^2
               +  1/2 sum over families (u / LEVEL)^2

with ``e = log(predicted / measured)`` and ``w = WEIGHT / sqrt(rows of the family)``: a family weighs the root of its rows, because its
rows are alike. ``u`` is the level of the family: what its machine and its stack do to all of its rows alike, most of the error of a
prediction. It keeps constants from explaining one machine, and no prediction has it. Rows further away than FAR say less, in proportion.
Gauss-Newton steps on reweighted least squares (Huber, Robust Statistics, 1981, section 7.8), without random numbers. By hand: the robust
losses of scipy.optimize.least_squares are other functions, and would move the constants that ship.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.records import Systems
from ironlaw.estimate.memory.errors import ANY, fit_probability
from ironlaw.files import read_shipped
from ironlaw.question.defaults import CERTAINTY
from ironlaw.units import parse
from ironlaw.validate.fill import Apart
from ironlaw.validate.predict import Prepared, times
from ironlaw.validate.runs import DATA

RECORD = DATA / "fit.json"
WEIGHT = 3.4  # a family of n rows weighs 3.4 sqrt(n) in |log error| against one standard deviation of a constant
FLOOR = 0.03  # smaller errors are noise: repeated runs differ by 2 to 8 %
FAR = 0.15  # larger errors are more likely facts that are not known of a row than faults of a constant
LEVEL = 0.1  # spread of the levels of families in log: that of the publishers' own levels
NUDGE = 0.04  # log step of the finite differences
ROUNDS_OF_WEIGHTS = 25  # of least squares for one step
ROUNDS = 5  # further rounds change no constant in its third digit
FITTED_APART = {Apart.NO_PRECISION}  # rows the fit uses though set apart: their 16-bit formats have one rate


@dataclass(frozen=True)
class Constant:
    """One global constant: first value, bounds, likely error of the first value as a factor, and value without the effect."""

    name: str
    first: float
    low: float
    high: float
    spread: float
    neutral: float
    meaning: str
    source: str


@cache
def constants() -> tuple[Constant, ...]:
    """The constants of ``constants.toml``, in its order."""
    table = tomllib.loads(read_shipped(DATA / "constants.toml"))
    units = {name: getattr(load.record("systems", "default", ()), name).unit for name in table}
    return tuple(Constant(name, **{**row, "first": parse(row["first"], units[name])}) for name, row in table.items())


@dataclass(frozen=True)
class Fit:
    """Constants fitted on all families, and for each family those fitted without it."""

    values: Mapping[str, float]
    held_out: Mapping[str, Mapping[str, float]]

    def systems(self, family: str | None = None) -> Systems:
        """The systems record with constants fitted without ``family``; fitted on all where the family was not in the fit."""
        return with_values(self.held_out.get(family or "", self.values))


def with_values(values: Mapping[str, float]) -> Systems:
    """The systems record with other values of its constants."""
    shipped: Systems = load.record("systems", "default", ())
    return shipped.replace(**{n: getattr(shipped, n)._replace(value=v, text=f"{v:.3g}") for n, v in values.items()})


def fitted_rows(prepared: Prepared) -> Any:
    """True for the rows of a fit: dense pre-training with known recompute."""
    return np.array([not set(r.apart) - FITTED_APART for r in prepared.runs], dtype=bool)


class Problem:
    """The rows of a fit with their weights; points are logarithms of the constants that are free."""

    def __init__(self, prepared: Prepared, free: tuple[Constant, ...], fixed: Mapping[str, float]) -> None:
        self.prepared, self.free, self.fixed = prepared, free, fixed
        self.first = np.log([c.first for c in free])
        self.low, self.high = (np.log([getattr(c, side) for c in free]) for side in ("low", "high"))
        self.spread = np.log([c.spread for c in free])

    def values(self, point: Any) -> dict[str, float]:
        """A point as constants by name."""
        return {**self.fixed, **{c.name: float(v) for c, v in zip(self.free, np.exp(point), strict=True)}}

    def residual(self, point: Any) -> Any:
        """``log(predicted / measured)`` of every row."""
        return np.log(times(self.prepared, with_values(self.values(point))) / self.prepared.measured)

    def jacobian(self, point: Any, residual: Any) -> Any:
        """Change of every residual with the logarithm of every free constant."""
        columns = []
        for k in range(len(self.free)):
            moved = point.copy()
            moved[k] += NUDGE
            columns.append((self.residual(moved) - residual) / NUDGE)
        return np.stack(columns, axis=1)

    def weights(self, mask: Any) -> Any:
        """The weight of every row of ``mask``; 0 elsewhere."""
        w = np.zeros(mask.size)
        for family in dict.fromkeys(self.prepared.families.tolist()):
            rows = mask & (self.prepared.families == family)
            if rows.any():
                w[rows] = WEIGHT / np.sqrt(rows.sum())
        return w

    def move(self, point: Any, residual: Any, jacobian: Any, mask: Any) -> Any:
        """The minimum of the objective with linearised residuals, by reweighted least squares."""
        families = list(dict.fromkeys(self.prepared.families[mask].tolist()))
        levels = np.stack([self.prepared.families == family for family in families], axis=1).astype(float)
        slopes, constants = np.hstack([jacobian, levels]), point.size
        prior = np.concatenate([1.0 / self.spread**2, np.full(len(families), 1.0 / LEVEL**2)])
        pull = np.concatenate([point - self.first, np.zeros(len(families))])
        weights, step = self.weights(mask), np.zeros(prior.size)
        for _ in range(ROUNDS_OF_WEIGHTS):
            error = np.maximum(np.abs(residual + slopes @ step), FLOOR)
            w = weights / error * np.minimum(FAR / error, 1.0)
            matrix = (slopes * w[:, None]).T @ slopes + np.diag(prior)
            slope = (slopes * w[:, None]).T @ residual + prior * pull
            step = -np.linalg.solve(matrix, slope)
            step[:constants] = np.clip(point + step[:constants], self.low, self.high) - point
        return point + step[:constants]

    def solve(self, mask: Any, start: Mapping[str, float] | None = None) -> tuple[Any, Any, Any]:
        """The fitted point on the rows of ``mask``, with residuals and jacobian; one round from ``start``, a fit that is close."""
        point = self.first if start is None else np.log([start[c.name] for c in self.free])
        for _ in range(ROUNDS if start is None else 1):
            residual = self.residual(point)
            point = self.move(point, residual, self.jacobian(point, residual), mask)
        residual = self.residual(point)
        return point, residual, self.jacobian(point, residual)


def solve_all(prepared: Prepared, drop: str | None = None, start: Mapping[str, float] | None = None) -> Fit:
    """Fit on all families, then move from there without each of them; ``drop`` fixes one constant at its neutral value."""
    free = tuple(c for c in constants() if c.name != drop)
    prepared = subset(prepared, fitted_rows(prepared))
    problem = Problem(prepared, free, {c.name: c.neutral for c in constants() if c.name == drop})
    mask = np.ones(len(prepared.runs), dtype=bool)
    point, residual, jacobian = problem.solve(mask, start)
    families = dict.fromkeys(prepared.families[mask].tolist())
    held_out = {f: problem.values(problem.move(point, residual, jacobian, mask & (prepared.families != f))) for f in families}
    return Fit(problem.values(point), held_out)


def held_out_times(prepared: Prepared, fit: Fit) -> Any:
    """Predicted step times [s], each family's with constants fitted without it."""
    predicted = np.full(len(prepared.runs), np.nan)
    for family in dict.fromkeys(prepared.families.tolist()):
        rows = prepared.families == family
        predicted[rows] = times(subset(prepared, rows), fit.systems(family))
    return predicted


def subset(prepared: Prepared, rows: Any) -> Prepared:
    """Only the runs of ``rows``."""
    index = np.flatnonzero(rows)
    new_index = {int(old): new for new, old in enumerate(index)}
    batches = []
    for b in prepared.batches:
        chosen = np.flatnonzero(rows[b.owner])
        if chosen.size:
            batches.append(replace(b, plan=b.plan.take(chosen), owner=np.array([new_index[int(o)] for o in b.owner[chosen]])))
    pick = index.tolist()
    return replace(
        prepared,
        runs=tuple(prepared.runs[i] for i in pick),
        batches=tuple(batches),
        measured=prepared.measured[index],
        ideal=prepared.ideal[index],
        hardware=tuple(prepared.hardware[i] for i in pick),
        support=tuple(prepared.support[i] for i in pick),
        fits=prepared.fits[index],
        answers=tuple(prepared.answers[i] for i in pick),
    )


# --- spreads ---------------------------------------------------------------------------------------------------------------

COVERAGE = 0.8
DEVICE_KINDS = ("reserved", "device")  # measured memory that includes what the allocator holds
POOLED = 10.0  # rows as which all runs of the next wider group count in the spread of a group's memory


def memory_spreads(runs: Sequence[tuple[str, Any]], without: str = "") -> dict[str, tuple[float, float, int, int]]:
    """For each group of runs (family, memory): median of log(measured / predicted), half-width around it, rows, families.

    Only runs with measured device or reserved memory: allocated peaks lack the allocator's error, which is the larger part. In ANY the
    families weigh the same. The runs of a framework, and of a framework on an accelerator, each weigh one, all runs of the next wider
    group POOLED together. A group of one family is at least as wide as ANY. ``without`` is a family to leave out.
    """
    measured = [(family, m) for family, m in runs if m.kind in DEVICE_KINDS and family != without]
    families = np.array([family for family, _ in measured])
    size = Counter(families.tolist())
    error = np.array([float(np.log(m.measured_bytes / m.predicted_bytes)) for _, m in measured])
    framework = np.array([m.framework for _, m in measured])
    device = np.array([m.accelerator for _, m in measured])
    every = np.ones(error.size, dtype=bool)
    weights = {ANY: (np.array([1.0 / size[f] for f in families.tolist()]), every)} if measured else {}
    for name in dict.fromkeys(framework.tolist()):
        of_it = framework == name
        weights[name] = (_pool(weights[ANY][0], of_it), of_it)
        devices = dict.fromkeys(device[of_it].tolist())
        for on in devices if len(devices) > 1 else ():
            weights[f"{name} on {on}"] = (_pool(weights[name][0], of_it & (device == on)), of_it & (device == on))
    spreads: dict[str, tuple[float, float, int, int]] = {}
    for name, (w, rows) in weights.items():
        centre, of_families = weighted_quantile(error, w, 0.5), len(set(families[rows].tolist()))
        half = weighted_quantile(np.abs(error - centre), w, COVERAGE)
        spreads[name] = (centre, max(half, spreads[ANY][1]) if ANY in spreads and of_families == 1 else half, int(rows.sum()), of_families)
    return spreads


def memory_coverage(runs: Sequence[tuple[str, Any]]) -> dict[str, dict[str, float]]:
    """For each family, by the spread learned without it: rows, and the shares within its band and within what a margin allows for.

    The second is the share of rows that measure no more than CERTAINTY of the runs of other families do.
    """
    found = {}
    for family in dict.fromkeys(f for f, m in runs if m.kind in DEVICE_KINDS):
        learned = memory_spreads(runs, family).get(ANY)
        if learned is None:
            continue
        centre, half = learned[:2]
        of_it = [m for f, m in runs if f == family and m.kind in DEVICE_KINDS]
        error = np.array([float(np.log(m.measured_bytes / m.predicted_bytes)) for m in of_it])
        likely = fit_probability(1.0, np.exp(error), centre, half, COVERAGE)
        found[family] = {
            "n": len(of_it),
            "in_band": float(np.mean(np.abs(error - centre) <= half)),
            "within_margin": float(np.mean(likely <= CERTAINTY)),
        }
    return found


def _pool(wider: Any, own: Any) -> Any:
    """Weights of a group: one for each of its own runs, POOLED for all runs of the wider group together."""
    return POOLED * wider / wider.sum() + own


def weighted_quantile(values: Any, weights: Any, level: float) -> float:
    """The smallest value with at least ``level`` of the weight at or below it. (np.quantile has weights only from numpy 2.0 on.)

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 0.75)
    2.0
    """
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(np.searchsorted(share, level - 1e-12), values.size - 1)])


# --- the record ----------------------------------------------------------------------------------------------------------


def read_record(path: Path = RECORD) -> tuple[Fit, dict[str, Any]]:
    """The fit that ships, and the whole record; a constant that is not in the record has the value of the catalogue."""
    table = json.loads(read_shipped(path))
    shipped: Systems = load.record("systems", "default", ())
    first = {c.name: getattr(shipped, c.name).value for c in constants()}
    values = {**first, **{n: v for n, v in table["constants"].items() if n in first}}
    held_out = {f: {**values, **{n: v for n, v in without.items() if n in first}} for f, without in table["held_out"].items()}
    return Fit(values, held_out), table


def ablations(prepared: Prepared, fit: Fit) -> Iterator[tuple[str, Fit]]:
    """For each constant, a fit without its effect, started from ``fit``."""
    for c in constants():
        yield c.name, solve_all(prepared, c.name, fit.values)
