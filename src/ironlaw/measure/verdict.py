"""The verdict: the bottleneck, how much faster the run would be without it, and the next one; or why there is no verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ironlaw.measure.communication.ranks import Ranks
from ironlaw.measure.gains import find_roofs, find_roofs_of_job
from ironlaw.measure.profile import Profile
from ironlaw.measure.roof import COMPUTE, HBM, SIDES, UNKNOWN, Roof

ENOUGH = 0.10  # of the window: if more of it is unexplained, the unexplained part could be the bottleneck
CLOSE = 0.10  # of the window: two bottlenecks whose recoverable times differ by less cannot be ranked


@dataclass(frozen=True)
class Verdict:
    """The bottleneck with the most recoverable time. ``roof`` is None where there is no verdict; ``says`` then gives the reason."""

    roof: str | None
    gain: tuple[float, float] | None
    next_roof: str | None  # the bottleneck once this one is gone
    unattributed: float | None  # unexplained share of the window
    says: str
    mixed: str | None = None  # another bottleneck that is too close to rank
    ranking: tuple[dict[str, Any], ...] = ()

    def data(self) -> dict[str, Any]:
        """The JSON of the verdict."""
        return {
            "roof": self.roof,
            "side": SIDES.get(self.roof) if self.roof else None,
            "gain": None if self.gain is None else list(self.gain),
            "next": self.next_roof,
            "mixed_with": self.mixed,
            "unattributed": self.unattributed,
            "says": self.says,
            "ranking": list(self.ranking),
        }


def judge_rank(profile: Profile) -> Verdict:
    """Give the verdict on one rank."""
    wall = profile.window.wall
    return judge_roofs(find_roofs(profile), wall, _unattributed(profile) / max(wall, 1), _lost([profile]))


def judge_job(profiles: Sequence[Profile], ranks: Ranks) -> Verdict:
    """Give the verdict on a job from all its ranks."""
    roofs = find_roofs_of_job(profiles, ranks)
    wall = sum(p.window.wall for p in profiles) // len(profiles)
    unknown = sum(r.charged for r in roofs if r.name == UNKNOWN)
    unattributed = sum(map(_unattributed, profiles)) / len(profiles)
    return judge_roofs([r for r in roofs if r.name != UNKNOWN], wall, (unknown + unattributed) / max(wall, 1), _lost(profiles))


def _unattributed(profile: Profile) -> int:
    """Idle time without a known reason, and kernels whose names suggest communication but match no pattern."""
    return profile.idle.unattributed + sum(u.time for u in profile.classified.unclassified if u.suspect)


def _lost(profiles: Sequence[Profile]) -> float:
    """Share of device events whose times cannot be read; their time would look like idle time."""
    lost = sum(p.trace.lost for p in profiles)
    return lost / max(lost + sum(len(p.trace.events) for p in profiles), 1)


def judge_roofs(ranked: Sequence[Roof], wall: int, unattributed: float, lost: float = 0.0) -> Verdict:
    """Give the verdict from bottlenecks ordered by recoverable time."""
    lines = tuple(r.data(wall) for r in ranked)
    if lost > ENOUGH:
        reason = f"no verdict: the times of {lost:.0%} of the device events cannot be read (limit {ENOUGH:.0%})"
        return Verdict(None, None, None, unattributed, reason, ranking=lines)
    if unattributed > ENOUGH:
        reason = f"no verdict: {unattributed:.0%} of the window is unexplained (limit {ENOUGH:.0%})"
        return Verdict(None, None, None, unattributed, reason, ranking=lines)
    if not ranked:
        return Verdict(None, None, None, unattributed, "no verdict: the window has no time that could be saved", ranking=lines)
    first = ranked[0]
    others = [r for r in ranked[1:] if sum(r.recoverable(wall)) > 0]
    mixed = None
    if others and sum(first.recoverable(wall)) - sum(others[0].recoverable(wall)) < 2 * CLOSE * wall:
        mixed = others[0].name
    next_roof = others[0].name if others else None
    low, high = first.gain
    if first.assumed and first.name in (COMPUTE, HBM):
        other = HBM if first.name == COMPUTE else COMPUTE
        reason = f"device-bound, {COMPUTE} or {HBM}, not told apart: {first.says}; at least {low:.2f}x faster without it"
        reason += "; record the shapes of operators (record_shapes=True) to tell them apart"
        return Verdict(first.name, (low, low), next_roof, unattributed, reason, other, lines)
    reason = f"{first.side}-bound ({first.name}): {first.says}; {low:.2f}x to {high:.2f}x faster without it"
    return Verdict(first.name, first.gain, next_roof, unattributed, reason, mixed, lines)
