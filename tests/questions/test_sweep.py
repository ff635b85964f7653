"""``sweep``: rows as the note on data centres printed them but for the rounding; every row an estimate; what accumulation saves."""

from __future__ import annotations

import json
import math

import pytest

import paths
from ironlaw import sites, sweep
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError, SpaceError, UnitError, ValueRangeError
from ironlaw.estimate.answer.estimate import estimate

CASES = {
    case["id"]: case
    for case in json.loads((paths.DATA / "oracle_cases.json").read_text(encoding="utf-8"))["cases"]
    if case["id"].startswith("S004-03-20T")
}
STUDY = {"parameters": 70e9, "on": "h100-sxm", "step_time": "1s", "mfu": 0.4, "price": 2}


def test_the_printed_rows_with_counts_rounded_up():
    batches = [case["inputs"]["gbs"] for case in CASES.values()]
    rows = sweep(**STUDY, tokens="20T", global_batch_tokens=batches)["rows"]
    for case, row in zip(CASES.values(), rows, strict=True):
        assert row["gpus"] == case["expected"]["gpus"] + 1  # the study rounds down, so its steps take more than a second (E004-8)
        assert row["step"] <= 1.0
        assert row["step_flop"] / 1e15 == pytest.approx(case["expected"]["flops_per_step_pflops"], rel=case["rel_tol"])
        assert row["flop"] / 1e18 == pytest.approx(case["expected"]["total_eflops"], rel=case["rel_tol"])
        assert row["seconds"] * row["gpus"] == pytest.approx(case["expected"]["total_days"] * 86400 * case["expected"]["gpus"], rel=1e-3)


def test_tokens_per_parameter():
    rows = sweep(**STUDY, tokens="20x,20T", global_batch_tokens="1M")["rows"]
    assert [row["tokens"] for row in rows] == [1.4e12, 20e12]


def test_accumulation_trades_accelerators_for_time_and_keeps_the_cost():
    found = sweep("gpt-3-175b", **{k: v for k, v in STUDY.items() if k != "parameters"}, tokens="300B", global_batch_tokens=2**21)
    one, *more = found["accumulated"]
    states = one["memory"] - one["activations"]
    for row in more:
        assert row["usd"] == one["usd"]
        assert row["gpus"] * row["seconds"] == pytest.approx(one["gpus"] * one["seconds"])
        assert row["activations"] == pytest.approx(one["activations"] / row["accumulate"])
        assert row["memory"] - row["activations"] == pytest.approx(states)


def test_a_sequence_is_not_split():
    rows = sweep(**STUDY, tokens="20T", global_batch_tokens="8192", accumulate="1,2,5")["accumulated"]
    assert [row["accumulate"] for row in rows] == [1]


def test_a_row_is_the_estimate():
    rows = sweep("llama-3-8b", "h100-sxm", gpus="64", tokens="1T", seq_len="4096,8192", global_batch_tokens=2**22)["rows"]
    for row in rows:
        data = estimate("llama-3-8b", on="h100-sxm", gpus=64, seq_len=row["seq_len"], global_batch_tokens=2**22, tokens="1T").row(0)
        assert (row["step"], row["memory"], row["usd"]) == (data["step"]["seconds"], data["memory"]["device"], data["run"]["usd"])
        assert row["at_once"] > row["memory"]


def test_a_row_without_accumulation_has_no_second_memory():
    row = sweep(
        "llama-3-8b", "h100-sxm", gpus=64, tokens="1T", seq_len=8192, global_batch_tokens=64 * 8192, micro_batch_size=1, tp=1, pp=1
    )["rows"][0]
    assert (row["accumulated"], row["at_once"]) == (1, None)


def test_the_exchange_is_that_of_the_verb_sites():
    given = {"tokens": "20T", "global_batch_tokens": 1e6, "mfu": 0.4, "price": 2, "wan_bandwidth": "10GB/s"}
    row = sweep("llama-3-70b", "h100-sxm", gpus=1000, sites=10, **given)["exchanges"][0]
    alone = sites("llama-3-70b", on="h100-sxm", gpus=1000, sites=10, **given)
    assert row["share"] == pytest.approx(float(alone["communication share"]))
    assert row["usd"] == pytest.approx(float(alone["cost"]))


def test_a_row_without_a_plan_gives_the_reason_and_the_rest_is_answered():
    rows = sweep("llama-3-8b", "h100-sxm", gpus="1013,64", tokens="1T", global_batch_tokens=2**22)["rows"]
    assert rows[0]["why_not"]
    assert rows[1]["fits"]


@pytest.mark.parametrize(
    ("more", "error", "word"),
    [
        ({}, QuestionError, "gpus"),
        ({"gpus": 64, "accumulate": "1,2", "global_batch_tokens": "1M"}, QuestionError, "global_batch_tokens"),
        ({"gpus": 64, "accumulate": "1,2", "sites": 2}, QuestionError, "sites"),
        ({"accumulate": "1,2"}, QuestionError, "gpus"),
        ({"gpus": 64, "mfu": 0.4, "step_time": "1s", "global_batch_tokens": "1M"}, QuestionError, "not both"),
        ({"mfu": 0.4, "step_time": "1s"}, QuestionError, "global_batch_tokens"),
        ({"mfu": 0.4, "step_time": "1s", "global_batch_tokens": "1M", "tp": 2}, QuestionError, "tp has|^tp "),
        ({"mfu": 1.4, "step_time": "1s", "global_batch_tokens": "1M"}, ValueRangeError, "mfu"),
        ({"mfu": 0.4, "step_time": "1s", "global_batch_tokens": "2T"}, ValueRangeError, "more than"),
        ({"gpus": 64, "wan_bandwidth": "1GB/s"}, QuestionError, "sites"),
        ({"gpus": list(range(1, 500))}, SpaceError, "rows"),
        ({"gpus": 64, "parameters": "7B"}, QuestionError, "it belongs to ironlaw textbook sweep"),
        ({"gpus": 64, "tokens": "abcx"}, UnitError, "20x"),
        ({"gpus": 0}, ValueRangeError, "gpus"),
    ],
)
def test_refusals(more, error, word):
    with pytest.raises(error, match=word):
        sweep("llama-3-8b", "h100-sxm", **({"tokens": "1T"} | more))


def test_the_command(capsys):
    asked = ["sweep", "--parameters", "7B", "--on", "h100-sxm", "--tokens", "20x", "--global-batch-tokens", "1M,4M", "--step-time", "1s"]
    assert main([*asked, "--mfu", "0.4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["batch"] for row in found["rows"]] == [2**20, 2**22]
    assert main([*asked, "--mfu", "0.4", "--explain", "static memory"]) == 0
    assert "training_static" in capsys.readouterr().out
    assert main(["sweep", "--help"]) == 0


def test_steps_are_whole_and_the_last_tokens_are_not_dropped():
    estimated = sweep("llama-3-8b", on="h100-sxm", gpus=64, tokens=200e9, global_batch_tokens=2**21)
    by_hand = sweep(parameters=8e9, on="h100-sxm", gpus=64, tokens=200e9, global_batch_tokens=2**21, mfu=0.4)
    for answer in (estimated, by_hand):
        assert answer.tables[0].rows[0]["steps"] == math.ceil(200e9 / 2**21)


PRINTED = {
    "parameters": "70B",
    "on": "h100-sxm",
    "tokens": "1.4T",
    "global_batch_tokens": "8192,1000000",
    "step_time": "1s",
    "mfu": 0.4,
    "price": 2,
}


def test_rounding_down_prints_the_study_of_ten_sites_as_it_is():
    """8 and 1,061 accelerators, steps rounded down: 1.4e12 // 8192 and 1.4e12 // 1e6; a step of 8,192 tokens takes 1.087 s."""
    rows = sweep(**PRINTED, rounding="down")["rows"]
    assert [(row["gpus"], row["steps"]) for row in rows] == [(8.0, 170_898_437.0), (1061.0, 1_400_000.0)]
    assert rows[0]["step"] == pytest.approx(1.087, rel=1e-3)


def test_roundings_of_a_sweep_by_estimate_differ_by_a_step():
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "tokens": "1.0001B", "global_batch_tokens": "1Mi"}
    up, down, exact = (sweep(**asked, rounding=how)["rows"][0] for how in ("up", "down", "exact"))
    assert (up["steps"], down["steps"]) == (954.0, 953.0)  # 1.0001e9 / 2**20 = 953.77
    assert exact["steps"] == pytest.approx(1.0001e9 / 2**20)
    for row in (up, down, exact):
        assert row["seconds"] == pytest.approx(row["steps"] * row["step"]) and row["usd"] / row["seconds"] == pytest.approx(
            up["usd"] / up["seconds"]
        )
    default = sweep(**asked)
    assert default["rows"][0] == up and {"name": "rounding of steps", "value": "up", "origin": "default"} in default.assumptions


def test_a_step_too_small_for_one_accelerator_is_refused_rounded_down():
    with pytest.raises(ValueRangeError, match="rounding up"):
        sweep(**PRINTED | {"global_batch_tokens": "100"}, rounding="down")
