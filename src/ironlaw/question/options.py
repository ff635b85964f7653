"""Every option of an estimate, once: the command line, TOML files, CSV columns and Python all read this table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError, nearest_names
from ironlaw.frozen import Frozen
from ironlaw.question import defaults, synonyms
from ironlaw.question.words import adapter_targets, batch_tokens, length, offload, overlap, recompute, run_tokens, tokens


class Option(Frozen):
    """One option: its reader, its help line, and whether Python may give a column of values."""

    read: Callable[[Any, str], Any]
    help: str
    metavar: str = "N"
    column: bool = False
    names: bool = False  # the value is a set of names: a list of texts is one value, a list of sets is a column


whole, switch = units.parse_whole, units.parse_switch
none_or_more = partial(units.parse_whole, least=0)


def stage(value: Any, flag: str) -> float:
    """Read a ZeRO stage."""
    number = units.parse_count(value, flag)
    if number not in (0, 1, 2, 3):
        raise ValueRangeError(f"{flag} is {value}, must be 0, 1, 2 or 3")
    return number


def text(value: Any, flag: str) -> str:
    """Read a name."""
    if not isinstance(value, str) or not value.strip():
        raise ValueRangeError(f"{flag} is {value!r}, must be a name")
    return value.strip()


def precision(value: Any, flag: str) -> str:
    """Read the name of a precision: one that ships, or one of the user's catalogue, which is looked up with the question's records."""
    return text(value, flag).lower().replace("_", "-")


def model(value: Any, flag: str) -> Any:
    """Read a model: a name, a path, ``field=value,...`` dimensions, or a table of them."""
    if isinstance(value, Mapping):
        return dict(value)
    return text(value, flag)


CHOICES: dict[Callable[[Any, str], Any], tuple[str, ...]] = {}  # of readers of one name, for the completion of a shell


def one_of(choices: tuple[str, ...]) -> Callable[[Any, str], str]:
    """Make a reader of one name of ``choices``."""

    def read(value: Any, flag: str) -> str:
        """Read one of the choices, in any case."""
        name = str(value).strip().lower()
        if name not in choices:
            raise UnknownNameError(flag, str(value), choices)
        return name

    CHOICES[read] = choices
    return read


MOST_LOADS = 1_000_000  # experts times layers: three times those of the largest model


def expert_load(value: Any, flag: str) -> Any:
    """Read the loads of experts: the name of a shape or a file, or numbers by expert, or by layer and expert."""
    if isinstance(value, str):
        return text(value, flag)
    rows = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(rows, (list, tuple)) or not rows:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be a file, a shape or a list of numbers")
    if sum(len(row) if isinstance(row, (list, tuple)) else 1 for row in rows) > MOST_LOADS:
        raise ValueRangeError(f"{flag} has more than {MOST_LOADS:,} numbers")
    return tuple(tuple(row) if isinstance(row, (list, tuple)) else row for row in rows)


def spread(value: Any, flag: str) -> float:
    """Read a deviation over a mean, from 0 to 10."""
    number = units.parse(value, "1", flag)
    if not 0.0 <= number <= 10.0:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be from 0 to 10")
    return number


def expert_placement(value: Any, flag: str) -> str:
    """Read how experts are placed on ranks.

    >>> expert_placement("balanced", "--expert-placement"), expert_placement("redundant:32", "--expert-placement")
    ('balanced', 'redundant:32')
    """
    how, _, count = str(value).strip().lower().partition(":")
    if how not in defaults.EXPERT_PLACEMENTS:
        raise UnknownNameError(flag, how, defaults.EXPERT_PLACEMENTS)
    if how != "redundant":
        if count:
            raise ValueRangeError(f"{flag} {how} has no number, got {units.shorten(count)}")
        return how
    return f"{how}:{int(whole(count, f'{flag} redundant'))}"


def stage_layers(value: Any, flag: str) -> tuple[int, ...]:
    """Read a comma list of layers per pipeline stage."""
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return tuple(int(none_or_more(item, flag)) for item in items)


def one_name(value: Any, flag: str) -> str:
    """Read one name; several are compared by other verbs."""
    name = text(value, flag)
    if "," in name:
        raise QuestionError(f"{flag} is {name}: one name is asked for here; ironlaw plan and ironlaw compare take several")
    return name


def one_count(value: Any, flag: str) -> float:
    """Read one count of accelerators; several are compared by other verbs."""
    if isinstance(value, str) and ("," in value or ".." in value):
        raise QuestionError(f"{flag} is {units.shorten(value)}: one number is asked for here; estimate, plan and sweep take several")
    return whole(value, flag)


def price(value: Any, flag: str) -> Any:
    """Read a price: USD per accelerator hour, or provider/term."""
    if isinstance(value, bool):
        raise ValueRangeError(f"{flag} is {value}, must be a price")
    number = _to_float(value)
    if number is None:
        return text(value, flag)
    if not 0 <= number <= 1e6:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 to 1e6 USD per accelerator hour")
    return number


def grid(value: Any, flag: str) -> Any:
    """Read a carbon intensity: a region's name, or grams per kWh."""
    if isinstance(value, bool):
        raise ValueRangeError(f"{flag} is {value}, must be a region or g/kWh")
    number = _to_float(value)
    if number is None:
        if str(value).strip().endswith("/kWh"):
            return units.parse(value, "kg/J", flag) * 3.6e9
        return text(value, flag)
    if not 0 <= number <= 1e4:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 to 10000 g/kWh")
    return number


def _to_float(value: Any) -> float | None:
    """A number, nan and infinity included, so that the message is about its size; None for a name."""
    if isinstance(value, str) and (not value.isascii() or value.strip().startswith("+")):
        return None
    try:
        return units.to_float(value)
    except (TypeError, ValueError):
        return None


def torus_topology(value: Any, flag: str) -> tuple[int, ...]:
    """Read the chips of each axis of a slice, such as 4x4x8."""
    sides = value if isinstance(value, (list, tuple)) else re.split(r"[x,*]", str(value).strip().lower())
    if not 1 <= len(sides) <= 3:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be chips of each axis, such as 4x4x8")
    return tuple(int(whole(side, flag)) for side in sides)


def oversubscription(value: Any, flag: str) -> float:
    """Read how many times the rate of its NICs exceeds that of the links above a layer of switches: 7, 7:1 or 1:7."""
    first, colon, second = str(value).partition(":")
    parts = [units.parse(part, "1", flag) for part in ((first, second) if colon else (value, "1"))]
    ratio = max(parts) / min(parts) if colon and min(parts) > 0.0 else parts[0]
    if not 1.0 <= ratio <= units.LARGEST or min(parts) <= 0.0:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be a ratio such as 3:1, or a number of at least 1")
    return ratio


LEAST, MOST = 1e-30, 1e60  # limits of a measured value: products of larger values overflow


def positive(unit: str) -> Callable[[Any, str], float]:
    """Make a reader of quantities in ``unit`` above zero."""

    def read(value: Any, flag: str) -> float:
        """Read a quantity above zero."""
        number = units.parse(value, unit, flag)
        if not LEAST <= number <= MOST:
            raise ValueRangeError(
                f"{flag} is {units.shorten(value)}, must be {f'at most {MOST:g}' if number > MOST else 'more than 0 and finite'}"
            )
        return number

    return read


LONGEST = 1e15  # seconds; a longer time is a typing error


def share(value: Any, flag: str) -> float:
    """Read a part of a whole: above 0, at most 1."""
    number = units.parse(value, "1", flag)
    if not LEAST <= number <= 1.0:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be above 0 and at most 1")
    return number


def margin(value: Any, flag: str) -> float:
    """Read a share from 0 to below 1."""
    number = units.parse(value, "1", flag)
    if not 0.0 <= number < 1.0:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be from 0 to less than 1, such as 0.05 or 5%")
    return number


def duration(value: Any, flag: str) -> float:
    """Read a time with its unit, such as 50000h or 15min. A bare number is refused: it could be seconds or hours."""
    if units.bare_number(value) is not None:
        raise ValueRangeError(f"{flag} is {value}, which has no unit: give one of s, min, h, d, w, such as {value}h")
    number = units.parse(value, "s", flag)
    if not LEAST <= number <= LONGEST:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be more than 0 and at most {LONGEST:g} s")
    return number


def at_least_one(value: Any, flag: str) -> float:
    """Read a number of at least 1."""
    number = units.parse(value, "1", flag)
    if not 1 <= number <= units.LARGEST:
        raise ValueRangeError(
            f"{flag} is {units.shorten(value)}, must be {f'at most {units.LARGEST:g}' if number > units.LARGEST else 'at least 1'}"
        )
    return number


def graphs(value: Any, flag: str) -> str:
    """Read what runs as a captured graph: a name, or a list of modules."""
    text = str(value).strip()
    if text in defaults.CUDA_GRAPHS:
        return text
    modules = tuple(dict.fromkeys(re.split(r"[,+\s]+", text)))
    if not modules or not set(modules) <= set(defaults.GRAPH_MODULES):
        known = ", ".join((*defaults.CUDA_GRAPHS, *defaults.GRAPH_MODULES))
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be one of {known}, or a list of modules")
    return ",".join(modules)


def _names(names: tuple[str, ...], default: str = "") -> str:
    return ", ".join(names) + (f" (default: {default})" if default else "")


BATCH_MI = defaults.BATCH_TOKENS / 2**20
ROUNDING = Option(one_of(defaults.ROUNDINGS), f"rounding of steps: {_names(defaults.ROUNDINGS, defaults.ROUNDING)}", "HOW")
TOKENS_PER_SECOND = Option(
    tokens, "measured tokens per second of all accelerators, such as 150k: its MFU, its loss and likely causes", "RATE"
)

OPTIONS: dict[str, Option] = {
    # --- the hardware
    "model": Option(model, "model: a catalogue name, a config.json (file or folder), or hidden_size=...,num_hidden_layers=...", "MODEL"),
    "on": Option(text, "accelerator, by catalogue name", "ACCELERATOR"),
    "gpus": Option(one_count, "total accelerators", column=True),
    "node": Option(text, "node, by catalogue name (default: the accelerator's usual one)", "NAME"),
    "fabric": Option(text, "fabric between nodes (default: the node's usual one)", "NAME"),
    "scale_up_size": Option(whole, "accelerators joined by scale-up links (default: the node's)", "N"),
    "gpus_per_domain": Option(whole, "accelerators of each scale-up domain that the job takes (default: as its groups divide)", "N"),
    "topology": Option(torus_topology, "chips of each axis of a slice of a torus, such as 4x4x8 (default: the most cubic slice)", "AxBxC"),
    "nic_bandwidth": Option(positive("B/s"), "NIC bandwidth per accelerator and direction, such as 50GB/s (default: the node's)", "RATE"),
    "power_cap": Option(positive("W"), "power limit of one accelerator, such as 500W (default: none, its rated power)", "POWER"),
    "network_share": Option(
        share,
        f"part of the NICs' bandwidth that other jobs leave to this one, above 0 and at most 1 (default: {defaults.NETWORK_SHARE:g})",
        "SHARE",
    ),
    "oversubscription": Option(
        oversubscription, "rate of the NICs of a pod over that of the links that leave it, such as 3:1 (default: the fabric's, else 1)", "R"
    ),
    "pod_size": Option(
        whole,
        "with --oversubscription, accelerators that reach each other at the NICs' whole rate: of a leaf switch, of the leaves of all rails,"
        " or of a pod (default: the fabric's, else a leaf, times the rails if rail-optimised)",
        "N",
    ),
    "rail_optimised": Option(switch, "NICs of one position in all nodes share leaf switches (default: the fabric's)", "on|off"),
    "in_network_reduction": Option(
        one_of(defaults.IN_NETWORK_REDUCTIONS),
        "all-reduces that switches add: nvls, in an NVSwitch domain; sharp, gradients on InfiniBand; on, both where there are; off, none"
        " (default: nvls where NCCL took it when it was measured)",
        "HOW",
    ),
    # --- the batch and the mesh
    "framework": Option(
        one_name,
        "training framework (default: the accelerator's usual one, else fsdp with --gpus 1 or --tp 1 --pp 1, else megatron)",
        "NAME",
    ),
    "global_batch_size": Option(
        whole, f"sequences per optimizer step (default: about {defaults.BATCH_TOKENS / 2**20:g} Mi tokens)", column=True
    ),
    "global_batch_tokens": Option(batch_tokens, "tokens per optimizer step, such as 4M (4 Mi), instead of --global-batch-size", "TOKENS"),
    "seq_len": Option(
        length, f"tokens per sequence, such as 4096 or 128k (default: the model's maximum, at most {defaults.SEQ_LEN:g})", column=True
    ),
    "micro_batch_size": Option(whole, "sequences per micro-batch on one data-parallel rank (default: searched)", column=True),
    "tp": Option(whole, "tensor-parallel size (default: searched)", column=True),
    "sp": Option(switch, "sequence parallelism (default: on where tp > 1)", "on|off", column=True),
    "pp": Option(whole, "pipeline-parallel size (default: searched)", column=True),
    "vpp": Option(whole, "model chunks per pipeline rank (default: searched)", column=True),
    "cp": Option(whole, f"context-parallel size (default: searched; {defaults.CP:g} with a whole plan given)", column=True),
    "ep": Option(whole, "expert-parallel size (default: searched)", column=True),
    "etp": Option(
        whole, f"tensor-parallel size of one expert (default: {defaults.ETP:g}; a --space file can list others to search)", column=True
    ),
    "expert_imbalance": Option(
        at_least_one, f"load of the busiest expert rank over the mean (default: {defaults.EXPERT_IMBALANCE:g}, balanced)", "X"
    ),
    "expert_load": Option(
        expert_load,
        f"loads of experts: a file (CSV, JSON), one number an expert, by layer or for all; a record; {', '.join(defaults.EXPERT_LOADS)}",
        "FILE|SHAPE",
    ),
    "expert_placement": Option(
        expert_placement,
        "with --expert-load, experts on ranks: in-order, balanced, or redundant:R, which copies the busiest into R more slots"
        f" (default: {defaults.EXPERT_PLACEMENT})",
        "HOW",
    ),
    "load_spread": Option(
        spread, "with --expert-load, deviation of an expert's load from step to step over its mean, such as 0.1 (default: 0)", "X"
    ),
    "routing_noise": Option(
        switch, "with --expert-load, tokens choose at random with these loads; off: every micro-batch has them (default: on)", "on|off"
    ),
    "moe_dispatcher": Option(
        one_of(defaults.DISPATCHERS),
        f"all-to-all of experts: {', '.join(defaults.DISPATCHERS)} (default: the fastest that the framework has;"
        f" {defaults.DISPATCHER} with a whole plan given)",
        "HOW",
    ),
    "dispatch_precision": Option(
        one_of(defaults.DISPATCH_PRECISIONS),
        f"format of dispatched rows: fp8, fp8-forward (gradients stay wide), wide (two bytes) (default: {defaults.DISPATCH_PRECISION})",
        "NAME",
    ),
    "capacity_factor": Option(positive("1"), "expert capacity over the mean load (default: dropless)", "X"),
    "dp_replicate": Option(whole, "data-parallel replicas (default: searched)", column=True),
    "dp_shard": Option(whole, "data-parallel shards (default: searched)", column=True),
    "zero": Option(
        stage, "ZeRO stage: 0 none, 1 shards states, 2 gradients too, 3 weights too (default: searched)", "0|1|2|3", column=True
    ),
    "recompute": Option(
        recompute,
        "activation checkpointing (recomputation): none; selective[:OPERATORS]; full, every layer; segments:K, all layers with one"
        " checkpoint for K layers; every:K, one layer in K; share:F, of the layers (default: searched)",
        "HOW",
        column=True,
    ),
    # --- precision and optimizer
    "precision": Option(
        precision, f"format of linear layers: {_names(defaults.PRECISIONS, 'bf16, or fp16 where the device lacks it')}", "NAME"
    ),
    "expert_precision": Option(precision, "format of the routed experts' products (default: --precision)", "NAME"),
    "fp8_scaling": Option(one_of(("current", "delayed")), "scaling of --precision fp8: current, delayed (default: the framework's)", "HOW"),
    "fp8_param_gather": Option(
        switch, "store and all-gather fp8 or fp4 weights as fp8 or fp4 (default: off; torchtitan in fp8: on)", "on|off"
    ),
    "bf16_layers_at_start": Option(none_or_more, "first layers kept in bf16 under a narrow precision (default: 0)", "N"),
    "bf16_layers_at_end": Option(none_or_more, "last layers kept in bf16 under a narrow precision (default: 0)", "N"),
    "optimizer": Option(text, f"optimizer: `ironlaw catalog list optimizers` (default: {defaults.OPTIMIZER}, or the framework's)", "NAME"),
    "optimizer_rank": Option(whole, "rank of the gradients of --optimizer galore (default: a quarter of each matrix's smaller side)"),
    # --- pipeline
    "schedule": Option(one_of(defaults.SCHEDULES), f"pipeline schedule: {_names(defaults.SCHEDULES, defaults.SCHEDULE_RULE)}", "NAME"),
    "microbatch_group": Option(whole, "micro-batches that a chunk runs in a row, interleaved schedule (default: pp)"),
    "deferred_wgrad": Option(whole, "micro-batches whose output-layer weight gradient waits for the end of the pipeline (default: 0)"),
    "fused_loss": Option(switch, "compiled loss, which stores one more fp32 copy of the logits (default: off)", "on|off"),
    "optimizer_in_backward": Option(
        switch,
        "update each weight in the backward pass and free its gradient: less memory, one micro-batch a step (default: off)",
        "on|off",
    ),
    "logits": Option(
        one_of(("whole", "chunked")),
        "the output layer and the loss hold all logits at once, or a chunk at a time (default: the framework's)",
        "HOW",
    ),
    "delay_wgrad_compute": Option(switch, "run weight gradients during the all-to-all of --overlap ep (default: off)", "on|off"),
    "grouped_experts": Option(switch, "grouped GEMM for the experts of a rank (default: on)", "on|off"),
    "overlap": Option(
        overlap,
        f"communication that overlaps computation: {_names(defaults.OVERLAPS)}; none; all (without ep) (default: the framework's)",
        "LIST",
        column=True,
        names=True,
    ),
    # --- kernels
    "flash_attention": Option(switch, "flash attention (default: on where device and framework have it)", "on|off"),
    "attention_precision": Option(
        one_of(defaults.ATTENTION_PRECISIONS),
        f"format of attention's two products: fp8, fp8-forward (backward stays wide), wide (default: {defaults.ATTENTION_PRECISION})",
        "NAME",
    ),
    "attention_kernel": Option(one_of(("flash-1", "flash-2", "flash-3")), "flash-attention generation (default: the framework's)", "NAME"),
    "cuda_graphs": Option(
        graphs,
        f"CUDA graphs: none, partial (attn,mlp,mamba), full, or a list of {', '.join(defaults.GRAPH_MODULES)} (default: none)",
        "WHAT",
    ),
    # --- layers on stages
    "layers_per_stage": Option(stage_layers, "layers of every pipeline stage, comma separated (default: even)", "LIST"),
    "first_stage_layers": Option(none_or_more, "layers of the first pipeline stage (default: even)", column=True),
    "last_stage_layers": Option(none_or_more, "layers of the last pipeline stage (default: even)", column=True),
    "mtp_stage": Option(none_or_more, "stage, from 0, of the multi-token-prediction layers; needs --layers-per-stage (default: the last)"),
    "count_embedding": Option(switch, "count embedding and loss as layers when splitting stages (default: off)", "on|off"),
    "mtp_layers": Option(none_or_more, "multi-token-prediction layers (default: the model's)", "N"),
    # --- what towers and encoders read
    "images_per_sequence": Option(none_or_more, "images that the vision tower reads for each sequence (default: 0, no tower)", "N"),
    "image_size": Option(whole, f"pixels of a side of an image (default: the config's, else {defaults.IMAGE_SIZE})", "PIXELS"),
    "audio_seconds": Option(positive("s"), "audio that the audio tower reads for each sequence, such as 30s (default: none)", "TIME"),
    "encoder_seq_len": Option(length, "tokens that an encoder-decoder reads; --seq-len are those of its decoder (default: the model's)"),
    "frozen_tower": Option(switch, "the towers' weights are not trained (default: off; with LoRA on)", "on|off"),
    # --- context parallel
    "cp_method": Option(one_of(defaults.CP_METHODS), f"context-parallel method: {_names(defaults.CP_METHODS, defaults.CP_METHOD)}", "HOW"),
    "cp_inner": Option(
        whole, "ranks of one all-to-all group of all-to-all+ring (default: the largest in a scale-up domain that divides the key heads)"
    ),
    "cp_balance": Option(switch, "each context rank takes one chunk from either end of the sequence (default: on)", "on|off"),
    "document_length": Option(length, "mean length of packed documents, weighted by length (default: seq_len)"),
    "lengths": Option(
        text,
        "lengths of the documents: a file (CSV, JSON, JSONL, one a line), a catalogue name, or fixed:2048, uniform:LO..HI,"
        " lognormal:median=800,sigma=1.1, zipf:s=1.5,max=8192, 512=3,4096=1 (default: all as --document-length)",
        "FILE|SPEC",
    ),
    "packing": Option(
        one_of(defaults.PACKINGS),
        "documents of --lengths into sequences of seq_len: pack (first fit), pack-best-fit, truncate (one stream, cut), none (padded to the"
        f" longest of the micro-batch), sorted (the same, neighbours alike), pad (to seq_len) (default: {defaults.PACKING})",
        "HOW",
    ),
    "balance": Option(
        one_of(defaults.BALANCES),
        f"sequences of --lengths dealt to ranks: none (at random), sorted (ranks run alike ones), flops (default: {defaults.BALANCE})",
        "HOW",
    ),
    "cp_by_length": Option(
        switch, "each micro-batch of --lengths takes the context ranks that its longest document needs (default: off)", "on|off"
    ),
    "gradient_dtype": Option(one_of(("fp32", "bf16")), "format of stored and reduced gradients (default: the framework's)", "NAME"),
    "weights_dtype": Option(
        one_of(tuple(defaults.WEIGHTS_DTYPES)),
        "type that weights are loaded, stored and updated in: fp32, or bf16 (pure bf16: gradients and Adam's moments are bf16 too, and no"
        " fp32 copy is kept) (default: the framework's)",
        "NAME",
    ),
    # --- offloading
    "offload": Option(
        offload,
        "move to host memory: optimizer, activations, parameters (and gradients and optimizer: FSDP cpu_offload, ZeRO-3 offload_param);"
        " nvme: optimizer states on NVMe; none (default: none)",
        "LIST",
        column=True,
        names=True,
    ),
    "offload_layers": Option(whole, "layers per stage that offload activations (default: all)", "N"),
    "offload_fraction": Option(
        share, f"share of optimizer states that --offload optimizer moves (default: {defaults.OFFLOAD_FRACTION:g})", "X"
    ),
    "offload_overlap": Option(switch, "the host updates one tensor while others are copied (default: off)", "on|off"),
    "space": Option(text, "file of the values to try where the plan is open (default: the built-in space)", "FILE"),
    "margin": Option(
        margin,
        "share of device memory to keep free, such as 5%: a plan that leaves less does not fit (default: 0 for a given plan; a chosen plan"
        " keeps as much as makes it 80 % likely to fit)",
        "SHARE",
    ),
    # --- fine-tuning
    "lora_rank": Option(whole, "rank of LoRA adapters; all other weights are frozen (default: no adapters)"),
    "lora_sets": Option(whole, "sets of LoRA adapters in memory, of which one is trained (default: 1)", "N"),
    "lora_targets": Option(
        adapter_targets,
        "layers with an adapter: attention, mlp, all, or of q, k, v, qkv, proj, fc1, gate, up, fc2, experts, router, shared_experts;"
        " of latent attention q_down, q_up, kv_down, kv_up, mla_up"
        f" (default: {defaults.LORA_TARGETS})",
        "LIST",
    ),
    "frozen_weights": Option(
        one_of(("fp8", "nf4", "gptq", "mxfp4", "int8")),
        "format of frozen weights with LoRA: fp8; nf4, gptq, mxfp4 (4 bits); int8 (default: as trained weights)",
        "NAME",
    ),
    "frozen_layers": Option(none_or_more, "first layers, with the embedding, that are not trained (default: 0)", "N"),
    "adapter": Option(
        one_of(defaults.ADAPTERS), f"kind of adapter with --lora-rank: {_names(defaults.ADAPTERS, defaults.ADAPTERS[0])}", "NAME"
    ),
    "objective": Option(
        text, "what is trained: next-token, sft, dpo, kto, orpo, simpo, reward, distillation, or your own (default: next-token)", "NAME"
    ),
    "teacher": Option(model, "model whose outputs --objective distillation reads (default: none)", "MODEL"),
    "precomputed_reference": Option(
        switch, "the reference's outputs were computed before the run and come with the data (default: off)", "on|off"
    ),
    # --- the run
    "evaluate_every": Option(whole, "steps between evaluations (default: no evaluations)", "STEPS"),
    "evaluation_tokens": Option(tokens, "tokens per evaluation, forward only (default: one batch)", "TOKENS"),
    "checkpoint_every": Option(whole, "steps between checkpoints (default: the interval that loses least time)", "STEPS"),
    "checkpoint_bandwidth": Option(
        positive("B/s"), "total storage bandwidth for checkpoints, such as 100GB/s (default: BLOOM's per accelerator)", "RATE"
    ),
    "mttf": Option(duration, "mean time to failure of one accelerator, such as 50000h (default: Llama 3's)", "TIME"),
    "restart_time": Option(duration, "time from failure to training again, such as 15min (default: at most Llama 3's)", "TIME"),
    "calibration_version": Option(text, "version of the fitted and measured constants (default: the newest)", "VERSION"),
    "correction": Option(text, "factor on step time from your own runs, a file of ironlaw validate --mine (default: none)", "TOML"),
    "tokens": Option(run_tokens, "tokens of the whole run, such as 15T, or per parameter: 20x (default: one step only)", "TOKENS"),
    "price": Option(price, "USD per accelerator hour, or provider/term (default: newest on-demand price)", "PRICE"),
    "grid": Option(grid, "carbon intensity: a region, or g/kWh (default: world average)", "GRID"),
    "pue": Option(at_least_one, "power usage effectiveness of the data centre (default: the catalogue's)", "X"),
}


GROUPS: dict[str, tuple[str, ...]] = {  # headings of the help, in its order
    "Model": ("model", "mtp_layers", "images_per_sequence", "image_size", "audio_seconds", "encoder_seq_len", "frozen_tower"),
    "Machine": ("on", "gpus", "node", "fabric", "scale_up_size", "gpus_per_domain", "topology", "power_cap"),
    "Network": ("nic_bandwidth", "network_share", "oversubscription", "pod_size", "rail_optimised", "in_network_reduction"),
    "Job": (
        "framework", "global_batch_size", "global_batch_tokens", "seq_len", "document_length", "optimizer", "optimizer_rank", "space",
        "margin", "correction", "calibration_version",
    ),
    "Documents": ("lengths", "packing", "balance", "cp_by_length"),
    "Plan": (
        "tp", "sp", "pp", "vpp", "cp", "dp_replicate", "dp_shard", "zero", "micro_batch_size", "recompute", "overlap",
    ),
    "Pipeline": (
        "schedule", "microbatch_group", "layers_per_stage", "first_stage_layers", "last_stage_layers", "mtp_stage", "count_embedding",
        "deferred_wgrad",
    ),
    "Context parallel": ("cp_method", "cp_inner", "cp_balance"),
    "Mixture of experts": (
        "ep", "etp", "moe_dispatcher", "dispatch_precision", "capacity_factor", "expert_imbalance",
        "expert_load", "expert_placement", "load_spread", "routing_noise", "grouped_experts",
        "delay_wgrad_compute",
    ),
    "Precision and kernels": (
        "precision", "expert_precision", "fp8_scaling", "fp8_param_gather", "bf16_layers_at_start",
        "bf16_layers_at_end", "gradient_dtype", "weights_dtype", "flash_attention",
        "attention_kernel", "attention_precision", "cuda_graphs", "fused_loss", "logits", "optimizer_in_backward",
    ),
    "Offloading": ("offload", "offload_layers", "offload_fraction", "offload_overlap"),
    "Fine-tuning": ("lora_rank", "lora_sets", "lora_targets", "adapter", "frozen_weights", "frozen_layers"),
    "Post-training": ("objective", "teacher", "precomputed_reference"),
    "Run and cost": ("tokens", "price", "grid", "pue", "evaluate_every", "evaluation_tokens"),
    "Failures and checkpoints": ("mttf", "restart_time", "checkpoint_every", "checkpoint_bandwidth"),
}  # fmt: skip


USUAL = (  # options that a short help shows
    "model", "on", "gpus", "node", "framework", "global_batch_size", "global_batch_tokens", "seq_len", "tp", "pp", "zero",
    "micro_batch_size", "recompute", "precision", "lora_rank", "tokens", "price", "grid",
)  # fmt: skip


def flag(name: str, where: str = "") -> str:
    """The option as the user wrote it: ``--global-batch-size``, or ``global_batch_size in run.toml``."""
    return f"{name} in {where}" if where else f"--{name.replace('_', '-')}"


def read_options(given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Read and check the values of ``given``; an unknown name or a wrong value is an error that names the option and the file."""
    values: dict[str, Any] = {}
    for raw, value in synonyms.resolve(given, OPTIONS, lambda name: flag(name, where)).items():
        name = raw.replace("-", "_")
        if name not in OPTIONS:
            hint = ", ".join(nearest_names(name, OPTIONS)) or ", ".join(OPTIONS)
            raise QuestionError(f"unknown option {raw!r}{' in ' + where if where else ''}; nearest: {hint}")
        if value is None:
            continue
        option = OPTIONS[name]
        if option.column and is_column(value) and not (option.names and all(isinstance(v, str) for v in value)):
            values[name] = [option.read(v, flag(name, where)) for v in flat(value)]
        else:
            values[name] = option.read(value, flag(name, where))
    return values


def is_column(value: Any) -> bool:
    """True for a sequence or array of values, not for a text or a set of names."""
    return not isinstance(value, (str, bytes, Mapping, set, frozenset)) and hasattr(value, "__len__")


def flat(value: Any) -> list[Any]:
    """A column's items as Python values."""
    return value.ravel().tolist() if hasattr(value, "ravel") else list(value)
