"""A roof: one possible bottleneck of a step, with the time it takes and the speed-up without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DATA, DISPATCH = "data", "dispatch"
NETWORK, PIPELINE = "network", "pipeline"
COPY = "copy"
COMPUTE, HBM, STREAM_WAIT = "compute", "hbm", "stream wait"
SKEW, UNKNOWN = "skew", "unknown"
SIDES = {
    DATA: "host",
    DISPATCH: "host",
    NETWORK: "network",
    PIPELINE: "network",
    COPY: "bus",
    COMPUTE: "device",
    HBM: "device",
    STREAM_WAIT: "device",
    SKEW: "another rank",  # late before its trace begins, for a reason that the trace does not show
    UNKNOWN: "unknown",
}


@dataclass(frozen=True)
class Roof:
    """One possible bottleneck of a window."""

    name: str
    charged: int  # [ns]
    gain: tuple[float, float]  # times faster: at least, at most
    says: str
    assumed: bool = False  # most of its kernels have no recorded sizes: their roof follows from their class

    @property
    def side(self) -> str:
        """The part of the system that the device waits for."""
        return SIDES[self.name]

    def recoverable(self, wall: int) -> tuple[float, float]:
        """The time in ns that the window would lose without this roof: at least, at most."""
        return wall * (1 - 1 / self.gain[0]), wall * (1 - 1 / self.gain[1])

    def data(self, wall: int) -> dict[str, Any]:
        """One line of the ranking, as plain data."""
        return {
            "roof": self.name,
            "side": self.side,
            "charged_us": self.charged / 1000,
            "recoverable_us": [r / 1000 for r in self.recoverable(wall)],
            "gain": list(self.gain),
            "assumed": self.assumed,
            "says": self.says,
        }
