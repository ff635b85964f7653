"""The components of the page: each draws one thing, from numbers to HTML. Widths are shares of what the whole component shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from htpy import Element, Node, a, details, div, h2, li, p, section, span, strong, summary, table, tbody, td, th, thead, tr, ul

from ironlaw.page.words import DASH, Figure, interval, share

LABELLED = 0.04  # of the width of a bar: a narrower segment has no label inside; the style sheet hides what does not fit into a wider one
PLATED = 0.11  # the same of a segment whose label stands on a plate, which never wraps
HATCHED = ("slack", "idle")  # kinds on which no text is read
LEFTMOST = 0.25  # of the width of a bar: the label of a limit further left stands at its right
WIDE = 5  # columns of a table: one that has more, or words beside the first, is stacked on a narrow screen, each row a name and its values


class View(NamedTuple):
    """An answer as it is drawn: what was asked about, the answer in a sentence, what follows from it, the sections, the sources."""

    subject: str
    verdict: str
    lead: Node
    content: Node
    sources: Node


class Segment(NamedTuple):
    """A part of a bar: its colour, name and value in words, and its size."""

    kind: str
    name: str
    text: str
    size: float


def block(title: str, *content: Node, aside: Node = None, id: str = "") -> Element:  # noqa: A002 - the attribute's own name
    """A section with its title, and words at its right."""
    return section(".block", id=id or None, aria_label=title)[div(".head")[h2[title], aside and p(".aside")[aside]], content]


def _at(start: float, size: float | None = None) -> str:
    """The style of something from ``start``, ``size`` wide, both shares."""
    width = "" if size is None else f";width:{max(size, 0.0) * 100.0:.2f}%"
    return f"left:{min(max(start, 0.0), 1.0) * 100.0:.2f}%{width}"


def meter(
    segments: Sequence[Segment],
    most: float,
    described: str,
    limit: tuple[float, str] | None = None,
    margin: float = 0.0,
    band: tuple[float, float, float, str] | None = None,
    ticks: Sequence[tuple[float, str]] = (),
    before: float | None = None,
) -> Element:
    """A bar of segments from 0 to ``most``, against a limit.

    Parameters
        segments: parts of the bar, in their order
        most: what the full width stands for, in the unit of the sizes
        described: the bar in a sentence, for those who do not see it
        limit: where the limit is, and its label
        margin: what is kept free below the limit
        band: low end, middle, high end, and the band in words
        ticks: values of the axis, and their labels
        before: how long the bar of the answer was that this one is compared with
    """
    drawn, start = [], 0.0
    for one in segments:
        inside = one.size / most >= (PLATED if one.kind.endswith("waits") else LABELLED) and one.kind not in HATCHED
        label = [span(".name")[span[one.name]], span(".size")[span[one.text]]] if inside else None
        drawn.append(
            div(
                class_=["segment", one.kind, inside and "labelled"],
                style=_at(start / most, one.size / most),
                title=f"{one.name} {one.text}",
            )[label]
        )
        start += one.size
    over = limit is not None and start > limit[0]
    return div(class_=["meter", limit is None and "plain"], role="img", aria_label=described)[
        limit is not None
        and div(class_=["limit", over and "over", limit[0] < LEFTMOST * most and "leftmost"], style=_at(limit[0] / most))[span[limit[1]]],
        div(".bar")[
            limit is not None and margin > 0.0 and div(".segment.margin", style=_at((limit[0] - margin) / most, margin / most)),
            drawn,
            before is not None and div(".before", style=_at(before / most), title="before"),
            limit is not None and over and div(".beyond", style=_at(limit[0] / most, (start - limit[0]) / most)),
        ],
        band is not None and _whisker(band, most),
        bool(ticks) and div(".axis")[(span(style=_at(value / most))[text] for value, text in ticks)],
        ul(".legend")[(li[span(class_=f"swatch {one.kind}"), f"{one.name} {one.text}"] for one in segments)],
    ]


def _whisker(band: tuple[float, float, float, str], most: float) -> Element:
    """A band under a bar: its ends, the value as a dot, the words on the side with more room."""
    low, middle, high, words = band
    ends = min(low, most) / most, min(high, most) / most
    left = ends[0] > 1.0 - ends[1]
    where = f"right:{(1.0 - ends[0]) * 100.0:.2f}%" if left else f"left:{ends[1] * 100.0:.2f}%"
    return div(".whisker")[
        span(".range", style=_at(ends[0], ends[1] - ends[0])),
        span(".dot", style=_at(middle / most)),
        span(class_=["words", "left" if left else "right"], style=where)[words],
    ]


class Ghost(NamedTuple):
    """What a value was in the answer that this one is compared with: the value, the change in words, and whether it is better or worse."""

    value: float
    says: str
    kind: str = ""  # "good", "bad", or neither


def value(
    label: str,
    shown: Figure,
    band: tuple[float, float, float] | None,
    words: Node,
    explains: str = "",
    without: str = "no band",
    before: Ghost | None = None,
) -> Element:
    """A number with its band: a track with the band and the middle; a dashed track where there is no band; a grey tick where it was."""
    return div(".value")[
        div(".label")[label],
        div(".big", data_explain=explains or None)[
            strong[shown.number], " ", span(".unit")[shown.unit], before and span(class_=["delta", before.kind])[before.says]
        ],
        track(band, before.value if before else None) if band else div(".track.none", title=without)[span(".dot")],
        div(".words")[words if band else [without, words and ["; ", words]]],
    ]


def track(band: tuple[float, float, float], before: float | None = None) -> Element:
    """Low end, middle and high end of a band, on a track that is twice as wide as the band's longer side each way; a tick ``before``."""
    low, middle, high = band
    reach = 2.0 * max(middle - low, high - middle) or 1.0
    start, width = middle - reach, 2.0 * reach
    return div(".track")[
        span(".range", style=_at((low - start) / width, (high - low) / width)),
        before is not None and span(".before", style=_at((before - start) / width), title="before"),
        span(".middle", style=_at((middle - start) / width)),
    ]


def strip(
    low: float, middle: float, high: float, least: float, most: float, hollow: bool = False, zone: tuple[float, float] | None = None
) -> Element:
    """A band on a scale that several rows share, from ``least`` to ``most``; ``zone``: the band of another row, that this one may reach."""
    width = (most - least) or 1.0
    return div(class_=["track strip", hollow and "hollow"])[
        zone is not None and span(".zone", style=_at((zone[0] - least) / width, (zone[1] - zone[0]) / width)),
        span(".range", style=_at((low - least) / width, (high - low) / width)),
        span(".middle", style=_at((middle - least) / width)),
    ]


def bar(kind: str, size: float) -> Element:
    """A bar in a cell, a share of the widest."""
    return span(".bars")[span(class_=f"fill {kind}", style=_at(0.0, size))]


class Branch(NamedTuple):
    """A node of a tree as it is drawn: its name, value and share in words, its share as a number, its colour, and its parts."""

    name: str
    text: str
    share: float
    kind: str
    path: str
    parts: tuple[Branch, ...]


def tree(branches: Sequence[Branch], heads: Sequence[str], open_to: int = 2) -> Element:
    """Rows that open: name, value, share, bar. Parts of zero are counted, not listed."""
    widest = max((one.share for one in branches), default=1.0) or 1.0
    return div(".tree")[div(".row.heads", aria_hidden="true")[(span[head] for head in heads), span], _rows(branches, open_to, widest)]


def _rows(branches: Sequence[Branch], open_to: int, widest: float) -> list[Node]:
    """Rows of a level, and how many are zero."""
    rows: list[Node] = []
    for one in branches:
        if one.share <= 0.0:
            continue
        cells = [
            span(".name")[one.name],
            span(".cell", data_explain=one.path or None)[one.text],
            span(".cell")[share(one.share)],
            span(".bars")[span(class_=f"fill {one.kind}", style=_at(0.0, one.share / widest))],
        ]
        if any(part.share > 0.0 for part in one.parts):
            rows.append(details(open=open_to > 1)[summary(".row")[cells], div(".parts")[_rows(one.parts, open_to - 1, widest)]])
        else:
            rows.append(div(".row.leaf")[cells])
    if zeros := sum(1 for one in branches if one.share <= 0.0):
        rows.append(p(".zeros")["1 term is zero" if zeros == 1 else f"{zeros} terms are zero"])
    return rows


class Cell(NamedTuple):
    """A cell of a table: what it shows, and whether it is a number, on the right."""

    shown: Node
    number: bool = False


def rows_table(heads: Sequence[Cell], rows: Iterable[Sequence[Cell]], marked: int | None = None, caption: str = "") -> Element:
    """A real table; ``marked``: the row that is chosen. One of many columns names them in its cells, too, for narrow screens."""
    is_wide = len(heads) > WIDE or sum(not head.number and isinstance(head.shown, str) for head in heads) > 1
    names = [head.shown if is_wide and at and isinstance(head.shown, str) else None for at, head in enumerate(heads)]

    def cells(row: Sequence[Cell]) -> list[Node]:
        return [td(class_="number" if one.number else None, data_of=name or None)[one.shown] for one, name in zip(row, names, strict=True)]

    return div(".scroll", tabindex="0", role="group", aria_label=caption or None)[
        table(class_="wide" if is_wide else None)[
            thead[tr[(th(class_="number" if one.number else None, scope="col")[one.shown] for one in heads)]],
            tbody[(tr(class_="chosen" if at == marked else None)[cells(row)] for at, row in enumerate(rows))],
        ]
    ]


def warning(first: str, rest: str, action: Node = None) -> Element:
    """A warning: a bar at the left, its first words bold."""
    return div(".warning", role="note")[strong[first], " ", rest, action and [" ", action]]


def facts(pairs: Mapping[str, str] | Iterable[tuple[str, str]]) -> Element:
    """Names and values in a paragraph, each in its own chip."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return ul(".chips")[(li[name, " ", strong[text]] for name, text in items)]


def link(text: str, url: str) -> Node:
    """A link to a page elsewhere; the text alone where the address is none of the web."""
    return a(href=url, rel="noreferrer")[text] if url.startswith(("https://", "http://")) else text


def band_words(low: Figure, high: Figure) -> str:
    """A band of figures in words; a dash where it is not known."""
    return DASH if low.number == DASH else interval(str(low), str(high))
