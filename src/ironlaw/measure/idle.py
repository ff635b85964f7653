"""Why the device had nothing to do: each gap charged to the host, to the wait of a stream, or to nobody known.

Before the event that ends a gap stands the call that launched it. What of the gap lies before that call is the host's, and what the host's
thread did then says why: it loaded data, waited for the device, asked for memory, or worked its way to the launch. What lies after the call
is the time a launch takes to arrive where it is short, and the wait of a stream for something else where it is long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from ironlaw.measure.events import Column, DeviceEvents, Spans, Trace
from ironlaw.measure.intervals import NOTHING, Instants, gaps, union
from ironlaw.measure.read.toml import shipped

LATENCY = 10_000  # [ns] a launch arrives within it when nothing else holds the stream (3 to 8 us on the traces at hand)
BETWEEN_CALLS = 1_000_000  # [ns] Python between two calls of the framework is shorter; longer is something the profile does not show
MOST_THREADS = 64  # that launch, those that launch most; a process has a few, and what others did is not looked for

# what idle time is charged with, and the keys of ``data/host_calls.toml`` for the first three
LOADING, WAITING, ALLOCATING, LAUNCHING = "data loading", "synchronisation", "allocator", "host launch"
ARRIVING, STREAM, UNKNOWN = "launch latency", "stream wait", "unknown"
REASONS = (LOADING, WAITING, ALLOCATING, LAUNCHING, ARRIVING, STREAM, UNKNOWN)
BY_CALLS = (LOADING, WAITING, ALLOCATING, LAUNCHING)  # told by what the host's thread was in
HOST = (LAUNCHING, ARRIVING, WAITING, ALLOCATING)  # what the roof of dispatch is charged with; the loader is a roof of its own


@cache
def host_calls() -> dict[str, tuple[str, ...]]:
    """The names of the calls that load data, wait for the device or ask for memory, from ``data/host_calls.toml``."""
    return {reason.replace("_", " "): tuple(block["names"]) for reason, block in shipped("host_calls.toml").items()}


@dataclass(frozen=True)
class Idle:
    """Nanoseconds of idle time by reason; they sum to the idle time of the window."""

    by_reason: dict[str, int]
    starved: Instants  # when the device waited for data
    host: Instants  # when it waited for the host, for whatever reason
    when: dict[str, Instants] = field(default_factory=dict)  # of the host's reasons: the idle time charged to each

    @property
    def total(self) -> int:
        """All idle time of the window."""
        return sum(self.by_reason.values())

    @property
    def unattributed(self) -> int:
        """Idle time nobody is charged with."""
        return self.by_reason[UNKNOWN]


def explain_idle(trace: Trace, events: DeviceEvents) -> Idle:
    """The idle time of the window that ``events`` span, by reason."""
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
    """What the launching thread did in these instants; where it did nothing, what the thread that runs the steps did.

    ``known`` keeps the calls of each thread for the next launching thread.
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
    """The indices of the trace's names that are one of ``names``, whatever follows a ``#``."""
    return np.array([i for i, n in enumerate(trace.names) if n in names or n.split("#", 1)[0] in names], np.int64)


def find_loading(trace: Trace) -> Instants:
    """When any thread fetched a batch."""
    rows = find_names(trace, host_calls()[LOADING])
    return _spent(trace.marks, rows) | _spent(trace.operators, rows)


def _spent(spans: Spans, names: Column, thread: int | None = None) -> Instants:
    rows = np.isin(spans.name, names)
    if thread is not None:
        rows &= spans.thread == thread
    return union(spans.start[rows], spans.end[rows])


def _bridged(spans: list[Spans]) -> Instants:
    """When the thread was in a call, or between two calls so close that Python was on its way from one to the next."""
    start = np.concatenate([s.start for s in spans])
    end = np.concatenate([s.end for s in spans])
    covered = union(start, end)
    if not len(covered.start):
        return NOTHING
    close = gaps(covered)
    near = close.end - close.start <= BETWEEN_CALLS
    return covered | Instants(close.start[near], close.end[near])
