"""Align the ranks of a job; split each collective into transfer and waiting, and find the ranks that others wait for.

A collective can move its data only when the last rank has started it. The time from its latest start to its latest end is transfer. The
time that a rank spends in it before is waiting (skew), caused by whatever delayed the last rank. Clocks of several hosts are aligned on
the ends of collectives, which the ranks reach together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.cautions.record import Caution, as_record
from ironlaw.cautions.table import caution
from ironlaw.errors import InputError
from ironlaw.measure.communication.classify import Classified, Mask, classify
from ironlaw.measure.communication.collectives import Collective, Link, collectives
from ironlaw.measure.communication.matching import Matched, Table, Times, match, pairs_by_time, table
from ironlaw.measure.communication.meetings import Meeting, by_size, meetings_of
from ironlaw.measure.events import DeviceEvents, Trace
from ironlaw.measure.intervals import Instants, union
from ironlaw.measure.window import COMMUNICATION, COMPUTE, COPY, classify_events, split_window, split_windows, time_by_state

SAME_CLOCK = 10_000  # [ns] ends of one collective on one clock are a few microseconds apart; a smaller offset is ignored
_RESIDUAL = 100_000  # [ns] ends that are further apart after alignment cause a warning
_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")  # operations that end on all ranks together
_EARLIEST, _FARTHEST = -(2**50), 2**61  # [ns] until 2043; sums of two such times and an offset still fit 64 bits
_MOST_RANKS = 1 << 20  # no job has more; for a larger number missing ranks are not listed
_SHOWN = 200  # collectives in data(), the longest ones


@dataclass(frozen=True)
class RankTotal:
    """Totals of one rank in ns; exposed_transfer + exposed_wait + exposed_unmatched is all its exposed communication."""

    rank: int
    span: int
    compute: int
    idle: int
    communication: int  # time in which a communication kernel runs
    transfer: int  # of matched collectives
    wait: int  # in matched collectives
    spin: int  # of kernels that do nothing but wait for peers
    exposed_transfer: int
    exposed_wait: int  # including kernels that only wait
    exposed_unmatched: int  # communication without a match on another rank: transfer or waiting
    late: int  # number of collectives (without messages) to which it came last
    made_others_wait: int  # waiting for it, summed over the other ranks
    ahead: int  # time each other rank would save if it came with the second latest
    while_late: dict[str, int]  # what it did meanwhile: compute, communication, copy, idle, or before its trace

    def data(self, median: int) -> dict[str, Any]:
        """Plain data; ``median`` is the median compute time of the ranks."""
        values = {name if name in ("rank", "late") else f"{name}_ns": value for name, value in self.__dict__.items()}
        return values | {"compute_over_median": self.compute / median if median else None}


@dataclass(frozen=True)
class Ranks:
    """All ranks of a job."""

    ranks: tuple[int, ...]
    world_size: int | None
    missing: tuple[int, ...]
    offsets: dict[int, int]  # [ns] by which the clock of each rank was ahead
    residual_max: int  # [ns] between the ends of one collective, after alignment
    residual_p95: int
    meetings: tuple[Meeting, ...]  # by start
    totals: tuple[RankTotal, ...]  # by rank
    warnings: tuple[Caution, ...]
    places: tuple[int, ...] = ()  # for each rank, the index of its trace

    @property
    def partial(self) -> bool:
        """Whether a rank without a trace may have been the late one of a collective."""
        return bool(self.missing) or any(m.n is not None and not m.complete for m in self.meetings)

    @property
    def late_ranking(self) -> list[RankTotal]:
        """The ranks that others waited for, the longest wait first."""
        return sorted((t for t in self.totals if t.late), key=lambda t: (-t.made_others_wait, t.rank))

    def data(self, link: Link | None = None) -> dict[str, Any]:
        """Plain data for JSON; ``link`` gives the least time of each collective."""
        longest = sorted(self.meetings, key=lambda m: -(m.transfer + m.skew))[:_SHOWN]
        compute = sorted(t.compute for t in self.totals)
        middle = compute[(len(compute) - 1) // 2] if compute else 0
        return {
            "ranks": list(self.ranks),
            "world_size": self.world_size,
            "missing": list(self.missing),
            "clock": {
                "ahead_ns": {str(rank): offset for rank, offset in self.offsets.items()},
                "ends_apart_ns": {"max": self.residual_max, "p95": self.residual_p95},
            },
            "collectives": len(self.meetings),
            "transfer_ns": sum(m.transfer for m in self.meetings),
            "skew_ns": sum(m.skew for m in self.meetings),
            "meetings": [m.data() for m in sorted(longest, key=lambda m: m.start)],
            "by_size": by_size(self.meetings, link),
            "by_rank": [t.data(middle) for t in self.totals],
            "late": [t.rank for t in self.late_ranking],
            "warnings": [as_record(one) for one in self.warnings],
        }


def align(traces: Sequence[Trace], classified: Sequence[Classified] | None = None, counted: Sequence[Mask] | None = None) -> Ranks:
    """Align the traces of a job, one for each rank, on their collectives."""
    classifications = list(classified) if classified is not None else [classify(t) for t in traces]
    masks = list(counted) if counted is not None else [np.ones(len(t.events), bool) for t in traces]
    trace_of_rank, warnings = _assign_ranks(traces)
    ranks = sorted(trace_of_rank)
    chosen = {rank: (traces[i], classifications[i], masks[i]) for rank, i in sorted(trace_of_rank.items())}
    calls = {rank: collectives(*of_rank) for rank, of_rank in chosen.items()}
    clock = _clocks({rank: trace for rank, (trace, _, _) in chosen.items()})
    matching = match(calls, clock)
    warnings += matching.warnings
    offsets, clock_warnings = _offsets(
        list(matching.matched), ranks, clock, {rank: _read_host(trace) for rank, (trace, _, _) in chosen.items()}
    )
    warnings += clock_warnings
    clock = {rank: clock[rank] - offsets[rank] for rank in ranks}
    pairs = pairs_by_time(matching.one_sided, clock)
    for rank, count in _unpaired(matching.unmatched, matching.one_sided, pairs).items():
        warnings.append(caution("unmatched-calls", rank=rank, count=count, calls=len(calls[rank])))
    matches = [*matching.matched, *pairs]
    times = table(matches, ranks, clock)
    meetings = meetings_of(matches, ranks, times)
    spreads = np.array([m.spread for m in meetings if m.operation in _TOGETHER], np.int64)
    worst = int(spreads.max()) if len(spreads) else 0
    p95 = int(np.sort(spreads)[int(np.ceil(0.95 * len(spreads))) - 1]) if len(spreads) else 0
    if p95 > _RESIDUAL:
        warnings.append(caution("ends-apart", ns=p95))
    joint = np.array([m.operation != "send_recv" for m in matches], bool)  # a pipeline stage that waits for its neighbour is not late
    totals = tuple(_total_rank(rank, column, *chosen[rank], times, joint, clock[rank]) for column, rank in enumerate(ranks))
    world, missing, job_warnings = _find_missing(traces, ranks)
    return Ranks(
        ranks=tuple(ranks),
        world_size=world,
        missing=missing,
        offsets=offsets,
        residual_max=worst,
        residual_p95=p95,
        meetings=tuple(sorted(meetings, key=lambda m: (m.start, m.end, m.ranks))),
        totals=totals,
        warnings=(*warnings, *job_warnings),
        places=tuple(trace_of_rank[rank] for rank in ranks),
    )


def _find_missing(traces: Sequence[Trace], ranks: Sequence[int]) -> tuple[int | None, tuple[int, ...], list[Caution]]:
    """The number of ranks in the job, the missing ranks, and warnings."""
    warnings = []
    worlds = sorted({t.world_size for t in traces if t.world_size is not None})
    if len(worlds) > 1:
        warnings.append(caution("several-jobs", sizes=worlds[:8]))
    world = worlds[-1] if worlds else None
    missing = tuple(sorted(set(range(world)) - set(ranks))) if world is not None and world < _MOST_RANKS else ()
    if missing:
        shown = ", ".join(map(str, missing[:16])) + (f" and {len(missing) - 16} more" if len(missing) > 16 else "")
        warnings.append(caution("ranks-missing", count=len(missing), world_size=world, ranks=shown))
    return world, missing, warnings


def _assign_ranks(traces: Sequence[Trace]) -> tuple[dict[int, int], list[Caution]]:
    """The trace of each rank, and warnings about the rank numbers in the files."""
    distinct, warnings = _drop_repeats(traces)
    devices = Counter(_file_of(traces[i]) for i in distinct)
    for (path, _), count in devices.items():
        if count > 1:
            warnings.append(caution("several-devices", path=path, count=count))
    trace_of_rank: dict[int, int] = {}
    unnamed = []
    for i in distinct:
        trace = traces[i]
        if trace.rank is None or devices[_file_of(trace)] > 1:
            unnamed.append(i)
        elif trace.rank in trace_of_rank:
            first = traces[trace_of_rank[trace.rank]].path
            warnings.append(caution("second-trace", path=trace.path, rank=trace.rank, trace=first))
        else:
            trace_of_rank[trace.rank] = i
    free = 0
    for i in unnamed:
        while free in trace_of_rank:
            free += 1
        trace_of_rank[free] = i
        if devices[_file_of(traces[i])] == 1:
            warnings.append(caution("no-rank", path=traces[i].path, rank=free))
    return trace_of_rank, warnings


def _drop_repeats(traces: Sequence[Trace]) -> tuple[list[int], list[Caution]]:
    """Leave out traces that are given twice."""
    once: list[int] = []
    warnings = []
    for i, trace in enumerate(traces):
        if any(trace.path == traces[j].path and np.array_equal(trace.events.start, traces[j].events.start) for j in once):
            warnings.append(caution("given-twice", path=trace.path))
        else:
            once.append(i)
    return once, warnings


def _file_of(trace: Trace) -> tuple[str, int | None]:
    return trace.path, trace.rank


def _clocks(traces: dict[int, Trace]) -> dict[int, int]:
    """The time to add on each rank, from the base times in the files; 0 if the result would overflow."""
    for trace in traces.values():
        events = trace.events
        first, last = (int(events.start.min()), int(events.end.max())) if len(events) else (0, 0)
        if first <= _EARLIEST or last >= _FARTHEST:
            raise InputError(f"{trace.path}: its events are at {first} to {last} ns, which is out of range; export the trace again")
    base = min((t.base for t in traces.values()), default=0)
    if any(t.base - base >= _FARTHEST for t in traces.values()):
        return dict.fromkeys(traces, 0)
    return {rank: t.base - base for rank, t in traces.items()}


def _read_host(trace: Trace) -> str | None:
    """The name of the host that a trace records."""
    for name in ("HOSTNAME", "hostname", "host_name"):
        host = trace.properties.get(name)
        if isinstance(host, str) and host:
            return host
    return None


def _offsets(
    matches: list[Matched], ranks: list[int], clock: dict[int, int], hosts: dict[int, str | None]
) -> tuple[dict[int, int], list[Caution]]:
    """By how much the clock of each rank is ahead: the lower median of its ends less those of ranks already aligned."""
    offsets = dict.fromkeys(ranks, 0)
    together = [m for m in matches if m.operation in _TOGETHER] or matches
    times = table(together, ranks, clock)
    end, present = times.end, times.present
    if not len(together):
        return offsets, [caution("nothing-shared", ranks=len(ranks))] if len(ranks) > 1 else []
    aligned = np.zeros(len(ranks), bool)
    aligned[int(np.argmax(present.sum(axis=0)))] = True
    ahead = np.zeros(len(ranks), np.int64)
    while True:
        placed = present & aligned
        anchored = placed.any(axis=1)
        anchor = _row_median(end - ahead, placed)
        fresh = [j for j in np.flatnonzero(~aligned).tolist() if (present[:, j] & anchored).any()]
        if not fresh:
            break
        for j in fresh:
            shared = present[:, j] & anchored
            differences = np.sort(end[shared, j] - anchor[shared])
            ahead[j] = differences[(len(differences) - 1) // 2]
        aligned[fresh] = True
    ahead = _by_host(ahead, [hosts[rank] for rank in ranks])
    warnings = []
    for j, rank in enumerate(ranks):
        if not aligned[j]:
            warnings.append(caution("shares-nothing", rank=rank))
        elif abs(int(ahead[j])) > SAME_CLOCK:
            offsets[rank] = int(ahead[j])
    return offsets, warnings


def _row_median(values: Times, chosen: NDArray[np.bool_]) -> Times:
    """The lower median of the chosen values in each row; undefined if none is chosen."""
    ordered = np.sort(np.where(chosen, values, np.iinfo(np.int64).max), axis=1)
    at = np.maximum(chosen.sum(axis=1) - 1, 0) // 2
    return np.take_along_axis(ordered, at[:, None], axis=1)[:, 0]


def _by_host(ahead: Times, hosts: list[str | None]) -> Times:
    """One offset for all ranks of a host, which share its clock, where the files have host names."""
    result = ahead.copy()
    for host in {h for h in hosts if h is not None}:
        columns = [j for j, h in enumerate(hosts) if h == host]
        result[columns] = np.sort(ahead[columns])[(len(columns) - 1) // 2]
    return result


def _unpaired(unmatched: dict[int, int], loose: dict[int, list[Collective]], pairs: list[Matched]) -> dict[int, int]:
    """By rank, the calls that matched neither by group nor as messages."""
    counts = dict(unmatched)
    for rank, messages in loose.items():
        counts[rank] = counts.get(rank, 0) + len(messages) - sum(rank in m.calls for m in pairs)
    return {rank: count for rank, count in sorted(counts.items()) if count}


def _total_rank(
    rank: int, column: int, trace: Trace, classified: Classified, counted: Mask, times: Table, joint: Mask, clock: int
) -> RankTotal:
    """Sum the time of one rank by activity, and the time that it waited for others or they for it."""
    events, mask, spins = trace.events.rows(counted), classified.mask[counted], classified.waits[counted]
    window = split_window(events, mask)
    took_part = times.present[:, column]
    late = took_part & (times.late == column) & joint
    begin, finish, middle = (t[took_part, column] - clock for t in (times.start, times.end, times.cut))
    waiting = np.concatenate([begin, events.start[spins]]), np.concatenate([middle, events.end[spins]])
    exposed_transfer, exposed_wait = _sum_exposed(events.start, events.end, classify_events(events, mask), waiting, (middle, finish))
    return RankTotal(
        rank=rank,
        span=window.wall,
        compute=window.compute,
        idle=window.idle,
        communication=window.comm,
        transfer=int((times.final - times.last)[took_part].sum()),
        wait=int(times.waits[took_part, column].sum()),
        spin=int((events.end - events.start)[spins].sum()),
        exposed_transfer=exposed_transfer,
        exposed_wait=exposed_wait,
        exposed_unmatched=window.exposed_comm - exposed_transfer - exposed_wait,
        late=int(late.sum()),
        made_others_wait=int(times.waits[late].sum()),
        ahead=int((times.last[late] - times.arrived[late, -2]).sum()),
        while_late=_split_by_activity(trace, events, mask, union(times.first[late] - clock, times.last[late] - clock)),
    )


def _split_by_activity(trace: Trace, events: DeviceEvents, communicates: Mask, when: Instants) -> dict[str, int]:
    """Time of a rank by activity while others waited for it; time before its trace is unknown."""
    begin = _find_begin(trace)
    windows = split_windows(events, communicates, np.maximum(when.start, begin), np.maximum(when.end, begin))
    return {
        "compute": sum(w.compute for w in windows),
        "communication": sum(w.exposed_comm for w in windows),
        "copy": sum(w.exposed_copy for w in windows),
        "idle": sum(w.idle for w in windows),
        "before_its_trace": when.length - sum(w.wall for w in windows),
    }


def _find_begin(trace: Trace) -> int:
    """When the trace of a rank begins; only its own threads count, because ranks in one file share the calls."""
    launch = trace.events.launch[trace.events.launch >= 0]
    threads = np.unique(trace.launches.thread[launch])
    host = [c.start[np.isin(c.thread, threads)] if len(threads) else c.start for c in (trace.launches, trace.operators, trace.marks)]
    return min((int(start.min()) for start in (trace.events.start, *host) if len(start)), default=0)


def _sum_exposed(start: Times, end: Times, bits: Times, waits: tuple[Times, Times], transfers: tuple[Times, Times]) -> tuple[int, int]:
    """Exposed nanoseconds of transfer and of waiting, in which no compute kernel ran."""
    compute = bits == COMPUTE
    starts = np.concatenate([start[compute], transfers[0], waits[0]])
    ends = np.concatenate([end[compute], transfers[1], waits[1]])
    kinds = np.repeat([COMPUTE, COMMUNICATION, COPY], [int(compute.sum()), len(transfers[0]), len(waits[0])])
    state = time_by_state(starts, ends, kinds)
    return int(state[2] + state[6]), int(state[4])
