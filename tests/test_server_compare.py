"""What changes is shown beside what was: pinned answers, stops of a slider, and the question in other spellings."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

import ironlaw
from ironlaw.page import words
from ironlaw.web import app, draw

GIVEN = {
    "model": "llama-3-8b", "on": "h100-sxm", "gpus": "8", "tokens": "1T", "tp": "2", "pp": "1", "zero": "1", "micro_batch_size": "1",
    "recompute": "none", "global_batch_size": "64",
}  # fmt: skip


@pytest.fixture(scope="module")
def client():
    with TestClient(app.make_app()) as made:
        yield made


def plain(text):
    return html.unescape(re.sub(r"<[^>]+>", " ", text)).replace("\u00a0", " ")


def days(**given):
    return ironlaw.estimate(**given).to_dict()["run"]["days_with_failures"]


def test_a_pinned_answer_stays_as_ticks_and_percentages(client):
    now = {**GIVEN, "gpus": "16"}
    page = client.get("/estimate", params={**now, "versus": urlencode(GIVEN)})
    assert page.status_code == 200 and "Compared with gpus 8." in plain(page.text)
    moved = words.change(days(**now) / days(**GIVEN) - 1.0).replace("\u00a0", " ")
    assert moved in plain(page.text) and 'class="delta good"' in page.text
    assert page.text.count('class="before"') == 5  # memory, step, days, money, energy
    assert "versus" not in page.text.partition("ironlaw estimate")[2].partition("</pre>")[0]
    assert client.get("/api/estimate", params={**now, "versus": urlencode(GIVEN)}).json()["run"]["days_with_failures"] == days(**now)


def test_with_another_batch_the_step_names_the_batch_and_no_loss(client):
    page = client.get("/estimate", params={**GIVEN, "global_batch_size": "128", "versus": urlencode(GIVEN)})
    assert "batch \u00d7 2" in plain(page.text)


@pytest.mark.parametrize("versus", ["model=no-such", "x=1", "%%%", "model=llama-3-8b", "model=llama-3-70b&on=h100-sxm&gpus=7&tp=8"])
def test_a_pin_that_has_no_answer_is_left_out(client, versus):
    page = client.get("/estimate", params={**GIVEN, "versus": versus})
    assert page.status_code == 200 and 'class="before"' not in page.text
    assert client.get("/plan", params={**GIVEN, "versus": versus}).status_code == 422


def test_a_pin_reaches_no_file(client):
    for versus in ("catalog=/etc&model=llama-3-8b", "model=/etc/passwd", "model=..%2Fx", "correction=x"):
        page = client.get("/estimate", params={**GIVEN, "versus": versus})
        assert page.status_code in (200, 422) and 'class="before"' not in page.text


def test_stops_show_what_was_where_the_slider_was_taken(client):
    asked = {name: value for name, value in GIVEN.items() if name != "global_batch_size"}
    found = client.get("/column", params={**asked, "slider": "global_batch_size", "at": "64"}).json()
    stops = {stop["value"]: stop["html"] for stop in found["stops"]}
    assert "before" not in stops[64] and "batch\u00a0\u00d7\u00a02" in stops[128]
    moved = words.change(days(**{**GIVEN, "global_batch_size": 128}) / days(**GIVEN) - 1.0)
    assert moved in stops[128]


def test_a_stop_that_breaks_a_rule_says_which_and_the_others_are_drawn(client):
    asked = {name: value for name, value in GIVEN.items() if name != "gpus"}
    reply = client.get("/column", params={**asked, "slider": "gpus", "at": "8"})
    stops = {stop["value"]: stop for stop in reply.json()["stops"]}
    assert reply.status_code == 200 and 'class="delta good"' in stops[16]["html"]
    assert "64" in stops[512]["why_not"] and "html" not in stops[512]  # 512 ranks cannot share a batch of 64


def test_a_question_in_toml_asks_the_same(ask, tmp_path):
    path = tmp_path / "question.toml"
    path.write_text(draw.toml_text({**GIVEN, "sp": "on", "overlap": "tp"}))
    status, out, _ = ask("estimate", path, "--json")
    wanted = ironlaw.estimate(**{**GIVEN, "sp": "on", "overlap": "tp"})
    assert status == 0 and json.loads(out)["step"]["seconds"] == float(wanted.step_seconds[0])
