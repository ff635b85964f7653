"""Why one plan is faster than another, term by term; and whether the best plan uses context parallelism, and why."""

from __future__ import annotations

from math import fsum
from typing import Any

import numpy as np

from ironlaw.estimate.answer.as_data import stage_name
from ironlaw.estimate.answer.bands import gain_slope, likely_ratio
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.step.step import MICRO_BATCHES
from ironlaw.search.answer import Choice, SearchResult, best_of_each_kind
from ironlaw.search.setting import Setting
from ironlaw.search.sizing import other_variants
from ironlaw.terms import Term, scalar

SMALLEST = 0.001  # of the step: a smaller difference is left out
REST = "all else"  # the terms that are left out, together


def step_terms(group: Group, at: int, open_layers: bool = True) -> dict[str, float]:
    """Seconds of a step by term: the parts of layers by name, then the other terms of the step. They sum to the step.

    ``open_layers``: false for layers of a kind as one term.
    """
    seconds: dict[str, float] = {}

    def add(term: Term, factor: float, depth: int) -> None:
        layers = open_layers and isinstance(term.key, Kind) and term.key.name.endswith("layers")
        if depth < 3 and term.parts and (depth == 0 or term.key == MICRO_BATCHES or layers):
            inner = factor * scalar(term.times, at)
            for part in term.parts:
                add(part, inner, depth + 1)
        else:
            seconds[term.name] = seconds.get(term.name, 0.0) + scalar(term.value, at) * factor

    add(group.step.tree, 1.0, 0)
    return seconds


def difference(base: tuple[Group, int], other: tuple[Group, int]) -> list[dict[str, Any]]:
    """Seconds that ``other`` takes longer (above 0) or shorter than ``one``, largest first, and the rest: they sum to the difference.

    A step has the terms of its slowest stage. Where the slowest stages differ, all layers of a kind are one term: the stage with the
    embedding or the loss has fewer layers, so parts of layers alone would not explain the difference.
    """
    same_stage = stage_name(*base) == stage_name(*other)
    first, second = (step_terms(*place, open_layers=same_stage) for place in (base, other))
    whole = fsum(first.values())
    rows = [(name, second.get(name, 0.0) - first.get(name, 0.0)) for name in {**first, **second}]
    large = sorted((row for row in rows if abs(row[1]) > SMALLEST * whole), key=lambda row: -abs(row[1]))
    rest = fsum(second.values()) - whole - fsum(seconds for _, seconds in large)
    listed = [*large, *([(REST, rest)] if abs(rest) > SMALLEST * whole else [])]
    return [{"term": name, "seconds": seconds} for name, seconds in listed]


def shortest_why(rows: list[dict[str, Any]], least: int) -> list[dict[str, Any]]:
    """The first ``least`` rows of a difference or more, and the rest as one row, so that they say which plan is slower.

    >>> rows = [{"term": name, "seconds": s} for name, s in (("a", -5.0), ("b", 3.0), ("c", 1.5), ("d", 1.0), ("e", 0.2))]
    >>> [(row["term"], round(row["seconds"], 9)) for row in shortest_why(rows, 3)]
    [('a', -5.0), ('b', 3.0), ('c', 1.5), ('all else', 1.2)]
    """
    if len(rows) <= least + 1:
        return rows
    rest = fsum(row["seconds"] for row in rows[least:])
    return [*rows[:least], {"term": REST, "seconds": rest}]


def compare_context_parallel(result: SearchResult, best: Choice) -> dict[str, Any]:
    """The best plan's context ranks and method, against the fastest plan with cp 1 (or cp > 1) on as many accelerators."""
    settings = [s for s in result.settings if _differ_in_method_only(s, best.setting)]
    choices = [choice for setting in settings for choice in best_of_each_kind(setting)]
    uses_cp = best.values["cp"] > 1.0
    opposite = min((c for c in choices if (c.values["cp"] > 1.0) != uses_cp), key=lambda c: c.score, default=None)
    why: list[dict[str, Any]] = []
    leanest = None
    if opposite is not None:
        best_row, other_row = (estimate.place_of(row) for estimate, row in result.explained([best, opposite]))
        why = difference(best_row, other_row)
    else:
        leanest = min((v for v in (_leanest(s, not uses_cp) for s in settings) if np.isfinite(v)), default=None)
    return {
        "cp": int(best.values["cp"]),
        "method": method_of(best) if uses_cp else None,
        "other_cp": int(opposite.values["cp"]) if opposite else None,
        "other_seconds": opposite.seconds if opposite else None,
        "likely_longer": float(likely_ratio(opposite.seconds / best.seconds, gain_slope(result.folders)) - 1.0) if opposite else None,
        "why": why,
        "leanest_bytes": leanest,
        "capacity_bytes": best.setting.capacity,
        "methods": _fastest_by_method(choices),
    }


def _fastest_by_method(choices: list[Choice]) -> dict[str, float]:
    """Step time of the best plan with cp > 1 of every method, fastest first."""
    fastest: dict[str, float] = {}
    for choice in sorted(choices, key=lambda choice: choice.score):
        if choice.values["cp"] > 1.0:
            fastest.setdefault(method_of(choice), choice.seconds)
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
    return swept.leanest((swept.task.mesh.columns["cp"] > 1.0) == with_cp) if swept else np.inf
