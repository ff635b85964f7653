"""Which wires a process group uses, and what a collective over them costs.

Ranks are placed tensor parallel innermost, then context, data, and pipeline outermost, as Megatron-LM does. A group of
``n`` ranks that stand ``stride`` apart fills a scale-up domain with ``inner`` of its ranks; the rest is reached over the
fabric, one NIC rail per accelerator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ironlaw.catalog.records import CollectiveConstants
from ironlaw.catalog.sourced import Sourced, held
from ironlaw.cluster import Cluster
from ironlaw.law import collectives, exchanges, experts
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf

FACTORS: dict[str, Callable[[Any], Any]] = {  # bus over algorithm bandwidth, by operation
    "all_reduce": collectives.all_reduce_factor,
    "all_gather": collectives.one_way_factor,
    "reduce_scatter": collectives.one_way_factor,
    "all_to_all": collectives.one_way_factor,
}


def domain_ranks(cluster: Cluster, plan: Plan) -> Any:
    """Ranks of a job in one scale-up domain: the job spread evenly over as few domains as hold it.

    256 accelerators on racks of 72 take four racks and use 64 of each.
    """
    domain = cluster.node.scale_up_size.value
    return np.maximum(np.floor(plan.gpus / np.ceil(plan.gpus / domain)), 1.0)


def inner_ranks(cluster: Cluster, plan: Plan, n: Any, stride: Any) -> Any:
    """How many of a group's ``n`` ranks, ``stride`` apart, are sure to share one scale-up domain.

    Groups that do not tile a domain straddle its edge: the one cut worst sets the pace, with what divides both.
    """
    reach = np.floor(n * stride)
    span = np.where((reach >= 1.0) & (reach < 1e15), reach, 1.0).astype(np.int64)  # an illegal row's nan spans one rank
    whole = np.gcd(span, domain_ranks(cluster, plan).astype(np.int64)).astype(np.float64)
    return np.minimum(n, np.maximum(np.floor(whole / stride), 1.0))


MESHES = ("xgmi", "roce-mesh", "nvlink-mesh")  # one link to each other accelerator, no switch


def scale_up_rate(cluster: Cluster, inner: Any, torus: Any = None) -> Any:
    """Line rate a group of ``inner`` ranks finds inside a domain: all of it behind a switch, its own links in a mesh.

    In a torus of ``torus`` chips, where that is given, the links of the axes it fills.
    """
    rate, domain = cluster.node.scale_up_bandwidth, cluster.node.scale_up_size.value
    if cluster.node.torus_axes is not None and torus is not None:
        return collectives.torus_rate(inner, np.maximum(torus, inner), cluster.node.torus_axes.value, rate.value)
    if cluster.node.scale_up not in MESHES or domain < 2:
        return rate
    return np.where(inner > 1, collectives.mesh_rate(np.maximum(inner, 2.0), domain, rate.value), rate.value)


def by_ranks(constants: CollectiveConstants, n: Any) -> dict[str, Any]:
    """The constants of a collective among ``n`` ranks: between measured numbers of ranks linear in log n, constant beyond."""
    names = ("fraction", "half_size", "latency")
    largest = (constants.bandwidth_fraction, constants.half_size, constants.latency)
    if constants.ranks is None or not constants.smaller:
        return dict(zip(names, largest, strict=True))
    groups = sorted((int(key), (c.bandwidth_fraction, c.half_size, c.latency)) for key, c in constants.smaller.items())
    groups.append((int(constants.ranks.value), largest))
    counts, place = np.log([float(count) for count, _ in groups]), np.log(np.maximum(n, 1.0))
    found = {}
    for name, column in zip(names, zip(*(values for _, values in groups), strict=True), strict=True):
        value = np.interp(place, counts, [known.value for known in column])
        text = ", ".join(f"{known.text} among {count}" for (count, _), known in zip(groups, column, strict=True))
        found[name] = Sourced(value, column[-1].unit, text, column[-1].source, column[-1].note)
    return found


def _wires(cluster: Cluster, plan: Plan, operation: str, n: Any, stride: Any) -> dict[str, Any]:
    """What a collective over ``n`` ranks ``stride`` apart finds on its two tiers, by the names the laws give it.

    A step has several collectives over one group: what they find is kept with the plan, and so are the columns it is kept by.
    """
    known = plan.wires.get((operation, id(n), id(stride)))
    if known is None or known[0] is not cluster:
        known = plan.wires[operation, id(n), id(stride)] = (cluster, n, stride, _find_wires(cluster, plan, operation, n, stride))
    return dict(known[3])


def _find_wires(cluster: Cluster, plan: Plan, operation: str, n: Any, stride: Any) -> dict[str, Any]:
    inside, outside = cluster.scale_up.collective[operation], cluster.scale_out.collective[operation]
    inner = inner_ranks(cluster, plan, n, stride)
    across = n / inner
    near, far = by_ranks(inside, inner), by_ranks(outside, across)
    near["fraction"] = held(near["fraction"], cluster.systems.scale_up_sustained)
    far["fraction"] = held(far["fraction"], cluster.systems.fabric_sustained)
    far["latency"] = far["latency"].value * HOPS[operation](across)
    return {
        "inner_ranks": inner,
        "outer_ranks": across,
        "inner_rate": scale_up_rate(cluster, inner, None if operation == "all_to_all" else domain_ranks(cluster, plan)),
        **{f"inner_{name}": value for name, value in near.items()},
        "outer_rate": nic_rate(cluster),
        **{f"outer_{name}": value for name, value in far.items()},
    }


# start-ups on the fabric, over those between two domains: rings step from domain to domain, trees halve, others go straight
HOPS: dict[str, Callable[[Any], Any]] = {
    "all_reduce": lambda domains: np.log2(np.maximum(domains, 2.0)),
    "all_gather": lambda domains: np.maximum(domains - 1.0, 1.0),
    "reduce_scatter": lambda domains: np.maximum(domains - 1.0, 1.0),
    "all_to_all": np.ones_like,
}


def collective(cluster: Cluster, plan: Plan, name: str, operation: str, n: Any, size: Any, stride: Any) -> Term:
    """The time of one collective of ``size`` bytes in total over ``n`` ranks ``stride`` apart, as a network leaf."""
    wires = _wires(cluster, plan, operation, n, stride)
    return leaf(name, collectives.two_tier, "s", bound="network", size=size, factor=FACTORS[operation](n), **wires)


def all_to_all(cluster: Cluster, plan: Plan, name: str, n: Any, size: Any, stride: Any) -> Term:
    """The time in which each of ``n`` ranks ``stride`` apart hands ``size`` bytes out in equal parts, as a network leaf."""
    wires = _wires(cluster, plan, "all_to_all", n, stride)
    return leaf(name, exchanges.two_tier_all_to_all, "s", bound="network", size=size, **wires)


def sent_once(cluster: Cluster, plan: Plan, name: str, n: Any, size: Any, stride: Any, routing: tuple[float, float, float]) -> Term:
    """The same where a row goes once to a domain and once to a rank, whichever of its experts are there, as a network leaf.

    ``size`` counts a copy for each expert; ``routing`` is experts a token, groups of experts, and groups a token.
    """
    wires = _wires(cluster, plan, "all_to_all", n, stride)
    distinct, ranks = (experts.distinct_share(places, *routing) for places in (wires["outer_ranks"], n))
    return leaf(name, exchanges.two_tier_forwarded, "s", "network", size=size, distinct=distinct, distinct_ranks=ranks, **wires)


def point_to_point(cluster: Cluster, plan: Plan, name: str, size: Any, n: Any, stride: Any) -> Term:
    """The time to hand ``size`` bytes to the next of ``n`` ranks ``stride`` apart, as a network leaf.

    All hand over at once and wait for the slowest: where one of them leaves the domain, that one sets the pace.
    """
    near = inner_ranks(cluster, plan, n, stride) >= n
    inside, outside = cluster.scale_up.collective["point_to_point"], cluster.scale_out.collective["point_to_point"]
    inside_rate = scale_up_rate(cluster, 2.0)  # one hand-over uses one link of a mesh
    rate = np.where(near, getattr(inside_rate, "value", inside_rate), nic_rate(cluster).value)
    fraction = np.where(near, inside.bandwidth_fraction.value, outside.bandwidth_fraction.value)
    latency = np.where(near, inside.latency.value, outside.latency.value)
    return leaf(name, collectives.point_to_point, "s", bound="network", size=size, bandwidth=rate * fraction, latency=latency)


def ring_pass(cluster: Cluster, plan: Plan, name: str, n: Any, size: Any, stride: Any) -> Term:
    """The time for blocks of ``size`` bytes to go round ``n`` ranks ``stride`` apart, as a network leaf."""
    hop = point_to_point(cluster, plan, name, size, n, stride)
    return leaf(name, collectives.ring_pass, "s", bound="network", n=n, **hop.inputs)


def nic_rate(cluster: Cluster) -> Sourced:
    """Line rate of the NICs one accelerator may call its own [B/s], one direction."""
    if cluster.node.nic_bandwidth is not None:
        return cluster.node.nic_bandwidth
    nic, count, sharing = cluster.fabric.nic_bandwidth, cluster.node.nics, cluster.node.accelerators
    text = f"{nic.text} a NIC, {count.text} of them for {sharing.text} accelerators"
    return Sourced(nic.value * count.value / sharing.value, "B/s", text, nic.source)
