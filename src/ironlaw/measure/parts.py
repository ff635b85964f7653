"""The measured step as parts that sum to it, under the names the prediction's parts have."""

from __future__ import annotations

import numpy as np

from ironlaw.measure.compare import Measured
from ironlaw.measure.compare import parts as known_parts
from ironlaw.measure.events import Column
from ironlaw.measure.intervals import Instants, union
from ironlaw.measure.kernel_names import UNKNOWN
from ironlaw.measure.profile import Profile
from ironlaw.measure.split import COMMUNICATION, COMPUTE

CLASSES = {"gemm": "gemm", "attention": "attention", "conv": "convolution", "optimizer": "optimizer", UNKNOWN: "other kernels"}


def measured_of(profile: Profile) -> Measured:
    """The window over its number of steps, in seconds by class.

    Kernels that ran beside each other share the time in which they did; communication is charged where no compute kernel ran.
    """
    steps = max(1, sum(step.device is not None for step in profile.steps))
    scale = 1e-9 / steps
    parts: dict[str, float] = {}

    def add(name: str, ns: float) -> None:
        parts[name] = parts.get(name, 0.0) + ns * scale

    total = max(sum(k.total_ns for k in profile.kernels), 1)
    for kernel in profile.kernels:
        add(CLASSES.get(kernel.kind, "memory operators"), kernel.total_ns / total * profile.window.compute)
    for operation, ns in exposed_by_operation(profile).items():
        part = f"exposed {operation}"
        add(part if part in known_parts() else "exposed other communication", ns)
    add("exposed copy", profile.window.exposed_copy)
    for reason, ns in profile.idle.by_reason.items():
        add(f"idle: {reason}", ns)
    again = sum(k.total_ns for k in profile.kernels if k.recompute) / total * profile.window.compute
    return Measured(
        step_seconds=profile.window.wall * scale,
        parts=parts,
        recompute_seconds=again * scale,
        mfu=profile.utilisation.mfu,
        hfu=profile.utilisation.hfu,
        device=profile.accelerator.name if profile.accelerator else profile.trace.device_name,
        world_size=profile.trace.world_size,
        steps=steps,
    )


def exposed_by_operation(profile: Profile) -> dict[str, int]:
    """Nanoseconds of exposed communication by operation; where two overlap, the first in order has them."""
    kinds = profile.classes
    compute = _instants(profile, kinds == COMPUTE)
    left = _instants(profile, kinds == COMMUNICATION) - compute
    named = np.full(len(profile.trace.events), -1, np.int64)
    operations = sorted({c.operation for c in profile.collectives})
    for c in profile.collectives:
        named[c.row] = operations.index(c.operation)
    mine: Column = named[profile.rows]
    found: dict[str, int] = {}
    for at, operation in enumerate(operations):
        now = left & _instants(profile, mine == at)
        left = left - now
        if now.length:
            found[operation] = now.length
    if left.length:
        found["other communication"] = left.length
    return found


def _instants(profile: Profile, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Instants:
    return union(profile.events.start[chosen], profile.events.end[chosen])
