"""Distributions of lengths by name: ``fixed:2048``, ``uniform:128..4096``, ``lognormal:median=800,sigma=1.1``, ``zipf:s=1.5,max=8192``.

Also ``512=3,4096=1``: lengths with their weights. Continuous ones are cut into bins of equal width in log, each with its own mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ironlaw import units
from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError
from ironlaw.estimate.documents.histogram import LONGEST, Histogram
from ironlaw.question.words import length

BINS = 1024  # of a continuous distribution
TAIL = 1e-7  # share of the documents beyond the last bin on either side, where no limit is given


def is_spec(text: str) -> bool:
    """True for a text that names a distribution, and not a file or a record."""
    return text.partition(":")[0] in SPECS or text.partition("=")[0].strip().isdecimal()


def read_spec(text: str, flag: str = "--lengths") -> Histogram:
    """The distribution that a text names; an unknown key or a value out of range is an error.

    >>> read_spec("fixed:2048").lengths.tolist(), read_spec("512=3,4096=1").mean
    ([2048.0], 1408.0)
    """
    name, colon, rest = text.partition(":")
    if colon and name in SPECS:
        return SPECS[name](rest, f"{flag} {name}")
    pairs = [(length(tokens, flag), _number(weight, f"{flag} {tokens}")) for tokens, weight in _items(text, flag)]
    if not sum(weight for _, weight in pairs) > 0.0:
        raise ValueRangeError(f"{flag} is {units.shorten(text)}: the weights sum to nothing")
    return Histogram.of(pairs)


def _items(text: str, flag: str) -> list[tuple[str, str]]:
    pairs = [item.partition("=") for item in text.split(",") if item.strip()]
    if not pairs or not all(sign for _, sign, _ in pairs):
        raise QuestionError(f"{flag} is {units.shorten(text)!r}: write NAME=VALUE, comma separated")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _number(value: str, flag: str) -> float:
    number = units.parse(value, "1", flag)
    if not 0.0 <= number <= 1e15:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be from 0 to 1e15")
    return number


def _named(text: str, flag: str, known: tuple[str, ...]) -> dict[str, float]:
    """The named numbers of a distribution; lengths may be written as 8k."""
    values: dict[str, float] = {}
    for name, value in _items(text, flag):
        if name not in known:
            raise UnknownNameError(f"value of {flag}", name, known)
        values[name] = _number(value, f"{flag} {name}") if name in ("sigma", "s") else float(length(value, f"{flag} {name}"))
        if not 0.0 < values[name] <= LONGEST:
            raise ValueRangeError(f"{flag} {name} is {units.shorten(value)}, must be above 0 and at most {LONGEST:g}")
    return values


def _limits(values: dict[str, float], flag: str, low: float, high: float) -> tuple[float, float]:
    low, high = values.get("min", low), values.get("max", high)
    if not low <= high:
        raise ValueRangeError(f"{flag}: min {low:g} is more than max {high:g}")
    return low, high


def _fixed(text: str, flag: str) -> Histogram:
    return Histogram.of([(float(length(text, flag)), 1.0)])


def _uniform(text: str, flag: str) -> Histogram:
    first, dots, last = text.partition("..")
    if not dots:
        raise QuestionError(f"{flag} is {units.shorten(text)!r}: write LO..HI, such as 128..4096")
    low, high = (float(length(end, flag)) for end in (first, last))
    if low > high or high > LONGEST:
        raise ValueRangeError(f"{flag} is {units.shorten(text)}: must go up, to {LONGEST:g} at most")
    if high - low < 4.0 * BINS:
        return Histogram.of((tokens, 1.0) for tokens in np.arange(low, high + 1.0))
    return _whole(np.linspace(low, high, 4 * BINS), np.ones(4 * BINS))


def _lognormal(text: str, flag: str) -> Histogram:
    """The logarithm is normal. Lengths outside ``min`` and ``max`` are set to these, as Megatron's mock data sets do."""
    values = _named(text, flag, ("median", "mean", "sigma", "min", "max"))
    if "sigma" not in values or ("median" in values) == ("mean" in values):
        raise QuestionError(f"{flag} needs sigma, and median or mean: lognormal:median=800,sigma=1.1")
    sigma = values["sigma"]
    if sigma > 5.0:
        raise ValueRangeError(f"{flag} sigma is {sigma:g}, must be at most 5")
    middle = math.log(values["median"]) if "median" in values else math.log(values["mean"]) - sigma * sigma / 2.0
    from statistics import NormalDist  # a question without such lengths does not pay for it

    normal = NormalDist(middle, sigma)
    ends = (math.exp(normal.inv_cdf(TAIL)), math.exp(normal.inv_cdf(1.0 - TAIL)))
    low, high = _limits(values, flag, max(ends[0], 1.0), min(ends[1], LONGEST))
    edges = np.linspace(math.log(low), math.log(high), BINS + 1)
    below = np.array([normal.cdf(edge) for edge in edges])
    part = np.array([NormalDist(middle + sigma * sigma, sigma).cdf(edge) for edge in edges])  # of the mean, below each edge
    mass = np.diff(below)
    mean = np.exp(middle + sigma * sigma / 2.0) * np.diff(part)
    centre = np.where(mass > 0.0, mean / np.where(mass > 0.0, mass, 1.0), np.exp(edges[:-1]))
    return _whole(np.concatenate(([low], centre, [high])), np.concatenate(([below[0]], mass, [1.0 - below[-1]])))


def _zipf(text: str, flag: str) -> Histogram:
    """The share of length l is in proportion to l^-s, from ``min`` to ``max``."""
    values = _named(text, flag, ("s", "min", "max"))
    if "s" not in values or "max" not in values:
        raise QuestionError(f"{flag} needs s and max: zipf:s=1.5,min=16,max=8192")
    low, high = _limits(values, flag, 1.0, LONGEST)
    if high - low <= 1e6:
        tokens = np.arange(low, high + 1.0)
        return Histogram(tokens, tokens ** -values["s"] / np.sum(tokens ** -values["s"]))
    edges = np.geomspace(low, high, 4 * BINS + 1)
    centre = np.sqrt(edges[1:] * edges[:-1])
    return _whole(centre, centre ** -values["s"] * np.diff(edges))


def _whole(lengths: np.ndarray, weights: np.ndarray) -> Histogram:
    """The distribution with lengths rounded to whole tokens, at least one."""
    return Histogram.of(zip(np.maximum(np.round(lengths), 1.0), weights, strict=True))


SPECS: dict[str, Callable[[str, str], Histogram]] = {"fixed": _fixed, "uniform": _uniform, "lognormal": _lognormal, "zipf": _zipf}
