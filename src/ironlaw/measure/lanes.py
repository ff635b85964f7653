"""What a drawing of a trace needs: a partition of its window, events merged to the pixel in lanes, idle gaps with their causes.

Kinds are those of a predicted step: compute, hbm, network, dispatch, data; and copy, and idle for a wait that nothing explains.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.measure.events import Column, DeviceEvents
from ironlaw.measure.gains import kernel_roof
from ironlaw.measure.idle import ARRIVING, BY_CALLS, HOST, LATENCY, LOADING, STREAM, UNKNOWN, Idle, calls_of
from ironlaw.measure.intervals import NOTHING, Instants, gaps, union
from ironlaw.measure.kernels.names import short_name
from ironlaw.measure.window import COMMUNICATION, COMPUTE

if TYPE_CHECKING:
    from ironlaw.measure.profile import Profile

KINDS = ("compute", "hbm", "network", "copy", "data", "dispatch", "idle")
PIXELS = 1200  # of a window: what is nearer than one is drawn as one
MOST_LANES = 24  # streams that are drawn, those with most work
MOST_HOSTS = 3  # threads of the host that are drawn, those with most launches
MOST_GAPS = 100  # idle gaps that are listed, the longest
CLASSES_US = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)  # bounds of length classes of gaps


def picture_data(profile: Profile) -> dict[str, Any]:
    """``partition``, ``lanes`` and ``gaps`` of a trace as plain data; times in microseconds from the start of the window."""
    drawn, more = _lanes(profile)
    listed, classes = _gaps(profile)
    return {
        "partition": partition(profile), "lanes": drawn, "lanes_left_out": more, "host_lanes": _host_lanes(profile), "gaps": listed,
        "gap_classes": classes,
    }  # fmt: skip


def partition(profile: Profile) -> list[dict[str, Any]]:
    """The window cut into parts that sum to it: kernels by their roof, exposed communication and copies, idle time by its cause.

    Kernels that run beside each other share the time in proportion to their own.
    """
    by_roof: dict[str, int] = defaultdict(int)
    for kernel in profile.kernels:
        by_roof[kernel_roof(kernel)] += kernel.total_ns
    window, whole = profile.window, sum(by_roof.values())
    of_compute = round(window.compute * by_roof["compute"] / whole) if whole else window.compute
    parts = [
        ("compute", "kernels bound by compute", of_compute),
        ("hbm", "kernels bound by HBM", window.compute - of_compute),
        ("network", "exposed communication", window.exposed_comm),
        ("copy", "exposed copies", window.exposed_copy),
        *((idle_kind(reason), reason, ns) for reason, ns in profile.idle.by_reason.items()),
    ]
    return [{"kind": kind, "what": what, "waits": at >= 4, "us": ns / 1000} for at, (kind, what, ns) in enumerate(parts)]


def idle_kind(reason: str) -> str:
    """The kind of an idle gap: what the device waits for.

    >>> idle_kind("data loading"), idle_kind("launch latency"), idle_kind("stream wait")
    ('data', 'dispatch', 'idle')
    """
    return "data" if reason == LOADING else "dispatch" if reason in HOST else "idle"


def _event_kinds(profile: Profile) -> Column:
    """The kind of every counted event as an index into KINDS; a kernel is of the roof that most of the time of its name is bound by."""
    spent: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for kernel in profile.kernels:
        spent[kernel.kernel][kernel_roof(kernel)] += kernel.total_ns
    roof = {name: max(times, key=lambda one: times[one]) for name, times in spent.items()}
    names, which = np.unique(profile.events.name, return_inverse=True)
    of_name = np.array([KINDS.index(roof.get(short_name(profile.trace.text(int(name))), "hbm")) for name in names], np.int64)
    classes = profile.event_classes
    other = np.where(classes == COMMUNICATION, KINDS.index("network"), KINDS.index("copy"))
    return np.where(classes == COMPUTE, of_name[which], other)


def _lanes(profile: Profile) -> tuple[list[dict[str, Any]], int]:
    """Streams with most work, each as intervals of one kind; intervals of a kind that are nearer than a pixel are one."""
    events, kinds = profile.events, _event_kinds(profile)
    start, pixel = profile.window.start, max(profile.window.wall // PIXELS, 1)
    keys, lane = np.unique(np.stack([events.device, events.stream], axis=1), axis=0, return_inverse=True)
    lane = np.ravel(lane)
    work = np.bincount(lane, weights=(events.end - events.start).astype(np.float64), minlength=len(keys))
    shown = np.argsort(-work, kind="stable")[:MOST_LANES]
    drawn = []
    for at in sorted(shown.tolist()):
        own = lane == at
        intervals = [merged(events.start[mine], events.end[mine], pixel) for mine in (own & (kinds == kind) for kind in range(len(KINDS)))]
        rows = sorted(
            (int(a - start), int(b - start), kind)
            for kind, found in enumerate(intervals)
            for a, b in zip(found.start, found.end, strict=True)
        )
        drawn.append({
            "device": int(keys[at][0]),
            "stream": int(keys[at][1]),
            "events": int(own.sum()),
            "busy_us": float(work[at]) / 1000,
            "start_us": [a / 1000 for a, _, _ in rows],
            "end_us": [b / 1000 for _, b, _ in rows],
            "kind": [KINDS[kind] for _, _, kind in rows],
        })  # fmt: skip
    return drawn, len(keys) - len(drawn)


def _host_lanes(profile: Profile) -> list[dict[str, Any]]:
    """What the threads that launch most did, the first of: loading data, waiting for the device, asking for memory, launching."""
    trace, window = profile.trace, profile.window
    inside = (trace.launches.end > window.start) & (trace.launches.start < window.end)
    threads, launches = np.unique(trace.launches.thread[inside], return_counts=True)
    whole, pixel = Instants(np.array([window.start]), np.array([window.end])), max(window.wall // PIXELS, 1)
    drawn = []
    for at in np.argsort(-launches, kind="stable")[:MOST_HOSTS].tolist():
        calls, done, rows = calls_of(trace, int(threads[at])), NOTHING, []
        for reason in BY_CALLS:
            own = (calls[reason] & whole) - done
            done = done | own
            shown = merged(own.start, own.end, pixel)
            rows += [(int(a - window.start), int(b - window.start), reason) for a, b in zip(shown.start, shown.end, strict=True)]
        rows.sort()
        drawn.append({
            "thread": int(threads[at]),
            "launches": int(launches[at]),
            "busy_us": done.length / 1000,
            "start_us": [a / 1000 for a, _, _ in rows],
            "end_us": [b / 1000 for _, b, _ in rows],
            "what": [reason for _, _, reason in rows],
        })  # fmt: skip
    return drawn


def merged(start: Column, end: Column, pixel: int) -> Instants:
    """Intervals as they are drawn: none shorter than a pixel, and those nearer than one joined.

    >>> found = merged(np.array([0, 12, 100]), np.array([10, 20, 101]), 5)
    >>> found.start.tolist(), found.end.tolist()
    ([0, 100], [20, 101])
    """
    if not len(start):
        return Instants(start, end)
    joined = union(start, end + pixel)
    last = np.searchsorted(np.sort(end), joined.end - pixel, "right") - 1
    return Instants(joined.start, np.sort(end)[np.maximum(last, 0)])


def _gaps(profile: Profile) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The longest idle gaps, each with cause, step and neighbours; and how many there are of each length and cause."""
    events = profile.events
    found = gaps(union(events.start, events.end), (profile.window.start, profile.window.end))
    length = found.end - found.start
    if not len(length):
        return [], []
    reasons, which = _causes(profile.idle, events, found)
    before, after = _neighbours(events, found)
    steps = [(step.number, step.device.start, step.device.end) for step in profile.steps if step.device is not None]
    listed = []
    for at in np.sort(np.argsort(-length, kind="stable")[:MOST_GAPS]).tolist():
        inside = next((number for number, since, until in steps if since <= found.start[at] < until), None)
        listed.append({
            "start_us": int(found.start[at] - profile.window.start) / 1000,
            "us": int(length[at]) / 1000,
            "kind": idle_kind(reasons[which[at]]),
            "cause": reasons[which[at]],
            "step": inside,
            "before": _kernel_at(profile, int(before[at])),
            "after": _kernel_at(profile, int(after[at])),
        })  # fmt: skip
    return listed, _classes(length, which, reasons)


def _kernel_at(profile: Profile, row: int) -> str | None:
    """The short name of an event; None where there is none."""
    return None if row < 0 else short_name(profile.trace.text(int(profile.events.name[row])))


def _causes(idle: Idle, events: DeviceEvents, found: Instants) -> tuple[list[str], Column]:
    """The cause of each gap: the reason that most of it is charged to, as an index into a list of reasons."""
    reasons = [*idle.when, ARRIVING, STREAM, UNKNOWN]
    charged = [_overlap(found, when) for when in idle.when.values()]
    rest = (found.end - found.start) - sum(charged, np.zeros(len(found.start), np.int64))
    at = np.minimum(np.searchsorted(events.start, found.end, "left"), len(events) - 1)
    linked = events.launch[at] >= 0
    short = rest <= LATENCY
    charged += [np.where(linked & short, rest, 0), np.where(linked & ~short, rest, 0), np.where(linked, 0, rest)]
    return reasons, np.argmax(np.stack(charged), axis=0)


def _overlap(found: Instants, when: Instants) -> Column:
    """Nanoseconds of each gap that are in some intervals."""

    def until(times: Column) -> Column:
        """Nanoseconds of the intervals before each time."""
        if not len(when.start):
            return np.zeros(len(times), np.int64)
        ends = np.concatenate([[0], np.cumsum(when.end - when.start)])
        at = np.searchsorted(when.start, times, "right")
        late = np.where(at > 0, np.maximum(when.end[np.maximum(at, 1) - 1] - times, 0), 0)
        return np.asarray(ends[at] - late)

    return until(found.end) - until(found.start)


def _neighbours(events: DeviceEvents, found: Instants) -> tuple[Column, Column]:
    """The event that ended last before each gap and the one that starts at its end; -1 where there is none."""
    latest = np.maximum.accumulate(events.end)
    row = np.maximum.accumulate(np.where(events.end == latest, np.arange(len(events)), 0))
    began = np.searchsorted(events.start, found.start, "right") - 1
    after = np.searchsorted(events.start, found.end, "left")
    return np.where(began >= 0, row[np.maximum(began, 0)], -1), np.where(after < len(events), after, -1)


def _classes(length: Column, which: Column, reasons: list[str]) -> list[dict[str, Any]]:
    """How many gaps there are of each length and cause, and how long they are together; ``to_us`` is None for the longest."""
    bounds = np.array(CLASSES_US) * 1000
    rows = []
    size = np.searchsorted(bounds, length, "right")
    for at, cause in sorted(set(zip(size.tolist(), which.tolist(), strict=True))):
        own = (size == at) & (which == cause)
        rows.append({
            "from_us": CLASSES_US[at - 1] if at else 0.0,
            "to_us": CLASSES_US[at] if at < len(CLASSES_US) else None,
            "kind": idle_kind(reasons[cause]),
            "cause": reasons[cause],
            "count": int(own.sum()),
            "us": int(length[own].sum()) / 1000,
        })  # fmt: skip
    return rows
