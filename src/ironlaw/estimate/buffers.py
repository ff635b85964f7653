"""What one accelerator holds beside states and activations: workspaces of libraries, buffers of collectives."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.counts import common_parameters, largest_experts, largest_operand, routed_parameters
from ironlaw.estimate.kinds import kinds
from ironlaw.estimate.stages import Stage
from ironlaw.law import states
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.terms import Term, leaf


def workspace(job: Job, cluster: Cluster) -> list[Term]:
    """What the libraries of matrix products keep for themselves, which depends on the device."""
    f, architecture = job.framework, cluster.accelerator.architecture
    made = [leaf("library workspace", _as_is, "B", size=f.workspaces.get(architecture, f.workspace))]
    if job.model.num_experts and job.grouped_experts and architecture in f.grouped_workspaces:
        made.append(leaf("workspace of grouped products", _as_is, "B", size=f.grouped_workspaces[architecture]))
    return made


def gather_buffers(job: Job, plan: Plan, stage: Stage) -> Term:
    """ZeRO-3: two units' whole weights (one in use, one prefetched) and one's whole gradients: layers, matrices, or the table."""
    table = np.maximum(stage.embedding, stage.head) * (job.model.vocab_size * job.model.hidden_size) / plan.tp
    biggest = table
    for kind in kinds(job.model):
        whole = common_parameters(job.model, kind) / plan.tp + routed_parameters(job.model, kind) / plan.expert_ways
        if job.framework.gather_unit == "matrix":
            whole = np.maximum(largest_operand(job.model, kind) / plan.tp, largest_experts(job.model, kind) / plan.expert_ways)
        biggest = np.maximum(biggest, whole)
    units = np.where((plan.zero == 3) & (plan.shard_ranks > 1), 1.0, 0.0) * biggest
    return leaf(
        "gather buffers",
        states.state,
        "B",
        parameters=units,
        bytes_per_parameter=2.0 * job.precision.parameter_bytes + job.framework.gradient_reduce_bytes.value,
        shards=1.0,
    )


def _as_is(size: Any) -> Any:
    """A size read from the record as it stands: ``size``."""
    return size
