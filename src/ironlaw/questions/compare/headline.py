"""The headline of a comparison: the best row by what was asked, the best by other measures, and whether the order is certain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.questions.compare.candidates import Candidate, RunCost, Trained

MOST_LINES = 4  # counts or targets with a line of their own


def default_goal(values: dict[str, Any]) -> str:
    """What the best row is best in: cost; time where only money or power limits the number of accelerators."""
    if "minimize" in values:
        return str(values["minimize"])
    sized = "budget" in values or "power_limit" in values
    return "time" if sized and not {"gpus", "deadline", "target_tokens_per_second"} & set(values) else "cost"


def objective(candidate: Candidate, goal: str) -> float:
    """What is least in the best row; infinity where the row answers no or the value is not known."""
    trained, run = candidate.trained, candidate.run
    if trained is None or not candidate.answers:
        return math.inf
    value = run.usd_with_failures if run else trained.usd_per_hour if candidate.target else trained.usd_per_million_tokens
    if goal == "time":
        value = run.days_with_failures if run else 1.0 / trained.tokens_per_second
    elif goal == "energy":
        value = run.energy_with_failures if run else trained.power / trained.tokens_per_second
    elif goal == "carbon":
        value = run.carbon_with_failures if run else trained.power / trained.tokens_per_second
    elif goal == "gpus":
        value = candidate.planned.gpus if candidate.planned else math.inf
    return value if value is not None and not math.isnan(value) else math.inf


def headline(candidates: Sequence[Candidate], values: dict[str, Any]) -> list[str]:
    """The best row of every count or target, the best of all by other measures, whether the order is certain, and how many answer no."""
    goal = default_goal(values)
    places: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        if math.isfinite(objective(candidate, goal)) or (candidate.answers and goal == "cost"):
            places.setdefault(candidate.place, []).append(candidate)
    lines: list[str] = []
    if not places:
        lines.append(Sentence("none of these accelerators does the job as asked", "none"))
    elif len(places) <= MOST_LINES:
        for rows in places.values():
            lines += _say_best(rows, goal, len(places) > 1)
    else:
        lines += _say_best([row for rows in places.values() for row in rows], goal, False)
    lines += say_limits(candidates, values)
    refused = sum(not candidate.answers for candidate in candidates)
    if refused:
        counted = {"refused": refused, "rows": len(candidates)}
        told = Sentence(f"no: {refused} of {len(candidates)} rows, see why below", "refused", counted)
        lines += [told] if places else _say_why(candidates)
    return lines


def _say_why(candidates: Sequence[Candidate]) -> list[str]:
    """Why the first rows answer no; the table below has all."""
    rows = [(candidate.row().get("gpus"), candidate) for candidate in candidates if candidate.why_not]
    lines = [f"{'' if gpus is None else f'{gpus:,.0f} x '}{row.hardware.name}: {row.why_not}" for gpus, row in rows]
    return [*lines[:MOST_LINES], *(["see the others below"] if len(lines) > MOST_LINES else [])]


def _say_best(rows: list[Candidate], goal: str, several: bool) -> list[str]:
    """The best of some rows, the best by other measures, and the rows that it cannot be told from."""
    if not any(math.isfinite(objective(row, goal)) for row in rows):  # no price is known
        goal = "time"
    best = min(rows, key=lambda row: objective(row, goal))
    words = {
        "cost": "cheapest run" if best.run else "cheapest per token",
        "time": "fastest",
        "energy": "least energy",
        "carbon": "least CO2e",
    }
    if goal == "cost" and best.target and not best.run:
        words["cost"] = "cheapest per hour"
    where = f" at {best.target:,.0f} tokens/s" if best.target and several else ""
    text = f"{words.get(goal, 'fewest accelerators')}{where}: {describe(best)}"
    gpus = best.planned.gpus if best.planned else None
    lines: list[str] = [Sentence(text, "best", {"by": goal, "accelerator": best.hardware.name, "gpus": gpus})]
    others = []
    for other in ("cost", "time", "energy", *(["carbon"] if best.run else [])):
        winner = min(rows, key=lambda row, other=other: objective(row, other))  # type: ignore[misc]
        if other != goal and winner is not best and math.isfinite(objective(winner, other)):
            near = _list_near(winner, rows, other)
            close = f" (too close to call: {', '.join(near)})" if near else ""
            others.append(f"{words[other]}: {_say_short(winner, other)}{close}")
    if others:
        lines.append(Sentence("; ".join(others), "best-by-others"))
    return [*lines, *_say_certainty(best, rows, goal)]


def say_limits(candidates: Sequence[Candidate], values: dict[str, Any]) -> list[str]:
    """The rows that meet a limit which lies inside their error bands, so that they may break it."""
    lines: list[str] = []
    for option, name in (("target_tokens_per_second", "rate"), ("deadline", "deadline"), ("budget", "budget")):
        near = [c.label for c in candidates if option in values and c.answers and _may_break(c, option, values)]
        if near:
            text = f"the {name} is not certain to be met: it lies inside the error bands of {', '.join(near)}"
            lines.append(Sentence(text, "limit-uncertain", {"limit": option, "rows": near}))
    return lines


def _may_break(candidate: Candidate, option: str, values: dict[str, Any]) -> bool:
    """True where the far end of a row's error band breaks a limit."""
    trained, run = candidate.trained, candidate.run
    if trained is None or trained.tokens_per_second_low is None:
        return False
    if option == "target_tokens_per_second":
        return trained.tokens_per_second_low < (candidate.target or 0.0)
    high = None if run is None else run.days_high if option == "deadline" else run.usd_high
    limit = values["deadline"] / 86400.0 if option == "deadline" else values["budget"]
    return high is not None and bool(high > limit)


def describe(candidate: Candidate) -> str:
    """A row in words: the count, the accelerator, and its figures."""
    trained, planned = candidate.trained, candidate.planned
    assert trained is not None and planned is not None
    name = f"{planned.gpus:,.0f} x {candidate.hardware.name}" + (f" ({candidate.framework})" if candidate.framework else "")
    figures = [*_say_run(candidate.run), *_say_rent(trained, candidate.run), f"{trained.tokens_per_second:,.0f} tokens/s"]
    return ", ".join([name, *figures, f"MFU {trained.mfu:.1%}", f"bound by {trained.bound}"])


def _say_run(run: RunCost | None) -> list[str]:
    """Cost and time of a run."""
    if run is None or run.days_with_failures is None:
        return []
    usd = run.usd_with_failures
    return [*([f"{units.amount(usd)} USD"] if usd is not None else []), f"{run.days_with_failures:.4g} days"]


def _say_rent(trained: Trained, run: RunCost | None) -> list[str]:
    """Rent of a token and of an hour, where no run is asked for."""
    if run is not None or math.isnan(trained.usd_per_hour):
        return []
    return [f"{trained.usd_per_million_tokens:.4g} USD per million tokens", f"{trained.usd_per_hour:,.0f} USD/h"]


def _say_short(candidate: Candidate, goal: str) -> str:
    """A row by one measure."""
    trained, planned, run = candidate.trained, candidate.planned, candidate.run
    assert trained is not None and planned is not None
    name = f"{planned.gpus:,.0f} x {candidate.hardware.name}" + (f" ({candidate.framework})" if candidate.framework else "")
    shown: dict[str, Callable[[], str]] = {
        "cost": lambda: (
            f"{units.amount(run.usd_with_failures)} USD"
            if run and run.usd_with_failures
            else f"{trained.usd_per_million_tokens:.4g} USD per million tokens"
        ),
        "time": lambda: f"{run.days_with_failures:.4g} days" if run else f"{trained.tokens_per_second:,.0f} tokens/s",
        "energy": lambda: (
            f"{run.mwh_with_failures:,.4g} MWh"
            if run and run.mwh_with_failures
            else f"{trained.power / trained.tokens_per_second:.4g} J a token"
        ),
        "carbon": lambda: f"{run.carbon_with_failures:,.4g} t CO2e" if run else "",
    }
    return f"{name}, {shown[goal]()}"


def _say_certainty(best: Candidate, rows: list[Candidate], goal: str) -> list[str]:
    """The rows whose error bands overlap with the best one's, so that the order is not certain."""
    if goal == "gpus" or len(rows) < 2:
        return []
    ours, near = _width(best), _list_near(best, rows, goal)
    others = [row for row in rows if row is not best and math.isfinite(objective(row, goal))]
    unbanded = [row.label for row in others if ours is None or _width(row) is None]
    lines = []
    if near:
        lines.append(f"too close to call: the error bands of {', '.join(near)} overlap with that of {best.label}")
    if unbanded and ours is not None:
        lines.append(f"no error band, so no certain place: {', '.join(unbanded)}")
    elif ours is None:
        lines.append(f"too close to call: {best.label} has no error band")
    return lines


def _list_near(best: Candidate, rows: list[Candidate], goal: str) -> list[str]:
    """The rows whose error bands of a measure overlap with that of the best row by it."""
    ours = _width(best)
    if ours is None:
        return []
    banded = [(row, width) for row in rows if row is not best and (width := _width(row)) is not None]
    return [row.label for row, width in banded if objective(row, goal) / width <= objective(best, goal) * ours]


def _width(candidate: Candidate) -> float | None:
    """The factor from a row's value to the end of its error band; None where it has none."""
    trained = candidate.trained
    if trained is None or trained.tokens_per_second_high is None:
        return None
    return trained.tokens_per_second_high / trained.tokens_per_second
