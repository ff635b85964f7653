"""Findings about the host while the device waited. The first four share no idle time, so their seconds may be added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ironlaw.measure.events import Column
from ironlaw.measure.findings.finding import WORTH, Facts, Finding, ms, ranges_of
from ironlaw.measure.idle import ALLOCATING, ARRIVING, CALLING, LAUNCHING, LOADING, WAITING, find_names, host_calls
from ironlaw.measure.intervals import NOTHING, Instants, gaps, union
from ironlaw.measure.kernels.names import short_name

if TYPE_CHECKING:
    from ironlaw.measure.profile import Profile

BOUND = 0.10  # of the window spent waiting for launches: every eager step has some, and CUDA graphs do not pay for less
RETURNS = 10_000  # [ns] a waiting call returns at most so long before or after the device is done, because of two clocks and latency
SLOW_CALL = 10_000_000  # [ns] an ordinary launch call takes some microseconds; a first one that loads or compiles its kernel, far more
CHURN = 2  # driver calls for memory in an ordinary step: a single one may be a buffer that still grows
MOSTLY = 0.5  # of the steps after the first: in fewer of them, shapes may have changed, as in an evaluation
ASYNCHRONOUS = "Async"  # cudaMallocAsync, cudaFreeAsync: they are ordered on a stream and do not stop the device
FREES = ("cudaFree", "hipFree", "cuMemUnmap", "cuMemRelease")


def starved_loader(name: str, facts: Facts) -> Iterator[Finding]:
    """The device is idle while the host fetches a batch."""
    for p in facts.profiles:
        lost = p.idle.by_reason[LOADING]
        if lost <= WORTH * p.window.wall:
            continue
        loads = find_names(p.trace, host_calls()[LOADING])
        spans = [s.rows(np.isin(s.name, loads)) for s in (p.trace.marks, p.trace.operators)]
        fetching = union(np.concatenate([s.start for s in spans]), np.concatenate([s.end for s in spans])).length
        fetches = max(len(s) for s in spans)  # old traces record a fetch as both
        yield Finding(
            name,
            f"idle {ms(lost)} ({lost / p.window.wall:.0%} of the window) while a batch was fetched;"
            f" {fetches} fetch{'es' if fetches != 1 else ''} took {ms(fetching)}",
            "DataLoader(num_workers=4 or more, prefetch_factor=4, pin_memory=True, persistent_workers=True); decode ahead or on the device",
            lost / 1e9,
            p.trace.path,
            {"idle_us": lost / 1000, "fetches": fetches, "fetching_us": fetching / 1000, "window_us": p.window.wall / 1000},
            ranges_of(p.idle.when.get(LOADING, NOTHING), p),
        )


def launch_bound(name: str, facts: Facts) -> Iterator[Finding]:
    """Kernels end before the host launches the next one."""
    for p in facts.profiles:
        launching = p.idle.when.get(LAUNCHING, NOTHING)
        latency = p.idle.by_reason[ARRIVING]
        alone = launching - _after_a_wait(p)[1]
        lost = alone.length + latency
        if lost <= BOUND * p.window.wall:
            continue
        median = float(np.median(p.events.end - p.events.start)) / 1000
        interval = p.window.wall / len(p.events) / 1000
        yield Finding(
            name,
            f"idle {ms(lost)} ({lost / p.window.wall:.0%} of the window) waiting for launches: {len(p.events)} device events, one every"
            f" {interval:.1f} us, with a median length of {median:.1f} us",
            "torch.compile(mode='reduce-overhead') or torch.cuda.graphs, --cuda-graph-impl, larger micro-batches, optimizer(fused=True)",
            lost / 1e9,
            p.trace.path,
            {
                "events": len(p.events),
                "median_us": median,
                "every_us": interval,
                "idle_us": lost / 1000,
                "launch_latency_us": latency / 1000,
            },
            ranges_of(alone, p),
        )


def slow_launches(name: str, facts: Facts) -> Iterator[Finding]:
    """A launch call itself takes long while the device is idle: it loads or compiles its kernel, or records a graph."""
    for p in facts.profiles:
        waited = p.idle.when.get(CALLING, NOTHING)
        if waited.length <= WORTH * p.window.wall:
            continue
        launches = p.trace.launches
        rows = np.unique(p.events.launch[p.events.launch >= 0])
        rows = rows[(launches.end[rows] - launches.start[rows]) > SLOW_CALL]
        if not len(rows):
            continue
        longest = int(rows[np.argmax(launches.end[rows] - launches.start[rows])])
        took = int(launches.end[longest] - launches.start[longest])
        kernel = p.events.name[np.flatnonzero(p.events.launch == longest)[0]]
        yield Finding(
            name,
            f"{len(rows)} launch call{'s' if len(rows) != 1 else ''} took more than {ms(SLOW_CALL)}, the longest"
            f" ({p.trace.text(launches.name[longest])} of {short_name(p.trace.text(kernel))}) {ms(took)}; the device idled"
            f" {ms(waited.length)} ({waited.length / p.window.wall:.0%} of the window) meanwhile: first launches load or compile kernels",
            "profile after a warm-up; CUDA_MODULE_LOADING=EAGER, or compile ahead of time, if every start of a job pays for it",
            waited.length / 1e9,
            p.trace.path,
            {"calls": len(rows), "longest_us": took / 1000, "idle_us": waited.length / 1000},
            ranges_of(waited, p),
        )


def synchronisation_in_the_loop(name: str, facts: Facts) -> Iterator[Finding]:
    """A call in the step waits for the device, and then the device waits until the host has launched again."""
    for p in facts.profiles:
        rows, after = _after_a_wait(p)
        if after.length <= WORTH * p.window.wall:
            continue
        names, counts = np.unique(p.trace.launches.name[rows], return_counts=True)
        calls = {p.trace.text(int(n)): int(c) for n, c in zip(names, counts, strict=True)}
        waited = int((p.trace.launches.end[rows] - p.trace.launches.start[rows]).sum())
        steps = max(len(p.steps), 1)
        yield Finding(
            name,
            f"{len(rows) / steps:.1f} calls per step wait until the device is done (mostly {max(calls, key=lambda n: calls[n])});"
            f" after them the device idles {ms(after.length)} ({after.length / p.window.wall:.0%}) until the host has launched again",
            "no .item(), .cpu(), print or tensor conditions in the step; .to(non_blocking=True) from pinned memory; log less often",
            after.length / 1e9,
            p.trace.path,
            {"calls": calls, "waited_us": waited / 1000, "idle_us": after.length / 1000, "steps": steps},
            ranges_of(after, p),
        )


def allocator_churn(name: str, facts: Facts) -> Iterator[Finding]:
    """The caching allocator calls the driver inside steps."""
    for p in facts.profiles:
        rows, since, steps = _driver_memory_calls(p)
        if not len(rows):
            continue
        calls = p.trace.launches.rows(rows)
        time, frees = int((calls.end - calls.start).sum()), int(np.isin(calls.name, find_names(p.trace, FREES)).sum())
        when = p.idle.when.get(ALLOCATING, NOTHING) & Instants(np.array([since]), np.array([p.window.end]))
        lost = when.length
        yield Finding(
            name,
            f"{len(rows) / steps:.0f} calls of the driver's allocator per step ({frees} of {len(rows)} free memory), {ms(time)} of host"
            f" time; the device idled {ms(lost)} meanwhile",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, constant shapes, no torch.cuda.empty_cache(), more free memory",
            lost / 1e9,
            p.trace.path,
            {"calls": len(rows), "frees": frees, "steps": steps, "host_us": time / 1000, "idle_us": lost / 1000},
            ranges_of(when, p),
        )
    for snapshot in facts.snapshots:
        for device in snapshot.devices:
            churn = device.churn
            if churn is not None and (churn.refills or churn.ooms):
                yield Finding(
                    name,
                    f"device {device.device}: segments were freed and requested again {churn.refills} times, {len(churn.ooms)} requests"
                    " ran out of memory",
                    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, constant shapes, more free memory",
                    None,
                    snapshot.path,
                    {"refills": churn.refills, "out_of_memory": len(churn.ooms), "segment_frees": churn.segment_frees},
                )


def _after_a_wait(p: Profile) -> tuple[Column, Instants]:
    """Calls that waited until the queue of the device was empty, and the idle time that the host took after them.

    A call that began when the device was already idle does not count: the idle time after it is launching. Time in the loader or the
    allocator belongs to their findings.
    """
    launches = p.trace.launches
    feeds = np.unique(launches.thread[p.events.launch[p.events.launch >= 0]]) if len(launches) else launches.thread
    chosen = np.isin(launches.name, find_names(p.trace, host_calls()[WAITING])) & np.isin(launches.thread, feeds)
    rows = np.flatnonzero(chosen & _in_steps(p, launches.start))
    idle = gaps(union(p.events.start, p.events.end))
    if not len(rows) or not len(idle.start):
        return rows[:0], NOTHING
    returned = launches.end[rows]
    at = np.searchsorted(idle.end, returned, "right")  # the first gap that ends after the return
    gap = np.minimum(at, len(idle.start) - 1)
    emptied = (at < len(idle.start)) & (launches.start[rows] < idle.start[gap]) & (idle.start[gap] - RETURNS <= returned)
    hit = np.unique(gap[emptied])
    elsewhere = p.idle.starved | p.idle.when.get(ALLOCATING, NOTHING)
    return rows[emptied], (p.idle.host - elsewhere) & Instants(idle.start[hit], idle.end[hit])


def _driver_memory_calls(p: Profile) -> tuple[Column, int, int]:
    """Driver calls for memory after warm-up, the time from which they count, and the number of steps; no calls where they are few.

    The cache grows in the first step, so only later steps count, and only if most of them call the driver. In a trace of one step, calls
    count only if memory is freed too.
    """
    launches = p.trace.launches
    names = [i for i in find_names(p.trace, host_calls()[ALLOCATING]).tolist() if not p.trace.text(i).endswith(ASYNCHRONOUS)]
    rows = np.flatnonzero(np.isin(launches.name, names))
    starts = np.array(sorted(s.host_start for s in p.steps), np.int64)
    if len(starts) >= 2:
        since = int(starts[1])
        rows = rows[launches.start[rows] >= since]
        per_step = np.bincount(np.searchsorted(starts, launches.start[rows], "right"), minlength=len(starts) + 1)[2:]
        return (rows if (per_step >= CHURN).mean() > MOSTLY else rows[:0]), since, len(per_step)
    frees = np.isin(launches.name[rows], find_names(p.trace, FREES)).sum()
    return (rows if frees >= CHURN and len(rows) - frees >= CHURN else rows[:0]), p.window.start, 1


def _in_steps(profile: Profile, times: Column) -> NDArray[np.bool_]:
    """Which of ``times`` are inside a step; all, where no steps are marked."""
    if not profile.steps:
        return np.ones(len(times), bool)
    inside = np.zeros(len(times), bool)
    for step in profile.steps:
        inside |= (times >= step.host_start) & (times < step.host_end)
    return inside
