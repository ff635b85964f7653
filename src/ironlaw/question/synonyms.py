"""Names that other tools give to options of a question: read where the meaning is exact, answered with the right name where it is not.

Python keywords, question files and the command line read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError
from ironlaw.question import defaults
from ironlaw.question.options import OPTIONS, flag
from ironlaw.question.unreadable import refuse_unreadable

SPELLINGS: dict[str, tuple[str, ...]] = {name: option.also for name, option in OPTIONS.items() if option.also}  # option: other names of it

# names that count examples of the objective, as the trainers that have them do: with --objective dpo pairs of two sequences
OF_EXAMPLES = ("per_device_train_batch_size", "per_device_batch_size", "train_micro_batch_size_per_gpu")

SETTINGS: dict[str, dict[str, Any]] = {  # switches of other tools: what they set; a default where the option itself is given
    **{name: {"precision": name} for name in ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")},
    "pure_bf16": {"precision": "bf16", "weights_dtype": "bf16"},
    "zero1": {"zero": 1}, "zero2": {"zero": 2}, "zero3": {"zero": 3},
    "use_distributed_optimizer": {"zero": 1},
    "gradient_checkpointing": {"recompute": "full"},
    "activation_checkpointing": {"recompute": "full"},
    "recompute_activations": {"recompute": "selective"},
    "lora": {"lora_rank": defaults.LORA_RANK},
    "qlora": {"lora_rank": defaults.LORA_RANK, "frozen_weights": "nf4"},
}  # fmt: skip

_TWO_BATCHES = (
    "has two readings: --global-batch-size is sequences per optimizer step, --micro-batch-size sequences per pass of one data-parallel rank"
)
_STEPS = "write --tokens: the steps times the sequences of a batch times --seq-len"
_FOUR_BITS = "write --frozen-weights nf4 with --lora-rank, or --qlora"
_HOST = (
    "write --offload parameters (weights, gradients and optimizer: FSDP's cpu_offload), --offload optimizer (its states alone: DeepSpeed's"
    " offload_optimizer), or --offload activations"
)
ANSWERS: dict[str, str] = {  # names without an exact meaning here: what to write
    "batch_size": _TWO_BATCHES,
    "batch": _TWO_BATCHES,
    "gpu": "has two readings: --on NAME is the kind of accelerator, --gpus N how many",
    **dict.fromkeys(("nodes", "num_nodes", "nnodes", "n_nodes"), "write --gpus, the accelerators of all nodes; --node names their kind"),
    **dict.fromkeys(("gpus_per_node", "nproc_per_node"), "is a value of the node record: write --node NAME, and --gpus for the total"),
    "fsdp": "write --framework fsdp, and --zero 3 (full shard) or --zero 2 (shard grad op)",
    "deepspeed": "write --framework deepspeed, and --zero 0, 1, 2 or 3",
    **dict.fromkeys(("cpu_offload", "fsdp_cpu_offload", "offload_params", "fsdp_offload_params"), _HOST),
    "offload_param": "write --offload parameters: with ZeRO-3 weights, gradients and the optimizer are in the host",
    "offload_optimizer": "write --offload optimizer",
    "offload_activations": "write --offload activations",
    "recompute_granularity": "write --recompute: none, selective[:OPERATORS], full, every:K or share:F",
    "num_layers_per_virtual_pipeline_stage": "write --vpp, the model chunks of a pipeline rank: its layers over this number",
    "compile": "is a part of the framework: torchtitan-compile, torchtune-compile; ironlaw catalog list frameworks",
    "torch_compile": "is a part of the framework: torchtitan-compile, torchtune-compile; ironlaw catalog list frameworks",
    "load_in_4bit": _FOUR_BITS,
    "load_in_8bit": "write --frozen-weights int8 with --lora-rank",
    "quantization": _FOUR_BITS,
    **dict.fromkeys(("steps", "max_steps", "train_iters", "train_steps", "num_steps"), _STEPS),
    "epochs": "write --tokens, the tokens of the data set times the epochs",
    "num_train_epochs": "write --tokens, the tokens of the data set times the epochs",
    "csv": "write --format csv",
    "markdown": "write --format markdown",
    "deadline": "is a question of solve, which finds the number of accelerators: ironlaw solve MODEL --on NAME --tokens T --deadline DAYS",
    "budget": "is a question of solve, which finds what it pays for: ironlaw solve MODEL --on NAME --tokens T --deadline DAYS --budget USD;"
    " a budget of FLOP is the compute of ironlaw scaling",
    "region": "write --grid, a region's electricity",
}

COMPUTED: dict[str, tuple[str, ...]] = {  # names whose value depends on other options: what they are called
    "dp": ("dp", "data_parallel", "data_parallel_size", "data_parallel_degree", "dp_size"),
    "gradient_accumulation_steps": (
        "gradient_accumulation_steps", "gradient_accumulation", "grad_accum", "grad_accum_steps", "accumulation_steps", "num_microbatches",
    ),
}  # fmt: skip

_OPTION_OF = {name: option for option, names in SPELLINGS.items() for name in names}
_COMPUTED_OF = {name: what for what, names in COMPUTED.items() for name in names}
_OFF = ("off", "no", "n", "false", "0", "none")
Writer = Callable[[str], str]


def is_synonym(name: str, known: Collection[str]) -> bool:
    """Whether a name that is none of the ``known`` options has a meaning or an answer among them.

    >>> is_synonym("seq_length", ["seq_len"]), is_synonym("seq_length", ["gpus"]), is_synonym("tp", ["tp"])
    (True, False, False)
    """
    if name in known:
        return False
    if name in _OPTION_OF:
        return _OPTION_OF[name] in known
    if name in SETTINGS:
        return set(SETTINGS[name]) <= set(known)
    return ({"zero", "tp", "pp", "gpus"} <= set(known) and name in _COMPUTED_OF) or (name in ANSWERS and "model" in known)


def stands_alone(name: str) -> bool:
    """Whether a synonym is a switch, which needs no value."""
    return name in SETTINGS or name == "sequence_parallel" or name in SPELLINGS["flash_attention"]


def resolve(given: Mapping[str, Any], known: Collection[str], write: Writer = flag) -> dict[str, Any]:
    """The options with every synonym replaced by the ``known`` option it means, in the order of ``known``, so that one question has one
    answer however it is written; ``write`` spells a name in an error.

    A name that is neither known nor a synonym stays, for the caller to refuse.

    >>> resolve({"tensor_parallel_size": 4, "bf16": True}, ["tp", "precision"])
    {'tp': 4, 'precision': 'bf16'}
    """
    options: dict[str, Any] = {}
    others: list[tuple[str, Any]] = []
    for raw, value in given.items():
        name = str(raw).replace("-", "_")
        refuse_unreadable(value, partial(write, str(raw)))
        if name in known or value is None or not is_synonym(name, known):
            options[raw if name not in known else name] = value
        else:
            others.append((name, value))
    written: dict[str, str] = {}  # option: the synonym that set it
    for name, value in others:
        if name in ANSWERS:
            raise QuestionError(f"{write(name)} {ANSWERS[name]}")
        for option, meant in _meanings(name, _in_sequences(name, value, given, write)).items():
            if option in options and name in SETTINGS and option == "lora_rank":
                continue  # the rank of --lora is a default
            if option in options and str(options[option]) != str(meant):
                raise QuestionError(f"{write(name)} and {write(written.get(option, option))} both set {write(option)}: give one of them")
            options[option], written[option] = meant, name
    computed = {_COMPUTED_OF[name]: (name, value) for name, value in others if name in _COMPUTED_OF}
    ranks = None
    if "dp" in computed:
        name, value = computed["dp"]
        ranks = units.parse_whole(value, write(name))
        said = _options_of_ranks(ranks, options, write(name))
        if said.get("cp", 1.0) != 1.0 and "cp" not in known:
            raise QuestionError(f"{write(name)} leaves cp {said['cp']:g} to the other ranks, and there is no {write('cp')} here")
        options |= {option: number for option, number in said.items() if option in known}
    if "gradient_accumulation_steps" in computed:
        name, value = computed["gradient_accumulation_steps"]
        options |= _batch_of_steps(units.parse_whole(value, write(name)), ranks, options, write(name))
    place = {name: at for at, name in enumerate(known)}
    return dict(sorted(options.items(), key=lambda item: place.get(item[0], len(place))))


def _in_sequences(name: str, value: Any, given: Mapping[str, Any], write: Writer) -> Any:
    """A micro-batch in sequences: the trainers whose word ``name`` is count examples, which have two sequences with some objectives.

    >>> resolve({"per_device_train_batch_size": 8, "objective": "dpo"}, ["micro_batch_size", "objective"])
    {'micro_batch_size': 16.0, 'objective': 'dpo'}
    """
    objective = given.get("objective")
    if name not in OF_EXAMPLES or objective is None:
        return value
    sequences = defaults.SEQUENCES_OF_AN_EXAMPLE.get(str(objective).strip().lower())
    if sequences is None:
        raise QuestionError(f"{write(name)} counts examples of --objective {objective}: write {write('micro_batch_size')}, in sequences")
    return value if sequences == 1 else sequences * units.parse_whole(value, write(name))


def _meanings(name: str, value: Any) -> dict[str, Any]:
    """The options that one name sets; none for a switch that is off, and for a name whose value depends on others."""
    if name in _OPTION_OF:
        return {_OPTION_OF[name]: value}
    if name not in SETTINGS:
        return {}
    word = str(value).strip().lower()
    if word in _OFF:
        return {"recompute": "none"} if "recompute" in SETTINGS[name] else {}
    if "recompute" in SETTINGS[name] and word.partition(":")[0] in ("full", "selective", "every", "share"):
        return {"recompute": word}
    units.parse_switch(value, flag(name))
    return SETTINGS[name]


def _number(options: Mapping[str, Any], name: str) -> float | None:
    """The whole number that an option has; None where it is not given."""
    return units.parse_whole(options[name], flag(name)) if options.get(name) is not None else None


def _options_of_ranks(ranks: float, options: Mapping[str, Any], named: str) -> dict[str, Any]:
    """What a number of data-parallel ranks says: gpus = tp pp cp dp, and by the ZeRO stage whether ranks shard or replicate."""
    tp, pp, cp, gpus, zero = (_number_or_stage(options, name) for name in ("tp", "pp", "cp", "gpus", "zero"))
    shards, copies = _number(options, "dp_shard"), _number(options, "dp_replicate")
    if shards is not None and copies is not None:
        if shards * copies != ranks:
            raise QuestionError(f"{named} is {ranks:g}, --dp-shard {shards:g} times --dp-replicate {copies:g} is {shards * copies:g}")
        return {}
    found: dict[str, Any] = {}
    if tp is not None and pp is not None:
        if gpus is None:
            found["gpus"] = tp * pp * (cp or 1.0) * ranks
        else:
            context = gpus / (tp * pp * ranks)
            if context != (cp or context) or context < 1 or context != int(context):
                context_words = f" times cp {cp:g}" if cp else ""
                raise QuestionError(
                    f"{named} is {ranks:g}: tp {tp:g} times pp {pp:g}{context_words} times dp {ranks:g} is not {gpus:g} gpus"
                )
            found["cp"] = context
    if zero is not None and shards is None and copies is None:
        found |= {"dp_shard": 1.0, "dp_replicate": ranks} if zero == 0 else {"dp_shard": ranks, "dp_replicate": 1.0}
    if not found:
        raise QuestionError(f"{named} needs --zero, or --tp and --pp; or write --dp-shard N (states sharded) or --dp-replicate N (copies)")
    return found


def _number_or_stage(options: Mapping[str, Any], name: str) -> float | None:
    """A whole number, or the ZeRO stage, which may be 0."""
    if name != "zero" or options.get(name) is None:
        return _number(options, name)
    return units.parse_count(options[name], "--zero")


def _batch_of_steps(steps: float, ranks: float | None, options: Mapping[str, Any], named: str) -> dict[str, Any]:
    """The batch of K passes: micro_batch_size dp K sequences."""
    if "global_batch_size" in options or "global_batch_tokens" in options:
        raise QuestionError(f"{named} and the global batch both set the micro-batches of a step: give one of them")
    micro, ranks = _number(options, "micro_batch_size"), ranks or _ranks(options)
    missing = [name for name, value in (("--micro-batch-size", micro), ("--dp (or --gpus, --tp, --pp and --cp)", ranks)) if value is None]
    if micro is None or ranks is None:
        raise QuestionError(f"{named} needs {' and '.join(missing)}: the batch is micro-batch times dp times {steps:g}")
    return {"global_batch_size": micro * ranks * steps}


def _ranks(options: Mapping[str, Any]) -> float | None:
    """Data-parallel ranks, where the options decide them."""
    shards, copies = _number(options, "dp_shard"), _number(options, "dp_replicate")
    if shards is not None and copies is not None:
        return shards * copies
    sizes = [_number(options, name) for name in ("gpus", "tp", "pp", "cp")]
    if None in sizes[:3]:
        return None
    gpus, tp, pp, cp = (size or 1.0 for size in sizes)
    ranks = gpus / (tp * pp * cp)
    return ranks if sizes[3] is not None and ranks >= 1 and ranks == int(ranks) else None
