"""Collectives of one rank: operation, size, number of ranks, and bounds of the transfer.

A kernel on one rank also waits for other ranks, so its time is an upper bound of the transfer and its rate a lower bound of bandwidth.
Sizes are those of the larger buffer (input or output) of a rank, as in nccl-tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.catalog import load
from ironlaw.estimate.fabric.group_links import COLLECTIVES, by_ranks
from ironlaw.law.collectives import algorithm_bandwidth, bus_bandwidth
from ironlaw.measure.communication.classify import Classified, external_of
from ironlaw.measure.communication.patterns import function_of
from ironlaw.measure.events import NONE, Message, Spans, Trace

LOWER_BOUND = "lower bound on bandwidth"
BY_NAME = "the kernel's name"  # the weakest evidence of the operation
_OPERATIONS = (  # lower case, without "_"; the first one found in a name counts
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("pointtopoint", "send_recv"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("send", "send_recv"),
    ("recv", "send_recv"),
    ("reduce", "reduce"),
)
_ITEM_BYTES = {
    1: "bool byte char signedchar unsignedchar int8 int8t uint8 uint8t i8 u8 f8e4m3 f8e5m2 fp8",
    2: "half float16 f16 fp16 bfloat16 bf16 hipbfloat16 short int16 i16 u16 uint16",
    4: "float float32 f32 fp32 int int32 i32 u32 uint32",
    8: "double float64 f64 fp64 long longint int64 i64 u64 uint64 complexfloat c10::complex<float>",
    16: "complexdouble",
}
_SIZES = {name: size for size, names in _ITEM_BYTES.items() for name in names.split()}
_ALGORITHMS = {"RING", "TREE", "NVLS", "NVLSTREE", "COLLNETCHAIN", "COLLNETDIRECT", "COLLNET", "PAT"}
_PROTOCOLS = {"LL", "LL128", "SIMPLE"}
_MESSAGE = re.compile(r"nccl:(?:send|recv) (\d{1,9})(->|<-)(\d{1,9})$")
_NESTED = 32  # earlier spans that are searched for the one around a launch


@dataclass(frozen=True)
class Collective:
    """One call of a collective on one rank."""

    row: int  # of Trace.events
    start: int  # [ns] on the file's clock
    end: int
    operation: str  # all_reduce, ..., "unknown"
    bytes: int | None  # of this rank's buffer, the larger of input and output
    n: int | None  # ranks that take part
    group: str  # name of the process group, "" if not recorded
    ranks: tuple[int, ...]
    dtype: str | None
    algorithm: str | None
    protocol: str | None
    sequence: int | None
    pair: tuple[int, int] | None  # source and target of a message between two ranks
    said_by: str

    @property
    def duration(self) -> int:
        """[ns] of the kernel, including waiting for other ranks."""
        return self.end - self.start

    @property
    def factor(self) -> float | None:
        """Bytes that each rank sends per byte of the buffer, as defined by nccl-tests."""
        return traffic_factor(self.operation, self.n)


@dataclass(frozen=True)
class Link:
    """The link inside a node, from the catalogue."""

    accelerator: str
    bandwidth: float  # [B/s] of one rank, one direction
    constants: dict[str, Any]  # of the calibration, by operation

    def ideal(self, operation: str, size: int, n: int) -> float | None:
        """The least seconds for ``size`` bytes: latency of the operation plus bytes at line rate."""
        factor = traffic_factor(operation, n)
        if factor is None:
            return None
        constants = self.constants.get(operation)
        of_group = by_ranks(constants, n) if constants is not None else None
        latency = float(of_group["latency"].value) if of_group else 0.0
        # above 1 if the switch reduces: each byte then crosses a link once
        rate = self.bandwidth * max(1.0, float(of_group["fraction"].value) if of_group else 1.0)
        return latency + size * factor / rate


def link_of(accelerator: str, folders: tuple[str, ...] = ()) -> Link | None:
    """The link between accelerators of one node, by catalogue name; None if the record has no bandwidth."""
    record = load.record("accelerators", accelerator, folders)
    if record.scale_up_bandwidth is None:
        return None
    calibration = load.record("calibration", record.calibration, folders)
    return Link(accelerator, float(record.scale_up_bandwidth.value), calibration.collective)


def traffic_factor(operation: str, n: int | None) -> float | None:
    """The factor from algorithm to bus bandwidth; None if the operation or the number of ranks is unknown.

    >>> traffic_factor("all_reduce", 8), traffic_factor("all_gather", 8), traffic_factor("broadcast", None)
    (1.75, 0.875, 1.0)
    """
    if operation in ("broadcast", "reduce", "send_recv"):
        return 1.0
    known = COLLECTIVES.get(operation)
    return None if known is None or n is None or n < 1 else float(known.factor(n))


def rates(size: int | None, time: int, factor: float | None) -> tuple[float | None, float | None]:
    """Algorithm and bus bandwidth in B/s of ``size`` bytes in ``time`` ns."""
    if not size or time <= 0:
        return None, None
    seconds = time / 1e9
    bus = float(bus_bandwidth(size, seconds, factor)) if factor is not None else None
    return float(algorithm_bandwidth(size, seconds)), bus


def interval(call: Collective, link: Link | None) -> tuple[int, int]:
    """Bounds of the transfer of a collective on one rank, in ns: the least time of the link, and the time of the kernel."""
    if link is None or call.bytes is None or call.n is None:
        return 0, call.duration
    ideal = link.ideal(call.operation, call.bytes, call.n)
    return (0 if ideal is None else min(int(ideal * 1e9), call.duration)), call.duration


def collectives(trace: Trace, classified: Classified, counted: NDArray[np.bool_] | None = None) -> list[Collective]:
    """The collectives among the counted events, by start, without kernels that only wait."""
    chosen = classified.mask & ~classified.waits
    if counted is not None:
        chosen &= counted
    rows = np.flatnonzero(chosen)
    messages, pairs = _find_messages(trace, rows)
    names = {int(i): _parse_name(trace.names[int(i)]) for i in np.unique(trace.events.name[rows])}
    calls = []
    for row in rows.tolist():
        index = int(trace.events.name[row])
        named_operation, algorithm, protocol, named_dtype = names[index]
        message = messages.get(row, Message())
        operation = operation_of(message.collective or "") or classified.operation.get(index) or named_operation or "unknown"
        pair = pairs.get(row)
        if pair is None and message.source is not None and message.target is not None:
            pair = (message.source, message.target)
        n = message.group_size if message.group_size and message.group_size > 0 else len(message.ranks) or None
        if operation == "send_recv":
            n = 2
        calls.append(
            Collective(
                row=row,
                start=int(trace.events.start[row]),
                end=int(trace.events.end[row]),
                operation=operation,
                bytes=_count_bytes(message),
                n=n if n is not None or message.group is not None else trace.world_size,
                group=message.group or "",
                ranks=message.ranks,
                dtype=message.dtype or named_dtype,
                algorithm=algorithm,
                protocol=protocol,
                sequence=message.sequence,
                pair=pair if operation == "send_recv" else None,
                said_by=message.said_by or BY_NAME,
            )
        )
    return calls


@lru_cache(maxsize=4096)
def operation_of(text: str) -> str | None:
    """The operation in a name, None if there is none.

    >>> operation_of("_allgather_base"), operation_of("nccl:all_reduce"), operation_of("nccl:coalesced")
    ('all_gather', 'all_reduce', None)
    """
    folded = text.lower().replace("_", "")
    return next((operation for word, operation in _OPERATIONS if word in folded), None)


@lru_cache(maxsize=4096)
def item_bytes(dtype: str) -> int | None:
    """Bytes per element of a type, as PyTorch or NCCL spell it; None if unknown.

    >>> item_bytes("c10::BFloat16"), item_bytes("long int"), item_bytes("Float8_e4m3fn"), item_bytes("what")
    (2, 8, 1, None)
    """
    folded = dtype.lower().removeprefix("c10::").replace(" ", "").replace("_", "")
    return 1 if folded.startswith("float8") else _SIZES.get(folded)


def _count_bytes(message: Message) -> int | None:
    """Bytes of a message's larger side; None where its sizes or its type are unknown."""
    size = item_bytes(message.dtype) if message.dtype else None
    if size is None or not _has_size(message):
        return None
    return max(message.elements_in or 0, message.elements_out or 0) * size


def _has_size(message: Message | None) -> bool:
    """Whether a message records its type and at least one plausible size."""
    if message is None or message.dtype is None:
        return False
    counts = [e for e in (message.elements_in, message.elements_out) if e is not None]
    return bool(counts) and all(0 <= e < 2**50 for e in counts)


def _parse_name(name: str) -> tuple[str | None, str | None, str | None, str | None]:
    """Operation, algorithm, protocol and type in a kernel name; None where missing."""
    function = function_of(name)
    words = function.split("_")
    algorithm = next((w for w in words if w in _ALGORITHMS), None)
    protocol = next((w for w in words if w in _PROTOCOLS), None)
    dtype = next((w for w in reversed(words) if item_bytes(w)), None) if algorithm else None
    return operation_of(function.rsplit("::", 1)[-1]), algorithm, protocol, dtype


def _find_messages(trace: Trace, rows: NDArray[np.int64]) -> tuple[dict[int, Message], dict[int, tuple[int, int]]]:
    """The best message recorded for each row; and sender and receiver, where an annotation has them."""
    message_by_row: dict[int, Message] = {}
    pairs: dict[int, tuple[int, int]] = {}
    external = external_of(trace)
    record_names = np.array([i for i, n in enumerate(trace.names) if n == "record_param_comms"], np.int64)
    records = trace.operators.rows(np.isin(trace.operators.name, record_names))
    has_size = [_has_size(trace.call_messages.get(int(e))) for e in records.external]
    records = records.rows(np.array(has_size, bool))
    note_names = np.array([i for i, n in enumerate(trace.names) if n.startswith("nccl:")], np.int64)
    notes = trace.marks.rows(np.isin(trace.marks.name, note_names))
    around_record, around_note = _find_enclosing(trace, rows, records), _find_enclosing(trace, rows, notes)
    for row in rows.tolist():
        note = around_note.get(row)
        message = trace.messages.get(row) or trace.call_messages.get(int(external[row]))
        if not _has_size(message) and row in around_record:
            message = trace.call_messages[int(records.external[around_record[row]])]
        if not _has_size(message) and note is not None:
            message = _read_note(trace, notes, note)
        if message is not None:
            message_by_row[row] = message
        if note is not None:
            match = _MESSAGE.match(trace.names[int(notes.name[note])])
            if match:
                first_rank, arrow, second_rank = int(match[1]), match[2], int(match[3])
                pairs[row] = (first_rank, second_rank) if arrow == "->" else (second_rank, first_rank)
    return message_by_row, pairs


def _find_enclosing(trace: Trace, rows: NDArray[np.int64], spans: Spans) -> dict[int, int]:
    """For each row, the innermost of ``spans`` around its launch, on the same thread."""
    enclosing: dict[int, int] = {}
    if not len(spans):
        return enclosing
    order = np.lexsort((spans.start, spans.thread))
    starts, ends = spans.start[order], spans.end[order]
    threads = spans.thread[order]
    for row in rows.tolist():
        call = int(trace.events.launch[row])
        if call == NONE:
            continue
        thread, when = trace.launches.thread[call], trace.launches.start[call]
        low, high = np.searchsorted(threads, thread, "left"), np.searchsorted(threads, thread, "right")
        at = int(low + np.searchsorted(starts[low:high], when, "right")) - 1
        for back in range(at, max(int(low) - 1, at - _NESTED), -1):
            if ends[back] > when:
                enclosing[row] = int(order[back])
                break
    return enclosing


def _read_note(trace: Trace, notes: Spans, note: int) -> Message:
    """The message in an annotation such as ``nccl:all_reduce``: operation, sizes and type of the inputs."""
    name = trace.names[int(notes.name[note])]
    shape = trace.shapes[int(notes.shapes[note])] if notes.shapes[note] != NONE else None
    elements, dtype = None, None
    if shape is not None:
        counts = [_elements(dims) for dims in shape.dims]
        typed = [(c, t) for c, t in zip(counts, shape.types, strict=False) if c is not None and item_bytes(t)]
        if typed:
            dtype = typed[0][1]
            elements = sum(c for c, t in typed if t == dtype)
    return Message(collective=name.split(" ")[0], elements_in=elements, elements_out=elements, dtype=dtype, said_by=f"shapes of {name}")


def _elements(dims: object) -> int | None:
    """The number of elements of a tensor with these sizes; None for anything implausible."""
    if not isinstance(dims, list) or not dims or not all(type(d) is int and 0 <= d < 2**40 for d in dims):
        return None
    product = 1
    for d in dims:
        product *= d
    return product if product < 2**60 else None


@dataclass(frozen=True)
class Sized:
    """All calls of one operation and size on one rank."""

    operation: str
    bytes: int | None
    n: int | None
    dtype: str | None
    algorithm: str | None
    protocol: str | None
    count: int
    best: int  # [ns]
    median: float  # [ns]
    total: int  # [ns]
    ideal: int  # [ns] least time of one call on the link, 0 if unknown
    said_by: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """Plain data; every rate is a lower bound, because the time includes waiting."""
        factor = traffic_factor(self.operation, self.n)
        best, middle = rates(self.bytes, self.best, factor), rates(self.bytes, int(self.median), factor)
        return {
            "operation": self.operation,
            "bytes": self.bytes,
            "ranks": self.n,
            "dtype": self.dtype,
            "algorithm": self.algorithm,
            "protocol": self.protocol,
            "count": self.count,
            "kernel_ns": {"best": self.best, "median": self.median, "total": self.total},
            "transfer_ns": [self.ideal, self.best],
            "label": LOWER_BOUND,
            "algbw": {"best": best[0], "median": middle[0]},
            "busbw": {"best": best[1], "median": middle[1]},
            "said_by": list(self.said_by),
        }


def by_size(calls: Iterable[Collective], link: Link | None = None) -> list[Sized]:
    """Group calls by operation, size and number of ranks, the longest total first."""
    groups: dict[tuple[Any, ...], list[Collective]] = {}
    for call in calls:
        key = (call.operation, call.bytes, call.n, call.dtype, call.algorithm, call.protocol)
        groups.setdefault(key, []).append(call)
    sized = []
    for key, members in groups.items():
        times = [c.duration for c in members]
        best = min(members, key=lambda c: c.duration)
        said_by = tuple(sorted({c.said_by for c in members}))
        sized.append(Sized(*key, len(members), min(times), median(times), sum(times), interval(best, link)[0], said_by))
    return sorted(sized, key=lambda s: (-s.total, s.operation, s.bytes or 0))
