"""FLOP/s, MFU and HFU of a logged job, with their formulas and the peak they are divided by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ironlaw.catalog.load import fold_name, names, record
from ironlaw.catalog.records import Accelerator
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import QuestionError
from ironlaw.estimate.documents.keys import keys_seen
from ironlaw.estimate.layer.counts import attending_layers, attention_width, matmul_parameters
from ironlaw.estimate.step.rates import model_key_length, recomputed
from ironlaw.law import flops
from ironlaw.measure.logs import Log
from ironlaw.measure.logs.job import LoggedJob
from ironlaw.measure.logs.steps import Steps, median_of
from ironlaw.precision import PRECISIONS

SAME_MEMORY = 0.01  # between the memory that a log prints and that of a device: the driver takes a part
AGREE = 0.03  # between the printed rate and that of the times: logs print three digits, and tools count embedding and loss differently


@dataclass(frozen=True)
class Rates:
    """FLOP/s per GPU and the peak they are divided by. A figure is None if an input is unknown."""

    formula: str  # of model FLOPs per token
    flop_per_token: float
    recompute_formula: str
    recomputed_per_token: float
    tokens_per_second: float  # per GPU
    model_flops: float  # per GPU
    hardware_flops: float
    model_flops_full_square: float  # the same with attention as the full square, as most frameworks print
    hardware_flops_full_square: float
    device: str | None = None
    dtype: str | None = None
    peak: float | None = None  # FLOP/s, dense
    peak_source: str = ""
    mfu: float | None = None
    mfu_full_square: float | None = None
    hfu: float | None = None
    hfu_full_square: float | None = None
    claimed_flops: float | None = None  # FLOP/s per GPU, as the log prints
    claim: str = ""  # whether it agrees with model or hardware FLOP/s


def device_of(log: Log, on: str | None, folders: tuple[str, ...]) -> tuple[Accelerator | None, str]:
    """The given accelerator, or the one in the log if the catalogue has exactly that name, and its source; else None and the reason."""
    if on is not None:
        device: Accelerator = record("accelerators", on, folders)
        return device, f"device: {device.name} (given)"
    if not log.device_name:
        return None, "no MFU: the log names no device; give --on"
    try:
        logged: Accelerator = record("accelerators", log.device_name, folders)
    except QuestionError as error:
        found = _find_by_memory(log, folders)
        if found is None:
            return None, f"no MFU: {error}; give --on"
        size = log.claims["memory_capacity"] / 2.0**30
        return found, f"device: {found.name} (the log says {log.device_name!r} with {size:.4g} GiB)"
    return logged, f"device: {logged.name} (the log says {log.device_name!r})"


def _find_by_memory(log: Log, folders: tuple[str, ...]) -> Accelerator | None:
    """The accelerator of the family in the log's device name whose memory is as large as the log says; None unless it is one."""
    memory = log.claims.get("memory_capacity")
    words = set(fold_name(log.device_name).split("-"))
    if not memory:
        return None
    candidates = [record("accelerators", name, folders) for name in names("accelerators", folders) if name.split("-")[0] in words]
    found = [device for device in candidates if abs(device.usable_memory / memory - 1.0) <= SAME_MEMORY]
    return found[0] if len(found) == 1 else None


def rates_of(log: Log, job: LoggedJob, steps: Steps | None, unusual: list[str], device: Accelerator | None) -> tuple[Rates | None, str]:
    """FLOP/s per GPU, or None and the reason."""
    if log.calls is not None:
        return None, "a benchmark of collectives has no FLOPs"
    if steps is None and log.tokens_per_second is None:
        return None, "no rates: no ordinary step has a time"
    rate = tokens_per_second_of(log, job, steps, unusual)
    if rate is None:
        return None, _missing_for_tokens(log, job)
    if job.model is None or job.seq_len is None:
        missing = [option for option, value in (("--model", job.model), ("--seq-len", job.seq_len)) if value is None]
        return None, f"no FLOP/s: give {', '.join(missing)}"
    model = job.model
    square = float(job.seq_len)
    seen = float(model_key_length(model, lambda part: keys_seen(part, square)))
    dimensions = (matmul_parameters(model), attending_layers(model), attention_width(model))
    per_token, per_token_square = (float(flops.model_per_token(*dimensions, keys)) for keys in (seen, square))
    again, again_square = (float(recomputed(model, keys, *job.recompute)) for keys in (seen, square))
    claimed = read_claim(log, unusual)
    counted = {
        "model FLOP/s, attention as the full square": per_token_square * rate,
        "model FLOP/s, attention as computed": per_token * rate,
        "hardware FLOP/s, recompute included, attention as the full square": (per_token_square + again_square) * rate,
        "hardware FLOP/s, recompute included, attention as computed": (per_token + again) * rate,
    }
    model_square, model_flops, hardware_square, hardware = counted.values()
    rates = Rates(
        formula=formula(flops.model_per_token),
        flop_per_token=per_token,
        recompute_formula=formula(recomputed),
        recomputed_per_token=again,
        tokens_per_second=rate,
        model_flops=model_flops,
        hardware_flops=hardware,
        model_flops_full_square=model_square,
        hardware_flops_full_square=hardware_square,
        claimed_flops=claimed,
        claim=_describe_agreement(claimed, counted),
    )
    return _against_peak(rates, device, job), ""


def _missing_for_tokens(log: Log, job: LoggedJob) -> str:
    """Name the options that would give tokens per second."""
    if log.per != "iteration":
        return "no tokens per second: the log has times of samples, not of iterations"
    needed = {"--gpus": job.gpus} | ({} if job.tokens else {"--seq-len": job.seq_len, "--global-batch-size": job.batch})
    missing = [option for option, value in needed.items() if not value]
    model = "; for FLOP/s also --model" if job.model is None else ""
    return f"no tokens per second and GPU: give {', '.join(missing)}{model}"


def tokens_per_second_of(log: Log, job: LoggedJob, steps: Steps | None, unusual: list[str]) -> float | None:
    """Tokens per second and GPU: from the batch and the median step, else as printed."""
    if steps is not None and job.tokens and job.gpus and log.per == "iteration":
        return job.tokens / steps.median / job.gpus
    printed = median_of(log.tokens_per_second, unusual)
    if printed is None or printed <= 0.0:
        return None
    if log.tokens_of == "gpu":
        return printed
    return printed / job.gpus if job.gpus else None


def assumed_precision(device: Accelerator) -> str:
    """The precision of a log without one."""
    return "bf16" if "bf16" in device.peak else "fp16"


def peak_of(device: Accelerator, precision: str | None) -> Sourced:
    """The dense peak of a device in a precision; in the usual one where a log names none."""
    dtype = PRECISIONS[precision or assumed_precision(device)].peak
    if dtype not in device.peak:
        raise QuestionError(f"{device.name} has no peak in {dtype}; it has {', '.join(device.peak)}")
    return device.peak[dtype]


def _against_peak(rates: Rates, device: Accelerator | None, job: LoggedJob) -> Rates:
    """The rates with MFU and HFU against the dense peak of the device; unchanged where the device is unknown."""
    if device is None:
        return rates
    dtype, peak = PRECISIONS[job.precision or assumed_precision(device)].peak, peak_of(device, job.precision)

    return Rates(
        **{
            **asdict(rates),
            "device": device.name,
            "dtype": dtype,
            "peak": float(peak.value),
            "peak_source": peak.source.title if peak.source else "",
            "mfu": rates.model_flops / peak.value,
            "mfu_full_square": rates.model_flops_full_square / peak.value,
            "hfu": rates.hardware_flops / peak.value,
            "hfu_full_square": rates.hardware_flops_full_square / peak.value,
        }
    )


def formula(law: Any) -> str:
    """The formula in the docstring of a law: the last text between double backticks in its first line.

    >>> formula(flops.model_per_token)
    '6 P + 12 L w k'
    """
    formulas = re.findall(r"``(.+?)``", (law.__doc__ or "").split("\n", 1)[0])
    return formulas[-1] if formulas else ""


def read_claim(log: Log, unusual: list[str]) -> float | None:
    """FLOP/s per GPU that the log prints, or its MFU times the peak it divides by."""
    tflops = median_of(log.tflops, unusual)
    if tflops is not None and tflops > 0:
        return tflops * 1e12
    mfu, peak = log.claims.get("mfu"), log.claims.get("peak")
    return mfu * peak if mfu and peak else None


def _describe_agreement(claimed: float | None, counted: Mapping[str, float]) -> str:
    """Which of the computed rates the printed one is nearest to, or how far it is from all."""
    if claimed is None:
        return ""
    off = {meaning: abs(claimed / computed - 1.0) for meaning, computed in counted.items()}
    nearest = min(off, key=lambda meaning: off[meaning])
    if off[nearest] <= AGREE:
        return f"agrees with {nearest}"
    model, _, hardware, _ = counted.values()
    return f"is {claimed / model:.3g} times the model FLOP/s and {claimed / hardware:.3g} times the hardware FLOP/s computed here"
