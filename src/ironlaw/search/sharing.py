"""Whether the best plan shares its sequences over context ranks, and why: the fastest plan that does otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.search.answer import Choice, Found, kinds_of
from ironlaw.search.setting import Setting
from ironlaw.search.sizing import other_variants
from ironlaw.search.why import difference


def sharing(found: Found, best: Choice) -> dict[str, Any]:
    """Context ranks of the best plan and their method, against the fastest plan on the other side of cp 1 on as many accelerators."""
    settings = [s for s in found.settings if _alike(s, best.setting)]
    choices = [choice for setting in settings for choice in kinds_of(setting)]
    shared = best.values["cp"] > 1.0
    other = min((c for c in choices if (c.values["cp"] > 1.0) != shared), key=lambda c: c.seconds, default=None)
    methods: dict[str, float] = {}
    for choice in choices:
        if choice.values["cp"] > 1.0:
            name = method_of(choice)
            methods[name] = min(methods.get(name, np.inf), choice.seconds)
    made: dict[str, Any] = {"cp": int(best.values["cp"]), "method": method_of(best) if shared else None}
    made |= {"other_cp": None, "other_seconds": None, "why": [], "leanest_bytes": None, "capacity_bytes": best.setting.capacity}
    if other is not None:
        one, two = (e.place_of(row) for e, row in found.explained([best, other]))
        made |= {"other_cp": int(other.values["cp"]), "other_seconds": other.seconds, "why": difference(one, two)}
    else:
        lean = [_leanest(setting, not shared) for setting in settings]
        made["leanest_bytes"] = min((v for v in lean if np.isfinite(v)), default=None)
    return {**made, "methods": dict(sorted(methods.items(), key=lambda item: item[1]))}


def method_of(choice: Choice) -> str:
    """How the context ranks of a plan share attention."""
    return choice.setting.bound.asked.cp_method


def _alike(one: Setting, other: Setting) -> bool:
    """True for settings that differ in the method of context parallelism alone."""
    return one.on == other.on and one.gpus == other.gpus and other_variants(one) == other_variants(other)


def _leanest(setting: Setting, shared: bool) -> float:
    """Bytes of the leanest legal plan of a setting that shares its sequences, or that does not; infinity where there is none."""
    held = [s.device[(s.task.mesh.columns["cp"] > 1.0) == shared] for s in setting.sweeps]
    return min((float(v.min(initial=np.inf)) for v in held), default=np.inf)
