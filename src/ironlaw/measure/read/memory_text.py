"""Read what programs print about device memory: messages of "out of memory", summaries of allocators, DeepSpeed's lines, nvidia-smi.

    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is
    free. [...] Of the allocated memory 70.10 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.
    RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 49.34G of 32.00G hbm.
    MA 13.24 GB         Max_MA 14.1 GB         CA 15.0 GB         Max_CA 15 GB
    | Allocated memory      |  12345 MiB |  23456 MiB | ...
    | N/A   45C    P0   300W / 700W |  71234MiB / 81559MiB |     99%      Default |

A message may be broken into lines by a terminal. All programs count in powers of 1024, whatever unit they write.

Sources: torch, c10/cuda/CUDACachingAllocator.cpp (the message; 1.x writes it with semicolons, 2.1 misspells capacity; HIP and XPU write
the same) and torch/cuda/memory.py (memory_summary); OpenXLA, error code 1000 (openxla.org/xla/errors); DeepSpeed, runtime/utils.py
(see_memory_usage) and runtime/zero/stage3.py (estimate_zero3_model_states_mem_needs); manuals of nvidia-smi, rocm-smi and amd-smi.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ironlaw.cautions.record import Caution, as_record
from ironlaw.errors import InputError
from ironlaw.measure.logs.log import Notes, lines, number

OOM, SUMMARY, DEEPSPEED, SMI = "out-of-memory message", "memory_summary", "DeepSpeed memory lines", "nvidia-smi"
ROCM_SMI, MEGATRON = "rocm-smi", "Megatron memory lines"
ORDER = (OOM, SUMMARY, DEEPSPEED, MEGATRON, SMI, ROCM_SMI)  # the most telling first
STARTS = ("out of memory", "Out of memory", "RESOURCE_EXHAUSTED", "ran out of memory")  # of a message
MOST = 1000  # messages and tables of one file
WRAPPED = 12  # lines of a message that a terminal broke
LARGEST = float(1 << 50)  # bytes: containers print 17179869184.00 GiB for a process that they cannot see
SIGNS = (
    re.compile(rb"(?i)out of memory\.?\s{1,4}Tried\s{1,4}to\s{1,4}allocate|CUDA error: out of memory|hipErrorOutOfMemory"),
    re.compile(rb"RESOURCE_EXHAUSTED[\s\S]{0,300}?(?i:out\s{1,4}of\s{1,4}memory|hbm|allocat)|out of memory (?:while )?trying to allocate"),
    re.compile(rb"out of memory \(MPS allocated:"),
    re.compile(rb"PyTorch CUDA memory summary, device ID \d+"),
    re.compile(rb"\bMA [\d.]+ GB\s+Max_MA [\d.]+ GB\s+CA [\d.]+ GB\s+Max_CA [\d.]+ GB"),
    re.compile(rb"\| +\d+MiB */ +\d+MiB *\|"),
    re.compile(rb"\bmemory\.used(?: \[MiB\])?,|, ?memory\.used(?: \[MiB\])?"),
    re.compile(rb"VRAM Total (?:Used )?Memory \(B\)|TOTAL_VRAM: \d"),
    re.compile(rb"memory \(MB\) \| allocated: [\d.]+ \| max allocated: "),
    re.compile(rb"Model with \d+M total params, \d+M largest layer params"),
)
_SIZE = r"(\d{1,15}(?:\.\d{1,6})?) ?(bytes|[KMGT]i?B|[KMGT]|B)\b"
_ASKED = re.compile(rf"(?i:tried to allocate|trying to allocate|attempting to (?:allocate|reserve)) {_SIZE}")
_DEVICE = re.compile(r"\bGPU (\d{1,4})\b|\(GPU_(\d{1,4})_bfc\)|_HBM(\d{1,4})\b")
_TOTAL = re.compile(rf"total capac(?:i)?ty of {_SIZE} of which {_SIZE} is free")
_OTHER = re.compile(rf"Process \d+ has {_SIZE} memory in use")
_THIS = re.compile(rf"this process has {_SIZE} memory in use")
_ALLOCATED = re.compile(rf"Of the allocated memory {_SIZE} is allocated by PyTorch")
_POOLS = re.compile(rf"with {_SIZE} allocated in private pools")
_UNUSED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_ALLOWED = re.compile(rf"{_SIZE} allowed;")
_OLD = re.compile(rf"\(GPU (\d{{1,4}}); {_SIZE} total capacity; {_SIZE} already allocated; {_SIZE} free")
_OLD_RESERVED = re.compile(rf"{_SIZE} (reserved in total by PyTorch|cached)\)")
_MPS = re.compile(rf"\(MPS allocated: {_SIZE}, other allocations: {_SIZE}, max allowed: {_SIZE}\)")
_HBM = re.compile(rf"Used {_SIZE} of {_SIZE} hbm")
_CORES = re.compile(rf"TensorCore Hbm usage: {_SIZE}, SparseCore Hbm usage:? {_SIZE}, exceeding available bytes: {_SIZE}")
_FREE = re.compile(rf"There are {_SIZE} free")
_PROGRAM = re.compile(rf"\btotal allocation: {_SIZE}")
_DEEPSPEED = re.compile(r"\bMA ([\d.]{1,12}) GB\s+Max_MA ([\d.]{1,12}) GB\s+CA ([\d.]{1,12}) GB\s+Max_CA ([\d.]{1,12}) GB")
_MEGATRON = re.compile(
    r"memory \(MB\) \| allocated: ([\d.]{1,15}) \| max allocated: ([\d.]{1,15}) \| reserved: ([\d.]{1,15}) \| max reserved: ([\d.]{1,15})"
)
_SUMMARY = re.compile(r"PyTorch CUDA memory summary, device ID (\d{1,4})")
_RETRIES = re.compile(r"cudaMalloc retries: (\d{1,9})")
_ROW = re.compile(r"^\|\s*(Allocated memory|GPU reserved memory)\s*\|\s*(\d{1,15}) (\w{1,3})\s*\|\s*(\d{1,15}) (\w{1,3})\s*\|")
_USED = re.compile(r"\|\s{0,8}(\d{1,9})MiB\s{0,4}/\s{0,4}(\d{1,9})MiB\s{0,4}\|")
_PROCESS = re.compile(
    r"^\|\s{1,6}(\d{1,4})\s{1,8}(?:\S{1,8}\s{1,8}\S{1,8}\s{1,12})?\d{1,10}\s{1,6}[CGM+]{1,3}\s.{0,80}?(\d{1,9})MiB\s{0,4}\|"
)
_ROCM = re.compile(r"GPU\[(\d{1,4})\]\s{0,8}:\s{0,8}VRAM Total (Used )?Memory \(B\):\s{0,8}(\d{1,18})")
_AMD_GPU, _AMD = re.compile(r"^\s*GPU: (\d{1,4})\s*$"), re.compile(r"\b(TOTAL|USED)_VRAM: (\d{1,12}) MB")
_HARDWARE = re.compile(r"Setup with (\d{1,6}) nodes?, (\d{1,4}) GPUs? per node")
_SOFTWARE = re.compile(r"Model with (\d{1,9})M total params, (\d{1,9})M largest layer params")
_STATES = re.compile(r"^\s*#?\s*([\d.]{1,12})GB \|\s{1,8}([\d.]{1,12})GB \| (offload_\w.{1,120})$")
_UNITS = {"bytes": 1, "B": 1} | {f"{letter}{end}": 1 << 10 * (i + 1) for i, letter in enumerate("KMGT") for end in ("", "B", "iB")}


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
    failed: bool = False  # whether a request failed, or a program was refused
    needed: int | None = None  # by the whole program, as a compiler says
    allowed: int | None = None  # of the capacity, by set_per_process_memory_fraction
    private_pools: int | None = None  # of the allocated: CUDA graphs
    retries: int | None = None  # times that the allocator had to give its cache back
    processes: tuple[int, ...] = ()  # of each process on the device

    @property
    def unallocated(self) -> int | None:
        """Reserved and not allocated: fragments that the request did not fit into."""
        return None if self.reserved is None or self.allocated is None else self.reserved - self.allocated


@dataclass(frozen=True)
class StatesEstimate:
    """A row of DeepSpeed's estimate of weights, gradients and optimizer states under ZeRO 3 [B for each node and each GPU]."""

    parameters: int
    largest_layer: int
    gpus: int | None
    options: str
    host: int
    device: int


@dataclass(frozen=True)
class MemoryText:
    """The messages, tables and lines of one file about memory."""

    path: str
    entries: tuple[PrintedMemory, ...]  # the one with the most memory first
    warnings: tuple[Caution, ...] = ()
    states: tuple[StatesEstimate, ...] = ()

    @property
    def fullest(self) -> PrintedMemory:
        """The entry with the most allocated memory; a message of "out of memory" before others."""
        return self.entries[0]

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rows = [asdict(entry) | {"processes": list(entry.processes), "unallocated": entry.unallocated} for entry in self.entries]
        states = [asdict(row) for row in self.states]
        return {"path": self.path, "entries": rows, "states": states, "warnings": [as_record(one) for one in self.warnings]}


def recognise(head: bytes) -> bool:
    """Whether a text with this beginning prints memory in a form that is read.

    >>> recognise(b"MA 13.24 GB         Max_MA 14.1 GB         CA 15.0 GB         Max_CA 15 GB"), recognise(b"step 3")
    (True, False)
    """
    return any(sign.search(head) for sign in SIGNS)


def read_memory_text(path: str | Path) -> MemoryText:
    """Read the messages, tables and lines about memory in ``path``; InputError where it ends before any size."""
    notes = Notes(str(path))
    reader = _Reader()
    for line in lines(path, notes):
        reader.add(line)
        if len(reader.found) >= MOST:
            break
    entries = reader.entries()
    if not entries and not reader.states:
        raise InputError(f"{path}: begins like a message or table about memory, and has no size; paste it whole")
    return MemoryText(str(path), entries, tuple(notes.warnings), tuple(reader.states))


def read_entries(text: Iterable[str]) -> tuple[PrintedMemory, ...]:
    """The entries of lines of text, the most telling first: messages before tables, then by bytes.

    >>> text = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 80.00 GiB total capacity; 70.00 GiB already allocated; 1.00 GiB "
    >>> entry = read_entries([text + "free; 75.00 GiB reserved in total by PyTorch)"])[0]
    >>> entry.allocated / 2**30, entry.unallocated / 2**30
    (70.0, 5.0)
    """
    reader = _Reader()
    for line in text:
        reader.add(line)
    return reader.entries()


class _Reader:
    """Collect entries from lines: each kind of line has one method that says whether it was of that kind."""

    def __init__(self) -> None:
        self.found: list[PrintedMemory] = []
        self.states: list[StatesEstimate] = []
        self.message: list[str] = []  # of the message that is being read
        self.table: dict[str, Any] | None = None  # of memory_summary
        self.retries: int | None = None
        self.columns: list[str] | None = None  # of a CSV table
        self.devices: dict[int, list[int | None]] = {}  # of rocm-smi: total, used
        self.amd = 0
        self.rows: dict[int, list[int]] = {}  # of nvidia-smi: sizes of processes by device
        self.size: tuple[int | None, int, int] | None = None  # of DeepSpeed's estimate: GPUs, parameters, largest layer

    def add(self, line: str) -> None:
        """Read one line."""
        if len(self.found) >= MOST:
            return
        if any(start in line for start in STARTS):
            self._end_message()
            self.message = [line]
        elif self.message:
            if len(self.message) < WRAPPED and line.strip():
                self.message.append(line)
            else:
                self._end_message()
        for kind in (self._usage, self._summary, self._smi, self._csv, self._rocm, self._zero):
            if kind(line):
                return

    def entries(self) -> tuple[PrintedMemory, ...]:
        """All entries, the most telling first."""
        self._end_message()
        for device, (total, used) in self.devices.items():
            self.found.append(PrintedMemory(ROCM_SMI, device, capacity=total, used=used))
        self.devices = {}
        for at, entry in enumerate(self.found):
            if entry.form == SMI and entry.device in self.rows:
                self.found[at] = replace(entry, processes=tuple(sorted(self.rows[entry.device], reverse=True)))
        return tuple(
            sorted(self.found, key=lambda e: (ORDER.index(e.form), not e.failed, -(e.peak_allocated or e.allocated or e.used or 0)))
        )

    def _end_message(self) -> None:
        if self.message:
            entry = _read_message(" ".join(line.strip().rstrip("\\").strip() for line in self.message))
            self.message = []
            if entry is not None:
                self.found.append(entry)

    def _usage(self, line: str) -> bool:
        """DeepSpeed's and Megatron's lines: allocated, its peak, reserved, its peak."""
        for mark, pattern, form, unit in (("Max_MA", _DEEPSPEED, DEEPSPEED, 1 << 30), ("memory (MB)", _MEGATRON, MEGATRON, 1 << 20)):
            if mark in line and (match := pattern.search(line)):
                now, peak, reserved, most = (round((number(v) or 0.0) * unit) for v in match.groups())
                if form == MEGATRON:
                    reserved, most = max(reserved, now), max(most, peak)
                self.found.append(PrintedMemory(form, allocated=now, peak_allocated=peak, reserved=reserved, peak_reserved=most))
                return True
        return False

    def _summary(self, line: str) -> bool:
        """``torch.cuda.memory_summary()``: its first line, the retries, and the rows that are used."""
        if match := _SUMMARY.search(line):
            self.table, self.retries = {"device": int(match[1])}, None
            return True
        if self.table is None:
            return False
        if match := _RETRIES.search(line):
            self.retries = int(match[1])
        elif match := _ROW.match(line):
            _read_row(self.table, match)
            if "reserved" in self.table and "allocated" in self.table:
                self.found.append(PrintedMemory(SUMMARY, retries=self.retries, **self.table))
                self.table = None
        return line.startswith("|")

    def _smi(self, line: str) -> bool:
        """The table of nvidia-smi: memory of each device, then of each process."""
        if "MiB" not in line:
            return False
        if match := _USED.search(line):
            device = sum(entry.form == SMI for entry in self.found)
            used, capacity = (int(size) << 20 for size in match.groups())
            self.found.append(PrintedMemory(SMI, device, capacity=capacity, used=used))
        elif (match := _PROCESS.match(line)) and len(self.rows) < MOST:
            self.rows.setdefault(int(match[1]), []).append(int(match[2]) << 20)
        return match is not None

    def _csv(self, line: str) -> bool:
        """``nvidia-smi --query-gpu=... --format=csv``: a header, then a line for each device."""
        if "memory.used" in line:
            self.columns = [name.strip().split(" [")[0] for name in line.split(",")]
            return True
        if self.columns is None or ("," not in line and len(self.columns) > 1):
            return False
        cells = dict(zip(self.columns, (cell.strip() for cell in line.split(",")), strict=False))
        sizes = {name: number(cells.get(f"memory.{name}", "").removesuffix(" MiB")) for name in ("used", "total", "free")}
        if sizes["used"] is None or len(cells) != len(self.columns):
            return False
        used, total, free = (None if value is None else round(value) << 20 for value in sizes.values())
        index = cells.get("index", "")
        device = int(index) if index.isdigit() and len(index) < 5 else sum(entry.form == SMI for entry in self.found)
        self.found.append(PrintedMemory(SMI, device, capacity=total, free=free, used=used))
        return True

    def _rocm(self, line: str) -> bool:
        """``rocm-smi --showmeminfo vram`` and ``amd-smi metric --mem-usage``: total and used memory of each device."""
        if "VRAM" not in line and "GPU" not in line:
            return False
        if match := _ROCM.search(line):
            device, used, size = int(match[1]), match[2] is not None, int(match[3])
        elif match := _AMD.search(line):
            device, used, size = self.amd, match[1] == "USED", int(match[2]) << 20
        else:
            self.amd = int(match[1]) if (match := _AMD_GPU.match(line)) else self.amd
            return match is not None
        if len(self.devices) < MOST:
            self.devices.setdefault(device, [None, None])[used] = size
        return True

    def _zero(self, line: str) -> bool:
        """DeepSpeed's estimate of model states: the number of GPUs, the model, then a row for each way to offload."""
        if match := _HARDWARE.search(line):
            self.size = (int(match[1]) * int(match[2]), 0, 0)
        elif match := _SOFTWARE.search(line):
            self.size = (self.size[0] if self.size else None, int(match[1]) * 10**6, int(match[2]) * 10**6)
        elif self.size is not None and len(self.states) < MOST and (match := _STATES.match(line)):
            host, device = (round((number(v) or 0.0) * (1 << 30)) for v in match.groups()[:2])
            gpus, parameters, largest = self.size
            self.states.append(StatesEstimate(parameters, largest, gpus, " ".join(match[3].split()), host, device))
        return match is not None


def _read_message(text: str) -> PrintedMemory | None:
    """A message of "out of memory" of torch or XLA; None for a line that only mentions one."""

    def size(pattern: re.Pattern[str], group: int = 1) -> int | None:
        found = pattern.search(text)
        return None if found is None else _bytes(found[group], found[group + 1])

    asked, device = size(_ASKED), _DEVICE.search(text)
    at = None if device is None else int(next(v for v in device.groups() if v is not None))
    if match := _OLD.search(text):
        reserved, old = size(_OLD_RESERVED), _OLD_RESERVED.search(text)
        total, allocated, free = (_bytes(match[i], match[i + 1]) for i in (2, 4, 6))
        if old is not None and old[3] == "cached" and reserved is not None and allocated is not None:
            reserved += allocated  # torch before 1.4 prints what is cached and not allocated
        return PrintedMemory(
            OOM, int(match[1]), asked, total, free, allocated=allocated, reserved=reserved, failed=True, allowed=size(_ALLOWED)
        )  # fmt: skip
    if match := _MPS.search(text):
        allocated, other, limit = (_bytes(match[i], match[i + 1]) for i in (1, 3, 5))
        return PrintedMemory(OOM, at, asked, limit, allocated=allocated, other_processes=other, failed=True)
    if match := _CORES.search(text):
        dense, sparse, most = (_bytes(match[i], match[i + 1]) or 0 for i in (1, 3, 5))
        return PrintedMemory(OOM, at, capacity=most, needed=dense + sparse, failed=True)
    needed, capacity = size(_HBM) or size(_PROGRAM), size(_TOTAL) or size(_HBM, 3)
    refused = any(words in text for words in ("CUDA error: out of memory", "hipErrorOutOfMemory", "CUDA_ERROR_OUT_OF_MEMORY"))
    if asked is None and needed is None and not refused:
        return None
    tensors, unused = size(_ALLOCATED), size(_UNUSED)
    others = [found for sizes in _OTHER.findall(text) if (found := _bytes(*sizes)) is not None]
    return PrintedMemory(
        OOM,
        at,
        asked,
        capacity,
        size(_TOTAL, 3) if size(_TOTAL) is not None else size(_FREE),
        allocated=tensors,
        reserved=None if tensors is None or unused is None else tensors + unused,
        this_process=size(_THIS) or None,
        other_processes=sum(others) if others else None,
        failed=True,
        needed=needed,
        allowed=size(_ALLOWED),
        private_pools=size(_POOLS),
    )


NAMES = {"Allocated memory": "allocated", "GPU reserved memory": "reserved"}


def _read_row(table: dict[str, Any], match: re.Match[str]) -> None:
    """A row of a summary: current and peak bytes."""
    name = NAMES.get(match[1])
    if name is not None and name not in table:
        table[name], table[f"peak_{name}"] = _bytes(match[2], match[3]), _bytes(match[4], match[5])


def _bytes(value: str, unit: str) -> int | None:
    """Bytes of a number with a unit, which is binary in all these programs; None for a size that no device has.

    >>> _bytes("1.50", "GiB"), _bytes("512", "bytes"), _bytes("1", "MB"), _bytes("17179869184.00", "GiB")
    (1610612736, 512, 1048576, None)
    """
    size = float(value) * _UNITS.get(unit, 1)
    return round(size) if size < LARGEST else None
