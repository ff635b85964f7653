"""Every option of a question, once: the command line, TOML files, CSV columns and Python all read this table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError, UnitError, UnknownNameError, UnsupportedError, ValueRangeError, nearest_names
from ironlaw.question import defaults
from ironlaw.question.words import adapter_targets, offload, overlap, recompute


@dataclass(frozen=True)
class Option:
    """One option: how its text is read, what it means, and whether Python may give a column of values."""

    read: Callable[[Any, str], Any]
    help: str
    metavar: str = "N"
    column: bool = False
    names: bool = False  # a value is a set of names: a list of texts is one value, a list of sets a column


def whole(value: Any, flag: str) -> float:
    """A whole number of at least 1."""
    number = _count(value, flag)
    if not math.isfinite(number) or not 1 <= number <= LARGEST or number != int(number):
        raise ValueRangeError(f"{flag} is {_brief(value)}, must be a whole number from 1 to {LARGEST:g}")
    return number


LARGEST = 1e12  # more of anything counted here is a slip of the keyboard


def _count(value: Any, flag: str) -> float:
    if isinstance(value, bool):
        raise ValueRangeError(f"{flag} is {value}, must be a number")
    try:
        return units.parse_count(value, flag)
    except OverflowError:
        raise ValueRangeError(f"{flag} is {_brief(value)}, must be at most {LARGEST:g}") from None


def _brief(value: Any) -> str:
    text = str(value) if not isinstance(value, int) or abs(value) < 10**18 else "astronomical"
    return text if len(text) < 40 else text[:37] + "..."


def none_or_more(value: Any, flag: str) -> float:
    """A whole number of at least 0."""
    number = units.parse_count(value, flag)
    if not math.isfinite(number) or not 0 <= number <= LARGEST or number != int(number):
        raise ValueRangeError(f"{flag} is {_brief(value)}, must be a whole number from 0 to {LARGEST:g}")
    return number


def stage(value: Any, flag: str) -> float:
    """A ZeRO stage."""
    number = units.parse_count(value, flag)
    if number not in (0, 1, 2, 3):
        raise ValueRangeError(f"{flag} is {value}, must be 0, 1, 2 or 3")
    return number


def switch(value: Any, flag: str) -> bool:
    """on or off."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("on", "yes", "y", "true", "1", "1.0"):
        return True
    if text in ("off", "no", "n", "false", "0", "0.0"):
        return False
    raise ValueRangeError(f"{flag} is {value!r}, must be on or off")


def text(value: Any, flag: str) -> str:
    """A name."""
    if not isinstance(value, str) or not value.strip():
        raise ValueRangeError(f"{flag} is {value!r}, must be a name")
    return value.strip()


def model(value: Any, flag: str) -> Any:
    """A name, a path, ``field=value,...`` dimensions, or a table of them."""
    if isinstance(value, Mapping):
        return dict(value)
    return text(value, flag)


def one_of(known: tuple[str, ...], later: tuple[str, ...] = ()) -> Callable[[Any, str], str]:
    """A reader of one of ``known``; ``later`` are understood and refused."""

    def read(value: Any, flag: str) -> str:
        name = str(value).strip().lower()
        if name in known:
            return name
        if name in later:
            raise UnsupportedError(f"{flag} {name}: not modelled by this version, which knows {', '.join(known)}")
        raise UnknownNameError(flag, str(value), [*known, *later])

    return read


def stage_layers(value: Any, flag: str) -> tuple[int, ...]:
    """A comma list of layers per pipeline stage."""
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return tuple(int(none_or_more(item, flag)) for item in items)


def tokens(value: Any, flag: str) -> float:
    """A count of tokens such as 15T."""
    number = _count(value, flag)
    if not 1 <= number <= 1e18:
        raise ValueRangeError(f"{flag} is {_brief(value)}, must be at least 1 and at most 1e18")
    return number


def price(value: Any, flag: str) -> Any:
    """A number of USD per accelerator hour, or provider/term."""
    if isinstance(value, bool):
        raise ValueRangeError(f"{flag} is {value}, must be a price")
    try:
        number = float(value)
    except (TypeError, ValueError):
        return text(value, flag)
    if not 0 <= number <= 1e6:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 to 1e6 USD per accelerator hour")
    return number


def grid(value: Any, flag: str) -> Any:
    """A region's name, or grams per kWh."""
    if isinstance(value, bool):
        raise ValueRangeError(f"{flag} is {value}, must be a region or g/kWh")
    try:
        number = float(value)
    except (TypeError, ValueError):
        if str(value).strip().endswith("/kWh"):
            return units.parse(value, "kg/J", flag) * 3.6e9
        return text(value, flag)
    if not 0 <= number <= 1e4:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 to 10000 g/kWh")
    return number


LEAST, MOST = 1e-30, 1e60  # of anything measured; beyond them is a slip of the keyboard, and products overflow


def positive(unit: str) -> Callable[[Any, str], float]:
    """A reader of quantities in ``unit`` above zero."""

    def read(value: Any, flag: str) -> float:
        number = units.parse(value, unit, flag)
        if not LEAST <= number <= MOST:
            raise ValueRangeError(
                f"{flag} is {_brief(value)}, must be {f'at most {MOST:g}' if number > MOST else 'more than 0 and finite'}"
            )
        return number

    return read


LONGEST = 1e15  # seconds; more is a slip of the keyboard


def share(value: Any, flag: str) -> float:
    """A part of a whole: above 0, at most 1."""
    number = units.parse(value, "1", flag)
    if not 0.0 < number <= 1.0:
        raise ValueRangeError(f"{flag} is {_brief(value)}, must be above 0 and at most 1")
    return number


def duration(value: Any, flag: str) -> float:
    """A time with its unit, such as 50000h or 15min: nobody means seconds where hours are usual."""
    if isinstance(value, (int, float)) or str(value).strip()[-1:].isdecimal():
        raise ValueRangeError(f"{flag} is {value}, which has no unit: give one of s, min, h, days, such as {value}h")
    number = units.parse(value, "s", flag)
    if not LEAST <= number <= LONGEST:
        raise ValueRangeError(f"{flag} is {_brief(value)}, must be more than 0 and at most {LONGEST:g} s")
    return number


def at_least_one(value: Any, flag: str) -> float:
    """A number of at least 1."""
    number = units.parse(value, "1", flag)
    if not 1 <= number <= LARGEST:
        raise ValueRangeError(f"{flag} is {_brief(value)}, must be {f'at most {LARGEST:g}' if number > LARGEST else 'at least 1'}")
    return number


OPTIONS: dict[str, Option] = {
    "model": Option(model, "catalogue name, config.json (file or folder), or hidden_size=...,num_hidden_layers=...", "MODEL"),
    "on": Option(text, "accelerator, by catalogue name", "ACCELERATOR"),
    "gpus": Option(whole, "accelerators in all", column=True),
    "node": Option(text, "node, by catalogue name (default: the accelerator's usual one)", "NAME"),
    "fabric": Option(text, "fabric between nodes (default: the node's usual one)", "NAME"),
    "scale_up_size": Option(whole, "accelerators joined by the scale-up links (default: the node record's)", "N"),
    "nic_bandwidth": Option(positive("B/s"), "fabric bandwidth of one accelerator, one direction, such as 50GB/s", "RATE"),
    "framework": Option(text, "training stack (default: megatron where tp or pp > 1, else fsdp)", "NAME"),
    "global_batch_size": Option(whole, "sequences per optimizer step", column=True),
    "global_batch_tokens": Option(tokens, "tokens per optimizer step, instead of sequences", "TOKENS"),
    "seq_len": Option(whole, "tokens per sequence", column=True),
    "micro_batch_size": Option(whole, "sequences per data-parallel rank and micro-batch", column=True),
    "tp": Option(whole, "tensor parallel", column=True),
    "sp": Option(switch, "sequence parallel (default: on where tp > 1)", "on|off", column=True),
    "pp": Option(whole, "pipeline parallel", column=True),
    "vpp": Option(whole, "model chunks per pipeline rank", column=True),
    "cp": Option(whole, "context parallel: ranks that share a sequence", column=True),
    "ep": Option(whole, "expert parallel", column=True),
    "etp": Option(whole, "tensor parallel inside an expert", column=True),
    "expert_imbalance": Option(at_least_one, "rows of the busiest expert rank over the mean (default 1, balanced)", "X"),
    "moe_dispatcher": Option(
        one_of(defaults.DISPATCHERS), "how rows reach experts (default: alltoall; deepep and hybridep send once a domain)", "HOW"
    ),
    "dispatch_precision": Option(
        one_of(defaults.DISPATCH_PRECISIONS),
        "rows on their way to experts: wide (two bytes, default), fp8 (gradients too), fp8-forward (rows alone)",
        "NAME",
    ),
    "capacity_factor": Option(positive("1"), "rows each expert is padded or cut to, over the mean (default: dropless)", "X"),
    "dp_replicate": Option(whole, "data parallel, replicas", column=True),
    "dp_shard": Option(whole, "data parallel, shards", column=True),
    "zero": Option(stage, "what dp_shard shards: 0 nothing, 1 states, 2 also gradients, 3 also weights", "0|1|2|3", column=True),
    "recompute": Option(
        recompute, "none, selective[:OPERATORS], full, every:K (one layer in K), share:F (of the layers)", "HOW", column=True
    ),
    "precision": Option(
        one_of(defaults.PRECISIONS),
        "fp32, tf32, fp16, bf16, fp8 (per tensor), fp8-block, fp8-row, mxfp8, nvfp4: what the linear layers compute in",
        "NAME",
    ),
    "fp8_scaling": Option(
        one_of(("current", "delayed")),
        "precision fp8: scales of tensors from their values now or from earlier steps (default: the framework's)",
        "HOW",
    ),
    "fp8_param_gather": Option(
        switch, "weights of narrow linear layers are kept and gathered narrow (default: off; torchtitan in fp8: on)", "on|off"
    ),
    "bf16_layers_at_start": Option(none_or_more, "first layers that a narrow precision leaves in bf16 (default: 0)", "N"),
    "bf16_layers_at_end": Option(none_or_more, "last layers that a narrow precision leaves in bf16 (default: 0)", "N"),
    "optimizer": Option(
        one_of(defaults.OPTIMIZERS),
        "sgd, momentum, adamw, adamw-bf16, adam8bit, adafactor, muon",
        "NAME",
    ),
    "schedule": Option(
        one_of(defaults.SCHEDULES),
        "1f1b, interleaved, gpipe, zero-bubble, dualpipe (default: 1f1b, interleaved when vpp > 1)",
        "NAME",
    ),
    "microbatch_group": Option(whole, "micro-batches a chunk runs before the next chunk's turn (interleaved; default: pp)"),
    "deferred_wgrad": Option(whole, "micro-batches whose output layer's weight gradient waits for the end of the pipeline"),
    "fused_loss": Option(switch, "the loss in compiled functions, which keep one more fp32 copy of the logits (default: off)", "on|off"),
    "delay_wgrad_compute": Option(
        switch, "weight gradients apart from the rest of backward, beside the all-to-all that overlap ep hides (default: off)", "on|off"
    ),
    "grouped_experts": Option(switch, "the experts of a rank in one grouped product (default: on)", "on|off"),
    "overlap": Option(
        overlap, "comma list of grad-reduce, param-gather, tp, pp, ep; none; all (of them but ep)", "LIST", column=True, names=True
    ),
    "flash_attention": Option(switch, "flash attention (default: on where the device has it)", "on|off"),
    "attention_kernel": Option(
        one_of(("flash-1", "flash-2", "flash-3")), "generation of the flash kernel (default: the framework's)", "NAME"
    ),
    "cuda_graphs": Option(one_of(defaults.CUDA_GRAPHS), "what CUDA graphs replay: none, partial (all but routed experts), full", "WHAT"),
    "layers_per_stage": Option(stage_layers, "explicit comma list of layers per pipeline stage", "LIST"),
    "first_stage_layers": Option(none_or_more, "layers of the first pipeline stage; the others share the rest", column=True),
    "last_stage_layers": Option(none_or_more, "layers of the last pipeline stage; the others share the rest", column=True),
    "mtp_stage": Option(none_or_more, "with layers_per_stage, the stage, from 0, of the layers for further tokens (default: the last)"),
    "count_embedding": Option(switch, "embedding and loss take a layer's place each when layers are split", "on|off"),
    "mtp_layers": Option(none_or_more, "layers that predict further tokens (default: the model's own)", "N"),
    "cp_method": Option(
        one_of(defaults.CP_METHODS),
        "how context ranks share attention: ring, all-to-all, all-gather, all-to-all+ring (default: ring)",
        "HOW",
    ),
    "cp_inner": Option(
        whole, "with all-to-all+ring: ranks that trade heads (default: what divides the key heads inside a scale-up domain)"
    ),
    "cp_balance": Option(
        switch, "each context rank takes a chunk from either end of the sequence, so that the causal mask is even (default: on)", "on|off"
    ),
    "document_length": Option(whole, "length-weighted mean length of documents packed into a sequence (default: one a sequence)"),
    "gradient_dtype": Option(one_of(("fp32", "bf16")), "what gradients are held and reduced in (default: the framework's)", "NAME"),
    "offload": Option(offload, "comma list of optimizer, activations: held in host memory", "LIST", column=True, names=True),
    "offload_layers": Option(whole, "of a stage's layers, how many offload their activations (default: all)", "N"),
    "offload_fraction": Option(share, "of the optimizer's states, what --offload optimizer moves to the host (default 1)", "X"),
    "offload_overlap": Option(switch, "the host updates tensor by tensor beside the copies of others (default: off)", "on|off"),
    "lora_rank": Option(whole, "train low-rank adapters of this rank, the rest frozen"),
    "lora_targets": Option(
        adapter_targets,
        "layers with an adapter: attention (default), mlp, all, or a list of qkv (q, k, v), proj, fc1 (gate, up), fc2, experts, router",
        "LIST",
    ),
    "frozen_weights": Option(one_of(("fp8", "nf4")), "what adapters leave frozen is stored in (default: as trained weights)", "NAME"),
    "frozen_layers": Option(none_or_more, "layers at the front that are not trained, nor the embedding below them", "N"),
    "evaluate_every": Option(whole, "steps between evaluations", "STEPS"),
    "evaluation_tokens": Option(tokens, "tokens of one evaluation (forward only)", "TOKENS"),
    "checkpoint_every": Option(
        whole, "steps between checkpoints, which the failure-free run then writes too (default: what loses least with failures)", "STEPS"
    ),
    "checkpoint_bandwidth": Option(
        positive("B/s"), "what storage takes in all, such as 100GB/s (default: what BLOOM wrote for each accelerator)", "RATE"
    ),
    "mttf": Option(duration, "time of one accelerator between failures that stop the run, such as 50000h (default: Llama 3's)", "TIME"),
    "restart_time": Option(duration, "from a failure to work again, such as 15min (default: at most what Llama 3 lost for each)", "TIME"),
    "correction": Option(text, "file of ironlaw validate --mine: what your own runs say of the level of step times", "TOML"),
    "tokens": Option(tokens, "tokens of the whole run, such as 15T; absent: no run section", "TOKENS"),
    "price": Option(price, "USD per accelerator hour, or provider/term (default: newest on-demand price)", "PRICE"),
    "grid": Option(grid, "region, or g/kWh (default: world average)", "GRID"),
    "pue": Option(at_least_one, "power usage effectiveness of the data centre", "X"),
}
DEFAULTS: dict[str, Any] = {
    "optimizer": defaults.OPTIMIZER,
    "count_embedding": False,
    "cp": 1.0,
    "etp": 1.0,
}


def flag(name: str, where: str = "") -> str:
    """How the user knows the option: ``--global-batch-size`` or ``global_batch_size in run.toml``."""
    return f"{name} in {where}" if where else f"--{name.replace('_', '-')}"


def read_options(given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """The values of ``given`` read and checked; unknown names and wrong values are errors that say where."""
    values: dict[str, Any] = {}
    for raw, value in given.items():
        name = raw.replace("-", "_")
        if name not in OPTIONS:
            hint = ", ".join(nearest_names(name, OPTIONS)) or ", ".join(OPTIONS)
            raise QuestionError(f"unknown option {raw!r}{' in ' + where if where else ''}; nearest: {hint}")
        if value is None:
            continue
        option = OPTIONS[name]
        try:
            if option.column and is_column(value) and not (option.names and all(isinstance(v, str) for v in value)):
                values[name] = [option.read(v, flag(name, where)) for v in flat(value)]
            else:
                values[name] = option.read(value, flag(name, where))
        except UnitError as error:
            raise UnitError(str(error)) from None
    return values


def is_column(value: Any) -> bool:
    """True for a sequence or array of values, not for a text or a set of names."""
    return not isinstance(value, (str, bytes, Mapping, set, frozenset)) and hasattr(value, "__len__")


def flat(value: Any) -> list[Any]:
    """A column's items as Python values."""
    return value.ravel().tolist() if hasattr(value, "ravel") else list(value)
