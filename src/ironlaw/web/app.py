"""The server: routes, who may ask, and worker processes that can be stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_process
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from ironlaw.earlier import OPTIONS as RENAMED
from ironlaw.earlier import first_name
from ironlaw.errors import IronlawError, UnknownNameError
from ironlaw.files import read_bytes, read_shipped
from ironlaw.web import address, draw, drawer, drop, entry, events, uploads, work
from ironlaw.web.remembered import key_of, remembered
from ironlaw.web.work import Reply

VERBS = work.VERBS
QUICK = ("estimate",)  # answered by workers that searches do not take
SECONDS = {True: 60.0, False: 180.0}  # that a question may take: a quick one, another
LONGEST = 16_384  # bytes of a query
TAKES = "/files"  # the one address that takes a body
HOSTS = ["localhost", "127.0.0.1", "[::1]", "testserver"]
VENDORED = ("vega-6.4.0.min.js", "vega-lite-6.4.3.min.js", "vega-interpreter-2.3.2.js", "vega-util.js")  # that the figures of the page need
STATIC = {  # a name, its file in the package, its type
    "style.css": ("page/style.css", "text/css"),
    "app.css": ("web/static/app.css", "text/css"),
    "app.js": ("web/static/app.js", "text/javascript"),
    "catalogue.js": ("web/static/catalogue.js", "text/javascript"),
    "files.js": ("web/static/files.js", "text/javascript"),
    "inter.woff2": ("web/static/fonts/inter.woff2", "font/woff2"),
    "jetbrains-mono.woff2": ("web/static/fonts/jetbrains-mono.woff2", "font/woff2"),
    "learn.js": ("web/static/learn.js", "text/javascript"),
    "figures.js": ("web/static/figures.js", "text/javascript"),
    "keys.js": ("web/static/keys.js", "text/javascript"),
    "icon.svg": ("web/static/icon.svg", "image/svg+xml"),
    **{name: (f"web/static/vendor/{name}", "text/javascript") for name in VENDORED},
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self'; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
KEPT = {"cache-control": "private, max-age=86400"}  # of files that no version of ours changes
NAMES = ("models", "accelerators", "frameworks", "precisions")  # kinds of records that a field suggests


def make_app(saved: str = "", token: str = "") -> Starlette:
    """The application; ``saved``: the page of a saved answer, which it serves too; ``token``: what everybody must have who asks."""
    routes = [
        Route("/", _home),
        Route("/static/{name}", _static),
        Route("/names/{kind}", _names),
        Route("/validation", _validation),
        Route("/learn", _first_lesson),
        Route("/learn/{topic}", _lesson),
        Route("/catalog", _search),
        Route("/catalog/{kind}/{name}", _record),
        Route("/openapi.json", _openapi),
        *uploads.routes(),
        Route("/part/{verb}", _part),
        Route("/events/{verb}", _events),
        Route("/api/{verb}", _api),
        Route("/report/{verb}", _report),
        Route("/explain", _explain),
        Route("/column", _column),
        Route("/offer", _offer),
        Route("/curve", _curve),
        Route("/saved", _saved),
        Route("/{verb}", _page),
    ]
    hosts = ["*"] if token else HOSTS  # a foreign page that gives this machine another name has no token
    layers = [Middleware(TrustedHostMiddleware, allowed_hosts=hosts), Middleware(Guard)]
    app = Starlette(routes=routes, middleware=[*layers, *([Middleware(entry.Token, token=token)] if token else [])])
    app.state.saved = saved
    return app


class Guard:
    """Refuses what another site's page asks, long queries and bodies, and adds the headers of safety to every answer."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request of the ASGI protocol."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                set_by_page = {name for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in set_by_page]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        refusal = _refusal(scope)
        if refusal is None:
            await self.app(scope, receive, guarded)
        else:
            await refusal(scope, receive, guarded)


def _refusal(scope: Mapping[str, Any]) -> Response | None:
    """Why a request is not answered; None where it is."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host:
        return _error(403, "foreign-origin", "Another site's page asks: open this page itself.")
    if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") not in (None, "navigate"):
        return _error(403, "foreign-origin", "Another site's page asks: open this page itself.")
    if len(scope.get("query_string", b"")) > LONGEST:
        return _error(414, "long-question", f"The question has more than {LONGEST:,} bytes.")
    if scope["method"] == "POST" and scope["path"] == TAKES and headers.get("sec-fetch-site") in (None, "same-origin", "none"):
        return None
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return _error(413, "body", "Only dropped files have a body: the question stands in the address.")
    return None


def _error(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "option": None, "value": None, "message": message, "nearest": [], "offers": []}}, status)


# --- questions


async def _asked(request: Request, function: Callable[..., Reply], quick: bool, *arguments: Any) -> Reply | None:
    """What a worker answers; None where the browser has gone. Its process is stopped then, and where it takes too long."""
    models, memory = uploads.models_in(request, arguments), remembered(request)
    key = key_of(function, arguments, models)
    found = memory.get(key)
    if found is not None:
        return found
    with anyio.move_on_after(SECONDS[quick]) as late:
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while not await request.is_disconnected():
                    await anyio.sleep(0.25)
                group.cancel_scope.cancel()

            group.start_soon(watch)
            found = await anyio.to_process.run_sync(
                work.with_models, models, function, *arguments, cancellable=True, limiter=_limiter(request, quick)
            )
            group.cancel_scope.cancel()
    if found is not None:
        memory.keep(key, found)
    return work.too_long(SECONDS[quick]) if late.cancelled_caught and found is None else found


def _limiter(request: Request, quick: bool) -> CapacityLimiter:
    """How many workers may answer at once: some for quick questions, some for others."""
    state = request.app.state
    if not hasattr(state, "limits"):
        state.limits = {True: CapacityLimiter(2), False: CapacityLimiter(2)}
    found: CapacityLimiter = state.limits[quick]
    return found


def _question(request: Request, verb: str) -> dict[str, str]:
    """The options of a request; an unknown one is an error."""
    renamed = RENAMED.get(verb, {})  # a link of an earlier version
    asked = request.query_params.multi_items()
    given = {renamed.get(name, name): value for name, value in asked if value != "" and name != uploads.TOOK}
    _check_names(given, verb)
    return given


def _verb(request: Request) -> str:
    """The verb of a request; an error where there is none of its name."""
    from starlette.exceptions import HTTPException

    verb: str = first_name(request.path_params["verb"])
    if verb not in VERBS:
        raise HTTPException(404, f"no view {verb}; there are {', '.join(VERBS)}")
    return verb


async def _page(request: Request) -> Response:
    """The whole page, with the answer of its address."""
    verb = _verb(request)
    try:
        given = _question(request, verb)
    except IronlawError as error:
        return HTMLResponse(draw.document(verb, {}, draw.problem(error.data(), {}, verb), "No answer"), 422)
    if not given:
        return HTMLResponse(draw.document(verb, {}, draw.empty(verb), "Ask a question"))
    found = await _asked(request, work.reply, verb in QUICK, verb, given)
    if found is None:
        return Response(status_code=499)
    from markupsafe import Markup

    took = drop.took_block(uploads.shelf(request).notes.get(request.query_params.get(uploads.TOOK, ""), []))
    return HTMLResponse(draw.document(verb, given, Markup(found.html), found.title, took), found.status)


async def _part(request: Request) -> Response:
    """What changes of a page when its question changes."""
    verb = _verb(request)
    try:
        given = _question(request, verb)
    except IronlawError as error:
        return HTMLResponse(str(draw.problem(error.data(), {}, verb)), 422)
    if not given:
        return JSONResponse({"title": "ironlaw", "html": str(draw.empty(verb))})
    found = await _asked(request, work.reply, verb in QUICK, verb, given)
    if found is None:
        return Response(status_code=499)
    return JSONResponse({"title": f"{found.title}, ironlaw", "html": found.html}, found.status)


async def _events(request: Request) -> Any:
    """What changes of a page when its question changes, as a stream that tells how far the answer is."""
    verb = _verb(request)
    try:
        given = _question(request, verb)
    except IronlawError as error:
        return events.Fixed(422, "No answer", str(draw.problem(error.data(), {}, verb)))
    if not given:
        return events.Fixed(200, "Ask a question", str(draw.empty(verb)))
    quick = verb in QUICK
    models, memory = uploads.models_in(request, [given]), remembered(request)
    key = key_of(work.reply, (verb, given), models)
    if (found := memory.get(key)) is not None:
        return events.Fixed(found.status, found.title, found.html)
    told = partial(work.with_models, models, events.told)
    return events.EventStream(told, (verb, given), _limiter(request, quick), SECONDS[quick], partial(memory.keep, key))


async def _api(request: Request) -> Response:
    """The answer as data."""
    verb = _verb(request)
    return await _data(request, verb, lambda given: _asked(request, work.raw, verb in QUICK, verb, given), "application/json")


async def _report(request: Request) -> Response:
    """The answer as a file."""
    verb = _verb(request)
    return await _data(request, verb, lambda given: _asked(request, work.report, verb in QUICK, verb, given), "text/html")


async def _data(request: Request, verb: str, ask: Callable[[dict[str, str]], Awaitable[Reply | None]], kind: str) -> Response:
    """A worker's answer as it is; an error in JSON."""
    try:
        given = _question(request, verb)
    except IronlawError as error:
        return JSONResponse({"error": error.data()}, 422)
    found = await ask(given)
    if found is None:
        return Response(status_code=499)
    return Response(found.data, found.status, media_type=kind if found.status == 200 else "application/json")


async def _explain(request: Request) -> Response:
    """One term of an estimate, for the drawer."""
    path = request.query_params.get("explain", "")
    given = {name: value for name, value in request.query_params.multi_items() if name not in ("explain", uploads.TOOK) and value != ""}
    try:
        _check_names(given, "estimate")
    except IronlawError as error:
        return HTMLResponse(str(drawer.no_term(path, error.data())), 422)
    found = await _asked(request, work.explained, True, given, path)
    return Response(status_code=499) if found is None else HTMLResponse(found.html, found.status)


async def _column(request: Request) -> Response:
    """The first screens of a slider's stops."""
    found = await _slid(request, work.column)
    return found if isinstance(found, Response) else Response(found.data, found.status, media_type="application/json")


async def _curve(request: Request) -> Response:
    """Tokens a second over a slider's stops."""
    found = await _slid(request, work.curve)
    return found if isinstance(found, Response) else HTMLResponse(found.html, found.status)


async def _slid(request: Request, answers: Callable[..., work.Reply]) -> work.Reply | Response:
    """What a slider asks for; a response where it asks for something else, or has left."""
    name = request.query_params.get("slider", "")
    given = {key: value for key, value in request.query_params.multi_items() if key not in ("slider", "at", uploads.TOOK) and value != ""}
    at = request.query_params.get("at", "")
    if name not in draw.SLIDERS or not at.isdigit() or len(at) > 9:
        return _error(422, "slider", f"slider is one of {', '.join(draw.SLIDERS)}, at a whole number")
    try:
        _check_names(given, "estimate")
    except IronlawError as error:
        return JSONResponse({"error": error.data()}, 422)
    found = await _asked(request, answers, True, given, name, draw.stops_of(name, int(at)), int(at))
    return Response(status_code=499) if found is None else found


async def _offer(request: Request) -> Response:
    """Whether another plan is faster than the one that the page holds."""
    try:
        given = _question(request, "estimate")
    except IronlawError as error:
        return JSONResponse({"error": error.data()}, 422)
    found = await _asked(request, work.offered, True, given)
    return Response(status_code=499) if found is None else Response(found.data, found.status, media_type="application/json")


def _check_names(given: Mapping[str, str], verb: str) -> None:
    """Refuse an option that the verb does not have."""
    from ironlaw.interface import arguments

    known = {argument.name for argument in arguments(verb)} | (set(address.OF_PAGE) if verb == "estimate" else set())
    for name in given:
        if name not in known:
            raise UnknownNameError("option", name, known)


# --- what does not change


async def _home(request: Request) -> Response:
    """The empty page."""
    del request
    return RedirectResponse("/estimate")


async def _static(request: Request) -> Response:
    """A file of the page."""
    name = request.path_params["name"]
    if name not in STATIC:
        return PlainTextResponse("not found", 404)
    if name in VENDORED:
        return Response(static_text(name), media_type=STATIC[name][1], headers=KEPT)
    path, kind = STATIC[name]
    kept = KEPT if kind.startswith("font/") else {}
    return Response(read_bytes(Path(__file__).parents[1] / path, "a file of the page"), media_type=kind, headers=kept)


def static_text(name: str) -> str:
    """A script of the page as a browser reads it: the bare name that vega-interpreter imports becomes an address."""
    text = read_shipped(Path(__file__).parents[1] / STATIC[name][0])
    return text.replace("from 'vega-util'", "from './vega-util.js'") if name.startswith("vega-interpreter") else text


async def _saved(request: Request) -> Response:
    """The answer of a file that the server was started with."""
    saved = request.app.state.saved
    return HTMLResponse(saved) if saved else PlainTextResponse("no saved answer: start the page with ironlaw open FILE", 404)


async def _validation(request: Request) -> Response:
    """How wrong the predictions were."""
    del request
    return HTMLResponse(draw.validation_page())


async def _first_lesson(request: Request) -> Response:
    """The first page that teaches."""
    del request
    return RedirectResponse("/learn/roofline")


async def _lesson(request: Request) -> Response:
    """A page that teaches."""
    topic, at = request.path_params["topic"], request.query_params.get("at", "")
    if topic not in work.LESSONS:
        return PlainTextResponse(f"no lesson of this name; there are {', '.join(work.LESSONS)}", 404)
    found = await _asked(request, work.lesson, True, topic, int(at) if at.isdigit() and len(at) < 4 else None)
    return Response(status_code=499) if found is None else HTMLResponse(found.html, found.status)


def _search(request: Request) -> Response:
    """The catalogue: what a search finds."""
    from ironlaw.web import catalogue

    status, html = catalogue.search_page(request.query_params.get("q", ""))
    return HTMLResponse(html, status)


def _record(request: Request) -> Response:
    """One record of the catalogue."""
    from ironlaw.web import catalogue

    status, html = catalogue.record_page(request.path_params["kind"], request.path_params["name"], request.query_params.get("q", ""))
    return HTMLResponse(html, status)


async def _names(request: Request) -> Response:
    """The names of records of a kind, for the suggestions of a field."""
    from ironlaw.catalog import load

    kind = request.path_params["kind"]
    return JSONResponse(load.names(kind)) if kind in NAMES else _error(404, "kind", f"kinds are {', '.join(NAMES)}")


async def _openapi(request: Request) -> Response:
    """What can be asked, and what is answered."""
    del request
    from ironlaw.web.openapi import description

    return JSONResponse(description(VERBS))
