"""The search against the slow way: every plan of a small space listed here, and asked of ``estimate`` one row each."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import InputError, IronlawError, QuestionError, SpaceError, UnknownNameError, ValueRangeError
from ironlaw.estimate.bind.question import bind_question
from ironlaw.estimate.legality import rules
from ironlaw.estimate.memory.total import memory
from ironlaw.estimate.planner import grid, plans, tasks
from ironlaw.estimate.planner.grid import Choices, rooms
from ironlaw.estimate.planner.mesh import plan_of
from ironlaw.estimate.planner.space import CHOICES
from ironlaw.estimate.step.step import step_parts, whole_step
from ironlaw.plan import Plan, recompute_columns
from ironlaw.question.asked import asked_of
from ironlaw.question.read import read_options
from ironlaw.question.words import OFFLOADS, OFFLOADS_WITH, OVERLAPS
from ironlaw.search import sweep
from ironlaw.search.answer import estimate_of

pytestmark = pytest.mark.usefixtures("free_stacks")
DENSE = {
    "hidden_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "intermediate_size": 4608,
}
ROUTED = {**DENSE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1536}
MESH = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "micro_batch_size")
ENDS = ("first_stage_layers", "last_stage_layers")
SWITCHES = tuple(name for name in CHOICES if name not in ("recompute", "zero"))


# the slow way


@dataclass(frozen=True)
class Slow:
    """Every plan of a question as dictionaries, with what ``estimate`` says of each."""

    plans: list[dict[str, Any]]
    seconds: Any
    device: Any
    legal: Any
    fits: Any

    @property
    def good(self) -> Any:
        return self.legal & self.fits & np.isfinite(self.seconds)

    def within_room(self, task: Any) -> Any:
        """Of the good plans those that keep memory free; where none does, those that leave the allocator slack; or all."""
        kept = (self.good & (self.device <= room) for room in rooms(task))
        return next((plans for plans in kept if plans.any()), self.good)


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def listed(space: dict[str, Any], axis: str, number: int) -> list[Any]:
    values = space.get(axis, [1])
    return divisors(number) if values == "all" else list(values)


def meshes(space: dict[str, Any], gpus: int, batch: int) -> Iterator[dict[str, int]]:
    """Every placement of ``gpus`` that a space lists; which of them are legal, ``estimate`` says."""
    for tp, pp, cp in itertools.product(listed(space, "tp", gpus), listed(space, "pp", gpus), listed(space, "cp", gpus)):
        for replicate in listed(space, "dp_replicate", gpus):
            ways = tp * pp * cp * replicate
            if gpus % ways:
                continue
            shard = gpus // ways
            if "dp_shard" in space and space["dp_shard"] != "all" and shard not in space["dp_shard"]:
                continue
            rest = (listed(space, axis, 1) for axis in ("vpp", "ep", "etp", "micro_batch_size"))
            for vpp, ep, etp, micro in itertools.product(*rest):
                mesh = dict(zip(("gpus", *MESH), (gpus, tp, pp, vpp, cp, ep, etp, replicate, shard, micro), strict=True))
                for ends in itertools.product(*(space[axis] for axis in ENDS if axis in space)):
                    yield mesh | dict(zip([axis for axis in ENDS if axis in space], ends, strict=True))


def habits(space: dict[str, Any], framework: str, mesh: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Every combination of choices; one that the space does not list stands at the framework's habit."""
    stack = load.record("frameworks", framework, ())
    on = {f"overlap_{name.replace('-', '_')}" for name in stack.overlap}
    usual = {"recompute": "none", "zero": stack.default_zero, "sp": mesh["tp"] > 1}
    lists = [space.get(name, [usual.get(name, name in on)]) for name in CHOICES]
    for values in itertools.product(*lists):
        chosen = dict(zip(CHOICES, values, strict=True))
        if chosen["overlap_tp"] and not chosen["sp"] and mesh["tp"] > 1 and len(set(space.get("overlap_tp", ()))) > 1:
            continue  # frameworks cut a collective into pieces only with sequence parallel: not tried, though estimate answers it
        yield chosen


def slow(question: dict[str, Any], space: dict[str, Any]) -> Slow:
    """All plans of a space under a question, legal or not, each asked of ``estimate``."""
    gpus = question["gpus"]
    flat = gpus == 1 or (space.get("tp", [1]) == [1] and space.get("pp", [1]) == [1])
    name = question.get("framework") or ("fsdp" if flat else "megatron")
    plans = []
    for mesh in meshes(space, gpus, question["global_batch_size"]):
        plans += [{**mesh, **chosen, "framework": name} for chosen in habits(space, name, mesh)]
    return asked(question, plans)


def asked(question: dict[str, Any], plans: list[dict[str, Any]]) -> Slow:
    """What ``estimate`` says of some plans, one row each, in one call a framework."""
    seconds, device = np.full(len(plans), np.nan), np.full(len(plans), np.nan)
    legal, fits = np.zeros(len(plans), dtype=bool), np.zeros(len(plans), dtype=bool)
    fixed = {k: v for k, v in question.items() if k not in ("gpus", "framework")}
    for name in sorted({p["framework"] for p in plans}):
        index = [i for i, p in enumerate(plans) if p["framework"] == name]
        rows = [plans[i] for i in index]
        columns: dict[str, Any] = {axis: [r[axis] for r in rows] for axis in ("gpus", *MESH, "recompute", "zero")}
        columns |= {axis: [r[axis] for r in rows] for axis in ENDS if rows[0].get(axis, -1) >= 0}
        columns["sp"] = [bool(r["sp"]) for r in rows]
        columns["overlap"] = [frozenset(n for n in OVERLAPS if r[f"overlap_{n.replace('-', '_')}"]) for r in rows]
        columns["offload"] = [frozenset(n for n in OFFLOADS if r[f"offload_{n}"]) for r in rows]
        if not any(columns["offload"]):
            del columns["offload"]
        answer = ironlaw.estimate(**fixed, **columns, framework=name)
        seconds[index], device[index] = answer.step_seconds, answer.device_bytes
        legal[index], fits[index] = answer.legal, answer.fits
    return Slow(plans, seconds, device, legal, fits)


def meaning(plan: dict[str, Any], experts: bool) -> tuple[Any, ...]:
    """A plan without the choices that say nothing in it: two plans of one meaning are one plan.

    Sequence parallelism and its overlap need tensor parallelism; sharding needs ranks to shard over, of the whole model or
    of an expert; what waits for a reduction, a gather or a hand-over needs one to wait for.
    """
    selective = load.record("frameworks", plan["framework"], ()).selective_recompute
    redone = recompute_columns(plan["recompute"], selective)
    ways, inner = plan["ep"] * plan["etp"], plan["tp"] * plan["cp"] * plan["dp_shard"]
    sharded = plan["dp_shard"] * plan["cp"] > 1 or (experts and inner > ways)
    reduced = plan["dp_replicate"] * plan["dp_shard"] * plan["cp"] > 1 or (experts and inner * plan["dp_replicate"] > ways)
    zero = plan["zero"] if sharded else None
    return (
        plan["framework"],
        *(plan[axis] for axis in MESH),
        *(plan.get(axis, -1) for axis in ENDS),
        redone,
        zero,
        bool(plan["sp"]) if plan["tp"] > 1 else None,
        bool(plan["overlap_grad_reduce"]) if (plan["dp_replicate"] > 1 if zero in (2, 3) else reduced) else None,
        bool(plan["overlap_param_gather"]) if zero in (1, 2) else None,
        bool(plan["overlap_tp"]) if plan["tp"] > 1 and plan["sp"] else None,
        bool(plan["overlap_pp"]) if plan["vpp"] > 1 else None,
        bool(plan["overlap_ep"]) if plan["ep"] > 1 else None,
        bool(plan["offload_optimizer"]),
        bool(plan["offload_activations"]),
        bool(plan["offload_parameters"]),
        bool(plan["offload_nvme"]),
    )


def written(tmp_path: Any, space: dict[str, Any]) -> str:
    """A space file of these values."""
    lines = [f"{axis} = {values!r}".replace("'", '"').replace("True", "true").replace("False", "false") for axis, values in space.items()]
    path = tmp_path / "space.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def plan_dict(choice: Any) -> dict[str, Any]:
    """A choice as the dictionary that this file compares."""
    return {**choice.values, "framework": choice.setting.framework}


# questions drawn at random

MODELS = (DENSE, ROUTED, "llama-3-8b", "mixtral-8x7b", "qwen-3-0.6b", "deepseek-v2-lite", "nemotron-h-8b")
DEVICES = ("h100-sxm", "a100-sxm-80gb", "mi300x", "tpu-v5p", "b200-sxm")
FRAMEWORKS = ("megatron", "fsdp", "deepspeed", "torchtitan", "megatron-legacy", "maxtext")


def drawn(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A question and a space of a few thousand plans."""
    r = random.Random(seed)
    on, gpus = r.choice(DEVICES), r.choice((1, 2, 4, 6, 7, 8, 12, 16, 24, 32, 64))
    question = {
        "model": r.choice(MODELS),
        "on": on,
        "gpus": gpus,
        "global_batch_size": r.choice((gpus, 2 * gpus, 4 * gpus, 48, 64)),
        "seq_len": r.choice((512, 2048, 4096, 6144)),
        "precision": "bf16" if on != "h100-sxm" else r.choice(("bf16", "fp8")),
        "optimizer": r.choice(("adamw", "adamw", "muon", "sgd", "adam8bit")),
    }
    if r.random() < 0.5:
        question["framework"] = r.choice(FRAMEWORKS)
    if r.random() < 0.2:
        question["cp_method"] = "all-to-all"
    elif seed % 5 == 0:
        question |= {"cp_method": ("ring", "all-gather", "all-to-all+ring")[seed // 5 % 3], "cp_balance": seed % 2 == 0}
    if r.random() < 0.2:
        question["count_embedding"] = True

    def some(values: tuple[Any, ...], most: int) -> list[Any]:
        return sorted({*(values[:1] if r.random() < 0.9 else ()), *r.sample(values, r.randint(1, most))})

    space: dict[str, Any] = {
        "tp": some((1, 2, 3, 4, 8), 2),
        "pp": r.choice(("all", [1, 2], [1, 3, 4])),
        "cp": some((1, 2, 4), 1),
        "ep": some((1, 2, 4, 8), 2),
        "dp_replicate": r.choice(("all", [1, 2])),
        "micro_batch_size": some((1, 2, 3, 4), 1),
    }
    if r.random() < 0.5:
        space["vpp"] = some((1, 2, 3), 2)
    if seed % 4 == 1 and "count_embedding" not in question:
        space |= {ENDS[seed // 4 % 2]: [1, 2]} if seed % 8 == 1 else {ENDS[0]: [2], ENDS[1]: [0, 1]}
    if r.random() < 0.2:
        space["etp"] = [1, 2]
    if r.random() < 0.8:
        space["recompute"] = r.sample(
            ("none", "selective", "every:2", "full", "segments:3", "share:0.3", "selective:attention"), r.randint(1, 3)
        )
    if r.random() < 0.8:
        space["zero"] = some((0, 1, 2, 3), 3)
    switches = [s for s in SWITCHES if not (on.startswith("tpu") and s.startswith("offload"))]
    for name in r.sample(switches, r.randint(1, 3)):
        space[name] = r.choice((["on", "off"], ["off", "on"], ["on", "off"], ["on"], ["off"]))
    if any(f"offload_{name}" in space for name in OFFLOADS_WITH):  # they bring the optimizer where an estimate reads them
        space["offload_optimizer"] = ["on"]
    return question, space


def plain(space: dict[str, Any]) -> dict[str, Any]:
    """A space with switches as truth values."""
    return {axis: [v == "on" for v in values] if axis in SWITCHES else values for axis, values in space.items()}


@cache
def slow_of(seed: int) -> Slow:
    question, space = drawn(seed)
    return slow(question, plain(space))


def found_of(seed: int, tmp_path: Any, **more: Any) -> Any:
    question, space = drawn(seed)
    return ironlaw.search(**question, space=written(tmp_path, space), **more)


SEEDS = range(40)


def classes(question: dict[str, Any], found: Slow) -> dict[Any, list[int]]:
    """Legal plans by their meaning; the first of each stands for all."""
    experts = bool(read_model(question).num_experts)
    made: dict[Any, list[int]] = {}
    for i in np.flatnonzero(found.legal):
        made.setdefault(meaning(found.plans[i], experts), []).append(int(i))
    return made


def read_model(question: dict[str, Any]) -> Any:
    return bind_question(asked_of(read_options({"model": question["model"], "on": question["on"]}))).model


def in_bits(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_search_finds_what_listing_every_plan_finds(seed, tmp_path):
    question, _ = drawn(seed)
    every, found = slow_of(seed), found_of(seed, tmp_path)
    means = classes(question, every)
    stand = np.array([members[0] for members in means.values()], dtype=np.int64)
    good = stand[every.within_room(found.settings[0].swept.task)[stand]]
    assert found.space["legal"] == len(means)
    assert found.space["infeasible"]["fits"] == np.count_nonzero(~every.fits[stand])
    first = found.first(100)
    in_bits([c.seconds for c in first], np.sort(every.seconds[good])[:100])

    experts = bool(read_model(question).num_experts)
    listed_as = [meaning(plan_dict(c), experts) for c in first]
    assert len(set(listed_as)) == len(listed_as)
    for choice, name in zip(first, listed_as, strict=True):
        at = means[name][0]
        assert every.legal[at] and every.fits[at]
        assert (choice.seconds, choice.device) == (every.seconds[at], every.device[at])


def test_the_random_questions_have_answers():
    """Random questions without any plan would prove nothing."""
    answered = [seed for seed in SEEDS if slow_of(seed).good.any()]
    crowded = [seed for seed in SEEDS if np.count_nonzero(slow_of(seed).good) > 100]
    assert len(answered) > len(SEEDS) // 2
    assert len(crowded) >= 5


def spans(plan: dict[str, Any]) -> bool:
    """A copy of the experts is spread over replicas of the rest."""
    return plan["ep"] * plan["etp"] > plan["tp"] * plan["cp"] * plan["dp_shard"]


@pytest.mark.parametrize("seed", SEEDS)
def test_choices_without_effect_change_neither_time_nor_memory(seed):
    """Plans that differ only in choices without effect have the same time and memory."""
    question, _ = drawn(seed)
    every = slow_of(seed)
    for members in classes(question, every).values():
        if not spans(every.plans[members[0]]):  # see the next test
            assert len({(every.seconds[i], every.device[i]) for i in members}) == 1


def test_sharding_nothing_changes_nothing_where_experts_span_replicas():
    """dp_shard 1 and cp 1: ZeRO has nothing to shard, so the experts' reduction is the same with and without it."""
    question = {"model": "mixtral-8x7b", "on": "h100-sxm", "gpus": 16, "global_batch_size": 64, "seq_len": 4096}
    answer = ironlaw.estimate(
        **question, tp=1, pp=1, ep=8, dp_replicate=16, dp_shard=1, zero=[0, 1, 2], micro_batch_size=1, recompute="none"
    )
    assert len(set(answer.step_seconds.tolist())) == 1


def leaves(question: dict[str, Any], plans: list[dict[str, Any]]) -> Any:
    """Every number of the breakdowns of some plans of one framework, one column a plan."""
    made = []
    for plan in plans:
        on = {
            "overlap": frozenset(n for n in OVERLAPS if plan[f"overlap_{n.replace('-', '_')}"]),
            "offload": frozenset(n for n in OFFLOADS if plan[f"offload_{n}"]),
        }
        axes = {**{axis: plan[axis] for axis in ("gpus", *MESH, "recompute", "zero", "framework")}, "sp": bool(plan["sp"])}
        options = {**question, **axes, "overlap": on["overlap"], **({"offload": on["offload"]} if on["offload"] else {})}
        group = ironlaw.estimate(**options).groups[0]
        made.append([float(np.ravel(t.value)[0]) for tree in (group.step.tree, group.memory.tree) for t in tree.walk()])
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_every_choice_that_counts_changes_some_term(seed):
    """Two plans that differ in one choice differ in time or memory, or, where something longer hides it, in some term."""
    question, _ = drawn(seed)
    every, checked = slow_of(seed), 0
    means = classes(question, every)
    for name in CHOICES:
        alike: dict[Any, dict[Any, int]] = {}
        for members in means.values():
            plan, at = every.plans[members[0]], members[0]
            rest = tuple(v for axis, v in plan.items() if axis != name)
            same = alike.setdefault(rest, {})
            twin = same.setdefault((every.seconds[at], every.device[at]), at)
            if twin != at and checked < 4:
                checked += 1
                one, other = leaves(question, [every.plans[twin], plan])
                assert one != other, f"{name}: {every.plans[twin][name]} and {plan[name]} are the same in {plan}"


# a medium space, flat

MEDIUM = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 32, "global_batch_size": 64, "seq_len": 4096, "framework": "megatron"}
MEDIUM_SPACE = {
    "tp": [1, 2, 4],
    "pp": [1, 2, 4],
    "vpp": [1, 2],
    "dp_replicate": [1, 2, 4],
    "micro_batch_size": [1, 2],
    "recompute": ["none", "selective", "every:2"],
    "zero": [0, 1, 2, 3],
    "sp": ["on", "off"],
    "overlap_grad_reduce": ["on", "off"],
    "overlap_pp": ["on", "off"],
}


@pytest.fixture(scope="module")
def medium() -> Slow:
    return slow(MEDIUM, plain(MEDIUM_SPACE))


def test_the_first_hundred_are_those_of_a_flat_evaluation(medium, tmp_path):
    found = ironlaw.search(**MEDIUM, space=written(tmp_path, MEDIUM_SPACE))
    first = found.first(100)
    assert len(first) == 100
    flat = estimate_of(first, ())
    in_bits([c.seconds for c in first], flat.step_seconds)
    in_bits([c.device for c in first], flat.device_bytes)
    assert flat.fits.all()
    good = medium.within_room(found.settings[0].swept.task)
    stand = [members[0] for members in classes(MEDIUM, medium).values() if good[members[0]]]
    order = sorted(stand, key=lambda i: (medium.seconds[i], *simplicity(medium.plans[i])))[:100]
    assert [meaning(plan_dict(c), False) for c in first] == [meaning(medium.plans[i], False) for i in order]


def simplicity(plan: dict[str, Any]) -> tuple[Any, ...]:
    """Of plans of one time, what comes first: fewer ways to split the model, then less of everything that needs more of a stack."""
    hows = ["none", "every:2", "selective", "full"]
    ways = plan["tp"] * plan["pp"] * plan["cp"] * plan["ep"] * plan["etp"]
    amounts = [hows.index(plan[name]) if name == "recompute" else plan.get(name, -1.0) for name in plans.SIMPLEST]
    return (ways, *canonical(plan, amounts))


def canonical(plan: dict[str, Any], amounts: list[Any]) -> list[Any]:
    """Amounts with choices that mean nothing at their least."""
    named = dict(zip(plans.SIMPLEST, amounts, strict=True))
    if plan["tp"] == 1:
        named |= {"sp": 0, "overlap_tp": 0}
    if plan["vpp"] == 1:
        named["overlap_pp"] = 0
    return list(named.values())


def test_the_front_is_that_of_a_flat_evaluation(medium, tmp_path):
    found = ironlaw.search(**MEDIUM, space=written(tmp_path, MEDIUM_SPACE))
    points = {(float(s), float(d)) for s, d in zip(medium.seconds[medium.good], medium.device[medium.good], strict=True)}
    expected, leanest = [], np.inf
    for seconds, device in sorted(points):
        if device < leanest:
            expected.append((seconds, device))
            leanest = device
    swept = found.settings[0].swept
    front = sweep.pareto_plans(swept)
    assert list(zip(front.seconds.tolist(), front.device.tolist(), strict=True)) == expected
    assert len(expected) > 3


@pytest.mark.parametrize("seed", SEEDS)
def test_the_front_is_that_of_all_legal_plans(seed, tmp_path):
    question, _ = drawn(seed)
    every, found = slow_of(seed), found_of(seed, tmp_path)
    swept = found.settings[0].swept
    name = swept.task.job.framework.name
    stand = [m[0] for m in classes(question, every).values() if every.good[m[0]] and every.plans[m[0]]["framework"] == name]
    points, leanest, expected = sorted((every.seconds[i], every.device[i]) for i in stand), np.inf, []
    for seconds, device in points:
        if device < leanest:
            expected.append((seconds, device))
            leanest = device
    front = sweep.pareto_plans(swept)
    assert list(zip(front.seconds, front.device, strict=True)) == expected


def test_no_plan_of_the_front_beats_another():
    found = ironlaw.search("llama-3-8b", on="h100-sxm", gpus=[8, 16, 24], global_batch_size=48, seq_len=4096, tokens="100B")
    for names in (("time", "memory"), ("time", "cost", "energy", "memory"), ("cost", "gpus"), ("carbon",)):
        asked_again = found.again(pareto=",".join(names))
        points = np.array([[values[n] for n in names] for _, values in asked_again.pareto()])
        assert points.size
        for point in points:
            assert not np.any(np.all(points <= point, axis=1) & np.any(points < point, axis=1))


# how it is cut into blocks


def summary(found: Any) -> Any:
    """What a search says, to compare in bits."""
    space = {k: v for k, v in found.space.items() if k not in ("seconds", "timed", "excluded")}  # what is timed depends on the blocks
    first = [(c.setting.framework, c.seconds, c.device, sorted(c.values.items())) for c in found.first(300)]
    front = sweep.pareto_plans(found.settings[0].swept)
    columns = [v.tolist() for v in front.columns.values()]
    return space, first, (front.seconds.tolist(), front.device.tolist(), columns)


BLOCKS = (
    {"ROWS": 1, "FEW": 0},
    {"ROWS": 7, "OPENED": 5},
    {"CELLS": 1, "FEW": 3},
    {"CELLS": 97, "FEW": 10**9},
    {"OPENED": 1, "MOST_CELLS": 999},
)
CUT = (
    {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, "global_batch_size": 48, "seq_len": 4096},
    {"model": "mixtral-8x7b", "on": "mi300x", "gpus": 12, "global_batch_size": 48, "seq_len": 2048},
    {"model": "nemotron-h-8b", "on": "b200-sxm", "gpus": 12, "global_batch_size": 24, "seq_len": 2048},
)
CUT_SPACE = {
    "tp": [1, 2],
    "pp": "all",
    "vpp": [1, 2, 3],
    "cp": [1, 2],
    "ep": [1, 2, 8],
    "dp_replicate": "all",
    "micro_batch_size": [1],
    "recompute": ["none", "every:2"],
    "zero": [0, 1, 3],
    "sp": ["on", "off"],
    "overlap_pp": ["on", "off"],
    "overlap_grad_reduce": ["on", "off"],
}


@pytest.fixture(scope="module")
def uncut(tmp_path_factory) -> list[Any]:
    path = written(tmp_path_factory.mktemp("uncut"), CUT_SPACE)
    return [summary(ironlaw.search(**question, space=path)) for question in CUT]


@pytest.mark.parametrize("sizes", BLOCKS, ids=str)
@pytest.mark.parametrize("which", range(len(CUT)))
def test_blocks_of_any_size_give_the_same_result(which, sizes, uncut, tmp_path, monkeypatch):
    for name, size in sizes.items():
        for module in (grid, plans, sweep):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)
    assert summary(ironlaw.search(**CUT[which], space=written(tmp_path, CUT_SPACE))) == uncut[which]


@pytest.mark.parametrize("which", range(len(CUT)))
def test_the_order_of_rows_and_of_values_does_not_matter(which, uncut, tmp_path, monkeypatch):
    """Rows in another order, and every axis of the space listed backwards."""
    whole = tasks.mesh_rows

    def shuffled(*given: Any, **sizes: Any) -> Any:
        mesh = whole(*given, **sizes)
        order = np.random.default_rng(5).permutation(mesh.rows)
        return mesh.replace(columns={name: column[order] for name, column in mesh.columns.items()})

    monkeypatch.setattr(tasks, "mesh_rows", shuffled)
    backwards = {axis: values if values == "all" else values[::-1] for axis, values in CUT_SPACE.items()}
    assert summary(ironlaw.search(**CUT[which], space=written(tmp_path, backwards))) == uncut[which]


# asking again

AGAIN = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": [8, 16, 32], "global_batch_size": 64, "seq_len": 4096}
CHANGES = (
    {"price": 1.5},
    {"price": 1.5, "tokens": "200B"},
    {"tokens": "200B", "deadline": 20},
    {"tokens": "200B", "deadline": 20, "minimize": "cost"},
    {"tokens": "200B", "budget": "100k", "price": 2.0},
    {"tokens": "200B", "budget": 1},
    {"tokens": "50B", "failures": "off", "pareto": "time,cost"},
    {"target_tokens_per_second": 150000, "minimize": "gpus"},
)


def answers(found: Any) -> Any:
    ranked = [(s.on, s.gpus, float(s.best)) for s in found.ranked()]
    first = [(c.setting.gpus, c.setting.framework, c.seconds, c.device, sorted(c.values.items())) for c in found.first(20)]
    kinds = [(c.setting.gpus, c.setting.framework, c.seconds) for c in found.of_kinds(5)]
    front = [(c.setting.gpus, c.seconds, c.device, values) for c, values in found.pareto()]
    worth = [{k: float(v) for k, v in s.objectives(s.best).items()} for s in found.settings]
    return ranked, first, kinds, front, worth


@pytest.fixture(scope="module")
def once() -> Any:
    return ironlaw.search(**AGAIN)


@pytest.mark.parametrize("changed", CHANGES, ids=str)
def test_asking_again_gives_the_result_of_a_new_search(once, changed):
    assert answers(once.again(**changed)) == answers(ironlaw.search(**AGAIN, **changed))


@pytest.mark.parametrize("first", [{"tokens": "200B", "deadline": 20}, {"gpus": "8..16"}], ids=str)
def test_asking_again_keeps_unchanged_options(first):
    question = {**AGAIN, **first}
    assert answers(ironlaw.search(**question).again(price=1.5)) == answers(ironlaw.search(**question, price=1.5))


# laws on leading axes

LAWS = (
    {"model": "llama-3-8b"},
    {"model": DENSE, "count_embedding": True, "precision": "fp8"},
    {"model": ROUTED, "optimizer": "muon"},
    {"model": "mixtral-8x7b", "expert_imbalance": 1.3, "capacity_factor": 1.5},
    {"model": "deepseek-v3", "precision": "fp8-block", "moe_dispatcher": "deepep"},
    {"model": "deepseek-v3", "schedule": "dualpipe"},
    {"model": "qwen-3-next-80b-a3b"},
    {"model": "nemotron-h-8b", "count_embedding": True},
    {"model": "gemma-3-4b", "cp_method": "all-to-all"},
    {"model": "gemma-3-4b", "cp_method": "all-gather", "cp_balance": False},
    {"model": "llama-3-8b", "cp_method": "all-to-all+ring"},
    {"model": "llama-3-8b", "schedule": "zero-bubble", "document_length": 1000},
    {"model": "llama-3-8b", "schedule": "gpipe", "flash_attention": False},
    {"model": "deepseek-v3", "schedule": "dualpipe", "last_stage_layers": 1},
    {"model": "llama-3-8b", "first_stage_layers": 3, "mtp_layers": 1},
    {"model": "llama-3-8b", "lora_rank": 16, "lora_targets": "all", "offload_layers": 2},
    {"model": "llama-3-8b", "frozen_layers": 5, "optimizer": "adafactor"},
    {"model": "llama-3-8b", "microbatch_group": 8, "deferred_wgrad": 2, "cuda_graphs": "full", "gradient_dtype": "bf16"},
    {"model": "llama-3-8b", "on": "tpu-v5p"},
    {"model": ROUTED, "on": "trainium-2"},
    {"model": ROUTED, "on": "gb200", "cp_method": "all-to-all"},
    {"model": DENSE, "on": "mi300x", "framework": "deepspeed"},
)


@pytest.mark.parametrize("asked", LAWS, ids=str)
def test_a_grid_of_plans_has_the_numbers_of_its_plans_one_a_row(asked):
    options = {"on": "h100-sxm", "framework": "megatron", **asked}
    bound = bind_question(asked_of(read_options(options)))
    job, cluster, r = bound.job(options["framework"]), bound.cluster, np.random.default_rng(3)
    rows, batch = 24, 480.0
    mesh = {axis: r.choice(values, rows).astype(float) for axis, values in DRAWS.items()}
    if options.get("schedule"):
        mesh["vpp"] = np.ones(rows)
    if not job.model.num_experts:
        mesh["ep"] = mesh["etp"] = np.ones(rows)
    mesh["vpp"] = np.where(mesh["pp"] > 1, mesh["vpp"], 1.0)
    mesh |= {axis: np.where(r.random(rows) < 0.5, options[axis], -1.0) for axis in ENDS if axis in options}
    mesh["gpus"] = mesh["tp"] * mesh["pp"] * mesh["cp"] * mesh["dp_replicate"] * mesh["dp_shard"]
    has_link = cluster.accelerator.pcie_bandwidth is not None
    switch = ((1.0, 0.0),) * 6 + (((0.0, 1.0),) * 3 if has_link else ((0.0,),) * 3) + ((0.0,),)  # nothing moves to NVMe
    choices = Choices((("none", "selective", "every:3", "full"), (0.0, 1.0, 2.0, 3.0), *switch), ("attention",))
    grid_plan = plan_of(mesh, batch, 4096.0, **choices.columns())
    shape = np.broadcast_shapes(*(np.shape(getattr(grid_plan, name)) for name in Plan.fields))
    flat_plan = Plan(**{name: np.broadcast_to(getattr(grid_plan, name), shape).ravel() for name in Plan.fields})
    with np.errstate(all="ignore"):
        seconds, forward = timed(job, cluster, grid_plan)
        flat_seconds, flat_forward = timed(job, cluster, flat_plan)
        held, flat_held = memory(job, cluster, grid_plan), memory(job, cluster, flat_plan)
    legal, flat_legal = rules.legality(job, grid_plan), rules.legality(job, flat_plan)
    assert np.isfinite(flat_seconds).any()
    np.testing.assert_array_equal(np.broadcast_to(seconds, shape).ravel(), flat_seconds)
    np.testing.assert_array_equal(np.broadcast_to(forward, shape).ravel(), flat_forward)
    np.testing.assert_array_equal(np.broadcast_to(held.device, shape).ravel(), flat_held.device)
    np.testing.assert_array_equal(np.broadcast_to(held.fits, shape).ravel(), flat_held.fits)
    for rule, column in legal.items():
        np.testing.assert_array_equal(np.broadcast_to(column, shape).ravel(), np.broadcast_to(flat_legal[rule], flat_seconds.shape), rule)


DRAWS = {
    "tp": (1, 2, 4, 8),
    "pp": (1, 2, 3, 4, 8),
    "vpp": (1, 2, 3),
    "cp": (1, 2, 4),
    "ep": (1, 2, 4, 8),
    "etp": (1, 2),
    "dp_replicate": (1, 2, 3),
    "dp_shard": (1, 2, 4, 16),
    "micro_batch_size": (1, 2, 5),
}


def timed(job: Any, cluster: Any, plan: Plan) -> tuple[Any, Any]:
    parts, _, (forward, backward) = step_parts(job, cluster, plan)
    return whole_step(cluster, plan.gpus, parts).value, forward / (forward + backward)


# spaces and clauses

SMALL = {"model": DENSE, "on": "h100-sxm", "gpus": 8, "global_batch_size": 16, "seq_len": 2048}


def of_file(tmp_path: Any, text: str, **more: Any) -> Any:
    path = tmp_path / "space.toml"
    path.write_text(text, encoding="utf-8")
    return ironlaw.search(**{**SMALL, **more}, space=str(path))


@pytest.mark.parametrize(
    ("text", "error", "told_of"),
    [
        ("dp_shards = [1]", UnknownNameError, "dp_shard"),
        ("recompte = ['none']", UnknownNameError, "recompute"),
        ("tp = []", ValueRangeError, "0 values"),
        ("tp = 0", ValueRangeError, "whole number"),
        ("tp = [-2]", ValueRangeError, "whole number"),
        ("tp = 2.5", ValueRangeError, "whole number"),
        ("tp = nan", ValueRangeError, "whole number"),
        ("tp = inf", ValueRangeError, "whole number"),
        ("tp = 1e30", ValueRangeError, "whole number"),
        ("tp = true", ValueRangeError, "number"),
        ("tp = [1, 'x']", IronlawError, "'x'"),
        ("tp = [[1, 2]]", IronlawError, "whole number"),
        ("tp = {a = 1}", IronlawError, "whole number"),
        ("tp = 1979-05-27", IronlawError, "whole number"),
        ("tp = 'all'", ValueRangeError, "pp, dp_replicate, dp_shard"),
        ("recompute = 'all'", ValueRangeError, "can be all"),
        ("recompute = ['every:0']", UnknownNameError, "every:2"),
        ("recompute = 3", UnknownNameError, "none"),
        ("zero = [4]", ValueRangeError, "0, 1, 2 or 3"),
        ("sp = [1.5]", ValueRangeError, "on or off"),
        ("schedule = 'nope'", UnknownNameError, "gpipe"),
        ("fabric = 'nope'", UnknownNameError, "fabric"),
        ("tp = [1]\ntp = [2]", InputError, "TOML"),
        ("tp", InputError, "TOML"),
        (f"tp = {list(range(1, 1002))}", ValueRangeError, "1001 values"),
    ],
)
def test_a_wrong_space_is_refused(text, error, told_of, tmp_path):
    with pytest.raises(error, match=told_of):
        of_file(tmp_path, text)


@pytest.mark.parametrize("name", ["missing", "missing.toml", "."])
def test_a_space_that_is_no_file_is_refused(name, tmp_path):
    with pytest.raises(InputError):
        ironlaw.search(**SMALL, space=str(tmp_path / name))


@pytest.mark.parametrize(
    ("clauses", "told_of"),
    [
        ({"forbid": "tpp>1"}, "nearest: .*tp"),
        ({"fix": "tpp=1"}, "nearest: .*tp"),
        ({"fix": "tp=8", "forbid": "tp=8"}, "leaves no value of tp"),
        ({"fix": "recompute=none", "forbid": "recompute=none"}, "recompute=none leaves no value"),
        ({"forbid": "tp>=1"}, "leaves no value of tp"),
        ({"forbid": "recompute>1"}, "are names"),
        ({"forbid": "schedule<2"}, "are names"),
        ({"forbid": "fabric=roce-400"}, "not varied"),
        ({"forbid": "tp>x"}, "count"),
        ({"forbid": "tp"}, "AXIS=VALUE"),
        ({"forbid": "tp=1,"}, "AXIS=VALUE"),
        ({"fix": "tp>8"}, "comparisons"),
        ({"fix": "tp=8,tp=4"}, "twice"),
        ({"fix": "tp=two"}, "whole number"),
    ],
    ids=str,
)
def test_a_wrong_clause_is_refused(clauses, told_of):
    with pytest.raises(QuestionError, match=told_of):
        ironlaw.search(**SMALL, **clauses)


@pytest.mark.parametrize(
    "clauses",
    [{"forbid": "pp>=1"}, {"forbid": "dp_shard>0"}, {"fix": "tp=7"}, {"fix": "ep=8"}, {"fix": "dp_shard=16"}, {"fix": "etp=2"}],
    ids=str,
)
def test_clauses_that_leave_no_plan_leave_no_answer(clauses):
    found = ironlaw.search(**SMALL, **clauses)
    assert found.space["legal"] == 0
    assert found.ranked() == found.first(5) == found.pareto() == found.of_kinds(5) == []


def test_an_axis_that_a_dense_model_lacks_is_counted_under_its_rule():
    assert ironlaw.search(**SMALL, fix="ep=8").space["infeasible"]["ep_divides_experts"] > 0


def test_every_plan_obeys_the_clauses():
    found = ironlaw.search(**SMALL, fix="tp=2", forbid="pp>2,zero=0,recompute=full,dp_replicate>=2,overlap_tp=on")
    first = found.first(500)
    assert len(first) == 500
    for choice in first:
        v = choice.values
        assert v["tp"] == 2 and v["pp"] <= 2 and v["dp_replicate"] < 2
        assert v["zero"] != 0 and v["recompute"] != "full" and not v["overlap_tp"]


def test_an_axis_that_is_not_varied_has_its_default(tmp_path):
    """Where only tp is varied, the plans are those of ``estimate`` with the same axes and no other option."""
    for choice in of_file(tmp_path, "tp = [1, 2, 4]").first(10):
        given = {axis: choice.values[axis] for axis in ("tp", "pp", "dp_replicate", "dp_shard", "zero", "micro_batch_size", "recompute")}
        answer = ironlaw.estimate(**SMALL, **given, framework=choice.setting.framework)
        assert (choice.seconds, choice.device) == (float(answer.step_seconds[0]), float(answer.device_bytes[0]))
        assert choice.values["sp"] or choice.values["tp"] == 1


def test_a_list_of_layers_sets_the_stages():
    found = ironlaw.search(**SMALL, layers_per_stage="4,2")
    first = found.first(5)
    assert first and {c.values["pp"] for c in first} == {2.0}
    in_bits([c.seconds for c in first], estimate_of(first, ()).step_seconds)


NUMBERS = list(range(1, 1001))


@pytest.mark.parametrize(
    "text",
    [
        f"pp = 'all'\ndp_replicate = 'all'\nvpp = {NUMBERS}\nmicro_batch_size = {NUMBERS}",
        f"pp = 'all'\ndp_replicate = 'all'\nmicro_batch_size = {NUMBERS}\nvpp = {NUMBERS}\nep = {NUMBERS}\netp = {NUMBERS}",
    ],
    ids=["dense", "routed"],
)
def test_a_huge_space_is_refused_before_it_is_listed(text, tmp_path):
    model = ROUTED if "etp" in text else DENSE
    with pytest.raises(SpaceError, match="narrow"):
        of_file(tmp_path, text, model=model, gpus=5040, global_batch_size=720720 * 5040)


def test_very_many_choices_take_few_rows_a_call(tmp_path, monkeypatch):
    """The cells of one call of the laws are bounded, so that the memory of any search is."""
    seen = []
    whole = sweep.evaluate_cells

    def watched(task: Any, index: Any, choices: Any) -> Any:
        seen.append(index.size * np.prod(choices.shape))
        return whole(task, index, choices)

    monkeypatch.setattr(sweep, "evaluate_cells", watched)
    monkeypatch.setattr(sweep, "MOST_CELLS", 2000)
    hows = ", ".join(f"'share:{n / 1000}'" for n in range(1, 301))
    found = of_file(tmp_path, f"recompute = [{hows}]\npp = 'all'\ndp_replicate = 'all'\nsp = ['on', 'off']")
    assert len(seen) > 1 and max(seen) <= 2000
    assert found.first(1)


@pytest.mark.parametrize("gpus", [0, -1, 1.5, 1e9, "x", "8..4", "1..x", [8, 0], float("nan")], ids=str)
def test_an_impossible_number_of_accelerators_is_refused(gpus):
    with pytest.raises(QuestionError):
        ironlaw.search(**{**SMALL, "gpus": gpus})


def test_a_prime_number_of_accelerators_has_data_parallel_plans_only():
    assert not ironlaw.search(**{**SMALL, "gpus": 1009}).ranked()  # the batch is no multiple of it
    best_of = ironlaw.search(**{**SMALL, "gpus": 1009, "global_batch_size": 1009}).first(1)[0]
    assert {best_of.values[axis] for axis in ("tp", "pp", "cp")} == {1.0}
    assert best_of.values["dp_shard"] * best_of.values["dp_replicate"] == 1009


@pytest.mark.parametrize(
    "given",
    [{"tokens": 0}, {"tokens": "1T", "budget": 0}, {"tokens": "1T", "deadline": 0}, {"budget": 100}, {"deadline": 5}, {"time_limit": 0}],
    ids=str,
)
def test_an_impossible_limit_is_refused(given):
    with pytest.raises(QuestionError):
        ironlaw.search(**SMALL, **given)


@pytest.mark.parametrize("given", [{"budget": 1}, {"deadline": 1e-4}, {"target_tokens_per_second": 1e14}], ids=str)
def test_a_limit_that_no_plan_meets_has_no_answer(given):
    found = ironlaw.search(**SMALL, tokens="1T", **given)
    assert found.space["legal"] > 0
    assert found.ranked() == found.first(3) == found.of_kinds(3) == found.pareto() == []


# stopped early


def test_a_stopped_search_is_marked_partial_and_its_plans_are_exact(monkeypatch):
    question = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, "global_batch_size": 32, "seq_len": 4096}
    whole = ironlaw.search(**question)
    monkeypatch.setattr(sweep, "ROWS", 8)
    stopped = ironlaw.search(**question, time_limit=1e-9)
    assert stopped.partial and not whole.partial
    assert 0 < stopped.space["legal"] < whole.space["legal"]
    assert 0 < stopped.space["rows"] < whole.space["rows"]
    first = stopped.first(50)
    best = whole.first(1)[0]
    assert first and first[0].score * first[0].unpublished >= best.score * best.unpublished
    flat = estimate_of(first, ())
    in_bits([c.seconds for c in first], flat.step_seconds)
    in_bits([c.device for c in first], flat.device_bytes)
    assert flat.fits.all()
    columns = whole.settings[0].swept.task.mesh.columns
    rows = {tuple(v) for v in np.stack(list(columns.values()), axis=1)}
    for choice in first:
        assert tuple(float(choice.values[axis]) for axis in columns) in rows
    assert stopped.pareto() and stopped.of_kinds(3) and stopped.again(price=1.0).partial


def test_a_time_limit_stops_between_settings(tmp_path):
    found = of_file(tmp_path, "dp_replicate = 'all'", gpus=[1, 2, 4, 8, 16], time_limit=1e-9)
    assert found.partial


# settings and questions


def test_a_number_listed_twice_is_searched_once():
    found = ironlaw.search(**{**SMALL, "gpus": [8, 8]})
    assert len(found.settings) == 1


def test_a_quota_below_the_range_leaves_nothing():
    with pytest.raises(IronlawError, match="quota"):
        ironlaw.search(**{**SMALL, "gpus": "16..32"}, quota="h100-sxm=8")


def test_the_schedule_without_chunks_has_none():
    found = ironlaw.search(**{**SMALL, "schedule": "1f1b"}, fix="pp=2")
    assert {c.values["vpp"] for c in found.first(500)} == {1.0}


def test_recomputation_sparser_than_the_layers_is_refused():
    with pytest.raises(ValueRangeError):
        ironlaw.search(**SMALL, fix="recompute=every:100")
