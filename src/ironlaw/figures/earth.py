"""Places on the Earth as they are drawn: an equal-area projection, great circles, and the land.

Lambert's azimuthal equal-area projection: a point at the angle c from the middle, in the direction a, stands at radius 2 sin(c / 2), in the
direction a. The whole Earth is a disc of radius 2, in Earth radii. Source: Snyder, Map Projections, A Working Manual, USGS 1395, eq. 24-2
to 24-4, https://pubs.usgs.gov/pp/1395/report.pdf.

The land is Natural Earth's 1:110 million (public domain), as packaged in world-atlas 2.0.2 (ISC licence, beside the file).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ironlaw.files import read_shipped

EARTH = 6371.0088  # km, mean radius
STEPS = 24  # of a great circle

Point = tuple[float, float]


@cache
def polygons() -> tuple[tuple[tuple[Point, ...], ...], ...]:
    """All land: polygons, each its outer ring, which runs clockwise, and the rings of its holes, as (longitude, latitude) in degrees."""
    topology = json.loads(read_shipped(Path(__file__).parent / "land" / "land-110m.json"))
    (width, height), (left, bottom) = topology["transform"]["scale"], topology["transform"]["translate"]

    def decoded(arc: Sequence[Sequence[int]]) -> list[Point]:
        x = y = 0
        points = []
        for dx, dy in arc:
            x, y = x + dx, y + dy
            points.append((x * width + left, y * height + bottom))
        return points

    arcs = [decoded(arc) for arc in topology["arcs"]]

    def ring(numbers: Sequence[int]) -> tuple[Point, ...]:
        points: list[Point] = []
        for number in numbers:
            arc = arcs[number] if number >= 0 else arcs[~number][::-1]
            points += arc[1:] if points else arc
        return tuple(points)

    (shapes,) = (shape["geometries"] for shape in topology["objects"].values())
    return tuple(tuple(ring(one) for one in polygon) for shape in shapes for polygon in shape["arcs"])


def land() -> tuple[tuple[Point, ...], ...]:
    """The rings of all land, outer and inner."""
    return tuple(ring for polygon in polygons() for ring in polygon)


def equal_area(latitude: float, longitude: float, middle: Point) -> Point:
    """Where a point stands in the projection about ``middle``, (latitude, longitude): x to the east, y to the north, in Earth radii.

    >>> tuple(round(x, 4) for x in equal_area(0.0, 90.0, (0.0, 0.0)))  # a quarter of the way round: 2 sin(45 deg)
    (1.4142, 0.0)
    """
    lat, lat0 = math.radians(latitude), math.radians(middle[0])
    east = math.radians(longitude - middle[1])
    towards = math.sin(lat0) * math.sin(lat) + math.cos(lat0) * math.cos(lat) * math.cos(east)
    scale = math.sqrt(2.0 / max(1.0 + towards, 1e-9))
    return (
        scale * math.cos(lat) * math.sin(east),
        scale * (math.cos(lat0) * math.sin(lat) - math.sin(lat0) * math.cos(lat) * math.cos(east)),
    )


def _vector(latitude: float, longitude: float) -> tuple[float, float, float]:
    lat, lon = math.radians(latitude), math.radians(longitude)
    return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)


def _degrees(vector: Sequence[float]) -> Point:
    x, y, z = vector
    return math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))


def middle_of(places: Sequence[Point]) -> Point:
    """The middle of some places, each (latitude, longitude): the direction of the mean of their vectors; the first where that is none.

    >>> middle_of([(0.0, 0.0), (0.0, 90.0)])
    (0.0, 45.0)
    """
    mean = [sum(parts) for parts in zip(*(_vector(*place) for place in places), strict=True)]
    return _degrees(mean) if math.hypot(*mean) > 1e-6 * len(places) else places[0]


def great_circle(start: Point, end: Point) -> list[Point]:
    """Points of the shortest way between two places, each (latitude, longitude)."""
    a, b = _vector(*start), _vector(*end)
    angle = math.acos(max(-1.0, min(1.0, sum(x * y for x, y in zip(a, b, strict=True)))))
    if math.sin(angle) < 1e-9:
        return [start, end]
    shares = [i / STEPS for i in range(STEPS + 1)]
    weights = [(math.sin((1.0 - share) * angle), math.sin(share * angle)) for share in shares]
    return [_degrees([(u * x + v * y) / math.sin(angle) for x, y in zip(a, b, strict=True)]) for u, v in weights]
