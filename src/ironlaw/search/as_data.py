"""The result of a search as plain data: the JSON of ``ironlaw plan``, from which its page and tables are written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.estimate.answer.as_data import common_keys, overlap_words
from ironlaw.estimate.answer.bands import difference_width, gain_slope, likely_ratio, likely_remedies, step_band, told_apart, winner_bias
from ironlaw.estimate.answer.cautions import remedy_lines, seldom_lines
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.answer.layouts import layouts_data
from ironlaw.estimate.answer.reproduce import as_option
from ironlaw.estimate.answer.whole_counts import whole_counts
from ironlaw.estimate.planner.choose import Bounds
from ironlaw.estimate.planner.choose import Choice as Planned
from ironlaw.estimate.planner.plans import SIMPLEST, effort_of
from ironlaw.estimate.planner.remedies import remedies_of
from ironlaw.estimate.planner.rows import OPEN_AXES
from ironlaw.estimate.planner.space import ENDS
from ironlaw.question.asked import SCALARS
from ironlaw.question.defaults import OFFLOADS, OVERLAPS
from ironlaw.question.options import OPTIONS
from ironlaw.search.advice import advise
from ironlaw.search.answer import Choice, SearchResult, unsearched_of
from ironlaw.search.fewer import one_less
from ironlaw.search.misses import misses
from ironlaw.search.near import comparable, near_entry, near_plans, probabilities, whole_as_int
from ironlaw.search.outlines import outlines, size_outlines
from ironlaw.search.question import Question
from ironlaw.search.sizing import sizes
from ironlaw.search.why import compare_context_parallel, difference
from ironlaw.shown import writer
from ironlaw.terms import scalar

_AXES = {*OPEN_AXES, "gpus", "global_batch_size", "seq_len", "schedule", "moe_dispatcher"}  # that plans of a list differ in
PARETO_AXES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "micro_batch_size", "zero")


def search_data(result: SearchResult, explain: bool = False, advice: bool = True, outlined: bool = True) -> dict[str, Any]:
    """Everything a search answers, by the keys of its JSON. ``outlined``: with bands and bounds of the plans of the front and the sizes."""
    choices, faster = result.listed()
    estimates = result.explained(choices)
    plans = plan_entries(result, choices, estimates, faster, explain)
    near, fewer = _near_best(result, choices, estimates, faster, plans) if choices and advice else (None, None)
    setting = choices[0].setting if choices else result.settings[0] if result.settings else None
    shared = share_once(plans, ("sources", "records"))
    data = whole_counts({
        **common_keys(
            setting.assumptions if setting else [],
            [
                *search_warnings(result),
                *(plans[0]["warnings"] if plans else []),
                *_seldom(choices, estimates),
                *_remedies(result, choices, estimates),
            ],
            result.folders,
            setting.bound.cluster.calibration if setting else None,
        ),
        "asked": writer().asked_data("plan", result.question.given),
        "question": question_data(result),
        "space": result.space,
        "partial": result.partial,
        "plans": plans,
        "simplest": simplest(plans),
        "context_parallel": compare_context_parallel(result, choices[0]) if choices else None,
        "told_apart": told_apart(result.folders),
        "gain_slope": gain_slope(result.folders),
        "winner_bias": bias_of_best(plans, estimates),
        "published_layouts": _published_layouts(result, choices[0]) if choices and advice else [],
        "near": near,
        "one_less": fewer,
        "pareto": pareto_entries(result, outlined),
        "sizes": sizes(result.question, [*result.settings, *result.tried], partial(size_outlines, result) if outlined else None),
        "advice": advise(result, choices[0], estimates[0]) if advice and choices else [],
        "misses": [] if choices else misses(result),
        **shared,
    })  # fmt: skip
    return {**data, "headline": writer().search_headline(data)}


def share_once(plans: list[dict[str, Any]], keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What several plans have under some keys, once for all of them; each plan keeps the names of its own.

    Two plans that have different values under one name get names of their own: the second ends in "#2".

    >>> plans = [{"records": {"a": 1}}, {"records": {"a": 1, "b": 2}}]
    >>> share_once(plans, ["records"]), plans[1]
    ({'records': {'a': 1, 'b': 2}}, {'records': ['a', 'b']})
    """
    shared: dict[str, dict[str, Any]] = {key: {} for key in keys}
    for plan in plans:
        for key in keys:
            plan[key] = [_shared_name(shared[key], name, value) for name, value in plan[key].items()]
    return shared


def _shared_name(shared: dict[str, Any], name: str, value: Any) -> str:
    """The name under which all plans have a value."""
    own, number = name, 1
    while shared.setdefault(own, value) != value:
        number += 1
        own = f"{name}#{number}"
    return own


def question_data(result: SearchResult) -> dict[str, Any]:
    """The objective of a search and its limits."""
    q = result.question
    setting = result.settings[0] if result.settings else None
    return {
        "model": setting.bound.model.name if setting else None,
        "on": list(q.on),
        "minimize": q.minimize,
        "budget": q.budget,
        "deadline_days": None if q.deadline is None else q.deadline / 86400.0,
        "target_tokens_per_second": q.target,
        "tokens": q.asked.tokens,
        "global_batch_size": setting.batch if setting else None,
        "seq_len": setting.seq_len if setting else None,
        "failures": q.failures,
        "pareto": list(q.pareto),
        "space": q.space.title,
        "not_searched": unsearched_of(q, setting),
    }


def _seldom(choices: list[Choice], estimates: list[tuple[Estimate, int]]) -> list[Caution]:
    """What few people run of the best plan, of the axes that the question leaves open."""
    if not choices or not choices[0].setting.seldom:
        return []
    group, at = estimates[0][0].place_of(estimates[0][1])
    return seldom_lines(group.job, group.plan, at, {*OPEN_AXES, "schedule"} - {*choices[0].setting.base.asked.given})


def _remedies(result: SearchResult, choices: list[Choice], estimates: list[tuple[Estimate, int]]) -> list[Caution]:
    """What makes the best plan of one number of accelerators much faster, as an estimate of the question says it."""
    if len(result.question.gpus) > 1 or result.partial or not choices:
        return []
    best, (group, at) = choices[0], estimates[0][0].place_of(estimates[0][1])
    bound = best.setting.opened
    row = bound.asked.rows[0]
    planned = Planned(row._replace(global_batch_size=best.setting.batch), (), {}, seconds=best.seconds)
    found = remedies_of(bound, row, result.question.space, Bounds(bound), planned)
    sizes = (best.setting.gpus, best.setting.batch, best.setting.seq_len, scalar(group.throughput["mfu"], at))
    return remedy_lines(likely_remedies(found, result.folders), *sizes)


def search_warnings(result: SearchResult) -> list[Caution]:
    """A warning where the search stopped before its end."""
    if not result.partial:
        return []
    begun = sum(1 for s in result.settings if s.swept)
    return [caution("search-stopped", seconds=result.seconds, begun=begun, settings=len(result.settings))]


def plan_entries(
    result: SearchResult, choices: list[Choice], estimates: list[tuple[Estimate, int]], faster: Choice | None, explain: bool
) -> list[dict[str, Any]]:
    """Each listed plan: its estimate, and what the search adds to it.

    ``why`` compares the best plan with the second, and every other plan with the best. A plan ties with the best where its goal is so
    close that measured pairs of plans were in the predicted order no more often than by chance.
    """
    places = [estimate.place_of(row) for estimate, row in estimates]
    goals = [totals_of(choice)[result.question.minimize] for choice in choices]
    entries = []
    for i, (choice, (estimate, row)) in enumerate(zip(choices, estimates, strict=True)):
        entry = estimate.row(row, explain)
        entry["asked"] = {**entry["asked"], "given": given_of(result.question, choice)}
        entry["assumptions"] = who_decided(entry["assumptions"], entry["plan"], result.question.given)
        entry |= plan_entry(result, choice, choices[0], faster)
        entry["goal"] = goals[i]
        entry["tie"] = bool(i and choice is not faster and goals[i] < (1.0 + told_apart(result.folders)) * goals[0])
        entry["why"] = difference(places[0], places[i or 1]) if len(places) > 1 else []
        entry["band"] = step_band(*places[i], choice.seconds)
        entries.append(entry)
    return entries


def who_decided(assumptions: Sequence[dict[str, Any]], plan: dict[str, Any], given: dict[str, Any]) -> list[dict[str, Any]]:
    """The assumptions of a listed plan, whose axes are given to its estimate: those that the question leaves open were chosen.

    >>> who_decided([{"name": "tp", "value": "7 values", "origin": "given"}], {"tp": 4}, {"gpus": 512})
    [{'name': 'tp', 'value': 4, 'origin': 'chosen'}]
    """
    told = []
    for item in assumptions:
        name = item["name"]
        if item["origin"] != "given" or name not in _AXES:
            told.append(item)
        elif name in plan:
            value = overlap_words(plan) if name == "overlap" else ",".join(plan[name]) if isinstance(plan[name], list) else plan[name]
            told.append({**item, "value": value, "origin": "given" if name in given else "chosen"})
    return told


def plan_entry(result: SearchResult, choice: Choice, best: Choice, faster: Choice | None) -> dict[str, Any]:
    """What a search says of one plan by itself, beside its estimate; the keys that compare it with others are empty."""
    return {
        "goal": None,
        "worth": _finite_values(totals_of(choice)) if choice.setting.bound.asked.tokens is not None else None,
        "headroom": free_share(choice),
        "options": {name: whole_as_int(choice.values[name]) for name in SIMPLEST if name not in ENDS or choice.values[name] >= 0.0},
        "variant": choice.setting.variant,
        "why": [],
        "tie": False,
        "note": _note(choice, best, faster),
        "fastest_probability": None,
        **longer_data(choice, best, result.folders),
        "band": None,
    }


def totals_of(choice: Choice) -> dict[str, float]:
    """What may be minimised, of a plan: time, money and so on."""
    return {name: float(value) for name, value in choice.setting.objectives(choice.seconds).items()}


def free_share(choice: Choice) -> float:
    """The share of the device's memory that a plan leaves free."""
    return 1.0 - choice.device / choice.setting.capacity


def _note(choice: Choice, best: Choice, faster: Choice | None) -> str:
    """Why a plan is listed that is faster than the best: it leaves less memory free, or more of it was never measured."""
    if choice is faster:
        return f"fastest that fits, {free_share(choice):.1%} of the memory free"
    if not comparable(choice.setting, best.setting) or not choice.has_less_evidence(best):
        return ""
    return "without evidence" if choice.price > best.price else "not published"


def longer_data(choice: Choice, best: Choice, folders: tuple[str, ...]) -> dict[str, float | None]:
    """How much longer a plan's step is than the best plan's: as predicted, and by what was measured of predicted differences.

    None for the best itself, and the second for a plan on other accelerators, another number of them or in another framework.
    """
    if choice is best:
        return {"longer": None, "likely_longer": None}
    ratio = choice.seconds / best.seconds
    likely = likely_ratio(ratio, gain_slope(folders)) - 1.0 if comparable(choice.setting, best.setting) else None
    return {"longer": ratio - 1.0, "likely_longer": None if likely is None else float(likely)}


def bias_of_best(plans: list[dict[str, Any]], estimates: list[tuple[Estimate, int]]) -> float | None:
    """How much longer than predicted the fastest plan may take for having been picked; None where its probability is not known."""
    shares = [plan["fastest_probability"] for plan in plans if plan["fastest_probability"] is not None]
    width = difference_width(*estimates[0][0].place_of(estimates[0][1])) if shares else None
    return None if width is None else winner_bias(max(shares), *width)


def given_of(question: Question, choice: Choice) -> dict[str, Any]:
    """The options of an estimate that the user of a search gave; accelerator, count and price are those of the plan."""
    asked, given = choice.setting.bound.asked, {"gpus": choice.setting.gpus}
    for name, value in question.given.items():
        if name in OPTIONS and name not in given:
            given[name] = getattr(asked, name) if name in SCALARS else OPTIONS[name].read(value, name)
    return {name: as_option(name, given[name]) for name in OPTIONS if given.get(name) is not None}


def simplest(plans: list[dict[str, Any]]) -> int | None:
    """The index of the simplest plan among the best and its ties: least splitting of the model, then simplest options."""
    tied = [i for i, plan in enumerate(plans) if i == 0 or plan["tie"]]

    def effort(i: int) -> tuple[Any, ...]:
        options, p = plans[i]["options"], plans[i]["plan"]
        splits = p["tp"] * p["pp"] * p["cp"] * p["ep"] * p["etp"]
        return (splits, *(effort_of(name, options.get(name, -1)) for name in SIMPLEST), i)

    return min(tied, key=effort, default=None)


def _finite_values(values: dict[str, float]) -> dict[str, float | None]:
    """Objectives, with None for one that has no value, such as a cost without a price."""
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


def _near_best(
    result: SearchResult, choices: list[Choice], estimates: list[tuple[Estimate, int]], faster: Choice | None, plans: list[dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The plans near the best, and what is left with one node less; sets how likely each listed plan is the fastest."""
    near, place = near_plans(result, choices[0]), estimates[0][0].place_of(estimates[0][1])
    rivals = [(plan, choice) for plan, choice in zip(plans, choices, strict=True) if choice is not faster]
    for (plan, _), share in zip(rivals, probabilities([choice for _, choice in rivals], place), strict=True):
        plan["fastest_probability"] = share
    shares = [probabilities([choices[0], plan], place)[1] for plan in near.shown]
    # a search that was stopped has no time left for the searches of smaller counts
    less = None if result.partial else one_less(result, choices[0], plans[0]["placement"]["gpus_per_domain"])
    return near_entry(near, choices[0], shares, gain_slope(result.folders)), less


def _published_layouts(result: SearchResult, best: Choice) -> list[dict[str, Any]]:
    """The published layouts nearest to the best plan's job, each against that plan."""
    setting = best.setting
    row = setting.bound.asked.rows[0]._replace(gpus=setting.gpus, global_batch_size=setting.batch)
    fastest = next((one.seconds for one in result.fastest_without_evidence(best)), None)
    plan = {**best.values, "overlap": [name for name in OVERLAPS if best.values[f"overlap_{name.replace('-', '_')}"]]}
    return layouts_data(setting.bound, setting.job, row, setting.question.space, plan, best.seconds, fastest)


def pareto_entries(result: SearchResult, outlined: bool) -> list[dict[str, Any]]:
    """The plans of the Pareto front; outlined, with bands and the roof that binds."""
    front = result.pareto()
    more = outlines(result, [choice for choice, _ in front]) if outlined else [{}] * len(front)
    return [pareto_entry(choice, values) | outline for (choice, values), outline in zip(front, more, strict=True)]


def pareto_entry(choice: Choice, values: dict[str, float]) -> dict[str, Any]:
    """One plan of the Pareto front, without its breakdown."""
    return {
        "accelerator": choice.setting.on,
        "gpus": int(choice.setting.gpus),
        "framework": choice.setting.framework,
        "plan": {
            **{axis: whole_as_int(choice.values[axis]) for axis in PARETO_AXES},
            "recompute": choice.values["recompute"],
            "offload_optimizer": bool(choice.values["offload_optimizer"]),
        },
        "step_seconds": choice.seconds,
        "device_bytes": choice.device,
        "objectives": _finite_values(values),
    }


def plan_table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The listed plans as flat rows, for a CSV or a Parquet file."""
    rows = []
    for rank, plan in enumerate(data["plans"], 1):
        run = plan["run"] or {}
        p = plan["plan"]
        rows.append({
            "rank": rank,
            **{name: p[name] for name in ("model", "accelerator", "gpus", "node", "fabric", "framework", "precision", "global_batch_size",
                                          "micro_batch_size", "seq_len", "tp", "pp", "cp", "vpp", "ep", "etp", "dp_replicate", "dp_shard",
                                          "zero", "recompute", "sp", "schedule")},
            "overlap": ",".join(p["overlap"]) or "none",
            "offload": ",".join(n for n in OFFLOADS if plan["options"][f"offload_{n}"]) or "none",
            "step_seconds": plan["step"]["seconds"],
            "tokens_per_second": plan["throughput"]["tokens_per_second"],
            "tokens_per_second_per_gpu": plan["throughput"]["tokens_per_second_per_gpu"],
            "model_tflop_per_second_per_gpu": plan["throughput"]["model_flop_per_second_per_gpu"] / 1e12,
            "mfu": plan["throughput"]["mfu"],
            "hfu": plan["throughput"]["hfu"],
            "device_bytes": plan["memory"]["device"],
            "headroom": plan["headroom"],
            "bound": plan["bound"]["by"],
            "days": run.get("days"),
            "days_with_failures": run.get("days_with_failures"),
            "usd": run.get("usd"),
            "usd_with_failures": run.get("usd_with_failures"),
            "kwh": run.get("kwh"),
            "kg_co2e": run.get("kg_co2e"),
        })  # fmt: skip
    return rows
