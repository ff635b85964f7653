"""What helps against each bound of a step."""

from __future__ import annotations

_HBM = "flash attention, fused kernels, compile, selective recompute, 8-bit optimizer states, a larger batch"
REMEDIES = {
    "compute": "newer kernels, larger micro-batches, less recompute, lower precision, more accelerators",
    "memory": _HBM,  # as the three-roof model calls it
    "hbm": _HBM,
    "network": "overlap, tensor parallelism inside the node, a larger batch, fewer data-parallel ranks, faster NICs",
    "pipeline": "more micro-batches, more chunks per stage (vpp), fewer stages",
    "dispatch": "CUDA graphs, larger micro-batches, fused kernels",
    "data": "more loader workers, prefetch, faster storage (ironlaw data)",
}
LOSS_REMEDIES = {  # by loss of the waterfall
    "kernels": "newer kernels, larger micro-batches, lower precision",
    "memory_bound": _HBM,
    "recomputation": "less recompute, more GPUs or tp and pp for room in memory",
    "untrained": "outputs of the reference computed before the run, or adapters",
    "network": REMEDIES["network"],
    "pipeline": REMEDIES["pipeline"],
    "host": REMEDIES["dispatch"],
    "data": REMEDIES["data"],
    "rest": "stages of equal time (layers per stage)",
}
