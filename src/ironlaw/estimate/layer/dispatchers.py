"""Dispatchers of routed rows: one row each, with the properties that a layer and its memory use.

No other module compares the name of a dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric.group_links import inner_ranks
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.law import exchanges
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf

# DeepEP's own configurations (deep_ep/buffer.py, get_dispatch_config and get_combine_config): 20 multiprocessors, which Megatron Core
# takes too (--moe-deepep-num-sms), 128 tokens a queue between nodes, and by ranks of the group the tokens of a queue inside one
NODE, CHANNELS, OUTER_SLOTS = 8.0, 10.0, 128.0
SLOTS = ((8.0, 256.0), (64.0, 288.0), (128.0, 560.0), (np.inf, 720.0))

Buffers = Callable[[str, Job, Cluster, Plan, Shapes], Term]


class Dispatcher(Frozen):
    """How rows reach the ranks of their experts."""

    name: str
    sends_once: bool = False  # a row goes once to each domain and rank, however many of its experts are there
    buffers: Buffers | None = None  # memory it allocates outside the framework's allocator


def _deepep_buffers(name: str, job: Job, cluster: Cluster, plan: Plan, s: Shapes) -> Term:
    """Buffers of DeepEP: NVLink inside a node, RDMA between nodes."""
    del cluster, s
    return leaf(
        name,
        exchanges.deepep_buffers,
        "B",
        times=np.where(plan.ep > 1, 1.0, 0.0),
        hidden_size=float(job.model.hidden_size),
        inner_ranks=np.minimum(plan.ep, NODE),
        outer_ranks=np.maximum(plan.ep / NODE, 1.0),
        channels=CHANNELS,
        slots=np.select([plan.ep <= ranks for ranks, _ in SLOTS], [tokens for _, tokens in SLOTS]),
        outer_slots=OUTER_SLOTS,
    )


def _hybridep_buffers(name: str, job: Job, cluster: Cluster, plan: Plan, s: Shapes) -> Term:
    """Buffers of HybridEP, which depend on the tokens of a rank."""
    inner = inner_ranks(cluster, plan, plan.ep, plan.etp)
    return leaf(
        name,
        exchanges.hybridep_buffers,
        "B",
        times=np.where(plan.ep > 1, 1.0, 0.0),
        tokens=s.tokens / plan.tp,
        hidden_size=float(job.model.hidden_size),
        num_experts=float(job.model.num_experts),
        inner_ranks=inner,
        outer_ranks=plan.ep / inner,
    )


DISPATCHERS = {
    row.name: row
    for row in (
        Dispatcher("alltoall"),
        Dispatcher("deepep", sends_once=True, buffers=_deepep_buffers),
        Dispatcher("hybridep", sends_once=True, buffers=_hybridep_buffers),
    )
}


def dispatcher_of(job: Job) -> Dispatcher:
    """The dispatcher of a job."""
    return DISPATCHERS[job.moe_dispatcher]
