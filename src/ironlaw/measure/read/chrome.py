"""Read Kineto and Chrome traces, as exported by ``torch.profiler`` in old and new spelling."""

from __future__ import annotations

from array import array
from collections import Counter
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from ironlaw.cautions.table import caution
from ironlaw.errors import InputError
from ironlaw.measure.events import KERNEL, MEMCPY, MEMSET, NONE, Column, DeviceEvents, Message, Shape, Spans, Trace
from ironlaw.measure.read.json_stream import REFUSED, Event, EventStream, as_json
from ironlaw.measure.read.limits import blocks, open_bytes

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
_DIGITS = {1: 0, 1_000: 3, 1_000_000: 6}  # decimals of a time in whole nanoseconds
# Limits of memory; real traces of 16 GB stay below each.
MOST_ROWS = 2**24  # device events, calls, operators and annotations together
MOST_TEXT = 256 << 20  # [B] of different names
MOST_SHAPES = 64 << 20  # [B] of different shapes, as text
MOST_DEVICES = 1024
_MARKS = ("ProfilerStep", "enumerate(DataLoader)")  # older traces file annotations under operators


class DeviceArguments(msgspec.Struct, gc=False):
    """The arguments of a device event or a launch, in the spellings of profilers."""

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
    ranks: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Process Group Ranks")
    sequence: Any = msgspec.field(default=None, name="Seq")
    source: Any = msgspec.field(default=None, name="Src Rank")
    target: Any = msgspec.field(default=None, name="Dst Rank")


class OperatorArguments(msgspec.Struct, gc=False):
    """The arguments of an operator."""

    external: Any = msgspec.field(default=None, name="External id")
    external_old: Any = msgspec.field(default=None, name="external id")
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    dims_old: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Concrete Inputs")
    strides: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Strides")


_NOTHING, _NO_SHAPE = DeviceArguments(), OperatorArguments()
_DEVICE = msgspec.json.Decoder(DeviceArguments)
_OPERATOR = msgspec.json.Decoder(OperatorArguments)
_DEVICE_COLUMNS = 10  # start, end, kind, name, device, stream, correlation, external, size, process
_SPAN_COLUMNS = 7


def nanoseconds(text: bytes, unit: int = 1_000) -> int:
    """Convert decimal ``text`` in units of ``unit`` ns to whole nanoseconds without floats.

    >>> nanoseconds(b"1623142623460111.042")
    1623142623460111042
    >>> nanoseconds(b"0.9600000000000001")
    960
    """
    if text[:1] == b'"':
        text = text.strip(b'"')
    integer, _, fraction = text.partition(b".")
    digits = _DIGITS[unit]
    try:
        if len(fraction) > digits or not integer[-1:].isdigit():
            raise ValueError(text)
        value = int(integer + fraction.ljust(digits, b"0"))
    except ValueError:  # an exponent, or parts of a nanosecond
        exact = Decimal(text.decode("ascii"))
        if exact.adjusted() > 20:  # its integer would have as many digits
            raise
        value = int((exact * unit).to_integral_value())
    if not -_FARTHEST < value < _FARTHEST:
        raise ValueError(f"{value} ns")
    return value


def read_chrome(path: str, unit: str = "us") -> list[Trace]:
    """Read a Chrome trace: one Trace for each device with events, or one if there are none."""
    with open_bytes(path) as stream:
        return _Reader(path, TIME_UNITS[unit]).read(EventStream(path, blocks(stream)))


class _Reader:
    def __init__(self, path: str, unit: int) -> None:
        self.path, self.unit = path, unit
        self.names: dict[str, int] = {}
        self.shapes: dict[tuple[bytes, ...], int] = {}
        self.text = self.shape_text = 0  # bytes of them
        self.device, self.launches, self.operators, self.marks = array("q"), array("q"), array("q"), array("q")
        self.numbers: dict[Any, int] = {}  # of threads and processes that have names
        self.kinds: dict[str | None, int | None] = {None: None}
        self.messages: dict[int, Message] = {}  # by row of device events
        self.call_messages: dict[int, Message] = {}  # of record_param_comms, by external id
        self.ranks: dict[bytes, tuple[int, ...]] = {}
        self.left_out: Counter[str] = Counter()
        self.lost = 0  # device events among those left out

    def read(self, stream: EventStream) -> list[Trace]:
        """Read all events of a stream, and return the traces."""
        kinds = self.kinds
        for events in stream:
            for event in events:
                if event.ph == "X":
                    cat = event.cat
                    try:
                        kind = kinds[cat]
                    except KeyError:
                        kind = self._kind(cat)
                    if kind is not None:
                        self._add(event, kind)
            self._check()
        return self._traces(stream.header)

    def _kind(self, cat: str | None) -> int | None:
        """The kind of events of a category, remembered for the next event."""
        kind = CATEGORIES.get((cat or "").lower())
        if len(self.kinds) < 1000:
            self.kinds[cat] = kind
        return kind

    def _check(self) -> None:
        """Refuse a file with too many events or names."""
        rows = len(self.device) // _DEVICE_COLUMNS + (len(self.launches) + len(self.operators) + len(self.marks)) // _SPAN_COLUMNS
        if rows > MOST_ROWS:
            raise InputError(f"{self.path}: more than {MOST_ROWS:,} kernels, calls and operators; profile fewer steps")
        if self.text > MOST_TEXT:
            raise InputError(f"{self.path}: its events have more than {MOST_TEXT >> 20} MiB of different names; is it a Chrome trace?")

    def _count_lost(self, kind: int, why: str) -> None:
        self.left_out[why] += 1
        self.lost += kind <= MEMSET

    def _add(self, event: Event, kind: int) -> None:
        """Add one event to the columns of its kind."""
        try:
            start = nanoseconds(bytes(event.ts), self.unit)
            length = nanoseconds(bytes(event.dur), self.unit) if len(event.dur) else 0
        except (ValueError, ArithmeticError):
            self._count_lost(kind, "the time is not a number")
            return
        if length < 0:
            self._count_lost(kind, "the duration is negative")
            return
        name = self.names.get(event.name)
        if name is None:
            name = self.names[event.name] = len(self.names)
            self.text += len(event.name)
        if kind <= MEMSET:
            self._add_device(event, kind, start, start + length, name)
        elif kind == LAUNCH:
            a = self._decode(_DEVICE, event.args) or _NOTHING
            external = a.external if a.external is not None else a.external_old
            self.launches.extend(
                (start, start + length, name, self._number_of(event.tid), self._number_of(a.correlation), self._number_of(external), NONE)
            )
        else:
            self._add_operator(event, kind, start, start + length, name)

    def _add_device(self, event: Event, kind: int, start: int, end: int, name: int) -> None:
        """Add a kernel, copy or memset, and the message of a collective that it records."""
        a = self._decode(_DEVICE, event.args) or _NOTHING
        external = a.external if a.external is not None else a.external_old
        device = a.device if a.device is not None else event.pid
        stream = a.stream if a.stream is not None else event.tid
        if a.collective is not None:
            self.messages[len(self.device) // _DEVICE_COLUMNS] = self._message(a, "kernel arguments")
        identifiers = (device, stream, a.correlation, external, a.bytes, event.pid)
        self.device.extend((start, end, kind, name, *map(self._number_of, identifiers)))

    def _add_operator(self, event: Event, kind: int, start: int, end: int, name: int) -> None:
        """Add an operator or an annotation, and the message of a collective that it records."""
        a = self._decode(_OPERATOR, event.args) or _NO_SHAPE
        external = self._number_of(a.external if a.external is not None else a.external_old)
        if event.name == "record_param_comms":
            arguments = self._decode(_DEVICE, event.args)
            if arguments is not None:
                self.call_messages[external] = self._message(arguments, "record_param_comms")
        row = (start, end, name, self._number_of(event.tid), NONE, external, self._number_shape(a))
        if kind == MARK or event.name.startswith(_MARKS):
            self.marks.extend(row)
        if kind == OPERATOR:
            self.operators.extend(row)

    def _number_shape(self, a: OperatorArguments) -> int:
        """The number of an operator's input sizes; equal sizes share one number."""
        dims = a.dims or a.dims_old
        if not len(dims):
            return NONE
        key = (bytes(dims), bytes(a.types), bytes(a.values), bytes(a.strides))
        index = self.shapes.get(key)
        if index is None:
            self.shape_text += sum(map(len, key))
            if self.shape_text > MOST_SHAPES:
                self.left_out["too many different shapes of operators (only the shapes are left out)"] += 1
                return NONE
            index = self.shapes[key] = len(self.shapes)
        return index

    def _number_of(self, value: Any) -> int:
        """An identifier as an integer: its value, its digits, or a new number for its text."""
        if type(value) is int:
            return value if -_FARTHEST < value < _FARTHEST else NONE
        if type(value) is not str:
            return NONE
        number = self.numbers.get(value)
        if number is None:
            digits = value.removeprefix("stream ")
            number = int(digits) if digits.isdecimal() and len(digits) < 18 else -2 - len(self.numbers)
            self.numbers[value] = number
            self.text += len(value)
        return number

    def _decode(self, decoder: Any, raw: msgspec.Raw) -> Any:
        """The arguments of an event; None where it has none or they cannot be read."""
        if not len(raw):
            return None
        try:
            return decoder.decode(raw)
        except REFUSED:
            pass
        try:
            return decoder.decode(as_json(bytes(raw)))
        except REFUSED:
            self.left_out["its arguments cannot be read (only the arguments are left out)"] += 1
            return None

    def _message(self, a: DeviceArguments, said_by: str) -> Message:
        """The message of a collective, from the arguments of its kernel or operator."""
        listed = bytes(a.ranks)
        ranks = self.ranks.get(listed)
        if ranks is None:
            ranks = self.ranks[listed] = _ranks(listed)
            self.text += len(listed)
        return Message(
            collective=str(a.collective).lower() if a.collective is not None else None,
            elements_in=_integer(a.elements_in),
            elements_out=_integer(a.elements_out),
            dtype=str(a.dtype) if a.dtype is not None else None,
            group_size=_integer(a.group_size),
            group=str(a.group) if a.group is not None else None,
            ranks=ranks,
            sequence=_integer(a.sequence),
            source=_integer(a.source),
            target=_integer(a.target),
            said_by=said_by,
        )

    def _traces(self, header: dict[str, Any]) -> list[Trace]:
        """The traces of a file that was read: one for each device of each process."""
        names, shapes = tuple(self.names), tuple(_shape(key) for key in self.shapes)
        launches, operators, marks = (Spans(*_sort_columns(a, _SPAN_COLUMNS)[0]) for a in (self.launches, self.operators, self.marks))
        columns, order = _sort_columns(self.device, _DEVICE_COLUMNS)
        messages = self._index_messages(order)
        info = header.get("distributedInfo")
        info = info if isinstance(info, dict) else {}
        start, *_, correlation, _, _, process = columns
        events = DeviceEvents(*columns[:-1], *[_launch_rows(start, correlation, launches)])
        # single values only: some tools add whole environments, which may be private
        single = {k: v for k, v in header.items() if isinstance(v, (str, int, float))}
        traces = []
        for device, rows in self._split_devices(process, events.device):
            traces.append(
                Trace(
                    path=self.path,
                    reader="chrome",
                    device_name=_device_name(header, device),
                    rank=_integer(info.get("rank")),
                    world_size=_integer(info.get("world_size")),
                    base=_integer(header.get("baseTimeNanoseconds")) or 0,
                    names=names,
                    shapes=shapes,
                    events=events if rows is None else events.rows(rows),
                    launches=launches,
                    operators=operators,
                    marks=marks,
                    messages=messages if rows is None else _select_messages(messages, rows),
                    call_messages=self.call_messages,
                    properties=single | _device(header, device),
                    warnings=tuple(caution("events-left-out", count=count, why=why) for why, count in self.left_out.items()),
                    lost=self.lost,
                )
            )
        return traces

    def _index_messages(self, order: Column) -> dict[int, Message]:
        """The messages by row in the sorted events."""
        if not self.messages:
            return {}
        row = np.empty(len(order), np.int64)
        row[order] = np.arange(len(order))
        return dict(sorted((int(row[old]), message) for old, message in self.messages.items()))

    def _split_devices(self, process: Column, device: Column) -> list[tuple[int, Column | None]]:
        """Each device of each process with its rows in order; None means all rows."""
        if not len(device):
            return [(NONE, None)]
        order = np.lexsort((device, process))
        changes = (np.diff(process[order]) != 0) | (np.diff(device[order]) != 0)
        first = np.concatenate(([0], 1 + np.flatnonzero(changes)))
        if len(first) > MOST_DEVICES:
            raise InputError(f"{self.path}: events of {len(first):,} devices, and at most {MOST_DEVICES} are read; is it a Chrome trace?")
        if len(first) == 1:
            return [(int(device[0]), None)]
        return [(int(device[rows[0]]), rows) for rows in np.split(order, first[1:])]


def _sort_columns(flat: array[int], count: int) -> tuple[list[Column], Column]:
    """The columns of a table, sorted by the first, and the order. Empties ``flat``."""
    values = (np.frombuffer(flat, dtype=np.int64) if len(flat) else np.empty(0, np.int64)).reshape(-1, count)
    order = np.argsort(values[:, 0], kind="stable")
    columns = [values[:, i][order] for i in range(count)]
    del values
    del flat[:]
    return columns, order


def _select_messages(messages: dict[int, Message], chosen: Column) -> dict[int, Message]:
    """The messages of the rows ``chosen``, by position in ``chosen``."""
    rows = np.fromiter(messages, np.int64, len(messages))
    at = np.minimum(np.searchsorted(chosen, rows), len(chosen) - 1)
    return {int(i): messages[int(row)] for i, row, present in zip(at, rows, chosen[at] == rows, strict=True) if present}


def _launch_rows(start: Column, correlation: Column, launches: Spans) -> Column:
    """For each device event, the call that launched it: the last call with its correlation that began before it, else the first one.

    A correlation may occur several times, in repeated traces or merged processes, so the time decides.
    """
    correlated = np.flatnonzero(launches.correlation >= 0)
    launch_row = np.full(len(start), NONE, np.int64)
    if not len(correlated) or not len(start):
        return launch_row
    order = correlated[np.lexsort((launches.start[correlated], launches.correlation[correlated]))]
    keys = launches.correlation[order]
    low, high = np.searchsorted(keys, correlation, "left"), np.searchsorted(keys, correlation, "right")
    has_call = (high > low) & (correlation >= 0)
    launch_row[has_call] = order[low[has_call]]
    several = np.flatnonzero(has_call & (high - low > 1))
    # (correlation, time) as one integer: the start of the correlation, and the number of calls that had begun by then
    times = np.sort(launches.start[order])
    span = len(times) + 1
    key_start = np.searchsorted(keys, keys, "left")
    places = key_start * span + np.searchsorted(times, launches.start[order], "left")
    begun = low[several] * span + np.searchsorted(times, start[several], "right")
    last = np.searchsorted(places, begun, "left") - 1
    launch_row[several] = order[np.maximum(last, low[several])]
    return launch_row


def _shape(key: tuple[bytes, ...]) -> Shape:
    dims, types, values, strides = (_list(text) for text in key)
    return Shape(tuple(dims), tuple(map(str, types)), tuple(map(str, values)), tuple(strides))


def _list(text: bytes) -> list[Any]:
    """A JSON list; empty for anything else."""
    try:
        value = msgspec.json.decode(text) if text else []
    except REFUSED:
        return []
    return value if isinstance(value, list) else []


def _ranks(text: bytes) -> tuple[int, ...]:
    """Ranks in a list, or in a list written as text."""
    return tuple(int(r) for r in text.strip(b'"[] ').replace(b",", b" ").split() if r.removeprefix(b"-").isdigit() and len(r) < 12)


def _integer(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 18:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _FARTHEST else None


def _device(header: dict[str, Any], device: int) -> dict[str, object]:
    """The recorded properties of a device; empty where the file has none.

    ROCm numbers the devices of its kernels by agent, and the list from 0. Where all devices of the list are of one product, each number
    means that product.
    """
    listed = header.get("deviceProperties")
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    for item in items:
        if item.get("id") == device:
            return {"device": item}
    products = {tuple(str(item.get(key)) for key in ("name", "totalGlobalMem", "numSms")) for item in items}
    return {"device": items[0]} if len(products) == 1 else {}


def _device_name(header: dict[str, Any], device: int) -> str:
    properties = _device(header, device).get("device")
    return str(properties.get("name", "")) if isinstance(properties, dict) else ""
