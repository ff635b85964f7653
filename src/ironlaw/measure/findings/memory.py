"""Findings in what a program prints about device memory."""

from __future__ import annotations

from collections.abc import Iterator

from ironlaw.measure.findings.finding import Facts, Finding
from ironlaw.measure.read.memory_text import PrintedMemory

GIB = float(1 << 30)
COMPILED = "rematerialisation (remat_policy), smaller per-device batches, FSDP over more devices; --model and --on rank them"
OTHERS = "end the other processes (nvidia-smi lists them)"
LARGE = 0.05  # of the capacity: other processes that hold less are contexts


def out_of_memory(name: str, facts: Facts) -> Iterator[Finding]:
    """A request that failed: other processes, fragments, or a run that needs more than the device has."""
    for text in facts.texts:
        entry = text.fullest if text.entries else None
        if entry is None or not entry.failed:
            continue
        why, advice = explain_failure(entry)
        numbers = {key: getattr(entry, key) for key in ("asked", "needed", "free", "capacity", "allocated", "reserved", "other_processes")}
        asked = "memory was requested" if entry.asked is None else f"{entry.asked / GIB:.2f} GiB were requested"
        yield Finding(name, f"{asked}; {why}", advice, None, text.path, numbers)


def explain_failure(entry: PrintedMemory) -> tuple[str, str]:
    """Why a request failed, and what to try: the first cause that is enough by itself."""
    asked, unallocated, others = entry.asked or 0, entry.unallocated or 0, entry.other_processes or 0
    if entry.needed is not None:
        capacity = "" if entry.capacity is None else f" of {entry.capacity / GIB:.2f} GiB"
        return f"the compiled program needs {entry.needed / GIB:.2f} GiB{capacity}", COMPILED
    if entry.asked is None:
        return ("the driver refused before PyTorch had memory of its own: the device is full", OTHERS)
    if entry.capacity and others > LARGE * entry.capacity and others >= asked:
        return f"other processes hold {others / GIB:.2f} GiB of the device", OTHERS
    if entry.allowed is not None and (entry.free or 0) >= asked:
        return f"the process may use {entry.allowed / GIB:.2f} GiB, and the device has room", "torch.cuda.set_per_process_memory_fraction"
    if unallocated >= asked:
        return (
            f"{unallocated / GIB:.2f} GiB are reserved and not allocated, so fragments of it were too small",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, constant shapes",
        )
    held = "" if entry.allocated is None else f": tensors hold {entry.allocated / GIB:.2f} GiB"
    return f"the run needs more than the device has{held}", "smaller micro-batches, recomputation, ZeRO; --model and --on rank them"
