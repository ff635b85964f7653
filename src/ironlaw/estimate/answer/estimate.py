"""The answer to one question: columns, trees, and what a report needs of a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.sourced import READING, Reading, watch_sources
from ironlaw.cautions.table import caution
from ironlaw.errors import UnknownNameError
from ironlaw.estimate.answer.cautions import cautions, remedy_lines, seldom_lines
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.bind.batch import assume_batch
from ironlaw.estimate.bind.model import with_tokens
from ironlaw.estimate.bind.question import Bound, bind_question, note_framework, with_batch
from ironlaw.estimate.evidence.distance import positions
from ironlaw.estimate.legality import rules as rule_module
from ironlaw.estimate.memory.total import memory
from ironlaw.estimate.planner.place import Placed, place
from ironlaw.estimate.step.rates import below_peak, throughput
from ironlaw.estimate.step.step import step
from ironlaw.frozen import Frozen
from ironlaw.question.asked import Asked, asked_of, require
from ironlaw.question.assumptions import assume
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import read_options
from ironlaw.shown import Columns, Shown
from ironlaw.terms import Term, scalar, total

if TYPE_CHECKING:
    from ironlaw.catalog.citations import Citations


class Estimate(Shown, Columns, Frozen):
    """All rows of a question. Columns are in the order asked; ``row(i)`` is one answer as plain data.

    ``len()`` is the number of rows. ``answer[2]``, ``answer[:3]`` and a loop give estimates of some rows; ``answer["mfu"]`` is a column.
    """

    groups: tuple[Group, ...]
    rows: int
    folders: tuple[str, ...]
    asked: Asked | None = None  # the question, with what it leaves open
    taken: tuple[int, ...] | None = None  # the rows of the groups that this estimate has; None: all

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[Estimate]:
        return (self[index] for index in range(self.rows))

    def __getitem__(self, at: Any) -> Any:
        """The estimate of a row or of a slice of rows; with a name, the column of that name."""
        if isinstance(at, str):
            columns = self.to_columns()
            if at not in columns:
                raise UnknownNameError("column", at, columns)
            return columns[at]
        numbers = self.taken if self.taken is not None else range(self.rows)
        if not isinstance(at, slice) and not -self.rows <= at < self.rows:
            raise IndexError(f"row {at} of an estimate of {self.rows} {'row' if self.rows == 1 else 'rows'}")
        taken = tuple(numbers[at]) if isinstance(at, slice) else (numbers[at],)
        return self.replace(rows=len(taken), taken=taken)

    def _gather_column(self, read: Any) -> Any:
        """One column over all rows, from ``read(group)`` of every group."""
        values = [np.broadcast_to(read(g), g.index.shape) for g in self.groups]
        out = np.empty(sum(g.index.size for g in self.groups), dtype=np.result_type(*(v.dtype for v in values)))
        for g, v in zip(self.groups, values, strict=True):
            out[g.index] = v
        return out if self.taken is None else out[list(self.taken)]

    def to_columns(self) -> dict[str, list[Any]]:
        """The table of the answer by column: question, plan, memory, step, rates, run; None where a row has no value."""
        from ironlaw.estimate.answer.columns import rows_by_column

        return rows_by_column(self.place_of(index) for index in range(self.rows))

    def column_units(self) -> dict[str, str]:
        """The unit of every column; "" for texts and pure numbers."""
        from ironlaw.estimate.answer.columns import UNITS

        return {name: UNITS.get(name, "") for name in self.to_columns()}

    @property
    def step_seconds(self) -> Any:
        """Step time of every row [s]; nan where the plan is not legal."""
        return self._gather_column(lambda g: np.where(g.legal, g.step.tree.value, np.nan))

    @property
    def device_bytes(self) -> Any:
        """Memory of the fullest accelerator of every row [B]."""
        return self._gather_column(lambda g: np.where(g.legal, g.memory.device, np.nan))

    @property
    def allocated_bytes(self) -> Any:
        """Tensors of the fullest accelerator of every row [B]."""
        return self._gather_column(lambda g: np.where(g.legal, g.memory.allocated, np.nan))

    @property
    def fits(self) -> Any:
        """True where the plan is legal and its fullest accelerator has enough memory."""
        return self._gather_column(lambda g: g.legal & g.memory.fits)

    @property
    def legal(self) -> Any:
        """True where the plan is legal: every rule but ``fits`` holds."""
        return self._gather_column(lambda g: g.legal)

    @property
    def mfu(self) -> Any:
        """Model FLOPs over peak, attention counted as the full square."""
        return self._gather_column(lambda g: np.where(g.legal, g.throughput["mfu"].value, np.nan))

    @property
    def tokens_per_second(self) -> Any:
        """Tokens of the whole cluster per second."""
        return self._gather_column(lambda g: np.where(g.legal, g.throughput["tokens_per_second"].value, np.nan))

    def place_of(self, row: int) -> tuple[Group, int]:
        """The group a row is in, and its position there."""
        if self.taken is not None:
            row = self.taken[row]
        for group in self.groups:
            where = np.flatnonzero(group.index == row)
            if where.size:
                return group, int(where[0])
        raise IndexError(row)

    def row(self, index: int = 0, explain: bool = False) -> dict[str, Any]:
        """One row as the JSON object of the contract; ``explain`` adds formula, inputs and sources to every node."""
        from ironlaw.estimate.answer.as_data import row_data

        return row_data(*self.place_of(index), explain)

    def timeline(self, index: int = 0) -> dict[str, Any] | None:
        """The passes of one step of a row: seconds of every stage and chunk of its pipeline, and when each pass runs."""
        from ironlaw.estimate.step.timeline import timeline_data

        return timeline_data(*self.place_of(index))

    def again(self, asked: Asked) -> Estimate:
        """The same plans under options that change only the run: tokens, money, failures. No step is computed."""
        groups = tuple(with_run(g, with_batch(bind_question(asked.replace(**g.variant), self.folders))) for g in self.groups)
        return self.replace(groups=groups)

    def citations(self) -> Citations:
        """The sources that this answer used: of values that were read, and the literature of its laws. As text they are BibTeX.

        The plan of every row is evaluated once more while values of the catalogue note that they are read, so that an answer pays for
        its citations only when they are asked for, and a value that only another plan needs is not among them.
        """
        from ironlaw.catalog.citations import cite
        from ironlaw.estimate.answer.citations import laws_of

        with watch_sources(reading := Reading()):
            terms = self.evaluate_again()
        return cite(reading.sources, laws_of(terms))

    def evaluate_again(self) -> list[Term]:
        """Evaluate the plans of all rows once more, from records that are read anew where sources are watched; the terms."""
        from ironlaw.estimate.answer.as_data import row_data, trees_of

        places = [self.place_of(row) for row in range(self.rows)]
        terms: list[Term] = []
        for group in dict.fromkeys(group for group, _ in places):
            rows = [at for other, at in places if other is group]
            again = evaluate_plans(group, rows, self.folders)
            alone = Estimate((again,), len(rows), self.folders, self.asked)
            for at in range(len(rows)):
                row_data(*alone.place_of(at))
            terms += trees_of(again)
        return terms

    def to_dict(self, explain: bool = False) -> Any:
        """The answer as plain data, as ``--json`` prints it: one object, or a list where the question had many rows."""
        return self.row(0, explain) if self.rows == 1 else [self.row(i, explain) for i in range(self.rows)]


def estimate(model: Any = None, on: str | None = None, *, catalog: Sequence[str] | str = (), where: str = "", **options: Any) -> Estimate:
    """Estimate one training run, or many at once: ``estimate("llama-3-70b", on="h100-sxm", gpus=512)``.

    Options have the names of the command line with underscores; options marked as columns in ``options.OPTIONS`` take arrays,
    which broadcast together into rows. ``catalog`` names folders that override the catalogue that ships.
    Raises QuestionError for a question without an answer; an illegal plan is False in ``legal`` and nan in the columns.
    """
    folders = load.given_folders(catalog)
    asked = {k: v for k, v in {"model": model, "on": on, **options}.items() if v is not None}
    return answer(read_options(asked, where), folders)


def answer(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Estimate:
    """The Estimate of options that ``read_options`` has checked."""
    ordered = {name: options[name] for name in (*OPTIONS, *options) if name in options}  # an answer does not depend on the order of options
    return answer_asked(asked_of(with_tokens(ordered, folders)), folders)


def answer_asked(asked: Asked, folders: tuple[str, ...] = ()) -> Estimate:
    """The Estimate of a question. Where sources are watched, those that only the choice of a plan reads are not noted."""
    if READING.get() is not None:
        with watch_sources(None):
            chosen = answer_asked(asked, folders)
        return chosen.replace(
            groups=tuple(evaluate_plans(g, range(g.plan.rows), chosen.folders).replace(index=g.index) for g in chosen.groups)
        )
    require(asked, "model", "on", "gpus")
    bound = with_batch(bind_question(asked, folders))
    return Estimate(tuple(evaluate(placed) for placed in place(bound)), len(asked.rows), bound.folders, asked)


def evaluate(placed: Placed) -> Group:
    """Memory, step, rates and run of the rows that share a job, as one batch."""
    bound = placed.bound
    job, plan, cluster = bound.job(placed.framework), placed.plan, bound.cluster
    rules = {name: np.broadcast_to(column, (plan.rows,)) for name, column in rule_module.legality(job, plan).items()}
    with np.errstate(all="ignore"):
        needed = memory(job, cluster, plan)
        timed = step(job, cluster, plan)
    level = None
    if bound.correction is not None:  # scale every part of the step by what the user's runs say of each row
        level = bound.correction.level(positions(job, cluster, plan, "framework" in bound.asked.given))
        timed = timed.replace(tree=total("step", timed.tree.parts, times=level.factor))
    with np.errstate(all="ignore"):
        rates = throughput(job, cluster, plan, timed)
    group = Group(
        index=placed.index,
        job=job,
        cluster=cluster,
        plan=plan,
        recompute=placed.recompute,
        chosen=placed.chosen,
        variant=placed.variant,
        tight=placed.tight,
        remedies=placed.remedies,
        faster=placed.faster,
        rules={**rules, "below_peak": below_peak(job, cluster, rates["mfu"].value), "fits": needed.fits},
        memory=needed,
        step=timed,
        throughput=rates,
        assumptions=[],
        folders=bound.folders,
        level=level,
    )
    return with_run(group, bound)


def evaluate_plans(group: Group, rows: Sequence[int], folders: tuple[str, ...]) -> Group:
    """Some rows of a group, evaluated again with the plans they have."""
    assert group.asked is not None
    own = ("recompute", "chosen", "tight", "remedies", "faster")
    return evaluate(
        Placed(
            bound=with_batch(bind_question(group.asked.replace(**group.variant), folders)),
            framework=group.job.framework.name,
            variant=dict(group.variant),
            plan=group.plan.take(list(rows)),
            index=np.arange(len(rows)),
            **{name: tuple(getattr(group, name)[at] for at in rows) for name in own},
        )
    )


def with_run(group: Group, bound: Bound) -> Group:
    """Attach run costs, assumptions and warnings to a group. Recomputes nothing of the step."""
    asked, name = bound.asked, group.job.framework.name
    notes = [*bound.assumptions, *bound.job_of(name)[1]]
    assume_batch(notes, bound, np.ravel(group.plan.global_batch_size).tolist())
    if group.level is not None:
        low, high = float(np.min(group.level.factor)), float(np.max(group.level.factor))
        times = f"{low:.3f}" if high - low < 0.0005 else f"{low:.3f} to {high:.3f}"
        assume(notes, "correction", f"step times {times} ({group.level.label})", "override")
    note_framework(notes, bound, name)
    if asked.margin is None:
        assume(notes, "margin", f"{group.margin:.1%} of device memory", "default")
    run = None
    if asked.tokens is not None:
        from ironlaw.estimate.step.run import run_of

        run = run_of(bound, group.job, group.plan, group.step.tree.value, group.step.forward_share)
        notes += bound.run_assumptions
    warnings = [*(caution("left-out", item=item) for item in bound.left_out), *cautions(asked, group.job, group.cluster, group.chosen)]
    if group.plan.rows == 1:
        plan, mfu = group.plan, group.throughput["mfu"]
        warnings += seldom_lines(group.job, plan, 0, {*group.chosen[0], *group.variant})
        from ironlaw.estimate.answer.bands import likely_remedies

        gpus, batch, length, share = (scalar(column) for column in (plan.gpus, plan.global_batch_size, plan.seq_len, mfu))
        warnings += remedy_lines(likely_remedies(group.remedies[0], group.folders), gpus, batch, length, share)
    return group.replace(run=run, assumptions=notes, warnings=tuple(warnings), asked=asked)


__all__ = ["Estimate", "Group", "answer", "answer_asked", "estimate"]
