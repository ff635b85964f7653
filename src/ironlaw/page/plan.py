"""A search as HTML, from the plain data of ``ironlaw plan --json``: the best plan, plans of other kinds, what to buy, what may vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from htpy import Element, Node, div, li, p, span, strong, ul

from ironlaw.page import estimate
from ironlaw.page.figure import Draws, no_figure
from ironlaw.page.parts import Cell, View, bar, block, rows_table, strip
from ironlaw.page.saved import given_texts
from ironlaw.page.words import DASH, FIXED, change, large, money, quantity, share, whole

Answer = Mapping[str, Any]

AXES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_shard", "dp_replicate")
BOUNDS = {"compute": "compute", "hbm": "hbm", "network": "network", "pipeline": "pipeline", "dispatch": "dispatch", "data": "data"}


def view(answer: Answer, draws: Draws = no_figure) -> View:
    """The view of a search."""
    plans = answer["plans"]
    if not plans:
        return View(_asked(answer), "No plan meets the question.", _why_none(answer), div(".view")[estimate.warnings(answer)], None)
    best = plans[0]
    content = div(".view.search")[
        _pairs(
            draws("pareto-memory", answer),
            draws("size-money", answer) if len((answer.get("sizes") or {}).get("by_gpus") or ()) > 1 else None,
        ),
        plans_block(answer),
        draws("pipeline", best),
        published_block(answer),
        div(".columns")[advice_block(answer), free_block(answer)],
        estimate.warnings(answer),
        estimate.first_screen(best),
        div(".columns")[estimate.step_block(best), estimate.memory_tree_block(best)],
        div(".columns.evidence")[estimate.runs_block(best), estimate.band_block(best)],
        estimate.question_block(best),
    ]
    return View(_asked(answer), _verdict(answer), _lead(answer), content, estimate.sources_block(answer))


def _pairs(*drawn: Node) -> Node:
    """Figures side by side; one alone as wide as the view."""
    there = [one for one in drawn if one is not None]
    return div(".columns")[there] if len(there) > 1 else there


def axes_of(plan: Answer) -> str:
    """The axes of a plan that are not 1, as they are written everywhere: tp 4 pp 4 cp 2."""
    return " ".join(f"{axis} {plan[axis]}" for axis in AXES if plan.get(axis) not in (None, 1))


def plan_line(plan: Answer) -> str:
    """A plan in a line: its axes, ZeRO, micro-batch and recomputation."""
    words = [axes_of(plan) or "one accelerator", f"zero {plan['zero']}", f"micro-batch {plan['micro_batch_size']}"]
    if plan.get("recompute") not in (None, "none"):
        words.append(f"recompute {plan['recompute']}")
    return ", ".join(words)


def _asked(answer: Answer) -> str:
    asked = answer["question"]
    devices = asked["on"] if isinstance(asked["on"], str) else ", ".join(asked["on"])
    tokens = f", {large(asked['tokens'])}{FIXED}tokens" if asked.get("tokens") else ""
    return f"{asked['model']} on {devices}, least {asked['minimize']}{tokens}"


def _verdict(answer: Answer) -> str:
    best = answer["plans"][0]["plan"]
    legal = answer["space"]["legal"]
    count = str(large(legal)) if legal >= 1e4 else whole(legal)
    axes = ", ".join(f"{axis} {best[axis]}" for axis in ("tp", "pp", "cp", "ep") if best.get(axis) not in (None, 1))
    return f"Best of {count} plans: {axes or 'data parallel alone'}, ZeRO {best['zero']}."


def _lead(answer: Answer) -> str:
    best = answer["plans"][0]
    step, memory = best["step"]["seconds"], best["memory"]
    said = [f"{quantity(step, 's')} a step, {quantity(memory['device'], 'B')} of {quantity(memory['capacity_bytes'], 'B')}."]
    if (likely := best.get("fastest_probability")) is not None:
        near = answer.get("near") or {}
        variants = f", and {near['count']} of its variants are within {share(near['within'], 0)}" if near.get("count") else ""
        said.append(f"It is the fastest kind with a probability of {share(likely, 0)}: the bands overlap{variants}.")
    return " ".join(said)


def _why_none(answer: Answer) -> list[Element]:
    return [p[str(miss if isinstance(miss, str) else miss.get("says", miss))] for miss in answer.get("misses") or []]


def plans_block(answer: Answer) -> Element:
    """The best plans of different kinds, each with its band on one scale."""
    plans = answer["plans"]
    bands = [one["step"].get("band") for one in plans]
    known = [band for band in bands if band]
    least, most = (min(band[0] for band in known), max(band[1] for band in known)) if known else (0.0, 1.0)
    best = plans[0]["step"]["seconds"]
    rows = [_plan_row(one, band, best, least, most, at) for at, (one, band) in enumerate(zip(plans, bands, strict=True))]
    heads = [
        Cell("Plan"), Cell("Step", True), Cell("Against best", True), Cell(f"80{FIXED}% band"), Cell("Fastest", True), Cell("Memory", True),
        Cell("USD", True), Cell("Why"),
    ]  # fmt: skip
    space = answer["space"]
    fit = space["legal"] - space["infeasible"].get("fits", 0)
    aside = f"{whole(fit)} of {whole(space['legal'])} legal plans fit; searched in {quantity(space['seconds'], 's')}"
    return block("Best plans of other kinds", rows_table(heads, rows, 0, "Best plans of other kinds"), aside=aside)


def _plan_row(one: Answer, band: Sequence[float] | None, best: float, least: float, most: float, at: int) -> list[Cell]:
    """A plan as a row of the table."""
    seconds = one["step"]["seconds"]
    worst = max(one.get("why") or [], key=lambda why: why["seconds"], default=None)
    why = f"+{quantity(worst['seconds'], 's')} {worst['term']}" if worst and worst["seconds"] > 0.0 else ""
    name = one.get("note") or ("best" if at == 0 else "too close to rank" if one.get("tie") else f"plan {at + 1}")
    chance = one.get("fastest_probability")
    return [
        Cell([strong[_opens(one, name)], div(".plan")[plan_line(one["plan"])]]),
        Cell(quantity(seconds, "s"), True),
        Cell("" if at == 0 else change(seconds / best - 1.0), True),
        Cell(strip(band[0], seconds, band[1], least, most) if band else "no band"),
        Cell(DASH if chance is None else share(chance, 0), True),
        Cell(quantity(one["memory"]["device"], "B"), True),
        Cell(str(money((one["worth"] or {}).get("cost"), "")), True),
        Cell("chosen" if at == 0 else why),
    ]


def _opens(one: Answer, name: str) -> Node:
    """The name of a plan, which the page makes a link to its estimate."""
    asked = (one.get("asked") or {}).get("plan")
    return span(data_set=urlencode(given_texts({"asked": {"given": asked}})), data_to="/estimate")[name] if asked else name


def published_block(answer: Answer) -> Node:
    """Layouts that were published for such a model, and what they cost here."""
    rows = [
        [
            Cell([strong[one["title"]], div(".plan")[plan_line({**one["plan"], "zero": one["plan"].get("zero", 0)})]]),
            Cell(quantity(one["step_seconds"], "s"), True),
            Cell(one["why_not"] or ("the same plan" if one.get("same") else f"likely {change(one['likely_longer'])}")),
        ]
        for one in answer.get("published_layouts") or []
    ]
    if not rows:
        return None
    heads = [Cell("Layout"), Cell("Step", True), Cell("Against best")]
    return block("What most teams run", rows_table(heads, rows, caption="What most teams run"))


def advice_block(answer: Answer) -> Node:
    """What a little more of each resource would give."""
    advice = sorted((one for one in answer.get("advice") or [] if one["about"] == "resource"), key=lambda one: -one["gain"])
    if not advice:
        return None
    most = max(one["gain"] for one in advice) or 1.0
    rows = [
        [
            Cell([span(class_=f"swatch {BOUNDS.get(one['bound'], 'workspace')}"), f"{one['name']} {one['change']}"]),
            Cell(share(one["gain"]) if one["gain"] > 5e-4 else "nothing", True),
            Cell(bar(BOUNDS.get(one["bound"], "workspace"), one["gain"] / most)),
            Cell(str(money(one["usd"])) if one.get("usd") else "", True),
        ]
        for one in advice
    ]
    heads = [Cell("More of"), Cell("Faster by", True), Cell("to scale"), Cell("Worth", True)]
    return block("What to buy next", rows_table(heads, rows, caption="What to buy next"), aside="one change each, the plan held")


def free_block(answer: Answer) -> Node:
    """Which axes may vary without costing more than a little."""
    near = answer.get("near") or {}
    free, fixed = near.get("free") or [], near.get("fixed") or {}
    if not free and not fixed:
        return None
    rows = [
        li[
            span[str(one["axis"]).replace("_", " ")],
            ul(".chips")[
                (li[strong[_shown(each["value"])], f" {change(each['longer'])}" if each.get("longer") else ""] for each in one["values"])
            ],
        ]
        for one in free
        if all(isinstance(each, Mapping) for each in one["values"])
    ]
    held = ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in fixed.items())
    return block(
        "What may vary freely",
        rows and ul(".pairs")[rows],
        held and p(".note")[f"Held in all {near['count']}: {held}."],
        aside=f"within {share(near['within'], 0)} of the best",
    )


def _shown(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
