"""What figures are made of: the frame of a specification, layers, axes, and the colours of kinds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ironlaw import units

Answer = Any
Spec = dict[str, Any]
Row = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
GIB = 2.0**30
LINE = 26  # height of a row in pixels
AXES = 64  # what the axes and the margins of a figure of rows take


class Size(NamedTuple):
    """Width and height in pixels, axes and legend included."""

    width: int
    height: int


SMALL, MEDIUM, LARGE, WIDE = Size(330, 176), Size(410, 230), Size(500, 340), Size(760, 270)

TIME = ("compute", "hbm", "network", "pipeline", "dispatch", "data", "copy", "idle", "rest")
MEMORY = ("weights", "gradients", "optimizer", "activations", "workspace", "slack", "rest")
KINDS = tuple(dict.fromkeys((*TIME, *MEMORY)))
NAMES = {"hbm": "HBM", "slack": "allocator slack", "rest": "the rest"}
HOLLOW = {"rest": "@bg", "idle": "@sunk", "slack": "@sunk"}  # kinds in which nothing works: told by their outline, not by a hue


def frame(heading: tuple[str, str], description: str, size: Size, rows: Sequence[Row], layers: Sequence[Spec], **more: Any) -> Spec:
    """A whole specification: its title, what it says in a sentence, its data and its layers.

    Parameters
        heading: what is drawn, and of what
        description: what the figure shows, for those who do not see it
        size: of everything, axes included
        rows: the data, each row a dictionary
        layers: marks with their encodings; the first axis with a title is the axis of all
        more: further properties, such as which scales layers do not share
    """
    for channel in ("x", "y"):
        _share_axis(channel, layers)
    return {
        "$schema": SCHEMA,
        "title": {"text": heading[0], "subtitle": heading[1], "limit": size.width - 8},
        "description": description,
        "width": size.width,
        "height": size.height,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": list(rows)},
        **more,
        "layer": list(layers),
    }


def _share_axis(channel: str, layers: Sequence[Spec]) -> None:
    """Give the quantities that layers draw along one axis the title, the marks and the scale of the first that has a title."""
    found = [one["encoding"][channel] for one in layers if one["encoding"].get(channel, {}).get("type") == "quantitative"]
    main = next((one for one in found if one["title"] is not None), None)
    if main is None:
        return
    for one in found:
        one |= {key: main[key] for key in ("title", "axis", "scale") if key in main}


def layer(mark: str | Mapping[str, Any], data: Sequence[Row] | None = None, **encoding: Any) -> Spec:
    """A layer: a mark, its encodings, and data of its own where it does not draw those of the figure."""
    given = {name: value for name, value in encoding.items() if value is not None}
    found: Spec = {"mark": {"type": mark} if isinstance(mark, str) else dict(mark), "encoding": given}
    return found if data is None else {"data": {"values": list(data)}, **found}


def quantity(
    name: str, title: str | None = None, log: bool = False, domain: Sequence[float] | None = None, zero: bool = True, **axis: Any
) -> Spec:
    """The encoding of a number along an axis.

    Parameters
        name: the key of the rows
        title: of the axis; a layer without one takes what the first layer with one has
        log: draw powers at equal distances
        domain: least and most of the axis
        zero: begin at zero
        axis: properties of the axis
    """
    scale: Spec = {"type": "log", "nice": False, "padding": 8} if log else {} if zero else {"zero": False}
    if domain is not None:
        scale |= {"domain": list(domain), "nice": False}
        scale.pop("padding", None)
    return {
        "field": name,
        "type": "quantitative",
        "title": title,
        **({"scale": scale} if scale else {}),
        **({"axis": axis} if axis else {}),
    }


def powers(least: float, most: float) -> list[float]:
    """The powers of ten from ``least`` to ``most``, for the marks of an axis.

    >>> powers(0.5, 200.0)
    [1.0, 10.0, 100.0]
    """
    return [10.0**power for power in range(math.ceil(math.log10(least)), math.floor(math.log10(most)) + 1)]


def with_room(most: float, share: float = 0.25) -> tuple[float, float]:
    """An axis from zero with room for words behind the longest bar."""
    return 0.0, most * (1.0 + share) or 1.0


def names(field: str, order: Iterable[str] | None = None, **axis: Any) -> Spec:
    """The encoding of a row's name, in the order of the data or in the order given."""
    found: Spec = {"field": field, "type": "nominal", "title": None, "sort": list(order) if order is not None else None}
    return {**found, "axis": {"ticks": False, "domain": False, "labelPadding": 8, **axis}}


def kind_colour(rows: Iterable[Row], legend: bool = False, prefix: str = "@") -> Spec:
    """The encoding of kinds as colours: one colour is one kind, in every figure.

    >>> kind_colour([{"kind": "hbm"}, {"kind": "compute"}])["scale"]
    {'domain': ['compute', 'hbm'], 'range': ['@compute', '@hbm']}
    """
    present = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    colours = [_colour(kind, prefix) for kind in present]
    found: Spec = {"field": "kind", "type": "nominal", "scale": {"domain": present, "range": colours}, "legend": None}
    if legend:
        named = " : ".join(f"datum.value == '{kind}' ? '{NAMES[kind]}'" for kind in present if kind in NAMES)
        found["legend"] = {"columns": 4, **({"labelExpr": f"{named} : datum.value"} if named else {})}
    return found


def _colour(kind: str, prefix: str) -> str:
    """The token of a kind; that of the text on it with the prefix ``@on-``."""
    if kind in HOLLOW:
        return "@ink2" if prefix == "@on-" else HOLLOW[kind]
    return "@ink" if kind == "copy" and prefix == "@on-" else f"{prefix}{kind}"


def outline() -> Spec:
    """The outline of a mark: of kinds in which nothing works, and of waits."""
    hollow = ", ".join(f"'{kind}'" for kind in HOLLOW)
    return {"condition": {"test": f"indexof([{hollow}], datum.kind) >= 0 || datum.waits === true", "value": "@line2"}, "value": None}


def faded() -> Spec:
    """How opaque a mark is: a wait keeps the hue of what is waited for, and is lighter."""
    return {"condition": {"test": "datum.waits === true", "value": 0.35}, "value": 1}


def is_hatched(row: Row) -> bool:
    """Whether nothing works in a row: a wait, idle time, memory that no tensor has.

    >>> is_hatched({"kind": "network", "waits": True}), is_hatched({"kind": "rest"})
    (True, False)
    """
    return row.get("waits") is True or row["kind"] in ("idle", "slack")


def hatch(rows: Sequence[Row], along: Spec, across: Spec, band: float, upright: bool = False) -> list[Spec]:
    """Stripes on bars of kinds that a hue alone does not tell: 3 of 7 pixels where nothing works, dots on copies; no layer where none is.

    A stripe is a dash of a line as thick as its bar, so that stripes are as wide in every bar, at every size and in every format.

    Parameters
        rows: all bars, with their kind, and whether they wait
        along: where a bar begins; it ends at ``to`` of its row, or at ``end_ms`` where it begins at ``start_ms``
        across: which row or column it stands in
        band: its thickness, of the row's or column's
        upright: bars stand
    """
    shade = {**kind_colour(rows), "condition": {"test": f"indexof({list(HOLLOW)}, datum.kind) >= 0", "value": "@line2"}}
    waits = [row for row in rows if is_hatched(row)]
    copies = [row for row in rows if row["kind"] == "copy" and not is_hatched(row)]
    drawn = [stripes(waits, along, across, band, upright, shade)] if waits else []
    return [*drawn, *([stripes(copies, along, across, band, upright, {"value": "@bg"}, (2, 3))] if copies else [])]


def stripes(
    rows: Sequence[Row],
    along: Spec,
    across: Spec,
    band: float,
    upright: bool = False,
    shade: Spec | None = None,
    dash: tuple[int, int] = (3, 4),
) -> Spec:
    """A layer of stripes on the bars of rows: see ``hatch``."""
    side, other, thick = ("y", "x", "bandwidth('x')") if upright else ("x", "y", "bandwidth('y')")
    mark: Spec = {"type": "rule", "strokeDash": list(dash), "strokeCap": "butt", "strokeWidth": {"expr": f"{thick} * {band:g}"}}
    if along["field"] == "start_ms":  # an axis that a reader may zoom
        mark["clip"] = True
    end = {"field": "end_ms" if along["field"] == "start_ms" else "to"}
    return layer(mark, rows, **{side: {**along, "title": None}, f"{side}2": end, other: across}, color=shade or {"value": "@line2"})


def stack(sizes: Iterable[Row], key: str, whole: float) -> list[Row]:
    """Rows with where each begins and ends in a bar of all, and its words where they have room inside.

    >>> stack([{"what": "a", "GiB": 6.0}, {"what": "b", "GiB": 0.5}], "GiB", 8.0)[1]
    {'what': 'b', 'GiB': 0.5, 'from': 6.0, 'to': 6.5, 'inside': ''}
    """
    found, start = [], 0.0
    for row in sizes:
        end = start + row[key]
        inside = row["what"] if row[key] >= 0.12 * whole else ""
        found.append({**row, "from": start, "to": end, "inside": inside})
        start = end
    return found


def bar_of(rows: Sequence[Row], x: Spec, legend: bool = True) -> list[Spec]:
    """A bar of segments, each with its name inside where it has room: layers, to be drawn with colours that they do not share."""
    at = {"field": "row", "type": "nominal", "axis": None, "title": None}
    bar = layer(
        {"type": "bar", "height": {"band": 0.9}},
        x=x,
        x2={"field": "to"},
        y=at,
        color=kind_colour(rows, legend),
        stroke=outline(),
        fillOpacity=faded(),
        tooltip=tooltip("what", "says"),
    )
    text = layer(
        {"type": "text", "align": "left", "dx": 6, "limit": 150}, x=dict(x), y=at, text={"field": "inside", "type": "nominal"},
        color={**kind_colour(rows, prefix="@on-"), "condition": {"test": "datum.waits === true", "value": "@ink"}},
    )  # fmt: skip
    plate = layer(
        {"type": "text", "align": "left", "dx": 6, "limit": 150, "stroke": "@bg", "strokeWidth": 6, "strokeJoin": "round"},
        [row for row in rows if row["inside"] and is_hatched(row)], x=dict(x), y=at, text={"field": "inside", "type": "nominal"},
    )  # fmt: skip
    return [bar, *hatch(rows, x, at, 0.9), plate, text]


def tooltip(*fields: str) -> list[Spec]:
    """What is said where a pointer rests."""
    return [{"field": field, "title": field.replace("_", " ")} | {"type": "nominal"} for field in fields]


def rows_size(count: int, width: int = MEDIUM.width, axes: int = AXES) -> Size:
    """The size of a figure with a line for each row."""
    return Size(width, axes + LINE * max(count, 1))


def shown(value: float | None, unit: str) -> str:
    """A value with its unit, as the terminal writes it; a dash where it is not known."""
    return "-" if value is None else units.show(value, unit)


def percent(value: float, digits: int = 1) -> str:
    """A share in percent.

    >>> percent(0.1234)
    '12.3 %'
    """
    return f"{value * 100.0:.{digits}f} %"


def signed(value: float, digits: int = 1) -> str:
    """A relative change in percent, with its sign.

    >>> signed(-0.034)
    '\u22123.4 %'
    """
    return f"{value * 100.0:+.{digits}f} %".replace("-", "\u2212")


def kind_of(node: Answer) -> str:
    """The kind of a term: its own, or the one that most of it is."""
    kinds = node.get("kinds") or {}
    return str(node.get("kind") or (max(kinds, key=lambda name: kinds[name]) if kinds else "rest"))
