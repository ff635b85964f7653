"""Which roof binds, what taking it away would give, which comes next; or why that cannot be said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ironlaw.measure.communication.ranks import Ranks
from ironlaw.measure.gains import find_roofs, find_roofs_of_job
from ironlaw.measure.profile import Profile
from ironlaw.measure.roof import SIDES, UNKNOWN, Roof

ENOUGH = 0.10  # of the window: were more of it charged to nobody, what nobody knows could be the roof that binds
CLOSE = 0.10  # of the window: recoverable times are intervals, and two whose middles lie nearer may change places


@dataclass(frozen=True)
class Verdict:
    """The roof with most recoverable time; ``roof`` is None where there is no verdict, and ``says`` why."""

    roof: str | None
    gain: tuple[float, float] | None
    next_roof: str | None  # the roof after it is gone
    unattributed: float | None  # share of the window
    says: str
    mixed: str | None = None  # a roof not told apart from the first
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
    """The verdict on one rank."""
    wall = profile.window.wall
    return judge_roofs(find_roofs(profile), wall, _unattributed(profile) / max(wall, 1), _lost([profile]))


def judge_job(profiles: Sequence[Profile], ranks: Ranks) -> Verdict:
    """The verdict on a job from all its ranks."""
    found = find_roofs_of_job(profiles, ranks)
    wall = sum(p.window.wall for p in profiles) // len(profiles)
    unknown = sum(r.charged for r in found if r.name == UNKNOWN)
    own = sum(map(_unattributed, profiles)) / len(profiles)
    return judge_roofs([r for r in found if r.name != UNKNOWN], wall, (unknown + own) / max(wall, 1), _lost(profiles))


def _unattributed(profile: Profile) -> int:
    """Idle time without a reason, and kernels that may communicate for all their names say."""
    return profile.idle.unattributed + sum(u.time for u in profile.classified.unclassified if u.suspect)


def _lost(profiles: Sequence[Profile]) -> float:
    """Share of the device's events whose times cannot be read: what they did would be taken for waiting."""
    lost = sum(p.trace.lost for p in profiles)
    return lost / max(lost + sum(len(p.trace.events) for p in profiles), 1)


def judge_roofs(ranked: Sequence[Roof], wall: int, unattributed: float, lost: float = 0.0) -> Verdict:
    """The verdict from roofs in the order of their recoverable time."""
    lines = tuple(r.data(wall) for r in ranked)
    if lost > ENOUGH:
        says = f"no verdict: the times of {lost:.0%} of the device's events cannot be read (at most {ENOUGH:.0%} may be lost)"
        return Verdict(None, None, None, unattributed, says, ranking=lines)
    if unattributed > ENOUGH:
        says = f"no verdict: {unattributed:.0%} of the window is charged to nobody (at most {ENOUGH:.0%} may be)"
        return Verdict(None, None, None, unattributed, says, ranking=lines)
    if not ranked:
        return Verdict(None, None, None, unattributed, "no verdict: nothing in the window could be recovered", ranking=lines)
    first = ranked[0]
    others = [r for r in ranked[1:] if sum(r.recoverable(wall)) > 0]
    mixed = None
    if others and sum(first.recoverable(wall)) - sum(others[0].recoverable(wall)) < 2 * CLOSE * wall:
        mixed = others[0].name
    next_roof = others[0].name if others else None
    low, high = first.gain
    says = f"{first.side}-bound, by {first.name}: {first.says}; without it {low:.2f}x to {high:.2f}x faster"
    return Verdict(first.name, first.gain, next_roof, unattributed, says, mixed, lines)
