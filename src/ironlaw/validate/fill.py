"""Fill the blanks of a published run by rules; a blank that no rule can fill is a reason to skip the row.

A rule reads the row and the catalogue, writes cells, and adds a sentence to ``rules``. ``apart`` says why a row does not count
in the headline. Rules run in the order of ``FILLS``.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

from ironlaw.catalog import load
from ironlaw.catalog.records import Framework
from ironlaw.catalog.spellings import find_name
from ironlaw.errors import nearest_names
from ironlaw.estimate.answer.table import without_thousands
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.files import read_shipped
from ironlaw.question.defaults import DISPATCHERS, OVERLAPS
from ironlaw.question.recipes import read_precision
from ironlaw.validate.prose import Cells, read_prose
from ironlaw.validate.stack import Known, find_stack, generic_stack

VOCABULARY = 50257  # GPT-2's, which Megatron pads to a multiple of 128 tp
SIXTEEN_BIT = ("fp16", "bf16")
USUAL_RANK = "16"  # of adapters whose rank is not stated


class Apart(StrEnum):
    """Why a run does not count in the headline."""

    MIXTURE = "mixture of experts"
    ADAPTERS = "adapters"
    FINE_TUNING = "fine-tuning or proxy"
    EARLY = "called early by its source"
    NO_PRECISION = "precision unknown"
    NO_PARALLELISM = "parallelism unknown"
    NO_RECOMPUTE = "recompute unknown"
    NO_CUDA_GRAPHS = "CUDA graphs unknown"
    NO_VPP = "vpp unknown"
    UNKNOWN_STACK = "stack unknown"
    UNREAD = "words not understood"
    DETERMINISTIC = "deterministic or CI run"
    FALLBACK = "kernels of a fallback"


@dataclass
class Row:
    """A row while its blanks are filled: cells, the rules that filled them, and why it does not count in the headline."""

    cells: Cells
    folders: tuple[str, ...]
    rules: list[str] = field(default_factory=list)
    apart: list[Apart] = field(default_factory=list)
    generic: bool = False  # predict with the record that a stranger's stack would get
    stack: Known = Known.NAME

    def set(self, name: str, value: str, rule: str) -> None:
        """Fill a cell and record the rule."""
        self.cells[name] = value
        self.rules.append(rule)

    def unread(self, column: str, words: str) -> None:
        """Set the row apart for words of a column that say nothing known."""
        if Apart.UNREAD not in self.apart:
            self.apart.append(Apart.UNREAD)
        self.rules.append(f"{column}: {short(words)!r} not understood")


class SkipError(Exception):
    """Raised for a row that cannot become a question; its text is the reason, which the report counts."""


def number(cell: str | None) -> float:
    """A cell as a number, without a spreadsheet's thousands separators; nan where it is not a number.

    >>> number("1,536"), number(""), number("9,5")
    (1536.0, nan, nan)
    """
    text = without_thousands((cell or "").strip())
    return float(text) if _NUMBER.fullmatch(text) else float("nan")


_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


def positive(cells: Cells, name: str) -> float:
    """A cell's number; nan where it is blank. SkipError where it is not a number above 0."""
    cell = cells.get(name) or ""
    value = number(cell)
    if cell and not 0 < value < float("inf"):
        raise SkipError(f"{name} is {short(cell)!r}, must be a number above 0, with a point for decimals")
    return value


def short(cell: str) -> str:
    """A cell as a message quotes it."""
    return cell if len(cell) < 40 else cell[:37] + "..."


def check_device(row: Row) -> None:
    """The accelerator and its count; a bare A100 is the 80 GB SXM part."""
    cells = row.cells
    device = cells.get("gpu_type") or cells.get("accelerator") or cells.get("on") or ""
    if not device:
        raise SkipError("no accelerator: gpu_type")
    gpus = positive(cells, "gpus")
    if not gpus >= 1 or gpus != int(gpus):
        raise SkipError(
            f"gpus is {short(cells['gpus'])!r}, must be a whole number" if cells.get("gpus") else "no number of accelerators: gpus"
        )
    if not (cells.get("model_name") or cells.get("model")):
        raise SkipError("no model: model_name")
    if device.strip().upper() == "A100" and not cells.get("gpu_mem_gb"):
        row.rules.append("a bare A100 is the 80 GB SXM")
    device = chips_of(row, device)
    memory = cells.get("gpu_mem_gb", "")
    if not find_name("accelerators", device, row.folders, f"{memory}GB" if memory else ""):
        near = nearest_names(device, load.names("accelerators", row.folders))
        raise SkipError(f"unknown accelerator {short(device)!r}" + (f"; nearest: {', '.join(near)}" if near else ""))


def chips_of(row: Row, device: str) -> str:
    """The accelerator of a TPU slice: the number in "TPU v3-256" counts cores, two a chip up to v5p; v5e and v6e count chips."""
    found = re.fullmatch(r"(?:tpu[ -]?)?(v\d[a-z]*)-(\d{1,6})", device.strip().lower())
    if not found or find_name("accelerators", device, row.folders):
        return device
    version, count = found[1].replace("litepod", "e"), int(found[2])
    row.cells["gpu_type"] = chip = f"TPU {version}"
    if not version.endswith("e") and number(row.cells["gpus"]) == count:
        row.set("gpus", str(count // 2), f"{device} has {count} cores, two a chip: {count // 2} chips")
    return chip


def fill_from_prose(row: Row) -> None:
    """Columns that the row states in prose."""
    row.cells, rules = read_prose(row.cells)
    row.rules += rules


def set_apart(row: Row) -> None:
    """Rows other than dense pre-training: mixtures, adapters, fine-tuning, early figures."""
    cells = row.cells
    named = find_name("models", cells.get("model_name", ""), row.folders)
    if number(cells.get("moe_experts", "")) > 1 or (named and load.record("models", named, row.folders).num_experts):
        row.apart.append(Apart.MIXTURE)
        if cells.get("moe_dispatch", "") in ("token-drop", "capacity"):
            row.set("capacity_factor", cells.get("capacity_factor") or "1", f"{cells['moe_dispatch']} dispatch: capacity factor 1")
    if cells.get("training") == "adapters":
        row.apart.append(Apart.ADAPTERS)
        row.rules.append(f"low-rank adapters of rank {cells.get('lora_rank') or USUAL_RANK}")
    elif cells.get("training"):
        row.apart.append(Apart.FINE_TUNING)
    if cells.get("tuned") == "n":
        row.apart.append(Apart.EARLY)
    if cells.get("deterministic", "").lower() in ("y", "yes", "on", "true", "1"):
        row.apart.append(Apart.DETERMINISTIC)
        row.rules.append("deterministic mode or a test of few micro-batches: not a run for speed")


@cache
def named_sizes() -> dict[str, dict[str, str]]:
    """Sizes of models that are in no catalogue, by name."""
    return tomllib.loads(read_shipped(Path(__file__).parent / "data" / "models.toml"))


_DIMENSIONS = ("layers", "hidden", "heads", "vocab", "kv_heads", "head_dim", "ffn_hidden", "expert_ffn_hidden", "moe_topk")

_DEGREES = ("tp", "pp", "cp", "ep", "etp", "vpp", "dp", "zero_group", "micro_batch")


def named_fallback(row: Row) -> None:
    """Runs on a device for which the stack has no kernel of its own for the experts, as its source says: they compute one by one."""
    if row.cells.get("fallback"):
        row.apart.append(Apart.FALLBACK)
        row.rules.append(f"fallback: {row.cells['fallback']}")


def fill_sizes(row: Row) -> None:
    """Dimensions of the model: the row's, else the catalogue's; a blank vocabulary is GPT-2's, padded."""
    cells = row.cells
    model = load.fold_name(cells.get("model_name", "").partition(" (")[0])
    catalogued = bool(find_name("models", cells.get("model_name", ""), row.folders))
    if model in named_sizes() and not cells.get("hidden"):
        sizes = named_sizes()[model]
        cells.update({k: v for k, v in sizes.items() if k != "source"})
        row.rules.append(f"sizes by name: {sizes['source']}")
    for name in (*_DIMENSIONS, *_DEGREES):
        positive(cells, name)
    for name in ("moe_experts", "shared_experts"):
        if cells.get(name) and not (0 <= number(cells[name]) < 1e6 and number(cells[name]) == int(number(cells[name]))):
            raise SkipError(f"{name} is {short(cells[name])!r}, must be a whole number")
    if cells.get("hidden") and cells.get("layers") and cells.get("heads"):
        if not cells.get("vocab") and not catalogued:
            unit = 128 * int(number(cells.get("tp") or "1"))
            padded = -(-VOCABULARY // unit) * unit
            row.set("vocab", str(padded), f"blank vocabulary: {VOCABULARY}, padded to a multiple of 128 tp")
    elif not catalogued:
        missing = [n for n in ("layers", "hidden", "heads") if not cells.get(n)]
        raise SkipError(f"model not in the catalogue, and missing {', '.join(missing)}")
    else:
        row.rules.append("dimensions from the catalogue")


_RELATIVES = {  # names of a family -> a model with its traits; GPT-J, GPT-NeoX and gpt-oss are not GPT-3
    r"gpt([- ]?[23])?([- ]\d| h\d|$)": "gpt-3-175b",
    r"bloom\b": "bloom-176b",
    r"mpt[- ]\d": "mpt-7b-foundry",
}
_TRAITS = ("position_embedding", "dropout", "query_key_value_bias", "attention_output_bias", "mlp_bias")


def fill_traits(row: Row) -> None:
    """Positions, dropout and biases of the model's family, from the catalogue: tables have columns for sizes only."""
    cells = row.cells
    model = cells.get("model_name", "")
    relative = next((record for pattern, record in _RELATIVES.items() if re.match(pattern, model.lower())), "")
    released, stack = find_name("models", model, row.folders), load.fold_name(cells.get("framework", ""))
    own = stack in load.names("frameworks", row.folders) and load.record("frameworks", stack, row.folders).own_shapes
    if released and not own:
        relative = load.resolve("models", released, row.folders)
    if not relative or not cells.get("hidden"):
        return
    record = load.record("models", relative, row.folders)
    for name in _TRAITS:
        value = getattr(record, name)
        cells[name] = cells.get(name) or (value if isinstance(value, str) else "on" if value else "off")
    row.rules.append(f"positions, dropout and biases as {relative}")


def fill_precision(row: Row) -> None:
    """A blank precision is 16 bits where all 16-bit formats of the device have one rate, set apart; else the row is skipped."""
    cells = row.cells
    word = (cells.get("precision_filled") or cells.get("precision") or "").lower()
    if cells.get("precision_filled") and not cells.get("precision"):
        row.rules.append("precision as filled in from the recipe")
    if word.startswith("int8"):
        raise SkipError("int8 training is not modelled")
    if word:
        read_recipe(row, word)
        return
    device = load.record("accelerators", cells.get("gpu_type") or cells.get("accelerator") or cells.get("on", ""), row.folders)
    rates = {device.peak[p].value for p in SIXTEEN_BIT if p in device.peak}
    if len(rates) != 1 or "fp8" in device.peak:
        raise SkipError(Apart.NO_PRECISION)
    row.set("precision", "fp16" if "fp16" in device.peak else "bf16", "blank precision: 16 bits, whose formats have one rate here")
    row.apart.append(Apart.NO_PRECISION)


def read_recipe(row: Row, word: str) -> None:
    """The precision by its words; the experts' own precision where one is stated. Words not understood set the row apart."""
    recipe = read_precision(word)
    if not recipe.precision:
        raise SkipError(f"unknown precision {short(word)!r}")
    if recipe.unread:
        row.unread("precision", " ".join(recipe.unread))
    row.cells["precision_filled"] = recipe.precision
    for name, value in (("fp8_scaling", recipe.scaling), ("expert_precision", recipe.expert_precision)):
        if value and not row.cells.get(name):
            row.set(name, value, f"{name.replace('_', ' ')} {value}, as the precision says")
    if row.cells.get("fp8_scaling") and recipe.precision != "fp8":
        row.cells["fp8_scaling"] = ""
    experts = row.cells.get("expert_precision", "")
    if experts:
        said = read_precision(experts)
        row.cells["expert_precision"] = said.precision or said.expert_precision or experts


def _usual_expert_split(row: Row) -> tuple[str, str]:
    """The etp of a stack that is asked for none, and the rule that says so; 1 where that of its stack would make the plan illegal."""
    cells = row.cells
    tp, pp, ep = (int(number(cells.get(name) or "1")) for name in ("tp", "pp", "ep"))
    ranks = int(number(cells["gpus"])) // max(pp, 1)
    stack = find_stack(cells, row.folders)[0]
    if tp > 1 and load.record("frameworks", stack, row.folders).experts_follow_tp and ranks % (tp * ep) == 0:
        return str(tp), f"blank etp: {tp}, the tp, as {stack} sets it"
    return "1", "blank etp: 1"


def fill_mesh(row: Row) -> None:
    """Blank degrees: cp is 1, etp as the stack splits experts; ironlaw chooses tp and pp, but only where every GPU can have a sequence."""
    cells = row.cells
    batch, gpus = positive(cells, "global_batch_seqs"), number(cells["gpus"])
    if not batch >= 1:
        raise SkipError("no global batch: global_batch_seqs")
    if not positive(cells, "seq_len") >= 1:
        raise SkipError("no sequence length: seq_len")
    if not (cells.get("tp") and cells.get("pp")):
        if batch < gpus:
            raise SkipError(Apart.NO_PARALLELISM)
        row.apart.append(Apart.NO_PARALLELISM)
        row.rules.append("blank tp or pp: chosen by ironlaw")
    cells["cp"] = cells.get("cp") or "1"
    if not cells.get("etp") and number(cells.get("moe_experts", "")) > 1:
        row.set("etp", *_usual_expert_split(row))
    split = number(cells.get("tp") or "1") * number(cells.get("pp") or "1")
    if not cells.get("sharding") and split > 1:
        row.set("sharding", "zero1", "blank sharding with tp or pp: a distributed optimizer")
    if not cells.get("micro_batch"):
        tried = micro_batches(row)
        among = "mean of those within 10 % of the fastest" if tried else "chosen by ironlaw"
        row.rules.append(f"blank micro-batch: {among}")
    if not cells.get("recompute"):
        row.apart.append(Apart.NO_RECOMPUTE)
        row.rules.append("blank recompute: chosen by ironlaw, least that fits")


def fill_stack(row: Row) -> None:
    """The training stack by its name, by a word in it, or by the plan; kernels, graphs and overlap as in the row."""
    cells = row.cells
    framework, row.stack = find_stack(cells, row.folders)
    if row.stack is not Known.NAME:
        row.rules.append(f"framework {cells.get('framework') or 'blank'!r} taken as {framework}")
    if row.stack is Known.GENERIC and cells.get("framework"):
        row.apart.append(Apart.UNKNOWN_STACK)
    cells["framework"] = framework
    stack = load.record("frameworks", framework, row.folders)
    if stack.adapters_sharding and not cells.get("sharding") and row.apart[:1] == [Apart.ADAPTERS]:
        row.set("sharding", stack.adapters_sharding, f"blank sharding of adapters: {stack.adapters_sharding}, as {framework} does")
    if cells.get("flash_attention") not in ("y", "n", "", None):
        row.set("flash_attention", "", "flash attention not known: the framework's habit")
    fill_overlap(row, stack)
    if cells.get("graph_scope") and cells.get("cuda_graphs", "") not in ("y", "full"):
        cells["cuda_graphs"] = cells["graph_scope"]
    if Apart.MIXTURE in row.apart and not cells.get("cuda_graphs") and stack.operators_per_routed_layer.value > 0:
        row.apart.append(Apart.NO_CUDA_GRAPHS)  # without a graph, a routed layer waits for its host
        row.rules.append("blank CUDA graphs: none")


def fill_overlap(row: Row, stack: Framework) -> None:
    """What overlaps: the stack's habit, with what the row adds; with words in its own column, exactly these."""
    cells = row.cells
    words = [w for w in re.split(r"[\s,;+/]+", cells.get("overlap", "").lower()) if w]
    if words and not set(words) <= {*OVERLAPS, "none", "all"}:
        if cells.get("ep_comm_overlap") != "y":
            row.unread("overlap", cells["overlap"])
        cells["overlap"], words = "", []
    for item, effect in (
        ("tp", "tensor-parallel communication overlapped"),
        ("ep", "all-to-all of experts overlapped with another micro-batch"),
    ):
        if cells.get(f"{item}_comm_overlap") != "y" or item in words:
            continue
        if cells.get("mla") == "y" and item in stack.able.not_with_latent_attention:
            row.rules.append(f"{effect}, as the row says: {stack.name} turns it off with latent attention")
        else:
            overlap = (cells.get("overlap") or ",".join(stack.overlap)).split(",")
            row.set("overlap", ",".join((*overlap, item)), f"{effect}, as the row says")
    if cells.get("ep_comm_overlap") == "y" and stack.delays_wgrad and not cells.get("delay_wgrad_compute"):
        row.set("delay_wgrad_compute", "on", f"weight gradients delayed: {stack.name} sets it with the overlap of experts")


def fill_chunks(row: Row) -> None:
    """Blank vpp with a pipeline: tried at both ends, 1, and one layer a chunk."""
    cells = row.cells
    if cells.get("vpp_filled") and not cells.get("vpp"):
        row.rules.append("vpp as filled in from the recipe")
    pp = number(cells.get("pp", "")) if cells.get("pp") else 1.0
    if pp > 1 and not (cells.get("vpp") or cells.get("vpp_filled")):
        row.apart.append(Apart.NO_VPP)


def fill_links(row: Row) -> None:
    """NICs and scale-up domains that differ from the node's usual ones: stated rates, and the slices of a TPU job."""
    cells = row.cells
    rate = number(cells.get("nic_gbps_per_gpu", ""))
    if rate > 0:
        row.set("nic_bandwidth", f"{rate:g} Gb/s", f"{rate:g} Gb/s of NIC an accelerator, as the row says")
    words = cells.get("interconnect", "").lower()
    fabric = next((name for word, name in FABRICS if word in words), "")
    if fabric and "dcn" not in words:
        row.set("fabric", fabric, f"fabric by a word of the interconnect: {fabric}")
    slices = re.match(r"(\d{1,6}) slices\b", words)
    if slices and int(slices.group(1)) > 1:
        chips = int(number(cells["gpus"])) // int(slices.group(1))
        row.set("scale_up_size", str(chips), f"{slices.group(1)} slices of {chips} chips, data parallel between them")
        cells["dp_replicate"] = slices.group(1)


FABRICS = (("omni-path", "omni-path-100"), ("roce", "roce-200"), ("infiniband", "infiniband-ndr"), ("hdr", "infiniband-hdr"),
           ("efa", "efa-v2"), ("slingshot", "slingshot-11"))  # fmt: skip


def fill_groups(row: Row) -> None:
    """How a stack uses its ranks: groups of ZeRO, micro-batches counted by device, experts without a group of ranks."""
    cells = row.cells
    dp, shards = number(cells.get("dp", "")), number(cells.get("zero_group") or cells.get("dp_shard", ""))
    if load.fold_name(cells.get("sharding", "")) in HYBRID and not shards > 0:
        dp, shards = hybrid_group(row)
    if dp > shards:
        cells["dp_replicate"] = f"{dp / shards:g}"
        row.set("dp_shard", f"{shards:g}", f"optimizer states sharded over {shards:g} ranks, as the row says")
    stack = load.record("frameworks", cells["framework"], row.folders)
    if stack.micro_batch_per_device and number(cells.get("tp", "")) > 1 and cells.get("micro_batch"):
        ranks = number(cells["gpus"]) / number(cells["tp"])
        sequences = number(cells["micro_batch"]) * number(cells["tp"])
        if sequences * ranks == number(cells["global_batch_seqs"]):
            row.set("micro_batch", f"{sequences:g}", f"{stack.name} counts its micro-batch per device: times tp")
    if stack.experts_on_shards and number(cells.get("moe_experts", "")) > 1 and not cells.get("ep"):
        row.set("ep", "1", f"blank ep: {stack.name} shards experts with the weights")
        if number(cells.get("tp", "")) > 1:
            row.set("etp", cells["tp"], f"{stack.name} splits every expert over its tensor axis")
    if cells.get("moe_dispatcher") not in (None, "", *DISPATCHERS):
        row.unread("moe_dispatcher", cells["moe_dispatcher"])
        cells["moe_dispatcher"] = ""


HYBRID = ("hsdp", "hybrid-shard", "hybrid")
STATE_BYTES = 16.0  # of a parameter: weight and gradient in 4 bytes, two states of Adam in 4 bytes


def hybrid_group(row: Row) -> tuple[float, float]:
    """Data-parallel ranks, and those of them that share one set of weights: the least whole nodes whose memory holds the states.

    Half of the memory is for states, the rest for activations and what is gathered.
    """
    cells = row.cells
    split = math.prod(number(cells.get(n) or "1") for n in ("tp", "pp", "cp"))
    ranks = number(cells["gpus"]) / split
    device = load.record("accelerators", find_name("accelerators", cells["gpu_type"], row.folders), row.folders)
    node = load.record("nodes", device.usual_node, row.folders).accelerators.value
    billions = number(cells.get("params_b", ""))
    if not billions > 0:
        model = load.record("models", find_name("models", cells.get("model_name", ""), row.folders), row.folders)
        billions = float(total_parameters(model)) / 1e9
    held = STATE_BYTES * billions * 1e9 / (number(cells.get("tp") or "1") * number(cells.get("pp") or "1"))
    group = min(node, ranks)
    while group < ranks and (held / group > 0.5 * device.usable_memory or ranks % group):
        group += node
    return ranks, min(group, ranks)


def use_generic(row: Row) -> None:
    """The record that a stranger's stack would get, in place of the run's own."""
    if row.generic:
        cells = row.cells
        framework = generic_stack(cells, row.folders)
        row.rules.append(f"{cells['framework']} predicted with the generic record {framework}")
        cells |= {"framework": framework, "compile": ""}


FILLS = (
    check_device, fill_from_prose, set_apart, named_fallback, fill_sizes, fill_traits, fill_precision, fill_mesh, fill_stack, fill_chunks,
    fill_links, fill_groups, use_generic,
)  # fmt: skip


def micro_batches(row: Row) -> list[int]:
    """The micro-batches that a row without one may have run: powers of two that divide a rank's sequences; none where dp is open."""
    cells = row.cells
    if cells.get("micro_batch") or not (cells.get("tp") and cells.get("pp")):
        return []
    ranks = number(cells["gpus"]) / math.prod(number(cells.get(n) or "1") for n in ("tp", "pp", "cp"))
    sequences = number(cells["global_batch_seqs"]) / ranks
    if not sequences >= 1 or sequences != int(sequences):
        return []
    return [2**k for k in range(int(sequences).bit_length()) if int(sequences) % 2**k == 0]


def variants(row: Row) -> list[Cells]:
    """The row, or one for every value of what it does not state: least and most chunks, micro-batches.

    Adapters of no stated rank have the usual one.
    """
    cells = row.cells
    if Apart.ADAPTERS in row.apart:
        cells = {**cells, "lora_rank": cells.get("lora_rank") or USUAL_RANK}
    sizes = [{"micro_batch": str(size)} for size in micro_batches(row)] or [{}]
    return [{**chunked, **size} for chunked in _by_chunks(row, cells) for size in sizes]


def _by_chunks(row: Row, cells: Cells) -> list[Cells]:
    """The row, or two with the least and the most chunks where vpp is unknown."""
    if Apart.NO_VPP not in row.apart:
        return [cells]
    layers, pp = number(cells.get("layers", "")), number(cells["pp"])
    most = int(layers // pp) if layers >= pp else 1
    row.rules.append(f"blank vpp: between 1 and {most}, geometric mean")
    return [{**cells, "vpp": str(vpp)} for vpp in dict.fromkeys((1, most))]
