"""The roofs of a device: its rates, the time of an operator under them, and the verdict on a measured time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import MissingOptionError, QuestionError, UnsupportedError
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer.sizes import elementwise, host_time, kernel
from ironlaw.estimate.legality.abilities import usual_framework, why_chosen
from ironlaw.law import kernels
from ironlaw.precision import PRECISIONS
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.roofline.operators import Operator
from ironlaw.terms import Term, leaf, plain, scalar

NEAR = 0.7  # of a roof: well-shaped kernels reach 0.75 to 0.9 of a datasheet's bandwidth and 0.7 to 0.8 of its matrix rate
FAIR, USUAL = 0.4, 0.8  # or this share of a roof, where kernels of its kind would have needed this share of the time
TOLERANCE = 0.05  # two numbers this close count as equal unless the question gives a tolerance

REMEDIES = {
    "hbm": "only fewer bytes help: fusion, fewer intermediates, lower precision, locality, fewer passes",
    "compute": "only fewer or cheaper operations help: less recomputation, lower precision, a faster device",
}
OVERHEAD = "overhead sets the time: dispatch, synchronisation, graph breaks, conversions, an ill-fitting tile"
WRONG_BYTES = "the byte count (a cache held the operands, as in a benchmark that repeats on small ones) or the time"
WRONG_FLOP = "the FLOP count, the number of devices, the precision or the time"


@dataclass(frozen=True, eq=False)
class Device:
    """The rates that limit an operator. ``cluster`` is None where only --peak and --bandwidth are given."""

    name: str
    bandwidth: Any
    peaks: Mapping[str, Any]
    links: Mapping[str, Any]  # other bandwidths, by name
    multiprocessors: Any
    dispatch: Any  # host time of a launch
    cluster: Cluster | None
    framework: str = ""  # whose launches and driver context are counted

    def peak_name(self, operator: Operator) -> str:
        """The name of an operator's peak rate: of the matrix units in its format, or fp32 of the vector units."""
        if "given" in self.peaks:
            return "given"
        name = PRECISIONS[operator.dtype].peak
        if operator.vector and "fp32" in self.peaks:
            name = "fp32"
        if name not in self.peaks:
            raise UnsupportedError(f"--dtype {operator.dtype}: {self.name} has no such rate; it has {', '.join(self.peaks)}")
        return name

    def peak(self, operator: Operator) -> Any:
        """The peak rate of an operator."""
        return self.peaks[self.peak_name(operator)]


def given_rate(value: float, unit: str) -> Sourced:
    """A number given in the question."""
    return Sourced(value, unit, units.show(value, unit, 4), None, "given")


def bind_device(values: Mapping[str, Any], folders: tuple[str, ...], notes: Assumptions) -> Device:
    """The device of a question: a catalogue record, or two given rates."""
    peak = {"given": given_rate(values["peak"], "FLOP/s")} if "peak" in values else None
    bandwidth = given_rate(values["bandwidth"], "B/s") if "bandwidth" in values else None
    count = given_rate(values["multiprocessors"], "1") if "multiprocessors" in values else None
    if "on" not in values:
        if peak is None or bandwidth is None:
            raise MissingOptionError("missing option --on ACCELERATOR (or both --peak and --bandwidth)")
        return Device("the given roofs", bandwidth, peak, {}, count, None, None)
    cluster = cluster_of(values, folders, notes)
    record = cluster.accelerator
    name = values.get("framework") or usual_framework(record.vendor)
    if "framework" not in values:
        assume(notes, "framework", f"{name}, chosen: {why_chosen(name, record.vendor, folders)}", "default")
    host = host_time(load.record("frameworks", name, folders), cluster)
    links = {
        "c2c": record.c2c_bandwidth, "scale-up": cluster.node.scale_up_bandwidth, "nic": group_links.nic_rate(cluster),
        "pcie": record.pcie_bandwidth,
    }  # fmt: skip
    links = {key: rate for key, rate in links.items() if rate is not None and rate.value > 0}
    return Device(record.name, bandwidth or record.hbm_bandwidth, peak or record.peak, links, count or record.sm_count, host, cluster, name)


def bind_dtype(values: dict[str, Any], folders: tuple[str, ...], notes: Assumptions) -> dict[str, Any]:
    """The options with a format of the operands: the given one, or the device's usual one."""
    if "dtype" in values:
        return values
    name = bind_precision(values["on"], folders) if "on" in values else "bf16"
    assume(notes, "dtype", name, "default")
    return {**values, "dtype": (name, name, name)}


@dataclass(frozen=True, eq=False)
class RooflinePoint:
    """An operator under the roofs of a device."""

    operator: Operator
    peak: Any
    intensity: Term
    ridge: Term
    attainable: Term
    compute: Term  # time at the compute roof
    hbm: Term  # time at the hbm roof
    least: Term  # the longer of both
    expected: Term | None  # with the constants of measured kernels

    @property
    def bound(self) -> str:
        """The roof that limits the operator."""
        return "hbm" if scalar(self.hbm) > scalar(self.compute) else "compute"


def roofline_point(device: Device, operator: Operator) -> RooflinePoint:
    """The least time of an operator at the device's roofs, and the time of measured kernels like it."""
    flop, moved = operator.flop.value, operator.traffic.value
    peak, bandwidth = device.peak(operator), device.bandwidth
    intensity = leaf("intensity", kernels.intensity, "FLOP/B", flop=flop, traffic=moved)
    ideal = {"efficiency": 1.0, "bandwidth_fraction": 1.0, "fill": 0.0, "launch": 0.0}
    return RooflinePoint(
        operator=operator,
        peak=peak,
        intensity=intensity,
        ridge=leaf("ridge point", kernels.ridge_point, "FLOP/B", peak=peak, bandwidth=bandwidth),
        attainable=leaf("attainable rate", kernels.attainable_rate, "FLOP/s", intensity=intensity.value, peak=peak, bandwidth=bandwidth),
        compute=leaf("time at the compute roof", kernels.compute_time, "s", "compute", flop=flop, peak=peak, efficiency=1.0),
        hbm=leaf(
            "time at the hbm roof", kernels.memory_time, "s", "hbm", traffic=moved, bandwidth=bandwidth, bandwidth_fraction=1.0, launch=0.0
        ),
        least=leaf("least time", kernels.kernel_time, "s", flop=flop, traffic=moved, peak=peak, bandwidth=bandwidth, **ideal),
        expected=_expected_time(device, operator, flop, moved),
    )


def _expected_time(device: Device, operator: Operator, flop: Any, moved: Any) -> Term | None:
    """The time of such a kernel in an estimate; None for given roofs, and for attention, which has its own constants."""
    cluster = device.cluster
    if cluster is None or "given" in device.peaks or plain(device.bandwidth) != cluster.accelerator.hbm_bandwidth.value:
        return None
    if operator.vector:
        return elementwise(cluster, "expected time", moved)
    precision = PRECISIONS[operator.dtype]
    if operator.grid is None or precision.gemm not in cluster.calibration.gemm:
        return None
    return kernel(cluster, "expected time", flop, moved, precision.peak, cluster.gemm(precision.gemm))


def count_waves(device: Device, operator: Operator, tile: tuple[float, float]) -> tuple[Term, Term] | None:
    """Waves of a matrix product's tiles over the multiprocessors, and the share of the device they keep busy."""
    if operator.grid is None or device.multiprocessors is None:
        return None
    tiles = math.ceil(operator.grid[0] / tile[0]) * math.ceil(operator.grid[1] / tile[1])
    inputs = {"tiles": float(tiles), "multiprocessors": device.multiprocessors}
    return leaf("waves", kernels.waves, "1", **inputs), leaf("wave efficiency", kernels.wave_efficiency, "1", **inputs)


def roof_fractions(point: RooflinePoint, measured: float) -> dict[str, Term]:
    """The shares of the compute and the HBM roof that a measured time reaches."""
    return {
        name: leaf(f"fraction of the {name} roof", _fraction, "1", least=term.value, time=measured)
        for name, term in (("compute", point.compute), ("hbm", point.hbm))
    }


def _fraction(least: Any, time: Any) -> Any:
    """Share of a roof that is reached: ``least / time``."""
    return least / time


@dataclass(frozen=True)
class Verdict:
    """What limits a measured operator, in a word and in a sentence."""

    word: str  # compute, hbm, dispatch, overhead or impossible
    text: str


def judge(device: Device, point: RooflinePoint, measured: float) -> Verdict:
    """What limits an operator with this measured time; impossible above a roof."""
    shares = {name: scalar(term) for name, term in roof_fractions(point, measured).items()}
    dispatch = 0.0 if device.dispatch is None else plain(device.dispatch) / measured
    expected = 0.0 if point.expected is None else scalar(point.expected) / measured
    above = {name: share for name, share in shares.items() if share > 1.0}
    if above:
        reached_shares = " and ".join(f"{share:.0%} of the {name} roof" for name, share in above.items())
        wrong = WRONG_FLOP if "compute" in above else WRONG_BYTES
        return Verdict("impossible", f"impossible: {reached_shares}; check {wrong}")
    name = max(shares, key=lambda key: shares[key])
    if shares[name] >= NEAR:
        return Verdict(name, f"near the {name} roof ({shares[name]:.0%}): {REMEDIES[name]}")
    if shares[name] >= FAIR and expected >= USUAL:
        return Verdict(name, f"as near the {name} roof ({shares[name]:.0%}) as kernels of this kind come: {REMEDIES[name]}")
    if dispatch >= NEAR:
        text = f"at the dispatch roof: the host needs {dispatch:.0%} of the time to launch it; fewer or larger kernels help"
        return Verdict("dispatch", text)
    return Verdict("overhead", f"far from every roof ({shares[name]:.0%} of {name}, the nearest): {OVERHEAD}")


def measured_step(values: Mapping[str, Any], batch: float, tokens: float = math.nan) -> float | None:
    """The measured time of a step of ``batch`` samples or ``tokens``: given, or from samples or tokens per second."""
    given = [name for name in ("measured", "samples_per_second", "tokens_per_second") if name in values]
    if len(given) > 1:
        raise QuestionError(f"give one of {' and '.join('--' + name.replace('_', '-') for name in given)}: both are the time of a step")
    if "samples_per_second" in values:
        return batch / float(values["samples_per_second"])
    return tokens / float(values["tokens_per_second"]) if "tokens_per_second" in values else values.get("measured")


def compare_with_baseline(values: Mapping[str, Any]) -> tuple[list[str], bool]:
    """A sentence on the measured time against its baseline, and whether it passes; no sentence without a baseline."""
    if "baseline" not in values:
        return [], True
    baseline = values["baseline"]
    tolerance, slower = values.get("tolerance", TOLERANCE), values["measured"] / baseline - 1.0
    passes = slower <= tolerance
    word = "within" if passes else "a regression: outside"
    return [f"{slower:+.1%} against the baseline of {units.show(baseline, 's', 4)}, {word} {tolerance:.3g} tolerance"], passes


def show(term: Term) -> str:
    """The value of a term with its unit, four digits."""
    return units.show(scalar(term), term.unit, 4)
