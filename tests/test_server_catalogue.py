"""The catalogue on the page: every value with its source, a search, and one sentence for what is not there."""

from __future__ import annotations

import html
import json
import re

import pytest
from starlette.testclient import TestClient

from ironlaw.catalog import load
from ironlaw.catalog.records import KINDS
from ironlaw.web import app


@pytest.fixture(scope="module")
def client():
    with TestClient(app.make_app()) as made:
        yield made


def test_a_record_shows_every_value_with_its_source(client):
    page = client.get("/catalog/accelerators/h100-sxm")
    record = load.record("accelerators", "h100-sxm")
    assert page.status_code == 200 and record.title in page.text
    for value in (record.memory_capacity, record.hbm_bandwidth, record.tdp, *record.peak.values()):
        assert value.text.split()[1] in page.text and value.source.url in page.text and value.source.read in page.text
    prices = load.record("prices", "h100-sxm").price
    newest = max((one for one in prices if one.term == "on-demand"), key=lambda one: one.date)
    spec = json.loads(re.search(r'data-figure="price-history".*?<script class="spec"[^>]*>(.*?)</script>', page.text)[1])
    assert f"in use {newest.per_hour.value * 3600:.2f} USD/h" in spec["description"] and len(spec["data"]["values"]) == len(prices)
    assert 'href="/catalog/nodes/dgx-h100"' in page.text


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_record_of_every_kind_is_drawn(client, kind):
    name = max(load.names(kind), key=lambda name: load.path_of(kind, name).stat().st_size)
    page = client.get(f"/catalog/{kind}/{name}")
    assert page.status_code == 200 and load.record(kind, name).title in html.unescape(page.text)


def test_the_catalogue_is_searched_by_name_and_title(client):
    page = client.get("/catalog?q=h100+nvl")
    assert 'href="/catalog/accelerators/h100-nvl?q=h100+nvl"' in page.text
    near = client.get("/catalog?q=h10o")
    assert "Nearest names" in near.text and "/catalog/accelerators/h20" in near.text
    assert client.get("/catalog?q=llama-3-70b").text.count("<h1") == 1  # one record has this name: it is shown at once
    assert "<script>" not in client.get("/catalog?q=%3Cscript%3Ealert(1)").text


@pytest.mark.parametrize("path", ["models/no-such", "no-such/x", "models/%00", "models/" + "x" * 5000, "models/%2e%2e%2fx"])
def test_a_record_that_is_not_there_is_said(client, path):
    assert client.get(f"/catalog/{path}").status_code == 404
