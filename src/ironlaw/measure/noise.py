"""The spread of values that should be equal, without the effect of a few outliers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NORMAL_MAD = 1.4826  # the standard deviation of a normal variable over its median absolute deviation
NORMAL_MEDIAN = 1.2533  # the standard error of a median over that of a mean, sqrt(pi / 2)


def deviation(values: NDArray[np.float64]) -> float:
    """The median absolute deviation, in the unit of ``values``. By hand: one line of numpy needs no scipy.

    >>> deviation(np.array([1.0, 2.0, 3.0, 4.0, 100.0]))
    1.0
    """
    return float(np.median(np.abs(values - np.median(values))))
