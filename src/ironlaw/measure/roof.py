"""A roof: what may bind a step, whose side it is on, the time charged to it, and the gain of taking it away."""

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
    SKEW: "another rank",  # late before its trace begins: that it was is known, why is not
    UNKNOWN: "nobody known",
}


@dataclass(frozen=True)
class Roof:
    """One roof of a window."""

    name: str
    charged: int  # [ns]
    gain: tuple[float, float]  # times faster: at least, at most
    says: str
    assumed: bool = False  # most of it by the class of kernels, without sizes

    @property
    def side(self) -> str:
        """Who is waited for."""
        return SIDES[self.name]

    def recoverable(self, wall: int) -> tuple[float, float]:
        """The time a gain of ``gain`` would take off the window, in ns."""
        return wall * (1 - 1 / self.gain[0]), wall * (1 - 1 / self.gain[1])

    def data(self, wall: int) -> dict[str, Any]:
        """One line of the ranking."""
        return {
            "roof": self.name,
            "side": self.side,
            "charged_us": self.charged / 1000,
            "recoverable_us": [r / 1000 for r in self.recoverable(wall)],
            "gain": list(self.gain),
            "assumed": self.assumed,
            "says": self.says,
        }
