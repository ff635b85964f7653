"""Tables of runs that fitted or failed: what is predicted of each, and how likely it was to fit.

Two headers are known: that of the benchmarks of fms-acceleration (Hugging Face Trainer) and that of prime-rl's baselines.
``fits(path)`` predicts every row that can be asked; ``summary`` turns the rows into figures.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.spellings import known_names
from ironlaw.errors import InputError, IronlawError, nearest_names
from ironlaw.estimate.answer import Estimate
from ironlaw.estimate.table import answer_many, read_table
from ironlaw.question.options import read_options
from ironlaw.validate.fill import SkipError, number, short
from ironlaw.validate.peaks import RunMemory, figures
from ironlaw.validate.runs import DATA, short_reason

GIB = 2.0**30
SCHEMA_VERSION = 1
SHIPPED = DATA / "fits_prime_rl.csv"
LIKELY = 0.5  # probability to fit above which a run counts as said to fit
PACKED = 0.01  # mean tokens of packed samples are as near as this to a multiple of PACK
PACK = 1024.0  # tokens: packed samples are a multiple of it long
OUT_OF_MEMORY = re.compile(r"out ?of ?memory|\bOOM\b", re.IGNORECASE)
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


@dataclass(frozen=True)
class Fit:
    """One row: its prediction beside what happened. ``reason`` says why a row has no prediction, or no error of its peak."""

    name: str
    line: int
    group: str  # framework, and adapters or full fine-tuning
    asked: Asked | None = None
    accelerator: str = ""
    predicted_bytes: float | None = None
    probability: float | None = None
    reason: str = ""

    @property
    def error(self) -> float | None:
        """Predicted / measured - 1; None where the table states no peak that compares."""
        if self.asked is None or self.asked.measured_bytes is None or self.predicted_bytes is None:
            return None
        return self.predicted_bytes / self.asked.measured_bytes - 1.0

    @property
    def verdict(self) -> str:
        """What happened, and whether it was said to fit."""
        if self.asked is None or self.probability is None:
            return "not predicted"
        said = "said to fit" if self.probability >= LIKELY else "said not to fit"
        return f"{'ran' if self.asked.ran else 'failed'}, {said}"

    @property
    def out_of_memory(self) -> bool:
        """True for a failure whose text says that memory ran out."""
        return self.asked is not None and not self.asked.ran and bool(OUT_OF_MEMORY.search(self.asked.failed_with))


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
        "attention_kernel": KERNELS.get(cells.get("attention", "")),
        **_sharded(gpus / cp, cp=cp, ep=ep),
    }
    if cells.get("lora_rank"):
        options |= {"lora_rank": _whole(cells, "lora_rank"), "lora_targets": "all", "lora_sets": PRIME_ADAPTERS}
    if (ended := cells.get("fits", "")) not in ("yes", "no"):
        raise SkipError(f"fits is {short(ended)!r}, must be yes or no")
    return Asked(options, ended == "yes", cells.get("error", ""), _peak(cells, "peak_gib"), "reserved")


# --- Hugging Face Trainer ------------------------------------------------------------------------------------------------

FOAK, LIGER, FOUR_BITS = "foak", "liger", {"bnb": "nf4", "autogptq": "gptq"}  # words of framework_config


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
    framework = "fms-acceleration-liger" if LIGER in words else "fms-acceleration" if FOAK in words else "huggingface"
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


# --- both ----------------------------------------------------------------------------------------------------------------

Reader = Callable[[Cells, tuple[str, ...]], Asked]
HEADERS: dict[str, tuple[tuple[str, ...], Reader]] = {
    "prime-rl": (("model", "device", "num_gpus", "type", "seq_len", "ac", "fits", "peak_gib"), read_prime_rl),
    "fms-acceleration": (
        ("model_name_or_path", "framework_config", "num_gpus", "per_device_train_batch_size", "tokens_per_sample", "status"),
        read_trainer,
    ),
}


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


def _peak(cells: Cells, name: str) -> float | None:
    """A measured peak [B]; None where it is blank."""
    if not cells.get(name):
        return None
    value = number(cells[name])
    if not 0 < value < 1e6:
        raise SkipError(f"{name} is {short(cells[name])!r}, must be a number of GiB above 0")
    return value * GIB


def fits(path: Path, folders: tuple[str, ...] = ()) -> list[Fit]:
    """Every row of a table, in its order. Raises InputError for a file that is not such a table."""
    table = read_table(path)
    read = reader_of(path, table[0][1])
    rows: list[Fit] = []
    questions: dict[int, dict[str, Any]] = {}
    lengths = _companions(table)
    for at, (line, stated) in enumerate(table):
        name = stated.get("name") or stated.get("file") or f"line {line}"
        length = stated.get("tokens_per_sample") or lengths.get(_companion(stated), "")
        try:
            asked = read({**stated, "tokens_per_sample": length}, folders)
            given = {key: value for key, value in asked.options.items() if value is not None}
            questions[at] = read_options(given, f"line {line}")
            group = f"{asked.options['framework']}, {'adapters' if 'lora_rank' in asked.options else 'full'}"
            rows.append(Fit(name, line, group, asked))
        except (SkipError, IronlawError) as reason:
            rows.append(Fit(name, line, "", reason=short_reason(str(reason))))
    answered, wrong = answer_many(list(questions.values()), folders)
    for place, at in enumerate(questions):
        rows[at] = _with_answer(rows[at], wrong.get(place) or answered[place])
    return rows


def reader_of(path: Path, cells: Cells) -> Reader:
    """The reader of a header. InputError that names the columns that the nearest known header has beside these."""
    missing = {name: [c for c in columns if c not in cells] for name, (columns, _) in HEADERS.items()}
    nearest = min(missing, key=lambda name: len(missing[name]) / len(HEADERS[name][0]))
    if missing[nearest]:
        raise InputError(f"{path}: no table of runs that fitted or failed: add the columns {', '.join(missing[nearest])}")
    return HEADERS[nearest][1]


def _companion(cells: Cells) -> tuple[str, str]:
    return cells.get("source_file", ""), cells.get("model_name_or_path", "")


def _companions(table: Sequence[tuple[int, Cells]]) -> dict[tuple[str, str], str]:
    """Median tokens of a sample by file and model; rows that failed have none of their own."""
    found: dict[tuple[str, str], list[float]] = {}
    for _, cells in table:
        if (mean := number(cells.get("tokens_per_sample"))) > 0:
            found.setdefault(_companion(cells), []).append(mean)
            found.setdefault((_companion(cells)[0], ""), []).append(mean)
    medians = {key: str(statistics.median(values)) for key, values in found.items()}
    return {_companion(cells): medians.get(_companion(cells)) or medians.get((_companion(cells)[0], ""), "") for _, cells in table}


def _with_answer(row: Fit, answer: tuple[Estimate, int] | IronlawError) -> Fit:
    """A row with its prediction, or with the reason why it has none."""
    if isinstance(answer, IronlawError):
        return Fit(row.name, row.line, row.group, reason=short_reason(str(answer)))
    group, at = answer[0].place_of(answer[1])
    if not bool(np.broadcast_to(group.legal, group.index.shape)[at]):
        broken = [name for name, passed in group.rules.items() if not bool(np.broadcast_to(passed, group.index.shape)[at])]
        return Fit(row.name, row.line, row.group, reason=f"no such plan: {', '.join(broken)}")
    asked = row.asked
    assert asked is not None
    column = group.memory.reserved if asked.kind == "reserved" else group.memory.allocated
    likely = None if group.likely is None else float(np.broadcast_to(group.likely.value, group.index.shape)[at])
    reason = next((rule for rule in asked.rules if rule.startswith("no peak")), "")
    size = float(np.broadcast_to(column, group.index.shape)[at])
    return Fit(row.name, row.line, row.group, asked, group.cluster.accelerator.name, size, likely, reason)


def shipped_memories(folders: tuple[str, ...] = ()) -> list[tuple[str, RunMemory]]:
    """(family, memory) of the rows of the table that ships: prime-rl's, which measured reserved memory."""
    return [
        ("prime-rl", RunMemory(r.name, r.asked.kind, r.predicted_bytes, r.asked.measured_bytes, r.group.partition(",")[0], r.accelerator))
        for r in fits(SHIPPED, folders)
        if r.error is not None and r.asked is not None and r.predicted_bytes is not None and r.asked.measured_bytes is not None
    ]


# --- figures -------------------------------------------------------------------------------------------------------------


def summary(rows: Sequence[Fit]) -> dict[str, Any]:
    """Counts and errors over all rows, the same by group, and a line for every row."""
    return {**counts(rows), "groups": {name: counts([r for r in rows if r.group == name]) for name in _groups(rows)}, "lines": lines(rows)}


def _groups(rows: Iterable[Fit]) -> list[str]:
    return sorted({r.group for r in rows if r.probability is not None})


def counts(rows: Sequence[Fit]) -> dict[str, Any]:
    """Rows, what ran and failed and what was said of it, and errors of the stated peaks."""
    scored = [r for r in rows if r.probability is not None and r.asked is not None]
    ran, failed = ([r for r in scored if r.asked.ran is flag] for flag in (True, False))  # type: ignore[union-attr]
    errors = figures(r.error for r in scored if r.error is not None)
    silent = [r for r in failed if not r.out_of_memory]
    return {
        "rows": len(rows),
        "scored": len(scored),
        "ran": len(ran),
        "ran_refused": sum(r.probability < LIKELY for r in ran if r.probability is not None),
        "failed": len(failed),
        "failed_passed": sum(r.probability > LIKELY for r in failed if r.out_of_memory and r.probability is not None),
        "failed_without_text": len(silent),
        "failed_without_text_passed": sum(r.probability > LIKELY for r in silent if r.probability is not None),
        "median_abs_error": errors["median_abs_error"],
        "p90_abs_error": errors["p90_abs_error"],
        "bias": errors["bias"],
        "peaks": errors["n"],
    }


def lines(rows: Iterable[Fit]) -> list[dict[str, Any]]:
    """Every row as plain data."""
    return [
        {
            "name": r.name,
            "line": r.line,
            "group": r.group,
            "predicted_gib": None if r.predicted_bytes is None else r.predicted_bytes / GIB,
            "measured_gib": None if r.asked is None or r.asked.measured_bytes is None else r.asked.measured_bytes / GIB,
            "kind": "" if r.asked is None else r.asked.kind,
            "error": r.error,
            "probability": r.probability,
            "verdict": r.verdict,
            "reason": r.reason,
            "rules": [] if r.asked is None else list(r.asked.rules),
        }
        for r in rows
    ]
