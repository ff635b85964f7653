"""A trace as columns: device events, host calls, and which call launched which event.

Times are int64 nanoseconds on the clock of the file. Readers make them from integers or decimal text, never from a float that would round
them. Every reader of profiles fills these columns, and the analysis reads nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ironlaw.cautions.record import Caution

Column = NDArray[np.int64]

KERNEL, MEMCPY, MEMSET = 0, 1, 2
KINDS = ("kernel", "memcpy", "memset")
NONE = -1  # no index, no identifier


@dataclass(frozen=True)
class DeviceEvents:
    """Device events, sorted by start; one row each."""

    start: Column  # [ns]
    end: Column  # [ns]
    kind: Column  # KERNEL, MEMCPY, MEMSET
    name: Column  # index into Trace.names
    device: Column  # number of the device in its process
    stream: Column
    correlation: Column  # links the event to its launch
    external: Column  # links the event to its operator
    size: Column  # bytes that a copy moved, NONE where not recorded
    launch: Column  # row of Trace.launches, NONE for an event whose launch is not in the file ("unlinked")

    def __len__(self) -> int:
        return len(self.start)

    def rows(self, chosen: NDArray[np.bool_] | Column) -> DeviceEvents:
        """The chosen rows."""
        return DeviceEvents(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Spans:
    """Host calls, operators or annotations, sorted by start; one row each."""

    start: Column  # [ns]
    end: Column  # [ns]
    name: Column  # index into Trace.names
    thread: Column
    correlation: Column
    external: Column
    shapes: Column  # index into Trace.shapes, NONE where not recorded

    def __len__(self) -> int:
        return len(self.start)

    def rows(self, chosen: NDArray[np.bool_] | Column) -> Spans:
        """The chosen rows."""
        return Spans(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Shape:
    """The inputs of an operator as recorded: sizes, element types and values, one entry for each argument."""

    dims: tuple[object, ...]
    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # "Concrete Inputs", where recorded
    strides: tuple[object, ...] = ()


@dataclass(frozen=True)
class Message:
    """The record of one collective in a file: the arguments of its kernel or of the operator that called it."""

    collective: str | None = None
    elements_in: int | None = None  # of this rank's buffers
    elements_out: int | None = None
    dtype: str | None = None
    group_size: int | None = None
    group: str | None = None
    ranks: tuple[int, ...] = ()
    sequence: int | None = None  # number of the call in its group
    source: int | None = None  # of a message between two ranks
    target: int | None = None
    said_by: str = ""  # "kernel arguments", "record_param_comms", "shapes of nccl:all_to_all"


@dataclass(frozen=True)
class Trace:
    """One profiled process."""

    path: str
    reader: str  # "chrome", "nsys"
    device_name: str  # as recorded; "" where not recorded
    rank: int | None
    world_size: int | None
    base: int  # [ns] to add to times of the file for the time of day, 0 where not recorded
    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    events: DeviceEvents
    launches: Spans  # runtime and driver calls, whether they launch or wait
    operators: Spans  # framework operators
    marks: Spans  # annotations: steps, loaders, collectives as the framework names them
    messages: dict[int, Message] = field(default_factory=dict)  # by row of events, from the arguments of the kernel
    call_messages: dict[int, Message] = field(default_factory=dict)  # from record_param_comms, by external id
    properties: dict[str, object] = field(default_factory=dict)  # of the device and the run, as recorded
    warnings: tuple[Caution, ...] = ()
    lost: int = 0  # device events in the file whose times cannot be read

    def text(self, index: int) -> str:
        """The name with this index."""
        return self.names[index]
