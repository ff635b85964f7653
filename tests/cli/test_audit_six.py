"""Faults that a check of every question with inputs of its own brought up."""

from __future__ import annotations

import math
import re
import shlex

import pytest

from ironlaw import estimate
from ironlaw.cli.main import main
from ironlaw.questions.compare.ask import compare
from ironlaw.questions.lessons.ask import lessons
from ironlaw.questions.sites.ask import sites
from ironlaw.questions.solve.ask import solve
from ironlaw.questions.sweep.ask import sweep


def test_flash_attention_is_tried_where_it_is_off_and_only_there():
    """An option read from a plan is on or off, the same option of an estimate a truth value."""
    plan = {"on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "most": 1}
    off = lessons("llama-3-8b", flash_attention="off", **plan)
    on = lessons("llama-3-8b", **plan)
    names = [[row["technique"] for row in answer.tables[0].rows] for answer in (off, on)]
    assert names[0][0] == "flash attention"
    assert "flash attention" not in names[1]


def test_a_budget_pays_for_a_run_that_ends_before_the_deadline():
    """Accelerators are given back at the end of a run: 48 to the deadline cost more than the budget, the run does not."""
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "tokens": 1e12, "deadline": 28, "price": 3.78}
    enough, short = solve(**asked, budget=115e3), solve(**asked, budget=100e3)
    assert enough.feasible and not short.feasible
    values = enough.values
    assert values["run_usd"] == pytest.approx(values["gpus"] * values["run_days"] * 24 * 3.78)
    assert values["run_days"] < 28 and values["run_usd"] < 115e3 < values["gpus"] * 28 * 24 * 3.78


def test_steps_are_whole_and_the_last_tokens_are_not_dropped():
    estimated = sweep("llama-3-8b", on="h100-sxm", gpus=64, tokens=200e9, global_batch_tokens=2**21)
    by_hand = sweep(parameters=8e9, on="h100-sxm", gpus=64, tokens=200e9, global_batch_tokens=2**21, mfu=0.4)
    for answer in (estimated, by_hand):
        assert answer.tables[0].rows[0]["steps"] == math.ceil(200e9 / 2**21)


def test_sites_take_a_batch_of_tokens_in_the_usual_sequences():
    asked = {"sites": 2, "on": "h100-sxm", "gpus": 64, "tokens": 200e9, "global_batch_tokens": 2**21, "wan_bandwidth": 1e9}
    assert sites("llama-3-8b", **asked).headline == sites("llama-3-8b", seq_len=8192, **asked).headline


def test_a_target_rate_may_be_written_short():
    asked = {"on": "h100-sxm", "tp": 2, "three_roof": "off"}
    assert compare("llama-3-8b", target_tokens_per_second="500k", **asked).headline == (
        compare("llama-3-8b", target_tokens_per_second=500e3, **asked).headline
    )


@pytest.mark.parametrize(
    "question",
    [
        "money llama-3-8b --on h100-sxm --gpus 16 --tokens 100B --mtp-layers 1e300",
        "money llama-3-8b --on h100-sxm --gpus 16 --tokens 100B --pue 1e300",
        "compare llama-3-8b --on h100-sxm --gpus 16 --peak 1e300",
        "sites llama-3-8b --sites 2 --on h100-sxm --gpus 16 --wan-bandwidth 1GB/s --tokens 1B --latency 1e300",
        "lessons llama-3-8b --on h100-sxm --gpus 8 --frozen-layers 1e300",
    ],
)
def test_a_slip_of_the_keyboard_is_refused_before_it_overflows(question, capsys):
    assert main(shlex.split(question)) == 2
    told = capsys.readouterr()
    assert "at most" in told.err or "to 1e+12" in told.err
    assert len(told.err.splitlines()) == 1 and len(told.err) < 200


QUESTIONS = ("compare", "roofline", "solve", "sites", "money", "goodput", "scaling", "data", "lessons", "inference", "sweep")


@pytest.mark.parametrize("verb", QUESTIONS)
def test_examples_of_the_help_are_answered(verb, capsys):
    """All but those that name a file of the asker."""
    assert main([verb, "--help"]) == 0
    examples = re.findall(r"^ +ironlaw (.+)$", capsys.readouterr().out, re.MULTILINE)
    assert examples
    for example in examples:
        assert main(shlex.split(example)) in (0, 1), (example, capsys.readouterr().err)


@pytest.mark.parametrize("options", [{"lora_rank": 8}, {"optimizer": "adamw-bf16"}])
def test_weights_without_a_master_copy_are_not_held_in_fp32(options):
    """Sharded stacks keep fp32 weights as masters; frozen weights and an optimizer of bf16 parameters have none."""
    held = [
        float(next(node for node in group.memory.tree.walk() if node.name == "weights").value.ravel()[0])
        for asked in ({}, options)
        for group in estimate("llama-2-7b", on="rtx-4090", gpus=1, global_batch_size=1, **asked).groups
    ]
    assert held[0] == pytest.approx(4 * 6738415616)
    assert held[1] == pytest.approx(2 * 6738415616)


def test_low_rank_adapters_of_7b_fit_into_24_gb():
    assert not estimate("llama-2-7b", on="rtx-4090", gpus=1, global_batch_size=1).fits[0]
    assert estimate("llama-2-7b", on="rtx-4090", gpus=1, global_batch_size=1, lora_rank=8).fits[0]


def test_a_storage_that_nothing_is_said_of_is_not_explained(capsys):
    assert main(shlex.split("data llama-3-8b --on h100-sxm --gpus 8 --explain")) == 0
    assert "nan" not in capsys.readouterr().out


def test_a_run_that_never_ends_is_a_no(capsys):
    assert main(shlex.split("goodput --work 10days --parameters 7B --on h100-sxm --gpus 131072 --mttf 2000h")) == 1
    assert "no: it fails faster than it restarts" in capsys.readouterr().out
    assert main(shlex.split("goodput --work 10days --parameters 7B --on h100-sxm --gpus 64,131072 --mttf 2000h")) == 0


def test_time_that_falls_with_size_is_doubted(capsys):
    assert main(shlex.split("roofline --scaling 1:1ms,2:0.5ms")) == 0
    assert "time falls as size grows" in capsys.readouterr().out


def test_prices_by_a_given_peak_are_held_against_costs_by_that_peak():
    """The estimate runs at the catalogue's peak: an order between the two would be one of two bases."""
    asked = {"gpus": 64, "price": "h100-sxm=3.93,h200-sxm=4.33"}
    own = compare("llama-3-8b", on="h100-sxm,h200-sxm", peak="h100-sxm=900TFLOP/s,h200-sxm=1000TFLOP/s", **asked)
    plain = compare("llama-3-8b", on="h100-sxm,h200-sxm", **asked)
    orders = [next(line for line in answer.headline if line.startswith("USD per PFLOP/s")) for answer in (own, plain)]
    assert "orders them" in orders[0] and "by three roofs" in orders[0]
    assert "by estimate" in orders[1]


def test_a_step_of_no_time_is_refused(capsys):
    assert main(shlex.split("data --step-time 0s --batch 1 --on h100-sxm --sample-size 1KB")) == 2
    assert capsys.readouterr().err == "ironlaw: --step-time is 0s, must be more than 0 and at most 1e+15 s\n"
