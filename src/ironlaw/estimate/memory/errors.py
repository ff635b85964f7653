"""Errors of predicted memory: their spread in published runs, how likely a plan fits, and the margin that a plan must keep.

``ironlaw validate fit`` learns the spread from runs that measured device or reserved memory; the bands record of the catalogue has it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.records import Bands, Framework
from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.estimate.memory.total import Memory
from ironlaw.question.defaults import CERTAINTY, LEAST_MARGIN
from ironlaw.terms import Term, leaf

ANY = "any"  # the group of all runs


class Spread(NamedTuple):
    """How measured device memory is spread around its prediction, as ``log(measured / predicted)``."""

    centre: Sourced  # median
    half_width: Sourced  # of the interval around the centre that has ``coverage``
    coverage: Sourced
    group: str  # whose runs it is learned from: ANY, a framework, or a framework on an accelerator

    def quantile(self, share: float) -> float:
        """The log(measured / predicted) that ``share`` of the runs do not exceed: the inverse of ``fit_probability``."""
        return float(self.centre.value + self.half_width.value * _stretch(2.0 * share - 1.0) / _stretch(self.coverage.value))


def fit_probability(needed: Any, usable: Any, centre: Any, half_width: Any, coverage: Any) -> Any:
    """How likely a run finds the memory that it is predicted to need: ``T((log(usable / needed) - centre) / half_width)``.

    ``T`` is the distribution function of Student's t with two degrees of freedom, scaled so that ``coverage`` lies within the half-width.
    Two, because few families were measured: errors far from the centre are more frequent than under a normal distribution.

    >>> [round(float(fit_probability(need, 80.0, 0.0, 0.1, 0.8)), 3) for need in (40.0, 72.39, 80.0, 88.41)]
    [0.997, 0.9, 0.5, 0.1]
    """
    z = (np.log(usable / needed) - centre) / half_width * _stretch(coverage)
    return 0.5 + 0.5 * z / np.sqrt(1.0 + z * z)


def _stretch(inside: Any) -> Any:
    """Half-width of the interval around 0 with probability ``inside`` under Student's t (two degrees of freedom), over the root of two."""
    return inside / np.sqrt(1.0 - inside * inside)


def memory_spread(framework: str, accelerator: str, folders: tuple[str, ...] = ()) -> Spread | None:
    """The spread learned for a framework on an accelerator, else for the framework, else for any; None where a catalogue has none."""
    record: Bands = load.record("bands", "default", folders)
    for group in (f"{framework} on {accelerator}", framework, ANY):
        if group in record.memory and group in record.memory_centre:
            return Spread(record.memory_centre[group], record.memory[group], record.coverage, group)
    return None


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


def margin_of(cluster: Cluster, framework: str, folders: tuple[str, ...] = ()) -> float:
    """The share of device memory that a plan must leave free to be called best: as given, or learned from published runs."""
    return memory_margin(framework, cluster.accelerator.name, folders) if cluster.margin is None else cluster.margin


def likely_to_fit(memory: Memory, cluster: Cluster, framework: str, folders: tuple[str, ...] = ()) -> Term | None:
    """The probability that every plan of a batch fits its device; None where a catalogue has no spread.

    Without allocator slack, which PyTorch's caching allocator gives back when the device runs short.
    """
    spread = memory_spread(framework, cluster.accelerator.name, folders)
    if spread is None:
        return None
    parts = {"centre": spread.centre, "half_width": spread.half_width, "coverage": spread.coverage}
    return leaf("probability to fit", fit_probability, "1", needed=memory.needed, usable=cluster.accelerator.usable_memory, **parts)


def borrowed_odds(memory: Memory, cluster: Cluster, folders: tuple[str, ...] = ()) -> Any:
    """The probability that every plan fits by the spread that a framework without runs borrows; None where a catalogue has none."""
    spread = memory_spread("", "", folders)
    if spread is None:
        return None
    usable = cluster.accelerator.usable_memory
    return fit_probability(memory.needed, usable, spread.centre.value, spread.half_width.value, spread.coverage.value)
