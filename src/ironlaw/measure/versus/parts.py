"""Split a measured step into parts that sum to it, with the names used in the comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ironlaw.measure.events import Column, Shape
from ironlaw.measure.idle import explain_idle
from ironlaw.measure.intervals import union
from ironlaw.measure.kernels.costs import is_causal
from ironlaw.measure.kernels.names import UNKNOWN
from ironlaw.measure.kernels.table import kernel_table
from ironlaw.measure.kernels.utilisation import mfu_of
from ironlaw.measure.profile import Profile
from ironlaw.measure.versus.compare import Measured, known_parts
from ironlaw.measure.window import COMMUNICATION, COMPUTE, split_window

CLASSES = {"gemm": "gemm", "attention": "attention", "conv": "convolution", "optimizer": "optimizer", UNKNOWN: "other kernels"}
NO_SHAPE = Shape(())


def measure_step(profile: Profile) -> Measured:
    """The mean step in seconds by class, over the whole steps of the trace (see `find_whole_steps`).

    Kernels that overlap share the time; communication counts only where no compute kernel ran.
    """
    start, end, steps = find_whole_steps(profile)
    in_steps = (profile.events.start < end) & (profile.events.end > start)
    window = split_window(profile.events, profile.communicates, (start, end))
    kernels, idle, utilisation = profile.kernels, profile.idle, profile.utilisation
    if not in_steps.all():
        counted = np.zeros(len(profile.trace.events), bool)
        counted[profile.rows[in_steps & ~profile.communicates]] = True
        kernels = tuple(kernel_table(profile.trace, counted, profile.accelerator, profile.folders, profile.names, profile.linked))
        # the event at the end of the last whole step explains the gap before it
        idle = explain_idle(profile.trace, profile.events.rows(in_steps | (profile.events.start == end)))
        utilisation = mfu_of(kernels, window.wall, steps, profile.accelerator)
    scale = 1e-9 / steps
    parts: dict[str, float] = {}

    def add(name: str, ns: float) -> None:
        parts[name] = parts.get(name, 0.0) + ns * scale

    total = max(sum(k.total_ns for k in kernels), 1)
    for kernel in kernels:
        add(CLASSES.get(kernel.kind, "memory operators"), kernel.total_ns / total * window.compute)
    for operation, ns in exposed_by_operation(profile, (start, end)).items():
        part = f"exposed {operation}"
        add(part if part in known_parts() else "exposed other communication", ns)
    add("exposed copy", window.exposed_copy)
    for reason, ns in idle.by_reason.items():
        add(f"idle: {reason}", ns)
    recompute_ns = sum(k.total_ns for k in kernels if k.recompute) / total * window.compute
    return Measured(
        step_seconds=window.wall * scale,
        parts=parts,
        recompute_seconds=recompute_ns * scale,
        mfu=utilisation.mfu,
        hfu=utilisation.hfu,
        causal=is_attention_causal(profile),
        device=profile.accelerator.name if profile.accelerator else profile.trace.device_name,
        world_size=profile.trace.world_size,
        steps=max(1, sum(step.device is not None for step in profile.steps)),
        rank=profile.trace.rank,
    )


def is_attention_causal(profile: Profile) -> bool | None:
    """Whether the attention operators have a causal mask; None if there are none with sizes."""
    names, operators = profile.trace.names, profile.trace.operators
    attends = [i for i, name in enumerate(names) if is_causal(name, NO_SHAPE) is not None]
    rows = np.isin(operators.name, attends) & (operators.shapes >= 0)
    calls = set(zip(operators.name[rows].tolist(), operators.shapes[rows].tolist(), strict=True))
    return any(is_causal(names[n], profile.trace.shapes[s]) for n, s in calls) if calls else None


def find_pace_setter(profiles: Sequence[Profile]) -> Profile:
    """The rank that waits least for the others: a late rank or the slowest pipeline stage, which an estimate describes.

    The other ranks show the same time as waiting in collectives. Of ranks that wait equally, the one with the longest window is taken.
    """

    def waits(profile: Profile) -> tuple[float, int]:
        return round(profile.window.exposed_comm / max(profile.window.wall, 1), 3), -profile.window.wall

    return min(profiles, key=waits)


def find_whole_steps(profile: Profile) -> tuple[int, int, int]:
    """Start and end [ns] of the whole steps in the trace, and their number. A step lasts until the first kernel of the next step.

    The last step has no end, because the trace does not show the next one. It counts only if it is the only step, with its window.
    """
    starts = [step.device.start for step in profile.steps if step.device is not None]
    if len(starts) < 2 or starts[-1] <= starts[0]:
        return profile.window.start, profile.window.end, max(1, len(starts))
    return starts[0], starts[-1], len(starts) - 1


def exposed_by_operation(profile: Profile, span: tuple[int, int] | None = None) -> dict[str, int]:
    """Nanoseconds of exposed communication by operation, in the window or in ``span``; an overlap counts for the first by name."""
    kinds = profile.event_classes
    exposed = profile.ran(kinds == COMMUNICATION) - profile.ran(kinds == COMPUTE)
    if span is not None:
        exposed = exposed & union(*(np.array([at], np.int64) for at in span))
    operation_of_row = np.full(len(profile.trace.events), -1, np.int64)
    operations = sorted({c.operation for c in profile.collectives})
    for c in profile.collectives:
        operation_of_row[c.row] = operations.index(c.operation)
    operation_of_event: Column = operation_of_row[profile.rows]
    by_operation: dict[str, int] = {}
    for at, operation in enumerate(operations):
        of_operation = exposed & profile.ran(operation_of_event == at)
        exposed = exposed - of_operation
        if of_operation.length:
            by_operation[operation] = of_operation.length
    if exposed.length:
        by_operation["other communication"] = exposed.length
    return by_operation
