"""What makes a run much faster that is not the plan: another batch, or fewer accelerators, of which more do the work.

A number without small factors leaves plans few ways to split the model, and a small batch leaves many accelerators little work. Every
search here ends at the speed that is worth a line, so it costs little where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

from ironlaw.estimate.bind.batch import batch_range
from ironlaw.estimate.bind.question import Bound
from ironlaw.estimate.planner.best import UNFIT
from ironlaw.estimate.planner.choose import Bounds, Choice, choose, choose_batch, is_rough, search_row
from ironlaw.estimate.planner.space import Space
from ironlaw.question import defaults
from ironlaw.question.fields import Row
from ironlaw.terms import plain

WORTH = 1.0 / (1.0 - defaults.BATCH_COST)  # times as fast: what is worth a line
FEWER = 1.0 / (1.0 - defaults.BATCH_LOSS)  # times as fast on fewer accelerators: what is worth a line, however much each does
ROUGHLY = 0.85  # times as fast in the rough space: what is worth a search in the whole one
ROUND_ODD = 15  # a number of nodes that is at most this times a power of two divides well
MOST_COUNTS = 3  # numbers of accelerators that are searched
LARGER = 8.0  # times the batch: the largest that is tried


class Other(NamedTuple):
    """Another batch or number of accelerators, and how many times the tokens per second it gives."""

    value: float
    times: float


class Remedies(NamedTuple):
    """What makes the run of a row much faster; None where nothing was found."""

    near_batch: Other | None = None  # within a tenth of the given one
    larger_batch: Other | None = None  # with the same number of accelerators
    fewer: Other | None = None  # accelerators; all others stay free
    over_limit: float = 0.0  # tokens of the limit, where the default batch is above it


NONE = Remedies()


def remedies_of(bound: Bound, row: Row, space: Space, bounds: Bounds, choice: Choice) -> Remedies:
    """What makes the chosen plan of a row much faster; of a plan that is given, whether its default batch is above the limit."""
    allowed = batch_range(bound, row)
    over = row.global_batch_size is None and (choice.row.global_batch_size or 0.0) > allowed.most
    limit = allowed.most * (row.seq_len or 1.0) if over else 0.0
    if not choice.seconds or choice.tier == UNFIT:
        return Remedies(over_limit=limit)
    worth = 1.0 if odd_part(choice.row.pp or 1.0) > ROUND_ODD else WORTH  # few run such stages: what removes them is named in any case
    near = None if row.global_batch_size is None else near_batch(bound, row, space, bounds, choice.seconds, worth)
    fewer = None if near else fewer_accelerators(bound, row, space, bounds, choice, over, worth)
    larger = None if near or fewer else larger_batch(bound, row, space, bounds, choice)
    return Remedies(near, larger, fewer, limit)


def near_batch(bound: Bound, row: Row, space: Space, bounds: Bounds, seconds: float, worth: float = WORTH) -> Other | None:
    """A batch near the given one with a plan of ``worth`` times the tokens per second, and how many times; None where there is none.

    ``seconds`` is the step with the given batch. Only a batch that shares few divisors with the accelerators is worth the search.
    """
    given, gpus = row.global_batch_size or 0.0, row.gpus or 1.0
    low, high = (1.0 - defaults.NEAR_BATCH) * given, (1.0 + defaults.NEAR_BATCH) * given
    near = defaults.batches(gpus, given, low, high, row.micro_batch_size or 1.0) if given >= defaults.FEW_SEQUENCES else []
    shared = gcd(int(given), int(gpus))
    best: Other | None = None
    for batch in near:
        if gcd(int(batch), int(gpus)) < defaults.MUCH_SHARED * shared:
            continue
        least = best.times if best else worth
        choice = search_row(bound, row._replace(global_batch_size=batch), space, bounds, seconds / least * batch / given)
        if choice is not None and seconds > 0.0:
            best = Other(batch, seconds / choice.seconds * batch / given)
    return best


def larger_batch(bound: Bound, row: Row, space: Space, bounds: Bounds, choice: Choice) -> Other | None:
    """The batch, 2, 4 or 8 times the row's, that holds back accelerators with less than one sequence each; None where none does much.

    A default batch of a run whose tokens are known is at its limit, or loses little to it, so no larger one is named.
    """
    batch = choice.row.global_batch_size or 1.0
    known = row.global_batch_size is None and bound.asked.tokens is not None
    if known or batch >= (row.gpus or 1.0):
        return None

    def rate_of(times: float, least: float) -> float:
        """How many times the tokens per second of the row a batch so many times its own gives; 0 where it is less than ``least``."""
        more = row._replace(global_batch_size=times * batch)
        found = search_row(bound, more, space, bounds, choice.seconds * times / least)
        return 0.0 if found is None or found.tier else choice.seconds * times / found.seconds

    most = rate_of(LARGER, WORTH)
    for times in (2.0, 4.0) if most else ():
        if found := rate_of(times, max(most * (1.0 - defaults.BATCH_COST), WORTH)):
            return Other(times * batch, found)
    return Other(LARGER * batch, most) if most else None


def fewer_accelerators(
    bound: Bound, row: Row, space: Space, bounds: Bounds, choice: Choice, over: bool, worth: float = WORTH
) -> Other | None:
    """Fewer accelerators that do most: each ``worth`` times as much, or all together FEWER times; ``over``: those with a smaller batch.

    The numbers are compared in the rough space, then the best of them is asked for in the whole one.
    """
    gpus, tried = row.gpus or 1.0, list(_divisible_below(row.gpus or 1.0, int(plain(bound.cluster.node.accelerators))))
    rough = is_rough(bound, space)
    if not tried:
        return None
    with_batch = row._replace(global_batch_size=choice.row.global_batch_size)
    own = search_row(bound, with_batch, space, bounds, rough=True, by_score=False) if rough else choice
    if own is None or not own.seconds:
        return None
    found = [Other(count, _rate(bound, row._replace(gpus=count), space, bounds, rough) / _rate_of(own)) for count in tried]
    if rough:  # of a mixture the two that seem best are asked for in the whole space
        likely = sorted((one for one in found if over or one.times > ROUGHLY * one.value / gpus), key=lambda one: -one.times)[:2]
        found = [Other(one.value, _whole_rate(bound, row, one.value, space, bounds) / _rate_of(choice)) for one in likely]
    able = [one for one in found if one.times > (0.0 if over else min(worth * one.value / gpus, FEWER))]
    return max(able, key=lambda one: one.times, default=None)


def _whole_rate(bound: Bound, row: Row, gpus: float, space: Space, bounds: Bounds) -> float:
    """Sequences per second of the plan of an estimate on another number of accelerators."""
    return _rate_of(choose(bound, row._replace(gpus=gpus), space, bounds))


def _rate(bound: Bound, row: Row, space: Space, bounds: Bounds, rough: bool) -> float:
    """Sequences per second of the best plan of a row, with the batch it gives or the default one; 0 where none fits."""
    given = row.global_batch_size is not None
    found = search_row(bound, row, space, bounds, rough=rough) if given else choose_batch(bound, row, space, bounds, rough)
    return 0.0 if found is None else _rate_of(found)


def _rate_of(choice: Choice) -> float:
    """Sequences per second of a chosen plan; 0 where it does not fit."""
    return 0.0 if choice.tier == UNFIT or not choice.seconds else (choice.row.global_batch_size or 0.0) / choice.seconds


def _divisible_below(gpus: float, node: int) -> Iterator[float]:
    """A few numbers at most a tenth below one that divides badly, those with most factors of two first.

    >>> list(_divisible_below(2000.0, 8)), list(_divisible_below(8191.0, 8)), list(_divisible_below(1920.0, 8))
    ([1920.0, 1984.0], [7680.0, 7936.0, 8064.0], [])
    """
    if gpus <= node or _is_round(gpus, node):
        return
    unit, seen = float(node), set[float]()
    while unit <= gpus:
        seen.add(gpus // unit * unit)
        unit *= 2.0
    fit = [n for n in seen if (1.0 - defaults.BATCH_COST) * gpus <= n < gpus]
    yield from sorted(fit, key=lambda n: (-(int(n) & -int(n)), -n))[:MOST_COUNTS]


def _is_round(gpus: float, node: int) -> bool:
    """True for whole nodes whose number is a small odd number times a power of two."""
    return gpus % node == 0.0 and odd_part(gpus // node) <= ROUND_ODD


def odd_part(number: float) -> int:
    """A whole number without its factors of two.

    >>> odd_part(63.0), odd_part(48.0)
    (63, 3)
    """
    return int(number) // (int(number) & -int(number))
