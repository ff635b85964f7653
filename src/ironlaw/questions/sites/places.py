"""Places of sites, the distances between them, and the ring that joins them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.law import wide_area
from ironlaw.terms import Term, leaf

MOST = 1000  # sites of a question; more is a typing error
TRIED = 8  # up to this many sites every ring is tried; with more, each site is followed by its nearest


@dataclass(frozen=True)
class Place:
    """One site. A site given by number has no coordinates; one given by coordinates has no recorded power."""

    name: str
    latitude: float | None = None
    longitude: float | None = None
    grid: str | None = None
    power: Sourced | None = None


def bind_places(asked: tuple[str | tuple[float, float], ...] | int, grid: Any, folders: tuple[str, ...]) -> list[Place]:
    """The places of a question: at least two, all different."""
    if (asked if isinstance(asked, int) else len(asked)) > MOST:
        raise ValueRangeError(f"--sites: more than {MOST} sites; give fewer")
    names: list[Any] = [f"site {i + 1}" for i in range(asked)] if isinstance(asked, int) else list(asked)
    places = [Place(name, grid=grid) if isinstance(asked, int) else _bind_place(name, grid, folders) for name in names]
    if len(places) < 2:
        raise QuestionError(f"--sites names {len(places)} site: give at least two, or ask ironlaw estimate")
    seen: set[str] = set()
    for place in places:
        if place.name in seen:
            raise QuestionError(f"--sites names {place.name} twice: leave one out")
        seen.add(place.name)
    return places


def _bind_place(asked: str | tuple[float, float], grid: Any, folders: tuple[str, ...]) -> Place:
    """The place of one item: a site by name, or a pair of coordinates."""
    if isinstance(asked, tuple):
        return Place(f"{asked[0]:g},{asked[1]:g}", *asked, grid=grid)
    record = load.record("sites", asked, folders)
    if record.power is not None and record.power.value <= 0.0:
        raise ValueRangeError(f"--sites: {record.name} has no power, so no accelerator runs there; leave it out")
    return Place(record.name, record.latitude, record.longitude, record.grid, record.power)


def distance(a: Place, b: Place) -> Term:
    """The great-circle distance between two places."""
    return leaf(
        f"{a.name} to {b.name}", wide_area.great_circle, "m",
        latitude=a.latitude, longitude=a.longitude, other_latitude=b.latitude, other_longitude=b.longitude,
    )  # fmt: skip


def order_ring(places: list[Place]) -> list[Place]:
    """The order with the shortest longest link, then the shortest sum; of many sites the nearest next one each time."""
    metres = {(a.name, b.name): float(distance(a, b).value) for a in places for b in places if a is not b}
    if len(places) > TRIED:
        order, unplaced = [places[0]], list(places[1:])
        while unplaced:
            order.append(min(unplaced, key=lambda p: metres[order[-1].name, p.name]))
            unplaced.remove(order[-1])
        return order

    def lengths(order: tuple[Place, ...]) -> tuple[float, float]:
        links = [metres[a.name, b.name] for a, b in pairwise((*order, order[0]))]
        return max(links), sum(links)

    orders: list[tuple[Place, ...]] = [(places[0], *rest) for rest in permutations(places[1:])]
    return list(sorted(orders, key=lengths)[0])


def ring_links(order: list[Place]) -> list[tuple[Place, Place]]:
    """Neighbours on the ring, each pair once."""
    if len(order) == 2:
        return [(order[0], order[1])]
    return list(pairwise((*order, order[0])))
