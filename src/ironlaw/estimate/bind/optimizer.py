"""The optimizer of a question: the record of every class of parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.optimizer import CLASSES, OPERATIONS, SHAPES, SIDES, ZERO_STAGES, Optimizer
from ironlaw.errors import CatalogError, QuestionError
from ironlaw.job import Optimizers
from ironlaw.precision import PRECISIONS
from ironlaw.question.asked import Asked


def bind_optimizer(asked: Asked, folders: tuple[str, ...]) -> Optimizers:
    """The records of a question's optimizer: the one that is named, and the one that it leaves other classes of parameters to."""
    first: Optimizer = load.record("optimizers", asked.optimizer, folders)
    others = load.record("optimizers", first.others, folders) if first.others else first
    narrow = load.record("optimizers", first.on_narrow_weights, folders) if first.on_narrow_weights else first
    _check(first, others, narrow)
    rank = asked.optimizer_rank
    if rank is not None and first.rank is None:
        raise QuestionError(f"--optimizer-rank {rank:g}: {first.name} projects no gradient; leave it out, or use --optimizer galore")
    by_class: dict[str, Any] = {part: first if part in first.updates else others for part in CLASSES}
    return Optimizers(name=first.name, **by_class, narrow=narrow, rank=0.0 if rank is None else rank)


def _check(first: Optimizer, others: Optimizer, narrow: Optimizer) -> None:
    """Refuse a record that leaves a class of parameters to nobody, or has a name that code looks up and does not have."""
    for record in (first, others, narrow):
        for key, names, known in _names_in(record):
            odd = next((name for name in names if name not in known), None)
            if odd is not None:
                raise CatalogError(f"optimizer {record.name}: {key} is {odd!r}, expected one of {', '.join(known)}")
    left = [part for part in CLASSES if part not in first.updates and part not in others.updates]
    if left:
        raise CatalogError(f"optimizer {first.name}: nothing updates {', '.join(left)}; name an optimizer for them with others")


def _names_in(record: Optimizer) -> Iterator[tuple[str, list[str], Collection[str]]]:
    """The names of a record that code looks up: key, the names that stand there, and those that there are."""
    yield "shape", [state.shape for state in record.states.values()], SHAPES
    for key in ("rows", "columns", "inner"):
        yield key, [getattr(product, key) for product in record.product], SIDES
    yield "precision", [product.precision for product in record.product], PRECISIONS
    yield "operation", [exchange.operation for exchange in record.exchange], OPERATIONS
    yield "zero", [stage for exchange in record.exchange for stage in exchange.zero], ZERO_STAGES
