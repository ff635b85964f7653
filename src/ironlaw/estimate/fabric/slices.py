"""The slice of a torus that a job runs on: chips of each axis, which axes wrap, and the bandwidth that a group of ranks finds there.

The ranks of a slice stand in order along its axes, the shortest axis first: a tensor-parallel group of 8 on a slice of 4x4x8 fills one axis
of 4 and half of the next. docs/adr/0029-what-a-fabric-is-made-of.md.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ironlaw.catalog.records import Node
from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric.placement import placement, slices_of
from ironlaw.law import torus
from ironlaw.plan import Plan

Shape = tuple[float, ...]


@cache
def slice_shape(node: Node, chips: int) -> Shape:
    """Chips of each axis of a slice, smallest first: as the record lists it, else the most cubic of whole cubes.

    A number of chips that is no slice has equal axes, of a fraction of a chip if need be.
    """
    axes = int(node.torus_axes.value) if node.torus_axes is not None else 1
    if chips not in slices_of(node):
        side = chips ** (1.0 / axes)
        return (float(round(side)) if round(side) ** axes == chips else side,) * axes
    for topology in node.slices:
        sides = sides_of(topology)
        if math.prod(sides) == chips:
            return in_order(node, sides)
    return min(_cubes(chips, axes, cube_side(node)), key=lambda sides: (max(sides) / min(sides), max(sides)))


def slice_of(cluster: Cluster, chips: int) -> Shape:
    """Chips of each axis of a slice of a cluster: as the question gives them, else by their number."""
    given = cluster.topology
    return given if given and math.prod(given) == chips else slice_shape(cluster.node, chips)


def sides_of(topology: str) -> tuple[int, ...]:
    """The sides of a slice as it is written.

    >>> sides_of("4x4x8")
    (4, 4, 8)
    """
    return tuple(int(side) for side in topology.split("x"))


def written(shape: Shape) -> str:
    """A slice as people write it.

    >>> written((4.0, 4.0, 8.0))
    '4x4x8'
    """
    return "x".join(f"{side:.3g}" for side in shape)


def cube_side(node: Node) -> int:
    """Chips of a side of the cube that larger slices are made of; 1 where there is none."""
    axes = 1.0 if node.torus_axes is None else node.torus_axes.value
    return 1 if node.slice_cube is None else round(node.slice_cube.value ** (1.0 / axes))


def in_order(node: Node, sides: tuple[int, ...]) -> Shape:
    """The sides of a slice with those that are left out, smallest first; as they are written where the axes of a node differ."""
    axes = 0 if node.torus_axes is None else int(node.torus_axes.value)
    whole = tuple(float(side) for side in (*sides, *(1,) * (axes - len(sides))))
    return whole if node.last_axis_share is not None else tuple(sorted(whole))


def _cubes(chips: int, axes: int, side: int) -> list[Shape]:
    """All slices of whole cubes with that many chips, smallest axis first."""
    if axes == 1:
        return [(float(chips),)] if chips % side == 0 else []
    found = []
    for first in range(side, int(chips ** (1.0 / axes) + 1e-9) + 1, side):
        if chips % first == 0:
            found += [(float(first), *rest) for rest in _cubes(chips // first, axes - 1, side) if rest[0] >= first]
    return found


def is_slice(node: Node, sides: tuple[int, ...]) -> bool:
    """Whether a node's pod has a slice of these sides, in any order."""
    axes = 0 if node.torus_axes is None else int(node.torus_axes.value)
    if not axes or len(sides) > axes:
        return False
    shape = in_order(node, sides)
    if any(in_order(node, sides_of(topology)) == shape for topology in node.slices):
        return True
    whole_cubes = node.slice_cube is not None and all(side % cube_side(node) == 0 for side in shape)
    return whole_cubes and math.prod(shape) <= node.scale_up_size.value


def wraps(node: Node, sides: Any) -> Any:
    """1 for axes whose last chip has a link to the first: all axes of whole cubes, else axes of whole pods; sides of no slice do."""
    if node.slice_cube is not None:
        whole = np.all(sides % cube_side(node) == 0.0, axis=-1, keepdims=True)
    else:
        whole = sides % (1.0 if node.wraps_from is None else node.wraps_from.value) == 0.0
    return np.where(whole | np.any(sides % 1.0 > 0.0, axis=-1, keepdims=True), 1.0, 0.0) + 0.0 * sides


def axis_shares(node: Node, axes: int) -> Any:
    """The part of a chip's links that each axis has."""
    if node.last_axis_share is None:
        return np.full(axes, 1.0 / axes)
    last = node.last_axis_share.value
    return np.array([(1.0 - last) / (axes - 1)] * (axes - 1) + [last])


@lru_cache(8)  # every collective of a batch of plans asks; both arguments are compared by identity
def _axes(cluster: Cluster, plan: Plan) -> tuple[Any, Any]:
    """Sides of the slice of every plan in the order in which ranks fill them, and which of them wrap."""
    share = np.atleast_1d(placement(cluster, plan).share)
    sizes, which = np.unique(share, return_inverse=True)
    shapes = [slice_of(cluster, int(chips)) for chips in sizes]
    sides = np.array(shapes, dtype=np.float64)[which.reshape(share.shape)]
    return sides, wraps(cluster.node, sides)


def torus_rate(cluster: Cluster, plan: Plan, n: Any, stride: Any, rate: float) -> Any:
    """Bandwidth that a collective of ``n`` ranks, ``stride`` apart, finds on the axes of its slice, of ``rate`` of all links of a chip."""
    (sides, wrapped), found, before = _axes(cluster, plan), 0.0, 1.0
    parts = axis_shares(cluster.node, sides.shape[-1])
    for axis in range(sides.shape[-1]):
        side = sides[..., axis]
        first = np.clip(stride / before, 1.0, side)
        extent = np.maximum(np.clip(n * stride / before, 1.0, side) / first, 1.0)
        found = found + torus.axis_rate(extent, first, side, wrapped[..., axis], rate * parts[axis])
        before = before * side
    return np.where(found > 0.0, found, rate)  # one rank alone sends nothing, at any rate
