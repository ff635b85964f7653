"""Several chunks of layers on each pipeline rank: the layers of each, and a step of unequal chunks."""

from __future__ import annotations

from typing import Any

import numpy as np


def layers_of_chunk(layers: Any, vpp: Any, chunk: Any, first: Any = False) -> Any:
    """Layers of a chunk of a rank with ``layers`` in all: ``floor(layers / vpp)``, one more for the first ``layers mod vpp`` chunks.

    Where the first rank lacks one layer, its first chunk does: the embedding takes the place of the layer.

    Parameters
        layers [1]: of the rank
        vpp [1]: chunks of the rank
        chunk [1]: from 0
        first: True for the first rank, which has the embedding
    Returns [1]: layers
    Source: NVIDIA, Megatron-LM, core/transformer/transformer_block.py (get_num_layers_to_build: with the embedding counted as a layer the
        first chunk of the first rank has one less), https://github.com/NVIDIA/Megatron-LM, recalled; longer chunks first is our choice

    >>> [[int(layers_of_chunk(11.0, 4.0, c, first)) for c in range(4)] for first in (False, True)]
    [[3, 3, 3, 2], [2, 3, 3, 3]]
    """
    base = np.floor(layers / vpp)
    rest = layers - base * vpp
    short_first = np.logical_and(first, rest == vpp - 1.0)
    return base + np.where(short_first, np.greater(chunk, 0), np.less(chunk, rest))


def interleaved_seconds(forward: Any, backward: Any, group: int, rounds: int, hand_over: Any = 0.0) -> tuple[Any, Any]:
    """The first micro-batches of an interleaved schedule with chunks of any length: a recurrence over fronts.

    On front n rank r runs forward pass ``n - r`` of its order, and backward pass ``n - (v - 1) g - 2 (p - 1) + r``. A pass waits for
    the pass before it on its rank, and for that of its neighbour on the front before.

    Parameters
        forward, backward [s]: of each rank (first axis), chunk (second) and plan (third)
        group [1]: micro-batches g that a chunk runs before the next chunk's turn, at least as many as ranks
        rounds [1]: groups of micro-batches that are run
        hand_over [s]: between two passes on neighbours, beside other passes; where a rank waits for it, at either end, it is left out
    Returns [s]: their time of each plan, and what a group of the last two took: what each further one adds
    Source: the order of NVIDIA, Megatron-LM, core/pipeline_parallel/schedules.py, as in ``orders``

    >>> equal = np.ones((4, 2, 1))  # of m (F + B) + (p - 1) (F + B) / v
    >>> [float(one[0]) for one in interleaved_seconds(equal, 2.0 * equal, 4, 2)], 8 * 6.0 + 3 * 3.0, 4 * 6.0
    ([57.0, 24.0], 57.0, 24.0)
    """
    fronts = _Fronts(forward, backward, group, rounds)
    fronts.hand_over = hand_over
    full = range(fronts.lag + fronts.stages - 1, fronts.passes)  # fronts on which every rank runs both
    every = range(fronts.lag + fronts.passes + fronts.stages - 1)
    for front in every[: full.start] if full else every:
        fronts.run_some(front)
    if full:
        fronts.run_all(full)
        for front in every[full.stop :]:
            fronts.run_some(front)
    before = min(rounds - 1, 2)  # groups over which the pace is a mean: it may alternate
    pace = (fronts.of_last[-1] - fronts.of_last[-1 - before * fronts.period]) / before if before else np.zeros(forward.shape[-1])
    return fronts.free.max(axis=0), pace


class _Fronts:
    """The ends of passes, front by front."""

    def __init__(self, forward: Any, backward: Any, group: int, rounds: int) -> None:
        self.stages, chunks, plans = forward.shape
        self.hand_over: Any = 0.0
        self.group, self.period = group, group * chunks
        self.passes, self.lag = rounds * self.period, (chunks - 1) * group + self.stages - 1
        ranks, turn, chunk = np.arange(self.stages), np.arange(self.period)[:, None], np.arange(self.period) // group
        self.out = forward[ranks, chunk[(turn - ranks) % self.period]]  # seconds, of each front of a period and each rank
        self.back = backward[ranks, chunks - 1 - chunk[(turn - self.lag - (self.stages - 1 - ranks)) % self.period]]
        self.free, self.ends = np.zeros((self.stages, plans)), np.zeros((self.stages, plans))
        self.sent = np.zeros((self.stages + 1, plans))  # what came to each rank last from the one before; at the end, from the last
        self.returned = np.zeros((self.stages + 1, plans))  # what each rank sent back last; at the end, what came to the last
        self.of_last = np.zeros((self.passes, plans))  # ends of the forward passes of the last rank, which the first waits for
        self.of_first = np.zeros((self.passes, plans))  # ends of the backward passes of the first rank

    def _enter(self, at: int, history: Any) -> Any:
        """When pass ``at`` of the rank where micro-batches enter may start: after its chunk before, on the other end."""
        return history[at - self.group] if at % self.period >= self.group else 0.0

    def run_all(self, fronts: range) -> None:
        """Fronts on which every rank runs a forward and a backward pass. Most fronts are such, so views are made once."""
        last, lag, group, period, hand_over = self.stages - 1, self.lag, self.group, self.period, self.hand_over
        free, ends, out, back = self.free, self.ends, list(self.out), list(self.back)
        came, sent, entered, left = self.sent[:-1], self.sent[1:], self.sent[0], self.sent[-1]
        due, returned, turned, home = self.returned[1:], self.returned[:-1], self.returned[-1], self.returned[0]
        of_last, of_first = list(self.of_last), list(self.of_first)
        for front in fronts:
            turn, late = front % period, front - lag
            entered[...] = of_last[front - group] if turn >= group else 0.0
            np.maximum(free, came, out=ends)
            np.add(ends, out[turn], out=ends)
            np.add(ends, hand_over, out=sent)
            of_last[front - last][...] = left
            turned[...] = of_first[late - group] if late % period >= group else 0.0
            np.maximum(ends, due, out=free)
            np.add(free, back[turn], out=free)
            np.add(free, hand_over, out=returned)
            of_first[late - last][...] = home

    def run_some(self, front: int) -> None:
        """A front on which some ranks run no pass of a direction."""
        turn, late, last = front % self.period, front - self.lag, self.stages - 1
        ranks = slice(max(0, front - self.passes + 1), min(last, front) + 1)
        if ranks.start < ranks.stop:
            if ranks.start == 0:
                self.sent[0] = self._enter(front, self.of_last)
            ends = np.maximum(self.free[ranks], self.sent[ranks]) + self.out[turn, ranks]
            self.free[ranks] = self.sent[ranks.start + 1 : ranks.stop + 1] = ends
            if ranks.stop == self.stages:
                self.of_last[front - last] = ends[-1]
        ranks = slice(max(0, last - late), min(last, last - late + self.passes - 1) + 1)
        if ranks.start < ranks.stop:
            if ranks.stop == self.stages:
                self.returned[-1] = self._enter(late, self.of_first)
            ends = np.maximum(self.free[ranks], self.returned[ranks.start + 1 : ranks.stop + 1]) + self.back[turn, ranks]
            self.free[ranks] = self.returned[ranks] = ends
            if ranks.start == 0:
                self.of_first[late - last] = ends[0]
