"""Replay a window with some time removed: the same events in the same order.

Each device event starts after three things: its launch, the event before it on its stream, and the last event of any stream that had ended
before it began. (The trace does not show whether the last is a real dependency; assuming so underestimates the gain rather than
overestimating it.) Any further wait is repeated. The host is one timeline: calls follow each other as measured, less the removed time, and
a call that waited for the device waits again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ironlaw.measure.events import Column, DeviceEvents, Trace
from ironlaw.measure.idle import WAITING, find_names, host_calls
from ironlaw.measure.intervals import NOTHING, Instants

_NEVER = (-(2**62), -(2**62))
MOST = 60_000  # device events replayed; the gain of a longer trace is that of its first part


@dataclass(frozen=True)
class Replay:
    """The measured and the replayed length of a window, in ns."""

    measured: int
    replayed: int

    @property
    def gain(self) -> float:
        """How many times faster."""
        return self.measured / max(self.replayed, 1)


def replay(trace: Trace, events: DeviceEvents, since: int, removed: Instants = NOTHING, lengths: Column | None = None) -> Replay:
    """Replay the window from ``since`` on without the host instants ``removed``, with device events of the given ``lengths``."""
    if len(events) > MOST:
        keep = np.arange(MOST)
        events, lengths = events.rows(keep), None if lengths is None else lengths[keep]
    durations = events.end - events.start if lengths is None else lengths
    launched = (
        np.where(events.launch >= 0, trace.launches.start[np.maximum(events.launch, 0)], since) if len(trace.launches) else events.start
    )
    end = int(events.end.max())
    host = _Host(trace, since, end, removed)
    starts = _device(events, launched, durations, host)
    last = int((starts + durations).max())
    return Replay(end - since, max(last - since, 1))


class _Host:
    """How much earlier than measured the host is at each instant."""

    def __init__(self, trace: Trace, since: int, until: int, removed: Instants) -> None:
        clipped = Instants(np.clip(removed.start, since, until), np.clip(removed.end, since, until))
        self._ends = clipped.end
        self._starts = clipped.start
        self._before = np.concatenate([[0], np.cumsum(clipped.end - clipped.start)])
        rows = np.isin(trace.launches.name, find_names(trace, host_calls()[WAITING])) & (trace.launches.start >= since)
        self.wait_start, self.wait_end = trace.launches.start[rows], trace.launches.end[rows]

    def removed_before(self, times: Column) -> Column:
        """How much host time is removed before each of ``times``."""
        at = np.searchsorted(self._starts, times, "right")
        part = np.where(at > 0, np.maximum(0, self._ends[np.maximum(at - 1, 0)] - times), 0) if len(self._starts) else 0
        return np.asarray(self._before[at] - part)


def _device(events: DeviceEvents, launched: Column, durations: Column, host: _Host) -> Column:
    """When each event starts in the replay, in one pass by measured start."""
    start, end, length = events.start.tolist(), events.end.tolist(), durations.tolist()
    stream = (events.device * 1_000_003 + events.stream).tolist()
    calls, calls_now = launched.tolist(), (launched - host.removed_before(launched)).tolist()
    waits = _Waits(host)
    by_end = np.argsort(events.end, kind="stable").tolist()
    on_stream: dict[int, tuple[int, int]] = {}  # the end of its last event: measured, replayed
    ended = _NEVER  # the end of the last event of any stream that has ended: measured, replayed
    replayed: list[int | None] = [None] * len(start)
    at = 0
    for i, begun in enumerate(start):
        while at < len(by_end) and end[by_end[at]] <= begun and (replayed_start := replayed[by_end[at]]) is not None:
            ended = (end[by_end[at]], max(ended[1], replayed_start + length[by_end[at]]))
            at += 1
        delay = waits.advance_to(calls[i], ended)
        stream_end = on_stream.get(stream[i], _NEVER)
        ready = max(calls[i], stream_end[0], ended[0])
        new_start = max(calls_now[i] + delay, stream_end[1], ended[1]) + max(0, begun - ready)
        replayed[i] = new_start
        on_stream[stream[i]] = (end[i], new_start + length[i])
    return np.array(replayed, np.int64)


class _Waits:
    """The host's calls that wait for the device, in order; each delays the host as far as the device is late."""

    def __init__(self, host: _Host) -> None:
        self._calls = list(
            zip(host.wait_start.tolist(), host.wait_end.tolist(), host.removed_before(host.wait_start).tolist(), strict=True)
        )
        self._next = 0  # the first call that has not returned yet
        self._delay = 0  # of the host, so far

    def advance_to(self, when: int, ended: tuple[int, int]) -> int:
        """How much the device has delayed the host at ``when``; ``ended`` is the last end on the device, measured and replayed."""
        while self._next < len(self._calls) and self._calls[self._next][1] <= when:
            begin, returned, removed = self._calls[self._next]
            host_time = begin - removed + self._delay
            if begin < ended[0] <= returned:  # it waited for that event
                host_time = max(host_time, ended[1])
                begin = ended[0]
            self._delay = host_time + (returned - begin) - (returned - removed)
            self._next += 1
        return self._delay
