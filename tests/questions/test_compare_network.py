"""Switches and cables of a comparison against the table of a published reference architecture, and what is not known."""

from __future__ import annotations

import pytest

from ironlaw.catalog import load
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.questions.compare.network import count_network

# NVIDIA DGX SuperPOD with DGX B200: nodes -> leaf, spine and core switches; cables from nodes to leaves, to spines, to cores
# (https://docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-b200/latest/dgx-superpod-architecture.html)
SUPERPOD = {
    64: (16, 8, 0, 512, 512, 0),
    128: (32, 16, 0, 1024, 1024, 0),
    256: (64, 32, 0, 2048, 2048, 0),
    512: (128, 128, 64, 4096, 4096, 4096),
    1024: (256, 256, 128, 8192, 8192, 8192),
    2048: (512, 512, 256, 16384, 16384, 16384),
}
XDR = {72: (8, 4), 144: (16, 8)}  # DGX SuperPOD with DGX B300 and XDR: nodes -> leaf and spine switches


def network(on, gpus, oversubscription=1.0, **options):
    return count_network(cluster_of({"on": on, **options}, (), []), gpus, oversubscription)[0]


@pytest.mark.parametrize("nodes", SUPERPOD)
def test_the_table_of_superpod(nodes):
    *switches, down, up, top = SUPERPOD[nodes]
    found = network("b200-sxm", 8.0 * nodes)
    assert [found.leaf_switches, found.spine_switches, found.core_switches] == switches
    assert found.cables == down + up + top
    assert found.switch_power == sum(switches) * 1720


@pytest.mark.parametrize("nodes", XDR)
def test_the_table_of_superpod_with_xdr(nodes):
    found = network("b300-sxm", 8.0 * nodes, fabric="infiniband-xdr")
    assert (found.leaf_switches, found.spine_switches, found.core_switches) == (*XDR[nodes], 0)
    assert found.switch_power is None


def test_one_switch_joins_a_few_nodes_and_none_a_domain():
    few = network("h100-sxm", 64.0)
    assert (few.switches, few.cables) == (1, 64)
    assert network("h100-sxm", 8.0).switches == 0
    assert network("gb200", 72.0).switches == 0
    assert network("tpu-v5p", 2000.0).switches == 0


def test_an_oversubscribed_tree_has_fewer_links_up():
    """By hand: 48 of 64 ports go down, so 16 rows of leaves for 768 nodes of eight; 2,048 links go up, to 32 spines."""
    found = network("h100-sxm", 768.0 * 8, oversubscription=3.0)
    assert (found.leaf_switches, found.core_switches) == (128, 64 / 2)
    assert found.spine_switches == 2048 / 32
    assert found.cables == 6144 + 2048 + 2048


@pytest.mark.parametrize("on", ["tpu-v6e", "mi250x-gcd", "trainium-2"])
def test_a_fabric_without_a_radix_is_not_counted(on):
    cluster = cluster_of({"on": on}, (), [])
    assert cluster.fabric.switch_radix is None
    found = network(on, 4.0 * cluster.node.scale_up_size.value)
    assert found.switches is None and found.cables is None
    assert found.network_note.startswith("not known")


def test_more_than_three_levels_are_not_counted():
    assert network("h100-sxm", 131072.0).network_note == "not known: more than three levels of switches"


def test_every_radix_and_power_has_a_source():
    for name in load.names("fabrics", ()):
        fabric = load.record("fabrics", name, ())
        for value in (fabric.switch_radix, fabric.switch_power):
            assert value is None or value.source.url
