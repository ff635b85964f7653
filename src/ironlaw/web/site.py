"""A site without a server: validation, catalogue, documentation, and estimates on a grid, as files that any static host serves.

Every link is relative, so that the site also works below a path, and opened from a disk. There is no script.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from htpy import (
    Element,
    Node,
    a,
    body,
    div,
    fragment,
    h1,
    h2,
    head,
    header,
    html,
    li,
    link,
    main,
    meta,
    nav,
    p,
    pre,
    section,
    span,
    strong,
    ul,
)
from htpy import title as title_of
from markupsafe import Markup

import ironlaw
from ironlaw.catalog import load
from ironlaw.catalog.records import KINDS
from ironlaw.errors import IronlawError, import_extra
from ironlaw.files import read_bytes, read_shipped, read_text
from ironlaw.page import catalogue, validation, words
from ironlaw.page.parts import Cell, View, rows_table
from ironlaw.page.views import view_of
from ironlaw.progress import steps
from ironlaw.report.records import record_data
from ironlaw.report.whole_answer import looked_up
from ironlaw.validate.shipped import read_shipped as read_predictions

NAV = (
    ("estimate.html", "Estimate"),
    ("validation.html", "Validation"),
    ("catalog.html", "Catalogue"),
    ("docs/index.html", "Documentation"),
)
STYLES = {
    "style.css": "page/style.css",
    "app.css": "web/static/app.css",
    "site.css": "web/static/site.css",
    "icon.svg": "web/static/icon.svg",
}
POLICY = "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self'; base-uri 'none'; form-action 'none'"
IMAGES = (".png", ".svg", ".webp")
_PACKAGE = Path(ironlaw.__file__).parent
_LINK = re.compile(r' (href|src)="([^"]*)"')
_OPENS = re.compile(r' data-explain="[^"]*"')  # numbers that the page of a server opens
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_LARGEST = 8 << 20  # bytes of a page or a picture of the documentation


class Grid(NamedTuple):
    """The questions that are answered before: every model on every number of every accelerator."""

    models: tuple[str, ...] = ("llama-3-8b", "llama-3-70b", "llama-3.1-405b", "deepseek-v3")
    on: tuple[str, ...] = ("h100-sxm", "b200-sxm", "mi300x")
    gpus: tuple[int, ...] = (8, 64, 512, 2048)
    tokens: str = "1T"


class Answered(NamedTuple):
    """One answer of the grid: the page's name, what was asked, the answer or the reason why there is none."""

    name: str
    asked: Mapping[str, Any]
    data: Mapping[str, Any] | None
    why_not: str


def pages(grid: Grid, docs: Path | None) -> Iterator[tuple[str, bytes]]:
    """Every file of the site: its name below the folder, and its bytes."""
    for name, path in STYLES.items():
        yield f"static/{name}", read_shipped(_PACKAGE / path).encode()
    yield "index.html", _page("index.html", "ironlaw", _home(docs is not None), docs is not None)
    drawn = validation.view(read_predictions())
    yield "validation.html", _page("validation.html", "How wrong the predictions are", _view(drawn), docs is not None)
    yield from _catalogue_pages(docs is not None)
    yield from _estimate_pages(grid, docs is not None)
    if docs is not None:
        yield from _document_pages(docs)


def _page(name: str, page_title: str, inside: Node, documented: bool) -> bytes:
    """A whole page; its links lead from where it stands."""
    up = "../" * name.count("/")
    listed = [(target, text) for target, text in NAV if documented or not target.startswith("docs/")]
    whole: Element = html(lang="en")[
        head[
            meta(charset="utf-8"),
            meta(name="viewport", content="width=device-width, initial-scale=1"),
            meta(http_equiv="Content-Security-Policy", content=POLICY),
            title_of[f"{page_title}, ironlaw" if page_title != "ironlaw" else page_title],
            link(rel="icon", href="/static/icon.svg", type="image/svg+xml"),
            link(rel="stylesheet", href="/static/style.css"),
            link(rel="stylesheet", href="/static/app.css"),
            link(rel="stylesheet", href="/static/site.css"),
        ],
        body(".ironlaw.themed")[
            a(".skip", href="#answer")["Skip to the page"],
            header(".bar-top")[
                a(".brand", href="/index.html")["ironlaw"],
                nav(aria_label="Parts")[
                    (a(href=f"/{target}", aria_current="page" if _is_in(name, target) else None)[text] for target, text in listed)
                ],
                a(".trust", href="/validation.html")[validation.trust_line(read_predictions())],
            ],
            main("#answer.wide", tabindex="-1")[inside],
        ],
    ]
    return _LINK.sub(lambda found: _led(found[1], unescape(found[2]), up), _OPENS.sub("", str(whole))).encode()


def _is_in(name: str, target: str) -> bool:
    """Whether a page stands in the part of the site that begins at ``target``."""
    part = target.removesuffix(".html").removesuffix("/index")
    return name == target or name.startswith(f"{part}/")


def _led(attribute: str, target: str, up: str) -> str:
    """A link of the pages of the server as one of a file of this site; none where this site has no such page."""
    if not target.startswith("/"):
        return f' {attribute}="{Markup.escape(target)}"'
    path, _, _ = target[1:].partition("?")
    if match := re.fullmatch(r"catalog/([^/]+)/([^/#]+)", path):
        found = f"catalog/{match[1]}/{quote(unquote(match[2]))}.html"
    elif path in ("catalog", "validation"):
        found = f"{path}.html"
    elif re.search(r"\.(html|css|svg|json|png|webp)(#.*)?$", path):
        found = path
    else:
        return ""
    return f' {attribute}="{Markup.escape(up + found)}"'


def _view(view: View) -> Node:
    """A view: what was asked about, the answer in a sentence, what follows, the sections, the sources."""
    return fragment[p(".subject")[view.subject], h1[view.verdict], div(".lead")[view.lead], view.content, view.sources]


def _home(documented: bool) -> Node:
    """The first page."""
    parts = [
        ("estimate.html", "Estimate", "what a run takes, for models and machines that many ask about"),
        ("validation.html", "Validation", "how wrong the predictions were on published runs"),
        ("catalog.html", "Catalogue", "every value with its unit, its grade and its source"),
        *([("docs/index.html", "Documentation", "how-tos, rules, laws, decisions")] if documented else []),
    ]
    return fragment[
        h1["What a large training run will take, before it runs."],
        p(".lead")["Whether it fits, how long a step lasts, what bounds it, and what the run costs in days, money and energy."],
        ul(".examples")[(li[a(href=f"/{target}")[strong[name]], f": {text}"] for target, name, text in parts)],
        p(".note")[f"ironlaw {ironlaw.__version__}. These pages were made before; the tool answers every other question on your machine."],
    ]


# --- catalogue


def _catalogue_pages(documented: bool) -> Iterator[tuple[str, bytes]]:
    """A page of all records, and one of each."""
    listed = {kind: load.names(kind) for kind in KINDS}
    inside = [
        h1["Where does a value come from?"],
        p(".lead")["Every number that ironlaw uses stands in a record, with its source, its grade and the day it was read."],
        (
            section(".block", aria_label=kind)[
                div(".head")[h2[kind.capitalize()], p(".aside")[f"{len(names)} records"]],
                ul(".chips")[(li[a(href=f"/catalog/{kind}/{quote(name)}")[name]] for name in names)],
            ]
            for kind, names in listed.items()
        ),
    ]
    yield "catalog.html", _page("catalog.html", "Catalogue", inside, documented)
    for kind, name in steps([(kind, name) for kind, names in listed.items() for name in names], "records"):
        data = record_data(kind, name)
        target = f"catalog/{kind}/{name}.html"
        yield target, _page(target, str(data["title"]), _view(catalogue.view(data)), documented)


# --- estimates


def _estimate_pages(grid: Grid, documented: bool) -> Iterator[tuple[str, bytes]]:
    """The table of the grid, and a page with its JSON for every answer."""
    questions = [(model, on, gpus) for model in grid.models for on in grid.on for gpus in grid.gpus]
    answers = {asked: _answered(*asked, grid.tokens) for asked in steps(questions, "estimates")}
    yield "estimate.html", _page("estimate.html", "Estimates", _table(grid, answers), documented)
    for (model, _, _), one in answers.items():
        if one.data is None:
            continue
        command = ["ironlaw", "estimate", model, *(word for name, value in one.asked.items() for word in (f"--{name}", str(value)))]
        inside = [
            _neighbours(one, grid, answers),
            _view(view_of("estimate", one.data)),
            section(".block", aria_label="Ask again")[
                h2["Ask again"], pre(".command")[shlex.join(command)], p[a(href=f"/{one.name}.json")["The answer as JSON"]]
            ],
        ]
        subject = f"{model} on {one.asked['gpus']} {one.asked['on']}"
        yield f"{one.name}.html", _page(f"{one.name}.html", subject, inside, documented)
        yield f"{one.name}.json", json.dumps(one.data, separators=(",", ":"), allow_nan=False).encode()


def _answered(model: str, on: str, gpus: int, tokens: str) -> Answered:
    """The answer to one question of the grid."""
    name, asked = f"estimate/{model}/{on}/{gpus}", {"on": on, "gpus": gpus, "tokens": tokens}
    try:
        return Answered(name, asked, looked_up(ironlaw.estimate(model, on=on, gpus=gpus, tokens=tokens)), "")
    except IronlawError as error:
        return Answered(name, asked, None, str(error))


def _table(grid: Grid, answers: Mapping[tuple[str, str, int], Answered]) -> Node:
    """What every run of the grid takes, a table a model."""
    heads = [Cell("Accelerator"), *(Cell(words.whole(gpus), True) for gpus in grid.gpus)]
    return fragment[
        h1["What would you train, and on what?"],
        p(".lead")[f"Days of a run of {grid.tokens} tokens with failures, by the number of accelerators. Each opens."],
        (
            section(".block", aria_label=model)[
                div(".head")[h2[model]],
                rows_table(
                    heads, [[Cell(strong[on]), *(Cell(_cell(answers[model, on, gpus]), True) for gpus in grid.gpus)] for on in grid.on]
                ),
            ]
            for model in grid.models
        ),
    ]  # fmt: skip


def _cell(one: Answered) -> Node:
    """An answer in a word: days, or that it does not fit, or why there is none."""
    if one.data is None:
        return span(title=one.why_not)["no answer"]
    run = one.data.get("run") or {}
    shown = str(words.days(run.get("days_with_failures") or run.get("days"))) if one.data["memory"]["fits"] else "does not fit"
    return a(href=f"/{one.name}.html")[shown]


def _neighbours(one: Answered, grid: Grid, answers: Mapping[tuple[str, str, int], Answered]) -> Node:
    """The same model on other numbers and on other accelerators."""
    model = one.name.split("/")[1]

    def links(listed: Sequence[tuple[str, Answered]]) -> Node:
        return ul(".chips")[
            (li[strong[text] if other is one else a(href=f"/{other.name}.html")[text]] for text, other in listed if other.data is not None)
        ]

    on, gpus = one.asked["on"], one.asked["gpus"]
    return div(".neighbours")[
        p(".label")["Accelerators"], links([(words.whole(n), answers[model, on, n]) for n in grid.gpus]),
        p(".label")["Kind"], links([(other, answers[model, other, gpus]) for other in grid.on]),
        p(".label")["Model"], links([(other, answers[other, on, gpus]) for other in grid.models]),
    ]  # fmt: skip


# --- documentation


def _document_pages(docs: Path) -> Iterator[tuple[str, bytes]]:
    """The pages and pictures of the documentation."""
    found = sorted(path for path in docs.rglob("*") if path.suffix == ".md" or path.suffix in IMAGES)
    names = {path.relative_to(docs).as_posix() for path in found}
    for path in steps(found, "pages of the documentation"):
        name = path.relative_to(docs).as_posix()
        if path.suffix in IMAGES:
            yield f"docs/{name}", read_bytes(path, "a picture", _LARGEST)
            continue
        target = f"docs/{name.removesuffix('.md')}.html"
        text = _COMMENT.sub("", read_text(path, "a page of the documentation", _LARGEST))
        shown, heading = _markdown(text, name, names)
        yield target, _page(target, heading, div(".document")[Markup(shown)], True)


def _markdown(text: str, name: str, names: set[str]) -> tuple[str, str]:
    """A page of Markdown as HTML, and its first heading. Headings have the anchors that GitHub gives them; HTML stays text."""
    parser = import_extra("markdown_it", "site", "a site with documentation").MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    heading, seen = "", dict[str, int]()
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            content = tokens[at + 1].content
            heading = heading or re.sub(r"[`*]", "", content)
            anchor = re.sub(r"[^\w\- ]", "", content.lower()).replace(" ", "-")
            seen[anchor] = seen.get(anchor, -1) + 1
            token.attrSet("id", f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        for child in token.children or []:
            if child.type == "link_open":
                _lead_document(child, name, names)
    return parser.renderer.render(tokens, parser.options, {}), heading or name


def _lead_document(token: Any, name: str, names: set[str]) -> None:
    """Lead a link to another page of the documentation to its HTML; one out of the documentation leads nowhere."""
    target = str(token.attrs.get("href", ""))
    if re.match(r"[a-z]+:", target) or target.startswith("#"):
        return
    path, mark, anchor = target.partition("#")
    parts: list[str] = []
    for part in [*name.split("/")[:-1], *path.split("/")]:
        if part == ".." and parts:
            parts.pop()
        elif part not in (".", ""):
            parts.append(part)
    if "/".join(parts) in names:
        token.attrs["href"] = f"{path.removesuffix('.md')}.html{mark}{anchor}" if path.endswith(".md") else target
    else:
        token.attrs.pop("href", None)
        token.attrs["class"] = "outside"
