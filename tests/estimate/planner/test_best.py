"""The planner against enumeration: the same best plan, no plan below its bound, the same answer from every verb."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.cautions.record import sentences
from ironlaw.errors import IronlawError
from ironlaw.estimate.bind.expert_loads import bind_expert_load
from ironlaw.estimate.bind.question import bind_question, framework_of, with_batch
from ironlaw.estimate.planner import best, possible
from ironlaw.estimate.planner.best import UNFIT, best_plan, may_fit, visits_of
from ironlaw.estimate.planner.bounds import BOUNDED, ROUNDING, memory_at_least, step_at_least, work_at_least
from ironlaw.estimate.planner.grid import Task, rooms, usable_choices
from ironlaw.estimate.planner.mesh import Mesh
from ironlaw.estimate.planner.plans import Plans, open_rows, sort_plans
from ironlaw.estimate.planner.possible import any_fits, has_plan, may_have_plan
from ironlaw.estimate.planner.space import read_space
from ironlaw.estimate.planner.tasks import offered, task_of, usable_space
from ironlaw.question.asked import asked_of
from ironlaw.question.read import read_options

MODELS = ("llama-3-8b", "mixtral-8x7b", "qwen-3-0.6b", "deepseek-v2-lite", "nemotron-h-8b", "gemma-3-4b", "gpt-2")
DEVICES = ("h100-sxm", "a100-sxm-80gb", "mi300x", "tpu-v5p", "b200-sxm", "gb200", "v100-sxm-16gb", "a100-pcie-80gb", "rtx-4090")
FRAMEWORKS = ("megatron", "nemo", "fsdp", "deepspeed", "torchtitan", "torchtitan-compile", "megatron-legacy", "maxtext")
SEEDS = range(48)
pytestmark = pytest.mark.usefixtures("free_stacks")


def drawn(seed: int) -> dict[str, Any]:
    """A question; every part of the bound is met by some of them: experts, host-bound layers, schedules, odd counts, long sequences."""
    r = random.Random(seed)
    asked: dict[str, Any] = {
        "model": r.choice(MODELS),
        "on": r.choice(DEVICES),
        "gpus": r.choice((1, 2, 4, 6, 7, 8, 12, 16, 24, 48, 72, 80)),
    }
    asked["global_batch_size"] = asked["gpus"] * r.choice((1, 2, 4, 8)) * r.choice((1, 1, 3))
    asked["seq_len"] = r.choice((512, 1024, 1024, 4096)) if asked["model"] != "gpt-2" else 1024
    if r.random() < 0.5:
        asked["framework"] = r.choice(FRAMEWORKS)
    if r.random() < 0.4:
        asked["schedule"] = r.choice(("1f1b", "gpipe", "zero-bubble", "dualpipe", "interleaved"))
    for name, values in (
        ("moe_dispatcher", ("deepep", "hybridep")), ("cuda_graphs", ("partial", "full")), ("optimizer", ("muon", "sgd")),
        ("cp_method", ("all-to-all", "all-gather")), ("recompute", ("none", "full", "share:0.3")), ("zero", (1, 3)), ("tp", (2, 4)),
        ("overlap", ("none", "all")), ("lora_rank", (16,)), ("count_embedding", (True,)), ("gradient_dtype", ("bf16",)),
    ):  # fmt: skip
        if r.random() < 0.12:
            asked[name] = r.choice(values)
    for name, values in (
        ("oversubscription", (2.5, 16.0)), ("network_share", (0.3,)), ("in_network_reduction", ("off", "on")),
    ):  # fmt: skip
        if r.random() < 0.2:
            asked[name] = r.choice(values)
    return asked | ({"pod_size": r.choice((8, 16, 40))} if "oversubscription" in asked else {})


SPACE = """
tp = [1, 2, 3, 4, 8]
pp = "all"
vpp = [1, 2, 3]
cp = [1, 2]
ep = [1, 2, 4, 8]
etp = [1, 2]
dp_replicate = "all"
last_stage_layers = "balanced"
micro_batch_size = [1, 2, 3]
recompute = ["none", "selective", "every:2", "full", "segments:2"]
zero = [0, 1, 2, 3]
sp = ["on", "off"]
overlap_tp = ["on", "off"]
overlap_ep = ["on", "off"]
overlap_grad_reduce = ["on", "off"]
offload_optimizer = ["off", "on"]
"""


@pytest.fixture(scope="module")
def space(tmp_path_factory) -> Any:
    path = tmp_path_factory.mktemp("space") / "space.toml"
    path.write_text(SPACE, encoding="utf-8")
    return read_space(str(path))


def tasks_of(asked: dict[str, Any], space: Any) -> list[Task]:
    """The task of a question in a space of this file; none where the question is refused."""
    try:
        bound = with_batch(bind_question(asked_of(read_options(asked))))
        row = bound.asked.rows[0]
        job = bound.job(framework_of(bound, row))
    except IronlawError:
        return []
    fixed = {name: getattr(row, name) for name in ("tp", "zero", "recompute") if getattr(row, name) is not None}
    if row.overlap is not None:
        fixed |= {f"overlap_{name}": float(name.replace("_", "-") in row.overlap) for name in ("tp", "ep", "grad_reduce")}
    sizes = {"gpus": row.gpus, "global_batch_size": row.global_batch_size, "seq_len": row.seq_len}
    narrowed = usable_space(space.narrowed(fixed), bound, row.gpus, row.seq_len)
    return [task_of(narrowed, bound, job, sizes)]


def every_plan(task: Task, fitting: bool = True) -> Plans:
    """Every plan of a task."""
    return open_rows(task, np.arange(task.mesh.rows), fitting=fitting)


@pytest.fixture(scope="module")
def drawn_tasks(space) -> dict[int, Task]:
    found = {seed: tasks_of(drawn(seed), space) for seed in SEEDS}
    return {seed: tasks[0] for seed, tasks in found.items() if tasks and tasks[0].mesh.rows}


def test_most_questions_have_plans(drawn_tasks):
    assert len(drawn_tasks) > len(SEEDS) // 2
    assert sum(task.job.model.num_experts > 0 for task in drawn_tasks.values()) > 5
    assert len({task.job.schedule for task in drawn_tasks.values()}) >= 4


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_is_faster_than_its_bound(seed, drawn_tasks):
    """By the choices in BOUNDED, with and without the collectives of sharded weights, for plans that fit and plans that do not."""
    if seed not in drawn_tasks:
        return
    task = drawn_tasks[seed]
    choices = usable_choices(task, task.mesh.columns)
    plans, cells = every_plan_with_cell(task)
    for sharded in (False, True):
        shape = (*(len(choices.of(name)) for name in BOUNDED), task.mesh.rows)
        least = np.broadcast_to(step_at_least(task, np.arange(task.mesh.rows), choices, sharded), shape)[cells]
        assert np.all(least > 0.0)
        assert np.all(least * (1.0 - ROUNDING) <= plans.seconds)
    assert np.all(work_at_least(task, task.mesh.columns)[cells[-1]] * (1.0 - ROUNDING) <= plans.seconds)


@pytest.mark.parametrize("model", ["deepseek-v3", "llama-3-70b"])
def test_no_plan_of_many_stages_is_faster_than_its_work_spread_evenly(model, space):
    """Stages of a class count as its first, which may have the dense layers at the front of a mixture."""
    task = tasks_of({"model": model, "on": "h100-sxm", "gpus": 512, "global_batch_size": 512, "seq_len": 4096}, space)[0]
    rows = np.random.default_rng(3).permutation(np.flatnonzero(task.mesh.columns["pp"] > 8.0))[:64]
    some = task.replace(mesh=Mesh({name: column[rows] for name, column in task.mesh.columns.items()}, {}))
    plans, cells = every_plan_with_cell(some)
    least = work_at_least(task, task.mesh.columns)[rows][cells[-1]]
    assert np.all(least * (1.0 - ROUNDING) <= plans.seconds)
    assert np.max(least / plans.seconds) > 0.5


@pytest.mark.parametrize("schedule", ["interleaved", "zero-bubble", "dualpipe"])
def test_plans_within_a_limit_are_those_of_all_plans(schedule, space):
    """In bits: the passes of plans that take longer are not run."""
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 48, "global_batch_size": 96, "seq_len": 4096, "schedule": schedule}
    task = tasks_of(asked, space)[0]
    rows = np.random.default_rng(4).permutation(np.flatnonzero(task.mesh.columns["pp"] > 2.0))[:24]
    plans = open_rows(task, rows, fitting=False)
    for limit in np.quantile(plans.seconds, [0.01, 0.5]):
        some = open_rows(task, rows, limit, fitting=False)
        assert np.array_equal(np.sort(some.seconds), np.sort(plans.seconds[plans.seconds <= limit]))
        assert some.seconds.size


@pytest.mark.parametrize("shape", ["uniform", "zipf:0.5"])
def test_bounds_hold_for_uneven_experts(shape, drawn_tasks):
    """Chance makes a step of few micro-batches longer than one of many; the bound is that of a batch without end."""
    routed = [task for task in drawn_tasks.values() if task.job.model.num_experts]
    for task in routed[:2]:
        load = bind_expert_load(asked_of({"expert_load": shape, "load_spread": 0.1}), task.job.model)
        uneven = task.replace(job=task.job.replace(expert_load=load))
        choices = usable_choices(uneven, uneven.mesh.columns)
        plans, cells = every_plan_with_cell(uneven)
        for sharded in (False, True):
            bounds = (*(len(choices.of(name)) for name in BOUNDED), uneven.mesh.rows)
            least = np.broadcast_to(step_at_least(uneven, np.arange(uneven.mesh.rows), choices, sharded), bounds)[cells]
            assert np.all(least * (1.0 - ROUNDING) <= plans.seconds)
        needed = memory_at_least(uneven, np.arange(uneven.mesh.rows), choices)[cells]
        assert np.all(needed * (1.0 - ROUNDING) <= plans.device)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_needs_less_memory_than_its_bound(seed, drawn_tasks):
    if seed not in drawn_tasks:
        return
    task = drawn_tasks[seed]
    choices = usable_choices(task, task.mesh.columns)
    plans, cells = every_plan_with_cell(task)
    least = memory_at_least(task, np.arange(task.mesh.rows), choices)[cells]
    assert np.all(least > 0.0)
    assert np.all(least * (1.0 - ROUNDING) <= plans.device)
    assert np.median(least / plans.device) > 0.5


@pytest.mark.parametrize("seed", SEEDS[:16])
def test_what_bounds_of_memory_say_of_a_task_holds_for_its_plans(seed, drawn_tasks):
    if seed in drawn_tasks:
        task = drawn_tasks[seed]
        fit = every_plan(task, fitting=True).seconds.size > 0
        assert fit or not any_fits(task)
        assert may_fit(visits_of([task])) or not fit
        every = np.arange(task.mesh.rows)
        first, whole = (memory_at_least(task, every, usable_choices(task, task.mesh.columns), first) for first in (True, False))
        assert np.all(first <= whole)


def test_where_bounds_tell_that_nothing_fits_no_plan_is_evaluated(monkeypatch):
    """397 billion parameters have 6.3 TB of states, 8 H100 have 0.64 TB; all plans of four counts took 5 CPU seconds."""
    monkeypatch.setattr(possible, "evaluate_cells", lambda *_: pytest.fail("a plan is evaluated"))
    bound = with_batch(bind_question(asked_of({"model": "qwen-3.5-397b-a17b", "on": "h100-sxm", "gpus": 8.0})))
    assert has_plan(bound) is False
    assert not may_have_plan(bound)


def every_plan_with_cell(task: Task) -> tuple[Plans, tuple[Any, ...]]:
    """Every plan of a task, whether it fits or not, and where a bound of the task has its value."""
    row_of = {tuple(row): at for at, row in enumerate(np.stack(list(task.mesh.columns.values()), axis=1).tolist())}
    plans, choices = every_plan(task, fitting=False), usable_choices(task, task.mesh.columns)
    rows = np.array([row_of[tuple(row)] for row in np.stack([plans.columns[name] for name in task.mesh.columns], axis=1).tolist()])
    return plans, (*(np.array([choices.of(name).index(value) for value in plans.columns[name].tolist()]) for name in BOUNDED), rows)


def test_the_bound_says_something(drawn_tasks):
    """Of the best plan of a task it leaves out little; else hardly a row would be excluded."""
    shares = []
    for task in drawn_tasks.values():
        least = step_at_least(task, np.arange(task.mesh.rows), usable_choices(task, task.mesh.columns), sharded=True)
        shares.append(least.min() / best_plan([task]).plan.seconds[0])
    assert np.median(shares) > 0.8


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_plan_is_that_of_enumeration(seed, drawn_tasks):
    if seed not in drawn_tasks:
        return
    task, found = drawn_tasks[seed], best_plan([drawn_tasks[seed]])
    assert found is not None
    plans = every_plan(task)
    for tier, room in enumerate(rooms(task)):
        inside = plans.take(np.flatnonzero(plans.device <= room))
        if inside.seconds.size:
            expected = sort_plans(inside)
            assert found.tier == tier
            break
    else:
        all_plans = every_plan(task, fitting=False)
        expected = sort_plans(all_plans.take(np.flatnonzero(all_plans.device == all_plans.device.min())))
        assert found.tier == UNFIT
    assert found.plan.seconds[0] == expected.seconds[0]
    assert found.plan.device[0] == expected.device[0]
    assert {name: column[0] for name, column in found.plan.columns.items()} == {n: c[0] for n, c in expected.columns.items()}


@pytest.mark.parametrize("sizes", [{"FIRST": 1, "ROWS": 3, "TIMED": 1}, {"FIRST": 7, "TIMED": 2}, {"MOST_CELLS": 999}], ids=str)
def test_blocks_of_any_size_give_the_same_plan(sizes, drawn_tasks, monkeypatch):
    some = list(drawn_tasks.values())[:8]
    whole = [best_plan([task]) for task in some]
    for name, size in sizes.items():
        monkeypatch.setattr(best, name, size)
    for task, expected in zip(some, whole, strict=True):
        found = best_plan([task])
        assert found.plan.seconds == expected.plan.seconds
        assert {n: c[0] for n, c in found.plan.columns.items()} == {n: c[0] for n, c in expected.plan.columns.items()}


def test_of_several_tasks_the_best_plan_is_the_best_of_each(drawn_tasks):
    """With one time to beat for all; of equal tasks the first."""
    some = [task for task in drawn_tasks.values() if best_plan([task]).plan.device[0] <= rooms(task)[0]][:6]
    single = [best_plan([task]).plan.seconds[0] for task in some]
    found = best_plan(some + some)
    assert found.plan.seconds[0] == min(single) == single[found.task]


QUESTIONS: tuple[dict[str, Any], ...] = (
    {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16},
    {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 2},
    {"model": "llama-3-70b", "on": "h100-sxm", "gpus": 8},
    {"model": "llama-3-70b", "on": "gb200", "gpus": 96, "recompute": "full"},
    {"model": "mixtral-8x7b", "on": "mi300x", "gpus": 24, "seq_len": 4096, "global_batch_size": 96},
    {"model": "gpt-2", "on": "v100-sxm-16gb", "gpus": 5},
    {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "seq_len": 32768, "global_batch_size": 16},
    {"model": "qwen-3-0.6b", "on": "tpu-v5p", "gpus": 16, "micro_batch_size": 2, "zero": 3},
    {"model": "llama-3-8b", "on": "a100-sxm-40gb", "gpus": 8, "framework": "torchtitan", "overlap": "none", "tp": 4},
    {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 2, "pp": 2, "vpp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none"},
    {"model": "deepseek-v2-lite", "on": "h100-sxm", "gpus": 16, "precision": "fp8", "schedule": "zero-bubble"},
    {"model": "llama-3-8b", "on": "rtx-4090", "gpus": 2, "margin": "20%"},
    {"model": "gpt-2", "on": "h200-sxm", "gpus": 12, "pp": 3, "recompute": "selective", "overlap": "all", "seq_len": 1024},
    {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "micro_batch_size": 700},
)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: ",".join(map(str, q.values())))
def test_the_best_plan_of_a_search_is_that_of_an_estimate(question):
    """In bits; and the plan, given by its flags, has the same time and memory."""
    estimate, found = ironlaw.estimate(**question), ironlaw.search(**question)
    first = found.first(1)
    if not first:
        assert not estimate.fits[0]
        return
    assert (first[0].seconds, first[0].device) == (estimate.step_seconds[0], estimate.device_bytes[0])
    again, row = found.explained(first)[0]
    assert again.row(row)["asked"]["plan"] == estimate.row(0)["asked"]["plan"]
    given = estimate.row(0)["asked"]
    back = ironlaw.estimate(**{**given["given"], **given["plan"]})
    assert (back.step_seconds[0], back.device_bytes[0]) == (first[0].seconds, first[0].device)


def test_many_rows_are_answered_as_each_alone():
    columns = {"gpus": [8, 16, 16, 24], "global_batch_size": [32, 64, 32, 48], "tp": [2, None, 4, None]}
    shared = {"model": "llama-3-8b", "on": "h100-sxm", "seq_len": 4096}
    for names in ({"gpus", "global_batch_size"}, {"gpus"}):
        many = ironlaw.estimate(**shared, **{name: columns[name] for name in names})
        for at in range(4):
            alone = ironlaw.estimate(**shared, **{name: columns[name][at] for name in names})
            assert (many.step_seconds[at], many.device_bytes[at]) == (alone.step_seconds[0], alone.device_bytes[0])


def test_no_plan_drawn_from_the_default_space_beats_the_best():
    question = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 32, "global_batch_size": 64}
    estimate = ironlaw.estimate(**question)
    bound = with_batch(bind_question(asked_of(read_options(question))))
    space = read_space(None)
    space = offered(space, bound, bound.job("megatron"))
    sizes = {"gpus": 32.0, "global_batch_size": 64.0, "seq_len": 8192.0}
    task = task_of(usable_space(space, bound, 32.0, 8192.0), bound, bound.job("megatron"), sizes)
    rows = np.random.default_rng(1).choice(task.mesh.rows, 40, replace=False)
    plans = open_rows(task, rows, room=rooms(task)[0])
    assert plans.seconds.size > 1000
    assert plans.seconds.min() >= estimate.step_seconds[0]


def test_a_given_plan_is_only_evaluated(monkeypatch):
    monkeypatch.setattr("ironlaw.estimate.planner.choose.preferred_plan", None)
    given = {"tp": 2, "pp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none"}
    plan = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, **given).row(0)["plan"]
    assert (plan["vpp"], plan["cp"], plan["dp_shard"], plan["offload"], plan["overlap"]) == (
        1,
        1,
        4,
        [],
        ["grad-reduce", "param-gather", "pp"],
    )


def test_where_no_plan_keeps_the_margin_the_fastest_that_fits_is_taken_and_that_is_said():
    """Sequences of one length after the other, until the leanest plan of one accelerator is between the margin and the capacity."""
    said = set()
    for length in range(4096, 65536, 1024):
        estimate = ironlaw.estimate("qwen-3-0.6b", on="l4", gpus=1, global_batch_size=1, seq_len=length, offload="none")
        row = estimate.row(0)
        told = any("no plan leaves" in line for line in sentences(row["warnings"]))
        said.add((row["memory"]["keeps_margin"], row["memory"]["fits"], told))
        if not row["memory"]["fits"]:
            break
    assert said >= {(True, True, False), (False, False, False)}
    assert said <= {(True, True, False), (False, True, True), (False, False, False)}


@pytest.mark.parametrize("given", [{}, {"tp": 1, "pp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none"}])
def test_only_a_given_plan_is_said_to_lack_context_parallel(given):
    row = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, seq_len=131072, **given).row(0)
    assert any("context parallel (--cp) may be faster" in line for line in sentences(row["warnings"])) == bool(given)
    assert (row["plan"]["cp"] > 1) == (not given)
