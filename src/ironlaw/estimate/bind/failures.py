"""How often the machines of a question fail, and what a restart and a checkpoint take."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.cluster import Cluster
from ironlaw.frozen import Frozen
from ironlaw.question.asked import Asked
from ironlaw.question.assumptions import Assumptions, assume

FAILURE_OPTIONS = ("checkpoint_every", "checkpoint_bandwidth", "mttf", "restart_time")


class FailureRates(Frozen):
    """Failures, restarts and checkpoints of a cluster of any size."""

    mttf: Sourced  # of one accelerator
    restart_time: Sourced
    checkpoint_every: float | None  # steps; None: the interval that loses least time
    checkpoint_bandwidth: float | None  # of the whole storage [B/s]; None: the rate of one accelerator times their number
    bandwidth_per_accelerator: Sourced

    def storage_bandwidth(self, gpus: Any) -> Any:
        """Rate at which storage takes a checkpoint of ``gpus`` accelerators [B/s]."""
        if self.checkpoint_bandwidth is not None:
            return self.checkpoint_bandwidth
        return self.bandwidth_per_accelerator.value * gpus


def bind_failures(asked: Asked, cluster: Cluster, assumptions: Assumptions) -> FailureRates:
    """The rates of a question: as given, or the catalogue's, which are added to ``assumptions``."""
    systems = cluster.systems
    mttf = given_or_default("mttf", asked.mttf, systems.accelerator_mttf, assumptions, " of one accelerator")
    restart = given_or_default("restart_time", asked.restart_time, systems.restart_time, assumptions, " for each failure")
    if asked.checkpoint_bandwidth is None:
        assume(assumptions, "checkpoint_bandwidth", f"{systems.checkpoint_bandwidth.text} for each accelerator", "default")
    if asked.checkpoint_every is None:
        assume(assumptions, "checkpoint_every", "what loses least (Daly)", "default")
    return FailureRates(mttf, restart, asked.checkpoint_every, asked.checkpoint_bandwidth, systems.checkpoint_bandwidth)


def given_or_default(name: str, given: float | None, default: Sourced, assumptions: Assumptions, what: str = "") -> Sourced:
    """The given value, or the default; ``assumptions`` then lists the text of the default, followed by ``what``."""
    if given is not None:
        return Sourced(given, default.unit, f"{given:g} {default.unit}", ASKED)
    assume(assumptions, name, default.text + what, "default")
    return default
