"""Who may come in where others can reach the server: tokens and cookies."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from ironlaw.web import app, entry

TOKEN = "a-token-of-the-test"


@pytest.fixture(scope="module")
def guarded():
    with TestClient(app.make_app(token=TOKEN), follow_redirects=False) as made:
        yield made


def test_without_the_token_nobody_is_let_in(guarded):
    for path in ("/", "/estimate", "/static/app.js", "/openapi.json", "/validation", "/estimate?token=wrong", "/?token=", "/no-such-view"):
        reply = guarded.get(path)
        assert reply.status_code == 401 and reply.json()["error"]["code"] == "token" and "content-security-policy" in reply.headers
    for header in ({"authorization": "Bearer wrong"}, {"cookie": "ironlaw=wrong"}, {"cookie": "ironlaw"}, {"authorization": TOKEN + "x"}):
        assert guarded.get("/estimate", headers=header).status_code == 401


def test_the_address_with_the_token_opens_the_page_and_hides_it(guarded):
    reply = guarded.get(f"/names/models?x=1&token={TOKEN}")
    assert reply.status_code == 303 and reply.headers["location"] == "/names/models?x=1"
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie
    guarded.cookies.clear()
    assert guarded.get("/names/models", headers={"cookie": f"ironlaw={TOKEN}"}).status_code == 200
    assert guarded.get("/names/models", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_address_with_the_token_leads_to_no_other_host(guarded):
    reply = guarded.get(f"http://testserver//evil.example/?token={TOKEN}")
    assert reply.headers["location"].startswith("/evil.example")


def test_another_sites_page_is_refused_with_the_token_too(guarded):
    headers = {"cookie": f"ironlaw={TOKEN}", "origin": "http://evil.example"}
    assert guarded.get("/names/models", headers=headers).status_code == 403


def test_a_token_is_new_each_time():
    assert len({entry.make_token() for _ in range(50)}) == 50 and len(entry.make_token()) >= 32


def test_a_host_that_is_none_is_refused(ask):
    for host in ("no-such-host.invalid", "999.1.1.1", "", "a b"):
        status, _, err = ask("serve", f"--host={host}", "--port=0")
        assert status == 3 and err.count("\n") == 1 and "--host" in err
