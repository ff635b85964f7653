"""What stands in the way where no plan answers: the nearest misses, and the one constraint to relax, by how much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ironlaw.errors import IronlawError
from ironlaw.question.asked import with_options
from ironlaw.search.answer import Found, run
from ironlaw.search.mesh import divisors
from ironlaw.search.question import MOST_GPUS, Question
from ironlaw.search.setting import Setting
from ironlaw.search.sizing import admits
from ironlaw.search.space import read_space

SECONDS = 5.0  # for each relaxation that needs a search of its own
NEAR = (0.0, 0.02, 0.05, 0.1, 0.25)  # how far from the asked number of accelerators a legal one is looked for
LARGER = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


def misses(found: Found) -> list[dict[str, Any]]:
    """The constraints of which relaxing one is enough, least relaxation first; each with what it is and what it must be."""
    feasible = [s for s in found.settings if np.isfinite(s.best)]
    if feasible:
        return sorted(_limits(found, feasible), key=lambda row: row["ratio"] if row["ratio"] is not None else np.inf)
    made = [*_memory(found), *_freed(found), *_other_counts(found), *_other_batch(found)]
    return sorted(made, key=lambda row: row["ratio"] if row["ratio"] is not None else np.inf)


def _limits(found: Found, feasible: list[Setting]) -> list[dict[str, Any]]:
    """Budget, deadline and rate: what each would have to be with the others kept."""
    q, made = found.question, []
    for name, limit, column, unit in (
        ("deadline", q.deadline, "time", "s"),
        ("budget", q.budget, "cost", "USD"),
        ("target_tokens_per_second", q.target, "rate", "token/s"),
    ):
        if limit is None:
            continue
        freed = {"deadline": replace(q, deadline=None), "budget": replace(q, budget=None)}.get(name) or replace(q, target=None)
        kept = [(float(w[column]), s) for s in feasible if bool(admits(freed, w := s.worth(s.best)))]
        if kept:
            needs, setting = (max if column == "rate" else min)(kept, key=lambda pair: pair[0])
            ratio = limit / needs if column == "rate" else needs / limit
            made.append(_miss(name, limit, needs, unit, ratio, setting))
    return made


def _miss(
    constraint: str, now: Any, needs: Any, unit: str, ratio: float | None, setting: Setting | None = None, note: str = ""
) -> dict[str, Any]:
    return {
        "constraint": constraint,
        "is": now,
        "needs": needs,
        "unit": unit,
        "ratio": ratio,
        "accelerator": setting.on if setting else None,
        "gpus": setting.gpus if setting else None,
        "note": note,
    }


def _memory(found: Found) -> list[dict[str, Any]]:
    """The leanest legal plan of every accelerator, and the memory it lacks."""
    made, seen = [], set()
    for setting in sorted((s for s in found.settings if np.isfinite(s.leanest)), key=lambda s: s.leanest / s.capacity):
        if setting.on not in seen:
            seen.add(setting.on)
            made.append(_miss("memory", setting.capacity, setting.leanest, "B", setting.leanest / setting.capacity, setting))
    return made


def _freed(found: Found) -> list[dict[str, Any]]:
    """Axes held or thinned out by the question that alone make it feasible when they are free again."""
    q = found.question
    full = read_space(None)
    made = []
    for axis, values in q.space.values.items():
        usual = full.of(axis)
        if usual is None or values == usual or (isinstance(usual, tuple) and set(usual) <= set(values)):
            continue
        space = replace(q.space, values={**q.space.values, axis: usual}, forbidden=tuple(r for r in q.space.forbidden if r.axis != axis))
        if (other := _feasible(replace(q, space=space), found.folders)) is not None:
            choice = other.first(1)[0]
            setting, best = choice.setting, choice.values.get(axis, choice.setting.variant.get(axis))
            held = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
            made.append(_miss(axis, held, best if isinstance(best, str) else f"{best:g}", "", None, setting, "free it"))
    return made


def _other_counts(found: Found) -> list[dict[str, Any]]:
    """The nearest number of accelerators that works, and the smallest multiple."""
    q = found.question
    if not found.settings or max(s.gpus for s in found.settings) >= MOST_GPUS:
        return []
    top = max(s.gpus for s in found.settings)
    node = found.settings[-1].node
    near = {np.floor(top * (1.0 + f * sign) / node) * node for f in NEAR for sign in (-1, 1)} | {2.0 ** round(np.log2(top))}
    for counts in (sorted((n for n in near if n >= 1), key=lambda n: abs(n - top)), [_power(top * f) for f in LARGER]):
        for count in counts:
            if 1 <= count <= MOST_GPUS and count != top:
                setting = _first_feasible(replace(q, gpus=(float(count),)), found.folders)
                if setting is not None:
                    return [_miss("gpus", top, float(count), "", float(max(count / top, top / count)), setting)]
    return []


def _other_batch(found: Found) -> list[dict[str, Any]]:
    """Where no mesh is legal at all, the nearest batch that some number of data-parallel ranks divides."""
    if not found.settings or any(np.isfinite(s.leanest) for s in found.settings):
        return []
    setting = max(found.settings, key=lambda s: s.gpus)
    batch = setting.batch
    ranks = sorted({setting.gpus / (tp * pp) for tp in (1.0, 2.0, 4.0, 8.0) for pp in divisors(int(setting.gpus)) if pp <= 128.0})
    near = {max(round(batch / dp), 1) * dp for dp in ranks if dp == int(dp) and dp <= MOST_GPUS}
    for wanted in sorted(near, key=lambda n: max(n / batch, batch / n))[:8]:
        asked = with_options(found.question.asked, {"global_batch_tokens": None, "global_batch_size": float(wanted)})
        other = _first_feasible(replace(found.question, asked=asked, gpus=(setting.gpus,)), found.folders)
        if other is not None:
            return [_miss("global_batch_size", batch, float(wanted), "", float(max(wanted / batch, batch / wanted)), other)]
    return []


def _power(number: float) -> float:
    """The next power of two."""
    return float(2.0 ** np.ceil(np.log2(number)))


def _feasible(question: Question, folders: tuple[str, ...]) -> Found | None:
    """A changed question searched for a moment, its limits of money and time left out; None where no plan fits."""
    try:
        found = run(replace(question, time_limit=SECONDS, budget=None, deadline=None, target=None), folders)
    except IronlawError:
        return None
    return found if any(np.isfinite(s.best) for s in found.settings) else None


def _first_feasible(question: Question, folders: tuple[str, ...]) -> Setting | None:
    """The fastest setting of a changed question that has a plan that fits; None where none has."""
    found = _feasible(question, folders)
    return None if found is None else min(found.settings, key=lambda s: s.best)
