"""Figures within a view: alive on the page, as pictures in a report, and none where nothing draws them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from htpy import Element, Node, button, details, div, figcaption, figure, p, script, summary
from markupsafe import Markup

from ironlaw.errors import IronlawError
from ironlaw.figures import convert, table
from ironlaw.figures.marks import Spec
from ironlaw.figures.theme import CONFIG
from ironlaw.page.parts import block

Answer = Any
Draws = Callable[[str, Answer], Node]  # what draws a figure of an answer by its name

HEADING = 48  # pixels of the title within a picture, which a block has above it
FILES = (("csv", "Data as CSV"), ("json", "Specification"), ("svg", "SVG"), ("png", "PNG"))


def no_figure(name: str, answer: Answer) -> Node:
    """No figure: where only text and bars are wanted."""
    del name, answer
    return None


def live(name: str, answer: Answer) -> Node:
    """A figure that the page draws: its place at its exact height, its specification, its data as a table and as files."""
    spec = _spec(name, answer)
    return spec and live_block(name, spec)


def live_block(name: str, spec: Spec) -> Element:
    """A block with the place of a figure, which the script of the page fills."""
    data = json.dumps({**spec, "config": CONFIG}, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return block(
        spec["title"]["text"],
        figure(".vega", data_figure=name)[
            div(".plot-area", role="img", aria_label=spec["description"], style=f"height:{spec['height'] - HEADING}px"),
            script(".spec", type="application/json")[Markup(data)],
            details[
                summary["As a table, as a file"],
                p(".files")[(button(type="button", data_save=ending)[text] for ending, text in FILES)],
                div(".data.scroll", tabindex="0"),
            ],
        ],
        aside=spec["title"]["subtitle"],
    )


def still(name: str, answer: Answer) -> Node:
    """A figure as SVG, which needs no script; none where the extra ``figures`` is not installed."""
    try:
        convert.converter()
    except IronlawError:
        return None
    spec = _spec(name, answer)
    if spec is None:
        return None
    whole = {**spec, "title": None, "height": spec["height"] - HEADING}
    drawn = convert.file_of(whole, "svg").decode()
    return block(
        spec["title"]["text"],
        figure(".drawn")[
            div(".plot-area", role="img", aria_label=spec["description"])[Markup(drawn)], figcaption(".note")[spec["description"]]
        ],
        aside=spec["title"]["subtitle"],
    )


def _spec(name: str, answer: Answer) -> Spec | None:
    """The specification of a figure; None where the answer lacks what it draws."""
    try:
        return table.draw(name, answer)
    except IronlawError:
        return None
