"""How many accelerators: which numbers meet the limits of a question, and the fewest and the most of them, to the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ironlaw.estimate.bind.batch import batch_range
from ironlaw.estimate.planner.best import UNFIT
from ironlaw.estimate.what_if.sizing import fewest_count, least_count, most_count
from ironlaw.search.question import Question
from ironlaw.search.setting import Setting, choice_of, with_row


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


def is_sized(question: Question) -> bool:
    """True where the search looks for one number of accelerators: the fewest for a limit, or the fastest within a budget."""
    if question.gpus[-1] != "range":
        return False
    if question.minimize == "gpus":
        return question.deadline is not None or question.target is not None
    return question.minimize == "time" and question.budget is not None


def sized(start: Setting, counts: Sequence[float], go_on: Callable[[int], bool]) -> list[Setting]:
    """The numbers of accelerators that were tried with the time of their best plan, that of the answer first.

    ``estimate.what_if.sizing`` says which are tried, as it does for every verb. Where none meets the limits the nearest to them is first.
    """
    tried: dict[float, Setting] = {}
    question, node = start.question, int(start.node)

    def at(gpus: float) -> Setting:
        if gpus not in tried:
            tried[gpus] = timed(start, gpus) if go_on(0) or not tried else replace(start, gpus=gpus, planned={})
        return tried[gpus]

    def reached(gpus: float) -> float:
        return times_reached(at(gpus))

    if question.minimize == "gpus":
        rate = max(question.target or 0.0, (question.asked.tokens or 0.0) / question.deadline if question.deadline else 0.0)
        asked = start.base.asked
        least = least_count(start.base.model, start.base.cluster.accelerator, rate, bool(asked.lora_rank or asked.frozen_layers))
        found = fewest_count([n for n in counts if n >= least] or list(counts[-1:]), node, reached)
    else:
        most_count(counts, node, lambda gpus: float(answers(at(gpus))))
        able = [setting for setting in tried.values() if answers(setting)]
        found = min(able, key=lambda s: (float(s.objectives(s.best)["time"]), s.gpus)).gpus if able else None
    if found is None:
        found = max(tried, key=reached if question.minimize == "gpus" else lambda gpus: -_usd(tried[gpus]))
    return [tried[found], *(setting for gpus, setting in sorted(tried.items()) if gpus != found)]


def times_reached(setting: Setting) -> float:
    """How many times a setting reaches the deadline and the rate of its question, the lower of the two; 0 where no plan fits."""
    if not np.isfinite(setting.best):
        return 0.0
    question, objectives = setting.question, setting.objectives(setting.best)
    reached = np.inf if question.target is None else float(objectives["rate"]) / question.target
    return reached if question.deadline is None else min(reached, question.deadline / float(objectives["time"]))


def _usd(setting: Setting) -> float:
    return float(setting.objectives(setting.best)["cost"]) if np.isfinite(setting.best) else np.inf


def timed(start: Setting, gpus: float) -> Setting:
    """A setting on a number of accelerators with the step time of its best plan, infinity where none fits."""
    choice = choice_of(start.opened, start.question, gpus)
    bound, opened = with_row(start.base, gpus, choice.row.global_batch_size), start.opened.asked.rows[0]._replace(gpus=gpus)
    setting = Setting(start.question, bound, gpus, start.variant, planned={})
    if opened.global_batch_size is None and setting.batch > batch_range(bound, opened).most:  # above the limit
        return setting
    if choice.seconds:
        setting.found = choice.seconds if choice.tier < UNFIT else np.inf
    else:  # the plan is given, or none is legal
        setting.run(lambda _: True)
    return setting


def sizes(
    question: Question, settings: Sequence[Setting], outlines: Callable[[Sequence[Setting]], list[dict[str, Any]]] | None = None
) -> dict[str, Any]:
    """Every number tried with the run of its fastest plan, and for each accelerator the fewest and the most that meet the limits.

    ``outlines`` gives what each number says besides: bands, bound and memory of its best plan.
    """
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
    shown = sorted(_of_best_method(settings), key=lambda s: (s.on, s.gpus))
    more = outlines(shown) if outlines else [{}] * len(shown)
    return {"by_gpus": [_size_row(s) | outline for s, outline in zip(shown, more, strict=True)], "ends": ends}


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
        if np.isfinite(setting.found) or (setting.swept and (setting.swept.task.mesh.rows or setting.swept.task.mesh.rejected)):
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
