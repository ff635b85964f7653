"""Places of sites, the distances between them, the ring that joins them, and values that belong to one site each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError
from ironlaw.law import wide_area
from ironlaw.questions.answer import Column, Table
from ironlaw.terms import Term, leaf

MOST = 1000  # sites of a question; more is a typing error
TRIED = 8  # up to this many sites every ring is tried; with more, each site is followed by its nearest


@dataclass(frozen=True)
class Place:
    """One site. A site given by number has no coordinates; only a site of the catalogue has a grid, a price of electricity and a power."""

    name: str
    latitude: float | None = None
    longitude: float | None = None
    grid: str | None = None
    electricity_price: Sourced | None = None
    power: Sourced | None = None
    asked: str = ""  # the name in the question, such as the region of a cloud
    title: str = ""  # the city and its country


PLACES = (
    Column("site", "site"),
    Column("title", "place"),
    Column("latitude", "degrees north", "1"),
    Column("longitude", "degrees east", "1"),
)


def tabulate_places(places: Sequence[Place]) -> list[Table]:
    """Where the sites are, for a map; nothing where they have no place."""
    rows = [
        {"site": place.name, "title": place.title, "latitude": place.latitude, "longitude": place.longitude}
        for place in places
        if place.latitude is not None
    ]
    return [Table("places", "Where the sites are", PLACES, rows, on_page=False)] if rows else []


def bind_places(asked: tuple[str | tuple[float, float], ...] | int, folders: tuple[str, ...]) -> list[Place]:
    """The places of a question: at least two, all different."""
    if (asked if isinstance(asked, int) else len(asked)) > MOST:
        raise ValueRangeError(f"--sites: more than {MOST} sites; give fewer")
    names: list[Any] = [f"site {i + 1}" for i in range(asked)] if isinstance(asked, int) else list(asked)
    places = [Place(name) if isinstance(asked, int) else _bind_place(name, folders) for name in names]
    if len(places) < 2:
        raise QuestionError(f"--sites names {len(places)} site: give at least two, or ask ironlaw estimate")
    seen: set[str] = set()
    for place in places:
        if place.name in seen:
            raise QuestionError(f"--sites names {place.name} twice: leave one out")
        seen.add(place.name)
    return places


def _bind_place(asked: str | tuple[float, float], folders: tuple[str, ...]) -> Place:
    """The place of one item: a site by name, or a pair of coordinates."""
    if isinstance(asked, tuple):
        return Place(f"{asked[0]:g},{asked[1]:g}", *asked)
    record = load.record("sites", asked, folders)
    if record.power is not None and record.power.value <= 0.0:
        raise ValueRangeError(f"--sites: {record.name} has no power, so no accelerator runs there; leave it out")
    return Place(record.name, record.latitude, record.longitude, record.grid, record.electricity_price, record.power, asked, record.title)


def each_site(given: Mapping[str, Any], name: str, places: Sequence[Place], default: Any = None) -> list[Any]:
    """The value of an option at every site: one for all, in order, or by name; ``default`` where the option does not name a site."""
    values, flag = given.get(name), f"--{name.replace('_', '-')}"
    if values is None:
        return [default] * len(places)
    if isinstance(values, Mapping):
        known = {load.fold_name(word): i for i, place in enumerate(places) for word in (str(i + 1), place.asked, place.name) if word}
        other = load.aliases()["sites"]
        folded = {word: load.fold_name(_spell_pair(word)) for word in values}
        spelled = {word: name if name in known else other.get(name, "") for word, name in folded.items()}
        unknown = next((word for word, name in spelled.items() if name not in known), None)
        if unknown is not None:
            raise UnknownNameError(f"site of {flag}", unknown, [place.name for place in places])
        by_index = {known[spelled[word]]: value for word, value in values.items()}
        return [by_index.get(i, default) for i in range(len(places))]
    if len(values) == 1:
        return list(values) * len(places)
    if len(values) != len(places):
        raise QuestionError(f"{flag} lists {len(values)} values for {len(places)} sites: give one, one for each, or NAME=VALUE")
    return list(values)


def _spell_pair(word: str) -> str:
    """A pair of coordinates as the name of its place has it; any other word unchanged.

    >>> _spell_pair("45.90,9.0"), _spell_pair("oslo")
    ('45.9,9', 'oslo')
    """
    numbers = [units.bare_number(part) for part in word.split(",")]
    return ",".join(f"{number:g}" for number in numbers) if len(numbers) == 2 and None not in numbers else word


def nearest_record(place: Place, folders: tuple[str, ...]) -> tuple[str, str, float]:
    """The site of the catalogue that is nearest to a place: its name, its grid, and the distance [m]."""
    records = [load.record("sites", name, folders) for name in load.names("sites", folders)]
    metres = [float(wide_area.great_circle(place.latitude, place.longitude, r.latitude, r.longitude)) for r in records]
    at = metres.index(min(metres))
    return records[at].name, records[at].grid, metres[at]


def describe_nearest(place: Place, folders: tuple[str, ...]) -> str:
    """The nearest site of the catalogue in words."""
    name, grid, metres = nearest_record(place, folders)
    return f"{name}, {units.show(metres, 'm')} away, has the grid {grid}"


def distance(a: Place, b: Place) -> Term:
    """The great-circle distance between two places."""
    return leaf(
        f"{a.name} to {b.name}", wide_area.great_circle, "m",
        latitude=a.latitude, longitude=a.longitude, other_latitude=b.latitude, other_longitude=b.longitude,
    )  # fmt: skip


def order_ring(places: Sequence[Place]) -> list[Place]:
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


def ring_links(order: Sequence[Place]) -> list[tuple[Place, Place]]:
    """Neighbours on the ring, each pair once."""
    if len(order) == 2:
        return [(order[0], order[1])]
    return list(pairwise((*order, order[0])))
