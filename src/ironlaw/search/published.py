"""A published plan against the best that a search finds for the same job on the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ironlaw.question.defaults import OFFLOADS, OVERLAPS
from ironlaw.search.answer import Choice, Found, run
from ironlaw.search.mesh import divisors
from ironlaw.search.question import read_question
from ironlaw.search.space import Space, axis_value
from ironlaw.search.why import difference

TERMS = 4  # of the difference, as many as are told
NARROW = {"dp_replicate": (1.0,), "vpp": (1.0, 2.0, 4.0, 8.0, 12.0), "micro_batch_size": (1.0, 2.0, 4.0)}
NARROWED = "of mixtures, whose expert axes make it large, one replica, vpp of 1, 2, 4, 8, 12 and micro-batches of 1, 2, 4"


def compare(case: Mapping[str, Any]) -> dict[str, Any]:
    """One published plan against three searches: the default space, that space with caution, and what the stack could vary.

    ``case``: ``question`` (options without a plan), ``plan``, ``place`` (its group and row), ``measured_s``, ``fits``, ``axes`` and
    ``even`` (what the stack could vary). A ratio is the published plan's predicted time over that of the best plan found. With
    caution: memory to spare.
    """
    group, at = case["place"]
    seconds = _at(group.step.tree.value, at)
    asked = read_question(case["question"])
    whole = _whole(asked.space, group, case["plan"])
    found = [run(replace(asked, space=whole))]
    cautious, best = _with_room(found[0]), _best(found)
    layers = {"offload_layers": case["plan"]["offload_layers"]} if "offload_layers" in case["plan"] else {}
    held = read_question({**case["question"], **layers})
    own = [run(replace(held, space=space)) for space in _own(asked.space, case)]
    ours = _best(own)
    return {name: case[name] for name in ("id", "model", "on", "gpus", "plan", "measured_s", "fits", "stack")} | {
        "published_s": seconds,
        "published_bytes": _at(group.memory.device, at),
        "of_bytes": found[0].settings[0].capacity,
        "best": _told(best),
        "cautious": _told(cautious),
        "own": _told(ours),
        "ratio": _over(seconds, best),
        "ratio_cautious": _over(seconds, cautious),
        "ratio_own": _over(seconds, ours),
        "terms": _terms(case["place"], found, best),
        "terms_own": _terms(case["place"], own, ours),
        "narrowed": NARROWED,
        "plans": sum(int(f.space["timed"]) for f in (*found, *own)),
    }


def _at(value: Any, at: int) -> float:
    column = np.ravel(value)
    return float(column[at if column.size > 1 else 0])


def _best(found: list[Found]) -> Choice | None:
    firsts = [choice for f in found for choice in f.first(1)]
    return min(firsts, key=lambda choice: choice.seconds, default=None)


def _with_room(found: Found) -> Choice | None:
    """The best plan that leaves memory to spare, where one does."""
    best = _best([found])
    return (found.spacious(best) or best) if best else None


def _over(seconds: float, choice: Choice | None) -> float | None:
    return seconds / choice.seconds if choice else None


def _told(choice: Choice | None) -> dict[str, Any] | None:
    """A plan that a search found, as plain data."""
    if choice is None:
        return None
    plan = {name: value if isinstance(value, str) else float(value) for name, value in choice.values.items() if name != "gpus"}
    return {"seconds": choice.seconds, "bytes": choice.device, "plan": plan}


def _terms(place: tuple[Any, int], found: list[Found], best: Choice | None) -> list[dict[str, Any]]:
    """What the published plan takes longer (above 0) than the best, the largest terms first."""
    if best is None:
        return []
    estimate, row = found[0].explained([best])[0]
    return difference(estimate.place_of(row), place)[:TERMS]


def _whole(space: Space, group: Any, plan: Mapping[str, Any]) -> Space:
    """The default space; of mixtures a smaller one that holds the published plan's values too."""
    if not group.job.model.num_experts:
        return space
    kept = {axis: tuple(dict.fromkeys((*values, plan.get(axis, 1.0)))) for axis, values in NARROW.items()}
    return replace(space, values={**space.values, **kept})


def _own(space: Space, case: Mapping[str, Any]) -> list[Space]:
    """What the stack could vary: its axes, the row's own values, and no switch that the row does not show; stages by the rule.

    Where layers must split evenly, one space for every pp that divides them.
    """
    group, plan = case["place"][0], case["plan"]
    values = {axis: tried for axis, tried in _whole(space, group, plan).values.items() if axis not in ("last_stage_layers", "cp_method")}
    for axis, tried in case["axes"].items():
        values[axis] = () if tried == "row" else tuple(axis_value(axis, item, axis) for item in tried)
    overlap = plan["overlap"] if plan.get("overlap") is not None else group.job.framework.overlap
    offload = plan.get("offload") or ()
    values |= {f"overlap_{name.replace('-', '_')}": (float(name in overlap),) for name in OVERLAPS}
    values |= {f"offload_{name}": tuple({0.0, float(name in offload)}) for name in OFFLOADS}
    if plan.get("tp", 1.0) > 1.0:
        values["sp"] = (_at(group.plan.sp, case["place"][1]),)
    elif "sp" not in case["axes"]:
        values["sp"] = (1.0,)  # where tp = 1 the row shows no habit
    for axis in ("tp", "vpp", "cp", "ep", "etp", "micro_batch_size", "zero", "recompute", "dp_replicate"):
        shown = plan.get(axis, "none" if axis == "recompute" else 1.0)
        if isinstance(values.get(axis), tuple) and shown not in values[axis] and (axis in plan or axis == "dp_replicate"):
            values[axis] = (*values[axis], shown)
    own = replace(space, values=values)
    layers = group.job.model.num_hidden_layers + (2.0 if case["question"].get("count_embedding") else 0.0)
    if not case["even"] or layers % (plan.get("pp", 1.0) * plan.get("vpp", 1.0)):
        return [own]
    spaces = []
    for pp in divisors(int(layers)) if values.get("pp") == "all" else values["pp"]:
        chunks = tuple(v for v in values["vpp"] if layers % (pp * v) == 0.0)
        if case["gpus"] % pp == 0 and chunks:
            spaces.append(replace(own, values={**values, "pp": (pp,), "vpp": chunks}))
    return spaces
