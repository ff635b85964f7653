"""The run on one node less, or one tray, rack or slice: what is left after a failure that is not repaired.

Three answers: the same layout with fewer data-parallel ranks, whose batch shrinks with them; a batch near the given one that splits well
over what is left, where it gives more tokens per second; and the best plan with the same batch, on the next count that has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from ironlaw.estimate.answer.bands import likely_rate
from ironlaw.estimate.planner.choose import Bounds
from ironlaw.estimate.planner.evidence import preferred_plan
from ironlaw.estimate.planner.possible import any_legal
from ironlaw.estimate.planner.remedies import near_batch
from ironlaw.estimate.what_if.node_loss import KEPT, ranks_left, unit_of
from ironlaw.search.answer import Choice, SearchResult, to_choices
from ironlaw.search.near import plan_entry, settings_alike
from ironlaw.search.setting import Setting, with_row

MOST_TRIED = 64  # counts below the best plan's; one that nothing divides takes no search, and the first that has a plan is the answer


def one_less(result: SearchResult, best: Choice, share: float) -> dict[str, Any] | None:
    """The run without one unit of the accelerators, by the keys of the JSON; None where nothing is left.

    ``share`` is what the best plan takes of a scale-up domain.
    """
    unit = unit_of(best.setting.bound.cluster.node, best.setting.gpus, share)
    tried = list(islice(unit.counts, MOST_TRIED))
    if not tried:
        return None
    alike = settings_alike(result, best)
    why, plan = _same_batch(alike, tried)
    if plan is None and why == "divides":  # under the schedule and the overlap of the best plan; with others there may be one
        why, plan = _same_batch([replace(setting, planned=None) for setting in alike], tried)
    same_batch = None if plan is None else _entry(best, plan)
    same_layout = _same_layout(best, best.setting.gpus - tried[0])
    rate = max((entry["tokens_per_second"] for entry in (same_batch, same_layout) if entry), default=0.0)
    return {
        "unit": unit.name,
        "gpus": int(tried[0]),
        "why": why,
        "same_batch": same_batch,
        "same_layout": same_layout,
        "near_batch": _near_batch(best, tried[0], rate) if rate else None,
    }


def _same_batch(alike: Sequence[Setting], counts: Sequence[float]) -> tuple[str | None, Choice | None]:
    """The best plan on the first of these counts that has one, and why the first has none: ``divides`` or ``fits``."""
    why = None
    for gpus in counts:
        found, has_rows = _best_of([replace(setting, gpus=gpus, swept=None) for setting in alike])
        if found is not None:
            return why, found
        if has_rows:  # still fewer accelerators have less memory
            return why or "fits", None
        why = "divides"
    return why, None


def _same_layout(best: Choice, lost: float) -> dict[str, Any] | None:
    """The best plan's layout on what is left when as few data-parallel ranks as possible give up ``lost`` accelerators."""
    setting, values = best.setting, best.values
    ranks = float(values["dp_replicate"] * values["dp_shard"])
    left = ranks_left(ranks, setting.gpus, lost)
    if left < 1.0:
        return None
    row = setting.bound.asked.rows[0]._replace(global_batch_size=setting.batch * left / ranks)
    space = setting.question.space.narrowed({axis: float(values[axis]) for axis in KEPT})
    bound = setting.bound.replace(asked=setting.bound.asked.replace(rows=(row,), framework=setting.framework))
    smaller = Setting(replace(setting.question, space=space), bound, setting.gpus * left / ranks, setting.variant)
    plan, _ = _best_of([smaller])
    return None if plan is None else _entry(best, plan)


def _near_batch(best: Choice, gpus: float, rate: float) -> dict[str, Any] | None:
    """The best plan with a batch near the best plan's that gives more tokens per second on ``gpus`` than ``rate``; None without one."""
    setting = best.setting
    bound = with_row(setting.base, gpus, setting.batch)
    to_beat = setting.batch * setting.real_tokens / rate / setting.level  # seconds of a step at that rate, before own runs correct it
    near = near_batch(bound, bound.asked.rows[0], setting.question.space, Bounds(), to_beat, worth=1.0)
    if near is None:
        return None
    with_near_batch = replace(setting, base=with_row(setting.base, gpus, near.value), gpus=gpus, swept=None)
    plan, _ = _best_of([with_near_batch])
    entry = None if plan is None else _entry(best, plan)
    return entry if entry and entry["tokens_per_second"] > rate else None


def _best_of(settings: Sequence[Setting]) -> tuple[Choice | None, bool]:
    """The best plan of some settings where one fits, and whether any is legal."""
    tasks = [setting.task() for setting in settings]
    if not any(any_legal(task) for task in tasks):  # rows whose plans are all illegal cost the planner a search
        return None, False
    preferred = preferred_plan(tasks)
    if preferred is None:
        return None, False
    found = preferred.best
    if not found.plan.seconds.size or found.plan.device[0] > tasks[found.task].cluster.room:
        return None, True
    return to_choices(settings[found.task], found.plan)[0], True


def _entry(best: Choice, plan: Choice) -> dict[str, Any]:
    """A plan on fewer accelerators, and what is lost against the best."""
    setting = plan.setting
    now, then = (choice.setting.objectives(choice.seconds) for choice in (best, plan))
    run = setting.bound.asked.tokens is not None
    more = {name: float(then[name] - now[name]) if run and np.isfinite(now[name]) else np.nan for name in ("time", "cost")}
    return {
        **plan_entry(plan),
        "gpus": int(setting.gpus),
        "global_batch_size": int(setting.batch),
        "keeps_margin": plan.device <= setting.bound.room(setting.framework),
        "step_seconds": plan.seconds,
        "tokens_per_second": float(then["rate"]),
        "lost": 1.0 - float(then["rate"] / now["rate"]),
        "likely_lost": 1.0 - float(likely_rate(then["rate"] / now["rate"], setting.bound.folders, setting.gpus / best.setting.gpus)),
        "more_days": more["time"] / 86400.0 if np.isfinite(more["time"]) else None,
        "more_usd": more["cost"] if np.isfinite(more["cost"]) else None,
    }
