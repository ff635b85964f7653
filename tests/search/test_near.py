"""The plans near the best, what is free to choose, how likely a plan is the fastest, and the run on one node less."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ironlaw
from ironlaw.cli.main import main
from ironlaw.estimate.planner.best import best_plan
from ironlaw.estimate.planner.evidence import evidence_scores
from ironlaw.estimate.planner.possible import any_legal
from ironlaw.question.defaults import NEAR, NEAR_PLANS
from ironlaw.report.search import page
from ironlaw.search.as_data import search_data
from ironlaw.search.near import effort, free_axes, layout, near_plans, plan_entry, values_of

SMALL = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, "global_batch_size": 128}


@pytest.fixture(scope="module")
def found():
    return ironlaw.search(**SMALL, tokens="1T")


@pytest.fixture(scope="module")
def data(found):
    return search_data(found)


@pytest.fixture(scope="module")
def best(found):
    return found.of_kinds(5)[0]


@pytest.fixture(scope="module")
def near(found, best):
    return near_plans(found, best)


def estimated(entry, **question) -> float:
    """Step time that ``estimate`` gives a plan of the JSON."""
    plan = entry["plan"]
    asked = {"framework": entry["framework"]} | {k: v for k, v in plan.items() if not k.startswith(("overlap_", "offload_"))}
    asked["overlap"] = ",".join(k[8:].replace("_", "-") for k, on in plan.items() if k.startswith("overlap_") and on) or "none"
    asked["offload"] = ",".join(k[8:] for k, on in plan.items() if k.startswith("offload_") and on) or "none"
    return ironlaw.estimate(**{**SMALL, **asked, **question}).row(0)["step"]["seconds"]


class TestNear:
    def test_every_plan_within_two_percent_is_found(self, found, best, near):
        """Among all plans of the setting, opened without a limit."""
        setting = found.settings[0]
        everything = setting.swept.open(np.arange(setting.swept.task.mesh.rows))
        score = evidence_scores(setting.swept.task, everything)
        assert len(near.plans) == np.count_nonzero(score <= (1.0 + NEAR) * best.score) >= 10
        assert near.plans[0].score == best.score == score.min()
        assert all(plan.device <= setting.bound.room(setting.framework) for plan in near.plans)

    def test_plans_alike_but_for_overlap_count_once_by_the_fastest(self, near):
        def rest(plan):
            return [v for k, v in values_of(plan).items() if not k.startswith("overlap_")]

        assert len(near.distinct) < len(near.plans)
        for plan in near.plans:
            same = [other for other in near.distinct if rest(other) == rest(plan)]
            assert len(same) == 1
            assert same[0].seconds <= plan.seconds

    def test_the_simplest_is_listed_first_and_no_other_is_simpler(self, found, best, near):
        assert min(near.distinct, key=effort).same_as(near.simplest)
        assert near.shown == sorted(near.shown, key=effort)
        assert near.simplest.same_as(best) or near.shown[0].same_as(near.simplest)

    def test_the_listed_plans_differ_from_the_best_and_from_each_other(self, best, near):
        assert 1 < len(near.shown) <= NEAR_PLANS
        others = [plan for plan in near.shown if not plan.same_as(near.simplest)]
        layouts = [layout(plan) for plan in (best, *others)]
        assert len(set(layouts)) == len(layouts)

    def test_no_plan_that_is_left_out_differs_more(self, best, near):
        """The last one chosen is as far from the others as any that is left out."""

        def apart(plan, others):
            return min(sum(a != b for a, b in zip(layout(plan), layout(o), strict=True)) for o in others)

        least = min(apart(p, [best, *(o for o in near.shown if o is not p)]) for p in near.shown if not p.same_as(near.simplest))
        assert max(apart(p, [best, *near.shown]) for p in near.distinct) <= least

    def test_estimate_gives_the_same_seconds(self, data):
        for plan in data["near"]["plans"]:
            assert estimated(plan) == pytest.approx(plan["step_seconds"], rel=1e-12)
            assert plan["longer"] == pytest.approx(plan["step_seconds"] / data["plans"][0]["step"]["seconds"] - 1.0)
            assert 0.0 <= plan["longer"] <= NEAR


class TestFree:
    def test_values_of_the_near_plans_are_free_and_others_are_not(self, best, near):
        rows = {row["axis"]: row for row in free_axes(best, near, 1.0)}
        assert {"tp", "pp", "zero", "recompute", "micro_batch_size"} <= set(rows)
        for axis in ("tp", "pp", "vpp", "cp", "zero", "recompute"):
            assert {item["value"] for item in rows[axis]["values"]} == {plan.values[axis] for plan in near.plans}

    def test_an_axis_moved_alone_costs_at_most_what_estimate_says(self, data, best):
        """The step with another number of context ranks, the rest of the best plan as it is; the search may choose overlap anew."""
        entry, row = plan_entry(best), next(row for row in data["near"]["free"] if row["axis"] == "cp")
        plan = entry["plan"]
        ranks = plan["cp"] * plan["dp_shard"]
        assert len(row["values"]) > 1
        for item in row["values"]:
            alone = estimated({**entry, "plan": {**plan, "cp": item["value"], "dp_shard": ranks // item["value"]}})
            assert item["longer"] is None or item["longer"] <= alone / best.seconds - 1.0 + 1e-9

    def test_the_value_of_the_best_costs_nothing(self, data):
        for row in data["near"]["free"]:
            assert next(item["longer"] for item in row["values"] if item["value"] == row["best"]) == 0.0
            assert all(item["longer"] is None or 0.0 <= item["longer"] <= NEAR for item in row["values"])

    def test_what_the_question_fixes_is_neither_free_nor_fixed(self):
        near = search_data(ironlaw.search(**SMALL, fix="tp=2,zero=1"))["near"]
        named = {row["axis"] for row in near["free"]} | set(near["fixed"])
        assert {"tp", "zero", "etp", "dp_shard"}.isdisjoint(named)
        assert "pp" in named


class TestLikely:
    def test_the_first_five_sum_to_at_most_one_and_follow_the_order(self, data):
        first = [plan["fastest_probability"] for plan in data["plans"][:5]]
        assert all(0.0 < share < 1.0 for share in first)
        assert first == sorted(first, reverse=True)
        assert sum(first) <= 1.0 + 1e-12

    def test_a_plan_near_the_best_is_nearly_as_likely_faster(self, data):
        shares = [(plan["longer"], plan["faster_probability"]) for plan in data["near"]["plans"]]
        assert all(0.4 < share <= 0.5 for _, share in shares)
        assert [share for _, share in sorted(shares)] == sorted((share for _, share in shares), reverse=True)

    def test_a_plan_on_other_accelerators_has_none(self):
        data = search_data(ironlaw.search(**{**SMALL, "on": "h100-sxm,a100-sxm-80gb"}, fix="tp=1,pp=1,cp=1"))
        shares = [(plan["plan"]["accelerator"], plan["fastest_probability"]) for plan in data["plans"] if not plan["note"]]
        assert {on for on, _ in shares} == {"h100-sxm", "a100-sxm-80gb"}
        assert all((share is None) == (on == "a100-sxm-80gb") for on, share in shares)

    def test_a_plan_without_free_memory_has_none(self, data):
        assert [plan["fastest_probability"] is None for plan in data["plans"]] == ["fits" in plan["note"] for plan in data["plans"]]


class TestOneLess:
    def test_the_same_batch_is_the_best_of_a_search_on_fewer(self, data):
        less = data["one_less"]
        smaller = ironlaw.search(**{**SMALL, "gpus": 8}, tokens="1T")
        fewer = search_data(smaller, advice=False)["plans"][0]
        assert (less["unit"], less["gpus"], less["why"]) == ("node", 8, None)
        assert less["same_batch"]["step_seconds"] == fewer["step"]["seconds"]
        rate = data["plans"][0]["throughput"]["tokens_per_second"]
        assert less["same_batch"]["lost"] == pytest.approx(1.0 - less["same_batch"]["tokens_per_second"] / rate)
        assert less["same_batch"]["more_usd"] == pytest.approx(fewer["worth"]["cost"] - data["plans"][0]["worth"]["cost"])
        assert less["same_batch"]["more_days"] == pytest.approx((fewer["worth"]["time"] - data["plans"][0]["worth"]["time"]) / 86400.0)

    def test_the_same_layout_has_fewer_ranks_and_a_smaller_batch(self, data):
        less, plan = data["one_less"]["same_layout"], data["plans"][0]["plan"]
        for axis in ("tp", "pp", "vpp", "cp", "micro_batch_size"):
            assert less["plan"][axis] == plan[axis]
        assert less["gpus"] <= 8
        assert less["global_batch_size"] / less["gpus"] == plan["global_batch_size"] / plan["gpus"]
        seconds = estimated(less, global_batch_size=less["global_batch_size"])
        assert less["step_seconds"] == pytest.approx(seconds, rel=1e-12)

    def test_a_count_that_divides_nothing_names_the_next_that_works(self):
        """296 accelerators have a factor of 37: 608 sequences do not, and there are 32 layers to split."""
        data = search_data(ironlaw.search(**{**SMALL, "gpus": 304, "global_batch_size": 608}))
        less = data["one_less"]
        assert (less["gpus"], less["why"], less["same_batch"]["gpus"]) == (296, "divides", 288)
        assert "no tp, pp, cp and dp divide 296 accelerators and the batch of 608" in page(data)
        layout = less["same_layout"]  # 592 sequences have the factor of 37
        assert (layout["gpus"], layout["global_batch_size"], less["near_batch"]) == (296, 592, None)

    def test_the_batch_is_changed_where_that_loses_less(self):
        """Without a node 124 accelerators are 116, with a factor of 29: 512 sequences do not have it, 522 are within a tenth and do."""
        data = search_data(ironlaw.search("llama-3-8b", on="h100-sxm", gpus=124, global_batch_size=512, fix="tp=1"))
        less, near = data["one_less"], data["one_less"]["near_batch"]
        assert near["gpus"] == 116
        assert near["global_batch_size"] % 29 == 0
        assert abs(near["global_batch_size"] / 512 - 1.0) <= 0.1
        assert near["lost"] < less["same_batch"]["lost"]
        lines = page(data).partition("One node less")[2].splitlines()[1:3]
        assert ["with a batch of" in lines[0], "with the same batch" in lines[1]] == [True, True]

    def test_a_model_that_no_longer_fits_says_so(self):
        question = {"on": "h100-sxm", "gpus": 16, "global_batch_size": 64, "fix": "offload_optimizer=off"}
        data = search_data(ironlaw.search("llama-3-70b", **question))
        assert (data["one_less"]["why"], data["one_less"]["same_batch"]) == ("fits", None)
        assert "no plan fits 8 accelerators" in page(data)

    @pytest.mark.parametrize(
        ("on", "gpus", "unit", "left"),
        [("gb200", 128, "rack", 64), ("gb200", 64, "tray", 60), ("tpu-v5p", 64, "slice", 32), ("h100-sxm", 32, "node", 24)],
    )
    def test_what_is_taken_away_is_what_fails_together(self, on, gpus, unit, left):
        less = search_data(ironlaw.search("llama-3-8b", on=on, gpus=gpus, global_batch_size=768, fix="cp=1"))["one_less"]
        assert (less["unit"], less["gpus"]) == (unit, left)

    def test_one_node_has_none_less(self):
        data = search_data(ironlaw.search(**{**SMALL, "gpus": 8}))
        assert data["one_less"] is None
        assert " less: " not in page(data)


def test_the_page_names_what_is_near_and_free(capsys):
    assert main(["plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "16", "--global-batch-size", "128", "--tokens", "1T"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "Near the best",
        "plans within 2%",
        "simplest plan within 2%",
        "free to choose: ",
        "not free: ",
        "One node less: 8 accelerators",
    ):
        assert words in printed
    assert " fastest " in printed.partition("Plans")[2].splitlines()[1] + " "


def test_the_json_has_the_keys(data):
    read = json.loads(json.dumps(data, allow_nan=False))
    assert set(read["near"]) == {"within", "count", "without_overlap", "simplest", "plans", "free", "fixed"}
    assert set(read["one_less"]) == {"unit", "gpus", "why", "same_batch", "same_layout", "near_batch"}


def test_a_plan_that_is_given_has_no_others_near():
    data = search_data(ironlaw.search(**SMALL, fix="tp=2,pp=2,vpp=1,cp=1,ep=1,zero=1,micro_batch_size=1,recompute=none"))
    assert data["near"]["count"] == 1
    assert data["near"]["simplest"] is None
    assert "Near the best" not in page(data)


def test_a_plan_without_others_near_says_so():
    data = search_data(ironlaw.search(**SMALL, framework="torchtitan"))
    assert data["near"]["count"] == 1
    assert "Near the best: no other plan is within 2%" in page(data)


def test_a_schedule_is_an_axis_and_the_first_of_the_space_is_the_simplest(tmp_path):
    """With one chunk for each of many micro-batches both schedules are near; moving another axis alone keeps the schedule."""
    space = tmp_path / "space.toml"
    space.write_text('tp = [1]\npp = [2]\nmicro_batch_size = [1]\nzero = [1]\nrecompute = ["none"]\ndp_replicate = [1]\n'
                     'schedule = ["1f1b", "zero-bubble"]\noverlap_grad_reduce = ["on", "off"]\n')  # fmt: skip
    result = ironlaw.search("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=512, space=str(space), framework="generic")
    best = result.of_kinds(1)[0]
    near = near_plans(result, best)
    assert best.setting.variant == {"schedule": "zero-bubble"}
    assert near.simplest.setting.variant == {"schedule": "1f1b"}
    rows = {row["axis"]: row["values"] for row in free_axes(best, near, 1.0)}
    assert [item["value"] for item in rows["schedule"]] == ["1f1b", "zero-bubble"]
    fastest = {item["value"]: item["longer"] for item in rows["schedule"]}
    assert 0.0 == fastest["zero-bubble"] < fastest["1f1b"] <= NEAR
    same_schedule = [plan.seconds for plan in near.plans if plan.setting is best.setting and not plan.values["overlap_grad_reduce"]]
    off = next(item["longer"] for item in rows["overlap_grad_reduce"] if item["value"] is False)
    assert off == pytest.approx(min(same_schedule) / best.seconds - 1.0)


def test_limits_hold_for_near_plans():
    """With a deadline that the best plan barely meets, slower plans do not answer the question."""
    found = ironlaw.search(**SMALL, tokens="1T")
    days = float(found.settings[0].objectives(found.settings[0].best)["time"]) / 86400.0
    late = ironlaw.search(**SMALL, tokens="1T", deadline=days * 1.001)
    near, wide = (near_plans(result, result.of_kinds(1)[0]) for result in (late, found))
    assert 0 < len(near.plans) < len(wide.plans)
    assert all(plan.seconds <= 1.0011 * near.plans[0].seconds for plan in near.plans)


def test_one_node_less_looks_beyond_the_next_counts():
    """With data parallelism alone 128 sequences are divided by 64 ranks, and by none of the seven counts of nodes between 64 and 128."""
    found = ironlaw.search("llama-3-8b", on="h100-sxm", gpus=128, global_batch_size=128, fix="tp=1,pp=1,cp=1")
    less = search_data(found)["one_less"]
    assert (less["gpus"], less["why"], less["same_batch"]["gpus"]) == (120, "divides", 64)


def test_a_count_without_a_legal_plan_is_known_from_the_rules():
    """Overlapped experts need chunks in a pipeline: with pp 2 and one chunk the rows of the mesh are legal and none of their plans is."""
    fix = "pp=2,vpp=1,overlap_ep=on,ep=8"
    setting = ironlaw.search("mixtral-8x7b", on="h100-sxm", gpus=32, global_batch_size=128, fix=fix).settings[0]
    task = setting.task()
    assert task.mesh.rows
    assert not any_legal(task)
    assert best_plan([task]) is None
    chunks = ironlaw.search("mixtral-8x7b", on="h100-sxm", gpus=32, global_batch_size=128, fix="pp=2,vpp=4,overlap_ep=on,ep=8").settings[0]
    assert any_legal(chunks.task())
    assert best_plan([chunks.task()]) is not None
