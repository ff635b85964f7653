"""Findings about work that was launched and did not start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ironlaw.measure.findings.finding import WORTH, Facts, Finding, ms
from ironlaw.measure.idle import STREAM
from ironlaw.measure.kernels.names import short_name

if TYPE_CHECKING:
    from ironlaw.measure.idle import Gap
    from ironlaw.measure.profile import Profile

ONE = 0.8  # of all waiting in one gap: the finding is about that gap


def stream_wait(name: str, facts: Facts) -> Iterator[Finding]:
    """The device is idle although work was launched."""
    for p in facts.profiles:
        lost = p.idle.by_reason[STREAM]
        if lost <= WORTH * p.window.wall or not p.idle.waits:
            continue
        listed = [_gap_data(p, gap) for gap in p.idle.waits]
        longest = p.idle.waits[0]
        words = f"the longest of {ms(longest.wait)}" if longest.wait < ONE * lost else f"{longest.wait / lost:.0%} of it in one gap"
        begins = ms(longest.start - p.window.start)
        says = (
            f"idle {ms(lost)} ({lost / p.window.wall:.0%} of the window) although work was launched: {words}, {begins} into the window,"
            f" between {listed[0]['before']} and {listed[0]['after']} (launched by {listed[0]['call']})"
        )
        yield Finding(
            name,
            says,
            "look at the events on either side in a timeline: a stream waits for another, an event comes late, a graph begins with a copy",
            lost / 1e9,
            p.trace.path,
            {"idle_us": lost / 1000, "longest": listed},
            tuple({"start_us": one["start_us"], "us": one["wait_us"]} for one in sorted(listed, key=lambda one: float(one["start_us"]))),
        )


def _gap_data(p: Profile, gap: Gap) -> dict[str, Any]:
    """A gap as plain data: when it was, the events before and after it, and the call that launched the one after it."""

    def named(event: int) -> str:
        return short_name(p.trace.text(p.events.name[event])) if event >= 0 else "the begin of the window"

    launch = int(p.events.launch[gap.after])
    return {
        "start_us": (gap.start - p.window.start) / 1000,
        "wait_us": gap.wait / 1000,
        "before": named(gap.before),
        "after": named(gap.after),
        "call": p.trace.text(p.trace.launches.name[launch]) if launch >= 0 else None,
        "stream": int(p.events.stream[gap.after]),
    }
