"""Collectives that run beside computation: what each sends, how long it takes alone, and what of that shows in the step."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from ironlaw.estimate import wires
from ironlaw.estimate.answer import Group
from ironlaw.estimate.layer import casts
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.layer.trained import layer_trained, stage_trained
from ironlaw.estimate.network import context, sharding, tensor
from ironlaw.estimate.network.sharding import Overlapped
from ironlaw.estimate.pipeline import hand_overs
from ironlaw.estimate.step import MICRO_BATCHES, STEP
from ironlaw.law import overlap
from ironlaw.questions.answer import Column
from ironlaw.terms import Term, plain

COLUMNS = (
    Column("collective", "beside computation"),
    Column("where", "where"),
    Column("count", "count", "1"),
    Column("wire_bytes", "wire bytes", "B"),
    Column("alone", "alone it takes", "s"),
    Column("shown", "of it shows", "s"),
)
_HIDING = (overlap.exposed_after_overlap, overlap.in_pieces)


def rows(group: Group, at: int) -> list[dict[str, Any]]:
    """One row for each kind of collective that something of may be hidden, longest first; it sends what it sends, shown or not."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for node, runs, path in _hidden(group.step.tree, at, 1.0, ()):
        each = _at(node.times, at)
        alone = _at(node.inputs["communication"], at) * runs * each
        if not alone:
            continue
        sent = _sent(group, at, node, path)
        row: dict[str, Any] = {
            "collective": node.name.removeprefix("exposed "),
            "where": path[0].name if path else "step",
            "count": runs * each,
            "wire_bytes": None if sent is None else sent * runs * each,
            "alone": alone,
            "shown": _at(node.value, at) * runs,
        }
        known = found.setdefault((str(row["collective"]), str(row["where"])), row)
        if known is not row:  # the blocks of a layer have one each
            known.update({name: _sum(known[name], row[name]) for name in ("count", "wire_bytes", "alone", "shown")})
    hop = _hops(group, at)
    return sorted([*found.values(), *([hop] if hop else [])], key=lambda row: -row["alone"])


def _sum(one: float | None, other: float | None) -> float | None:
    """Both together; nothing where one is not known."""
    return None if one is None or other is None else one + other


def _hidden(node: Term, at: int, runs: float, path: tuple[Term, ...]) -> Iterator[tuple[Term, float, tuple[Term, ...]]]:
    """The communication that runs beside computation below ``node``: how often it runs, and the nodes above it inside a micro-batch."""
    if node.law in _HIDING:
        yield node, runs, path
    for part in node.parts:
        yield from _hidden(part, at, runs * _at(node.times, at), path if node.key in (STEP, MICRO_BATCHES) else (*path, node))


def _at(value: Any, at: int) -> float:
    array = np.ravel(plain(value))
    return float(array[at if array.size > 1 else 0])


def _sent(group: Group, at: int, node: Term, path: tuple[Term, ...]) -> float | None:
    """Bytes an accelerator sends in one run: those of the collectives the node hides; nothing where they are not known."""
    made = _collectives(group, at, node.key, path)
    if made is None:
        return None
    time = sum(_at(term.value, at) * times for term, times in made)
    sent = sum(_wire(term, at) * times for term, times in made)
    return sent * _at(node.inputs["communication"], at) / time if time else 0.0


def _wire(term: Term, at: int) -> float:
    if term.parts:
        return sum(_wire(part, at) for part in term.parts) * _at(term.times, at)
    return wires.bytes_sent({name: _at(value, at) for name, value in term.inputs.items()})


def _collectives(group: Group, at: int, key: Hashable, path: tuple[Term, ...]) -> list[tuple[Term, float]] | None:
    """The collectives that an overlapped node stands for, each with how often it runs; None where they are not known."""
    job, cluster, plan = group.job, group.cluster, group.plan
    if not isinstance(key, Overlapped):
        return None
    if key.group in ("gradients", "weights"):
        pace = group.step.pace
        stage = pace.classes[int(_at(pace.which, at))]
        common, routed = stage_trained(job, stage)
        if key.group == "weights":
            return [(term, 1.0) for term in sharding.gathers(job, cluster, plan, *sharding.stage_weights(job, stage))]
        return [(term, _at(when, at)) for when, made in sharding.reductions(job, cluster, plan, common, routed) for term in made]
    kind = next(node.key for node in path if isinstance(node.key, Kind))
    return [(term, 1.0) for term in _of_layer(group, key, kind)]


def _of_layer(group: Group, key: Overlapped, kind: Kind) -> list[Term]:
    """The collectives of one layer that an overlapped node stands for."""
    job, cluster, plan = casts.of_kind(group.job, kind), group.cluster, group.plan
    if key.group == "tensor":
        made = tensor.collectives(cluster, job, plan)
        return [made[name] for name in key.collectives]
    if key.group == "context":
        return [context.ring(cluster, job, plan, Shapes.of(job, plan), backward="backward" in key.collectives)]
    gathers = sharding.gathers(job, cluster, plan, *sharding.layer_weights(job, kind)) if "gather" in key.collectives else []
    return gathers + (sharding.scatters(job, cluster, plan, *layer_trained(job, kind)) if "scatter" in key.collectives else [])


def _hops(group: Group, at: int) -> dict[str, Any] | None:
    """Hand-overs to the next stage and back, where they run beside computation: only what is longer than a chunk shows."""
    job, cluster, plan = group.job, group.cluster, group.plan
    if not (_at(plan.pp, at) > 1 and _at(plan.vpp, at) > 1 and _at(plan.overlap_pp, at)):
        return None
    hop = hand_overs.hand_over(job, cluster, plan)
    count = 2.0 * _at(plan.vpp, at) * _at(plan.num_microbatches, at)
    tree = group.step.tree
    lone = sum(_at(part.value, at) for part in tree.parts if part.key == hand_overs.WARM_UP_AND_FLUSH)  # once a step
    shown = _at(tree[hand_overs.BESIDE_CHUNKS].value, at) * _at(plan.num_microbatches, at) + lone
    return {
        "collective": "stage to stage", "where": "step", "count": count, "wire_bytes": _wire(hop, at) * count,
        "alone": _at(hop.value, at) * count, "shown": shown,
    }  # fmt: skip
