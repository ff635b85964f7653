"""A plan written as a launch script of Megatron-LM is read back as the same plan of the same model."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings

import ironlaw
from ironlaw.errors import IronlawError, UnsupportedError
from ironlaw.estimate.answer.as_data import layers_by_stage, plan_data
from ironlaw.launch.megatron.options import options_from_script
from ironlaw.launch.write.emit import emit
from ironlaw.question.read import read_options

COMPARED = (
    "tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "sp", "zero", "micro_batch_size", "global_batch_size", "seq_len",
    "precision", "optimizer", "offload", "overlap", "num_microbatches", "cp_method", "flash_attention",
)  # fmt: skip
SIZES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "num_experts", "kv_lora_rank", "gated_mlp",
    "tie_word_embeddings", "query_key_value_bias", "qk_norm", "sliding_window", "first_k_dense_replace",
)  # fmt: skip
MODELS = (
    "llama-3-8b",
    "llama-3-70b",
    "mixtral-8x7b",
    "gpt-3-175b",
    "qwen-2.5-7b",
    "qwen-3-30b-a3b",
    "deepseek-v3",
    "gpt-2-xl",
    "mistral-7b-v0.1",
)


def script_of(options, launcher="torchrun"):
    written = emit(read_options(options), "megatron", launcher=launcher)
    (text,) = written.files.values()
    return written.estimate.groups[0], text


def read_back(text, gpus):
    options, _ = options_from_script(text, gpus, "h100-sxm")
    return ironlaw.estimate(**options).groups[0]


def plan(group):
    data = plan_data(group, 0)
    data["recompute"] = {"selective": "selective:attention"}.get(data["recompute"], data["recompute"])
    used = {
        "pp": data["vpp"] > 1,
        "param-gather": data["zero"] > 0,
        "tp": data["sp"],
        "ep": data["ep"] > 1,
    }  # else there is nothing to overlap
    data["overlap"] = [name for name in data["overlap"] if used.get(name, True)]
    data["precision"] = {"fp8-delayed": "fp8"}.get(data["precision"], data["precision"])  # fp8, with the scaling beside it
    scaling = group.job.fp8_scaling if data["precision"] == "fp8" else None
    stages = layers_by_stage(group.job, group.plan, 0)
    return {**{name: data.get(name) for name in (*COMPARED, "recompute")}, "stages": stages, "scaling": scaling}


def assert_same(options, launcher="torchrun"):
    group, text = script_of(options, launcher)
    again = read_back(text, options["gpus"])
    ours, theirs = plan(group), plan(again)
    assert ours == theirs
    if ours["precision"] == "bf16":
        assert float(again.step.tree.value[0]) == pytest.approx(float(group.step.tree.value[0]), rel=1e-4)  # Megatron pads the vocabulary
    one, other = group.job.model, again.job.model
    different = {name: (getattr(one, name), getattr(other, name)) for name in SIZES if getattr(one, name) != getattr(other, name)}
    assert different == {}


RANKS = st.sampled_from([1, 2, 4, 8])
PLANS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS[:3]),
        "gpus": st.sampled_from([8, 16, 64]),
        "tp": RANKS,
        "pp": RANKS,
        "cp": st.sampled_from([1, 2]),
        "micro_batch_size": st.sampled_from([1, 2]),
        "global_batch_size": st.sampled_from([128, 256]),
        "zero": st.sampled_from([0, 1]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "precision": st.sampled_from(["bf16", "fp8-block", "fp8-delayed", "mxfp8"]),
    },
    optional={
        "vpp": st.sampled_from([2, 4]),
        "overlap": st.sampled_from(["none", "grad-reduce", "grad-reduce,param-gather", "all"]),
        "ep": st.sampled_from([2, 8]),
        "cp_method": st.sampled_from(["ring", "all-to-all"]),
        "seq_len": st.sampled_from([4096, 8192]),
        "gradient_dtype": st.just("bf16"),
    },
)


@given(PLANS)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_a_random_legal_plan_comes_back(options):
    options = {**options, "on": "h100-sxm", "framework": "megatron"}
    if options["model"] != "mixtral-8x7b":
        options.pop("ep", None)
    if options["cp"] == 1:
        options.pop("cp_method", None)
    try:
        legal = ironlaw.estimate(**options).legal[0]
    except IronlawError:
        legal = False
    assume(legal)
    assert_same(options)


@pytest.mark.parametrize("model", MODELS)
def test_the_sizes_of_a_model_come_back(model):
    assert_same({"model": model, "on": "h100-sxm", "gpus": 512, "framework": "megatron"})


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_the_script_is_read_with_every_launcher_of_a_shell(launcher):
    assert_same({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, "framework": "megatron", "tp": 2, "pp": 2}, launcher)


def test_what_megatron_cannot_say_is_named():
    with pytest.raises(UnsupportedError, match="attention_chunk_size"):
        script_of({"model": "llama-4-scout", "on": "h100-sxm", "gpus": 64, "framework": "megatron"})
