"""Split the window of a trace into compute, exposed communication, exposed copies and idle time, in whole nanoseconds.

Each instant belongs to the first that applies: a compute kernel runs; a communication kernel runs (exposed communication); a copy or
memset runs (exposed copy); nothing runs (idle). So the parts sum to the window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ironlaw.measure.events import KERNEL, NONE, Column, DeviceEvents, Trace

COMPUTE, COMMUNICATION, COPY = 1, 2, 4  # bits: classes may run at once


@dataclass(frozen=True)
class Policy:
    """Which device events are counted. Both choices change the answer, so both are always printed."""

    unlinked: str = "keep"  # events whose launch is not in the file, often left over from before the window
    last_step: str = "keep"  # events that the last step launched, which may end after the window


@dataclass(frozen=True)
class Window:
    """A span of device time and its parts, all in ns; ``compute + exposed_comm + exposed_copy + idle == wall``."""

    start: int
    end: int
    compute: int
    comm: int
    exposed_comm: int
    copy: int
    exposed_copy: int

    @property
    def wall(self) -> int:
        """From the first start to the last end."""
        return self.end - self.start

    @property
    def busy(self) -> int:
        """Time in which anything ran."""
        return self.compute + self.exposed_comm + self.exposed_copy

    @property
    def idle(self) -> int:
        """Time in which nothing ran."""
        return self.wall - self.busy


@dataclass(frozen=True)
class Step:
    """One step: the span the host marked, and the span on the device of the kernels it launched."""

    number: int
    host_start: int  # [ns]
    host_end: int
    device: Window | None  # from the first event it launched to that of the next step; None where it launched none


def time_by_state(start: Column, end: Column, bits: Column, window: tuple[int, int] | None = None) -> NDArray[np.int64]:
    """Nanoseconds in each of the eight combinations of three classes of events; ``result[0]`` is the time without any.

    >>> time_by_state(np.array([0, 5]), np.array([10, 20]), np.array([1, 2]), (0, 30)).tolist()
    [10, 5, 10, 5, 0, 0, 0, 0]
    """
    if window is None:
        window = (int(start.min()), int(end.max())) if len(start) else (0, 0)
    return np.asarray(time_by_states(start, end, bits, np.array([window[0]], np.int64), np.array([window[1]], np.int64))[0])


def time_by_states(start: Column, end: Column, bits: Column, since: Column, until: Column) -> NDArray[np.int64]:
    """``time_by_state`` for many windows at once, one row each. One sweep sums the time in each state; a window is a difference of sums.

    >>> time_by_states(np.array([0, 5]), np.array([10, 20]), np.array([1, 2]), np.array([0, 8]), np.array([8, 30])).tolist()
    [[0, 5, 0, 3, 0, 0, 0, 0], [10, 0, 10, 2, 0, 0, 0, 0]]
    """
    if not len(start):
        return np.concatenate([(until - since)[:, None], np.zeros((len(since), 7), np.int64)], axis=1)
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    times = times[order]
    state = np.zeros(len(times), np.int64)
    for bit in (COMPUTE, COMMUNICATION, COPY):
        runs = (bits == bit).astype(np.int8)
        state |= np.where(np.cumsum(np.concatenate([runs, -runs])[order]) > 0, bit, 0)
    # nothing runs before the first event or after the last, so the sweep starts with the earliest window
    early = min(int(times[0]), int(since.min()) if len(since) else int(times[0]))
    times, state = np.concatenate([[early], times]), np.concatenate([[0], state])
    durations = np.diff(times, append=times[-1])
    totals = np.empty((len(since), 8), np.int64)
    at, last = np.searchsorted(times, since, "right") - 1, np.searchsorted(times, until, "right") - 1
    for code in range(8):
        spent = np.cumsum(np.where(state == code, durations, 0))
        spent -= np.where(state == code, durations, 0)  # before each time
        totals[:, code] = spent[last] - spent[at]
        totals[:, code] += np.where(state[last] == code, until - times[last], 0) - np.where(state[at] == code, since - times[at], 0)
    return totals


def split_window(events: DeviceEvents, communicates: NDArray[np.bool_], span: tuple[int, int] | None = None) -> Window:
    """Split one window of ``events``: ``span``, or from the first start to the last end."""
    start, end = span or ((int(events.start.min()), int(events.end.max())) if len(events) else (0, 0))
    return split_windows(events, communicates, np.array([start], np.int64), np.array([end], np.int64))[0]


def split_windows(events: DeviceEvents, communicates: NDArray[np.bool_], since: Column, until: Column) -> list[Window]:
    """Split the windows of ``events`` from each ``since`` to its ``until``."""
    table = time_by_states(events.start, events.end, classify_events(events, communicates), since, until).tolist()
    return [
        Window(
            start=start,
            end=end,
            compute=t[1] + t[3] + t[5] + t[7],
            comm=t[2] + t[3] + t[6] + t[7],
            exposed_comm=t[2] + t[6],
            copy=t[4] + t[5] + t[6] + t[7],
            exposed_copy=t[4],
        )
        for start, end, t in zip(since.tolist(), until.tolist(), table, strict=True)
    ]


def classify_events(events: DeviceEvents, communicates: NDArray[np.bool_]) -> Column:
    """Give each event its class: COMPUTE, COMMUNICATION or COPY. ``communicates`` is a mask over the events."""
    kernels = events.kind == KERNEL
    return np.where(kernels, np.where(communicates, COMMUNICATION, COMPUTE), COPY)


def find_step_marks(trace: Trace) -> list[tuple[int, int, int]]:
    """Find the profiler's step marks on the host as (number, start, end), by start; a mark that occurs twice counts once."""
    numbers = {i: int(n.split("#", 1)[1]) for i, n in enumerate(trace.names) if _is_step(n)}
    marks = trace.marks
    rows = np.flatnonzero(np.isin(marks.name, list(numbers)))
    steps = {(numbers[int(marks.name[r])], int(marks.start[r]), int(marks.end[r])) for r in rows}
    return sorted(steps, key=lambda step: step[1])


def _is_step(name: str) -> bool:
    digits = name.removeprefix("ProfilerStep#")
    return digits != name and digits.isdecimal() and len(digits) < 18


def assign_steps(trace: Trace, marks: list[tuple[int, int, int]]) -> Column:
    """For each device event, the index of the step in which the host launched it; NONE if there is none."""
    step_of_event = np.full(len(trace.events), NONE, np.int64)
    linked = trace.events.launch >= 0
    if not marks or not linked.any():
        return step_of_event
    starts = np.array([m[1] for m in marks], np.int64)
    ends = np.array([m[2] for m in marks], np.int64)
    when = trace.launches.start[trace.events.launch[linked]]
    at = np.searchsorted(starts, when, "right") - 1
    covered = (at >= 0) & (when < ends[np.maximum(at, 0)])
    step_of_event[linked] = np.where(covered, at, NONE)
    return step_of_event


def choose_events(trace: Trace, policy: Policy, step: Column, last: int) -> NDArray[np.bool_]:
    """Choose the device events that the policy counts; ``last`` is the index of the last marked step, even one without launches."""
    keep = np.ones(len(trace.events), bool)
    if policy.unlinked == "drop":
        keep &= trace.events.launch >= 0
    if policy.last_step == "drop" and last >= 0:
        keep &= step != last
    return keep
