"""A map of some places in an equal-area projection about their middle, as SVG: land, great circles between places, circles with labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import escape

from ironlaw.figures.earth import EARTH, Point, equal_area, great_circle, land, middle_of

WIDTH, HEIGHT = 920.0, 400.0  # of the picture
AROUND = (150.0, 64.0)  # left and right, above and below the outermost place
LEAST = 1500.0  # km that the picture is wide at least
FINE = 1.2  # a shorter edge of the land is not drawn
LARGEST, SMALLEST = 15.0, 6.0  # radius of a circle


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
