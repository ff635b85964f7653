"""The table of precisions: one plan in each recipe, and the recipes alone."""

from __future__ import annotations

import json

import pytest

import ironlaw
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError, UnknownNameError, UnsupportedError
from ironlaw.launch.flags import flags_of

ASK = {"on": "b200-sxm", "gpus": 8, "tp": 1, "pp": 1, "zero": 1, "micro_batch_size": 1, "global_batch_size": 64, "seq_len": 4096}


def table(model=None, name="steps", **asked):
    found = ironlaw.textbook("precisions", model, **asked) if model else ironlaw.textbook("precisions", **asked)
    return {row["precision"]: row for row in next(t for t in found.tables if t.name == name).rows}


def test_one_plan_in_each_precision_is_the_estimate_of_that_plan():
    names = ["bf16", "mxfp8", "nvfp4-pretraining"]
    rows = table("llama-3-8b", **ASK, framework="megatron", recompute="none", precisions=",".join(names))
    assert list(rows) == names and rows["bf16"]["ratio"] == 1.0
    for name, row in rows.items():
        estimate = ironlaw.estimate("llama-3-8b", **ASK, framework="megatron", recompute="none", precision=name)
        assert row["seconds"] == float(estimate.step_seconds[0])
        assert row["device"] == float(estimate.device_bytes[0])
    assert rows["nvfp4-pretraining"]["wide_layers"] == 5.0 and rows["bf16"]["casts"] == 0.0
    assert 0.0 < rows["mxfp8"]["casts"] < 0.2


def test_all_that_the_device_can_multiply_are_shown_its_usual_precision_first():
    rows = table("llama-3-8b", **{**ASK, "on": "mi355x"})
    assert next(iter(rows)) == "bf16" and {"mxfp8", "mxfp4", "mxfp4-backward"} <= set(rows)
    assert not {"nvfp4", "fp32"} & set(rows)
    assert not {name for name in table(name="recipes", on="h100-sxm") if "fp4" in name} - {"mxfp4-weights"}


def test_a_named_framework_is_shown_in_its_own_recipes_and_an_unnamed_one_has_them_all():
    rows = table("llama-3-8b", **ASK, framework="megatron")
    assert "nvfp4-pretraining" in rows and "mxfp4-weights" not in rows
    found = ironlaw.textbook("precisions", "llama-3-8b", **ASK, precisions="bf16,mxfp4-weights")
    assert found.headline[-1] == "in the framework generic, which has every recipe: no framework is named"
    with pytest.raises(UnsupportedError, match="megatron has no precision mxfp4-weights"):
        table("llama-3-8b", **ASK, framework="megatron", precisions="bf16,mxfp4-weights")


def test_bytes_of_a_cast_by_hand():
    """Two bytes for each read of an input; the narrow value for each product that reads it."""
    moved = {name: row["input_bytes_moved"] for name, row in table(name="recipes").items()}
    assert moved["bf16"] == 0.0
    assert moved["fp8-delayed"] == 2 + 2 * 1 and moved["fp8-current"] == 2 * 2 + 2 * 1
    assert moved["mxfp8"] == 2 + 2 * 1.03125
    assert moved["nvfp4-plain"] == 2 * 2 + 2 * 0.5625 and moved["nvfp4"] == 3 * 2 + 2 * 0.5625
    assert moved["mxfp4-backward"] == 2 + 0.53125  # the weight gradient alone reads it narrow


@pytest.mark.parametrize(
    ("model", "asked", "error", "words"),
    [
        ("llama-3-8b", {}, QuestionError, "needs on and gpus"),
        ("llama-3-8b", {**ASK, "precision": "fp8"}, QuestionError, "precisions instead of precision"),
        ("llama-3-8b", {**ASK, "on": "h100-sxm", "precisions": "bf16,nvfp4"}, UnsupportedError, "h100-sxm has no such matrix rate"),
        (None, {"precisions": "bf16,nvfp5"}, UnknownNameError, "nearest: nvfp4"),
    ],
)
def test_what_the_table_cannot_show_is_refused(model, asked, error, words):
    with pytest.raises(error, match=words):
        table(model, **asked)


def test_a_search_compares_recipes_and_launches_the_layers_they_keep_wide(capsys):
    asked = "plan llama-3-8b --on b200-sxm --gpus 8 --global-batch-size 64 --precision bf16,nvfp4-pretraining --fix tp=1,cp=1,pp=1 --json"
    assert main(asked.split()) == 0
    best = json.loads(capsys.readouterr().out)["plans"][0]
    assert best["plan"]["precision"] == "nvfp4-pretraining"


def test_flags_name_the_layers_that_stay_wide():
    rows = flags_of(
        {
            **dict.fromkeys(("tp", "pp", "cp", "dp", "vpp", "zero"), 1), "framework": "megatron", "micro_batch_size": 1, "seq_len": 4096,
            "global_batch_size": 8, "recompute": "none", "precision": "nvfp4-pretraining", "optimizer": "adamw", "overlap": [],
            "bf16_layers_at_start": 1, "bf16_layers_at_end": 4,
        },
        32,
    )  # fmt: skip
    assert "--fp4-format e2m1 --first-last-layers-bf16 --num-layers-at-start-in-bf16 1 --num-layers-at-end-in-bf16 4" in rows[0]["flags"]
