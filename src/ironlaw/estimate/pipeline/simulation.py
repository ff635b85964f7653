"""One step of a pipeline, event by event: when each rank runs which pass of which micro-batch.

The laws of a schedule's bubble are compared with it, and a drawing of a plan is made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ironlaw.estimate.pipeline.orders import BACKWARD, FORWARD, INPUT, Operation, Order
from ironlaw.frozen import Frozen

Place = tuple[int, int]  # a rank and one of its chunks
Source = tuple[int | None, Any]  # the place that a pass receives from, counted through; seconds that this takes


class Timeline(Frozen):
    """The passes of a step as columns: those of the first rank in the order in which it runs them, then those of the next.

    ``start`` and ``end`` have a second axis where several plans were simulated.
    """

    stage: Any  # rank of the pipeline, from 0
    chunk: Any  # of the rank, from 0
    micro_batch: Any  # from 0
    kind: Any  # index into ``orders.KINDS``
    start: Any  # s
    end: Any  # s

    @cached_property
    def seconds(self) -> Any:
        """The length of the step: the end of its last pass."""
        return self.end.max(axis=0)

    @cached_property
    def busy(self) -> Any:
        """Seconds that each rank computes."""
        return np.add.reduceat(self.end - self.start, np.flatnonzero(np.diff(self.stage, prepend=-1)))


def simulate(
    order: Order, forward: Any, backward: Any, micro_batches: int, weight: Any = 0.0, hand_over: Any = 0.0, group: int = 0
) -> Timeline:
    """Run one step of a pipeline: a rank runs its passes in its order, each as soon as the rank is free and what the pass needs has come.

    Parameters
        order: of the schedule
        forward [s]: forward pass of one micro-batch through each chunk (second axis) of each rank (first axis); a third axis: of each plan
        backward [s]: backward pass, weight gradients included
        micro_batches: of a step
        weight [s]: of the backward pass, weight gradients alone
        hand_over [s]: from the end of a pass to the start of the next one on another rank; both ranks may compute meanwhile, but at the
            ends of a step for an order that waits there
        group: micro-batches that a chunk runs before the next chunk's turn; 0: as many as there are ranks
    Source: each order has its own

    >>> from ironlaw.estimate.pipeline.orders import ONE_FORWARD_ONE_BACKWARD
    >>> float(simulate(ONE_FORWARD_ONE_BACKWARD, np.ones((4, 1)), np.full((4, 1), 2.0), 8).seconds)  # (m + p - 1) (forward + backward)
    33.0
    """
    forward = np.asarray(forward, dtype=np.float64)
    backward, weight = (np.broadcast_to(np.asarray(one, dtype=np.float64), forward.shape) for one in (backward, weight))
    stages, chunks = forward.shape[:2]
    seconds = [_listed(one) for one in (forward, backward, backward - weight, weight)]
    run = _Run(seconds, chunks, micro_batches, [_sources(way, hand_over, chunks) for way in order.neighbours(stages, chunks)])
    run.waited = hand_over if order.waits_at_ends and stages > 1 else None
    passes = [list(order.passes(stages, chunks, micro_batches, group or stages, rank)) for rank in range(stages)]
    done = [0] * stages
    while True:
        before = sum(done)
        done = [run.go_on(rank, own, at) for rank, (own, at) in enumerate(zip(passes, done, strict=True))]
        if sum(done) == before:
            break
    if before < sum(map(len, passes)):
        raise ValueError(f"{order.name}: the ranks of {stages} stages wait for each other with {micro_batches} micro-batches")
    return Timeline(*(np.array(column) for column in zip(*(event for own in run.events for event in own), strict=True)))


def _listed(seconds: Any) -> list[Any]:
    """The times of all chunks, rank by rank: numbers, or arrays over plans."""
    flat = seconds.reshape(-1, *seconds.shape[2:])
    return flat.tolist() if flat.ndim == 1 else list(flat)


def _sources(neighbours: dict[Place, Place | None], hand_over: Any, chunks: int) -> list[Source]:
    """For each place, rank by rank, where a pass receives from; nothing has to be handed over inside a rank."""
    found: list[Source] = []
    for place in sorted(neighbours):
        other = neighbours[place]
        found.append((None, 0.0) if other is None else (other[0] * chunks + other[1], hand_over if other[0] != place[0] else 0.0))
    return found


class _Run:
    """A step while it is simulated: when each output and each gradient is there, and each rank free."""

    def __init__(self, seconds: list[list[Any]], chunks: int, micro_batches: int, sources: list[list[Source]]) -> None:
        self.seconds, self.chunks, self.sources = seconds, chunks, sources
        self.waited: Any = None  # hand-over that a rank waits for at the ends of a step
        self.later: Callable[[Any, Any], Any] = max if isinstance(seconds[0][0], float) else np.maximum
        self.outputs: list[list[Any]] = [[None] * micro_batches for _ in seconds[0]]
        self.gradients: list[list[Any]] = [[None] * micro_batches for _ in seconds[0]]
        self.free: list[Any] = [0.0 * seconds[0][0]] * (len(seconds[0]) // chunks)
        self.events: list[list[tuple[Any, ...]]] = [[] for _ in self.free]

    def go_on(self, rank: int, operations: list[Operation], at: int) -> int:
        """Run the operations of a rank from number ``at`` on, up to the first that waits for what another rank has not run; its number."""
        first, events, later, outputs, gradients = rank * self.chunks, self.events[rank], self.later, self.outputs, self.gradients
        before, after = self.sources
        steady = _steady(operations) if self.waited is not None else range(len(operations))
        for number in range(at, len(operations)):
            operation, clock = operations[number], self.free[rank]
            for kind, chunk, i in operation:
                place = first + chunk
                if kind == FORWARD:
                    source, delay = before[place]
                    come = 0.0 if source is None else outputs[source][i]
                elif kind in (BACKWARD, INPUT):
                    source, delay = after[place]
                    come = outputs[place][i] if source is None else gradients[source][i]
                else:
                    continue
                if come is None:
                    return number
                clock = later(clock, come + delay)
            for kind, chunk, i in operation:
                end = clock + self.seconds[kind][first + chunk]
                events.append((rank, chunk, i, kind, clock, end))
                clock = end
            self.free[rank] = clock if number in steady else clock + self.waited
            for kind, chunk, i in operation:  # what runs beside each other ends together
                if kind == FORWARD:
                    outputs[first + chunk][i] = clock
                elif kind in (BACKWARD, INPUT):
                    gradients[first + chunk][i] = clock
        return len(operations)


def _steady(operations: list[Operation]) -> range:
    """The operations of a rank from its first backward to its last forward pass."""
    kinds = [operation[0][0] for operation in operations]
    return range(next(at for at, kind in enumerate(kinds) if kind != FORWARD), len(kinds) - kinds[::-1].index(FORWARD))
