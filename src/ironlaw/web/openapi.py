"""The OpenAPI description of the server, from the options of the verbs and the schemas that ship."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ironlaw import __version__, interface


def description(verbs: Sequence[str]) -> dict[str, Any]:
    """OpenAPI 3.1: one path a verb; its options are the query, its answer is what ``ironlaw schema VERB`` prints."""
    error = {
        "description": "the question has no answer",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    paths = {}
    for verb in verbs:
        query = [
            {
                "name": argument.name,
                "in": "query",
                "required": False,
                "description": argument.help,
                "schema": {"type": "string", "maxLength": 4096},
            }
            for argument in interface.arguments(verb)
        ]
        answers = {
            "200": {
                "description": f"the answer, as ironlaw schema {verb} says",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            **dict.fromkeys(("403", "413", "414", "422", "503"), error),
        }
        paths[f"/api/{verb}"] = {
            "get": {"operationId": verb, "summary": interface.summary(verb), "parameters": query, "responses": answers}
        }
    fields = {
        "code": {"type": "string"}, "option": {"type": ["string", "null"]}, "value": {}, "message": {"type": "string"},
        "nearest": {"type": "array"}, "offers": {"type": "array"},
    }  # fmt: skip
    shape = {
        "type": "object",
        "properties": {"error": {"type": "object", "properties": fields, "required": ["code", "message"]}},
        "required": ["error"],
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "ironlaw", "version": __version__, "description": "What a large training run will take."},
        "paths": paths,
        "components": {"schemas": {"Error": shape}},
    }
