"""Figures of a run at several sites: where they are, how often they exchange, and the step of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ironlaw.errors import QuestionError
from ironlaw.figures.earth import EARTH, Point, equal_area, great_circle, middle_of, polygons
from ironlaw.figures.marks import (
    WIDE,
    Answer,
    Row,
    Size,
    Spec,
    faded,
    frame,
    hatch,
    kind_colour,
    layer,
    names,
    outline,
    quantity,
    rows_size,
    shown,
    tooltip,
)

DAY = 86400.0
HEIGHT = 400  # of a map
AROUND = (0.19, 64)  # left and right of the outermost site, a share of the width; pixels above and below it
LEAST = 1500.0  # km that a map is wide at least
DARKEST = 500.0  # g CO2e/kWh that is drawn darkest
FINE = 0.005  # of how far a map reaches: a shorter edge of the land is not drawn, beyond it one of ten times the length
PARTS = (  # of a mean step: key, what it is called, its kind, whether the site waits
    ("step", "own step", "compute", False), ("others", "waits for a site", "idle", True),
    ("exchange", "waits for the exchange", "network", True),
)  # fmt: skip


def city(place: Answer) -> str:
    """The name of a site: the first part of its title."""
    return str(place.get("title") or place["site"]).partition(",")[0]


def sites_map(answer: Answer) -> Spec:
    """The sites on a map that keeps areas, and the links between them, in the projection of ``earth.equal_area`` about their middle."""
    places = answer["places"]
    if len(places) < 2:
        raise QuestionError("a map joins two sites or more: give --sites as cities, regions, or lat,lon")
    middle = middle_of([(one["latitude"], one["longitude"]) for one in places])
    lines = list(_links(answer, places))
    rows = [_spot(one, row) for one, row in zip(places, answer["by_site"], strict=True)]
    along = [(row["longitude"], row["latitude"]) for row in [*rows, *(point for line in lines for point in line["way"])]]
    seen = [equal_area(latitude, longitude, middle) for longitude, latitude in along]
    projection, reach = _projection(middle, seen)
    longest = max(lines, key=lambda line: float(line["metres"]), default=None)
    where: Spec = {"longitude": {"field": "longitude", "type": "quantitative"}, "latitude": {"field": "latitude", "type": "quantitative"}}
    size: Spec = {"field": "gpus", "type": "quantitative", "scale": {"range": [120, 700], "zero": True}, "legend": None}
    marks = [_land(middle, reach)]
    for line in lines:
        wide = 3 if line is longest and len(lines) > 1 else 1.5
        marks.append(layer({"type": "line", "color": "@network", "strokeWidth": wide}, line["way"], **where, order=_order()))
    at = [{**line["way"][len(line["way"]) // 2], "says": line["says"]} for line in lines]
    marks += [
        *_label(at, where, -10, "says"),
        layer({"type": "circle", "color": "@bg", "opacity": 1}, **where, size=size),
        layer(
            {"type": "circle", "stroke": "@ink", "opacity": 1, "fill": "@ink"}, **where, tooltip=tooltip("place", "says"),
            size=size,
            fillOpacity={"field": "g_per_kWh", "type": "quantitative", "legend": None,
                         "scale": {"domain": [0, DARKEST], "range": [0.1, 0.9], "clamp": True}},
        ),
        *_label(rows, where, -34, "place", 620),
        *_label(rows, where, -20, "says"),
    ]  # fmt: skip
    for one in marks:
        one["mark"]["clip"] = False  # the projection cuts what is outside; a path that cuts would be an address within the picture
    listed = "; ".join(f"{row['place']}: {row['says']}" for row in rows)
    links = "; ".join(f"{line['between']} {line['says']}" for line in lines)
    title = ("Where the sites are", "circle: accelerators; fuller: more g CO\u2082e/kWh; line: fibre, one way")
    return frame(title, f"{listed}. Links: {links}.", Size(WIDE.width, HEIGHT), rows, marks, projection=projection)


def _order() -> Spec:
    """Points of a line in the order of the data."""
    return {"field": "at", "type": "quantitative"}


NARROW = 480  # pixels: a narrower map has the names of sites alone, since more would overlap


def _label(data: Sequence[Row], where: Spec, up: int, field: str, weight: int = 400) -> list[Spec]:
    """Words at places, on a rim of the background's colour."""
    mark = {"type": "text", "dy": up, "fontWeight": weight}
    rim = {**mark, "stroke": "@bg", "strokeWidth": 4, "strokeJoin": "round"}
    shown: Spec = {"field": field} if field != "says" else {"condition": {"test": f"width > {NARROW}", "field": field}, "value": ""}
    return [layer(rim, data, **where, text=shown), layer(mark, data, **where, text=shown)]


def _spot(place: Answer, row: Answer) -> Row:
    """A site: where it is, what it has, and what a kWh there emits."""
    return {
        "place": city(place), "latitude": place["latitude"], "longitude": place["longitude"], "gpus": row["gpus"], "on": row["on"],
        "g_per_kWh": row["intensity"], "megawatt": row["power"] / 1e6,
        "says": f"{row['gpus']:,.0f} {row['on']}, {row['intensity']:.0f} g/kWh",
    }  # fmt: skip


def _links(answer: Answer, places: Sequence[Answer]) -> Iterator[Row]:
    """The links of the sites, each a great circle."""
    at = {one["site"]: one for one in places}
    for link in answer.get("links") or []:
        start, end = next((a, b) for a in at for b in at if link["link"] == f"{a} - {b}")
        way = great_circle(*((at[one]["latitude"], at[one]["longitude"]) for one in (start, end)))
        yield {
            "between": f"{city(at[start])} to {city(at[end])}", "metres": link["metres"],
            "says": f"{shown(link['fibre'], 's')}, {shown(link['metres'], 'm')}",
            "way": [{"at": at, "latitude": round(lat, 3), "longitude": round(lon, 3)} for at, (lat, lon) in enumerate(way)],
        }  # fmt: skip


def _projection(middle: Point, seen: Sequence[Point]) -> tuple[Spec, float]:
    """The projection that shows all points at any size of the picture, and how far from the middle it reaches, in Earth radii."""
    (left, right), (bottom, top) = ((min(axis), max(axis)) for axis in zip(*seen, strict=True))
    wide, high = max(right - left, 1e-6), max(top - bottom, 1e-6)
    scale = f"min(width * {1.0 - 2.0 * AROUND[0]:g} / {wide:.6f}, (height - {2 * AROUND[1]}) / {high:.6f}, width / {LEAST / EARTH:.6f})"
    centre = (left + right) / 2.0, (bottom + top) / 2.0
    drawn = min(WIDE.width * (1.0 - 2.0 * AROUND[0]) / wide, (HEIGHT - 2 * AROUND[1]) / high, WIDE.width * EARTH / LEAST)
    projection = {
        "type": "azimuthalEqualArea", "rotate": [round(-middle[1], 4), round(-middle[0], 4)], "precision": 0.5,
        "clipExtent": {"expr": "[[-2, -2], [width + 2, height + 2]]"},
        "scale": {"expr": scale},
        "translate": {"expr": f"[width / 2 - ({centre[0]:.6f}) * {scale}, height / 2 + ({centre[1]:.6f}) * {scale}]"},
    }  # fmt: skip
    return projection, math.hypot(WIDE.width, HEIGHT) / 2.0 / drawn + math.hypot(*centre)


def _land(middle: Point, reach: float) -> Spec:
    """The land within some Earth radii of the middle; points that the eye cannot part are left out."""
    kept = []
    for polygon in polygons():
        rings = []
        for ring in polygon:
            points = [ring[0]]
            for point in ring[1:-1]:
                ends = [equal_area(latitude, longitude, middle) for longitude, latitude in (points[-1], point)]
                if math.dist(*ends) >= FINE * reach * (1.0 if math.hypot(*ends[1]) < reach else 10.0):
                    points.append(point)
            if len(points) > 2:
                rings.append([[round(x, 2), round(y, 2)] for x, y in (*points, ring[0])])
        near = any(math.hypot(*equal_area(latitude, longitude, middle)) < reach for longitude, latitude in polygon[0])
        if near and rings:
            kept.append(rings)
    shape = {"type": "Feature", "properties": {}, "geometry": {"type": "MultiPolygon", "coordinates": kept}}
    return layer({"type": "geoshape", "aria": False, "fill": "@sunk", "stroke": "@line2", "strokeWidth": 0.5}, [shape])


def exchange(answer: Answer) -> Spec:
    """The days of the run by the steps between exchanges: computation, and waiting above it."""
    found = answer["intervals"]
    if len(found) < 2:
        raise QuestionError("one interval alone has no curve: the sites exchange every step")
    chosen = answer["ways"][0]["every"]
    rows = [
        {"steps_between": one["every"], "days": one["seconds"] / DAY, "computing_days": (one["seconds"] - one["waiting"]) / DAY,
         "waiting_days": one["waiting"] / DAY, "chosen": one["every"] == chosen, "says": shown(one["seconds"], "s")}
        for one in found
    ]  # fmt: skip
    x = quantity("steps_between", "steps between exchanges (log)", log=True, values=[row["steps_between"] for row in rows], format="~s")
    top, below = quantity("days", "days of the run"), quantity("computing_days")
    marks = [
        layer({"type": "area", "color": "@compute", "opacity": 0.9}, x=x, y=below),
        layer({"type": "area", "color": "@network", "opacity": 0.35}, x=x, y=below, y2={"field": "days"}),
        layer({"type": "line", "color": "@network"}, x=x, y=top),
        layer({"type": "rule", "color": "@network", "strokeDash": [2, 5], "strokeWidth": 1}, x=x, y=below, y2={"field": "days"}),
        layer(
            {"type": "point", "filled": True, "fillOpacity": 1, "stroke": "@ink"}, x=x, y=top, tooltip=tooltip("steps_between", "says"),
            fill={"condition": {"test": "datum.chosen", "value": "@ink"}, "value": "@bg"},
            size={"condition": {"test": "datum.chosen", "value": 110}, "value": 60},
        ),
        layer(
            {"type": "text", "dy": -12, "fontWeight": 620}, [row for row in rows if row["chosen"]], x=x, y=top, text={"field": "says"}
        ),
    ]  # fmt: skip
    listed = "; ".join(f"every {row['steps_between']:,.0f} steps {row['says']}" for row in rows)
    says = f"Days of the run, waiting above computation: {listed}. What rarer exchanges do to the loss is not counted."
    return frame(("How often to exchange", str(answer["title"])), says, Size(440, 280), rows, marks)


def site_step(answer: Answer) -> Spec:
    """A mean step of each site: its own, what it waits for another site, and what it waits for the exchange."""
    called = {one["site"]: city(one) for one in answer.get("places") or []}
    rows: list[Row] = []
    for one in answer["waiting_by_site"]:
        start = 0.0
        for key, what, kind, waits in PARTS:
            size = float(one[key] or 0.0)
            rows.append({"site": called.get(one["site"], one["site"]), "what": what, "kind": kind, "waits": waits, "seconds": size,
                         "from": start, "to": start + size, "says": shown(size, "s")})  # fmt: skip
            start += size
    rows = [row for row in rows if row["seconds"] > 0.0]
    y = names("site")
    x = quantity("from", "seconds of a mean step")
    bars = layer(
        {"type": "bar", "height": {"band": 0.6}}, y=y, x=x, x2={"field": "to"}, color=kind_colour(rows, legend=True), stroke=outline(),
        fillOpacity=faded(), tooltip=tooltip("what", "says"),
    )  # fmt: skip
    listed = "; ".join(_said(one, called) for one in answer["waiting_by_site"])
    area = rows_size(len(answer["waiting_by_site"]), 520, 96)
    return frame(("A mean step of each site", str(answer["title"])), f"{listed}.", area, rows, [bars, *hatch(rows, x, y, 0.6)])


def _said(one: Mapping[str, float], called: Mapping[str, str]) -> str:
    """The step of a site in words."""
    waits = ", ".join(f"{what} {shown(float(one[key] or 0.0), 's')}" for key, what, _, _ in PARTS[1:] if one[key])
    return f"{called.get(str(one['site']), one['site'])} {shown(one['step'], 's')}{', ' if waits else ''}{waits}"
