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
from ironlaw.question.options import flag

NAMES = {  # option of an estimate: names of the argument in logs
    "tp": ("tensor_model_parallel_size", "model_parallel_size", "tensor_parallel_size", "tensor_parallel_degree"),
    "pp": ("pipeline_model_parallel_size", "pipe_parallel_size", "pipeline_parallel_degree"),
    "cp": ("context_parallel_size", "context_parallel_degree"),
    "ep": ("expert_model_parallel_size", "expert_parallel_degree"),
    "micro_batch_size": ("micro_batch_size",),
}
DIMENSIONS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
    "max_position_embeddings", "tie_word_embeddings", "gated_mlp", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
)  # fmt: skip
LENGTHS = tuple(2**power for power in range(9, 18))  # sequence lengths that a printed FLOP rate is compared with


def options_of_run(log: Log, job: LoggedJob, model_given: bool) -> dict[str, Any]:
    """Options of the measured run, as far as the log gives them; the model by its dimensions, where the user gives none."""
    found: dict[str, Any] = {}
    if job.model is not None and not model_given:
        found["model"] = {name: getattr(job.model, name) for name in DIMENSIONS if getattr(job.model, name)}
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
    if "tensor_model_parallel_size" in log.arguments and "pipeline_model_parallel_size" in log.arguments:
        found |= _options_of_megatron(log.arguments)
    if job.precision in ("bf16", "fp16", "fp32"):
        found["precision"] = job.precision
    layers, attention, _ = job.recompute
    if layers == 1.0 or attention == 1.0:
        found["recompute"] = "full" if layers == 1.0 else "selective"
    return found


def batch_of_rate(log: Log, job: LoggedJob, per_gpu: float | None, seconds: float | None) -> int | None:
    """The sequences of a step that a printed rate of tokens and the step time give; None unless they are near a whole number."""
    if job.batch or job.tokens or not job.seq_len or not job.gpus or not per_gpu or not seconds or log.tokens_per_second is None:
        return None
    sequences = per_gpu * job.gpus * seconds / job.seq_len
    return round(sequences) if sequences >= 1.0 and abs(sequences / round(sequences) - 1.0) <= AGREE else None


def _options_of_megatron(arguments: Mapping[str, str]) -> dict[str, Any]:
    """Sequence and context parallelism, chunks and ZeRO stage of a dump of all Megatron arguments; what it lacks, the version lacks."""
    found: dict[str, Any] = {"cp": whole(arguments.get("context_parallel_size", "")) or 1}
    if (whole(arguments["tensor_model_parallel_size"]) or 1) > 1:
        found["sp"] = arguments.get("sequence_parallel") == "True"
    if (whole(arguments["pipeline_model_parallel_size"]) or 1) > 1:
        found["vpp"] = whole(arguments.get("virtual_pipeline_model_parallel_size", "")) or 1
    stage = whole(arguments.get("zero_stage", ""))
    if stage is not None and stage <= 3:
        found["zero"] = stage
    elif arguments.get("use_distributed_optimizer") == "True":
        found["zero"] = 1
    return found


def missing_for_tokens(options: Mapping[str, Any]) -> list[str]:
    """The options that are missing for the tokens of a step."""
    if "global_batch_tokens" in options:
        return []
    return [flag(name) for name in ("seq_len", "global_batch_size") if not options.get(name)]


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
