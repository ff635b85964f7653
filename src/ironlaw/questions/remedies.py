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
