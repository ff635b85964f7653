"""The job behind a log: model, batch, precision and recompute, from the user or from the arguments in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.errors import QuestionError, UnknownNameError
from ironlaw.estimate.bind.model import bind_model
from ironlaw.measure.logs import Log
from ironlaw.measure.logs.log import number, whole
from ironlaw.plan import recompute_columns
from ironlaw.precision import PRECISIONS

MEANT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32"}


@dataclass(frozen=True)
class LoggedJob:
    """The values that a log's rates need. None where neither the log nor the user gives one."""

    model: Model | None
    gpus: int | None
    seq_len: int | None
    batch: int | None  # sequences of one iteration
    tokens: float | None  # of one iteration, all GPUs together
    precision: str | None
    recompute: tuple[float, float, float]  # shares of layers: whole; of the others, the attention core and the matrices
    sources: tuple[str, ...]  # of each value, and what was assumed


def logged_job(
    log: Log,
    model: str | Model | None = None,
    gpus: int | None = None,
    seq_len: int | None = None,
    global_batch_size: int | None = None,
    precision: str | None = None,
    recompute: str | None = None,
    folders: tuple[str, ...] = (),
) -> LoggedJob:
    """The job of ``log``; given values override its arguments."""
    if model is None:
        job_model, sources = _read_model(log.arguments)
    else:
        job_model = model if isinstance(model, Model) else bind_model(model, folders)[0]
        sources = [f"model: {job_model.name} (given)"]
    length = seq_len or _read_whole(log, "seq_length")
    batch = global_batch_size or _read_whole(log, "global_batch_size") or _read_whole(log, "train_batch_size")
    if log.batch is not None and global_batch_size is None:
        batch = int(log.batch[-1]) if log.batch[-1] > 0 else batch
    tokens = float(batch * length) if batch and length else None
    if global_batch_size is None and "tokens_per_iteration" in log.arguments:
        tokens = number(log.arguments["tokens_per_iteration"])
    shares, source = (_parse_recompute(recompute), "") if recompute else _read_recompute(log.arguments)
    return LoggedJob(
        model=job_model,
        gpus=gpus or log.world_size,
        seq_len=length,
        batch=batch,
        tokens=tokens,
        precision=_read_precision(log.arguments, precision),
        recompute=shares,
        sources=(*sources, source) if source else tuple(sources),
    )


def _read_whole(log: Log, name: str) -> int | None:
    return whole(log.arguments.get(name, "")) or None


def _read_precision(arguments: dict[str, str], option: str | None) -> str | None:
    """The precision that the user gives, else the one in the log's arguments; None where neither names one."""
    if option is not None:
        if option not in PRECISIONS:
            raise UnknownNameError("precision", option, PRECISIONS)
        return option
    if any(arguments.get(name, "None") not in ("None", "False", "") for name in ("fp8", "fp8_format")):
        return "fp8"
    for name in ("bf16", "fp16"):
        if arguments.get(name) == "True":
            return name
    dtype = arguments.get("params_dtype", arguments.get("dtype", "")).removeprefix("torch.").lower()
    return MEANT.get(dtype, dtype if dtype in PRECISIONS else None)


def _parse_recompute(text: str) -> tuple[float, float, float]:
    """Shares of recomputed layers, attention and linear layers."""
    try:
        layers, attention, linear, *_ = recompute_columns(text, ("attention",))
    except (ValueError, ZeroDivisionError):
        raise QuestionError(f"--recompute {text!r}: give none, full, selective, every:K or share:X") from None
    return layers, attention, linear


def _read_recompute(arguments: dict[str, str]) -> tuple[tuple[float, float, float], str]:
    """Shares of recomputed layers and their source: Megatron's old arguments (checkpoint_activations) or new ones."""
    if arguments.get("checkpoint_activations") == "True" or arguments.get("deepspeed_activation_checkpointing") == "True":
        return (1.0, 0.0, 0.0), "recompute: whole layers (checkpoint_activations)"
    how = arguments.get("recompute_granularity", "None")
    if how == "full":
        stages = whole(arguments.get("pipeline_model_parallel_size", "1")) or 1
        layers, block = whole(arguments.get("num_layers", "")), whole(arguments.get("recompute_num_layers", ""))
        if arguments.get("recompute_method") == "block" and layers and block:
            share = min(1.0, block * stages / layers)
            source = f"recompute: {share:.3g} of the layers (recompute_num_layers {block} of each of {stages} stages)"
            return (share, 0.0, 0.0), source
        return (1.0, 0.0, 0.0), "recompute: whole layers (recompute_granularity full)"
    if how == "selective":
        return (0.0, 1.0, 0.0), "recompute: the attention core (recompute_granularity selective)"
    if "num_layers" in arguments and "recompute_granularity" not in arguments and "checkpoint_activations" not in arguments:
        return (0.0, 0.0, 0.0), "recompute: not in the log; none is assumed, so hardware FLOPs equal model FLOPs"
    return (0.0, 0.0, 0.0), ""


def _read_model(arguments: dict[str, str]) -> tuple[Model | None, list[str]]:
    """The model in the arguments and its source, or None and the reason."""
    why = _why_not_described(arguments)
    if why:
        return None, [f"model: {why}; give --model"]
    sizes = {name: whole(arguments.get(name, "")) for name in ("num_layers", "hidden_size", "num_attention_heads", "padded_vocab_size")}
    if sizes["padded_vocab_size"] is None:
        sizes["padded_vocab_size"] = whole(arguments.get("vocab_size", ""))
    missing = [name for name, value in sizes.items() if not value]
    if missing:
        return None, [f"model: the log lacks {', '.join(missing)}; give --model"]
    layers, hidden, heads, vocabulary = (int(v or 0) for v in sizes.values())
    width, gated, sources = _read_mlp(arguments, hidden)
    grouped = arguments.get("group_query_attention", "True") == "True"
    groups = whole(arguments.get("num_query_groups", "")) if grouped else None
    sources.append(f"model: {layers} layers of {hidden}, MLP {width}, {heads} heads, vocabulary {vocabulary}, from the log's arguments")
    experts = whole(arguments.get("num_experts", "")) or 0
    values: dict[str, Any] = {
        "name": "of-the-log",
        "title": "the model of the log's arguments",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups or heads,
        "head_dim": whole(arguments.get("kv_channels", "")) or max(1, hidden // heads),
        "intermediate_size": width,
        "vocab_size": vocabulary,
        "max_position_embeddings": whole(arguments.get("max_position_embeddings", "")) or 1,
        "tie_word_embeddings": True,
        "gated_mlp": gated,
    }
    if experts:
        values["num_experts"] = experts
        values["num_experts_per_tok"] = whole(arguments.get("moe_router_topk", "")) or 1
        values["moe_intermediate_size"] = whole(arguments.get("moe_ffn_hidden_size", "")) or width
    return Model(**values), sources


def _why_not_described(arguments: dict[str, str]) -> str:
    """Why the arguments do not fully describe the model; "" if they do."""
    if arguments.get("multi_latent_attention") == "True":
        return "the arguments do not describe latent attention"
    if any(name.startswith("model.") for name in arguments) and not arguments.get("model", "").startswith("llama3"):
        return "torchtitan's arguments are read only for llama3"
    if whole(arguments.get("num_experts", "")) and arguments.get("moe_layer_freq", "1") != "1":
        return f"the arguments mix dense and mixture-of-experts layers ({arguments['moe_layer_freq'][:40]})"
    if whole(arguments.get("num_experts", "")) and arguments.get("moe_shared_expert_intermediate_size", "None") != "None":
        return "the arguments do not describe shared experts"
    return ""


def _read_mlp(arguments: dict[str, str], hidden: int) -> tuple[int, bool, list[str]]:
    """Width of the MLP, whether it is gated, and what was assumed."""
    width = whole(arguments.get("ffn_hidden_size", ""))
    gated = arguments.get("swiglu") == "True"
    if width:
        return width, gated, []
    multiple = whole(arguments.get("model.multiple_of", ""))
    if multiple:  # Llama's rule: two thirds of four widths, times a factor, up to a multiple
        computed = int((number(arguments.get("model.ffn_dim_multiplier")) or 1.0) * int(8 * hidden / 3))
        return multiple * -(-computed // multiple), True, []
    assumed = f"model: the width of the MLP is not in the log; four times hidden_size is assumed ({4 * hidden})"
    return 4 * hidden, gated, [assumed]
