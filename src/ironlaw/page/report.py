"""A report: one HTML file that holds an answer, its figures and its sources, and opens anywhere without a network or a script."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from htpy import Element, Node, body, div, footer, fragment, h1, head, header, html, main, meta, p, pre, script, span, style, title
from markupsafe import Markup

from ironlaw.files import REPORT_BLOCK, read_shipped
from ironlaw.page.figure import still
from ironlaw.page.parts import View, block
from ironlaw.page.views import view_of


def report(answer: Mapping[str, Any], verb: str, command: Sequence[str], when: date) -> str:
    """The whole document of an answer.

    Parameters
        answer: the plain data of the answer, as ``--json`` prints it
        verb: whose answer it is
        command: the words that ask for it again
        when: the day of the answer
    """
    view = view_of(verb, answer, still)
    document: Element = html(lang="en")[
        head[
            meta(charset="utf-8"),
            meta(name="viewport", content="width=device-width, initial-scale=1"),
            meta(
                http_equiv="Content-Security-Policy",
                content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'",
            ),
            title[f"{view.subject}, ironlaw"],
            style[Markup(css("style.css", "report.css"))],
        ],
        body[
            div(".ironlaw.report")[
                header(".masthead")[span(".brand")["ironlaw"], span[_made(answer, verb, when)]],
                main[_heading(view), view.content, view.sources, _again(command)],
                footer[
                    span["This file is complete: the answer is inside, and ironlaw estimate --plan or ironlaw diff reads it again."],
                    span[_versions(answer)],
                ],
            ],
            embedded({"verb": verb, "command": list(command), "day": when.isoformat(), "answer": answer}),
        ],
    ]
    return f"{document}\n"


def css(*names: str) -> str:
    """The style sheets that ship, one after the other."""
    return "\n".join(read_shipped(Path(__file__).parent / name) for name in names)


def embedded(data: Any) -> Element:
    """Plain data in a block that a browser neither shows nor runs; nothing in it can end the block."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return script(type="application/json", id=REPORT_BLOCK)[Markup(text)]


def _heading(view: View) -> Node:
    return fragment[p(".subject")[view.subject], h1[view.verdict], div(".lead")[view.lead]]


def _made(answer: Mapping[str, Any], verb: str, when: date) -> str:
    return f"{verb.capitalize()} of {when.day} {when:%B %Y}, {_versions(answer)}"


def _versions(answer: Mapping[str, Any]) -> str:
    return f"ironlaw {answer.get('tool_version', '')}, calibration {answer.get('calibration_version', '')}"


def _again(command: Sequence[str]) -> Node:
    """The command that asks again."""
    return block("Ask again", pre(".command")[shlex.join(["ironlaw", *command])]) if command else None
