"""How many accelerators: which counts keep to what a question asks, and the fewest and the most of them, to the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ironlaw.search.question import Question
from ironlaw.search.setting import Setting


def admits(question: Question, worth: Mapping[str, Any]) -> Any:
    """True where a plan keeps to the budget, the deadline and the rate of a question."""
    kept = np.isfinite(worth["time"])
    for limit, name in ((question.budget, "cost"), (question.deadline, "time")):
        if limit is not None:
            kept = kept & (worth[name] <= limit)
    return kept if question.target is None else kept & (worth["rate"] >= question.target)


def answers(setting: Setting) -> bool:
    """True where the fastest plan of a setting fits and keeps to the question."""
    return bool(np.isfinite(setting.best)) and bool(admits(setting.question, setting.worth(setting.best)))


def narrowed(question: Question, settings: Sequence[Setting], go_on: Callable[[int, int], bool]) -> list[Setting]:
    """New settings between counts of a range where the answer changes: halved until the two are one node apart."""
    if question.gpus[-1] != "range" or not any((question.budget, question.deadline, question.target)):
        return []
    made: list[Setting] = []
    lines: dict[int, list[Setting]] = {}
    for setting in settings:
        lines.setdefault(id(setting.bound), []).append(setting)
    for line in lines.values():
        ordered = sorted(line, key=lambda s: s.gpus)
        for low, high in pairwise(ordered):
            if answers(low) != answers(high):
                made += _between(low, high, go_on)
    return made


def _between(low: Setting, high: Setting, go_on: Callable[[int, int], bool]) -> list[Setting]:
    """Settings that halve the gap between two counts of unlike answer, in whole nodes."""
    made: list[Setting] = []
    node = low.node
    while True:
        middle = np.floor((low.gpus + high.gpus) / 2.0 / node) * node
        if not low.gpus < middle < high.gpus:
            return made
        setting = Setting(low.question, low.bound, float(middle), low.variant)
        if not setting.run(go_on):
            return made
        made.append(setting)
        low, high = (setting, high) if answers(setting) == answers(low) else (low, setting)


def sizes(question: Question, settings: Sequence[Setting]) -> dict[str, Any]:
    """Every count tried with the run of its fastest plan, and by accelerator the fewest and the most that answer."""
    rows, ends = [], []
    for setting in sorted(_of_best_method(settings), key=lambda s: (s.on, s.gpus)):
        best = setting.best
        worth = {k: float(v) for k, v in setting.worth(best).items()} if np.isfinite(best) else {}
        rows.append({
            "accelerator": setting.on,
            **other_variants(setting),
            "gpus": setting.gpus,
            "step_seconds": best if np.isfinite(best) else None,
            "tokens_per_second": worth.get("rate"),
            "days": _finite(worth.get("time", np.inf) / 86400.0) if setting.bound.asked.tokens is not None else None,
            "usd": _finite(worth.get("cost", np.inf)) if setting.bound.asked.tokens is not None else None,
            "fits": bool(np.isfinite(best)),
            "answers": answers(setting),
        })  # fmt: skip
    for on in dict.fromkeys(s.on for s in settings):
        counts = [s.gpus for s in settings if s.on == on and answers(s)]
        ends.append({
            "accelerator": on,
            "min_gpus": min(counts, default=None),
            "max_gpus": max(counts, default=None),
            "affordable_gpus": affordable(question, next(s for s in settings if s.on == on)),
        })  # fmt: skip
    return {"by_gpus": rows, "ends": ends}


def other_variants(setting: Setting) -> dict[str, Any]:
    """What else than the method of context parallelism makes a setting's plans those of another job or cluster."""
    return {name: value for name, value in setting.variant.items() if name != "cp_method"}


def _of_best_method(settings: Sequence[Setting]) -> list[Setting]:
    """Of settings that differ in the method of context parallelism alone the fastest; none the search did not reach."""
    best: dict[Any, Setting] = {}
    for setting in settings:
        if setting.sweeps or setting.rejected:
            key = (setting.on, setting.gpus, *other_variants(setting).values())
            if key not in best or setting.best < best[key].best:
                best[key] = setting
    return list(best.values())


def affordable(question: Question, setting: Setting) -> float | None:
    """Accelerators the budget holds for the whole time to the deadline, however fast they are: ``budget / (price deadline)``."""
    if question.budget is None or question.deadline is None:
        return None
    worth = setting.worth(np.array([1.0]))
    per_second = float(worth["cost"][0] / (worth["time"][0] * setting.gpus))
    return float(np.floor(question.budget / (per_second * question.deadline) + 1e-9)) if per_second > 0 else None


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
