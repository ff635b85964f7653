"""The numbers of accelerators next to an asked one that have a plan that fits, where the asked one has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from math import ceil, floor, lcm, log2, prod

from ironlaw.errors import IronlawError, PlanError
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.bind.question import bind_question, with_batch
from ironlaw.estimate.legality.rules import broken
from ironlaw.estimate.planner.possible import has_plan
from ironlaw.question.defaults import MOST_ACCELERATORS

Works = Callable[[float], bool | None]

MESH = ("tp", "pp", "cp", "dp_replicate", "dp_shard")
ROUND = (1, 3, 5, 7)  # times powers of two, of nodes: what meshes divide well
TRIED = 12  # counts on either side; one that no mesh divides takes no search
SEARCHED = 3  # counts on either side that have plans, of which none fits
NEXT = 8  # multiples of a node next to the asked count that come before round ones


def candidates(gpus: float, unit: int, node: int) -> tuple[Iterator[float], Iterator[float]]:
    """Counts below and above ``gpus`` in the order in which they are tried: multiples of a node or, below a node, of ``unit``.

    ``unit`` is what the given axes take; the next multiples come first, then round counts.

    >>> below, above = candidates(1999, 1, 8)
    >>> [next(below), next(below)], [next(above), next(above)]
    ([1992.0, 1984.0], [2000.0, 2008.0])
    """
    whole = lcm(unit, node)
    step = whole if gpus > whole else unit
    low, high = floor((gpus - 1) / step), floor(gpus / step) + 1
    near_below = (float(n * step) for n in range(low, max(low - NEXT, 0), -1))
    near_above = (float(n * step) for n in range(high, high + NEXT))
    rounded = sorted({float(step * odd * 2**power) for odd in ROUND for power in range(int(log2(MOST_ACCELERATORS)) + 1)})
    inside = (n * unit for n in range((int(gpus) - 1) // unit, 0, -1)) if step > unit and low == 0 else ()
    below = chain(near_below, (n for n in reversed(rounded) if n < (low - NEXT) * step), (float(n) for n in inside))
    above = chain(near_above, (n for n in rounded if (high + NEXT) * step <= n <= MOST_ACCELERATORS))
    return below, above


def nearest_counts(estimate: Estimate, index: int = 0) -> tuple[float, ...]:
    """The nearest number of accelerators below and above a row's that has a plan that fits, as far as there are any.

    Where the row's plan is legal and too large, more accelerators are looked for by doubling: they have more memory.
    """
    if estimate.asked is None:
        return ()
    group, at = estimate.place_of(index)
    row = estimate.asked.rows[index]
    gpus, unit = row.gpus or 1.0, int(prod(getattr(row, axis) or 1.0 for axis in MESH))

    def works(count: float) -> bool | None:
        """True where a number of accelerators has a plan that fits, False where no plan fits, None where none is legal."""
        assert estimate.asked is not None
        try:
            return has_plan(with_batch(bind_question(estimate.asked.replace(rows=(row._replace(gpus=count),)), estimate.folders)))
        except IronlawError:
            return None

    if all(getattr(row, axis) is not None for axis in MESH):  # the axes give the number of accelerators
        return (float(unit),) if works(float(unit)) else ()
    return counts_that_work(works, gpus, unit, int(group.cluster.node.accelerators.value), bool(group.legal[at]))


def counts_that_work(works: Works, gpus: float, unit: int, node: int, more: bool) -> tuple[float, ...]:
    """The nearest count below and the nearest above ``gpus`` that work; with ``more``, as far as memory is short, one above.

    A count that is no multiple of a node may have a plan that is legal and too large, where its neighbours have better ones.
    """
    whole = lcm(unit, node)
    if more and (gpus % whole == 0 or gpus < whole):
        return tuple(islice(_doubled(works, max(gpus, float(unit))), 1))
    near = tuple(count for counts in candidates(gpus, unit, node) for count in islice(_working(works, counts), 1))
    if near or not more:
        return near
    return tuple(islice(_doubled(works, float(ceil(gpus / whole) * whole)), 1))


def _working(works: Works, counts: Iterator[float]) -> Iterator[float]:
    """The counts that have a plan that fits; of counts without one only a few are tried."""
    left = SEARCHED
    for count in islice(counts, TRIED):
        found = works(count)
        if found:
            yield count
        left -= found is False
        if not left:
            return


def _doubled(works: Works, gpus: float) -> Iterator[float]:
    """A count above ``gpus`` that has a plan that fits: a quarter step below the first double that has one, or this double."""
    double = 2.0 * gpus
    while double <= MOST_ACCELERATORS and not works(double):
        double *= 2.0
    if double <= MOST_ACCELERATORS:
        between = (double * quarters / 8.0 for quarters in (5, 6, 7))
        yield from (count for count in between if count.is_integer() and works(count))
        yield double


def describe_counts(counts: tuple[float, ...]) -> str:
    """Numbers of accelerators that work, in words; nothing where there are none.

    >>> describe_counts((1984.0, 2000.0))
    '; the nearest numbers of accelerators that work are 1,984 and 2,000'
    """
    if not counts:
        return ""
    verb = "the nearest numbers of accelerators that work are" if len(counts) > 1 else "the nearest number of accelerators that works is"
    return f"; {verb} {' and '.join(f'{count:,.0f}' for count in counts)}"


def why_impossible(estimate: Estimate, index: int = 0) -> str:
    """Why a row has no plan: the rules that it breaks with their values, and the nearest numbers of accelerators that work."""
    return _why_impossible(estimate, index, nearest_counts(estimate, index))


def _why_impossible(estimate: Estimate, index: int, near: tuple[float, ...]) -> str:
    group, at = estimate.place_of(index)
    return "; ".join(broken(group.job, group.plan, group.rules, at)) + describe_counts(near)


def no_such_plan(estimate: Estimate, where: str = "", instead: str = "") -> PlanError:
    """The error of a question whose plan breaks a rule; it offers the nearest numbers of accelerators that work."""
    near = nearest_counts(estimate)
    offered = [{"option": "gpus", "value": count} for count in near]
    return PlanError(f"no such plan{where}: {_why_impossible(estimate, 0, near)}{instead}", offers=offered)
