"""What a finding is, and what it may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.measure.log_reading import LogReading
    from ironlaw.measure.profile import Profile
    from ironlaw.measure.ranks import Ranks
    from ironlaw.measure.snapshot import Snapshot


@dataclass(frozen=True)
class Facts:
    """Everything that was read."""

    profiles: tuple[Profile, ...]
    ranks: Ranks | None
    logs: tuple[LogReading, ...]
    snapshots: tuple[Snapshot, ...]


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
