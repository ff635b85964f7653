"""How many accelerators: the numbers that a search tries, the fewest that meet a condition, and the most.

Every verb that leaves the number open asks here, so that all try the same numbers and stop at the same one. A verb gives the score of a
number: how many times it reaches what is asked for. Scores grow with the number for most of the range, so few are tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ironlaw.catalog.model import Model
from ironlaw.catalog.records import Accelerator
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.law.flops import per_token
from ironlaw.progress import Count, counted
from ironlaw.question.defaults import MOST_ACCELERATORS
from ironlaw.terms import plain, scalar

Score = Callable[[float], float]
ROUND = (1, 3, 5, 7)  # times powers of two: the counts of nodes that are tried, as meshes divide them well
REFINED = 3  # halvings of the gap between the round count that is enough and the one before
GUESS = 4.0  # times the fewest that any plan needs: where a search begins
LEAST_BYTES = 0.5  # of a parameter: weights in four bits
FALLS = 2  # octaves in which the score falls before a search for more accelerators ends
HALVINGS = 6  # of the largest power of two that divides a count below a limit
NEAR_LIMIT = 0.7  # of the limit: smaller counts are not worth a search


def seconds_and_usd(group: Group) -> tuple[float | None, float | None]:
    """Time and cost of the run with its failures, without them where they leave almost no progress; None where none is asked for."""
    if group.run is None:
        return None, None
    failing = scalar(group.run.failures.seconds)
    if math.isnan(failing):
        return scalar(group.run.seconds), scalar(group.run.usd)
    return failing, scalar(group.run.usd_with_failures)


def times_reached(estimate: Estimate, deadline: float | None, target: float | None) -> float:
    """How many times an estimate of one row reaches a deadline [s] and a rate [token/s], the lower of the two.

    0 where no plan fits, and where the default batch is above its limit: a search does not take more accelerators for a batch too large.
    """
    if not estimate.fits[0] or is_above_limit(estimate):
        return 0.0
    reached = math.inf if target is None else float(estimate.tokens_per_second[0]) / target
    seconds, _ = seconds_and_usd(estimate.groups[0])
    return reached if deadline is None or seconds is None else min(reached, deadline / seconds)


def is_above_limit(estimate: Estimate) -> bool:
    """True where the default batch of an estimate of one row is above the limit of its run."""
    return estimate.groups[0].remedies[0].over_limit > 0.0


def least_count(model: Model, accelerator: Accelerator, rate: float, forward_only: bool = False) -> float:
    """A number of accelerators below which no plan has so many tokens per second, or holds the weights: from the peak and the memory."""
    weights = float(total_parameters(model)) * LEAST_BYTES / plain(accelerator.memory_capacity)
    return float(max(rate * least_seconds(model, accelerator, forward_only), weights, 1.0))


def least_seconds(model: Model, accelerator: Accelerator, forward_only: bool = False) -> float:
    """Accelerator seconds of a token at the highest peak, which no plan beats; with frozen weights the forward pass alone is sure."""
    peak = max(float(plain(rate)) for rate in accelerator.peak.values())
    return float(per_token(active_parameters(model)) / peak) / (3.0 if forward_only else 1.0)


def round_counts(node: int, least: float = 1.0, most: float = MOST_ACCELERATORS, unit: float = 1.0) -> list[float]:
    """Round counts from ``least`` to ``most``: parts of a node, then 1, 3, 5, 7 times powers of two of nodes; multiples of ``unit``.

    >>> round_counts(8, 4, 64)
    [4.0, 8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0, 64.0]
    """
    parts = {node / 2**i for i in range(1, 5) if node % 2**i == 0}
    whole_nodes = {float(node * odd * 2**i) for odd in ROUND for i in range(18)}
    return sorted(n for n in parts | whole_nodes if least <= n <= most and n % unit == 0.0)


def fewest_count(tried: Sequence[float], node: int, score: Score) -> float | None:
    """The fewest accelerators with a score of at least 1: a round count, then finer in whole nodes; None where none has it.

    ``tried`` are round counts, ascending, the first of which may be the fewest that any plan needs. The search follows the score to two
    neighbours of which the larger alone is enough. The gap between these is halved three times.

    >>> fewest_count(round_counts(8), 8, lambda count: count / 2700.0)
    2752.0
    """
    if not tried:
        return None
    with counted("numbers of accelerators") as count:
        score = _told(score, count)
        low, high = _bracket(tried, score, GUESS * tried[0])
        if high is None:
            return None
        below, enough = tried[low] if low >= 0 else 0.0, tried[high]
        return _refine(below, enough, node, score) if below else enough


def _told(score: Score, count: Count) -> Score:
    """A score that tells how many numbers were tried."""

    def scored(gpus: float) -> float:
        found = score(gpus)
        count.tell(count.done + 1)
        return found

    return scored


def _bracket(tried: Sequence[float], score: Score, guess: float) -> tuple[int, int | None]:
    """Positions of two neighbours of which the larger alone has a score of at least 1; -1: the first has, None: none has."""
    low, high, best, falls = -1, len(tried), 0.0, 0
    at = min(_first_from(tried, guess), len(tried) - 1)
    while high - low > 1:
        found = score(tried[at])
        if found >= 1.0:
            high = at
        else:
            low, falls = at, falls + (found < best)
            if high == len(tried) and falls == FALLS:
                return low, None
            best = max(best, found)
        aim = tried[at] / found if found > 0.0 else 2.0 * tried[at]
        at = min(max(_first_from(tried, aim) - (found >= 1.0), low + 1), high - 1)
    return low, high if high < len(tried) else None


def _first_from(tried: Sequence[float], count: float) -> int:
    """The position of the first count that is at least so many; their number where none is."""
    return next((at for at, one in enumerate(tried) if one >= count), len(tried))


def _refine(below: float, enough: float, node: int, score: Score) -> float:
    """The fewest that are enough between two counts, by halving the gap in whole nodes."""
    for _ in range(REFINED):
        middle = math.floor((below + enough) / 2.0 / node) * float(node)
        if not below < middle < enough:
            break
        below, enough = (below, middle) if score(middle) >= 1.0 else (middle, enough)
    return enough


def octaves(tried: Sequence[float]) -> list[int]:
    """Positions of ascending counts, each at least twice the one before; the first and the last are among them.

    >>> octaves([8.0, 16.0, 24.0, 32.0, 40.0])
    [0, 1, 3, 4]
    """
    steps: list[int] = []
    for at, count in enumerate(tried):
        if not steps or count >= 2.0 * tried[steps[-1]] or at == len(tried) - 1:
            steps.append(at)
    return steps


def most_count(tried: Sequence[float], node: int, score: Score) -> float | None:
    """The most accelerators with a score of at least 1, which few and many may both miss; None where none has it.

    One round count of every octave is tried, until two after a success fail; then those of the octave after the last that has it. The gap
    to the next is halved three times.

    >>> most_count(round_counts(8), 8, lambda count: float(100 <= count <= 2700))
    2688.0
    """
    with counted("numbers of accelerators") as count:
        return _most_count(tried, node, _told(score, count))


def _most_count(tried: Sequence[float], node: int, score: Score) -> float | None:
    """``most_count``."""
    steps = octaves(tried)
    last, failed = None, 0
    for place, at in enumerate(steps):
        if score(tried[at]) >= 1.0:
            last, failed = place, 0
        elif last is not None:
            failed += 1
            if failed == 2:
                break
    if last is None:
        return None
    end = steps[last + 1] if last + 1 < len(steps) else len(tried)
    found = next((at for at in range(end - 1, steps[last], -1) if score(tried[at]) >= 1.0), steps[last])
    if found + 1 == len(tried):
        return tried[found]
    enough, above = tried[found], tried[found + 1]
    for _ in range(REFINED):
        middle = math.floor((enough + above) / 2.0 / node) * float(node)
        if not enough < middle < above:
            break
        enough, above = (middle, above) if score(middle) >= 1.0 else (enough, middle)
    return enough


def counts_below(limit: float, node: int, tried: Sequence[float]) -> list[float]:
    """Counts just below a limit, the largest first: whole numbers of 1, 2, 4, ... nodes, which plans divide better, and a round count.

    >>> counts_below(3_500, 8, [2048.0, 2560.0, 3072.0, 3584.0])
    [3496.0, 3488.0, 3456.0, 3328.0, 3072.0]
    """
    units = [float(node * 2**power) for power in range(HALVINGS + 1)]
    whole = {limit // unit * unit for unit in units} | {max((n for n in tried if n <= limit), default=0.0)}
    most = max(whole)
    return sorted((n for n in whole if n > 0 and n >= NEAR_LIMIT * most), reverse=True)


def rounded_down(limit: float, node: int) -> dict[str, float]:
    """The usual counts at or below a limit: whole nodes, a round count, a power of two.

    >>> rounded_down(694, 8)
    {'whole nodes': 688.0, 'a round count': 640.0, 'a power of two': 512.0}
    """
    usual = {"whole nodes": float(limit // node * node), "a round count": max(round_counts(node, 1.0, limit), default=0.0)}
    if limit >= 1:
        usual["a power of two"] = 2.0 ** math.floor(math.log2(limit))
    return {name: count for name, count in usual.items() if count >= 1}
