"""The colours and the lettering of figures, from the tokens of the page's style sheet: it alone says which colour is which."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ironlaw.errors import UnknownNameError
from ironlaw.files import read_shipped

THEMES = ("light", "dark")
SHEET = Path(__file__).parents[1] / "page" / "style.css"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_TOKEN = re.compile(r"--([\w-]+): (#[0-9a-fA-F]{3,8})\b")
_DATA = ("values", "datasets")  # keys below which nothing is a colour

CONFIG: dict[str, Any] = {
    "font": FONT,
    "padding": 4,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "@ink2", "labelFontSize": 12, "titleColor": "@ink2", "titleFontSize": 12, "titleFontWeight": 500,
        "domainColor": "@line2", "tickColor": "@line2", "gridColor": "@line", "labelLimit": 220,
    },
    "axisX": {"grid": False, "titleAnchor": "end"},
    "axisY": {"titleAngle": 0, "titleAlign": "left", "titleBaseline": "bottom", "titleX": 0, "titleY": -8},
    "legend": {
        "labelColor": "@ink2", "labelFontSize": 12, "title": None, "orient": "bottom", "direction": "horizontal", "symbolType": "square",
        "symbolStrokeWidth": 1,
    },
    "title": {"anchor": "start", "color": "@ink", "subtitleColor": "@ink2", "fontSize": 14, "subtitleFontSize": 12, "offset": 16},
    "text": {"color": "@ink", "fontSize": 12},
    "rule": {"color": "@ink"},
    "point": {"color": "@ink"},
}  # fmt: skip


@cache
def tokens(theme: str) -> Mapping[str, str]:
    """The colours of a theme by name.

    >>> tokens("light")["compute"], tokens("dark")["compute"]
    ('#3f6bc6', '#5284ea')
    """
    if theme not in THEMES:
        raise UnknownNameError("theme", theme, THEMES)
    sheet = read_shipped(SHEET)
    light = dict(_TOKEN.findall(sheet.partition("@media")[0]))
    if theme == "light":
        return light
    dark = sheet.partition('.ironlaw.themed[data-theme="dark"] {')[2].partition("}")[0]
    return {**light, **dict(_TOKEN.findall(dark))}


def dressed(spec: Mapping[str, Any], theme: str = "light") -> dict[str, Any]:
    """A specification with the colours and the lettering of a theme; the data in it stay as they are."""
    colours = tokens(theme)
    whole = {**spec, "background": "@bg", "config": CONFIG}
    found: dict[str, Any] = _coloured(whole, colours)
    return found


def _coloured(part: Any, colours: Mapping[str, str]) -> Any:
    """A part of a specification, with colours in the place of their names."""
    if isinstance(part, dict):
        return {key: value if key in _DATA else _coloured(value, colours) for key, value in part.items()}
    if isinstance(part, list):
        return [_coloured(one, colours) for one in part]
    if isinstance(part, str) and part.startswith("@"):
        return colours.get(part[1:], part)
    return part
