"""MFU and HFU of a trace, with their definition in words.

FLOPs are counted from the recorded sizes of matrix products, convolutions and attention, not from the name of a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ironlaw.catalog.records import Accelerator
from ironlaw.law import run
from ironlaw.measure.kernels.names import COMPUTE_CLASSES
from ironlaw.measure.kernels.table import KernelGroup

ENOUGH = 0.9  # of the time of matrix kernels must have known FLOPs; missing FLOPs lower the MFU
NONE_KNOWN = 0.01  # below it, sizes were not recorded at all: an option of the profiler


@dataclass(frozen=True)
class Utilisation:
    """MFU and HFU with all their inputs; None and a reason if they cannot be computed."""

    mfu: float | None
    hfu: float | None
    model_flop: float  # per step, without recomputation
    hardware_flop: float  # per step
    steps: int
    wall_ns: int
    peak: float | None  # [FLOP/s] dense
    precision: str
    covered: float  # share of the time of matrix kernels whose FLOPs are known
    numerator: str
    denominator: str
    reason: str  # why there is no MFU, else ""

    def data(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def mfu_of(groups: Sequence[KernelGroup], wall_ns: int, steps: int = 1, accelerator: Accelerator | None = None) -> Utilisation:
    """Compute MFU and HFU of the kernels in ``groups``, which ran in ``wall_ns``: ``steps`` steps with the gap after each.

    Time and groups must count the same events. The peak is the dense one of the precision with most FLOPs.
    """
    matrix = [g for g in groups if g.kind in COMPUTE_CLASSES]
    counted = [g for g in matrix if g.flop is not None]
    time = sum(g.total_ns for g in matrix)
    covered = sum(g.total_ns for g in counted) / time if time else 0.0
    model, hardware = sum(g.model_flop or 0.0 for g in counted), sum(g.flop or 0.0 for g in counted)
    by_precision: dict[str, float] = {}
    for g in counted:
        by_precision[g.precision] = by_precision.get(g.precision, 0.0) + (g.flop or 0.0)
    precision = max(by_precision, key=lambda p: (by_precision[p], p)) if by_precision else ""
    peak = accelerator.peak.get(precision) if accelerator is not None else None
    reason = _reason(covered, time, wall_ns, precision, accelerator)
    mfu = hfu = None
    if not reason and peak is not None:
        mfu, hfu = (float(run.mfu(flop, wall_ns * 1e-9, 1.0, peak.value)) for flop in (model, hardware))
    others = ", ".join(f"{flop / hardware:.0%} in {p or 'an unknown format'}" for p, flop in sorted(by_precision.items()) if p != precision)
    steps = max(steps, 1)
    return Utilisation(
        mfu,
        hfu,
        model / steps,
        hardware / steps,
        steps,
        wall_ns,
        float(peak.value) if peak is not None else None,
        precision,
        covered,
        "FLOPs of matrix products, convolutions and attention from recorded sizes; causal attention counts half; "
        "HFU includes recomputation, MFU does not",
        f"{peak.text} dense {precision} of {accelerator.name}" + (f" ({others})" if others else "") if peak and accelerator else "",
        reason,
    )


def _reason(covered: float, time: int, wall_ns: int, precision: str, accelerator: Accelerator | None) -> str:
    """Why there is no MFU, else ""."""
    if not time:
        return "the trace has no matrix product, convolution or attention kernel"
    if covered < ENOUGH:
        return (
            f"FLOPs are known for {covered:.0%} of the time of matrix kernels, {ENOUGH:.0%} is needed; profile with record_shapes=True"
            if covered < NONE_KNOWN
            else f"FLOPs are known for only {covered:.0%} of the time of matrix kernels, {ENOUGH:.0%} is needed"
        )
    if accelerator is None:
        return "the device is unknown; name it with --on"
    if precision not in accelerator.peak:
        return f"{accelerator.name} has no dense peak for {precision or 'the number format of these kernels'} in the catalogue"
    return "" if wall_ns > 0 else "the window has no length"
