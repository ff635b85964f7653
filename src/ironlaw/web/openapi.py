"""The OpenAPI description of the server, from the options of the verbs and the schemas that ship."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ironlaw import __version__, interface
from ironlaw.files import read_shipped

SCHEMAS = Path(__file__).parents[1] / "schemas"
EXAMPLES = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": "8", "tokens": "1T", "sites": "lulea,dublin", "wan_bandwidth": "100Gb/s"}
WHY = {  # statuses beside 200, and what they say
    "400": "the request names another host",
    "401": "the server is for those who have its token",
    "403": "a page of another site asks",
    "413": "the request has a body",
    "414": "the question is too long",
    "422": "the question has no answer",
    "503": "the answer takes too long, or too many ask",
}


@cache
def description(verbs: Sequence[str]) -> dict[str, Any]:
    """OpenAPI 3.1: one path a verb; its options are the query, its answer is what ``ironlaw schema VERB`` prints."""
    shapes: dict[str, Any] = {"error": _error_shape()}
    paths = {f"/api/{verb}": {"get": _operation(verb, shapes)} for verb in verbs}
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
    answers |= {status: _answer(text, "error", "text/plain" if status == "400" else "application/json") for status, text in WHY.items()}
    query = [_parameter(argument) for argument in interface.arguments(verb)]
    return {"operationId": verb, "summary": interface.summary(verb), "parameters": query, "responses": answers}


def _answer(text: str, shape: str, kind: str = "application/json") -> dict[str, Any]:
    """A response with its schema; a plain text has none."""
    schema = {"$ref": f"#/components/schemas/{shape}"} if kind == "application/json" else {"type": "string"}
    return {"description": text, "content": {kind: {"schema": schema}}}


def _parameter(argument: interface.Argument) -> dict[str, Any]:
    """An option as a part of the query."""
    samples = [EXAMPLES[argument.name]] if argument.name in EXAMPLES else list(argument.samples[:4])
    examples = {"examples": {sample: {"value": sample} for sample in samples}} if samples else {}
    schema = {"type": "string", "maxLength": 4096}
    return {"name": argument.name, "in": "query", "required": False, "description": argument.help, "schema": schema, **examples}


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
