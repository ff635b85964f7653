"""The record of a finding, the facts it reads, and what several findings share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.measure.intervals import Instants

if TYPE_CHECKING:
    from ironlaw.measure.communication.ranks import Ranks
    from ironlaw.measure.logs.reading import LogReading
    from ironlaw.measure.profile import Profile
    from ironlaw.measure.profiler_cost import ProfilerCost
    from ironlaw.measure.read.memory_text import MemoryText
    from ironlaw.measure.read.snapshot import Snapshot

MOST_RANGES = 100  # of one finding, the longest
WORTH = 0.02  # of the window: a smaller gain disappears in the noise between steps


@dataclass(frozen=True)
class Facts:
    """The analysis of all files."""

    profiles: tuple[Profile, ...]
    ranks: Ranks | None
    logs: tuple[LogReading, ...]
    snapshots: tuple[Snapshot, ...]
    texts: tuple[MemoryText, ...] = ()
    profiler_costs: tuple[ProfilerCost, ...] = ()  # one for each profile; none if the untraced step time is unknown


@dataclass(frozen=True)
class Finding:
    """One cause of lost time, in one file or in all files together."""

    name: str
    says: str  # the evidence, with numbers
    advice: str
    seconds_lost: float | None = None  # in the window; None if unknown, or if it costs no time
    path: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    ranges: tuple[Mapping[str, float], ...] = ()  # of the window that it speaks of, see ``ranges_of``; none where it is of no place in it

    @property
    def docs(self) -> str:
        """The place in the docs that describes the finding."""
        return f"docs/findings.md#{self.name}"

    def data(self) -> dict[str, Any]:
        """The finding as plain data."""
        return {
            "name": self.name,
            "path": self.path,
            "says": self.says,
            "seconds_lost": self.seconds_lost,
            "advice": self.advice,
            "docs": self.docs,
            "evidence": dict(self.evidence),
            "ranges": [dict(one) for one in self.ranges],
        }


def ranges_of(when: Instants, profile: Profile) -> tuple[Mapping[str, float], ...]:
    """Intervals as a finding lists them: the longest of them, in order, in microseconds from the start of the window.

    >>> from types import SimpleNamespace
    >>> window = SimpleNamespace(window=SimpleNamespace(start=1000, end=9000))
    >>> ranges_of(Instants(np.array([0, 3000]), np.array([2000, 3500])), window)
    ({'start_us': 0.0, 'us': 1.0}, {'start_us': 2.0, 'us': 0.5})
    """
    start, end = np.maximum(when.start, profile.window.start), np.minimum(when.end, profile.window.end)
    length = end - start
    rows = np.sort(np.argsort(-length, kind="stable")[:MOST_RANGES])
    inside = rows[length[rows] > 0].tolist()
    return tuple({"start_us": int(start[i] - profile.window.start) / 1000, "us": int(length[i]) / 1000} for i in inside)


def ms(ns: float) -> str:
    """Format nanoseconds as milliseconds."""
    return f"{ns / 1e6:.2f} ms" if ns < 1e7 else f"{ns / 1e6:.1f} ms"
