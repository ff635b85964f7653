"""The drawer of the page: one term of an estimate, with its formula, its inputs and their sources."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from htpy import Element, Node, code, div, fragment, h2, p, pre, span, strong

from ironlaw.page import words
from ironlaw.page.parts import Cell, rows_table


def no_term(path: str, error: Mapping[str, Any]) -> Element:
    """A term that the answer does not have."""
    return div[h2[path], p[str(error["message"])]]


def term(data: Mapping[str, Any], path: str) -> Element:
    """A term: its value, formula, inputs and sources."""
    return div[
        (_one_term(node, data) for node in data["explained"][:4]), pre(".command")[f"ironlaw estimate ... --explain {shlex.quote(path)}"]
    ]


def _one_term(node: Mapping[str, Any], data: Mapping[str, Any]) -> Node:
    """One node with its law."""
    law = (data.get("laws") or {}).get(node.get("law") or "", {})
    shown = words.figure(node["total"], node["unit"])
    sources = data.get("sources") or {}
    inputs = node.get("inputs") or {}
    rows = [
        [
            Cell([code[name], div(".note")[(law.get("inputs") or {}).get(name, {}).get("text", "")]]),
            Cell(_input_text(one), True),
            Cell(_origin(one, sources)),
        ]
        for name, one in inputs.items()
    ]
    parts = [
        [Cell(part["name"]), Cell(words.quantity(part["total"], part["unit"]), True)]
        for part in node.get("parts") or []
        if part.get("total")
    ]
    return [
        p(".subject")[" \u203a ".join(node["path"].split("/"))],
        p(".big")[strong[shown.number], " ", span(".unit")[shown.unit]],
        p(".of")[_share_of_whole(node, data), node.get("kind") and [span(class_=f"swatch {node['kind']}"), node["kind"]]],
        law.get("says") and p[f"{law['says']}."],
        node.get("formula") and [p(".label")["Formula"], pre(".command")[node["formula"]], _steps(law)],
        rows and [p(".label")["Inputs"], rows_table([Cell("Input"), Cell("Value", True), Cell("From")], rows, caption="Inputs")],
        parts and [p(".label")["Parts"], rows_table([Cell("Part"), Cell("Value", True)], parts, caption="Parts")],
        law and p(".note")[code[str(node.get("law"))]],
    ]


def _share_of_whole(node: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """What part of the step or of the memory a term is."""
    name, total = {"s": ("step", data["step_seconds"]), "B": ("memory", data["device_bytes"])}.get(node["unit"], ("", None))
    if not total or "/" not in node["path"]:
        return ""
    return f"{words.share(node['total'] / total)} of the {name} of {words.quantity(total, node['unit'])}. "


def _steps(law: Mapping[str, Any]) -> Node:
    steps = law.get("steps") or {}
    return steps and pre(".command")["\n".join(f"{name} = {text}" for name, text in steps.items())]


def _input_text(one: Mapping[str, Any]) -> str:
    if one.get("text"):
        return str(one["text"])
    value = one.get("value")
    return words.quantity(value, one.get("unit") or "") if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _origin(one: Mapping[str, Any], sources: Mapping[str, Any]) -> Node:
    """Where an input comes from: a source with its grade, or how it was made."""
    found = sources.get(one.get("source") or "") if isinstance(sources, Mapping) else None
    if not found:
        return str(one.get("path") or one.get("origin") or "")
    return fragment[span(class_=f"grade {found['grade']}")[found["grade"]], " ", found["title"]]
