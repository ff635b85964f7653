"""A map of some places in an equal-area projection about their middle, as SVG: land, great circles between places, circles with labels.

Lambert's azimuthal equal-area projection: a point at the angle c from the middle, in the direction a, stands at radius 2 sin(c / 2), in the
direction a. The whole Earth is a disc of radius 2, in Earth radii. Source: Snyder, Map Projections, A Working Manual, USGS 1395, eq. 24-2
to 24-4, https://pubs.usgs.gov/pp/1395/report.pdf.

The land is Natural Earth's 1:110 million (public domain), as packaged in world-atlas 2.0.2 (ISC licence, beside the file).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from markupsafe import escape

from ironlaw.files import read_shipped

EARTH = 6371.0088  # km, mean radius
WIDTH, HEIGHT = 920.0, 400.0  # of the picture
AROUND = (150.0, 64.0)  # left and right, above and below the outermost place
LEAST = 1500.0  # km that the picture is wide at least
STEPS = 24  # of a great circle
FINE = 1.2  # a shorter edge of the land is not drawn
LARGEST, SMALLEST = 15.0, 6.0  # radius of a circle

Point = tuple[float, float]


class Spot(NamedTuple):
    """A place: where it is, its label, a line below it, its size and its darkness from 0 to 1, and whether something is wrong there."""

    latitude: float
    longitude: float
    label: str
    text: str
    size: float
    dark: float
    wrong: bool = False


class Line(NamedTuple):
    """A line between two spots, by their numbers: its label, a line below it, and whether it is the one that counts."""

    start: int
    end: int
    label: str
    text: str
    chosen: bool = False


@cache
def land() -> tuple[tuple[Point, ...], ...]:
    """The rings of all land, as (longitude, latitude) in degrees; outer rings run clockwise."""
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
    return tuple(ring(one) for shape in shapes for polygon in shape["arcs"] for one in polygon)


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


def _round_the_rim(points: Iterable[Point]) -> Iterator[Point]:
    """The points of a ring, with more between two that stand on opposite sides of the rim: the edge follows the rim."""
    last: Point | None = None
    for x, y in points:
        if last is not None and math.dist(last, (x, y)) > 0.5:
            radii, angles = [math.hypot(*last), math.hypot(x, y)], [math.atan2(last[1], last[0]), math.atan2(y, x)]
            turn = math.remainder(angles[1] - angles[0], 2.0 * math.pi)
            for share in (i / 8.0 for i in range(1, 8)):
                radius, angle = radii[0] + share * (radii[1] - radii[0]), angles[0] + share * turn
                yield radius * math.cos(angle), radius * math.sin(angle)
        last = (x, y)
        yield x, y


def _turns(points: Sequence[Point]) -> float:
    """How often a ring goes round the middle, counter-clockwise."""
    angles = [math.atan2(y, x) for x, y in points]
    return sum(math.remainder(b - a, 2.0 * math.pi) for a, b in pairwise(angles)) / (2.0 * math.pi)


class Frame(NamedTuple):
    """The part of the projection that the picture shows: pixels to an Earth radius, and where the picture's middle is."""

    scale: float
    x: float
    y: float

    def place(self, point: Point) -> Point:
        """A point of the projection in pixels, down from the top."""
        return WIDTH / 2.0 + (point[0] - self.x) * self.scale, HEIGHT / 2.0 - (point[1] - self.y) * self.scale


def frame_of(points: Sequence[Point]) -> Frame:
    """The frame that shows all points, with room for labels."""
    (left, right), (bottom, top) = ((min(axis), max(axis)) for axis in zip(*points, strict=True))
    room = WIDTH - 2.0 * AROUND[0], HEIGHT - 2.0 * AROUND[1]
    sizes = [WIDTH * EARTH / LEAST, *(free / size for free, size in zip(room, (right - left, top - bottom), strict=True) if size > 1e-9)]
    return Frame(min(sizes), (left + right) / 2.0, (bottom + top) / 2.0)


def _path(points: Iterable[Point], close: bool) -> str:
    """Pixels as the data of a path; points that the eye cannot part are left out."""
    kept: list[Point] = []
    for x, y in points:
        at = max(-WIDTH, min(2.0 * WIDTH, x)), max(-WIDTH, min(2.0 * WIDTH, y))
        if not kept or math.dist(kept[-1], at) >= FINE:
            kept.append(at)
    if len(kept) < 2:
        return ""
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in kept) + ("Z" if close else "")


def land_path(middle: Point, frame: Frame) -> str:
    """The land that the picture shows, as the data of a path to be filled by the even-odd rule."""
    parts = []
    for ring in land():
        points = list(_round_the_rim(equal_area(lat, lon, middle) for lon, lat in ring))
        pixels = [frame.place(point) for point in points]
        around = _turns(points) > 0.5  # an outer ring that runs counter-clockwise holds the other side of the Earth
        seen = all(min(axis) < most and max(axis) > 0.0 for axis, most in zip(zip(*pixels, strict=True), (WIDTH, HEIGHT), strict=True))
        if not seen and not around:
            continue
        parts.append(_path(pixels, True))
        if around:
            rim = [(2.0 * math.cos(i * math.pi / 60.0), 2.0 * math.sin(i * math.pi / 60.0)) for i in range(120)]
            parts.append(_path(map(frame.place, rim), True))
    return "".join(parts)


def draw(spots: Sequence[Spot], lines: Sequence[Line], described: str) -> str:
    """The map as SVG."""
    places = [(spot.latitude, spot.longitude) for spot in spots]
    middle = middle_of(places)
    ways = [great_circle(places[line.start], places[line.end]) for line in lines]
    projected = [equal_area(*place, middle) for place in places]
    frame = frame_of([*projected, *(equal_area(*point, middle) for way in ways for point in way)])
    drawn = [f'<svg class="plot map" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(described)}">']
    drawn.append(f'<path class="land" fill-rule="evenodd" d="{land_path(middle, frame)}"/>')
    labels = []
    for line, way in zip(lines, ways, strict=True):
        points = [frame.place(equal_area(*point, middle)) for point in way]
        drawn.append(f'<path class="link{" chosen" if line.chosen else ""}" d="{_path(points, False)}"/>')
        labels.append(_label(points[len(points) // 2], -6.0, "middle", line.label, line.text))
    most = max((spot.size for spot in spots), default=1.0) or 1.0
    for spot, point in zip(spots, projected, strict=True):
        x, y = frame.place(point)
        radius = max(SMALLEST, LARGEST * math.sqrt(spot.size / most))
        said = f"<title>{escape(spot.label)}: {escape(spot.text)}</title>"
        drawn.append(f'<circle class="ground" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>')
        kind = "spot wrong" if spot.wrong else "spot"
        drawn.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill-opacity="{spot.dark:.2f}">{said}</circle>')
        above = y < HEIGHT / 2.0
        anchor = "start" if x < 90.0 else "end" if x > WIDTH - 90.0 else "middle"
        labels.append(_label((x, y), -radius - 22.0 if above else radius + 16.0, anchor, spot.label, spot.text))
    return "".join([*drawn, *labels, "</svg>"])


def _label(at: Point, below: float, anchor: str, first: str, second: str) -> str:
    """Two lines of text at a point."""
    x, y = at[0], at[1] + below
    return (
        f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"><tspan class="name">{escape(first)}</tspan>'
        f'<tspan x="{x:.1f}" dy="15">{escape(second)}</tspan></text>'
    )
