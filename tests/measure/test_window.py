"""Windows split in one sweep, against counting every nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.measure.events import KERNEL, MEMCPY, DeviceEvents
from ironlaw.measure.window import split_window, split_windows, time_by_state, time_by_states

EVENTS = st.lists(st.tuples(st.integers(-15, 15), st.integers(0, 9), st.sampled_from([1, 2, 4])), max_size=9)
SPANS = st.lists(st.tuples(st.integers(-25, 25), st.integers(0, 30)), max_size=5)


def columns(rows, count):
    return [np.array(c, np.int64) for c in zip(*rows, strict=True)] or [np.empty(0, np.int64)] * count


@given(EVENTS, SPANS)
def test_every_nanosecond_of_every_window_is_in_one_state(events, spans):
    start, lasts, bits = columns(sorted(events), 3)
    since, lengths = columns(spans, 2)
    found = time_by_states(start, start + lasts, bits, since, since + lengths)
    for row, (begin, length) in zip(found.tolist(), spans, strict=True):
        expected = [0] * 8
        for instant in range(begin, begin + length):
            expected[sum({bit for at, n, bit in events if at <= instant < at + n})] += 1
        assert row == expected
        assert time_by_state(start, start + lasts, bits, (begin, begin + length)).tolist() == expected


@given(EVENTS, SPANS)
def test_a_window_sums_to_its_wall_and_is_the_same_alone(events, spans):
    start, lasts, bits = columns(sorted(events), 3)
    nothing = np.zeros(len(start), np.int64)
    kind = np.where(bits == 4, MEMCPY, KERNEL)
    rows = DeviceEvents(start, start + lasts, kind, *[nothing] * 7)
    since, lengths = columns(spans, 2)
    found = split_windows(rows, bits == 2, since, since + lengths)
    for window, begin, length in zip(found, since.tolist(), lengths.tolist(), strict=True):
        assert window.wall == length == window.compute + window.exposed_comm + window.exposed_copy + window.idle
        assert window == split_window(rows, bits == 2, (begin, begin + length))


def test_times_of_day_in_nanoseconds_stay_exact():
    base = 1_751_410_836_000_000_001
    start = np.array([base, base + 5], np.int64)
    found = time_by_states(start, start + 7, np.array([1, 2]), np.array([base - 1, base + 6]), np.array([base + 6, base + 20]))
    assert found.tolist() == [[1, 5, 0, 1, 0, 0, 0, 0], [8, 0, 5, 1, 0, 0, 0, 0]]
