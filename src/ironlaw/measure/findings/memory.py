"""Findings in what a program prints about device memory."""

from __future__ import annotations

from collections.abc import Iterator

from ironlaw.measure.findings.finding import Facts, Finding
from ironlaw.measure.read.memory_text import PrintedMemory

GIB = float(1 << 30)
LARGE = 0.05  # of the capacity: other processes that hold less are contexts


def out_of_memory(name: str, facts: Facts) -> Iterator[Finding]:
    """A request that failed: other processes, fragments, or a run that needs more than the device has."""
    for text in facts.texts:
        entry = text.fullest if text.entries else None
        if entry is None or entry.asked is None:
            continue
        why, advice = explain_failure(entry)
        numbers = {key: getattr(entry, key) for key in ("asked", "free", "capacity", "allocated", "reserved", "other_processes")}
        yield Finding(name, f"{entry.asked / GIB:.2f} GiB were requested; {why}", advice, None, text.path, numbers)


def explain_failure(entry: PrintedMemory) -> tuple[str, str]:
    """Why a request failed, and what to try: the first cause that is enough by itself."""
    asked, unallocated, others = entry.asked or 0, entry.unallocated or 0, entry.other_processes or 0
    if entry.capacity and others > LARGE * entry.capacity and others >= asked:
        return f"other processes hold {others / GIB:.2f} GiB of the device", "end the other processes (nvidia-smi lists them)"
    if unallocated >= asked:
        return (
            f"{unallocated / GIB:.2f} GiB are reserved and not allocated, so fragments of it were too small",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, constant shapes",
        )
    held = "" if entry.allocated is None else f": tensors hold {entry.allocated / GIB:.2f} GiB"
    return f"the run needs more than the device has{held}", "smaller micro-batches, recomputation, ZeRO; --model and --on rank them"
