"""The roofs of a device: its rates, what a kernel under them takes, and what a measured time says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import QuestionError, UnsupportedError
from ironlaw.estimate import wires
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.estimate.layer.sizes import elementwise, host_time, kernel
from ironlaw.job import PRECISIONS
from ironlaw.law import kernels
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.roofline.operators import Operator
from ironlaw.terms import Term, leaf, plain

NEAR = 0.7  # of a roof: well-shaped kernels reach 0.75 to 0.9 of a datasheet's bandwidth and 0.7 to 0.8 of its matrix rate
FAIR, USUAL = 0.4, 0.8  # or this share of a roof, where kernels of its kind would have needed this share of the time
TOLERANCE = 0.05  # two numbers this close count as equal where the question does not say

REMEDIES = {
    "hbm": "only fewer bytes help: fusion, fewer intermediates, lower precision, locality, fewer passes",
    "compute": "only fewer or cheaper operations help: less recomputation, lower precision, a faster device",
}
OVERHEAD = "not the hardware's roofs but overhead sets the time: dispatch, synchronisation, graph breaks, conversions, an ill-fitting tile"


@dataclass(frozen=True, eq=False)
class Device:
    """What an operator may run into. ``cluster`` is None where only --peak and --bandwidth are given."""

    name: str
    bandwidth: Any
    peaks: Mapping[str, Any]
    links: Mapping[str, Any]  # further bandwidths, by name
    multiprocessors: Any
    dispatch: Any  # host time of a launch
    cluster: Cluster | None

    def peak(self, operator: Operator) -> Any:
        """The peak rate an operator computes at: of the matrix units by format, of the vector units for the others."""
        if "given" in self.peaks:
            return self.peaks["given"]
        name = PRECISIONS[operator.dtype].peak
        if operator.vector and "fp32" in self.peaks:
            name = "fp32"
        if name not in self.peaks:
            raise UnsupportedError(f"--dtype {operator.dtype}: {self.name} has no such rate; it has {', '.join(self.peaks)}")
        return self.peaks[name]


def given(value: float, unit: str) -> Sourced:
    """A number of the question itself."""
    return Sourced(value, unit, units.show(value, unit, 4), None, "given")


def bind(values: Mapping[str, Any], folders: tuple[str, ...], notes: Assumptions) -> Device:
    """The device of a question: a catalogue record, or two rates."""
    peak = {"given": given(values["peak"], "FLOP/s")} if "peak" in values else None
    bandwidth = given(values["bandwidth"], "B/s") if "bandwidth" in values else None
    count = given(values["multiprocessors"], "1") if "multiprocessors" in values else None
    if "on" not in values:
        if peak is None or bandwidth is None:
            raise QuestionError("the question lacks --on ACCELERATOR (or both --peak and --bandwidth)")
        return Device("the given roofs", bandwidth, peak, {}, count, None, None)
    cluster = cluster_of({**values, "precision": bind_precision(values["on"], folders)}, folders, notes)
    record = cluster.accelerator
    name = values.get("framework") or record.usual_framework or "megatron"
    if "framework" not in values:
        assume(notes, "framework", name, "default")
    host = host_time(load.record("frameworks", name, folders), cluster)
    links = {"scale-up": cluster.node.scale_up_bandwidth, "nic": wires.nic_rate(cluster), "pcie": record.pcie_bandwidth}
    links = {"c2c": record.c2c_bandwidth, **links}
    found = {key: rate for key, rate in links.items() if rate is not None and rate.value > 0}
    return Device(record.name, bandwidth or record.hbm_bandwidth, peak or record.peak, found, count or record.sm_count, host, cluster)


@dataclass(frozen=True, eq=False)
class Under:
    """An operator under the roofs of a device."""

    operator: Operator
    peak: Any
    intensity: Term
    ridge: Term
    attainable: Term
    compute: Term  # times on each roof alone
    hbm: Term
    floor: Term  # the longer
    expected: Term | None  # with the constants of measured kernels

    @property
    def bound(self) -> str:
        """The roof that is met first."""
        return "hbm" if float(self.hbm.value) > float(self.compute.value) else "compute"


def under(device: Device, operator: Operator) -> Under:
    """What an operator takes at the device's roofs, and what kernels like it take."""
    flop, moved = operator.flop.value, operator.traffic.value
    peak, bandwidth = device.peak(operator), device.bandwidth
    per_byte = leaf("intensity", kernels.intensity, "FLOP/B", flop=flop, traffic=moved)
    whole = {"efficiency": 1.0, "bandwidth_fraction": 1.0, "fill": 0.0, "launch": 0.0}
    return Under(
        operator,
        peak,
        per_byte,
        leaf("ridge point", kernels.ridge_point, "FLOP/B", peak=peak, bandwidth=bandwidth),
        leaf("attainable rate", kernels.attainable_rate, "FLOP/s", intensity=per_byte.value, peak=peak, bandwidth=bandwidth),
        leaf("time at the compute roof", kernels.compute_time, "s", "compute", flop=flop, peak=peak, efficiency=1.0),
        leaf(
            "time at the hbm roof", kernels.memory_time, "s", "hbm", traffic=moved, bandwidth=bandwidth, bandwidth_fraction=1.0, launch=0.0
        ),
        leaf("least time", kernels.kernel_time, "s", flop=flop, traffic=moved, peak=peak, bandwidth=bandwidth, **whole),
        _expected(device, operator, flop, moved),
    )


def _expected(device: Device, operator: Operator, flop: Any, moved: Any) -> Term | None:
    """What the estimate takes for such a kernel inside a step; nothing where the device, or the attention kernel, is not bound."""
    cluster = device.cluster
    if cluster is None or "given" in device.peaks or plain(device.bandwidth) != cluster.accelerator.hbm_bandwidth.value:
        return None
    if operator.vector:
        return elementwise(cluster, "expected time", moved)
    known = PRECISIONS[operator.dtype]
    if operator.grid is None or known.gemm not in cluster.calibration.gemm:
        return None
    return kernel(cluster, "expected time", flop, moved, known.peak, cluster.gemm(known.gemm))


def wave_terms(device: Device, operator: Operator, tile: tuple[float, float]) -> tuple[Term, Term] | None:
    """Waves of a matrix product's tiles over the multiprocessors, and the share of the device they keep busy."""
    if operator.grid is None or device.multiprocessors is None:
        return None
    tiles = math.ceil(operator.grid[0] / tile[0]) * math.ceil(operator.grid[1] / tile[1])
    inputs = {"tiles": float(tiles), "multiprocessors": device.multiprocessors}
    return leaf("waves", kernels.waves, "1", **inputs), leaf("wave efficiency", kernels.wave_efficiency, "1", **inputs)


def fractions(u: Under, measured: float) -> dict[str, Term]:
    """What a measured time reaches of the compute and the HBM roof."""
    return {
        name: leaf(f"fraction of the {name} roof", _fraction, "1", least=term.value, time=measured)
        for name, term in (("compute", u.compute), ("hbm", u.hbm))
    }


def _fraction(least: Any, time: Any) -> Any:
    """What is reached of a roof: ``least / time``."""
    return least / time


@dataclass(frozen=True)
class Verdict:
    """What a measured time says in a word and in a sentence; ``possible`` is False where it lies above a roof."""

    word: str  # compute, hbm, dispatch, overhead or impossible
    text: str

    @property
    def possible(self) -> bool:
        """Whether hardware could have done it."""
        return self.word != "impossible"


def judge(device: Device, u: Under, measured: float) -> Verdict:
    """The verdict of an operator's measured time."""
    shares = {name: float(term.value) for name, term in fractions(u, measured).items()}
    dispatch = 0.0 if device.dispatch is None else plain(device.dispatch) / measured
    expected = 0.0 if u.expected is None else float(u.expected.value) / measured
    return verdict(shares, dispatch, expected)


def verdict(shares: Mapping[str, float], dispatch: float, expected: float) -> Verdict:
    """The verdict by what a measurement reaches of the roofs, of a launch's host time, and of what kernels of its kind take."""
    above = {name: share for name, share in shares.items() if share > 1.0}
    if above:
        told = " and ".join(f"{share:.0%} of the {name} roof" for name, share in above.items())
        why = "the FLOP count, the number of devices, the precision or the time" if "compute" in above else _TOO_MANY_BYTES
        return Verdict("impossible", f"impossible: {told}; wrong is {why}")
    name = max(shares, key=lambda key: shares[key])
    if shares[name] >= NEAR:
        return Verdict(name, f"near the {name} roof ({shares[name]:.0%}): {REMEDIES[name]}")
    if shares[name] >= FAIR and expected >= USUAL:
        return Verdict(name, f"as near the {name} roof ({shares[name]:.0%}) as kernels of this kind come: {REMEDIES[name]}")
    if dispatch >= NEAR:
        told = f"at the dispatch roof: the host needs {dispatch:.0%} of the time to launch it; fewer or larger kernels help"
        return Verdict("dispatch", told)
    return Verdict("overhead", f"far from every roof ({shares[name]:.0%} of {name}, the nearest): {OVERHEAD}")


_TOO_MANY_BYTES = "the byte count (a cache held the operands, as in a benchmark that repeats on small ones) or the time"


def regression(values: Mapping[str, Any]) -> tuple[str, bool]:
    """What a measured time is against its baseline, and whether it passes."""
    measured, baseline = values["measured"], values["baseline"]
    tolerance, slower = values.get("tolerance", TOLERANCE), measured / baseline - 1.0
    passes = slower <= tolerance
    word = "within" if passes else "a regression: outside"
    return f"{slower:+.1%} against the baseline of {units.show(baseline, 's', 4)}, {word} {tolerance:.3g} tolerance", passes


def plot(device: Device, points: Mapping[str, Under], width: int = 64, height: int = 10) -> list[str]:
    """The roofline as lines of text, both axes logarithmic: the roof ``-`` and ``/``, the operators as letters."""
    first = next(iter(points.values()))
    peak, bandwidth = plain(first.peak), plain(device.bandwidth)
    ridge = peak / bandwidth
    found = [math.log10(max(float(u.intensity.value), 1e-3)) for u in points.values()]
    low, high = min(*found, math.log10(ridge)) - 0.7, max(*found, math.log10(ridge)) + 0.7
    top = math.log10(peak)
    bottom = top - (math.log10(ridge) - low)

    def line_of(rate: float) -> int:
        return round((top - math.log10(rate)) / (top - bottom) * (height - 1))

    grid = [[" "] * width for _ in range(height)]
    for at in range(width):
        intensity = 10 ** (low + (high - low) * at / (width - 1))
        grid[line_of(min(peak, intensity * bandwidth))][at] = "-" if intensity >= ridge else "/"
    for letter, u in zip("abcdefghijklmnopqrstuvwxyz", points.values(), strict=False):
        at = round((math.log10(max(float(u.intensity.value), 1e-3)) - low) / (high - low) * (width - 1))
        rate = min(peak, float(u.intensity.value) * bandwidth)
        measured = u.operator.measured
        shown = max(min(float(u.operator.flop.value) / measured, peak) if measured else rate, 10**bottom)
        grid[line_of(shown)][at] = letter
    names = [f"{letter} {name}" for letter, name in zip("abcdefghijklmnopqrstuvwxyz", points, strict=False)]
    foot = f"{10**low:.2g} FLOP/B".ljust(width - 12) + f"{10**high:.2g} FLOP/B"
    return [units.show(peak, "FLOP/s", 3), *("".join(row).rstrip() for row in grid), foot, *names]
