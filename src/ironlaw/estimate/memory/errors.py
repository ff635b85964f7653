"""Errors of predicted memory: their spread in published runs, how likely a plan fits, and the margin that a plan must keep.

``ironlaw validate fit`` learns the spread from runs that measured device or reserved memory; the bands record of the catalogue has it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.records import Bands, Framework
from ironlaw.question.defaults import CERTAINTY, LEAST_MARGIN

ANY = "any"  # the group of all runs


class Spread(NamedTuple):
    """How measured device memory is spread around its prediction: Student's t with two degrees of freedom in ``log(measured / predicted)``.

    Two, because few families were measured: errors far from the centre are more frequent than under a normal distribution.
    """

    centre: float  # median of the log
    half_width: float  # of the interval around it that has ``coverage``, in log
    coverage: float
    group: str  # whose runs it is learned from: ANY, a framework, or a framework on an accelerator
    note: str  # how many runs of how many families

    def share_below(self, log: Any) -> Any:
        """The share of runs whose log(measured / predicted) is at most ``log``.

        >>> spread = Spread(0.05, 0.1, 0.8, "any", "")
        >>> [round(float(spread.share_below(x)), 3) for x in (-0.05, 0.05, 0.15)]
        [0.1, 0.5, 0.9]
        """
        z = (log - self.centre) / self.half_width * _stretch(self.coverage)
        return 0.5 + 0.5 * z / np.sqrt(1.0 + z * z)

    def quantile(self, share: float) -> float:
        """The log(measured / predicted) that ``share`` of the runs do not exceed: the inverse of ``share_below``."""
        return float(self.centre + self.half_width * _stretch(2.0 * share - 1.0) / _stretch(self.coverage))


def _stretch(inside: float) -> float:
    """Where an interval around 0 has the share ``inside`` of Student's t with two degrees of freedom, over the root of two."""
    return float(inside / np.sqrt(1.0 - inside * inside))


def memory_spread(framework: str, accelerator: str, folders: tuple[str, ...] = ()) -> Spread | None:
    """The spread learned for a framework on an accelerator, else for the framework, else for any; None where a catalogue has none."""
    record: Bands = load.record("bands", "default", folders)
    for group in (f"{framework} on {accelerator}", framework, ANY):
        if group in record.memory and group in record.memory_centre:
            half = record.memory[group]
            return Spread(record.memory_centre[group].value, half.value, record.coverage.value, group, half.note)
    return None


def fit_probability(needed: Any, usable: float, spread: Spread) -> Any:
    """How likely a run that is predicted to need ``needed`` bytes [B] finds them within ``usable``, by the spread of errors of memory.

    ``needed`` has no allocator slack, which PyTorch's caching allocator gives back when the device runs short.

    >>> spread = memory_spread("megatron", "h100-sxm")
    >>> likely = fit_probability(np.array([40.0, 70.0, 79.0]), 79.6, spread)
    >>> bool(np.all(np.diff(likely) < 0.0))
    True
    """
    return spread.share_below(np.log(usable / needed))


def memory_margin(framework: str, accelerator: str, folders: tuple[str, ...] = ()) -> float:
    """The share of usable memory that a plan must leave free so that it fits with a probability of CERTAINTY.

    ``1 - (1 + slack) exp(-q)``: ``q`` is the log(measured / predicted) that CERTAINTY of the runs do not exceed; the slack of the
    framework's allocator counts in a plan's device memory, but is given back when the device runs short. At least LEAST_MARGIN.

    >>> 0.01 <= memory_margin("megatron", "h100-sxm") < memory_margin("maxtext", "tpu-v5p") < 0.2  # XLA keeps no slack to give back
    True
    """
    spread = memory_spread(framework, accelerator, folders)
    record: Framework = load.record("frameworks", framework, folders)
    if spread is None:
        return LEAST_MARGIN
    return max(1.0 - (1.0 + record.allocator_slack.value) * float(np.exp(-spread.quantile(CERTAINTY))), LEAST_MARGIN)
