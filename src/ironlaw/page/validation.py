"""The errors on published runs as HTML, from the plain data of ``ironlaw validate``: how wrong we are, where, and whether bands hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from htpy import Element, Node, details, div, p, strong, summary
from markupsafe import Markup, escape

from ironlaw.page.figure import Draws, no_figure
from ironlaw.page.parts import Cell, View, bar, block, link, rows_table
from ironlaw.page.words import change, quantity, share, whole

Answer = Mapping[str, Any]

WIDTH, HEIGHT, LEFT, BOTTOM = 920.0, 320.0, 48.0, 36.0  # of the plot, and what its axes take
RATIOS = (0.5, 0.7, 1.0, 1.4, 2.0)
APART = ", "  # before what sets a group of runs apart from the headline
WORST = 20  # runs that are listed


def view(answer: Answer, draws: Draws = no_figure) -> View:
    """The view of a validation."""
    head, scored = answer["headline"], answer.get("predictions") or []
    content = div(".view")[
        values_block(answer),
        scored and (draws("error-scatter", answer) or ratio_block(scored, head)),
        families_block(answer),
        draws("coverage", answer),
        coverage_block(answer),
        scored and worst_block(scored),
        skipped_block(answer),
    ]
    median, tail = share(head["family_median_abs_error"]), share(head["p90_abs_error"])
    verdict = f"The median error is {median}, and one run in ten is off by more than {tail}."
    held = share(head["band_coverage"], 0)
    lead = (
        "Of dense models with all settings known. Each family of runs is predicted with constants that were fitted without it. "
        f"The 80 % band holds for {held} of a family's runs; predictions are {_fast(head['bias'])} in the median."
    )
    return View("Predictions of published runs", verdict, p[lead], content, None)


def _fast(bias: float) -> str:
    return f"{share(abs(bias))} too {'fast' if bias < 0.0 else 'slow'}"


def trust_line(answer: Answer) -> str:
    """The median error in a few words, for the top of every page."""
    count = next((one["n"] for one in answer.get("deciles") or [] if one["group"] == "headline"), answer.get("scored"))
    return f"Median error {share(answer['headline']['family_median_abs_error'])} on {whole(count)} published runs"


def values_block(answer: Answer) -> Element:
    """The median, the tail, the bias and the coverage of the band."""
    head = answer["headline"]
    listed = (
        ("Median error, over families", share(head["family_median_abs_error"]), f"{share(head['pooled_median_abs_error'])} over all runs"),
        ("One in ten is off by more than", share(head["p90_abs_error"]), "of all runs"),
        ("Bias", change(head["bias"]), "median of predicted over measured, less 1"),
        ("Inside the 80 % band", share(head["band_coverage"], 0), "of a family's runs, in the mean"),
    )
    return div(".values")[
        (div(".value")[div(".label")[name], div(".big")[strong[number]], div(".words")[words]] for name, number, words in listed)
    ]


def ratio_block(scored: Sequence[Answer], head: Answer) -> Element:
    """Predicted over measured, one point a run."""
    return block(
        "Predicted over measured, by step time",
        Markup(_plot(scored)),
        p(".note")["Filled: dense models; hollow: mixtures of experts."],
        aside=f"{whole(len(scored))} runs, also those outside the headline; a band is {share(head['band_width'], 0)} wide in the mean",
    )


def _plot(scored: Sequence[Answer]) -> str:
    """A scatter of ratios on two log axes, as SVG; ratios beyond the axis stand on its edge."""
    times = [one["measured_s"] for one in scored]
    least, most = math.log10(min(times)), math.log10(max(times))
    span = (most - least) or 1.0
    low, high = math.log10(RATIOS[0]), math.log10(RATIOS[-1])

    def x(seconds: float) -> float:
        return LEFT + (math.log10(seconds) - least) / span * (WIDTH - LEFT - 8.0)

    def y(ratio: float) -> float:
        at = min(max(math.log10(max(ratio, 1e-3)), low), high)
        return 8.0 + (high - at) / (high - low) * (HEIGHT - BOTTOM - 8.0)

    says = f"Predicted over measured step time of {len(scored)} runs"
    drawn = [f'<svg class="plot" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{says}">']
    for ratio in RATIOS:
        at = y(ratio)
        drawn.append(f'<line class="{"one" if ratio == 1.0 else "grid"}" x1="{LEFT:g}" x2="{WIDTH:g}" y1="{at:.1f}" y2="{at:.1f}"/>')
        drawn.append(f'<text x="{LEFT - 8.0:g}" y="{at + 4.0:.1f}" text-anchor="end">{ratio:g}</text>')
    for power in range(math.ceil(least), math.floor(most) + 1):
        label = escape(quantity(10.0**power, "s", exact=True))
        drawn.append(f'<text x="{x(10.0**power):.1f}" y="{HEIGHT - 12.0:g}" text-anchor="middle">{label}</text>')
    for one in scored:
        kind = "mixture" if one.get("support") == "mixture" else "dense"
        says = escape(f"{one['id']}, {one.get('model') or ''}: {change(one['error'])}")
        drawn.append(
            f'<circle class="{kind}" cx="{x(one["measured_s"]):.1f}" cy="{y(1.0 + one["error"]):.1f}" r="3"><title>{says}</title></circle>'
        )
    return "".join(drawn) + "</svg>"


def families_block(answer: Answer) -> Element:
    """Each family: how many runs, median, tail, bias, and how many lie in their band."""
    groups = sorted(answer["groups"], key=lambda one: one["median_abs_error"])
    counted, others = ([one for one in groups if (APART in one["key"]) is apart] for apart in (False, True))
    more = (
        others
        and details(".more")[
            summary[f"{len(others)} more groups, which the headline leaves out"], _families_table(others, "More groups of runs")
        ]
    )
    return block("Families of runs", _families_table(counted, "Families of runs"), more, aside="each predicted without itself")


def _families_table(groups: Sequence[Answer], caption: str) -> Element:
    """A row for each group of runs."""
    most = max((one["p90_abs_error"] for one in groups), default=1.0)
    rows = [
        [
            Cell(strong[one["key"]]), Cell(whole(one["n"]), True), Cell(share(one["median_abs_error"]), True),
            Cell(bar("compute", one["median_abs_error"] / most)), Cell(share(one["p90_abs_error"]), True), Cell(change(one["bias"]), True),
            Cell(share(one["band_coverage"], 0), True),
        ]
        for one in groups
    ]  # fmt: skip
    heads = [
        Cell("Family"), Cell("Runs", True), Cell("Median error", True), Cell("to scale"), Cell("1 in 10 above", True), Cell("Bias", True),
        Cell("In the band", True),
    ]  # fmt: skip
    return rows_table(heads, rows, caption=caption)


def coverage_block(answer: Answer) -> Node:
    """How often a band of 80 % holds, by group."""
    groups = (answer.get("bands") or {}).get("groups") or []
    if not groups:
        return None
    rows = [
        [
            Cell(one["group"]), Cell(whole(one["n"]), True), Cell(share(one["coverage"], 0), True),
            Cell(share(one["family_coverage"], 0), True),
            Cell(f"\u00b1\u00a0{share(one['median_half_width'], 0)}", True),
        ]
        for one in groups
    ]  # fmt: skip
    heads = [Cell("Group"), Cell("Runs", True), Cell("In the band", True), Cell("Mean of families", True), Cell("Half-width", True)]
    listed = rows_table(heads, rows, caption="Does the band hold?")
    return details(".block.more")[summary["Does the band hold? Every group and its half-width"], listed]


def worst_block(scored: Sequence[Answer]) -> Element:
    """The runs that were predicted worst, with where they were read."""
    worst = sorted(scored, key=lambda one: -abs(math.log(max(1.0 + one["error"], 1e-3))))[:WORST]
    rows = [
        [
            Cell(link(one["id"], one["url"]) if one.get("url") else one["id"]),
            Cell(f"{one.get('model') or ''}, {whole(one.get('gpus'))} \u00d7 {one.get('accelerator') or ''}"),
            Cell(quantity(one["measured_s"], "s"), True), Cell(quantity(one["predicted_s"], "s"), True),
            Cell(strong[change(one["error"])], True), Cell(", ".join(one.get("apart") or [])),
        ]
        for one in worst
    ]  # fmt: skip
    heads = [
        Cell("Run"),
        Cell("What"),
        Cell("Measured", True),
        Cell("Predicted", True),
        Cell("Error", True),
        Cell("Outside the headline for"),
    ]
    return block("The worst predictions", rows_table(heads, rows, caption="The worst predictions"))


def skipped_block(answer: Answer) -> Node:
    """Rows that are not scored, and why."""
    counted: dict[str, int] = {}
    for one in answer.get("skipped_rows") or []:
        reason = str(one.get("reason") or "")
        counted[reason] = counted.get(reason, 0) + 1
    if not counted:
        return None
    ordered = sorted(counted.items(), key=lambda pair: -pair[1])
    rows = [[Cell(reason), Cell(whole(count), True)] for reason, count in ordered[:WORST]]
    if len(ordered) > WORST:
        rows.append([Cell("other reasons"), Cell(whole(sum(count for _, count in ordered[WORST:])), True)])
    return block("Rows that are not scored", rows_table([Cell("Why"), Cell("Rows", True)], rows, caption="Rows that are not scored"))
