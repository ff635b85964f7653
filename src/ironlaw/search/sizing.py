"""How many accelerators: which numbers meet the limits of a question, and the fewest and the most of them, to the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ironlaw.search.question import Question
from ironlaw.search.setting import Setting, on_count


def meets_limits(question: Question, objectives: Mapping[str, Any]) -> Any:
    """True where a plan meets the budget, the deadline and the rate of a question."""
    meets = np.isfinite(objectives["time"])
    for limit, name in ((question.budget, "cost"), (question.deadline, "time")):
        if limit is not None:
            meets = meets & (objectives[name] <= limit)
    return meets if question.target is None else meets & (objectives["rate"] >= question.target)


def answers(setting: Setting) -> bool:
    """True where the fastest plan of a setting fits and meets the limits of the question."""
    return bool(np.isfinite(setting.best)) and bool(meets_limits(setting.question, setting.objectives(setting.best)))


def refine_range(question: Question, settings: Sequence[Setting], go_on: Callable[[int], bool]) -> list[Setting]:
    """New settings where the answer changes between two numbers of a range: the gap is halved until it is one node."""
    if question.gpus[-1] != "range" or not any((question.budget, question.deadline, question.target)):
        return []
    by_bound: dict[object, list[Setting]] = {}
    for setting in settings:
        by_bound.setdefault((setting.on, *setting.variant.items()), []).append(setting)
    return [
        new
        for same_bound in by_bound.values()
        for low, high in pairwise(sorted(same_bound, key=lambda s: s.gpus))
        if answers(low) != answers(high)
        for new in _halve(low, high, go_on)
    ]


def _halve(low: Setting, high: Setting, go_on: Callable[[int], bool]) -> list[Setting]:
    """Settings that halve the gap between two numbers with different answers, in whole nodes."""
    new: list[Setting] = []
    node = low.node
    while True:
        middle = np.floor((low.gpus + high.gpus) / 2.0 / node) * node
        if not low.gpus < middle < high.gpus:
            return new
        setting = on_count(low, float(middle))
        if not setting.run(go_on):
            return new
        new.append(setting)
        low, high = (setting, high) if answers(setting) == answers(low) else (low, setting)


def sizes(question: Question, settings: Sequence[Setting]) -> dict[str, Any]:
    """Every number tried with the run of its fastest plan, and for each accelerator the fewest and the most that meet the limits."""
    ends = []
    for on in dict.fromkeys(s.on for s in settings):
        same_kind = [s for s in settings if s.on == on]
        enough = [s.gpus for s in same_kind if answers(s)]
        ends.append({
            "accelerator": on,
            "min_gpus": min(enough, default=None),
            "max_gpus": max(enough, default=None),
            "affordable_gpus": affordable(question, same_kind[0]),
        })  # fmt: skip
    return {"by_gpus": [_size_row(s) for s in sorted(_of_best_method(settings), key=lambda s: (s.on, s.gpus))], "ends": ends}


def _size_row(setting: Setting) -> dict[str, Any]:
    """One number of accelerators with the run of its fastest plan."""
    fits, with_run = bool(np.isfinite(setting.best)), setting.bound.asked.tokens is not None
    objectives = {name: float(value) for name, value in setting.objectives(setting.best).items()} if fits else {}
    return {
        "accelerator": setting.on,
        **other_variants(setting),
        "gpus": setting.gpus,
        "step_seconds": setting.best if fits else None,
        "tokens_per_second": objectives.get("rate"),
        "days": _finite(objectives.get("time", np.inf) / 86400.0) if with_run else None,
        "usd": _finite(objectives.get("cost", np.inf)) if with_run else None,
        "fits": fits,
        "answers": answers(setting),
    }


def other_variants(setting: Setting) -> dict[str, Any]:
    """The variant of a setting without its method of context parallelism."""
    return {name: value for name, value in setting.variant.items() if name != "cp_method"}


def _of_best_method(settings: Sequence[Setting]) -> list[Setting]:
    """The fastest of the settings that differ in the method of context parallelism only; none that the search did not reach."""
    best: dict[Any, Setting] = {}
    for setting in settings:
        if setting.swept and (setting.swept.task.mesh.rows or setting.swept.task.mesh.rejected):
            key = (setting.on, setting.gpus, *other_variants(setting).values())
            if key not in best or setting.best < best[key].best:
                best[key] = setting
    return list(best.values())


def affordable(question: Question, setting: Setting) -> float | None:
    """Accelerators that the budget pays for until the deadline, however fast they are: ``budget / (price deadline)``."""
    if question.budget is None or question.deadline is None:
        return None
    objectives = setting.objectives(np.array([1.0]))
    per_second = float(objectives["cost"][0] / (objectives["time"][0] * setting.gpus))
    return float(np.floor(question.budget / (per_second * question.deadline) + 1e-9)) if per_second > 0 else None


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
