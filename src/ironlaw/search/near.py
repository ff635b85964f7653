"""Plans near the best: the simplest, those that differ most from the best, what is free to choose, and how likely each is the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ironlaw.estimate.answer.bands import difference_width, likely_fastest, likely_ratio
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.planner.evidence import evidence_scores
from ironlaw.estimate.planner.grid import usable_choices
from ironlaw.estimate.planner.plans import SIMPLEST, effort_of
from ironlaw.estimate.planner.space import CHOICES, ENDS, SWITCHES
from ironlaw.plan import flags
from ironlaw.question.defaults import NEAR, NEAR_PLANS, OFFLOADS
from ironlaw.search.answer import Choice, SearchResult, to_choices
from ironlaw.search.setting import Setting
from ironlaw.search.sizing import meets_limits

# axes that decide how different two plans are to who runs them, beside those of the setting's variant
LAYOUT = ("tp", "pp", "cp", "ep", "etp", "micro_batch_size", "zero", "recompute", *flags("offload", OFFLOADS, ()))
HELD = (*LAYOUT, "vpp")  # of the best plan where one axis is moved alone; the others follow or are chosen anew
SHOWN = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "micro_batch_size", *CHOICES)


class Near(NamedTuple):
    """The plans within NEAR of the best plan's score (``planner.evidence``), on as many accelerators of its kind and in its framework."""

    plans: list[Choice]  # best score first
    distinct: list[Choice]  # of plans that are alike but for what is overlapped the best
    shown: list[Choice]  # the simplest, and those that differ most from the best and from each other; simplest first, without the best

    @property
    def simplest(self) -> Choice:
        """The simplest plan: the model split the fewest ways, then the order that decides between equal plans."""
        return simplest_of(self.plans[0], self.distinct)


def near_plans(result: SearchResult, best: Choice) -> Near:
    """The plans near the best that meet the question and keep as much memory free."""
    limit, plans = (1.0 + NEAR) * best.score, []
    for setting in settings_alike(result, best):
        opened = setting.swept.open(np.flatnonzero(setting.swept.settle(limit) <= limit), limit)
        meets = meets_limits(result.question, setting.objectives(opened.seconds))
        meets &= evidence_scores(setting.swept.task, opened) <= limit
        plans += to_choices(setting, opened.take(np.flatnonzero(meets)))
    plans.sort(key=lambda choice: (choice.score, effort(choice)))
    fastest: dict[Any, Choice] = {}
    for choice in plans:
        fastest.setdefault(tuple(item for item in values_of(choice).items() if not item[0].startswith("overlap_")), choice)
    distinct = list(fastest.values())
    return Near(plans, distinct, choose_different(best, distinct))


def settings_alike(result: SearchResult, best: Choice) -> list[Setting]:
    """The settings of the best plan's accelerator, count and framework whose best plan keeps as much memory free."""
    alike = [s for s in result.settings if comparable(s, best.setting) and s.swept]
    return [s for s in alike if np.isfinite(s.best) and s.swept.room == best.setting.swept.room]


def comparable(setting: Setting, other: Setting) -> bool:
    """True for settings whose step times have been seen to differ by the spread of plans of one job."""
    return (setting.on, setting.gpus, setting.framework) == (other.on, other.gpus, other.framework)


def values_of(choice: Choice) -> dict[str, Any]:
    """The axes of a plan, with those that need another job."""
    return {**choice.values, **choice.setting.variant}


def effort(choice: Choice) -> tuple[Any, ...]:
    """The order from the simplest plan; of schedules, dispatchers and the like the one that the space lists first."""
    v, listed = choice.values, choice.setting.question.space.of
    variant = (listed(axis).index(value) for axis, value in choice.setting.variant.items() if isinstance(listed(axis), tuple))
    return (v["tp"] * v["pp"] * v["cp"] * v["ep"] * v["etp"], *variant, *(effort_of(name, v[name]) for name in SIMPLEST))


def simplest_of(best: Choice, plans: Sequence[Choice]) -> Choice:
    """The simplest of some plans and the best, without those that are faster: the best was preferred to them for its measured values."""
    return min([best, *(choice for choice in plans if choice.seconds >= best.seconds)], key=effort)


def layout(choice: Choice) -> tuple[Any, ...]:
    """The values of a plan that are compared; interleaving is a schedule of its own."""
    variant = (value for name, value in choice.setting.variant.items() if name != "cp_method" or choice.values["cp"] > 1.0)
    return (*(choice.values[name] for name in LAYOUT), choice.values["vpp"] > 1.0, *variant)


def choose_different(best: Choice, plans: Sequence[Choice]) -> list[Choice]:
    """The simplest of some plans, then one by one the plan that differs in most axes from all chosen before; of equals the simplest."""
    ordered = sorted(plans, key=effort)
    simplest = simplest_of(best, plans)
    chosen = [best, *([] if simplest.same_as(best) else [simplest])]
    of_layout: dict[Any, Choice] = {}
    for choice in ordered:
        of_layout.setdefault(layout(choice), choice)

    def distance(one: tuple[Any, ...]) -> int:
        return min(sum(bool(a != b) for a, b in zip(one, layout(other), strict=False)) for other in chosen)

    while len(chosen) <= NEAR_PLANS:
        farthest = max(of_layout, key=distance)
        if not distance(farthest):
            break
        chosen.append(of_layout[farthest])
    return sorted(chosen[1:], key=effort)


def free_axes(best: Choice, near: Near, slope: float) -> list[dict[str, Any]]:
    """The values of every axis that was varied and occur near the best, and what each costs where the axis is moved alone.

    ``longer`` is the fraction of the step that the fastest such plan takes longer; None where another axis of HELD must move too. It is
    likely to be ``likely_longer``, by the ``slope`` of measured on predicted differences.
    Overlap, replicas, sequence parallelism and the layers of the end stages are chosen anew.
    """
    found = []
    ours, plans = values_of(best), [(values_of(choice), choice.seconds) for choice in near.plans]
    for axis in (*SHOWN, *best.setting.variant):
        if not _is_varied(best.setting, axis):
            continue
        held = [name for name in (*HELD, *best.setting.variant) if name != axis]
        costs: dict[Any, float | None] = {}
        for values, seconds in plans:  # fastest first
            alone = all(values[name] == ours[name] for name in held)
            if costs.get(values[axis]) is None:
                costs[values[axis]] = seconds / best.seconds - 1.0 if alone else None
        ordered = sorted(costs, key=lambda value: effort_of(axis, value))
        items = [{"value": as_plain(axis, value), **_longer(costs[value], slope)} for value in ordered]
        found.append({"axis": axis, "best": as_plain(axis, ours[axis]), "values": items})
    return found


def _longer(longer: float | None, slope: float) -> dict[str, float | None]:
    """How much longer a step is, as predicted and as is to be expected."""
    return {"longer": longer, "likely_longer": None if longer is None else float(likely_ratio(1.0 + longer, slope)) - 1.0}


def _is_varied(setting: Setting, axis: str) -> bool:
    """True where the search had several values of an axis to try."""
    task = setting.swept.task
    if axis in task.mesh.columns:
        return bool(np.ptp(task.mesh.columns[axis]) > 0.0)
    return axis not in CHOICES or len(usable_choices(task, task.mesh.columns).values[CHOICES.index(axis)]) > 1


def probabilities(choices: Sequence[Choice], best: tuple[Group, int]) -> list[float | None]:
    """How likely each of some plans is truly the fastest of them; the first is the best, whose place in an estimate is given.

    None for a plan on other accelerators, another number of them or in another framework: how far those are from their predicted ratio
    was not learned.
    """
    width = difference_width(*best)
    alike = [comparable(choice.setting, choices[0].setting) for choice in choices]
    if width is None:
        return [None] * len(choices)
    likely = iter(likely_fastest([choice.seconds for choice, same in zip(choices, alike, strict=True) if same], *width))
    return [float(next(likely)) if same else None for same in alike]


def near_entry(near: Near, best: Choice, shares: Sequence[float | None], slope: float) -> dict[str, Any]:
    """The plans near the best, what is free to choose and what is not, by the keys of the JSON.

    ``shares``: how likely each plan shown is truly faster than the best. ``slope``: of measured on predicted differences.
    """
    ours, axes = values_of(best), free_axes(best, near, slope)
    return {
        "within": NEAR,
        "count": len(near.plans),
        "without_overlap": len(near.distinct),
        "simplest": next((i for i, plan in enumerate(near.shown) if plan.same_as(near.simplest)), None),  # None: the best
        "plans": [
            {
                **plan_entry(plan),
                "step_seconds": plan.seconds,
                **_longer(plan.seconds / best.seconds - 1.0, slope),
                "faster_probability": share,
                "differs": [name for name, value in values_of(plan).items() if value != ours[name]],
            }
            for plan, share in zip(near.shown, shares, strict=True)
        ],
        "free": [row for row in axes if len(row["values"]) > 1],
        "fixed": {row["axis"]: row["best"] for row in axes if len(row["values"]) == 1},
    }


def plan_entry(choice: Choice) -> dict[str, Any]:
    """The axes and the memory of a plan that is listed without an estimate."""
    values = {name: as_plain(name, value) for name, value in choice.values.items() if name not in ENDS or value >= 0.0}
    return {"plan": values, "variant": choice.setting.variant, "framework": choice.setting.framework, "device_bytes": choice.device}


def as_plain(axis: str, value: Any) -> Any:
    """A value of an axis as JSON has it."""
    return bool(value) if axis in SWITCHES else whole_as_int(value)


def whole_as_int(value: Any) -> Any:
    """A whole number as int; a name unchanged."""
    return value if isinstance(value, str) else int(value) if float(value).is_integer() else float(value)
