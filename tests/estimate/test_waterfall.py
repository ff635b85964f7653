"""The losses from the peak down to the MFU: they are the whole step, agree with its roofs, and count every FLOP of MFU once."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ironlaw
from ironlaw.estimate.step.step import step
from ironlaw.estimate.step.waterfall import LOSSES, MEANING, waterfall
from ironlaw.questions.remedies import LOSS_REMEDIES
from ironlaw.terms import shares

QUESTIONS = {
    "one rank": {"model": "gpt-2", "on": "h100-sxm", "gpus": 1, "global_batch_size": 64},
    "pipeline": {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "tp": 1, "pp": 4, "global_batch_size": 64},
    "tensor": {"model": "llama-3-8b", "on": "a100-sxm-80gb", "gpus": 16, "tp": 8, "pp": 1},
    "recomputed": {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "recompute": "full", "micro_batch_size": 1},
    "experts": {"model": "mixtral-8x7b", "on": "h100-sxm", "gpus": 64},
    "fp8": {"model": "deepseek-v3", "on": "h800", "gpus": 2048, "precision": "fp8-block"},
    "adapters": {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "lora_rank": 16},
    "frozen": {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "frozen_layers": 16},
    "state": {"model": "nemotron-h-8b", "on": "h100-sxm", "gpus": 8},
    "compiled": {"model": "llama-3-8b", "on": "tpu-v5p", "gpus": 64},
    "several rows": {"model": "llama-3-8b", "on": "h100-sxm", "gpus": [8, 16, 64]},
}


def losses_of(question):
    group = ironlaw.estimate(**question).groups[0]
    return group, {name: group.waterfall[name] for name in LOSSES}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_losses_and_the_mfu_are_the_whole_step(name):
    group, losses = losses_of(QUESTIONS[name])
    assert set(losses) == set(LOSSES) == set(MEANING) == set(LOSS_REMEDIES)
    assert sum(losses.values()) + group.throughput["mfu"].value == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_losses_agree_with_the_roofs(name):
    group, losses = losses_of(QUESTIONS[name])
    for loss, roof in {"network": "network", "pipeline": "pipeline", "host": "dispatch", "data": "data"}.items():
        assert losses[loss] == pytest.approx(group.shares[roof], abs=1e-15)
    computed = sum(losses[key] for key in ("kernels", "memory_bound", "recomputation", "untrained", "rest"))
    assert computed + group.throughput["mfu"].value == pytest.approx(group.shares["compute"] + group.shares["hbm"], abs=1e-12)
    assert all(np.all(losses[key] >= -1e-12) for key in LOSSES if key != "rest")
    assert np.all(losses["rest"] >= -0.01)  # the slowest stage may have fewer FLOPs than the mean, of less efficient work


def test_without_a_mask_and_without_stages_every_flop_is_counted_once():
    """Kernels that compute the full square compute just its FLOPs: what is left is what a causal mask hides."""
    question = {"model": "gpt-2", "on": "v100-sxm-32gb", "gpus": 1, "global_batch_size": 64, "recompute": "none"}
    group, losses = losses_of(question)
    assert not group.job.flash
    hidden = group.throughput["mfu_full_square"].value - group.throughput["mfu"].value
    assert losses["rest"] == pytest.approx(hidden, abs=1e-6) and np.all(hidden > 0.0)


@pytest.mark.parametrize("name", ["pipeline", "experts", "one rank"])
def test_no_recomputation_no_loss_by_it(name):
    assert np.all(losses_of({**QUESTIONS[name], "recompute": "none"})[1]["recomputation"] == 0.0)


def test_full_recomputation_costs_the_layers_forward_again():
    group, losses = losses_of(QUESTIONS["recomputed"])
    tree = group.step.tree
    layers = tree["layers"]
    forward = layers["forward"].value * layers.times * tree["micro-batches"].times
    assert losses["recomputation"] == pytest.approx(forward / tree.value, rel=1e-9)


def test_kernels_at_the_peak_lose_nothing():
    """With an efficiency of 1, no launch and no filling of the device a product is no loss."""
    group, _ = losses_of(QUESTIONS["one rank"])
    tree = step(group.job, group.cluster, group.plan).tree
    product = next(node for node in tree.walk() if node.name == "mlp in gemm")
    ideal = product.inputs["flop"] / group.cluster.accelerator.peak["bf16"].value
    perfect = type(tree)("step", ideal, "s", inputs=product.inputs, bound=0.0 * np.asarray(product.bound))  # 0: compute
    whole = type(tree)("whole", ideal, "s", parts=[perfect])
    booked = {name: seconds / ideal for name, seconds in shares(whole).items()}
    losses = waterfall(whole, booked, group.cluster.accelerator.peak["bf16"].value, 1.0)
    assert all(np.all(np.abs(loss) < 1e-12) for loss in losses.values())


def test_estimate_and_solve_have_one_waterfall(ask):
    asked = ("llama-3-8b", "--on", "h100-sxm", "--gpus", "64", "--tokens", "1T", "--json")
    one = json.loads(ask("estimate", *asked)[1])["mfu_waterfall"]
    assert json.loads(ask("solve", *asked)[1])["checks"]["waterfall"] == one
    assert sum(one.values()) == pytest.approx(1.0, abs=1e-12)


def test_the_page_has_the_waterfall_in_one_line(ask):
    page = ask("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "64", "--global-batch-size", "64", "--pp", "4", "--tp", "1")[1]
    (line,) = [line for line in page.splitlines() if line.startswith("  MFU: peak 100%")]
    words = line.split()
    signed = [(-1 if words[i] == "-" else 1) for i, word in enumerate(words) if word in "+-"]
    shares = [float(word[:-1]) for word in words if word.endswith("%")][1:]
    mfu = shares.pop()
    assert len(signed) == len(shares) >= 6
    assert 100.0 + sum(s * share for s, share in zip(signed, shares, strict=True)) == pytest.approx(mfu, abs=0.3)


def test_it_is_explained(ask):
    explained = ask("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--explain", "mfu")[1]
    assert explained.startswith("from the peak to the MFU")
    assert "ironlaw.estimate.step.rates.utilisation" in explained  # the formula of MFU stays
    assert explained.count("GEMMs slower than peak") == 1


def test_an_illegal_plan_has_none(ask):
    found = json.loads(ask("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "3", "--json")[1])
    assert found["mfu_waterfall"] is None
    assert found["parameters"]["total"] == 8_030_261_248
