"""A Term: one node of the breakdown that is the answer.

A node holds a column of values (a scalar is a column of length one), its unit, the law that made it with the inputs
that law read, and its parts. Two kinds exist, each with one constructor:

* ``leaf(name, law, unit, **inputs)`` calls ``law(**inputs)`` and keeps both, so that the formula shown is the formula run;
* ``total(name, parts, times)`` is the left-to-right sum of its parts times its own ``times`` column. Left-to-right is part
  of the contract: it makes a row bit-identical whatever the size of the batch it is computed in.

``name`` is the label that people read; code finds a node by its ``key``, which is the label where none is given.
``bound`` says which roof a leaf's time belongs to: one of ``BOUNDS``, a column of indices into it, or a function that returns this
column, which is called when the bound is read: a search compares millions of times and reads the bounds of a few. In a tree of memory
it is one of ``MEMORY_KINDS``, and that of all below the node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

ONCE = 1.0  # the ``times`` of a node that does not repeat its parts
BOUNDS = ("compute", "hbm", "network", "pipeline", "dispatch", "data")
MEMORY_KINDS = ("weights", "gradients", "optimizer", "activations", "workspace", "slack")


class Term:
    """A named column of values with its unit, law, inputs and parts."""

    __slots__ = ("_bound", "inputs", "key", "law", "name", "parts", "times", "unit", "value")

    def __init__(
        self,
        name: str,
        value: Any,
        unit: str,
        law: Callable[..., Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        parts: Sequence[Term] = (),
        times: Any = 1.0,
        bound: Any = None,
        key: Hashable = None,
    ) -> None:
        self.name, self.value, self.unit = name, value, unit
        self.key = name if key is None else key
        self.law, self.inputs = law, inputs or {}
        self.parts, self.times, self._bound = tuple(parts), times, bound

    @property
    def bound(self) -> Any:
        """The roof that the node's time belongs to; None for a node that is no time of its own."""
        if callable(self._bound):
            with np.errstate(all="ignore"):
                self._bound = self._bound()
        return self._bound

    def __repr__(self) -> str:
        return f"Term({self.name!r}, {np.ravel(self.value)[:3]}, {self.unit!r}, {len(self.parts)} parts)"

    def __getitem__(self, path: str) -> Term:
        """The part at a ``/``-separated path of keys or labels; each of them names the first such node anywhere below the previous one."""
        node = self
        for name in path.split("/"):
            found = next((t for t in node.walk() if t is not node and name in (t.key, t.name)), None)
            if found is None:
                raise KeyError(f"{path}: no term {name!r} below {node.name!r}")
            node = found
        return node

    def named(self, name: str) -> Term:
        """The same term under another name."""
        return Term(name, self.value, self.unit, self.law, self.inputs, self.parts, self.times, self._bound)

    def repeated(self, times: Any) -> Term:
        """The same term ``times`` over."""
        both = times if isinstance(self.times, float) and self.times == ONCE else self.times * times
        return Term(self.name, self.value * times, self.unit, self.law, self.inputs, self.parts, both, self._bound, self.key)

    def of_kind(self, kind: str) -> Term:
        """The same term, whose bytes are of a kind of memory, with all below it."""
        self._bound = kind
        return self

    def walk(self) -> Iterator[Term]:
        """This node and all below it, parents first."""
        yield self
        for part in self.parts:
            yield from part.walk()


def plain(value: Any) -> Any:
    """The number inside a sourced value; anything else unchanged."""
    return getattr(value, "value", value)


def scalar(value: Any, row: int = 0) -> float:
    """The number that a Term, a sourced value or a column has in one row; a column of length one is the same in every row."""
    column = np.ravel(plain(value))
    return float(column[row if column.size > 1 else 0])


def leaf(name: str, law: Callable[..., Any], unit: str, bound: Any = None, times: Any = None, key: Hashable = None, **inputs: Any) -> Term:
    """The node whose value is ``law(**inputs) * times``; sourced inputs keep their source for the explanation."""
    value = law(**{key: getattr(item, "value", item) for key, item in inputs.items()})
    if times is not None:
        value = value * times
    return Term(name, value, unit, law, inputs, (), 1.0 if times is None else times, bound, key)


def total(name: str, parts: Sequence[Term], times: Any = ONCE, unit: str | None = None, key: Hashable = None) -> Term:
    """The node whose value is the left-to-right sum of ``parts`` times ``times``; no parts sum to zero."""
    value = fold(parts)
    if times is not ONCE:
        value = value * times
    return Term(name, value, unit or (parts[0].unit if parts else "s"), None, None, parts, times, key=key)


def fold(parts: Sequence[Term]) -> Any:
    """Left-to-right sum of the values of ``parts``; nothing sums to zero."""
    if not parts:
        return 0.0
    value = parts[0].value
    for part in parts[1:]:
        value = value + part.value
    return value


def shares(root: Term) -> dict[str, Any]:
    """How much of ``root`` belongs to each roof: exclusive columns in the root's unit, one per name of ``BOUNDS``.

    Every leaf's value, multiplied by the ``times`` of its ancestors, is booked on the leaf's ``bound``.
    """
    sums: dict[str, Any] = dict.fromkeys(BOUNDS, 0.0 * root.value)

    def book(node: Term, factor: Any) -> None:
        """Add the value of every leaf below ``node`` to its roof."""
        if node.parts:
            for part in node.parts:
                book(part, factor * node.times)
        elif isinstance(bound := node.bound, str):
            sums[bound] = sums[bound] + node.value * factor
        elif bound is not None:
            for index, name in enumerate(BOUNDS):
                if np.count_nonzero(here := bound == index):
                    sums[name] = sums[name] + np.where(here, node.value, 0.0) * factor

    book(root, 1.0)
    return sums
