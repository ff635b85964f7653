"""Narrow formats: what is kept, cast, sent and left wide, against counts by hand and Megatron's own measured bytes."""

from __future__ import annotations

import csv
import json
from importlib import resources

import numpy as np
import pytest

import ironlaw
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError, UnknownNameError, UnsupportedError, ValueRangeError
from ironlaw.estimate.network import sharding
from ironlaw.launch.megatron.options import options_from_arguments
from ironlaw.law import kernels
from ironlaw.terms import plain

H, F, HEADS, KV, D, LAYERS, T = 2048, 5632, 16, 4, 128, 8, 4096
SHAPE = {
    "hidden_size": H, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV, "intermediate_size": F,
    "vocab_size": 32000, "gated_mlp": True, "tie_word_embeddings": False, "max_position_embeddings": T,
}  # fmt: skip
ASK = {
    "on": "h100-sxm", "gpus": 1, "global_batch_size": 4, "seq_len": T, "tp": 1, "pp": 1, "vpp": 1, "cp": 1, "zero": 1,
    "micro_batch_size": 1, "recompute": "none", "framework": "megatron", "precision": "fp8", "fp8_scaling": "current",
}  # fmt: skip
LINEAR = H * D * (HEADS + 2 * KV) + H * HEADS * D + 3 * H * F  # weights of one layer's linear layers
MIXTURE = {**SHAPE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 1408}


def ask(model=SHAPE, **changes):
    options = {key: value for key, value in {**ASK, **changes}.items() if value is not None}
    if options["precision"] != "fp8":
        options.pop("fp8_scaling", None)
    return ironlaw.estimate(model, **options)


def tree(model=SHAPE, **changes):
    return ask(model, **changes).groups[0].step.tree


def memory(model=SHAPE, **changes):
    return ask(model, **changes).groups[0].memory.tree


def one(value) -> float:
    return float(np.ravel(value)[0])


def kept(model=SHAPE, **changes) -> float:
    return one(memory(model, **changes)["saved layers"].value)


def moved(node, which: int = 0) -> float:
    """Bytes of the ``which``-th leaf of memory-bound kernels at or below a node."""
    leaves = [t for t in node.walk() if t.law in (kernels.memory_time, kernels.transformed_time)]
    return one(plain(leaves[which].inputs["traffic"]))


# what is kept


@pytest.mark.parametrize(
    ("precision", "scaling", "inputs", "beside"),
    [("bf16", None, 2.0, 0.0), ("fp8", "current", 1.0, 0.0), ("fp8", "delayed", 1.0, 1.0), ("fp8-block", None, 1.03125, 0.0)],
)
def test_saved_tensors_of_a_layer_by_hand(precision, scaling, inputs, beside):
    """Norm inputs, queries, keys, values, output, gate and up stay in two bytes; inputs of linear layers as they were cast.

    With delayed scaling Megatron does not tell the output projection to use what the attention kernel keeps.
    """
    norms = 2 * 2 * H
    attention = 2 * D * (2 * HEADS + 2 * KV) + 4 * HEADS
    mlp = 2 * 2 * F
    by_hand = T * (norms + 2 * inputs * H + attention + beside * HEADS * D + mlp + inputs * F)
    assert kept(precision=precision, fp8_scaling=scaling) == pytest.approx(LAYERS * by_hand, rel=1e-12)


def test_torchao_keeps_the_wide_input():
    assert kept(framework="torchtitan") == kept(framework="torchtitan", precision="bf16")
    assert one(memory(framework="torchtitan")["low-precision copies of weights"].value) == 0.0


def test_the_router_keeps_its_input_wide_and_experts_keep_narrow_rows():
    def routed(**changes) -> float:
        return one(memory(MIXTURE, **changes)["saved routed layers"].value) / LAYERS

    rows, w = 2 * T, 1408
    # narrow by a byte each: attention's input, rows sent to experts, the second product's input of experts and of the shared one
    assert routed(precision="bf16") - routed() == pytest.approx(T * H + rows * H + rows * w + T * w, rel=1e-12)
    # delayed: the attention's output and the shared expert's input once more
    assert routed(fp8_scaling="delayed") - routed() == pytest.approx(T * HEADS * D + T * H, rel=1e-12)


def test_a_recomputed_norm_keeps_no_narrow_output():
    """Recomputing norms and activation function leaves the norms' inputs, gate and up: the same bytes in both precisions."""
    again = {"recompute": "selective:elementwise"}
    assert kept(**again) == kept(precision="bf16", **again)


@pytest.mark.parametrize(("on", "copies"), [("h100-sxm", 2), ("b200-sxm", 1)])
def test_only_linear_layers_have_cast_copies(on, copies):
    """The embedding, the output layer and the norms have none; Blackwell multiplies one copy in either orientation."""
    assert one(memory(on=on)["low-precision copies of weights"].value) == copies * LAYERS * LINEAR


def test_blocks_of_32_need_both_copies_and_their_scales():
    held = one(memory(on="b200-sxm", precision="mxfp8")["low-precision copies of weights"].value)
    assert held == pytest.approx(2 * (1 + 1 / 32) * LAYERS * LINEAR, rel=1e-12)


def test_the_second_copy_is_what_megatron_measured():
    """Megatron's test of weights in fp8 on GB200 and H100: between steps the transposes are all that differs."""
    table = resources.files("ironlaw.validate") / "data" / "peak_memory.csv"
    between, ours = {}, {}
    with table.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["test"] == "gpt/gpt3_weekly_mcore_tp4_cp2_current_scaling_native_fp8_tp_sp_cp_tp_overlap":
                on = {"dgx_h100": "h100-sxm", "dgx_gb200": "gb200"}[row["platform"]]
                between[on] = float(row["mem_allocated_bytes_median"])
                arguments = {**json.loads(row["all_args"]), "--padded-vocab-size": 50688}
                options, _ = options_from_arguments(arguments, gpus=8, on=on)
                held = ironlaw.estimate(**options).groups[0].memory.tree
                ours[on] = sum(one(held[name].value) for name in ("weights", "low-precision copies of weights"))
    assert ours["h100-sxm"] - ours["gb200"] == pytest.approx(between["h100-sxm"] - between["gb200"], rel=1e-3)


def test_weights_kept_narrow_have_no_wide_copy():
    """Two bytes of each linear layer's weight go; the embedding and the output layer stay in bf16."""
    off, on = memory(), memory(fp8_param_gather=True)
    assert one(off["weights"].value) - one(on["weights"].value) == 2 * LAYERS * LINEAR
    assert one(off["low-precision copies of weights"].value) == one(on["low-precision copies of weights"].value)


def test_narrower_needs_no_more_memory_where_nothing_is_copied():
    """One copy in place of the bf16 weight on Blackwell, no copies with torchao."""
    wide = one(memory(on="b200-sxm", precision="bf16").value)
    assert one(memory(on="b200-sxm", fp8_param_gather=True).value) < wide
    for precision, on in (("fp8", "h100-sxm"), ("fp8-row", "h100-sxm"), ("mxfp8", "b200-sxm")):
        narrow, bf16 = (one(memory(framework="torchtitan", on=on, precision=p).value) for p in (precision, "bf16"))
        assert narrow <= bf16


# what is cast

INPUTS = T * (H + HEADS * D + H + F)
GRADIENTS = T * (D * (HEADS + 2 * KV) + H + 2 * F + H)


@pytest.mark.parametrize(
    ("changes", "forward", "backward"),
    [
        ({}, 6 * INPUTS, 6 * GRADIENTS),  # read for the scale, read, written by rows and by columns
        # norms write the inputs behind them: those are turned, on Blackwell not even that
        ({"fp8_scaling": "delayed"}, 4 * (INPUTS - 2 * T * H) + 2 * 2 * T * H, 4 * GRADIENTS),
        ({"on": "b200-sxm"}, 5 * INPUTS, 5 * GRADIENTS),
        ({"on": "b200-sxm", "fp8_scaling": "delayed"}, 3 * (INPUTS - 2 * T * H), 3 * GRADIENTS),
        ({"precision": "fp8-block"}, (2 + 2 * 1.03125) * INPUTS, (2 + 2 * 1.03125) * GRADIENTS),
        ({"on": "b200-sxm", "precision": "mxfp8"}, (2 + 2 * 1.03125) * INPUTS, (2 + 2 * 1.03125) * GRADIENTS),
        ({"on": "b200-sxm", "precision": "nvfp4-plain", "framework": "generic"}, (4 + 2 * 0.5625) * INPUTS, (4 + 2 * 0.5625) * GRADIENTS),
        # transformed columns are cast by a kernel of their own, which reads the tensor once more
        ({"on": "b200-sxm", "precision": "nvfp4"}, (6 + 2 * 0.5625) * INPUTS, (6 + 2 * 0.5625) * GRADIENTS),
        # torchao, eager: each orientation by itself, the input once more for the weight gradient
        ({"framework": "torchtitan"}, 5 * INPUTS, 2 * 5 * GRADIENTS + 5 * INPUTS),
        # compiled: no pass for scales, both orientations in one kernel, the cast input kept; with a scale for each row it is cast again
        ({"framework": "torchtitan-compile"}, 4 * INPUTS, 4 * GRADIENTS),
        ({"framework": "torchtitan-compile", "precision": "fp8-row"}, 3 * INPUTS, 4 * GRADIENTS + 3 * INPUTS),
    ],
)
def test_casts_of_a_layer_by_hand(changes, forward, backward):
    found = tree(**changes)
    assert moved(found["forward/casts"]) == pytest.approx(forward, rel=1e-12)
    assert moved(found["backward/casts"]) == pytest.approx(backward, rel=1e-12)


def test_a_gathered_tensor_is_cast_before_the_gather():
    """tp 2: attention's and MLP's inputs are cast by halves, then the gathered tensor is turned for the weight gradient."""
    split = {"gpus": 2, "tp": 2}
    gathered, own = T * 2 * H, T * (HEADS * D + F) / 2
    assert moved(tree(**split)["forward/casts"]) == pytest.approx(5 * gathered / 2 + 2 * gathered + 6 * own, rel=1e-12)
    found = tree(**split, fp8_scaling="delayed")
    assert moved(found["forward/casts"]) == pytest.approx(2 * gathered + 4 * own, rel=1e-12)


def test_torchtitan_transposes_gathered_tensors_and_casts_others_again():
    """torchtitan, eager, tp 2: an input is cast on its share; backward what was gathered is turned, what was not is cast again."""
    split = {"gpus": 2, "tp": 2, "framework": "torchtitan"}
    found = tree(**split)
    gathered, own = T * 2 * H, T * (HEADS * D + F) / 2
    assert moved(found["forward/casts"]) == pytest.approx(5 * gathered / 2 + 5 * own, rel=1e-12)
    out = T * 2 * H  # the gradients of the second products are gathered, those of the first are each rank's own
    others = T * (D * (HEADS + 2 * KV) + 2 * F) / 2
    by_hand = (5 * out / 2 + 2 * out) + 2 * 5 * others + 2 * gathered + 5 * own
    assert moved(found["backward/casts"]) == pytest.approx(by_hand, rel=1e-12)


def test_a_norm_that_writes_the_cast_input_writes_one_byte():
    """Two norms read two bytes and write one, where in bf16 and with current scaling they write two; backward as ever."""
    wide, current, delayed = (tree(**c) for c in ({"precision": "bf16"}, {}, {"fp8_scaling": "delayed"}))
    assert moved(wide["forward/norms"]) == moved(current["forward/norms"]) == 2 * 4 * T * H
    assert moved(delayed["forward/norms"]) == 2 * 3 * T * H
    assert moved(wide["backward/norms"]) == moved(delayed["backward/norms"])


def test_adapters_cast_one_orientation():
    """Frozen weights have no gradient, for which inputs and output gradients would be needed by columns."""
    found = tree(lora_rank=16, framework="generic")
    assert moved(found["forward/casts"]) == pytest.approx(5 * INPUTS, rel=1e-12)
    assert moved(found["backward/casts"]) == pytest.approx(5 * GRADIENTS, rel=1e-12)


def test_experts_cast_their_rows():
    rows, w = 2 * T, 1408
    found = tree(MIXTURE)
    assert moved(found["forward/experts' casts"]) == pytest.approx(6 * rows * (H + w), rel=1e-12)
    assert moved(found["backward/experts' casts"]) == pytest.approx(6 * rows * (2 * w + H), rel=1e-12)


def test_megatron_casts_weights_once_a_step_and_torchao_at_every_use():
    once = next(t for t in tree().parts if t.name == "weight casts")
    again = next(t for t in tree(global_batch_size=8).parts if t.name == "weight casts")
    assert moved(once) == moved(again) == (2 + 2 + 2) * LAYERS * LINEAR  # for the scale, read, written twice
    found = tree(framework="torchtitan", fp8_param_gather="off")
    assert all(t.name != "weight casts" for t in found.parts)
    for way in ("forward", "backward"):
        assert moved(found[f"{way}/weight casts"]) == 5 * LINEAR
    compiled = tree(framework="torchtitan-compile", fp8_param_gather="off")  # the scale is found once for both
    assert [moved(compiled[f"{way}/weight casts"]) for way in ("forward", "backward")] == [5 * LINEAR, 3 * LINEAR]
    # with nothing to gather, gathering narrow changes nothing; else shards are cast, and read for their scales once a step
    assert moved(tree(framework="torchtitan")["forward/weight casts"]) == 5 * LINEAR
    sharded = tree(framework="torchtitan", gpus=4, dp_shard=4, zero=3)
    assert moved(sharded["forward/weight casts"]) == (4 + 1) * LINEAR / 4
    assert moved(sharded["backward/weight casts"]) == (4 + 1) * LINEAR / 4 + 2 * LINEAR
    assert moved(next(t for t in sharded.parts if t.name == "weight casts")) == 4 * LAYERS * LINEAR / 4


def test_weights_that_zero_3_gathers_are_cast_every_micro_batch():
    sharded = {"gpus": 4, "dp_shard": 4, "zero": 3, "global_batch_size": 8}
    found = tree(**sharded)
    assert moved(found["forward/weight casts"]) == 6 * LINEAR
    assert one(next(t for t in found.parts if t.name == "weight casts").value) == 0.0
    # in a batch a row is the same as alone
    both = ask(gpus=[4, 4], dp_shard=[4, 4], zero=[3, 1], global_batch_size=[8, 8]).step_seconds
    alone = [float(ask(**{**sharded, "zero": zero}).step_seconds[0]) for zero in (3, 1)]
    assert list(both) == alone


# what is sent


def test_bytes_of_weights_that_are_gathered_narrow():
    """One byte of a linear layer's weight and two of the rest; blocks of 32 differ by orientation and are gathered in bf16."""

    def sent(**changes) -> float:
        group = ask(gpus=4, dp_shard=4, **changes).groups[0]
        return one(sharding.stage_weights(group.job, group.step.pace.classes[0])[0])

    whole = sent()
    assert whole == sent(precision="bf16")
    assert whole - sent(fp8_param_gather=True) == LAYERS * LINEAR
    assert sent(on="b200-sxm", precision="mxfp8", fp8_param_gather=True) == whole
    assert whole - sent(on="b200-sxm", precision="nvfp4", fp8_param_gather=True) == 1.5 * LAYERS * LINEAR


def test_narrow_weights_save_time_and_memory_with_zero_3():
    """torchao casts the shards before they are gathered, and the gathered layers lie there in one byte."""
    deep = {**SHAPE, "vocab_size": 1024}  # else the output layer, which stays wide, is the largest unit
    sharded = {"framework": "torchtitan", "gpus": 16, "dp_shard": 16, "zero": 3, "global_batch_size": 16}
    off, on = (memory(deep, **sharded, fp8_param_gather=g) for g in (False, True))
    assert one(off["gather buffers"].value) - one(on["gather buffers"].value) == 2 * LINEAR
    slow, fast = (tree(deep, **sharded, fp8_param_gather=g, nic_bandwidth="5GB/s") for g in (False, True))
    gathers = [one(t["exposed gather, forward"].inputs["communication"]) for t in (fast, slow)]
    assert 0.5 < gathers[0] / gathers[1] < 0.6  # norms, latency and what small messages lose do not shrink
    assert moved(fast["forward/weight casts"]) == pytest.approx((4 + 1) * LINEAR / 16, rel=1e-12)  # fp32 shards, scales found before


def test_sequence_parallelism_gathers_cast_tensors():
    def bytes_of(node) -> float:
        leaf = next(t for t in node.walk() if "size" in t.inputs and one(plain(t.inputs["size"])) > 0)
        return one(plain(leaf.inputs["size"]))

    tp = {"gpus": 2, "tp": 2, "overlap": "none"}
    wide = bytes_of(tree(precision="bf16", **tp)["tensor parallel/all-gathers"])
    assert wide == 2 * T * H
    assert bytes_of(tree(**tp)["tensor parallel/all-gathers"]) == T * H
    assert bytes_of(tree(**tp)["tensor parallel/reduce-scatters"]) == wide
    assert bytes_of(tree(framework="torchtitan", **tp)["tensor parallel/all-gathers"]) == T * H  # the default of Float8Linear
    assert bytes_of(tree(framework="torchtitan", precision="fp8-row", **tp)["tensor parallel/all-gathers"]) == wide
    # by block a gradient is needed in two casts that differ, which is no less than it is wide
    block = tree(precision="fp8-block", **tp)["tensor parallel"]
    assert bytes_of(block["all-gathers"]) == pytest.approx(1.03125 * T * H)
    assert bytes_of(block["all-gathers of gradients"]) == wide


# what stays wide


def test_layers_in_bf16_are_on_the_first_and_last_stage():
    staged = {"gpus": 4, "pp": 4, "global_batch_size": 8, "bf16_layers_at_start": 1, "bf16_layers_at_end": 2}
    copies = one(memory(**staged)["low-precision copies of weights"].value)
    assert copies == 2 * 1 * LINEAR  # the first stage is the fullest: one of its two layers is narrow
    parts = {t.name: one(t.times) for t in tree(**staged)["micro-batches"].parts}
    assert parts["wide layers"] + parts["layers"] == 2.0


def test_all_layers_in_bf16_are_bf16():
    """But for two launches that cast nothing."""
    everything, bf16 = {"bf16_layers_at_start": LAYERS}, {"precision": "bf16"}
    assert one(memory(**everything).value) == one(memory(**bf16).value)
    assert one(tree(**everything).value) == pytest.approx(one(tree(**bf16).value), rel=1e-4)


def test_layers_in_bf16_at_either_end_cost_alike_and_add_up():
    times = [one(tree(bf16_layers_at_start=n, bf16_layers_at_end=m).value) for n, m in ((0, 0), (2, 0), (0, 2), (1, 1), (2, 2))]
    assert times[1] == pytest.approx(times[2], rel=1e-12) and times[1] == pytest.approx(times[3], rel=1e-12)
    assert times[4] - times[1] == pytest.approx(times[1] - times[0], rel=1e-3)
    assert times[0] < times[1] < times[4]


def test_a_mixture_with_dense_layers_keeps_its_counts():
    model = {**MIXTURE, "first_k_dense_replace": 3}
    wide = ask(model, bf16_layers_at_start=2, bf16_layers_at_end=1).groups[0]
    parts = {t.name: one(t.times) for t in wide.step.tree["micro-batches"].parts}
    assert parts["wide dense layers at the front"] == 2.0 and parts["dense layers at the front"] == 1.0
    assert parts["wide routed layers"] == 1.0 and parts["routed layers"] == LAYERS - 4.0
    plain_run = ask(model).groups[0]
    assert one(wide.memory.tree["gradients"].value) == one(plain_run.memory.tree["gradients"].value)


# fp16 and fp32


def test_fp16_divides_gradients_by_the_loss_scale():
    found = tree(precision="fp16", gpus=4, dp_shard=4)
    parameters = LAYERS * (LINEAR + 2 * H) + 2 * 32000 * H + H
    assert moved(found["loss scale taken out"]) == pytest.approx(2 * 4 * parameters / 4, rel=1e-12)  # fp32, read and written in place
    assert all(t.name != "loss scale taken out" for t in tree(precision="bf16").walk())


def test_fp32_gradients_are_reduced_in_fp32():
    """NeMo's recipes reduce those of bf16 in two bytes; parameters of four bytes have gradients of four."""
    nemo = {"framework": "nemo", "gpus": 4, "dp_shard": 4}
    assert one(ask(precision="fp32", **nemo).groups[0].job.framework.gradient_reduce_bytes.value) == 4.0
    assert one(ask(precision="bf16", **nemo).groups[0].job.framework.gradient_reduce_bytes.value) == 2.0
    held = [one(memory(precision="fp32", gradient_dtype=d, **nemo)["gradients"].value) for d in ("fp32", "bf16")]
    assert held[0] == 2 * held[1]


# as a user sees it


def test_scaling_and_gather_of_fp8_are_listed_as_assumptions():
    told = {a["name"]: a for a in ask(fp8_scaling=None).row()["assumptions"]}
    assert (told["fp8_scaling"]["value"], told["fp8_scaling"]["origin"]) == ("delayed", "default")
    assert told["fp8_param_gather"]["value"] == "off" and told["layers in bf16"]["value"] == "0"
    assert "loss scaling" in {a["name"] for a in ask(precision="fp16").row()["assumptions"]}
    told = {a["name"] for a in ask(precision="bf16").row()["assumptions"]}
    assert not told & {"fp8_scaling", "fp8_param_gather", "layers in bf16", "loss scaling"}


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"precision": "bf16", "fp8_param_gather": True}, QuestionError, ["fp8_param_gather on", "bf16"]),
        ({"framework": "torchtitan", "precision": "fp8-row", "fp8_param_gather": True}, UnsupportedError, ["torchtitan", "fp8-row", "fp8"]),
        ({"fp8_scaling": "late"}, UnknownNameError, ["late", "current", "delayed"]),
        ({"precision": "bf16", "bf16_layers_at_end": 1}, QuestionError, ["narrow", "bf16"]),
        ({"bf16_layers_at_start": 6, "bf16_layers_at_end": 3}, ValueRangeError, ["6", "3", "8"]),
        ({"bf16_layers_at_start": 1, "frozen_layers": 2}, UnsupportedError, ["frozen_layers"]),
    ],
)
def test_impossible_precisions_are_refused(changes, error, words):
    with pytest.raises(error) as caught:
        ask(**changes)
    assert all(word in str(caught.value) for word in words) and "\n" not in str(caught.value)


def test_scaling_of_a_format_with_scales_for_parts_is_refused():
    with pytest.raises(QuestionError, match=r"needs precision fp8, .*fp8-block has many"):
        ironlaw.estimate(SHAPE, **{**ASK, "precision": "fp8-block"})


def test_megatron_arguments_of_narrow_formats_are_read():
    common = {
        "num_layers": 8, "hidden_size": 2048, "num_attention_heads": 16, "seq_length": 4096, "max_position_embeddings": 4096,
        "micro_batch_size": 1, "vocab_size": 32000, "bf16": True, "use_distributed_optimizer": True, "fp8_format": "hybrid",
    }  # fmt: skip
    options, _ = options_from_arguments({**common, "fp8_recipe": "tensorwise", "fp8_param_gather": True}, gpus=8, on="h100-sxm")
    assert (options["precision"], options["fp8_scaling"], options["fp8_param_gather"]) == ("fp8", "current", True)
    assert options_from_arguments(common, gpus=8, on="h100-sxm")[0]["fp8_scaling"] == "delayed"
    ends = {**common, "fp8_recipe": "tensorwise", "first_last_layers_bf16": True, "num_layers_at_end_in_bf16": 3}
    options, _ = options_from_arguments(ends, gpus=8, on="h100-sxm")
    assert (options["bf16_layers_at_start"], options["bf16_layers_at_end"]) == (1, 3)  # one is Megatron's default
    assert one(ironlaw.estimate(**options).step_seconds) > 0


def test_the_page_names_the_casts(capsys):
    asked = "estimate llama-3-8b --on h100-sxm --gpus 8 --tp 2 --framework megatron --precision fp8"
    status = main([*asked.split(), "--fp8-param-gather", "on", "--bf16-layers-at-start", "1", "--bf16-layers-at-end", "1", "--explain"])
    page = capsys.readouterr().out
    assert status == 0 and "wide layers" in page and "weight casts" in page and "casts" in page
