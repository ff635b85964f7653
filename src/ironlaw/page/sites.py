"""A run at several sites as HTML, from the plain data of ``ironlaw sites --json``: map, four values, how often to exchange, which sites."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from htpy import Element, Node, div, li, p, span, strong, ul
from markupsafe import Markup, escape

from ironlaw.page import estimate, generic, worldmap
from ironlaw.page.figure import Draws, no_figure
from ironlaw.page.parts import Cell, Segment, View, bar, block, meter, rows_table, value
from ironlaw.page.words import DASH, FIXED, as_sentence, days, energy_of, figure, money, quantity, share, whole

Answer = Mapping[str, Any]

DAY = 86400.0
DARKEST = 500.0  # g CO2e/kWh that is drawn darkest
NOT_SCORED = "no band: runs at several sites are not scored"
GOALS = {"time": "fastest", "money": "least money", "carbon": "least CO\u2082e"}
NO = ("does-not-fit", "outer-state-does-not-fit", "too-little-power")  # sentences that say no
UNITS = {  # of the values of these tables
    **dict.fromkeys(("outer", "device", "capacity", "host", "host_capacity"), "B"),
    **dict.fromkeys(("step", "light", "waiting"), "s"), "metres": "m",
}  # fmt: skip
REST = ("splits", "outer_state", "hours", "least_latency")  # tables that are shown as they are


def view(answer: Answer, draws: Draws = no_figure) -> View:
    """The view of a run at several sites."""
    if "by_site" not in answer:
        return generic.view(answer)
    names = names_of(answer)
    content = div(".view")[
        draws("sites-map", answer) or map_block(answer, names),
        values_block(answer),
        div(".columns")[intervals_block(answer, draws), div(".stack")[choices_block(answer, names), links_block(answer, names)]],
        sites_block(answer, names),
        ways_block(answer),
        [generic.table_block(name, answer[name], UNITS) for name in REST if answer.get(name)],
        estimate.warnings(answer),
    ]
    further = [li[as_sentence(one["text"])] for one in answer["headline"] if one["code"] not in ("run", *NO)]
    lead = [p[_work_and_carbon(answer, names)], further and ul(".further")[further]]
    return View(str(answer["title"]), verdict(answer, names), lead, content, estimate.sources_block(answer))


def names_of(answer: Answer) -> dict[str, str]:
    """The city of each site, where it is known."""
    titles = {one["site"]: one["title"].partition(",")[0] for one in answer.get("places") or [] if one.get("title")}
    return {one["site"]: titles.get(one["site"], one["site"]) for one in answer["by_site"]}


def _named(text: str, names: Mapping[str, str], joint: str) -> list[str]:
    """The names of sites in a text such as "lulea + dublin"."""
    return [names.get(one, one) for one in text.split(joint)]


def _run(answer: Answer) -> Mapping[str, float]:
    """Seconds of the run, and of its waiting, from the sentence that says them."""
    found: Mapping[str, float] = next((one["values"] for one in answer["headline"] if one["code"] == "run"), {})
    return found


def _whole_choice(answer: Answer) -> Answer | None:
    """The row of all sites among the choices."""
    count = len(answer["by_site"])
    return next((row for row in answer.get("choices") or [] if len(row["sites"].split(" + ")) == count), None)


def verdict(answer: Answer, names: Mapping[str, str]) -> str:
    """The answer in a sentence: why not, or how long on all sites, and whether fewer would be faster."""
    if refusal := next((one["text"] for one in answer["headline"] if one["code"] in NO), None):
        return as_sentence(refusal)
    run, every = _run(answer), _whole_choice(answer)
    waiting = f"{days(run['seconds'] / DAY)}, {share(run['waiting_share'])} of it waiting for the other sites."
    if every is None:
        return waiting
    count = len(answer["by_site"])
    all_sites = "Both sites" if count == 2 else f"All {count} sites"
    if "time" in every["best"] or answer["choices"][0] is every:
        return f"{all_sites} are fastest: {waiting}"
    fast = answer["choices"][0]
    return f"{all_sites} take {waiting} {' and '.join(_named(fast['sites'], names, ' + '))} would take {days(fast['seconds'] / DAY)}."


def _work_and_carbon(answer: Answer, names: Mapping[str, str]) -> str:
    """How much of the work and of the carbon the site that emits most has."""
    rows = answer["by_site"]
    emitted, work = sum(row["carbon"] for row in rows), sum(row["gpus"] for row in rows)
    most = max(rows, key=lambda row: row["carbon"])
    if not emitted or not work:
        return ""
    return (
        f"{names[most['site']]} has {share(most['gpus'] / work, 0)} of the accelerators and emits"
        f" {share(most['carbon'] / emitted, 0)} of the CO\u2082e."
    )


def map_block(answer: Answer, names: Mapping[str, str]) -> Node:
    """Where the sites are, and the ring that joins them."""
    places = answer.get("places") or []
    if len(places) < 2:
        return None
    power = {row["site"]: row for row in answer["by_site"]}
    at = {one["site"]: i for i, one in enumerate(places)}
    spots = [_spot(one, power[one["site"]], names) for one in places]
    links = answer.get("links") or []
    longest = max((link["metres"] for link in links), default=0.0)
    lines = [
        worldmap.Line(
            at[start], at[end], quantity(link["fibre"], "s"), quantity(link["metres"], "m"), link["metres"] == longest and len(links) > 1
        )
        for link in links
        for start, end in [_ends(link["link"], at)]
    ]
    described = f"Map of {', '.join(spot.label for spot in spots)}; the longest link is {quantity(longest, 'm')}"
    title = "Sites and the ring between them" if len(places) > 2 else "Sites and the link between them"
    legend = "circle: accelerators; darker: more g CO\u2082e/kWh; line: fibre, one way"
    return block(title, Markup(worldmap.draw(spots, lines, described)), aside=legend)


def _ends(link: str, at: Mapping[str, int]) -> tuple[str, str]:
    """The two sites of a link; their own names may hold the dash between them."""
    return next((a, b) for a in at for b in at if link == f"{a} - {b}")


def _spot(place: Answer, row: Answer, names: Mapping[str, str]) -> worldmap.Spot:
    """A site on the map."""
    dark = 0.15 + 0.8 * min(row["intensity"] / DARKEST, 1.0)
    text = f"{whole(row['gpus'])} {row['on']}, {row['intensity']:.0f}{FIXED}g/kWh"
    over = row.get("limit") is not None and row["power"] > row["limit"]
    return worldmap.Spot(place["latitude"], place["longitude"], names[place["site"]], text, row["gpus"], dark, over)


def values_block(answer: Answer) -> Element:
    """The run, money, energy and carbon; none has a band."""
    run, every, rows = _run(answer), _whole_choice(answer), answer["by_site"]
    energy, carbon, power = (sum(row[name] for row in rows) for name in ("energy", "carbon", "power"))
    usd = every["usd"] if every else sum(row["usd"] for row in answer["costs"])
    idle = answer["ways"][0]["idle"]
    waiting = quantity(run["waiting_seconds"], "s")
    cells = [
        value("The run, with waiting", days(run["seconds"] / DAY), None, f"{waiting} of it waiting", "", NOT_SCORED),
        value("Money", money(usd), None, f"{money(idle)} of it waiting", "", "no band"),
        value("Energy", energy_of(energy / 3.6e6), None, f"{quantity(power, 'W')} rated", "", "no band"),
        value("Carbon", figure(carbon, "kg"), None, f"{carbon / energy * 3.6e9:.0f}{FIXED}g/kWh on average", "", "no band"),
    ]  # fmt: skip
    return div(".values")[cells]


# --- how often to exchange

CHART = (440.0, 236.0)
LEFT, RIGHT, TOP, BOTTOM = 44.0, 56.0, 20.0, 28.0


def intervals_block(answer: Answer, draws: Draws = no_figure) -> Node:
    """The days of the run by the number of steps between exchanges: a figure, and the numbers in a table."""
    rows = answer.get("intervals") or []
    if len(rows) < 2:
        return None
    chosen = answer["ways"][0]
    heads = [Cell("Every", True), Cell("One exchange", True), Cell("Waiting, a step", True), Cell("Waiting", True), Cell("Run", True)]
    cells = [
        [
            Cell(whole(row["every"]), True), Cell(quantity(row["time"], "s"), True), Cell(quantity(row["exposed"], "s"), True),
            Cell(share(row["share"]), True), Cell(str(days(row["seconds"] / DAY)), True),
        ]
        for row in rows
    ]  # fmt: skip
    marked = next((at for at, row in enumerate(rows) if row["every"] == chosen["every"]), None)
    note = "Exchanging less often raises the loss, which is not counted: DiLoCo's papers report little at 100 to 500 steps."
    table = [rows_table(heads, cells, marked, "How often to exchange"), p(".note")[note]]
    if drawn := draws("exchange", answer):
        return div(".stack")[drawn, block("Exchanges in numbers", table)]
    return block("How often to exchange", Markup(_chart(rows, chosen["every"])), table, aside="steps between exchanges")


def _chart(rows: Sequence[Answer], chosen: float) -> str:
    """Days of computing, and of waiting above them, on a log axis of steps, as SVG."""
    width, height = CHART
    least: float = math.log10(rows[0]["every"])
    span: float = math.log10(rows[-1]["every"] / rows[0]["every"]) or 1.0
    most = 1.08 * float(max(row["seconds"] for row in rows))

    def x(every: float) -> float:
        return LEFT + (math.log10(every) - least) / span * (width - LEFT - RIGHT)

    def y(seconds: float) -> float:
        return TOP + (1.0 - seconds / most) * (height - TOP - BOTTOM)

    upper = [(x(row["every"]), y(row["seconds"])) for row in rows]
    lower = [(x(row["every"]), y(row["seconds"] - row["waiting"])) for row in rows]
    floor = [(x(rows[-1]["every"]), y(0.0)), (x(rows[0]["every"]), y(0.0))]
    says = escape(f"Days of the run with an exchange every {rows[0]['every']:g} to {rows[-1]['every']:g} steps")
    drawn = [f'<svg class="plot intervals" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{says}">']
    drawn.append(f'<polygon class="area waiting-for" points="{_points([*upper, *reversed(lower)])}"/>')
    drawn.append(f'<polygon class="area computing" points="{_points([*lower, *floor])}"/>')
    for mark in _marks(most / DAY):
        at = y(mark * DAY)
        drawn.append(f'<line class="grid" x1="{LEFT:g}" x2="{width - RIGHT:g}" y1="{at:.1f}" y2="{at:.1f}"/>')
        drawn.append(f'<text x="{LEFT - 8.0:g}" y="{at + 4.0:.1f}" text-anchor="end">{mark:g}</text>')
    for row, (across, up) in zip(rows, upper, strict=True):
        is_chosen = row["every"] == chosen
        drawn.append(f'<text x="{across:.1f}" y="{height - 8.0:g}" text-anchor="middle">{escape(whole(row["every"]))}</text>')
        drawn.append(
            f'<circle class="{"stop chosen" if is_chosen else "stop"}" cx="{across:.1f}" cy="{up:.1f}" r="{5 if is_chosen else 4}"/>'
        )
        if is_chosen or row is rows[0]:
            drawn.append(f'<text class="name" x="{across + 8.0:.1f}" y="{up - 8.0:.1f}">{escape(str(days(row["seconds"] / DAY)))}</text>')
    return "".join([*drawn, "</svg>"])


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _marks(most: float) -> list[float]:
    """Three to five round marks from zero to ``most``.

    >>> _marks(110.0)
    [0.0, 50.0, 100.0]
    """
    size = next(step * 10.0**power for power in range(-3, 7) for step in (1.0, 2.0, 5.0) if most / (step * 10.0**power) <= 5.0)
    return [size * at for at in range(int(most / size) + 1)]


# --- tables


def choices_block(answer: Answer, names: Mapping[str, str]) -> Node:
    """The same run on other choices of the sites."""
    rows = answer.get("choices") or []
    if not rows:
        return None
    slowest, most = max(row["seconds"] for row in rows), max(row["carbon"] for row in rows) or 1.0
    every = _whole_choice(answer)
    cells = [
        [
            Cell([strong[" + ".join(_named(row["sites"], names, " + "))], _tags(row)]), Cell(str(days(row["seconds"] / DAY)), True),
            Cell(bar("compute", row["seconds"] / slowest)), Cell(str(money(row["usd"], "")), True),
            Cell(quantity(row["carbon"], "kg"), True),
            Cell(bar("workspace", row["carbon"] / most)),
        ]
        for row in rows
    ]  # fmt: skip
    heads = [Cell("Sites"), Cell("Run", True), Cell("to scale"), Cell("USD", True), Cell("CO\u2082e", True), Cell("to scale")]
    marked = next((at for at, row in enumerate(rows) if row is every), None)
    note = "No bands: all choices share one model, so their order is surer than their values."
    return block("Which sites", rows_table(heads, cells, marked, "Which sites"), p(".note")[note], aside="the same run and batch")


def _tags(row: Answer) -> Node:
    """What a choice is best by, or why it is none."""
    if row.get("why_not"):
        return [" ", span(".grade.guess")[row["why_not"]]]
    return [[" ", span(".grade.measured")[GOALS.get(goal, goal)]] for goal in row["best"].split(", ") if goal]


def links_block(answer: Answer, names: Mapping[str, str]) -> Node:
    """The links of the ring."""
    rows = answer.get("links") or []
    if not rows:
        return None
    at = {one["site"]: i for i, one in enumerate(answer["by_site"])}
    cells = [
        [
            Cell(strong[f" {DASH} ".join(names[end] for end in _ends(row["link"], at))]), Cell(quantity(row["metres"], "m"), True),
            Cell(quantity(row["light"], "s"), True), Cell(quantity(row["fibre"], "s"), True),
        ]
        for row in rows
    ]  # fmt: skip
    heads = [Cell("Link"), Cell("Great circle", True), Cell("Light, vacuum", True), Cell("Fibre, one way", True)]
    return block("Links", rows_table(heads, cells, caption="Links"))


def sites_block(answer: Answer, names: Mapping[str, str]) -> Element:
    """Each site in a mean step, and in the run."""
    waits = {row["site"]: row for row in answer["waiting_by_site"]}
    costs = {row["site"]: row for row in answer["costs"]}
    longest = max(row["step"] + (row.get("others") or 0.0) + row["exchange"] for row in waits.values())
    most = max(row["carbon"] for row in answer["by_site"]) or 1.0
    cells = []
    for row in answer["by_site"]:
        wait, paid = waits[row["site"]], costs[row["site"]]
        cells.append([
            Cell(strong[names[row["site"]]]), Cell(f"{whole(row['gpus'])} {row['on']}", True), Cell(whole(wait["sequences"]), True),
            Cell(_mean_step(wait, longest)), Cell(quantity(wait["step"], "s"), True), Cell(share(wait["share"]), True),
            Cell(str(money(paid["rent"], "")), True),
            Cell(DASH if paid.get("electricity") is None else str(money(paid["electricity"], "")), True),
            Cell(str(energy_of(row["energy"] / 3.6e6)), True), Cell(f"{row['intensity']:.0f}", True),
            Cell(quantity(row["carbon"], "kg"), True), Cell(bar("workspace", row["carbon"] / most)),
        ])  # fmt: skip
    heads = [
        Cell("Site"), Cell("Accelerators", True), Cell("Batch", True), Cell("A mean step"), Cell("Own", True), Cell("Waiting", True),
        Cell("Rent, USD", True), Cell("Electricity, USD", True), Cell("Energy", True), Cell("g/kWh", True), Cell("CO\u2082e", True),
        Cell("to scale"),
    ]  # fmt: skip
    legend = ul(".legend")[
        (
            li[span(class_=f"swatch {kind}"), text]
            for kind, text in (("compute", "own step"), ("idle", "waits for a site"), ("network", "waits for the exchange"))
        )
    ]
    note = p(".note")["Electricity is for comparison where the rent includes it."]
    return block("Each site in a mean step, and in the run", rows_table(heads, cells, caption="Each site"), legend, note)


def _mean_step(wait: Answer, longest: float) -> Element:
    """The step of a site as a bar: its own, what it waits for a site, and for the exchange."""
    parts = (("compute", "own", wait["step"]), ("idle", "waits", wait.get("others") or 0.0), ("network", "exchange", wait["exchange"]))
    segments = [Segment(kind, name, quantity(size, "s"), size) for kind, name, size in parts if size > 0.0]
    said = ", ".join(f"{one.name} {one.text}" for one in segments)
    return div(".small-meter")[meter(segments, longest, said)]


def ways_block(answer: Answer) -> Element:
    """The same run with other exchanges; the first is the chosen one."""
    cells = [
        [
            Cell(f"{row['exchange']}, {row['gradients']}"), Cell(whole(row["every"]), True), Cell(whole(row["fragments"]), True),
            Cell(f"{row['beside']:g}", True), Cell(quantity(row["time"], "s"), True), Cell(quantity(row["exposed"], "s"), True),
            Cell(bar("network", row["share"])), Cell(share(row["share"]), True), Cell(str(days(row["seconds"] / DAY)), True),
            Cell(str(money(row["usd"], "")), True), Cell(str(money(row["idle"], "")), True),
        ]
        for row in answer["ways"]
    ]  # fmt: skip
    heads = [
        Cell("Exchange"), Cell("Every", True), Cell("Pieces", True), Cell("Beside", True), Cell("Time", True), Cell("Exposed", True),
        Cell("share of the run"), Cell("Waiting", True), Cell("Run", True), Cell("USD", True), Cell("USD waiting", True),
    ]  # fmt: skip
    return block("Other exchanges", rows_table(heads, cells, 0, "Other exchanges"), aside="USD without traffic and electricity")
