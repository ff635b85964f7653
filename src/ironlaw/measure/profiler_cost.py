"""The cost of the profiler: step times in the trace against the step time without a profiler, which the user gives.

Recording takes host time for every operator, so a run that is not host-bound can look host-bound in its trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import QuestionError
from ironlaw.measure.profile import Profile
from ironlaw.measure.roof import DISPATCH
from ironlaw.measure.verdict import Verdict

WARN = 1.1  # traced over untraced: above it, part of the waiting for the host is caused by the profiler
REFUSE = 1.5  # above it, a verdict of dispatch describes the profiler rather than the run
FIRST = 3  # with so many steps the first one, which is warm-up, is left out of the median


@dataclass(frozen=True)
class ProfilerCost:
    """Step times with and without the profiler."""

    traced: float  # [s] median step
    untraced: float  # [s]
    steps: int

    @property
    def ratio(self) -> float:
        """Traced over untraced."""
        return self.traced / self.untraced

    @property
    def lost(self) -> float:
        """Seconds that the profiler added to the steps of the window, at least 0."""
        return max(0.0, self.traced - self.untraced) * self.steps


def measure_profiler_cost(profile: Profile, untraced: float) -> ProfilerCost:
    """Compare the steps of a trace with the untraced step time; a trace without marked steps is refused."""
    walls = [step.host_end - step.host_start for step in profile.steps]
    if not walls:
        raise QuestionError(
            f"{profile.trace.path}: --untraced-step needs marked steps, and the trace has none; call prof.step() in each iteration"
        )
    typical = walls[1:] if len(walls) >= FIRST else walls
    return ProfilerCost(float(np.median(typical)) * 1e-9, untraced, len(walls))


def check_profiler_cost(costs: Sequence[ProfilerCost]) -> list[Caution]:
    """Warn where a traced step is faster than the untraced one."""
    return [
        caution("faster-than-untraced", traced_ms=c.traced * 1e3, untraced_ms=c.untraced * 1e3) for c in costs[:1] if c.ratio * WARN < 1
    ]


def refuse_dispatch(verdict: Verdict, costs: Sequence[ProfilerCost]) -> Verdict:
    """Withdraw a verdict of dispatch where the profiler slowed the host too much."""
    ratio = float(np.median([cost.ratio for cost in costs])) if costs else 1.0
    if verdict.roof != DISPATCH or ratio <= REFUSE:
        return verdict
    reason = (
        f"no verdict: the trace is bound by {DISPATCH}, but its steps take {ratio:.2f} times as long as untraced ones (limit {REFUSE}):"
        " the profiler may cause the waiting for the host; record fewer options or fewer operators"
    )
    return replace(verdict, roof=None, gain=None, next_roof=None, mixed=None, says=reason)
