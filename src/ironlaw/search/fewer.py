"""The best plan on one node less, or one tray, rack or slice: what a failure that is not repaired would leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ironlaw.estimate.placement import slices_of, tray_of
from ironlaw.estimate.planner.best import best_plan
from ironlaw.search.answer import Choice, SearchResult, to_choices
from ironlaw.search.near import settings_alike

MOST_TRIED = 64  # counts below the first


class Fewer(NamedTuple):
    """The best plan on fewer accelerators, with the batch of the best."""

    unit: str  # what is taken away
    first: float  # accelerators without one unit
    why: str | None  # no plan there: "divides", "fits"
    plan: Choice | None  # of the nearest count below that has one
    keeps_margin: bool


def one_less(result: SearchResult, best: Choice, share: float) -> Fewer | None:
    """The best plan on the accelerators that are left without one unit, or on the next count below that has a plan.

    ``share`` is what the best plan takes of a scale-up domain. None where nothing is left.
    """
    unit, counts = _counts(best, share)
    first, why = 0.0, None
    for tried, gpus in zip(range(MOST_TRIED), counts, strict=False):
        first = first or gpus
        settings = [replace(setting, gpus=gpus, swept=None) for setting in settings_alike(result, best)]
        tasks = [setting.task() for setting in settings]
        found = best_plan(tasks) if any(task.mesh.rows for task in tasks) else None
        fits = found is not None and bool(found.plan.seconds.size) and found.plan.device[0] <= tasks[found.task].cluster.room
        if found is not None and fits:
            return Fewer(unit, first, why, to_choices(settings[found.task], found.plan)[0], not found.tight)
        if not tried:
            why = "divides" if found is None else "fits"
        if found is not None:  # still fewer accelerators have less memory
            break
    return Fewer(unit, first, why, None, False) if first else None


def _counts(best: Choice, share: float) -> tuple[str, Iterator[float]]:
    """What is taken away, and the counts below the best plan's, largest first."""
    gpus, node = best.setting.gpus, best.setting.bound.cluster.node
    slices, tray = slices_of(node), tray_of(node)
    if slices and gpus <= share:
        return "slice", (float(chips) for chips in reversed(slices) if chips < gpus)
    if slices or (tray > 1.0 and gpus > share):
        return "slice" if slices else "rack", (float(n) for n in np.arange(gpus - share, 0.0, -share))
    name = "tray" if tray > 1.0 else "node"
    return name, (float(n) for n in np.arange(gpus - best.setting.node, 0.0, -best.setting.node))


def fewer_data(result: SearchResult, best: Choice, share: float) -> dict[str, Any] | None:
    """What is lost with one unit, by the keys of the JSON."""
    found = one_less(result, best, share)
    if found is None:
        return None
    data: dict[str, Any] = {"unit": found.unit, "asked_gpus": int(found.first), "why": found.why}
    if found.plan is None:
        return {**data, "gpus": None, "plan": None}
    plan, setting = found.plan, found.plan.setting
    now, then = (c.setting.objectives(c.seconds) for c in (best, plan))
    run = setting.bound.asked.tokens is not None
    more = {name: float(then[name] - now[name]) if run else np.nan for name in ("time", "cost")}
    return {
        **data,
        "gpus": int(setting.gpus),
        "plan": plan,
        "keeps_margin": found.keeps_margin,
        "step_seconds": plan.seconds,
        "tokens_per_second": float(then["rate"]),
        "lost": 1.0 - float(then["rate"] / now["rate"]),
        "more_days": more["time"] / 86400.0 if np.isfinite(more["time"]) else None,
        "more_usd": more["cost"] if np.isfinite(more["cost"]) else None,
    }
