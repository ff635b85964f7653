"""The time that all passes of a step take on a pipeline of unequal ranks and chunks, as columns over plans.

Each function gives what an event simulation (``simulation.simulate``) gives, within 1 % of a step, without running every micro-batch: a
recurrence over the ranks, or a few micro-batches and the pace of those that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.estimate.pipeline import orders
from ironlaw.estimate.pipeline.chunks import interleaved_seconds, layers_of_chunk
from ironlaw.estimate.pipeline.simulation import simulate
from ironlaw.frozen import Frozen
from ironlaw.law import pipeline
from ironlaw.plan import Plan

if TYPE_CHECKING:
    from ironlaw.estimate.pipeline.stages import Stage

ROUNDS = 5  # groups of micro-batches that are run before the pace is read off
_READ = ("index", "layers", "count", "embedding")  # of a stage


class Loads(Frozen):
    """What one micro-batch takes on each class of equal stages, forward and backward: columns over plans."""

    classes: list[Stage]  # in the order of the pipeline
    times: list[Any]  # of a stage of each class
    first: list[Any]  # of it, what is in the stage's first chunk beside layers: the embedding
    last: list[Any]  # of it, what is in the last chunk beside layers: loss, and layers for further tokens
    forward_share: Any  # of every time, the forward pass
    weight_share: Any  # of every time, weight gradients
    hand_over: Any  # one hand-over beside chunks; 0 where a rank waits for it, which its time contains
    group: Any  # micro-batches that a chunk runs before the next chunk's turn
    wanted: Any = True  # False where nobody asks for the time, which need not be right there: passes are not run

    def of_chunk(self, at: int, vpp: Any, chunk: Any) -> Any:
        """The time of a chunk of a stage of class ``at``."""
        stage = self.classes[at]
        layers = np.maximum(stage.layers, 1.0)
        share = np.where(stage.layers > 0.0, layers_of_chunk(stage.layers, vpp, chunk, stage.embedding > 0.0) / layers, 1.0 / vpp)
        time = share * (self.times[at] - self.first[at] - self.last[at])
        return time + np.where(np.equal(chunk, 0), self.first[at], 0.0) + np.where(chunk == vpp - 1.0, self.last[at], 0.0)

    def full_chunk(self, at: int, vpp: Any) -> Any:
        """The time of the layers of a longest chunk of a stage of class ``at``; 0 where the class is empty."""
        stage = self.classes[at]
        layers = self.times[at] - self.first[at] - self.last[at]
        return np.where(stage.count > 0.0, np.ceil(stage.layers / vpp) * layers / np.maximum(stage.layers, 1.0), 0.0)

    def of_ranks(self, stages: int, values: list[Any]) -> Any:
        """Of values of each class those of each rank: an axis of ranks in front of that of plans."""
        rank = np.arange(float(stages)).reshape(-1, *(1,) * np.ndim(values[0]))
        held = ((stage.index <= rank) & (rank < stage.index + stage.count) for stage in self.classes)
        return sum(np.where(own, value, 0.0) for own, value in zip(held, values, strict=True))

    def passes(self, stages: int, chunks: int) -> tuple[Any, Any, Any]:
        """Forward pass, backward pass and weight gradients of each chunk of each rank: axes of ranks, chunks and plans."""
        of_chunks = [self.of_chunk(at, float(chunks), np.arange(float(chunks))[:, None]) for at in range(len(self.classes))]
        time = self.of_ranks(stages, of_chunks)
        backward = (1.0 - self.forward_share) * time
        return self.forward_share * time, backward, np.minimum(self.weight_share * time, backward)

    def columns(self) -> list[Any]:
        """All columns in one list."""
        of_classes = [getattr(stage, name) for stage in self.classes for name in _READ]
        return [*of_classes, *self.times, *self.first, *self.last, self.forward_share, self.weight_share, self.hand_over]

    def with_columns(self, columns: list[Any]) -> Loads:
        """The same with other columns, in the order of ``columns``."""
        number = len(self.classes)
        of_class = [dict(zip(_READ, columns[at * len(_READ) :], strict=False)) for at in range(number)]
        classes = [stage.replace(**values) for stage, values in zip(self.classes, of_class, strict=True)]
        times, first, last = (columns[number * (len(_READ) + at) :][:number] for at in range(3))
        return self.replace(**dict(zip(self.fields, (classes, times, first, last, *columns[-3:]), strict=False)))

    @property
    def slowest(self) -> Any:
        """The time of the slowest stage."""
        used = (np.where(stage.count > 0.0, time, 0.0) for stage, time in zip(self.classes, self.times, strict=True))
        return reduce(np.maximum, used)


def forwards_first(plan: Plan, loads: Loads) -> Any:
    """All forward passes, then all backward passes: one micro-batch through all stages, and the others behind it on the slowest."""
    through = sum(stage.count * time for stage, time in zip(loads.classes, loads.times, strict=True))
    return through + (plan.num_microbatches - 1.0) * loads.slowest


def one_chunk(plan: Plan, loads: Loads) -> Any:
    """One forward, one backward with a chunk a rank: the longest chain of passes, found by a recurrence over the stages.

    ``V_s = B_s + max(V_(s+1), E_s)`` is the end of the first backward pass of stage s, where ``E_s`` is the end of the last forward pass of
    its warm-up. ``U_s``, with forward and backward exchanged, is the time from the start of its last forward pass to the end of the step.
    Between the two a stage is busy. A chain leaves a class of equal stages at one of its ends, so the ends alone are looked at.
    """
    ends = list(_ends(loads))
    forward, backward = loads.forward_share, 1.0 - loads.forward_share
    m = plan.num_microbatches
    best: Any = 0.0
    opened, closed = (_first_returns(plan, ends, one, other) for one, other in ((forward, backward), (backward, forward)))
    for end, start, finish in zip(ends, opened, closed, strict=True):
        ahead = np.minimum(plan.pp - 1.0 - end.stage, m - 1.0)
        chain = start + (m - 2.0 - ahead) * end.time + finish
        if np.any(m - 1.0 <= ahead):  # all forward passes are warm-up
            down = start + backward * (end.before + (m - 1.0) * end.longest)
            up = forward * (end.before + (m - 1.0) * end.longest) + finish
            chain = np.where(m - 1.0 <= ahead, np.maximum(down, up), chain)
        best = np.where(end.there, np.maximum(best, chain), best)
    return best


def chunked_at_least(plan: Plan, loads: Loads) -> Any:
    """A time that ``chunked`` is never below: the longest of some chains of passes.

    A chain goes through the first chunk of the stages before a stage, out and back, and has that stage for all micro-batches. With one
    chunk it may also go to the last stage and back in place of the warm-up, and in place of as many passes at the end; both together
    take least where out and back take as long. With several chunks it may have the last chunk of the last stage, with the loss, in place
    of that of the stage before: it changes between the two once a group of micro-batches, and loses at most two long chunks each time.
    """
    m = plan.num_microbatches
    best: Any = 0.0
    before: Any = 0.0
    after = sum(stage.count * time for stage, time in zip(loads.classes, loads.times, strict=True))
    several = plan.vpp > 1.0
    longest = reduce(np.maximum, (loads.full_chunk(at, plan.vpp) for at in range(len(loads.classes))))
    swapped: Any = 0.0  # of the stages so far: a chain that has the last chunk of the next one, but for that chunk
    for at, (stage, time) in enumerate(zip(loads.classes, loads.times, strict=True)):
        count = np.maximum(stage.count, 0.0)
        after = after - count * time
        entered, left = loads.of_chunk(at, plan.vpp, 0.0), loads.of_chunk(at, plan.vpp, plan.vpp - 1.0)
        ahead = plan.pp - stage.index - count
        further = np.where(several | (m - 1.0 <= ahead), 0.0, 2.0 * np.maximum(after - 0.5 * ahead * time, 0.0))
        if at == 0:  # the law gives what is unlike in its layers to the first chunk
            entered = np.maximum(np.minimum(entered, time - (plan.vpp - 1.0) * longest), 0.0)
        chain = before + np.maximum(count - 1.0, 0.0) * entered + m * time + further
        chain = np.maximum(chain, np.where(several & (stage.head > 0.0), swapped + m * left, 0.0))
        best = np.where(count > 0.0, np.maximum(best, chain), best)
        swap = before + np.maximum(count - 1.0, 0.0) * entered + m * (time - left) - 2.0 * m / loads.group * longest
        swapped = np.where(count > 0.0, swap, swapped)
        before = before + count * entered
    return best


def no_bound(plan: Plan, loads: Loads) -> Any:
    """No more than the slowest stage takes is known without running passes."""
    del plan, loads
    return 0.0


class _End(Frozen):
    """The first or the last stage of a class of equal stages."""

    stage: Any  # from 0
    there: Any  # False where the class is empty
    time: Any  # of one micro-batch
    before: Any  # of one micro-batch on all stages before it
    longest: Any  # on the slowest of these and the stage itself
    between: Any  # stages between it and the next end


def _ends(loads: Loads) -> Iterator[_End]:
    """The first and the last stage of every class, in the order of the pipeline."""
    before: Any = 0.0
    longest: Any = 0.0
    for stage, time in zip(loads.classes, loads.times, strict=True):
        count = np.maximum(stage.count, 0.0)
        longest = np.where(count > 0.0, np.maximum(longest, time), longest)
        yield _End(stage.index, count > 0.0, time, before, longest, np.maximum(count - 2.0, 0.0))
        if np.any(count > 1.0):
            further = np.maximum(count - 1.0, 0.0)
            yield _End(stage.index + further, count > 1.0, time, before + further * time, longest, 0.0)
        before = before + count * time


def _first_returns(plan: Plan, ends: list[_End], out: Any, back: Any) -> list[Any]:
    """For each end the time until its first pass back is done; a pass out takes the share ``out`` of its time, a pass back ``back``."""
    behind: Any = -np.inf  # the time of the next end
    found = []
    for end in reversed(ends):
        ahead = np.minimum(plan.pp - 1.0 - end.stage, plan.num_microbatches - 1.0)
        warm = out * (end.before + end.time + ahead * end.longest)
        returned = back * end.time + np.maximum(behind + end.between * back * end.time, warm)
        behind = np.where(end.there, returned, behind)
        found.append(behind)
    return found[::-1]


def chunked(plan: Plan, loads: Loads) -> Any:
    """One forward, one backward in turn; with several chunks a rank where ``vpp`` is above 1."""
    found = one_chunk(plan, loads) if np.any(plan.vpp == 1.0) else 0.0
    if not np.any(plan.vpp > 1.0):
        return found
    equal, alike = _equal_chunks(plan, loads)
    found = np.where(plan.vpp > 1.0, equal, found)
    unlike = (plan.vpp > 1.0) & np.logical_not(alike)
    return _unequal_chunks(plan, loads, unlike, found) if np.any(unlike) else found


def _equal_chunks(plan: Plan, loads: Loads) -> tuple[Any, Any]:
    """The time of plans whose chunks have equally many layers, and True where that is so.

    The first chunk of the first rank and the last chunk of the last may lack one: the embedding or the loss takes its place.
    """
    most = reduce(np.maximum, (np.where(s.count > 0.0, np.ceil(s.layers / plan.vpp), 0.0) for s in loads.classes))
    alike: Any = True
    chunk: Any = 0.0
    for at, stage in enumerate(loads.classes):
        lacks = most * plan.vpp - stage.layers
        end = np.maximum(stage.embedding, stage.head) > 0.0
        alike = alike & ((stage.count <= 0.0) | (lacks == 0.0) | (end & (lacks == 1.0)))
        chunk = np.where(~end | (plan.pp == 2.0), np.maximum(chunk, loads.full_chunk(at, plan.vpp)), chunk)
    whole = (plan.vpp - 1.0) * chunk
    ends = [time * (stage.count > 0.0) for stage, time in zip(loads.classes, loads.times, strict=True)]
    first, last = (np.maximum(end - whole, 0.0) for end in (ends[0], ends[-1]))
    times = {"chunk_time": chunk, "first_chunk_time": first, "last_chunk_time": last, "forward_share": loads.forward_share}
    return pipeline.interleaved_time(plan.pp, plan.vpp, plan.num_microbatches, loads.group, **times), alike


def put_off(plan: Plan, loads: Loads) -> Any:
    """Weight gradients put off to where a rank would wait: ``2 p`` micro-batches as they run, then the pace of the slowest rank."""

    def run(stages: int, few: int, some: Loads) -> tuple[Any, Any, int]:
        forward, backward, weight = some.passes(stages, 1)
        found = simulate(orders.WEIGHT_GRADIENTS_PUT_OFF, forward, backward, few, weight)
        return found.seconds, (forward + backward).max(axis=(0, 1)), few

    return _by_shape(plan, loads, (plan.pp, np.minimum(np.floor(plan.num_microbatches), 2.0 * plan.pp)), run)


def both_ways(plan: Plan, loads: Loads) -> Any:
    """Two directions at once: about ``3 p`` micro-batches as they run, then the pace of the slowest pair of stages."""

    def run(stages: int, few: int, some: Loads) -> tuple[Any, Any, int]:
        forward, backward, weight = (both_directions(one) for one in some.passes(stages, 1))
        found = simulate(orders.TWO_DIRECTIONS, forward, backward, few, weight)
        return found.seconds, (forward + backward).mean(axis=1).max(axis=0), few

    few = np.minimum(2.0 * np.floor(plan.num_microbatches / 2.0), 3.0 * plan.pp)
    paired = (plan.pp % 2.0 == 0.0) & (few >= 2.0 * plan.pp)  # no other plan is legal
    return _by_shape(plan, loads, (plan.pp, few - few % 2.0), run, paired)


def both_directions(of_stage: Any) -> Any:
    """Values of each stage (first axis) as those of the two stages of each rank (second axis): the one of its number from either end."""
    return np.concatenate([of_stage, of_stage[::-1]], axis=1)


def _unequal_chunks(plan: Plan, loads: Loads, where: Any, found: Any) -> Any:
    """``found``, and ``where`` chunks are unequal the time of some groups of micro-batches as they run, then the pace of the last."""

    def run(stages: int, chunks: int, group: int, rounds: int, some: Loads) -> tuple[Any, Any, int]:
        forward, backward, _ = some.passes(stages, chunks)
        seconds, pace = interleaved_seconds(forward, backward, group, rounds, some.hand_over)
        time = forward + backward  # the pace of few groups may be below that of many, which the chains of ``chunked_at_least`` bound
        longest = reduce(np.maximum, (some.full_chunk(at, float(chunks)) for at in range(len(some.classes))))
        whole = reduce(np.add, [time[:, chunk] for chunk in range(chunks)])  # in this order for one plan and for many
        swapped = whole[-2] - time[-2, -1] + time[-1, -1] - 2.0 * longest / group
        return seconds, reduce(np.maximum, (pace / group, swapped, whole.max(axis=0))), rounds * group

    rounds = np.clip(plan.num_microbatches // loads.group, 1.0, ROUNDS)
    return _by_shape(plan, loads, (plan.pp, plan.vpp, loads.group, rounds), run, where, found)


def _by_shape(plan: Plan, loads: Loads, shape: tuple[Any, ...], run: Callable[..., Any], where: Any = True, found: Any = 0.0) -> Any:
    """``found``, and ``where`` there is a pipeline the time of plans that are run, all of one shape together.

    ``run(*shape, loads)`` says what the first micro-batches take, what each further one adds, and how many the first are. Plans that differ
    in their number alone are run once.
    """
    held = sum(np.maximum(stage.count, 0.0) * np.maximum(stage.layers, 0.0) for stage in loads.classes)
    possible = (plan.num_microbatches >= 1.0) & (plan.pp <= held + 2.0) & (plan.vpp <= held + 2.0)  # no other plan is legal
    where = np.logical_and(where, (plan.pp > 1.0) & possible & loads.wanted)
    columns = np.broadcast_arrays(where, found, plan.num_microbatches, *shape, *loads.columns())
    chosen = np.flatnonzero(columns[0])
    answer = np.array(columns[1], dtype=np.float64)
    if not chosen.size:
        return answer
    every, micro_batches = np.stack([np.ravel(one)[chosen] for one in columns[3:]], axis=1), np.ravel(columns[2])[chosen]
    _, first, which = np.unique(every.view(f"V{every.itemsize * every.shape[1]}").ravel(), return_index=True, return_inverse=True)
    distinct = every[first]
    shapes, of_shape = np.unique(distinct[:, : len(shape)], axis=0, return_inverse=True)
    seconds, pace, few = (np.empty(first.size) for _ in range(3))
    for number, key in enumerate(shapes.astype(int).tolist()):
        own = np.flatnonzero(np.ravel(of_shape) == number)
        seconds[own], pace[own], few[own] = run(*key, loads.with_columns(list(distinct[own, len(shape) :].T)))
    answer.flat[chosen] = seconds[which] + (micro_batches - few[which]) * pace[which]
    return answer
