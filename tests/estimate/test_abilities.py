"""What stacks can run: chosen plans against checks written from each stack's documentation, refusals by name, unnamed stacks.

The checks below read no table of ours: each is a few sentences of a stack's documentation or of assertions in its source, with the address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import PlanError, UnsupportedError
from ironlaw.estimate.legality.rules import legality
from ironlaw.plan import Plan

Chosen = dict[str, Any]  # the plan of an answer, with `layers` of the model and `routed`
Stack = Callable[[Chosen], None]


def data_parallel_alone(p: Chosen) -> None:
    assert (p["tp"], p["pp"], p["vpp"], p["cp"], p["ep"], p["etp"]) == (1, 1, 1, 1, 1, 1)


def shards_all_or_gradients(p: Chosen) -> None:
    # FULL_SHARD, SHARD_GRAD_OP, NO_SHARD: https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.ShardingStrategy
    assert p["zero"] in (0, 2, 3) or p["gpus"] == 1


def ranks_of_pytorch_fsdp(p: Chosen) -> None:
    # https://huggingface.co/docs/accelerate/usage_guides/fsdp
    data_parallel_alone(p)
    shards_all_or_gradients(p)


def checkpoints_whole_layers(p: Chosen) -> None:
    # gradient_checkpointing of the Trainer: https://huggingface.co/docs/transformers/perf_train_gpu_one#gradient-checkpointing
    assert p["recompute"] in ("none", "full")


def copies_of_the_model(p: Chosen) -> None:
    # https://unsloth.ai/docs/basics/multi-gpu-training-with-unsloth/ddp
    data_parallel_alone(p)
    assert p["zero"] == 0 and p["dp_shard"] == 1


def torchtune_ranks(p: Chosen) -> None:
    # ParallelDims(dp_replicate, dp_shard, tp): https://github.com/pytorch/torchtune/blob/main/torchtune/training/_distributed.py
    assert p["pp"] == p["vpp"] == p["ep"] == 1
    assert p["gpus"] == 1 or p["zero"] in (2, 3)


def fms_strategies(p: Chosen) -> None:
    # sharding_strategy ddp, fsdp, hsdp: https://github.com/foundation-model-stack/fms-fsdp/blob/main/fms_fsdp/config/training.py
    data_parallel_alone(p)
    assert p["zero"] in (0, 3) or p["gpus"] == 1


def llm_c_stages(p: Chosen) -> None:
    # stages 2 and 3 print "not yet supported" and become 0; -r recomputes the activation and norms:
    # https://github.com/karpathy/llm.c/blob/master/llmc/zero.cuh, https://github.com/karpathy/llm.c/blob/master/train_gpt2.cu
    data_parallel_alone(p)
    assert p["zero"] in (0, 1) and p["dp_replicate"] in (1, p["dp"])
    assert p["recompute"] in ("none", "selective") and p["offload"] == []


def titan_fsdp(p: Chosen) -> None:
    # fully_shard shards gradients and states together; parallel_dims: https://github.com/pytorch/torchtitan/blob/main/docs/fsdp.md
    assert p["zero"] != 1 or p["dp_shard"] * p["cp"] == 1


def pipelining_schedules(p: Chosen) -> None:
    # https://docs.pytorch.org/docs/stable/distributed.pipelining.html: looped schedules need several stages a rank, one-stage schedules one
    assert p["pp"] == 1 or (p["schedule"] == "interleaved") == (p["vpp"] > 1)


def eager_tensor_parallel(p: Chosen) -> None:
    # "currently only effective when compile is enabled": https://github.com/pytorch/torchtitan/blob/main/torchtitan/config/job_config.py
    assert "tp" not in p["overlap"]


def deepspeed_pipelines(p: Chosen) -> None:
    # "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"; one module a stage:
    # https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/pipe/engine.py
    assert p["pp"] == 1 or p["zero"] <= 1
    assert p["vpp"] == 1


def distributed_optimizer(p: Chosen) -> None:
    # https://github.com/NVIDIA/Megatron-LM/blob/main/docs/source/api-guide/dist_optimizer.md: states are sharded, not gradients or weights
    assert p["zero"] <= 1


def megatron_asserts(p: Chosen) -> None:
    # validate_args: https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py
    if "param-gather" in p["overlap"]:
        assert "grad-reduce" in p["overlap"]  # Must use --overlap-param-gather with --overlap-grad-reduce
    if "tp" in p["overlap"]:
        assert p["sp"]  # ... can happen only when sequence parallelism is enabled
        # TELinear turns it off by a buffer not named qkv, proj, fc1 or fc2, such as those of latent attention:
        # https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/extensions/transformer_engine.py
        assert not p["latent"] or p["tp"] == 1
    if p["vpp"] > 1:
        assert p["pp"] > (1 if "pp" in p["overlap"] else 2)
        assert p["num_microbatches"] % p["pp"] == 0
    if p["routed"] and p["tp"] > 1:
        assert p["sp"]  # When using MoE and tensor parallelism, sequence parallelism must be used
    assert p["cp"] == 1 or p["seq_len"] % (2 * p["cp"]) == 0
    assert p["schedule"] in ("1f1b", "interleaved")


def megatron_of_2021(p: Chosen) -> None:
    # https://github.com/NVIDIA/Megatron-LM/blob/v2.5/megatron/arguments.py, megatron/model/transformer.py
    assert p["cp"] == 1 and p["layers"] % (p["pp"] * p["vpp"]) == 0 and not p["uneven"]
    assert p["vpp"] == 1 or p["pp"] > 2  # pipeline-model-parallel size should be greater than 2 with interleaved schedule
    assert p["zero"] <= 1 and p["overlap"] == []
    assert not p["sp"] and p["recompute"] in ("none", "full")  # sequence parallelism and selective recomputation came in 2022


def replicas_alone(p: Chosen) -> None:
    assert p["zero"] == 0  # the distributed optimizer came with v3.0: https://github.com/NVIDIA/Megatron-LM/releases/tag/v3.0


def internevo_checks(p: Chosen) -> None:
    # args_sanity_check: https://github.com/InternLM/InternEvo/blob/develop/internlm/initialize/launch.py
    if p["vpp"] > 1:
        assert "pp" in p["overlap"]  # only support interleaved pipeline scheduler with overlap
    if p["routed"]:
        assert not {"grad-reduce", "param-gather"} <= set(p["overlap"])  # not support overlap and moe at the same time
    assert p["zero"] in (0, 1, 3) and (p["pp"] == 1 or p["zero"] <= 1)


def prime_fsdp(p: Chosen) -> None:
    # https://github.com/PrimeIntellect-ai/prime-rl/blob/main/docs/advanced.md: FSDP2 with expert and context parallelism, torch or deepep
    assert p["tp"] == p["pp"] == p["vpp"] == 1
    assert p["zero"] in (2, 3) or p["dp"] * p["cp"] == 1
    assert p.get("moe_dispatcher", "alltoall") in ("alltoall", "deepep")


def maxtext_pipelines(p: Chosen) -> None:
    # base.yml: layers = stages * layers per stage * repeats; "num_pipeline_microbatches must be a multiple of the number of stages":
    # https://github.com/AI-Hypercomputer/maxtext/blob/main/src/MaxText/configs/base.yml
    assert p["layers"] % (p["pp"] * p["vpp"]) == 0 and p["num_microbatches"] % p["pp"] == 0
    assert p["zero"] in (0, 3) or p["dp"] * p["cp"] == 1  # mesh axes data and fsdp


TRAINER = (ranks_of_pytorch_fsdp, checkpoints_whole_layers)
MEGATRON = (distributed_optimizer, megatron_asserts)
CHECKS: dict[str, tuple[Stack, ...]] = {
    "automodel": (titan_fsdp, pipelining_schedules),
    "axolotl": TRAINER,
    "deepspeed": (deepspeed_pipelines,),
    "fms-acceleration": TRAINER,
    "fms-acceleration-liger": TRAINER,
    "fms-fsdp": (fms_strategies,),
    "fsdp": (ranks_of_pytorch_fsdp,),
    "huggingface": TRAINER,
    "huggingface-liger": TRAINER,
    "internevo": (internevo_checks,),
    "fms-acceleration-peft": TRAINER,
    "litgpt": (ranks_of_pytorch_fsdp,),  # strategy FSDPStrategy: https://github.com/Lightning-AI/litgpt/blob/main/litgpt/finetune/lora.py
    "ms-swift": TRAINER,
    "llm-foundry": (
        ranks_of_pytorch_fsdp,
    ),  # Composer: https://docs.mosaicml.com/projects/composer/en/latest/notes/distributed_training.html
    "llm.c": (llm_c_stages,),
    "maxtext": (maxtext_pipelines,),
    "megatron": MEGATRON,
    "megatron-2021": (megatron_of_2021, replicas_alone),
    "megatron-bridge": MEGATRON,
    "megatron-legacy": (megatron_of_2021,),
    "nemo": MEGATRON,
    "prime-rl": (prime_fsdp,),
    "prime-rl-sft": (prime_fsdp,),
    "torchtitan": (titan_fsdp, pipelining_schedules, eager_tensor_parallel),
    "torchtitan-compile": (titan_fsdp, pipelining_schedules),
    "torchtune": (torchtune_ranks,),
    "torchtune-compile": (torchtune_ranks,),
    "trl": TRAINER,
    "unsloth": (copies_of_the_model, checkpoints_whole_layers),
    "xla-gpu": (maxtext_pipelines,),
}
QUESTIONS = (
    {"model": "llama-3-8b", "gpus": 8},
    {"model": "qwen-3-0.6b", "gpus": 16, "global_batch_size": 96},
    {"model": "llama-3-8b", "gpus": 64, "seq_len": 32768},
    {"model": "llama-3-8b", "gpus": 96, "global_batch_size": 480},
    {"model": "llama-3-70b", "gpus": 64},
    {"model": "llama-3-70b", "gpus": 512},
    {"model": "mixtral-8x7b", "gpus": 64},
    {"model": "mixtral-8x7b", "gpus": 256},
    {"model": "deepseek-v2-lite", "gpus": 32},
    {"model": "qwen-3-30b-a3b", "gpus": 128},
)
DEVICES = {"maxtext": "tpu-v5p"}


def chosen(framework: str, question: dict[str, Any]) -> Chosen:
    """The plan that is chosen for a question of a named framework."""
    answer = ironlaw.estimate(on=DEVICES.get(framework, "h100-sxm"), framework=framework, **question)
    plan: Chosen = answer.row(0)["plan"]
    model = answer.groups[0].job.model
    kinds = {"routed": bool(model.num_experts), "latent": bool(model.kv_lora_rank)}
    return {**plan, **kinds, "layers": model.num_hidden_layers, "uneven": "layers_per_stage" in plan}


def check(framework: str, question: dict[str, Any]) -> None:
    plan = chosen(framework, question)
    for keeps in CHECKS[framework]:
        keeps(plan)


def test_every_stack_has_a_check():
    assert set(CHECKS) == set(load.names("frameworks")) - {"generic"}


@pytest.mark.parametrize("framework", CHECKS)
def test_a_chosen_plan_is_one_that_the_stack_documents(framework):
    check(framework, QUESTIONS[sorted(CHECKS).index(framework) % len(QUESTIONS)])


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: f"{q['model']}-{q['gpus']}")
@pytest.mark.parametrize("framework", CHECKS)
def test_chosen_plans_are_those_that_the_stack_documents(framework, question):
    check(framework, question)


@pytest.mark.parametrize(
    ("given", "lacks", "other"),
    [
        ({"framework": "huggingface", "pp": 4}, "pipeline parallelism", "megatron"),
        ({"framework": "unsloth", "pp": 4}, "pipeline parallelism", "megatron"),
        ({"framework": "torchtune", "tp": 2, "pp": 4}, "pipeline parallelism", "megatron"),
        ({"framework": "llm-foundry", "tp": 2, "pp": 8, "zero": 2}, "pipeline parallelism", "torchtitan-compile"),
        ({"framework": "deepspeed", "pp": 4, "zero": 3}, "ZeRO 3 with a pipeline", "torchtitan-compile"),
        ({"framework": "torchtitan", "zero": 1}, "ZeRO 1", "megatron"),
        ({"framework": "megatron", "pp": 4, "zero": 2}, "ZeRO 2 with a pipeline", "torchtitan-compile"),
        ({"framework": "megatron", "overlap": "param-gather"}, "overlap of param-gather without", "huggingface"),
        ({"framework": "nemo", "model": "deepseek-v2-lite", "tp": 2, "overlap": "tp"}, "overlap of tp with latent", "torchtitan-compile"),
        ({"framework": "llm.c", "cp": 2}, "context parallelism", "megatron"),
        ({"framework": "megatron-legacy", "recompute": "selective"}, "recomputation selective", "megatron"),
        ({"framework": "maxtext"}, "accelerators of Google, not of NVIDIA", "xla-gpu"),
        ({"framework": "megatron", "on": "trainium-2"}, "not of AWS", "generic"),
        ({"framework": "megatron", "optimizer": "adam8bit"}, "optimizer adam8bit", "huggingface"),
        ({"framework": "megatron", "lora_rank": 16}, "adapters of the kind lora", "huggingface"),
        ({"framework": "torchtitan", "precision": "fp16"}, "precision fp16", "megatron"),
        ({"framework": "fsdp", "moe_dispatcher": "hybridep", "model": "mixtral-8x7b"}, "hybridep", "megatron"),
    ],
)
def test_what_a_named_stack_lacks_is_refused_by_name_with_one_that_has_it(given, lacks, other):
    question = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, **given}
    with pytest.raises(UnsupportedError) as refused:
        ironlaw.estimate(**question)
    text = str(refused.value)
    assert text.startswith(given["framework"]) and lacks in text and text.endswith(f"framework {other}")
    assert "\n" not in text and "(" in text  # with its source


def test_a_plan_that_is_given_whole_is_refused_too(ask):
    plan = ("--tp", 1, "--pp", 3, "--vpp", 2, "--zero", 1, "--micro-batch-size", 1, "--recompute", "none", "--global-batch-size", 48)
    status, _, err = ask("estimate", "llama-3-8b", "--on", "a100-sxm-80gb", "--gpus", 24, "--framework", "megatron-legacy", *plan)
    assert status == PlanError.exit_status and "unequal pipeline stages or chunks: 32 layers on pp 3, vpp 2" in err


def test_a_stack_without_sequence_parallelism_has_it_neither_given_nor_by_default():
    question = {"model": "llama-3-8b", "on": "a100-sxm-80gb", "gpus": 64, "framework": "megatron-legacy", "tp": 2}
    assert not ironlaw.estimate(**question, sp=True).row(0)["rules"]["stack_can"]
    plan = {"pp": 2, "vpp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "full"}
    assert ironlaw.estimate(**question, **plan).row(0)["plan"]["sp"] is False


def test_what_a_stack_lacks_is_false_in_the_column_of_a_batch():
    answer = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=64, global_batch_size=512, framework="deepspeed", pp=[1, 4], zero=3)
    assert [bool(keeps) for keeps in (answer.row(at)["rules"]["stack_can"] for at in (0, 1))] == [True, False]


def test_the_rule_holds_for_columns_as_for_each_plan():
    answer = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=64, global_batch_size=512, framework="deepspeed", tp=1, pp=1)
    job, plan = answer.groups[0].job, answer.groups[0].plan
    many = plan.replace(pp=np.array([1.0, 2.0, 4.0, 1.0]), vpp=np.array([1.0, 1.0, 2.0, 1.0]), zero=np.array([3.0, 1.0, 1.0, 2.0]),
                        dp_shard=np.array([64.0, 32.0, 16.0, 64.0]), dp_replicate=np.ones(4))  # fmt: skip
    column = legality(job, many)["stack_can"]
    alone = [legality(job, Plan(**{n: np.broadcast_to(getattr(many, n), 4)[at] for n in Plan.fields}))["stack_can"] for at in range(4)]
    assert column.tolist() == [bool(one) for one in alone] == [True, True, False, True]


def test_what_few_people_run_is_used_where_it_is_given():
    given = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "seq_len": 8192}
    assert ironlaw.estimate(**given, framework="huggingface", tp=2).row(0)["plan"]["tp"] == 2
    assert ironlaw.estimate(**given, framework="megatron", zero=3, tp=1, pp=1).row(0)["plan"]["zero"] == 3


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "megatron"),
        ({"gpus": 1}, "fsdp"),
        ({"tp": 2, "pp": 2}, "megatron"),
        ({"lora_rank": 16}, "huggingface"),
        ({"lora_rank": 16, "pp": 2}, "nemo"),
        ({"lora_rank": 16, "adapter": "dora"}, "huggingface"),
        ({"optimizer": "adam8bit"}, "huggingface"),
        ({"optimizer": "paged-adamw"}, "huggingface"),
        ({"objective": "dpo", "micro_batch_size": 2}, "trl"),
        ({"pp": 2, "zero": 3}, "torchtitan-compile"),
        ({"precision": "fp8-row"}, "torchtitan-compile"),
        ({"on": "mi300x"}, "megatron"),
        ({"on": "tpu-v5p"}, "maxtext"),
        ({"on": "trainium-2"}, "generic"),
        ({"optimizer": "adam8bit", "pp": 2, "precision": "fp8-row", "overlap": "ep"}, "generic"),
    ],
)
def test_a_stack_that_nobody_named_is_the_first_that_has_what_the_question_gives(given, name):
    answer = ironlaw.estimate(**{"model": "qwen-3-0.6b", "on": "h100-sxm", "gpus": 8, "global_batch_size": 64, **given})
    assert answer.row(0)["plan"]["framework"] == name
    (said,) = [item["value"] for item in answer.row(0)["assumptions"] if item["name"] == "framework"]
    assert said.startswith(f"{name}, chosen: ")


def test_the_generic_stack_refuses_nothing():
    plan = {"tp": 1, "pp": 4, "vpp": 2, "zero": 3, "micro_batch_size": 1, "recompute": "every:2", "overlap": "param-gather"}
    answer = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=64, framework="generic", **plan)
    assert bool(answer.legal[0])


def test_every_table_says_what_was_read(ask):
    for name in CHECKS:
        can = load.record("frameworks", name).can
        assert can is not None and can.source is not None and can.source.url.startswith("https://"), name
    status, out, _ = ask("catalog", "show", "deepspeed", "--kind", "frameworks")
    assert status == 0 and "zero_with_pp" in out and "engine.py" in out


SAID = {"pytorch": "fsdp", "FSDP2": "fsdp", "llama-factory": "huggingface", "swift": "ms-swift", "lit-gpt": "litgpt"}


@pytest.mark.parametrize(("said", "name"), SAID.items())
def test_names_that_people_say_are_the_record_that_runs_their_code(said, name):
    assert load.resolve("frameworks", said) == name


@pytest.mark.parametrize(
    ("said", "instead"),
    [("ddp", "fsdp with --zero 0"), ("nanogpt", "fms-fsdp"), ("lightning", "fsdp or deepspeed"), ("verl", "fsdp or megatron"),
     ("openrlhf", "deepspeed"), ("colossalai", "internevo"), ("torch_xla", "maxtext")],
)  # fmt: skip
def test_other_names_are_refused_with_what_to_name(said, instead, ask):
    status, _, err = ask("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--framework", said)
    assert status == 2 and instead in err and err.count("\n") == 1


def test_a_stack_that_lacks_a_given_form_of_recomputation_is_not_chosen():
    """DeepSpeed's engine has 8-bit optimizers and pipelines, and recomputes whole layers only."""
    question = {"tp": 4, "pp": 4, "zero": 1, "micro_batch_size": 1, "optimizer": "adamw_bnb_8bit"}

    def chosen(form: str) -> str:
        return str(ironlaw.estimate("llama-3-70b", "h100-sxm", 512, recompute=form, **question).row(0)["plan"]["framework"])

    assert (chosen("selective"), chosen("full")) == ("generic", "deepspeed")
