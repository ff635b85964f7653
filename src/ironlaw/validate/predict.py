"""Runs bound once, timed often: what a fit and a score both need.

A run is placed and bound by the functions that answer a question; its step is then timed again under other constants by
the same ``estimate.step``. Runs that differ only in columns are one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ironlaw.catalog.records import Systems
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer import Estimate, answer
from ironlaw.estimate.rates import throughput
from ironlaw.estimate.step import step
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.validate.runs import Run, Skipped, short_reason


@dataclass(frozen=True)
class Bound:
    """Legal plans of one job on one cluster, and which run each belongs to."""

    job: Job
    cluster: Cluster
    plan: Plan
    owner: Any  # index of the run by row


@dataclass(frozen=True)
class Prepared:
    """Runs that have a legal plan, their plans in batches, and what the measurement says of each run."""

    runs: tuple[Run, ...]
    bound: tuple[Bound, ...]
    measured: Any  # step time [s]
    ideal: Any  # step time at the peak: model FLOPs, attention in full, over the named dense peak [s]
    ideal_causal: Any  # the same with half the attention
    peak: tuple[str, ...]  # what names the peak: accelerator and precision
    fits: Any  # whether the plan that ran is predicted to fit
    estimates: tuple[tuple[Estimate, int], ...]  # of the first variant

    def take(self, index: Sequence[int]) -> Prepared:
        """The runs at ``index`` alone."""
        place = {old: new for new, old in enumerate(index)}
        kept = []
        for b in self.bound:
            rows = np.array([i for i, o in enumerate(b.owner) if int(o) in place], dtype=np.int64)
            if rows.size:
                kept.append(Bound(b.job, b.cluster, b.plan.take(rows), np.array([place[int(b.owner[i])] for i in rows])))
        at = list(index)
        return Prepared(
            tuple(self.runs[i] for i in at),
            tuple(kept),
            self.measured[at],
            self.ideal[at],
            self.ideal_causal[at],
            tuple(self.peak[i] for i in at),
            self.fits[at],
            tuple(self.estimates[i] for i in at),
        )


def prepare(runs: Sequence[Run], folders: tuple[str, ...] = ()) -> tuple[Prepared, list[Skipped]]:
    """Place and bind every run; those without a legal plan, or faster than their roof allows, are skipped with the reason."""
    kept: list[Run] = []
    skipped: list[Skipped] = []
    numbers: list[tuple[float, float, float, bool]] = []
    peaks: list[str] = []
    firsts: list[tuple[Estimate, int]] = []
    batches: dict[Any, tuple[Job, Cluster, list[Plan], list[int]]] = {}
    for run in runs:
        try:
            estimates = legal_variants(run, folders)
            facts = facts_of(run, estimates[0])
        except IronlawError as error:
            skipped.append(Skipped(run.id, run.line, run.family, short_reason(str(error))))
            continue
        for estimate in estimates:
            group, at = estimate.place_of(0)
            key = repr((group.job, group.cluster))
            batches.setdefault(key, (group.job, group.cluster, [], []))
            batches[key][2].append(group.plan.take([at]))
            batches[key][3].append(len(kept))
        numbers.append(facts)
        peaks.append(estimates[0].groups[0].cluster.accelerator.name + " " + estimates[0].groups[0].job.precision.peak)
        firsts.append((estimates[0], 0))
        kept.append(run)
    bound = tuple(Bound(job, cluster, joined(plans), np.array(owner)) for job, cluster, plans, owner in batches.values())
    columns = np.array(numbers, dtype=np.float64).reshape(-1, 4).T
    return Prepared(tuple(kept), bound, columns[0], columns[1], columns[2], tuple(peaks), columns[3] > 0, tuple(firsts)), skipped


class NoPlan(IronlawError):
    """A published row whose plan breaks a rule or whose rate breaks a roof."""

    code = "no-plan"


def legal_variants(run: Run, folders: tuple[str, ...]) -> list[Estimate]:
    """The estimates of a run's variants whose plans are legal."""
    made = [answer(options, folders) for options in run.asked]
    legal = [e for e in made if e.legal[0] and np.isfinite(e.step_seconds[0])]
    if not legal:
        group, at = made[0].place_of(0)
        broken = [name for name, column in group.rules.items() if name != "fits" and not np.broadcast_to(column, group.index.shape)[at]]
        raise NoPlan(f"no such plan: {', '.join(broken) or 'no estimate'}")
    return legal


def facts_of(run: Run, estimate: Estimate) -> tuple[float, float, float, bool]:
    """Measured step time, the two ideal times, and whether the plan fits; refuses a rate above the roof."""
    measured = float(run.measured(estimate, 0))
    if not (np.isfinite(measured) and measured > 0):
        raise NoPlan("no finite step time")
    group, _ = estimate.place_of(0)
    seconds = float(estimate.step_seconds[0])
    ideal, causal = (seconds * float(np.ravel(group.throughput[name].value)[0]) for name in ("mfu", "mfu_causal"))
    if causal > measured:
        raise NoPlan(f"measured rate above the roof of {group.cluster.accelerator.name} {group.job.precision.peak}")
    return measured, ideal, causal, bool(estimate.fits[0])


def joined(plans: Sequence[Plan]) -> Plan:
    """Plans of one row each as one plan of columns."""
    names = [f for f in plans[0].__dataclass_fields__]
    return Plan(**{n: np.concatenate([np.ravel(getattr(p, n)) for p in plans]) for n in names})


def times(prepared: Prepared, systems: Systems | None = None) -> Any:
    """Predicted step time of every run [s]: the geometric mean of its variants, under ``systems`` or the constants that ship."""
    logs, count = np.zeros(len(prepared.runs)), np.zeros(len(prepared.runs))
    for b in prepared.bound:
        cluster = b.cluster if systems is None else replace(b.cluster, systems=systems)
        with np.errstate(all="ignore"):
            value = np.broadcast_to(step(b.job, cluster, b.plan).tree.value, b.owner.shape)
        np.add.at(logs, b.owner, np.log(value))
        np.add.at(count, b.owner, 1.0)
    return np.exp(logs / count)


__all__ = ["Bound", "Prepared", "prepare", "throughput", "times"]
