"""The blanks of a published run, filled by rules that each leave a sentence; what cannot be filled is a reason to skip.

A rule reads the row and the catalogue, writes cells, and says so in ``rules``; what a reader should not mix with the rest is
named in ``apart``. Rules run in the order of ``FILLS``.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ironlaw.catalog import load
from ironlaw.errors import nearest_names
from ironlaw.estimate.table import known_names, without_thousands
from ironlaw.question.defaults import DISPATCHERS

Cells = dict[str, str]

VOCABULARY = 50257  # GPT-2's, which Megatron pads to a multiple of 128 tp
SIXTEEN_BIT = ("fp16", "bf16")


@dataclass
class Row:
    """What filling one row's blanks has found so far."""

    cells: Cells
    rules: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)

    def set(self, name: str, value: str, rule: str) -> None:
        """Fill a cell and say by which rule."""
        self.cells[name] = value
        self.rules.append(rule)


class SkipError(Exception):
    """Raised by a rule that cannot go on; its text is the reason that is counted."""


def number(cell: str | None) -> float:
    """A cell as a number, without a spreadsheet's thousands separators; nan where it is none.

    >>> number("1,536"), number(""), number("9,5")
    (1536.0, nan, nan)
    """
    text = without_thousands((cell or "").strip())
    return float(text) if _NUMBER.fullmatch(text) else float("nan")


_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


def positive(cells: Cells, name: str) -> float:
    """A cell's number; nan where it is blank. SkipError where it holds something that is no number above 0."""
    cell = cells.get(name) or ""
    value = number(cell)
    if cell and not 0 < value < float("inf"):
        raise SkipError(f"{name} is {short(cell)!r}, must be a number above 0, with a point for decimals")
    return value


def short(cell: str) -> str:
    """A cell as a message shows it."""
    return cell if len(cell) < 40 else cell[:37] + "..."


def need_a_device(found: Row, folders: tuple[str, ...]) -> None:
    """The accelerator and its count; a bare A100 is the 80 GB SXM part."""
    cells = found.cells
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
        found.rules.append("a bare A100 is the 80 GB SXM")
    spelled = f"{device} {cells.get('gpu_mem_gb', '')}GB"
    if not {load.fold_name(device), load.fold_name(spelled)} & known_names("accelerators", folders):
        near = nearest_names(device, load.names("accelerators", folders))
        raise SkipError(f"unknown accelerator {short(device)!r}" + (f"; nearest: {', '.join(near)}" if near else ""))


def tell_kind(found: Row, folders: tuple[str, ...]) -> None:
    """What is no dense pre-training: mixtures, adapters, fine-tuning, stand-ins."""
    del folders
    cells = found.cells
    words = f"{cells.get('model_name', '')} {cells.get('task', '')} {cells.get('notes', '')[:40]}".lower()
    if number(cells.get("moe_experts", "")) > 1:
        found.apart.append("mixture of experts")
        if cells.get("moe_dispatch", "") == "token-drop":
            found.cells["capacity_factor"] = cells.get("capacity_factor") or "1"
            found.rules.append("token-drop dispatch: capacity factor 1")
    lora = re.search(r"\blora\b(?: r(\d+))?", words)
    if lora:
        found.apart.append("adapters")
        found.set("lora_rank", lora.group(1) or "16", f"low-rank adapters of rank {lora.group(1) or '16'}")
        if "fp8_params" in cells.get("notes", "") and cells.get("precision", "").lower() == "fp8":
            found.set("frozen_weights", "fp8", "fp8_params: frozen weights stored in fp8, as the recipe says")
        cells["model_name"] = re.split(r"\s+lora", cells.get("model_name", ""), flags=re.IGNORECASE)[0]
    elif re.search(r"\b(sft|fine-tune|finetune|proxy)\b", words):
        found.apart.append("fine-tuning or proxy")
    if re.search(r"early|untuned", cells.get("notes", "").lower()) and "moe" in words + " moe" * bool(found.apart):
        found.apart.append("called early by its source")


@cache
def named_sizes() -> dict[str, dict[str, str]]:
    """Sizes of models that are in no catalogue, by name."""
    return tomllib.loads((Path(__file__).parent / "data" / "models.toml").read_text(encoding="utf-8"))


_DIMENSIONS = ("layers", "hidden", "heads", "vocab", "kv_heads", "head_dim", "ffn_hidden", "expert_ffn_hidden", "moe_topk")


def fill_sizes(found: Row, folders: tuple[str, ...]) -> None:
    """Dimensions of the model: the row's own, else the catalogue's; a blank vocabulary is GPT-2's, padded."""
    cells = found.cells
    asked = load.fold_name(cells.get("model_name", "").partition(" (")[0])
    if asked in named_sizes() and not cells.get("hidden"):
        sizes = named_sizes()[asked]
        cells.update({k: v for k, v in sizes.items() if k != "source"})
        found.rules.append(f"sizes by name: {sizes['source']}")
    for name in _DIMENSIONS:
        positive(cells, name)
    for name in ("moe_experts", "shared_experts"):
        if cells.get(name) and not (0 <= number(cells[name]) < 1e6 and number(cells[name]) == int(number(cells[name]))):
            raise SkipError(f"{name} is {short(cells[name])!r}, must be a whole number")
    catalogued = asked in known_names("models", folders)
    if cells.get("hidden") and cells.get("layers") and cells.get("heads"):
        if not cells.get("vocab") and not catalogued:
            unit = 128 * int(max(number(cells.get("tp", "")), 1.0))
            padded = -(-VOCABULARY // unit) * unit
            found.set("vocab", str(padded), f"blank vocabulary: {VOCABULARY}, padded to a multiple of 128 tp")
    elif not catalogued:
        lacks = [n for n in ("layers", "hidden", "heads") if not cells.get(n)]
        raise SkipError(f"model not in the catalogue and the row lacks {', '.join(lacks)}")
    else:
        found.rules.append("dimensions from the catalogue")


_RELATIVES = {  # what a family shares at every size: of GPT those by number or size, not GPT-J, GPT-NeoX or gpt-oss
    r"gpt([- ]?[23])?([- ]\d| h\d|$)": "gpt-3-175b",
    r"bloom\b": "bloom-176b",
    r"mpt[- ]\d": "mpt-7b-foundry",
}
_TRAITS = ("position_embedding", "dropout", "query_key_value_bias", "attention_output_bias", "mlp_bias")


def fill_traits(found: Row, folders: tuple[str, ...]) -> None:
    """Positions, dropout and biases of the model's family, from the catalogue: a table's columns tell sizes alone."""
    cells = found.cells
    asked = cells.get("model_name", "")
    relative = next((record for pattern, record in _RELATIVES.items() if re.match(pattern, asked.lower())), "")
    released = load.fold_name(asked.partition(" (")[0])  # MosaicML released other shapes than it measured
    if released in known_names("models", folders) and load.fold_name(cells.get("framework", "")) != "llm-foundry":
        relative = released
    if not relative or not cells.get("hidden"):
        return
    record = load.record("models", relative, folders)
    for name in _TRAITS:
        value = getattr(record, name)
        cells[name] = cells.get(name) or (value if isinstance(value, str) else "on" if value else "off")
    found.rules.append(f"positions, dropout and biases as {relative}")


def fill_precision(found: Row, folders: tuple[str, ...]) -> None:
    """A blank precision stays apart: 16-bit formats of one rate are bracketed by one of them, nothing else is taken."""
    cells = found.cells
    word = (cells.get("precision_filled") or cells.get("precision") or "").lower()
    if cells.get("precision_filled") and not cells.get("precision"):
        found.rules.append("precision as filled in from the recipe")
    if word.startswith("fp8") and "block" in word:
        cells["precision_filled"] = "fp8-block"
    elif word.startswith("int8"):
        raise SkipError("int8 training is not modelled")
    if "FP8-CS" in cells.get("notes", ""):
        found.set("fp8_scaling", "current", "current scaling, as the label FP8-CS says")
    if word:
        return
    device = load.record("accelerators", cells.get("gpu_type") or cells.get("accelerator") or cells.get("on", ""), folders)
    rates = {device.peak[p].value for p in SIXTEEN_BIT if p in device.peak}
    if len(rates) != 1 or "fp8" in device.peak:
        raise SkipError("precision unknown")
    found.set("precision", "fp16" if "fp16" in device.peak else "bf16", "blank precision: 16 bits, whose formats have one rate here")
    found.apart.append("precision unknown")


def fill_mesh(found: Row, folders: tuple[str, ...]) -> None:
    """Blank degrees: cp, ep and etp are 1; tp and pp are left to the tool only where every GPU can have a sequence."""
    del folders
    cells = found.cells
    batch, gpus = positive(cells, "global_batch_seqs"), number(cells["gpus"])
    if not batch >= 1:
        raise SkipError("no global batch: global_batch_seqs")
    if not positive(cells, "seq_len") >= 1:
        raise SkipError("no sequence length: seq_len")
    if not (cells.get("tp") and cells.get("pp")):
        if batch < gpus:
            raise SkipError("parallelism unknown")
        found.apart.append("parallelism unknown")
        found.rules.append("blank tp or pp: chosen by ironlaw")
    for name in ("cp", "etp"):
        if not cells.get(name) and (name != "etp" or number(cells.get("moe_experts", "")) > 1):
            cells[name] = "1"
    split = number(cells.get("tp") or "1") * number(cells.get("pp") or "1")
    if not cells.get("sharding") and split > 1:
        found.set("sharding", "zero1", "blank sharding with tp or pp: a distributed optimizer")
    if not cells.get("micro_batch"):
        found.rules.append("blank micro-batch: chosen by ironlaw")
    if not cells.get("recompute"):
        found.apart.append("recompute unknown")
        found.rules.append("blank recompute: chosen by ironlaw, least that fits")


def fill_stack(found: Row, folders: tuple[str, ...]) -> None:
    """The training stack by its name, by a word in it, or by the plan; its kernels, graphs and overlap as the row says."""
    cells = found.cells
    name = load.fold_name(cells.get("framework", "").partition(" (")[0]), load.fold_name(cells.get("framework", ""))
    known = known_names("frameworks", folders)
    if name[1] not in known:
        if name[0] in known:
            cells["framework"] = cells["framework"].partition(" (")[0]
        else:
            taken = stack_of(cells)
            found.set("framework", taken, f"framework {cells.get('framework') or 'blank'!r} taken as {taken}")
    if (
        not cells.get("sharding")
        and found.apart[:1] == ["adapters"]
        and load.record("frameworks", cells["framework"], folders).name == "nemo"
    ):
        found.set("sharding", "zero1", "blank sharding of adapters in NeMo: a distributed optimizer, its stack shards no weights")
    if not cells.get("attention_kernel") and "FA1" in cells.get("enrich_source", ""):
        found.set("attention_kernel", "fa1", "first flash attention, as the row's source says")
    if cells.get("flash_attention") not in ("y", "n", "", None):
        found.set("flash_attention", "", "flash attention not known: the framework's habit")
    stack = load.record("frameworks", cells["framework"], folders)
    said = {
        "tp": cells.get("tp_comm_overlap") == "y" and "tensor-parallel communication overlapped, as the row says",
        "ep": PAIRED in cells.get("notes", "") and f"{PAIRED}, as the row's source says",
    }
    for item, words in said.items():
        if words:
            found.set("overlap", ",".join((*(cells.get("overlap") or ",".join(stack.overlap)).split(","), item)), str(words))
    if "mixture of experts" in found.apart and not cells.get("cuda_graphs") and stack.operators_per_routed_layer.value > 0:
        found.apart.append("CUDA graphs unknown")  # a routed layer launches enough to wait for its host, unless a graph replays it
        found.rules.append("blank CUDA graphs: none")


PAIRED = "all-to-all of experts beside another micro-batch"
STACKS = (("deepspeed", "deepspeed"), ("megatron", "megatron"), ("nemo", "nemo"), ("titan", "torchtitan"), ("fsdp", "fsdp"),
          ("maxtext", "maxtext"), ("jax", "maxtext"), ("pax", "maxtext"), ("xla", "maxtext"), ("primus", "megatron"))  # fmt: skip


def stack_of(cells: Cells) -> str:
    """The record that stands for an unknown framework: by a word of its name, else by the plan."""
    folded = cells.get("framework", "").lower()
    for word, taken in STACKS:
        if word in folded:
            return taken
    return "megatron" if number(cells.get("tp") or "1") * number(cells.get("pp") or "1") > 1 else "fsdp"


def fill_chunks(found: Row, folders: tuple[str, ...]) -> None:
    """Blank vpp with a pipeline: NVIDIA's GPT-3 175B at tp 4, pp 8 uses 12; else bracketed between 1 and all chunks."""
    del folders
    cells = found.cells
    if cells.get("vpp_filled") and not cells.get("vpp"):
        found.rules.append("vpp as filled in from the recipe")
    pp = number(cells.get("pp", "")) if cells.get("pp") else 1.0
    if cells.get("vpp") or cells.get("vpp_filled") or pp <= 1:
        return
    gpt3 = cells.get("layers") == "96" and cells.get("hidden") == "12288" and (cells.get("tp"), cells.get("pp")) == ("4", "8")
    if gpt3 and "nemo" in cells.get("framework", "").lower():
        found.set("vpp", "12", "blank vpp: NeMo's GPT-3 175B at tp 4, pp 8 has 12")
    else:
        found.apart.append("vpp unknown")


def fill_links(found: Row, folders: tuple[str, ...]) -> None:
    """NICs and domains that differ from the node's usual ones: stated rates, and the slices of a TPU job."""
    del folders
    cells = found.cells
    rate = number(cells.get("nic_gbps_per_gpu", ""))
    if rate > 0:
        found.set("nic_bandwidth", f"{rate:g} Gb/s", f"{rate:g} Gb/s of NIC an accelerator, as the row says")
    words = cells.get("interconnect", "").lower()
    fabric = next((name for word, name in FABRICS if word in words), "")
    if fabric and "dcn" not in words:
        found.set("fabric", fabric, f"fabric by a word of the interconnect: {fabric}")
    slices = re.match(r"(\d{1,6}) slices\b", words)
    if slices and int(slices.group(1)) > 1:
        chips = int(number(cells["gpus"])) // int(slices.group(1))
        found.set("scale_up_size", str(chips), f"{slices.group(1)} slices of {chips} chips, data parallel between them")
        cells["dp_replicate"] = slices.group(1)


FABRICS = (("omni-path", "omni-path-100"), ("roce", "roce-200"), ("infiniband", "infiniband-ndr"), ("hdr", "infiniband-hdr"),
           ("efa", "efa-v2"), ("slingshot", "slingshot-11"))  # fmt: skip


def fill_groups(found: Row, folders: tuple[str, ...]) -> None:
    """What a stack does with its ranks: groups of ZeRO, gradients in fp32, micro-batches a device, experts without a group."""
    cells = found.cells
    notes = cells.get("notes", "")
    ways = re.search(r"zero1 (?:shard )?group (?:= )?([1-9]\d{0,5})", notes)
    dp = number(cells.get("dp", ""))
    if ways and dp > int(ways.group(1)):
        cells["dp_replicate"] = f"{dp / int(ways.group(1)):g}"
        found.set("dp_shard", ways.group(1), f"optimizer states sharded over {ways.group(1)} ranks, as the row's notes say")
    moved = re.search(r"offloads (\d+) layers|cpu_offloading_num_layers=(\d+)", notes)
    if moved and cells.get("offload") == "activations":
        found.set("offload_layers", moved.group(1) or moved.group(2), "layers that offload, as the recipe's preset says")
    if "mixed_precision=DEFAULT" in notes:
        found.set("gradient_dtype", "fp32", "mixed_precision=DEFAULT: gradients reduced in fp32")
    record = load.record("frameworks", cells["framework"], folders).name
    if record == "maxtext" and number(cells.get("tp", "")) > 1 and cells.get("micro_batch"):
        ranks = number(cells["gpus"]) / number(cells["tp"])
        whole = number(cells["micro_batch"]) * number(cells["tp"])
        if whole * ranks == number(cells["global_batch_seqs"]):
            found.set("micro_batch", f"{whole:g}", "MaxText counts its micro-batch per device: times tp")
    if record == "maxtext" and number(cells.get("moe_experts", "")) > 1 and not cells.get("ep"):
        found.set("ep", "1", "blank ep: MaxText shards experts over its fsdp axis")
        if number(cells.get("tp", "")) > 1:  # logical axes of layers/moe.py: "mlp" of an expert's weights lies on the tensor axis
            found.set("etp", cells["tp"], "MaxText splits every expert over its tensor axis")
    if cells.get("moe_dispatcher") not in (None, "", *DISPATCHERS):
        cells["moe_dispatcher"] = ""


FILLS = (need_a_device, tell_kind, fill_sizes, fill_traits, fill_precision, fill_mesh, fill_stack, fill_chunks, fill_links, fill_groups)


def variants(found: Row) -> list[Cells]:
    """The row itself, or the two ends of a bracket where vpp is unknown."""
    if "vpp unknown" not in found.apart:
        return [found.cells]
    layers, pp = number(found.cells.get("layers", "")), number(found.cells["pp"])
    most = int(layers // pp) if layers >= pp else 1
    found.rules.append(f"blank vpp: between 1 and {most}, geometric mean")
    return [{**found.cells, "vpp": str(v)} for v in dict.fromkeys((1, most))]
