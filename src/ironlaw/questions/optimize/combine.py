"""Techniques together: the fastest, chosen one after the other, and the fewest that make a plan fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import combinations
from math import comb
from typing import Any

from ironlaw.questions.answer import Column
from ironlaw.questions.optimize.setting import Setting
from ironlaw.questions.optimize.trials import TRIED, Trial, Tried, change_setting, sort_trials, try_all, try_change

WORTH = 0.005  # gain in tokens/s below which no further technique is combined
MOST = 4  # techniques of a combination that makes a plan fit
EVALUATED = 40  # combinations of one size that are estimated, those that save most first
RANKED = 200_000  # combinations of one size that are ranked by what their techniques save alone
SHOWN = 3  # combinations of each kind
STEPS = (
    Column("step", "step", "1"), Column("profile", "bound"), Column("technique", "selected"), Column("lowers", "lowers"),
    Column("likely_gain", "likely gain", "%"), Column("likely_together", "likely total", "%"),
    Column("gain", "predicted gain", "%", on_page=False), Column("together", "predicted total", "%", on_page=False),
    Column("memory", "memory used", "%"),
    Column("seconds", "step time", "s"), Column("usd", "USD", "USD"), Column("joules", "energy", "J"),
    Column("kg_co2e", "CO2e", "kg", on_page=False),
)  # fmt: skip
COMBINED = tuple(column for column in TRIED if column.key not in ("clashes", "plan", "why_not", "moves", "dam", "options"))


@dataclass(frozen=True)
class Combined:
    """Combinations of the smallest number of techniques that fit."""

    unchanged: tuple[Trial, ...]  # the training stays as it is
    changed: tuple[Trial, ...]  # it becomes another one: adapters, quantised weights, optimizer, batch


def compose(setting: Setting, tried: Tried, most: int) -> list[dict[str, Any]]:
    """Apply the technique that gains most and fits, try all on the result, and repeat; the training stays as it is."""
    first, likely, steps = tried.base.tokens_per_second, 1.0, []
    for number in range(1, most + 1):
        best = next((trial for trial in tried.trials if trial.fits and not trial.trains and not trial.plan), None)
        if best is None or best.after is None or best.gain is None or best.gain < WORTH:
            break
        changed = change_setting(setting, best.change)
        if isinstance(changed, str):
            break
        setting = changed
        steps.append({
            "step": number,
            "profile": bound_of(tried),
            "technique": best.name,
            "lowers": best.lowers_most,
            "gain": best.gain,
            "likely_gain": best.likely_gain,
            "together": best.after.tokens_per_second / first - 1.0,
            "likely_together": (likely := likely * (1.0 + (best.likely_gain or 0.0))) - 1.0,
            "memory": best.after.device / best.after.capacity,
            "seconds": best.after.seconds,
            **{name: getattr(best.after, name) for name in ("usd", "joules", "kg_co2e")},
        })  # fmt: skip
        if number < most:
            tried = try_all(setting, anew=False)
    return steps


def bound_of(tried: Tried) -> str:
    """The roof with the largest share of the step."""
    return max(tried.base.shares, key=lambda roof: tried.base.shares[roof])


def fewest_that_fit(setting: Setting, tried: Tried) -> Combined:
    """The smallest combinations that fit, with the training as it is, and with another one; none of a kind that fits alone."""
    saving = [trial for trial in tried.trials if trial.after is not None and (trial.saved or 0.0) > 0.0 and _holds(trial)]
    same = [trial for trial in saving if not trial.trains]
    alone = any(trial.fits for trial in same)
    unchanged = () if alone else _smallest(setting, tried, same, MOST)
    if alone or any(trial.fits for trial in saving):
        return Combined(unchanged, ())
    size = len(unchanged[0].techniques) - 1 if unchanged else MOST  # more techniques and another training are no use
    return Combined(unchanged, _smallest(setting, tried, saving, size))


def _smallest(setting: Setting, tried: Tried, trials: Sequence[Trial], most: int) -> tuple[Trial, ...]:
    """The fastest of the combinations of the smallest size that fit."""
    for size in range(2, most + 1):
        found = [trial for trial in _evaluated(setting, tried, trials, size) if trial.fits]
        if found:
            return tuple(sort_trials(found, True)[:SHOWN])
    return ()


def _evaluated(setting: Setting, tried: Tried, trials: Sequence[Trial], size: int) -> Iterator[Trial]:
    """Estimates of the combinations of so many techniques that promise most memory."""
    promising = sorted(trials, key=lambda trial: -(trial.saved or 0.0))
    while comb(len(promising), size) > RANKED:
        promising.pop()

    def left(chosen: tuple[Trial, ...]) -> float:
        """The share of the plan's memory that is left if each technique keeps the share that it keeps alone."""
        share = 1.0
        for trial in chosen:
            assert trial.after is not None
            share *= trial.after.device / tried.base.device
        return share

    possible = (chosen for chosen in combinations(promising, size) if _go_together(chosen))
    for chosen in nsmallest(EVALUATED, possible, key=left):
        change = {name: value for trial in chosen for name, value in trial.change.items()}
        trial = try_change(setting, tried.base, tuple(t for one in chosen for t in one.techniques), change)
        if trial.after is not None:
            yield replace(trial, why_not="")


def _holds(trial: Trial) -> bool:
    """True where the technique is one of the plan that is held, or of that plan in another framework."""
    return not trial.plan or "framework" in trial.change


def _go_together(chosen: tuple[Trial, ...]) -> bool:
    """True where no two of them set the same option; a framework may be the same."""
    options = [name for trial in chosen for name in trial.change if name != "framework"]
    frameworks = {trial.change["framework"] for trial in chosen if "framework" in trial.change}
    return len(options) == len(set(options)) and len(frameworks) <= 1
