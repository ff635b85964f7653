"""What recipes of precisions cast, keep and multiply in one layer, by hand, and conserve over ranks."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.estimate.layer.casts import CAST
from ironlaw.estimate.layer.sizes import operator_of
from ironlaw.questions.textbook.tables.precisions import cast_seconds
from ironlaw.terms import plain
from made_recipes import write_recipe
from made_stacks import without_limits

H, F, D, HEADS, KV, LAYERS, T = 4096, 14336, 128, 32, 8, 32, 4096
INPUTS = T * (2 * H + HEADS * D + F)  # of the products: query-key-value, attention output, mlp in, mlp out
GRADIENTS = T * ((HEADS + 2 * KV) * D + H + 2 * F + H)
WEIGHTS = H * (HEADS + 2 * KV) * D + HEADS * D * H + 3 * H * F
ASK = {
    "on": "b200-sxm", "gpus": 1, "tp": 1, "pp": 1, "zero": 0, "micro_batch_size": 1, "global_batch_size": 1, "seq_len": T,
    "recompute": "none", "framework": "generic",
}  # fmt: skip
MIXTURE = "deepseek-v2-lite"


def group(model="llama-3-8b", **changes):
    return ironlaw.estimate(model, **{**ASK, **changes}).groups[0]


def one(value) -> float:
    return float(np.ravel(plain(value))[0])


def casts(node, what="traffic") -> list[float]:
    """An input of every kernel that casts, at or below a node."""
    return [one(term.inputs[what]) for term in node.walk() if operator_of(term).name == CAST.name and what in term.inputs]


def copies(**changes) -> float:
    return one(group(**changes).memory.tree["low-precision copies of weights"].value)


@pytest.mark.parametrize(
    ("precision", "framework", "forward", "backward"),
    [
        # Transformer Engine casts an input once, for the product that reads it narrow: the weight gradient alone
        ("mxfp4-backward", "megatron", (2 + 0.53125) * INPUTS, (2 + 2 + 2 * 0.53125) * GRADIENTS),
        # torchtitan keeps the wide input, and casts it and the weight where backward uses them
        ("mxfp4-backward", "torchtitan", 0.0, 2 * (2 + 0.53125) * GRADIENTS + (2 + 0.53125) * INPUTS),
        # Quartet: two transforms of a tensor are two reads; gradients are transformed back with a bit for each clipped input
        ("mxfp4", "megatron", (4 + 2 * 0.53125) * INPUTS, (4 + 2 * 0.53125) * GRADIENTS + (4 + 0.125) * INPUTS + 4 * WEIGHTS),
        ("nvfp4-plain", "megatron", (4 + 2 * 0.5625) * INPUTS, (4 + 2 * 0.5625) * GRADIENTS),
        ("fp8-current", "megatron", 5 * INPUTS, 5 * GRADIENTS),  # Blackwell multiplies one orientation either way
        ("fp8-delayed", "megatron", 3 * (INPUTS - 2 * T * H), 3 * GRADIENTS),  # two norms write their output cast
        ("fp8-e4m3", "megatron", 3 * (INPUTS - 2 * T * H), 3 * GRADIENTS),
    ],
)
def test_casts_of_a_layer_are_those_of_its_matrices(tmp_path, precision, framework, forward, backward):
    tree = group(precision=precision, **without_limits(tmp_path, framework)).step.tree
    moved = {name: [t for t in tree[name].walk() if t.name == "casts"] for name in ("forward", "backward")}
    assert sum(one(t.inputs["traffic"]) for t in moved["forward"]) == pytest.approx(forward, rel=1e-12)
    assert sum(one(t.inputs["traffic"]) for t in moved["backward"]) == pytest.approx(backward, rel=1e-12)


def test_transforms_are_two_flop_for_each_element_and_its_size():
    tree = group(precision="nvfp4").step.tree
    assert casts(tree["forward"], "transform_flop") == [2 * 16 * INPUTS]  # the columns of inputs
    assert casts(tree["backward"], "transform_flop") == [2 * 16 * GRADIENTS]
    every = group(precision="mxfp4").step.tree
    assert casts(every["forward"], "transform_flop") == [2 * 32 * 2 * INPUTS]  # rows and columns have transforms of their own
    assert 2 * 32 * 2 * WEIGHTS * LAYERS in casts(every, "transform_flop")  # of all weights, once a step


def test_a_transform_hides_behind_the_bytes_of_its_cast():
    """32 FLOP an element at 2.25 PFLOP/s take less than 7.125 bytes at 7.7 TB/s: the kernel is bound by memory."""
    term = next(t for t in group(precision="nvfp4").step.tree["forward"].walk() if t.name == "casts")
    inputs = {name: one(value) for name, value in term.inputs.items()}
    moving = inputs["traffic"] / (inputs["bandwidth"] * inputs["bandwidth_fraction"])
    assert one(term.value) == pytest.approx(moving + inputs["launch"], rel=1e-12)
    assert inputs["transform_flop"] / (inputs["peak"] * inputs["efficiency"]) < 0.1 * moving


def test_backward_in_mxfp4_leaves_forward_as_in_bf16():
    wide, narrow = group(precision="bf16").step.tree, group(precision="mxfp4-backward").step.tree
    for tree in (wide, narrow):
        assert {one(t.inputs["peak"]) for t in tree["forward"].walk() if t.name.endswith(" gemm")} == {2250e12}
    assert {one(t.inputs["peak"]) for t in narrow["backward"].walk() if t.name.endswith((" dgrad", " wgrad"))} == {9000e12}
    name = "mlp in gemm"
    assert one(wide["forward"][name].value) == one(narrow["forward"][name].value)


@pytest.mark.parametrize(
    ("precision", "bytes_of_a_weight"),
    [
        ("nvfp4", 2 * 0.5625),
        ("mxfp4", 2 * 0.53125),
        ("mxfp4-backward", 0.53125),
        ("mxfp4-weights", 2.0),
        ("mxfp8", 2 * 1.03125),
        ("fp8", 1.0),
    ],
)
def test_copies_of_weights_are_one_for_each_narrow_product_that_reads_them(precision, bytes_of_a_weight):
    assert copies(precision=precision) == bytes_of_a_weight * WEIGHTS * LAYERS
    assert copies(precision="nvfp4-pretraining") == 2 * 0.5625 * WEIGHTS * (LAYERS - 5)


def test_bytes_over_tensor_ranks_add_up_to_one_rank():
    for precision in ("nvfp4", "mxfp4", "mxfp4-backward"):
        assert [tp * copies(precision=precision, gpus=tp, tp=tp) for tp in (1, 2, 4)] == [copies(precision=precision)] * 3


@pytest.mark.parametrize(
    ("precision", "size"), [("mxfp8", 2 * 1.03125), ("mxfp4", 2 * 0.53125), ("nvfp4", 2 * 0.5625), ("mxfp4-weights", 2.0)]
)
def test_narrow_experts_alone_have_copies_alone_and_conserve_them_over_ranks(precision, size):
    """26 routed layers of 64 experts of 3 x 2048 x 1408 weights."""
    experts = 26 * 64 * 3 * 2048 * 1408
    asked = {"model": MIXTURE, "precision": "bf16", "expert_precision": precision}
    assert [ep * copies(**asked, gpus=ep, ep=ep) for ep in (1, 4, 8)] == [size * experts] * 3
    assert copies(**{**asked, "expert_precision": "bf16"}) == 0.0


def test_rows_of_narrow_experts_are_kept_as_they_are_cast():
    """6 rows of a token: the input of 2048 and the second product's of 1408, in 0.5625 instead of 2 bytes."""
    asked = {"model": MIXTURE, "precision": "bf16"}
    wide, narrow = (one(group(**asked, expert_precision=p).memory.tree["saved routed layers"].value) for p in ("bf16", "nvfp4"))
    assert wide - narrow == pytest.approx(26 * 6 * T * (2048 + 1408) * (2 - 0.5625), rel=1e-12)


def test_experts_in_their_precision_cast_their_rows_and_no_others():
    tree = group(MIXTURE, precision="bf16", expert_precision="mxfp8").step.tree["routed layers/forward"]
    assert casts(tree) == [pytest.approx(6 * T * (2048 + 1408) * (2 + 2 * 1.03125), rel=1e-12)]


def test_a_recipe_keeps_shared_experts_and_further_token_layers_wide(tmp_path):
    folder = write_recipe(tmp_path, "mine", "fp8-block", 'wide_parts = ["shared experts", "further-token layers"]\n')
    asked = {"on": "h100-sxm", "catalog": str(folder), "gpus": 8, "ep": 8, "global_batch_size": 8, "mtp_layers": 1}
    found = {name: group(MIXTURE, **asked, precision=name) for name in ("fp8-block", "mine")}
    peaks = {}
    for name, one_group in found.items():
        tree = one_group.step.tree
        peaks[name] = [
            one(next(t for t in tree.walk() if t.name == what).inputs["peak"]) for what in ("shared expert in gemm", "mlp in gemm")
        ]
        (further,) = [t for t in tree.walk() if t.name == "multi-token-prediction layers"][:1]
        peaks[name].append(one(next(t for t in further.walk() if t.name == "further-token projection gemm").inputs["peak"]))
    assert peaks["fp8-block"] == [1979e12] * 3
    assert peaks["mine"] == [989e12, 1979e12, 989e12]
    wide = [one(g.memory.tree["low-precision copies of weights"].value) for g in found.values()]
    attention = 2048 * 16 * 192 + 2048 * 576 + 512 * 16 * 256 + 16 * 128 * 2048  # of latents: queries, down, up, output
    shared, projection, experts = 3 * 2048 * 2816, 2 * 2048 * 2048, 64 * 3 * 2048 * 1408 / 8
    kept = 26 * shared + attention + projection + shared + experts
    assert wide[0] - wide[1] == pytest.approx(kept * 2 * (1 + 4 / 128**2), rel=1e-12)
    assert sum(casts(found["mine"].step.tree)) < sum(casts(found["fp8-block"].step.tree))


def test_seconds_of_casts_are_their_kernels_as_often_as_they_run():
    one_batch, four = (cast_seconds(group(precision="mxfp8", framework="torchtitan", global_batch_size=n).step.tree) for n in (1, 4))
    assert four == pytest.approx(4 * one_batch, rel=1e-9) and one_batch > 0.0
    assert cast_seconds(group(precision="bf16").step.tree) == 0.0


def test_fixed_scaling_of_a_recipe_is_that_of_the_option():
    delayed, current = (group(precision="fp8", fp8_scaling=how) for how in ("delayed", "current"))
    assert one(group(precision="fp8-delayed").step.tree.value) == one(delayed.step.tree.value)
    assert one(group(precision="fp8-current").step.tree.value) == one(current.step.tree.value)
    assert one(current.step.tree.value) > one(delayed.step.tree.value)
    with pytest.raises(ironlaw.errors.QuestionError, match="has delayed scales; give fp8"):
        group(precision="fp8-delayed", fp8_scaling="current")


def test_the_answer_names_the_recipe_and_its_values():
    row = ironlaw.estimate("llama-3-8b", **{**ASK, "precision": "nvfp4-pretraining"}).row()
    assert row["plan"]["precision"] == "nvfp4-pretraining"
    assert (row["plan"]["bf16_layers_at_start"], row["plan"]["bf16_layers_at_end"]) == (1, 4)
    assert "precisions/nvfp4-pretraining" in str(row)
    assert sum(row["mfu_waterfall"].values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("precision", "inputs", "gradients"), [("bf16", 2, 2), ("mxfp4-backward", 2, 2 * 0.53125), ("mxfp4", 0.53125, 2 * 0.53125)]
)
def test_what_sequence_parallelism_gathers_was_cast_where_the_first_product_reads_it_narrow(precision, inputs, gradients):
    """tp 2: a hidden state forward; its gradient backward, in both orientations where it was cast."""
    tree = group(precision=precision, gpus=2, tp=2).step.tree["tensor parallel"]
    gathers = ["all-gathers", "all-gathers of gradients"] if precision != "bf16" else ["all-gathers"] * 2
    sizes = [one(next(t.inputs["size"] for t in tree[name].walk() if "size" in t.inputs)) for name in gathers]
    assert sizes == [inputs * T * H, gradients * T * H]
