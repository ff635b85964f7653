"""Launch flags of a plan: parallelism, batch, recomputation, precision and overlap in a framework's own spelling.

Megatron-LM's arguments are those that ``launch.megatron`` reads (``megatron/training/arguments.py``,
https://github.com/NVIDIA/Megatron-LM, read in November 2026); the ``TransformerConfig`` of Megatron-Core 0.16.1 takes them. Those of
torchtitan are from ``torchtitan/config/job_config.py`` and ``docs/float8.md`` (https://github.com/pytorch/torchtitan, November 2026).
A flag is one row of a table here; what needs more than a value has a function. What a framework cannot express is said in a row of its
own. The model, data and learning rate are left to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from shlex import join
from typing import Any, NamedTuple

from ironlaw.catalog import load
from ironlaw.catalog.abilities import has
from ironlaw.frozen import Frozen
from ironlaw.launch.megatron.patterns import stage_flags
from ironlaw.plan import recompute_columns
from ironlaw.question.defaults import CP_METHOD, DISPATCHER

NOTE = "not in the flags"


class Flag(NamedTuple):
    """A value of a plan that a framework takes as it is."""

    option: str
    spelling: str
    usual: Any = None  # the framework's own default, for which nothing is printed


MEGATRON = (
    Flag("tp", "--tensor-model-parallel-size", 1),
    Flag("pp", "--pipeline-model-parallel-size", 1),
    Flag("cp", "--context-parallel-size", 1),
    Flag("ep", "--expert-model-parallel-size", 1),
    Flag("micro_batch_size", "--micro-batch-size"),
    Flag("global_batch_size", "--global-batch-size"),
    Flag("seq_len", "--seq-length"),
)
MEGATRON_OVERLAPS = {
    "grad-reduce": "--overlap-grad-reduce", "param-gather": "--overlap-param-gather", "tp": "--tp-comm-overlap",
    "ep": "--overlap-moe-expert-parallel-comm",
}  # fmt: skip
MEGATRON_PRECISIONS = {
    "fp32": "", "fp16": "--fp16 --accumulate-allreduce-grads-in-fp32", "bf16": "--bf16", "fp8": "--bf16 --fp8-format hybrid --fp8-recipe",
    "fp8-block": "--bf16 --fp8-format e4m3 --fp8-recipe blockwise", "mxfp8": "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8",
    "fp8-current": "--bf16 --fp8-format hybrid --fp8-recipe tensorwise", "fp8-delayed": "--bf16 --fp8-format hybrid --fp8-recipe delayed",
    "fp8-e4m3": "--bf16 --fp8-format e4m3 --fp8-recipe", "nvfp4": "--bf16 --fp4-format e2m1",
    "nvfp4-pretraining": "--bf16 --fp4-format e2m1",
}  # fmt: skip
MEGATRON_SHARDING = {
    0: "", 1: "--use-distributed-optimizer",
    2: "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads --use-distributed-optimizer --ckpt-format fsdp_dtensor",
    3: "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --use-distributed-optimizer --ckpt-format fsdp_dtensor",
}  # fmt: skip
MEGATRON_OPTIMIZERS = {"adamw": "adam", "sgd": "sgd --sgd-momentum 0", "momentum": "sgd", "muon": "muon"}
MEGATRON_DISPATCHERS = {
    "alltoall": "--moe-token-dispatcher-type alltoall",
    "deepep": "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep",
    "hybridep": "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep",
}
MEGATRON_CONTEXT = {"ring": "p2p", "all-to-all": "a2a", "all-gather": "allgather", "all-to-all+ring": "a2a+p2p"}
MEGATRON_OFFLOADED = "attn_norm qkv_linear core_attn attn_proj mlp_norm"  # modules of every layer that can be offloaded; it has no default
MEGATRON_MODULES = {
    "attention": "core_attn", "linear": "mlp", "elementwise": "layernorm moe_act", "mlp": "mlp", "moe": "moe",
    "shared-experts": "shared_experts", "up-projection": "mla_up_proj",
}  # fmt: skip

TORCHTITAN = (
    Flag("dp_replicate", "--parallelism.data_parallel_replicate_degree", 1),
    Flag("dp_shard", "--parallelism.data_parallel_shard_degree"),
    Flag("tp", "--parallelism.tensor_parallel_degree", 1),
    Flag("pp", "--parallelism.pipeline_parallel_degree", 1),
    Flag("cp", "--parallelism.context_parallel_degree", 1),
    Flag("ep", "--parallelism.expert_parallel_degree", 1),
    Flag("etp", "--parallelism.expert_tensor_parallel_degree", 1),
    Flag("global_batch_size", "--training.global_batch_size"),
    Flag("seq_len", "--training.seq_len"),
)
TORCHTITAN_SHARDING = {2: "never", 3: "always"}  # of --parallelism.fsdp_reshard_after_forward
TORCHTITAN_SCHEDULES = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "gpipe": "GPipe", "zero-bubble": "InterleavedZeroBubble"}
TORCHTITAN_CONTEXT = {"ring": "alltoall", "all-gather": "allgather"}  # of --parallelism.context_parallel_rotate_method
TORCHTITAN_PRECISIONS = {
    "bf16": "",
    "fp8": "--model.converters quantize.linear.float8 --quantize.linear.float8.recipe_name tensorwise",
    "fp8-current": "--model.converters quantize.linear.float8 --quantize.linear.float8.recipe_name tensorwise",
    "fp8-row": "--model.converters quantize.linear.float8 --quantize.linear.float8.recipe_name rowwise",
    "mxfp8": "--model.converters quantize.linear.mx --quantize.linear.mx.recipe_name mxfp8_cublas",
}  # fmt: skip


class Writer(Frozen):
    """How a framework is launched: where the flags go, and the functions that write them and what they cannot say."""

    frameworks: tuple[str, ...]
    file: str
    write: Callable[[Mapping[str, Any]], Iterator[str]]
    unsaid: Callable[[Mapping[str, Any]], Iterator[str]]


def flags_of(options: Mapping[str, Any], layers: int, predicting: int = 0) -> list[dict[str, str]]:
    """The launch flags of a plan as rows: where they go, and the flags; then what they do not say.

    ``options`` has the plan and the job by the names of the options, and as ``stages`` the layers of each pipeline rank; ``layers`` and
    ``predicting`` are the model's layers, and those that predict further tokens.

    >>> plan = {"framework": "megatron", "tp": 4, "pp": 1, "micro_batch_size": 1, "global_batch_size": 512, "seq_len": 8192, "sp": True,
    ...     "zero": 1, "recompute": "none", "precision": "bf16", "optimizer": "adamw", "overlap": ["grad-reduce"]}
    >>> flags_of(plan, 32)[0]["flags"].partition(" --micro")[0]
    '--tensor-model-parallel-size 4'
    """
    writer = next((one for one in WRITERS if options["framework"] in one.frameworks), None)
    if writer is None:
        return [{"file": NOTE, "flags": f"the flags of {options['framework']} are not known here: set the plan above by hand"}]
    plan = {**options, "layers": layers, "predicting": predicting}
    rows = [{"file": writer.file, "flags": " ".join(part for part in writer.write(plan) if part)}]
    unsaid = list(writer.unsaid(plan))
    return [*rows, {"file": NOTE, "flags": "; ".join(unsaid)}] if unsaid else rows


def _values(table: tuple[Flag, ...], plan: Mapping[str, Any]) -> Iterator[str]:
    """The flags of a table whose values are not the framework's own defaults."""
    for flag in table:
        if plan.get(flag.option) not in (None, flag.usual):
            yield f"{flag.spelling} {plan[flag.option]:g}"


def _write_megatron(plan: Mapping[str, Any]) -> Iterator[str]:
    """Arguments of Megatron-LM."""
    yield from _values(MEGATRON, plan)
    pp, vpp = plan.get("pp", 1), plan.get("vpp", 1)
    per_stage = plan.get("stages") or plan.get("layers_per_stage") or [plan["layers"] // pp] * pp
    stages = [] if plan.get("count_embedding") else stage_flags(per_stage, vpp, plan["predicting"])
    yield join(stages)
    if vpp > 1 and "--pipeline-model-parallel-layout" not in stages:  # a layout has the chunks too
        yield f"--num-virtual-stages-per-pipeline-rank {vpp:g}"
    if plan.get("count_embedding"):
        yield "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    yield "--sequence-parallel" if plan.get("sp") and plan.get("tp", 1) > 1 else ""
    yield MEGATRON_SHARDING[plan["zero"]]
    if plan["zero"] and plan.get("dp_replicate", 1) > 1:
        yield f"--num-distributed-optimizer-instances {plan['dp_replicate']:g}"
    if plan.get("in_network_reduction") == "sharp":
        yield "--use-sharp" + (" --sharp-enabled-group dp_replica" if plan["zero"] and plan.get("dp_replicate", 1) > 1 else "")
    yield from _write_megatron_kernels(plan)
    if "moe_dispatcher" in plan:
        yield f"--expert-tensor-parallel-size {plan.get('etp', 1):g}"
        yield MEGATRON_DISPATCHERS[plan["moe_dispatcher"]]
        yield "" if plan.get("grouped_experts") is False else "--moe-grouped-gemm"
    if plan.get("cp", 1) > 1 and plan.get("cp_method", CP_METHOD) != CP_METHOD:
        yield f"--cp-comm-type {MEGATRON_CONTEXT[plan['cp_method']]}"
        if plan.get("cp_inner"):
            yield f"--hierarchical-context-parallel-sizes {plan['cp_inner']:g} {plan['cp'] / plan['cp_inner']:g}"
    parts = {"param-gather": plan["zero"] > 0, "tp": plan.get("sp") and plan.get("tp", 1) > 1}  # what it asserts of these overlaps
    yield from (spelling for name, spelling in MEGATRON_OVERLAPS.items() if name in plan["overlap"] and parts.get(name, True))
    if plan.get("vpp", 1) > 1 and "pp" not in plan["overlap"]:
        yield "--no-overlap-p2p-communication"


def _write_megatron_kernels(plan: Mapping[str, Any]) -> Iterator[str]:
    """Arguments of recomputation, precision, optimizer, attention and offloading."""
    how = plan["recompute"]
    if how == "full":
        yield "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    elif how.startswith(("every:", "share:")):
        share = recompute_columns(how, ())[0]
        count = max(round(plan["layers"] / (plan.get("pp", 1) * plan.get("vpp", 1)) * share), 1)
        yield f"--recompute-granularity full --recompute-method block --recompute-num-layers {count}"
    elif how.startswith("selective"):
        modules = " ".join(MEGATRON_MODULES.get(name, "mlp") for name in _recomputed(plan))
        yield f"--recompute-granularity selective --recompute-modules {modules if _is_routed(plan) else modules.replace(' moe_act', '')}"
    usual = "tensorwise" if plan.get("fp8_scaling") == "current" else "delayed"
    scaling = usual if plan["precision"] in ("fp8", "fp8-e4m3") else ""
    yield f"{MEGATRON_PRECISIONS.get(plan['precision'], '--bf16')} {scaling}".strip()
    ends = [(end, plan.get(f"bf16_layers_at_{end}", 0)) for end in ("start", "end")]
    if any(count for _, count in ends):
        yield "--first-last-layers-bf16 " + " ".join(f"--num-layers-at-{end}-in-bf16 {count:g}" for end, count in ends)
    yield "--grad-reduce-in-bf16" if plan.get("gradient_dtype") == "bf16" else ""
    narrow = plan["precision"].startswith(("fp8", "mxfp8")) and plan["zero"] > 0
    yield "--fp8-param-gather" if plan.get("fp8_param_gather") and narrow else ""
    yield f"--optimizer {MEGATRON_OPTIMIZERS.get(plan['optimizer'], 'adam')}"
    yield "--attention-backend unfused" if plan.get("flash_attention") == "off" else ""
    if "optimizer" in plan.get("offload", ()):
        yield f"--use-precision-aware-optimizer --optimizer-cpu-offload --optimizer-offload-fraction {plan.get('offload_fraction', 1):g}"
    if "activations" in plan.get("offload", ()):
        yield f"--fine-grained-activation-offloading --offload-modules {MEGATRON_OFFLOADED}"
        yield "expert_fc1 moe_act" if _is_routed(plan) else ""


def _recomputed(plan: Mapping[str, Any]) -> list[str]:
    """The operators that a plan recomputes where it recomputes some."""
    how = plan["recompute"]
    return (how.partition(":")[2].split(",") if ":" in how else ["attention"]) if how.startswith("selective") else []


def _is_routed(plan: Mapping[str, Any]) -> bool:
    """True where Megatron-Core has modules of experts to recompute and to offload: it asks for a grouped GEMM."""
    return "moe_dispatcher" in plan and plan.get("grouped_experts") is not False


def _megatron_unsaid(plan: Mapping[str, Any]) -> Iterator[str]:
    """What the arguments of Megatron-LM do not say."""
    if plan["optimizer"] not in MEGATRON_OPTIMIZERS:
        yield f"optimizer {plan['optimizer']}"
    if "elementwise" in _recomputed(plan):
        if not _is_routed(plan):
            yield "Megatron-LM recomputes the norms of a dense layer, not its activation function"
        if plan["precision"].startswith("fp8") and plan.get("fp8_scaling") == "delayed":
            yield "Megatron-LM refuses to recompute norms with delayed scaling: take another fp8 recipe"
    yield from _common_unsaid(plan)


def _write_torchtitan(plan: Mapping[str, Any]) -> Iterator[str]:
    """Flags of torchtitan; the same names stand in its TOML."""
    yield from _values(TORCHTITAN, plan)
    pp, micro = plan.get("pp", 1), plan["micro_batch_size"]
    if pp > 1:  # a rank's whole share of the batch is cut into the micro-batches of the pipeline
        yield f"--training.local_batch_size {plan['global_batch_size'] / plan['dp']:g}"
        yield f"--parallelism.pipeline_parallel_microbatch_size {micro:g}"
        yield f"--parallelism.pipeline_parallel_schedule {TORCHTITAN_SCHEDULES.get(plan.get('schedule', '1f1b'), '1F1B')}"
        if _has_equal_chunks(plan):
            yield f"--parallelism.pipeline_parallel_layers_per_stage {plan['layers'] / pp / plan.get('vpp', 1):g}"
    else:
        yield f"--training.local_batch_size {micro:g}"
    if plan["zero"] in TORCHTITAN_SHARDING and plan.get("dp_shard", 1) > 1:
        yield f"--parallelism.fsdp_reshard_after_forward {TORCHTITAN_SHARDING[plan['zero']]}"
    if plan.get("cp", 1) > 1 and plan.get("cp_method") in TORCHTITAN_CONTEXT:
        yield f"--parallelism.context_parallel_rotate_method {TORCHTITAN_CONTEXT[plan['cp_method']]}"
    how = plan["recompute"]
    yield f"--activation_checkpoint.mode {how.partition(':')[0] if not how.startswith('every:') else 'selective'}"
    if how.startswith(("selective", "every:")):
        yield f"--activation_checkpoint.selective_ac_option {how[6:] if how.startswith('every:') else 'op'}"
    yield TORCHTITAN_PRECISIONS.get(plan["precision"], "")
    if plan["precision"] == "fp8" and plan.get("fp8_param_gather", True):
        yield "--quantize.linear.float8.enable_fsdp_float8_all_gather --quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"


def _write_compiled_torchtitan(plan: Mapping[str, Any]) -> Iterator[str]:
    """Flags of torchtitan with its compiler."""
    yield from _write_torchtitan(plan)
    yield "--compile.enable"
    yield "--parallelism.enable_async_tensor_parallel" if "tp" in plan["overlap"] and plan.get("tp", 1) > 1 else ""


def _has_equal_chunks(plan: Mapping[str, Any]) -> bool:
    """True where every chunk of every stage has as many layers."""
    return not plan.get("layers_per_stage") and plan["layers"] % (plan.get("pp", 1) * plan.get("vpp", 1)) == 0


def _torchtitan_unsaid(plan: Mapping[str, Any]) -> Iterator[str]:
    """What the flags of torchtitan do not say."""
    if not _has_equal_chunks(plan):
        per_stage = plan.get("stages") or plan.get("layers_per_stage") or [plan["layers"] // plan["pp"]] * plan["pp"]
        yield f"layers of the stages {per_stage} in {plan.get('vpp', 1):g} chunks: name the modules of every chunk"
    if plan.get("moe_dispatcher", DISPATCHER) != DISPATCHER:
        yield f"dispatcher {plan['moe_dispatcher']}"
    yield from _common_unsaid(plan)


def _common_unsaid(plan: Mapping[str, Any]) -> Iterator[str]:
    """What the framework's record lacks, and what no table here has a flag for."""
    can = load.record("frameworks", plan["framework"]).able
    for names, option, used in (
        (can.schedules, "schedule", plan.get("pp", 1) > 1), (can.cp, "cp_method", plan.get("cp", 1) > 1),
        (can.precisions, "precision", True), (can.dispatchers, "moe_dispatcher", True), (can.optimizers, "optimizer", True),
    ):  # fmt: skip
        if used and option in plan and not has(names, plan[option]):
            yield f"{plan['framework']} has no {option} {plan[option]}"
    if plan["zero"] not in can.zero and plan.get("dp_shard", 1) > 1:
        yield f"{plan['framework']} has no ZeRO {plan['zero']:g}"
    yield from (f"{plan['framework']} has no offloading of {name}" for name in plan.get("offload", ()) if not has(can.offload, name))
    if plan.get("cuda_graphs", "none") != "none":
        yield f"CUDA graphs {plan['cuda_graphs']}"
    if plan.get("lora_rank"):
        yield f"adapters of rank {plan['lora_rank']:g}"


WRITERS = (
    Writer(("megatron", "megatron-bridge"), "pretrain_gpt.py", _write_megatron, _megatron_unsaid),
    Writer(("torchtitan",), "run_train.sh", _write_torchtitan, _torchtitan_unsaid),
    Writer(("torchtitan-compile",), "run_train.sh", _write_compiled_torchtitan, _torchtitan_unsaid),
)


def takes_megatron_arguments(framework: str) -> bool:
    """True where a framework is launched with the arguments of Megatron-LM.

    >>> takes_megatron_arguments("megatron-bridge"), takes_megatron_arguments("torchtitan")
    (True, False)
    """
    return any(framework in one.frameworks for one in WRITERS if one.write is _write_megatron)
