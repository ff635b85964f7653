"""What one device did, ready to be asked for any interval: the split of `split.by_state`, summed up once."""

from __future__ import annotations

import numpy as np

from ironlaw.measure.communication.classify import Mask
from ironlaw.measure.events import Column, DeviceEvents
from ironlaw.measure.split import COMMUNICATION, COMPUTE, COPY, classes


class Timeline:
    """The eight states of compute, communication and copy over time, as running sums."""

    def __init__(self, events: DeviceEvents, communicates: Mask) -> None:
        bits = classes(events, communicates)
        times = np.concatenate([events.start, events.end])
        order = np.argsort(times, kind="stable")
        self._times = times[order]
        state = np.zeros(len(times), np.int64)
        for bit in (COMPUTE, COMMUNICATION, COPY):
            one = (bits == bit).astype(np.int64)
            state |= np.where(np.cumsum(np.concatenate([one, -one])[order]) > 0, bit, 0)
        self._state = state
        self._sums = np.zeros((8, len(times)), np.int64)
        if len(times):
            passed = np.diff(self._times)
            for number in range(8):
                np.cumsum(np.where(state[:-1] == number, passed, 0), out=self._sums[number, 1:])

    def between(self, start: int, end: int) -> Column:
        """Nanoseconds in each state from ``start`` to ``end``."""
        total = np.zeros(8, np.int64)
        if end <= start:
            return total
        if not len(self._times):
            total[0] = end - start
            return total
        total += self._until(end) - self._until(start)
        total[0] += (end - start) - int(total.sum())  # before the first event and behind the last nothing ran
        return total

    def _until(self, time: int) -> Column:
        at = int(np.searchsorted(self._times, time, "right")) - 1
        if at < 0:
            return np.zeros(8, np.int64)
        sums = self._sums[:, at].copy()
        if at < len(self._times) - 1:
            sums[self._state[at]] += time - int(self._times[at])
        return sums
