"""Read what programs print about device memory: messages of "out of memory", summaries of the allocator, DeepSpeed's lines, nvidia-smi.

    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is
    free. [...] Of the allocated memory 70.10 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.
    MA 13.24 GB         Max_MA 14.1 GB         CA 15.0 GB         Max_CA 15 GB
    | Allocated memory      |  12345 MiB |  23456 MiB | ...
    | N/A   45C    P0   300W / 700W |  71234MiB / 81559MiB |     99%      Default |

Sources: torch, c10/cuda/CUDACachingAllocator.cpp (the message, also of torch 1.x and of HIP) and torch/cuda/memory.py (memory_summary);
DeepSpeed, runtime/utils.py (see_memory_usage: bytes over 1024^3, although it says GB); nvidia-smi's table (MiB).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ironlaw.cautions.record import Caution, as_record
from ironlaw.measure.logs.log import Notes, lines, number

OOM, SUMMARY, DEEPSPEED, SMI = "out-of-memory message", "memory_summary", "DeepSpeed memory lines", "nvidia-smi"
SIGNS = (
    re.compile(rb"(?:CUDA|HIP|XPU)? ?out of memory\. Tried to allocate ", re.IGNORECASE),
    re.compile(rb"PyTorch CUDA memory summary, device ID \d+"),
    re.compile(rb"\bMA [\d.]+ GB\s+Max_MA [\d.]+ GB\s+CA [\d.]+ GB\s+Max_CA [\d.]+ GB"),
    re.compile(rb"\| +\d+MiB */ +\d+MiB *\|"),
)
_SIZE = r"(\d{1,12}(?:\.\d{1,6})?) (bytes|[KMGT]iB)"
_ASKED = re.compile(rf"out of memory\. Tried to allocate {_SIZE}")
_DEVICE = re.compile(r"GPU (\d{1,4})\b")
_TOTAL = re.compile(rf"total capacity of {_SIZE} of which {_SIZE} is free")
_OTHER = re.compile(rf"Process \d+ has {_SIZE} memory in use")
_THIS = re.compile(rf"this process has {_SIZE} memory in use")
_ALLOCATED = re.compile(rf"Of the allocated memory {_SIZE} is allocated by PyTorch")
_UNUSED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_OLD = re.compile(
    rf"\(GPU (?P<device>\d{{1,4}}); {_SIZE} total capacity; {_SIZE} already allocated; {_SIZE} free; {_SIZE} reserved in total by PyTorch"
)
_DEEPSPEED = re.compile(r"\bMA ([\d.]{1,12}) GB\s+Max_MA ([\d.]{1,12}) GB\s+CA ([\d.]{1,12}) GB\s+Max_CA ([\d.]{1,12}) GB")
_SUMMARY = re.compile(r"PyTorch CUDA memory summary, device ID (\d{1,4})")
_ROW = re.compile(r"^\|\s*(Allocated memory|GPU reserved memory)\s*\|\s*(\d{1,15}) (\w{1,3})\s*\|\s*(\d{1,15}) (\w{1,3})\s*\|")
_USED = re.compile(r"\|\s{0,8}(\d{1,9})MiB\s{0,4}/\s{0,4}(\d{1,9})MiB\s{0,4}\|")
_UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MOST = 1000  # messages and tables of one file


@dataclass(frozen=True)
class PrintedMemory:
    """What one message, table or line says about the memory of a device, in bytes; None where it does not say."""

    form: str
    device: int | None = None
    asked: int | None = None  # by the request that failed
    capacity: int | None = None
    free: int | None = None  # on the device
    allocated: int | None = None  # in tensors
    peak_allocated: int | None = None
    reserved: int | None = None  # by PyTorch's allocator
    peak_reserved: int | None = None
    this_process: int | None = None  # with the context and other libraries
    used: int | None = None  # on the device, by all processes
    other_processes: int | None = None

    @property
    def unallocated(self) -> int | None:
        """Reserved and not allocated: fragments that the request did not fit into."""
        return None if self.reserved is None or self.allocated is None else self.reserved - self.allocated


@dataclass(frozen=True)
class MemoryText:
    """The messages, tables and lines of one file about memory."""

    path: str
    entries: tuple[PrintedMemory, ...]  # the one with the most memory first
    warnings: tuple[Caution, ...] = ()

    @property
    def fullest(self) -> PrintedMemory:
        """The entry with the most allocated memory; a message of "out of memory" before others."""
        return self.entries[0]

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rows = [asdict(entry) | {"unallocated": entry.unallocated} for entry in self.entries]
        return {"path": self.path, "entries": rows, "warnings": [as_record(one) for one in self.warnings]}


def recognise(head: bytes) -> bool:
    """Whether a text with this beginning prints memory in a form that is read.

    >>> recognise(b"MA 13.24 GB         Max_MA 14.1 GB         CA 15.0 GB         Max_CA 15 GB"), recognise(b"step 3")
    (True, False)
    """
    return any(sign.search(head) for sign in SIGNS)


def read_memory_text(path: str | Path) -> MemoryText:
    """Read the messages, tables and lines about memory in ``path``."""
    notes = Notes(str(path))
    return MemoryText(str(path), read_entries(lines(path, notes)), tuple(notes.warnings))


def read_entries(text: Iterable[str]) -> tuple[PrintedMemory, ...]:
    """The entries of lines of text, the most telling first: messages before tables, then by bytes.

    >>> text = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 80.00 GiB total capacity; 70.00 GiB already allocated; 1.00 GiB "
    >>> entry = read_entries([text + "free; 75.00 GiB reserved in total by PyTorch)"])[0]
    >>> entry.allocated / 2**30, entry.unallocated / 2**30
    (70.0, 5.0)
    """
    found: list[PrintedMemory] = []
    table: dict[str, Any] | None = None
    for line in text:
        if len(found) >= MOST:
            break
        if "out of memory" in line and (match := _ASKED.search(line)):
            found.append(_read_message(line, match))
        elif "Max_MA" in line and (match := _DEEPSPEED.search(line)):
            now, peak, reserved, peak_reserved = (round((number(v) or 0.0) * (1 << 30)) for v in match.groups())
            found.append(PrintedMemory(DEEPSPEED, allocated=now, peak_allocated=peak, reserved=reserved, peak_reserved=peak_reserved))
        elif match := _SUMMARY.search(line):
            table = {"device": int(match[1])}
        elif table is not None and (match := _ROW.match(line)):
            _read_row(table, match)
            if "reserved" in table and "allocated" in table:
                found.append(PrintedMemory(SUMMARY, **table))
                table = None
        elif "MiB" in line and (match := _USED.search(line)):
            number_of_device = sum(entry.form == SMI for entry in found)
            used, capacity = (int(size) << 20 for size in match.groups())
            found.append(PrintedMemory(SMI, number_of_device, capacity=capacity, used=used))
    order = (OOM, SUMMARY, DEEPSPEED, SMI)
    return tuple(sorted(found, key=lambda e: (order.index(e.form), -(e.peak_allocated or e.allocated or e.used or 0))))


def _read_message(line: str, asked: re.Match[str]) -> PrintedMemory:
    """One message of "out of memory", of this or of older versions of torch."""
    if match := _OLD.search(line):
        groups = match.groups()[1:]
        total, allocated, free, reserved = (_bytes(groups[i], groups[i + 1]) for i in range(0, 8, 2))
        return PrintedMemory(OOM, int(match["device"]), _bytes(asked[1], asked[2]), total, free, allocated=allocated, reserved=reserved)

    def size(pattern: re.Pattern[str], group: int = 1) -> int | None:
        found = pattern.search(line)
        return None if found is None else _bytes(found[group], found[group + 1])

    device, tensors, unused = _DEVICE.search(line), size(_ALLOCATED), size(_UNUSED)
    others = [_bytes(*sizes) for sizes in _OTHER.findall(line)]
    return PrintedMemory(
        OOM,
        int(device[1]) if device else None,
        _bytes(asked[1], asked[2]),
        size(_TOTAL),
        size(_TOTAL, 3),
        allocated=tensors,
        reserved=None if tensors is None or unused is None else tensors + unused,
        this_process=size(_THIS),
        other_processes=sum(others) if others else None,
    )


NAMES = {"Allocated memory": "allocated", "GPU reserved memory": "reserved"}


def _read_row(table: dict[str, Any], match: re.Match[str]) -> None:
    """A row of a summary: current and peak bytes."""
    name = NAMES.get(match[1])
    if name is not None and name not in table:
        table[name], table[f"peak_{name}"] = _bytes(match[2], match[3]), _bytes(match[4], match[5])


def _bytes(value: str, unit: str) -> int:
    """Bytes of a number with a binary unit.

    >>> _bytes("1.50", "GiB"), _bytes("512", "bytes")
    (1610612736, 512)
    """
    return round(float(value) * _UNITS.get(unit, 1))
