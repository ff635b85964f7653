"""How a number was computed: its term and the terms below, each leaf with its formula, inputs and sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import UnknownNameError
from ironlaw.estimate.as_data import formula, law_name, number, trees_of
from ironlaw.terms import Term

if TYPE_CHECKING:
    from ironlaw.estimate.answer import Estimate


def explain(estimate: Estimate, term: str = "", index: int = 0) -> str:
    """The terms of one row that are called ``term``, and everything below them; every term where none is named."""
    group, at = estimate.place_of(index)
    trees = trees_of(group)
    if term and term != "all":
        folded = term.lower().replace("_", " ").replace("-", " ")
        matches = [t for tree in trees for t in _terms_named(tree, folded, at)]
        if not matches:
            raise UnknownNameError("term", term, {t.name for tree in trees for t in tree.walk()})
        trees = matches
    lines: list[str] = []
    for tree in trees:
        lines += [*node_lines(tree, at, 0), ""]
    return "\n".join(lines).rstrip()


def _terms_named(tree: Term, folded: str, at: int) -> list[Term]:
    """The topmost terms of a name. Terms that the row does not run (below a times of 0) count only where no other has the name."""
    matches: list[tuple[bool, Term]] = []

    def visit(node: Term, runs: bool) -> None:
        if node.name.lower().replace("-", " ") == folded:
            matches.append((runs, node))
            return
        for part in node.parts:
            visit(part, runs and number(node.times, at) != 0.0)

    visit(tree, True)
    return [node for runs, node in matches if runs] or [node for _, node in matches]


def node_lines(term: Term, at: int, depth: int = 0) -> Iterator[str]:
    """A term and all below it: value, formula, inputs, sources; only the name of a part that this row does not run."""
    pad = "  " * depth
    times = number(term.times, at)
    repeated = f"  (times {times:g})" if times != 1.0 else ""
    yield f"{pad}{term.name}: {_show(number(term.value, at), term.unit)}{repeated}"
    if times == 0.0 and depth:
        return
    if term.law is not None:
        yield f"{pad}    = {formula(term)}   [{law_name(term)}]"
        for name, item in term.inputs.items():
            yield f"{pad}    {name} = {_input(item, at)}"
    for part in term.parts:
        yield from node_lines(part, at, depth + 1)


def _show(value: Any, unit: str) -> str:
    return "nan" if value is None else units.show(value, unit, 4)


def _input(item: Any, at: int) -> str:
    if isinstance(item, Sourced):
        source = f"  <- {item.source.line()}" if item.source else ""
        note = f" ({item.note})" if item.note else ""
        text = item.text if isinstance(item.value, float) else f"{_show(number(item.value, at), item.unit)}, from {item.text}"
        return f"{text}{note}{source}"
    value = number(item, at)
    return "none" if value is None else f"{value:.6g}"
