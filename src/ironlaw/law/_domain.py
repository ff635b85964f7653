"""Helpers that keep a law's domain: outside it the answer is nan, never an exception or a warning."""

from __future__ import annotations

import numpy as np


def ratio(numerator, denominator):
    """``numerator / denominator``, nan where the denominator is 0, in silence: nan spreads without warnings, inf does not.

    >>> float(ratio(3.0, 4.0)), float(ratio(1.0, 0.0))
    (0.75, nan)
    """
    if (isinstance(denominator, float) and denominator != 0.0) or _all_true(denominator):
        return np.divide(numerator, denominator)
    return np.divide(numerator, np.where(np.equal(denominator, 0.0), np.nan, denominator))


def inside(value, *conditions):
    """``value`` where every condition holds, nan elsewhere; a scalar stays a scalar.

    >>> float(inside(2.0, True, 1.0 > 0)), float(inside(2.0, False))
    (2.0, nan)
    """
    unsure, axes = None, getattr(value, "ndim", 0)  # unsure: conditions that may not hold, and those of several plans
    for condition in conditions:
        if condition is True or condition is np.True_:
            continue
        if condition.__class__ is np.ndarray and condition.size == 1 and condition.ndim <= axes and condition:
            continue  # it holds on one plan, and has no more axes than the value
        unsure = condition if unsure is None else unsure & condition
    if unsure is None or (isinstance(unsure, np.ndarray) and unsure.shape == getattr(value, "shape", ()) and _all_true(unsure)):
        if isinstance(value, np.ndarray) and value.ndim and value.dtype == np.float64:
            return value
        return np.asarray(value, dtype=np.float64)[()]
    return np.where(unsure, value, np.nan)[()]


def _all_true(value):
    """True where no element is 0; counting is several times as fast as ``np.all``, on a million numbers, and the truth of one on one."""
    size = getattr(value, "size", 1)
    return bool(value) if size == 1 else np.count_nonzero(value) == size


def fraction(value):
    """True where ``value`` lies in [0, 1]."""
    return (value >= 0) & (value <= 1)


def flag(value):
    """True where ``value`` is 0 or 1."""
    return (value == 0) | (value == 1)


def floats(*values):
    """Each as float64, with infinities made nan so that no product of them warns."""
    arrays = [np.asarray(value, dtype=np.float64) for value in values]
    return tuple(np.where(np.isfinite(array), array, np.nan) for array in arrays)


def on_domain(value, sizes, flags):
    """``value`` where every size is positive and every flag lies in 0..1, nan elsewhere."""
    valid = np.bool_(True)
    for size in sizes:
        valid = valid & (size > 0.0)
    for flag in flags:
        valid = valid & (flag >= 0.0) & (flag <= 1.0)
    return np.where(valid, value, np.nan)
