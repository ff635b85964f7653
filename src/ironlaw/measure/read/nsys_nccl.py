"""Read bytes and communicators of NCCL calls from NVTX payloads, and give them to the kernels the calls launched.

NCCL annotates each call with a payload; an export with ``--include-blobs=true`` has it as JSON beside the range. NCCL defines the size:
bytes that this rank sends in an all-gather, receives in a reduce-scatter, exchanges with one peer in an all-to-all, and of the whole
buffer in other calls.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.measure.events import NONE, DeviceEvents, Message, Spans

SIZE, COMMUNICATOR, RANKS = "Message size [bytes]", "NCCL communicator ID", "No. of ranks"
SAID_BY = "NVTX payload of NCCL"
LIMIT = 1 << 50  # bytes; a larger message is an error

Mask = NDArray[np.bool_]
Span = tuple[int, int, int, str, str]  # start, end, thread, name, payload


def payload_messages(spans: list[Span], events: DeviceEvents, launches: Spans, is_nccl: Mask) -> tuple[dict[int, Message], int]:
    """Messages by row of ``events`` for NCCL kernels launched inside a range with a size; and the number of such ranges without one kernel.

    Elements are bytes, because a payload has no type: ``dtype`` is Byte.
    """
    parsed = [(start, end, thread, name, _payload(text)) for start, end, thread, name, text in spans]
    ranks = {p[COMMUNICATOR]: p[RANKS] for *_, p in parsed if COMMUNICATOR in p and p.get(RANKS, 0) > 0}
    by_thread: dict[int, list[tuple[int, int]]] = {}
    for row in np.flatnonzero(is_nccl & (events.launch != NONE)).tolist():
        launch = int(events.launch[row])
        by_thread.setdefault(int(launches.thread[launch]), []).append((int(launches.start[launch]), row))
    for nccl_launches in by_thread.values():
        nccl_launches.sort()
    messages: dict[int, Message] = {}
    without_kernel = 0
    for start, end, thread, name, payload in parsed:
        if not 0 < payload.get(SIZE, 0) < LIMIT:
            continue
        nccl_launches = by_thread.get(thread, [])
        in_range = nccl_launches[bisect_left(nccl_launches, (start, 0)) : bisect_right(nccl_launches, (end, len(events)))]
        if len(in_range) == 1:
            messages[in_range[0][1]] = _message(name, payload, ranks)
        else:
            without_kernel += 1
    return messages, without_kernel


def _payload(text: str) -> dict[str, int]:
    """The whole numbers in a payload; empty if it is not JSON."""
    try:
        payload = json.loads(text) if len(text) < 4096 else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(payload, dict):
        return {}
    return {key: number for key, value in payload.items() if (number := _whole(value)) is not None}


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and len(value) <= 20 and value.isascii() and value.isdigit():
        return int(value)
    return value if type(value) is int else None


def _message(name: str, payload: dict[str, int], ranks: dict[int, int]) -> Message:
    """The message of an NCCL call; sizes of the whole buffer follow from the number of ranks."""
    size, communicator = payload[SIZE], payload.get(COMMUNICATOR)
    group = ranks.get(communicator) if communicator is not None else None
    short = name.removeprefix("nccl")
    sent = received = size
    if short == "AllGather":
        received = size * group if group else 0
    elif short == "ReduceScatter":
        sent = size * group if group else 0
    elif short == "AlltoAll" and group:
        sent = received = size * group
    return Message(
        collective=short,
        elements_in=sent or None,
        elements_out=received or None,
        dtype="Byte",
        group_size=group,
        group=f"{communicator:#x}" if communicator is not None else None,
        said_by=SAID_BY,
    )
