"""Who may come in where others can reach the server: whoever has its token. And how long a client may take to ask.

The token comes once, in the address that ``ironlaw serve`` prints; a cookie of this site alone keeps it. A script sends it as
``Authorization: Bearer TOKEN``.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

import h11
from starlette.responses import JSONResponse, RedirectResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

COOKIE = "ironlaw"
SLOWEST = {"head": 10.0, "body": 60.0}  # s that a client may take to send a part of a request


def make_token() -> str:
    """A token that nobody guesses: 192 random bits."""
    return secrets.token_urlsafe(24)


class Token:
    """Lets in whoever has the token, and answers everybody else with 401."""

    def __init__(self, app: Any, token: str) -> None:
        self.app, self.token = app, token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request of the ASGI protocol."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name: value for name, value in scope["headers"] if name in (b"authorization", b"cookie")}
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        asked = next((value for name, value in query if name == "token"), "")
        if asked and self._is(asked.encode("latin-1", "replace")):
            await self._keep(scope, [pair for pair in query if pair[0] != "token"])(scope, receive, send)
        elif self._is(headers.get(b"authorization", b"").removeprefix(b"Bearer ")) or self._is(_cookie(headers.get(b"cookie", b""))):
            await self.app(scope, receive, send)
        else:
            message = "This page is for those who have its whole address, which ironlaw serve printed with a token."
            error: dict[str, Any] = {"code": "token", "option": None, "value": None, "message": message, "nearest": [], "offers": []}
            await JSONResponse({"error": error}, 401, {"www-authenticate": "Bearer"})(scope, receive, send)

    def _is(self, given: bytes) -> bool:
        """Whether bytes are the token, in a time that says nothing of it."""
        return hmac.compare_digest(given, self.token)

    def _keep(self, scope: Any, query: list[tuple[str, str]]) -> RedirectResponse:
        """The same address without the token, which a cookie keeps; no page and no log of a proxy shows it again."""
        path = "/" + scope["path"].lstrip("/")  # // would be another host
        reply = RedirectResponse(path + (f"?{urlencode(query)}" if query else ""), 303)
        reply.set_cookie(COOKIE, self.token.decode(), httponly=True, samesite="lax")  # lax: a link in a mail opens the page
        return reply


def _cookie(header: bytes) -> bytes:
    """The token in a header of cookies; empty where there is none."""
    try:
        found = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return b""
    return found.value.encode("latin-1", "replace") if found else b""


class PatientProtocol(H11Protocol):
    """HTTP for clients that ask within a time: who sends a request slower is cut off, and holds no connection."""

    waiting: asyncio.TimerHandle | None = None
    part = ""  # of a request that is waited for

    def connection_made(self, transport: Any) -> None:
        """Start the clock of the first request."""
        super().connection_made(transport)
        self._wait_for("head")

    def data_received(self, data: bytes) -> None:
        """Read on; the clock stops where a request is whole, and starts where another begins."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for("head")
        else:
            self._wait_for("body" if self.conn.their_state is h11.SEND_BODY else "")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock with the connection."""
        self._wait_for("")
        super().connection_lost(exc)

    def _wait_for(self, part: str) -> None:
        """Start the clock of a part, where it does not run already; none for no part."""
        if part == self.part:
            return
        if self.waiting is not None:
            self.waiting.cancel()
        self.part = part
        self.waiting = self.loop.call_later(SLOWEST[part], self.transport.close) if part else None
