"""Which kernels communicate, and why: by the name of their function, else by the operator that launched them.

Names are judged once each; events only inherit what their name or their operator got.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ironlaw.measure.communication.patterns import OWN, Pattern, function_of, read_patterns
from ironlaw.measure.events import KERNEL, NONE, Column, Spans, Trace

Mask = NDArray[np.bool_]

_SUSPECT = (  # folded to lower case and without "_": words of communication in a name no pattern fits
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "a2a",
    "sendrecv",
    "shmem",
    "multimem",
    "rdma",
    "nvlink",
    "peer",
    "barrier",
    "notify",
    "crossdevice",
    "collective",
    "broadcastkernel",
)


@dataclass(frozen=True)
class Unclassified:
    """A kernel that no pattern and no operator explains."""

    name: str
    count: int
    time: int  # [ns], all its events together
    suspect: str  # the word in it that suggests communication, "" where none does


@dataclass(frozen=True)
class Classified:
    """What communicates in a trace."""

    mask: Mask  # over Trace.events
    waits: Mask  # over Trace.events: communication that only spins until its peers arrive
    reason: dict[int, str]  # by name index, of names with an event in the mask
    family: dict[int, str]
    operation: dict[int, str]  # by name index, where the pattern knows it
    unclassified: tuple[Unclassified, ...]  # longest first


def classify(trace: Trace, more: tuple[Path, ...] = ()) -> Classified:
    """Which events of ``trace`` communicate; the patterns of the files ``more`` are asked before the built-in ones."""
    kernels, operators = _patterns(tuple(more))
    events = trace.events
    is_kernel = events.kind == KERNEL
    used = np.unique(events.name[is_kernel]).tolist()
    known = {index: _first(kernels, function_of(trace.names[index])) for index in used}
    by_name, waiting = np.zeros(len(trace.names), bool), np.zeros(len(trace.names), bool)
    settled = np.zeros(len(trace.names), bool)
    reason, family, operation = {}, {}, {}
    for index, pattern in known.items():
        if pattern is None:
            continue
        settled[index] = True
        if pattern.communicates:
            by_name[index], waiting[index] = True, pattern.waits
            reason[index] = f"pattern '{pattern.name}' of {pattern.family}: {pattern.reason}"
            family[index] = pattern.family
            if pattern.operation:
                operation[index] = pattern.operation
    mask = is_kernel & by_name[events.name] if len(trace.names) else np.zeros(len(events), bool)
    open_rows = np.flatnonzero(is_kernel & ~settled[events.name]) if len(trace.names) else np.empty(0, np.int64)
    for row in open_rows[np.isin(open_rows, list(trace.messages))].tolist() if trace.messages else ():
        mask[row] = True
        index = int(events.name[row])
        reason.setdefault(index, f"its arguments name a collective: {trace.messages[row].collective}")
        family.setdefault(index, "collective")
    open_rows = open_rows[~mask[open_rows]]
    for row, said in _by_operator(trace, open_rows, operators).items():
        mask[row] = True
        index = int(events.name[row])
        reason.setdefault(index, f"its operator is {said}")
        family.setdefault(index, "operator")
    waits = mask & waiting[events.name] if len(trace.names) else mask.copy()
    return Classified(mask, waits, reason, family, operation, _left(trace, open_rows, mask))


@lru_cache(maxsize=8)
def _read(path: Path, _changed: tuple[int, int]) -> tuple[list[Pattern], list[Pattern]]:
    return read_patterns(path)


def _patterns(more: tuple[Path, ...]) -> tuple[list[Pattern], list[Pattern]]:
    kernels, operators = [], []
    for path in (*map(Path, more), OWN):
        try:
            state = path.stat()
            one = _read(path, (state.st_mtime_ns, state.st_size))
        except OSError:
            one = read_patterns(path)  # says what is wrong with it
        kernels += one[0]
        operators += one[1]
    return kernels, operators


def _first(patterns: list[Pattern], function: str) -> Pattern | None:
    return next((p for p in patterns if p.fits(function)), None)


def _by_operator(trace: Trace, rows: Column, operators: list[Pattern]) -> dict[int, str]:
    """Rows among ``rows`` that an operator of communication launched, with the operator's name."""
    found: dict[int, str] = {}
    if not len(rows):
        return found
    for spans in (trace.operators, trace.marks):
        names = np.array([i for i in np.unique(spans.name).tolist() if _communicates(operators, trace.names[i])], np.int64)
        chosen = np.flatnonzero(np.isin(spans.name, names))
        if not len(chosen):
            continue
        said = spans.rows(chosen)
        for row, span in _of_external(external_of(trace)[rows], said):
            found.setdefault(int(rows[row]), trace.names[int(said.name[span])])
        for row, span in _of_thread(trace, rows, said):
            found.setdefault(int(rows[row]), trace.names[int(said.name[span])])
    return found


def _communicates(operators: list[Pattern], name: str) -> bool:
    pattern = _first(operators, name)
    return pattern is not None and pattern.communicates


def external_of(trace: Trace) -> Column:
    """The operators' identifiers on the events; none where the file repeats the correlation there, as older profilers did."""
    events = trace.events
    said = events.external >= 0
    if said.sum() > 1 and (events.external[said] == events.correlation[said]).all():
        return np.full(len(events), NONE, np.int64)
    return events.external


def _of_external(external: Column, spans: Spans) -> list[tuple[int, int]]:
    order = np.argsort(spans.external, kind="stable")
    keys = spans.external[order]
    at = np.minimum(np.searchsorted(keys, external), len(keys) - 1)
    hit = np.flatnonzero((external >= 0) & (keys[at] == external))
    return [(int(i), int(order[at[i]])) for i in hit]


def _of_thread(trace: Trace, rows: Column, spans: Spans) -> list[tuple[int, int]]:
    """Rows without an external id whose launch lies inside a span on the same thread."""
    events, launches = trace.events, trace.launches
    loose = np.flatnonzero((external_of(trace)[rows] < 0) & (events.launch[rows] != NONE))
    if not len(loose):
        return []
    found = []
    call = events.launch[rows[loose]]
    thread, when = launches.thread[call], launches.start[call]
    for one in np.unique(thread).tolist():
        mine = np.flatnonzero(spans.thread == one)
        if not len(mine):
            continue
        here = np.flatnonzero(thread == one)
        # spans of one thread nest, so the furthest end so far tells whether any of those before covers the time
        reach = np.maximum.accumulate(spans.end[mine])
        at = np.searchsorted(spans.start[mine], when[here], "right") - 1
        inside = (at >= 0) & (when[here] < reach[np.maximum(at, 0)])
        found += [(int(loose[here[i]]), int(mine[at[i]])) for i in np.flatnonzero(inside)]
    return found


def _left(trace: Trace, rows: Column, mask: Mask) -> tuple[Unclassified, ...]:
    rows = rows[~mask[rows]]
    if not len(rows):
        return ()
    names, place, count = np.unique(trace.events.name[rows], return_inverse=True, return_counts=True)
    time = np.zeros(len(names), np.int64)
    np.add.at(time, place, trace.events.end[rows] - trace.events.start[rows])
    found = []
    for index, many, long in zip(names.tolist(), count.tolist(), time.tolist(), strict=True):
        folded = function_of(trace.names[index]).lower().replace("_", "")
        found.append(Unclassified(trace.names[index], many, long, next((w for w in _SUSPECT if w in folded), "")))
    return tuple(sorted(found, key=lambda u: (-u.time, u.name)))
