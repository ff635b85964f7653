"""Explain why the device was idle: waiting for the host, launch latency, waiting for a stream, or unknown.

Every gap ends with a device event, which a host call launched. The part of the gap before that call is charged to the host, by what its
thread was doing: loading data, waiting for the device, asking for memory, or working towards the launch. The part after the call is launch
latency if it is short, and a wait of the stream if it is long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from ironlaw.measure.events import Column, DeviceEvents, Spans, Trace
from ironlaw.measure.intervals import NOTHING, Instants, gaps, union
from ironlaw.measure.read.toml import shipped

LATENCY = 10_000  # [ns] a launch arrives sooner when the stream is free (3 to 8 us in the traces of the tests)
BETWEEN_CALLS = 1_000_000  # [ns] Python takes less between two calls of the framework; a longer gap is something the trace does not show
MOST_THREADS = 64  # that launch, those with most launches; a process has a few, and the others are left unexplained

# reasons for idle time, and the keys of ``data/host_calls.toml`` for the first three
LOADING, WAITING, ALLOCATING, LAUNCHING = "data loading", "synchronisation", "allocator", "host launch"
ARRIVING, STREAM, UNKNOWN = "launch latency", "stream wait", "unknown"
REASONS = (LOADING, WAITING, ALLOCATING, LAUNCHING, ARRIVING, STREAM, UNKNOWN)
BY_CALLS = (LOADING, WAITING, ALLOCATING, LAUNCHING)  # reasons known from the call the host's thread was in
HOST = (LAUNCHING, ARRIVING, WAITING, ALLOCATING)  # reasons charged to the dispatch roof; data loading is a separate roof


@cache
def host_calls() -> dict[str, tuple[str, ...]]:
    """The names of the calls that load data, wait for the device or ask for memory, from ``data/host_calls.toml``."""
    return {reason.replace("_", " "): tuple(block["names"]) for reason, block in shipped("host_calls.toml").items()}


@dataclass(frozen=True)
class Idle:
    """Idle time by reason in nanoseconds; the reasons sum to the idle time of the window."""

    by_reason: dict[str, int]
    starved: Instants  # when the device waited for data
    host: Instants  # when it waited for the host for any reason
    when: dict[str, Instants] = field(default_factory=dict)  # the idle time charged to each of the host's reasons

    @property
    def total(self) -> int:
        """All idle time of the window."""
        return sum(self.by_reason.values())

    @property
    def unattributed(self) -> int:
        """Idle time without a known reason."""
        return self.by_reason[UNKNOWN]


def explain_idle(trace: Trace, events: DeviceEvents) -> Idle:
    """Split the idle time of the window of ``events`` by reason."""
    busy = union(events.start, events.end)
    # events without length may begin or end the window
    idle_gaps = gaps(busy, (int(events.start.min()), int(events.end.max()))) if len(events) else NOTHING
    by_reason = dict.fromkeys(REASONS, 0)
    if not len(idle_gaps.start):
        return Idle(by_reason, NOTHING, NOTHING)
    ending = np.searchsorted(events.start, idle_gaps.end, "left")  # the event each gap ends with
    launch = events.launch[ending]
    linked = launch >= 0
    if not len(trace.launches):
        by_reason[UNKNOWN] = idle_gaps.length
        return Idle(by_reason, NOTHING, NOTHING)
    launched = np.where(linked, trace.launches.start[np.maximum(launch, 0)], idle_gaps.start)
    host_end = np.clip(launched, idle_gaps.start, idle_gaps.end)
    after_launch = idle_gaps.end - host_end
    by_reason[UNKNOWN] += int(after_launch[~linked].sum())
    by_reason[ARRIVING] += int(after_launch[linked & (after_launch <= LATENCY)].sum())
    by_reason[STREAM] += int(after_launch[linked & (after_launch > LATENCY)].sum())
    host = Instants(idle_gaps.start[linked & (host_end > idle_gaps.start)], host_end[linked & (host_end > idle_gaps.start)])
    threads = trace.launches.thread[np.maximum(launch, 0)][linked & (host_end > idle_gaps.start)]
    launching, count = np.unique(threads, return_counts=True)
    launching = launching[np.argsort(-count, kind="stable")]
    by_reason[UNKNOWN] += int((host.end - host.start)[np.isin(threads, launching[MOST_THREADS:])].sum())
    calls_by_thread: dict[int, dict[str, Instants]] = {}
    when: dict[str, Instants] = {}
    for thread in launching[:MOST_THREADS].tolist():
        of_thread = threads == thread
        explained = _explain_thread(trace, Instants(host.start[of_thread], host.end[of_thread]), thread, calls_by_thread)
        for reason, idle in explained.items():
            by_reason[reason] += idle.length
            when[reason] = when.get(reason, NOTHING) | idle
    return Idle(by_reason, when.get(LOADING, NOTHING), host, when)


def _explain_thread(trace: Trace, when: Instants, thread: int, calls_by_thread: dict[int, dict[str, Instants]]) -> dict[str, Instants]:
    """Split the instants ``when`` by the calls of the launching thread; where it had none, by calls of the threads that mark steps.

    ``calls_by_thread`` is a cache.
    """
    by_reason = dict.fromkeys(BY_CALLS, NOTHING)
    others = [t for t in dict.fromkeys(trace.marks.thread.tolist()) if t != thread][:4]
    for candidate in (thread, *others):
        if candidate not in calls_by_thread:
            calls_by_thread[candidate] = _calls(trace, candidate)
        for reason, did in calls_by_thread[candidate].items():
            explained = when & did
            by_reason[reason] = by_reason[reason] | explained
            when = when - explained
    return by_reason | {UNKNOWN: when}


def _calls(trace: Trace, thread: int) -> dict[str, Instants]:
    """When a thread loaded data, waited for the device, allocated memory, or launched."""
    loads, waits, allocates = (find_names(trace, host_calls()[reason]) for reason in (LOADING, WAITING, ALLOCATING))
    return {
        LOADING: _find_instants(trace.marks, loads, thread) | _find_instants(trace.operators, loads, thread),
        WAITING: _find_instants(trace.launches, waits, thread) | _find_instants(trace.operators, waits, thread),
        ALLOCATING: _find_instants(trace.launches, allocates, thread),
        LAUNCHING: _bridge_gaps([s.rows(s.thread == thread) for s in (trace.launches, trace.operators)]),
    }


def find_names(trace: Trace, names: tuple[str, ...]) -> Column:
    """Indices of the trace's names that are in ``names``; text after a ``#`` is ignored."""
    return np.array([i for i, n in enumerate(trace.names) if n in names or n.split("#", 1)[0] in names], np.int64)


def find_loading(trace: Trace) -> Instants:
    """When any thread was fetching a batch."""
    rows = find_names(trace, host_calls()[LOADING])
    return _find_instants(trace.marks, rows) | _find_instants(trace.operators, rows)


def _find_instants(spans: Spans, names: Column, thread: int | None = None) -> Instants:
    """When spans with these names ran, on one thread or on any."""
    rows = np.isin(spans.name, names)
    if thread is not None:
        rows &= spans.thread == thread
    return union(spans.start[rows], spans.end[rows])


def _bridge_gaps(spans: list[Spans]) -> Instants:
    """When the thread was in a call, or in the short gap between two calls that Python takes."""
    start = np.concatenate([s.start for s in spans])
    end = np.concatenate([s.end for s in spans])
    covered = union(start, end)
    if not len(covered.start):
        return NOTHING
    close = gaps(covered)
    near = close.end - close.start <= BETWEEN_CALLS
    return covered | Instants(close.start[near], close.end[near])
