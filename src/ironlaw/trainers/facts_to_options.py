"""Named rules that make the options of an estimate from the facts of a trainer's files: ranks, batch, sharding, adapters, model."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from ironlaw.errors import quote
from ironlaw.question import defaults
from ironlaw.trainers.tables import Table
from ironlaw.trainers.walk import LISTS, Fact, Told, Walked


class Derivation:
    """The facts of the files, the accelerators where they are known, and what the rules have made of them."""

    def __init__(self, walked: Walked, table: Table, gpus: int | None) -> None:
        self.walked, self.table, self.gpus = walked, table, gpus
        self.options: dict[str, Any] = {}
        self.origin: dict[str, Fact] = {}
        self.needed: list[str] = []
        for name, default in table.defaults.items():
            if (name, str(default.value)) in walked.denied:
                continue
            if name not in walked.facts and (name not in _OF_ADAPTERS or self.flag("lora.on")):
                walked.facts[name] = Fact(default.value, "", name, 0)
                if default.why:
                    self.assume(f"{name} {_shown(default.value)}: {default.why}{f' (since {default.since})' if default.since else ''}")

    def assume(self, why: str) -> None:
        """Say what was taken that the file does not give."""
        self.walked.assumed.append(Told(why))

    def get(self, name: str) -> Any:
        """The value of a fact; None where the file does not give it."""
        fact = self.walked.facts.get(name)
        return None if fact is None else fact.value

    def flag(self, name: str) -> bool:
        """True where a switch is on."""
        value = self.get(name)
        return value is not None and str(value).lower() not in ("false", "0", "no", "none", "off")

    def number(self, name: str, least: float = 1.0) -> float | None:
        """A number of at least ``least``; a value that is none is refused."""
        value = self.get(name)
        if value is None:
            return None
        try:
            number = float("no" if isinstance(value, bool) else value)
        except (TypeError, ValueError):
            number = float("nan")
        if not least <= number <= 1e15:
            self.refuse(name, f"is {quote(value)}, must be a number of at least {least:g}")
            return None
        return number

    def refuse(self, name: str, why: str) -> None:
        """Refuse the setting that gave a fact."""
        fact = self.walked.facts.get(name)
        told = Told(why, name, id="cannot-run")
        if fact is not None:
            told = Told(why, fact.key, fact.written, fact.file, fact.line, fact.column, "cannot-run")
        self.walked.refused.append(told)

    def give(self, option: str, value: Any, *names: str) -> None:
        """Give an option its value, and remember the first of the facts that it comes from."""
        self.options[option] = int(value) if isinstance(value, float) and value == int(value) else value
        fact = next((self.walked.facts[name] for name in names if name in self.walked.facts and self.walked.facts[name].line), None)
        if fact is not None:
            self.origin[option] = fact

    def copy(self, *options: str) -> None:
        """Give options the facts of the same names."""
        for option in options:
            if self.get(option) is not None:
                self.give(option, self.get(option), option)


_OF_ADAPTERS = ("lora_rank", "lora_targets", "adapter", "frozen_weights")


def _shown(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def rule_framework(d: Derivation) -> None:
    """The framework is that of the trainer's table, or of the sharding that a setting names."""
    d.give("framework", d.get("framework") or d.table.framework, "framework")


def rule_accelerators(d: Derivation) -> None:
    """gpus = processes, or nodes times accelerators of a node; ``--gpus`` counts before the file."""
    processes, nodes, each = d.number("processes"), d.number("nodes"), d.number("gpus_per_node")
    found = processes or ((nodes or 1.0) * each if each else None)
    if found is not None and d.gpus is not None and found != d.gpus:
        d.assume(f"{d.gpus} accelerators as asked; the file has {found:g}")
    if d.gpus is None and found is not None:
        d.gpus = int(found)
        d.give("gpus", found, "processes", "gpus_per_node")


AXES = ("tp", "cp", "ep", "pp", "dp_shard", "dp_replicate")


def rule_meshes(d: Derivation) -> None:
    """An axis that is given inside a domain and across domains is their product; -1 stands for what is left."""
    for axis in AXES:
        sizes = [size for size in (d.number(f"{where}.{axis}", -1.0) for where in ("ici", "dcn")) if size is not None]
        if sizes:
            product = -1.0 if -1.0 in sizes else sizes[0] * sizes[-1] if len(sizes) == 2 else sizes[0]
            first = next(d.walked.facts[f"{where}.{axis}"] for where in ("ici", "dcn") if f"{where}.{axis}" in d.walked.facts)
            d.walked.facts[axis] = first._replace(value=product)


def rule_degrees(d: Derivation) -> None:
    """tp, pp, cp, ep and etp as they are; a product that does not divide the accelerators cannot run."""
    for name in ("tp", "pp", "cp", "ep", "etp", "vpp"):
        if (value := d.number(name)) is not None:
            d.give(name, value, name)
    if (ranks := d.number("ulysses")) is not None and ranks > 1:
        d.give("cp", ranks, "ulysses")
        d.give("cp_method", "all-to-all", "ulysses")
    size = _mesh(d)
    if d.gpus is not None and d.gpus % size:
        written = " x ".join(f"{name} {d.options[name]}" for name in ("tp", "pp", "cp") if d.options.get(name, 1) > 1)
        names = [name for name in ("tp", "pp", "cp") if name in d.walked.facts and d.options.get(name, 1) > 1]
        d.refuse(names[0] if names else "tp", f"{written} does not divide {d.gpus} accelerators")
    _copies(d, size)


def _mesh(d: Derivation) -> int:
    """The ranks of one model: tp times pp times cp."""
    return int(d.options.get("tp", 1) * d.options.get("pp", 1) * d.options.get("cp", 1))


def _copies(d: Derivation, size: int) -> None:
    """Data-parallel copies and shards; a size of -1 stands for all ranks that are left."""
    copies, shards = d.number("dp_replicate", -1.0), d.number("dp_shard", -1.0)
    ranks = None if d.gpus is None else d.gpus // size
    if copies and shards is None and copies > 1 and d.get("zero") != 0:
        shards = -1.0
    if copies == -1.0:
        copies = ranks // (shards or 1.0) if ranks else None
    if shards == -1.0:
        shards = ranks // (copies or 1.0) if ranks else None
    if copies and copies > 1 and shards and shards > 1:
        d.give("dp_replicate", copies, "dp_replicate")
        if ranks is not None and copies * shards != ranks:
            d.refuse("dp_shard", f"dp_replicate {copies:g} x dp_shard {shards:g} is not the {ranks:g} data-parallel ranks")
    elif copies and copies > 1 and shards == 1.0:
        d.walked.facts["zero"] = Fact(0, "", "zero", 0)
    if d.get("hybrid") and "dp_replicate" not in d.options:
        node = d.number("gpus_per_node") or 8.0
        if ranks is None:
            d.needed.append("gpus")
        elif ranks > node:
            d.give("dp_replicate", ranks // node, "hybrid")
            d.assume(f"hybrid sharding: states are sharded over a node of {node:g}")


def rule_sharding(d: Derivation) -> None:
    """The ZeRO stage that the file or the files that it includes name; without any, data parallelism that keeps all states."""
    stage = d.number("zero", 0.0)
    if stage is None and d.flag("sharded"):
        stage = 3.0
        d.assume("no sharding strategy is given: weights, gradients and states are sharded, FSDP's default (ZeRO 3)")
    elif stage is None and d.flag("sharded_or_split"):
        shards = d.number("dp_shard", -1.0)
        stage = 0.0 if shards == 1.0 else 2.0 if d.options.get("pp", 1) > 1 else 3.0
        if stage:
            d.assume(f"fsdp_reshard_after_forward default: ZeRO {stage:g}{', because of the pipeline' if stage == 2.0 else ''}")
    elif stage is None:
        stage = 0.0
        d.assume("neither FSDP nor DeepSpeed is configured in this file: data parallelism, every rank keeps all states")
    d.give("zero", stage, "zero")


def rule_batch(d: Derivation) -> None:
    """global batch = micro-batch x accumulation x data-parallel ranks, in sequences; any two and the ranks give the third.

    With objectives whose examples have two sequences, trainers count examples.
    """
    times = defaults.SEQUENCES_OF_AN_EXAMPLE.get(str(d.get("objective") or "next-token"), 1)
    ranks = None if d.gpus is None else d.gpus // _mesh(d)
    micro, steps, whole = d.number("micro"), d.number("accumulation"), _whole_batch(d, ranks)
    if steps is None and micro and ranks and (least := d.number("accumulated_to")):
        steps = max(float(ceil(least / (micro * ranks))), 1.0)
        d.assume(f"micro-batches are accumulated to at least {least:g} sequences: {steps:g} of each rank")
    if micro is None and whole and steps and ranks:
        micro = whole / (ranks * steps)
    if micro is None and whole and ranks and d.get("accumulation") is None and d.get("one_pass"):
        micro = whole / ranks
    if whole is None and micro and ranks:
        whole = micro * (steps or 1.0) * ranks
    elif whole is None and micro:
        d.needed.append("gpus")
    if micro and whole and ranks and whole % (micro * ranks):
        name = "global_batch" if "global_batch" in d.walked.facts else "micro"
        d.refuse(name, f"a batch of {whole:g} is no multiple of {micro:g} x {ranks:g} data-parallel ranks")
    if (
        micro
        and whole
        and ranks
        and steps
        and d.walked.facts.get("accumulation", Fact(0, "", "", 0)).line
        and whole != micro * steps * ranks
    ):
        d.refuse("accumulation", f"{micro:g} x {steps:g} x {ranks:g} ranks is {micro * steps * ranks:g}, and the batch is {whole:g}")
    if micro is not None and micro != int(micro):
        d.refuse("global_batch", f"the batch gives {micro:g} sequences for a rank, which is no whole number")
    if micro is not None:
        d.give("micro_batch_size", micro * times, "micro", "global_batch")
    if whole is not None:
        d.give("global_batch_size", whole * times, "global_batch", "global_batch_tokens", "micro")


def _whole_batch(d: Derivation, ranks: float | None) -> float | None:
    """Sequences of a step, as the file counts them: in all, for each device, for each data-parallel rank, or in tokens."""
    if (whole := d.number("global_batch")) is not None:
        return whole * (d.number("batch_factor") or 1.0)
    if (tokens := d.number("global_batch_tokens")) is not None and (length := d.number("seq_len")):
        return tokens / length
    if (each := d.number("device_batch", 1e-6)) is not None and d.gpus:
        return each * d.gpus * (d.number("accumulation") or 1.0)
    total, micro = d.number("accumulation_of_all"), d.number("micro")
    if total and micro:
        if ranks and total % ranks:
            d.refuse("accumulation_of_all", f"{total:g} micro-batches of all ranks do not divide over {ranks:g} ranks")
        return total * micro
    return None


def rule_local_batch(d: Derivation) -> None:
    """A batch that each data-parallel rank takes at a time; a pipeline cuts it into micro-batches.

    global batch = local batch x ranks where no other is given.
    """
    local = d.number("local_batch")
    if local is None:
        return
    written = d.walked.facts["local_batch"]
    ranks = None if d.gpus is None else d.gpus // _mesh(d)
    micro = local
    if d.options.get("pp", 1) > 1:
        micro = d.number("pipeline_micro") or 1.0
        if local % micro:
            d.refuse("local_batch", f"{local:g} sequences of a rank are no multiple of micro-batches of {micro:g}")
    d.walked.facts["micro"] = written._replace(value=micro)
    if d.get("global_batch") is None and ranks:
        d.walked.facts["global_batch"] = written._replace(value=local * ranks)
    elif d.get("global_batch") is not None and ranks and float(d.get("global_batch")) % (local * ranks):
        d.refuse("global_batch", f"a batch of {d.get('global_batch')} is no multiple of {local:g} x {ranks:g} data-parallel ranks")


def rule_length(d: Derivation) -> None:
    """Tokens of a sequence; where sequences are padded and not packed, each is counted as long as the longest may be."""
    prompt, response = d.number("length.prompt"), d.number("length.response")
    if prompt and response and "seq_len" not in d.walked.facts:
        d.walked.facts["seq_len"] = d.walked.facts["length.response"]._replace(value=prompt + response)
        d.assume("a sequence is as long as prompt and response may be")
    if (length := d.number("seq_len")) is not None:
        d.give("seq_len", length, "seq_len")
    elif d.get("global_batch_tokens") is None:
        d.assume("the file gives no length of sequences: --seq-len, else the model's maximum, at most 8192")
    if d.get("packed") is not None and not d.flag("packed"):
        d.assume("sequences are not packed: each is counted as long as the longest may be; --document-length or --lengths says more")


def rule_recomputation(d: Derivation) -> None:
    """Whole layers where checkpointing is on, or the way that the file names."""
    how = d.get("recompute")
    if how is None and d.get("checkpointing") is not None:
        how = "full" if d.flag("checkpointing") else "none"
    every = d.number("recompute_every")
    if how is None and every:
        how = "every"
    if how is not None:
        how = "selective" if how == "every" and d.get("selective") else how
        how = ("full" if every == 1.0 else f"every:{every:g}") if how == "every" and every else how
        d.give("recompute", how, "recompute", "checkpointing")


def rule_offloading(d: Derivation) -> None:
    """What is moved to the host: optimizer states, parameters, activations, or states on NVMe."""
    moved = [] if d.get("offload+") is None else str(d.get("offload+")).split(LISTS)
    if (needed := d.number("offload.zero")) and (d.number("zero", 0.0) or 0.0) < needed:
        d.refuse("offload+", f"weights in host memory need ZeRO stage {needed:g}")
    d.give("offload", ",".join(dict.fromkeys(moved)) or "none", "offload+")
    if (part := d.get("offload_fraction")) is not None and "optimizer" in moved:
        d.give("offload_fraction", part, "offload_fraction")


def rule_adapters(d: Derivation) -> None:
    """LoRA where the trainer is told to use it; ranks and targets that are set and never used are told."""
    if (rank := d.number("lora.maybe", 0.0)) and rank > 0:
        d.walked.facts["lora_rank"] = d.walked.facts["lora.maybe"]
    on = d.flag("lora.on") if d.get("lora.on") is not None else d.get("lora_rank") is not None
    if on:
        d.copy("lora_rank", "adapter", "frozen_weights")
        if d.get("lora_targets") is not None or d.get("targets+") is not None:
            d.give("lora_targets", _targets(d), "lora_targets", "targets+")
        return
    unused = [name for name in _OF_ADAPTERS if name in d.walked.facts and d.walked.facts[name].line]
    for name in unused:
        fact = d.walked.facts[name]
        if name == "frozen_weights":
            d.refuse(name, "weights in few bits are trained through adapters alone, and none are configured")
        else:
            place = fact.key, fact.written, fact.file, fact.line, fact.column
            d.walked.ignored.append(Told("set and never used: adapters are off", *place, "never-used"))


def _targets(d: Derivation) -> str:
    """The layers with an adapter; names of modules may have the layer's path before them."""
    words = [word.rpartition(".")[2] for word in str(d.get("lora_targets") or d.get("targets+")).replace(LISTS, ",").split(",")]
    return ",".join(word for word in dict.fromkeys(words) if word)


def rule_precision(d: Derivation) -> None:
    """The type of products and of weights; mixed precision that is off computes in the weights' type."""
    precision = (
        d.get("narrow")
        or d.get("precision")
        or d.get("precision_base")
        or ("bf16" if d.get("weights_dtype") == "bf16" else "tf32" if d.flag("tf32") else None)
    )
    if precision is None and "precision" in d.walked.left:
        d.assume("the precision is left to the program that starts the trainer: --precision, else bf16")
        return
    if precision is None:
        precision = "fp32"
        d.assume("no mixed precision is configured: fp32")
    if str(precision).startswith("fp8") and d.get("precision_recipe"):
        precision = d.get("precision_recipe")
    d.give("precision", precision, "narrow", "precision", "precision_recipe", "precision_base", "weights_dtype")
    d.copy("weights_dtype", "gradient_dtype", "fp8_param_gather")


def rule_model(d: Derivation) -> None:
    """The model by its name on the hub, by a table of the trainer's names, or by its dimensions."""
    sizes = {name.partition(".")[2]: value for name, value in _sizes(d).items()}
    named, flavor = d.get("model"), d.get("flavor")
    if flavor is not None and named is not None:
        named = f"{named} {flavor}"
    written = any(fact.line for name, fact in d.walked.facts.items() if name.startswith("model."))
    if sizes and (written or named is None):
        missing = [name for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size") if name not in sizes]
        if missing:
            d.needed.append("model")
            d.assume(f"the model lacks {', '.join(missing)}")
            return
        sizes.setdefault("max_position_embeddings", d.get("seq_len") or 2048)
        d.give("model", sizes, "model.hidden_size")
    elif named is None:
        d.needed.append("model")
    else:
        known = d.table.models.get(str(named).strip().lower())
        if known is None and flavor is not None:
            d.refuse("flavor", f"the model {named} is not known here; known are {', '.join(d.table.models)}")
            return
        d.give("model", known or str(named).strip(), "flavor", "model")


def _sizes(d: Derivation) -> dict[str, Any]:
    """Dimensions of the model, and those that follow from them as the trainer computes them."""
    sizes = {name: fact.value for name, fact in d.walked.facts.items() if name.startswith("model.")}
    hidden, ratio = sizes.get("model.hidden_size"), sizes.pop("model.expansion", None)
    if hidden and ratio and "model.intermediate_size" not in sizes:
        sizes["model.intermediate_size"] = ceil(float(hidden) * float(ratio))
    heads, share = sizes.get("model.num_attention_heads"), sizes.pop("model.head_dim_of_hidden", None)
    if share and hidden and not heads:
        sizes["model.num_attention_heads"] = int(hidden) // int(share)
    return sizes


def rule_others(d: Derivation) -> None:
    """Options that are facts of the same name."""
    d.copy(
        "optimizer", "objective", "flash_attention", "sp", "schedule", "cp_method", "moe_dispatcher", "logits", "fused_loss", "tokens",
        "overlap", "optimizer_in_backward", "optimizer_rank", "cuda_graphs", "key_value_cache", "expert_load", "microbatch_group",
    )  # fmt: skip


RULES: tuple[Callable[[Derivation], None], ...] = (
    rule_framework, rule_accelerators, rule_meshes, rule_degrees, rule_sharding, rule_local_batch, rule_batch, rule_length,
    rule_recomputation, rule_offloading,
    rule_adapters, rule_precision, rule_model, rule_others,
)  # fmt: skip
