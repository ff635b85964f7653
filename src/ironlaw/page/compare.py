"""A comparison of accelerators as HTML, from the plain data of ``ironlaw compare --json``: one row each, on one scale a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from htpy import Element, Node, div, li, p, span, strong, ul

from ironlaw.page import estimate, generic
from ironlaw.page.figure import Draws, no_figure
from ironlaw.page.generic import lines_of
from ironlaw.page.parts import Cell, Segment, View, block, meter, rows_table, strip
from ironlaw.page.words import DASH, Figure, as_sentence, change, days, energy_of, interval, large, money, quantity, share, whole

Answer = Mapping[str, Any]


class Metric(NamedTuple):
    """What accelerators are compared by: its title, the keys of a row, and how it is written."""

    title: str
    key: str
    low: str
    high: str
    shown: Any


METRICS = (
    Metric("Money", "usd_with_failures", "usd_low", "usd_high", money),
    Metric("Time", "days_with_failures", "days_low", "days_high", days),
    Metric("Energy", "mwh_with_failures", "mwh_low", "mwh_high", lambda value: energy_of(None if value is None else value * 1e3)),
)


def view(answer: Answer, draws: Draws = no_figure) -> View:
    """The view of a comparison."""
    rows = answer.get("estimate") or []
    lines = lines_of(answer)
    ran = [row for row in rows if row.get("days_with_failures") is not None]
    if not ran:
        return generic.view(answer)
    content = div(".view")[
        cards(ran), rows_block(answer), draws("money-time", answer), prices_block(answer), why_block(ran), estimate.warnings(answer)
    ]
    return View(str(answer["title"]), _verdict(ran), [p[as_sentence(line)] for line in lines], content, estimate.sources_block(answer))


def _verdict(rows: Sequence[Answer]) -> str:
    """Who costs least, and who is fastest; of one alone, that there is nothing to compare it with."""
    if len(rows) == 1:
        return f"There is nothing to compare {rows[0]['accelerator']} with: name several kinds, with commas."
    cheap, fast = (min((row for row in rows if row.get(m.key) is not None), key=lambda row: row[m.key], default=None) for m in METRICS[:2])
    said = [f"{cheap['accelerator']} costs least: {money(cheap['usd_with_failures'])}"] if cheap else []
    if fast and (not cheap or fast["accelerator"] != cheap["accelerator"]):
        said.append(f"{fast['accelerator']} is fastest: {days(fast['days_with_failures'])}")
    elif fast and said:
        said.append(f"it is also the fastest: {days(fast['days_with_failures'])}")
    return f"{'; '.join(said)}." if said else "No run is long enough to price."


def _band(row: Answer, metric: Metric) -> tuple[float, float, float] | None:
    """The band of a metric in a row; that of days, as a ratio, where the metric has none of its own."""
    middle = row.get(metric.key)
    if middle is None:
        return None
    if row.get(metric.low) is not None:
        return row[metric.low], middle, row[metric.high]
    if row.get("days_low") is None or not row.get("days_with_failures"):
        return None
    return middle * row["days_low"] / row["days_with_failures"], middle, middle * row["days_high"] / row["days_with_failures"]


def cards(rows: Sequence[Answer]) -> Element:
    """The first by money, time and energy, and who is too close to call."""
    drawn = []
    for metric in METRICS:
        known = sorted((row for row in rows if row.get(metric.key) is not None), key=lambda row: row[metric.key])
        if not known:
            continue
        first = known[0]
        band = _band(first, metric)
        close = [row["accelerator"] for row in known[1:] if band and (own := _band(row, metric)) and own[0] <= band[2]]
        shown: Figure = metric.shown(first[metric.key])
        drawn.append(
            div(".value")[
                div(".label")[f"Least {metric.title.lower()}: ", strong[first["accelerator"]]],
                div(".big")[strong[shown.number], " ", shown.unit],
                div(".words")[
                    interval(str(metric.shown(band[0])), str(metric.shown(band[2]))) if band else "no band",
                    f"; the band of {', '.join(close)} reaches it" if close else "",
                ],
            ]
        )
    return div(".values")[drawn]


class Column(NamedTuple):
    """What the rows of a metric share: the ends of its scale, the row that is least, and the band of that row."""

    least: float
    most: float
    first: Answer | None
    zone: tuple[float, float] | None


def rows_block(answer: Answer) -> Element:
    """A row for each accelerator: money, time and energy, each above its strip, which shows the band of the first, too."""
    rows = answer["estimate"]
    heads = [Cell("Accelerator"), *(Cell(metric.title) for metric in METRICS), Cell("MFU", True), Cell("Bound by")]
    columns, prior = [_column(rows, metric) for metric in METRICS], _priors(answer)
    body = [
        [
            _name(row, row["accelerator"] in prior),
            *(_measured(row, metric, column, row["accelerator"] in prior) for metric, column in zip(METRICS, columns, strict=True)),
            Cell(share(row.get("mfu")), True), Cell(str(row.get("bound") or "")),
        ]
        for row in rows
    ]  # fmt: skip
    note = "Tinted: the band of the first; a band that reaches into it is too close to call."
    hollow = " Hollow: kernels that were not measured on that accelerator." if prior else ""
    listed = rows_table(heads, body, caption="Each accelerator")
    return block("Each accelerator", div(".compared")[listed], p(".note")[note, hollow], aside="bands of 80 %, on one scale a column")


def _priors(answer: Answer) -> set[str]:
    """Accelerators whose kernels were not measured."""
    found = [one for one in answer.get("warnings") or [] if isinstance(one, Mapping) and one["code"] == "prior-constants"]
    return {str(one["values"]["accelerator"]) for one in found}


def _name(row: Answer, prior: bool) -> Cell:
    """How many of which, whether its kernels were measured, and under which plan."""
    plan = row.get("plan") or row.get("why_not") or ""
    tag = prior and [" ", span(".grade.prior")["prior"]]
    return Cell([strong[f"{whole(row['gpus'])} \u00d7 {row['accelerator']}"], tag, div(".plan")[plan]])


def _measured(row: Answer, metric: Metric, column: Column, prior: bool) -> Cell:
    """A value, how much more it is than the least, and its band on the scale of its column."""
    size, band = row.get(metric.key), _band(row, metric)
    if size is None or column.first is None:
        return Cell(DASH)
    more = size / column.first[metric.key] - 1.0
    close = bool(band and column.zone and band[0] <= column.zone[1])
    said = "first" if row is column.first else f"{change(more, 0)}, too close" if close else change(more, 0)
    drawn = band and strip(*band, column.least, column.most, prior, column.zone)
    return Cell([strong[str(metric.shown(size))], span(class_=["note", close and row is not column.first and "close"])[said], drawn])


def _column(rows: Sequence[Answer], metric: Metric) -> Column:
    """The scale of a metric, and its first row."""
    bands = [band for row in rows if (band := _band(row, metric))]
    first = min((row for row in rows if row.get(metric.key) is not None), key=lambda row: row[metric.key], default=None)
    zone = _band(first, metric) if first else None
    least, most = min((band[0] for band in bands), default=0.0), max((band[2] for band in bands), default=1.0)
    return Column(least, most, first, zone and (zone[0], zone[2]))


def why_block(rows: Sequence[Answer]) -> Element:
    """Why accelerators differ: rates, what the step waits for, memory, power, and the price of a token."""
    heads = [
        Cell("Accelerator"), Cell("Tokens/s", True), Cell("MFU", True), Cell(span(".scale")["The step"]), Cell("Network", True),
        Cell("HBM", True), Cell("Memory", True), Cell("Fits", True), Cell("Power", True), Cell("USD/M tokens", True),
    ]  # fmt: skip
    body = [
        [
            Cell(strong[row["accelerator"]]), Cell(str(large(row.get("tokens_per_second"))), True), Cell(share(row.get("mfu")), True),
            Cell(_step(row)), Cell(share(row.get("network_share")), True), Cell(share(row.get("hbm_share")), True),
            Cell(share(row.get("memory_share"), 0), True), Cell(share(row.get("fits_probability"), 0), True),
            Cell(quantity(row.get("power"), "W"), True), Cell(_price_of_tokens(row), True),
        ]
        for row in rows
    ]  # fmt: skip
    legend = ul(".legend")[
        (
            li[span(class_=f"swatch {kind}"), text]
            for kind, text in (("compute", "compute and the rest"), ("hbm", "HBM"), ("network", "network"))
        )
    ]
    return block("Why they differ", rows_table(heads, body, caption="Why they differ"), legend)


def _price_of_tokens(row: Answer) -> str:
    """What a million tokens cost."""
    price = row.get("usd_per_million_tokens")
    return DASH if price is None else f"{price:.3f}"


def _step(row: Answer) -> Node:
    """The step of an accelerator as a bar."""
    network, hbm = (row.get(name) or 0.0 for name in ("network_share", "hbm_share"))
    parts = (("compute", "compute and the rest", 1.0 - network - hbm), ("hbm", "HBM", hbm), ("network", "network", network))
    segments = [Segment(kind, name, share(size), size) for kind, name, size in parts if size > 0.0]
    return div(".small-meter")[meter(segments, 1.0, ", ".join(f"{one.name} {one.text}" for one in segments))]


def prices_block(answer: Answer) -> Node:
    """The price of an hour of each, who asks it, and when."""
    rows = [
        [
            Cell(strong[row["accelerator"]]),
            Cell(f"{row['usd_per_gpu_hour']:.2f} USD/h", True),
            Cell(f"{row['price_provider']}, {row['price_term']}" if row.get("price_provider") else "given"),
            Cell(row.get("price_date") or "", True),
        ]
        for row in answer.get("prices") or []
        if row.get("usd_per_gpu_hour") is not None
    ]
    if not rows:
        return None
    heads = [Cell("Accelerator"), Cell("Price", True), Cell("Who asks it"), Cell("Date", True)]
    fixes = [li[f"{one['bound']}: {one['helps']}"] for one in answer.get("fixes") or []]
    return block("Prices", rows_table(heads, rows, caption="Prices"), fixes and [p(".label")["What helps where a roof binds"], ul[fixes]])
