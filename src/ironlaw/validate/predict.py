"""Runs bound once, timed often: what a fit and a score both need.

A run is placed and bound by the functions that answer a question; its step is then timed again under other constants by
the same ``estimate.step``. Plans of one job on one cluster are one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ironlaw.catalog.records import Systems
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer import Estimate
from ironlaw.estimate.bands import supports
from ironlaw.estimate.rows import answer_many
from ironlaw.estimate.step import step
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.validate.runs import Run, Skipped, short_reason


@dataclass(frozen=True)
class Batch:
    """Legal plans of one job on one cluster, and the index of the run each belongs to."""

    job: Job
    cluster: Cluster
    plan: Plan
    owner: Any


@dataclass(frozen=True)
class Prepared:
    """Runs that have a legal plan, their plans in batches, and by run what was measured and what the peak would allow."""

    runs: tuple[Run, ...]
    batches: tuple[Batch, ...]
    measured: Any  # step time [s]
    ideal: Any  # model FLOPs, attention in full, over the named dense peak of all accelerators [s]
    hardware: tuple[str, ...]  # accelerator and precision that name the peak
    support: tuple[str, ...]  # what kind of runs supports an error band for it; see estimate.bands
    fits: Any  # whether the plan that ran is predicted to fit
    answers: tuple[tuple[Estimate, int], ...]  # an Estimate and its row

    @property
    def families(self) -> Any:
        """The family of every run."""
        return np.array([r.family for r in self.runs])

    @property
    def counts(self) -> Any:
        """True for the runs of the headline: dense pre-training, nothing unknown."""
        return np.array([not r.apart for r in self.runs], dtype=bool)


class NoPlanError(IronlawError):
    """A published row whose plan breaks a rule or whose rate breaks a roof."""

    code = "no-plan"


def prepare(runs: Sequence[Run], folders: tuple[str, ...] = ()) -> tuple[Prepared, list[Skipped]]:
    """Place and bind every run; those without a legal plan, or faster than their roof allows, are skipped with the reason."""
    asked: list[Any] = [options for run in runs for options in run.asked]
    answered, wrong = answer_many(asked, folders)
    kept: list[Run] = []
    skipped: list[Skipped] = []
    facts: list[tuple[float, float, bool]] = []
    names: list[tuple[str, str]] = []
    firsts: list[tuple[Estimate, int]] = []
    batches: dict[str, tuple[Job, Cluster, list[Plan], list[int]]] = {}
    keys: dict[int, str] = {}
    at = 0
    for run in runs:
        variants = range(at, at + len(run.asked))
        at += len(run.asked)
        try:
            legal = _legal([answered[v] for v in variants if v in answered], [wrong[v] for v in variants if v in wrong])
            facts.append(_facts(run, *legal[0]))
        except IronlawError as error:
            skipped.append(Skipped(run.id, run.line, run.family, short_reason(str(error))))
            continue
        for estimate, row in legal:
            group, place = estimate.place_of(row)
            key = keys.setdefault(id(group), repr((group.job, group.cluster)))
            batch = batches.setdefault(key, (group.job, group.cluster, [], []))
            batch[2].append(group.plan.take([place]))
            batch[3].append(len(kept))
        group, place = legal[0][0].place_of(legal[0][1])
        names.append((f"{group.cluster.accelerator.name} {group.job.precision.peak}", supports(group, place)))
        firsts.append(legal[0])
        kept.append(run)
    columns = np.array(facts, dtype=np.float64).reshape(-1, 3).T
    made = tuple(Batch(job, cluster, _joined(plans), np.array(owner)) for job, cluster, plans, owner in batches.values())
    hardware, support = (tuple(n[k] for n in names) for k in (0, 1))
    return Prepared(tuple(kept), made, columns[0], columns[1], hardware, support, columns[2] > 0, tuple(firsts)), skipped


def _legal(answers: list[tuple[Estimate, int]], errors: list[IronlawError]) -> list[tuple[Estimate, int]]:
    """The variants of a run whose plans are legal; why there is none where there is none."""
    legal = [(e, row) for e, row in answers if e.legal[row] and np.isfinite(e.step_seconds[row])]
    if legal:
        return legal
    if not answers:
        raise errors[0]
    group, at = answers[0][0].place_of(answers[0][1])
    broken = [name for name, column in group.rules.items() if name != "fits" and not np.broadcast_to(column, group.index.shape)[at]]
    raise NoPlanError(f"no such plan: {', '.join(broken) or 'no estimate'}")


def _facts(run: Run, estimate: Estimate, row: int) -> tuple[float, float, bool]:
    """Measured step time, time at the peak, and whether the plan fits; refuses a rate above the roof."""
    group, at = estimate.place_of(row)
    measured = run.measured.step_seconds(group, at)
    if not (np.isfinite(measured) and measured > 0):
        raise NoPlanError("no finite step time")
    seconds = float(estimate.step_seconds[row])
    ideal, least = (seconds * _at(group.throughput[name].value, at) for name in ("mfu", "mfu_causal"))
    if least > measured:
        raise NoPlanError(f"measured rate above the roof of {group.cluster.accelerator.name} in {group.job.precision.peak}")
    return measured, ideal, bool(estimate.fits[row])


def _at(column: Any, index: int) -> float:
    """A row of a column that may be one value for all."""
    flat = np.ravel(column)
    return float(flat[index if flat.size > 1 else 0])


def _joined(plans: Sequence[Plan]) -> Plan:
    """Plans of one row each as one plan of columns."""
    return Plan(**{f.name: np.concatenate([np.ravel(getattr(p, f.name)) for p in plans]) for f in fields(Plan)})


def times(prepared: Prepared, systems: Systems | None = None) -> Any:
    """Predicted step time of every run [s]: the geometric mean of its variants, under ``systems`` or the constants that ship."""
    logs, count = np.zeros(len(prepared.runs)), np.zeros(len(prepared.runs))
    for b in prepared.batches:
        cluster = b.cluster if systems is None else replace(b.cluster, systems=systems)
        with np.errstate(all="ignore"):
            value = np.broadcast_to(step(b.job, cluster, b.plan).tree.value, b.owner.shape)
        np.add.at(logs, b.owner, np.log(value))
        np.add.at(count, b.owner, 1.0)
    return np.exp(logs / count)
