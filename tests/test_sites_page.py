"""The view of a run at several sites: its numbers are those of the answer, and its map keeps areas and places."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise

import pytest

import ironlaw
from ironlaw.page import sites, words, worldmap
from ironlaw.page.report import report

ASKED = {
    "model": "llama-3-70b", "sites": "lulea,dublin,ashburn", "on": "h100-sxm", "gpus": "2048,1024,2048", "wan_bandwidth": "400Gb/s",
    "inner_steps": 100, "tokens": "15T", "global_batch_size": 1280,
}  # fmt: skip


@pytest.fixture(scope="module")
def answer():
    return json.loads(json.dumps(ironlaw.sites(**ASKED).to_dict()))


def shown(view) -> str:
    text = re.sub(r"<title>.*?</title>", "", f"{view.verdict} {view.lead} {view.content}")
    return re.sub(r"<[^>]+>", " ", text)


def test_the_numbers_are_those_of_the_answer(answer):
    text = shown(sites.view(answer))
    run = next(one for one in answer["headline"] if one["code"] == "run")["values"]
    assert str(words.days(run["seconds"] / 86400.0)) in text and words.share(run["waiting_share"]) in text
    for row in answer["choices"]:
        assert str(words.days(row["seconds"] / 86400.0)) in text and words.quantity(row["carbon"], "kg") in text
    for row in answer["links"]:
        assert words.quantity(row["metres"], "m") in text and words.quantity(row["fibre"], "s") in text


def test_the_intervals_are_answers_of_their_own(answer):
    """A row of the chart is what the verb answers where --inner-steps is its number."""
    for row in answer["intervals"]:
        fresh = ironlaw.sites(
            **{**ASKED, "inner_steps": row["every"], "outer_state": "host"} if row["every"] > 1 else {**ASKED, "inner_steps": 1}
        )
        assert fresh["ways"][0]["seconds"] == pytest.approx(row["seconds"], rel=1e-12)


def test_places_have_the_coordinates_of_their_records(answer):
    from ironlaw.catalog import load

    for place in answer["places"]:
        record = load.record("sites", place["site"])
        assert (place["latitude"], place["longitude"], place["title"]) == (record.latitude, record.longitude, record.title)


def test_the_projection_keeps_areas():
    """A spherical triangle of a hundredth of a degree has the area that its plane triangle has, near the middle and far from it."""
    middle = (40.0, -30.0)
    for lat, lon in ((40.0, -30.0), (0.0, 0.0), (-20.0, 100.0), (75.0, 170.0)):
        size = 0.01
        a, b, c = (worldmap.equal_area(*point, middle) for point in ((lat, lon), (lat, lon + size), (lat + size, lon)))
        plane = abs((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])) / 2.0
        sphere = math.radians(size) ** 2 * math.cos(math.radians(lat + size / 3.0)) / 2.0
        assert plane == pytest.approx(sphere, rel=1e-3)


def test_a_great_circle_is_as_long_as_the_law_says():
    from ironlaw.law.wide_area import great_circle

    start, end = (65.5841, 22.1547), (39.0437, -77.4875)
    way = worldmap.great_circle(start, end)
    assert way[0] == pytest.approx(start) and way[-1] == pytest.approx(end)
    legs = sum(float(great_circle(*a, *b)) for a, b in pairwise(way))
    assert legs == pytest.approx(float(great_circle(*start, *end)), rel=1e-6)


def inside(latitude: float, longitude: float) -> bool:
    """Whether a point is land, by the even-odd rule on all rings."""
    count = 0
    for ring in worldmap.land():
        for (x1, y1), (x2, y2) in pairwise(ring):
            if (y1 > latitude) != (y2 > latitude) and longitude < (x2 - x1) * (latitude - y1) / (y2 - y1) + x1:
                count += 1
    return count % 2 == 1


def test_the_land_is_where_it_is():
    for place, is_land in (
        ((52.0, 13.0), True),
        ((39.0, -100.0), True),
        ((-25.0, 134.0), True),
        ((30.0, -40.0), False),
        ((0.0, -150.0), False),
    ):
        assert inside(*place) == is_land


@pytest.mark.parametrize("middle", [(0.0, 0.0), (50.0, -20.0), (-25.0, -46.0), (-1.0, -160.0), (35.0, 139.0), (-80.0, 10.0)])
def test_the_map_shows_land_where_land_is_wherever_its_middle_lies(middle):
    """Also where the far side of the Earth is land, whose ring then stands inside out."""
    frame = worldmap.Frame(90.0, 0.0, 0.0)
    rings = [
        [tuple(map(float, pair.split(","))) for pair in part.rstrip("Z").split("L")]
        for part in worldmap.land_path(middle, frame).split("M")
        if part
    ]
    wrong = tried = 0
    for lat in range(-70, 80, 10):
        for lon in range(-175, 180, 10):
            x, y = frame.place(worldmap.equal_area(lat, lon, middle))
            if not (0.0 < x < worldmap.WIDTH and 0.0 < y < worldmap.HEIGHT):
                continue
            crossings = sum(
                (y1 > y) != (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1
                for ring in rings
                for (x1, y1), (x2, y2) in zip(ring, [*ring[1:], ring[0]], strict=True)
            )
            tried += 1
            wrong += (crossings % 2 == 1) != inside(lat, lon)
    assert tried > 100 and wrong <= 0.02 * tried  # of points on a coast


def test_a_report_of_sites_loads_nothing_and_says_where(answer):
    from datetime import date

    text = report(answer, "sites", ["sites"], date(2026, 11, 28))
    assert "Lulea" in text and re.search('class="plot map"|Where the sites are', text) and len(text) < 250_000
    assert not re.search(r"<(link|img|iframe|object|embed|form|base)\b|\son\w+=|@import|url\(", text)


def test_sites_without_places_have_no_map():
    answer = ironlaw.sites("llama-3-8b", sites="3", on="h100-sxm", gpus=48, wan_bandwidth="100Gb/s", latency="20ms", tokens="1T").to_dict()
    drawn = str(sites.view(json.loads(json.dumps(answer))).content)
    assert "plot map" not in drawn and "Which sites" in drawn


def test_names_of_places_cannot_become_markup(answer):
    named = json.loads(json.dumps(answer).replace("Lulea, Sweden", "<script>alert(1)</script>"))
    assert "<script>" not in str(sites.view(named).content)
