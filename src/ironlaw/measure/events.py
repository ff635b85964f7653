"""A trace as columns: what the device ran, what the host called, and which call launched what.

Times are int64 nanoseconds on the file's own clock; they are made from integers or decimal text and never pass through a float that
cannot hold them. Every reader of a profile fills these columns, and everything after it reads nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]

KERNEL, MEMCPY, MEMSET = 0, 1, 2
KINDS = ("kernel", "memcpy", "memset")
NONE = -1  # an index or an identifier that is not there


@dataclass(frozen=True)
class DeviceEvents:
    """What ran on the device, sorted by start; one row an event."""

    start: Column  # [ns]
    end: Column  # [ns]
    kind: Column  # KERNEL, MEMCPY, MEMSET
    name: Column  # index into Trace.names
    device: Column  # the device's number in its process
    stream: Column
    correlation: Column  # what links it to its launch
    external: Column  # what links it to its operator
    size: Column  # bytes a copy moved, NONE where the file does not say
    launch: Column  # row of Trace.launches, NONE for an event whose launch is not in the file ("unlinked")

    def __len__(self) -> int:
        return len(self.start)

    def rows(self, chosen: NDArray[np.bool_] | Column) -> DeviceEvents:
        """The chosen rows."""
        return DeviceEvents(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Spans:
    """What the host did, sorted by start; one row a call, an operator or an annotation."""

    start: Column  # [ns]
    end: Column  # [ns]
    name: Column  # index into Trace.names
    thread: Column
    correlation: Column
    external: Column
    shapes: Column  # index into Trace.shapes, NONE where the file has none

    def __len__(self) -> int:
        return len(self.start)

    def rows(self, chosen: NDArray[np.bool_] | Column) -> Spans:
        """The chosen rows."""
        return Spans(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Shape:
    """The inputs of an operator as the profiler wrote them: sizes, element types and values, one entry an argument."""

    dims: tuple[object, ...]
    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # "Concrete Inputs", where recorded
    strides: tuple[object, ...] = ()


@dataclass(frozen=True)
class Message:
    """What a file says about one collective: from the kernel's own arguments or from the operator that asked for it."""

    collective: str | None = None
    elements_in: int | None = None  # of this rank's buffers
    elements_out: int | None = None
    dtype: str | None = None
    group_size: int | None = None
    group: str | None = None
    ranks: tuple[int, ...] = ()
    sequence: int | None = None  # the number of the call in its group
    source: int | None = None  # of a message between two ranks
    target: int | None = None
    said_by: str = ""  # "kernel arguments", "record_param_comms", "shapes of nccl:all_to_all"


@dataclass(frozen=True)
class Trace:
    """One profiled process."""

    path: str
    reader: str  # "chrome", "nsys"
    device_name: str  # as the file says it; "" where it does not
    rank: int | None
    world_size: int | None
    base: int  # [ns] what the file adds to its times to get the time of day, 0 where it does not say
    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    events: DeviceEvents
    launches: Spans  # runtime and driver calls, whether they launch or wait
    operators: Spans  # framework operators
    marks: Spans  # annotations: steps, loaders, collectives as the framework names them
    messages: dict[int, Message] = field(default_factory=dict)  # by row of events, where the kernel itself says it
    asked: dict[int, Message] = field(default_factory=dict)  # what record_param_comms says, by external id
    properties: dict[str, object] = field(default_factory=dict)  # of the device and the run, as the file says them
    warnings: tuple[str, ...] = ()
    lost: int = 0  # events of the device that the file holds and no time can be told of

    def text(self, index: int) -> str:
        """The name with this index."""
        return self.names[index]
