"""The fullest moment of a step: relations, and worked numbers of published runs."""

from __future__ import annotations

import numpy as np
import pytest

from ironlaw.estimate.answer.estimate import answer
from ironlaw.question.read import read_options
from made_stacks import without_limits

GIB = 2.0**30
LLAMA_3B = (
    "hidden_size=3072,num_hidden_layers=28,num_attention_heads=24,num_key_value_heads=8,head_dim=128,intermediate_size=8192,"
    "vocab_size=128256,tie_word_embeddings=on,gated_mlp=on"
)
ONE = {"on": "h100-sxm", "gpus": 1, "tp": 1, "pp": 1, "micro_batch_size": 1}
TUNE = {
    **ONE, "on": "a100-sxm-80gb", "model": LLAMA_3B, "seq_len": 4096, "micro_batch_size": 2, "global_batch_size": 2, "zero": 0,
    "framework": "torchtune-compile", "optimizer": "adamw-bf16", "gradient_dtype": "bf16",
}  # fmt: skip


def asked(**options):
    return answer(read_options(options)).groups[0].memory


def allocated(**options):
    return float(np.ravel(asked(**options).allocated)[0]) / GIB


FULL, CHUNKS = {**TUNE, "recompute": "full"}, {**TUNE, "recompute": "none"}
FUSED = {**FULL, "optimizer_in_backward": True}
# torchtune's README, memory of Llama-3.2-3B on one A100 with each optimisation in turn (https://github.com/pytorch/torchtune)
LADDER = {
    "packed": (60.0, {**CHUNKS, "framework": "torchtune", "logits": "whole"}),
    "compiled": (51.0, {**CHUNKS, "logits": "whole"}),
    "chunked cross entropy": (42.9, CHUNKS),
    "activation checkpointing": (24.9, FULL),
    "optimizer in backward": (23.1, FUSED),
    "activation offloading": (21.8, {**FUSED, "offload": "activations"}),
    "8-bit AdamW": (17.6, {**FUSED, "offload": "activations", "optimizer": "adam8bit"}),
    "LoRA": (8.5, {**FULL, "offload": "activations", "lora_rank": 8}),
    "QLoRA": (4.6, {**FULL, "offload": "activations", "lora_rank": 8, "frozen_weights": "nf4"}),
}


def test_a_ladder_of_optimisations_is_met_step_by_step():
    errors = [abs(allocated(**options) / measured - 1.0) for measured, options in LADDER.values()]
    assert np.median(errors) <= 0.05 and max(errors) <= 0.15
    steps = [allocated(**options) for _, options in LADDER.values()]
    assert steps == sorted(steps, reverse=True)


@pytest.mark.parametrize("framework", ["prime-rl", "prime-rl-sft", "torchtune", "torchtune-compile", "huggingface-liger"])
@pytest.mark.parametrize("seq_len", [2048, 65536])
def test_a_chunked_loss_never_needs_more(framework, seq_len):
    given = {**ONE, "model": "qwen-3-0.6b", "framework": framework, "seq_len": seq_len, "global_batch_size": 2, "recompute": "full"}
    chunked, whole = (allocated(**given, logits=how) for how in ("chunked", "whole"))
    assert chunked <= whole
    assert (whole - chunked > 30.0) == (seq_len > 2048)  # tens of GiB of logits, where they are the peak


def test_only_a_framework_with_a_chunked_loss_can_be_asked_for_it():
    from ironlaw.errors import UnsupportedError

    with pytest.raises(UnsupportedError, match="--logits chunked: megatron has no chunked loss"):
        asked(**ONE, model="qwen-3-0.6b", framework="megatron", global_batch_size=2, logits="chunked")


def test_the_trainer_s_mode_decides_whether_logits_are_chunked():
    given = {**ONE, "model": "qwen-3-0.6b", "seq_len": 65536, "global_batch_size": 2, "recompute": "full"}
    rl, sft = (asked(**given, framework=name).tree for name in ("prime-rl", "prime-rl-sft"))
    assert [part.name for part in sft["logits and loss"].parts] == ["inputs of norm and projection", "logits"]
    assert any(part.name == "logits of a chunk" for part in rl["logits and loss"].parts)
    assert sft["logits and loss/logits"].value[0] == 65536 * 151936 * 16.0


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_memory_is_that_of_the_fullest_moment(recompute):
    """Logits and a layer that runs backward are never counted together, nor logits and gradients that come and go."""
    tree = asked(**{**TUNE, "recompute": recompute}).tree
    loss, layer = tree["logits and loss"].value, tree["gradients of a layer's tensors"].value
    assert np.all((loss == 0) | (layer == 0))
    assert np.all((tree["gradients"].value == 0) | (loss == 0))


def test_gradients_of_several_micro_batches_stay():
    one, two = (asked(**{**CHUNKS, "global_batch_size": batch}).tree for batch in (2, 4))
    assert one["gradients"].value[0] == 0 < two["gradients"].value[0]
    assert two["allocated"].value[0] - one["allocated"].value[0] == pytest.approx(two["gradients"].value[0])


def test_sets_of_adapters_have_weights_and_gradients_and_one_has_moments():
    given = {
        **ONE,
        "model": "qwen-3-4b",
        "framework": "prime-rl",
        "seq_len": 4096,
        "global_batch_size": 2,
        "recompute": "full",
        "lora_rank": 16,
    }
    one, four = (asked(**given, lora_sets=sets).tree for sets in (1, 4))
    for part, times in (("weights of adapters", 4), ("gradients", 4), ("optimizer states", 1), ("weights", 1)):
        assert four[part].value[0] == times * one[part].value[0], part


def test_weights_in_four_bits_have_the_bytes_of_their_format():
    given = {**ONE, "model": "mistral-7b", "framework": "huggingface", "seq_len": 4096, "global_batch_size": 4, "lora_rank": 16}
    nf4, gptq = (asked(**given, frozen_weights=how).tree["weights of layers"].value[0] for how in ("nf4", "gptq"))
    assert gptq / nf4 == pytest.approx((0.5 + 2.5 / 128) / 0.51587, rel=1e-3)


def test_offloading_and_resharding_never_need_more(tmp_path):
    given = {"model": "qwen-3-4b", "on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "micro_batch_size": 1, "global_batch_size": 16,
             "seq_len": 16384, "recompute": "full"}  # fmt: skip
    stack = without_limits(tmp_path, "prime-rl")

    def held(**plan):
        found = answer(read_options({**given, "framework": stack["framework"], **plan}), (stack["catalog"],))
        return float(np.ravel(found.groups[0].memory.allocated)[0])

    kept, moved = held(zero=3), held(zero=3, offload="activations")
    assert moved < kept < held(zero=2) < held(zero=0)
