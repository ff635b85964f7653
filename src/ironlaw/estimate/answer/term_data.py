"""Trees of terms as plain data: value, share of the root, kind, path, and the branch that won; explained, also formula and inputs.

    path     the labels from the root down, joined by "/"; the second of two siblings of one label ends in "#2"
    total    what a node adds to its root: its value times the ``times`` of all nodes above it
    kind     the roof that a time belongs to, or what bytes of memory are; ``kinds`` has the totals where a sum mixes several

Laws are described once for all terms of an answer (``laws_of``), as are sources.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ironlaw.catalog.sourced import Source, Sourced
from ironlaw.formulas import branch_of, condition, formula_text, has_branches, inputs_of, sentence, steps_of, symbols_of, tokens
from ironlaw.terms import BOUNDS, MEMORY_KINDS, Term, plain

if TYPE_CHECKING:
    from ironlaw.plan import Plan

PAGE = "docs/reference/laws.md"  # where the laws of ``ironlaw.law`` are described


class Origins(NamedTuple):
    """Where inputs come from: the paths of the terms and of the columns of a plan, by the identity of their values."""

    found: Mapping[int, str]

    @classmethod
    def of(cls, trees: Iterable[Term], plan: Plan | None = None) -> Origins:
        """The values of some trees and of a plan. Only arrays are told apart by identity: equal numbers are one object in Python."""
        found: dict[int, str] = {}
        for tree in trees:
            for node, path in walk_paths(tree):
                if isinstance(node.value, np.ndarray):
                    found.setdefault(id(node.value), path)
        for name, column in ({} if plan is None else vars(plan)).items():
            if isinstance(column, np.ndarray):
                found.setdefault(id(column), f"plan/{name}")
        return cls(found)


def number(value: Any, at: int = 0) -> Any:
    """The number that a column has in one row; None where it is not finite."""
    array = np.ravel(plain(value))
    item = array[at if array.size > 1 else 0].item()
    return item if not isinstance(item, float) or math.isfinite(item) else None


def labels(parts: Iterable[Term]) -> Iterator[tuple[Term, str]]:
    """The parts of a node with the last word of their paths, which no two of them share."""
    seen: Counter[str] = Counter()
    for part in parts:
        name = part.name.replace("/", " per ")
        seen[name] += 1
        yield part, name if seen[name] == 1 else f"{name}#{seen[name]}"


def walk_paths(root: Term) -> Iterator[tuple[Term, str]]:
    """A term and all below it with their paths, parents first."""

    def visit(node: Term, path: str) -> Iterator[tuple[Term, str]]:
        yield node, path
        for part, label in labels(node.parts):
            yield from visit(part, f"{path}/{label}")

    for node, label in labels([root]):
        yield from visit(node, label)


def times_above(trees: Iterable[Term], path: str, at: int) -> float | None:
    """How often the root of a path has the node at its end: the product of ``times`` of the nodes above."""
    above: float | None = 1.0
    for tree in trees:
        for node, here in walk_paths(tree):
            if path.startswith(here + "/"):
                times = number(node.times, at)
                above = None if above is None or times is None else above * times
    return above


def term_data(
    term: Term, at: int, explain: bool = False, origins: Origins | None = None, path: str = "", times: float | None = 1.0
) -> dict[str, Any]:
    """A Term tree as nested plain data; ``times`` only where a node repeats its parts.

    ``path`` is that of ``term``, and ``times`` how often the root of this path has it; without a path ``term`` is the root.
    """
    return _Tree(at, explain, origins).data(term, path or next(labels([term]))[1], times)


class _Tree:
    """Writes the nodes of a tree in one row."""

    def __init__(self, at: int, explain: bool, origins: Origins | None) -> None:
        self.at, self.explain, self.origins = at, explain, origins or Origins({})

    def data(self, term: Term, path: str, factor: float | None, kind: str | None = None) -> dict[str, Any]:
        """A node and all below it; ``factor``: how often its root has it; ``kind``: that of the node above."""
        value, times = number(term.value, self.at), number(term.times, self.at)
        total = None if value is None or factor is None else value * factor
        kind = kind_of(term, self.at) or kind
        data: dict[str, Any] = {"name": term.name, "path": path, "value": value, "unit": term.unit, "total": total, "law": law_name(term)}
        if times != 1.0:
            data["times"] = times
        if term.law is not None:
            data |= self.of_law(term, path)
        below = None if factor is None or times is None else factor * times
        data["parts"] = [self.data(part, f"{path}/{label}", below, kind) for part, label in labels(term.parts)]
        return data | kinds_data(kind, data["parts"])

    def of_law(self, term: Term, path: str) -> dict[str, Any]:
        """What the law of a node says: the branch that won; explained, also the formula, its inputs and steps."""
        law = term.law
        assert law is not None
        branch = branch_of(law, {name: _as_float(item, self.at) for name, item in term.inputs.items()}) if has_branches(law) else None
        data: dict[str, Any] = {} if branch is None else {"branch": branch.won}
        if self.explain:
            data["formula"] = formula_text(law)
            data["inputs"] = {name: self.input_data(law, name, item, path) for name, item in term.inputs.items()}
            if branch is not None:
                data["branches"] = branch.values
        return data

    def input_data(self, law: Callable[..., Any], name: str, item: Any, path: str) -> dict[str, Any]:
        """One input of a law: value and unit, and where it comes from: a record, another term, the plan, or the laws of this tool."""
        unit = inputs_of(law).get(name, ("", ""))[0]
        if isinstance(item, Sourced):
            source = item.source.key if item.source else None
            return {"value": number(item.value, self.at), "unit": item.unit, "origin": "record", "text": item.text, "source": source}
        found = self.origins.found.get(id(item), path)
        data = {"value": number(item, self.at), "unit": unit}
        if found == path:
            return {**data, "origin": "computed"}
        return {**data, "origin": "plan" if found.startswith("plan/") else "term", "from": found}


def kinds_data(kind: str | None, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """``kind`` of a node of one kind, and ``kinds`` with the totals of one that mixes several; nothing for what has no kind.

    >>> kinds_data(None, [{"kind": "hbm", "total": 1.0}, {"kind": "compute", "total": 2.0}])
    {'kind': None, 'kinds': {'compute': 2.0, 'hbm': 1.0}}
    >>> kinds_data(None, [{"kind": "hbm", "total": 1.0}, {"kind": "compute", "total": 0.0}])
    {'kind': 'hbm'}
    """
    if not parts or (kind is not None and all(part.get("kind") == kind for part in parts)):
        return {} if kind is None else {"kind": kind}
    totals: dict[str, float] = {}
    for part in parts:
        for name, total in part.get("kinds", {part.get("kind"): part["total"]}).items():
            if name is not None:
                totals[name] = totals.get(name, 0.0) + (total or 0.0)
    present = [name for name, total in totals.items() if total] or list(totals)
    if len(present) == 1:
        return {"kind": present[0]}
    return {"kind": None, "kinds": {name: totals[name] for name in (*BOUNDS, *MEMORY_KINDS) if name in present}} if present else {}


def kind_of(term: Term, at: int) -> str | None:
    """The roof or the kind of memory that a node states for itself; None where it states none."""
    bound = term.bound
    return bound if bound is None or isinstance(bound, str) else BOUNDS[int(number(bound, at))]


def _as_float(item: Any, at: int) -> Any:
    """An input as a number for its formula; texts and the like stay what they are."""
    value = plain(item)
    return value if isinstance(value, str) else number(value, at)


def law_name(term: Term) -> str | None:
    """The module and name of the law of a leaf."""
    return f"{term.law.__module__}.{term.law.__qualname__}" if term.law else None


def laws_of(trees: Iterable[Term]) -> dict[str, dict[str, Any]]:
    """Every law of some trees, once: what it says, formula, tokens, steps, letters, inputs with units, and where it is described."""
    laws = {law_name(node): node.law for tree in trees for node in tree.walk() if node.law is not None}
    return {str(name): law_data(law) for name, law in sorted(laws.items(), key=lambda item: str(item[0])) if law is not None}


def law_data(law: Callable[..., Any]) -> dict[str, Any]:
    """One law as plain data."""
    text, steps = formula_text(law), steps_of(law)
    inputs = inputs_of(law) or dict.fromkeys(law.__code__.co_varnames[: law.__code__.co_argcount], ("", ""))
    return {
        "says": sentence(law),
        "formula": text,
        "where": condition(law),
        "tokens": [list(token) for token in tokens(text, inputs, steps)],
        "steps": dict(steps),
        "symbols": dict(symbols_of(law)),
        "inputs": {name: {"unit": unit, "text": words} for name, (unit, words) in inputs.items()},
        "docs": f"{PAGE}#{law_anchor(law)}" if law.__module__.startswith("ironlaw.law.") else None,
    }


def law_anchor(law: Callable[..., Any]) -> str:
    """The anchor of a law's heading on the page of laws, which is its signature."""
    code = law.__code__
    return "-".join((law.__name__ + code.co_varnames[0], *code.co_varnames[1 : code.co_argcount])).lower()


def term_sources(terms: Iterable[Term]) -> Iterator[Source | None]:
    """The sources of all inputs of some terms."""
    for term in terms:
        for node in term.walk():
            for item in node.inputs.values():
                if isinstance(item, Sourced):
                    yield item.source


def sources_data(sources: Iterable[Source | None]) -> dict[str, dict[str, str]]:
    """Sources that have an address, by key."""
    data = {s.key: {"title": s.title, "url": s.url, "read": s.read, "grade": s.grade} for s in sources if s is not None and s.url}
    return dict(sorted(data.items()))
