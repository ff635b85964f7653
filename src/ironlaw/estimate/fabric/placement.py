"""How many accelerators of each scale-up domain a job takes, so that no group of ranks that fits a domain is cut by its edge.

Ranks stand in order: tensor parallel innermost, then context, data, and pipeline outermost. A job larger than a domain takes whole
servers ("trays" where a domain has several) and the same share of every domain where it can: 64 of 72 where its groups have 64 ranks,
all 72 where they divide 72. docs/adr/0022-whole-groups-in-whole-trays.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ironlaw.catalog.records import Node
from ironlaw.cluster import Cluster
from ironlaw.plan import Plan
from ironlaw.question.defaults import LEAST_EQUAL_SHARE
from ironlaw.terms import Term, leaf

_MOST = float(1 << 40)  # ranks: more than any job has


class Placement(NamedTuple):
    """The share of a domain that each plan of a batch takes, as columns of whole numbers."""

    share: Any  # accelerators of each domain that the job takes; the smallest share where they differ
    largest: Any  # the largest share
    domains: Any  # that the job takes
    unit: Any  # ranks in a row that no edge cuts
    block: Any  # a group of at least so many ranks takes domains of its own
    least: Any  # ranks that such a group has in each of its domains: the smallest share, or the rest of the job in the last domain

    def whole(self, span: Any) -> Any:
        """Ranks that share a domain in every group that spans ``span`` consecutive ranks.

        A group that an edge cuts counts the greatest common divisor of its span and the unit: the group that is cut worst sets the pace.
        """
        return np.where(span >= self.block, self.least, np.gcd(span, self.unit))


@lru_cache(8)  # every collective of a batch of plans asks; both arguments are compared by identity
def placement(cluster: Cluster, plan: Plan) -> Placement:
    """The placement of every plan: the given share of a domain, else the share that the job's groups divide."""
    gpus = whole_number(plan.gpus)
    if cluster.topology:
        return _fill(gpus, np.minimum(math.prod(map(int, cluster.topology)), gpus))
    if cluster.gpus_per_domain is None:
        node = cluster.node
        return _place(gpus, group_spans(plan), int(node.scale_up_size.value), int(node.accelerators.value), slices_of(node))
    return _fill(gpus, np.minimum(int(cluster.gpus_per_domain), gpus))


def _fill(gpus: Any, share: Any) -> Placement:
    """The same share of every domain; the last domain has the rest of the job."""
    rest = gpus % share
    return Placement(share, share, -(-gpus // share), share, gpus, np.where(rest > 0, rest, share))


def pod_ranks(cluster: Cluster, plan: Plan, n: Any, stride: Any, inner: Any) -> Any:
    """Ranks of a group of ``n``, ``stride`` apart, that share a pod in every such group; ``inner`` of them share a domain.

    Pods are filled one after the other with whole domains. A group that the edge of a pod cuts counts the greatest common divisor of its
    span and the job's accelerators in a pod, and one as long as the job the rest of the job in the last pod.
    """
    placed, gpus = placement(cluster, plan), whole_number(plan.gpus)
    domains = max(int(getattr(cluster.pod_size, "value", cluster.pod_size)) // int(cluster.node.scale_up_size.value), 1)
    pod = np.minimum(domains * placed.share, gpus)
    whole = _fill(gpus, pod).whole(whole_number(np.floor(n * stride))).astype(np.float64)
    return np.minimum(n, np.maximum(np.floor(whole / stride), inner))


def placement_term(cluster: Cluster, plan: Plan) -> Term:
    """The accelerators of every domain that a job takes, with the law that chose them."""
    name, node = "accelerators per domain", cluster.node
    if cluster.gpus_per_domain is not None:
        return leaf(name, _given_share, "1", gpus=plan.gpus, given=cluster.gpus_per_domain)
    if slices_of(node):
        return leaf(name, _whole_slice, "1", gpus=plan.gpus, slice=placement(cluster, plan).share)
    sizes = {"domain": node.scale_up_size, "tray": node.accelerators}
    return leaf(name, accelerators_per_domain, "1", gpus=plan.gpus, **group_spans(plan), **sizes)


def _given_share(gpus: Any, given: Any) -> Any:
    """As asked, at most the whole job: ``min(given, gpus)``."""
    return np.minimum(gpus, given)


def _whole_slice(gpus: Any, slice: Any) -> Any:  # noqa: A002 - as it is printed
    """The whole job where one pod holds it, else the largest slice that divides it: ``min(slice, gpus)``."""
    return np.minimum(gpus, slice)


def accelerators_per_domain(gpus: Any, domain: float, tray: float, **spans: Any) -> Any:
    """The whole job where one domain holds it, else whole units: ``unit floor(block / unit / domains)``.

    A unit is the least number of accelerators that the tray and all groups that fit a domain divide. A block is the smallest group that
    no domain holds, else the whole job. It takes the fewest domains that hold it, or up to a third more where their shares are then equal.
    """
    return 1.0 * _place(whole_number(gpus), spans, int(domain), int(tray), ()).share


def _place(gpus: Any, spans: Mapping[str, Any], domain: int, tray: int, slices: tuple[int, ...]) -> Placement:
    """Use whole trays, equal shares of domains, and as few domains as possible without splitting a group that fits in one."""
    if np.all(gpus <= domain):
        return _fill(gpus, gpus)
    if slices:  # several slices of a torus are alike: the largest that divides the job
        share = np.where(gpus <= domain, gpus, slices[-1])
        for chips in slices:
            share = np.where((gpus > domain) & (gpus % chips == 0), chips, share)
        return _fill(gpus, share)
    unit = np.where(gpus % min(tray, domain) == 0, min(tray, domain), 1)  # a job of no whole number of trays is placed by accelerators
    block = gpus
    for span in map(whole_number, spans.values()):
        joint = np.lcm(unit, np.minimum(span, domain + 1))
        unit = np.where((span <= domain) & (joint <= domain), joint, unit)
        block = np.where(span > domain, np.minimum(block, span), block)
    share, largest, domains = _spread(block, unit, domain)
    filled = _fill(gpus, np.where(gpus <= domain, gpus, share))
    even = (gpus <= domain) | (share == largest)
    uneven = Placement(share, largest, domains * -(-gpus // block), unit, block, share)
    return Placement(*(np.where(even, one, other) for one, other in zip(filled, uneven, strict=True)))


def _spread(block: Any, unit: Any, domain: int) -> tuple[Any, Any, Any]:
    """Units of a block spread over domains: the smallest and the largest share, and the domains.

    As few domains as hold the block, if its units divide by them; else the largest equal share that leaves few accelerators idle;
    else shares that differ by one unit. Units that do not tile the block fill domain after domain.
    """
    units, most = np.maximum(block // unit, 1), domain // unit
    domains = -(-units // most)
    found = units % domains == 0
    for idle in range(int(domain * (1.0 - LEAST_EQUAL_SHARE)) + 1):
        if np.all(found):
            break
        some = np.maximum(most - idle, 1)
        fits = ~found & (some * unit >= LEAST_EQUAL_SHARE * domain) & (units % some == 0)
        domains, found = np.where(fits, units // some, domains), found | fits
    tiled = block % unit == 0
    smallest, largest = (np.where(tiled, count, most) * unit for count in (units // domains, -(-units // domains)))
    return smallest, largest, domains


def group_spans(plan: Plan) -> dict[str, Any]:
    """Ranks in a row that each kind of group spans, from the group that most needs fast links to the one that needs them least."""
    model = plan.tp * plan.cp
    return {"tensor": plan.tp, "context": model, "expert": plan.expert_ways, "sharding": model * plan.dp_shard, "data": plan.gpus / plan.pp}


def whole_number(ranks: Any) -> Any:
    """A column of counts as whole numbers; 1 where an illegal row has none."""
    counts = np.asarray(ranks, dtype=np.float64)
    return np.where((counts >= 1.0) & (counts < _MOST), counts, 1.0).astype(np.int64)


def cut_groups(cluster: Cluster, plan: Plan) -> dict[str, Any]:
    """For tensor, context and expert groups, the ranks that a group spans where it would fit a domain but is cut by its edge; else 0."""
    placed, domain = placement(cluster, plan), int(cluster.node.scale_up_size.value)
    spans = {name: whole_number(span) for name, span in group_spans(plan).items() if name in ("tensor", "context", "expert")}
    return {name: np.where((span <= domain) & (placed.whole(span) < span), span, 0) for name, span in spans.items()}


def tray_of(node: Node) -> float:
    """Accelerators that a job takes or leaves together: a server of a larger domain; one accelerator where the domain is one server."""
    return float(node.accelerators.value) if node.accelerators.value < node.scale_up_size.value else 1.0


def uncut_share(cluster: Cluster, span: float) -> float:
    """The most accelerators of a domain, in whole trays, that groups of ``span`` ranks divide; 0 where there are none."""
    step = math.lcm(int(span), int(tray_of(cluster.node)))
    return float(int(cluster.node.scale_up_size.value) // step * step)


@cache
def slices_of(node: Node) -> tuple[int, ...]:
    """Chips of the slices of a torus that a job can have, in order; none where the record lists none, as of every switch."""
    most, cube = int(node.scale_up_size.value), 0 if node.slice_cube is None else int(node.slice_cube.value)
    listed = {math.prod(int(side) for side in topology.split("x")) for topology in node.slices}
    return tuple(sorted(chips for chips in listed | set(range(cube, most + 1, cube or most + 1)) if 0 < chips <= most))


def nearest_slices(node: Node, chips: int) -> tuple[int, ...]:
    """The next smaller and the next larger slice; none where ``chips`` are a slice or the record lists none."""
    slices = slices_of(node)
    if not slices or chips in slices:
        return ()
    return (*[s for s in slices if s < chips][-1:], *[s for s in slices if s > chips][:1])
