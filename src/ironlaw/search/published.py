"""A published plan against the best plan of a search for the same job on the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ironlaw.divisors import divisors
from ironlaw.estimate.planner.space import Space, axis_value
from ironlaw.question.defaults import OFFLOADS, OVERLAPS
from ironlaw.search.answer import Choice, SearchResult, run
from ironlaw.search.question import read_question
from ironlaw.search.why import difference
from ironlaw.terms import scalar

TERMS = 4  # shown of a difference
NARROW = {"dp_replicate": (1.0,), "vpp": (1.0, 2.0, 4.0, 8.0, 12.0), "micro_batch_size": (1.0, 2.0, 4.0)}
NARROWED = "for mixtures, whose expert axes make the space large: one replica, vpp of 1, 2, 4, 8, 12 and micro-batches of 1, 2, 4"


def compare(case: Mapping[str, Any]) -> dict[str, Any]:
    """One published plan against three searches: the default space, that space with memory to spare, and what its stack could vary.

    ``case``: ``question`` (options without a plan), ``plan``, ``place`` (its group and row), ``measured_s``, ``fits``, ``axes`` and
    ``even`` (what the stack could vary). A ratio is the published plan's predicted time over that of the best plan of a search.
    """
    group, at = case["place"]
    seconds = scalar(group.step.tree.value, at)
    question = read_question(case["question"])
    searches = [run(replace(question, space=_whole_space(question.space, group, case["plan"])))]
    cautious, best = _pick_best(searches), _pick_fitting(searches)
    layers = {"offload_layers": case["plan"]["offload_layers"]} if "offload_layers" in case["plan"] else {}
    of_stack = read_question({**case["question"], **layers})
    own_searches = [run(replace(of_stack, space=space)) for space in _spaces_of_stack(question.space, case)]
    best_of_stack = _pick_fitting(own_searches)
    return {name: case[name] for name in ("id", "model", "on", "gpus", "plan", "measured_s", "fits", "stack")} | {
        "published_s": seconds,
        "published_bytes": scalar(group.memory.device, at),
        "of_bytes": searches[0].settings[0].capacity,
        "best": _choice_data(best),
        "cautious": _choice_data(cautious),
        "own": _choice_data(best_of_stack),
        "ratio": _ratio(seconds, best),
        "ratio_cautious": _ratio(seconds, cautious),
        "ratio_own": _ratio(seconds, best_of_stack),
        "terms": _compare_terms(case["place"], searches, best),
        "terms_own": _compare_terms(case["place"], own_searches, best_of_stack),
        "narrowed": NARROWED,
        "plans": sum(int(s.space["legal"]) for s in (*searches, *own_searches)),
    }


def _pick_best(searches: list[SearchResult]) -> Choice | None:
    """The best plan of some searches."""
    return min((choice for s in searches for choice in s.first(1)), key=lambda choice: choice.seconds, default=None)


def _pick_fitting(searches: list[SearchResult]) -> Choice | None:
    """The fastest plan of some searches that fits, whether it leaves memory free or not, as published plans do."""
    return min((s.fastest_that_fits(choice) for s in searches for choice in s.first(1)), key=lambda choice: choice.seconds, default=None)


def _ratio(seconds: float, choice: Choice | None) -> float | None:
    return seconds / choice.seconds if choice else None


def _choice_data(choice: Choice | None) -> dict[str, Any] | None:
    """A plan of a search as plain data."""
    if choice is None:
        return None
    plan = {name: value if isinstance(value, str) else float(value) for name, value in choice.values.items() if name != "gpus"}
    return {"seconds": choice.seconds, "bytes": choice.device, "plan": plan}


def _compare_terms(place: tuple[Any, int], searches: list[SearchResult], best: Choice | None) -> list[dict[str, Any]]:
    """The terms in which the published plan takes longer (above 0) or shorter than the best, the largest first."""
    if best is None:
        return []
    estimate, row = searches[0].explained([best])[0]
    return difference(estimate.place_of(row), place)[:TERMS]


def _whole_space(space: Space, group: Any, plan: Mapping[str, Any]) -> Space:
    """The default space; for mixtures a smaller one that contains the published plan's values."""
    if not group.job.model.num_experts:
        return space
    narrow = {axis: tuple(dict.fromkeys((*values, plan.get(axis, 1.0)))) for axis, values in NARROW.items()}
    return replace(space, values={**space.values, **narrow})


def _spaces_of_stack(space: Space, case: Mapping[str, Any]) -> list[Space]:
    """The spaces that the published plan's stack could search; one for every pp that divides the layers where it splits them evenly."""
    group, plan = case["place"][0], case["plan"]
    whole = replace(space, values=_values_of_stack(_whole_space(space, group, plan), case))
    layers = group.job.model.num_hidden_layers + (2.0 if case["question"].get("count_embedding") else 0.0)
    if not case["even"] or layers % (plan.get("pp", 1.0) * plan.get("vpp", 1.0)):
        return [whole]
    spaces = []
    for pp in divisors(int(layers)) if whole.values.get("pp") == "all" else whole.values["pp"]:
        chunks = tuple(v for v in whole.values["vpp"] if layers % (pp * v) == 0.0)
        if case["gpus"] % pp == 0 and chunks:
            spaces.append(replace(whole, values={**whole.values, "pp": (pp,), "vpp": chunks}))
    return spaces


def _values_of_stack(space: Space, case: Mapping[str, Any]) -> dict[str, Any]:
    """Values by axis: the values of the stack, the value of the plan, and only switches that the plan shows; stages follow the rule."""
    group, plan = case["place"][0], case["plan"]
    values = {axis: usual for axis, usual in space.values.items() if axis not in ("last_stage_layers", "cp_method")}
    for axis, listed in case["axes"].items():
        values[axis] = () if listed == "row" else tuple(axis_value(axis, item, axis) for item in listed)
    overlap = plan["overlap"] if plan.get("overlap") is not None else group.job.framework.overlap
    offload = plan.get("offload") or ()
    values |= {f"overlap_{name.replace('-', '_')}": (float(name in overlap),) for name in OVERLAPS}
    values |= {f"offload_{name}": tuple({0.0, float(name in offload)}) for name in OFFLOADS}
    if plan.get("tp", 1.0) > 1.0:
        values["sp"] = (scalar(group.plan.sp, case["place"][1]),)
    elif "sp" not in case["axes"]:
        values["sp"] = (1.0,)  # with tp = 1 the plan does not show it
    for axis in ("tp", "vpp", "cp", "ep", "etp", "micro_batch_size", "zero", "recompute", "dp_replicate"):
        published = plan.get(axis, "none" if axis == "recompute" else 1.0)
        if isinstance(values.get(axis), tuple) and published not in values[axis] and (axis in plan or axis == "dp_replicate"):
            values[axis] = (*values[axis], published)
    return values
