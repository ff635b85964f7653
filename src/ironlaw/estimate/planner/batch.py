"""The batch of a question that gives none: the nearest to the usual one for which the best plan is about as fast as for any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, log2

from ironlaw.estimate.planner.space import Space
from ironlaw.question.defaults import BATCH_LOSS

Rate = Callable[[float, float], float]
# values of axes with which the batches of a mixture are compared: each lets a plan be faster, hardly one batch more than another
ROUGH = {
    "dp_replicate": (1.0,), "schedule": ("1f1b",), "moe_dispatcher": ("deepep",), "overlap_ep": (0.0,), "sp": (1.0,), "zero": (1.0, 3.0),
    "recompute": ("none", "selective", "full"), "overlap_grad_reduce": (1.0,), "overlap_param_gather": (1.0,), "overlap_tp": (1.0,),
    "overlap_pp": (1.0,),
}  # fmt: skip


def rough_space(space: Space) -> Space:
    """A space of what a stack has, with fewer values of the axes that the question leaves open."""
    values = {}
    for axis, kept in space.values.items():
        fewer = ROUGH.get(axis, ()) if axis not in space.given else ()
        values[axis] = (fewer if isinstance(kept, str) else tuple(value for value in fewer if value in kept)) or kept
    return replace(space, values=values).without(("last_stage_layers",))


def pick_batch(batches: Sequence[float], rate: Rate, widest: float | None = None) -> float:
    """The first batch whose plan loses at most 5 % of the tokens per second of the best one; of ``batches`` the nearest come first.

    ``rate(batch, least)`` is the rate of the best plan of a batch, or 0 where none is as fast as ``least``. A batch that cannot be
    ahead costs little: its search ends at ``least``. Each smaller batch has a multiple in the largest octave, so the best is looked for
    there and at the first. Octaves are then followed down while they have a batch that loses little. If no batch has a rate, the first
    is picked. A batch that all layouts of the others divide, ``widest``, is asked alone where the first has no rate: where it has none
    either, memory is short for all.

    >>> rates = {512.0: 1.0, 576.0: 1.04, 640.0: 1.08}
    >>> pick_batch(tuple(rates), lambda batch, least: rates[batch] if rates[batch] >= least else 0.0)
    576.0
    """
    first, kept, most = batches[0], 1.0 - BATCH_LOSS, max(batches)
    octaves: dict[int, list[float]] = {}
    for batch in batches:
        octaves.setdefault(int(log2(most / batch)), []).append(batch)
    known, asked = {first: rate(first, 0.0)}, {first: 0.0}

    def reaches(batch: float, least: float) -> bool:
        """True where a batch has at least a rate; one whose rate is known, or known to be less, is not asked for again."""
        if known.get(batch):
            return known[batch] >= least
        if asked.get(batch, inf) <= least:
            return False
        known[batch], asked[batch] = rate(batch, least), least
        return known[batch] > 0.0

    if not known[first] and widest is not None and not rate(widest, 0.0):
        return first
    ahead = known[first] / kept  # rates up to here leave the first batch the answer
    best = known[first]
    for batch in sorted(octaves[0], reverse=True):
        if batch != first:
            reaches(batch, max(kept * best, ahead))
            best = max(best, known[batch])
    if known[first] >= kept * best:
        return first
    picked = first
    for octave in sorted(octaves):
        for batch in octaves[octave]:
            if reaches(batch, kept * best):
                picked = batch
                break
        else:
            if octave:
                break
    return picked
