"""Results of a benchmark of collectives: rates by size, and latency and bandwidth fitted to its times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ironlaw.law import collectives
from ironlaw.measure.communication.collectives import operation_of, traffic_factor
from ironlaw.measure.logs import Calls

AGREE = 0.02  # between printed rates and those of the printed times, which have three or four digits
FEW = 3  # sizes that a fit needs: two always lie on a line
BENT = 0.25  # relative error from which one line does not fit: libraries change algorithm and protocol with size
DIGITS = 1e9  # [B/s] slower rates are printed with too few digits to check


@dataclass(frozen=True)
class BySize:
    """Calls of one size, without the first call of each rank where every call is printed."""

    size: float  # [B]
    in_place: bool
    calls: int
    seconds: float  # median
    algorithm_bandwidth: float  # [B/s] median
    bus_bandwidth: float  # [B/s] median
    lowest: float  # [B/s] of bus bandwidth
    highest: float
    first_call: float | None  # [B/s] bus bandwidth of the calls left out as warm-up, None if there are none


@dataclass(frozen=True)
class Fit:
    """``t = latency + size / bandwidth``, fitted with weights 1/t so that every size counts alike."""

    in_place: bool
    sizes: int
    latency: float  # [s]
    bandwidth: float  # [B/s] of the algorithm
    bandwidth_error: float  # [B/s] one standard error
    bus_bandwidth: float | None  # [B/s], None if the number of ranks is unknown
    half_size: float  # [B] that reach half the bandwidth
    error: float  # relative, root mean square over sizes
    worst: float  # relative, of the size fitted worst
    why: str = ""  # what is wrong with the fit, "" if nothing


@dataclass(frozen=True)
class CollectiveReading:
    """The results of a benchmark of one collective."""

    collective: str
    ranks: int | None
    sizes: tuple[BySize, ...]
    fits: tuple[Fit, ...]
    notes: tuple[str, ...]


def collective_reading(calls: Calls, ranks: int | None) -> CollectiveReading:
    """Summarise ``calls`` on ``ranks``; a size with fewer than two calls per rank includes the first call."""
    summaries = [
        _by_size(calls, float(size), in_place) for in_place in (False, True) for size in np.unique(calls.size[calls.in_place == in_place])
    ]
    sizes, notes = [size for size, _ in summaries], [note for _, note in summaries if note]
    factor = traffic_factor(operation_of(calls.collective) or "", ranks) if ranks and ranks > 1 else None
    fits = []
    for in_place in (False, True):
        measured = [s for s in sizes if s.in_place == in_place and s.size > 0]
        if len(measured) >= FEW:
            fits.append(fit(np.array([s.size for s in measured]), np.array([s.seconds for s in measured]), in_place, factor))
        elif measured:
            notes.append(f"{len(measured)} sizes: a fit of latency and bandwidth needs {FEW}")
    notes += _disagree(calls)
    return CollectiveReading(calls.collective, ranks, tuple(sizes), tuple(fits), tuple(notes))


def _by_size(calls: Calls, size: float, in_place: bool) -> tuple[BySize, str]:
    """Summarise the calls of one size; the note names the calls left out as warm-up."""
    of_size = (calls.size == size) & (calls.in_place == in_place)
    first = of_size & (calls.number == 0) & (calls.rank >= 0)
    counted = of_size & ~first
    warm = bool(counted.any() and first.any())
    if not warm:
        counted = of_size
    bus = calls.bus_bandwidth[counted]
    cold = float(np.median(calls.bus_bandwidth[first])) if warm else None
    note = ""
    if cold:
        times = float(np.median(bus)) / cold
        note = f"the first call of each rank is warm-up ({times:.3g} times slower) and left out: {int(first.sum())} calls"
    summary = BySize(
        size=size,
        in_place=in_place,
        calls=int(counted.sum()),
        seconds=float(np.median(calls.seconds[counted])),
        algorithm_bandwidth=float(np.median(calls.algorithm_bandwidth[counted])),
        bus_bandwidth=float(np.median(bus)),
        lowest=float(bus.min()),
        highest=float(bus.max()),
        first_call=cold,
    )
    return summary, note


def fit(size: NDArray[np.float64], seconds: NDArray[np.float64], in_place: bool = False, factor: float | None = None) -> Fit:
    """Fit latency and bandwidth to measured times.

    >>> fitted = fit(np.array([1e3, 1e6, 1e9]), 1e-5 + np.array([1e3, 1e6, 1e9]) / 1e11)
    >>> round(fitted.latency * 1e6, 6), round(fitted.bandwidth / 1e9, 6), fitted.error < 1e-9
    (10.0, 100.0, True)
    """
    why = ""
    design = np.stack([np.ones_like(size), size], axis=1) / seconds[:, None]
    solution, covariance = _least_squares(design)
    if solution[0] < 0:  # a line through the origin: these sizes do not show the latency
        why = "the latency is too small to measure with these sizes; zero is assumed"
        slope, covariance = _least_squares(design[:, 1:])
        solution = np.array([0.0, slope[0]])
    latency, per_byte = float(solution[0]), float(solution[1])
    residual = (latency + per_byte * size) / seconds - 1.0
    if per_byte <= 0:
        return Fit(in_place, len(size), latency, float("inf"), float("nan"), None, float("inf"), _rms(residual), _worst(residual),
                   "time does not grow with size, so no bandwidth can be fitted")  # fmt: skip
    bandwidth = 1.0 / per_byte
    spread = float(np.sqrt(max(0.0, float(covariance[-1, -1])))) * bandwidth * bandwidth
    if not why and _worst(residual) > BENT:
        why = f"one line misses a size by {_worst(residual):.0%}: the library changes its algorithm between sizes"
    bus = None if factor is None else bandwidth * factor
    return Fit(in_place, len(size), latency, bandwidth, spread, bus, latency * bandwidth, _rms(residual), _worst(residual), why)


def _least_squares(design: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit ``design`` times the coefficients to one in every row: the coefficients and their covariance.

    By hand, because ``np.polyfit`` raises LinAlgError where the sizes of a log are nearly equal.
    """
    scale = np.sqrt(np.sum(design * design, axis=0))
    scale[scale == 0] = 1.0
    scaled = design / scale
    solution = np.linalg.lstsq(scaled, np.ones(len(design)), rcond=None)[0]
    residual = scaled @ solution - 1.0
    freedom = max(1, len(design) - design.shape[1])
    inverse = np.linalg.pinv(scaled.T @ scaled)
    covariance = inverse * float(residual @ residual) / freedom / np.outer(scale, scale)
    return solution / scale, covariance


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values * values)))


def _worst(values: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(values)))


def _disagree(calls: Calls) -> list[str]:
    """A note if printed rates are not size over time: other units, or another definition of size."""
    rate = collectives.algorithm_bandwidth(calls.size, calls.seconds)
    large = (calls.algorithm_bandwidth > DIGITS) & (rate > 0)
    if not large.any():
        return []
    ratio = float(np.median(calls.algorithm_bandwidth[large] / rate[large]))
    if abs(ratio - 1.0) <= AGREE:
        return []
    return [f"printed algorithm bandwidth is {ratio:.3g} times size over time: check the units (Gbit or GByte) and the definition of size"]
