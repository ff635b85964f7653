"""Bandwidth of groups of chips on the axes of a torus, and of a mesh, whose axes have no link from their last chip to their first."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import flag, inside, ratio


def axis_rate(extent, apart, side, wraps, rate):
    """Bandwidth that a collective finds on one axis: ``rate / apart``, half of it on a line, 0 where the group has one chip there.

    A group of ``extent`` chips, ``apart`` from each other, shares each link with the ``apart`` groups between its chips. It makes a ring,
    in which every chip sends both ways, if it goes round an axis that wraps: ``extent apart = side``. Else the chips at the ends of the
    line have one link, and what they lack has to come over it.

    Parameters
        extent [1]: chips of the group along the axis, >= 1
        apart [1]: chips from one of them to the next, >= 1
        side [1]: chips of the slice along the axis, >= 1
        wraps [1]: 1 where a link joins the last chip of the axis to the first, 0 or 1
        rate [B/s]: both links of a chip along the axis together, one direction, > 0
    Returns [B/s]: bandwidth
    Source: Austin et al., How to Scale Your Model, Google DeepMind, 2025, parts 2 and 3 (an axis that wraps has the bandwidth of both
        directions, one that does not that of one; all axes work at once), https://jax-ml.github.io/scaling-book/tpus
    Leaves out: the dimension-ordered schedules that split a tensor unevenly over axes of different rates

    >>> float(axis_rate(16, 1, 16, 1, 100e9)), float(axis_rate(4, 1, 4, 0, 100e9)), float(axis_rate(4, 4, 16, 1, 100e9))
    (100000000000.0, 50000000000.0, 25000000000.0)
    """
    ring = (wraps > 0) & (1.0 * extent * apart >= side * (1.0 - 1e-9))
    shared = ratio(1.0 * rate, 1.0 * apart)
    found = np.where(extent > 1.0, np.where(ring, shared, 0.5 * shared), 0.0)
    return inside(found, extent >= 1, apart >= 1, side >= 1, flag(wraps), rate > 0)
