"""Data-parallel groups with several ranks in each scale-up domain: what each tier carries, and what more domains cost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import ironlaw
from ironlaw.cautions.record import sentences
from ironlaw.estimate.layer.trained import stage_trained
from ironlaw.estimate.network.sharding import reductions
from ironlaw.estimate.pipeline.stages import stages
from ironlaw.terms import shares


def one(value) -> float:
    return float(np.ravel(getattr(value, "value", value))[0])


def answer(model, gpus, **changes):
    asked = {"on": "gb200", "seq_len": 4096, "micro_batch_size": 1, "global_batch_size": 4 * gpus, "zero": 1, **changes}
    found = ironlaw.estimate(model, gpus=gpus, **asked)
    assert found.legal[0], sentences(found.row()["warnings"])
    return found.groups[0]


def scattered(group):
    """The first collective that reduces the gradients of a sharded optimizer."""
    parameters = stage_trained(group.job, stages(group.job, group.plan)[0])
    return reductions(group.job, group.cluster, group.plan, *parameters)[0][1][0]


def test_each_of_the_ranks_of_a_domain_sends_its_share_over_its_own_nic():
    """Llama 3 70B, tp 4 on 2,048 GB200: 16 ranks of a group of 512 in each of 32 domains of 64.

    A NIC carries 511/512 of a sixteenth of the gradients. Reduced inside domains first it would carry 31/32 of it: 3 % less. Between four
    domains a quarter less would be carried, and between two half; gathers and scatters of NCCL are rings of all ranks.
    """
    inputs = scattered(answer("llama-3-70b", 2048, tp=4, pp=1)).inputs
    assert (one(inputs["inner_ranks"]), one(inputs["outer_ranks"])) == (16.0, 32.0)
    assert one(inputs["factor"]) == one(inputs["outer_factor"]) == 511 / 512
    assert one(inputs["inner_latency"]) < 1e-4 < one(inputs["outer_latency"])  # 31 steps from domain to domain


@pytest.mark.parametrize(("gpus", "carried"), [(128, 1.0), (192, 2 * 47 / 48), (256, 2 * 63 / 64)])
def test_an_all_reduce_between_two_domains_is_a_tree(gpus, carried):
    """16 ranks in each domain of 64. NCCL issue 946: on two nodes the network has half the traffic of a ring, on more it has not."""
    group = answer("llama-3-8b", gpus, tp=4, pp=1, zero=0)
    whole = reductions(group.job, group.cluster, group.plan, *stage_trained(group.job, stages(group.job, group.plan)[0]))[1][1][0]
    assert one(whole.inputs["outer_factor"]) == pytest.approx(carried)
    assert one(whole.inputs["factor"]) == pytest.approx(2.0 * (gpus / 4 - 1) / (gpus / 4))


def test_shards_inside_a_domain_reduce_there_first():
    """Megatron Core's --num-distributed-optimizer-instances: scattered among the 16 ranks of a domain, then a shard each between 32."""
    group = answer("llama-3-70b", 2048, tp=4, pp=1, dp_shard=16)
    parameters = stage_trained(group.job, stages(group.job, group.plan)[0])
    (_, (scatter, *_)), _, (_, (replicas, *_)) = reductions(group.job, group.cluster, group.plan, *parameters)
    assert (one(scatter.inputs["inner_ranks"]), one(scatter.inputs["outer_ranks"])) == (16.0, 1.0)
    assert (one(replicas.inputs["inner_ranks"]), one(replicas.inputs["outer_ranks"])) == (1.0, 32.0)
    assert one(replicas.inputs["size"]) == pytest.approx(one(scatter.inputs["size"]) / 16)
    assert one(replicas.inputs["factor"]) == pytest.approx(2 * 31 / 32)


JOBS = {
    "llama-3-70b": {"tp": 4, "pp": 1},
    "llama-3.1-405b": {"tp": 8, "pp": 4, "vpp": 2, "recompute": "full"},
    "qwen3-235b-a22b": {"tp": 1, "pp": 4, "ep": 32, "recompute": "full"},
    "deepseek-v3": {"tp": 1, "pp": 4, "ep": 64, "precision": "fp8", "recompute": "full"},
}
COUNTS = (256, 512, 1024, 2048, 4096)


@pytest.mark.parametrize("model", JOBS)
def test_at_equal_work_more_accelerators_lose_what_the_network_takes(model):
    """With the same plan and as many micro-batches a rank, only reductions, gathers and waiting for more domains grow.

    Waiting is ``scale_loss`` of the step a doubling. What is reduced and gathered grows as ``(n - 1) / n`` does, by at most what it takes.
    """
    steps = [answer(model, gpus, **JOBS[model]) for gpus in COUNTS]
    for less, more in pairwise(steps):
        before, after = shares(less.step.tree), shares(more.step.tree)
        for bound in before:
            assert bound == "network" or one(after[bound]) <= one(before[bound]) * (1.0 + 1e-9), bound
        growth, loss = one(more.step.tree.value) / one(less.step.tree.value) - 1.0, one(more.cluster.systems.scale_loss)
        grown = {part.name: one(part.value) for part in more.step.tree.parts if part.name.startswith("exposed")}
        for part in less.step.tree.parts:
            if part.name in grown:
                grown[part.name] -= one(part.value)
        assert growth <= loss + sum(grown.values()) / one(less.step.tree.value) * (1.0 + 10.0 * loss)
        assert all(value >= 0.0 for value in grown.values())
