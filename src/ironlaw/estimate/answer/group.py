"""The rows of a question that share a job: their plans, memory, step and rates, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ironlaw.cautions.record import Caution
from ironlaw.cluster import Cluster
from ironlaw.estimate.legality import rules as rule_module
from ironlaw.estimate.memory.errors import likely_to_fit, margin_of
from ironlaw.estimate.memory.total import Memory
from ironlaw.estimate.planner.choose import Faster
from ironlaw.estimate.planner.remedies import Remedies
from ironlaw.estimate.step.step import Step
from ironlaw.estimate.step.waterfall import waterfall
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.question.asked import Asked
from ironlaw.question.assumptions import Assumptions
from ironlaw.terms import BOUNDS, Term, shares

if TYPE_CHECKING:
    from ironlaw.estimate.evidence.correction import Level
    from ironlaw.estimate.step.run import Run


class Group(Frozen):
    """The rows of a question that share a job, evaluated as one batch."""

    index: Any  # positions of these rows in the question
    job: Job
    cluster: Cluster
    plan: Plan
    recompute: tuple[str, ...]
    chosen: tuple[tuple[str, ...], ...]
    variant: Mapping[str, Any]  # options that were chosen for the job
    tight: tuple[bool, ...]  # no plan keeps the margin of memory free, so one was chosen that does not
    remedies: tuple[Remedies, ...]  # batches and numbers of accelerators that are much faster
    faster: tuple[Faster | None, ...]  # the fastest plan, where another was preferred for its evidence
    rules: Mapping[str, Any]
    memory: Memory
    step: Step
    throughput: Mapping[str, Term]
    assumptions: Assumptions
    run: Run | None = None
    warnings: tuple[Caution, ...] = ()
    folders: tuple[str, ...] = ()
    level: Level | None = None  # what own runs say of these rows
    asked: Asked | None = None

    @cached_property
    def shares(self) -> Mapping[str, Any]:
        """Exclusive parts of the step by roof; they sum to 1."""
        booked = shares(self.step.tree)
        return {name: booked[name] / self.step.tree.value for name in BOUNDS}

    @cached_property
    def waterfall(self) -> Mapping[str, Any]:
        """Losses from the peak down to the MFU, and the MFU: shares of the step that add up to 1."""
        mfu = self.throughput["mfu"].value
        peak = self.cluster.accelerator.peak[self.job.precision.peak].value
        return {**waterfall(self.step.tree, self.shares, peak, mfu), "mfu": mfu}

    @property
    def margin(self) -> float:
        """The share of device memory that a plan must leave free to be called best."""
        return margin_of(self.cluster, self.job.framework.name, self.folders)

    @cached_property
    def likely(self) -> Term | None:
        """How likely each row fits its device, by the errors of published runs."""
        return likely_to_fit(self.memory, self.cluster, self.job.framework.name, self.folders)

    @cached_property
    def legal(self) -> Any:
        """True where every rule but ``fits`` holds."""
        return rule_module.legal(dict(self.rules))
