"""The best plan by time and evidence: the score of every plan, what is not searched, and that every verb takes the same plan."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.estimate.bind.question import bind_question, with_batch
from ironlaw.estimate.evidence.support import never_measured
from ironlaw.estimate.planner import evidence
from ironlaw.estimate.planner.best import UNFIT
from ironlaw.estimate.planner.choose import Bounds, tasks_of_row
from ironlaw.estimate.planner.grid import rooms
from ironlaw.estimate.planner.plans import open_rows
from ironlaw.estimate.planner.space import read_space
from ironlaw.report.estimate import page
from ironlaw.search.as_data import search_data

QUESTIONS = [
    {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, "global_batch_size": 128, "seq_len": 8192},
    {"model": "llama-2-7b", "on": "tpu-v5p", "gpus": 64, "global_batch_size": 128, "seq_len": 4096},
    {"model": "mixtral-8x7b", "on": "h100-sxm", "gpus": 16, "global_batch_size": 64, "seq_len": 4096},
    {"model": "llama-3-70b", "on": "h100-sxm", "gpus": 64, "global_batch_size": 64, "seq_len": 8192},
]
UNEVEN = {"model": "llama-3-70b", "on": "h100-sxm", "gpus": 512, "global_batch_size": 512, "seq_len": 8192}


def tasks_of(question):
    group = ironlaw.estimate(**question).groups[0]
    bound = with_batch(bind_question(group.asked, ()))
    return tasks_of_row(bound, bound.asked.rows[0], read_space(None), Bounds(bound))[1]


@pytest.fixture(scope="module", params=QUESTIONS, ids=lambda question: f"{question['model']}-{question['on']}-{question['gpus']}")
def found(request):
    tasks = tasks_of(request.param)
    return request.param, tasks, evidence.preferred_plan(tasks)


def test_no_plan_has_a_better_score(found):
    """Among all plans of all rows that keep to the room of the fastest."""
    _, tasks, preferred = found
    assert preferred.fastest.tier < UNFIT
    best = min(
        float(evidence.scores(task, plans).min(initial=np.inf))
        for task in tasks
        for start in range(0, task.mesh.rows, 2048)
        for plans in [open_rows(task, np.arange(start, min(start + 2048, task.mesh.rows)), room=rooms(task)[preferred.fastest.tier])]
    )
    task = tasks[preferred.best.task]
    assert float(evidence.scores(task, preferred.best.plan)[0]) == pytest.approx(best, rel=1e-12)


def test_a_plan_loses_no_more_than_its_evidence_is_worth(found):
    _, tasks, preferred = found
    counts = [
        int(never_measured((task := tasks[one.task]).job, evidence.as_plan(task, one.plan), task.cluster.accelerator.architecture)[0])
        for one in (preferred.best, preferred.fastest)
    ]
    price, lost = 1.0 + load.record("bands", "default").told_apart.value, preferred.best.plan.seconds[0] / preferred.fastest.plan.seconds[0]
    assert tasks[0].price == price
    assert 1.0 <= lost <= price ** (counts[1] - counts[0]) * (1.0 + 1e-12)
    assert (lost == 1.0) == (preferred.best is preferred.fastest)


def test_estimate_and_plan_take_the_same_plan_and_list_the_fastest(found):
    question, _, preferred = found
    row = ironlaw.estimate(**question).row(0)
    searched = ironlaw.search(**question)
    assert row["step"]["seconds"] == pytest.approx(float(preferred.best.plan.seconds[0]), rel=1e-12)
    assert searched.first(1)[0].seconds == pytest.approx(row["step"]["seconds"], rel=1e-12)
    assert ("faster_unmeasured" in row) == (preferred.best is not preferred.fastest)


def test_where_the_fastest_was_measured_nothing_is_searched(monkeypatch):
    tasks = tasks_of({"model": "gpt-3-175b", "on": "h100-sxm", "gpus": 1024, "global_batch_size": 1536})
    monkeypatch.setattr(evidence, "_hopeful_rows", None)
    preferred = evidence.preferred_plan(tasks)
    assert preferred.best is preferred.fastest


def test_the_page_the_json_and_the_table_of_plans_name_the_fastest_without_evidence():
    answer = ironlaw.estimate(**UNEVEN)
    row = answer.row(0)
    faster = row["faster_unmeasured"]
    assert faster["never_measured"] and not row["support"]["never_measured"]
    assert (
        faster["gain"] == pytest.approx(row["step"]["seconds"] / faster["seconds"] - 1.0) and 0.0 < faster["likely_gain"] < faster["gain"]
    )
    assert f"likely {faster['likely_gain']:.1%} faster ({faster['gain']:.1%} predicted); never measured: " in page(answer)
    again = ironlaw.estimate(**{**UNEVEN, **faster["plan"], "framework": row["plan"]["framework"]})
    assert again.step_seconds[0] == pytest.approx(faster["seconds"], rel=1e-12)
    plans = search_data(ironlaw.search(**UNEVEN), advice=False)["plans"]
    (listed,) = [plan for plan in plans if "without evidence" in plan["note"]]
    assert listed["step"]["seconds"] == faster["seconds"] < plans[0]["step"]["seconds"] and listed["longer"] < 0.0


def test_a_space_of_the_user_and_a_kind_without_runs_are_searched_by_time_alone(tmp_path):
    space = tmp_path / "space.toml"
    space.write_text("pp = [1, 2, 4]\nvpp = [1, 12]\nmicro_batch_size = [1]\n", encoding="utf-8")
    assert "faster_unmeasured" not in ironlaw.estimate(**UNEVEN, space=str(space)).row(0)
    tasks = tasks_of({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 1, "lora_rank": 16, "framework": "unsloth", "global_batch_size": 8})
    assert {task.price for task in tasks} == {1.0}
