"""What a finding is, what it may look at, and what several of them ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.measure.communication.ranks import Ranks
    from ironlaw.measure.logs.reading import LogReading
    from ironlaw.measure.profile import Profile
    from ironlaw.measure.profiler_cost import ProfilerCost
    from ironlaw.measure.read.snapshot import Snapshot

WORTH = 0.02  # of the window: steps of one run differ by as much, so that nobody could see less go


@dataclass(frozen=True)
class Facts:
    """Everything that was read."""

    profiles: tuple[Profile, ...]
    ranks: Ranks | None
    logs: tuple[LogReading, ...]
    snapshots: tuple[Snapshot, ...]
    profiler_costs: tuple[ProfilerCost, ...] = ()  # one a profile, or none where the untraced step is not known


@dataclass(frozen=True)
class Finding:
    """One thing found in one file, or in all of them together."""

    name: str
    says: str  # what shows it, with numbers
    advice: str
    seconds_lost: float | None = None  # of the window or the log; None where it costs no time
    path: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def docs(self) -> str:
        """Where the finding is described."""
        return f"docs/findings.md#{self.name}"

    def data(self) -> dict[str, Any]:
        """The JSON of the finding."""
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
    """Nanoseconds as text in milliseconds."""
    return f"{ns / 1e6:.2f} ms" if ns < 1e7 else f"{ns / 1e6:.1f} ms"
