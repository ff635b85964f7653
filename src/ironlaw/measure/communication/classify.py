"""Find the kernels that communicate, by the name of their function or the operator that launched them.

Each name is classified once, and its events get the result.
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

_SUSPECT = (  # words that suggest communication in a name without a pattern; lower case, without "_"
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
    """A kernel without a pattern and without an operator that communicates."""

    name: str
    count: int
    time: int  # [ns], all its events together
    suspect: str  # the word in the name that suggests communication, or ""


@dataclass(frozen=True)
class Classified:
    """The communication kernels of a trace."""

    mask: Mask  # over Trace.events
    waits: Mask  # over Trace.events: kernels that only wait for their peers
    reason: dict[int, str]  # by name index, of names with an event in the mask
    family: dict[int, str]
    operation: dict[int, str]  # by name index, if the pattern gives it
    unclassified: tuple[Unclassified, ...]  # longest first


def classify(trace: Trace, more: tuple[Path, ...] = ()) -> Classified:
    """Find the events of ``trace`` that communicate; patterns in the files ``more`` come before the shipped ones."""
    kernels, operators = _patterns(tuple(more))
    events = trace.events
    is_kernel = events.kind == KERNEL
    kernel_names = np.unique(events.name[is_kernel]).tolist()
    pattern_by_name = {index: _first(kernels, function_of(trace.names[index])) for index in kernel_names}
    by_name, waiting = np.zeros(len(trace.names), bool), np.zeros(len(trace.names), bool)
    settled = np.zeros(len(trace.names), bool)
    reason, family, operation = {}, {}, {}
    for index, pattern in pattern_by_name.items():
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
    for row, operator in _by_operator(trace, open_rows, operators).items():
        mask[row] = True
        index = int(events.name[row])
        reason.setdefault(index, f"its operator is {operator}")
        family.setdefault(index, "operator")
    waits = mask & waiting[events.name] if len(trace.names) else mask.copy()
    return Classified(mask, waits, reason, family, operation, _count_unclassified(trace, open_rows, mask))


@lru_cache(maxsize=8)
def _read(path: Path, _changed: tuple[int, int]) -> tuple[list[Pattern], list[Pattern]]:
    return read_patterns(path)


def _patterns(more: tuple[Path, ...]) -> tuple[list[Pattern], list[Pattern]]:
    """The patterns of kernels and of operators, from the user's files and then the shipped one."""
    kernels, operators = [], []
    for path in (*map(Path, more), OWN):
        try:
            state = path.stat()
            patterns = _read(path, (state.st_mtime_ns, state.st_size))
        except (OSError, ValueError):
            patterns = read_patterns(path)  # raises the error that explains it
        kernels += patterns[0]
        operators += patterns[1]
    return kernels, operators


def _first(patterns: list[Pattern], function: str) -> Pattern | None:
    return next((p for p in patterns if p.fits(function)), None)


def _by_operator(trace: Trace, rows: Column, operators: list[Pattern]) -> dict[int, str]:
    """Rows that a communication operator launched, with the name of the operator."""
    operators_by_row: dict[int, str] = {}
    if not len(rows):
        return operators_by_row
    for spans in (trace.operators, trace.marks):
        names = np.array([i for i in np.unique(spans.name).tolist() if _communicates(operators, trace.names[i])], np.int64)
        chosen = np.flatnonzero(np.isin(spans.name, names))
        if not len(chosen):
            continue
        chosen_spans = spans.rows(chosen)
        for row, span in _of_external(external_of(trace)[rows], chosen_spans):
            operators_by_row.setdefault(int(rows[row]), trace.names[int(chosen_spans.name[span])])
        for row, span in _of_thread(trace, rows, chosen_spans):
            operators_by_row.setdefault(int(rows[row]), trace.names[int(chosen_spans.name[span])])
    return operators_by_row


def _communicates(operators: list[Pattern], name: str) -> bool:
    pattern = _first(operators, name)
    return pattern is not None and pattern.communicates


def external_of(trace: Trace) -> Column:
    """External ids of the events; none if the file repeats the correlation id there, as older profilers do."""
    events = trace.events
    recorded = events.external >= 0
    if recorded.sum() > 1 and (events.external[recorded] == events.correlation[recorded]).all():
        return np.full(len(events), NONE, np.int64)
    return events.external


def _of_external(external: Column, spans: Spans) -> list[tuple[int, int]]:
    """Pairs of an event and the span that has its external id."""
    order = np.argsort(spans.external, kind="stable")
    keys = spans.external[order]
    at = np.minimum(np.searchsorted(keys, external), len(keys) - 1)
    hit = np.flatnonzero((external >= 0) & (keys[at] == external))
    return [(int(i), int(order[at[i]])) for i in hit]


def _of_thread(trace: Trace, rows: Column, spans: Spans) -> list[tuple[int, int]]:
    """Rows without an external id whose launch is inside a span on the same thread."""
    events, launches = trace.events, trace.launches
    loose = np.flatnonzero((external_of(trace)[rows] < 0) & (events.launch[rows] != NONE))
    if not len(loose):
        return []
    matches = []
    call = events.launch[rows[loose]]
    thread, when = launches.thread[call], launches.start[call]
    for number in np.unique(thread).tolist():
        its_spans = np.flatnonzero(spans.thread == number)
        if not len(its_spans):
            continue
        its_launches = np.flatnonzero(thread == number)
        # spans of one thread nest: an earlier span covers the time if the latest end so far is after it
        reach = np.maximum.accumulate(spans.end[its_spans])
        at = np.searchsorted(spans.start[its_spans], when[its_launches], "right") - 1
        covered = (at >= 0) & (when[its_launches] < reach[np.maximum(at, 0)])
        matches += [(int(loose[its_launches[i]]), int(its_spans[at[i]])) for i in np.flatnonzero(covered)]
    return matches


def _count_unclassified(trace: Trace, rows: Column, mask: Mask) -> tuple[Unclassified, ...]:
    """Kernels outside ``mask`` whose names suggest communication: count and time by name, the longest first."""
    rows = rows[~mask[rows]]
    if not len(rows):
        return ()
    names, group, count = np.unique(trace.events.name[rows], return_inverse=True, return_counts=True)
    time = np.zeros(len(names), np.int64)
    np.add.at(time, group, trace.events.end[rows] - trace.events.start[rows])
    unclassified = []
    for index, count_, ns in zip(names.tolist(), count.tolist(), time.tolist(), strict=True):
        folded = function_of(trace.names[index]).lower().replace("_", "")
        unclassified.append(Unclassified(trace.names[index], count_, ns, next((w for w in _SUSPECT if w in folded), "")))
    return tuple(sorted(unclassified, key=lambda u: (-u.time, u.name)))
