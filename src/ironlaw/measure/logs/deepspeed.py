"""Throughput lines of DeepSpeed's engine, and the block of its FLOPS profiler.

    [2023-07-25 21:03:17,269] [INFO] [timer.py:215:stop] epoch=0/micro_step=34/global_step=34, RunningAvgSamplesPerSec=7.86,
    CurrSamplesPerSec=8.00, MemAllocated=59.65GB, MaxMemAllocated=63.31GB                        (one line)

Older versions print ``0/34, SamplesPerSec=...``. If the arguments have the batch size, the step time is batch over samples per second;
else it is measured from line to line. The profiler counts the matrix products of a forward pass and multiplies by three for a step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from ironlaw.cautions.table import caution
from ironlaw.measure.logs.log import Log, Notes, Rows, clock, number, ranked, whole

NAME = "deepspeed"
SIGNS = (
    re.compile(rb"\[timer\.py:\d+:stop\][^\n]{0,80}SamplesPerSec="),
    re.compile(rb"-{5,} DeepSpeed Flops Profiler -{5,}"),
    re.compile(rb"\[INFO\] \[config\.py:\d+:print\] DeepSpeed[A-Za-z ]* configuration:"),
)
_TIMER = re.compile(r"(?:global_step=|\b\d+/)(\d{1,12}), .{0,80}?((?:RunningAvg|Curr)?SamplesPerSec=.*)$")
_FIELD = re.compile(r"\b(\w{1,40})=([\d.eE+-]+|nan|inf)")
_CONFIG = re.compile(r"\[config\.py:\d+:print\]\s+(\w+) \.{2,} (.*)$")
_SKIPPED = re.compile(r"\bstep=(\d{1,12}), skipped=(\d{1,12})")
_PROFILE = re.compile(r"Profile Summary at step (\d{1,12})")
_BLOCK = re.compile(r"^([A-Za-z+/ ]+?)(?: = [^:]+)?:\s+([\d.]+)\s*([A-Za-z]*)$")
_UNIT = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "s": 1.0, "ms": 1e-3, "us": 1e-6,
         "KMACs": 1e3, "MMACs": 1e6, "GMACs": 1e9, "TMACs": 1e12, "FLOPS": 1.0, "MFLOPS": 1e6, "GFLOPS": 1e9, "TFLOPS": 1e12}  # fmt: skip
_ARGUMENTS = {"world size": "world_size", "model parallel size": "model_parallel_size", "model paralel size": "model_parallel_size",
              "data parallel size": "data_parallel_size", "batch size per gpu": "micro_batch_size"}  # fmt: skip


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a DeepSpeed log."""
    rows, profiled, overflows = Rows(notes), 0, -1
    for whole_line in text:
        rank, line = ranked(whole_line)
        if "SamplesPerSec=" in line and (match := _TIMER.search(line)):
            _timer(int(match[1]), match[2], line, rank, rows)
        elif "skipped=" in line and (match := _SKIPPED.search(line)):
            count = int(match[2])
            if 0 <= overflows < count:
                notes.claims["skipped_steps"] = float(count)
            overflows = max(overflows, count)
        elif "config.py" in line and (match := _CONFIG.search(line)):
            notes.argument(match[1], match[2])
        elif "Profile Summary" in line and (match := _PROFILE.search(line)):
            profiled = int(match[1])
        elif profiled and (match := _BLOCK.match(line.rstrip())):
            _add_profile_line(match, notes)
        elif profiled and "Aggregated Profile" in line:
            _profile(profiled, rows)
            profiled = 0
    if profiled:
        _profile(profiled, rows)
    return rows.log(NAME)


def _timer(step: int, text: str, line: str, rank: int | None, rows: Rows) -> None:
    """Add a throughput line as a row; its time comes from the batch, or else from the clock."""
    fields = dict(_FIELD.findall(text))
    rate = number(fields.get("CurrSamplesPerSec", fields.get("SamplesPerSec")))
    batch = whole(rows.notes.arguments.get("train_batch_size", ""))
    seconds = batch / rate if batch and rate and "CurrSamplesPerSec" in fields else math.nan
    memory = number(fields.get("MaxMemAllocated"))
    rows.add(step, seconds, rank=rank, clock=clock(line), memory=None if memory is None else memory * 2.0**30)
    if rate:
        rows.notes.claims["samples_per_second"] = rate


def _add_profile_line(match: re.Match[str], notes: Notes) -> None:
    """Store one line of the profiler's block, as an argument or as a claim."""
    name, value = match[1].strip(), number(match[2])  # "flops" are a count and "FLOPS" a rate
    if name.lower() in _ARGUMENTS:
        notes.argument(_ARGUMENTS[name.lower()], match[2])
    elif value is not None and match[3] in _UNIT:
        notes.claims[f"profiler: {name}"] = value * _UNIT[match[3]]


def _profile(step: int, rows: Rows) -> None:
    """Add the profiled step as a row, unless another line has its time."""
    claims = rows.notes.claims
    seconds = claims.get("profiler: iter latency", 0.0)
    rate = claims.get("profiler: FLOPS per GPU") or claims.get("profiler: fwd+bwd FLOPS per GPU", 0.0)
    forward = claims.get("profiler: fwd flops per GPU", 0.0)
    if seconds > 0 and not any(row.iteration == step for row in rows.rows):
        rows.add(step, seconds, unusual="the step under DeepSpeed's FLOPS profiler", tflops=rate / 1e12 if rate else None)
    if forward:
        rows.notes.warn(caution("deepspeed-profiler"))
