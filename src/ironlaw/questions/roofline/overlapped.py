"""Collectives that overlap computation: the bytes each sends, its time alone, and the time the step waits for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer import casts
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.layer.trained import layer_trained, stage_trained
from ironlaw.estimate.network import context, sharding, tensor
from ironlaw.estimate.network.sharding import Overlapped
from ironlaw.estimate.pipeline import hand_overs
from ironlaw.estimate.step.step import MICRO_BATCHES, STEP
from ironlaw.law import overlap
from ironlaw.questions.answer import Column
from ironlaw.terms import Term, scalar

COLUMNS = (
    Column("collective", "overlapped collective"), Column("where", "where"), Column("count", "count", "1"),
    Column("wire_bytes", "wire bytes", "B"), Column("alone", "time alone", "s"), Column("shown", "waited for", "s"),
)  # fmt: skip
OVERLAP_LAWS = (overlap.exposed_after_overlap, overlap.exposed_beside_idle, overlap.in_pieces)


@dataclass(frozen=True)
class OverlappedCollective:
    """All runs of one kind of collective in one place of a step."""

    collective: str
    where: str
    count: float
    wire_bytes: float | None  # None where they are unknown
    alone: float  # time without overlap [s]
    shown: float  # time the step waits [s]

    def plus(self, other: OverlappedCollective) -> OverlappedCollective:
        """Add the same collective of another block of the layer."""
        both_known = self.wire_bytes is not None and other.wire_bytes is not None
        return replace(
            self,
            count=self.count + other.count,
            wire_bytes=(self.wire_bytes or 0.0) + (other.wire_bytes or 0.0) if both_known else None,
            alone=self.alone + other.alone,
            shown=self.shown + other.shown,
        )


def list_overlapped(group: Group, at: int) -> list[dict[str, Any]]:
    """One row for each kind of collective that may be overlapped, longest first; it sends all its bytes however much is overlapped."""
    by_place: dict[tuple[str, str], OverlappedCollective] = {}
    for node, runs, path in _overlapped_nodes(group.step.tree, at, 1.0, ()):
        node_times = scalar(node.times, at)
        communication = scalar(node.inputs["communication"], at) * runs * node_times
        if not communication:
            continue
        sent = _sent_bytes(group, at, node, path)
        entry = OverlappedCollective(
            node.name.removeprefix("exposed "), path[0].name if path else "step", runs * node_times,
            None if sent is None else sent * runs * node_times, communication, scalar(node.value, at) * runs,
        )  # fmt: skip
        key = (entry.collective, entry.where)
        by_place[key] = by_place[key].plus(entry) if key in by_place else entry
    hops = _hand_overs(group, at)
    rows = [asdict(collective) for collective in (*by_place.values(), *([hops] if hops else []))]
    return sorted(rows, key=lambda row: -row["alone"])


def _overlapped_nodes(node: Term, at: int, runs: float, path: tuple[Term, ...]) -> Iterator[tuple[Term, float, tuple[Term, ...]]]:
    """Every node whose law overlaps communication, how often it runs, and the nodes above it inside a micro-batch."""
    if node.law in OVERLAP_LAWS:
        yield node, runs, path
    below = path if node.key in (STEP, MICRO_BATCHES) else (*path, node)
    for part in node.parts:
        yield from _overlapped_nodes(part, at, runs * scalar(node.times, at), below)


def _sent_bytes(group: Group, at: int, node: Term, path: tuple[Term, ...]) -> float | None:
    """Bytes an accelerator sends in one run of an overlapped node; None where its collectives are unknown."""
    collectives = _collectives_of(group, at, node.key, path)
    if collectives is None:
        return None
    time = sum(scalar(term, at) * times for term, times in collectives)
    sent = sum(wire_bytes_of(term, at) * times for term, times in collectives)
    return sent * scalar(node.inputs["communication"], at) / time if time else 0.0


def wire_bytes_of(term: Term, at: int) -> float:
    """Bytes an accelerator sends in one run of a collective or message, from the inputs of its laws."""
    if term.parts:
        return sum(wire_bytes_of(part, at) for part in term.parts) * scalar(term.times, at)
    return group_links.bytes_sent({name: scalar(value, at) for name, value in term.inputs.items()})


def _collectives_of(group: Group, at: int, key: Hashable, path: tuple[Term, ...]) -> list[tuple[Term, float]] | None:
    """The collectives behind an overlapped node, each with how often it runs; None where they are unknown."""
    job, cluster, plan = group.job, group.cluster, group.plan
    if not isinstance(key, Overlapped):
        return None
    if key.group in ("gradients", "weights"):
        pace = group.step.pace
        stage = pace.classes[int(scalar(pace.which, at))]
        common, routed = stage_trained(job, stage)
        if key.group == "weights":
            return [(term, 1.0) for term in sharding.gathers(job, cluster, plan, *sharding.stage_weights(job, stage))]
        return [(term, scalar(when, at)) for when, terms in sharding.reductions(job, cluster, plan, common, routed) for term in terms]
    kind = next(node.key for node in path if isinstance(node.key, Kind))
    return [(term, 1.0) for term in _layer_collectives(group, key, kind)]


def _layer_collectives(group: Group, key: Overlapped, kind: Kind) -> list[Term]:
    """The collectives of one layer behind an overlapped node."""
    job, cluster, plan = casts.job_of_kind(group.job, kind), group.cluster, group.plan
    if key.group == "tensor":
        collectives = tensor.collectives(cluster, job, plan, Shapes.of(job, plan))
        return [collectives[name] for name in key.collectives]
    if key.group == "context":
        return [context.ring(cluster, job, plan, Shapes.of(job, plan), backward="backward" in key.collectives)]
    gathers = sharding.gathers(job, cluster, plan, *sharding.layer_weights(job, kind)) if "gather" in key.collectives else []
    return gathers + (sharding.scatters(job, cluster, plan, *layer_trained(job, kind)) if "scatter" in key.collectives else [])


def _hand_overs(group: Group, at: int) -> OverlappedCollective | None:
    """Hand-overs between stages where they overlap computation; the step waits for what is longer than a chunk."""
    job, cluster, plan = group.job, group.cluster, group.plan
    if not (scalar(plan.pp, at) > 1 and scalar(plan.vpp, at) > 1 and scalar(plan.overlap_pp, at)):
        return None
    hop = hand_overs.hand_over(job, cluster, plan)
    count = 2.0 * scalar(plan.vpp, at) * scalar(plan.num_microbatches, at)
    tree = group.step.tree
    not_hidden = sum(scalar(part, at) for part in tree.parts if part.key == hand_overs.WARM_UP_AND_FLUSH)  # once a step
    shown = scalar(tree[hand_overs.BESIDE_CHUNKS], at) * scalar(plan.num_microbatches, at) + not_hidden
    return OverlappedCollective("stage to stage", "step", count, wire_bytes_of(hop, at) * count, scalar(hop, at) * count, shown)
