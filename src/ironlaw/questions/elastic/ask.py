"""Answer ``ironlaw elastic``: what to run with less, how many spare nodes are worth their price, and whether spot machines are."""

from __future__ import annotations

from typing import Any

from ironlaw.cautions.record import Sentence
from ironlaw.errors import QuestionError
from ironlaw.progress import steps
from ironlaw.questions.answer import Answer, Table, filled_columns
from ironlaw.questions.elastic import less, spares, spot
from ironlaw.questions.elastic.base import Base, bind_base
from ironlaw.terms import Term


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about fewer accelerators; QuestionError where its options contradict each other."""
    if values["gpus"] == 1.0:
        raise QuestionError("--gpus 1: without its only accelerator nothing is left to run on; give --gpus 2 or more")
    base = bind_base(values, folders)
    if not bool(base.group.memory.fits[0]):
        return _say_no(base)
    losses = values.get("lost") or less.default_losses(base)
    lefts = [base.gpus - less.count_lost(base, loss) for loss in losses]
    if "repair_time" in values:
        lefts += spares.lefts(base, values["repair_time"])
    base.tabulate(lefts)
    found = [less.after(base, loss) for loss in steps(losses, "losses")]
    rows = [less.loss_row(base, one) for one in found]
    headline: list[str] = [
        less.full_sentence(base),
        *(less.sentence(base, one) for one in found),
        Sentence(less.batch_sentence(base), "batch", {"global_batch_size": base.batch}),
    ]
    terms: list[Term] = [base.group.throughput["tokens_per_second"], *(term for one in found for term in less.terms_of(one))]
    kept = [less.kept_row(base, one) for one in found]
    tables = [
        Table("losses", "The best plan with what is left", less.LOSSES, rows),
        Table("kept", "Parallel sizes kept: only data parallelism shrinks", filled_columns(less.KEPT, kept), kept),
    ]
    warnings = list(base.group.warnings)
    if "repair_time" in values:
        answer = spares.compare(base, values["repair_time"], values.get("spares"))
        headline, tables, terms = [*headline, *answer.headline], [*tables, *answer.tables], [*terms, *answer.terms]
        warnings += answer.warnings
    if "spot_price" in values:
        paid = spot.compare(base, values, folders)
        headline, tables, terms = [*headline, *paid.headline], [*tables, *paid.tables], [*terms, *paid.terms]
        warnings += paid.warnings
    return Answer(
        title=less.title(base),
        headline=headline,
        tables=tables,
        terms=terms,
        values={"gpus": base.gpus, "tokens_per_second": base.rate, "global_batch_size": base.batch},
        assumptions=base.assumptions,
        warnings=warnings,
        feasible=all(one.best is not None for one in found),
        folders=folders,
    )


def _say_no(base: Base) -> Answer:
    """The answer where no plan fits all accelerators."""
    return Answer(
        title=less.title(base),
        headline=[Sentence(f"no: no plan fits on {base.gpus:,.0f} accelerators, so no fewer are tried", "does-not-fit")],
        assumptions=base.assumptions,
        warnings=base.group.warnings,
        feasible=False,
        folders=base.group.folders,
    )
