"""Which rank has which expert, and the loads of ranks that follow: one row of a table for every way to place experts.

Loads are shares of a layer's rows, layers by experts; each layer has its own places. A balanced placement is that of DeepSeek's expert
load balancer (EPLB, eplb.py, balanced_packing and replicate_experts, https://github.com/deepseek-ai/EPLB): experts in falling order
of load, each to the rank with the least load that has a free slot. With redundant experts the most loaded expert is copied until all slots
are used, and copies share its rows evenly.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np


def slots_of(experts: float, redundant: float, ranks: Any) -> Any:
    """Experts that each rank holds: as many on all ranks, so redundant experts are rounded up to fill the slots.

    >>> float(slots_of(256, 0, 64)), float(slots_of(256, 32, 288 / 9)), float(slots_of(12, 3, 8))
    (4.0, 9.0, 2.0)
    """
    return np.ceil((experts + redundant) / ranks)


def place_in_order(loads: Any, ranks: int, slots: int) -> Any:
    """The loads of the experts of every rank (layers, ranks, slots): rank 0 has the first experts."""
    return loads.reshape(loads.shape[0], ranks, slots)


def place_balanced(loads: Any, ranks: int, slots: int) -> Any:
    """The loads of the experts of every rank: each expert, the most loaded first, goes to the rank with least load.

    >>> place_balanced(np.array([[4.0, 3.0, 2.0, 1.0]]), 2, 2).tolist()
    [[[4.0, 1.0], [3.0, 2.0]]]
    """
    placed = np.empty((loads.shape[0], ranks, slots))
    for layer, row in enumerate(np.sort(loads, axis=1)[:, ::-1]):
        open_ranks = [(0.0, rank, 0) for rank in range(ranks)]
        for load in row.tolist():
            held, rank, used = heapq.heappop(open_ranks)
            placed[layer, rank, used] = load
            if used + 1 < slots:
                heapq.heappush(open_ranks, (held + load, rank, used + 1))
    return placed


def place_redundant(loads: Any, ranks: int, slots: int) -> Any:
    """The loads of all copies of experts on every rank: the expert with the most rows for each of its copies gets one more.

    >>> place_redundant(np.array([[6.0, 2.0, 1.0]]), 2, 2).tolist()
    [[[3.0, 2.0], [3.0, 1.0]]]
    """
    copied = np.empty((loads.shape[0], ranks * slots))
    for layer, row in enumerate(loads.tolist()):
        copies = [1] * len(row)
        waiting = [(-load, expert) for expert, load in enumerate(row)]
        heapq.heapify(waiting)
        for _ in range(ranks * slots - len(row)):
            _, expert = waiting[0]
            copies[expert] += 1
            heapq.heapreplace(waiting, (-row[expert] / copies[expert], expert))
        copied[layer] = np.repeat(np.divide(row, copies), copies)
    return place_balanced(copied, ranks, slots)


PLACEMENTS: dict[str, Callable[[Any, int, int], Any]] = {
    "in-order": place_in_order,
    "balanced": place_balanced,
    "redundant": place_redundant,
}
