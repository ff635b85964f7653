"""``textbook lora``: parameters, memory and FLOPs of adapters beside full fine-tuning."""

from __future__ import annotations

import json

import pytest

from ironlaw import textbook
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError
from ironlaw.estimate.answer.estimate import estimate

ASKED = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "global_batch_size": 64, "tp": 1, "pp": 1, "micro_batch_size": 1}
ASKED |= {"zero": 3, "recompute": "none"}


def table(**more):
    return textbook("lora", **(ASKED | more))


def test_adapters_are_counted_by_hand():
    """Rank times input and output: queries and output 4096 to 4096, keys and values 4096 to 1024, in each of 32 layers."""
    row = table(lora_rank=16, lora_targets="attention")["methods"][1]
    apart = 16 * 32 * ((4096 + 4096) + 2 * (4096 + 1024) + (4096 + 4096))  # torch: queries, keys and values are three layers
    assert row["trainable"] == apart
    assert row["share"] == pytest.approx(apart / 8.03e9, rel=1e-3)
    fused = 16 * 32 * ((4096 + 4096 + 2 * 1024) + (4096 + 4096))  # Megatron: they are one
    assert table(lora_rank=16, lora_targets="attention", framework="nemo")["methods"][1]["trainable"] == fused


def test_first_order_is_two_bytes_for_what_is_frozen_and_four_flop():
    full, one = table(lora_rank=16, lora_targets="attention")["methods"]
    every = full["trainable"]
    assert full["first_memory"] == 16 * every
    assert one["first_memory"] == 2 * every + 16 * one["trainable"]
    assert one["first_flop"] == 4 * every + 6 * one["trainable"]


def test_memory_and_step_are_those_of_the_estimate():
    full, one = table(lora_rank=16, lora_targets="all")["methods"]
    for row, more in ((full, {"framework": "huggingface"}), (one, {"lora_rank": 16, "lora_targets": "all"})):
        told = estimate(**ASKED, **more).row(0)
        assert (row["memory"], row["step"]) == (told["memory"]["device"], told["step"]["seconds"])


def test_full_fine_tuning_is_of_the_stack_that_is_chosen_for_adapters():
    full, one = table(lora_rank=16, lora_targets="all")["methods"]
    assert full["plan"].endswith("huggingface") and one["plan"].endswith("huggingface")


def test_higher_ranks_and_more_targets_train_more():
    rows = {row["method"]: row for row in table(seq_len=4096)["methods"]}
    assert (
        rows["rank 8, attention"]["trainable"] < rows["rank 64, attention"]["trainable"] < rows["rank 64, all linear layers"]["trainable"]
    )
    assert rows["rank 64, all linear layers"]["memory"] < rows["full fine-tuning"]["memory"]
    assert 1.0 < rows["rank 64, all linear layers"]["speed"] <= rows["rank 64, attention"]["speed"]


def test_a_speed_is_not_compared_with_what_does_not_fit():
    found = textbook("lora", "llama-2-70b", on="h100-sxm", gpus=8, lora_rank=16, offload="none")
    assert not found["methods"][0]["fits"]
    assert found["methods"][1]["speed"] is None


@pytest.mark.parametrize("more", [{"frozen_layers": 2}, {"gpus": None}])
def test_what_is_refused(more):
    with pytest.raises(QuestionError):
        table(**more)


def test_the_command_prints_json_and_an_explanation(capsys):
    asked = ["textbook", "lora", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--lora-rank", "16"]
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["methods"][1]["method"] == "rank 16, attention"
    assert main([*asked, "--explain", "adapters to first order"]) == 0
    assert "training_static" in capsys.readouterr().out
