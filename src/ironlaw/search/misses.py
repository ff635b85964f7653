"""Why no plan meets a question: the limits that are enough to change on their own, and the values they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ironlaw.divisors import divisors
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.reproduce import as_option
from ironlaw.estimate.planner.possible import any_fits
from ironlaw.estimate.planner.space import read_space
from ironlaw.estimate.what_if.near_counts import counts_that_work
from ironlaw.estimate.what_if.offers import OFFLOADED, describe_offer, narrower_weights, offer_of
from ironlaw.plan import flags
from ironlaw.question.asked import with_options
from ironlaw.question.defaults import OFFLOADS
from ironlaw.question.words import offload
from ironlaw.search.answer import SearchResult, estimate_of, run
from ironlaw.search.question import MOST_GPUS, Question
from ironlaw.search.setting import Setting
from ironlaw.search.sizing import meets_limits

SECONDS = 5.0  # for each change that needs a separate search


def misses(result: SearchResult) -> list[dict[str, Any]]:
    """The limits that are each enough to change, with the value they have and the value they need; the smallest change first."""
    feasible = [s for s in result.settings if np.isfinite(s.best)]
    if feasible:
        rows = _missed_limits(result.question, feasible)
    else:
        rows = [*_missing_memory(result), *_offers(result), *_fixed_axes(result), *_other_numbers(result), *_other_batch(result)]
    return sorted(rows, key=lambda row: row["ratio"] if row["ratio"] is not None else np.inf)


def _missed_limits(question: Question, feasible: list[Setting]) -> list[dict[str, Any]]:
    """Budget, deadline and rate: the value that each needs with the others unchanged."""
    rows = []
    for name, limit, objective, unit in (
        ("deadline", question.deadline, "time", "s"),
        ("budget", question.budget, "cost", "USD"),
        ("target_tokens_per_second", question.target, "rate", "token/s"),
    ):
        if limit is None:
            continue
        relaxed = {"deadline": replace(question, deadline=None), "budget": replace(question, budget=None)}.get(name)
        relaxed = relaxed or replace(question, target=None)
        reached = [(float(v[objective]), s) for s in feasible if bool(meets_limits(relaxed, v := s.objectives(s.best)))]
        if reached:
            needs, setting = (max if objective == "rate" else min)(reached, key=lambda pair: pair[0])
            ratio = limit / needs if objective == "rate" else needs / limit
            rows.append(_make_miss(name, limit, needs, unit, ratio, setting))
    return rows


def _make_miss(
    constraint: str, now: Any, needs: Any, unit: str, ratio: float | None, setting: Setting | None = None, note: str = ""
) -> dict[str, Any]:
    """A row for one limit: what it is now, and what it would have to be."""
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


def _missing_memory(result: SearchResult) -> list[dict[str, Any]]:
    """For every accelerator the legal plan that needs least memory, and how much it needs."""
    leanest: dict[str, Setting] = {}
    for setting in sorted((s for s in result.settings if np.isfinite(s.leanest)), key=lambda s: s.leanest / s.capacity):
        leanest.setdefault(setting.on, setting)
    return [_make_miss("memory", s.capacity, s.leanest, "B", s.leanest / s.capacity, s) for s in leanest.values()]


def _offers(result: SearchResult) -> list[dict[str, Any]]:
    """Weights in fewer bytes, and the least to move to the host, with which a plan fits; how much longer it takes is in the note."""
    q, legal = result.question, [s for s in result.settings if np.isfinite(s.leanest)]
    if not legal:
        return []
    narrower = [
        ({"weights_dtype": name}, replace(q, asked=with_options(q.asked, {"weights_dtype": name})))
        for name in narrower_weights(q.asked, legal[0].job)
    ]
    opened = not any(q.space.of(name) for name in flags("offload", OFFLOADS, ()))
    moved = []
    for names in OFFLOADED if opened else ():
        space = q.space.narrowed(flags("offload", OFFLOADS, offload(names, "--offload")))
        moved.append(({"offload": names}, replace(q, space=space)))
    return [*_first_offer(narrower, result.folders), *_first_offer(moved, result.folders)]


def _first_offer(changed: Sequence[tuple[dict[str, Any], Question]], folders: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The first of some changed questions that has a plan that fits."""
    for options, question in changed:
        if (feasible := _search_feasible(question, folders)) is not None:
            choice = feasible.first(1)[0]
            offer = offer_of(estimate_of([choice], folders), options)
            ((name, value),) = options.items()
            yield _make_miss(name, "", as_option(name, value), "", offer.times, choice.setting, describe_offer(offer))
            return


def _fixed_axes(result: SearchResult) -> list[dict[str, Any]]:
    """Axes whose values the question limits, where a plan fits as soon as one of them has its usual values again."""
    q = result.question
    usual_space = read_space(None)
    rows = []
    for axis, values in q.space.values.items():
        usual = usual_space.of(axis)
        if usual is None or values == usual or (isinstance(usual, tuple) and set(usual) <= set(values)):
            continue
        space = replace(q.space, values={**q.space.values, axis: usual}, forbidden=tuple(r for r in q.space.forbidden if r.axis != axis))
        if (feasible := _search_feasible(replace(q, space=space), result.folders)) is not None:
            choice = feasible.first(1)[0]
            setting, best = choice.setting, choice.values.get(axis, choice.setting.variant.get(axis))
            limited = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
            rows.append(_make_miss(axis, limited, best if isinstance(best, str) else f"{best:g}", "", None, setting, "free it"))
    return rows


def _other_numbers(result: SearchResult) -> list[dict[str, Any]]:
    """The nearest numbers of accelerators below and above the asked one that have a plan that fits."""
    q = result.question
    if not result.settings or max(s.gpus for s in result.settings) >= MOST_GPUS:
        return []
    top = max(s.gpus for s in result.settings)
    alike = [s for s in result.settings if s.gpus == top]

    def setting_on(count: float) -> tuple[Setting | None, bool]:
        """A setting with so many accelerators that has a plan that fits, and whether any is legal."""
        legal = False
        for setting in alike:
            task = replace(setting, gpus=count, swept=None).task()
            if task.mesh.rows:
                legal = True
                if any_fits(task):
                    return setting, True
        return None, legal

    def works(count: float) -> bool | None:
        setting, legal = setting_on(count)
        return setting is not None if legal else None

    unit = int(np.prod([q.space.fixed(axis) or 1.0 for axis in ("tp", "pp", "cp")]))
    counts = counts_that_work(works, top, unit, int(alike[-1].node), any(np.isfinite(s.leanest) for s in alike))
    return [_make_miss("gpus", top, count, "", float(max(count / top, top / count)), setting_on(count)[0]) for count in counts]


def _other_batch(result: SearchResult) -> list[dict[str, Any]]:
    """Where no mesh is legal, the nearest batch that some number of data-parallel ranks divides."""
    if not result.settings or any(np.isfinite(s.leanest) for s in result.settings):
        return []
    setting = max(result.settings, key=lambda s: s.gpus)
    batch = setting.batch
    ranks = sorted({setting.gpus / (tp * pp) for tp in (1.0, 2.0, 4.0, 8.0) for pp in divisors(int(setting.gpus)) if pp <= 128.0})
    near = {max(round(batch / dp), 1) * dp for dp in ranks if dp == int(dp) and dp <= MOST_GPUS}
    for wanted in sorted(near, key=lambda n: max(n / batch, batch / n))[:8]:
        asked = with_options(result.question.asked, {"global_batch_tokens": None, "global_batch_size": float(wanted)})
        feasible = _fastest_feasible(replace(result.question, asked=asked, gpus=(setting.gpus,)), result.folders)
        if feasible is not None:
            return [_make_miss("global_batch_size", batch, float(wanted), "", float(max(wanted / batch, batch / wanted)), feasible)]
    return []


def _search_feasible(question: Question, folders: tuple[str, ...]) -> SearchResult | None:
    """A short search of a changed question without its limits of money and time; None where no plan fits."""
    try:
        result = run(replace(question, time_limit=SECONDS, budget=None, deadline=None, target=None), folders)
    except IronlawError:
        return None
    return result if any(np.isfinite(s.best) for s in result.settings) else None


def _fastest_feasible(question: Question, folders: tuple[str, ...]) -> Setting | None:
    """The fastest setting of a changed question that has a plan that fits; None if there is none."""
    result = _search_feasible(question, folders)
    return None if result is None else min(result.settings, key=lambda s: s.best)
