"""The links that a process group uses, and the time of a collective over them.

Ranks are placed tensor parallel innermost, then context, data, and pipeline outermost, as Megatron-LM does. A group of
``n`` ranks, ``stride`` apart, has ``inner`` of its ranks in one scale-up domain; it reaches the others over the fabric, with one
NIC rail for each accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ironlaw.catalog.records import CollectiveConstants
from ironlaw.catalog.sourced import Sourced, sustain
from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric.placement import placement, pod_ranks, whole_number
from ironlaw.estimate.fabric.slices import torus_rate
from ironlaw.frozen import Frozen
from ironlaw.law import collectives, exchanges, experts, pods
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf, plain


class Collective(Frozen):
    """One collective operation: the laws of its traffic and of its start-ups. docs/how-to/add-a-collective-algorithm.md."""

    name: str
    factor: Callable[[Any], Any]  # bytes each of n ranks sends for each byte of the tensor
    start_ups: Callable[[Any], Any]  # on the fabric, by the domains spanned, over those between two domains
    across: Callable[[Any, Any], Any] | None = None  # the same on a rail between domains, by ranks and domains; None: as ``factor``
    inside: Callable[[Any], Any] | None = None  # bytes sent inside a domain, by the ranks there; None: ``factor`` of all ranks
    fills_torus: bool = True  # in a torus it uses the links of all axes that its group fills
    inside_as: str = ""  # the constants that it takes inside a domain, where they are other ones; "": as on the fabric
    measured_as: str = ""  # the operation whose measured constants it takes; "": its own

    @property
    def constants(self) -> str:
        """The name of its measured constants in a calibration record."""
        return self.measured_as or self.name


def _steps_of_a_tree(domains: Any) -> Any:
    return np.log2(np.maximum(domains, 2.0))


def _steps_of_a_ring(domains: Any) -> Any:
    return np.maximum(domains - 1.0, 1.0)


COLLECTIVES = {
    row.name: row
    for row in (
        Collective("all_reduce", collectives.all_reduce_factor, _steps_of_a_tree, across=collectives.all_reduce_across_factor),
        Collective("all_gather", collectives.one_way_factor, _steps_of_a_ring),
        Collective("reduce_scatter", collectives.one_way_factor, _steps_of_a_ring),
        Collective("all_to_all", collectives.one_way_factor, np.ones_like, fills_torus=False),  # each message goes straight
    )
}


IN_DOMAIN = {  # all-reduces other than the one NCCL takes, by the name of their constants
    "all_reduce_ring": COLLECTIVES["all_reduce"].replace(inside_as="all_reduce_ring"),
    "all_reduce_nvls": COLLECTIVES["all_reduce"].replace(inside_as="all_reduce_nvls", inside=collectives.all_reduce_in_switch_factor),
}
ASKED = {"off": "all_reduce_ring", "nvls": "all_reduce_nvls", "on": "all_reduce_nvls"}  # by --in-network-reduction


def all_reduce_of(cluster: Cluster) -> Collective:
    """The all-reduce inside a domain: as NCCL takes it where it was measured, or as the question asks, where there are constants for it."""
    name = ASKED.get(cluster.in_network_reduction or "", "")
    return IN_DOMAIN[name] if name in cluster.scale_up.collective else COLLECTIVES["all_reduce"]


def adds_in_fabric(cluster: Cluster) -> bool:
    """Whether switches of the fabric add the gradients of a data-parallel group (SHARP)."""
    return cluster.in_network_reduction in ("sharp", "on") and cluster.fabric.sharp is not None


def domain_ranks(cluster: Cluster, plan: Plan) -> Any:
    """Ranks of a job in one scale-up domain: the share of a domain that it takes, the smallest where shares differ."""
    return placement(cluster, plan).share.astype(np.float64)


def domains_taken(cluster: Cluster, plan: Plan) -> Any:
    """Scale-up domains that a job takes a share of."""
    return placement(cluster, plan).domains.astype(np.float64)


def inner_ranks(cluster: Cluster, plan: Plan, n: Any, stride: Any) -> Any:
    """Ranks of a group of ``n``, ``stride`` apart, that share one scale-up domain in every such group of the job."""
    whole = placement(cluster, plan).whole(whole_number(np.floor(n * stride))).astype(np.float64)
    return np.minimum(n, np.maximum(np.floor(whole / stride), 1.0))


PAIR = 2.0  # accelerators that a bridge joins
MESHES = ("xgmi", "roce-mesh", "nvlink-mesh")  # one link to each other accelerator, no switch


def scale_up_rate(cluster: Cluster, inner: Any, plan: Plan | None = None, stride: Any = 1.0, reach: Any = np.inf) -> Any:
    """Line rate of a group of ``inner`` ranks inside a domain: the whole rate behind a switch, the links between its ranks in a mesh.

    In a torus, where a ``plan`` is given: the links of the axes that the group, ``stride`` apart, is on. Where bridges join pairs: the
    rate of the bridge if the group has a ``reach`` of two ranks in a row.
    """
    rate, domain, bridge = cluster.node.scale_up_bandwidth, cluster.node.scale_up_size.value, cluster.node.bridge_bandwidth
    if bridge is not None:
        return np.where(reach <= PAIR, bridge.value, rate.value)
    if cluster.node.torus_axes is not None and plan is not None:
        found = torus_rate(cluster, plan, inner, stride, rate.value)
        return Sourced(found, "B/s", f"{rate.text} of all links, by the axes of the slice that the group is on", rate.source)
    if cluster.node.scale_up not in MESHES or domain < 2:
        return rate
    return np.where(inner > 1, collectives.mesh_rate(np.maximum(inner, 2.0), domain, rate.value), rate.value)


def by_ranks(constants: CollectiveConstants, n: Any) -> dict[str, Any]:
    """The constants of a collective among ``n`` ranks: between measured numbers of ranks linear in log n, constant beyond."""
    names = ("fraction", "half_size", "latency")
    largest = (constants.bandwidth_fraction, constants.half_size, constants.latency)
    if constants.ranks is None or not constants.smaller:
        return dict(zip(names, largest, strict=True))
    counts, columns = _by_measured_ranks(constants)
    log_ranks = np.log(np.maximum(n, 1.0))
    return {
        name: Sourced(np.interp(log_ranks, counts, values), most.unit, text, most.source, most.note)
        for name, (values, text, most) in zip(names, columns, strict=True)
    }


@lru_cache(256)
def _by_measured_ranks(constants: CollectiveConstants) -> tuple[Any, list[tuple[list[float], str, Sourced]]]:
    """Logs of the measured numbers of ranks; and for each constant its values among them, their text, and that of the largest."""
    groups = sorted((int(key), (c.bandwidth_fraction, c.half_size, c.latency)) for key, c in constants.smaller.items())
    groups.append((int(plain(constants.ranks)), (constants.bandwidth_fraction, constants.half_size, constants.latency)))
    columns = []
    for column in zip(*(values for _, values in groups), strict=True):
        text = ", ".join(f"{value.text} among {count}" for (count, _), value in zip(groups, column, strict=True))
        columns.append(([value.value for value in column], text, column[-1]))
    return np.log([float(count) for count, _ in groups]), columns


def _tiers(cluster: Cluster, plan: Plan, row: Collective, n: Any, stride: Any) -> dict[str, Any]:
    """Ranks, rates and constants of a collective on its two tiers of links, by the parameter names of the laws."""
    inside, outside = cluster.scale_up.collective[row.inside_as or row.constants], cluster.scale_out.collective[row.constants]
    inner = inner_ranks(cluster, plan, n, stride)
    across = n / inner
    near, far = by_ranks(inside, inner), by_ranks(outside, across)
    near["fraction"] = sustain(near["fraction"], cluster.systems.scale_up_sustained)
    far["fraction"] = sustain(far["fraction"], cluster.systems.fabric_sustained)
    far["latency"] = far["latency"].value * row.start_ups(across)
    above = {}
    if oversubscribed(cluster):
        above = {"pod_ranks": pod_ranks(cluster, plan, n, stride, inner), "oversubscription": cluster.oversubscription}
    return {
        "inner_ranks": inner,
        "outer_ranks": across,
        "inner_rate": scale_up_rate(cluster, inner, plan if row.fills_torus else None, stride, inner * stride),
        **{f"inner_{name}": value for name, value in near.items()},
        "outer_rate": nic_rate(cluster),
        **{f"outer_{name}": value for name, value in far.items()},
        **above,
    }


def collective(cluster: Cluster, plan: Plan, name: str, operation: str, n: Any, size: Any, stride: Any, sharp: bool = False) -> Term:
    """The time of one collective of ``size`` bytes in total over ``n`` ranks ``stride`` apart, as a network leaf.

    ``sharp``: its group is the one whose sums switches of the fabric may add.
    """
    if not np.any(n > 1):  # one rank sends nothing
        return Term(name, 0.0, "s", inputs={"n": n, "size": size}, bound="network")
    row = all_reduce_of(cluster) if operation == "all_reduce" else COLLECTIVES[operation]
    tiers, factor = _tiers(cluster, plan, row, n, stride), row.factor(n)
    on_rail = factor if row.across is None else row.across(n, tiers["outer_ranks"])
    if row.inside is not None:
        factor = row.inside(tiers["inner_ranks"])
    if sharp and operation == "all_reduce" and adds_in_fabric(cluster):
        on_rail = np.minimum(on_rail, collectives.all_reduce_in_fabric_factor(tiers["outer_ranks"]))
    law = pods.three_tier if oversubscribed(cluster) else collectives.two_tier
    return leaf(name, law, "s", bound="network", size=size, factor=factor, outer_factor=on_rail, **tiers)


def all_to_all(cluster: Cluster, plan: Plan, name: str, n: Any, size: Any, stride: Any) -> Term:
    """The time in which each of ``n`` ranks, ``stride`` apart, sends ``size`` bytes in equal parts to the others, as a network leaf."""
    tiers = _tiers(cluster, plan, COLLECTIVES["all_to_all"], n, stride)
    law = pods.three_tier_all_to_all if oversubscribed(cluster) else exchanges.two_tier_all_to_all
    return leaf(name, law, "s", bound="network", size=size, **tiers)


def sent_once(cluster: Cluster, plan: Plan, name: str, n: Any, size: Any, stride: Any, routing: tuple[float, float, float]) -> Term:
    """The time of an all-to-all that sends one copy of a row per domain and per rank, however many of its experts live there.

    ``size`` counts a copy for each expert; ``routing`` is experts a token, groups of experts, and groups a token.
    """
    tiers = _tiers(cluster, plan, COLLECTIVES["all_to_all"], n, stride)
    distinct, ranks = (experts.distinct_share(count, *routing) for count in (tiers["outer_ranks"], n))
    law = pods.three_tier_forwarded if oversubscribed(cluster) else exchanges.two_tier_forwarded
    return leaf(name, law, "s", "network", size=size, distinct=distinct, distinct_ranks=ranks, **tiers)


def point_to_point(cluster: Cluster, plan: Plan, name: str, size: Any, n: Any, stride: Any) -> Term:
    """The time to send ``size`` bytes to the next of ``n`` ranks, ``stride`` apart, as a network leaf.

    All ranks send at once and wait for the slowest: a message that leaves the domain sets the pace.
    """
    near = inner_ranks(cluster, plan, n, stride) >= n
    inside, outside = cluster.scale_up.collective["point_to_point"], cluster.scale_out.collective["point_to_point"]
    inside_rate = scale_up_rate(cluster, 2.0, reach=n * stride)  # one hand-over uses one link of a mesh
    outside_rate: Any = nic_rate(cluster).value
    if oversubscribed(cluster):
        stay = pod_ranks(cluster, plan, n, stride, 1.0)
        ratio = getattr(cluster.oversubscription, "value", cluster.oversubscription)
        outside_rate = np.where(stay >= n, outside_rate, pods.hand_over_rate(outside_rate, stay, ratio))
    rate = np.where(near, getattr(inside_rate, "value", inside_rate), outside_rate)
    fraction = np.where(near, inside.bandwidth_fraction.value, outside.bandwidth_fraction.value)
    latency = np.where(near, inside.latency.value, outside.latency.value)
    return leaf(name, collectives.point_to_point, "s", bound="network", size=size, bandwidth=rate * fraction, latency=latency)


def ring_pass(cluster: Cluster, plan: Plan, name: str, n: Any, size: Any, stride: Any) -> Term:
    """The time to pass blocks of ``size`` bytes once round ``n`` ranks, ``stride`` apart, as a network leaf."""
    hop = point_to_point(cluster, plan, name, size, n, stride)
    return leaf(name, collectives.ring_pass, "s", bound="network", n=n, **hop.inputs)


def bytes_sent(inputs: Mapping[str, float]) -> float:
    """Bytes an accelerator sends in one run of a collective or message, by the inputs of its law."""
    size = inputs.get("size", 0.0)
    if "factor" in inputs:
        return size * inputs["factor"]
    if "n" in inputs:  # round a ring: all blocks but its own
        return size * (inputs["n"] - 1.0)
    if "inner_ranks" in inputs:  # all-to-all: all shares but its own
        return size * (1.0 - 1.0 / (inputs["inner_ranks"] * inputs["outer_ranks"]))
    return size


def nic_rate(cluster: Cluster) -> Sourced:
    """Line rate of one accelerator's share of the node's NICs [B/s], one direction, as far as other jobs leave it to this one."""
    whole = _whole_nic_rate(cluster)
    if cluster.network_share == 1.0:
        return whole
    rate = float(pods.shared_rate(whole.value, cluster.network_share))
    return Sourced(rate, "B/s", f"{cluster.network_share:g} of {whole.text}", whole.source, "the share that other jobs leave, as given")


def oversubscribed(cluster: Cluster) -> bool:
    """Whether links between pods are slower than those in them."""
    return cluster.pod_size is not None


def _whole_nic_rate(cluster: Cluster) -> Sourced:
    """Line rate of one accelerator's share of the node's NICs [B/s], one direction, without other jobs."""
    if cluster.node.nic_bandwidth is not None:
        return cluster.node.nic_bandwidth
    nic, count, sharing = cluster.fabric.nic_bandwidth, cluster.node.nics, cluster.node.accelerators
    text = f"{nic.text} a NIC, {count.text} of them for {sharing.text} accelerators"
    return Sourced(nic.value * count.value / sharing.value, "B/s", text, nic.source)
