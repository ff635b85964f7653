"""Memory of training a network given as a list of operators: weights, gradients, optimizer states and activations, by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.catalog.optimizer import Optimizer
from ironlaw.estimate.memory.buffers import as_is
from ironlaw.law import activations
from ironlaw.law.states import state
from ironlaw.precision import PRECISIONS
from ironlaw.questions.answer import Column, Table
from ironlaw.terms import Term, leaf, plain, scalar, total

COLUMNS = (
    Column("batch", "batch", "1"), Column("weights", "weights", "B"), Column("gradients", "gradients", "B"),
    Column("optimizer", "optimizer", "B"), Column("activations", "activations", "B"), Column("context", "driver", "B"),
    Column("memory", "total", "B"), Column("memory_share", "of the device", "%"), Column("fits", "fits"),
)  # fmt: skip


@dataclass(frozen=True)
class Amounts:
    """What decides the memory of a network: its parameters, and what backward needs of one sample."""

    parameters: float
    dense: float  # parameters whose gradients and optimizer states are as many; not rows of embedding tables
    kept: Term  # bytes of one sample


@dataclass(frozen=True, eq=False)
class ListMemory:
    """The memory table, a sentence with the largest batch, and the Terms behind both."""

    table: Table
    sentence: str
    terms: list[Term]


def memory_by_batch(
    amounts: Amounts, batches: Sequence[float], dtype: str, rule: Optimizer, context: Any, capacity: Any, sample: str
) -> ListMemory:
    """Memory of each batch on a device of ``capacity``; ``context`` is the driver's own."""
    fixed = _fixed_parts(amounts, dtype, rule, context)
    resident = total("memory that does not depend on the batch", fixed)
    largest = leaf(
        "largest batch that fits", activations.largest_batch, "1", capacity=capacity, per_sequence=amounts.kept.value, fixed=resident.value
    )
    rows = []
    for batch in batches:
        memory = scalar(activations.batch_memory(batch, scalar(amounts.kept), scalar(resident)))
        rows.append({
            "batch": batch, **{part.name: scalar(part) for part in fixed}, "activations": batch * scalar(amounts.kept), "memory": memory,
            "memory_share": memory / plain(capacity), "fits": memory <= plain(capacity),
        })  # fmt: skip
    room = units.show(plain(capacity), "B", 4)
    count = scalar(largest)
    fits = f"the largest batch that fits in {room} is {count:,.0f}" if count else f"no batch fits in {room}"
    sentence = f"backward keeps {units.show(scalar(amounts.kept), 'B', 4)} of activations of {sample}; {fits}"
    inputs = {"batch": batches[-1], "per_sequence": amounts.kept.value, "fixed": resident.value}
    last = leaf(f"memory at batch {batches[-1]:g}", activations.batch_memory, "B", **inputs)
    table = Table("memory", f"Memory of training with {rule.name} in {dtype}", COLUMNS, rows)
    return ListMemory(table, sentence, [amounts.kept, resident, largest, last])


def _fixed_parts(amounts: Amounts, dtype: str, rule: Optimizer, context: Any) -> list[Term]:
    """Weights, gradients, states and the driver's memory. In 16 bits the optimizer keeps an fp32 copy of the weights too."""
    precision = PRECISIONS[dtype]
    of_optimizer = rule.state_bytes + (rule.master_bytes.value if precision.master_weights else 0.0)
    return [
        leaf("weights", state, "B", parameters=amounts.parameters, bytes_per_parameter=precision.parameter_bytes, shards=1.0),
        leaf("gradients", state, "B", parameters=amounts.dense, bytes_per_parameter=precision.parameter_bytes, shards=1.0),
        leaf("optimizer", state, "B", parameters=amounts.dense, bytes_per_parameter=of_optimizer, shards=1.0),
        leaf("context", as_is, "B", size=context),
    ]
