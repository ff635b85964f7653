"""MFU and HFU of a trace: what its kernels' operators computed over what the device could have, each with its words.

The numerator is counted from the sizes of matrix products, convolutions and attention as they ran; nothing is taken from a model's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ironlaw.catalog.records import Accelerator
from ironlaw.law import run
from ironlaw.measure.kernels.names import COMPUTE_CLASSES
from ironlaw.measure.kernels.table import KernelGroup

ENOUGH = 0.9  # of the time of matrix kernels whose FLOPs must be known: what is missing lowers the answer by as much
NONE_KNOWN = 0.01  # below it the sizes were not recorded at all, which one option of the profiler mends


@dataclass(frozen=True)
class Utilisation:
    """Both utilisations and everything they were made of; None with the reason where they cannot be known."""

    mfu: float | None
    hfu: float | None
    model_flop: float  # of a step, without what was computed a second time
    hardware_flop: float  # of a step
    steps: int
    wall_ns: int
    peak: float | None  # [FLOP/s] dense
    precision: str
    covered: float  # share of the time of matrix kernels whose FLOPs are known
    numerator: str
    denominator: str
    reason: str  # why there is none, "" where there is one

    def data(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def mfu_of(groups: Sequence[KernelGroup], wall_ns: int, steps: int = 1, accelerator: Accelerator | None = None) -> Utilisation:
    """MFU and HFU of the kernels in ``groups``, which ran in ``wall_ns`` that hold ``steps`` steps and the gap behind each.

    Time and groups must count the same events. The peak is the dense one of the precision that most FLOPs were done in.
    """
    matrix = [g for g in groups if g.kind in COMPUTE_CLASSES]
    counted = [g for g in matrix if g.flop is not None]
    time = sum(g.total_ns for g in matrix)
    covered = sum(g.total_ns for g in counted) / time if time else 0.0
    model, hardware = sum(g.model_flop or 0.0 for g in counted), sum(g.flop or 0.0 for g in counted)
    by: dict[str, float] = {}
    for g in counted:
        by[g.precision] = by.get(g.precision, 0.0) + (g.flop or 0.0)
    precision = max(by, key=lambda p: (by[p], p)) if by else ""
    found = accelerator.peak.get(precision) if accelerator is not None else None
    reason = _reason(covered, time, wall_ns, precision, accelerator)
    mfu = hfu = None
    if not reason and found is not None:
        mfu, hfu = (float(run.mfu(flop, wall_ns * 1e-9, 1.0, found.value)) for flop in (model, hardware))
    others = ", ".join(f"{by[p] / hardware:.0%} in {p or 'an unknown format'}" for p in sorted(by) if p != precision and hardware)
    steps = max(steps, 1)
    return Utilisation(
        mfu,
        hfu,
        model / steps,
        hardware / steps,
        steps,
        wall_ns,
        float(found.value) if found is not None else None,
        precision,
        covered,
        "FLOPs of matrix products, convolutions and attention from the sizes the trace holds, a causal mask as half; "
        "MFU without what was computed a second time, HFU with it",
        f"{found.text} dense {precision} of {accelerator.name}" + (f" ({others})" if others else "") if found and accelerator else "",
        reason,
    )


def _reason(covered: float, time: int, wall_ns: int, precision: str, accelerator: Accelerator | None) -> str:
    """Why there is no utilisation, "" where there is one."""
    if not time:
        return "no matrix product, convolution or attention kernel was counted"
    if covered < ENOUGH:
        return (
            f"FLOPs are known for {covered:.0%} of the time of matrix kernels, {ENOUGH:.0%} are needed; profile with record_shapes=True"
            if covered < NONE_KNOWN
            else f"FLOPs are known for only {covered:.0%} of the time of matrix kernels, {ENOUGH:.0%} are needed"
        )
    if accelerator is None:
        return "the device is not known; say which it is with --on"
    if precision not in accelerator.peak:
        return f"{accelerator.name} has no dense peak for {precision or 'the number format of these kernels'} in the catalogue"
    return "" if wall_ns > 0 else "the window has no length"
