"""The server of the page: its answers are those of the verbs, and it serves nobody else, nothing else and no file."""

from __future__ import annotations

import json
import os
import re

import anyio
import pytest
from starlette.testclient import TestClient

import ironlaw
import slow_work
from ironlaw.errors import QuestionError
from ironlaw.page import words
from ironlaw.web import app, draw, events, remembered, work

HELD = "tp=2&pp=1&zero=1&micro_batch_size=1&recompute=none&global_batch_size=64"
QUESTION = f"model=llama-3-8b&on=h100-sxm&gpus=8&tokens=1T&{HELD}"
ASKED = dict(pair.split("=") for pair in QUESTION.split("&"))


@pytest.fixture(scope="module")
def client():
    with TestClient(app.make_app()) as made:
        yield made


def test_an_answer_is_that_of_the_verb(client):
    reply = client.get(f"/api/estimate?{QUESTION}")
    fresh = json.loads(json.dumps(ironlaw.estimate(**ASKED).to_dict()))
    assert reply.status_code == 200 and reply.json()["step"] == fresh["step"] and reply.json()["run"] == fresh["run"]


def test_the_page_comes_with_its_answer_and_works_without_a_script(client):
    reply = client.get(f"/estimate?{QUESTION}")
    assert reply.status_code == 200 and "It fits" in reply.text
    assert '<form method="get" action="/estimate"' in reply.text and 'value="llama-3-8b"' in reply.text
    scripts = set(re.findall(r"<script[^>]*>", reply.text))
    assert scripts == {'<script type="module" src="/static/app.js">', '<script class="spec" type="application/json">'}
    hold = re.search(r'href="([^"]*)"[^>]*>(?:<[^>]*>)*Hold the plan', reply.text)
    assert hold and "tp=2" in hold[1]


def test_what_changes_of_a_page_is_a_part_of_it(client):
    whole, part = client.get(f"/estimate?{QUESTION}"), client.get(f"/part/estimate?{QUESTION}").json()
    assert part["html"] in whole.text and f"<title>{part['title']}</title>".replace("&", "&amp;") in whole.text


def test_the_empty_page_has_examples_and_the_home_leads_to_it(client):
    assert client.get("/").url.path == "/estimate"
    empty = client.get("/estimate")
    assert empty.status_code == 200 and "What would you train" in empty.text
    assert all(url.replace("&", "&amp;") in empty.text for _, url in draw.EXAMPLES)


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("model=llama-3-9b&on=h100-sxm&gpus=8", 422, "nearest: llama-3-8b"),
        ("modl=llama-3-8b", 422, "unknown option"),
        ("model=/etc/passwd&on=h100-sxm&gpus=8", 422, "names a file"),
        ("model=../../etc/passwd&on=h100-sxm&gpus=8", 422, "names a file"),
        ("model=llama-3-8b&on=h100-sxm&gpus=8&catalog=x", 422, ""),
        (f"model={'x' * 5000}&on=h100-sxm&gpus=8", 422, "characters"),
        (f"model={'x' * 20000}", 414, "bytes"),
        ("model=llama-3-8b&on=h100-sxm&gpus=-3", 422, "gpus"),
    ],
)
def test_a_wrong_question_is_refused_in_a_sentence(client, query, status, said):
    reply = client.get(f"/api/estimate?{query}")
    assert reply.status_code == status and said in reply.json()["error"]["message"]
    page = client.get(f"/estimate?{query}")
    assert page.status_code == status


def test_a_model_with_a_hub_name_is_no_file():
    work.check_words({"model": "meta-llama/Meta-Llama-3-8B", "overlap": "tp,pp", "tokens": "1.5T", "gpus": "64..4096"})
    for value in ("/etc/passwd", "~/x", "a=/etc", "x,/etc", "..", "a/..", "../x", "a/../x", "x,..", "C:\\x", "..\\x"):
        with pytest.raises(QuestionError):
            work.check_words({"model": value})


def test_a_plan_that_breaks_a_rule_says_which(client):
    reply = client.get("/estimate?model=llama-3-70b&on=h100-sxm&gpus=56&tp=7&global_batch_size=64")
    assert reply.status_code == 200 and "There is no such plan." in reply.text and "tp 7" in reply.text


def test_a_defect_is_said_and_nothing_of_it_shown(monkeypatch, capsys):
    monkeypatch.setattr(work, "answer_data", lambda verb, given: {}["secret"])
    found = work.reply("estimate", ASKED)
    assert found.status == 500 and "secret" not in found.html + found.data and "KeyError" in capsys.readouterr().err


def test_nobody_else_is_served(client):
    foreign = {"origin": "http://evil.example"}
    assert client.get(f"/api/estimate?{QUESTION}", headers=foreign).status_code == 403
    cross = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert client.get(f"/api/estimate?{QUESTION}", headers=cross).status_code == 403
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    assert client.post(f"/api/estimate?{QUESTION}", content=b"x" * 10).status_code in (405, 413)
    own = {"origin": "http://testserver"}
    assert client.get("/names/accelerators", headers=own).status_code == 200


def test_every_reply_forbids_scripts_from_elsewhere(client):
    for path in ("/estimate", "/static/app.js", "/static/no-such-file", "/no-such-view", "/api/estimate?modl=x", "/names/prices"):
        policy = client.get(path).headers["content-security-policy"]
        assert "script-src 'self'" in policy and "unsafe-eval" not in policy and "default-src 'none'" in policy


def test_only_its_own_files_are_served(client):
    for name in app.STATIC:
        assert client.get(f"/static/{name}").status_code == 200
    for name in ("../app.py", "%2e%2e/app.py", "app.py", "..%2f..%2fpyproject.toml"):
        assert client.get(f"/static/{name}").status_code == 404


@pytest.mark.parametrize(("name", "most"), [("inter.woff2", 50_000), ("jetbrains-mono.woff2", 42_000)])
def test_fonts_are_served_small_and_kept(client, name, most):
    reply = client.get(f"/static/{name}")
    assert reply.content[:4] == b"wOF2" and len(reply.content) < most
    assert reply.headers["cache-control"] == "private, max-age=86400" and "font-src 'self'" in reply.headers["content-security-policy"]


def test_a_slider_gets_every_stop_at_once(client):
    found = client.get(f"/column?{QUESTION.replace('global_batch_size=64', '')}&slider=global_batch_size&at=64").json()
    stops = {stop["value"]: stop for stop in found["stops"]}
    assert set(stops) == set(draw.stops_of("global_batch_size", 64)) and stops[64]["fits"]
    fresh = ironlaw.estimate(**{**ASKED, "global_batch_size": 128})
    assert stops[128]["seconds"] == float(fresh.step_seconds[0])
    assert client.get(f"/column?{QUESTION}&slider=tp&at=2").status_code == 422


def test_a_number_opens(client):
    found = client.get(f"/explain?{QUESTION}&explain=step/optimizer")
    assert found.status_code == 200 and "Formula" in found.text and "optimizer" in found.text
    assert client.get(f"/explain?{QUESTION}&explain=nothing").status_code == 422


def test_a_report_is_handed_out(client):
    reply = client.get(f"/report/estimate?{QUESTION}")
    assert reply.status_code == 200 and reply.text.startswith("<!doctype html>") and "ironlaw estimate llama-3-8b" in reply.text


def test_every_page_says_how_wrong_it_is(client):
    from ironlaw.validate.shipped import read_shipped

    shipped = read_shipped()
    error = f"{shipped['headline']['family_median_abs_error'] * 100.0:.1f}"
    assert f"Median error {error}" in client.get("/estimate").text
    page = client.get("/validation")
    assert (
        page.status_code == 200
        and page.text.count('"predicted_seconds"') == len(shipped["predictions"])
        and f"The median error is {error}" in page.text
    )
    assert all(f">{group['key']}<" in page.text for group in shipped["groups"])


def test_the_description_lists_what_is_served(client):
    described = client.get("/openapi.json").json()
    served = {route.path for route in app.make_app().routes} - {"/api/{verb}"}
    assert set(described["paths"]) == served | {f"/api/{verb}" for verb in app.VERBS}
    names = [operation["operationId"] for path in described["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    options = {one["name"] for one in described["paths"]["/api/estimate"]["get"]["parameters"]}
    assert {"model", "on", "gpus", "tp"} <= options


def test_a_port_that_cannot_be_is_refused(ask):
    for port in ("x", "-1", "70000", ""):
        status, _, err = ask("serve", f"--port={port}")
        assert status == 2 and "--port" in err and err.count("\n") == 1


def test_a_saved_answer_is_shown_as_it_stands_in_its_file(client):
    answer = ironlaw.money("llama-3-8b", on="h100-sxm", gpus=8, tokens="1T").to_dict()
    answer["headline"][0]["text"] = "a sentence of <another> time"
    page = draw.saved_page("money", answer, "old.json", True)
    with TestClient(app.make_app(page)) as opened:
        reply = opened.get("/saved")
    assert reply.status_code == 200 and "sentence of &lt;another&gt; time" in reply.text and "ironlaw again old.json" in reply.text
    assert 'href="/money?model=llama-3-8b&amp;on=h100-sxm&amp;gpus=8&amp;tokens=1T"' in reply.text
    assert client.get("/saved").status_code == 404


# --- events


def read_events(text):
    """Names and data of the events of a stream."""
    return [(name, json.loads(data)) for name, data in re.findall(r"^event: (\w+)\ndata: (.*)$", text, flags=re.MULTILINE)]


def test_a_stream_tells_how_far_a_search_is_and_ends_with_the_part(client):
    query = "model=llama-3-8b&on=h100-sxm&gpus=64&tokens=1T&global_batch_size=256"
    reply = client.get(f"/events/plan?{query}")
    found = read_events(reply.text)
    assert reply.headers["content-type"].startswith("text/event-stream") and "script-src 'self'" in reply.headers["content-security-policy"]
    assert found[-1][0] == "answer" and all(name == "progress" for name, _ in found[:-1])
    part = client.get(f"/part/plan?{query}").json()
    assert found[-1][1]["title"] == part["title"] and "Best of" in found[-1][1]["html"]
    shares = [data["share"] for _, data in found[:-1] if "meshes" in data["text"]]
    assert all(0.0 <= share <= 1.0 for share in shares)


def test_a_stream_says_why_there_is_no_answer(client):
    for query, said in (("modl=x", "Unknown option"), ("model=llama-3-9b&on=h100-sxm&gpus=8", "nearest"), ("", "What would you train")):
        ((name, data),) = read_events(client.get(f"/events/estimate?{query}").text)
        assert name == "answer" and said in data["html"]


def test_how_far_a_worker_is_stands_in_a_file(tmp_path):
    from ironlaw.progress import Progress

    notes = events.Notes(str(tmp_path / "progress"))
    notes.note(Progress("meshes", 1, 4, "7 s"))
    notes.note(Progress("meshes", 2, 4))  # too soon after the last
    notes.note(None)
    assert json.loads((tmp_path / "progress").read_text()) == {"text": "1 of 4 meshes, best so far 7 s", "share": 0.25}


def stream(response, leaves):
    """What a response sends; the client leaves when the worker has written the file ``leaves``."""
    sent = []

    async def receive():
        while leaves is None or not leaves.exists():
            await anyio.sleep(0.1)
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    async def run():
        response.limiter = anyio.CapacityLimiter(1)
        with anyio.fail_after(60.0):
            await response({}, receive, send)

    anyio.run(run)
    return sent


def test_a_client_that_leaves_stops_its_worker(tmp_path):
    mine = tmp_path / "pid"
    sent = stream(events.EventStream(slow_work.sleep, (str(mine), 300.0), None, 300.0), mine)
    assert [message["type"] for message in sent] == ["http.response.start"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(mine.read_text()), 0)


def test_an_answer_that_takes_too_long_says_so(tmp_path):
    sent = stream(events.EventStream(slow_work.sleep, (str(tmp_path / "pid"), 300.0), None, 3.0), None)
    ((name, data),) = read_events(b"".join(message.get("body", b"") for message in sent).decode())
    assert name == "answer" and data["status"] == 503 and "more than 3 s" in data["html"]


@pytest.mark.parametrize("topic", work.LESSONS)
def test_a_lesson_has_its_stops_reasons_and_command(client, topic):
    page = client.get(f"/learn/{topic}").text
    stops = page.count('<template class="stop"')
    assert stops >= 4 and page.count('<figure class="vega"') == stops + 1 and "ironlaw " in page and "Open as a question" in page
    first, last = client.get(f"/learn/{topic}?at=0").text, client.get(f"/learn/{topic}?at=999").text
    verdicts = [re.search(r"<h1[^>]*>([^<]*)", text)[1] for text in (first, last)]
    assert verdicts[0] != verdicts[1]


def test_lessons_have_the_numbers_of_their_verbs(client):
    page = client.get("/learn/roofline?at=2").text
    asked = ironlaw.roofline(gemm="256,8192,57344", on="h100-sxm").to_dict()["operators"][0]
    assert (
        words.quantity(asked["expected_time"], "s") in page
        and "With 256 tokens the products wait for memory; with 512 they compute." in page
    )
    assert client.get("/learn").url.path == "/learn/roofline"
    assert client.get("/learn/no-such").status_code == 404 and client.get("/learn/roofline?at=x").status_code == 200


# --- answers that are remembered


def test_an_answer_that_was_given_is_not_computed_again(client, monkeypatch):
    query = QUESTION + "&seed_of_test=1"
    assert client.get(f"/api/estimate?{query}").status_code == 422  # an unknown option reaches no worker
    first = client.get(f"/part/estimate?{QUESTION}&precision=bf16")

    async def no_worker(*_, **__):
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(app.anyio.to_process, "run_sync", no_worker)
    again = client.get(f"/part/estimate?precision=bf16&{QUESTION}")  # in another order
    assert again.json() == first.json()
    ((name, data),) = read_events(client.get(f"/events/estimate?{QUESTION}&precision=bf16").text)
    assert name == "answer" and data["html"] == first.json()["html"]
    with pytest.raises(ExceptionGroup):  # a report says the day
        client.get(f"/report/estimate?{QUESTION}&precision=bf16")


def test_what_is_remembered_has_a_limit_and_no_failure():
    memory = remembered.Remembered(most=10)
    for name in "abc":
        memory.keep(name, work.Reply(200, "x" * 4))
    assert list(memory.replies) == ["b", "c"] and memory.size == 8
    for status in (500, 503):
        memory.keep("d", work.Reply(status, "x"))
    memory.keep(None, work.Reply(200, "x"))
    assert list(memory.replies) == ["b", "c"] and memory.get("b") and list(memory.replies) == ["c", "b"]
    assert (
        remembered.key_of(work.report, ("estimate", {}), {}) is None and remembered.key_of(work.raw, ("estimate", {}), {"a": b""}) is None
    )


@pytest.mark.parametrize("verb", ["estimate", *draw.FIELDS_OF])
def test_the_fields_and_examples_of_a_verb_are_its_options(verb):
    from urllib.parse import parse_qsl, urlsplit

    from ironlaw.interface import arguments

    options = {argument.name for argument in arguments(verb)}
    assert {field[0] for field in draw.FIELDS_OF.get(verb, draw.FIELDS)} <= options
    for _, url in draw.examples_of(verb):
        asked = urlsplit(url)
        assert asked.path == f"/{verb}" and dict(parse_qsl(asked.query)).keys() <= options


def test_a_link_of_an_earlier_version_is_still_answered(client):
    query = "model=llama-3-8b&sites=lulea,dublin&on=h100-sxm&gpus=16&wan_bandwidth=100Gb/s&tokens=1T&global_batch_size=64"
    old, new = (client.get(f"/api/sites?{query}&{name}=100") for name in ("every", "inner_steps"))
    assert old.status_code == 200 and old.json()["ways"] == new.json()["ways"]


def test_a_plan_that_the_page_holds_is_measured_against_the_one_that_a_search_finds(client):
    """The offer names the plan without the held axes, where it is faster by more than can be told; what was given by hand stays."""
    asked = "model=llama-3-8b&on=h100-sxm&gpus=8&tokens=1T&global_batch_size=64&recompute=none"
    held, anew = (
        ironlaw.estimate(**dict(pair.split("=") for pair in f"{asked}{more}".split("&"))).step_seconds[0] for more in ("&tp=8&pp=1", "")
    )
    found = client.get(f"/offer?{asked}&tp=8&pp=1&held=tp,pp").json()
    assert found["faster"] == pytest.approx(float(held / anew) - 1.0) and found["faster"] > found["least"]
    assert "faster" in found["html"] and "recompute=none" in found["html"] and "tp=8" not in found["html"]
    assert "still the best" in client.get(f"/offer?{asked}&tp=8&pp=1").json()["html"]
    assert "possible here" in client.get(f"/offer?{asked}&tp=7&held=tp").json()["html"]
    assert client.get(f"/offer?{asked}&nonsense=1").status_code == 422


def test_the_page_holds_axes_and_the_question_elsewhere_has_them(client):
    page = client.get(f"/estimate?{QUESTION}&held=tp,pp").text
    assert 'id="offer"' in page and "--tp 2" in page and "--held" not in page
    assert 'id="offer"' not in client.get(f"/estimate?{QUESTION}").text


def test_a_change_of_the_question_takes_the_views_along(client):
    """The part that a change brings has the links of the top bar: the next view asks the question that is on the page."""
    part = client.get(f"/part/estimate?{QUESTION}").json()["html"]
    views = re.search(r'<template id="views-now">(.*?)</template>', part)[1]
    assert views.count("<a ") == len(draw.VIEWS) and 'href="/compare?model=llama-3-8b' in views and 'aria-current="page">Estimate' in views
    nav = re.search(r"<nav[^>]*>(.*?)</nav>", client.get(f"/estimate?{QUESTION}").text)[1]
    assert nav == views


def test_a_run_leads_to_what_else_is_asked_of_it(client):
    page = client.get(f"/estimate?{QUESTION}").text
    for verb in ("optimize", "plan", "compare", "money"):
        assert re.search(rf'class="next">.*?href="/{verb}\?model=llama-3-8b', page, re.DOTALL)
    vague = client.get(f"/estimate?{QUESTION.replace('h100-sxm', 'h100')}").text
    assert "taken: h100-sxm" in vague and "taken:" not in page
    small = client.get("/estimate?model=llama-3-8b&on=h100-sxm&gpus=1&seq_len=2048").text
    assert "does not fit" in small and 'data-set="' in small
