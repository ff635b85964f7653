"""Read a CUDA memory snapshot of PyTorch: the state of the caching allocator at the dump and at the peak before it.

``torch.cuda.memory._dump_snapshot`` pickles a dict: ``segments`` are memory taken from the driver, each divided into ``blocks``;
``device_traces`` has the last allocations and frees of each device. Both are read as plain data (``pickles``), or from JSON with the same
content. Names and meanings follow torch's ``_memory_viz.py`` and ``memory_snapshot.cpp``. No real snapshot was available: none is
published under a licence, and torch without CUDA makes none.

A trace counts requested bytes; segments count blocks, which are rounded up. The trace does not start at zero, so levels are counted back
from the end, where the segments give the state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ironlaw.cautions.record import Caution, as_record
from ironlaw.cautions.table import caution
from ironlaw.errors import InputError
from ironlaw.measure.read.limits import Deadline, open_bytes, printable
from ironlaw.measure.read.pickles import is_pickle, load_plain

JSON = 128 << 20  # bytes of JSON; in memory they take up to 24 times as much
ROWS = 30_000_000  # blocks and entries read: a pickle may repeat one list without end
FRAMES = 64  # frames of a stack searched for a line outside torch
LARGEST = 10  # holders listed
SIZE = 1 << 62  # largest number of bytes or microseconds

ALLOCATED, PENDING, FREE = "active_allocated", "active_pending_free", "inactive"
NO_STACK = "(no stack recorded)"
BACKWARD, NO_PYTHON = "(backward pass: C++ stack only)", "(C++ stack only)"
EARLIER = "(allocated before the trace begins)"
_INSIDE = ("/torch/", "\\torch\\", "<frozen ", "<string>")  # frames of torch and of the interpreter
_KEYS = ("segments", "device_traces")


@dataclass(frozen=True)
class Holder:
    """Memory allocated from one line of source."""

    frame: str
    size: int  # [B] requested
    blocks: int


@dataclass(frozen=True)
class Peak:
    """The highest level within a trace."""

    size: int  # [B]
    time_us: int | None  # None if the file has no times
    entry: int  # number of entries of the trace before it


@dataclass(frozen=True)
class Churn:
    """Calls of the allocator to the driver during the trace."""

    entries: int
    span_us: int | None
    segment_allocs: int  # cudaMalloc, or pages mapped
    segment_frees: int
    segment_bytes: int  # [B] allocated by them
    refills: int  # segments allocated right after others were freed, as after a failed cudaMalloc
    ooms: tuple[tuple[int, int], ...]  # [B] requested, [B] free on the device

    @property
    def per_second(self) -> float | None:
        """Calls to the driver per second, None without times."""
        return (self.segment_allocs + self.segment_frees) / self.span_us * 1e6 if self.span_us else None


@dataclass(frozen=True)
class DeviceMemory:
    """The allocator of one device."""

    device: int
    segments: int
    reserved: int  # [B] of segments
    allocated: int  # [B] of blocks in use
    requested: int  # [B] requested in those blocks
    pending: int  # [B] freed and waiting for a stream
    free: int  # [B] of blocks that are not in use
    largest_free: int  # [B]
    inactive_split: int  # [B] free in segments with other blocks: they cannot go back to the driver
    holders: tuple[Holder, ...]  # at the dump, largest first
    peak: Peak | None  # of requested bytes; None without a trace
    reserved_peak: Peak | None
    peak_holders: tuple[Holder, ...]
    churn: Churn | None

    @property
    def fragmentation(self) -> float:
        """The part of free memory outside the largest free block: 1 - largest free block over free."""
        return 1.0 - self.largest_free / self.free if self.free else 0.0

    @property
    def active(self) -> int:
        """In use or waiting for a stream [B], so not available."""
        return self.allocated + self.pending

    @property
    def unused(self) -> int:
        """Reserved and not allocated [B]."""
        return self.reserved - self.allocated


@dataclass(frozen=True)
class Snapshot:
    """A memory snapshot, by device."""

    path: str
    form: str  # "pickle" or "json"
    devices: tuple[DeviceMemory, ...]
    settings: dict[str, Any]  # of the allocator, as recorded
    warnings: tuple[Caution, ...] = ()

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        devices = []
        for device in self.devices:
            row = asdict(device) | {"fragmentation": device.fragmentation, "unused": device.unused, "active": device.active}
            if device.churn is not None:
                row["churn"] |= {"per_second": device.churn.per_second, "ooms": [{"size": s, "free": f} for s, f in device.churn.ooms]}
            devices.append(row)
        return {
            "path": self.path,
            "form": self.form,
            "devices": devices,
            "settings": self.settings,
            "warnings": [as_record(one) for one in self.warnings],
        }


def recognise(head: bytes) -> bool:
    """Whether a file with this beginning may be a memory snapshot: a pickle, or JSON with its keys."""
    return is_pickle(head) or (head.lstrip()[:1] == b"{" and b'"segments"' in head and b'"blocks"' in head)


def read_snapshot(path: str | Path) -> Snapshot:
    """Read the snapshot in ``path``, a pickle or JSON. Nothing in the file is executed."""
    with open_bytes(path) as stream:
        first = stream.peek(16)[:16]  # type: ignore[attr-defined]
        form = "json" if first.lstrip()[:1] in (b"{", b"[") else "pickle"
        tree = _json(stream.read(JSON + 1), path) if form == "json" else load_plain(stream, path)
    if not isinstance(tree, dict) or "segments" not in tree:
        raise InputError(f"{path}: not a memory snapshot of PyTorch: not a dict with the keys {' and '.join(_KEYS)}")
    return _Reader(path).snapshot(tree, form)


def _json(text: bytes, path: str | Path) -> Any:
    """The JSON of a snapshot; InputError where it is too large, too deep or not JSON."""
    if len(text) > JSON:
        raise InputError(f"{path}: more than {JSON} bytes of JSON; give the pickle, or record fewer entries (max_entries)")

    def refuse(name: str) -> Any:
        raise InputError(f"{path}: {name} in the JSON of a memory snapshot")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise InputError(f"{path}: JSON nested too deeply for a memory snapshot; dump it again") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from None


class _Reader:
    """Turn the plain tree into sums. Every value is checked before use, every row counted."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.rows = path, 0
        self.deadline = Deadline(path, 600.0)
        self.lines: dict[int, str] = {}  # by id of the list of frames: stacks are shared, and each is read once
        self.warnings: list[Caution] = []

    def snapshot(self, tree: dict[str, Any], form: str) -> Snapshot:
        """Read the segments and the trace of every device."""
        by_device: dict[int, list[dict[str, Any]]] = {}
        for segment in self.each(tree["segments"], "segments"):
            by_device.setdefault(self.whole(segment, "device", "segments", 0), []).append(segment)
        traces = [self.listed(t, "device_traces") for t in self.listed(tree.get("device_traces") or [], "device_traces")]
        if not any(traces):
            self.warnings.append(caution("no-allocations"))
        numbers = sorted(set(by_device) | {i for i, trace in enumerate(traces) if trace})
        devices = tuple(self.device(n, by_device.get(n, []), traces[n] if n < len(traces) else []) for n in numbers)
        if not devices:
            raise InputError(f"{self.path}: the snapshot is empty: no segments and no trace; was CUDA in use when it was taken?")
        return Snapshot(str(self.path), form, devices, self.settings(tree.get("allocator_settings")), tuple(self.warnings))

    def device(self, number: int, segments: list[dict[str, Any]], entries: list[Any]) -> DeviceMemory:
        """Sum the segments of one device, and find the peak in its trace."""
        sums = dict.fromkeys(("reserved", "allocated", "requested", "pending", "free", "split", "largest"), 0)
        live: dict[int, tuple[int, str]] = {}  # by address: requested bytes and line
        for segment in segments:
            sums["reserved"] += self.whole(segment, "total_size", "segments")
            self.blocks(segment, sums, live)
        trace = _Trace(self, entries) if entries else None
        peak = trace.peak(sums["requested"]) if trace else None
        return DeviceMemory(
            device=number,
            segments=len(segments),
            reserved=sums["reserved"],
            allocated=sums["allocated"],
            requested=sums["requested"],
            pending=sums["pending"],
            free=sums["free"],
            largest_free=sums["largest"],
            inactive_split=sums["split"],
            holders=largest(live.values()),
            peak=peak,
            reserved_peak=trace.reserved_peak(sums["reserved"]) if trace else None,
            peak_holders=trace.peak_holders(peak, live) if trace and peak else (),
            churn=trace.churn() if trace else None,
        )

    def blocks(self, segment: dict[str, Any], sums: dict[str, int], live: dict[int, tuple[int, str]]) -> None:
        """Add the blocks of one segment."""
        blocks = self.listed(segment.get("blocks"), "blocks of a segment")
        address = self.whole(segment, "address", "segments")
        for block in self.each(blocks, "blocks"):
            size, state = self.whole(block, "size", "blocks"), block.get("state")
            if state == ALLOCATED:
                requested, frames = self.request(block, size)
                sums["allocated"] += size
                sums["requested"] += requested
                live[address] = requested, self.line(frames)
            elif state == PENDING:
                sums["pending"] += size
            elif state == FREE:
                sums["free"] += size
                sums["split"] += size if len(blocks) > 1 else 0
                sums["largest"] = max(sums["largest"], size)
            else:
                raise InputError(f"{self.path}: a block in state {state!r:.40}; known: {ALLOCATED}, {PENDING}, {FREE}")
            address += size

    def request(self, block: dict[str, Any], size: int) -> tuple[int, Any]:
        """The requested bytes of a block and their stack; torch before 2.1 has both in a history."""
        history = block.get("history")
        if "requested_size" not in block and isinstance(history, list) and history and isinstance(history[0], dict):
            return self.whole(history[0], "real_size", "history", size), history[0].get("frames")
        return self.whole(block, "requested_size", "blocks", size), block.get("frames")

    def line(self, frames: Any) -> str:
        """The source line of a stack: the innermost Python frame outside torch, else inside it; without one, what the C++ frames are of."""
        if not isinstance(frames, list) or not frames:
            return NO_STACK
        if (known := self.lines.get(id(frames))) is not None:
            return known
        rows = [f for f in frames[:FRAMES] if isinstance(f, dict)]
        names = [printable(f.get("filename", "")) for f in rows]
        python = [i for i, n in enumerate(names) if n.endswith(".py")]
        at = next((i for i in python if not any(part in names[i] for part in _INSIDE)), python[0] if python else None)
        if at is not None:
            text = f"{names[at]}:{printable(rows[at].get('line', ''), 12)} {printable(rows[at].get('name', ''))}"
        else:  # torch runs the backward pass on threads without a Python stack
            text = BACKWARD if any("autograd" in printable(row.get("name", "")) for row in rows) else NO_PYTHON
        self.lines[id(frames)] = text
        return text

    def settings(self, recorded: Any) -> dict[str, Any]:
        """The settings of the allocator that are plain values, at most one dict deep."""
        if not isinstance(recorded, dict):
            return {}

        def plain(value: Any) -> bool:
            number = isinstance(value, (bool, int, float)) and abs(value) < SIZE
            return value is None or number or (isinstance(value, str) and len(value) < 4096)

        plain_settings: dict[str, Any] = {}
        for key, value in list(recorded.items())[:100]:
            if plain(value):
                plain_settings[key] = value
            elif isinstance(value, dict):
                plain_settings[key] = {k: v for k, v in list(value.items())[:100] if plain(v)}
        return plain_settings

    # checks of values

    def each(self, rows: Any, what: str) -> Iterable[dict[str, Any]]:
        """Each dict of a list, counted and within the time limit."""
        for row in self.listed(rows, what):
            self.rows += 1
            if self.rows % 65536 == 0:
                self.deadline.check()
            if self.rows > ROWS:
                raise InputError(f"{self.path}: more than {ROWS} blocks and entries; record fewer (max_entries)")
            if not isinstance(row, dict):
                raise InputError(f"{self.path}: {what} of a memory snapshot are dicts, not {type(row).__name__}")
            yield row

    def listed(self, rows: Any, what: str) -> list[Any]:
        if not isinstance(rows, list):
            raise InputError(f"{self.path}: {what} of a memory snapshot are a list, not {type(rows).__name__}")
        return rows

    def whole(self, row: dict[str, Any], key: str, what: str, default: int | None = None) -> int:
        """A whole number under ``key``; InputError for anything else."""
        value = row.get(key, default)
        if type(value) is not int or not 0 <= value < 1 << 64 or (value > SIZE and key not in ("address", "addr")):
            raise InputError(f"{self.path}: {key} in {what} is {value!r:.40}, not a whole number in range")
        return value


class _Trace:
    """The trace of one device, read once."""

    def __init__(self, reader: _Reader, entries: list[Any]) -> None:
        self.reader = reader
        self.rows = list(reader.each(entries, "device_traces"))
        self.times = [self._read_time(row) for row in self.rows]

    def _read_time(self, row: dict[str, Any]) -> int | None:
        return self.reader.whole(row, "time_us", "device_traces") if "time_us" in row else None

    def _read_size(self, row: dict[str, Any]) -> int:
        return self.reader.whole(row, "size", "device_traces")

    def _find_peak(self, up: tuple[str, ...], down: tuple[str, ...], last: int) -> Peak:
        """The highest level, if the level after the last entry is ``last``."""
        level = best = last
        at = len(self.rows)
        for i in range(len(self.rows) - 1, -1, -1):
            row = self.rows[i]
            action = row.get("action")
            if action in up:
                level -= self._read_size(row)
            elif action in down:
                level += self._read_size(row)
            if level > best:
                best, at = level, i
        return Peak(best, self.times[at - 1] if at else self.times[0], at)

    def peak(self, requested: int) -> Peak:
        """The peak of requested bytes, if ``requested`` are allocated at the end."""
        return self._find_peak(("alloc",), ("free_requested",), requested)

    def reserved_peak(self, reserved: int) -> Peak:
        """The peak of reserved bytes, if ``reserved`` are reserved at the end."""
        return self._find_peak(("segment_alloc", "segment_map"), ("segment_free", "segment_unmap"), reserved)

    def peak_holders(self, peak: Peak, last: dict[int, tuple[int, str]]) -> tuple[Holder, ...]:
        """The holders of memory at the peak: allocations of the trace not yet freed, and those from before it."""
        allocated: dict[int, tuple[int, str]] = {}
        addresses: set[int] = set()
        for i, row in enumerate(self.rows):
            action = row.get("action")
            if action not in ("alloc", "free_requested"):
                continue
            address = self.reader.whole(row, "addr", "device_traces")
            addresses.add(address)
            if i >= peak.entry:
                continue
            if action == "alloc":
                allocated[address] = self._read_size(row), self.reader.line(row.get("frames"))
            else:
                allocated.pop(address, None)
        rows = list(allocated.values()) + [row for address, row in last.items() if address not in addresses]
        remainder = peak.size - sum(size for size, _ in rows)
        if remainder > 0:
            rows.append((remainder, EARLIER))
        return largest(rows)

    def churn(self) -> Churn:
        """Count the allocator's calls to the driver, and the requests that ran out of memory."""
        allocs = frees = size = refills = 0
        ooms: list[tuple[int, int]] = []
        freed = False  # segments were freed since the last allocation
        for row in self.rows:
            action = row.get("action")
            if action in ("segment_alloc", "segment_map"):
                allocs, size, refills, freed = allocs + 1, size + self._read_size(row), refills + freed, False
            elif action in ("segment_free", "segment_unmap"):
                frees, freed = frees + 1, True
            elif action == "oom":
                ooms.append((self._read_size(row), self.reader.whole(row, "device_free", "device_traces", 0)))
            elif action == "alloc":
                freed = False
        times = [t for t in self.times if t is not None]
        return Churn(len(self.rows), max(times) - min(times) if times else None, allocs, frees, size, refills, tuple(ooms[:1000]))


def largest(rows: Iterable[tuple[int, str]], count: int = LARGEST) -> tuple[Holder, ...]:
    """Sum ``rows`` of (bytes, line) by line; return the ``count`` largest first.

    >>> largest([(3, "a"), (4, "b"), (2, "a")])
    (Holder(frame='a', size=5, blocks=2), Holder(frame='b', size=4, blocks=1))
    """
    sums: dict[str, list[int]] = {}
    for size, line in rows:
        entry = sums.setdefault(line, [0, 0])
        entry[0] += size
        entry[1] += 1
    ordered = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(Holder(line, size, blocks) for line, (size, blocks) in ordered[:count])
