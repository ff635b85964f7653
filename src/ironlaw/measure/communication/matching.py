"""Match the calls of one collective on all its ranks.

Calls of one process group run in the same order on all its ranks, so the k-th call matches the k-th. Sequence numbers are used where a file
has them. If the trace of a rank begins later or ends earlier, the shift with the best agreement is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.measure.communication.collectives import Collective

Times = NDArray[np.int64]
_MOST_SHIFTS = 64  # calls: the largest offset between the beginnings of two traces
_ENDS_APART = 20_000  # [ns] between the ends of a message on sender and receiver, on one clock
_LOOK_AHEAD = 64
UNEVEN = ("all_to_all",)  # operations whose buffers may differ between ranks


@dataclass(frozen=True)
class Key:
    """Values that calls must share to match."""

    group: str
    ranks: tuple[int, ...]
    pair: tuple[int, int] | None


@dataclass(frozen=True)
class Matched:
    """One collective and its call on each rank."""

    key: Key
    operation: str
    calls: dict[int, Collective]  # by rank

    @property
    def bytes(self) -> int | None:
        """Bytes of the largest buffer."""
        return max((c.bytes for c in self.calls.values() if c.bytes is not None), default=None)

    @property
    def n(self) -> int | None:
        """Number of ranks that take part, with or without a trace."""
        return max((c.n for c in self.calls.values() if c.n is not None), default=None)

    @property
    def complete(self) -> bool:
        """Whether every rank that takes part has a trace."""
        return self.n is not None and len(self.calls) >= self.n


@dataclass(frozen=True)
class Matching:
    """All matched collectives, and problems with the rest."""

    matched: tuple[Matched, ...]
    one_sided: dict[int, list[Collective]]  # by rank: messages whose other side is not recorded, for `pairs_by_time`
    unmatched: dict[int, int]  # by rank: number of calls without a match
    warnings: tuple[Caution, ...]


def match(calls: dict[int, list[Collective]], clock: dict[int, int]) -> Matching:
    """Match the calls of all ranks; ``clock`` is the time to add on each rank to come near a common clock."""
    groups: dict[Key, dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for rank, rank_calls in calls.items():
        for call in rank_calls:
            groups[_key(call)][rank].append(call)
    matches: list[Matched] = []
    one_sided: dict[int, list[Collective]] = defaultdict(list)
    unmatched: dict[int, int] = defaultdict(int)
    warnings: list[Caution] = []
    for key, by_rank in groups.items():
        ordered, messages = _separate_messages(key, dict(sorted(by_rank.items())))
        for rank, rank_messages in messages.items():
            one_sided[rank] += rank_messages
        matched, problems = _match_group(key, ordered, clock)
        matches += matched
        warnings += problems
        matched_calls = {(rank, call.row) for collective in matched for rank, call in collective.calls.items()}
        for rank, rank_calls in ordered.items():
            unmatched[rank] += sum((rank, call.row) not in matched_calls for call in rank_calls)
    return Matching(tuple(matches), dict(one_sided), {rank: count for rank, count in unmatched.items() if count}, tuple(warnings))


def _key(call: Collective) -> Key:
    return Key(call.group, tuple(sorted(call.ranks)) if call.pair is None else (), call.pair)


def _separate_messages(key: Key, by_rank: dict[int, list[Collective]]) -> tuple[dict[int, list[Collective]], dict[int, list[Collective]]]:
    """Separate calls that can be matched by their order from messages inside a larger group, which cannot."""
    if key.pair is not None or len(key.ranks) == 2:
        return by_rank, {}
    plain = {rank: [c for c in calls if c.operation != "send_recv"] for rank, calls in by_rank.items()}
    messages = {rank: [c for c in calls if c.operation == "send_recv"] for rank, calls in by_rank.items()}
    if len([rank for rank, calls in messages.items() if calls]) == 2 and len({len(m) for m in messages.values() if m}) == 1:
        return by_rank, {}  # only two ranks, so their messages match
    return {r: m for r, m in plain.items() if m}, {r: m for r, m in messages.items() if m}


def _match_group(key: Key, by_rank: dict[int, list[Collective]], clock: dict[int, int]) -> tuple[list[Matched], list[Caution]]:
    """Match the calls of one process group: by sequence number where all have one, else by order. Also returns warnings."""
    if len(by_rank) < 2:
        return [], []
    group = f"process group {key.group!r}" if key.group else "the process group without a name"
    size = max((c.n for calls in by_rank.values() for c in calls if c.n is not None), default=None)
    if size is not None and not key.ranks and key.pair is None and len(by_rank) > size:
        return [], [caution("several-groups", process_group=group, size=size, traces=len(by_rank))]
    if all(_have_numbers(calls) for calls in by_rank.values()):
        return _by_sequence(key, by_rank), []
    warnings = []
    counts = {rank: len(calls) for rank, calls in by_rank.items()}
    if len(set(counts.values())) > 1:
        counted = ", ".join(f"rank {rank}: {count}" for rank, count in list(counts.items())[:16])
        warnings.append(caution("unequal-calls", process_group=group, counted=counted))
    base = max(by_rank, key=lambda rank: (len(by_rank[rank]), -rank))
    rows: list[dict[int, Collective]] = [{base: call} for call in by_rank[base]]
    differ = 0
    for rank, calls in by_rank.items():
        if rank == base:
            continue
        shift = _find_shift(by_rank[base], calls, clock[rank] - clock[base])
        for i, call in enumerate(calls):
            at = i - shift
            if 0 <= at < len(rows):
                if rows[at][base].operation == call.operation:
                    rows[at][rank] = call
                else:
                    differ += 1
    if differ:
        warnings.append(caution("unequal-operations", process_group=group, count=differ, rank=base))
    return [Matched(key, row[base].operation, row) for row in rows if len(row) > 1], warnings


def _have_numbers(calls: list[Collective]) -> bool:
    """Whether every call has a sequence number of its own."""
    numbers = [c.sequence for c in calls]
    return None not in numbers and len(set(numbers)) == len(numbers)


def _by_sequence(key: Key, by_rank: dict[int, list[Collective]]) -> list[Matched]:
    """Match calls that have the same sequence number and operation."""
    rows: dict[tuple[int, str], dict[int, Collective]] = defaultdict(dict)
    for rank, calls in by_rank.items():
        for call in calls:
            rows[(call.sequence or 0, call.operation)][rank] = call
    return [Matched(key, operation, row) for (_, operation), row in sorted(rows.items()) if len(row) > 1]


def _find_shift(base: list[Collective], other: list[Collective], clock: int) -> int:
    """How many calls later than ``base`` the list ``other`` begins; negative if it lacks the first calls.

    The best shift has most calls that agree, then the steadiest difference of the ends, then the smallest difference.
    """
    if len(base) == len(other) and all(a.operation == b.operation for a, b in zip(base, other, strict=True)):
        return 0
    labels: dict[tuple[str, int | None], int] = {}
    sides = []
    for side in (base, other):
        sides.append(np.array([labels.setdefault(_label(c), len(labels)) for c in side], np.int64))
    ends_base = np.array([c.end for c in base], np.int64)
    ends_other = np.array([c.end for c in other], np.int64)
    reach = min(max(abs(len(base) - len(other)), 4), _MOST_SHIFTS)
    best, best_shift = None, 0
    for shift in sorted(range(-reach, reach + 1), key=abs):
        low, high = max(0, -shift), min(len(base), len(other) - shift)
        if high <= low:
            continue
        agree = sides[0][low:high] == sides[1][low + shift : high + shift]
        if not agree.any():
            continue
        # lower medians and Python integers, because the clocks of two files may be decades apart
        differences = (ends_other[low + shift : high + shift] - ends_base[low:high])[agree]
        middle = _median(differences)
        score = (-int(agree.sum()), _median(np.abs(differences - middle)), abs(middle + clock))
        if best is None or score < best:
            best, best_shift = score, shift
    return best_shift


def _label(call: Collective) -> tuple[str, int | None]:
    return call.operation, None if call.operation in UNEVEN else call.bytes


def _median(values: Times) -> int:
    """The lower median, which is one of the values."""
    at = (len(values) - 1) // 2
    return int(np.partition(values, at)[at])


def pairs_by_time(loose: dict[int, list[Collective]], clock: dict[int, int]) -> list[Matched]:
    """Pair messages without a recorded other side: same bytes, overlapping, ending together. Needs aligned clocks."""
    calls = sorted(((c.end + clock[rank], rank, c) for rank, messages in loose.items() for c in messages), key=lambda item: item[:2])
    paired: set[int] = set()
    pairs = []
    for i, (end, rank, call) in enumerate(calls):
        if i in paired:
            continue
        for j in range(i + 1, min(i + _LOOK_AHEAD, len(calls))):
            later_end, other_rank, other_call = calls[j]
            if later_end - end > _ENDS_APART:
                break
            together = other_call.start + clock[other_rank] < end and call.start + clock[rank] < later_end
            if j not in paired and other_rank != rank and other_call.bytes == call.bytes and other_call.group == call.group and together:
                paired |= {i, j}
                key = Key(call.group, tuple(sorted(call.ranks)), (min(rank, other_rank), max(rank, other_rank)))
                pairs.append(Matched(key, "send_recv", {rank: call, other_rank: other_call}))
                break
    return pairs


@dataclass(frozen=True)
class Table:
    """Starts and ends of collectives (rows) on ranks (columns), on one clock, in ns."""

    start: Times
    end: Times
    present: NDArray[np.bool_]  # whether the rank made the call

    @cached_property
    def last(self) -> Times:
        """The start on the last rank, by collective."""
        return np.asarray(np.where(self.present, self.start, np.iinfo(np.int64).min).max(axis=1))

    @cached_property
    def first(self) -> Times:
        """The start on the first rank, by collective."""
        return np.asarray(np.where(self.present, self.start, np.iinfo(np.int64).max).min(axis=1))

    @cached_property
    def final(self) -> Times:
        """The end on the last rank, by collective."""
        return np.asarray(np.where(self.present, self.end, np.iinfo(np.int64).min).max(axis=1))

    @cached_property
    def arrived(self) -> Times:
        """The starts in order, by collective; missing ranks come first."""
        return np.sort(np.where(self.present, self.start, np.iinfo(np.int64).min), axis=1)

    @cached_property
    def late(self) -> Times:
        """The column of the rank that started last."""
        return np.asarray(np.where(self.present, self.start, np.iinfo(np.int64).min).argmax(axis=1))

    @cached_property
    def cut(self) -> Times:
        """When waiting ends and transfer begins, by call: the start on the last rank, or the end of the call if it is earlier."""
        return np.minimum(self.last[:, None], self.end)

    @cached_property
    def waits(self) -> Times:
        """From each start to the cut; a call that ended before the last rank started (the root of a broadcast) waited only while it ran."""
        return np.where(self.present, self.cut - self.start, 0)


def table(collectives: Iterable[Matched], ranks: list[int], clock: dict[int, int]) -> Table:
    """Tabulate the calls of ``met`` on one clock."""
    collectives = list(collectives)
    start, end = np.zeros((len(collectives), len(ranks)), np.int64), np.zeros((len(collectives), len(ranks)), np.int64)
    present = np.zeros((len(collectives), len(ranks)), bool)
    column = {rank: i for i, rank in enumerate(ranks)}
    for i, collective in enumerate(collectives):
        for rank, call in collective.calls.items():
            j = column[rank]
            start[i, j], end[i, j], present[i, j] = call.start + clock[rank], call.end + clock[rank], True
    return Table(start, end, present)
