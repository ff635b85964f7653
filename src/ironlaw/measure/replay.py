"""What would have happened: the same events, in the same order, with some time taken away.

Each device event starts when three things are past: its launch, the event before it on its stream, and the last event of any stream that
ended before it began (a dependency the file does not show, taken for real: so the replay gains less rather than more). Whatever it waited
beyond that, it waits again. The host is one line of time: calls follow each other as they did, minus what is taken away, and a call that
waited for the device waits for it again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ironlaw.measure.events import Column, DeviceEvents, Trace
from ironlaw.measure.idle import WAITS, name_rows
from ironlaw.measure.intervals import NOTHING, Instants

MOST = 60_000  # device events replayed; a longer trace is replayed up to there and its gain is that of the part


@dataclass(frozen=True)
class Replay:
    """A replayed window: how long it took and how long it would take, in ns."""

    measured: int
    replayed: int

    @property
    def gain(self) -> float:
        """How many times faster."""
        return self.measured / max(self.replayed, 1)


def replay(trace: Trace, events: DeviceEvents, since: int, removed: Instants = NOTHING, lengths: Column | None = None) -> Replay:
    """The window from ``since`` on, with the host instants ``removed`` gone and device events as long as ``lengths`` says."""
    if len(events) > MOST:
        keep = np.arange(MOST)
        events, lengths = events.rows(keep), None if lengths is None else lengths[keep]
    lasts = events.end - events.start if lengths is None else lengths
    called = (
        np.where(events.launch >= 0, trace.launches.start[np.maximum(events.launch, 0)], since) if len(trace.launches) else events.start
    )
    end = int(events.end.max())
    host = _Host(trace, events, since, end, removed)
    starts = _device(events, called, lasts, host)
    last = int((starts + lasts).max())
    return Replay(end - since, max(last - since, 1))


class _Host:
    """The host's line of time: how much earlier it is than it was, as the replay goes on."""

    def __init__(self, trace: Trace, events: DeviceEvents, since: int, until: int, removed: Instants) -> None:
        inside = Instants(np.clip(removed.start, since, until), np.clip(removed.end, since, until))
        self._ends = inside.end
        self._starts = inside.start
        self._before = np.concatenate([[0], np.cumsum(inside.end - inside.start)])
        rows = np.isin(trace.launches.name, name_rows(trace, WAITS)) & (trace.launches.start >= since)
        order = np.argsort(trace.launches.start[rows], kind="stable")
        self.waits = list(zip(trace.launches.start[rows][order].tolist(), trace.launches.end[rows][order].tolist(), strict=True))
        self.late = 0  # what waiting has put back

    def gone(self, times: Column) -> Column:
        """How much host time before each of ``times`` is taken away."""
        at = np.searchsorted(self._starts, times, "right")
        part = np.where(at > 0, np.maximum(0, self._ends[np.maximum(at - 1, 0)] - times), 0) if len(self._starts) else 0
        return np.asarray(self._before[at] - part)


def _device(events: DeviceEvents, called: Column, lasts: Column, host: _Host) -> Column:
    start, end = events.start.tolist(), events.end.tolist()
    stream = (events.device * 1_000_003 + events.stream).tolist()
    calls, gone, length = called.tolist(), host.gone(called).tolist(), lasts.tolist()
    by_end = np.argsort(events.end, kind="stable").tolist()
    waits = host.waits
    wait_gone = host.gone(np.array([w[0] for w in waits] or [0], np.int64)).tolist()
    was: dict[int, int] = {}  # stream -> end of its last event, as measured
    now: dict[int, int] = {}
    found = [0] * len(start)
    ended = ended_now = None  # the last event of any stream to end so far
    at = done = back = 0  # next of by_end, next wait, what waits put back
    order = sorted(range(len(start)), key=lambda i: (start[i], i))
    for i in order:
        while at < len(by_end) and end[by_end[at]] <= start[i]:
            j = by_end[at]
            if found[j] or j != i:
                ended, shifted = end[j], found[j] + length[j]
                ended_now = shifted if ended_now is None else max(ended_now, shifted)
            at += 1
        while done < len(waits) and waits[done][1] <= calls[i]:
            a, b = waits[done]
            free = a - wait_gone[done] + back  # when the host reaches the wait
            if ended is not None and ended_now is not None:
                past = b - max(a, min(ended, b))
                back += max(free, ended_now if ended <= b and ended > a else free) + past - (b - wait_gone[done] + back)
            done += 1
        base, base_now = calls[i], calls[i] - gone[i] + back
        for before, after in ((was.get(stream[i]), now.get(stream[i])), (ended, ended_now)):
            if before is not None and after is not None:
                base, base_now = max(base, before), max(base_now, after)
        found[i] = base_now + max(0, start[i] - base)
        was[stream[i]], now[stream[i]] = end[i], found[i] + length[i]
    return np.array(found, np.int64)
