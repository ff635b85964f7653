"""``compare``, and ``textbook three-roof``: worked numbers of the cost-of-bandwidth note and its mistakes."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

import paths
from ironlaw import compare, textbook
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError
from ironlaw.questions.compare.options import OPTIONS

CASES = {
    case["id"]: case
    for case in json.loads((paths.DATA / "oracle_cases.json").read_text(encoding="utf-8"))["cases"]
    if case["id"].startswith("S000")
}
NAMES = {"H100-SXM": "h100-sxm", "H200": "h200-sxm", "L4": "l4"}
DOCUMENT = {
    "on": "h100-sxm,h200-sxm,l4",
    "target_tokens_per_second": 200e3,
    "price": "h100-sxm=3.93,h200-sxm=4.33,l4=1.15",
    "peak": "h100-sxm=900TFLOP/s,h200-sxm=1000TFLOP/s,l4=120TFLOP/s",
    "bandwidth": "h100-sxm=3.35TB/s,h200-sxm=4.8TB/s,l4=300GB/s",
    "nic": "h100-sxm=200Gb/s,h200-sxm=400Gb/s,l4=100Gb/s",
    "parameters": "70B",
    "gamma": 1.2,
    "c_act": 5,
    "dp": 8,
    "seq_len": 4096,
    "formulas": "as-printed",
}


@pytest.fixture(scope="module")
def printed():
    return textbook("three-roof", "llama-3-70b", **DOCUMENT)


def row_of(answer, name, table="three_roofs"):
    return next(row for row in answer[table] if row["accelerator"] == name)


def near(case, found):
    return {key: pytest.approx(case["expected"][key], rel=case["rel_tol"]) for key in found}


@pytest.mark.parametrize("name", NAMES)
def test_the_printed_planner(printed, name):
    case, row = CASES[f"S000-05-{name}"], row_of(printed, NAMES[name])
    found = {
        "r_comp": row["first_order_compute"],
        "r_mem": row["first_order_memory"],
        "r_net": row["first_order_network"],
        "r_gpu": row["first_order_rate"],
        "machine_balance": row["machine_balance"],
        "gpus": row["first_order_gpus"],
        "per_hr": row["first_order_usd_per_hour"],
        "per_TBs_hr": row["usd_per_tbs_hour"],
        "cluster_HBM_TBs": row["first_order_cluster_hbm"] / 1e12,
        "usd_per_million_tokens_at_target": row["first_order_usd_per_million_tokens"],
        "delivered_tokens_s": row["first_order_tokens_per_second"],
    }
    assert found == near(case, found)
    assert row["first_order_bound"] == case["expected"]["bound"]
    assert set(found) | {"bound"} == set(case["expected"])


def test_the_printed_order_and_intensity(printed):
    order = [row["accelerator"] for row in printed["three_roofs"]]
    assert order == [NAMES[name] for name in CASES["S000-06"]["expected"]["order"]]
    assert printed["three-roof intensity"] == pytest.approx(CASES["S000-03"]["expected"]["intensity"], rel=1e-9)
    assert printed["three-roof FLOP per token"] == pytest.approx(CASES["S000-01"]["expected"]["F_tok"], rel=1e-9)
    assert printed["three-roof HBM bytes per token"] == pytest.approx(CASES["S000-02"]["expected"]["M_tok"], rel=1e-9)
    assert printed["h100-sxm network bytes per token"] == pytest.approx(CASES["S000-04"]["expected"]["M_net"], rel=1e-9)
    assert printed["intensity with weights"] == pytest.approx(CASES["S000-13"]["expected"]["intensity"], rel=1e-9)


@pytest.mark.slow
def test_one_rank_sends_nothing():
    answer = textbook("three-roof", "llama-3-70b", **DOCUMENT | {"dp": 1})
    assert CASES["S000-04"]["expected"]["M_net_dp1"] == 0.0
    assert row_of(answer, "h100-sxm")["first_order_network"] != row_of(answer, "h100-sxm")["first_order_network"]  # nan: no network roof


@pytest.mark.parametrize("name", [name for name in NAMES if f"S000-07-{name}" in CASES])
def test_the_network_that_the_printed_answer_ignores(printed, name):
    case, row = CASES[f"S000-07-{name}"], row_of(printed, NAMES[name])
    found = {
        "r_net_dp8": row["network_at_given_ranks"],
        "r_net_planned": row["network_at_planned_ranks"],
        "cluster_cap_tokens_s": row["first_order_cap"],
        "min_Bg_for_target": row["first_order_batch_for_target"],
    }
    assert found == near(case, found)
    assert (row["bound_at_given_ranks"], row["bound_at_planned_ranks"]) == (
        case["expected"]["bound_dp8"],
        case["expected"]["bound_planned"],
    )


def test_bound_by_batch():
    for batch, bound in CASES["S000-10"]["expected"].items():
        answer = textbook("three-roof", "llama-3-70b", **DOCUMENT | {"on": "h100-sxm", "price": 3.93, "peak": "900TFLOP/s",
                         "nic": "200Gb/s",
                         "bandwidth": "3.35TB/s", "global_batch_tokens": float(batch), "seq_len": 2000, "target_tokens_per_second": None,
                         "gpus": 8})  # fmt: skip
        assert row_of(answer, "h100-sxm")["first_order_bound"] == bound, batch


def test_inference_counts_no_optimizer():
    answer = textbook("three-roof", "llama-3-70b", on="h100-sxm", task="inference", parameters="70B")
    assert answer["three-roof FLOP per token"] == pytest.approx(CASES["S000-11"]["expected"]["F_tok"], rel=1e-9)
    assert row_of(answer, "h100-sxm")["first_order_bound"] == "memory"
    assert "estimate" not in {table.name for table in answer.tables}


def test_the_default_optimizer_moves_28_bytes():
    answer = textbook("three-roof", "llama-3-70b", on="h100-sxm", gpus=256)
    value = next(row["value"] for row in answer["knobs"] if row["knob"] == "--alpha-opt")
    assert value == CASES["S000-12"]["expected"]["bytes_per_param"]


def test_the_implied_mfu_matches_the_rate(printed):
    for name, key in (("h100-sxm", "H100"), ("h200-sxm", "H200")):
        assert row_of(printed, name)["first_order_mfu"] == pytest.approx(CASES["S000-14"]["expected"][key], rel=1e-9)


def test_memory_never_binds_in_the_printed_example(printed):
    assert any("memory never binds" in line for line in printed.headline)
    assert row_of(printed, "h100-sxm")["first_order_memory_batch"] == pytest.approx(599.1078, rel=1e-6)
    assert printed["metric"] == "usd_per_pflops_hour"
    assert printed["metrics"]["usd_per_pflops_hour"]["spread"] == pytest.approx(1.0, abs=5e-3)  # whole GPUs


@pytest.mark.slow
def test_the_corrected_count_is_a_fixed_point():
    answer = textbook("three-roof", "llama-3-70b", **DOCUMENT | {"formulas": "corrected"})
    row = row_of(answer, "h100-sxm")
    assert row["first_order_gpus"] % row["first_order_gpus_per_replica"] == 0
    assert row["first_order_gpus"] * row["first_order_rate"] >= 200e3
    ranks = row["first_order_gpus"] / row["first_order_gpus_per_replica"]
    assert row["first_order_network"] == pytest.approx(25e9 * row_batch(answer) / (2 * (ranks - 1) * 70e9 * 2), rel=1e-9)


def row_batch(answer):
    return next(row["value"] for row in answer["knobs"] if row["knob"] == "--global-batch-tokens")


def test_a_target_that_the_network_forbids_has_no_count():
    answer = textbook("three-roof", "llama-3-70b", **DOCUMENT | {"formulas": "corrected", "on": "l4", "price": 1.15, "peak": "120TFLOP/s",
                     "bandwidth": "300GB/s", "nic": "1Gb/s", "global_batch_size": 64})  # fmt: skip
    row = row_of(answer, "l4")
    assert row["first_order_gpus"] != row["first_order_gpus"]
    assert row["first_order_cap"] < 200e3 < row["first_order_batch_for_target"]


def test_serial_roofs_are_slower():
    both = [
        row_of(textbook("three-roof", "llama-3-8b", on="h100-sxm", gpus=64, roofs=how), "h100-sxm")["first_order_rate"]
        for how in ("overlap", "serial")
    ]
    assert both[0] / 3 <= both[1] < both[0]


def test_the_estimate_is_that_of_the_verb_estimate():
    import ironlaw

    alone = ironlaw.estimate("llama-3-70b", on="h200-sxm", gpus=256)
    row = row_of(compare("llama-3-70b", on="h100-sxm,h200-sxm", gpus=256), "h200-sxm", "estimate")
    assert row["tokens_per_second"] == float(alone.tokens_per_second[0])
    assert row["mfu"] == float(alone.mfu[0])


def test_the_fewest_that_reach_a_target():
    row = row_of(compare("llama-3-8b", on="h100-sxm", target_tokens_per_second=500e3), "h100-sxm", "estimate")
    assert row["tokens_per_second"] >= 500e3
    less = row_of(compare("llama-3-8b", on="h100-sxm", gpus=row["gpus"] - 8), "h100-sxm", "estimate")
    assert less["tokens_per_second"] < 500e3


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"gpus": 64, "gpus_per_replica": 4}, ValueRangeError, "at least 14"),
        ({"gpus": 8, "target_tokens_per_second": 1e6}, ValueRangeError, "at most"),
        ({"gpus": 8, "bandwidth": "0"}, ValueRangeError, "more than 0"),
        ({"gpus": 8, "utilization": 1.2}, ValueRangeError, "at most 1"),
        ({"gpus": 8, "price": "b200-sxm=3"}, UnknownNameError, "price"),
        ({"gpus": 8, "kapa": 3}, QuestionError, "no option"),
        ({}, QuestionError, "gpus"),
        ({"gpus": 8, "on": "h100-sxm,h100-sxm"}, QuestionError, "twice"),
    ],
)
def test_refusals(options, error, words):
    with pytest.raises(error, match=words) as caught:
        compare("llama-3-70b", **{"on": "h100-sxm", **options})
    assert "\n" not in str(caught.value)


def test_terms_of_one_name_have_one_value():
    answer = compare("llama-3-8b", on="h100-sxm,h200-sxm", gpus=64)
    values: dict[str, float] = {}
    for term in answer.terms:  # what a token costs in operations and bytes is the same on every accelerator
        value = float(np.ravel(term.value)[0])
        assert values.setdefault(term.name, value) == value, term.name


def test_a_warning_names_accelerators_too_small_for_the_job(capsys):
    assert main(["compare", "llama-3-70b", "--on", "l4", "--gpus", "8"]) == 1
    assert "does not fit: the smallest plan needs" in capsys.readouterr().out


def test_the_command(capsys):
    words = ["compare", "llama-3-8b", "--on", "h100-sxm,h200-sxm", "--gpus", "64"]
    assert main(words) == 0
    page = capsys.readouterr().out
    assert "cheapest per token" in page and "The answer" in page and "three-roof" not in page
    assert main([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"prices", "estimate", "plans", "network", "storage", "terms", "sources", "headline"} <= set(data)
    assert "three_roofs" not in data
    assert main([*words, "--explain", "h100-sxm price of a token"]) == 0
    text = capsys.readouterr().out
    assert "gpus price / tokens_per_second" in text and "<-" in text
    assert main(["compare", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"--{name.replace('_', '-')}" in text for name in OPTIONS if name != "model")


def test_a_share_for_each_resource_is_one_share_where_they_are_equal():
    asked = {"model": "llama-3-70b", "on": "h100-sxm", "gpus": 256}
    one = textbook("three-roof", **asked, utilization=0.6)["three_roofs"][0]
    each = textbook("three-roof", **asked, utilization="compute=0.6,hbm=0.6,network=0.6")["three_roofs"][0]
    assert one == each
    part = textbook("three-roof", **asked, utilization="compute=0.5,hbm=0.8,network=0.7")["three_roofs"][0]
    assert part["first_order_rate"] == pytest.approx(0.5 / 0.6 * one["first_order_rate"])
    assert part["first_order_memory_batch"] < one["first_order_memory_batch"]  # HBM reaches more of its roof: it binds later


def test_a_warning_names_what_the_three_roof_model_leaves_out():
    warnings = " ".join(textbook("three-roof", "mixtral-8x7b", on="h100-sxm", gpus=64).warnings)
    assert "routing of experts" in warnings
    assert "tensor" in warnings


def test_a_target_rate_may_be_written_short():
    asked = {"on": "h100-sxm", "tp": 2}
    assert compare("llama-3-8b", target_tokens_per_second="500k", **asked).headline == (
        compare("llama-3-8b", target_tokens_per_second=500e3, **asked).headline
    )


def test_prices_at_a_given_peak_are_compared_with_costs_at_that_peak():
    """The estimate uses the catalogue's peak, so its costs cannot be ranked beside prices at a given peak."""
    asked = {"gpus": 64, "price": "h100-sxm=3.93,h200-sxm=4.33"}
    own = textbook("three-roof", "llama-3-8b", on="h100-sxm,h200-sxm", peak="h100-sxm=900TFLOP/s,h200-sxm=1000TFLOP/s", **asked)
    plain = compare("llama-3-8b", on="h100-sxm,h200-sxm", **asked)
    prices = [answer["simple_prices"][0] for answer in (own, plain)]
    assert [row["price"] for row in prices] == ["USD per PFLOP/s"] * 2
    assert prices[0]["ranks"] and prices[0]["by"] == "the three-roof model"
    assert prices[1]["by"] == "estimate"


def test_a_peak_above_the_dense_one_is_warned_of(capsys):
    assert main(shlex.split("textbook three-roof llama-3-8b --on h100-sxm --gpus 64 --peak 2PFLOP/s")) == 0
    assert "times its dense peak" in capsys.readouterr().out
