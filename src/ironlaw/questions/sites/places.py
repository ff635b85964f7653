"""Where sites are: names and coordinates of a question become places, places a ring and its links."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any

from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.terms import Term

MOST = 1000  # sites of a question; more is a slip of the keyboard
TRIED = 8  # sites up to which every ring is tried; more go to the nearest next


@dataclass(frozen=True)
class Place:
    """One site: where it is (unless only its number is known), its grid and its power (unless nobody knows)."""

    name: str
    latitude: float | None = None
    longitude: float | None = None
    grid: str | None = None
    power: Sourced | None = None


def read_places(value: Any, flag: str) -> tuple[str | tuple[float, float], ...] | int:
    """A comma list of site names and LAT,LON pairs; or how many sites, nothing known of them."""
    items = list(value) if isinstance(value, (list, tuple)) else [i.strip() for i in str(value).split(",") if i.strip()]
    if len(items) == 1 and str(items[0]).isdecimal():
        return int(str(items[0])[:9])
    found: list[str | tuple[float, float]] = []
    waiting: float | None = None
    for item in items:
        pair = tuple(_number(part) for part in item) if isinstance(item, (list, tuple)) else None
        if pair is not None and (len(pair) != 2 or None in pair):
            raise QuestionError(f"{flag}: {item} is no LAT,LON pair of degrees")
        number = None if pair else _number(item)
        if pair is None and number is None and waiting is None:
            found.append(str(item))
            continue
        if pair is None and waiting is None:
            waiting = number
            continue
        if pair is None and number is None:
            break
        latitude, longitude = pair or (waiting, number)
        assert latitude is not None and longitude is not None
        if not (-90.0 <= latitude <= 90.0 and -180.0 <= longitude <= 180.0):
            raise ValueRangeError(f"{flag}: {latitude:g},{longitude:g} is no place: LAT is -90 to 90 degrees north, LON -180 to 180 east")
        found.append((latitude, longitude))
        waiting = None
    if waiting is not None:
        raise QuestionError(f"{flag}: {waiting:g} stands alone; coordinates are LAT,LON pairs of degrees, such as 48.71,2.18")
    return tuple(found)


def _number(item: Any) -> float | None:
    try:
        return float(item)
    except (TypeError, ValueError):
        return None


def places_of(asked: tuple[str | tuple[float, float], ...] | int, grid: Any, folders: tuple[str, ...]) -> list[Place]:
    """The places of what was asked, at least two and no two the same."""
    from ironlaw.catalog import load

    if (asked if isinstance(asked, int) else len(asked)) > MOST:
        raise ValueRangeError(f"--sites: more than {MOST} sites; give fewer")
    if isinstance(asked, int):
        found = [Place(f"site {i + 1}", grid=grid) for i in range(asked)]
    else:
        found = []
        for item in asked:
            if isinstance(item, tuple):
                found.append(Place(f"{item[0]:g},{item[1]:g}", *item, grid=grid))
            else:
                record = load.record("sites", item, folders)
                if record.power is not None and record.power.value <= 0.0:
                    raise ValueRangeError(f"--sites: {record.name} has no power, so nothing runs there; leave it out")
                found.append(Place(record.name, record.latitude, record.longitude, record.grid, record.power))
    if len(found) < 2:
        raise QuestionError(f"--sites names {len(found)} site: give at least two, or ask ironlaw estimate")
    seen: set[str] = set()
    for place in found:
        if place.name in seen:
            raise QuestionError(f"--sites names {place.name} twice: leave one out")
        seen.add(place.name)
    return found


def distance(a: Place, b: Place) -> Term:
    """The way over the ground between two places."""
    from ironlaw.law import wide_area
    from ironlaw.terms import leaf

    return leaf(
        f"{a.name} to {b.name}", wide_area.great_circle, "m",
        latitude=a.latitude, longitude=a.longitude, other_latitude=b.latitude, other_longitude=b.longitude,
    )  # fmt: skip


def ring(places: list[Place]) -> list[Place]:
    """The order whose longest link is shortest, then whose way round is: every order of few sites, else each time the nearest next."""
    metres = {(a.name, b.name): float(distance(a, b).value) for a in places for b in places if a is not b}
    if len(places) > TRIED:
        order, left = [places[0]], list(places[1:])
        while left:
            order.append(min(left, key=lambda p: metres[order[-1].name, p.name]))
            left.remove(order[-1])
        return order

    def length(order: tuple[Place, ...]) -> tuple[float, float]:
        links = [metres[a.name, b.name] for a, b in pairwise((*order, order[0]))]
        return max(links), sum(links)

    orders: list[tuple[Place, ...]] = [(places[0], *rest) for rest in permutations(places[1:])]
    return list(sorted(orders, key=length)[0])


def links(order: list[Place]) -> list[tuple[Place, Place]]:
    """Neighbours on the ring, each pair once."""
    if len(order) == 2:
        return [(order[0], order[1])]
    return list(pairwise((*order, order[0])))
