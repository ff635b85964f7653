"""Bind runs once and time them under many sets of constants, for fits and scores.

The functions that answer a question bind a run; ``estimate.step.step`` then times its step again under other constants. Plans of one
job on one cluster are one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ironlaw.catalog.records import Systems
from ironlaw.cluster import Cluster
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.bands import kind_of
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.table import answer_many
from ironlaw.estimate.legality import rules
from ironlaw.estimate.step.step import step
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.progress import steps
from ironlaw.validate.runs import Run, Skipped, short_reason

LONGEST = 1e6  # seconds; a longer step, of more than eleven days, is a typing error


@dataclass(frozen=True)
class Batch:
    """Legal plans of one job on one cluster, and the index of each plan's run."""

    job: Job
    cluster: Cluster
    plan: Plan
    owner: Any


@dataclass(frozen=True)
class Prepared:
    """Runs with a legal plan, their plans in batches, and for each run the measured step time and the time at the peak."""

    runs: tuple[Run, ...]
    batches: tuple[Batch, ...]
    measured: Any  # step time [s]
    ideal: Any  # model FLOPs, attention in full, over the named dense peak of all accelerators [s]
    hardware: tuple[str, ...]  # accelerator and precision of the peak
    support: tuple[str, ...]  # kind of run; see estimate.answer.bands.KINDS
    fits: Any  # whether the plan that ran is predicted to fit
    answers: tuple[tuple[Estimate, int], ...]  # an Estimate and its row

    @cached_property  # read once for each run
    def families(self) -> Any:
        """The family of every run."""
        return np.array([r.family for r in self.runs])

    @cached_property
    def counts(self) -> Any:
        """True for the runs of the headline: dense pre-training with a known plan."""
        return np.array([not r.apart for r in self.runs], dtype=bool)


class NoPlanError(IronlawError):
    """A published row whose plan is illegal, or whose rate is above the roof."""

    code = "no-plan"


def prepare(runs: Sequence[Run], folders: tuple[str, ...] = ()) -> tuple[Prepared, list[Skipped]]:
    """Bind every run; skip those without a legal plan or with a rate above the roof, with the reason."""
    answers = Answers([options for run in runs for options in run.asked], folders)
    usable: list[Run] = []
    skipped: list[Skipped] = []
    facts: list[tuple[float, float, bool]] = []
    names: list[tuple[str, str]] = []
    firsts: list[tuple[Estimate, int]] = []
    batches: dict[str, tuple[Job, Cluster, list[Plan], list[int]]] = {}
    keys: dict[int, str] = {}
    at = 0
    for run in steps(runs, "published runs"):
        variants = range(at, at + len(run.asked))
        at += len(run.asked)
        try:
            legal = answers.legal(variants)
            legal = near_fastest(legal) if run.among_micro_batches else legal
            facts.append(_measure(run, legal[0]))
        except IronlawError as error:
            skipped.append(Skipped(run.id, run.line, run.family, short_reason(str(error))))
            continue
        for answer in legal:
            if id(answer.group) not in keys:
                keys[id(answer.group)] = repr((vars(answer.group.job), vars(answer.group.cluster)))
            batch = batches.setdefault(keys[id(answer.group)], (answer.group.job, answer.group.cluster, [], []))
            batch[2].append(answer.plan)
            batch[3].append(len(usable))
        names.append((legal[0].hardware, legal[0].support))
        firsts.append((legal[0].estimate, legal[0].row))
        usable.append(run)
    columns = np.array(facts, dtype=np.float64).reshape(-1, 3).T
    prepared_batches = tuple(Batch(job, cluster, _concatenate(plans), np.array(owner)) for job, cluster, plans, owner in batches.values())
    hardware, support = (tuple(n[k] for n in names) for k in (0, 1))
    return Prepared(tuple(usable), prepared_batches, columns[0], columns[1], hardware, support, columns[2] > 0, tuple(firsts)), skipped


@dataclass(frozen=True)
class Answered:
    """A distinct question, and the part of its answer that runs need."""

    estimate: Estimate
    row: int
    group: Group
    at: int  # its position in the group
    plan: Plan
    hardware: str
    support: str
    ideal: float  # time at the peak, attention in full [s]
    least: float  # time at the peak, causal attention at half [s]
    fits: bool
    recomputed: float  # FLOPs with recomputation over those without
    seconds: float  # with the constants that ship


NEAR = 1.10  # a micro-batch that is slower by more than this is not what a measured run would have used


def near_fastest(answers: Sequence[Answered]) -> list[Answered]:
    """Of answers that differ in micro-batch (and chunks): for each number of chunks, those within 10 % of the fastest that fits.

    A run that does not state its micro-batch had a good one, not the best by our count. The members are chosen once, with the constants
    that ship, so that the fit of the constants sees no jump.
    """
    kept: list[Answered] = []
    for chunks in dict.fromkeys(float(np.ravel(a.plan.vpp)[0]) for a in answers):
        group = [a for a in answers if float(np.ravel(a.plan.vpp)[0]) == chunks]
        fitting = [a for a in group if a.fits] or group
        kept += [a for a in fitting if a.seconds <= NEAR * min(b.seconds for b in fitting)]
    return kept


class Answers:
    """Answers to the questions of many runs; equal questions are answered once, because tables repeat configurations."""

    def __init__(self, questions: Sequence[dict[str, Any]], folders: tuple[str, ...]) -> None:
        distinct: dict[str, int] = {}
        self.which = [distinct.setdefault(repr(sorted(options.items())), len(distinct)) for options in questions]
        first = {number: i for i, number in reversed(list(enumerate(self.which)))}
        self.answered, self.wrong = answer_many([questions[first[n]] for n in range(len(distinct))], folders)
        self.by_number: dict[int, Answered | IronlawError] = {}

    def legal(self, indices: Iterable[int]) -> list[Answered]:
        """The variants of a run with a legal plan. Raises the reason if there is none."""
        answers = [self._answer(self.which[i]) for i in indices]
        legal = [answer for answer in answers if isinstance(answer, Answered)]
        if not legal:
            raise next(answer for answer in answers if isinstance(answer, IronlawError))
        return legal

    def _answer(self, number: int) -> Answered | IronlawError:
        if number not in self.by_number:
            self.by_number[number] = self.wrong[number] if number in self.wrong else _read_answer(*self.answered[number])
        return self.by_number[number]


def _read_answer(estimate: Estimate, row: int) -> Answered | IronlawError:
    """The row of an Estimate, or an error with the rules that its plan breaks."""
    group, at = estimate.place_of(row)
    seconds = _at(group.step.tree.value, at)
    if not (bool(np.broadcast_to(group.legal, group.index.shape)[at]) and np.isfinite(seconds)):
        broken = rules.broken(group.job, group.plan, {n: np.broadcast_to(c, group.index.shape) for n, c in group.rules.items()}, at)
        return NoPlanError(f"no such plan: {', '.join(broken) or 'no finite step time'}")
    ideal, least, worked = (seconds * _at(group.throughput[name].value, at) for name in ("mfu_full_square", "mfu", "hfu"))
    hardware = f"{group.cluster.accelerator.name} {group.job.precision.peak}"
    fits = bool(np.broadcast_to(group.memory.fits, group.index.shape)[at])
    return Answered(
        estimate, row, group, at, group.plan.take([at]), hardware, kind_of(group, at), ideal, least, fits, worked / least, float(seconds)
    )


def _measure(run: Run, answer: Answered) -> tuple[float, float, bool]:
    """Measured step time, time at the peak, and whether the plan fits. Raises NoPlanError for a rate above the roof."""
    measured = run.measured.step_seconds(answer.group, answer.at)
    if not 0 < measured <= LONGEST:
        raise NoPlanError(f"measured step of {measured:.3g} s, must be above 0 and at most {LONGEST:.0e} s")
    computed = answer.recomputed if run.cells.get("recompute") else 1.0
    if answer.least * computed > measured:
        raise NoPlanError(f"measured rate above the roof of {answer.hardware.replace(' ', ' in ')}")
    return measured, answer.ideal, answer.fits


def _at(column: Any, index: int) -> float:
    """A row of a column, which may be one value for all rows."""
    flat = np.ravel(column)
    return float(flat[index if flat.size > 1 else 0])


def _concatenate(plans: Sequence[Plan]) -> Plan:
    """Plans of one row each as one plan of columns."""
    return Plan(**{name: np.concatenate([np.ravel(getattr(p, name)) for p in plans]) for name in Plan.fields})


def times(prepared: Prepared, systems: Systems | None = None) -> Any:
    """Predicted step time of every run [s], the geometric mean over its variants, with ``systems`` or the constants that ship."""
    logs, count = np.zeros(len(prepared.runs)), np.zeros(len(prepared.runs))
    for b in prepared.batches:
        cluster = b.cluster if systems is None else b.cluster.replace(systems=systems)
        with np.errstate(all="ignore"):
            value = np.broadcast_to(step(b.job, cluster, b.plan).tree.value, b.owner.shape)
        np.add.at(logs, b.owner, np.log(value))
        np.add.at(count, b.owner, 1.0)
    return np.exp(logs / count)
