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
    between = gaps(busy, (int(events.start.min()), int(events.end.max()))) if len(events) else NOTHING
    found = dict.fromkeys(REASONS, 0)
    if not len(between.start):
        return Idle(found, NOTHING, NOTHING)
    ending = np.searchsorted(events.start, between.end, "left")  # the event each gap ends with
    launch = events.launch[ending]
    linked = launch >= 0
    if not len(trace.launches):
        found[UNKNOWN] = between.length
        return Idle(found, NOTHING, NOTHING)
    called = np.where(linked, trace.launches.start[np.maximum(launch, 0)], between.start)
    mine = np.clip(called, between.start, between.end)
    rest = between.end - mine
    found[UNKNOWN] += int(rest[~linked].sum())
    found[ARRIVING] += int(rest[linked & (rest <= LATENCY)].sum())
    found[STREAM] += int(rest[linked & (rest > LATENCY)].sum())
    host = Instants(between.start[linked & (mine > between.start)], mine[linked & (mine > between.start)])
    threads = trace.launches.thread[np.maximum(launch, 0)][linked & (mine > between.start)]
    launching, count = np.unique(threads, return_counts=True)
    launching = launching[np.argsort(-count, kind="stable")]
    found[UNKNOWN] += int((host.end - host.start)[np.isin(threads, launching[MOST_THREADS:])].sum())
    known: dict[int, dict[str, Instants]] = {}
    when: dict[str, Instants] = {}
    for thread in launching[:MOST_THREADS].tolist():
        one = threads == thread
        did = _what_it_did(trace, Instants(host.start[one], host.end[one]), thread, known)
        for reason, idle in did.items():
            found[reason] += idle.length
            when[reason] = when.get(reason, NOTHING) | idle
    return Idle(found, when.get(LOADING, NOTHING), host, when)


def _what_it_did(trace: Trace, when: Instants, thread: int, known: dict[int, dict[str, Instants]]) -> dict[str, Instants]:
    """What the launching thread did in these instants; where it did nothing, what the threads that mark steps did.

    ``known`` is a cache of the calls of each thread.
    """
    found = dict.fromkeys(BY_CALLS, NOTHING)
    others = [t for t in dict.fromkeys(trace.marks.thread.tolist()) if t != thread][:4]
    for one in (thread, *others):
        if one not in known:
            known[one] = _calls(trace, one)
        for reason, did in known[one].items():
            now = when & did
            found[reason] = found[reason] | now
            when = when - now
    return found | {UNKNOWN: when}


def _calls(trace: Trace, thread: int) -> dict[str, Instants]:
    loads, waits, allocates = (find_names(trace, host_calls()[reason]) for reason in (LOADING, WAITING, ALLOCATING))
    return {
        LOADING: _spent(trace.marks, loads, thread) | _spent(trace.operators, loads, thread),
        WAITING: _spent(trace.launches, waits, thread) | _spent(trace.operators, waits, thread),
        ALLOCATING: _spent(trace.launches, allocates, thread),
        LAUNCHING: _bridged([s.rows(s.thread == thread) for s in (trace.launches, trace.operators)]),
    }


def find_names(trace: Trace, names: tuple[str, ...]) -> Column:
    """Indices of the trace's names that are in ``names``; text after a ``#`` is ignored."""
    return np.array([i for i, n in enumerate(trace.names) if n in names or n.split("#", 1)[0] in names], np.int64)


def find_loading(trace: Trace) -> Instants:
    """When any thread was fetching a batch."""
    rows = find_names(trace, host_calls()[LOADING])
    return _spent(trace.marks, rows) | _spent(trace.operators, rows)


def _spent(spans: Spans, names: Column, thread: int | None = None) -> Instants:
    rows = np.isin(spans.name, names)
    if thread is not None:
        rows &= spans.thread == thread
    return union(spans.start[rows], spans.end[rows])


def _bridged(spans: list[Spans]) -> Instants:
    """When the thread was in a call, or in the short gap between two calls that Python takes."""
    start = np.concatenate([s.start for s in spans])
    end = np.concatenate([s.end for s in spans])
    covered = union(start, end)
    if not len(covered.start):
        return NOTHING
    close = gaps(covered)
    near = close.end - close.start <= BETWEEN_CALLS
    return covered | Instants(close.start[near], close.end[near])
