"""A search's answer as plain data: the JSON of ``ironlaw plan``, which its page and its tables are written from too."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.as_data import common_keys
from ironlaw.estimate.bands import step_band, told_apart
from ironlaw.question import defaults
from ironlaw.search.advice import advise
from ironlaw.search.answer import Choice, Found
from ironlaw.search.best import SIMPLEST, effort_of
from ironlaw.search.misses import misses
from ironlaw.search.sharing import sharing
from ironlaw.search.sizing import sizes
from ironlaw.search.space import ENDS
from ironlaw.search.why import difference

PARETO_AXES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "micro_batch_size", "zero")


def search_data(found: Found, explain: bool = False, advice: bool = True) -> dict[str, Any]:
    """Everything a search answers, by the keys of the contract."""
    question = found.question
    choices = found.first(question.top) if question.top else found.of_kinds(defaults.PLANS)
    spare = found.spacious(choices[0]) if choices and not question.top else None
    at = None if spare is None else next((i for i, c in enumerate(choices) if c.same_as(spare)), len(choices))
    if spare is not None and at == len(choices):
        choices.append(spare)
    places = found.explained(choices)
    plans = [plan_entry(found, choice, *place, explain) for choice, place in zip(choices, places, strict=True)]
    _compare(plans, places, found.folders)
    if at is not None:
        plans[at]["note"] = "the fastest that leaves 5% of the memory free"
    setting = choices[0].setting if choices else found.settings[0] if found.settings else None
    data: dict[str, Any] = {
        **common_keys(
            setting.assumptions if setting else [],
            [*warnings_of(found), *(plans[0]["warnings"] if plans else [])],
            found.folders,
            setting.bound.cluster.calibration if setting else None,
        ),
        "question": asked(found),
        "space": found.space,
        "partial": found.partial,
        "plans": plans,
        "simplest": simplest(plans),
        "context_parallel": sharing(found, choices[0]) if choices else None,
        "told_apart": told_apart(found.folders),
        "pareto": [pareto_entry(choice, values) for choice, values in found.pareto()],
        "sizes": sizes(question, found.settings),
        "advice": advise(found, choices[0], places[0]) if advice and choices else [],
        "misses": [] if choices else misses(found),
    }
    return data


def asked(found: Found) -> dict[str, Any]:
    """What was to be minimised, and kept to."""
    q = found.question
    setting = found.settings[0] if found.settings else None
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
    }


def warnings_of(found: Found) -> list[str]:
    """What a reader must know of the search itself."""
    if not found.partial:
        return []
    done = sum(1 for s in found.settings if s.sweeps)
    told = f"{done} of {len(found.settings)} settings begun"
    return [f"partial: the search stopped after {found.seconds:.0f} s with {told}; --time-limit lets it run on, --fix narrows it"]


def plan_entry(found: Found, choice: Choice, estimate: Any, row: int, explain: bool) -> dict[str, Any]:
    """One plan: its estimate, and what the search says of it."""
    worth = {name: float(value) for name, value in choice.setting.worth(choice.seconds).items()}
    group, at = estimate.place_of(row)
    with_run = choice.setting.bound.asked.tokens is not None
    return {
        **estimate.row(row, explain),
        "goal": worth[found.question.minimize],
        "worth": {name: value if np.isfinite(value) else None for name, value in worth.items()} if with_run else None,
        "headroom": 1.0 - choice.device / choice.setting.capacity,
        "options": {name: _plain(choice.values[name]) for name in SIMPLEST if name not in ENDS or choice.values[name] >= 0.0},
        "variant": choice.setting.variant,
        "why": [],
        "tie": False,
        "note": "",
        "band": step_band(group, at, choice.seconds),
    }


def simplest(plans: list[dict[str, Any]]) -> int | None:
    """Of the best plan and those that tie with it the simplest, as an index: the model split fewest ways, then the order of SIMPLEST."""
    tied = [i for i, plan in enumerate(plans) if i == 0 or plan["tie"]]

    def effort(i: int) -> tuple[Any, ...]:
        options, p = plans[i]["options"], plans[i]["plan"]
        ways = p["tp"] * p["pp"] * p["cp"] * p["ep"] * p["etp"]
        return (ways, *(effort_of(name, options.get(name, -1)) for name in SIMPLEST), i)

    return min(tied, key=effort, default=None)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else int(value) if float(value).is_integer() else float(value)


def _compare(plans: list[dict[str, Any]], places: list[Any], folders: tuple[str, ...]) -> None:
    """Why each plan stands where it does: the best against the runner-up, every other against the best; and which cannot be told from it.

    A band says how far one prediction may be off; two plans of one job are off together, and how well their order is known was
    learned from pairs of measured plans.
    """
    apart = 1.0 + told_apart(folders)
    for i, plan in enumerate(plans):
        other = 1 if i == 0 else 0
        if len(plans) > 1:
            one, two = (places[n][0].place_of(places[n][1]) for n in (i, other))
            plan["why"] = difference(one, two) if i == 0 else difference(two, one)
        plan["tie"] = bool(i and plan["goal"] < apart * plans[0]["goal"])


def pareto_entry(choice: Choice, values: dict[str, float]) -> dict[str, Any]:
    """One plan of the front in short."""
    return {
        "accelerator": choice.setting.on,
        "gpus": int(choice.setting.gpus),
        "framework": choice.framework,
        "plan": {
            **{axis: _plain(choice.values[axis]) for axis in PARETO_AXES},
            "recompute": choice.values["recompute"],
            "offload_optimizer": bool(choice.values["offload_optimizer"]),
        },
        "step_seconds": choice.seconds,
        "device_bytes": choice.device,
        "objectives": {name: value if np.isfinite(value) else None for name, value in values.items()},  # money without a price
    }


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
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
            "offload": ",".join(n for n in ("optimizer", "activations") if plan["options"][f"offload_{n}"]) or "none",
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
