"""Compare measured memory with the estimate of the same run, term by term where the measurement separates terms."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ironlaw.errors import QuestionError
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.measure.read.memory_text import PrintedMemory
from ironlaw.measure.read.memory_timeline import Timeline
from ironlaw.measure.read.snapshot import DeviceMemory, Snapshot
from ironlaw.terms import Term

# row, categories of the profiler, terms under "allocated"; all others are compared together in one row
TERMS = (
    ("weights", ("parameter",), ("weights", "low-precision copies of weights")),
    ("gradients", ("gradient",), ("gradients", "whole gradients")),
    ("optimizer states", ("optimizer state",), ("master weights", "optimizer states", "optimizer states, embedding and output layer")),
)
REST = ("input", "temporary", "activation", "autograd detail", "unknown")
FROM_TRACE = "highest level in the trace, in requested bytes; allocated blocks are a little larger"
PART = "part of allocated; the message does not divide it"
FROM_END = "at the dump, not at the peak: the file has no trace"


@dataclass(frozen=True)
class MemoryRow:
    """One row: measured and predicted bytes, and a note on the measurement."""

    term: str
    measured: int | None  # [B]
    predicted: float | None  # [B]
    note: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one; None if one is missing."""
        if not self.measured or self.predicted is None:
            return None
        return self.predicted / self.measured - 1.0

    def data(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self) | {"error": self.error}


def compare_memory(
    snapshot: Snapshot | None, estimate: Estimate, timeline: Timeline | None = None, printed: PrintedMemory | None = None, row: int = 0
) -> list[MemoryRow]:
    """Compare the peaks of a snapshot (its fullest device), of a timeline and of a printed message with row ``row`` of ``estimate``."""
    group, at = estimate.place_of(row)
    if not bool(np.broadcast_to(group.legal, group.index.shape)[at]):
        raise QuestionError("the plan cannot run, so its memory is not compared; ironlaw estimate names the rule that it breaks")
    tree = group.memory.tree
    rows = _compare_totals(snapshot, tree, at) if snapshot is not None else []
    rows += _compare_printed(printed, tree, at) if printed is not None else []
    return rows + (_compare_categories(timeline, tree["allocated"], at) if timeline is not None else [])


def _value(term: Term, at: int) -> float:
    values = np.ravel(term.value)
    return float(values[at] if values.size > 1 else values[0])


def _compare_totals(snapshot: Snapshot, tree: Term, at: int) -> list[MemoryRow]:
    """Compare allocated and reserved memory of the fullest device with the prediction."""
    fullest = max(snapshot.devices, key=_find_reserved)
    note = f"device {fullest.device}: " + (FROM_TRACE if fullest.peak else FROM_END)
    allocated = fullest.peak.size if fullest.peak else fullest.allocated
    reserved = _find_reserved(fullest)
    reserved_note = f"device {fullest.device}: " + ("highest level in the trace" if fullest.reserved_peak else FROM_END)
    return [
        MemoryRow("allocated", allocated, _value(tree["allocated"], at), note),
        MemoryRow(
            "allocator slack", max(reserved - allocated, 0), _value(tree["allocator slack"], at), "peak reserved less peak allocated"
        ),
        MemoryRow("reserved", reserved, _value(tree["reserved"], at), reserved_note),
        MemoryRow(
            "device", None, _value(tree, at), "a snapshot lacks the CUDA context and communication buffers; nvidia-smi includes them"
        ),
    ]


def _compare_printed(printed: PrintedMemory, tree: Term, at: int) -> list[MemoryRow]:
    """Compare what a message, a table or a line says; a request that failed counts as allocated."""
    asked = printed.asked or 0
    allocated = printed.peak_allocated or (None if printed.allocated is None else printed.allocated + asked) or printed.needed
    reserved = printed.peak_reserved or printed.reserved
    note = f"{printed.form}: allocated and the request that failed, a lower end: the run stopped" if asked else printed.form
    parts = sorted(((_value(part, at), part.name) for part in tree["allocated"].parts), reverse=True)
    return [
        MemoryRow("allocated", allocated, _value(tree["allocated"], at), note),
        *(MemoryRow(name, None, size, PART) for size, name in parts if size > 0.0),
        MemoryRow("reserved", reserved, _value(tree["reserved"], at), printed.form),
        MemoryRow("device", printed.this_process or printed.used, _value(tree, at), "of this process" if printed.this_process else ""),
    ]


def _find_reserved(device: DeviceMemory) -> int:
    return device.reserved_peak.size if device.reserved_peak else device.reserved


def _compare_categories(timeline: Timeline, allocated: Term, at: int) -> list[MemoryRow]:
    """Compare the peak of a timeline by category; the predicted parts sum to ``allocated``."""
    parts = {part.name: _value(part, at) for part in allocated.parts}
    rows = []
    for term, categories, names in TERMS:
        predicted = math.fsum(parts.pop(name, 0.0) for name in names)
        note = "master weights outside the optimizer are counted as unknown" if term == "optimizer states" else ""
        rows.append(MemoryRow(term, sum(timeline.at_peak[c] for c in categories), predicted, note))
    other_bytes = sum(timeline.at_peak[c] for c in REST)
    rows.append(MemoryRow("activations, logits and temporaries", other_bytes, math.fsum(parts.values()), f"profiler: {', '.join(REST)}"))
    rows.append(MemoryRow("tensors", timeline.peak, _value(allocated, at), "highest level in the timeline"))
    return rows
