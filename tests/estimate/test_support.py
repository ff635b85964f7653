"""What published runs measured of a plan: status of each value, the tables that ship, the page and the JSON, ceilings and the peak."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ironlaw
from ironlaw.cautions.record import sentences
from ironlaw.errors import CatalogError
from ironlaw.estimate.answer.estimate import evaluate_plans
from ironlaw.estimate.evidence import support
from ironlaw.estimate.legality.rules import broken
from ironlaw.estimate.step.rates import below_peak
from ironlaw.report.estimate import page, support_words
from ironlaw.search.answer import run
from ironlaw.search.as_data import search_data
from ironlaw.search.question import read_question
from ironlaw.validate.runs import read_runs

DENSE = {"model": "llama-3-70b", "on": "h100-sxm", "gpus": 512, "global_batch_size": 512, "seq_len": 8192, "framework": "megatron"}
PLAN = {"tp": 4, "pp": 4, "vpp": 5, "cp": 2, "zero": 1, "micro_batch_size": 1, "recompute": "none"}


def status(value, ran, length=4096.0):
    return support.STATUS[int(support.degree_status(value, length, ran))]


@pytest.mark.parametrize(
    ("value", "length", "found"),
    [
        (8.0, 8192.0, "measured"),
        (12.0, 8192.0, "measured"),  # 1.5 x 8
        (12.1, 8192.0, "never measured"),
        (8.0, 16384.0, "measured"),  # twice as long
        (3.0, 8192.0, "interpolated"),  # below 8
        (8.0, 20000.0, "interpolated"),  # between 8,192 and 131,072 tokens, at which 8 ran
        (4.0, 20000.0, "never measured"),
        (8.0, 300000.0, "never measured"),
        (8.0, 2048.0, "never measured"),
    ],
)
def test_a_degree_is_measured_near_one_that_ran_and_interpolated_between(value, length, found):
    assert status(value, [(8.0, 8192.0), (8.0, 131072.0)], length) == found


def test_nothing_is_measured_where_nothing_ran():
    assert status(2.0, []) == "never measured"


def test_another_run_never_takes_support_away():
    rng = np.random.default_rng(7)
    for _ in range(200):
        ran = [(2.0 ** rng.integers(0, 6), 4096.0 * 2.0 ** rng.integers(0, 5)) for _ in range(rng.integers(1, 5))]
        value, length = 2.0 ** rng.uniform(0, 6), 4096.0 * 2.0 ** rng.uniform(-1, 6)
        more = [*ran, (2.0 ** rng.integers(0, 6), 4096.0)]
        assert support.degree_status(value, length, more) <= support.degree_status(value, length, ran)


def test_values_of_a_plan_are_named_with_their_status():
    group, at = ironlaw.estimate(**DENSE, **PLAN).place_of(0)
    found = {value["value"]: value["status"] for value in support.support_data(group, at)["values"]}
    # vendors' recipes of 70 B have tp 4 pp 4 cp 2 vpp 5 at 8,192 tokens, so nothing of this plan is new
    assert {found[name] for name in ("tp 4", "pp 4", "vpp 5", "cp 2 at 8,192 tokens", "ZeRO 1 with a pipeline")} == {"measured"}
    assert support.support_data(group, at)["never_measured"] == []
    uneven, at = ironlaw.estimate(**DENSE, **{**PLAN, "vpp": 12, "cp": 8}).place_of(0)
    assert support.support_data(uneven, at)["never_measured"] == ["cp 8 at 8,192 tokens", "unequal chunks"]


def test_what_is_off_or_without_effect_is_no_value():
    group, at = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=1, tp=1, pp=1, zero=3, micro_batch_size=1, recompute="full").place_of(0)
    assert [value["axis"] for value in support.support_data(group, at)["values"]] == ["recompute"]


def test_columns_of_plans_are_counted_as_each_plan_alone():
    answer = ironlaw.estimate(**{**DENSE, **PLAN, "vpp": [5, 12, 5, 1], "cp": [2, 8, 2, 4], "zero": [1, 1, 3, 1]})
    for group in answer.groups:
        alone = [len(support.support_data(group, at)["never_measured"]) for at in range(group.plan.rows)]
        assert support.never_measured(group.job, group.plan, group.cluster.accelerator.architecture).tolist() == alone and max(alone) > 0


def test_the_page_and_the_plans_of_a_search_name_what_rests_on_no_measured_run():
    uneven = ironlaw.estimate(**DENSE, **{**PLAN, "vpp": 12, "cp": 8})
    assert "never measured (dense, stacks like megatron): cp 8 at 8,192 tokens, unequal chunks" in page(uneven)
    assert "never measured" not in page(ironlaw.estimate(**DENSE, **PLAN))
    question = {**DENSE, "fix": "tp=4,pp=4,vpp=12,cp=8,micro_batch_size=1"}
    data = search_data(run(read_question(question)), advice=False)
    assert "unequal chunks" in data["plans"][0]["support"]["never_measured"]


def test_a_kind_that_nobody_published_says_so():
    group, at = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=1, framework="unsloth", tp=1, pp=1, lora_rank=16).place_of(0)
    found = support.support_data(group, at)
    assert not found["any"] and found["stack"] == "unsloth" and found["model"] == "adapters"
    assert "has no run of this kind" in support_words(found)


MIXTURE = {"model": "qwen-3-235b-a22b", "on": "h100-sxm", "gpus": 256, "global_batch_size": 1024, "seq_len": 4096, "framework": "nemo"}
PIPED = {"tp": 2, "pp": 4, "vpp": 4, "ep": 16, "zero": 1, "micro_batch_size": 1}
HIDES = "ep,grad-reduce,param-gather,pp"


@pytest.mark.parametrize(
    ("options", "never"),
    [
        ({"recompute": "none", "overlap": HIDES}, []),  # six recipes have it
        ({"recompute": "selective", "overlap": HIDES, "moe_dispatcher": "deepep"}, []),  # nemo-197
        ({"recompute": "none", "overlap": HIDES, "moe_dispatcher": "deepep"}, ["deepep with no recomputation"]),
        ({"recompute": "none", "overlap": HIDES, "moe_dispatcher": "hybridep"}, ["hybridep on hopper"]),
        ({"recompute": "none", "overlap": HIDES, "moe_dispatcher": "hybridep", "on": "gb200"}, []),
        ({"recompute": "none", "moe_dispatcher": "deepep"}, []),  # nothing is hidden, so each value counts alone
        ({"recompute": "none", "overlap": HIDES, "pp": 1, "vpp": 1}, ["overlap of ep with no pipeline"]),
        ({"recompute": "full", "moe_dispatcher": "alltoall"}, []),
    ],
)
def test_values_that_no_run_had_together_count_where_the_traffic_of_experts_is_hidden(options, never):
    found = ironlaw.estimate(**{**MIXTURE, **PIPED, **options})
    assert support.support_data(*found.place_of(0))["never_measured"] == never


def test_a_pair_of_which_one_value_never_ran_is_counted_once():
    """No run of a hybrid has overlap of ep: each of its pairs would count it again."""
    asked = {**MIXTURE, **PIPED, "model": "qwen-3-next-80b-a3b", "gpus": 128, "tp": 1, "vpp": 3}
    never = support.support_data(*ironlaw.estimate(**asked, recompute="selective", overlap=HIDES).place_of(0))["never_measured"]
    assert "overlap of ep" in never and not any("overlap of ep with" in name for name in never)


def test_pairs_are_counted_in_columns_as_for_each_plan_alone():
    answer = ironlaw.estimate(**{**MIXTURE, **PIPED, "moe_dispatcher": "deepep", "overlap": HIDES, "recompute": ["none", "selective"]})
    for group in answer.groups:
        alone = [len(support.support_data(group, at)["never_measured"]) for at in range(group.plan.rows)]
        assert support.never_measured(group.job, group.plan, group.cluster.accelerator.architecture).tolist() == alone


def test_an_accelerator_without_a_run_of_the_kind_is_said():
    plan = {**PIPED, "recompute": "none"}
    for on, there in (("h100-sxm", True), ("h200-sxm", False)):
        group, at = ironlaw.estimate(**{**MIXTURE, **plan, "on": on}).place_of(0)
        found = support.support_data(group, at)
        assert found["any"] and found["on_accelerator"] is there
        assert ("on this accelerator" in support_words(found)) is not there


def test_every_run_of_the_tables_is_a_published_run():
    known = {run.id: run for run in read_runs()[0]}
    for path in (support.VALUES, support.CEILINGS):
        with path.open(encoding="utf-8") as file:
            for line in csv.DictReader(file):
                assert {line[name] for name in ("id", "hfu_id") if name in line} <= set(known), line
    table = support.read_values()["megatron", "dense"]
    for axis in ("tp", "pp", "vpp"):
        for ran in table[axis]:
            assert known[ran.id].asked[0][axis] == float(ran.value)


def test_a_table_that_is_none_is_refused(tmp_path):
    wrong = tmp_path / "support.csv"
    wrong.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(CatalogError, match="not a table"):
        support.read_values(wrong)


# --- ceilings


def test_a_plan_above_the_highest_measured_says_so_with_the_figure_and_the_run(monkeypatch):
    answer = ironlaw.estimate(**DENSE, **PLAN)
    group, _ = answer.place_of(0)
    ceiling = support.ceiling_of(group)
    assert (ceiling.device, ceiling.format, ceiling.model) == ("h100-sxm", "bf16", "dense")
    assert not any("above the highest" in line for line in sentences(answer.row(0)["warnings"]))
    lower = ceiling._replace(mfu=0.3, id="some-run")
    monkeypatch.setattr(support, "read_ceilings", lambda: {("h100-sxm", "bf16", "dense"): (lower,)})
    row = answer.row(0)
    (line,) = [line for line in sentences(row["warnings"]) if "above the highest" in line]
    assert "30.0% (some-run" in line and f"{row['throughput']['mfu']:.1%}" in line and line in page(answer)
    assert row["ceiling"]["above"] and row["ceiling"]["run"] == "some-run"


def test_ceilings_are_shares_of_the_peak():
    for of_kind in support.read_ceilings().values():
        for ceiling in of_kind:
            assert 0.0 < ceiling.mfu <= ceiling.hfu < 1.0 and ceiling.runs >= 1 and ceiling.width > 0.0


def ceiling_of(model, on, **options):
    return support.ceiling_of(ironlaw.estimate(model, on=on, gpus=256, global_batch_size=1024, **options).place_of(0)[0])


def test_models_of_narrow_experts_are_held_to_runs_of_narrow_experts():
    """Grok-1 multiplies experts 32,768 wide, DeepSeek-V3 2,048, Mixtral 14,336: Grok-1 bounds what Mixtral reaches alone."""
    known = {run.id: run for run in read_runs()[0]}
    narrow, wide = (ceiling_of(model, "h100-sxm", precision="fp8") for model in ("deepseek-v3", "mixtral-8x7b"))
    assert narrow.mfu < wide.mfu and narrow.width <= 2 * 2048
    assert "Grok" in known[wide.id].cells["model_name"] and "Grok" not in known[narrow.id].cells["model_name"]


def test_a_model_cut_to_a_few_layers_sets_no_ceiling():
    known = {run.id: run for run in read_runs()[0]}
    for of_kind in support.read_ceilings().values():
        for ceiling in of_kind:
            for name in (ceiling.id, ceiling.hfu_id):
                assert "4 layers" not in known[name].cells["model_name"]
    assert ceiling_of("deepseek-v3", "b200-sxm") is None  # all its runs in bf16 were of 4 layers


@given(st.lists(st.floats(100.0, 1e5), max_size=6), st.floats(100.0, 1e5), st.floats(100.0, 1e5))
def test_a_comparable_run_more_never_lowers_a_ceiling(widths, width, more):
    counted, with_more = support.comparable(widths, width), support.comparable([*widths, more], width)
    if 0.8 * width <= more <= 2.0 * width:
        assert with_more[-1]
    if any(0.8 * width <= ran <= 2.0 * width for ran in widths):
        assert with_more[:-1] == counted


def test_a_step_shorter_than_its_flops_at_the_peak_breaks_a_rule():
    group, at = ironlaw.estimate(**DENSE, **PLAN).place_of(0)
    mfu = group.throughput["mfu"].value
    assert bool(np.all(below_peak(group.job, group.cluster, mfu))) and bool(np.all(group.rules["below_peak"]))
    assert below_peak(group.job, group.cluster, [0.99, 1.01, np.nan]).tolist() == [True, False, True]
    assert re.search("shorter than the model's FLOPs", broken(group.job, group.plan, {**group.rules, "below_peak": [False]}, at)[0])


def test_experts_in_a_faster_format_may_pass_the_peak_of_the_other():
    asked = {"model": "mixtral-8x7b", "on": "h100-sxm", "gpus": 64, "tp": 1, "pp": 1, "ep": 8}
    both = [ironlaw.estimate(**asked, **more).groups[0] for more in ({}, {"expert_precision": "fp8"})]
    assert [bool(below_peak(group.job, group.cluster, 1.5)) for group in both] == [False, True]
    again = evaluate_plans(both[0], [0], ())
    assert bool(np.all(again.legal))


@pytest.mark.parametrize(
    ("ends", "unequal"),
    [
        ({"first_stage_layers": 7, "last_stage_layers": 7}, False),  # 16 x 8 with the embedding and the loss
        ({"first_stage_layers": 8, "last_stage_layers": 6}, True),
        ({"count_embedding": True}, False),
    ],
)
def test_the_embedding_and_the_loss_count_as_layers_of_equal_chunks(ends, unequal):
    """126 layers on 16 stages of 8 chunks, as Llama 3 405B ran."""
    plan = {**PLAN, "tp": 8, "pp": 16, "vpp": 8}
    found = ironlaw.estimate("llama-3.1-405b", on="h100-sxm", gpus=1024, global_batch_size=512, framework="megatron", **plan, **ends)
    never = support.support_data(*found.place_of(0))["never_measured"]
    assert ("unequal chunks" in never, "unequal stages" in never) == (unequal, unequal)


def test_much_narrower_models_alone_set_no_ceiling():
    """All dense bf16 runs on B200 that ship are of a model with MLPs of 9,728; those of Llama 3 8B have 14,336."""
    assert {ceiling.width for ceiling in support.read_ceilings()[("b200-sxm", "bf16", "dense")]} == {9728.0}
    assert ceiling_of("llama-3-8b", "b200-sxm") is None
