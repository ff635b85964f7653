"""Simplified rules: the bottleneck from utilisation alone, the scale from sizes alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.cautions.table import caution
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer
from ironlaw.questions.optimize.options import Sizes

FIXES = {
    "data-bound": "speed up the input: prefetch, more loader workers, faster storage; then profile again",
    "memory-bound": "free memory: mixed precision, recomputation, accumulation, sharding; then profile again",
    "compute-bound": "raise throughput: larger micro-batches, better kernels, lower precision; then profile again",
}


BUSY, FULL = 0.7, 0.9  # below this utilisation a run counts as data-bound; above this share of the memory as memory-bound


def classify_bottleneck(measured: Mapping[str, Any]) -> str:
    """Data-bound below 70 % utilisation; else memory-bound if out of memory or above 90 % of it; else compute-bound.

    >>> classify_bottleneck({"gpu_utilization": 0.75}), classify_bottleneck({"gpu_utilization": 0.75, "data_bound_below": 0.8})
    ('compute-bound', 'data-bound')
    """
    if measured.get("gpu_utilization", 1.0) < measured.get("data_bound_below", BUSY):
        return "data-bound"
    if measured.get("out_of_memory") or measured.get("memory_used", 0.0) > measured.get("memory_bound_above", FULL):
        return "memory-bound"
    return "compute-bound"


SIZES = Sizes()


def recommend_scale(parameters: float, dataset_bytes: float, sizes: Sizes = SIZES) -> str:
    """The number of machines that a model and its data need, from their sizes alone."""
    if dataset_bytes > sizes.streamed:
        return "multi-node + streaming"
    if parameters < sizes.single[0] and dataset_bytes < sizes.single[1]:
        return "single GPU"
    if parameters < sizes.machine[0] and dataset_bytes < sizes.machine[1]:
        return "single node (1-8 GPUs)"
    return "multi-node cluster"


def describe_sizes(sizes: Sizes) -> list[dict[str, Any]]:
    """The rows of the rule: each holds where both sizes are below its own."""
    return [
        {"scale": "single GPU", "parameters": sizes.single[0], "dataset": sizes.single[1]},
        {"scale": "single node (1-8 GPUs)", "parameters": sizes.machine[0], "dataset": sizes.machine[1]},
        {"scale": "multi-node cluster", "parameters": None, "dataset": sizes.streamed},
        {"scale": "multi-node + streaming", "parameters": None, "dataset": None},
    ]


def flowchart(measured: Mapping[str, Any], folders: tuple[str, ...]) -> Answer:
    """The bottleneck from utilisation alone, labelled as simplified."""
    verdict = classify_bottleneck(measured)
    notes: Assumptions = []
    for name, default in (("data_bound_below", BUSY), ("memory_bound_above", FULL)):
        if name not in measured:
            assume(notes, name, f"{default:.0%}", "default")
    return Answer(
        "Flowchart of utilisation (simplified)",
        [verdict, FIXES[verdict]],
        values={"verdict": verdict},
        assumptions=notes,
        warnings=[caution("busy-may-wait")],
        folders=folders,
    )
