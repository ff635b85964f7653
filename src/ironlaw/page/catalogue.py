"""The catalogue as HTML: a search over all records, and one record with every value, its unit, its grade and its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from htpy import (
    Element,
    Node,
    a,
    button,
    details,
    div,
    form,
    fragment,
    label,
    li,
    mark,
    p,
    span,
    strong,
    summary,
    table,
    tbody,
    td,
    th,
    thead,
    tr,
    ul,
)
from htpy import input as entry
from markupsafe import Markup, escape

from ironlaw.page.figure import Draws, no_figure
from ironlaw.page.parts import Cell, View, block, link, rows_table
from ironlaw.page.words import FIXED, figure, large, thousands, whole

Answer = Mapping[str, Any]

SHOWN = 12  # hits of a kind, users of a record: the rest folds
HIGHLIGHTS: dict[str, tuple[tuple[str, str], ...]] = {  # of a kind: label, and where the value stands in its record
    "accelerators": (("Memory", "memory_capacity"), ("HBM", "hbm_bandwidth"), ("Peak bf16, dense", "peak.bf16"), ("Power", "tdp")),
    "nodes": (("Accelerators", "accelerators"), ("Scale-up domain", "scale_up_size"), ("Scale-up rate", "scale_up_bandwidth")),
    "fabrics": (("Rate of a NIC", "nic_bandwidth"), ("Latency", "latency"), ("Power of a switch", "switch_power")),
    "grids": (("Carbon", "intensity"),),
}
FOR_UNITS = {"kg/J": ("g/kWh", 3.6e9), "USD/s": ("USD/h", 3600.0), "USD/J": ("USD/kWh", 3.6e6), "1": ("", 1.0)}  # as people read them
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 620.0, 240.0, 36.0, 14.0, 26.0  # of the plot of prices, and what its axes take


class Row(NamedTuple):
    """A value of a record: where it stands, what it is, and where it comes from."""

    group: str
    name: str
    note: str
    text: str
    source: Answer | None
    off: bool = False  # a switch that is off, or a plain number that is zero


def address(kind: str, name: str, words: str = "") -> str:
    """The address of a record.

    >>> address("models", "llama-3-8b", "llama 3")
    '/catalog/models/llama-3-8b?q=llama+3'
    """
    return f"/catalog/{quote(kind)}/{quote(name)}" + (f"?{urlencode({'q': words})}" if words else "")


# --- the search


def search_list(found: Answer, chosen: tuple[str, str] = ("", "")) -> Element:
    """The field of the search, the hits by kind, and all kinds; a form and links, so that it works without a script."""
    words, hits = str(found["words"]), found["found"]
    count = sum(map(len, hits.values()))
    return div("#found")[
        form(method="get", action="/catalog", role="search")[
            label(".label", for_="catalog-words")["Search all records"],
            entry("#catalog-words", type="search", name="q", value=words, autocomplete="off", spellcheck="false", placeholder="h100"),
            button(type="submit", class_="quiet")["Search"],
        ],
        div("#hits")[
            p(".note", role="status")[f"{count} of {whole(found['records'])} records" if words else f"{whole(found['records'])} records"],
            bool(words) and not hits and _nothing(found),
            (_hits(kind, listed, found, chosen) for kind, listed in hits.items()),
            p(".label")["All kinds"],
            ul(".pairs.kinds")[
                (
                    li[a(href=f"/catalog?{urlencode({'q': kind})}")[kind], span[whole(size)]]
                    for kind, size in sorted(found["kinds"].items(), key=lambda pair: -pair[1])
                )
            ],
        ],
    ]


def _nothing(found: Answer) -> Node:
    """That nothing was found, and the nearest names."""
    near = [li[a(href=address(one["kind"], one["name"]))[one["name"]], span(".note")[f" {one['kind']}"]] for one in found["nearest"]]
    return [p(".lead")["No record has these words."], near and [p(".label")["Nearest names"], ul(".hits")[near]]]


def _hits(kind: str, listed: Sequence[Answer], found: Answer, chosen: tuple[str, str]) -> Node:
    """The hits of a kind, the first of them open."""
    words = str(found["words"])
    rows = [
        li(class_="chosen" if chosen == (kind, one["name"]) else None)[
            a(href=address(kind, one["name"], words), title=one["title"], aria_current="true" if chosen == (kind, one["name"]) else None)[
                _marked(one["name"], words)
            ]
        ]
        for one in listed
    ]
    return fragment[
        p(".label.pair")[kind, span(".note")[f"{len(listed)} of {whole(found['kinds'][kind])}"]],
        ul(".hits")[rows[:SHOWN]],
        rows[SHOWN:] and details(".more")[summary[f"{len(rows) - SHOWN} more"], ul(".hits")[rows[SHOWN:]]],
    ]


def _marked(name: str, words: str) -> Node:
    """A name with what was looked for in it marked."""
    word = next((one for one in words.lower().split() if one in name.lower()), "")
    if not word:
        return name
    at = name.lower().index(word)
    return [name[:at], mark[name[at : at + len(word)]], name[at + len(word) :]]


# --- one record


def view(answer: Answer, draws: Draws = no_figure) -> View:
    """The view of one record."""
    every = list(_rows(answer["record"]))
    rows = [row for row in every if not row.off]
    sourced = [row for row in rows if row.source]
    content = div(".view")[
        highlights(answer),
        div(".columns.uneven")[prices_block(answer, draws), used_block(answer)] if answer["prices"] else used_block(answer),
        values_block(sourced),
        plain_block(rows, [row for row in every if row.off]),
    ]
    return View(f"{answer['singular']} {answer['name']}", answer["title"], p[_lead(answer, sourced)], content, None)


def _lead(answer: Answer, rows: Sequence[Row]) -> str:
    """How many values there are, of which grades, and how old the newest price is."""
    grades = answer["card"]["grades"]
    counted = ", ".join(f"{count} {_by(grade)}" for grade, count in grades.items())
    values = f"{len(rows)} {'value' if len(rows) == 1 else 'values'}"
    if not rows:
        said = "No value has a source of its own."
    elif sum(grades.values()) == len(rows):
        said = f"{values}: {counted}."
    else:
        said = f"{values}; sources: {counted}."
    price = f" The newest price is of {_day(answer['price_in_use']['date'])}." if answer["price_in_use"] else ""
    own = f" Yours, from {answer['overrides']}: it overrides the record that ships." if answer["overrides"] else ""
    return f"{said}{price}{own}"


def _by(grade: str) -> str:
    return {"vendor": "from the vendor", "paper": "from a paper", "press": "from the press", "guess": "guessed"}.get(grade, grade)


def _day(iso: str) -> str:
    """A date in words; what is no date stays as it is.

    >>> _day("2026-05-07").replace(FIXED, " ")
    '7 May 2026'
    """
    try:
        found = date.fromisoformat(iso)
    except ValueError:
        return iso
    return f"{found.day}{FIXED}{found:%B}{FIXED}{found.year}"


def highlights(answer: Answer) -> Node:
    """The values that people look for first, where the kind has such."""
    drawn = []
    for name, path in HIGHLIGHTS.get(answer["kind"], ()):
        found: Any = answer["record"]
        for step in path.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
        if found is not None:
            number, unit = shown(found)
            drawn.append(_highlight(name, number, unit, found["source"]))
    if drawn and (price := answer["price_in_use"]):
        number, unit = shown(price["per_hour"])
        drawn[3:] = [_highlight("Price, newest", number, unit, price["per_hour"]["source"], _day(price["date"]))]
    if not drawn and answer["kind"] == "models":
        card = answer["card"]
        listed = [("Parameters", large(card["parameters"])), ("Of a token", large(card["active_parameters"]))]
        drawn = [div(".value")[div(".label")[name], div(".big")[strong[size.number], " ", size.unit]] for name, size in listed]
        drawn += [div(".value")[div(".label")["Layers"], div(".big")[strong[whole(card["layers"])]]]]
        drawn += [div(".value")[div(".label")["Hidden size"], div(".big")[strong[whole(card["hidden_size"])]]]]
    return div(".values")[drawn] if drawn else None


def _highlight(name: str, number: str, unit: str, source: Answer | None, more: str = "") -> Element:
    """A value in large digits with its grade."""
    return div(".value")[
        div(".label")[name], div(".big")[strong[number], " ", span(".unit")[unit]], div(".words")[grade_tag(source), " ", more]
    ]


def grade_tag(source: Answer | None) -> Node:
    """The grade of a value as a tag."""
    return span(class_=f"grade {source['grade']}")[source["grade"]] if source else None


def shown(found: Answer) -> tuple[str, str]:
    """Number and unit of a value: as its record writes it where that is a plain number with a unit, else in a suitable prefix.

    >>> shown({"value": 3.35e12, "unit": "B/s", "text": "3.35 TB/s"}), shown({"value": 8.0, "unit": "1", "text": "8"})
    (('3.35', 'TB/s'), ('8', ''))
    """
    number, _, unit = str(found["text"]).partition(" ")
    if number.replace(".", "", 1).replace("-", "", 1).isdigit():
        before, point, after = number.partition(".")
        return thousands(f"{int(before or 0):,}{point}{after}"), unit
    unit, factor = FOR_UNITS.get(found["unit"], (found["unit"], 0.0))
    if factor:
        return thousands(f"{found['value'] * factor:,.4g}"), unit
    return figure(found["value"], found["unit"], exact=True)


def _rows(data: Answer, group: str = "", source: Answer | None = None) -> Iterator[Row]:
    """Every value of a record that is not empty, in its order; parts and lists are groups."""
    own = data.get("source") if _is_source(data.get("source")) else source
    for name, value in data.items():
        if name in ("name", "title", "source", "price") or value in (None, "", [], {}):
            continue
        says = label_of(name)
        if _is_value(value):
            yield Row(group, says, value["note"], " ".join(shown(value)).strip(), value["source"])
        elif isinstance(value, Mapping):
            yield from _rows(value, f"{group}, {says}" if group else says, own)
        elif isinstance(value, list) and isinstance(value[0], Mapping):
            for at, item in enumerate(value):
                inner = f"{says} {item.get('name') or at + 1}"
                yield from _rows(item, f"{group}, {inner}" if group else inner, own)
        else:
            yield Row(group, says, "", _plain(value), own, value in (False, 0))


SPELLED = {"hbm": "HBM", "tdp": "TDP", "l2": "L2", "pcie": "PCIe", "c2c": "C2C", "sm": "SM", "nic": "NIC", "nics": "NICs", "nvme": "NVMe"}


def label_of(field: str) -> str:
    """The name of a field in words.

    >>> label_of("hbm_bandwidth"), label_of("memory_capacity")
    ('HBM bandwidth', 'memory capacity')
    """
    return " ".join(SPELLED.get(word, word) for word in field.split("_"))


def _is_value(value: Any) -> bool:
    return isinstance(value, Mapping) and {"value", "unit", "text", "source"} <= set(value)


def _is_source(value: Any) -> bool:
    return isinstance(value, Mapping) and {"title", "url", "grade"} <= set(value)


def _plain(value: Any) -> str:
    """A value without a unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_plain(item) for item in value)
    return thousands(f"{value:,}") if isinstance(value, int) and abs(value) >= 1e5 else str(value)


def values_block(rows: Sequence[Row]) -> Node:
    """Every value that has a source: what it is, its grade, the source and the day it was read; parts of the record have a row as title."""
    if not rows:
        return None
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    parts = list(groups.items())
    more = parts[SHOWN:]
    return block(
        "Values",
        _table(parts[:SHOWN], "Values"),
        more and details(".more")[summary[f"{len(more)} more parts of the record"], _table(more, "More values")],
        aside=f"{len(rows)} with a source",
    )


def _table(parts: Sequence[tuple[str, Sequence[Row]]], caption: str) -> Element:
    """The values of some parts of a record."""
    heads = [("", "Value of"), ("number", "Value"), ("", "Grade"), ("", "Source"), ("number", "Read")]
    return div(".scroll", tabindex="0", role="group", aria_label=caption)[
        table(".record")[
            thead[tr[(th(class_=kind or None, scope="col")[text] for kind, text in heads)]],
            (
                tbody[
                    bool(group) and tr(".part")[th(colspan=5, scope="rowgroup")[f"{group[:1].upper()}{group[1:]}"]],
                    (_value_row(row) for row in listed),
                ]
                for group, listed in parts
            ),
        ]
    ]


def _value_row(row: Row) -> Element:
    source = row.source or {}
    return tr[
        td[row.name, row.note and div(".note")[row.note]],
        td(".number")[row.text],
        td[grade_tag(row.source)],
        td(".from")[link(source.get("title", ""), source.get("url", ""))],
        td(".number.read")[source.get("read", "")],
    ]


def plain_block(rows: Sequence[Row], off: Sequence[Row]) -> Node:
    """What a record says that is no number with a source: names, choices, switches; then what is off or zero."""
    listed = [(_named(row), row.text) for row in rows if not row.source]
    if not listed and not off:
        return None
    drawn = [li[f"{name} ", strong[text]] for name, text in listed]
    more = drawn[4 * SHOWN :]
    return block(
        "Names and choices",
        ul(".chips")[drawn[: 4 * SHOWN]],
        more and details(".more")[summary[f"{len(more)} more"], ul(".chips")[more]],
        off and details(".more")[summary[f"{len(off)} are off or zero"], ul(".chips")[(li[_named(row)] for row in off)]],
        aside="settings of the record" if listed else None,
    )


def _named(row: Row) -> str:
    return f"{row.group}, {row.name}" if row.group else row.name


def used_block(answer: Answer) -> Node:
    """Which records this one names, which name it, and what else there is of its name."""
    rows = [(label_of(one["field"]), [_to(one["kind"], one["name"])]) for one in answer["names"]]
    named = {one["kind"] for one in answer["names"] if one["name"] == answer["name"]}
    rows += [(kind, [_to(kind, answer["name"])]) for kind in answer["same_name"] if kind not in named]
    users: dict[str, list[Element]] = {}
    for one in answer["used_by"]:
        users.setdefault(f"used by {one['kind']}", []).append(_to(one["kind"], one["name"]))
    rows += list(users.items())
    drawn = [li[span[title], span(".to")[_joined(links)]] for title, links in rows]
    own = p(".note")["Your own value: put a record of the same name into a folder and give --catalog DIR. It overrides this one."]
    alone = None if answer["used_by"] else "no record names this one"
    return block("Uses and used by", drawn and ul(".pairs")[drawn], own, aside=alone)


def _to(kind: str, name: str) -> Element:
    return a(href=address(kind, name))[name]


def _joined(links: Sequence[Node]) -> Node:
    """Links with commas between them, the many folded to a count."""
    drawn = [[", " if at else "", one] for at, one in enumerate(links[:SHOWN])]
    return [drawn, f" and {len(links) - SHOWN} more" if len(links) > SHOWN else ""]


# --- prices


def prices_block(answer: Answer, draws: Draws = no_figure) -> Node:
    """The prices of an hour over time: a figure, and all of them as a table."""
    prices, used = answer["prices"], answer["price_in_use"]
    providers = {one["provider"] for one in prices}
    heads = [Cell("Date"), Cell("USD/h", True), Cell("Who asks it"), Cell("Term"), Cell("Source")]
    rows = [
        [
            Cell(one["date"]), Cell(strong[_usd(one)], True), Cell(f"{one['provider']}, {one['region']}"), Cell(one["term"]),
            Cell(link(one["per_hour"]["source"]["title"], one["per_hour"]["source"]["url"]) if one["per_hour"]["source"] else ""),
        ]
        for one in reversed(prices)
    ]  # fmt: skip
    chosen = next((at for at, one in enumerate(reversed(prices)) if one == used), None)
    every = details(".more")[summary[f"All {len(prices)} prices"], rows_table(heads, rows, chosen, "Prices")]
    if drawn := draws("price-history", answer):
        return div(".stack")[drawn, every]
    return block(
        "Price history",
        Markup(_plot(prices, used)),
        ul(".legend")[
            li[span(".swatch.of-used"), f"{used['provider']}, on demand"],
            li[span(".swatch.of-other"), "others, on demand"],
            li[span(".swatch.of-reserved"), "reserved or spot"],
        ],
        every,
        aside=f"{len(prices)} prices, {len(providers)} {'provider' if len(providers) == 1 else 'providers'}; USD per accelerator and hour",
    )


def _usd(one: Answer) -> str:
    """The price of an hour."""
    return f"{one['per_hour']['value'] * 3600.0:.2f}"


def _plot(prices: Sequence[Answer], used: Answer) -> str:
    """Prices by date as SVG: a line through the provider in use, a ring around the price in use, diamonds for other terms."""
    dated = [(date.fromisoformat(one["date"][:10]).toordinal(), float(one["per_hour"]["value"]) * 3600.0, one) for one in prices]
    first, last = min(day for day, _, _ in dated), max(day for day, _, _ in dated)
    span_days, most = max(last - first, 1), max(size for _, size, _ in dated) * 1.1

    def x(day: int) -> float:
        return LEFT + 12.0 + (day - first) / span_days * (WIDTH - LEFT - 40.0)

    def y(size: float) -> float:
        return TOP + (1.0 - size / most) * (HEIGHT - TOP - BOTTOM)

    step = next(one for scale in (0.01, 0.1, 1.0, 10.0, 100.0) for one in (scale, 2.0 * scale, 5.0 * scale) if most / one <= 5.0)
    says = f"{len(prices)} prices of an hour from {_day(prices[0]['date'])} to {_day(prices[-1]['date'])}; in use {_usd(used)} USD"
    drawn = [f'<svg class="plot prices" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(says)}">']
    for at in range(int(most / step) + 1):
        drawn.append(f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH:g}" y1="{y(at * step):.1f}" y2="{y(at * step):.1f}"/>')
        drawn.append(f'<text x="{LEFT - 8.0:g}" y="{y(at * step) + 4.0:.1f}" text-anchor="end">{at * step:g}</text>')
    for year in range(date.fromordinal(first).year + 1, date.fromordinal(last).year + 1):
        drawn.append(f'<text x="{x(date(year, 1, 1).toordinal()):.1f}" y="{HEIGHT - 6.0:g}" text-anchor="middle">{year}</text>')
    same = sorted((day, size) for day, size, one in dated if one["provider"] == used["provider"] and one["term"] == used["term"])
    points = " ".join(f"{x(day):.1f},{y(size):.1f}" for day, size in same)
    drawn.append(f'<polyline class="of-used" points="{points}"/>')
    drawn += [_point(x(day), y(size), one, used) for day, size, one in dated]
    at_x, at_y = next((x(day), y(size)) for day, size, one in dated if one == used)
    drawn.append(f'<circle class="ring" cx="{at_x:.1f}" cy="{at_y:.1f}" r="7"/>')
    left = at_x > WIDTH / 2.0
    drawn.append(
        f'<text class="in-use" x="{at_x:.1f}" y="{at_y - 12.0:.1f}" text-anchor="{"end" if left else "start"}">{_usd(used)}, in use</text>'
    )
    return "".join(drawn) + "</svg>"


def _point(x: float, y: float, one: Answer, used: Answer) -> str:
    """A price as a point: its provider and date are its title."""
    says = f"<title>{escape(one['provider'])}, {escape(one['term'])}, {escape(one['date'])}: {_usd(one)} USD/h</title>"
    if one["term"] != used["term"]:
        return f'<path class="of-reserved" d="M{x:.1f} {y - 5.0:.1f}l5 5l-5 5l-5 -5z">{says}</path>'
    kind = "of-used" if one["provider"] == used["provider"] else "of-other"
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4">{says}</circle>'
