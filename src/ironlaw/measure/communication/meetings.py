"""One collective across its ranks: when it could begin, how long the transfer took, and its bandwidth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.measure.communication.collectives import Link, rates, traffic_factor
from ironlaw.measure.communication.matching import Matched, Table


@dataclass(frozen=True)
class Meeting:
    """One collective across its ranks; times in ns."""

    operation: str
    bytes: int | None  # of the largest buffer
    n: int | None
    group: str
    ranks: tuple[int, ...]  # with a trace
    complete: bool  # every rank that takes part has a trace
    start: int  # the first rank's, on the common clock
    end: int  # the last rank's
    transfer: int  # latest start to latest end; an upper bound if a rank is missing
    waits: tuple[int, ...]  # by rank: from its start until the last rank started
    late: int  # the rank that started last
    ahead: int  # from the second latest start to the latest
    spread: int  # between the first and the last end

    @property
    def skew(self) -> int:
        """The sum of all waits."""
        return sum(self.waits)

    def data(self) -> dict[str, Any]:
        """Plain data. The bandwidth is an upper estimate: peers may have sent a part before the last rank started."""
        algbw, busbw = rates(self.bytes, self.transfer, traffic_factor(self.operation, self.n))
        return {
            "operation": self.operation,
            "bytes": self.bytes,
            "ranks": self.n,
            "group": self.group,
            "transfer_ns": self.transfer,
            "wait_ns": dict(zip(map(str, self.ranks), self.waits, strict=True)),
            "late_rank": self.late,
            "ends_apart_ns": self.spread,
            "algbw": algbw,
            "busbw": busbw,
            "complete": self.complete,
        }


def meetings_of(matches: list[Matched], ranks: list[int], times: Table) -> list[Meeting]:
    """The meetings of matched collectives, in order; ``times`` has them on one clock."""
    meetings = []
    for i, collective in enumerate(matches):
        present = np.flatnonzero(times.present[i])
        ends = times.end[i, present]
        meetings.append(
            Meeting(
                operation=collective.operation,
                bytes=collective.bytes,
                n=collective.n,
                group=collective.key.group,
                ranks=tuple(ranks[j] for j in present.tolist()),
                complete=collective.complete,
                start=int(times.first[i]),
                end=int(times.final[i]),
                transfer=int(times.final[i] - times.last[i]),
                waits=tuple(times.waits[i, present].tolist()),
                late=ranks[int(times.late[i])],
                ahead=int(times.last[i] - times.arrived[i, -2]),
                spread=int(ends.max() - ends.min()),
            )
        )
    return meetings


def by_size(meetings: Iterable[Meeting], link: Link | None = None) -> list[dict[str, Any]]:
    """Group complete collectives by operation, size and number of ranks, the longest total transfer first.

    Times in ns, rates in B/s. ``ideal_ns`` is the least time on the link of the catalogue, at most the best; None if unknown.
    """
    groups: dict[tuple[str, int | None, int | None], list[Meeting]] = {}
    for meeting in meetings:
        if meeting.complete:
            groups.setdefault((meeting.operation, meeting.bytes, meeting.n), []).append(meeting)
    rows = []
    for (operation, size, n), members in groups.items():
        times = sorted(m.transfer for m in members)
        middle = times[(len(times) - 1) // 2]
        ideal = link.ideal(operation, size, n) if link is not None and size is not None and n is not None else None
        factor = traffic_factor(operation, n)
        best, usual = rates(size, times[0], factor), rates(size, middle, factor)
        rows.append(
            {
                "operation": operation,
                "bytes": size,
                "ranks": n,
                "count": len(members),
                "transfer_ns": {"best": times[0], "median": middle, "total": sum(times)},
                "skew_ns": sum(m.skew for m in members),
                "ideal_ns": None if ideal is None else min(int(ideal * 1e9), times[0]),  # the latency in the catalogue may be longer
                "algbw": {"best": best[0], "median": usual[0]},
                "busbw": {"best": best[1], "median": usual[1]},
            }
        )
    return sorted(rows, key=lambda row: (-row["transfer_ns"]["total"], row["operation"], row["bytes"] or 0))
