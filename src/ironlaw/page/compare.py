"""A comparison of accelerators as HTML, from the plain data of ``ironlaw compare --json``: one row each, on one scale a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from htpy import Element, Node, div, li, p, span, strong, ul

from ironlaw.page import estimate, generic
from ironlaw.page.figure import Draws, no_figure
from ironlaw.page.generic import lines_of
from ironlaw.page.parts import Cell, View, block, rows_table, strip
from ironlaw.page.words import DASH, Figure, as_sentence, change, days, energy_of, interval, money, share, whole

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
    content = div(".view")[cards(ran), rows_block(rows), draws("money-time", answer), prices_block(answer), estimate.warnings(answer)]
    return View(str(answer["title"]), _verdict(ran), [p[as_sentence(line)] for line in lines], content, estimate.sources_block(answer))


def _verdict(rows: Sequence[Answer]) -> str:
    """Who costs least, and who is fastest."""
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


def rows_block(rows: Sequence[Answer]) -> Element:
    """A row for each accelerator: money, time and energy, each above its strip; MFU, bound and plan."""
    heads = [Cell("Accelerator"), *(Cell(metric.title) for metric in METRICS), Cell("MFU", True), Cell("Bound by")]
    scales = [_scale(rows, metric) for metric in METRICS]
    body = [
        [_name(row), *(_measured(row, *both) for both in zip(METRICS, scales, strict=True)), Cell(share(row.get("mfu")), True), _bound(row)]
        for row in rows
    ]
    return block("Each accelerator", rows_table(heads, body, caption="Each accelerator"), aside="bands of 80 %, on one scale a column")


def _name(row: Answer) -> Cell:
    """How many of which, and under which plan."""
    plan = row.get("plan") or row.get("why_not") or ""
    return Cell([strong[f"{whole(row['gpus'])} \u00d7 {row['accelerator']}"], div(".plan")[plan]])


def _bound(row: Answer) -> Cell:
    return Cell(str(row.get("bound") or ""))


def _measured(row: Answer, metric: Metric, scale: tuple[float, float, float | None]) -> Cell:
    """A value, how much more it is than the least, and its band on the scale of its column."""
    least, most, best = scale
    size, band = row.get(metric.key), _band(row, metric)
    if size is None:
        return Cell(DASH)
    more = span(".note")[f" {change(size / best - 1.0, 0)}"] if best and size > best else None
    return Cell([strong[str(metric.shown(size))], more, band and strip(*band, least, most)])


def _scale(rows: Sequence[Answer], metric: Metric) -> tuple[float, float, float | None]:
    """The ends of a column, and its least value."""
    bands = [band for row in rows if (band := _band(row, metric))]
    values = [row[metric.key] for row in rows if row.get(metric.key) is not None]
    return min((b[0] for b in bands), default=0.0), max((b[2] for b in bands), default=1.0), min(values, default=None)


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
