"""Findings about kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ironlaw.measure.events import KERNEL, MEMCPY, Column
from ironlaw.measure.findings.finding import WORTH, Facts, Finding, ms
from ironlaw.measure.intervals import union
from ironlaw.measure.kernels.names import COMPUTE_CLASSES
from ironlaw.measure.kernels.table import KernelGroup

if TYPE_CHECKING:
    from ironlaw.measure.profile import Profile

POINTWISE = ("elementwise", "copy", "norm", "softmax")
CHAIN = 3  # pointwise kernels in a row on one stream: two may be halves of one operator
CLOSE = 100_000  # [ns] an eager host launches the next operator sooner; later kernels need not read the earlier result
OPTIMIZER = "Optimizer."  # the profiler's mark: each kernel of an optimizer loop works on another tensor
FASTER = 1.5  # times the peak of the wide format: a smaller gain is not worth the rounding
SLOWER = 1.05  # the last third of a kernel's runs over the first third: clocks vary by a few percent anyway
RUNS = 9  # of one kernel, so that a third of them has a median
MOST = 0.7  # of the compared time must have become slower: lower clocks slow every kernel, noise only half of them
ALIKE = 0.5  # of the median: runs with a larger spread have different sizes under one name
COMPARED = 0.1  # of the compute time: less is not representative
GROWN = 1.01  # the last third of copies over the first: batches of fixed shape copy the same bytes in every step


def unfused_chains(name: str, facts: Facts) -> Iterator[Finding]:
    """Pointwise kernels in a row, each reading the result of the one before."""
    for p in facts.profiles:
        chains = _find_chains(p)
        if chains.saved <= WORTH * p.window.wall:
            continue
        sizes = "" if chains.sized else "; sizes are not recorded, so one tensor is assumed for each chain (record_shapes=True shows them)"
        yield Finding(
            name,
            f"{chains.count} chains of {CHAIN} or more pointwise kernels take {ms(chains.time)}; fusing each chain would save"
            f" up to {ms(chains.saved)}{sizes}",
            "torch.compile; Megatron: keep the fusions of bias, activation and dropout (no --no-bias-*-fusion); optimizer(fused=True)",
            chains.saved / 1e9,
            p.trace.path,
            {"chains": chains.count, "kernels": chains.kernels, "kernel_us": chains.time / 1000, "sizes_known": chains.sized},
        )


@dataclass(frozen=True)
class _Chains:
    """All chains of a trace; times in ns."""

    count: int
    kernels: int
    time: int
    saved: float
    sized: bool


def _find_chains(p: Profile) -> _Chains:
    """Find runs of pointwise kernels on one stream, close in time and of one size where sizes are known; optimizers are left out.

    A fused kernel still makes the longest pass. It saves at most the other passes, and no more than their bytes take at HBM bandwidth.
    """
    rows = np.flatnonzero((p.events.kind == KERNEL) & ~p.communicates)
    rows = rows[np.lexsort((p.events.start[rows], p.events.stream[rows]))]
    if not len(rows):
        return _Chains(0, 0, 0, 0.0, False)
    pointwise = np.zeros(len(p.trace.names), bool)
    for i in np.unique(p.events.name[rows]).tolist():
        pointwise[i] = p.names.named(p.trace.text(i)).kind.name in POINTWISE
    fusible = pointwise[p.events.name[rows]] & ~_in_an_optimizer(p, rows)
    elements, floor = _read_sizes(p, rows)
    start, end, stream = p.events.start[rows], p.events.end[rows], p.events.stream[rows]
    differ = (elements[1:] != elements[:-1]) & (elements[1:] >= 0) & (elements[:-1] >= 0)
    joined = fusible[1:] & fusible[:-1] & (stream[1:] == stream[:-1]) & (start[1:] - end[:-1] <= CLOSE) & ~differ
    first = np.flatnonzero(np.concatenate([[True], ~joined]))
    length = np.diff(np.append(first, len(rows)))
    chain = length >= CHAIN
    if not chain.any():
        return _Chains(0, 0, 0, 0.0, False)
    time, longest = np.add.reduceat(end - start, first)[chain], np.maximum.reduceat(end - start, first)[chain]
    at_roof = np.minimum(floor, end - start)  # nan where bytes or bandwidth are not known: the time it took
    at_roof = np.where(np.isfinite(at_roof), at_roof, end - start)
    passes, longest_pass = np.add.reduceat(at_roof, first)[chain], np.maximum.reduceat(at_roof, first)[chain]
    saved = np.minimum(time - longest, passes - longest_pass)
    member = np.repeat(chain, length)
    return _Chains(
        int(chain.sum()),
        int(member.sum()),
        int(time.sum()),
        float(saved.sum()) * p.serial_share,
        bool((elements[member] >= 0).mean() > 0.5),
    )


def _in_an_optimizer(p: Profile, rows: Column) -> NDArray[np.bool_]:
    """Whether a kernel was launched while an optimizer stepped."""
    marks = p.trace.marks
    chosen = np.isin(marks.name, [i for i, n in enumerate(p.trace.names) if n.startswith(OPTIMIZER)])
    launch = p.events.launch[rows]
    if not chosen.any() or not len(p.trace.launches):
        return np.zeros(len(rows), bool)
    return (launch >= 0) & union(marks.start[chosen], marks.end[chosen]).covers(p.trace.launches.start[np.maximum(launch, 0)])


def _read_sizes(p: Profile, rows: Column) -> tuple[Column, NDArray[np.float64]]:
    """For each kernel: elements of its operator's largest input, and nanoseconds at HBM bandwidth; -1 and nan if unknown."""
    if p.linked is None:
        return np.full(len(rows), -1, np.int64), np.full(len(rows), np.nan)
    pair = p.linked.pair[p.rows[rows]]
    elements = np.array([_count_elements(p, int(s)) for s in p.linked.shapes] + [-1], np.int64)
    traffic = np.array([np.nan if c is None or c.traffic is None else c.traffic for c in p.linked.costs] + [np.nan])
    bandwidth = p.accelerator.hbm_bandwidth.value if p.accelerator else np.nan
    return elements[pair], traffic[pair] / bandwidth * 1e9


def _count_elements(p: Profile, shape: int) -> int:
    """Elements of the largest input tensor of an operator, -1 if there is none or sizes are not recorded."""
    dims = p.trace.shapes[shape].dims if shape >= 0 else ()
    sizes = [d for d in dims if isinstance(d, list) and d and all(type(n) is int and 0 <= n < 2**31 for n in d)]
    products = [float(np.prod(d, dtype=np.float64)) for d in sizes]
    return int(max(products)) if products and max(products) < 2**62 else -1


def wrong_precision_kernels(name: str, facts: Facts) -> Iterator[Finding]:
    """Matrix products run in fp32 or fp64 on a device that is faster in a narrower format."""
    for p in facts.profiles:
        products = [k for k in p.kernels if k.kind in COMPUTE_CLASSES]
        wide = [(k, faster) for k in products if k.precision in ("fp32", "fp64") and (faster := _find_faster_format(p, k)) is not None]
        time = sum(k.total_ns for k, _ in wide)
        if time <= WORTH * p.window.wall:
            continue
        total = sum(k.total_ns for k in products)
        worst, (narrow, ratio) = max(wide, key=lambda item: item[0].total_ns)
        lost = sum(_estimate_saving(p, k, faster) for k, (_, faster) in wide) * p.serial_share if p.accelerator else None
        peaks = (
            ""
            if lost is None or not p.accelerator
            else f"; the {narrow} peak of {p.accelerator.name} is {ratio:.1f} times higher: saves up to {ms(lost)}"
        )
        yield Finding(
            name,
            f"{ms(time)} of {ms(total)} of matrix products run in {worst.precision}, mostly {worst.kernel[:60]}{peaks}",
            _NARROW[narrow if worst.precision == "fp32" else "fp32"],
            None if lost is None else lost / 1e9,
            p.trace.path,
            {
                "wide_us": time / 1000,
                "matrix_us": total / 1000,
                "narrow": narrow,
                "peak_ratio": ratio if p.accelerator else None,
                "kernels": list(dict.fromkeys(k.kernel for k, _ in wide))[:5],
            },
        )


_TF32 = "torch.set_float32_matmul_precision('high') and torch.backends.cudnn.allow_tf32 = True where inputs must stay fp32"
_NARROW = {
    "bf16": f"torch.autocast('cuda', torch.bfloat16) or --bf16; {_TF32}",
    "fp16": "torch.autocast('cuda', torch.float16) with torch.amp.GradScaler, or --fp16",
    "tf32": _TF32,
    "fp32": "find the source of fp64 (often NumPy's default or Python floats) and cast inputs with .float()",
}


def _find_faster_format(p: Profile, kernel: KernelGroup) -> tuple[str, float] | None:
    """The faster format for training and the ratio of its peak; None if the device has none, or the format of the kernel is uncertain.

    A device with TF32 may multiply fp32 operands as TF32; only the name of the kernel shows which.
    """
    if p.accelerator is None:
        return ("bf16", float("nan")) if kernel.precision_by == "kernel name" else None
    peaks = p.accelerator.peak
    if kernel.precision_by != "kernel name" and "tf32" in peaks:
        return None
    if kernel.precision not in peaks:
        return None
    narrower = ("bf16", "fp16", "tf32") if kernel.precision == "fp32" else ("fp32", "bf16", "fp16")
    wide = peaks[kernel.precision].value
    return next(((n, peaks[n].value / wide) for n in narrower if n in peaks and peaks[n].value > FASTER * wide), None)


def _estimate_saving(p: Profile, kernel: KernelGroup, ratio: float) -> float:
    """Time saved at the same share of the narrower peak; the kernel still takes at least the time of half its bytes."""
    least = kernel.total_ns / ratio
    if kernel.traffic is not None and p.accelerator is not None:
        least = max(least, kernel.traffic / 2 / p.accelerator.hbm_bandwidth.value * 1e9)
    return max(0.0, kernel.total_ns - least)


def throttling(name: str, facts: Facts) -> Iterator[Finding]:
    """The same kernels get slower as the run goes on, because clocks fall."""
    for p in facts.profiles:
        drift = _find_drift(p)
        if drift is None or drift.slower <= SLOWER or drift.share < MOST:
            continue
        sizes = "" if drift.sized else "; sizes are not recorded, so growing inputs would look the same"
        yield Finding(
            name,
            f"repeated kernels take {drift.slower - 1:.1%} longer in the last third of their runs than in the first"
            f" (seen in {drift.share:.0%} of {ms(drift.time)}){sizes}",
            "nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE (rocm-smi -a); nvidia-smi -pl for the power cap, or cool the node",
            drift.lost / 1e9,
            p.trace.path,
            {"slower": drift.slower, "share_slower": drift.share, "compared_us": drift.time / 1000, "sizes_known": drift.sized},
        )


@dataclass(frozen=True)
class _Drift:
    """How repeated kernels changed over the trace; times in ns."""

    slower: float  # the last third over the first, weighted by time
    share: float  # of the compared time in kernels that became slower by at least half as much as is worth a finding
    time: int
    lost: float  # time above the speed of the first third
    sized: bool


def _find_drift(p: Profile) -> _Drift | None:
    """Compare repeated compute kernels of one name and, where recorded, one set of sizes; None if they are too small a part."""
    rows = np.flatnonzero((p.events.kind == KERNEL) & ~p.communicates)
    if len(rows) < RUNS:
        return None
    pair = np.full(len(rows), -1, np.int64) if p.linked is None else p.linked.pair[p.rows[rows]]
    sized_pairs = np.append(np.asarray([] if p.linked is None else p.linked.shapes) >= 0, False)[pair]
    if _inputs_grow(p):
        rows, pair, sized_pairs = rows[sized_pairs], pair[sized_pairs], sized_pairs[sized_pairs]
    key = p.events.name[rows] * (int(pair.max(initial=0)) + 2) + pair
    order = np.argsort(key, kind="stable")
    first = last = lost = 0.0
    time = became = sized = 0
    for group in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        durations = (p.events.end - p.events.start)[rows[group]]
        if len(durations) < RUNS:
            continue
        median = float(np.median(durations))
        if np.subtract(*np.percentile(durations, [90, 10])) > ALIKE * median:
            continue
        third = len(durations) // 3
        before, after = float(np.median(durations[:third])), float(np.median(durations[-third:]))
        spent = int(durations.sum())
        first, last, time = first + before * len(durations), last + after * len(durations), time + spent
        lost += max(0.0, spent - before * len(durations))
        became += spent if after > before * (1 + (SLOWER - 1) / 2) else 0
        sized += spent if sized_pairs[group[0]] else 0
    if time < COMPARED * p.window.compute or not first:
        return None
    return _Drift(last / first, became / time, time, lost * p.serial_share, sized > time / 2)


def _inputs_grow(p: Profile) -> bool:
    """Whether copies to the device grow; then kernels of unknown sizes may grow too."""
    copies = [i for i, n in enumerate(p.trace.names) if "HtoD" in n or "HostToDevice" in n]
    sizes = p.events.size[(p.events.kind == MEMCPY) & np.isin(p.events.name, copies) & (p.events.size >= 0)]
    third = len(sizes) // 3
    return bool(third) and float(sizes[-third:].mean()) > GROWN * float(sizes[:third].mean())
