"""The OpenAPI description of the server, from the options of the verbs and the schemas that ship."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ironlaw import __version__, interface
from ironlaw.files import read_shipped

SCHEMAS = Path(__file__).parents[1] / "schemas"
EXAMPLES = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": "8", "tokens": "1T", "sites": "lulea,dublin", "wan_bandwidth": "100Gb/s"}
EVERYWHERE = {  # statuses of every address, and what they say
    "400": "the request names another host",
    "401": "the server is for those who have its token",
    "403": "a page of another site asks",
    "413": "the request has a body, or one that is too large",
    "414": "the question is too long",
}
WHY = {**EVERYWHERE, "422": "the question has no answer", "503": "the answer takes too long, or too many ask"}  # beside 200, of a question
HTML, JSON, TEXT, SVG, STREAM = "text/html", "application/json", "text/plain", "image/svg+xml", "text/event-stream"
WORD = {"type": "string", "maxLength": 4096}


@cache
def description(verbs: Sequence[str]) -> dict[str, Any]:
    """OpenAPI 3.1: one path a verb, whose options are the query and whose answer is what ``ironlaw schema VERB`` prints, and all pages."""
    shapes: dict[str, Any] = {"error": _error_shape()}
    paths = {f"/api/{verb}": {"get": _operation(verb, shapes)} for verb in verbs}
    paths |= {path: {method: operation} for path, method, operation in _pages(verbs)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ironlaw", "version": __version__, "description": "What a large training run will take."},
        "paths": paths,
        "components": {"schemas": shapes},
    }


def _operation(verb: str, shapes: dict[str, Any]) -> dict[str, Any]:
    """How a verb is asked; the schema of its answer is added to ``shapes``."""
    shapes |= _shapes_of(verb)
    answers = {"200": _answer(f"the answer, as ironlaw schema {verb} says", verb)}
    answers |= {status: _answer(text, "error", TEXT if status == "400" else JSON) for status, text in WHY.items()}
    query = [_parameter(argument) for argument in interface.arguments(verb)]
    return {"operationId": verb, "summary": interface.summary(verb), "parameters": query, "responses": answers}


def _answer(text: str, shape: str, kind: str = JSON) -> dict[str, Any]:
    """A response with its schema; a text has none, and each event of a stream is an object."""
    schema = {"$ref": f"#/components/schemas/{shape}"} if kind == JSON else {"type": "object" if kind == STREAM else "string"}
    return {"description": text, "content": {kind: {"schema": schema}}}


# --- the addresses of the page


def _pages(verbs: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every other address: its path, its method, and how it is asked and answered."""
    verb = _word("verb", "path", "what is asked", {"type": "string", "enum": list(verbs)})
    options = {**_word("options", "query", "options of the verb: see its path /api/VERB", {"type": "object", "additionalProperties": WORD}),
               "style": "form", "explode": True}  # fmt: skip
    part = {
        "type": "object",
        "properties": {"title": WORD | {"maxLength": 65536}, "html": {"type": "string"}},
        "required": ["title", "html"],
    }
    no_verb = {"404": ("no verb of this name", TEXT)}
    unanswered = {"422": ("the question has no answer", HTML), "503": ("the answer takes too long", HTML)}
    late = {"422": ("the question has no answer", JSON), "503": ("the answer takes too long", JSON)}
    yield "/", "get", _asked("home", "the empty page", (), {"307": ("the page of an estimate", None)})
    yield "/{verb}", "get", _asked("page", "the page of an answer", (verb, options), {"200": ("the page", HTML), **unanswered, **no_verb})
    yield (
        "/part/{verb}",
        "get",
        _asked(
            "part",
            "what changes of a page",
            (verb, options),
            {"200": ("title and HTML", part), **unanswered, "503": ("too late", part), **no_verb},
        ),
    )
    yield "/events/{verb}", "get", _asked(
        "events", "the same as a stream: events progress, then one event answer", (verb, options),
        {"200": ("the stream", STREAM), **no_verb},
    )  # fmt: skip
    yield (
        "/report/{verb}",
        "get",
        _asked("report", "the answer as a file", (verb, options), {"200": ("the report", HTML), **late, **no_verb}),
    )
    yield (
        "/explain",
        "get",
        _asked(
            "explain",
            "a term of an estimate",
            (_word("explain", "query", "path of the term"), options),
            {"200": ("the term", HTML), **unanswered},
        ),
    )
    slider = _word("slider", "query", "the option that moves", {"type": "string", "enum": ["gpus", "global_batch_size"]})
    at = _word("at", "query", "where it is", {"type": "string", "pattern": "^[0-9]{1,9}$"})
    any_data: dict[str, Any] = {"type": "object"}
    yield "/column", "get", _asked("column", "the stops of a slider", (slider, at, options), {"200": ("the stops", any_data), **late})
    drawn = {"200": ("the curve", HTML), **late, "503": unanswered["503"]}
    yield "/curve", "get", _asked("curve", "tokens a second over the stops of a slider", (slider, at, options), drawn)
    yield "/offer", "get", _asked("offer", "a plan that is faster than the held one", (options,), {"200": ("the offer", any_data), **late})
    yield from _fixed_pages()
    yield from _file_pages()


def _fixed_pages() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Addresses whose answers no question changes."""
    from ironlaw.catalog.records import KINDS
    from ironlaw.web.work import LESSONS

    topic = _word("topic", "path", "the lesson", {"type": "string", "enum": list(LESSONS)})
    kind, name = _word("kind", "path", "kind of record", {"type": "string", "enum": list(KINDS)}), _word("name", "path", "name")
    words = _word("q", "query", "words to look for")
    named = {"type": "array", "items": {"type": "string"}}
    field = _word("kind", "path", "kind of record", {"type": "string", "enum": ["models", "accelerators", "frameworks", "precisions"]})
    no_file = {"404": ("no such file", TEXT)}
    yield "/validation", "get", _asked("validation", "how wrong the predictions were", (), {"200": ("the page", HTML)})
    yield "/learn", "get", _asked("learn", "the first lesson", (), {"307": ("the lesson", None)})
    yield (
        "/learn/{topic}",
        "get",
        _asked(
            "lesson",
            "a lesson",
            (topic, _word("at", "query", "stop of its slider")),
            {"200": ("the page", HTML), "404": ("no lesson", TEXT)},
        ),
    )
    yield "/catalog", "get", _asked("search", "records that have some words", (words,), {"200": ("the page", HTML)})
    yield (
        "/catalog/{kind}/{name}",
        "get",
        _asked("record", "one record", (kind, name, words), {"200": ("the page", HTML), "404": ("no record of this name", HTML)}),
    )
    yield (
        "/names/{kind}",
        "get",
        _asked("names", "names of records", (field,), {"200": ("the names", named), "404": ("no such kind", JSON)}),
    )
    files = {"200": ("the file", ("text/css", "text/javascript", "font/woff2", SVG)), **no_file}
    yield "/static/{name}", "get", _asked("static", "a file of the page", (_word("name", "path", "its name"),), files)
    yield "/openapi.json", "get", _asked("openapi", "this description", (), {"200": ("the description", {"type": "object"})})
    no_answer = {"404": ("the server was started without a saved answer", TEXT)}
    yield "/saved", "get", _asked("saved", "the answer that the server was started with", (), {"200": ("the page", HTML), **no_answer})


def _file_pages() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Addresses of dropped files."""
    files = _word("files", "query", "keys of files, joined by commas, as the address that /files leads to has them")
    options = {**_word("options", "query", "options of ironlaw diagnose", {"type": "object", "additionalProperties": WORD}),
               "style": "form", "explode": True}  # fmt: skip
    refused = {"422": ("not understood, or not kept any more", HTML), "503": ("reading takes too long", HTML)}
    late = {"422": ("not understood, or not kept any more", JSON), "503": ("reading takes too long", JSON)}
    file = {"type": "array", "items": {"type": "string", "format": "binary"}}
    body = {"type": "object", "additionalProperties": WORD, "properties": {"file": file}, "required": ["file"]}
    taken = _asked(
        "files", "take files: traces, logs, snapshots, configurations, questions, saved answers, at most 64 MiB and 256 files", (),
        {"303": ("where their answer is", None), "408": ("the files did not arrive in time", HTML), "413": ("too large", (HTML, JSON)),
         "415": ("no form of files", HTML), **refused},
    )  # fmt: skip
    yield "/files", "post", {**taken, "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": body}}}}
    yield "/diagnose", "get", _asked("diagnose", "the page of kept files", (files, options), {"200": ("the page", HTML), **refused})
    yield (
        "/api/diagnose",
        "get",
        _asked("diagnosis", "the diagnosis", (files, options), {"200": ("the answer", {"type": "object"}), **late}),
    )
    yield "/report/diagnose", "get", _asked("diagnosed", "the diagnosis as a file", (files, options), {"200": ("the report", HTML), **late})
    key = _word("key", "path", "key of a kept answer")
    gone = {"404": ("not kept any more", HTML), **refused}
    yield "/saved/{key}", "get", _asked("kept", "the page of a saved answer that was dropped", (key,), {"200": ("the page", HTML), **gone})


def _word(name: str, place: str, says: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """A parameter in the path, where it is needed, or in the query."""
    plain = {**WORD, "minLength": 1, "pattern": "^[A-Za-z0-9._-]+$", "maxLength": 200} if place == "path" else WORD
    return {"name": name, "in": place, "required": place == "path", "description": says, "schema": schema or plain}


def _asked(name: str, says: str, parameters: Sequence[dict[str, Any]], answers: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    """An operation: its parameters, and its answers with their types; a type is the name of one or several, a schema of JSON, or none."""
    responses = {status: _typed(text, kind) for status, (text, kind) in answers.items()}
    for status, text in EVERYWHERE.items():
        responses.setdefault(status, _answer(text, "error", TEXT if status == "400" else JSON))
    return {"operationId": f"page-{name}", "summary": says, "parameters": list(parameters), "responses": responses}


def _typed(text: str, kind: Any) -> dict[str, Any]:
    """A response of a type."""
    if kind is None:
        return {"description": text}
    if isinstance(kind, dict):
        return {"description": text, "content": {JSON: {"schema": kind}}}
    kinds = (kind,) if isinstance(kind, str) else kind
    return {"description": text, "content": {one: _answer(text, "error", one)["content"][one] for one in kinds}}


def _parameter(argument: interface.Argument) -> dict[str, Any]:
    """An option as a part of the query."""
    samples = [EXAMPLES[argument.name]] if argument.name in EXAMPLES else list(argument.samples[:4])
    examples = {"examples": {sample: {"value": sample} for sample in samples}} if samples else {}
    return {"name": argument.name, "in": "query", "required": False, "description": argument.help, "schema": WORD, **examples}


def _shapes_of(verb: str) -> dict[str, Any]:
    """The schema of a verb's answers and its parts, whose references lead to the description's own place for them."""
    whole = json.loads(read_shipped(SCHEMAS / f"{verb}.json"))
    parts = whole.pop("$defs")
    for key in ("$schema", "$id"):
        whole.pop(key)
    return {verb: _led(whole, verb), **{f"{verb}.{name}": _led(part, verb) for name, part in parts.items()}}


def _led(schema: Any, verb: str) -> Any:
    """A schema with its references led to the parts of a verb."""
    if isinstance(schema, list):
        return [_led(item, verb) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: f"#/components/schemas/{verb}.{item.removeprefix('#/$defs/')}" if key == "$ref" and isinstance(item, str) else _led(item, verb)
        for key, item in schema.items()
    }


def _error_shape() -> dict[str, Any]:
    fields = {
        "code": {"type": "string"}, "option": {"type": ["string", "null"]}, "value": {}, "message": {"type": "string"},
        "nearest": {"type": "array"}, "offers": {"type": "array"},
    }  # fmt: skip
    error = {"type": "object", "properties": fields, "required": ["code", "message"]}
    return {"type": "object", "properties": {"error": error}, "required": ["error"]}
