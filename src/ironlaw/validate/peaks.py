"""Predicted memory against measured: allocator peaks of Megatron-LM's own tests, and the memory columns of published runs.

``peaks(read_table(shipped_peaks()))`` gives a Peak for every row that can be asked and a count of why others cannot;
``run_memory`` does the same for one row of a table of runs; ``summary`` turns both into figures.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.errors import IronlawError, QuestionError, UnsupportedError
from ironlaw.estimate.answer import Estimate, answer
from ironlaw.estimate.memory.total import STATES, last_stage_memory
from ironlaw.estimate.table import read_table
from ironlaw.launch.megatron.options import options_from_arguments  # the one sibling needed: launch arguments are what was measured
from ironlaw.question.options import read_options

LARGE = 2.0 * 2**30  # below this, libraries' workspaces and single temporaries decide
WIDE = 4096  # hidden size from which a model is one that somebody trains
UNITS = {"GB": 1e9, "GiB": 2.0**30, "MiB": 2.0**20}
MEASURED = ("allocated", "reserved", "device")
_DEVICES = {"dgx_a100": "a100-sxm-80gb", "dgx_h100": "h100-sxm", "dgx_gb200": "gb200"}
_COLUMNS = ("test", "platform", "gpus", "mem_max_allocated_bytes", "mem_allocated_bytes_median", "all_args")
_OWN_VOCABULARY = ("GPTSentencePieceTokenizer", "Llama2Tokenizer", "HuggingFaceTokenizer", "TikTokenizer", "SentencePieceTokenizer")


@dataclass(frozen=True)
class Peak:
    """One measured peak and its prediction; ``complete`` is False where the source leaves out what memory depends on."""

    id: str
    line: int
    predicted_bytes: float
    measured_bytes: float
    rules: tuple[str, ...]
    hidden_size: int
    moe: bool
    optimizer: str
    precision: str
    complete: bool
    fits: bool

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_bytes / self.measured_bytes - 1.0


@dataclass(frozen=True)
class RunMemory:
    """The memory of one published run: ``kind`` says what was measured; ``analytic`` is a paper's own formula."""

    id: str
    kind: str
    predicted_bytes: float
    measured_bytes: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_bytes / self.measured_bytes - 1.0


def shipped_peaks() -> Path:
    """The table of measured peaks that ships; ``data/README.md`` says where it is from."""
    return Path(__file__).parent / "data" / "peak_memory.csv"


def peaks(table: Sequence[tuple[int, dict[str, str]]], folders: tuple[str, ...] = ()) -> tuple[list[Peak], Counter[str]]:
    """The rows of a table of peaks that can be asked, and why the others cannot, counted."""
    found: list[Peak] = []
    skipped: Counter[str] = Counter()
    for line, cells in table:
        try:
            found.append(peak(line, cells, folders))
        except IronlawError as error:
            skipped[str(error)] += 1
    return found, skipped


def peak(line: int, cells: Mapping[str, str], folders: tuple[str, ...] = ()) -> Peak:
    """One row's prediction for its last pipeline stage, whose rank writes the log; an IronlawError says why there is none."""
    missing = [name for name in _COLUMNS if name not in cells]
    if missing:
        raise QuestionError(f"no column {', '.join(missing)}")
    measured = _bytes(cells["mem_max_allocated_bytes"], line)
    platform = cells["platform"].removesuffix("_2nd")
    if platform not in _DEVICES:
        raise UnsupportedError(f"unknown platform {cells['platform']!r} in line {line}")
    arguments = _arguments(cells["all_args"], line)
    rules: list[str] = []
    complete = not _incomplete(cells, arguments)
    if complete:
        estimate, applied = _ask(arguments, _accelerators(cells, line, rules), _DEVICES[platform], folders)
    else:
        estimate, applied = _completed(cells, arguments, _DEVICES[platform], folders, rules)
    group = estimate.groups[0]
    if not bool(estimate.legal[0]):
        raise QuestionError("illegal plan: " + ", ".join(name for name, kept in group.rules.items() if not bool(np.all(kept))))
    tree = last_stage_memory(group.job, group.cluster, group.plan)
    return Peak(
        id=f"{cells['test']}/{cells['platform']}",
        line=line,
        predicted_bytes=float(np.ravel(tree["allocated"].value)[0]),
        measured_bytes=measured,
        rules=(*rules, *applied),
        hidden_size=group.job.model.hidden_size,
        moe=bool(group.job.model.num_experts),
        optimizer=group.job.optimizer,
        precision=group.job.precision.name,
        complete=complete,
        fits=bool(estimate.fits[0]),
    )


def _bytes(cell: str, line: int) -> float:
    """A measured number of bytes."""
    if not cell:
        raise QuestionError("no measured peak")
    try:
        size = float(cell)
    except ValueError:
        size = math.nan
    if not math.isfinite(size) or size <= 0:
        raise QuestionError(f"measured peak is {cell!r} in line {line}, must be a number of bytes")
    return size


def _arguments(cell: str, line: int) -> dict[str, Any]:
    """The launch arguments of a row."""
    try:
        arguments = json.loads(cell)
    except (ValueError, RecursionError):
        raise QuestionError(f"all_args in line {line} is no JSON") from None
    if not isinstance(arguments, dict):
        raise QuestionError(f"all_args in line {line} is no JSON object")
    return arguments


def _ask(arguments: Mapping[str, Any], gpus: int, on: str, folders: tuple[str, ...]) -> tuple[Estimate, list[str]]:
    options, rules = options_from_arguments(arguments, gpus=gpus, on=on)
    return answer(read_options(options), folders), rules


def _accelerators(cells: Mapping[str, str], line: int, rules: list[str]) -> int:
    """Accelerators of a row; a blank is one node, as the recipes of these tests have it."""
    if cells["gpus"]:
        if not cells["gpus"].isdecimal() or not int(cells["gpus"]):
            raise QuestionError(f"gpus is {cells['gpus']!r} in line {line}, must be a whole number")
        return int(cells["gpus"])
    node = 4 if cells["platform"].startswith("dgx_gb200") and cells["test"].endswith("_1node") else 8
    rules.append(f"blank gpus are {node}: the recipes' own")
    return node


def _incomplete(cells: Mapping[str, str], arguments: Mapping[str, Any]) -> bool:
    """True where a tokenizer of unstated vocabulary is named and the number of accelerators is blank: release runs."""
    own = arguments.get("--tokenizer-type") in _OWN_VOCABULARY and "--vocab-size" not in arguments
    return bool(own) and not cells["gpus"]


def _completed(
    cells: Mapping[str, str], arguments: Mapping[str, Any], on: str, folders: tuple[str, ...], rules: list[str]
) -> tuple[Estimate, list[str]]:
    """A release run: vocabulary of the catalogue's model of its widths, accelerators by what stays allocated between steps."""
    resident = cells["mem_allocated_bytes_median"]
    if not resident:
        raise QuestionError("neither the number of accelerators nor what stays allocated between steps is stated")
    smallest = math.prod(int(arguments.get(f"--{axis}-parallel-size", 1)) for axis in ("tensor-model", "pipeline-model", "context"))
    options = options_from_arguments(arguments, gpus=smallest, on=on)[0]
    size, name = _vocabulary(_widths(options["model"]), folders)
    if size:
        arguments = {**arguments, "--vocab-size": size}
        rules.append(f"blank vocabulary is that of {name}, which has these widths")
    best: tuple[float, int, Estimate, list[str]] | None = None
    for gpus in (smallest * 2**power for power in range(10)):
        estimate, applied = _ask(arguments, gpus, on, folders)
        if bool(estimate.legal[0]):
            off = abs(_states(estimate) / float(resident) - 1.0)
            if best is None or off < best[0]:
                best = off, gpus, estimate, applied
    if best is None:
        raise QuestionError("no number of accelerators makes a legal plan")
    rules.append(f"blank gpus are {best[1]}: what stays allocated between steps is nearest to it")
    return best[2], best[3]


def _states(estimate: Estimate) -> float:
    """Bytes of the last stage that stay between steps."""
    group = estimate.groups[0]
    allocated = last_stage_memory(group.job, group.cluster, group.plan)["allocated"]
    return sum(float(np.ravel(part.value)[0]) for part in allocated.parts if part.name in STATES)


def _widths(model: Any) -> tuple[int, ...]:
    """What tells a model's family of sizes: widths and heads, not its number of layers."""
    names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "moe_intermediate_size", "intermediate_size")
    *widths, experts, dense = (int((model.get(name) if isinstance(model, Mapping) else getattr(model, name)) or 0) for name in names)
    return (*widths, experts, 0 if experts else dense)


def _vocabulary(widths: tuple[int, ...], folders: tuple[str, ...]) -> tuple[int, str]:
    """Vocabulary and name of the first catalogue model of these widths; 0 where there is none."""
    return _vocabularies(folders).get(widths, (0, ""))


@cache
def _vocabularies(folders: tuple[str, ...]) -> dict[tuple[int, ...], tuple[int, str]]:
    made: dict[tuple[int, ...], tuple[int, str]] = {}
    for name in sorted(load.names("models", folders)):
        model = load.record("models", name, folders)
        made.setdefault(_widths(model), (model.vocab_size, name))
    return made


# published runs


def run_memory(cells: Mapping[str, str], estimate: Estimate, row: int = 0) -> RunMemory:
    """What a run's memory column measured beside what the estimate of that run says; an IronlawError where they do not compare.

    Columns: memory_gb_per_gpu, memory_unit (GB, GiB), memory_kind (allocated, reserved, device; analytic).
    """
    kind, unit = cells.get("memory_kind", ""), cells.get("memory_unit", "")
    if not cells.get("memory_gb_per_gpu"):
        raise QuestionError("no measured memory")
    if kind not in (*MEASURED, "analytic"):
        raise QuestionError(f"memory_kind is {kind!r}: what was measured is not stated" if not kind else f"unknown memory_kind {kind!r}")
    if unit not in UNITS:
        raise QuestionError(f"unknown memory_unit {unit!r}")
    if not cells.get("micro_batch") and cells.get("pp", "1") not in ("", "1"):
        raise QuestionError("no micro-batch stated with a pipeline: activations in flight are open")
    group, at = estimate.place_of(row)
    if not bool(np.broadcast_to(group.legal, group.index.shape)[at]):
        raise QuestionError("illegal plan")
    held = group.memory
    column = {"allocated": held.allocated, "analytic": held.allocated, "reserved": held.reserved, "device": held.device}[kind]
    label = cells.get("id") or cells.get("name") or ""
    return RunMemory(label, kind, float(np.ravel(column)[at]), float(cells["memory_gb_per_gpu"].replace(",", "")) * UNITS[unit])


def fine_tuned(cells: Mapping[str, str]) -> bool:
    """True for fine-tuning, and for adapters of no stated rank: these train an unknown part of the model."""
    return bool(cells.get("training")) and not (cells["training"] == "adapters" and cells.get("lora_rank"))


def ran_and_fits(answers: Iterable[tuple[Mapping[str, str], Estimate, int]]) -> Iterator[tuple[str, bool]]:
    """(id, fits) of every pre-training run with a step time: it ran, so it did fit."""
    for cells, estimate, row in answers:
        if (cells.get("step_time_s") or cells.get("tokens_per_s_per_gpu")) and not fine_tuned(cells):
            group, at = estimate.place_of(row)
            if bool(np.broadcast_to(group.legal, group.index.shape)[at]):
                yield cells.get("id") or "", bool(np.broadcast_to(group.memory.fits, group.index.shape)[at])


# figures


def figures(errors: Iterable[float]) -> dict[str, float | int | None]:
    """Median and 90th percentile of the absolute errors, their median with its sign, and how many there are."""
    values = np.array(list(errors), dtype=np.float64)
    if not values.size:
        return {"median_abs_error": None, "p90_abs_error": None, "bias": None, "n": 0}
    absolute = np.abs(values)
    return {
        "median_abs_error": float(np.median(absolute)),
        "p90_abs_error": float(np.percentile(absolute, 90.0)),
        "bias": float(np.median(values)),
        "n": int(values.size),
    }


def summary(
    found: Sequence[Peak],
    skipped: Mapping[str, int],
    runs: Iterable[RunMemory] = (),
    ran: Iterable[tuple[str, bool]] = (),
) -> dict[str, Any]:
    """Figures over peaks of at least 2 GiB whose question is complete, then by group; ``fits_false`` over all that ran."""
    runs, ran = list(runs), [*((p.id, p.fits) for p in found), *ran]
    large = [p for p in found if p.complete and p.measured_bytes >= LARGE]
    groups = {
        "dense": [p for p in large if not p.moe],
        "moe": [p for p in large if p.moe],
        "muon": [p for p in large if p.optimizer == "muon"],
        "small": [p for p in found if p.complete and p.measured_bytes < LARGE],
        "fp16": [p for p in found if p.complete and p.precision == "fp16"],
        "hidden_4096": [p for p in found if p.hidden_size >= WIDE],
        "incomplete": [p for p in found if not p.complete],
    }
    return {
        **figures(p.error for p in large),
        **{name: figures(p.error for p in members) for name, members in groups.items()},
        **{kind: figures(r.error for r in runs if r.kind == kind) for kind in (*MEASURED, "analytic")},
        "fits_false": sum(not fits for _, fits in ran) / len(ran) if ran else None,
        "fits_false_ids": [name for name, fits in ran if not fits],
        "ran": len(ran),
        "skipped": dict(skipped),
        "predictions": [
            {"id": p.id, "predicted_bytes": p.predicted_bytes, "measured_bytes": p.measured_bytes, "error": p.error, "rules": list(p.rules)}
            for p in found
        ],
    }


def read_peaks(path: Path | None = None) -> list[tuple[int, dict[str, str]]]:
    """The lines of a table of peaks; of the one that ships where no path is given."""
    return read_table(path or shipped_peaks())
