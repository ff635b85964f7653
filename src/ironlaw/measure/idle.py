"""Explain why the device was idle: waiting for the host, launch latency, waiting for a stream, or unknown.

Every gap ends with a device event, which a host call launched. The part of the gap before that call is charged to the host, by what its
thread was doing: loading data, waiting for the device, asking for memory, or working towards the launch. The part after the call began is
launch latency if it is short. If it is long, the part until the call returned is charged to the call: a first launch loads or compiles the
kernel, and a full queue holds the call back. The rest is a wait of the stream.
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
MOST_GAPS = 5  # waits for a stream that are listed
MOST_THREADS = 64  # that launch, those with most launches; a process has a few, and the others are left unexplained

# reasons for idle time, and the keys of ``data/host_calls.toml`` for the first three
LOADING, WAITING, ALLOCATING, LAUNCHING = "data loading", "synchronisation", "allocator", "host launch"
CALLING, ARRIVING, STREAM, UNKNOWN = "launch call", "launch latency", "stream wait", "unknown"
REASONS = (LOADING, WAITING, ALLOCATING, LAUNCHING, CALLING, ARRIVING, STREAM, UNKNOWN)
BY_CALLS = (LOADING, WAITING, ALLOCATING, LAUNCHING)  # reasons known from the call the host's thread was in
HOST = (LAUNCHING, CALLING, ARRIVING, WAITING, ALLOCATING)  # reasons charged to the dispatch roof; data loading is a separate roof


@cache
def host_calls() -> dict[str, tuple[str, ...]]:
    """The names of the calls that load data, wait for the device or ask for memory, from ``data/host_calls.toml``."""
    return {reason.replace("_", " "): tuple(block["names"]) for reason, block in shipped("host_calls.toml").items()}


@dataclass(frozen=True)
class Gap:
    """One wait for a stream: from ``start`` for ``wait`` nanoseconds, between two rows of the events; ``before`` is -1 at the begin."""

    start: int
    wait: int
    before: int
    after: int


@dataclass(frozen=True)
class Idle:
    """Idle time by reason in nanoseconds; the reasons sum to the idle time of the window."""

    by_reason: dict[str, int]
    starved: Instants  # when the device waited for data
    host: Instants  # when it waited for the host for any reason
    when: dict[str, Instants] = field(default_factory=dict)  # the idle time charged to each of the host's reasons
    waits: tuple[Gap, ...] = ()  # the longest waits for a stream, the longest first

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
    idle_gaps = _split_at(idle_gaps, events.start[events.end == events.start])
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
    late = linked & (after_launch > LATENCY)
    by_reason[ARRIVING] += int(after_launch[linked & ~late].sum())
    returned = np.clip(np.where(linked, trace.launches.end[np.maximum(launch, 0)], host_end), host_end, idle_gaps.end)
    after_call = idle_gaps.end - returned
    by_reason[CALLING] += int((returned - host_end)[late].sum())
    by_reason[ARRIVING] += int(after_call[late & (after_call <= LATENCY)].sum())
    by_reason[STREAM] += int(after_call[late & (after_call > LATENCY)].sum())
    waits = _longest_waits(events, np.where(late & (after_call > LATENCY), after_call, 0), returned, ending)
    host = Instants(idle_gaps.start[linked & (host_end > idle_gaps.start)], host_end[linked & (host_end > idle_gaps.start)])
    threads = trace.launches.thread[np.maximum(launch, 0)][linked & (host_end > idle_gaps.start)]
    launching, count = np.unique(threads, return_counts=True)
    launching = launching[np.argsort(-count, kind="stable")]
    by_reason[UNKNOWN] += int((host.end - host.start)[np.isin(threads, launching[MOST_THREADS:])].sum())
    calls_by_thread: dict[int, dict[str, Instants]] = {}
    in_call = late & (returned > host_end)
    when: dict[str, Instants] = {CALLING: Instants(host_end[in_call], returned[in_call])}
    for thread in launching[:MOST_THREADS].tolist():
        of_thread = threads == thread
        explained = _explain_thread(trace, Instants(host.start[of_thread], host.end[of_thread]), thread, calls_by_thread)
        for reason, idle in explained.items():
            by_reason[reason] += idle.length
            when[reason] = when.get(reason, NOTHING) | idle
    return Idle(by_reason, when.get(LOADING, NOTHING), host | when[CALLING], when, waits)


def _longest_waits(events: DeviceEvents, wait: Column, since: Column, ending: Column) -> tuple[Gap, ...]:
    """The MOST_GAPS longest waits; before each, the event that ended last."""
    chosen = np.argsort(-wait, kind="stable")[:MOST_GAPS]
    chosen = chosen[wait[chosen] > 0]
    gaps_found = []
    for at in chosen.tolist():
        after = int(ending[at])
        before = int(np.argmax(events.end[:after])) if after else -1
        gaps_found.append(Gap(int(since[at]), int(wait[at]), before, after))
    return tuple(gaps_found)


def _split_at(idle_gaps: Instants, times: Column) -> Instants:
    """The gaps, cut at the ``times`` inside them: an event that took no time on the clock of the file still ends a gap."""
    if not len(times) or not len(idle_gaps.start):
        return idle_gaps
    times = np.unique(times)
    at = np.searchsorted(idle_gaps.start, times, "right") - 1
    inside = times[(at >= 0) & (times > idle_gaps.start[np.maximum(at, 0)]) & (times < idle_gaps.end[np.maximum(at, 0)])]
    return Instants(np.sort(np.concatenate([idle_gaps.start, inside])), np.sort(np.concatenate([idle_gaps.end, inside])))


def _explain_thread(trace: Trace, when: Instants, thread: int, calls_by_thread: dict[int, dict[str, Instants]]) -> dict[str, Instants]:
    """Split the instants ``when`` by the calls of the launching thread; where it had none, by calls of the threads that mark steps.

    ``calls_by_thread`` is a cache.
    """
    by_reason = dict.fromkeys(BY_CALLS, NOTHING)
    others = [t for t in dict.fromkeys(trace.marks.thread.tolist()) if t != thread][:4]
    for candidate in (thread, *others):
        if candidate not in calls_by_thread:
            calls_by_thread[candidate] = calls_of(trace, candidate)
        for reason, did in calls_by_thread[candidate].items():
            explained = when & did
            by_reason[reason] = by_reason[reason] | explained
            when = when - explained
    return by_reason | {UNKNOWN: when}


def calls_of(trace: Trace, thread: int) -> dict[str, Instants]:
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
