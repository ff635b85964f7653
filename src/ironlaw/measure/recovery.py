"""What each roof costs a window and what taking it away would give, as an interval: charged and replayed below, Amdahl above.

A roof's lost time is what the partition charges it with. The gain lies between the least and the most that two ways of counting say:
the charged time simply gone (nothing else changes), and the window replayed without it (the host runs ahead, compute takes the place of
what it had hidden). What the device is busy with bounds every gain of the host's. The lower end also allows for the noise of the steps
themselves: two medians of the same run differ by as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.measure.idle import loading
from ironlaw.measure.intervals import NOTHING, Instants, union
from ironlaw.measure.profile import Profile
from ironlaw.measure.replay import Replay, replay
from ironlaw.measure.split import COMMUNICATION, COMPUTE, COPY

SIDES = {
    "data": "host",
    "dispatch": "host",
    "network": "links",
    "pipeline": "links",
    "skew": "another rank",
    "copy": "links",
    "compute": "device",
    "hbm": "device",
}
HOST = ("host launch", "launch latency", "synchronisation", "allocator")


@dataclass(frozen=True)
class Roof:
    """One roof: the time charged to it in ns, and the gain of taking it away as least and most."""

    name: str
    charged: int
    gain: tuple[float, float]
    says: str
    assumed: bool = False

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


def roofs(profile: Profile) -> list[Roof]:
    """The roofs of one rank, the one with most recoverable time (the middle of its interval) first."""
    found = [_data(profile), _dispatch(profile), *_links(profile), _copy(profile), *_device(profile)]
    wall = profile.window.wall
    return sorted((r for r in found if r is not None), key=lambda r: -sum(r.recoverable(wall)))


def step_noise(profile: Profile) -> float:
    """The spread of the host's step times as a share: 1.4826 times the median absolute deviation over the median; 0 for fewer than 3."""
    walls = np.array([s.host_end - s.host_start for s in profile.steps], float)
    if len(walls) < 3:
        return 0.0
    middle = float(np.median(walls))
    return 1.4826 * float(np.median(np.abs(walls - middle))) / middle


def _interval(profile: Profile, gains: list[float], most: float | None = None) -> tuple[float, float]:
    """The least of ``gains``, less twice the noise of a step, and the greatest, at most ``most``."""
    high = max(gains) if most is None else min(max(gains), most)
    low = min(*gains, high) * (1 - 2 * step_noise(profile))
    return max(1.0, low), max(1.0, high)


def _without(wall: int, time: float) -> float:
    return wall / max(wall - time, 1.0)


def _busy(profile: Profile) -> float:
    """No gain of the host's goes beyond it: the device has this much to do."""
    return profile.window.wall / max(profile.window.busy, 1)


def _replayed(profile: Profile, removed: Instants = NOTHING, shorter: np.ndarray[Any, Any] | None = None) -> Replay:
    events = profile.events
    since = min([int(events.start.min())] + [s.host_start for s in profile.steps[:1]])
    return replay(profile.trace, events, since, removed, shorter)


def _data(profile: Profile) -> Roof | None:
    charged = profile.idle.by_reason["data loading"]
    if not charged:
        return None
    wall = profile.window.wall
    spent = loading(profile.trace)
    gains = [_without(wall, charged), _replayed(profile, removed=spent).gain]
    inside = [(s.host_end - s.host_start, (spent & union(np.array([s.host_start]), np.array([s.host_end]))).length) for s in profile.steps]
    if len(inside) > 1:  # Amdahl on the steps as the host saw them: the whole fetch gone
        step, load = (float(np.median([i[k] for i in inside])) for k in (0, 1))
        gains.append(_without(int(step), load))
    share = spent.length and charged / wall
    return Roof(
        "data",
        charged,
        _interval(profile, gains, _busy(profile)),
        f"the device starved {charged / 1e6:.1f} ms ({share:.0%} of the window) while the host fetched batches",
    )


def _dispatch(profile: Profile) -> Roof | None:
    reasons = {reason: profile.idle.by_reason[reason] for reason in HOST}
    charged = sum(reasons.values())
    if not charged:
        return None
    wall = profile.window.wall
    host = profile.idle.host - profile.idle.starved
    gains = [_without(wall, charged), _replayed(profile, removed=host).gain]
    most = max(reasons, key=lambda r: reasons[r])
    return Roof(
        "dispatch",
        charged,
        _interval(profile, gains, _busy(profile)),
        f"the device waited {charged / 1e6:.1f} ms ({charged / wall:.0%} of the window) for the host, most of it for {most}",
    )


def _links(profile: Profile) -> list[Roof]:
    """Exposed communication: of the pipeline where stages pass activations on, of the network otherwise."""
    if not profile.window.exposed_comm:
        return []
    passes = sum(c.duration for c in profile.collectives if c.operation == "send_recv")
    total = max(sum(c.duration for c in profile.collectives), 1)
    found = []
    for name, share in (("pipeline", passes / total), ("network", 1 - passes / total)):
        charged = round(profile.window.exposed_comm * share)
        if charged <= 0:
            continue
        lasts = profile.events.end - profile.events.start
        lasts = np.where(profile.classes == COMMUNICATION, (lasts * (1 - share)).astype(np.int64), lasts)
        gains = [_without(profile.window.wall, charged), _replayed(profile, shorter=lasts).gain]
        says = f"{charged / 1e6:.1f} ms ({charged / profile.window.wall:.0%}) of communication is not hidden"
        says += "; one rank cannot tell transfer from waiting for a late rank: give all ranks"
        found.append(Roof(name, charged, _interval(profile, gains), says))
    return found


def _copy(profile: Profile) -> Roof | None:
    charged = profile.window.exposed_copy
    if not charged:
        return None
    lasts = np.where(profile.classes == COPY, 0, profile.events.end - profile.events.start)
    gains = [_without(profile.window.wall, charged), _replayed(profile, shorter=lasts).gain]
    return Roof("copy", charged, _interval(profile, gains), f"{charged / 1e6:.1f} ms of copies and memsets with nothing beside them")


def _device(profile: Profile) -> list[Roof]:
    """Kernels of each roof brought to it; where only the name says which roof, anything from nothing to all of their time."""
    wall, compute = profile.window.wall, profile.window.compute
    total = max(sum(k.total for k in profile.kernels), 1)
    alone = min(1.0, compute / total)  # kernels that ran beside each other share their time
    found = []
    lasts = profile.events.end - profile.events.start
    for name in ("compute", "hbm"):
        mine = [k for k in profile.kernels if k.under == name]
        spent = sum(k.total for k in mine) * alone
        if not spent:
            continue
        known = [k for k in mine if k.at_roof is not None]
        over = sum(max(0, k.total - (k.at_roof or 0)) for k in known) * alone
        unknown = sum(k.total for k in mine if k.at_roof is None) * alone
        shares = over / (spent or 1), (over + unknown) / (spent or 1)
        part = spent / max(compute, 1)
        low, high = (
            _replayed(profile, shorter=np.where(profile.classes == COMPUTE, (lasts * (1 - s * part)).astype(np.int64), lasts)).gain for s in shares
        )
        top = _without(wall, over + unknown)
        gain = (max(1.0, min(low, _without(wall, over))), max(1.0, high, top))
        says = f"kernels under it take {spent / 1e6:.1f} ms ({spent / wall:.0%} of the window), {over / 1e6:.1f} ms more than their roof asks"
        if unknown:
            says += f"; {unknown / 1e6:.1f} ms of it has no shapes, so its roof is assumed by name"
        found.append(Roof(name, round(spent), gain, says, assumed=unknown > over + (spent - unknown) / 2))
    return found
