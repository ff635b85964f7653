"""Optimizers whose states are pages: on the device where it has room, else in the host, and moved for every update.

Pages are unified memory, which the caching allocator does not hold: any tensor that needs room takes it from them. So a plan fits
without them, and they take what the device has left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.memory.offloading import host_link
from ironlaw.estimate.memory.states import paged_states
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job
from ironlaw.law import states
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf

PAGES, MOVED = "pages of optimizer states", "pages of the optimizer moved"


def pages_in_host(job: Job, cluster: Cluster, plan: Plan, stage: Stage, device: Any) -> Term:
    """Bytes of pages of a stage that find no room on a device of which ``device`` bytes are taken."""
    left = np.maximum(cluster.accelerator.usable_memory - device, 0.0)
    return leaf(PAGES, states.without_room, "B", "optimizer", size=paged_states(job, plan, stage).value, room=left)


def paging(cluster: Cluster, in_host: Any) -> Term:
    """Time that pages in the host add to a step: each comes to the device for its update, and another goes back for it."""
    return leaf(MOVED, states.paging_time, "s", "network", size=in_host, bandwidth=host_link(cluster))
