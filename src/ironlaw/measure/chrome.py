"""Kineto and Chrome traces: what ``torch.profiler`` exports, old spellings and new, into the columns of a Trace."""

from __future__ import annotations

from array import array
from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np

from ironlaw.errors import InputError
from ironlaw.measure.events import KERNEL, MEMCPY, MEMSET, NONE, Column, DeviceEvents, Message, Shape, Spans, Trace
from ironlaw.measure.json_stream import Event, EventStream
from ironlaw.measure.limits import blocks, open_bytes

LAUNCH, OPERATOR, MARK = 10, 11, 12
CATEGORIES = {  # folded to lower case: older traces capitalise them
    "kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
    "cuda_runtime": LAUNCH,
    "cuda_driver": LAUNCH,
    "hip_runtime": LAUNCH,
    "hip_driver": LAUNCH,
    "xpu_runtime": LAUNCH,
    "xpu_driver": LAUNCH,
    "runtime": LAUNCH,
    "cpu_op": OPERATOR,
    "operator": OPERATOR,
    "user_annotation": MARK,
    "overhead": MARK,
}
TIME_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000}
_FARTHEST = 2**62  # [ns]
_MARKS = ("ProfilerStep", "enumerate(DataLoader)")  # older traces file annotations under operators


class DeviceArguments(msgspec.Struct, gc=False):
    """What is read of the arguments of a device event or a launch; spellings as profilers use them."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None
    external: Any = msgspec.field(default=None, name="External id")
    external_old: Any = msgspec.field(default=None, name="external id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group_size: Any = msgspec.field(default=None, name="Group size")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    sequence: Any = msgspec.field(default=None, name="Seq")
    source: Any = msgspec.field(default=None, name="Src Rank")
    target: Any = msgspec.field(default=None, name="Dst Rank")


class OperatorArguments(msgspec.Struct, gc=False):
    """What is read of the arguments of an operator."""

    external: Any = msgspec.field(default=None, name="External id")
    external_old: Any = msgspec.field(default=None, name="external id")
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    dims_old: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Concrete Inputs")
    strides: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Strides")


_DEVICE = msgspec.json.Decoder(DeviceArguments)
_OPERATOR = msgspec.json.Decoder(OperatorArguments)
_DEVICE_COLUMNS = 10  # start, end, kind, name, device, stream, correlation, external, size, process
_SPAN_COLUMNS = 7


def nanoseconds(text: bytes, unit: int = 1_000) -> int:
    """The decimal number ``text``, in units of ``unit`` ns, as whole nanoseconds: read as text, rounded only below one nanosecond.

    >>> nanoseconds(b"1623142623460111.042")
    1623142623460111042
    >>> nanoseconds(b"0.9600000000000001")
    960
    """
    if text[:1] == b'"':
        text = text.strip(b'"')
    whole, _, part = text.partition(b".")
    if unit == 1_000 and len(part) <= 3 and b"e" not in text and b"E" not in text:
        value = int(whole + (part + b"000")[:3])
    else:
        value = int((Decimal(text.decode("ascii")) * unit).to_integral_value())
    if not -_FARTHEST < value < _FARTHEST:
        raise ValueError(f"{value} ns")
    return value


def read_chrome(path: str, unit: str = "us") -> list[Trace]:
    """The processes profiled in a Chrome trace, one Trace for each device that ran something (or one where none did)."""
    with open_bytes(path) as stream:
        return _Reader(path, TIME_UNITS[unit]).read(EventStream(path, blocks(stream)))


class _Reader:
    def __init__(self, path: str, unit: int) -> None:
        self.path, self.unit = path, unit
        self.names: dict[str, int] = {}
        self.shapes: dict[tuple[bytes, ...], int] = {}
        self.device, self.launches, self.operators, self.marks = array("q"), array("q"), array("q"), array("q")
        self.numbers: dict[Any, int] = {}  # threads and processes that have names instead of numbers
        self.kinds: dict[str | None, int | None] = {None: None}
        self.arguments: dict[int, DeviceArguments] = {}  # of device events that say something of a collective, by row
        self.asked: dict[int, DeviceArguments] = {}  # of record_param_comms, by external id
        self.spans: dict[int, int] = {}  # external id of an operator -> its shape, for kernels whose operator is an annotation
        self.left_out: Counter[str] = Counter()

    def read(self, stream: EventStream) -> list[Trace]:
        for events in stream:
            for event in events:
                if event.ph == "X":
                    self._add(event)
        return self._traces(stream.header)

    def _add(self, event: Event) -> None:
        cat = event.cat
        try:
            kind = self.kinds[cat]
        except KeyError:
            kind = self.kinds[cat] = CATEGORIES.get((cat or "").lower())
        if kind is None:
            return
        try:
            start = nanoseconds(bytes(event.ts), self.unit)
            length = nanoseconds(bytes(event.dur), self.unit) if len(event.dur) else 0
        except (ValueError, InvalidOperation, ArithmeticError, UnicodeDecodeError):
            self.left_out["a time that is no number"] += 1
            return
        if length < 0:
            self.left_out["a negative duration"] += 1
            return
        name = self.names.setdefault(event.name, len(self.names))
        if kind <= MEMSET:
            self._add_device(event, kind, start, start + length, name)
        elif kind == LAUNCH:
            a = self._decoded(_DEVICE, event.args) or DeviceArguments()
            external = a.external if a.external is not None else a.external_old
            self.launches.extend(
                (start, start + length, name, self._number(event.tid), self._number(a.correlation), self._number(external), NONE)
            )
        else:
            self._add_operator(event, kind, start, start + length, name)

    def _add_device(self, event: Event, kind: int, start: int, end: int, name: int) -> None:
        a = self._decoded(_DEVICE, event.args) or DeviceArguments()
        external = a.external if a.external is not None else a.external_old
        device = a.device if a.device is not None else event.pid
        stream = a.stream if a.stream is not None else event.tid
        if a.collective is not None:
            self.arguments[len(self.device) // _DEVICE_COLUMNS] = a
        identifiers = (device, stream, a.correlation, external, a.bytes, event.pid)
        self.device.extend((start, end, kind, name, *(self._number(value) for value in identifiers)))

    def _add_operator(self, event: Event, kind: int, start: int, end: int, name: int) -> None:
        a = self._decoded(_OPERATOR, event.args) or OperatorArguments()
        external = self._number(a.external if a.external is not None else a.external_old)
        shape = NONE
        dims = a.dims or a.dims_old
        if len(dims):
            key = (bytes(dims), bytes(a.types), bytes(a.values), bytes(a.strides))
            shape = self.shapes.setdefault(key, len(self.shapes))
        if event.name == "record_param_comms":
            asked = self._decoded(_DEVICE, event.args)
            if asked is not None:
                self.asked[external] = asked
        row = (start, end, name, self._number(event.tid), NONE, external, shape)
        if kind == MARK or event.name.startswith(_MARKS):
            self.marks.extend(row)
        if kind == OPERATOR:
            self.operators.extend(row)

    def _number(self, value: Any) -> int:
        """An identifier as an integer: its own value, that of its digits, or a number given to its text."""
        if type(value) is int:
            return value if -_FARTHEST < value < _FARTHEST else NONE
        if value is None or isinstance(value, (float, bool, list, dict)):
            return NONE
        found = self.numbers.get(value)
        if found is None:
            digits = str(value).removeprefix("stream ")
            found = int(digits) if digits.isdecimal() and len(digits) < 18 else -2 - len(self.numbers)
            self.numbers[value] = found
        return found

    def _decoded(self, decoder: Any, raw: msgspec.Raw) -> Any:
        if not len(raw):
            return None
        try:
            return decoder.decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            self.left_out["arguments that cannot be read"] += 1
            return None

    def _traces(self, header: dict[str, Any]) -> list[Trace]:
        table = _table(self.device, _DEVICE_COLUMNS)
        order = np.argsort(table[0], kind="stable")
        spans = [_spans(a) for a in (self.launches, self.operators, self.marks)]
        launch = _launch_rows(table[0][order], table[6][order], spans[0])
        events = DeviceEvents(*[c[order] for c in table[:9]] + [launch])
        process = table[9][order]
        arguments = {int(row): self.arguments[int(old)] for row, old in enumerate(order) if int(old) in self.arguments}
        names = tuple(self.names)
        shapes = tuple(_shape(key) for key in self.shapes)
        info = header.get("distributedInfo")
        info = info if isinstance(info, dict) else {}
        found = []
        for place in sorted(set(zip(process.tolist(), events.device.tolist(), strict=True))) or [(NONE, NONE)]:
            mine = np.flatnonzero((process == place[0]) & (events.device == place[1]))
            back = {int(row): i for i, row in enumerate(mine)}
            found.append(
                Trace(
                    path=self.path,
                    reader="chrome",
                    device_name=_device_name(header, place[1]),
                    rank=_integer(info.get("rank")),
                    world_size=_integer(info.get("world_size")),
                    base=_integer(header.get("baseTimeNanoseconds")) or 0,
                    names=names,
                    shapes=shapes,
                    events=events.rows(mine),
                    launches=spans[0],
                    operators=spans[1],
                    marks=spans[2],
                    messages={back[row]: _message(a, "kernel arguments") for row, a in arguments.items() if row in back},
                    asked={key: _message(a, "record_param_comms") for key, a in self.asked.items()},
                    properties={k: v for k, v in header.items() if k not in ("deviceProperties",)} | _device(header, place[1]),
                    warnings=tuple(f"{count} events left out: {why}" for why, count in self.left_out.items()),
                )
            )
        return found


def _table(flat: array[int], count: int) -> list[Column]:
    values = np.frombuffer(flat, dtype=np.int64) if len(flat) else np.empty(0, np.int64)
    return [np.ascontiguousarray(c) for c in values.reshape(-1, count).T]


def _spans(flat: array[int]) -> Spans:
    table = _table(flat, _SPAN_COLUMNS)
    order = np.argsort(table[0], kind="stable")
    return Spans(*(c[order] for c in table))


def _launch_rows(start: Column, correlation: Column, launches: Spans) -> Column:
    """For each device event the call that launched it: the last one of its correlation that began before it, or the first there is.

    A correlation comes again where a trace was repeated or several processes were merged, so the time decides.
    """
    known = np.flatnonzero(launches.correlation >= 0)
    found = np.full(len(start), NONE, np.int64)
    if not len(known) or not len(start):
        return found
    order = known[np.lexsort((launches.start[known], launches.correlation[known]))]
    keys = launches.correlation[order]
    low, high = np.searchsorted(keys, correlation, "left"), np.searchsorted(keys, correlation, "right")
    one = high > low
    rows = order[np.minimum(low, len(order) - 1)]
    found[one] = rows[one]
    for event in np.flatnonzero(high - low > 1):
        same = order[low[event] : high[event]]
        at = int(np.searchsorted(launches.start[same], start[event], "right")) - 1
        found[event] = same[max(at, 0)]
    found[correlation < 0] = NONE
    return found


def _shape(key: tuple[bytes, ...]) -> Shape:
    dims, types, values, strides = (_list(text) for text in key)
    return Shape(tuple(dims), tuple(map(str, types)), tuple(map(str, values)), tuple(strides))


def _list(text: bytes) -> list[Any]:
    try:
        value = msgspec.json.decode(text) if text else []
    except (msgspec.MsgspecError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _message(a: DeviceArguments, said_by: str) -> Message:
    ranks = []
    if isinstance(a.ranks, str):
        ranks = [int(r) for r in a.ranks.strip("[]").replace(",", " ").split() if r.lstrip("-").isdecimal() and len(r) < 12]
    elif isinstance(a.ranks, list):
        ranks = [r for r in a.ranks if type(r) is int]
    return Message(
        collective=str(a.collective).lower() if a.collective is not None else None,
        elements_in=_integer(a.elements_in),
        elements_out=_integer(a.elements_out),
        dtype=str(a.dtype) if a.dtype is not None else None,
        group_size=_integer(a.group_size),
        group=str(a.group) if a.group is not None else None,
        ranks=tuple(ranks),
        sequence=_integer(a.sequence),
        source=_integer(a.source),
        target=_integer(a.target),
        said_by=said_by,
    )


def _integer(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 18:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _FARTHEST else None


def _device(header: dict[str, Any], device: int) -> dict[str, object]:
    listed = header.get("deviceProperties")
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, dict) and item.get("id") == device:
            return {"device": item}
    return {}


def _device_name(header: dict[str, Any], device: int) -> str:
    found = _device(header, device).get("device")
    return str(found.get("name", "")) if isinstance(found, dict) else ""


def no_device(path: str) -> InputError:
    """The error for a trace in which no device ran anything."""
    return InputError(f"{path}: no kernel, copy or memset in it; profile with ProfilerActivity.CUDA (or your device's) switched on")
