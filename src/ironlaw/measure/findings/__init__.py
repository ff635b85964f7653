"""Findings: single causes of lost time. Each names its evidence, the seconds lost, what to try, and its page in the docs.

A finding is a function that reads ``Facts`` and yields a ``Finding`` for each file with evidence. FINDINGS lists the functions by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ironlaw.measure.findings import device, from_logs, host, links, memory, numbers, recording, streams
from ironlaw.measure.findings.finding import Facts, Finding

if TYPE_CHECKING:
    from ironlaw.measure.communication.ranks import Ranks
    from ironlaw.measure.logs.reading import LogReading
    from ironlaw.measure.profile import Profile
    from ironlaw.measure.profiler_cost import ProfilerCost
    from ironlaw.measure.read.memory_text import MemoryText
    from ironlaw.measure.read.snapshot import Snapshot

FINDINGS = {
    "starved-loader": host.starved_loader,
    "launch-bound": host.launch_bound,
    "slow-launches": host.slow_launches,
    "stream-wait": streams.stream_wait,
    "synchronisation-in-the-loop": host.synchronisation_in_the_loop,
    "allocator-churn": host.allocator_churn,
    "out-of-memory": memory.out_of_memory,
    "warm-up-steps": recording.warm_up_steps,
    "profiler-overhead": recording.profiler_overhead,
    "straggler-rank": links.straggler_rank,
    "uneven-stages": links.uneven_stages,
    "small-all-reduces": links.small_all_reduces,
    "exposed-gather": links.exposed_gather,
    "pageable-copies": links.pageable_copies,
    "unfused-chains": device.unfused_chains,
    "wrong-precision-kernels": device.wrong_precision_kernels,
    "throttling": device.throttling,
    "mfu-above-100-percent": numbers.mfu_above_100_percent,
}
OF_LOGS = tuple(dict.fromkeys(from_logs.NAMES.values()))


def findings_of(
    profiles: Sequence[Profile],
    ranks: Ranks | None,
    logs: Sequence[LogReading],
    snapshots: Sequence[Snapshot],
    profiler_costs: Sequence[ProfilerCost] = (),
    texts: Sequence[MemoryText] = (),
) -> tuple[Finding, ...]:
    """Collect all findings, the one with most seconds lost first; those without seconds last."""
    facts = Facts(tuple(profiles), ranks, tuple(logs), tuple(snapshots), tuple(texts), tuple(profiler_costs))
    findings = [finding for name, look in FINDINGS.items() for finding in look(name, facts)]
    findings += [finding for name in OF_LOGS for finding in from_logs.of_logs(name, facts)]
    return tuple(sorted(findings, key=lambda f: -(f.seconds_lost or 0.0)))
