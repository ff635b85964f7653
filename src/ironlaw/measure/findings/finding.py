"""The record of a finding, the facts it reads, and what several findings share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.measure.communication.ranks import Ranks
    from ironlaw.measure.logs.reading import LogReading
    from ironlaw.measure.profile import Profile
    from ironlaw.measure.profiler_cost import ProfilerCost
    from ironlaw.measure.read.memory_text import MemoryText
    from ironlaw.measure.read.snapshot import Snapshot

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
        }


def ms(ns: float) -> str:
    """Format nanoseconds as milliseconds."""
    return f"{ns / 1e6:.2f} ms" if ns < 1e7 else f"{ns / 1e6:.1f} ms"
