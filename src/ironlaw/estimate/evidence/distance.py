"""How far two runs are from each other: stack, device, format, kind of model and three sizes.

Bands widen with the distance of a question from the scored runs, the answer names the runs that are nearest, and a user's own run
corrects the questions near it. All three ask ``distance``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.job import Job
from ironlaw.plan import Plan

NAMES = {  # column -> distance of two runs that differ in it
    "stack": 0.5,
    "device": 0.5,
    "architecture": 0.5,  # in addition to the device
    "format": 0.5,  # of the peak: bf16, fp8, nvfp4
    "mixture": 1.0,
    "adapters": 1.0,
    "hybrid": 1.0,
}
TRAITS = ("mixture", "adapters", "hybrid")  # kinds of models: a kind that no published run has gets no band
SIZES = {"gpus": 8.0, "seq_len": 8.0, "parameters": 8.0}  # column -> doublings that are a distance of 1
UNKNOWN = ""  # a stack that was not stated: it differs from every stack

Positions = Mapping[str, Any]  # NAMES and SIZES as columns


def positions(job: Job, cluster: Cluster, plan: Plan, stated: bool = True) -> Positions:
    """Where the rows of a plan are: columns of one value, or of one value a row. ``stated``: the stack is known, not assumed."""
    model = job.model
    return {
        "stack": job.framework.name if stated else UNKNOWN,
        "device": cluster.accelerator.name,
        "architecture": cluster.accelerator.architecture,
        "format": job.precision.peak,
        "mixture": bool(model.num_experts),
        "adapters": bool(job.lora_rank or model.frozen_layers),
        "hybrid": any(kind.mixer.exchanges for kind in kinds(model)),  # layers that scan a state
        "gpus": plan.gpus,
        "seq_len": plan.seq_len,
        "parameters": float(np.ravel(total_parameters(model))[0]),
    }


def distance(one: Positions, other: Positions) -> Any:
    """``sum of NAMES that differ + sum over SIZES of |log2(a / b)| / doublings``; 0 for a run of the same question, without its plan.

    Columns broadcast. Symmetric, never negative, and the triangle inequality holds for stated stacks. Tensor, pipeline and context
    parallelism, micro-batch and recomputation are left out: the laws predict what they change, and a correction must not change the order
    of plans. The weights are a choice: half a unit for each fact of the machine or the stack, one for another kind of model.

    >>> run = {"stack": "nemo", "device": "h100-sxm", "architecture": "hopper", "format": "bf16", "mixture": False,
    ...        "adapters": False, "hybrid": False, "gpus": 64.0, "seq_len": 8192.0, "parameters": 8e9}
    >>> float(distance(run, run)), float(distance(run, {**run, "gpus": 1024.0})), float(distance(run, {**run, "device": "h200-sxm"}))
    (0.0, 0.5, 0.5)
    """
    total: Any = 0.0
    for name, weight in NAMES.items():
        a, b = np.asarray(one[name]), np.asarray(other[name])
        differ = a != b
        total = total + weight * (differ | (a == UNKNOWN) if name == "stack" else differ)
    for name, doublings in SIZES.items():
        total = total + np.abs(log2(one[name]) - log2(other[name])) / doublings
    return total


def log2(value: Any) -> Any:
    """The logarithm to base 2 of a column of positive numbers, from the C library: numpy's own moves in its last digit between versions.

    >>> log2([1.0, 8.0]).tolist(), float(log2(0.5))
    ([0.0, 3.0], -1.0)
    """
    column = np.asarray(value, dtype=np.float64)
    return np.array([math.log2(number) if number > 0.0 else np.nan for number in column.ravel().tolist()]).reshape(column.shape)


def take(columns: Positions, at: Any) -> dict[str, Any]:
    """Some rows of columns; a value that all rows share stays."""
    return {name: np.asarray(column)[at] if np.ndim(column) else column for name, column in columns.items()}


def differences(one: Positions, other: Positions) -> tuple[list[str], list[str]]:
    """What two runs have in common and in what they differ, in words.

    >>> run = {"stack": "nemo", "device": "h100-sxm", "architecture": "hopper", "format": "bf16", "mixture": False,
    ...        "adapters": False, "hybrid": False, "gpus": 64.0, "seq_len": 8192.0, "parameters": 8e9}
    >>> differences(run, {**run, "stack": "fsdp", "gpus": 16.0, "format": "fp8"})
    (['device', 'sequence', 'size'], ['stack fsdp', 'fp8', 'accelerators / 4'])
    """
    same, other_words = [], []
    for name, word in (("stack", "stack"), ("device", "device"), ("format", "")):
        if one[name] == other[name] and one[name] != UNKNOWN:
            same += [word] if word else []
        else:
            other_words.append(f"{word} {other[name]}".strip())
    for name, yes, no in (("mixture", "mixture", "dense"), ("adapters", "adapters", "no adapters"), ("hybrid", "hybrid", "attention only")):
        if bool(one[name]) != bool(other[name]):
            other_words.append(yes if other[name] else no)
    for name, word in (("gpus", "accelerators"), ("seq_len", "sequence"), ("parameters", "size")):
        ratio = float(np.ravel(other[name])[0]) / float(np.ravel(one[name])[0])
        if 0.8 <= ratio <= 1.25:
            same.append(word)
        else:
            other_words.append(f"{word} x {ratio:.3g}" if ratio > 1.0 else f"{word} / {1.0 / ratio:.3g}")
    return same, other_words
