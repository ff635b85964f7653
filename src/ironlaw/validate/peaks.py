"""Predicted memory against measured: allocator peaks of Megatron-LM's own tests, and the memory columns of published runs.

``peaks(read_peaks())`` predicts every row that can be asked and counts the reasons of the others; ``run_memory`` does the same
for one row of a table of runs; ``summary`` turns both into figures.
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
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.answer.table import read_table
from ironlaw.estimate.memory.total import STATES, last_stage_memory
from ironlaw.launch.megatron.options import options_from_arguments  # the table of peaks has launch arguments
from ironlaw.question.read import read_options
from ironlaw.validate.fill import number, short

LARGE = 2.0 * 2**30  # bytes; smaller peaks are mostly workspaces of libraries and single temporaries
WIDE = 4096  # hidden size of models that are trained in practice
UNITS = {"GB": 1e9, "GiB": 2.0**30, "MiB": 2.0**20}
MEASURED = ("allocated", "reserved", "device")
_DEVICES = {"dgx_a100": "a100-sxm-80gb", "dgx_h100": "h100-sxm", "dgx_gb200": "gb200"}
_COLUMNS = ("test", "platform", "gpus", "mem_max_allocated_bytes", "mem_allocated_bytes_median", "all_args")
_OTHER_TOKENIZERS = ("GPTSentencePieceTokenizer", "Llama2Tokenizer", "HuggingFaceTokenizer", "TikTokenizer", "SentencePieceTokenizer")


@dataclass(frozen=True)
class Peak:
    """A measured peak and its prediction; ``complete`` is False where the source omits something that memory depends on."""

    id: str
    line: int
    predicted_bytes: float
    measured_bytes: float
    rules: tuple[str, ...]
    hidden_size: int
    moe: bool
    whole_matrices: bool  # the optimizer's updates need whole matrices, as Muon's do
    precision: str
    complete: bool
    fits: bool

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_bytes / self.measured_bytes - 1.0


@dataclass(frozen=True)
class RunMemory:
    """The memory of a published run; ``kind`` is what was measured, or ``analytic`` for a paper's formula."""

    id: str
    kind: str
    predicted_bytes: float
    measured_bytes: float
    framework: str = ""
    accelerator: str = ""

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_bytes / self.measured_bytes - 1.0


def shipped_peaks() -> Path:
    """The table of measured peaks that ships; ``data/README.md`` has its sources."""
    return Path(__file__).parent / "data" / "peak_memory.csv"


def peaks(table: Sequence[tuple[int, dict[str, str]]], folders: tuple[str, ...] = ()) -> tuple[list[Peak], Counter[str]]:
    """Predictions for the rows that can be asked, and counts of the reasons why others cannot."""
    predicted: list[Peak] = []
    skipped: Counter[str] = Counter()
    for line, cells in table:
        try:
            predicted.append(peak(line, cells, folders))
        except IronlawError as error:
            skipped[str(error)] += 1
    return predicted, skipped


def peak(line: int, cells: Mapping[str, str], folders: tuple[str, ...] = ()) -> Peak:
    """The prediction for one row's last pipeline stage, whose rank writes the log. Raises IronlawError with the reason if there is none."""
    missing = [name for name in _COLUMNS if name not in cells]
    if missing:
        raise QuestionError(f"the table of peaks lacks the columns {', '.join(missing)}: add them to its header")
    measured = _read_bytes(cells["mem_max_allocated_bytes"], "peak", line)
    platform = cells["platform"].removesuffix("_2nd")
    if platform not in _DEVICES:
        raise UnsupportedError(f"unknown platform {cells['platform']!r} in line {line}")
    arguments = _read_arguments(cells["all_args"], line)
    complete = not _is_incomplete(cells, arguments)
    if complete:
        gpus, rules = _count_accelerators(cells, line)
        estimate, applied = _ask(arguments, gpus, _DEVICES[platform], folders)
    else:
        estimate, applied, rules = _complete_and_ask(cells, arguments, _DEVICES[platform], line, folders)
    group = estimate.groups[0]
    if not bool(estimate.legal[0]):
        raise QuestionError("illegal plan: " + ", ".join(name for name, passed in group.rules.items() if not bool(np.all(passed))))
    tree = last_stage_memory(group.job, group.cluster, group.plan)
    return Peak(
        id=f"{cells['test']}/{cells['platform']}",
        line=line,
        predicted_bytes=float(np.ravel(tree["allocated"].value)[0]),
        measured_bytes=measured,
        rules=(*rules, *applied),
        hidden_size=group.job.model.hidden_size,
        moe=bool(group.job.model.num_experts),
        whole_matrices=group.job.optimizer.matrices.whole_matrices,
        precision=group.job.precision.name,
        complete=complete,
        fits=bool(estimate.fits[0]),
    )


def _read_bytes(cell: str, what: str, line: int) -> float:
    """A measured number of bytes."""
    if not cell:
        raise QuestionError(f"no measured {what}")
    try:
        size = float(cell)
    except ValueError:
        size = math.nan
    if not math.isfinite(size) or size <= 0:
        raise QuestionError(f"measured {what} is {cell!r} in line {line}, must be a number of bytes above 0")
    return size


def _read_arguments(cell: str, line: int) -> dict[str, Any]:
    """The launch arguments of a row."""
    try:
        arguments = json.loads(cell)
    except (ValueError, RecursionError):
        raise QuestionError(f"all_args in line {line} is not JSON") from None
    if not isinstance(arguments, dict):
        raise QuestionError(f"all_args in line {line} is not a JSON object")
    return arguments


def _ask(arguments: Mapping[str, Any], gpus: int, on: str, folders: tuple[str, ...]) -> tuple[Estimate, list[str]]:
    options, rules = options_from_arguments(arguments, gpus=gpus, on=on)
    return answer(read_options(options), folders), rules


def _count_accelerators(cells: Mapping[str, str], line: int) -> tuple[int, list[str]]:
    """Accelerators of a row, and the rule applied; a blank is one node, as in the recipes of these tests."""
    if cells["gpus"]:
        if not (cells["gpus"].isascii() and cells["gpus"].isdecimal() and len(cells["gpus"]) < 16) or not int(cells["gpus"]):
            raise QuestionError(f"gpus is {cells['gpus']!r} in line {line}, must be a whole number")
        return int(cells["gpus"]), []
    node = 4 if cells["platform"].startswith("dgx_gb200") and cells["test"].endswith("_1node") else 8
    return node, [f"blank gpus: {node}, as in the recipes"]


def _is_incomplete(cells: Mapping[str, str], arguments: Mapping[str, Any]) -> bool:
    """True for release runs: their tokenizer's vocabulary is not stated, and the number of accelerators is blank."""
    unknown = arguments.get("--tokenizer-type") in _OTHER_TOKENIZERS and "--vocab-size" not in arguments
    return bool(unknown) and not cells["gpus"]


def _complete_and_ask(
    cells: Mapping[str, str], arguments: Mapping[str, Any], on: str, line: int, folders: tuple[str, ...]
) -> tuple[Estimate, list[str], list[str]]:
    """Complete a release run: vocabulary of the catalogue's model with these widths, accelerators by the memory between steps."""
    rules: list[str] = []
    if not cells["mem_allocated_bytes_median"]:
        raise QuestionError("neither the number of accelerators nor the memory between steps is stated")
    resident = _read_bytes(cells["mem_allocated_bytes_median"], "memory between steps", line)
    smallest = math.prod(_read_degree(arguments, f"--{axis}-parallel-size", line) for axis in ("tensor-model", "pipeline-model", "context"))
    options = options_from_arguments(arguments, gpus=smallest, on=on)[0]
    size, name = _find_vocabulary(_read_widths(options["model"]), folders)
    if size:
        arguments = {**arguments, "--vocab-size": size}
        rules.append(f"blank vocabulary: that of {name}, which has these widths")
    best: tuple[float, int, Estimate, list[str]] | None = None
    for gpus in (smallest * 2**power for power in range(10)):
        estimate, applied = _ask(arguments, gpus, on, folders)
        if bool(estimate.legal[0]):
            error = abs(_state_bytes(estimate) / resident - 1.0)
            if best is None or error < best[0]:
                best = error, gpus, estimate, applied
    if best is None:
        raise QuestionError("no number of accelerators makes a legal plan")
    rules.append(f"blank gpus: {best[1]}, where the predicted memory between steps is nearest to the measured one")
    return best[2], best[3], rules


def _read_degree(arguments: Mapping[str, Any], name: str, line: int) -> int:
    """A degree of parallelism among launch arguments; 1 where it is not given."""
    text = str(arguments.get(name, 1))
    if not (text.isascii() and text.isdecimal() and len(text) < 8 and int(text)):
        raise QuestionError(f"{name} is {text[:40]!r} in line {line}, must be a whole number")
    return int(text)


def _state_bytes(estimate: Estimate) -> float:
    """Bytes of the last stage that stay between steps."""
    group = estimate.groups[0]
    allocated = last_stage_memory(group.job, group.cluster, group.plan)["allocated"]
    return sum(float(np.ravel(part.value)[0]) for part in allocated.parts if part.key in STATES)


def _read_widths(model: Any) -> tuple[int, ...]:
    """Widths and heads of a model, which identify it apart from its number of layers."""
    names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "moe_intermediate_size", "intermediate_size")
    *widths, experts, dense = (int((model.get(name) if isinstance(model, Mapping) else getattr(model, name)) or 0) for name in names)
    return (*widths, experts, 0 if experts else dense)


def _find_vocabulary(widths: tuple[int, ...], folders: tuple[str, ...]) -> tuple[int, str]:
    """Vocabulary and name of the first catalogue model of these widths; 0 where there is none."""
    return _vocabularies(folders).get(widths, (0, ""))


@cache
def _vocabularies(folders: tuple[str, ...]) -> dict[tuple[int, ...], tuple[int, str]]:
    """Vocabulary and name of every catalogue model, by its widths."""
    by_widths: dict[tuple[int, ...], tuple[int, str]] = {}
    for name in sorted(load.names("models", folders)):
        model = load.record("models", name, folders)
        by_widths.setdefault(_read_widths(model), (model.vocab_size, name))
    return by_widths


# published runs


def run_memory(cells: Mapping[str, str], estimate: Estimate, row: int = 0) -> RunMemory:
    """A run's measured memory beside its estimate. Raises IronlawError where the two do not compare.

    Columns: memory_gb_per_gpu, memory_unit (GB, GiB), memory_kind (allocated, reserved, device; analytic).
    """
    kind, unit = cells.get("memory_kind", ""), cells.get("memory_unit", "")
    if not cells.get("memory_gb_per_gpu"):
        raise QuestionError("no measured memory")
    if kind not in (*MEASURED, "analytic"):
        raise QuestionError("no memory_kind: what was measured is not stated" if not kind else f"unknown memory_kind {kind!r}")
    if unit not in UNITS:
        raise QuestionError(f"unknown memory_unit {unit!r}; known: {', '.join(UNITS)}")
    if not cells.get("micro_batch") and cells.get("pp", "1") not in ("", "1"):
        raise QuestionError("a pipeline without a stated micro-batch: activations in flight are unknown")
    group, at = estimate.place_of(row)
    if not bool(np.broadcast_to(group.legal, group.index.shape)[at]):
        raise QuestionError("illegal plan")
    column = getattr(group.memory, "allocated" if kind == "analytic" else kind)
    label = cells.get("id") or cells.get("name") or ""
    size = number(cells["memory_gb_per_gpu"])
    if not 0.0 < size < math.inf:
        raise QuestionError(f"memory_gb_per_gpu is {short(cells['memory_gb_per_gpu'])!r}, must be a number above 0")
    return RunMemory(label, kind, float(np.ravel(column)[at]), size * UNITS[unit], group.job.framework.name, group.cluster.accelerator.name)


def fine_tuned(cells: Mapping[str, str]) -> bool:
    """True for fine-tuning, and for adapters of no stated rank: these train an unknown part of the model."""
    return bool(cells.get("training")) and not (cells["training"] == "adapters" and cells.get("lora_rank"))


def ran_and_fits(answers: Iterable[tuple[Mapping[str, str], Estimate, int]]) -> Iterator[tuple[str, bool]]:
    """(id, predicted to fit) of every pre-training run with a step time; all of them did fit, because they ran."""
    for cells, estimate, row in answers:
        if (cells.get("step_time_s") or cells.get("tokens_per_s_per_gpu")) and not fine_tuned(cells):
            group, at = estimate.place_of(row)
            if bool(np.broadcast_to(group.legal, group.index.shape)[at]):
                yield cells.get("id") or "", bool(np.broadcast_to(group.memory.fits, group.index.shape)[at])


# figures


def figures(errors: Iterable[float]) -> dict[str, float | int | None]:
    """Median and 90th percentile of absolute errors, median of signed errors, and their number."""
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
    predicted: Sequence[Peak], skipped: Mapping[str, int], runs: Iterable[RunMemory] = (), ran: Iterable[tuple[str, bool]] = ()
) -> dict[str, Any]:
    """Figures over complete peaks of at least 2 GiB, then by group; ``fits_false`` is over all that ran."""
    runs, ran = list(runs), [*((p.id, p.fits) for p in predicted), *ran]
    large = [p for p in predicted if p.complete and p.measured_bytes >= LARGE]
    groups = {
        "dense": [p for p in large if not p.moe],
        "moe": [p for p in large if p.moe],
        "muon": [p for p in large if p.whole_matrices],
        "small": [p for p in predicted if p.complete and p.measured_bytes < LARGE],
        "fp16": [p for p in predicted if p.complete and p.precision == "fp16"],
        "hidden_4096": [p for p in predicted if p.hidden_size >= WIDE],
        "incomplete": [p for p in predicted if not p.complete],
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
            for p in predicted
        ],
    }


def read_peaks(path: Path | None = None) -> list[tuple[int, dict[str, str]]]:
    """The lines of a table of peaks, by default the one that ships."""
    return read_table(path or shipped_peaks())
