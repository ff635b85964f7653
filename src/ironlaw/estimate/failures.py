"""What failures make of a run, over columns of any shape that broadcast: one function for an answer and for a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.cluster import Cluster
from ironlaw.estimate.bind.records import Assumptions, assume
from ironlaw.law import goodput as law
from ironlaw.terms import Term, leaf

CHECKPOINT_BYTES = 14.0  # of a parameter: 2-byte weight, fp32 master weight and two moments


@dataclass(frozen=True, eq=False, repr=False)
class Failures:
    """The terms of a run with failures. Where the job hardly gets on, ``seconds``, ``goodput`` and ``count`` are nan."""

    mttf: Term  # of the job
    checkpoint_bytes: Term
    checkpoint_time: Term
    interval: Term  # seconds of work from one checkpoint to the next
    seconds: Term  # of the run, with failures and checkpoints
    goodput: Term
    count: Term

    def trees(self) -> list[Term]:
        """All terms, in the order in which they stand on each other."""
        return [self.mttf, self.checkpoint_bytes, self.checkpoint_time, self.interval, self.seconds, self.goodput, self.count]


def storage_bandwidth(options: dict[str, Any], cluster: Cluster, gpus: Any) -> Any:
    """What storage takes in all [B/s]: the rate given, or that of one accelerator times all."""
    if "checkpoint_bandwidth" in options:
        return options["checkpoint_bandwidth"]
    return cluster.systems.checkpoint_bandwidth.value * gpus


def checkpoint_size(parameters: Any) -> Any:
    """Bytes of a checkpoint with the states of Adam: ``14 parameters``."""
    return CHECKPOINT_BYTES * parameters


def failures_of(
    options: dict[str, Any],
    cluster: Cluster,
    gpus: Any,
    useful: Any,
    steps: Any,
    parameters: Any,
    assumptions: Assumptions | None = None,
) -> Failures:
    """The run with failures, from ``useful``, its seconds without failures and without checkpoints.

    ``gpus``, ``useful``, ``steps`` (of the optimizer) and ``parameters`` are numbers or arrays that broadcast; of ``options`` only mttf,
    restart_time, checkpoint_every and checkpoint_bandwidth are read. What is taken by default is added to ``assumptions``.
    """
    notes: Assumptions = [] if assumptions is None else assumptions
    systems = cluster.systems
    one = _given_or("mttf", options, systems.accelerator_mttf, "of one accelerator", notes)
    restart = _given_or("restart_time", options, systems.restart_time, "for each failure", notes)
    if "checkpoint_bandwidth" not in options:
        assume(notes, "checkpoint_bandwidth", f"{systems.checkpoint_bandwidth.text} for each accelerator", "default")
    mttf = leaf("time between failures", law.cluster_mttf, "s", mttf_per_accelerator=one, gpus=gpus)
    size = leaf("checkpoint size", checkpoint_size, "B", parameters=parameters)
    written = leaf("checkpoint time", law.write_time, "s", size=size.value, bandwidth=storage_bandwidth(options, cluster, gpus))
    if "checkpoint_every" in options:
        interval = leaf("checkpoint interval", _every, "s", steps=options["checkpoint_every"], all_steps=steps, useful=useful)
    else:
        interval = leaf("checkpoint interval", _best, "s", checkpoint_time=written.value, mttf=mttf.value, useful=useful)
        assume(notes, "checkpoint_every", "what loses least (Daly)", "default")
    seconds = leaf(
        "with failures", law.time_with_failures, "s", seconds=useful, checkpoint_interval=interval.value,
        checkpoint_time=written.value, restart_time=restart, mttf=mttf.value,
    )  # fmt: skip
    return Failures(
        mttf,
        size,
        written,
        interval,
        seconds,
        leaf("goodput", law.goodput, "1", useful=useful, wall=seconds.value),
        leaf("failures", law.expected_failures, "1", wall=seconds.value, mttf=mttf.value),
    )


def _given_or(name: str, options: dict[str, Any], default: Sourced, what: str, notes: Assumptions) -> Sourced:
    """The value of the question, or the catalogue's, which is written down."""
    if name in options:
        return Sourced(options[name], default.unit, f"{options[name]:g} {default.unit}", ASKED)
    assume(notes, name, f"{default.text} {what}", "default")
    return default


def _every(steps: Any, all_steps: Any, useful: Any) -> Any:
    """Work of so many steps, at most the whole run: ``useful min(steps / all_steps, 1)``."""
    return useful * np.minimum(steps / all_steps, 1.0)


def _best(checkpoint_time: Any, mttf: Any, useful: Any) -> Any:
    """Daly's interval, at most the whole run: ``min(checkpoint_interval_daly(checkpoint_time, mttf), useful)``."""
    return np.minimum(law.checkpoint_interval_daly(checkpoint_time, mttf), useful)
