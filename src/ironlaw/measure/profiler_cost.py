"""What the profiler cost: the step time a trace shows against the one without it, which only the user knows.

Recording costs the host time on every operator, so it turns a run that is not bound by its host into a trace that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ironlaw.errors import QuestionError
from ironlaw.measure.profile import Profile
from ironlaw.measure.roof import DISPATCH
from ironlaw.measure.verdict import Verdict

WARN = 1.1  # traced over untraced: above it waiting for the host is no longer the run's own
REFUSE = 1.5  # above it a verdict of dispatch says more of the profiler than of the run
FIRST = 3  # steps from which on the first one is left out of the median: it is warm-up, and two are left without it


@dataclass(frozen=True)
class ProfilerCost:
    """Step times of one run with and without the profiler."""

    traced: float  # [s] median of the steps
    untraced: float  # [s]
    steps: int

    @property
    def ratio(self) -> float:
        """Traced over untraced."""
        return self.traced / self.untraced

    @property
    def lost(self) -> float:
        """Seconds the profiler added to the steps of the window, 0 where it added none."""
        return max(0.0, self.traced - self.untraced) * self.steps


def measure_profiler_cost(profile: Profile, untraced: float) -> ProfilerCost:
    """The overhead of a trace's steps; a trace that marks no step has none to compare."""
    walls = [step.host_end - step.host_start for step in profile.steps]
    if not walls:
        told = "it marks no steps, so their time is not known; call prof.step() once an iteration"
        raise QuestionError(f"{profile.trace.path}: --untraced-step is compared with the trace's steps, and {told}")
    typical = walls[1:] if len(walls) >= FIRST else walls
    return ProfilerCost(float(np.median(typical)) * 1e-9, untraced, len(walls))


def check_profiler_cost(found: Sequence[ProfilerCost]) -> list[str]:
    """What to say where the two step times cannot be of one run."""
    return [
        f"a step of the trace takes {one.traced * 1e3:.1f} ms, less than the {one.untraced * 1e3:.1f} ms without a profiler: is it one run?"
        for one in found[:1]
        if one.ratio * WARN < 1
    ]


def refuse_dispatch(verdict: Verdict, found: Sequence[ProfilerCost]) -> Verdict:
    """The verdict, refused where it names the host and the profiler has slowed the host too much."""
    ratio = float(np.median([one.ratio for one in found])) if found else 1.0
    if verdict.roof != DISPATCH or ratio <= REFUSE:
        return verdict
    says = (
        f"no verdict: the trace is bound by {DISPATCH}, but its steps take {ratio:.2f} times the untraced ones"
        f" (at most {REFUSE} times may be): the host waits may be the profiler's; record fewer options, or fewer operators"
    )
    return replace(verdict, roof=None, gain=None, next_roof=None, mixed=None, says=says)
