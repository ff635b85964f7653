"""Group equal kernels; give each group its FLOPs, bytes and roof, and its speed relative to the device.

If an operator launches several kernels, its FLOPs and bytes are shared by time among the kernels that do its work; transposes and partial
sums get none. The roof of a group without FLOPs and bytes follows from its name, and is marked ``assumed``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.catalog.records import Accelerator
from ironlaw.measure.events import KERNEL, Column, Trace
from ironlaw.measure.kernels.costs import Cost
from ironlaw.measure.kernels.names import COMPUTE_CLASSES, UNKNOWN, KernelClass, KernelNames, Named, shipped_names, short_name
from ironlaw.measure.kernels.operators import Linked, link
from ironlaw.measure.kernels.roofs import Roofs, Times
from ironlaw.measure.roof import COMPUTE, HBM

LAUNCH, NO_ROOF = "launch", "far below both roofs"
NEAR = 0.5  # of a roof: a kernel that takes twice as long is limited by its shape or a latency instead
TOO_FAST = 1.05  # of a peak: above it, the sizes or the precision are wrong, or a cache served the data
FROM_CACHE = "bytes from a cache"  # more of them than HBM moves in that time
MOVES_FASTER = "bytes above the calibrated rate"  # larger than the copies it was measured with, or in part from a cache
COMPUTES_FASTER = "FLOP/s above the calibrated rate"
STARTS_FASTER = "shorter than the calibrated launch"
SHORT = 5_000  # [ns] launch overhead dominates a shorter kernel
_TIMES = ("ideal", "achievable", "compute", "hbm", "launch", "peak")
WORKS = {
    "gemm": ("gemm",),
    "conv": ("conv", "gemm"),
    "attention": ("attention", "gemm"),
}  # classes of kernels that do the work of an operator


@dataclass(frozen=True)
class KernelGroup:
    """Kernels of one class, name, operator and sizes. Rates are means over the group; None means unknown."""

    kind: str  # its class
    kernel: str  # short name
    operator: str  # "" if unknown
    shapes: str
    recompute: bool
    count: int
    total_ns: int
    median_ns: int
    precision: str  # of the operands, "" if unknown
    precision_by: str  # "kernel name" | "operator" | ""
    flop: float | None  # of all calls
    model_flop: float | None  # FLOPs that MFU counts: 0 for recomputation
    traffic: float | None  # [B] least bytes of all calls
    intensity: float | None  # [FLOP/B]
    flop_per_second: float | None
    bytes_per_second: float | None
    peak: float | None  # [FLOP/s] dense, of the precision
    of_peak: float | None  # time at the datasheet's rates over the time taken, at most 1
    of_achievable: float | None  # time at the calibrated rates over the time taken, at most 1
    times_peak: float | None  # the same without the limit
    times_achievable: float | None
    beats: str  # why it is faster than the calibrated rates, "" where it is not
    roof: str
    ideal_ns: int | None  # all calls at datasheet rates, none longer than measured
    roof_ns: int | None  # all calls at achievable rates, none longer than measured
    assumed: bool  # there are no sizes: the roof follows from the class
    doubt: str  # why the numbers of this group must be wrong, "" if they are plausible
    why: str  # reason for the class

    def data(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def kernel_table(
    trace: Trace,
    counted: NDArray[np.bool_] | None = None,
    accelerator: Accelerator | None = None,
    folders: tuple[str, ...] = (),
    names: KernelNames | None = None,
    linked: Linked | None = None,
) -> list[KernelGroup]:
    """Group the counted kernels of a trace, longest first. ``counted`` is a mask over its events, without communication.

    ``names`` are the rules for classes (default: the shipped ones); ``linked`` is the result of `link`, if already computed.
    """
    events = trace.events
    rows = events.kind == KERNEL
    rows = np.flatnonzero(rows if counted is None else rows & counted)
    if not len(rows):
        return []
    linked = linked or link(trace)
    columns = _Columns.of(trace, linked, rows, names or shipped_names())
    roofs = None if accelerator is None else Roofs.of(accelerator, folders)
    return columns.groups(roofs)


@dataclass(frozen=True)
class _Columns:
    """Kernels as columns, with what their names and operators show."""

    trace: Trace
    linked: Linked
    named: dict[int, Named]  # by index into Trace.names
    kinds: tuple[KernelClass, ...]
    name: Column
    time: Column  # [ns]
    pair: Column
    kind: Column  # index into kinds
    share: NDArray[np.float64]  # of its operator's call
    recompute: NDArray[np.bool_]

    @classmethod
    def of(cls, trace: Trace, linked: Linked, rows: Column, names: KernelNames) -> _Columns:
        """Make the columns of the kernels at ``rows``: name, time, operator, class, and share in the operator's call."""
        events = trace.events
        name, time = events.name[rows], events.end[rows] - events.start[rows]
        pair, operator = linked.pair[rows], linked.operator[rows]
        named = {int(i): names.named(trace.names[i]) for i in np.unique(name)}
        by_name = dict(names.classes)
        by_name[UNKNOWN] = KernelClass(UNKNOWN, "", "no pattern matches its name")
        kinds = tuple(by_name.values())
        class_number = {k.name: i for i, k in enumerate(kinds)}
        class_of_name = np.zeros(len(trace.names), np.int64)
        for i, kernel in named.items():
            class_of_name[i] = class_number[kernel.kind.name]
        kind = class_of_name[name]
        does_operator_work = np.zeros((len(linked.costs) + 1, len(kinds)), bool)
        for i, cost in enumerate(linked.costs):
            if cost is not None:
                does_operator_work[i] = [not cost.kind or k.name in WORKS[cost.kind] for k in kinds]
        does_work = does_operator_work[pair, kind]
        share = _share_calls(operator, time, does_work)
        operator_kind = np.array([class_number.get(c.kind, -1) if c is not None and c.kind else -1 for c in linked.costs] + [-1], np.int64)[
            pair
        ]
        unknown = (kind == class_number[UNKNOWN]) & (share > 0) & (operator_kind >= 0)
        return cls(trace, linked, named, kinds, name, time, pair, np.where(unknown, operator_kind, kind), share, linked.recompute[rows])

    def groups(self, roofs: Roofs | None) -> list[KernelGroup]:
        """Make one KernelGroup for each class, name, operator, sizes and recomputation."""
        shorts = {int(i): short_name(self.trace.names[i]) for i in np.unique(self.name)}
        numbers = {s: n for n, s in enumerate(dict.fromkeys(shorts.values()))}
        short = np.zeros(len(self.trace.names), np.int64)
        for i, text in shorts.items():
            short[i] = numbers[text]
        formats = {text: n for n, text in enumerate({kernel.precision for kernel in self.named.values()})}
        for i, kernel in self.named.items():  # equal short names may differ in number format
            short[i] = short[i] * len(formats) + formats[kernel.precision]
        code = short[self.name] * (len(self.linked.costs) + 1) + self.pair + 1
        code = (code * len(self.kinds) + self.kind) * 4 + self.recompute * 2 + (self.share > 0)
        _, first, group, count = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
        order = np.lexsort((self.time, group))
        middle = np.concatenate([[0], np.cumsum(count)[:-1]]) + (count - 1) // 2
        median = self.time[order][middle]
        total = _sum_by_group(group, self.time, len(first))
        calls = np.bincount(group, self.share)
        rows = [
            _Row(self, int(i), int(n), int(t), int(m), float(c)) for i, n, t, m, c in zip(first, count, total, median, calls, strict=True)
        ]
        times = _Timed.of(rows, roofs)
        ideal = np.minimum(_sum_capped(group, self.time, times.ideal), total)
        achievable = np.minimum(_sum_capped(group, self.time, times.achievable), total)
        kernel_groups = [row.group(times, g, ideal[g], achievable[g]) for g, row in enumerate(rows)]
        return sorted(kernel_groups, key=lambda g: (-g.total_ns, g.kernel, g.operator, g.shapes))


def _sum_by_group(group: Column, time: Column, groups: int) -> Column:
    """Nanoseconds of each group, as integers."""
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, group, time)
    return sums


def _share_calls(operator: Column, time: Column, does_work: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The share of each kernel in its operator's call, by time: among kernels that do the work, or among all if none is known to."""
    _, call = np.unique(operator, return_inverse=True)
    length = np.maximum(time, 1)  # a kernel of no length still ran
    working = np.bincount(call, length * does_work)
    all_kernels = np.bincount(call, length)
    some = working[call] > 0
    share = np.where(some, length * does_work / np.maximum(working[call], 1), length / all_kernels[call])
    return np.where(operator >= 0, share, 0.0)


def _sum_capped(group: Column, time: Column, seconds: NDArray[np.float64]) -> Column:
    """Nanoseconds of each group if every kernel took ``seconds`` of its group, but no longer than measured."""
    limit = np.where(np.isfinite(seconds), seconds * 1e9, 9e18)[group]
    return np.rint(np.bincount(group, np.minimum(time, limit))).astype(np.int64)


@dataclass(frozen=True)
class _Row:
    """One group before its rates: one of its kernels, and sums."""

    columns: _Columns
    example: int
    count: int
    total: int
    median: int
    calls: float  # of its operator: shares summed

    @property
    def kind(self) -> KernelClass:
        return self.columns.kinds[int(self.columns.kind[self.example])]

    @property
    def cost(self) -> Cost | None:
        """The cost of a call of its operator, None if this kernel has no share in it."""
        pair = int(self.columns.pair[self.example])
        return self.columns.linked.costs[pair] if pair >= 0 and self.calls > 0 else None

    @property
    def precision(self) -> tuple[str, str]:
        """The number format and its source: the kernel name, else the types of the operator."""
        by_name = self.columns.named[int(self.columns.name[self.example])].precision
        if by_name:
            return by_name, "kernel name"
        of_operator = self.cost.precision if self.cost is not None else ""
        return of_operator, "operator" if of_operator else ""

    def group(self, times: _Timed, g: int, ideal: int, achievable: int) -> KernelGroup:
        """Make the group with its rates and roof."""
        columns, cost, pair = self.columns, self.cost, int(self.columns.pair[self.example])
        flop, moved = times.flop[g], times.moved[g]
        counts = cost is not None and self.kind.name in COMPUTE_CLASSES
        recompute = bool(columns.recompute[self.example])
        has_roof = bool(np.isfinite(times.achievable[g])) and self.total > 0
        seconds = self.total * 1e-9
        ideal_share, achievable_share = (
            (float(of[g]) * self.count / seconds if seconds else np.nan) for of in (times.ideal, times.achievable)
        )
        roof, assumed = self._roof(times, g, has_roof)
        classified = columns.named[int(columns.name[self.example])]
        precision, source = self.precision
        return KernelGroup(
            kind=self.kind.name,
            kernel=short_name(columns.trace.names[columns.name[self.example]]),
            operator=columns.trace.names[columns.linked.names[pair]] if pair >= 0 else "",
            shapes=_format_sizes(columns.trace, int(columns.linked.shapes[pair])) if pair >= 0 else "",
            recompute=recompute,
            count=self.count,
            total_ns=self.total,
            median_ns=self.median,
            precision=precision,
            precision_by=source,
            flop=_number(flop * self.count),
            model_flop=_number(0.0 if recompute else cost.model_flop * self.calls) if counts and cost is not None else None,
            traffic=_number(moved * self.count),
            intensity=_number(flop / moved) if moved > 0 else None,
            flop_per_second=_number(flop * self.count / seconds) if seconds else None,
            bytes_per_second=_number(moved * self.count / seconds) if seconds else None,
            peak=_number(times.peak[g]),
            of_peak=_number(min(ideal_share, 1.0)) if has_roof else None,
            of_achievable=_number(min(achievable_share, 1.0)) if has_roof else None,
            times_peak=_number(ideal_share) if has_roof else None,
            times_achievable=_number(achievable_share) if has_roof else None,
            beats=times.beats(g, seconds / self.count) if has_roof else "",
            roof=roof,
            ideal_ns=int(ideal) if has_roof else None,
            roof_ns=int(achievable) if has_roof else None,
            assumed=assumed,
            doubt=times.doubt(g, seconds / self.count) if has_roof else "",
            why=classified.why if self.kind.name == classified.kind.name else "the class follows from its operator",
        )

    def _roof(self, times: _Timed, g: int, has_roof: bool) -> tuple[str, bool]:
        """The roof that limits the group, and whether it is assumed from the class."""
        if not has_roof:
            if self.median < SHORT:
                return LAUNCH, True
            return {COMPUTE: COMPUTE, "memory": HBM}.get(self.kind.roof, ""), True
        _, roof = max((times.compute[g], COMPUTE), (times.hbm[g], HBM), (times.launch[g], LAUNCH))
        return (roof if times.achievable[g] >= NEAR * self.total * 1e-9 / self.count else NO_ROOF), False


@dataclass(frozen=True)
class _Timed:
    """For one kernel of each group: FLOPs, bytes, and seconds under each roof; nan if unknown."""

    flop: NDArray[np.float64]
    moved: NDArray[np.float64]
    ideal: NDArray[np.float64]
    achievable: NDArray[np.float64]
    compute: NDArray[np.float64]
    hbm: NDArray[np.float64]
    launch: NDArray[np.float64]
    peak: NDArray[np.float64]
    bandwidth: float

    @classmethod
    def of(cls, rows: list[_Row], roofs: Roofs | None) -> _Timed:
        """Count FLOPs, bytes and seconds under each roof of the kernel of each group."""
        columns = {name: np.full(len(rows), np.nan) for name in ("flop", "moved", *_TIMES)}
        alike: dict[tuple[str, str, bool], list[int]] = {}
        for g, row in enumerate(rows):
            cost = row.cost
            if cost is None:
                continue
            columns["flop"][g] = cost.flop * row.calls / row.count
            if cost.traffic is not None:
                columns["moved"][g] = cost.traffic * row.calls / row.count
            kind = cost.kind if row.kind.name in COMPUTE_CLASSES and cost.kind else ""
            alike.setdefault((kind, row.precision[0] if kind else "", cost.backward), []).append(g)
        if roofs is not None:
            for (kind, precision, backward), members in alike.items():
                at = np.array(members)
                times = _times(roofs, kind, precision, backward, [rows[g] for g in members], columns["flop"][at], columns["moved"][at])
                for name in _TIMES:
                    columns[name][at] = getattr(times, name)
        return cls(**columns, bandwidth=roofs.bandwidth if roofs is not None else float("nan"))

    def doubt(self, g: int, seconds: float) -> str:
        """Why the numbers of a group must be wrong: it computes or moves more than the device can."""
        if self.flop[g] > TOO_FAST * self.peak[g] * seconds:
            return "more FLOP/s than the dense peak: the precision or the sizes are wrong"
        if self.moved[g] > TOO_FAST * self.bandwidth * seconds:
            return "more bytes per second than HBM: a cache served them, or the sizes are wrong"
        return ""

    def beats(self, g: int, seconds: float) -> str:
        """Why a group takes less time than at the calibrated rates, by the roof that would take longest; "" where it takes more."""
        if not self.achievable[g] > seconds:
            return ""
        if self.moved[g] > self.bandwidth * seconds:
            return FROM_CACHE
        longest = max((self.hbm[g], MOVES_FASTER), (self.compute[g], COMPUTES_FASTER), (self.launch[g], STARTS_FASTER))
        return longest[1]


def _times(
    roofs: Roofs, kind: str, precision: str, backward: bool, rows: list[_Row], flop: NDArray[np.float64], moved: NDArray[np.float64]
) -> Times:
    """Times of kernels under the roofs, by the kind of work that they do."""
    if not kind:
        return roofs.memory(moved)
    if kind != "attention":
        return roofs.matrix(flop, moved, precision)
    costs = [row.cost for row in rows]
    keys = np.array([c.keys if c is not None else np.nan for c in costs])
    queries = np.array([c.rows if c is not None else np.nan for c in costs])
    return roofs.attention(flop, moved, precision, keys, queries, backward)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _format_sizes(trace: Trace, shape: int) -> str:
    """The sizes of the tensors as one short text."""
    if shape < 0:
        return ""
    dims = trace.shapes[shape].dims
    text = " ".join("x".join(map(str, d)) for d in dims if isinstance(d, list) and d and not isinstance(d[0], list))
    return text[:120]
