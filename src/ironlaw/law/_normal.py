"""The normal distribution over arrays, read from tables that are made once with ``math.erfc``."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

FARTHEST, STEPS = 12.0, 9600  # standard deviations that the tables reach, and their points: linear between points, error below 1e-6
_SQRT_2, _SQRT_2_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)


@cache
def _table() -> tuple[Any, Any]:
    """Points z, ascending, and the logarithm of the probability to be above each."""
    z = np.linspace(-FARTHEST, FARTHEST, STEPS + 1)
    return z, np.log([0.5 * math.erfc(point / _SQRT_2) for point in z.tolist()])


def density(z: Any) -> Any:
    """Density of the standard normal distribution: ``exp(-z^2 / 2) / sqrt(2 pi)``."""
    return np.exp(-0.5 * np.square(z)) / _SQRT_2_PI


def log_below(z: Any) -> Any:
    """Logarithm of the probability to be below ``z``."""
    points, tails = _table()
    return np.interp(-np.asarray(z, dtype=np.float64), points, tails)


def below(z: Any) -> Any:
    """Probability to be below ``z``."""
    return np.exp(log_below(z))


def point_with_above(probability: Any) -> Any:
    """The z that a standard normal number exceeds with this probability.

    >>> round(float(point_with_above(0.05)), 3), round(float(point_with_above(0.5)), 6)
    (1.645, 0.0)
    """
    points, tails = _table()
    return np.interp(-np.log(probability), -tails, points)
