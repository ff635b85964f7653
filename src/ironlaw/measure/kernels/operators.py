"""Find the operator that launched each kernel, its cost, and whether it is recomputation.

Spans of a thread are nested, so one sorted search finds the innermost span at each of many instants.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ironlaw.measure.events import NONE, Column, Spans, Trace
from ironlaw.measure.kernels.costs import Cost, cost_of, forward_only, outputs_of_convolutions, rules

BACKWARD = ("autograd::engine::evaluate_function: ", "CheckpointFunctionBackward")


class Nesting:
    """Nested spans of each thread; finds the innermost span at an instant."""

    def __init__(self, spans: Spans, chosen: NDArray[np.bool_] | None = None) -> None:
        rows = np.arange(len(spans)) if chosen is None else np.flatnonzero(chosen)
        rows = rows[
            np.lexsort((-spans.end[rows], spans.start[rows], spans.thread[rows]))
        ]  # of two that start together, the longer is the outer one
        self.spans, self.rows = spans, rows
        self.threads = np.unique(spans.thread[rows])
        self.times = np.sort(np.concatenate([spans.start[rows], spans.end[rows]]))
        thread = np.searchsorted(self.threads, spans.thread[rows])
        self.start = self._key(thread, spans.start[rows])
        self.end = np.sort(self._key(thread, spans.end[rows]))
        before = np.arange(len(rows)) - np.searchsorted(self.end, self.start, "right")  # spans that began earlier and have not ended
        base = np.searchsorted(self.start, self._key(np.arange(len(self.threads)), None)) if len(rows) else np.zeros(0, np.int64)
        done = np.searchsorted(self.end, self._key(np.arange(len(self.threads)), None)) if len(rows) else base
        self.offset = base - done  # for each thread: zero if every span of the earlier threads has ended
        depth = np.maximum(before - self.offset[thread], 0) if len(rows) else before
        self.deepest = int(depth.max()) + 1 if len(rows) else 1
        self.by_depth = np.lexsort((self.start, depth))
        self.depth = depth
        self.sorted = depth[self.by_depth] * self._span() + self.start[self.by_depth]

    def _span(self) -> int:
        return (len(self.threads) + 1) * (len(self.times) + 2)

    def _key(self, thread: Column, time: Column | None) -> Column:
        """One number for a thread and an instant; ``None`` is before all instants. Instants between two known ones count as the earlier."""
        rank = np.zeros(len(thread), np.int64) if time is None else np.searchsorted(self.times, time, "right")
        return np.asarray(thread * (len(self.times) + 2) + rank, np.int64)

    def innermost(self, thread: Column, time: Column, outside: int = 0) -> Column:
        """The row of the innermost span at each instant of a thread, or of the span ``outside`` levels around it; NONE if there is none."""
        none = np.full(len(time), NONE, np.int64)
        if not len(self.rows):
            return none
        at = np.minimum(np.searchsorted(self.threads, thread), len(self.threads) - 1)
        key = self._key(at, time)
        open_now = np.searchsorted(self.start, key, "right") - np.searchsorted(self.end, key, "right") - self.offset[at]
        depth = open_now - 1 - outside
        valid = (self.threads[at] == thread) & (depth >= 0) & (depth < self.deepest)
        position = np.searchsorted(self.sorted, np.where(valid, depth, 0) * self._span() + key, "right") - 1
        row = self.rows[self.by_depth[np.maximum(position, 0)]]
        covers = (self.spans.thread[row] == thread) & (self.spans.start[row] <= time) & (time <= self.spans.end[row])
        return np.where(valid & (position >= 0) & covers, row, none)


@dataclass(frozen=True)
class Linked:
    """For every device event: its operator, the cost of a call, and whether it is recomputation."""

    operator: Column  # row of Trace.operators, or NONE
    pair: Column  # index into ``costs``, or NONE
    costs: tuple[Cost | None, ...]  # of each pair of name and shape
    names: Column  # of each pair: index into Trace.names
    shapes: Column  # of each pair: index into Trace.shapes
    recompute: NDArray[np.bool_]


def link(trace: Trace) -> Linked:
    """Link the device events of a trace to operators."""
    operator = operator_of(trace)
    rows, back = np.unique(operator, return_inverse=True)
    has_operator = rows >= 0
    called = rows[has_operator]
    shape = _sizes_from_parent(trace, called)
    code = trace.operators.name[called] * (len(trace.shapes) + 1) + shape + 1
    pairs, index = np.unique(code, return_inverse=True)
    of_row = np.full(len(rows), NONE, np.int64)
    of_row[has_operator] = index
    is_recomputed = np.zeros(len(rows), bool)
    is_recomputed[has_operator] = recomputed(trace)[called]
    names, shapes = pairs // (len(trace.shapes) + 1), pairs % (len(trace.shapes) + 1) - 1
    return Linked(operator, of_row[back], _count_costs(trace, names, shapes), names, shapes, is_recomputed[back])


def operator_of(trace: Trace) -> Column:
    """The operator of each device event: by external id if it was running at the launch, else the innermost one around the launch.

    Some profilers number kernels and operators separately, and an id may belong to an annotation, so an operator that was not running is
    ignored.
    """
    events, operators, launches = trace.events, trace.operators, trace.launches
    operator_row = np.full(len(events), NONE, np.int64)
    if not len(operators) or not len(events):
        return operator_row
    order = np.argsort(operators.external, kind="stable")
    position = np.minimum(np.searchsorted(operators.external[order], events.external), len(order) - 1)
    row = order[position]
    has_id = (operators.external[row] == events.external) & (events.external >= 0)
    linked = events.launch >= 0
    launched = np.where(linked, launches.start[np.maximum(events.launch, 0)] if len(launches) else 0, 0)
    during = (operators.start[row] <= launched) & (launched <= operators.end[row])
    operator_row = np.where(has_id & (during | ~linked), row, operator_row)
    unassigned = np.flatnonzero((operator_row < 0) & linked)
    if len(unassigned):
        operator_row[unassigned] = Nesting(operators).innermost(launches.thread[events.launch[unassigned]], launched[unassigned])
    return operator_row


def _sizes_from_parent(trace: Trace, rows: Column) -> Column:
    """The shape that gives the cost of each operator: its own, or that of its parent if its own is incomplete."""
    operators = trace.operators
    asks = [i for i, n in enumerate(trace.names) if (rule := rules().get(n)) is not None and rule.parent]
    wants = np.isin(operators.name[rows], asks)
    shape = operators.shapes[rows].copy()
    if wants.any():
        parent = Nesting(operators).innermost(operators.thread[rows[wants]], operators.start[rows[wants]], outside=1)
        shape[wants] = np.where(parent >= 0, operators.shapes[np.maximum(parent, 0)], NONE)
    return shape


def _count_costs(trace: Trace, names: Column, shapes: Column) -> tuple[Cost | None, ...]:
    """The cost of each pair of name and shape; convolutions without strides get their output size from the backward pass."""
    kinds = [i for i, n in enumerate(trace.names) if (rule := rules().get(n)) is not None and rule.cost == "convolution_backward"]
    calls = np.isin(trace.operators.name, kinds) & (trace.operators.shapes >= 0)
    codes = np.unique(trace.operators.name[calls] * (len(trace.shapes) + 1) + trace.operators.shapes[calls])
    listed = [(trace.names[c // (len(trace.shapes) + 1)], trace.shapes[c % (len(trace.shapes) + 1)]) for c in codes.tolist()]
    outputs = outputs_of_convolutions(listed)
    return tuple(
        cost_of(trace.names[n], trace.shapes[s], outputs) if s >= 0 else None for n, s in zip(names.tolist(), shapes.tolist(), strict=True)
    )


def recomputed(trace: Trace) -> NDArray[np.bool_]:
    """Find operators that recompute the forward pass (activation checkpointing).

    Recomputation is an operator that only a forward pass calls, inside an evaluation of the autograd engine, if the same name and sizes
    also ran outside. So is everything in that evaluation between the first and the last such operator; alone, a product or a sum could
    belong to the gradient. The kernels of a reentrant checkpoint run directly in its backward span.
    """
    operators = trace.operators
    is_recomputed = np.zeros(len(operators), bool)
    backward = [i for i, n in enumerate(trace.names) if n.startswith(BACKWARD)]
    evaluations = np.isin(operators.name, backward)
    if not evaluations.any():
        return is_recomputed
    evaluation = Nesting(operators, evaluations).innermost(operators.thread, operators.start)
    forward = np.isin(operators.name, [i for i, n in enumerate(trace.names) if n in forward_only()])
    inner, outer = forward & (evaluation >= 0) & ~evaluations, forward & (evaluation < 0)
    code = operators.name * (len(trace.shapes) + 1) + _find_same_sizes(trace)[operators.shapes]
    seen_outside = np.isin(code, code[outer]) | (operators.shapes < 0)
    twice = inner & seen_outside
    first = np.full(len(operators), np.iinfo(np.int64).max)
    last = np.full(len(operators), np.iinfo(np.int64).min)
    np.minimum.at(first, evaluation[twice], operators.start[twice])
    np.maximum.at(last, evaluation[twice], operators.end[twice])
    evaluation_row = np.maximum(evaluation, 0)
    is_recomputed = (evaluation >= 0) & (operators.start >= first[evaluation_row]) & (operators.end <= last[evaluation_row])
    return np.asarray(is_recomputed & ~evaluations)


def _find_same_sizes(trace: Trace) -> Column:
    """For each shape, the first one with the same sizes (strides and values may differ); the last entry means no shape."""
    first_index: dict[str, int] = {}
    return np.array([first_index.setdefault(repr(s.dims), i) for i, s in enumerate(trace.shapes)] + [len(trace.shapes)], np.int64)
