"""Switches and cables of the fabric of a job, and the storage that its checkpoints take."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from ironlaw.cluster import Cluster
from ironlaw.estimate.bind.failures import FailureRates
from ironlaw.estimate.step.failures import Saved, checkpoint_size
from ironlaw.law import energy, fabrics, goodput
from ironlaw.question.defaults import CHECKPOINT_OVERHEAD
from ironlaw.terms import Term, leaf, scalar, total

NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Network:
    """The fabric between nodes, as a fat tree with the fewest levels; counts are None where its record has no radix."""

    fabric: str
    network_note: str  # why there are no counts, or how the tree is wired
    endpoints: float  # NICs
    leaf_switches: float | None = None
    spine_switches: float | None = None
    core_switches: float | None = None
    switches: float | None = None
    cables: float | None = None
    switch_power: float | None = None  # of all switches, before PUE [W]; None: no source


@dataclass(frozen=True)
class Storage:
    """What checkpoints take: one in the states of Adam, all that are kept, the rate that storage needs, and the rate that is assumed."""

    checkpoint_bytes: float
    checkpoints_bytes: float
    write_rate_needed: float
    write_rate: float
    terms: tuple[Term, ...] = field(repr=False)


def count_network(cluster: Cluster, gpus: float, oversubscription: float = 1.0) -> tuple[Network, list[Term]]:
    """Switches and cables between the nodes of a job, with their Terms."""
    node, fabric = cluster.node, cluster.fabric
    endpoints = float(ceil(gpus / node.accelerators.value) * node.nics.value)
    if gpus <= node.scale_up_size.value:
        return Network(fabric.name, f"none: {node.scale_up} joins all", endpoints, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), []
    if fabric.switch_radix is None:
        return Network(fabric.name, f"{NOT_KNOWN}: no switches of {fabric.name} in the catalogue", endpoints), []
    rails = node.nics if fabric.rail_optimised else 1.0
    levels = _levels(fabric.switch_radix.value, endpoints, scalar(rails), oversubscription)
    if levels is None:
        return Network(fabric.name, f"{NOT_KNOWN}: more than three levels of switches", endpoints), []
    leaf_term, spine_term, core_term, cables = _tree(cluster, endpoints, rails, oversubscription, levels)
    counts = [scalar(term) for term in (leaf_term, spine_term, core_term)]
    power = fabric.switch_power
    wiring = "rail-optimised" if fabric.rail_optimised and levels > 1 else "fat tree"
    blocking = "non-blocking" if oversubscription == 1.0 else f"{oversubscription:g}:1"
    note = f"{wiring}, {fabric.switch_radix.value:g} ports, {levels} level{'s' * (levels > 1)}, {blocking}"
    terms = [leaf_term, spine_term, core_term, cables]
    watts = None
    if power is not None:
        drawn = leaf(
            "power of switches",
            energy.cluster_power,
            "W",
            gpus=sum(counts),
            accelerator_power=power,
            host_power_per_accelerator=0.0,
            pue=1.0,
        )
        watts = scalar(drawn)
        terms.append(drawn)
    leaves, spines, cores = counts
    return Network(fabric.name, note, endpoints, leaves, spines, cores, sum(counts), scalar(cables), watts), terms


def _levels(radix: float, endpoints: float, rails: float, oversubscription: float) -> int | None:
    """Levels of switches: 1, 2 where a spine has a port for every leaf, 3 where a pod's spines reach all pods; None: more."""
    if endpoints <= radix:
        return 1
    leaves = float(fabrics.leaf_switches(endpoints, rails, fabrics.leaf_ports(radix, oversubscription)))
    if leaves <= radix:
        return 2
    return 3 if leaves <= radix * radix / 2.0 else None


def _tree(cluster: Cluster, endpoints: float, rails: object, oversubscription: float, levels: int) -> tuple[Term, Term, Term, Term]:
    """Leaf, spine and core switches, and cables."""
    radix = cluster.fabric.switch_radix
    assert radix is not None
    if levels == 1:  # one switch joins all NICs, whatever their rail
        leaves = leaf("leaf switches", fabrics.leaf_switches, "1", endpoints=endpoints, rails=1.0, ports=radix)
        none = [leaf(f"{name} switches", fabrics.upper_switches, "1", links=0.0, ports=radix) for name in ("spine", "core")]
        return leaves, none[0], none[1], total("cables", [_cables("node to leaf", endpoints)])
    ports = float(fabrics.leaf_ports(radix.value, oversubscription))
    leaves = leaf("leaf switches", fabrics.leaf_switches, "1", endpoints=endpoints, rails=rails, ports=ports)
    up = leaf("leaf to spine", fabrics.links_up, "1", endpoints=endpoints, oversubscription=oversubscription)
    links = scalar(up)
    spines = leaf("spine switches", fabrics.upper_switches, "1", links=links, ports=radix if levels == 2 else radix.value / 2.0)
    cores = leaf("core switches", fabrics.upper_switches, "1", links=links if levels == 3 else 0.0, ports=radix)
    parts = [_cables("node to leaf", endpoints), up, *([_cables("spine to core", links)] if levels == 3 else [])]
    return leaves, spines, cores, total("cables", parts)


def _cables(name: str, links: float) -> Term:
    """One cable for every link."""
    return leaf(name, fabrics.links_up, "1", endpoints=links, oversubscription=1.0)


def count_storage(saved: Saved, gpus: float, rates: FailureRates, kept: float) -> Storage:
    """Bytes of a checkpoint and of those that are kept, and the rate at which writing them takes a hundredth of the time."""
    size = leaf("checkpoint size", checkpoint_size, "B", **saved._asdict())
    mttf = leaf("time between failures", goodput.cluster_mttf, "s", mttf_per_accelerator=rates.mttf, gpus=gpus)
    needed = leaf("write rate needed", goodput.write_rate_needed, "B/s", size=size.value, mttf=mttf.value, overhead=CHECKPOINT_OVERHEAD)
    return Storage(scalar(size), kept * scalar(size), scalar(needed), float(rates.storage_bandwidth(gpus)), (size, mttf, needed))
