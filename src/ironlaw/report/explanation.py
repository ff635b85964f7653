"""How a number was computed: its term and the terms below, each leaf with its formula, inputs and sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import UnknownNameError
from ironlaw.estimate.as_data import formula, law_name, number, trees_of, waterfall_data
from ironlaw.estimate.bands import band_data, nearest_runs
from ironlaw.estimate.parameters import parameters_data
from ironlaw.estimate.waterfall import LOSSES, MEANING
from ironlaw.report.nearest import band_table
from ironlaw.terms import Term

if TYPE_CHECKING:
    from ironlaw.estimate.answer import Estimate, Group

NAMES = "list"  # in place of a term: the names of all terms
LISTED = f"--explain {NAMES} prints all"


def explain(estimate: Estimate, term: str = "", index: int = 0) -> str:
    """The terms of one row that are called ``term``, and everything below them; every term where none is named."""
    group, at = estimate.place_of(index)
    trees, tables = trees_of(group), _tables_of(group, at)
    if term == NAMES:
        return "\n".join(term_names(estimate, index))
    if term and term != "all":
        folded = term.lower().replace("_", " ").replace("-", " ")
        trees = [t for tree in trees for t in _terms_named(tree, folded, at)]
        if not trees and folded not in tables:
            raise UnknownNameError("term", term, term_names(estimate, index), more=LISTED)
        tables = {name: table for name, table in tables.items() if name == folded}
    lines = [line for table in tables.values() for line in (*table, "")]
    for tree in trees:
        lines += [*node_lines(tree, at, 0), ""]
    return "\n".join(lines).rstrip()


def term_names(estimate: Estimate, index: int = 0) -> list[str]:
    """The names that ``explain`` takes for one row."""
    group, at = estimate.place_of(index)
    return list(dict.fromkeys([*_tables_of(group, at), *(term.name for tree in trees_of(group) for term in tree.walk())]))


def _tables_of(group: Group, at: int) -> dict[str, Iterator[str]]:
    """What is explained by a table instead of a term."""
    tables = {"parameters": parameters_table(parameters_data(group.job))}
    if number(group.step.tree.value, at) is not None:
        tables["mfu"] = waterfall_table(waterfall_data(group, at))
        if band := band_data(group, at):
            tables["error band"] = band_table(band, nearest_runs(group, at))
    return tables


def parameters_table(counts: dict[str, Any]) -> Iterator[str]:
    """The parameters of a model: of one layer and of all, by kind of layer and part."""

    width = max(34, *(len(row["name"]) + 15 for row in counts["kinds"]))

    def line(name: str, layers: float | None, one: float | None, total: float, active: float) -> str:
        cells = ("" if layers is None else f"{layers:,.4g}", "" if one is None else f"{one:,.0f}", f"{total:,.0f}", f"{active:,.0f}")
        return f"  {name:<{width}}{cells[0]:>8}{cells[1]:>20}{cells[2]:>22}{cells[3]:>20}"

    yield f"parameters: {counts['total']:,.0f}, active for a token: {counts['active']:,.0f}, trained: {counts['trained']:,.0f}"
    if "published" in counts:
        active = f", {counts['published_active']:,.0f} active" if "published_active" in counts else ""
        yield f"published: {counts['published']:,.0f}{active}"
    yield f"  {'':<{width}}{'layers':>8}{'one layer':>20}{'all layers':>22}{'active':>20}"
    for row in counts["kinds"]:
        name = row["name"] + ("" if row["counted"] else " (not counted)")
        yield line(name, row["layers"], row["of_one"], row["total"], row["active"])
        for part, count in row["parts"].items():
            yield line(f"  {part}", None, count, row["layers"] * count, row["layers"] * count)
        if experts := row.get("experts"):
            total, active = (row["layers"] * experts[name] * experts["of_one"] for name in ("number", "visited"))
            yield line(f"  {experts['number']:,.0f} experts", None, experts["number"] * experts["of_one"], total, active)
    for name in ("embedding", "output_layer"):
        shared = " (of the embedding, its norm)" if name == "output_layer" and counts["tied"] else ""
        yield line(name.replace("_", " ") + shared, None, None, counts[name], counts[name])


def waterfall_table(losses: dict[str, float]) -> Iterator[str]:
    """The losses from the peak down to the MFU, one a line."""
    yield "from the peak to the MFU, in shares of the step"
    yield f"  {'peak':<36}{100.0:>8.2f}%"
    for key, name in ((key, name) for key, name in LOSSES.items() if losses[key]):
        yield f"  {name:<36}{0.0 - 100.0 * losses[key]:>+8.2f}%   {MEANING[key]}"
    yield f"  {'MFU':<36}{100.0 * losses['mfu']:>8.2f}%"


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
    """One input of a formula: its value, its source, or its range."""
    if isinstance(item, Sourced):
        source = f"  <- {item.source.line()}" if item.source else ""
        note = f" ({item.note})" if item.note else ""
        text = item.text if isinstance(item.value, float) else f"{_show(number(item.value, at), item.unit)}, from {item.text}"
        return f"{text}{note}{source}"
    value = number(item, at)
    return "none" if value is None else f"{value:.6g}"
