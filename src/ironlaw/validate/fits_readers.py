"""Readers of tables of runs that fitted or failed: what each row asks, what it measured, and how it ended.

``HEADERS`` has a reader for each known header: the baselines of prime-rl, the benchmarks of fms-acceleration (Hugging Face Trainer), the
finetuning table of LitGPT, and the benchmarks of ms-swift.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.records import Accelerator
from ironlaw.catalog.spellings import known_names
from ironlaw.errors import nearest_names
from ironlaw.files import read_shipped
from ironlaw.validate.fill import SkipError, named_sizes, number, short
from ironlaw.validate.peaks import UNITS
from ironlaw.validate.runs import DATA

PACKED = 0.01  # mean tokens of packed samples are as near as this to a multiple of PACK
PACK = 1024.0  # tokens: packed samples are a multiple of it long
COLUMNS = {  # a column of the table of sizes -> a dimension of a model
    "layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim", "ffn_hidden": "intermediate_size", "gated_mlp": "gated_mlp", "vocab": "vocab_size",
    "tied": "tie_word_embeddings",
}  # fmt: skip
Cells = Mapping[str, str]


@dataclass(frozen=True)
class Asked:
    """What a row asks, what it measured, and how it ended."""

    options: dict[str, Any]
    ran: bool
    failed_with: str = ""  # the text of the failure, where the table has one
    measured_bytes: float | None = None
    kind: str = ""  # of the measured peak: allocated | reserved
    rules: tuple[str, ...] = ()


# --- prime-rl ------------------------------------------------------------------------------------------------------------

PRIME_ADAPTERS = 4  # sets of adapters at once: MAX_LORAS of prime-rl's benchmarks/scripts/run_single_benchmark.py
PRIME_TRAINERS = {"rl": "prime-rl", "sft": "prime-rl-sft"}
PRIME_RECOMPUTE = {"Recompute": ("full", None), "Offload": ("full", "activations"), "None": ("none", None)}
KERNELS = {"flash_attention_2": "flash-2", "flash_attention_3": "flash-3"}


def read_prime_rl(cells: Cells, folders: tuple[str, ...]) -> Asked:
    """A row of prime-rl's baselines. Their peak is ``torch.cuda.max_memory_reserved`` of a trainer (trainer/rl/train.py)."""
    gpus, sequence, count = (_whole(cells, name) for name in ("num_gpus", "seq_len", "micro_batches"))
    cp, ep = (_whole(cells, name, 1) for name in ("cp", "ep"))
    if gpus % cp:
        raise SkipError(f"cp {cp:g} does not divide num_gpus {gpus:g}")
    if (kind := cells.get("type", "")) not in PRIME_TRAINERS:
        raise SkipError(f"type is {short(kind)!r}, must be rl or sft")
    if (how := cells.get("ac", "")) not in PRIME_RECOMPUTE:
        raise SkipError(f"ac is {short(how)!r}, must be Recompute, Offload or None")
    if (kernel := KERNELS.get(cells.get("attention", ""))) == "flash-3" and not (on := _accelerator(cells, folders)).flash_3:
        raise SkipError(f"flash_attention_3 has no kernel for {on.architecture}: the run failed for this, whatever its memory")
    recompute, offload = PRIME_RECOMPUTE[how]
    options: dict[str, Any] = {
        "model": _known("models", cells.get("model", ""), folders),
        "on": _known("accelerators", cells.get("device", ""), folders),
        "gpus": gpus,
        "framework": PRIME_TRAINERS[kind],
        "seq_len": sequence,
        "micro_batch_size": 1,
        "global_batch_size": count * gpus / cp,
        "recompute": recompute,
        "offload": offload,
        "attention_kernel": kernel,
        **_sharded(gpus / cp, cp=cp, ep=ep),
    }
    if cells.get("lora_rank"):
        options |= {"lora_rank": _whole(cells, "lora_rank"), "lora_targets": "all", "lora_sets": PRIME_ADAPTERS}
    if (ended := cells.get("fits", "")) not in ("yes", "no"):
        raise SkipError(f"fits is {short(ended)!r}, must be yes or no")
    return Asked(options, ended == "yes", cells.get("error", ""), _peak(cells, "peak_gib"), "reserved")


# --- Hugging Face Trainer ------------------------------------------------------------------------------------------------

FOUR_BITS = {"bnb": "nf4", "autogptq": "gptq"}  # words of framework_config, and the format of the weights
LOADERS = {"liger": "fms-acceleration-liger", "foak": "fms-acceleration", "accelerated": "fms-acceleration-peft"}  # first that applies


def read_trainer(cells: Cells, folders: tuple[str, ...]) -> Asked:
    """A row of the benchmarks of fms-acceleration, whose peak is ``torch.cuda.max_memory_allocated`` as the Trainer reports it.

    Their settings (scripts/benchmarks/defaults.yaml, scenarios.yaml and accelerate.yaml of foundation-model-stack/fms-acceleration):
    gradient checkpointing, flash attention, adapters on the attention's four products, FSDP that shards weights on more than one GPU.
    """
    words = cells.get("framework_config", "").split("-")
    if "moe" in words or "scattermoe" in words:
        raise SkipError("experts of scattermoe are not modelled")
    gpus, micro = _whole(cells, "num_gpus"), _whole(cells, "per_device_train_batch_size")
    sequence, rules = _sequence(cells)
    adapters = cells.get("peft_method", "")
    if adapters not in ("", "lora"):
        raise SkipError(f"peft_method is {short(adapters)!r}, must be lora or blank")
    framework = next((name for word, name in LOADERS.items() if word in words), "huggingface")
    options: dict[str, Any] = {
        "model": _known("models", cells.get("model_name_or_path", ""), folders),
        "on": "a100-sxm-80gb",
        "gpus": gpus,
        "framework": framework,
        "seq_len": sequence,
        "micro_batch_size": micro,
        "global_batch_size": micro * gpus * _accumulated(cells, gpus, micro),
        "recompute": "full",
        "precision": "fp16" if cells.get("torch_dtype") == "float16" else "bf16",
        **_sharded(gpus),
    }
    if adapters:
        stored = next((FOUR_BITS[w] for w in words if w in FOUR_BITS), None)
        options |= {"lora_rank": _whole(cells, "r"), "lora_targets": "attention", "frozen_weights": stored}
    elif not (cells.get("bf16") or cells.get("fp16")) or gpus == 1:
        # weights stay in the type in which they were loaded: only FSDP with mixed precision widens them
        options |= {"optimizer": "adamw-bf16", "gradient_dtype": "bf16"}
        rules += ("weights, gradients and moments in the type in which weights were loaded",)
    peak = _peak(cells, "mem_peak_torch_mem_alloc_gib")
    if sequence % PACK and peak is not None:
        rules += ("no peak: samples are padded to the longest of a batch, which is not stated",)
        peak = None
    return Asked(options, cells.get("status", "") == "ran", "", peak, "allocated", rules)


def _sequence(cells: Cells) -> tuple[float, tuple[str, ...]]:
    """Tokens of a sample: packed ones have a multiple of PACK; others their mean."""
    mean = number(cells.get("tokens_per_sample"))
    if not mean > 0:
        raise SkipError("no length of samples: tokens_per_sample")
    packed = round(mean / PACK) * PACK
    if packed and abs(mean / packed - 1.0) <= PACKED:
        return packed, ()
    return float(np.ceil(mean)), ("samples as long as the mean",)


def _accumulated(cells: Cells, gpus: float, micro: float) -> float:
    """Micro-batches of a step: samples of a step over samples of a micro-batch, else as stated, else one."""
    samples, steps = number(cells.get("train_samples_per_second")), number(cells.get("train_steps_per_second"))
    if samples > 0 and steps > 0:
        return float(max(round(samples / steps / (gpus * micro)), 1))
    return _whole(cells, "gradient_accumulation_steps", 1)


# --- LitGPT --------------------------------------------------------------------------------------------------------------

TUNED = ("full", "lora", "qlora")  # a configuration's file
ALPACA_STEP = 8.0  # global batch of the configurations, in sequences; a step of more only adds micro-batches


def read_litgpt(cells: Cells, folders: tuple[str, ...]) -> Asked:
    """A row of the finetuning table of LitGPT, whose peak is ``torch.cuda.max_memory_allocated() / 1e9`` (litgpt/finetune/lora.py).

    Its configurations (config_hub/finetune): bf16-true, no checkpoints on one device, AdamW, adapters as ``adapters.toml`` lists them. The
    output layer is a matrix apart from the embedding in all of its models. Samples are padded to the longest of a micro-batch, the
    longest are cut: the fullest micro-batch is as long as the limit.
    """
    folder, _, file = cells.get("config", "").partition("/")
    if (how := file.removesuffix(".yaml")) not in TUNED:
        raise SkipError(f"config is {short(cells.get('config', ''))!r}, must be a folder and full.yaml, lora.yaml or qlora.yaml")
    count, _, machine = cells.get("machine", "").partition("x")
    micro = _whole(cells, "micro_batch")
    options: dict[str, Any] = {
        "model": _sizes(cells.get("model", ""), folders, tie_word_embeddings=False),
        "on": _known("accelerators", machine, folders),
        "gpus": _whole({"machine": count}, "machine"),
        "framework": "litgpt",
        "seq_len": _whole(cells, "seq_len"),
        "micro_batch_size": micro,
        "global_batch_size": max(ALPACA_STEP, 2.0 * micro),
        "recompute": "none",
        "optimizer": "adamw-bf16",
        "gradient_dtype": "bf16",
        **_sharded(1.0),
    }
    if how != TUNED[0]:
        options |= adapters_of(folder)
        options["frozen_weights"] = "nf4" if how == "qlora" else None
    ended = cells.get("peak_memory", "")
    if ended == "OOM":
        return Asked(options, False, ended)
    value, _, unit = ended.partition(" ")
    return Asked(options, True, "", _peak({"peak_memory": value}, "peak_memory", UNITS.get(unit)), "allocated")


# --- ms-swift ------------------------------------------------------------------------------------------------------------

SWIFT = {"Max Length": 2048.0, "Batch Size": 1.0, "LoRA Rank": 8.0, "Gradient Accumulation Steps": 16.0}  # where blank: its Benchmark.md
QUANTISED = {"": None, "bf16": None, "int4 (bnb)": "nf4", "int4 (gptq)": "gptq"}
TARGETS = {"": "qkv", "DEFAULT": "qkv", "DEFAULT (c_attn)": "qkv", "ALL (all linear)": "qkv,proj,gate,up,fc2"}
YES, NO = "\u2714", "\u2718"


def read_swift(cells: Cells, folders: tuple[str, ...]) -> Asked:
    """A row of the benchmarks of ms-swift, whose memory is what the caching allocator held (torch.cuda.max_memory_reserved).

    Samples are cut at the limit: most are longer than 2,048 tokens, the longest has 19,548 (its Benchmark.md).
    """
    if "(2*A100)" in cells.get("Training Speed (samples/s)", ""):
        raise SkipError("layers split over two devices that work in turn (device_map) are not modelled")
    if (weights := cells.get("Quantization", "")) not in QUANTISED:
        raise SkipError(f"{short(weights)} weights are not modelled")
    if cells.get("Use Flash Attn") == NO:
        raise SkipError("the stack's attention without flash is not modelled")
    for column in ("Use Flash Attn", "Gradient Checkpointing"):
        if cells.get(column, "") not in ("", YES, NO):
            raise SkipError(f"{column} is {short(cells[column])!r}, must be {YES}, {NO} or blank")
    sequence, micro, rank, steps = (_whole(cells, name, blank) for name, blank in SWIFT.items())
    options: dict[str, Any] = {
        "model": _sizes(cells.get("Model Type", "").removesuffix("-chat"), folders),
        "on": "a100-sxm-80gb",
        "gpus": 1.0,
        "framework": "ms-swift",
        "seq_len": sequence,
        "micro_batch_size": micro,
        "global_batch_size": micro * steps,
        "recompute": "none" if cells.get("Gradient Checkpointing") == NO else "full",
        "optimizer": "adamw-bf16",
        "gradient_dtype": "bf16",
        **_sharded(1.0),
    }
    if cells.get("tuner") == "lora":
        targets = cells.get("LoRA Target Modules", "")
        if targets not in TARGETS:
            raise SkipError(f"LoRA Target Modules is {short(targets)!r}, must be {', '.join(name for name in TARGETS if name)} or blank")
        options |= {"lora_rank": rank, "lora_targets": TARGETS[targets], "frozen_weights": QUANTISED[weights]}
    return Asked(options, True, "", _peak(cells, "GPU Memory (GiB)"), "reserved")


# --- all -----------------------------------------------------------------------------------------------------------------

Reader = Callable[[Cells, tuple[str, ...]], Asked]
HEADERS: dict[str, tuple[tuple[str, ...], Reader]] = {
    "prime-rl": (("model", "device", "num_gpus", "type", "seq_len", "ac", "fits", "peak_gib"), read_prime_rl),
    "fms-acceleration": (
        ("model_name_or_path", "framework_config", "num_gpus", "per_device_train_batch_size", "tokens_per_sample", "status"),
        read_trainer,
    ),
    "litgpt": (("config", "model", "seq_len", "micro_batch", "machine", "peak_memory"), read_litgpt),
    "ms-swift": (("tuner", "Model Type", "Quantization", "GPU Memory (GiB)", "Max Length", "Batch Size"), read_swift),
}


def adapters_of(name: str) -> dict[str, Any]:
    """Rank and targets of the adapters of a LitGPT configuration; those of most configurations where it is not listed."""
    table = tomllib.loads(read_shipped(DATA / "adapters.toml"))
    found = table.get(name, table["any"])
    return {"lora_rank": float(found["rank"]), "lora_targets": found["targets"]}


def _sizes(name: str, folders: tuple[str, ...], **changed: Any) -> dict[str, Any]:
    """The dimensions of a model of the catalogue, else of the table of sizes by name. SkipError where neither has it."""
    sizes = named_sizes().get(load.fold_name(name))
    if sizes is not None and load.fold_name(name) not in known_names("models", folders):
        return {field: sizes[column] for column, field in COLUMNS.items() if column in sizes} | changed
    record = load.record("models", _known("models", name, folders), folders)
    return {field: getattr(record, field) for field in COLUMNS.values()} | changed


def _accelerator(cells: Cells, folders: tuple[str, ...]) -> Accelerator:
    """The accelerator of a row. SkipError where the catalogue has none of its name."""
    accelerator: Accelerator = load.record("accelerators", _known("accelerators", cells.get("device", ""), folders), folders)
    return accelerator


def _sharded(ranks: float, cp: float = 1, ep: float = 1) -> dict[str, Any]:
    """The plan of a trainer that only shards."""
    return {"tp": 1, "pp": 1, "cp": cp, "ep": ep, "zero": 3, "dp_shard": ranks, "dp_replicate": 1}


def _known(kind: str, name: str, folders: tuple[str, ...]) -> str:
    """A name of the catalogue. SkipError where it has none."""
    what = kind.removesuffix("s")
    if not name:
        raise SkipError(f"no {what}")
    if load.fold_name(name) not in known_names(kind, folders):
        near = nearest_names(name.rpartition("/")[2], load.names(kind, folders))
        raise SkipError(f"unknown {what} {short(name)!r}" + (f"; nearest: {', '.join(near)}" if near else ""))
    return name


def _whole(cells: Cells, name: str, blank: float | None = None) -> float:
    """A cell that is a whole number above 0. SkipError otherwise."""
    if not cells.get(name) and blank is not None:
        return blank
    value = number(cells.get(name))
    if not 1 <= value < 1e9 or value != int(value):
        raise SkipError(f"{name} is {short(cells.get(name) or '')!r}, must be a whole number above 0")
    return value


def _peak(cells: Cells, name: str, unit: float | None = UNITS["GiB"]) -> float | None:
    """A measured peak [B]; None where it is blank."""
    if not cells.get(name):
        return None
    value = number(cells[name])
    if not 0 < value < 1e6 or unit is None:
        raise SkipError(f"{name} is {short(cells[name])!r}, must be a number of GiB above 0")
    return value * unit
