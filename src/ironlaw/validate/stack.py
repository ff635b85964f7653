"""The framework record of a published run: by its name, by a word in it, or the generic record that a stranger's stack would get."""

from __future__ import annotations

import re
from enum import StrEnum

from ironlaw.catalog import load
from ironlaw.catalog.spellings import find_name, known_names, spellings
from ironlaw.estimate.legality.abilities import usual_framework
from ironlaw.validate.prose import Cells


class Known(StrEnum):
    """How the record of a run's stack was found."""

    NAME = "its own record"
    WORD = "a record by a word in its name"
    GENERIC = "the generic record"


_STACKS = (  # a word in the name of a framework, and the record of stacks like it; longer words first where one has another in it
    ("automodel", "automodel"), ("prime-rl", "prime-rl"), ("prime rl", "prime-rl"), ("torchtune", "torchtune"), ("unsloth", "unsloth"),
    ("liger", "huggingface-liger"), ("axolotl", "axolotl"), ("trl", "trl"), ("hugging", "huggingface"), ("transformers", "huggingface"),
    ("accelerate", "huggingface"), ("llm.c", "llm.c"), ("fms", "fms-fsdp"), ("foundry", "llm-foundry"), ("composer", "llm-foundry"),
    ("deepspeed", "deepspeed"), ("megatron", "megatron"), ("nemo", "nemo"), ("titan", "torchtitan"), ("fsdp", "fsdp"),
    ("maxtext", "maxtext"), ("t5x", "maxtext"), ("jax", "maxtext"), ("pax", "maxtext"), ("xla", "maxtext"), ("primus", "megatron"),
)  # fmt: skip


def find_stack(cells: Cells, folders: tuple[str, ...] = ()) -> tuple[str, Known]:
    """The framework record of a row, and how it was found."""
    name = cells.get("framework", "")
    trainer = cells.get("trainer", "")
    for text in (name, *([f"{name.partition(' (')[0]} {trainer}"] if trainer else []), *spellings(name)):
        if load.fold_name(text) in known_names("frameworks", folders):
            return _for_device(load.resolve("frameworks", text, folders), cells, folders), Known.NAME
    framework = _by_word(name)
    if framework:
        return _for_device(framework, cells, folders), Known.WORD
    return generic_stack(cells, folders), Known.GENERIC


def _by_word(name: str) -> str:
    for word, framework in _STACKS:
        if re.search(rf"\b{re.escape(word)}" if len(word) < 4 else re.escape(word), name.lower()):
            return framework
    return ""


def generic_stack(cells: Cells, folders: tuple[str, ...] = ()) -> str:
    """The record that a question without a framework gets: the device's usual one, else by the plan."""
    device = _device(cells, folders)
    vendor = load.record("accelerators", device, folders).vendor if device else ""

    def degree(name: str) -> float | None:
        cell = cells.get(name, "")
        return float(cell) if cell.isdecimal() else None

    return usual_framework(vendor, degree("gpus"), degree("tp") or 1.0, degree("pp") or 1.0)


def _device(cells: Cells, folders: tuple[str, ...]) -> str:
    memory = cells.get("gpu_mem_gb", "")
    return find_name("accelerators", cells.get("gpu_type", ""), folders, f"{memory}GB" if memory else "")


def _for_device(framework: str, cells: Cells, folders: tuple[str, ...]) -> str:
    """The record of a stack on the accelerators of a row's vendor: a JAX stack has one for TPUs and one for GPUs."""
    if not (device := _device(cells, folders)):
        return framework
    same_on: dict[str, str] = load.record("frameworks", framework, folders).same_on
    return same_on.get(load.record("accelerators", device, folders).vendor, framework)
