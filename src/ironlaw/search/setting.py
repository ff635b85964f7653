"""A setting: one kind and number of accelerators, run one way; its search tasks, their results, and the cost of its plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ironlaw.estimate.bind.batch import assume_batch, objective_of_several
from ironlaw.estimate.bind.money import bind_price
from ironlaw.estimate.bind.question import Bound, bind_question, framework_of, note_framework, with_batch
from ironlaw.estimate.documents.columns import real_tokens
from ironlaw.estimate.evidence.distance import positions
from ironlaw.estimate.planner.choose import Bounds, Choice, bind_variant, choose
from ironlaw.estimate.planner.evidence import preferred_plan
from ironlaw.estimate.planner.grid import Task
from ironlaw.estimate.planner.possible import any_legal
from ironlaw.estimate.planner.rows import columns_of, given_space, is_given, row_of_space
from ironlaw.estimate.planner.space import VARIANTS, Space
from ironlaw.estimate.planner.tasks import offered, task_of, usable_space, variants_of
from ironlaw.estimate.step.run import Run, run_of
from ironlaw.estimate.what_if.sizing import round_counts
from ironlaw.job import Job
from ironlaw.plan import Plan, plan_with
from ironlaw.question import defaults
from ironlaw.question.asked import with_options
from ironlaw.question.assumptions import Assumptions
from ironlaw.question.defaults import OFFLOADS, OVERLAPS
from ironlaw.question.fields import Row
from ironlaw.search.question import Question
from ironlaw.search.sweep import preferred_plans, sweep
from ironlaw.terms import plain

# axes of the space that ships whose values all listed plans share: those of the best plan, which is found in the whole space
PLANNED = ("schedule", "moe_dispatcher", "overlap_ep")
OF_EXPERTS = ("moe_dispatcher", "overlap_ep")  # of these, what a dense model does not have
FORWARD_SHARE = 1.0 / 3.0  # of a step: the cost of an evaluation when plans are ranked; an estimate has the share of its plan


@dataclass(eq=False, repr=False)
class Setting:
    """``gpus`` accelerators of one kind, run one way. Swept once, then read many times."""

    question: Question
    base: Bound
    gpus: float
    variant: dict[str, Any]
    swept: Any = None  # its Sweep, or None where the search has not reached it
    planned: dict[str, Any] | None = None  # values of PLANNED axes, which all its plans have; None: to be found
    found: float = np.inf  # step time of its best plan, where it was found without a sweep
    seldom: bool = False  # with what few people run on the framework: where nothing else fits, and the question names none

    def __post_init__(self) -> None:
        """Refuse to rank by cost without a price; other objectives need none."""
        if self.question.minimize == "cost" or self.question.budget is not None:
            bind_price(self.base.asked.price, self.base.cluster, self.base.folders, [])

    @property
    def opened(self) -> Bound:
        """The bound question with its batch open again, where the question gives none."""
        asked = self.question.asked
        given = asked.rows[0].global_batch_size is not None or asked.global_batch_tokens is not None
        return with_row(self.base, self.gpus, self.batch if given else None)

    @cached_property
    def bound(self) -> Bound:
        """The bound question of its plans: with the values of PLANNED axes that the best plan has."""
        if self.planned is None:
            self.planned = self._plan()
        options = {name: value for name, value in self.planned.items() if name in VARIANTS and value is not None}
        return bind_variant(self.base, options) if options else self.base

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells the settings of a question apart."""
        return (self.base.cluster.accelerator.name, self.gpus, *self.variant.items())

    @property
    def place(self) -> tuple[Any, ...]:
        """What settings have in common whose plans are plans of one job: an estimate searches them together."""
        return (self.base.cluster.accelerator.name, self.gpus, self.framework, self.batch)

    def _plan(self) -> dict[str, Any]:
        """The values that the best plan has of the axes that the listed plans share, found without timing every plan."""
        space, bound = self._offered, self.base
        open_axes = [axis for axis in PLANNED if space.varies(axis) and axis not in space.given]
        varied = [axis for axis in open_axes if bound.model.num_experts or axis not in OF_EXPERTS]
        row = row_of_space(space, bound.asked.rows[0]._replace(gpus=self.gpus), bound.asked.schedule)
        if space.own or not varied or is_given(row, bound.model):
            return {}
        options = variants_of(space.only(PLANNED), self.seq_len)
        bounds = [bind_variant(bound, option) for option in options]
        usable = [usable_space(space, own, self.gpus, self.seq_len) for own in bounds]
        tasks: list[Task] = []
        for space_of_job, own in zip(usable, bounds, strict=True):
            tasks.append(task_of(space_of_job, own, own.job(self.framework), self.sizes, tasks))
        found = preferred_plan(tasks) if any(any_legal(task) for task in tasks) else None
        if found is None:
            return {}
        best = found.best
        return {**options[best.task], **{name: column[0] for name, column in best.plan.columns.items() if name in varied}}

    @cached_property
    def _offered(self) -> Space:
        """The question's space without what the framework, the model or the device does not have."""
        job = self.base.job(self.framework)
        return offered(given_space(self.question.space, self.base, job, self.gpus), self.base, job, self.seldom)

    @property
    def on(self) -> str:
        """The accelerator's name."""
        return self.bound.cluster.accelerator.name

    @cached_property
    def job(self) -> Job:
        """The job of every plan of the setting."""
        return self.bound.job(self.framework)

    @property
    def framework(self) -> str:
        """The name of the framework that runs every plan of the setting."""
        return framework_of(self.base, fixed_row(self.base.asked.rows[0], self.question.space, self.gpus))

    @property
    def assumptions(self) -> Assumptions:
        """The assumptions of the bound question, its batch, and the framework that its rule gives."""
        notes = list(self.bound.assumptions)
        assume_batch(notes, self.bound, [self.batch])
        note_framework(notes, self.base, self.framework)
        return notes

    @property
    def batch(self) -> float:
        """Sequences of a step."""
        return self.base.asked.rows[0].global_batch_size or 0.0

    @property
    def seq_len(self) -> float:
        """Tokens of a sequence."""
        return self.base.asked.rows[0].seq_len or 0.0

    @property
    def best(self) -> float:
        """Step time of the best plan (``planner.evidence``) that keeps memory free, else that fits; infinity where none does."""
        if self.swept is None:
            return self.found
        if self.swept.rows < self.swept.task.mesh.rows or not np.isfinite(self.swept.seconds.min(initial=np.inf)):
            return float(self.swept.seconds.min(initial=np.inf))
        if "best" not in self.swept.memo:
            self.swept.memo["best"] = float(preferred_plans(self.swept, 1).seconds[0])
        return float(self.swept.memo["best"])

    @property
    def leanest(self) -> float:
        """Bytes of the legal plan that needs least memory; infinity where none is legal."""
        return self.swept.leanest() if self.swept else np.inf

    def task(self) -> Task:
        """The job of the setting with its legal mesh rows."""
        return task_of(self.space, self.bound, self.job, self.sizes)

    @property
    def sizes(self) -> dict[str, float]:
        """Accelerators, batch and sequence length."""
        return {"gpus": self.gpus, "global_batch_size": self.batch, "seq_len": self.seq_len}

    def run(self, go_on: Callable[[int], bool]) -> bool:
        """Sweep the setting; False where ``go_on`` stopped it."""
        task = self.task()
        if task.mesh.rows and not go_on(0):
            return False
        self.swept = sweep(task, go_on)
        whole = bool(self.swept.rows == task.mesh.rows)
        if whole and np.isinf(self.best) and not (self.seldom or self.base.asked.framework):
            self.seldom, self.planned = True, None
            for name in ("bound", "_offered", "job", "space"):
                self.__dict__.pop(name, None)
            return self.run(go_on)
        return whole

    def objectives(self, seconds: Any) -> dict[str, Any]:
        """Run time, cost, energy, carbon and rate of plans from their step times; of one step where no tokens are given."""
        times = np.asarray(seconds, dtype=np.float64) * self.level
        run, failing = self._bind_run(times), self.question.failures and self.bound.asked.tokens is not None
        usd, joules, carbon, whole = run.usd, run.joules, run.kg_co2e, run.seconds
        if failing:
            usd, joules, carbon, whole = run.usd_with_failures, run.joules_with_failures, run.kg_co2e_with_failures, run.failures.seconds
        columns = {
            "time": whole.value,
            "cost": usd.value,
            "energy": joules.value,
            "carbon": carbon.value,
            "gpus": self.gpus,
            "rate": self.batch * self.real_tokens / times,
        }
        return {name: np.broadcast_to(np.where(np.isnan(c), np.inf, c), times.shape) for name, c in columns.items()}

    @cached_property
    def level(self) -> float:
        """What own runs say of the step of every plan of the setting, as a factor."""
        if self.bound.correction is None:
            return 1.0
        where = positions(self.job, self.bound.cluster, self._plan_of(1.0), "framework" in self.bound.asked.given)
        return float(np.ravel(self.bound.correction.level(where).factor)[0])

    @cached_property
    def real_tokens(self) -> float:
        """Mean tokens of documents in a sequence."""
        return float(np.ravel(real_tokens(self.job, self._plan_of(1.0)))[0])

    def _plan_of(self, ones: Any) -> Plan:
        """The sizes of the setting as a plan of as many rows as ``ones`` has."""
        return plan_with(gpus=self.gpus * ones, global_batch_size=np.float64(self.batch), seq_len=np.float64(self.seq_len))

    def _bind_run(self, seconds: Any) -> Run:
        """The whole training run of plans with these step times."""
        asked = self.bound.asked
        bound = self.bound.replace(asked=asked.replace(tokens=asked.tokens or self.batch * self.real_tokens))
        ones = np.ones_like(seconds)
        plan = self._plan_of(ones)
        with np.errstate(all="ignore"):
            return run_of(bound, self.job, plan, seconds, FORWARD_SHARE * ones)

    @cached_property
    def space(self) -> Space:
        """The question's space without the values that this job or accelerator cannot have."""
        bound = self.bound
        fixed = {name: value for name, value in (self.planned or {}).items() if name not in VARIANTS}
        return usable_space(self._offered.narrowed(fixed), bound, self.gpus, self.seq_len)

    @cached_property
    def capacity(self) -> float:
        """Bytes a job may use of one accelerator."""
        return self.bound.cluster.accelerator.usable_memory

    @property
    def node(self) -> float:
        """Accelerators of a node."""
        return float(plain(self.bound.cluster.node.accelerators))


def bounds_of(question: Question, folders: tuple[str, ...]) -> Iterator[tuple[Bound, dict[str, Any]]]:
    """The bound question of every accelerator and variant; its row has no count yet, and no batch where the question gives none."""
    space = question.space if question.space.own else question.space.without(PLANNED)
    variants = variants_of(space, question.asked.rows[0].seq_len or 0.0)
    several = {axis for axis in variants[0] if len({variant[axis] for variant in variants}) > 1}
    frameworks = {str(variant.get("framework") or "") for variant in variants}
    shared = {} if question.asked.objective else objective_of_several(frameworks, folders)
    for on in question.on:
        for variant in variants:
            options = {**shared, **variant, "on": on} | ({} if question.prices is None else {"price": question.prices.get(on)})
            bound = with_batch(bind_question(with_options(question.asked, options), folders, with_run=True))
            yield bound, {axis: v for axis, v in variant.items() if axis in several}


def fixed_row(row: Row, space: Space, gpus: float) -> Row:
    """The row of a question with what a space fixes: it decides on the framework, as what an estimate gives does."""
    alone = {n: v[0] for n, v in space.values.items() if n in space.given and isinstance(v, tuple) and len(v) == 1}
    fixed = {n: v for n, v in alone.items() if n in Row._fields}
    for axis in ("overlap", "offload"):  # one column for each name
        columns = columns_of(axis)
        if all(column in alone for column in columns):
            names = OVERLAPS if axis == "overlap" else OFFLOADS
            fixed[axis] = frozenset(name for name, column in zip(names, columns, strict=True) if alone[column])
    return row._replace(**{**fixed, "gpus": gpus, "tp": space.fixed("tp"), "pp": space.fixed("pp") or row.pp})


def choice_of(bound: Bound, question: Question, gpus: float) -> Choice:
    """The plan of an estimate on a number of accelerators in the question's space, with its batch."""
    row = bound.asked.rows[0]._replace(gpus=gpus)
    placed = row_of_space(question.space, row, bound.asked.schedule)
    if not is_given(placed, bound.model):
        placed = fixed_row(row, question.space, gpus)
    return choose(bound, placed, question.space, Bounds())


def on_count(setting: Setting, gpus: float) -> Setting:
    """A setting on another number of accelerators, with the batch of an estimate where the question gives none; not swept."""
    bound = setting.opened
    if bound.asked.rows[0].global_batch_size is None:
        bound = with_row(bound, gpus, choice_of(bound, setting.question, gpus).row.global_batch_size)
    return Setting(setting.question, bound, gpus, setting.variant)


def with_row(bound: Bound, gpus: float, batch: float | None) -> Bound:
    """A bound question of one row with a number of accelerators and a batch."""
    return bound.replace(asked=bound.asked.replace(rows=(bound.asked.rows[0]._replace(gpus=gpus, global_batch_size=batch),)))


def counts_of(question: Question, bound: Bound) -> list[float]:
    """How many accelerators to try: those listed; of a range the round numbers (``estimate.what_if.sizing``) and its given ends."""
    most = (question.quota or {}).get(bound.asked.on, np.inf)
    if question.gpus[-1] != "range":
        return [n for n in question.gpus if n <= most]
    low, high = question.gpus[0], min(question.gpus[1], most)
    ends = {low, high} - set(defaults.COUNTS)
    return sorted(n for n in {*round_counts(int(plain(bound.cluster.node.accelerators)), low, high), *ends} if low <= n <= high)
