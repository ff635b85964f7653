"""Published jobs against the best plan of an open question: what is one job, the ratio, the refusal and the figures."""

from __future__ import annotations

import json

import pytest

from ironlaw.estimate.answer.estimate import answer, estimate
from ironlaw.report.estimate import page
from ironlaw.validate import argued, jobs
from ironlaw.validate.plans import PLAN, Pair, as_printed, slope
from made_runs import GPT, ready

ON_16 = {"gpus": "16"}
PLAN_OF_ONE_STAGE = {"pp": 1, "vpp": 1, "num_microbatches": 4}


@pytest.fixture(scope="module")
def prepared():
    """One job of two plans, the second measured faster; one of 64 accelerators; one too small."""
    return ready(
        {**ON_16, "recompute": "full", "step_time_s": "3.0"}, {**ON_16, "step_time_s": "2.0"}, {"gpus": "64", "step_time_s": "0.6"}, {}
    )


@pytest.fixture(scope="module")
def rows(prepared):
    return jobs.compare_jobs(prepared, page)


def test_a_job_is_its_fastest_measured_plan(rows):
    assert [(row["id"], row["gpus"], row["plans_measured"], row["measured_s"]) for row in rows] == [("1", 16, 2, 2.0), ("2", 64, 1, 0.6)]
    assert rows[0]["published"]["recompute"] == "none"


def test_the_ratio_is_the_published_plan_over_the_best_of_the_question_without_a_plan(prepared, rows):
    options = prepared.runs[1].asked[0]
    given = float(answer(options).step_seconds[0])
    best = float(answer({name: value for name, value in options.items() if name not in (*PLAN, "space")}).step_seconds[0])
    assert rows[0]["ratio"] == pytest.approx(given / best, rel=1e-12)
    json.dumps(rows, allow_nan=False)


def test_a_best_plan_runs_if_someone_gives_it(rows):
    assert [row["refused"] for row in rows] == ["", ""]


def test_what_a_stack_lacks_is_a_refusal():
    """The generic stack runs ZeRO 2 in a pipeline, DeepSpeed's engine asserts that it does not: the same plan, with another name."""
    plan = {"tp": 1, "pp": 2, "vpp": 1, "zero": 2, "micro_batch_size": 1, "recompute": "none", "global_batch_size": 32, "seq_len": 2048}
    group, at = estimate("llama-2-7b", on="a100-sxm-80gb", gpus=16, framework="generic", **plan).place_of(0)
    assert jobs.refusal(group, at) == ""
    deepspeed = estimate("llama-2-7b", on="a100-sxm-80gb", gpus=16, framework="deepspeed", **{**plan, "zero": 1}).place_of(0)[0].job
    assert "ZeRO 2 with a pipeline" in jobs.refusal(group.replace(job=deepspeed), at)


def test_a_page_that_does_not_name_what_nobody_measured_is_counted(prepared, rows):
    silent = jobs.compare_jobs(prepared, lambda _: "a page")
    for told, row in zip(silent, rows, strict=True):
        assert told["unnamed"] == told["never_measured"] == row["never_measured"] and row["unnamed"] == []
        assert told["ceiling_unnamed"] == (row["ceiling"] is not None) and not row["ceiling_unnamed"]
    figures = [jobs.summary(kind, prepared, prepared.measured) for kind in (silent, rows)]
    assert figures[0]["never_measured_unnamed"] == figures[0]["never_measured"] and figures[1]["never_measured_unnamed"] == 0


def test_figures_over_jobs(prepared, rows):
    figures = jobs.summary(rows, prepared, prepared.measured)
    assert (figures["jobs"], figures["jobs_64"], figures["refused"], figures["jobs_measured"], figures["pairs"]) == (2, 1, 0, 1, 1)
    assert figures["ratio_median"] == figures["ratio_median_dense"] == rows[1]["ratio"]
    assert figures["ratio_median_mixtures"] is None
    assert figures["slope"] == figures["slope_families"] == pytest.approx(1.0)
    assert figures["regret"] == 0.0 and figures["regret_random"] == pytest.approx(0.25)  # (2 + 3) / 2 / 2
    turned = jobs.summary(rows, prepared, 1.0 / prepared.measured)
    assert turned["slope"] == pytest.approx(-1.0) and turned["regret"] == pytest.approx(0.5)


def test_a_far_job_says_what_a_change_gains_and_what_was_measured_of_it():
    """Full recomputation beside none of the same job: the change is the recomputation, and the faster run is found whatever its plan."""
    full = {**ON_16, "gpus": "64", "recompute": "full", "precision": "bf16"}
    prepared = ready({**full, "step_time_s": "2.0"}, {**full, "recompute": "none", "step_time_s": "1.5"})
    evidence = argued.Evidence(prepared, prepared.measured)
    changes = argued.changes_of(evidence.places[0], evidence.places[1])
    assert [change.name for change in changes] == ["recomputation"] and changes[0].ratio > 1.2
    old, new = (float(prepared.answers[i][0].step_seconds[prepared.answers[i][1]]) for i in (0, 1))
    assert changes[0].ratio == pytest.approx(old / new, rel=1e-12)
    row = {"published": PLAN_OF_ONE_STAGE, "best": PLAN_OF_ONE_STAGE, "ratio": 1.3, "mfu": 0.4, "ceiling": None, "never_measured": []}
    found = argued.argue(row, changes, 0, evidence)
    assert found["faster_run"] == {"run": "1", "seconds": 1.5, "ratio": 0.75} and found["argued"]
    assert found["tested"]["pairs"] == found["tested"]["right"] == 1  # too few to be a reason
    assert "recomputation x" in found["text"] and "1, the same job, was measured at 0.75 of its time" in found["text"]
    compared = jobs.compare_jobs(prepared, page)[0]  # of the two plans the faster one is published, and nothing is faster
    assert compared["faster_run"] is None and compared["ratio_run"] == compared["ratio"]
    alone = argued.argue(row, changes, 1, evidence)
    assert alone["faster_run"] is None and not alone["argued"] and "Open" in alone["text"]


def test_a_run_that_drops_rows_is_no_faster_run_of_one_that_drops_none():
    experts = {**ON_16, "moe_experts": "8", "moe_topk": "2", "expert_ffn_hidden": "1024", "ep": "8"}
    prepared = ready({**experts, "step_time_s": "2.0"}, {**experts, "step_time_s": "1.5", "moe_dispatch": "token-drop"})
    evidence = argued.Evidence(prepared, prepared.measured)
    assert evidence.faster(0) is None
    slow = ready({**experts, "step_time_s": "1.5"}, {**experts, "step_time_s": "2.0", "moe_dispatch": "token-drop"})
    assert argued.Evidence(slow, slow.measured).faster(1) == {"run": "0", "seconds": 1.5, "ratio": 0.75}


def test_waiting_for_the_pipeline_argues_a_gain():
    waits, busy = {"pp": 8, "vpp": 1, "num_microbatches": 8}, {"pp": 1, "vpp": 1, "num_microbatches": 8}
    assert argued.idle_share(waits) == pytest.approx(7 / 15) and argued.idle_share({**waits, "vpp": 7}) == pytest.approx(1 / 9)
    prepared = ready({**ON_16, "step_time_s": "2.0"})
    row = {"published": waits, "best": busy, "ratio": 1.9, "mfu": 0.4, "ceiling": None, "never_measured": []}
    found = argued.argue(row, [], 0, argued.Evidence(prepared, prepared.measured))
    assert found["argued"] and "wait for the pipeline 47% of their passes" in found["text"]
    assert not argued.argue({**row, "best": waits}, [], 0, argued.Evidence(prepared, prepared.measured))["argued"]


def test_a_printed_gain_is_shrunk_by_what_other_families_measured():
    a = [Pair("a", "any", ["tp"], 0.5 * x, x) for x in (-0.2, 0.1, 0.3)]
    b = [Pair("b", "any", ["pp"], 0.8 * x, x) for x in (0.1, 0.4)]
    printed = as_printed([*a, *b])
    assert [pair.predicted for pair in printed[:3]] == pytest.approx([0.8 * pair.predicted for pair in a])
    assert slope(printed[:3]) == pytest.approx(0.5 / 0.8) and slope(printed[3:]) == pytest.approx(0.8 / 0.5)
    assert as_printed(a) == a  # nobody else measured any


def test_the_slope_is_that_of_what_is_measured_and_families_can_be_left_out():
    a = [Pair("a", "any", ["tp"], 0.7 * x, x) for x in (-0.2, 0.1, 0.3)]
    b = [Pair("b", "any", ["pp"], 0.2 * x, x) for x in (0.1, 0.4)]
    assert slope(a) == pytest.approx(0.7) and slope([*a, *b], without="b") == pytest.approx(0.7)
    assert 0.2 < slope([*a, *b]) < slope([*a, *a, *b]) < 0.7
    assert slope([*a, *b], by_family=True) == pytest.approx(slope([*a, *a, *b], by_family=True))
    assert slope([]) is None


def test_the_verb_compares_the_jobs_of_a_table(table, ask):
    status, out, _ = ask("validate", "--plans", "--runs", table({**GPT, **ON_16}), "--json")
    data = json.loads(out)
    assert status == 0 and data["plans"]["jobs"] == len(data["jobs"]) == 1 and data["compared"] == []
    status, out, _ = ask("validate", "--plans", "--runs", table({**GPT, **ON_16}))
    assert status == 0 and "GPT on 16 x a100-sxm-80gb" in out and "refuse" in out


@pytest.mark.parametrize("form", [(), ("--json",), ("--markdown",)])
def test_a_table_without_such_jobs_is_status_1_and_a_page(table, ask, form):
    status, out, err = ask("validate", "--plans", "--runs", table(GPT), *form)
    assert status == 1 and out and not err
