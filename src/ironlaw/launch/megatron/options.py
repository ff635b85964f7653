"""Megatron-LM launch arguments as options of ``ironlaw.estimate``.

``options_from_script(text, gpus=64, on="h100-sxm")`` gives the options and the rules that were applied. ``tables`` maps, ignores
or refuses each argument and says why; an argument in no table is an error, because it may change the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.errors import MissingOptionError, QuestionError, UnknownNameError, UnsupportedError, nearest_names
from ironlaw.launch.megatron.arguments import Arguments, whole_number
from ironlaw.launch.megatron.model import read_model
from ironlaw.launch.megatron.patterns import layers_by_stage
from ironlaw.launch.megatron.tables import IGNORED, MAPPED, REFUSED
from ironlaw.launch.shell import read_command
from ironlaw.question.words import RECOMPUTE_MODULES
from ironlaw.units import LARGEST

_PRECISIONS = {"delayed": "fp8", "tensorwise": "fp8", "blockwise": "fp8-block", "mxfp8": "mxfp8"}
_ZERO_STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_CP_METHODS = {"a2a": "all-to-all", "allgather": "all-gather", "a2a+p2p": "all-to-all+ring"}
_RECOMPUTED = RECOMPUTE_MODULES
_NEEDS = {  # modules that only some models have, and the field that says so
    "mla_up_proj": "kv_lora_rank", "moe": "num_experts", "moe_act": "num_experts", "shared_experts": "shared_expert_intermediate_size",
}  # fmt: skip


def options_from_script(text: str, gpus: int | None, on: str) -> tuple[dict[str, Any], list[str]]:
    """The options of a launch script, read and never run, and the rules that were applied."""
    return options_from_arguments(read_command(text), gpus=gpus, on=on)


def options_from_arguments(arguments: Mapping[str, Any], *, gpus: int | None, on: str) -> tuple[dict[str, Any], list[str]]:
    """The options of ``ironlaw.estimate`` for a set of Megatron-LM arguments, and the rules that were applied.

    ``arguments`` are by name, ``--tensor-model-parallel-size`` or ``tensor_model_parallel_size``; a switch is True. Absent ones
    have Megatron's defaults. ``gpus`` None leaves the number of accelerators open. Raises UnsupportedError for arguments that
    are refused or in no table, QuestionError for a set with which Megatron would not start.

    >>> options, rules = options_from_arguments(read_command("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --bf16"
    ...     " --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 --vocab-size 1000"), gpus=1, on="h100-sxm")
    >>> options["model"]["vocab_size"], options["precision"], options["zero"]
    (1024, 'bf16', 0)
    """
    a = Arguments(arguments)
    _check_arguments(a)
    tp, pp, cp = (a.whole(f"{n}-parallel-size", 1) or 1 for n in ("tensor-model", "pipeline-model", "context"))
    options: dict[str, Any] = {"model": read_model(a, tp), "on": on, "tp": tp, "pp": pp, "cp": cp}
    if gpus is not None:
        options["gpus"] = gpus
        if gpus % (tp * pp * cp):
            raise QuestionError(f"gpus {gpus} is not a multiple of tp {tp} * pp {pp} * cp {cp}")
    options["sp"] = a.has("sequence-parallel") and tp > 1
    options["framework"] = "megatron-legacy" if a.has("use-legacy-models") and not _came_in_2022(a) else "megatron"
    if tp > 1 and not options["sp"]:
        a.rule("no --sequence-parallel: sp is off, Megatron's default")
    options |= _batch(a, None if gpus is None else gpus // (tp * pp * cp))
    options |= _stages(a, pp, options["model"]["num_hidden_layers"])
    options |= _schedule(a, options.get("vpp", 1)) | _expert_mesh(a, tp, options["model"]) | _context(a, cp) | _sharding(a)
    options |= _recompute(a, pp, options.get("vpp", 1), options["model"]) | _offload(a, options["model"])
    options |= _precision(a) | _optimizer(a) | _attention(a) | _overlap(a, options.get("vpp", 1))
    for name in a.given:
        if MAPPED.get(name, "").startswith("approximated: ") and a.has(name[2:]):
            a.rule(f"{name}: {MAPPED[name]}")
    return options, a.rules


def _check_arguments(a: Arguments) -> None:
    """Refuse arguments that are in no table, and arguments that cannot be modelled."""
    known = [*MAPPED, *IGNORED, *REFUSED]
    for name in a.given:
        if name not in MAPPED and name not in IGNORED and name not in REFUSED:
            raise UnsupportedError(f"unknown Megatron argument {name}; nearest: {', '.join(nearest_names(name, known)) or 'none'}")
    for name in a.given:
        if name in REFUSED and a.has(name[2:]) and not (name == "--spec" and a.text("spec") == "local"):
            raise UnsupportedError(f"Megatron argument {name}: {REFUSED[name]}")


def _batch(a: Arguments, dp: int | None) -> dict[str, Any]:
    """Sequences per step and micro-batch; for a batch that grows, its last size."""
    micro, length = a.needed("micro-batch-size"), a.needed("seq-length", "encoder-seq-length")
    schedule, total = a.text("step-batch-size-schedule"), a.whole("global-batch-size")
    if schedule:
        total = whole_number(schedule.replace(",", " ").split()[-1].rpartition(":")[2], "--step-batch-size-schedule")
        a.rule("a batch that grows is counted at its last size")
    elif a.has("rampup-batch-size"):
        a.rule("a batch that grows is counted at its last size")
    if total is None:
        if dp is None:
            raise MissingOptionError("missing --global-batch-size: Megatron's default is micro_batch_size * dp, which needs --gpus N")
        total = micro * dp
        a.rule("no --global-batch-size: micro_batch_size * dp")
    return {"micro_batch_size": micro, "global_batch_size": total, "seq_len": length}


def _stages(a: Arguments, pp: int, layers: int) -> dict[str, Any]:
    """Layers of each pipeline stage and chunks of each rank."""
    first, last = a.whole("decoder-first-pipeline-num-layers"), a.whole("decoder-last-pipeline-num-layers")
    embedding, loss = (a.has(f"account-for-{w}-in-pipeline-split") for w in ("embedding", "loss"))
    per_chunk, chunks = a.whole("num-layers-per-virtual-pipeline-stage"), a.whole("num-virtual-stages-per-pipeline-rank")
    options: dict[str, Any] = {}
    layout = a.text("pipeline-model-parallel-layout")
    if layout:
        options["layers_per_stage"], chunks, predicting = layers_by_stage(layout, pp, layers)
        if predicting is not None and predicting != pp - 1:
            options["mtp_stage"] = predicting
    elif first is not None or last is not None:
        inner_layers, inner_ranks = layers - (first or 0) - (last or 0), pp - (first is not None) - (last is not None)
        if inner_ranks < 1 or inner_layers < inner_ranks or inner_layers % inner_ranks:
            raise QuestionError(f"{layers} layers do not divide over pp {pp} with {first} in the first stage and {last} in the last")
        options["layers_per_stage"] = [v for v in (first, *[inner_layers // inner_ranks] * inner_ranks, last) if v is not None]
    else:
        slots = layers + embedding + loss
        if slots % pp:
            raise QuestionError(f"{slots} layers, with those counted for embedding and loss, do not divide by pp {pp}")
        if embedding and loss:
            options["count_embedding"] = True
        elif embedding or loss:
            options["layers_per_stage"] = [slots // pp - (embedding and i == 0) - (loss and i == pp - 1) for i in range(pp)]
        if per_chunk is not None:
            chunks = max(slots // pp // per_chunk, 1)
            if slots // pp % per_chunk:
                raise QuestionError(f"--num-layers-per-virtual-pipeline-stage {per_chunk} does not divide {slots // pp} layers")
    options["vpp"] = chunks or 1
    return options


def _schedule(a: Arguments, vpp: int) -> dict[str, Any]:
    """Groups of the interleaved schedule, deferred weight gradients, and the fused loss."""
    options: dict[str, Any] = {}
    group = a.whole("microbatch-group-size-per-virtual-pipeline-stage")
    if group and vpp > 1:
        options["microbatch_group"] = group
    if a.has("defer-embedding-wgrad-compute"):
        options["deferred_wgrad"] = a.whole("wgrad-deferral-limit", 0, least=0) or LARGEST
    if a.has("cross-entropy-loss-fusion") and a.one_of("cross-entropy-fusion-impl", ("native", "te")) == "native":
        options["fused_loss"] = True
    return options


def _expert_mesh(a: Arguments, tp: int, model: dict[str, Any]) -> dict[str, Any]:
    """Expert parallelism, the dispatcher and the capacity of experts."""
    ep = a.whole("expert-model-parallel-size", 1) or 1
    if "num_experts" not in model:
        return {"ep": ep}
    etp = a.whole("expert-tensor-parallel-size") or tp
    if etp > 1 and not a.has("expert-tensor-parallel-size"):
        a.rule("no --expert-tensor-parallel-size: tp, Megatron's default")
    kind = a.one_of("moe-token-dispatcher-type", ("allgather", "alltoall", "alltoall_seq", "flex"))
    if _overlaps_experts(a) and kind not in ("alltoall", "flex"):
        raise QuestionError(f"--overlap-moe-expert-parallel-comm needs --moe-token-dispatcher-type alltoall or flex, not {kind}")
    if _overlaps_experts(a) and a.has("moe-shared-expert-overlap"):
        raise QuestionError("--overlap-moe-expert-parallel-comm and --moe-shared-expert-overlap: Megatron allows one of them")
    if kind == "allgather" and ep * etp > 1:
        a.rule("approximated: the all-gather dispatcher (Megatron's default) is counted as an all-to-all")
    options: dict[str, Any] = {"ep": ep, "etp": etp, "grouped_experts": a.has("moe-grouped-gemm")}
    if kind == "flex":
        options["moe_dispatcher"] = a.one_of("moe-flex-dispatcher-backend", ("deepep", "hybridep"))
    factor = a.number("moe-expert-capacity-factor", 0.0)
    if factor and (a.has("moe-pad-expert-input-to-capacity") or factor < 1):
        options["capacity_factor"] = factor
    return options


def _context(a: Arguments, cp: int) -> dict[str, Any]:
    """The method of context parallelism."""
    kinds = a.words("cp-comm-type", "p2p")
    if cp == 1 or kinds == {"p2p"}:
        return {}
    if kinds - {"p2p", *_CP_METHODS}:
        raise UnknownNameError("value of --cp-comm-type", " ".join(sorted(kinds)), ("p2p", *_CP_METHODS))
    if len(kinds) == 1:
        return {"cp_method": _CP_METHODS[kinds.pop()]} | _inner_ranks(a, cp)
    a.rule(f"approximated: --cp-comm-type {' '.join(sorted(kinds))} is counted as a ring")
    return {"cp_method": "ring"}


def _inner_ranks(a: Arguments, cp: int) -> dict[str, Any]:
    """With a2a+p2p, the number of adjacent ranks that exchange heads: the first of the two sizes."""
    if a.words("cp-comm-type", "p2p") != {"a2a+p2p"}:
        return {}
    flag = "--hierarchical-context-parallel-sizes"
    sizes = [whole_number(item, flag) for item in a.items(flag[2:])]
    if len(sizes) != 2 or sizes[0] * sizes[1] != cp:
        raise QuestionError(f"--cp-comm-type a2a+p2p needs {flag} with two sizes whose product is cp {cp}")
    return {"cp_inner": sizes[0]}


def _sharding(a: Arguments) -> dict[str, Any]:
    """The ZeRO stage, and the number of copies of the sharded states."""
    if a.has("use-torch-fsdp2"):
        zero = 2 if a.has("torch-fsdp2-no-reshard-after-forward") else 3
    elif a.has("use-megatron-fsdp") or a.has("use-custom-fsdp"):
        zero = _ZERO_STAGES[a.one_of("data-parallel-sharding-strategy", tuple(_ZERO_STAGES))]
    else:
        zero = 1 if a.has("use-distributed-optimizer") or a.text("optimizer") == "dist_muon" else 0
        if a.has("data-parallel-sharding-strategy"):
            a.rule("--data-parallel-sharding-strategy has no effect without --use-megatron-fsdp")
    copies = a.whole("num-distributed-optimizer-instances", 1) or 1
    return {"zero": zero, "dp_replicate": copies} if copies > 1 and zero else {"zero": zero}


def _recompute(a: Arguments, pp: int, vpp: int, model: dict[str, Any]) -> dict[str, Any]:
    """Activation recomputation: of whole layers, or of the modules that are named."""
    granularity = a.text("recompute-granularity") or ("selective" if a.has("recompute-activations") else "")
    modules = a.words("recompute-modules", "core_attn")
    if a.has("moe-layer-recompute"):
        granularity, modules = granularity or "selective", ({"moe"} | modules if granularity else {"moe"})
    if granularity == "full":
        return {"recompute": _recomputed_layers(a, model["num_hidden_layers"] / (pp * vpp))}
    if granularity not in ("", "selective"):
        raise UnknownNameError("value of --recompute-granularity", granularity, ("full", "selective"))
    return {"recompute": _recomputed_operators(a, modules, model) if granularity else "none"}


def _recomputed_layers(a: Arguments, layers_per_chunk: float) -> str:
    """The layers that are recomputed: all, with a checkpoint for every layer or every so many, or one in so many."""
    count = a.whole("recompute-num-layers", 1) or 1
    if a.one_of("recompute-method", ("uniform", "block")) == "uniform":
        if count > 1:
            return f"segments:{count}"
        return "full"
    every = max(round(layers_per_chunk / count), 1)
    a.rule(f"approximated: --recompute-method block {count} is counted as one layer in {every} of each stage")
    return "full" if every == 1 else f"every:{every}"


def _recomputed_operators(a: Arguments, modules: set[str], model: dict[str, Any]) -> str:
    """The operators that selective recomputation repeats, from the modules of --recompute-modules."""
    for module in sorted(modules):
        if module not in _RECOMPUTED:
            raise UnknownNameError("value of --recompute-modules", module, _RECOMPUTED)
    if len({"layernorm", "moe_act"} & modules) == 1:
        a.rule("approximated: recomputing only norms or only the activation function is counted as both")
    for module, field in _NEEDS.items():
        if module in modules and not model.get(field):
            modules.discard(module)
            a.rule(f"--recompute-modules {module} has no effect: the model has none")
    operators = sorted({_RECOMPUTED[m] for m in modules})
    return f"selective:{','.join(operators)}" if operators else "none"


def _offload(a: Arguments, model: dict[str, Any]) -> dict[str, Any]:
    """What is offloaded to the host: activations, optimizer states, or both."""
    offloaded: list[str] = []
    options: dict[str, Any] = {}
    if a.has("fine-grained-activation-offloading"):
        offloaded.append("activations")
        a.rule("approximated: all activations are offloaded, not only those of --offload-modules")
    layers = a.whole("cpu-offloading-num-layers", 0, least=0) or 0
    if layers:
        offloaded.append("activations")
        if layers < model["num_hidden_layers"]:
            a.rule("approximated: activations of all layers are offloaded, not only of --cpu-offloading-num-layers")
    part = a.number("optimizer-offload-fraction", 1.0)
    if a.has("optimizer-cpu-offload") and part:
        offloaded.append("optimizer")
        options["offload_fraction"] = part
        options["offload_overlap"] = a.has("overlap-cpu-optimizer-d2h-h2d")
    return {"offload": ",".join(dict.fromkeys(offloaded)), **options} if offloaded else {}


def _precision(a: Arguments) -> dict[str, Any]:
    """The precision, and the type gradients are stored and reduced in."""
    if a.has("fp4-format"):
        precision = "nvfp4"
    elif a.has("fp8-format"):
        recipe = a.text("fp8-recipe", "delayed")
        if recipe not in _PRECISIONS:
            raise UnsupportedError(f"--fp8-recipe {recipe}: not modelled; known: {', '.join(_PRECISIONS)}")
        precision = _PRECISIONS[recipe]
    else:
        precision = "bf16" if a.has("bf16") else "fp16" if a.has("fp16") else "fp32"
        if precision == "fp32":
            a.rule("neither --bf16 nor --fp16: fp32")
    options: dict[str, Any] = {"precision": precision} | _narrow_weights(a, precision)
    narrow = a.has("grad-reduce-in-bf16") or "bf16" in (a.text("main-grads-dtype"), a.text("megatron-fsdp-main-grads-dtype"))
    if precision == "fp16" and not a.has("accumulate-allreduce-grads-in-fp32"):
        narrow = True
        a.rule("fp16 without --accumulate-allreduce-grads-in-fp32: gradients are stored and reduced in 2 bytes")
    if precision != "fp32":
        options["gradient_dtype"] = "bf16" if narrow else "fp32"
    return options


def _narrow_weights(a: Arguments, precision: str) -> dict[str, Any]:
    """fp8 scaling, weights gathered in a narrow type, and layers that stay in bf16."""
    options: dict[str, Any] = {}
    if precision == "fp8":
        options["fp8_scaling"] = "delayed" if a.text("fp8-recipe", "delayed") == "delayed" else "current"
    if a.has("fp4-param-gather" if precision == "nvfp4" else "fp8-param-gather"):
        options["fp8_param_gather"] = True
    if a.has("first-last-layers-bf16"):
        for end in ("start", "end"):
            options[f"bf16_layers_at_{end}"] = a.whole(f"num-layers-at-{end}-in-bf16", 1, least=0)
    return options if a.has("fp8-format") or a.has("fp4-format") else {}


def _optimizer(a: Arguments) -> dict[str, Any]:
    """The optimizer; states in narrower types are counted in fp32."""
    name = a.one_of("optimizer", ("adam", "sgd", "muon", "dist_muon"))
    for state in ("exp-avg-dtype", "exp-avg-sq-dtype", "main-params-dtype", "megatron-fsdp-main-params-dtype"):
        if a.text(state, "fp32") not in ("fp32", "auto"):
            a.rule(f"approximated: --{state} {a.text(state)} is counted in fp32")
    if name == "sgd":
        return {"optimizer": "momentum" if a.number("sgd-momentum", 0.9) > 0 else "sgd"}
    return {"optimizer": "adamw" if name == "adam" else "muon"}


def _came_in_2022(a: Arguments) -> bool:
    """True where a launch uses what the Megatron-LM of the legacy record did not have, although its model classes are the old ones."""
    return a.has("sequence-parallel") or a.has("recompute-activations") or a.text("recompute-granularity") == "selective"


def _attention(a: Arguments) -> dict[str, Any]:
    """Flash attention or not; open where Transformer Engine chooses."""
    if a.has("use-legacy-models"):
        return {"flash_attention": a.has("use-flash-attn")}
    if a.one_of("transformer-impl", ("transformer_engine", "local", "inference_optimized")) == "local":
        a.rule("--transformer-impl local: attention is not fused")
        return {"flash_attention": False}
    kind = a.one_of("attention-backend", ("auto", "flash", "fused", "unfused", "local"))
    return {} if kind == "auto" else {"flash_attention": kind in ("flash", "fused")}


def _overlap(a: Arguments, vpp: int) -> dict[str, Any]:
    """Communication that Megatron overlaps; by default only the transfers of interleaved stages."""
    overlapped = {
        "grad-reduce": a.has("overlap-grad-reduce"),
        "param-gather": a.has("overlap-param-gather"),
        "tp": a.has("tp-comm-overlap"),
        "pp": vpp > 1 and not a.has("no-overlap-p2p-communication"),
        "ep": _overlaps_experts(a),
    }
    options: dict[str, Any] = {"overlap": ",".join(name for name, on in overlapped.items() if on) or "none"}
    if a.has("delay-wgrad-compute"):
        options["delay_wgrad_compute"] = True
    return options


def _overlaps_experts(a: Arguments) -> bool:
    """True where the forward of one micro-batch overlaps the backward of another."""
    return a.has("overlap-moe-expert-parallel-comm") or a.has("combined-1f1b")
