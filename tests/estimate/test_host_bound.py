"""Where the host sets the pace of a step, a faster device, or less work for it, never makes the step slower."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import IronlawError
from ironlaw.estimate.network.sharding import Waits, data_parallel
from ironlaw.estimate.step.step import step
from ironlaw.terms import shares
from made_stacks import without_limits

MODELS = ("gpt2-xl", "llama-3-8b", "gemma-2-9b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3")
FRAMEWORKS = ("megatron", "torchtitan", "fsdp", "deepspeed")
DEVICES = ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm", "mi300x", "v100-sxm-32gb")
FASTER = ((1.2, 1.0), (3.0, 1.0), (1.0, 1.5), (1.0, 3.0), (2.0, 2.0))  # peak, and bandwidth of HBM
SLACK = 1.0 + 1e-9  # rounding
ROWS = 24


def times(value, factor):
    return Sourced(value.value * factor, value.unit, value.text, value.source, value.note)


def faster(cluster, peak, bandwidth):
    """The same cluster with a faster device."""
    device = cluster.accelerator
    peaks = {name: times(rate, peak) for name, rate in device.peak.items()}
    return cluster.replace(accelerator=device.replace(peak=peaks, hbm_bandwidth=times(device.hbm_bandwidth, bandwidth)))


def small_question(seed):
    """Random plans with little work between launches, as columns: short sequences, small micro-batches, few of them."""
    pick = random.Random(seed)
    gpus = 2 ** pick.randint(3, 10)

    def column(*values):
        return [pick.choice(values) for _ in range(ROWS)]

    asked = {
        "on": pick.choice(DEVICES), "gpus": gpus, "seq_len": pick.choice((128, 256, 512, 1024)), "tp": column(1, 1, 2, 8),
        "pp": column(1, 1, 2, 4), "micro_batch_size": column(1, 1, 2), "zero": column(0, 1, 1, 2, 3),
        "global_batch_size": [gpus * n for n in column(1, 1, 2, 4, 16)], "recompute": column("none", "selective", "full"),
        "framework": pick.choice(FRAMEWORKS),
    }  # fmt: skip
    if pick.random() < 0.5:
        asked["ep"] = column(1, 4, 8)
    if pick.random() < 0.2:
        asked["cp"] = column(1, 2)
    if pick.random() < 0.3:
        asked["offload"] = "optimizer"
    if pick.random() < 0.3:
        asked["schedule"] = pick.choice(("zero-bubble", "dualpipe", "gpipe"))
    elif pick.random() < 0.5:
        asked["vpp"] = column(1, 2, 4)
    if pick.random() < 0.25:
        asked["precision"] = "fp8"
    return pick.choice(MODELS), asked


@pytest.fixture(scope="module")
def stacks(tmp_path_factory):
    """Each framework's stack with its costs and without its limits: a column of a question may hold any plan."""
    folder = tmp_path_factory.mktemp("stacks")
    return {name: without_limits(folder, name) for name in FRAMEWORKS}


def host_bound(seed, stacks):
    """The groups of a random question, with the rows that are legal and wait for their host; none where it cannot be asked."""
    model, asked = small_question(seed)
    try:
        groups = ironlaw.estimate(model, **asked | stacks[asked["framework"]]).groups
    except IronlawError:
        return
    for group in groups:
        tree = step(group.job, group.cluster, group.plan).tree
        waits = shares(tree)["dispatch"] - group.cluster.systems.step_overhead.value > 1e-6
        # known limits of the laws: the scatters of ZeRO-2 and ZeRO-3 and the reduction over replicas or the hand-overs of a pipeline
        # each hide behind the whole of one window; and with uneven stages another may become the slowest, whose gradients and states
        # then count; a third: a pipeline divides the time of a stage into passes as its device does, also where it waits for its host
        plan = group.plan
        uneven = (np.maximum(plan.first_stage_layers, plan.last_stage_layers) >= 0) | (
            group.job.model.num_hidden_layers % (plan.pp * plan.vpp) != 0
        )
        limits = ((plan.zero >= 2) & (plan.dp_replicate > 1)) | uneven | (plan.pp > 1)
        yield group, tree.value, np.broadcast_to(group.legal & np.isfinite(tree.value) & waits & ~limits, group.index.shape)


SEEDS = range(60)


def test_many_random_plans_wait_for_their_host(stacks):
    assert sum(int(rows.sum()) for seed in SEEDS for _, _, rows in host_bound(seed, stacks)) > 200


@pytest.mark.parametrize("seed", SEEDS)
def test_a_faster_device_is_never_slower(seed, stacks):
    for group, before, rows in host_bound(seed, stacks):
        for rates in FASTER:
            after = step(group.job, faster(group.cluster, *rates), group.plan).tree.value
            slower = rows & (after > before * SLACK)
            assert not slower.any(), (rates, group.plan.take(np.flatnonzero(slower)[:1]), (after / before)[slower][:1])


@pytest.mark.parametrize("seed", SEEDS)
def test_recomputing_less_is_never_slower(seed, stacks):
    """A fifth of the layers more at a time. The waits of tensor parallelism count evenly in all passes, which may cost 1e-5 of a step."""
    for group, _, rows in host_bound(seed, stacks):
        some = group.plan.replace(recompute_attention=0.0 * group.plan.pp, recompute_linear=0.0 * group.plan.pp)
        plans = [some.replace(recompute_layers=share + 0.0 * group.plan.pp) for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
        seconds = [step(group.job, group.cluster, plan).tree.value for plan in plans]
        for less, more in pairwise(seconds):
            assert not (rows & (less > more * (1.0 + 1e-5))).any()


REPORTED = [
    ("mixtral-8x7b", {"on": "h100-sxm", "gpus": 256, "global_batch_size": 256, "seq_len": 512, "precision": "fp8"}),
    ("gpt2-xl", {"on": "h200-sxm", "gpus": 1024, "global_batch_size": 1024, "seq_len": 1024}),
    ("mixtral-8x7b", {"on": "b200-sxm", "gpus": 1024, "global_batch_size": 1024, "seq_len": 512, "precision": "fp8", "ep": 4}),
    ("mixtral-8x7b", {"on": "b200-sxm", "gpus": 1024, "global_batch_size": 1024, "seq_len": 512, "precision": "fp8", "ep": 1}),
]


@pytest.mark.parametrize(("model", "asked"), REPORTED)
def test_plans_of_one_micro_batch_whose_reduction_is_exposed(model, asked):
    base = {"tp": 1, "pp": 1, "micro_batch_size": 1, "zero": 1, **asked}
    full, none = (ironlaw.estimate(model, recompute=how, **base).groups[0] for how in ("full", "none"))
    assert none.step.tree.value <= full.step.tree.value * SLACK
    for rates in ((1.2, 1.0), (1.5, 1.0), (3.0, 1.0), (1.0, 3.0)):
        assert step(full.job, faster(full.cluster, *rates), full.plan).tree.value <= full.step.tree.value * SLACK


def test_collectives_of_a_step_hide_behind_the_time_that_the_host_takes():
    """By hand: what is exposed falls by the waiting time; reduction and gather share it only where a step has one micro-batch."""
    for batch, shared in ((1024, True), (2048, False)):
        group = ironlaw.estimate(
            "gpt2-xl", on="h200-sxm", gpus=1024, global_batch_size=batch, seq_len=1024, tp=1, pp=1, micro_batch_size=1, zero=1
        ).groups[0]

        def exposed(waits, group=group):
            reduced, gathered = data_parallel(group.job, group.cluster, group.plan, group.step.pace, 1e-3, 2e-3, waits)
            return float(np.ravel(reduced.value)[0]), float(np.ravel(gathered.value)[0])

        reduced, gathered = exposed(Waits())
        assert reduced > 2e-3 and gathered > 1e-3
        window = group.cluster.systems.gradient_window.value  # the share of a wait that hides something
        hidden = window * 1e-3
        either = exposed(Waits(either=1e-3))
        assert either == pytest.approx((reduced - hidden, gathered if shared else gathered - hidden))
        assert exposed(Waits(forward=1e-3)) == pytest.approx((reduced, gathered - hidden))
        assert exposed(Waits(backward=1e-3)) == pytest.approx((reduced - hidden, gathered))
        left = exposed(Waits(either=reduced / window + 1e-3))
        assert left == pytest.approx((0.0, gathered - hidden) if shared else (0.0, max(gathered - reduced - hidden, 0.0)))


# three passes launch the operators of one; a collective takes the host as long as 1.5 of them: its record has the trace
@pytest.mark.parametrize(
    ("changes", "forward", "others"),
    [
        ({"framework": "megatron-legacy", "tp": 1}, 0, 0),
        ({"framework": "megatron-legacy", "tp": 8, "sp": "off"}, 2, 2),  # an all-reduce a block
        ({"framework": "megatron-legacy", "tp": 8, "sp": "off", "recompute": "full"}, 2, 4),
        ({"framework": "megatron", "tp": 8, "sp": "on"}, 4, 6),  # gather and scatter, and the input gathered again in both blocks
        ({"framework": "torchtitan", "tp": 8, "sp": "on"}, 4, 4),
        ({"framework": "torchtitan", "tp": 1, "zero": 3}, 1, 2),  # weights gathered twice, gradients scattered
        ({"framework": "torchtitan", "tp": 1, "zero": 2}, 0, 1),
    ],
)
def test_the_host_starts_every_collective_of_a_layer(changes, forward, others):
    asked = {"on": "a100-sxm-80gb", "gpus": 8, "global_batch_size": 8, "zero": 1, "recompute": "none", **changes}
    group = ironlaw.estimate("gpt2-xl", **asked).groups[0]
    launched = float(np.ravel(group.step.tree["host dispatch"].inputs["operators"])[0])
    passes = 3.0 + (asked["recompute"] == "full")
    assert launched == passes * group.job.framework.operators_per_layer.value + 1.5 * (forward + others)


def test_a_graph_and_a_program_start_no_collective_from_the_host():
    asked = {"on": "a100-sxm-80gb", "gpus": 8, "tp": 8, "pp": 1, "global_batch_size": 8}
    for replayed in (
        {"framework": "megatron", "cuda_graphs": "full"},
        {"framework": "megatron", "cuda_graphs": "partial"},
        {"framework": "maxtext", "on": "tpu-v5p"},
    ):
        tree = ironlaw.estimate("gpt2-xl", **asked | replayed).groups[0].step.tree
        assert float(np.ravel(tree["host dispatch"].inputs["operators"])[0]) == 0.0
