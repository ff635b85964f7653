"""Facts that published tables state in prose, as columns: LoRA in a model's name, ``mixed_precision=DEFAULT`` in the notes."""

from __future__ import annotations

import re

Cells = dict[str, str]

PHRASES = (  # column, phrase in it, column to fill, value, rule to report; a rule that later reads the filled column reports itself
    ("notes", r"zero1 (?:shard )?group (?:= )?([1-9]\d{0,5})", "zero_group", r"\1", ""),
    ("notes", "mixed_precision=DEFAULT", "gradient_dtype", "fp32", "mixed_precision=DEFAULT: gradients reduced in fp32"),
    ("notes", "FP8-CS", "fp8_scaling", "current", "label FP8-CS: current scaling"),
    ("enrich_source", "FA1", "attention_kernel", "fa1", "first flash attention, as the row's source says"),
)


def read_prose(cells: Cells) -> tuple[Cells, list[str]]:
    """The row with the columns that its prose fills, and a sentence for each; columns with a value do not change."""
    filled, rules = _read_training(cells)
    for source, phrase, name, value, rule in PHRASES:
        match = re.search(phrase, cells.get(source, ""))
        if match and not cells.get(name):
            filled[name] = match.expand(value)
            rules += [rule] if rule else []
    offloaded = re.search(r"cpu_offloading_num_layers=(\d+)", cells.get("notes", ""))
    if offloaded and cells.get("offload") == "activations" and not cells.get("offload_layers"):
        filled["offload_layers"] = offloaded[1]
        rules.append("layers that offload, as the recipe's preset says")
    return {**cells, **filled}, rules


def _read_training(cells: Cells) -> tuple[Cells, list[str]]:
    """The columns for adapters and fine-tuning, and for figures that the source calls early."""
    filled: Cells = {}
    rules: list[str] = []
    name, notes = cells.get("model_name", ""), cells.get("notes", "")
    words = f"{name} {cells.get('task', '')} {notes[:40]}".lower()
    adapters = re.search(r"\blora\b(?: r(\d+))?", words)
    if cells.get("training"):
        return filled, rules
    if adapters:
        filled |= {"training": "adapters", "model_name": re.split(r"\s+lora", name, flags=re.IGNORECASE)[0]}
        if adapters[1] and not cells.get("lora_rank"):
            filled["lora_rank"] = adapters[1]
        if "fp8_params" in notes and cells.get("precision", "").lower() == "fp8":
            filled["frozen_weights"] = "fp8"
            rules.append("fp8_params: frozen weights stored in fp8, as the recipe says")
    elif re.search(r"\b(sft|fine-tune|finetune|proxy)\b", words):
        filled["training"] = "fine-tuning"
    mixture = "moe" in words or cells.get("moe_experts", "") not in ("", "0", "1")
    if re.search(r"early|untuned", notes, re.IGNORECASE) and (mixture or filled):
        filled["tuned"] = "n"
    return filled, rules
