"""Switches and links of a fat tree (folded Clos network): leaves join the accelerators' NICs, spines join leaves, cores join spines."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import inside, ratio


def leaf_ports(radix, oversubscription):
    """Ports of a leaf switch that go to NICs; the others go up: ``floor(radix oversubscription / (1 + oversubscription))``.

    Parameters
        radix [1]: ports of a switch at the rate of a NIC, >= 1
        oversubscription [1]: links down over links up of a leaf; 1: non-blocking, >= 1
    Returns [1]: ports
    Source: NVIDIA DGX SuperPOD with DGX B200, DGX SuperPOD architecture, table of larger configurations, https://docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-b200/latest/dgx-superpod-architecture.html
    Leaves out: ports that are kept free for storage and management

    >>> float(leaf_ports(64, 1)), float(leaf_ports(64, 3))
    (32.0, 48.0)
    """
    ports = np.floor(ratio(1.0 * radix * oversubscription, 1.0 + oversubscription))
    return inside(ports, radix >= 1, oversubscription >= 1)


def leaf_switches(endpoints, rails, ports):
    """Switches that NICs are plugged into: ``rails ceil(endpoints / (rails ports))``.

    In a rail-optimised network a leaf serves one rail: the NICs of the same position in all nodes.

    Parameters
        endpoints [1]: NICs, >= 0
        rails [1]: groups of NICs with leaves of their own: NICs of a node; 1: any leaf serves any NIC, >= 1
        ports [1]: ports of a leaf that go to NICs, >= 1
    Returns [1]: switches
    Source: NVIDIA DGX SuperPOD with DGX B200, DGX SuperPOD architecture, table of larger configurations, https://docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-b200/latest/dgx-superpod-architecture.html
    Leaves out: spare switches, several planes

    >>> float(leaf_switches(4096, 8, 32))  # 512 nodes of eight NICs; the table of the reference architecture: 128
    128.0
    """
    count = rails * np.ceil(ratio(1.0 * endpoints, 1.0 * rails * ports))
    return inside(count, endpoints >= 0, rails >= 1, ports >= 1)


def links_up(endpoints, oversubscription):
    """Links from all leaves to spines: ``ceil(endpoints / oversubscription)``.

    Parameters
        endpoints [1]: NICs, >= 0
        oversubscription [1]: links down over links up of a leaf; 1: non-blocking, >= 1
    Returns [1]: links, each a cable
    Source: NVIDIA DGX SuperPOD with DGX B200, DGX SuperPOD architecture, table of larger configurations, https://docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-b200/latest/dgx-superpod-architecture.html
    Leaves out: links of leaves that are not full

    >>> float(links_up(4096, 1)), float(links_up(4096, 3))  # the table: 4096 cables from leaves to spines
    (4096.0, 1366.0)
    """
    return inside(np.ceil(ratio(1.0 * endpoints, 1.0 * oversubscription)), endpoints >= 0, oversubscription >= 1)


def upper_switches(links, ports):
    """Switches of a level above the leaves: ``ceil(links / ports)``.

    Parameters
        links [1]: links that come from the level below, >= 0
        ports [1]: ports of a switch that go down: all on the top level, half of them below it, >= 1
    Returns [1]: switches
    Source: NVIDIA DGX SuperPOD with DGX B200, DGX SuperPOD architecture, table of larger configurations, https://docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-b200/latest/dgx-superpod-architecture.html
    Leaves out: spines added so that every leaf has equally many links to each of them

    >>> float(upper_switches(4096, 32)), float(upper_switches(4096, 64))  # 128 spines and 64 cores of the table
    (128.0, 64.0)
    """
    return inside(np.ceil(ratio(1.0 * links, 1.0 * ports)), links >= 0, ports >= 1)
