"""The batch of a question that gives none: the nearest to the usual one for which the best plan is about as fast as for any."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ironlaw.question.defaults import BATCH_LOSS

Rate = Callable[[float, float], float]


def pick_batch(batches: Sequence[float], rate: Rate) -> float:
    """The first batch whose plan loses at most 5 % of the tokens per second of the best one; of ``batches`` the nearest come first.

    ``rate(batch, least)`` is the rate of the best plan of a batch, or 0 where none is as fast as ``least``. A batch that cannot be
    ahead costs little: its search ends at ``least``. The best is looked for among the batches above half of the largest, as each smaller
    one has a multiple there, and the first. If no batch has a rate, the first is picked.

    >>> rates = {512.0: 1.0, 576.0: 1.04, 640.0: 1.08}
    >>> pick_batch(tuple(rates), lambda batch, least: rates[batch] if rates[batch] >= least else 0.0)
    576.0
    """
    first, kept = batches[0], 1.0 - BATCH_LOSS
    known = {first: rate(first, 0.0)}
    ahead = known[first] / kept  # rates up to here leave the first batch the answer
    best = known[first]
    for batch in sorted((n for n in batches[1:] if n > max(batches) / 2.0), reverse=True):
        known[batch] = rate(batch, max(best, ahead))
        best = max(best, known[batch])
    for batch in batches:
        if known.get(batch, 0.0) >= kept * best or (batch != first and rate(batch, kept * best) > 0.0):
            return batch
    return first
