"""Whether the best plan uses context parallelism, and why: it is compared with the fastest plan that does the opposite."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.search.answer import Choice, SearchResult, fastest_of_each_kind
from ironlaw.search.setting import Setting
from ironlaw.search.sizing import other_variants
from ironlaw.search.why import difference


def compare_context_parallel(result: SearchResult, best: Choice) -> dict[str, Any]:
    """The best plan's context ranks and method, against the fastest plan with cp 1 (or cp > 1) on as many accelerators."""
    settings = [s for s in result.settings if _differ_in_method_only(s, best.setting)]
    choices = [choice for setting in settings for choice in fastest_of_each_kind(setting)]
    used = best.values["cp"] > 1.0
    other = min((c for c in choices if (c.values["cp"] > 1.0) != used), key=lambda c: c.seconds, default=None)
    why: list[dict[str, Any]] = []
    leanest = None
    if other is not None:
        best_row, other_row = (estimate.place_of(row) for estimate, row in result.explained([best, other]))
        why = difference(best_row, other_row)
    else:
        leanest = min((v for v in (_leanest(s, not used) for s in settings) if np.isfinite(v)), default=None)
    return {
        "cp": int(best.values["cp"]),
        "method": method_of(best) if used else None,
        "other_cp": int(other.values["cp"]) if other else None,
        "other_seconds": other.seconds if other else None,
        "why": why,
        "leanest_bytes": leanest,
        "capacity_bytes": best.setting.capacity,
        "methods": _fastest_by_method(choices),
    }


def _fastest_by_method(choices: list[Choice]) -> dict[str, float]:
    """Step time of the fastest plan with cp > 1 of every method, fastest first."""
    fastest: dict[str, float] = {}
    for choice in choices:
        if choice.values["cp"] > 1.0:
            fastest[method_of(choice)] = min(fastest.get(method_of(choice), np.inf), choice.seconds)
    return dict(sorted(fastest.items(), key=lambda item: item[1]))


def method_of(choice: Choice) -> str:
    """The method of context parallelism of a plan."""
    return choice.setting.bound.asked.cp_method


def _differ_in_method_only(setting: Setting, other: Setting) -> bool:
    """True for settings that are equal but for the method of context parallelism."""
    return setting.on == other.on and setting.gpus == other.gpus and other_variants(setting) == other_variants(other)


def _leanest(setting: Setting, with_cp: bool) -> float:
    """Bytes of the legal plan with cp > 1 (or with cp 1) that needs least memory; infinity where there is none."""
    swept = setting.swept
    return float(swept.device[(swept.task.mesh.columns["cp"] > 1.0) == with_cp].min(initial=np.inf)) if swept else np.inf
