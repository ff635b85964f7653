"""Findings about kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ironlaw.measure.events import KERNEL
from ironlaw.measure.findings.finding import Facts, Finding
from ironlaw.measure.kernel_names import COMPUTE_CLASSES, shipped_names

if TYPE_CHECKING:
    from ironlaw.measure.profile import Profile

WORTH = 0.02  # of the window
POINTWISE = ("elementwise", "copy", "norm", "softmax")
CHAIN = 3  # pointwise kernels in a row on one stream
SLOWER = 1.05  # the last third of a kernel's runs over the first third
RUNS = 9  # of one kernel, to compare thirds of


def unfused_chains(name: str, facts: Facts) -> Iterator[Finding]:
    """Pointwise kernels follow each other, each reading what the one before wrote."""
    for p in facts.profiles:
        names = shipped_names()
        pointwise = np.zeros(len(p.trace.names), bool)
        for i in np.unique(p.events.name):
            pointwise[i] = names.named(p.trace.text(int(i))).kind.name in POINTWISE
        rows = np.flatnonzero(p.events.kind == KERNEL)
        lost = chains = 0
        for stream in np.unique(p.events.stream[rows]):
            mine = rows[p.events.stream[rows] == stream]
            is_pointwise = pointwise[p.events.name[mine]]
            edges = np.flatnonzero(np.diff(np.concatenate([[0], is_pointwise.astype(np.int8), [0]])))
            lasts = np.concatenate([[0], np.cumsum(p.events.end[mine] - p.events.start[mine])])
            for start, end in zip(edges[::2], edges[1::2], strict=True):
                if end - start >= CHAIN:
                    chains += 1
                    lost += int(lasts[end] - lasts[start]) * (end - start - 1) // (end - start)
        if lost > WORTH * p.window.wall:
            yield Finding(
                name,
                f"{chains} chains of {CHAIN} or more pointwise kernels; fused into one pass each they would save up to {lost / 1e6:.1f} ms",
                "torch.compile, or fused kernels for the norm, activation, dropout and residual of a layer",
                float(lost) / 1e9,
                p.trace.path,
                {"chains": chains},
            )


def wrong_precision_kernels(name: str, facts: Facts) -> Iterator[Finding]:
    """Matrix products run in a wider precision than the rest, or than the device is fast in."""
    for p in facts.profiles:
        products = [k for k in p.kernels if k.kind in COMPUTE_CLASSES]
        wide = [k for k in products if k.precision in ("fp32", "fp64")]
        time = sum(k.total_ns for k in wide)
        if time <= WORTH * p.window.wall or (p.accelerator is not None and not _narrower(p)):
            continue
        total = sum(k.total_ns for k in products)
        worst = max(wide, key=lambda k: k.total_ns)
        yield Finding(
            name,
            f"{time / 1e6:.1f} ms of {total / 1e6:.1f} ms of matrix products run in {worst.precision}, mostly {worst.kernel[:60]}",
            "autocast to bf16, or TF32 (torch.set_float32_matmul_precision('high')) where inputs must stay fp32",
            time / 1e9 / 2,
            p.trace.path,
            {"kernels": [k.kernel for k in wide[:5]]},
        )


def _narrower(profile: Profile) -> bool:
    """Whether the device multiplies a narrower precision faster than fp32."""
    peaks = profile.accelerator.peak if profile.accelerator else {}
    wide = peaks.get("fp32")
    return wide is None or any(name in peaks and peaks[name].value > 1.5 * wide.value for name in ("bf16", "fp16", "tf32"))


def throttling(name: str, facts: Facts) -> Iterator[Finding]:
    """The same kernels get slower as the run goes on: clocks fall."""
    for p in facts.profiles:
        slower, lost = _drift(p)
        if slower > SLOWER:
            yield Finding(
                name,
                f"kernels that repeat take {slower - 1:.0%} longer in the last third of the window than in the first",
                "read clocks, power and temperature (nvidia-smi -q -d CLOCK,POWER,PERFORMANCE); raise the power cap or cool the node",
                lost / 1e9,
                p.trace.path,
            )


def _drift(profile: Profile) -> tuple[float, int]:
    """How much longer the last third of repeated compute kernels took, weighted by time; and the time lost."""
    events = profile.events
    rows = np.flatnonzero((events.kind == KERNEL) & ~profile.communicates)
    if len(rows) < RUNS:
        return 1.0, 0
    key = events.name[rows]
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    first = last = 0.0
    for group in np.split(rows[order], cuts):
        lasts = events.end[group] - events.start[group]
        if len(group) < RUNS or np.ptp(lasts) > 0.5 * np.median(lasts):
            continue  # of different shapes under one name, or too few
        third = len(group) // 3
        first += float(np.median(lasts[:third])) * len(group)
        last += float(np.median(lasts[-third:])) * len(group)
    if first < 0.1 * profile.window.compute:
        return 1.0, 0
    return last / first, int(max(0.0, last - first) / 2)
