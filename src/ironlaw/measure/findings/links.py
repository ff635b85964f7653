"""Findings about ranks, communication between them, and copies from the host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ironlaw.measure.communication.collectives import BY_NAME, Collective, Link
from ironlaw.measure.events import MEMCPY
from ironlaw.measure.findings.finding import WORTH, Facts, Finding, ms, ranges_of
from ironlaw.measure.versus.parts import exposed_by_operation
from ironlaw.measure.window import COMMUNICATION, COMPUTE

if TYPE_CHECKING:
    from ironlaw.measure.profile import Profile

SMALL = 1 << 20  # [B] used where the latency of the link is unknown: below it, latency dominates an all-reduce on any link
MANY = 4  # small ones per step: a loss, a gradient norm and a flag are reduced in any step
UNEVEN = 1.10  # the slowest stage over the mean: one layer of ten; below that there is no layer to move


def straggler_rank(name: str, facts: Facts) -> Iterator[Finding]:
    """One rank is late to collectives, and all others wait.

    The seconds are the time each other rank would save if this rank came with the second latest, for which they would still wait.
    """
    if facts.ranks is None or not facts.ranks.late_ranking:
        return
    ranks = facts.ranks
    first, others = ranks.late_ranking[0], max(len(ranks.ranks) - 1, 1)
    wall = max(p.window.wall for p in facts.profiles)
    waited = first.made_others_wait / others
    together = sum(m.operation != "send_recv" for m in ranks.meetings)
    if waited <= WORTH * wall:
        return
    did = max(first.while_late, key=lambda what: first.while_late[what]) if first.while_late else "unknown"
    yield Finding(
        name,
        f"rank {first.rank} was last in {first.late} of {together} collectives; each of the other {others} waited {ms(waited)} for it on"
        f" average, {ms(first.ahead)} of this for no other rank; in most of that time it was {_DOING.get(did, did)}",
        "profile that rank: its input, host, clocks and share of the work; swap its node and see whether the delay moves with it",
        first.ahead / 1e9,
        None,
        {
            "rank": first.rank,
            "late": first.late,
            "collectives": together,
            "others_waited_us": waited / 1000,
            "ahead_us": first.ahead / 1000,
            "while_late_us": {k: v / 1000 for k, v in first.while_late.items()},
            "rank_us_waited_for": {str(t.rank): t.made_others_wait / 1000 for t in ranks.late_ranking},
        },
    )


_DOING = {
    "idle": "idle, waiting for its host",
    "compute": "computing",
    "copy": "copying",
    "communication": "in another collective",
    "before_its_trace": "not yet traced, so the cause is unknown",
}


def uneven_stages(name: str, facts: Facts) -> Iterator[Finding]:
    """Pipeline stages have different amounts of work, so all wait for the slowest."""
    if facts.ranks is None:
        return
    compute = {i if p.trace.rank is None else p.trace.rank: p.window.compute for i, p in enumerate(facts.profiles) if _is_stage(p)}
    if len(compute) < 2:
        return
    mean = sum(compute.values()) / len(compute)
    longest = max(compute, key=lambda rank: compute[rank])
    if compute[longest] > UNEVEN * mean:
        yield Finding(
            name,
            f"rank {longest} computes for {ms(compute[longest])}, {compute[longest] / mean:.2f} times the mean of the {len(compute)} ranks"
            f" of the pipeline ({ms(mean)})",
            "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers, --account-for-embedding-in-pipeline-split,"
            " --account-for-loss-in-pipeline-split, or smaller chunks: --num-layers-per-virtual-pipeline-stage",
            (compute[longest] - mean) / 1e9,
            None,
            {"compute_us": {str(rank): ns / 1000 for rank, ns in compute.items()}, "mean_us": mean / 1000},
        )


def _is_stage(p: Profile) -> bool:
    """Whether the rank exchanges messages with one other rank. The kernel name is no evidence: NCCL runs all-to-alls in the same kernel."""
    return any(c.operation == "send_recv" and (c.pair is not None or c.said_by != BY_NAME) for c in p.collectives)


def small_all_reduces(name: str, facts: Facts) -> Iterator[Finding]:
    """All-reduces are so small that latency dominates them."""
    for p in facts.profiles:
        link = p.link
        reduced = [c for c in p.collectives if c.operation == "all_reduce" and c.bytes is not None]
        small = [c for c in reduced if _is_small(c, link)]
        steps = max(len(p.steps), 1)
        if len(small) < MANY * steps:
            continue
        chosen = np.isin(p.rows, [c.row for c in small])
        when = p.ran(chosen) - p.ran(p.event_classes == COMPUTE)
        exposed = when.length
        latencies = [_find_latency(c, link) for c in small]
        latency = sum(latencies) if all(latencies) else None
        lost = exposed if latency is None else min(float(exposed), latency)
        if lost <= WORTH * p.window.wall:
            continue
        by_size: dict[int, int] = defaultdict(int)
        for c in small:
            by_size[c.bytes or 0] += 1
        why = (
            f"less than {SMALL >> 20} MiB each"
            if latency is None
            else f"so little that latency is most of the transfer ({ms(latency)} in total)"
        )
        yield Finding(
            name,
            f"{len(small) / steps:.0f} all-reduces per step move {why}; {ms(exposed)} are exposed, including waiting for late ranks",
            "DistributedDataParallel(bucket_cap_mb=100), --ddp-bucket-size, no_sync() while accumulating, statistics joined in one tensor",
            lost / 1e9,
            p.trace.path,
            {
                "calls": len(small),
                "steps": steps,
                "exposed_us": exposed / 1000,
                "latency_us": None if latency is None else latency / 1000,
                "calls_by_bytes": {str(size): count for size, count in sorted(by_size.items())},
            },
            ranges_of(when, p),
        )


def _find_latency(c: Collective, link: Link | None) -> float:
    """Latency of the collective on the link [ns], 0 if unknown."""
    seconds = link.ideal(c.operation, 0, c.n) if link is not None and c.n else None
    return (seconds or 0.0) * 1e9


def _is_small(c: Collective, link: Link | None) -> bool:
    """Whether latency is more than half of the transfer."""
    latency = _find_latency(c, link)
    if link is None or not latency or c.n is None:
        return (c.bytes or 0) < SMALL
    return (link.ideal(c.operation, c.bytes or 0, c.n) or 0.0) * 1e9 < 2 * latency


def exposed_gather(name: str, facts: Facts) -> Iterator[Finding]:
    """Weights are gathered, or gradients scattered, while nothing computes."""
    for p in facts.profiles:
        exposed = exposed_by_operation(p)
        gather, scatter = exposed.get("all_gather", 0), exposed.get("reduce_scatter", 0)
        lost = gather + scatter
        if lost <= WORTH * p.window.wall:
            continue
        chosen = np.isin(p.rows, [c.row for c in p.collectives if c.operation in ("all_gather", "reduce_scatter")])
        parts = [f"{ms(ns)} of {operation}" for ns, operation in ((gather, "all-gathers"), (scatter, "reduce-scatters")) if ns]
        yield Finding(
            name,
            f"{' and '.join(parts)} ({lost / p.window.wall:.0%} of the window) are exposed, including waiting for late ranks",
            "FSDP forward_prefetch=True, backward_prefetch=BACKWARD_PRE, HYBRID_SHARD; --overlap-param-gather, --overlap-grad-reduce,"
            " --tp-comm-overlap; larger micro-batches",
            lost / 1e9,
            p.trace.path,
            {"all_gather_us": gather / 1000, "reduce_scatter_us": scatter / 1000, "window_us": p.window.wall / 1000},
            ranges_of(p.ran(chosen) - p.ran(p.event_classes == COMPUTE), p),
        )


def pageable_copies(name: str, facts: Facts) -> Iterator[Finding]:
    """Copies from or to host memory that is not pinned: the driver stages them and the host waits."""
    for p in facts.profiles:
        pageable = [i for i, n in enumerate(p.trace.names) if "Pageable" in n]
        chosen = (p.events.kind == MEMCPY) & np.isin(p.events.name, pageable)
        when = p.ran(chosen) - p.ran((p.event_classes == COMPUTE) | (p.event_classes == COMMUNICATION))
        lost = when.length
        if lost <= WORTH * p.window.wall:
            continue
        sizes = p.events.size[chosen]
        moved = int(sizes[sizes >= 0].sum())
        rate = f", {moved / 1e6:.1f} MB" if moved else ""
        yield Finding(
            name,
            f"{int(chosen.sum())} copies from or to pageable host memory{rate}: {ms(lost)} of them ({lost / p.window.wall:.1%}"
            " of the window) overlap with no kernel",
            "DataLoader(pin_memory=True) and tensor.to(device, non_blocking=True); keep results on the device until they are logged",
            lost / 1e9,
            p.trace.path,
            {"copies": int(chosen.sum()), "bytes": moved or None, "exposed_us": lost / 1000},
            ranges_of(when, p),
        )
