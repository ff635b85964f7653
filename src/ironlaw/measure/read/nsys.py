"""Read the SQLite export of Nsight Systems (``nsys export --type sqlite``), one Trace for each device and process.

Built from NVIDIA's reference of the schema and from the queries of public scripts. No real file was available, because none is published
under a licence; tests make files by the documented schema. The schema changes between versions, so columns are looked up by name, and
missing ones become warnings.

Times are whole nanoseconds since the session began. The high bits of a globalTid are the process. A CUDA graph recorded whole is one event;
recorded by node, each of its kernels is an event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import InputError
from ironlaw.measure.events import KERNEL, MEMCPY, MEMSET, NONE, Column, DeviceEvents, Message, Shape, Spans, Trace
from ironlaw.measure.read.limits import printable
from ironlaw.measure.read.nsys_nccl import Span, payload_messages
from ironlaw.measure.read.tables import MAGIC, Columns, Database

PREFIX = "CUPTI_ACTIVITY_KIND_"
KERNELS, GRAPHS, CALLS, RANGES = PREFIX + "KERNEL", PREFIX + "GRAPH_TRACE", PREFIX + "RUNTIME", "NVTX_EVENTS"
TRACES = 1024  # devices and processes of one file
THREAD = (1 << 24) - 1  # the low bits of a globalTid
RANGE_TYPES = (59, 60, 70, 71)  # push-pop and start-end ranges, own and imported; other types are marks and names
COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
GPU = ("chipName", "totalMemory", "memoryBandwidth", "smCount", "clockRate", "coreClockRate", "computeMajor", "computeMinor")

_EVENT = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_NAMES = ("demangledName", "shortName", "mangledName")
_VERSION = re.compile(r"_v\d{4,5}(_ptsz|_ptds)?$")  # cudaLaunchKernel_v7000
_OPERATOR = re.compile(r"([A-Za-z_]\w*::[\w.:]+)(?:, |$)")  # torch's emit_nvtx: aten::mm, seq = 3, op_id = 7, sizes = [[2, 4], [4, 8]]
_SIZES = re.compile(r"sizes = (\[[\[\]\d, -]*\])")


def recognise(head: bytes) -> bool:
    """Whether a file with this beginning may be an export: SQLite, with the expected tables if the first page lists them all."""
    if not head.startswith(MAGIC) or len(head) < 101:
        return False
    page = int.from_bytes(head[16:18], "big")
    if head[100] != 0x0D or len(head) < (1 << 16 if page == 1 else page):  # 0x0D: the first page has the whole list
        return True
    return any(name in head for name in (PREFIX.encode(), b"NVTX_EVENTS", b"TARGET_INFO_"))


def read_nsys(path: str | Path) -> list[Trace]:
    """Read every device of every process in the export at ``path``, ordered by process and device."""
    with Database(path) as database:
        return _Export(database).traces()


class Names:
    """Numbers for texts, each text once."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The index of ``text``."""
        return self.index.setdefault(text, len(self.index))

    def column(self, texts: Iterable[str]) -> Column:
        """The indices of ``texts``."""
        return np.fromiter((self.add(text) for text in texts), np.int64)


class _Export:
    """Read the tables once, then split them by process and device."""

    def __init__(self, database: Database) -> None:
        self.database, self.path = database, database.path
        self.names = Names()
        self.warnings: list[Caution] = []
        self.strings: dict[int, str] = {}
        self.shapes: dict[str, int] = {}
        self.schema = self._read_pairs("META_DATA_EXPORT", "name", "value").get("EXPORT_SCHEMA_VERSION", "")

    def traces(self) -> list[Trace]:
        """Read all tables, and make one trace for each device of each process."""
        self._refuse_others()
        events = self._read_events()
        calls, ranges, texts, payloads = self._read_host()
        self._read_strings(events, calls, ranges)
        self._name_events(events)
        numbers, where = np.unique(calls.pop("nameId"), return_inverse=True)
        calls["name"] = self.names.column(_VERSION.sub("", self._string(i)) for i in numbers.tolist())[where]
        labels = [t if t is not None else self._string(i) for t, i in zip(texts, ranges["textId"].tolist(), strict=True)]
        spans = self._read_payloads(ranges, labels, payloads)
        marks, operators = self._split_marks(ranges, labels)
        keys, inverse = np.unique(np.stack([events["globalPid"], events["deviceId"]], axis=1), axis=0, return_inverse=True)
        if len(keys) > TRACES:
            raise InputError(f"{self.path}: more than {TRACES} devices and processes; export fewer ranks")
        order = np.lexsort((events["start"], inverse.reshape(-1)))
        edges = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(keys) + 1))
        traces: list[Trace] = []
        for i, (process, device) in enumerate(keys.tolist()):
            rows = order[edges[i] : edges[i + 1]]
            columns = {name: column[rows] for name, column in events.items()}
            traces.append(self._make_trace((process, device), columns, (calls, marks, operators), spans))
        names = tuple(self.names.index)
        shapes = tuple(Shape(dims) for dims in (tuple(json.loads(text)) for text in self.shapes))
        return [_add_shared(trace, names, shapes, tuple(self.warnings)) for trace in traces]

    def _refuse_others(self) -> None:
        """Refuse a database without tables of kernels, and say what it is."""
        if KERNELS in self.database.refused or self.database.columns(KERNELS) or self.database.columns(GRAPHS):
            return
        known = [name for name in self.database.tables if name.startswith(PREFIX) or name in (RANGES, "StringIds")]
        if not known:
            raise InputError(f"{self.path}: an SQLite database, but not an export of Nsight Systems: no table {KERNELS}")
        raise InputError(f"{self.path}: no kernel was recorded (no table {KERNELS}); profile with --trace=cuda,nvtx and export again")

    # tables

    def _read_table(self, table: str, columns: tuple[str, ...], needed: tuple[str, ...] = ("start", "end")) -> Columns:
        """Columns of a table, filled with NONE if missing; rows that end before they start are left out."""
        have = self.database.columns(table)
        if not have:
            return {name: np.empty(0, np.int64) for name in columns}
        if lacking := [name for name in needed if name not in have]:
            raise InputError(f"{self.path}: {table} has no column {', '.join(lacking)}{self._version()}")
        values, _ = self.database.integers(table, columns)
        self._warn_of_missing(table, [name for name in columns if name not in values])
        return self._drop_untimed(table, self._fill_missing(values, columns))

    def _fill_missing(self, values: Columns, columns: tuple[str, ...]) -> Columns:
        count = len(values["start"])
        return {name: values[name] if name in values else np.full(count, NONE, np.int64) for name in columns}

    def _drop_untimed(self, table: str, columns: Columns) -> Columns:
        keep = self._find_sane(table, columns)
        return columns if keep.all() else {name: column[keep] for name, column in columns.items()}

    def _find_sane(self, table: str, columns: Columns) -> NDArray[np.bool_]:
        """Rows that have times and end after they start; a warning counts the others."""
        start, end = columns["start"], columns["end"]
        untimed = (start == 0) & (end == 0)
        backwards = (end < start) | (start < -(1 << 62)) | (end > 1 << 62)
        for rows, fault in ((untimed, "have no times"), (backwards & ~untimed, "end before they start")):
            if count := int(rows.sum()):
                self.warnings.append(caution("rows-left-out", table=table, count=count, fault=fault))
        keep: NDArray[np.bool_] = ~(untimed | backwards)
        return keep

    def _version(self) -> str:
        return f" (export schema {printable(self.schema, 40)})" if self.schema else ""

    def _warn_of_missing(self, table: str, names: list[str]) -> None:
        names = [n for n in names if n not in _NAMES and n not in ("jsonTextId", "graphNodeId")]
        if names:
            self.warnings.append(caution("no-column", table=table, columns=names, version=self._version()))

    def _read_events(self) -> Columns:
        """All device events, with their kind and the number of their name."""
        tables = (
            (KERNELS, KERNEL, (*_EVENT, *_NAMES, "graphNodeId")),
            (GRAPHS, KERNEL, (*_EVENT, "graphId")),
            (PREFIX + "MEMCPY", MEMCPY, (*_EVENT, "bytes", "copyKind")),
            (PREFIX + "MEMSET", MEMSET, (*_EVENT, "bytes")),
        )
        parts = [self._read_part(*row) for row in tables]
        events = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if not len(events["start"]):
            raise InputError(f"{self.path}: no device events; was the GPU used while profiling?")
        events["deviceId"] = np.where(events["deviceId"] == NONE, 0, events["deviceId"])
        return events

    def _read_part(self, table: str, kind: int, columns: tuple[str, ...]) -> Columns:
        """The device events of one table."""
        values = self._read_table(table, columns)
        count = len(values["start"])
        none = np.full(count, NONE, np.int64)
        if table == KERNELS and count and not any(n in self.database.columns(table) for n in _NAMES):
            raise InputError(f"{self.path}: {table} has none of the columns {', '.join(_NAMES)}{self._version()}")
        if table == GRAPHS and count:
            self.warnings.append(caution("graphs-without-kernels", count=count))
        naming = values.get("graphId", values.get("copyKind", none))
        for name in _NAMES if table == KERNELS else ():  # a name that is NULL in one column may be in the next
            naming = np.where(naming == NONE, values[name], naming)
        return {name: values[name] for name in _EVENT} | {
            "size": values.get("bytes", none),
            "naming": naming,
            "kind": np.full(count, kind, np.int64),
            "graph": np.full(count, table == GRAPHS, np.int64),
            "node": values.get("graphNodeId", none),
        }

    def _read_host(self) -> tuple[Columns, Columns, list[str | None], list[str | None]]:
        """API calls; NVTX ranges with their texts and payloads."""
        if not self.database.columns(CALLS):
            self.warnings.append(caution("no-table-of-calls", table=CALLS))
        calls = self._read_table(CALLS, ("start", "end", "globalTid", "correlationId", "nameId"))
        names = ("start", "end", "eventType", "globalTid", "textId", "domainId", "jsonTextId")
        if not self.database.columns(RANGES):
            self.warnings.append(caution("no-ranges"))
            return calls, {name: np.empty(0, np.int64) for name in names}, [], []
        if "start" not in self.database.columns(RANGES) or "end" not in self.database.columns(RANGES):
            raise InputError(f"{self.path}: {RANGES} has no columns start and end{self._version()}")
        values, words = self.database.integers(RANGES, names, ("text", "jsonText"))
        ranges = self._fill_missing(values, names)
        texts = words.get("text", [None] * len(ranges["start"]))
        payloads = words.get("jsonText", [None] * len(ranges["start"]))
        closed = ranges["end"] != NONE
        if "eventType" in values:
            spans = np.isin(ranges["eventType"], RANGE_TYPES)
            if count := int((spans & ~closed).sum()):
                self.warnings.append(caution("ranges-never-end", table=RANGES, count=count))
            closed &= spans
        keep = np.flatnonzero(closed)
        ranges = {name: column[keep] for name, column in ranges.items()}
        sane = self._find_sane(RANGES, ranges)
        keep, ranges = keep[sane], {name: column[sane] for name, column in ranges.items()}
        return calls, ranges, [texts[i] for i in keep.tolist()], [payloads[i] for i in keep.tolist()]

    def _read_strings(self, events: Columns, calls: Columns, ranges: Columns) -> None:
        """Read the texts of StringIds that are used."""
        kernels = (events["kind"] == KERNEL) & (events["graph"] == 0)
        text_numbers = (events["naming"][kernels], calls["nameId"], ranges["textId"], ranges["jsonTextId"])
        used_texts = set(np.unique(np.concatenate(text_numbers)).tolist())
        if not {"id", "value"} <= set(self.database.columns("StringIds")):
            if used_texts - {NONE}:
                self.warnings.append(caution("no-names"))
            return
        texts: dict[str, str] = {}
        for rows in self.database.chunks("StringIds", ("id", "value")):
            for number, value in rows:
                if number in used_texts and (text := self.database.share_text(value, texts)) is not None:
                    self.strings[number] = text

    def _string(self, number: int) -> str:
        return self.strings.get(number, "" if number == NONE else f"string {number}")

    def _read_pairs(self, table: str, key: str, value: str) -> dict[Any, Any]:
        if not {key, value} <= set(self.database.columns(table)):
            return {}
        return {k: v for rows in self.database.chunks(table, (key, value)) for k, v in rows}

    # columns

    def _name_events(self, events: Columns) -> None:
        """Replace the naming column of events by an index into the names."""
        naming, kind, graph = events.pop("naming"), events["kind"], events["graph"]
        name = np.empty(len(kind), np.int64)
        for rows, text in (
            ((kind == KERNEL) & (graph == 0), self._string),
            (graph == 1, lambda i: f"CUDA graph {i}" if i != NONE else "CUDA graph"),
            (kind == MEMCPY, lambda i: f"Memcpy {COPIES.get(i, 'of kind ' + str(i))}" if i != NONE else "Memcpy"),
            (kind == MEMSET, lambda _: "Memset"),
        ):
            numbers, where = np.unique(naming[rows], return_inverse=True)
            name[rows] = self.names.column(text(i) for i in numbers.tolist())[where]
        events["name"] = name

    def _split_marks(self, ranges: Columns, labels: list[str]) -> tuple[Columns, Columns]:
        """Separate torch's operators from annotations, by name."""
        matches = [_OPERATOR.match(label) for label in labels]
        operator = np.fromiter((m is not None for m in matches), np.bool_, len(matches))
        ranges["name"] = self.names.column(m.group(1) if m else label for m, label in zip(matches, labels, strict=True))
        sizes = (_SIZES.search(label) if m else None for m, label in zip(matches, labels, strict=True))
        ranges["shapes"] = np.fromiter((self._number_shape(m.group(1)) if m else NONE for m in sizes), np.int64, len(labels))
        columns = ("start", "end", "name", "globalTid", "shapes")
        return tuple({n: ranges[n][rows] for n in columns} for rows in (~operator, operator))  # type: ignore[return-value]

    def _number_shape(self, text: str) -> int:
        """The number of an operator's input sizes; equal sizes share one number."""
        if (known := self.shapes.get(text)) is not None:
            return known
        try:
            parsed = json.loads(text) if len(text) < 4096 else None
        except (ValueError, RecursionError):
            return NONE
        return self.shapes.setdefault(text, len(self.shapes)) if isinstance(parsed, list) else NONE

    # one trace

    def _make_trace(
        self, key: tuple[int, int], rows: Columns, host: tuple[Columns, Columns, Columns], payloads: list[tuple[int, Span]]
    ) -> Trace:
        """The trace of one device of one process, from its events and the calls of the process."""
        self.database.deadline.check()
        process, device = key
        launches, marks, operators = (self._select_spans(columns, process) for columns in host)
        correlation = np.where(rows["correlationId"] == 0, NONE, rows["correlationId"])
        launch = link(correlation, launches.correlation)
        none = np.full(len(correlation), NONE, np.int64)
        events = DeviceEvents(
            rows["start"], rows["end"], rows["kind"], rows["name"], np.full(len(none), device, np.int64),
            rows["streamId"], correlation, none, rows["size"], launch,
        )  # fmt: skip
        messages = self._find_messages(events, launches, process, payloads)
        nodes = int(np.sum((rows["node"] != NONE) & (rows["node"] != 0)))
        graphs = int(rows["graph"].sum())
        properties = self._read_properties(process, device) | {"kernels of graph nodes": nodes, "graphs recorded whole": graphs}
        rank = self._read_pairs("MPI_RANKS", "globalPid", "rank").get(process)
        return Trace(
            path=str(self.path),
            reader="nsys",
            device_name=str(properties.pop("name", "")),
            rank=rank if isinstance(rank, int) else None,
            world_size=None,
            base=self._read_base(),
            names=(),
            shapes=(),
            events=events,
            launches=launches,
            operators=operators,
            marks=marks,
            messages=messages,
            properties=properties,
        )

    def _select_spans(self, columns: Columns, process: int) -> Spans:
        """The rows of one process, and rows without a process."""
        known = columns["globalTid"] != NONE
        of_process = ~known | (process == NONE) | (columns["globalTid"] & ~THREAD == process & ~THREAD)
        rows = np.flatnonzero(of_process)
        rows = rows[np.argsort(columns["start"][rows], kind="stable")]
        none = np.full(len(rows), NONE, np.int64)
        thread = np.where(known, columns["globalTid"] & THREAD, NONE)[rows]
        correlation = columns["correlationId"][rows] if "correlationId" in columns else none
        shapes = columns["shapes"][rows] if "shapes" in columns else none
        return Spans(columns["start"][rows], columns["end"][rows], columns["name"][rows], thread, correlation, none, shapes)

    def _read_payloads(self, ranges: Columns, labels: list[str], payloads: list[str | None]) -> list[tuple[int, Span]]:
        """The NCCL ranges with a payload, each with its globalTid."""
        spans = []
        numbers = ranges["jsonTextId"].tolist()
        for i, label in enumerate(labels):
            if label.startswith("nccl") and (text := payloads[i] or self._string(numbers[i])):
                thread = int(ranges["globalTid"][i])
                spans.append((thread, (int(ranges["start"][i]), int(ranges["end"][i]), thread & THREAD, label, text)))
        return spans

    def _find_messages(self, events: DeviceEvents, launches: Spans, process: int, payloads: list[tuple[int, Span]]) -> dict[int, Message]:
        """The messages of NCCL kernels by row, from the payloads of one process."""
        spans = [span for thread, span in payloads if process == NONE or thread & ~THREAD == process & ~THREAD]
        if not spans:
            return {}
        is_nccl = np.fromiter(("nccl" in name.lower() for name in self.names.index), np.bool_, len(self.names.index))
        messages, unlinked = payload_messages(spans, events, launches, is_nccl[events.name])
        if unlinked:
            self.warnings.append(caution("grouped-calls", count=unlinked))
        return messages

    def _read_base(self) -> int:
        """The start of the session in ns since 1970; 0 where the file has none."""
        columns = self.database.columns("TARGET_INFO_SESSION_START_TIME")
        if "utcEpochNs" not in columns:
            return 0
        values, _ = self.database.integers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
        return int(values["utcEpochNs"][0]) if len(values["utcEpochNs"]) else 0

    def _read_properties(self, process: int, device: int) -> dict[str, object]:
        """Properties of the GPU, the process and the file."""
        properties: dict[str, object] = {"schema": printable(self.schema, 40)} if self.schema else {}
        if process != NONE:
            properties["pid"] = process >> 24 & THREAD
        numbers, _ = self.database.integers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
        gpu = device
        if "gpuId" in numbers and "cudaId" in numbers:
            is_device = numbers["cudaId"] == device
            if "pid" in numbers and process != NONE:
                is_device &= numbers["pid"] == properties["pid"]
            gpu = int(numbers["gpuId"][is_device][0]) if is_device.any() else device
        have = self.database.columns("TARGET_INFO_GPU")
        columns = [name for name in ("id", "name", *GPU) if name in have]
        if "id" in have and "name" in have:
            for rows in self.database.chunks("TARGET_INFO_GPU", columns):
                for row in rows:
                    if row[0] == gpu:
                        values = zip(columns[1:], row[1:], strict=True)
                        properties |= {k: printable(v) if isinstance(v, str) else v for k, v in values if isinstance(v, (str, int))}
        return properties


def link(correlation: Column, launches: Column) -> Column:
    """For every event, the first row of ``launches`` with its correlation, else NONE.

    >>> link(np.array([7, 5, -1]), np.array([5, 7, 7])).tolist()
    [1, 0, -1]
    """
    order = np.argsort(launches, kind="stable")
    if not len(order):
        return np.full(len(correlation), NONE, np.int64)
    at = np.minimum(np.searchsorted(launches[order], correlation), len(order) - 1)
    matches = (launches[order][at] == correlation) & (correlation != NONE)
    return np.where(matches, order[at], NONE).astype(np.int64)


def _add_shared(trace: Trace, names: tuple[str, ...], shapes: tuple[Shape, ...], warnings: tuple[Caution, ...]) -> Trace:
    """Add to ``trace`` what all traces of a file share."""
    from dataclasses import replace

    return replace(trace, names=names, shapes=shapes, warnings=warnings)
