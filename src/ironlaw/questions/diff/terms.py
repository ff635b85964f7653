"""The terms of two breakdowns side by side: what each adds to the total, and by how much it moved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

DEPTH = 3  # levels of a breakdown that have a name; what is below them is summed
MOST = 12  # terms that have a row
_SMALLEST = 5e-4  # of the larger total: what moved less has no row
_ROUNDING = 1e-14  # of a total
_WRAPPERS = ("micro-batches", "reserved", "allocated")  # levels that every term below them shares
REST, WHOLE = "smaller terms", "in all"

Tree = Mapping[str, Any]


def contributions(tree: Tree) -> dict[str, float]:
    """What each named term adds to the total: values of leaves, times the ``times`` of all nodes above them."""
    sums: dict[str, list[float]] = {}
    for path, value in _leaves(tree, (), 1.0):
        sums.setdefault(_name(path), []).append(value)
    return {name: math.fsum(values) for name, values in sums.items()}


def _leaves(node: Tree, path: tuple[str, ...], factor: float) -> Iterator[tuple[tuple[str, ...], float]]:
    if not node["parts"]:
        yield path, (node["value"] or 0.0) * factor
        return
    for part in node["parts"]:
        times = node.get("times")
        yield from _leaves(part, (*path, part["name"]), factor * (1.0 if times is None else times))


def _name(path: tuple[str, ...]) -> str:
    """The name of a term: the levels that tell it from others."""
    named = [name for name in path[:DEPTH] if name not in _WRAPPERS] or list(path[:DEPTH])
    return " / ".join(dict.fromkeys(named))


def moved(a: Tree, b: Tree) -> list[dict[str, Any]]:
    """The terms that differ, largest difference first; with the row of smaller terms the differences sum to that of the totals."""
    before, after = contributions(a), contributions(b)
    totals = (a["value"] or 0.0, b["value"] or 0.0)
    names = [*before, *(name for name in after if name not in before)]
    rows: list[dict[str, Any]] = [
        {"term": name, "a": before.get(name, 0.0), "b": after.get(name, 0.0), "difference": after.get(name, 0.0) - before.get(name, 0.0)}
        for name in names
    ]
    rows.sort(key=lambda row: -abs(row["difference"]))
    shown = [row for row in rows[:MOST] if abs(row["difference"]) > _SMALLEST * max(map(abs, totals))]
    rest = {key: total - math.fsum(row[key] for row in shown) for key, total in zip(("a", "b"), totals, strict=True)}
    left = totals[1] - totals[0] - math.fsum(row["difference"] for row in shown)
    left = left if abs(left) > _ROUNDING * max(map(abs, totals)) else 0.0
    whole = {"term": WHOLE, "a": totals[0], "b": totals[1], "difference": totals[1] - totals[0]}
    return [*shown, {"term": REST, **rest, "difference": left}, whole]


def most_moved(a: Tree, b: Tree, number: int = 2) -> list[tuple[str, float]]:
    """The terms that moved most, and by how much."""
    return [(row["term"], row["difference"]) for row in moved(a, b)[:-2][:number]]
