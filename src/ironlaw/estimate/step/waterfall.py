"""Losses between the peak rate (100 %) and the MFU, one by one.

A product that runs at the peak is no loss. The time that its kernel takes longer is a loss of kernels, or of memory-bound work where HBM
limits it. All time of the other roofs is lost. The rest is the time of products that MFU does not count: the slowest stage has more of
them than the mean stage, and kernels compute some FLOPs twice, or for pairs of tokens that a mask hides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ironlaw.estimate.layer.passes import RECOMPUTE
from ironlaw.estimate.layer.untrained import UNTRAINED
from ironlaw.terms import BOUNDS, Term, shares

LOSSES = {  # by key: the name that people read
    "kernels": "GEMMs slower than peak",
    "memory_bound": "memory-bound work",
    "recomputation": "recomputation",
    "untrained": "forward passes of a reference or a teacher",
    "network": "network",
    "pipeline": "pipeline bubble",
    "host": "host",
    "data": "data",
    "rest": "unequal stages and padding",
}
MEANING = {
    "kernels": "time of compute-bound products beyond their FLOPs at the peak",
    "memory_bound": "time in which HBM limits a kernel: norms, activations, optimizer, small products",
    "recomputation": "products and memory-bound work that run again",
    "untrained": "products and memory-bound work of passes that train nothing",
    "network": "communication that nothing overlaps, and waiting for stragglers",
    "pipeline": "stages without a micro-batch",
    "host": "the device waits for launches; fixed per-step overhead",
    "data": "the device waits for ranks whose documents take longer",
    "rest": "products of the slowest stage beyond the mean stage's, and FLOPs that kernels compute twice or behind a mask",
}
_HBM = float(BOUNDS.index("hbm"))


def waterfall(step: Term, booked: Mapping[str, Any], peak: float, mfu: Any) -> dict[str, Any]:
    """Losses as shares of a step, columns by the keys of LOSSES; with the MFU they add up to 1.

    ``booked``: the shares of the roofs. ``peak`` [FLOP/s] is that of the MFU.
    """
    at_peak: Any = 0.0  # seconds of all products at the peak
    below_hbm: Any = 0.0  # of those that HBM limits
    beside: dict[str, dict[str, Any]] = {key: {"compute": 0.0, "hbm": 0.0} for key in (RECOMPUTE, UNTRAINED)}  # seconds

    def visit(node: Term, factor: Any) -> None:
        nonlocal at_peak, below_hbm
        if node.key in (RECOMPUTE, UNTRAINED):
            if np.any(node.value):
                seconds, of_key = shares(node), beside[str(node.key)]
                of_key.update({name: so_far + seconds[name] * factor for name, so_far in of_key.items()})
        elif "flop" in node.inputs:
            needed = node.inputs["flop"] * (node.times * factor / peak)
            at_peak = at_peak + needed
            below_hbm = below_hbm + needed * (node.bound == _HBM)
        elif node.parts:
            inside = factor * node.times
            for part in node.parts:
                visit(part, inside)

    visit(step, 1.0)
    seconds = step.value
    compute, hbm = (sum(of_key[roof] for of_key in beside.values()) for roof in ("compute", "hbm"))
    parts = {
        "kernels": booked["compute"] - (compute + at_peak - below_hbm) / seconds,
        "memory_bound": booked["hbm"] - (hbm + below_hbm) / seconds,
        "recomputation": sum(beside[RECOMPUTE].values()) / seconds,
        "untrained": sum(beside[UNTRAINED].values()) / seconds,
        "network": booked["network"],
        "pipeline": booked["pipeline"],
        "host": booked["dispatch"],
        "data": booked["data"],
    }
    return {**parts, "rest": 1.0 - mfu - sum(parts.values())}
