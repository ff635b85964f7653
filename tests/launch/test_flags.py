"""Launch flags of a plan, and Megatron-LM's read back into the plan that they were written from."""

from __future__ import annotations

import shlex
from itertools import pairwise

import pytest

import ironlaw
from ironlaw.estimate.answer.as_data import layers_by_stage as stages_of
from ironlaw.estimate.answer.as_data import plan_data
from ironlaw.estimate.answer.reproduce import asked_data
from ironlaw.launch.flags import MEGATRON, MEGATRON_OVERLAPS, flags_of
from ironlaw.launch.megatron.options import options_from_arguments
from ironlaw.launch.megatron.patterns import layers_by_stage, stage_flags
from ironlaw.launch.megatron.tables import MAPPED
from ironlaw.launch.shell import read_command

# the models by hand, from their config.json
LLAMA = {
    "llama-3-8b": "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention"
    " --num-query-groups 8",
    "llama-3-70b": "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention"
    " --num-query-groups 8",
}
COMMON = (
    "--swiglu --untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm --position-embedding-type rope"
    " --attention-dropout 0 --hidden-dropout 0 --vocab-size 128256 --make-vocab-size-divisible-by 1 --max-position-embeddings 8192"
)
MIXTRAL = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8"
    " --num-experts 8 --moe-router-topk 2 --vocab-size 32000 --make-vocab-size-divisible-by 1 --max-position-embeddings 32768"
    " --swiglu --untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm --position-embedding-type rope"
    " --attention-dropout 0 --hidden-dropout 0"
)
MODELS = {**{name: f"{words} {COMMON}" for name, words in LLAMA.items()}, "mixtral-8x7b": MIXTRAL}
QUESTIONS = (
    ("llama-3-8b", {"gpus": 64}),
    ("llama-3-8b", {"gpus": 16, "precision": "fp8", "tp": 2, "pp": 2, "vpp": 4}),
    ("llama-3-8b", {"gpus": 8, "precision": "fp8-block", "recompute": "full"}),
    ("llama-3-8b", {"gpus": 16, "recompute": "selective", "micro_batch_size": 2, "tp": 4}),
    ("llama-3-8b", {"gpus": 16, "cp": 2, "cp_method": "all-gather", "tp": 2}),
    ("llama-3-8b", {"gpus": 16, "zero": 1, "dp_replicate": 2, "dp_shard": 8, "gradient_dtype": "bf16"}),
    ("llama-3-8b", {"gpus": 16, "zero": 3, "tp": 1, "pp": 1}),
    ("llama-3-8b", {"gpus": 16, "overlap": "none", "tp": 2, "pp": 4, "vpp": 2}),
    ("llama-3-8b", {"gpus": 8, "optimizer": "momentum", "offload": "optimizer"}),
    ("llama-3-70b", {"gpus": 64}),
    ("llama-3-70b", {"gpus": 64, "pp": 4, "vpp": 12, "tp": 4, "cp": 2}),  # chunks of one and two layers
    ("llama-3-70b", {"gpus": 512, "last_stage_layers": 17, "pp": 4, "vpp": 1}),
    ("mixtral-8x7b", {"gpus": 64}),
    ("mixtral-8x7b", {"gpus": 64, "ep": 8, "tp": 2, "etp": 1, "moe_dispatcher": "alltoall", "overlap": "all"}),
)
COMPARED = (
    "tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "sp", "zero", "micro_batch_size", "global_batch_size", "seq_len",
    "recompute", "precision", "optimizer", "offload", "num_microbatches", "cp_method",
)  # fmt: skip


def options_of(group):
    plan = {**asked_data(group, 0)["given"], "fp8_scaling": group.job.fp8_scaling, **plan_data(group, 0)}
    return {**plan, "stages": stages_of(group.job, group.plan, 0)}


def written(group):
    model = group.job.model
    return flags_of(options_of(group), model.num_hidden_layers, model.num_nextn_predict_layers)


@pytest.mark.parametrize(("model", "options"), QUESTIONS, ids=str)
def test_megatrons_flags_are_read_back_into_the_same_plan(model, options):
    estimate = ironlaw.estimate(model, on="h100-sxm", framework="megatron", **options)
    group = estimate.groups[0]
    rows = written(group)
    assert [row["file"] for row in rows] == ["pretrain_gpt.py"]
    given, _ = options_from_arguments(read_command(f"{MODELS[model]} {rows[0]['flags']}"), gpus=options["gpus"], on="h100-sxm")
    again = ironlaw.estimate(**given)
    ours, theirs = plan_data(group, 0), plan_data(again.groups[0], 0)
    ours["recompute"] = "selective:attention" if ours["recompute"] == "selective" else ours["recompute"]  # Megatron-LM's default
    assert {name: ours.get(name) for name in COMPARED} == {name: theirs.get(name) for name in COMPARED}
    useful = {"grad-reduce", "param-gather", "tp", "ep"} | ({"pp"} if ours["vpp"] > 1 else set())
    assert useful & set(ours["overlap"]) == useful & set(theirs["overlap"])
    if ours["vpp"] > 1 or ours["pp"] == 1:  # without chunks Megatron-LM hides no transfer between stages
        assert again.step_seconds[0] == pytest.approx(estimate.step_seconds[0], rel=1e-12)
        assert again.device_bytes[0] == pytest.approx(estimate.device_bytes[0], rel=1e-12)


def test_every_flag_of_megatron_is_one_that_its_reader_maps():
    spelled = [flag.spelling for flag in MEGATRON] + list(MEGATRON_OVERLAPS.values())
    assert set(spelled) <= set(MAPPED)


def test_a_layout_repeats_equal_chunks_and_reads_back():
    """20 layers a rank in 12 chunks: eight of two layers and four of one, in the order of chunks."""
    flag, layout = stage_flags([20, 20, 20, 20], 12)
    assert flag == "--pipeline-model-parallel-layout"
    assert layout == "Ett|(tt|)*31(t|)*15tL"
    assert layers_by_stage(layout, 4, 80) == ([20, 20, 20, 20], 12, None)
    assert stage_flags([20, 20, 20, 20], 10) == []


def test_torchtitan_takes_the_whole_share_of_a_rank_where_it_has_a_pipeline():
    plan = {
        "framework": "torchtitan-compile", "tp": 2, "pp": 2, "vpp": 2, "cp": 1, "dp": 4, "dp_shard": 4, "dp_replicate": 1, "zero": 3,
        "micro_batch_size": 1, "global_batch_size": 64, "seq_len": 8192, "recompute": "full", "precision": "bf16", "optimizer": "adamw",
        "schedule": "interleaved", "overlap": ["tp"],
    }  # fmt: skip
    rows = flags_of(plan, 32)
    words = shlex.split(rows[0]["flags"])
    said = dict(pairwise(words))
    assert len(rows) == 1
    assert said["--training.local_batch_size"] == "16"  # 64 sequences over 4 ranks of data parallelism
    assert said["--parallelism.pipeline_parallel_layers_per_stage"] == "8"  # 32 layers over 2 ranks of 2 chunks
    assert said["--parallelism.pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert said["--parallelism.fsdp_reshard_after_forward"] == "always"
    assert {"--compile.enable", "--parallelism.enable_async_tensor_parallel"} <= set(words)


def test_what_a_framework_cannot_say_is_said():
    plan = {
        "framework": "torchtitan", "pp": 4, "vpp": 3, "dp": 1, "dp_shard": 2, "zero": 1, "micro_batch_size": 1, "global_batch_size": 8,
        "seq_len": 8192, "recompute": "none", "precision": "fp8-block", "optimizer": "muon", "schedule": "dualpipe", "overlap": [],
    }  # fmt: skip
    note = flags_of(plan, 32)[1]["flags"]
    assert all(word in note for word in ("has no ZeRO 1", "3 chunks", "dualpipe", "fp8-block", "muon"))
    assert "are not known here" in flags_of({**plan, "framework": "deepspeed"}, 32)[0]["flags"]


def assertions_of_megatron(flags: str, layers: int, routed: bool) -> None:
    """What validate_args asserts of these flags: https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py."""
    words = shlex.split(flags)
    value = {a: b for a, b in pairwise(words) if a.startswith("--")}
    pp, tp = int(value.get("--pipeline-model-parallel-size", 1)), int(value.get("--tensor-model-parallel-size", 1))
    chunks, layout = "--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout"
    if "--overlap-param-gather" in words:
        assert "--use-distributed-optimizer" in words and "--overlap-grad-reduce" in words
    if "--tp-comm-overlap" in words:
        assert "--sequence-parallel" in words
    if "--fp8-param-gather" in words:
        assert "--use-distributed-optimizer" in words
    if "--optimizer-cpu-offload" in words:
        assert "--use-precision-aware-optimizer" in words
    if "--use-megatron-fsdp" in words:
        assert value["--ckpt-format"] == "fsdp_dtensor"
    if routed and tp > 1:
        assert "--sequence-parallel" in words
    assert not (chunks in words and layout in words)
    if chunks in words:
        assert pp > (2 if "--no-overlap-p2p-communication" in words else 1)
    ends = [
        int(value[f"--decoder-{end}-pipeline-num-layers"]) for end in ("first", "last") if f"--decoder-{end}-pipeline-num-layers" in words
    ]
    slots = layers + sum(f"--account-for-{part}-in-pipeline-split" in words for part in ("embedding", "loss"))
    if layout not in words and pp > len(ends):
        inner = (slots - sum(ends)) / (pp - len(ends))
        assert inner == int(inner) and all(n % int(value.get(chunks, 1)) == 0 for n in (int(inner), *ends))


def test_modules_that_megatron_core_has_are_recomputed_and_offloaded():
    """Its TransformerConfig (0.16.1) takes moe_act with a grouped GEMM alone, asks which modules are offloaded, and refuses norms that
    are recomputed with delayed scaling."""
    dense = {"tp": 2, "recompute": "selective:attention,elementwise", "offload": "activations"}
    flags, note = written(ironlaw.estimate("llama-3-8b", on="h100-sxm", framework="megatron", gpus=16, **dense).groups[0])
    assert "--recompute-modules core_attn layernorm --" in flags["flags"]
    assert "--offload-modules attn_norm qkv_linear core_attn attn_proj mlp_norm" in flags["flags"] and "moe_act" not in flags["flags"]
    assert "not its activation function" in note["flags"]
    routed = {"ep": 8, "tp": 1, "recompute": "selective:elementwise", "offload": "activations"}
    (flags,) = written(ironlaw.estimate("mixtral-8x7b", on="h100-sxm", framework="megatron", gpus=64, **routed).groups[0])
    assert "--recompute-modules layernorm moe_act" in flags["flags"] and "mlp_norm expert_fc1 moe_act" in flags["flags"]
    delayed = {"precision": "fp8-delayed", "recompute": "selective:elementwise", "tp": 1}
    rows = written(ironlaw.estimate("llama-3-8b", on="h100-sxm", framework="megatron", gpus=8, **delayed).groups[0])
    assert "refuses to recompute norms with delayed scaling" in rows[1]["flags"]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        *QUESTIONS,
        ("llama-3-8b", {"gpus": 128, "global_batch_size": 512}),
        ("llama-3-8b", {"gpus": 8, "tp": 1, "pp": 1, "zero": 0}),
        ("llama-3-8b", {"gpus": 16, "tp": 4, "sp": False, "overlap": "tp"}),
        ("llama-3.1-405b", {"gpus": 1024, "pp": 16, "vpp": 7, "tp": 8, "cp": 2, "zero": 1, "micro_batch_size": 1, "recompute": "none"}),
        ("llama-3.1-405b", {"gpus": 512, "pp": 16, "vpp": 1, "tp": 8, "zero": 1, "micro_batch_size": 1, "recompute": "full"}),
        ("qwen-3-30b-a3b", {"gpus": 64}),
    ],
    ids=str,
)
def test_no_flags_are_written_that_megatron_asserts_against(model, options):
    group = ironlaw.estimate(model, on="h100-sxm", framework="megatron", **options).groups[0]
    assertions_of_megatron(written(group)[0]["flags"], group.job.model.num_hidden_layers, bool(group.job.model.num_experts))
