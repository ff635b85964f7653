"""The run of a question on elastic: its best plan, its counts, its failures and its price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import QuestionError
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.bind.failures import FailureRates, bind_failures
from ironlaw.estimate.bind.money import price_if_known
from ironlaw.estimate.bind.question import bind_question, with_batch
from ironlaw.estimate.planner.space import VARIANTS
from ironlaw.estimate.step.failures import Failures, failures_of, saved_by
from ironlaw.estimate.what_if.node_loss import KEPT, Counts, Used, counts_to_try, ranks_left
from ironlaw.question.asked import asked_of
from ironlaw.question.assumptions import Assumptions
from ironlaw.question.defaults import NEAR_BATCH, batches
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.questions.asked_run import estimate_plan
from ironlaw.questions.plan_words import describe_plan
from ironlaw.terms import scalar

MONTH = 30 * 86400.0  # of useful time, where the question has no tokens
MOST_RANKS = 64  # numbers of data-parallel ranks that are tried for a plan whose parallel sizes are kept


@dataclass(eq=False, repr=False)
class Base:
    """The run with all its accelerators, and the best plans of smaller counts."""

    group: Group
    counts: Counts  # of any plan
    kept: Counts  # of plans with the parallel sizes of the best one
    rates: FailureRates
    price: Sourced
    scale: bool  # the batch shrinks with the accelerators
    assumptions: Assumptions
    table: list[Used] = field(default_factory=list)  # of every count that is faster than all smaller ones

    @property
    def gpus(self) -> float:
        """Accelerators."""
        return scalar(self.group.plan.gpus)

    @property
    def batch(self) -> float:
        """Sequences of a step."""
        return scalar(self.group.plan.global_batch_size)

    @property
    def rate(self) -> float:
        """Tokens per second without failures."""
        return scalar(self.group.throughput["tokens_per_second"])

    @property
    def node(self) -> float:
        """Accelerators of a node, or all where they are fewer."""
        return min(float(self.group.cluster.node.accelerators.value), self.gpus)

    @property
    def tokens(self) -> float | None:
        """Tokens of the run; None where the question gives none."""
        return None if self.group.run is None else self.group.run.tokens

    def batch_of(self, gpus: float) -> float:
        """Sequences of a step on a smaller count."""
        if not self.scale or gpus == self.gpus:
            return self.batch
        usual = max(self.batch * gpus / self.gpus, 1.0)
        return batches(gpus, usual, (1.0 - NEAR_BATCH) * usual, (1.0 + NEAR_BATCH) * usual)[0]

    def tabulate(self, lefts: list[float]) -> None:
        """Search the plans of the counts that may be used where so many accelerators are left."""
        node = self.group.cluster.node
        tried = {float(int(left)) for left in lefts if left >= 1.0}
        for left in lefts:
            tried |= set(counts_to_try(node, left, self.batch))
            kept = self.keep_sizes(left)
            tried |= {kept.gpus} if kept else set()
        self.table = self.counts.useful([n for n in sorted(tried) if 1.0 <= n < self.gpus], self.batch_of)

    def best(self, left: float) -> Used | None:
        """The fastest plan on at most so many accelerators, of those tabulated; None where no plan fits."""
        return next((used for used in reversed(self.table) if used.gpus <= left), None)

    def keep_sizes(self, left: float) -> Used | None:
        """The plan with the best plan's parallel sizes on as many data-parallel ranks as are whole; None where none is legal and fits."""
        plan = self.group.plan
        ranks = scalar(plan.dp)
        of_rank = self.gpus / ranks
        most = int(ranks_left(ranks, self.gpus, self.gpus - left))
        for count in range(most, max(most - MOST_RANKS, 0), -1):
            batch = self.batch * count / ranks if self.scale else self.batch
            if batch % (count * scalar(plan.micro_batch_size)) or batch != int(batch):
                continue
            used = self.kept.best(self.kept.row._replace(gpus=of_rank * count, global_batch_size=batch))
            if used is not None:
                return used
        return None

    def same_sizes(self, used: Used) -> bool:
        """True where a plan has the parallel sizes of the best plan of all accelerators."""
        plan = self.group.plan
        return all((getattr(used.choice.row, axis) or 1.0) == scalar(getattr(plan, axis)) for axis in KEPT if axis != "micro_batch_size")

    def failures(self, group: Group) -> Failures:
        """The run with failures by a plan; a month of it where the question has no tokens."""
        if group.run is not None:
            return group.run.failures
        steps = MONTH / scalar(group.step.tree)
        return failures_of(self.rates, scalar(group.plan.gpus), MONTH, steps, saved_by(group.job))

    def words(self, group: Group) -> str:
        """A plan as text."""
        return describe_plan(Estimate((group,), 1, group.folders))


def bind_base(values: Mapping[str, Any], folders: tuple[str, ...]) -> Base:
    """The run with all accelerators, as ``estimate`` answers it, and what the smaller runs need."""
    for name in ("dp_replicate", "dp_shard"):
        if name in values:
            flag = name.replace("_", "-")
            raise QuestionError(f"--{flag} fixes the number of accelerators, and fewer are asked about: leave --{flag} out")
    group = estimate_plan(values, folders)
    bound = with_batch(bind_question(asked_of({k: v for k, v in values.items() if k in ESTIMATE}), folders))
    bound = bound.replace(asked=bound.asked.replace(global_batch_tokens=None))  # the batch of a row holds
    row, plan = bound.asked.rows[0], group.plan
    fixed = {axis: scalar(getattr(plan, axis)) for axis in KEPT}
    fixed |= {axis: value for axis, value in group.variant.items() if axis in VARIANTS and value is not None}
    notes: Assumptions = []
    rates = bind_failures(bound.asked, group.cluster, notes)
    price = price_if_known(bound.asked.price, group.cluster, folders, notes)
    known = {item["name"] for item in group.assumptions}
    assumptions = [*group.assumptions, *(item for item in notes if item["name"] not in known)]
    return Base(group, Counts(bound, row), Counts(bound, row, fixed), rates, price, values.get("batch") == "scale", assumptions)
