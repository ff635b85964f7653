"""Findings about the recording: warm-up steps, and the cost of the profiler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ironlaw.measure.findings.finding import WORTH, Facts, Finding, ms
from ironlaw.measure.findings.host import BOUND
from ironlaw.measure.idle import LAUNCHING, find_names
from ironlaw.measure.intervals import Instants, gaps, union
from ironlaw.measure.profiler_cost import REFUSE, WARN, ProfilerCost

if TYPE_CHECKING:
    from ironlaw.measure.profile import Profile

SLOW_START = 1.5  # times the median of the other steps: with three or four steps, a smaller ratio may be chance
STEPS = 3  # with fewer, the other steps have no useful median
OWN = ("Buffer Flush", "Activity Buffer Request", "Instrumentation", "Resource", "Command Buffer Full")  # CUPTI's names for its own work
OPTIONS = ("with_stack", "profile_memory", "record_shapes", "with_modules")
BARE = "profile(schedule=schedule(wait=5, warmup=3, active=3)) without with_stack, profile_memory and record_shapes"


def warm_up_steps(name: str, facts: Facts) -> Iterator[Finding]:
    """The first step is slower than the others: compilation, autotuning, allocation, caches."""
    for p in facts.profiles:
        walls = [s.host_end - s.host_start for s in p.steps]
        if len(walls) < STEPS:
            continue
        median = float(np.median(walls[1:]))
        if walls[0] > SLOW_START * median:
            yield Finding(
                name,
                f"the first step took {ms(walls[0])}, the median of the other {len(walls) - 1} is {ms(median)}",
                "torch.profiler.schedule(wait=1, warmup=3, active=5); leave the first step out of averages",
                (walls[0] - median) / 1e9,
                p.trace.path,
                {"first_us": walls[0] / 1000, "median_us": median / 1000, "steps": len(walls)},
            )


def profiler_overhead(name: str, facts: Facts) -> Iterator[Finding]:
    """The profiler cost time, so the trace looks more host-bound than the run is."""
    for i, p in enumerate(facts.profiles):
        finding = _compare_with_untraced_step(name, p, facts.profiler_costs[i]) if facts.profiler_costs else _read_from_trace(name, p)
        if finding is not None:
            yield finding


def _compare_with_untraced_step(name: str, p: Profile, cost: ProfilerCost) -> Finding | None:
    """Compare traced steps with the step time without a profiler."""
    if cost.ratio <= WARN:
        return None
    refused = f"; above {REFUSE} times no verdict of dispatch is given" if cost.ratio > REFUSE else ""
    return Finding(
        name,
        f"a traced step takes {ms(cost.traced * 1e9)}, an untraced one {ms(cost.untraced * 1e9)}: {cost.ratio:.2f} times as long{refused}",
        BARE,
        cost.lost,
        p.trace.path,
        {"traced_us": cost.traced * 1e6, "untraced_us": cost.untraced * 1e6, "ratio": cost.ratio, "steps": cost.steps},
    )


def _read_from_trace(name: str, p: Profile) -> Finding | None:
    """Without an untraced step time: idle time while the profiler worked, or slow recording options in a host-bound trace."""
    marks = p.trace.marks
    of_profiler = np.isin(marks.name, find_names(p.trace, OWN))
    worked = union(marks.start[of_profiler], marks.end[of_profiler])
    idle = gaps(union(p.events.start, p.events.end))
    lost = (worked & idle & Instants(np.array([p.window.start]), np.array([p.window.end]))).length
    recorded = [option for option in OPTIONS if p.trace.properties.get(option)]
    waits = p.idle.by_reason[LAUNCHING]
    if lost <= WORTH * p.window.wall and not ("with_stack" in recorded and waits > BOUND * p.window.wall):
        return None
    return Finding(
        name,
        f"recorded with {', '.join(recorded) or 'few options'}; the device idled {ms(lost)} while the profiler worked, and the"
        f" profiler causes part of the {ms(waits)} of waiting for launches",
        f"{BARE}; --untraced-step TIME measures the cost",
        lost / 1e9 or None,
        p.trace.path,
        {"recorded": recorded, "own_us": worked.length / 1000, "idle_us": lost / 1000, "waiting_for_launches_us": waits / 1000},
    )
