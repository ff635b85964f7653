"""The options of an estimate that a log gives: the batch, the sequence, the plan. They describe the run that was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.layer.counts import attending_layers, attention_width, matmul_parameters
from ironlaw.law import flops
from ironlaw.measure.logs import Log
from ironlaw.measure.logs.job import LoggedJob
from ironlaw.measure.logs.log import whole
from ironlaw.measure.logs.rates import AGREE

NAMES = {  # option of an estimate: names of the argument in logs
    "tp": ("tensor_model_parallel_size", "model_parallel_size", "tensor_parallel_size", "tensor_parallel_degree"),
    "pp": ("pipeline_model_parallel_size", "pipe_parallel_size", "pipeline_parallel_degree"),
    "cp": ("context_parallel_size", "context_parallel_degree"),
    "ep": ("expert_model_parallel_size", "expert_parallel_degree"),
    "micro_batch_size": ("micro_batch_size",),
}
LENGTHS = tuple(2**power for power in range(9, 18))  # sequence lengths that a printed FLOP rate is compared with


def options_of_run(log: Log, job: LoggedJob) -> dict[str, Any]:
    """Options of the measured run, as far as the log gives them."""
    found: dict[str, Any] = {}
    if job.gpus:
        found["gpus"] = job.gpus
    if job.seq_len:
        found["seq_len"] = job.seq_len
        if job.tokens and (sequences := job.tokens / job.seq_len) == int(sequences):
            found["global_batch_size"] = int(sequences)
    elif job.batch:
        found["global_batch_size"] = job.batch
    for option, names in NAMES.items():
        value = next((count for name in names if (count := whole(log.arguments.get(name, "")))), None)
        if value:
            found[option] = value
    if log.arguments.get("sequence_parallel") in ("True", "False") and found.get("tp", 1) > 1:
        found["sp"] = log.arguments["sequence_parallel"] == "True"
    if job.precision in ("bf16", "fp16", "fp32"):
        found["precision"] = job.precision
    layers, attention, _ = job.recompute
    if layers == 1.0 or attention == 1.0:
        found["recompute"] = "full" if layers == 1.0 else "selective"
    return found


def missing_for_tokens(options: Mapping[str, Any]) -> list[str]:
    """The options that are missing for the tokens of a step."""
    if "global_batch_tokens" in options:
        return []
    return [f"--{name.replace('_', '-')}" for name in ("seq_len", "global_batch_size") if not options.get(name)]


def fitting_length(model: Model | None, flop_rate: float | None, seconds: float | None, options: Mapping[str, Any]) -> int | None:
    """The usual sequence length whose model FLOPs agree with a printed rate [FLOP/s per GPU]; None where none, or several, do."""
    sequences, gpus = options.get("global_batch_size"), options.get("gpus")
    if model is None or not (flop_rate and seconds and sequences and gpus):
        return None
    per_token = flops.model_per_token(
        matmul_parameters(model), attending_layers(model), attention_width(model), np.array(LENGTHS, np.float64)
    )
    agree = [
        length
        for length, flop in zip(LENGTHS, per_token.tolist(), strict=True)
        if math.isfinite(flop) and abs(flop * length * float(sequences) / (float(gpus) * seconds * flop_rate) - 1.0) <= AGREE
    ]
    return agree[0] if len(agree) == 1 else None
