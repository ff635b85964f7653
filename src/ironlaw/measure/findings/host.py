"""Findings about the host: what it did while the device waited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ironlaw.measure.findings.finding import Facts, Finding
from ironlaw.measure.idle import host_calls, name_rows
from ironlaw.measure.intervals import Instants, union

if TYPE_CHECKING:
    from ironlaw.measure.profile import Profile

WORTH = 0.02  # of the window: less is not worth a finding
BOUND = 0.10  # of the window spent waiting for launches
SLOW_START = 1.5  # times the median of the other steps
CHURN = 2  # driver calls for memory in a step


def starved_loader(name: str, facts: Facts) -> Iterator[Finding]:
    """The device had nothing to do while the host fetched a batch."""
    for p in facts.profiles:
        lost = p.idle.by_reason["data loading"]
        if lost > WORTH * p.window.wall:
            yield Finding(
                name,
                f"idle {lost / 1e6:.1f} ms ({lost / p.window.wall:.0%} of the window) while a batch was fetched",
                "more loader workers (num_workers), prefetch_factor, pin_memory, decoding ahead of time or on the device",
                lost / 1e9,
                p.trace.path,
                {"idle_us": lost / 1000},
            )


def launch_bound(name: str, facts: Facts) -> Iterator[Finding]:
    """Kernels are done sooner than the host launches the next one."""
    for p in facts.profiles:
        lost = p.idle.by_reason["host launch"] + p.idle.by_reason["launch latency"]
        if lost > BOUND * p.window.wall:
            lasts = np.median(p.events.end - p.events.start) / 1000
            each = p.window.wall / max(len(p.events), 1) / 1000
            yield Finding(
                name,
                f"idle {lost / 1e6:.1f} ms ({lost / p.window.wall:.0%}) for launches: {len(p.events)} events, half of them shorter than"
                f" {lasts:.1f} us, one every {each:.1f} us",
                "CUDA graphs or torch.compile, larger micro-batches, fused operators and a fused (foreach) optimizer",
                lost / 1e9,
                p.trace.path,
                {"events": len(p.events), "median_us": float(lasts), "every_us": float(each)},
            )


def synchronisation_in_the_loop(name: str, facts: Facts) -> Iterator[Finding]:
    """A call in the step waits for the device, so the device then waits for the host to catch up."""
    for p in facts.profiles:
        rows = np.isin(p.trace.launches.name, name_rows(p.trace, host_calls()["synchronisation"]))
        rows &= _in_steps(p, p.trace.launches.start)
        ends = np.sort(p.trace.launches.end[rows])
        lost = _holding(p.idle.host - p.idle.starved, ends)
        if len(ends) and lost > WORTH * p.window.wall:
            names, counts = np.unique(p.trace.launches.name[rows], return_counts=True)
            calls = {p.trace.text(int(n)): int(c) for n, c in zip(names, counts, strict=True)}
            most = max(calls, key=lambda n: calls[n])
            steps = max(len(p.steps), 1)
            yield Finding(
                name,
                f"{len(ends) / steps:.0f} calls a step wait for the device ({most} most often); after them it idles {lost / 1e6:.1f} ms"
                " until the host has caught up",
                "no .item(), .cpu(), print or tensor conditions in the step; non_blocking copies from pinned memory; log less often",
                lost / 1e9,
                p.trace.path,
                {"calls": calls},
            )


def allocator_churn(name: str, facts: Facts) -> Iterator[Finding]:
    """The caching allocator goes to the driver inside steps."""
    for p in facts.profiles:
        late = [s.host_start for s in p.steps[1:2]] or [p.window.start]
        rows = np.isin(p.trace.launches.name, name_rows(p.trace, host_calls()["allocator"])) & (p.trace.launches.start >= late[0])
        count = int(rows.sum())
        steps = max(len(p.steps) - 1, 1)
        if count >= CHURN * steps:
            time = int((p.trace.launches.end[rows] - p.trace.launches.start[rows]).sum())
            yield Finding(
                name,
                f"{count / steps:.0f} calls of the driver's allocator a step after the first, {time / 1e6:.2f} ms of host time;"
                f" the device idled {p.idle.by_reason['allocator'] / 1e6:.2f} ms for them",
                "leave memory free (smaller micro-batch, recompute), expandable_segments:True, constant shapes, no empty_cache()",
                p.idle.by_reason["allocator"] / 1e9,
                p.trace.path,
                {"calls": count, "host_us": time / 1000},
            )
    for snapshot in facts.snapshots:
        for device in snapshot.devices:
            churn = device.churn
            if churn is not None and (churn.refills or churn.ooms):
                yield Finding(
                    name,
                    f"{churn.refills} times segments were freed and asked for again, {len(churn.ooms)} requests ended out of memory",
                    "leave memory free, expandable_segments:True, constant shapes",
                    None,
                    snapshot.path,
                )


def warm_up_steps(name: str, facts: Facts) -> Iterator[Finding]:
    """The first step is no measure of the others: compilation, autotuning, allocation, caches."""
    for p in facts.profiles:
        walls = [s.host_end - s.host_start for s in p.steps]
        if len(walls) >= 3 and walls[0] > SLOW_START * np.median(walls[1:]):
            over = walls[0] - float(np.median(walls[1:]))
            yield Finding(
                name,
                f"the first step took {walls[0] / 1e6:.1f} ms, the others {np.median(walls[1:]) / 1e6:.1f} ms",
                "profile after a warm-up (schedule(wait, warmup, active)); leave the step out of averages",
                over / 1e9,
                p.trace.path,
            )


def profiler_overhead(name: str, facts: Facts) -> Iterator[Finding]:
    """The profiler itself cost time, which makes every trace look bound by the host."""
    for p in facts.profiles:
        marks = p.trace.marks
        own = np.isin(marks.name, name_rows(p.trace, ("Buffer Flush", "Activity Buffer Request", "Instrumentation", "Resource")))
        flushed = int((marks.end[own] - marks.start[own]).sum())
        recorded = [k for k in ("with_stack", "profile_memory", "record_shapes", "with_modules") if p.trace.properties.get(k)]
        waits = p.idle.by_reason["host launch"]
        stacks = "with_stack" in recorded and waits > BOUND * p.window.wall
        if flushed > WORTH * p.window.wall or stacks:
            yield Finding(
                name,
                f"recorded with {', '.join(recorded) or 'few options'}, which the host pays for on each operator; buffers took"
                f" {flushed / 1e6:.2f} ms. A part of the {waits / 1e6:.1f} ms of waiting for launches is the profiler's",
                "compare with the step time without a profiler; record stacks and shapes in a run of their own",
                flushed / 1e9 or None,
                p.trace.path,
                {"recorded": recorded, "flush_us": flushed / 1000},
            )


def _in_steps(profile: Profile, times: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if not profile.steps:
        return np.ones(len(times), bool)
    inside = np.zeros(len(times), bool)
    for step in profile.steps:
        inside |= (times >= step.host_start) & (times < step.host_end)
    return inside


def _holding(when: Instants, times: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """The length of those intervals in which (or just before which) one of ``times`` lies."""
    if not len(when.start) or not len(times):
        return 0
    joined = union(when.start - 10_000, when.end)  # a call returns a few microseconds after the device is done
    at = np.searchsorted(joined.start, times, "right") - 1
    hit = np.unique(at[(at >= 0) & (times <= joined.end[np.maximum(at, 0)])])
    return (when & Instants(joined.start[hit], joined.end[hit])).length
