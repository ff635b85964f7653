"""The optimizer of a question: the record of every class of parameters."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.optimizer import CLASSES, SHAPES, Optimizer
from ironlaw.errors import CatalogError, QuestionError
from ironlaw.job import Optimizers
from ironlaw.question.asked import Asked


def bind_optimizer(asked: Asked, folders: tuple[str, ...]) -> Optimizers:
    """The records of a question's optimizer: the one that is named, and the one that it leaves other classes of parameters to."""
    first: Optimizer = load.record("optimizers", asked.optimizer, folders)
    others = load.record("optimizers", first.others, folders) if first.others else first
    _check(first, others)
    rank = asked.optimizer_rank
    if rank is not None and first.rank is None:
        raise QuestionError(f"--optimizer-rank {rank:g}: {first.name} projects no gradient; leave it out, or use --optimizer galore")
    by_class: dict[str, Any] = {part: first if part in first.updates else others for part in CLASSES}
    narrow = load.record("optimizers", first.on_narrow_weights, folders) if first.on_narrow_weights else first
    return Optimizers(name=first.name, **by_class, narrow=narrow, rank=0.0 if rank is None else rank)


def _check(first: Optimizer, others: Optimizer) -> None:
    """Refuse a record that leaves a class of parameters to nobody, or has a state of an unknown shape."""
    for record in (first, others):
        wrong = next((state.shape for state in record.states.values() if state.shape not in SHAPES), None)
        if wrong is not None:
            raise CatalogError(f"optimizer {record.name}: shape is {wrong!r}, expected one of {', '.join(SHAPES)}")
    left = [part for part in CLASSES if part not in first.updates and part not in others.updates]
    if left:
        raise CatalogError(f"optimizer {first.name}: nothing updates {', '.join(left)}; name an optimizer for them with others")
