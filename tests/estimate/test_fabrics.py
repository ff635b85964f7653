"""Shared and oversubscribed fabrics: what leaves a pod, what one accelerator may send, and that nothing gets faster by less network."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import QuestionError, UnitError, ValueRangeError
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.fabric.placement import pod_ranks
from ironlaw.plan import column, plan_with
from ironlaw.question.read import read_options

PLAN = {"on": "h100-sxm", "gpus": 512, "tp": 4, "pp": 4, "vpp": 5, "zero": 1, "micro_batch_size": 1, "framework": "megatron"}
MIXTURE = {"on": "h100-sxm", "gpus": 64, "tp": 1, "pp": 1, "ep": 16, "zero": 1, "micro_batch_size": 1, "framework": "megatron"}


def cluster(on="h100-sxm", **options):
    return cluster_of({"on": on, **options}, (), [])


def group(gpus: float, **axes):
    return plan_with(gpus=column(gpus), **{name: column(value) for name, value in axes.items()})


def step(model="llama-3-70b", **options):
    return ironlaw.estimate(model, **{**PLAN, **options}).row()["step"]["seconds"]


@pytest.mark.parametrize("written", ["7", "7:1", "1:7", 7, "14:2"])
def test_oversubscription_is_read_as_people_write_it(written):
    assert read_options({"oversubscription": written})["oversubscription"] == pytest.approx(7.0)


@pytest.mark.parametrize("written", ["0.5", "0:3", "3:0", "-2:1", "x", "1:2:3"])
def test_a_ratio_that_is_none_is_refused(written):
    with pytest.raises((ValueRangeError, UnitError)):
        read_options({"oversubscription": written})


def test_a_pod_without_oversubscription_says_nothing():
    with pytest.raises(QuestionError, match="--oversubscription"):
        cluster(pod_size=256.0)


def test_no_oversubscription_and_the_whole_network_are_the_answer_of_today():
    usual = ironlaw.estimate("llama-3-70b", **PLAN).row()
    for options in ({"oversubscription": 1}, {"network_share": 1}, {"oversubscription": 1, "pod_size": 8}):
        assert ironlaw.estimate("llama-3-70b", **PLAN, **options).row()["step"] == usual["step"]
    assert "network" not in usual["placement"]


@pytest.mark.parametrize(("model", "plan"), [("llama-3-70b", PLAN), ("mixtral-8x7b", {**MIXTURE, "ep": 8, "etp": 2})])
def test_time_never_falls_when_the_network_shrinks(model, plan):
    ratios = [ironlaw.estimate(model, **plan, oversubscription=r, pod_size=16).row()["step"]["seconds"] for r in (1, 1.5, 2, 4, 8, 32)]
    assert ratios == sorted(ratios) and ratios[-1] > 1.05 * ratios[0]
    shares = [ironlaw.estimate(model, **plan, network_share=f).row()["step"]["seconds"] for f in (1.0, 0.9, 0.5, 0.1)]
    assert shares == sorted(shares) and shares[-1] > 1.05 * shares[0]


def test_half_of_the_network_is_a_network_of_half_the_rate():
    half = cluster(network_share=0.5)
    assert group_links.nic_rate(half).value == group_links.nic_rate(cluster()).value / 2.0
    assert step(network_share=0.5) == pytest.approx(step(nic_bandwidth="25GB/s"), rel=1e-12)


def test_ranks_in_a_pod_of_llama_3():
    """Pods of 3,072 H100: 16,384 accelerators with tp 8 and 16 stages of 1,024 have three stages in a pod."""
    made, plan = cluster(fabric="meta-24k-roce"), group(16384, tp=8, pp=16, dp_shard=128)
    assert pod_ranks(made, plan, plan.dp_shard, plan.tp, 1.0)[0] == 128.0  # a data-parallel group stays in its pod
    assert pod_ranks(made, plan, plan.tp, 1.0, 8.0)[0] == 8.0
    assert pod_ranks(made, plan, plan.pp, plan.gpus / plan.pp, 1.0)[0] == 1.0  # the last pod has one stage only
    whole = group(3072, tp=8, dp_shard=384)
    assert pod_ranks(made, whole, whole.dp_shard, whole.tp, 1.0)[0] == 384.0


def test_between_pods_of_llama_3_a_group_with_one_domain_in_each_has_a_seventh():
    """Section 3.3.1: 1:7 between pods. Two ranks in two pods exchange at a seventh of the rate of two nodes in one."""
    far, near = cluster(fabric="meta-24k-roce", pod_size=8.0, oversubscription=7.0), cluster(fabric="meta-24k-roce", oversubscription=1.0)
    plan = group(16, tp=8, dp_shard=2)
    times = [group_links.collective(c, plan, "sum", "all_gather", column(2), 8e9, 8.0).value[0] for c in (near, far)]
    latency = near.scale_out.collective["all_gather"].latency.value
    assert (times[1] - latency) / (times[0] - latency) == pytest.approx(7.0, rel=1e-9)


def test_links_of_a_pod_carry_what_rings_send_and_no_more():
    """Conservation: counted link by link, the rails of a ring that cross the edge of a pod, over the rate of all links that leave it."""
    size, ratio, nic = 64e15, 16.0, 50e9  # so large that its start does not count
    made = cluster(oversubscription=ratio, pod_size=64.0)
    plan = group(256, dp_shard=256)
    term = group_links.collective(made, plan, "sum", "all_gather", column(256), size, 1.0)
    fraction = term.inputs["outer_fraction"].value
    pod_of = np.arange(32) // 8  # of every domain; a rail's ring visits all domains in order and returns
    hops = [(pod_of[d], pod_of[(d + 1) % 32]) for d in range(32)]
    leaving = sum(a != b and a == 0 for a, b in hops)  # hops of one rail that leave the first pod
    sent = leaving * 8 * (size / 8) * 255 / 256  # rails, the share of each, the factor of the ring
    assert term.value[0] == pytest.approx(sent / (64 * nic / ratio * fraction), rel=1e-3)


def test_all_to_all_sends_out_of_its_pod_what_is_for_others():
    made, plan = cluster(oversubscription=8.0, pod_size=32.0), group(64, dp_shard=64)
    term = group_links.all_to_all(made, plan, "rows", column(64), 1e15, 1.0)
    fraction = term.inputs["outer_fraction"].value
    assert term.value[0] == pytest.approx(0.5 * 1e15 / (50e9 / 8.0 * fraction), rel=1e-3)


def test_pods_follow_the_wiring():
    """A rail-optimised leaf of 64 ports joins 32 nodes by one rail, eight rails 256 accelerators; a plain leaf 32 NICs."""
    assert cluster(oversubscription=2.0).pod_size.value == 256.0
    assert cluster(oversubscription=2.0, rail_optimised=False).pod_size.value == 32.0
    assert cluster(fabric="roce-100", oversubscription=2.0).pod_size.value == 8.0  # its switches are not in the catalogue: one node


def test_the_plan_knows_of_pods():
    job = {"on": "h100-sxm", "gpus": 64, "global_batch_size": 128, "pod_size": 16}
    found = [ironlaw.plan("llama-3-8b", **job, oversubscription=r).to_dict() for r in (1, 64)]
    best = [answer["plans"][0]["step"]["seconds"] for answer in found]
    assert best[1] > best[0]
    assert found[1]["plans"][0]["placement"]["network"] == {"oversubscription": 64.0, "pod_size": 16.0}
    plan = found[0]["plans"][0]["plan"]
    axes = ("tp", "pp", "vpp", "cp", "dp_shard", "dp_replicate", "zero", "micro_batch_size", "recompute")
    same = ironlaw.estimate("llama-3-8b", **job, oversubscription=64, framework=plan["framework"], **{name: plan[name] for name in axes})
    assert best[1] <= same.row()["step"]["seconds"] * (1.0 + 1e-9)
    assert json.dumps(found[1])


def test_plain_ethernet_has_one_nic_a_node():
    """Two DGX H100 with 10 Gb Ethernet: 1.25 GB/s for 8 accelerators, as --nic-bandwidth 0.15625GB/s of each; the page says so."""
    asked = {"on": "h100-sxm", "gpus": 16, "zero": 3, "tp": 1, "pp": 1, "micro_batch_size": 1, "global_batch_size": 16, "seq_len": 2048,
             "recompute": "full", "fabric": "ethernet-10"}  # fmt: skip
    taken = ironlaw.estimate("llama-2-7b", **asked)
    given = ironlaw.estimate("llama-2-7b", **asked, nic_bandwidth="0.15625GB/s")
    assert float(taken.step_seconds[0]) == float(given.step_seconds[0])
    noted = {item["name"]: item["value"] for item in taken.to_dict()["assumptions"]}
    assert noted["NICs of the node"].startswith("1 NIC of 10 Gb/s for the 8 accelerators of a node")
    assert "NICs of the node" not in {item["name"] for item in given.to_dict()["assumptions"]}


def test_a_node_whose_usual_fabric_is_ethernet_keeps_its_nics():
    """g4dn.metal has one NIC of 100 Gb/s for 8 T4 in its own record; a fabric of InfiniBand keeps the 8 NICs of a DGX."""
    for name, node in (("t4", "g4dn.metal"), ("h100-sxm", "dgx-h100")):
        cluster = cluster_of({"on": name, "node": node}, (), [])
        assert cluster.node.nics.value == load.record("nodes", node).nics.value
    assert cluster_of({"on": "h100-sxm", "fabric": "roce-100"}, (), []).node.nics.value == 8
    assert cluster_of({"on": "h100-sxm", "fabric": "ethernet-100"}, (), []).node.nics.value == 1
