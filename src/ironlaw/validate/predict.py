"""Runs bound once, timed often: what a fit and a score both need.

A run is placed and bound by the functions that answer a question; its step is then timed again under other constants by
the same ``estimate.step``. Plans of one job on one cluster are one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ironlaw.catalog.records import Systems
from ironlaw.cluster import Cluster
from ironlaw.errors import IronlawError
from ironlaw.estimate import rules
from ironlaw.estimate.answer import Estimate, Group
from ironlaw.estimate.bands import supports
from ironlaw.estimate.step import step
from ironlaw.estimate.table import answer_many
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.validate.runs import Run, Skipped, short_reason

LONGEST = 1e6  # seconds: a step of more than eleven days is a slip of the keyboard


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

    @cached_property  # asked for once a run: built each time, ten thousand runs took ten seconds more
    def families(self) -> Any:
        """The family of every run."""
        return np.array([r.family for r in self.runs])

    @cached_property
    def counts(self) -> Any:
        """True for the runs of the headline: dense pre-training, nothing unknown."""
        return np.array([not r.apart for r in self.runs], dtype=bool)


class NoPlanError(IronlawError):
    """A published row whose plan breaks a rule or whose rate breaks a roof."""

    code = "no-plan"


def prepare(runs: Sequence[Run], folders: tuple[str, ...] = ()) -> tuple[Prepared, list[Skipped]]:
    """Place and bind every run; those without a legal plan, or faster than their roof allows, are skipped with the reason."""
    answers = Answers([options for run in runs for options in run.asked], folders)
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
            legal = answers.legal(variants)
            facts.append(_facts(run, legal[0]))
        except IronlawError as error:
            skipped.append(Skipped(run.id, run.line, run.family, short_reason(str(error))))
            continue
        for one in legal:
            if id(one.group) not in keys:
                keys[id(one.group)] = repr((vars(one.group.job), vars(one.group.cluster)))
            batch = batches.setdefault(keys[id(one.group)], (one.group.job, one.group.cluster, [], []))
            batch[2].append(one.plan)
            batch[3].append(len(kept))
        names.append((legal[0].hardware, legal[0].support))
        firsts.append((legal[0].estimate, legal[0].row))
        kept.append(run)
    columns = np.array(facts, dtype=np.float64).reshape(-1, 3).T
    made = tuple(Batch(job, cluster, _joined(plans), np.array(owner)) for job, cluster, plans, owner in batches.values())
    hardware, support = (tuple(n[k] for n in names) for k in (0, 1))
    return Prepared(tuple(kept), made, columns[0], columns[1], hardware, support, columns[2] > 0, tuple(firsts)), skipped


@dataclass(frozen=True)
class Answered:
    """One distinct question and what every run that asks it needs of the answer."""

    estimate: Estimate
    row: int
    group: Group
    at: int  # its position in the group
    plan: Plan
    hardware: str
    support: str
    ideal: float  # time at the peak, attention in full [s]
    least: float  # time at the peak, attention counted at half [s]
    fits: bool


class Answers:
    """The questions of many runs, each distinct one answered once: tables repeat their configurations."""

    def __init__(self, asked: Sequence[dict[str, Any]], folders: tuple[str, ...]) -> None:
        distinct: dict[str, int] = {}
        self.which = [distinct.setdefault(repr(sorted(options.items())), len(distinct)) for options in asked]
        first = {number: i for i, number in reversed(list(enumerate(self.which)))}
        self.answered, self.wrong = answer_many([asked[first[n]] for n in range(len(distinct))], folders)
        self.made: dict[int, Answered | IronlawError] = {}

    def legal(self, indices: Iterable[int]) -> list[Answered]:
        """The variants of a run whose plans are legal; raises why there is none where there is none."""
        found = [self._one(self.which[i]) for i in indices]
        legal = [one for one in found if isinstance(one, Answered)]
        if not legal:
            raise next(one for one in found if isinstance(one, IronlawError))
        return legal

    def _one(self, number: int) -> Answered | IronlawError:
        if number not in self.made:
            self.made[number] = self.wrong[number] if number in self.wrong else _answered(*self.answered[number])
        return self.made[number]


def _answered(estimate: Estimate, row: int) -> Answered | IronlawError:
    """The row of an Estimate, or the rules its plan breaks."""
    group, at = estimate.place_of(row)
    seconds = _at(group.step.tree.value, at)
    if not (bool(np.broadcast_to(group.legal, group.index.shape)[at]) and np.isfinite(seconds)):
        broken = rules.broken(group.job, group.plan, {n: np.broadcast_to(c, group.index.shape) for n, c in group.rules.items()}, at)
        return NoPlanError(f"no such plan: {', '.join(broken) or 'no finite step time'}")
    ideal, least = (seconds * _at(group.throughput[name].value, at) for name in ("mfu", "mfu_causal"))
    hardware = f"{group.cluster.accelerator.name} {group.job.precision.peak}"
    fits = bool(np.broadcast_to(group.memory.fits, group.index.shape)[at])
    return Answered(estimate, row, group, at, group.plan.take([at]), hardware, supports(group, at), ideal, least, fits)


def _facts(run: Run, one: Answered) -> tuple[float, float, bool]:
    """Measured step time, time at the peak, and whether the plan fits; refuses a rate above the roof."""
    measured = run.measured.step_seconds(one.group, one.at)
    if not 0 < measured <= LONGEST:
        raise NoPlanError(f"measured step of {measured:.3g} s, must be above 0 and at most {LONGEST:.0e} s")
    if one.least > measured:
        raise NoPlanError(f"measured rate above the roof of {one.hardware.replace(' ', ' in ')}")
    return measured, one.ideal, one.fits


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
