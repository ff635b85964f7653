"""Recipes of precisions: bits a value from their papers, casts, a user's recipe, and refusals that name devices."""

from __future__ import annotations

import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.catalog.audit import audit_file
from ironlaw.errors import CatalogError, UnknownNameError, UnsupportedError
from ironlaw.estimate.layer.counts import linear_experts, total_parameters
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.law import formats
from ironlaw.precision import GRADIENT, INPUT, INPUT_GRADIENT, OUTPUT, PRECISIONS, WEIGHT, WEIGHT_GRADIENT, precision_of
from made_recipes import write_recipe

SHIPPED = load.SHIPPED / "precisions"
ASK = {
    "on": "b200-sxm", "gpus": 8, "tp": 1, "pp": 1, "zero": 1, "micro_batch_size": 1, "global_batch_size": 64, "seq_len": 4096,
    "recompute": "none", "framework": "megatron",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("bf16", (16, 16, 16)),
        ("fp8", (8, 8, 8)),
        ("mxfp8", (8.25, 8.25, 8.25)),  # 8 + 8/32
        ("mxfp4", (4.25, 4.25, 4.25)),  # 4 + 8/32; the card of gpt-oss says 4.25 bits a parameter
        ("nvfp4", (4.5, 4.5, 4.5)),  # 4 + 8/16; a scale of 16x16 weights is stored for each row
        ("fp8-block", (8.25, 8 + 32 / 16384, 8.25)),  # DeepSeek-V3: fp32 for 1x128 activations and 128x128 weights
    ],
)
def test_bits_of_a_value_are_those_of_the_format(name, bits):
    p = precision_of(name)
    weight = p.weight_bytes or p.parameter_bytes
    assert tuple(8 * size for size in (p.operand_bytes, weight, p.gradient_bytes)) == bits


@pytest.mark.parametrize(
    ("name", "inputs", "weights", "gradients"),
    [("fp8", 2, 2, 2), ("nvfp4", 2, 2, 2), ("mxfp4-backward", 1, 1, 2), ("mxfp4-weights", 0, 0, 0), ("bf16", 0, 0, 0)],
)
def test_a_tensor_is_cast_for_each_narrow_product_that_reads_it(name, inputs, weights, gradients):
    p = precision_of(name)
    assert (p.uses(INPUT), p.uses(WEIGHT), p.uses(GRADIENT)) == (inputs, weights, gradients)


def test_the_paper_transforms_both_operands_of_the_weight_gradient_and_keeps_16_percent_of_layers_wide():
    p = precision_of("nvfp4-pretraining")
    assert set(p.rotated) == {(INPUT, WEIGHT_GRADIENT), (GRADIENT, WEIGHT_GRADIENT)} and p.hadamard == 16
    assert p.wide_at_start + p.wide_at_end == pytest.approx(10 / 62, abs=0.001)  # 2 and 8 of 62 blocks: 16 %
    found = ironlaw.estimate("llama-3-8b", **ASK, precision="nvfp4-pretraining").groups[0].job.model
    assert (found.wide_layers_at_start, found.wide_layers_at_end) == (1, 4)  # of 32: 1.03 and 4.13
    given = ironlaw.estimate("llama-3-8b", **ASK, precision="nvfp4-pretraining", bf16_layers_at_end=2).groups[0].job.model
    assert (given.wide_layers_at_start, given.wide_layers_at_end) == (0, 2)


def test_a_transform_of_16_is_16_of_n_of_the_product_behind_it():
    """2 x 16 FLOP an element of (m, k) beside 2 m n k: with n = 4096 it is 16 / 4096 = 0.39 %."""
    m, n, k = 8192.0, 4096.0, 4096.0
    assert float(formats.hadamard_flop(m * k, 16.0)) / (2.0 * m * n * k) == 16 / 4096


def test_backward_alone_in_mxfp4_multiplies_forward_in_bf16():
    p = precision_of("mxfp4-backward")
    assert [p.product(c).peak for c in (OUTPUT, INPUT_GRADIENT, WEIGHT_GRADIENT)] == ["bf16", "mxfp4", "mxfp4"]
    assert p.peak == "mxfp4"


@pytest.mark.parametrize(("model", "published"), [("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)])
def test_experts_in_mxfp4_make_the_published_checkpoint(model, published):
    """The model card's checkpoints [GiB]: experts' weights in MXFP4, all else in bf16 (arXiv 2508.10925, table 1)."""
    record = load.record("models", model)
    experts = sum(kind.count * float(linear_experts(record, kind)) for kind in kinds(record))
    rest = float(total_parameters(record)) - experts
    size = experts * precision_of("mxfp4").weight_bytes + rest * 2.0
    assert size / 2**30 == pytest.approx(published, rel=0.006)


def test_every_shipped_name_has_a_record_and_no_record_has_a_problem():
    assert set(PRECISIONS) == {path.stem for path in SHIPPED.glob("*.toml")}
    assert not [problem for path in SHIPPED.glob("*.toml") for problem in audit_file("precisions", path)]
    assert all(load.record("precisions", name).exactness for name in PRECISIONS)


def test_a_recipe_of_the_user_is_a_precision(tmp_path):
    """As nvfp4, with a transform of 64: more FLOPs, as many bytes."""
    text = 'hadamard = { value = "64", source = "mine" }\n[sources.mine]\ntitle = "mine"\nurl = "https://example.org"\n'
    folder = write_recipe(tmp_path, "mine", "nvfp4", text + 'read = "2026-11-23"\ngrade = "guess"\n')
    trees = [ironlaw.estimate("llama-3-8b", **ASK, precision=p, catalog=str(folder)).groups[0].step.tree for p in ("nvfp4", "mine")]
    shipped, own = (next(t for t in tree.walk() if t.name == "casts") for tree in trees)
    assert own.inputs["transform_flop"] == 4 * shipped.inputs["transform_flop"]
    assert own.inputs["traffic"] == shipped.inputs["traffic"]
    with pytest.raises(UnknownNameError, match=r"unknown --precision 'mine'"):
        ironlaw.estimate("llama-3-8b", **ASK, precision="mine")


def test_a_recipe_that_contradicts_itself_is_refused(tmp_path):
    folder = write_recipe(tmp_path, "odd", "nvfp4", 'rotated = ["weight of weight_gradient"]\n')
    with pytest.raises(CatalogError, match="rotated has 'weight of weight_gradient'"):
        precision_of("odd", (str(folder),))
    folder = write_recipe(tmp_path, "parts", "fp8", 'wide_parts = ["biases"]\n')
    with pytest.raises(CatalogError, match="wide_parts has 'biases'"):
        precision_of("parts", (str(folder),))
    write_recipe(tmp_path, "scaled", "fp8", 'scaling = "sometimes"\n')
    (problem,) = audit_file("precisions", tmp_path / "precisions" / "scaled.toml", (str(tmp_path),))
    assert "scaling is 'sometimes'" in problem


@pytest.mark.parametrize(
    ("on", "precision", "near"),
    [
        ("mi300x", "mxfp4", "mi350x, mi355x"),
        ("h100-sxm", "nvfp4", "b200-sxm"),
        ("mi355x", "nvfp4", "b200-sxm"),
        ("tpu-v6e", "mxfp8", "b200-sxm"),
    ],
)
def test_a_device_without_a_format_is_refused_with_the_nearest_that_have_it(on, precision, near):
    with pytest.raises(UnsupportedError, match=f"{on} has no such matrix rate; .*; {precision} runs on .*{near}"):
        ironlaw.estimate("llama-3-8b", **{**ASK, "on": on, "precision": precision})


@pytest.mark.parametrize("on", ["b200-sxm", "b300-sxm", "gb200", "gb300", "mi350x", "mi355x"])
def test_fp4_is_at_least_twice_fp8_and_fp6_between(on):
    peak = {name: value.value for name, value in load.record("accelerators", on).peak.items()}
    assert peak["fp8"] <= peak["fp6"] <= peak["mxfp4"] and peak["mxfp4"] >= 1.99 * peak["fp8"]
    assert peak.get("nvfp4", peak["mxfp4"]) == peak["mxfp4"]
