"""Where the peak goes: from 100 % of it down to the MFU, loss by loss.

A product that runs at the peak is no loss. The time that its kernel takes longer is a loss of kernels, or of memory-bound work where HBM
limits it. All time of the other roofs is lost. MFU counts attention as if it had no mask, which is more than kernels compute: this gain
is listed as a negative loss. The rest is the time of products that MFU does not count: the slowest stage has more of them than the mean
stage, and kernels compute some FLOPs twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.layer.passes import RECOMPUTE
from ironlaw.terms import BOUNDS, Term, shares

LOSSES = {  # by key: the name that people read
    "kernels": "kernels below the peak",
    "memory_bound": "memory-bound work",
    "recomputation": "recomputation",
    "network": "network",
    "pipeline": "pipeline bubble",
    "host": "host",
    "data": "data",
    "rest": "uneven stages and extra FLOPs",
    "masked_attention": "masked attention counted by MFU",
}
MEANING = {
    "kernels": "time of compute-bound products beyond their FLOPs at the peak",
    "memory_bound": "time in which HBM limits a kernel: norms, activations, optimizer, small products",
    "recomputation": "products and memory-bound work that run again",
    "network": "communication that nothing overlaps, and waiting for stragglers",
    "pipeline": "stages without a micro-batch",
    "host": "the device waits for launches; fixed work of a step",
    "data": "the device waits for data",
    "rest": "products of the slowest stage beyond the mean stage's, and FLOPs that kernels compute twice",
    "masked_attention": "MFU counts attention without its mask, kernels compute less",
}
_COMPUTE, _HBM = BOUNDS.index("compute"), BOUNDS.index("hbm")


def waterfall(step: Term, peak: float, mfu: Any, mfu_causal: Any) -> dict[str, Any]:
    """Losses as shares of a step, columns by the keys of LOSSES; with the MFU they add up to 1. ``peak`` [FLOP/s] is that of the MFU."""
    booked = shares(step)
    again, at_peak = dict.fromkeys(("compute", "hbm"), 0.0 * step.value), dict.fromkeys(("compute", "hbm"), 0.0 * step.value)
    for node, factor in _repeated(step):
        if node.key == RECOMPUTE:
            part = shares(node)
            for name in again:
                again[name] = again[name] + part[name] * factor
        elif "flop" in node.inputs:
            needed = node.inputs["flop"] / peak * node.times * factor
            for index, name in ((_COMPUTE, "compute"), (_HBM, "hbm")):
                at_peak[name] = at_peak[name] + np.where(np.asarray(node.bound) == index, needed, 0.0)
    losses = {
        "kernels": booked["compute"] - again["compute"] - at_peak["compute"],
        "memory_bound": booked["hbm"] - again["hbm"] - at_peak["hbm"],
        "recomputation": again["compute"] + again["hbm"],
        "network": booked["network"],
        "pipeline": booked["pipeline"],
        "host": booked["dispatch"],
        "data": booked["data"],
    }
    parts = {name: seconds / step.value for name, seconds in losses.items()}
    return {**parts, "rest": 1.0 - mfu_causal - sum(parts.values()), "masked_attention": mfu_causal - mfu}


def _repeated(root: Term, factor: Any = 1.0) -> Any:
    """Every node with how often it runs; a recomputation as one node."""
    yield root, factor
    if root.key != RECOMPUTE:
        for part in root.parts:
            yield from _repeated(part, factor * root.times)
