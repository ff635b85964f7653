"""The model FLOP of a token by part: forward and backward of weights and of attention."""

from __future__ import annotations

import pytest

import ironlaw
from ironlaw.cli.main import main
from ironlaw.estimate.layer.counts import matmul_parameters
from ironlaw.estimate.step.rates import flop_by_part
from ironlaw.terms import scalar

ASK = {"on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "zero": 3, "micro_batch_size": 1, "global_batch_size": 8, "recompute": "full"}


def parts(model="llama-3-8b", **options):
    group = ironlaw.estimate(model, **{**ASK, **options}).groups[0]
    return group, {name: scalar(term) for name, term in flop_by_part(group.job, group.plan).items()}


@pytest.mark.parametrize(
    "options",
    [{}, {"seq_len": 2048}, {"lora_rank": 16}, {"frozen_layers": 16}, {"model": "mixtral-8x7b"}, {"model": "nemotron-h-8b"}],
    ids=str,
)
def test_parts_add_up_to_what_the_mfu_counts(options):
    group, flop = parts(**options)
    assert sum(flop.values()) == pytest.approx(2 * flop["whole"], rel=1e-12)
    assert flop["whole"] == scalar(group.throughput["mfu"].inputs["flop_per_token"])
    assert flop["forward"] == 2 * float(matmul_parameters(group.job.model))


def test_backward_is_twice_forward_where_all_is_trained():
    _, flop = parts()
    assert flop["backward"] == 2 * flop["forward"]
    assert flop["attention_backward"] == pytest.approx(2 * flop["attention_forward"], rel=1e-12)
    assert flop["attention_forward"] == 4 * 32 * 4096 * 8192 / 2  # layers, width, half the tokens of a sequence: the keys under a mask


def test_an_indexer_scores_every_key_before_a_token():
    """DeepSeek-V3.2: 64 heads of 128, forward over half of 131,072 tokens, 61 layers and one for a further token; 2,048 picked."""
    options = {"model": "deepseek-v3.2", "seq_len": 131072, "gpus": 512, "on": "h200-sxm", "pp": 8, "cp": 64, "zero": 1, "ep": 32}
    group, flop = parts(**options)
    picked = 2048 - 2048**2 / 2 / 131072  # a token among the first 2,048 picks all before it
    assert flop["index_scores"] == pytest.approx(62 * 64 * (2 * 128 + 2) * (131072 / 2 + 2 * picked), rel=1e-9)
    assert flop["attention_forward"] == pytest.approx(62 * 4 * 128 * (192 + 128) / 2 * picked, rel=1e-9)
    assert flop["whole"] == scalar(group.throughput["mfu"].inputs["flop_per_token"])
    assert sum(flop.values()) == pytest.approx(2 * flop["whole"], rel=1e-12)


def test_frozen_weights_have_no_gradient_of_their_own():
    _, full = parts()
    _, adapters = parts(lora_rank=1)
    assert adapters["backward"] == pytest.approx(adapters["forward"], rel=2e-3) and adapters["forward"] == full["forward"]
    _, frozen = parts(frozen_layers=16)
    assert frozen["backward"] < full["backward"] and frozen["forward"] == full["forward"]


@pytest.mark.parametrize("term", ["6ND", "6nd", "MFU", "flop per token"])
def test_the_explanation_shows_the_parts(capsys, term):
    assert main(["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--explain", term]) == 0
    page = capsys.readouterr().out
    assert "6 N D: model FLOP of a token" in page and "gradient of its input" in page and "the rule 6 N" in page
