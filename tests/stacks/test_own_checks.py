"""Launch flags through the frameworks' own checks, where a framework is installed (``make test-stacks``): the classes of Megatron-Core
that its arguments become, and torchtitan's. Nothing of a framework runs; they only say which configurations they refuse."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

import pytest

import ironlaw
from ironlaw.estimate.answer.as_data import layers_by_stage, plan_data
from ironlaw.estimate.answer.reproduce import asked_data
from ironlaw.estimate.layer.kinds import values_of
from ironlaw.launch.flags import flags_of

PLANS: list[tuple[str, dict[str, Any]]] = [
    ("llama-3-8b", {"gpus": 64}),
    ("llama-3-8b", {"gpus": 128, "global_batch_size": 512}),
    ("llama-3-8b", {"gpus": 16, "precision": "fp8", "tp": 2, "pp": 2, "vpp": 4}),
    ("llama-3-8b", {"gpus": 16, "tp": 4, "sp": False, "overlap": "tp"}),
    ("llama-3-8b", {"gpus": 16, "recompute": "selective", "micro_batch_size": 2, "tp": 4}),
    ("llama-3-8b", {"gpus": 16, "recompute": "selective:attention,elementwise", "tp": 2}),
    ("llama-3-8b", {"gpus": 16, "recompute": "selective:linear", "tp": 2}),
    ("llama-3-8b", {"gpus": 16, "recompute": "every:4", "tp": 2, "pp": 4}),
    ("llama-3-8b", {"gpus": 16, "recompute": "share:0.75", "tp": 2, "pp": 2}),
    ("llama-3-8b", {"gpus": 8, "precision": "fp8-block", "recompute": "full"}),
    ("llama-3-8b", {"gpus": 16, "cp": 2, "cp_method": "all-gather", "tp": 2}),
    ("llama-3-8b", {"gpus": 16, "cp": 2, "cp_method": "all-to-all", "tp": 2, "seq_len": 32768}),
    ("llama-3-8b", {"gpus": 8, "tp": 1, "pp": 1, "zero": 0}),
    ("llama-3-8b", {"gpus": 16, "zero": 3, "tp": 1, "pp": 1}),
    ("llama-3-8b", {"gpus": 8, "optimizer": "momentum", "offload": "optimizer"}),
    ("llama-3-8b", {"gpus": 8, "tp": 2, "offload": "activations"}),
    ("llama-3-70b", {"gpus": 64}),
    ("llama-3-70b", {"gpus": 64, "pp": 4, "vpp": 12, "tp": 4, "cp": 2}),
    ("llama-3-70b", {"gpus": 512, "last_stage_layers": 17, "pp": 4, "vpp": 1}),
    ("llama-3-70b", {"gpus": 512, "global_batch_size": 512, "seq_len": 8192}),
    ("llama-3.1-405b", {"gpus": 1024, "global_batch_size": 512, "seq_len": 8192}),
    ("llama-3.1-405b", {"gpus": 1024, "pp": 16, "vpp": 8, "tp": 8, "cp": 2, "count_embedding": True, "micro_batch_size": 1}),
    ("llama-3.1-405b", {"gpus": 512, "pp": 16, "vpp": 1, "tp": 8, "zero": 1, "micro_batch_size": 1, "recompute": "full"}),
    ("gpt-3-175b", {"gpus": 1024, "global_batch_size": 1536}),
    ("gpt-3-175b", {"gpus": 1024, "global_batch_size": 1536, "precision": "fp8-delayed"}),
    ("mixtral-8x7b", {"gpus": 64}),
    ("mixtral-8x7b", {"gpus": 64, "ep": 8, "tp": 2, "etp": 1, "moe_dispatcher": "alltoall", "overlap": "all"}),
    ("mixtral-8x7b", {"gpus": 64, "ep": 8, "tp": 1, "moe_dispatcher": "deepep", "recompute": "selective:elementwise"}),
    ("mixtral-8x7b", {"gpus": 64, "ep": 4, "tp": 1, "pp": 2, "moe_dispatcher": "hybridep"}),
    ("qwen-3-30b-a3b", {"gpus": 64}),
    ("qwen-3-235b-a22b", {"gpus": 256, "global_batch_size": 2048, "seq_len": 4096}),
    ("deepseek-v3", {"gpus": 1024}),
]
TITAN: list[tuple[str, str, dict[str, Any]]] = [
    ("torchtitan", "llama-3-8b", {"gpus": 64}),
    ("torchtitan", "llama-3-8b", {"gpus": 16, "precision": "fp8"}),
    ("torchtitan-compile", "llama-3-8b", {"gpus": 16, "precision": "fp8-row", "tp": 2}),
    ("torchtitan-compile", "llama-3-8b", {"gpus": 16, "recompute": "every:2"}),
    ("torchtitan", "llama-3-8b", {"gpus": 16, "recompute": "selective", "cp": 2}),
    ("torchtitan", "llama-3-8b", {"gpus": 16, "cp": 2, "cp_method": "all-gather"}),
    ("torchtitan", "llama-3-8b", {"gpus": 16, "dp_replicate": 2, "dp_shard": 8}),
    ("torchtitan", "llama-3-8b", {"gpus": 16, "tp": 4, "zero": 2}),
    ("torchtitan", "llama-3-70b", {"gpus": 64, "pp": 4, "vpp": 2, "zero": 2}),
    ("torchtitan", "llama-3-70b", {"gpus": 64, "pp": 4, "schedule": "zero-bubble"}),
    ("torchtitan", "mixtral-8x7b", {"gpus": 64}),
]
# arguments of Megatron-LM's training script that become a field of another name
RENAMED = {
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size", "fp8_format": "fp8", "fp4_format": "fp4",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
}  # fmt: skip


def written(model: str, options: dict[str, Any], framework: str) -> tuple[Any, list[str]]:
    """The job of a plan, and the words of its launch flags."""
    group = ironlaw.estimate(model, on="h100-sxm", framework=framework, **options).groups[0]
    of = group.job.model
    plan = {**asked_data(group, 0)["given"], "fp8_scaling": group.job.fp8_scaling, **plan_data(group, 0)}
    rows = flags_of({**plan, "stages": layers_by_stage(group.job, group.plan, 0)}, of.num_hidden_layers, of.num_nextn_predict_layers)
    return group.job, shlex.split(rows[0]["flags"])


def as_arguments(words: list[str]) -> dict[str, Any]:
    """Flags as a parser has them, by the names of fields: with the value, all values of a list, or True."""
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            found[name] = values = []
        else:
            values.append(word)
    return {RENAMED.get(name, name): _value(name, values) for name, values in found.items()}


def _value(name: str, values: list[str]) -> Any:
    """The words of one flag as its field has them."""
    if name.endswith("_modules"):
        return values
    return True if not values else int(values[0]) if values[0].isdigit() else values[0]


@pytest.mark.parametrize(("model", "options"), PLANS, ids=str)
def test_megatron_core_takes_the_flags(model: str, options: dict[str, Any]) -> None:
    """The fields of its TransformerConfig that the flags set, checked by the class itself."""
    torch = pytest.importorskip("torch")
    config = pytest.importorskip("megatron.core.transformer.transformer_config")
    job, words = written(model, options, "megatron")
    of, arguments = job.model, as_arguments(words)
    made_of = config.MLATransformerConfig if of.kv_lora_rank else config.TransformerConfig
    known = {field.name for field in fields(made_of)}
    shape = {
        "num_layers": of.num_hidden_layers, "hidden_size": of.hidden_size, "add_bias_linear": False, "pipeline_dtype": torch.bfloat16,
        "num_attention_heads": max(values_of(of, "num_attention_heads")), "mtp_num_layers": of.num_nextn_predict_layers or None,
    }  # fmt: skip
    if of.num_experts:
        shape |= {
            "num_moe_experts": of.num_experts, "moe_ffn_hidden_size": of.moe_intermediate_size, "moe_router_topk": of.num_experts_per_tok,
        }  # fmt: skip
    made = made_of(**shape, **{name: value for name, value in arguments.items() if name in known})
    assert made.pipeline_model_parallel_size == arguments.get("pipeline_model_parallel_size", 1)


def test_what_the_notes_say_is_refused_is_refused() -> None:
    options = {"gpus": 8, "precision": "fp8-delayed", "recompute": "selective:elementwise", "tp": 1}
    with pytest.raises(ValueError, match="Delayed scaling does not support"):
        test_megatron_core_takes_the_flags("llama-3-8b", options)


@pytest.mark.parametrize(("framework", "model", "options"), TITAN, ids=str)
def test_torchtitan_takes_the_flags(framework: str, model: str, options: dict[str, Any]) -> None:
    """Its JobConfig (0.2) has every flag, and torch has the schedule."""
    tyro = pytest.importorskip("tyro")
    config = pytest.importorskip("torchtitan.config.job_config", exc_type=ImportError)
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    _, words = written(model, options, framework)
    made = tyro.cli(config.JobConfig, args=words)
    schedules.get_schedule_class(made.parallelism.pipeline_parallel_schedule)
    assert made.parallelism.pipeline_parallel_degree == options.get("pp", 1)
