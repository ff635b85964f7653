"""What a run costs as HTML, from the plain data of ``ironlaw money --json``: money, time, energy, carbon, and each way to pay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from htpy import Element, Node, div, p, span, strong

from ironlaw.page import estimate, generic
from ironlaw.page.parts import Cell, View, bar, block, rows_table, value
from ironlaw.page.words import DASH, FIXED, as_sentence, days, energy_of, figure, large, quantity, share, thousands, whole

Answer = Mapping[str, Any]

DAY = 86400.0
NOT_SCORED = "no band: the bands of estimates are not carried on to prices; ironlaw estimate has that of the days"
NO_BAND = "no band"


def view(answer: Answer) -> View:
    """The view of what a run costs."""
    ways = answer.get("ways") or []
    if not ways or not answer.get("gpus"):
        return generic.view(answer)
    lines = generic.lines_of(answer)
    content = div(".view")[
        values_block(answer), ways_block(answer), buying_block(answer), energy_block(answer), terms_block(answer), power_block(answer),
        estimate.warnings(answer),
    ]  # fmt: skip
    return View(str(answer["title"]), verdict(answer), [p[as_sentence(line)] for line in lines], content, estimate.sources_block(answer))


def _whole_ways(answer: Answer) -> list[Answer]:
    """The ways to pay for the whole run; the others are parts of one."""
    return [row for row in answer["ways"] if not row["way"].startswith(" ")]


def verdict(answer: Answer) -> str:
    """What it costs, the least of several ways, and how long it takes."""
    took = f"{days(answer['seconds'] / DAY)} on {whole(answer['gpus'])} accelerators"
    priced = [row for row in _whole_ways(answer) if row.get("usd") is not None]
    if not priced:
        return f"{took}; no price is known."
    least = min(priced, key=lambda row: float(row["usd"]))
    others = [row for row in priced if row is not least]
    most = max(others, key=lambda row: float(row["usd"]), default=None)
    more = f", against {large(most['usd'], 'USD')} {most['way']}" if most else ""
    return f"{large(least['usd'], 'USD')} {least['way']}{more}: {took}."


def values_block(answer: Answer) -> Element:
    """Money, time, energy and carbon of the run; none has a band."""
    first, burnt = _whole_ways(answer)[0], next(iter(answer.get("energy_and_carbon") or []), None)
    hours = answer["gpus"] * answer["seconds"] / 3600.0
    cells = [
        value("Money", large(first["usd"], "USD"), None, f"{first['way']}, {first['usd_per_hour']:.3g}{FIXED}USD/h each", "", NOT_SCORED),
        value("The run", days(answer["seconds"] / DAY), None, f"{large(hours)} accelerator hours", "", NO_BAND),
    ]
    if burnt:
        cells += [
            value("Energy", energy_of(burnt["energy"] / 3.6e6), None, f"{burnt['basis']} power, PUE {burnt['pue']:g}", "", NO_BAND),
            value(
                "Carbon", figure(burnt["carbon"], "kg"), None, f"{burnt['carbon'] / burnt['energy'] * 3.6e9:.0f}{FIXED}g/kWh", "", NO_BAND
            ),
        ]
    return div(".values")[cells]


def ways_block(answer: Answer) -> Element:
    """Each way to pay, and what of it trains nothing."""
    most = max((row["usd"] or 0.0 for row in answer["ways"]), default=0.0) or 1.0
    rows = [
        [
            Cell([strong[row["way"]] if row in _whole_ways(answer) else span(".of-it")[row["way"].strip()], div(".note")[row["note"]]]),
            Cell(f"{row['usd_per_hour']:.3g}", True), Cell(quantity(row["seconds"], "s"), True),
            Cell(DASH if row["usd"] is None else str(large(row["usd"])), True), Cell(bar("compute", (row["usd"] or 0.0) / most)),
        ]
        for row in answer["ways"]
    ]  # fmt: skip
    heads = [Cell("Way to pay"), Cell("USD/h each", True), Cell("Time", True), Cell("USD", True), Cell(span(".scale")["to scale"])]
    return block("Ways to pay", rows_table(heads, rows, caption="Ways to pay"), aside=f"{whole(answer['gpus'])} accelerators")


def buying_block(answer: Answer) -> Node:
    """After how many runs a purchase is worth its price."""
    found = answer.get("rent_or_buy") or []
    rows = [
        [
            Cell([strong[row["model"]], div(".note")[row["note"]]]), Cell(f"{row['runs']:.3g}", True), Cell(f"{row['months']:.3g}", True),
            Cell(share(row.get("utilisation"), 0), True),
        ]
        for row in found
    ]  # fmt: skip
    heads = [Cell("Counted"), Cell("Runs", True), Cell("Months", True), Cell("Least use that pays", True)]
    return block("When a purchase pays", rows_table(heads, rows, caption="When a purchase pays")) if rows else None


def energy_block(answer: Answer) -> Node:
    """Energy and carbon by what the power is known from."""
    found = answer.get("energy_and_carbon") or []
    most = max((row["energy"] for row in found), default=0.0) or 1.0
    rows = [
        [
            Cell([strong[row["basis"]], div(".note")[row["note"]]]), Cell(quantity(row["node"], "W"), True),
            Cell(str(energy_of(row["energy"] / 3.6e6)), True), Cell(bar("workspace", row["energy"] / most)),
            Cell(quantity(row["carbon"], "kg"), True), Cell(whole(row["household_months"]), True),
        ]
        for row in found
    ]  # fmt: skip
    heads = [
        Cell("Power"), Cell("Of each", True), Cell("Energy", True), Cell(span(".scale")["to scale"]), Cell("CO\u2082e", True),
        Cell("Months of a household", True),
    ]  # fmt: skip
    return block("Energy and carbon", rows_table(heads, rows, caption="Energy and carbon")) if rows else None


def terms_block(answer: Answer) -> Node:
    """Every quantity that the costs are made of, with the law that gives it."""
    rows = [
        [Cell(strong[one["name"]]), Cell(_total(one), True),
         Cell(span(".note")[str(one.get("law") or "").rpartition(".")[2]])]
        for one in (answer.get("terms") or {}).values()
    ]  # fmt: skip
    heads = [Cell("Term"), Cell("Value", True), Cell("Law")]
    return block("What it is made of", rows_table(heads, rows, caption="What it is made of")) if rows else None


def _total(one: Answer) -> str:
    """A quantity in words; a rate of money by the hour."""
    if one["unit"] == "USD/s":
        return f"{one['total'] * 3600.0:.3g}{FIXED}USD/h"
    return thousands(f"{one['total']:,.4g}") if one["unit"] == "1" else quantity(one["total"], one["unit"])


def power_block(answer: Answer) -> Node:
    """Power of accelerators that others measured."""
    rows = answer.get("measured_power") or []
    most = max((row["power"] for row in rows), default=0.0) or 1.0
    drawn = [
        [
            Cell(row["run"]),
            Cell(whole(row["gpus"]), True),
            Cell(quantity(row["power"], "W"), True),
            Cell(bar("workspace", row["power"] / most)),
        ]
        for row in rows
    ]
    heads = [Cell("Published run"), Cell("GPUs", True), Cell("Power of each", True), Cell(span(".scale")["to scale"])]
    return block("Power that was measured", rows_table(heads, drawn, caption="Power that was measured")) if rows else None
