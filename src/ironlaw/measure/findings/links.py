"""Findings about ranks and what runs between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ironlaw.measure.findings.finding import Facts, Finding
from ironlaw.measure.parts import exposed_by_operation

WORTH = 0.02  # of the window
SMALL = 1 << 20  # [B] an all-reduce below it is paced by latency on every link there is
MANY = 4  # small ones a step
UNEVEN = 1.10  # the most loaded stage over the mean


def straggler_rank(name: str, facts: Facts) -> Iterator[Finding]:
    """One rank comes late to the collectives, and all others wait."""
    if facts.ranks is None or not facts.ranks.late_ranking:
        return
    first = facts.ranks.late_ranking[0]
    wall = max(p.window.wall for p in facts.profiles)
    others = max(len(facts.ranks.ranks) - 1, 1)
    did = max(first.while_late, key=lambda what: first.while_late[what]) if first.while_late else "unknown"
    if first.made_others_wait > WORTH * wall * others:
        yield Finding(
            name,
            f"rank {first.rank} came last to {first.late} of {len(facts.ranks.meetings)} collectives and kept each of the other {others}"
            f" waiting {first.made_others_wait / others / 1e6:.2f} ms; most of that time it was {_DOING.get(did, did)}",
            "profile that rank: its input, its host, its clocks, its share of the work; swap the node to see whether it goes along",
            first.made_others_wait / others / 1e9,
            None,
            {"rank": first.rank, "late": first.late, "while_late_us": {k: v / 1000 for k, v in first.while_late.items()}},
        )


_DOING = {"idle": "idle, waiting for its host", "compute": "computing", "copy": "copying", "communication": "in another collective"}


def uneven_stages(name: str, facts: Facts) -> Iterator[Finding]:
    """Pipeline stages have different amounts of work, and the slowest sets the pace."""
    staged = [p for p in facts.profiles if any(c.operation == "send_recv" for c in p.collectives)]
    if len(staged) < 2:
        return
    work = {p.trace.rank: p.window.compute for p in staged}
    mean = sum(work.values()) / len(work)
    most = max(work, key=lambda rank: work[rank])
    if work[most] > UNEVEN * mean:
        yield Finding(
            name,
            f"rank {most} computes {work[most] / 1e6:.1f} ms, the ranks of the pipeline {mean / 1e6:.1f} ms on average",
            "move layers off that stage (embedding and loss count as a layer each), or more, smaller chunks (vpp)",
            (work[most] - mean) / 1e9,
            None,
            {"compute_us": {str(rank): ns / 1000 for rank, ns in work.items()}},
        )


def small_all_reduces(name: str, facts: Facts) -> Iterator[Finding]:
    """Gradients or statistics are reduced in pieces too small for the link."""
    for p in facts.profiles:
        small = [c for c in p.collectives if c.operation == "all_reduce" and c.bytes is not None and c.bytes < SMALL]
        steps = max(len(p.steps), 1)
        if len(small) < MANY * steps:
            continue
        by_size: dict[int, int] = defaultdict(int)
        for c in small:
            by_size[c.bytes or 0] += 1
        time = sum(c.duration for c in small)
        if time > WORTH * p.window.wall:
            yield Finding(
                name,
                f"{len(small) / steps:.0f} all-reduces a step move less than {SMALL >> 20} MiB each, {time / 1e6:.2f} ms in all",
                "larger gradient buckets (bucket_cap_mb), one reduction of joined statistics, no_sync() while accumulating",
                time / 1e9,
                p.trace.path,
                {"calls_by_bytes": {str(size): count for size, count in sorted(by_size.items())}},
            )


def exposed_gather(name: str, facts: Facts) -> Iterator[Finding]:
    """Weights are gathered with nothing to compute meanwhile."""
    for p in facts.profiles:
        lost = exposed_by_operation(p).get("all_gather", 0)
        if lost > WORTH * p.window.wall:
            yield Finding(
                name,
                f"{lost / 1e6:.1f} ms ({lost / p.window.wall:.0%}) of all-gathers are not hidden behind compute",
                "prefetch the next layer's weights (forward_prefetch, overlapped gathers), larger micro-batches, less sharding (HSDP)",
                lost / 1e9,
                p.trace.path,
            )
