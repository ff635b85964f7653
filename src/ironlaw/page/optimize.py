"""What optimisations do to a run as HTML, from the plain data of ``ironlaw optimize --json``: what binds, and what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from htpy import Element, Node, details, div, p, span, strong, summary

from ironlaw.page import estimate, generic
from ironlaw.page.figure import Draws, no_figure
from ironlaw.page.parts import Cell, Segment, View, bar, block, meter, rows_table, tree, value
from ironlaw.page.saved import given_texts
from ironlaw.page.words import DASH, as_sentence, change, energy_of, figure, large, quantity, share

Answer = Mapping[str, Any]

SHOWN = 12  # techniques that are listed; the rest folds
LEAST = 0.005  # of the time of a token: less is no gain
NO_BAND = "no band: see ironlaw estimate"
TITLES = {"hbm": "HBM"}


def view(answer: Answer, draws: Draws = no_figure) -> View:
    """The view of optimisations."""
    if "techniques" not in answer or not answer.get("base"):
        return generic.view(answer)
    lines = generic.lines_of(answer)
    content = div(".view")[
        values_block(answer), roofs_block(answer), techniques_block(answer), together_block(answer), draws("energy-precision", answer),
        terms_block(answer), not_tried_block(answer), estimate.warnings(answer),
    ]  # fmt: skip
    return View(str(answer["title"]), verdict(answer), [p[as_sentence(line)] for line in lines], content, estimate.sources_block(answer))


def verdict(answer: Answer) -> str:
    """What gains most, and how much all that fit together gain."""
    if said := next((one["text"] for one in answer["headline"] if one["code"] == "no-gain"), None):
        return as_sentence(said)
    helped = _helping(answer)
    if not helped:
        return "No technique that fits and keeps the training gains anything."
    first, together = helped[0], (answer.get("composed") or [None])[-1]
    said = f"{first['technique']} gains most: {change(first['gain'])} tokens/s"
    more = together is not None and len(answer["composed"]) > 1
    return as_sentence(f"{said}; {len(answer['composed'])} together {change(together['together'])}" if more else said)


def _helping(answer: Answer) -> list[Answer]:
    """Techniques that fit, keep the training and gain something, the best first."""
    found = [one for one in answer["techniques"] if one["fits"] and not one["training"] and one["gain"] >= LEAST]
    return sorted(found, key=lambda one: -float(one["gain"]))


def values_block(answer: Answer) -> Element:
    """The step, memory, money and energy now."""
    base = answer["base"]
    cells = [
        value("One step, now", figure(base["seconds"], "s"), None, f"{large(base['tokens_per_second'])} tokens/s", "", NO_BAND),
        value("Memory", figure(base["device"], "B"), None, "it fits" if base["fits"] else "it does not fit", "", NO_BAND),
    ]
    if base.get("usd") is not None:
        cells.append(value("A million tokens", large(base["usd"], "USD"), None, "at the catalogue's price", "", NO_BAND))
    cells.append(
        value("Energy of them", energy_of(base["joules"] / 3.6e6), None, f"{quantity(base['kg_co2e'], 'kg')} CO\u2082e", "", NO_BAND)
    )
    return div(".values")[cells]


def roofs_block(answer: Answer) -> Node:
    """What bounds the step, and how much time would stay without each bound."""
    rows = answer.get("roofs") or []
    segments = [Segment(one["roof"], TITLES.get(one["roof"], one["roof"]), share(one["share"]), one["share"]) for one in rows]
    if (rest := 1.0 - sum(one.size for one in segments)) > 5e-4:
        segments.append(Segment("rest", "the rest", share(rest), rest))
    named = ", ".join(f"{one.name} {one.text}" for one in segments)
    cells = [
        [
            Cell(strong[TITLES.get(one["roof"], one["roof"])]), Cell(share(one["share"]), True), Cell(share(one["at_best"]), True),
            Cell(one["techniques"] or span(".note")["nothing that was tried"]),
        ]
        for one in rows
    ]  # fmt: skip
    heads = [Cell("Bound"), Cell("Of the step", True), Cell("Time without it", True), Cell("Lowered by")]
    if not rows:
        return None
    return block("What bounds the step", meter(segments, max(1.0, sum(one.size for one in segments)), named),
                 rows_table(heads, cells, caption="Bounds"))  # fmt: skip


def techniques_block(answer: Answer) -> Element:
    """Each technique alone on this plan, the fastest first; those that do not fit or change the run say so."""
    rows = sorted(answer["techniques"], key=lambda one: (not one["fits"], float(one["ratio"])))
    drawn = [_technique(one) for one in rows]
    heads = [
        Cell("Technique"),
        Cell("Step", True),
        Cell("Time of a token", True),
        Cell(span(".scale")["to scale"]),
        Cell("Memory", True),
        Cell(""),
    ]
    more = drawn[SHOWN:]
    return block(
        "Each technique alone",
        rows_table(heads, drawn[:SHOWN], caption="Each technique alone"),
        more and details(".more")[summary[f"{len(more)} more"], rows_table(heads, more, caption="More techniques")],
        aside="on this plan, unless another is named",
    )


def _technique(one: Answer) -> Sequence[Cell]:
    """A technique: its option, the time of a token beside the plain plan's, memory, and what to know."""
    known = [word for word in ("" if one["fits"] else "does not fit", "changes the run" if one["training"] else "") if word]
    plan = one.get("plan") and div(".note")[f"with {one['plan']}"]
    ratio, change_of = float(one["ratio"]), one.get("change") or {}
    taken = (
        span(data_set=urlencode(given_texts({"asked": {"given": change_of}})), data_to="/estimate")[one["technique"]]
        if change_of
        else one["technique"]
    )
    return [
        Cell([strong[taken], div(".plan")[one["options"]], plan]), Cell(quantity(one["seconds"], "s"), True),
        Cell("same" if abs(ratio - 1.0) < 5e-4 else change(ratio - 1.0), True),
        Cell(bar("compute" if ratio <= 1.0 else "rest", min(ratio, 2.0) / 2.0)), Cell(quantity(one["device"], "B"), True),
        Cell([span(".grade.guess")[word] for word in known]),
    ]  # fmt: skip


def together_block(answer: Answer) -> Node:
    """What to take first, second and third, and what it comes to."""
    rows = answer.get("composed") or []
    drawn = [
        [
            Cell(str(row["step"]), True), Cell([strong[row["technique"]], div(".note")[f"lowers {row['lowers']}"]]), Cell(row["profile"]),
            Cell(change(row["likely_gain"]), True), Cell(change(row["likely_together"]), True), Cell(quantity(row["seconds"], "s"), True),
            Cell(share(row["memory"]), True), Cell(DASH if row["usd"] is None else str(large(row["usd"])), True),
        ]
        for row in rows
    ]  # fmt: skip
    heads = [
        Cell("", True), Cell("Taken"), Cell("Bound before"), Cell("Likely gain", True), Cell("Together", True), Cell("Step", True),
        Cell("Memory used", True), Cell("USD a million tokens", True),
    ]  # fmt: skip
    return (
        block("Together, one after the other", rows_table(heads, drawn, caption="Together"), aside="the training stays") if rows else None
    )


def terms_block(answer: Answer) -> Node:
    """Where the step goes now, term by term."""
    step = (answer.get("terms") or {}).get("step")
    if not step or not step.get("parts"):
        return None
    parts = [estimate.branch_of(part, float(step["total"]), "s") for part in step["parts"]]
    return block("Step, term by term", tree(parts, ("Term", "Time", "Of step")))


def not_tried_block(answer: Answer) -> Node:
    """What was not tried, and why."""
    rows = [[Cell(strong[one["technique"]]), Cell(one["why_not"])] for one in answer.get("not_tried") or []]
    table = rows_table([Cell("Technique"), Cell("Why not")], rows, caption="Not tried")
    return block("Not tried", details(".more")[summary[f"{len(rows)} techniques, and why"], table]) if rows else None
