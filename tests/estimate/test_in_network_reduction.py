"""All-reduces that switches add: NVLS in a domain and SHARP on the fabric, against what NVIDIA says and what rings send."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.errors import UnknownNameError, UnsupportedError
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.fabric import group_links
from ironlaw.launch.flags import flags_of
from ironlaw.law import collectives
from ironlaw.plan import column, plan_with

PLAN = {"on": "h100-sxm", "gpus": 64, "tp": 8, "sp": False, "pp": 1, "zero": 0, "micro_batch_size": 1, "framework": "megatron"}


def cluster(on="h100-sxm", how=None, **options):
    return cluster_of({"on": on, **({"in_network_reduction": how} if how else {}), **options}, (), [])


def sums(made, n: float, size: float = 1e15, sharp: bool = False):
    """An all-reduce among n neighbours, as a term; a size so large that no start counts."""
    return group_links.collective(made, plan_with(gpus=column(n), dp_shard=column(n)), "sum", "all_reduce", column(n), size, 1.0, sharp)


def peak(constants, line: float = 450e9) -> float:
    """Bus bandwidth of very large messages."""
    return constants.bandwidth_fraction.value * line


def test_rings_and_the_switch_of_eight_h100_reach_what_nvidia_says():
    """S. Jeaugey, nccl-tests issue 212: rings reach 370 GB/s, the switch about 480 counted as a ring, of a line rate of 450."""
    measured = cluster().scale_up.collective
    assert peak(measured["all_reduce_ring"]) == pytest.approx(370e9, rel=0.02)
    assert peak(measured["all_reduce"]) == pytest.approx(480e9, rel=0.03)
    assert "NVLS" in measured["all_reduce"].latency.note  # the gain is in the measured fraction, and is not counted twice


def test_the_wire_carries_less_than_the_bus_bandwidth_says():
    """The switch sends 1 + 1/8 = 1.125 of the tensor where a ring sends 1.75: at 480 GB/s by the ring's count the wire carries 309."""
    on_wire = 480e9 * float(collectives.all_reduce_in_switch_factor(8) / collectives.all_reduce_factor(8))
    assert on_wire == pytest.approx(275e9 * 9 / 8, rel=0.01)  # algorithm bandwidth about 275 GB/s, as he says
    assert on_wire < 370e9


def test_the_switch_wins_by_the_ratio_that_nvidia_gives():
    ratio = sums(cluster(how="off"), 8).value[0] / sums(cluster(), 8).value[0]
    assert ratio == pytest.approx(480 / 370, rel=0.03)


def test_nvls_where_it_was_measured_is_the_answer_of_today():
    for on in ("h100-sxm", "h200-sxm", "b200-sxm"):
        assert sums(cluster(on, "nvls"), 8).value[0] == sums(cluster(on), 8).value[0]
    usual = ironlaw.estimate("llama-3-8b", **PLAN).row()["step"]
    assert ironlaw.estimate("llama-3-8b", **PLAN, in_network_reduction="nvls").row()["step"] == usual


def test_small_groups_of_hopper_are_rings_with_and_without_the_switch():
    """Measured with FP16 among 2 and 4, no faster than a ring: NCCL does not take the switch there."""
    for n in (2, 4):
        assert sums(cluster(how="off"), n).value[0] == sums(cluster(), n).value[0]


def test_a_rack_of_72_adds_in_its_switches_when_asked():
    """Only two and four GPUs of GB200 were measured, which are rings. Among 64 the switch sends 1 + 1/64 of the tensor."""
    rings, switch = sums(cluster("gb200"), 64), sums(cluster("gb200", "nvls"), 64)
    assert float(np.ravel(switch.inputs["factor"])[0]) == pytest.approx(1 + 1 / 64)
    assert switch.value[0] < rings.value[0] < 2.0 * switch.value[0]


def test_sharp_halves_what_a_rail_sends():
    """A ring of all ranks sends nearly twice its share on a rail; a tree of switches once."""
    plan = plan_with(gpus=column(512), tp=column(8), dp_shard=column(64))  # one rank of a group in every node
    plain, added = (
        group_links.collective(cluster(how=how), plan, "sum", "all_reduce", column(64), 1e15, 8.0, True) for how in (None, "sharp")
    )
    assert float(np.ravel(plain.inputs["outer_factor"])[0]) == pytest.approx(2 * 63 / 64)
    assert float(np.ravel(added.inputs["outer_factor"])[0]) == 1.0
    assert plain.value[0] / added.value[0] == pytest.approx(2 * 63 / 64, rel=1e-6)


def test_sharp_never_sends_more():
    for n in (8, 16, 24, 512):
        assert sums(cluster(how="sharp"), n, sharp=True).value[0] <= sums(cluster(), n).value[0]


def test_sharp_is_for_the_data_parallel_group_alone():
    assert sums(cluster(how="sharp"), 512).value[0] == sums(cluster(), 512).value[0]
    ways = ("nvls", "sharp", "on")
    step = {how: ironlaw.estimate("llama-3-8b", **PLAN, in_network_reduction=how).row()["step"]["seconds"] for how in ways}
    assert step["sharp"] == step["on"] < step["nvls"]


def test_gathers_and_scatters_gain_nothing():
    """A rank receives (n - 1)/n of a gathered tensor whoever sends it, and sends as much of a scattered one."""
    for operation in ("all_gather", "reduce_scatter"):
        plan = plan_with(gpus=column(64), dp_shard=column(64))
        times = [
            group_links.collective(cluster(how=how), plan, "g", operation, column(64), 1e9, 1.0, True).value[0] for how in ("off", "on")
        ]
        assert times[0] == times[1]


@pytest.mark.parametrize(
    ("on", "options", "how"),
    [("a100-sxm-80gb", {}, "nvls"), ("h100-sxm", {"fabric": "roce-400"}, "sharp"), ("mi300x", {}, "on"), ("tpu-v5p", {}, "nvls")],
)
def test_switches_that_do_not_add_are_refused(on, options, how):
    with pytest.raises(UnsupportedError, match="--in-network-reduction"):
        cluster(on, how, **options)


def test_an_unknown_way_names_the_known():
    with pytest.raises(UnknownNameError, match="sharp"):
        ironlaw.estimate("llama-3-8b", **PLAN, in_network_reduction="shrap")


def test_megatron_is_told_by_its_own_flag():
    """--use-sharp, whose group is the data-parallel one by default; the sums over replicas are a group of their own."""
    plan = {
        "framework": "megatron", "tp": 8, "pp": 1, "micro_batch_size": 1, "global_batch_size": 64, "seq_len": 8192, "sp": True, "zero": 0,
        "recompute": "none", "precision": "bf16", "optimizer": "adamw", "overlap": [],
    }  # fmt: skip
    assert "--use-sharp" not in flags_of(plan, 32)[0]["flags"]
    assert "--use-sharp" in flags_of({**plan, "in_network_reduction": "sharp"}, 32)[0]["flags"]
    replicas = flags_of({**plan, "in_network_reduction": "sharp", "zero": 1, "dp_replicate": 2}, 32)[0]["flags"]
    assert "--use-sharp --sharp-enabled-group dp_replica" in replicas
