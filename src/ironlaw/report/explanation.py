"""How a number was computed: its term and the terms below, each leaf with its formula, inputs and sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

from ironlaw import units
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import UnknownNameError
from ironlaw.estimate.answer.as_data import origins_of, row_data, trees_of, waterfall_data
from ironlaw.estimate.answer.bands import band_data, nearest_runs
from ironlaw.estimate.answer.parameters import parameters_data
from ironlaw.estimate.answer.term_data import (
    labels,
    law_name,
    laws_of,
    number,
    sources_data,
    term_data,
    term_sources,
    times_above,
    walk_paths,
)
from ironlaw.estimate.layer.counts import active_parameters, matmul_parameters, parameters_at_tokens, total_parameters
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.step.rates import flop_by_part
from ironlaw.estimate.step.waterfall import LOSSES, MEANING
from ironlaw.formulas import formula_text
from ironlaw.report.nearest import band_table
from ironlaw.terms import Term

if TYPE_CHECKING:
    from ironlaw.estimate.answer.estimate import Estimate
    from ironlaw.estimate.answer.group import Group

NAMES = "list"  # in place of a term: the names of all terms
LISTED = f"--explain {NAMES} prints all"


def names_term(explain: str | None) -> TypeGuard[str]:
    """True where ``--explain`` names a term, and not all of them or the list of their names."""
    return explain not in (None, "all", NAMES)


ALSO = {"mfu": "6nd", "6n": "6nd", "6 n d": "6nd", "flop per token": "6nd", "model flop per token": "6nd"}  # names that show it too


def explain(estimate: Estimate, term: str = "", index: int = 0) -> str:
    """The terms of one row that are called ``term``, and everything below them; every term where none is named."""
    _, at = estimate.place_of(index)
    if term == NAMES:
        return "\n".join(term_names(estimate, index))
    found, tables = _found(estimate, term, index)
    trees = [tree for tree, _ in found]
    lines = [line for table in tables.values() for line in (*table, "")]
    for tree in trees:
        lines += [*node_lines(tree, at, 0), ""]
    return "\n".join(lines).rstrip()


def explained_data(estimate: Estimate, term: str, index: int = 0) -> dict[str, Any]:
    """What ``explain`` prints of a name or a path as plain data: the terms with their paths, laws and sources; tables by their keys."""
    group, at = estimate.place_of(index)
    found, tables = _found(estimate, term, index)
    found += _flop_terms(group) if "6nd" in tables else []
    origins, trees = origins_of(group), [tree for tree, _ in found]
    whole = row_data(*estimate.place_of(index))
    return {
        **{key: whole[key] for key in COMMON},
        **{key: whole[key] for table in tables for key in KEYS_OF.get(table, ())},
        "explained": [term_data(tree, at, True, origins, path, times_above(trees_of(group), path, at)) for tree, path in found],
        "laws": laws_of(trees),
        "sources": sources_data(term_sources(trees)),
        "asked": whole["asked"],
    }


COMMON = ("schema_version", "tool_version", "calibration_version", "catalog_hash", "assumptions", "warnings")
# keys of the answer with what a table of the text shows
KEYS_OF = {
    "parameters": ("parameters",),
    "mfu": ("mfu_waterfall", "throughput"),
    "6nd": ("throughput",),
    "error band": ("error_band", "nearest_runs"),
}


def _flop_terms(group: Group) -> list[tuple[Term, str]]:
    """The terms of the model FLOP of a token, with their paths."""
    return [(term, f"6nd/{term.name}") for term in flop_by_part(group.job, group.plan).values()]


def _found(estimate: Estimate, term: str, index: int) -> tuple[list[tuple[Term, str]], dict[str, Iterator[str]]]:
    """The terms of a row at a path, or else those of a name, with their paths; and the tables of the name. All where none is named."""
    group, at = estimate.place_of(index)
    trees, tables = trees_of(group), _tables_of(group, at)
    if not term or term == "all":
        return [(tree, label) for tree, label in labels(trees)], tables
    folded = term.lower().replace("_", " ").replace("-", " ")
    nodes = [(node, path) for tree in trees for node, path in walk_paths(tree)] + _flop_terms(group)
    found = [(node, path) for node, path in nodes if path.lower().replace("-", " ") == folded] if "/" in term else []
    if not found:
        named = {id(node) for tree in trees for node in _terms_named(tree, folded, at)}
        found = [(node, path) for node, path in nodes if id(node) in named]
    if not found and folded not in tables and ALSO.get(folded) not in tables:
        raise UnknownNameError("term", term, term_names(estimate, index), more=LISTED)
    return found, {name: table for name, table in tables.items() if name in (folded, ALSO.get(folded))}


def term_names(estimate: Estimate, index: int = 0) -> list[str]:
    """The names that ``explain`` takes for one row."""
    group, at = estimate.place_of(index)
    return list(dict.fromkeys([*_tables_of(group, at), *(term.name for tree in trees_of(group) for term in tree.walk())]))


def _tables_of(group: Group, at: int) -> dict[str, Iterator[str]]:
    """What is explained by a table instead of a term."""
    tables = {"parameters": parameters_table(parameters_data(group.job))}
    if number(group.step.tree.value, at) is not None:
        tables["mfu"] = waterfall_table(waterfall_data(group, at))
        tables["6nd"] = flop_table(group, at)
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


def flop_table(group: Group, at: int) -> Iterator[str]:
    """The model FLOP of a token by part, beside the rule 6 N D, and the MFU that they give."""
    job, plan = group.job, group.plan
    parts = {name: number(term.value, at) for name, term in flop_by_part(job, plan).items()}
    total = float(total_parameters(job.model))
    multiply, tokens = float(matmul_parameters(job.model)), number(plan.global_batch_size * plan.seq_len, at)
    rate, gpus = (number(column, at) for column in (group.throughput["tokens_per_second"].value, plan.gpus))
    peak = group.cluster.accelerator.peak[job.precision.peak]
    plain = not job.lora_rank and all(kind.trained for kind in kinds(job.model))
    notes = {
        "forward": f"2 for each of {units.show(multiply, 'parameter', 4)} that multiply a token",
        "backward": "4: 2 for the gradient of its input, 2 for its own" if plain else "weights that are not trained have no gradient",
        "attention_forward": "4 w k in a layer: scores, and their product with values, of the k keys that a token sees",
        "attention_backward": "twice that",
    }
    yield f"6 N D: model FLOP of a token {units.show(parts['whole'], 'FLOP', 4)}, times D tokens"
    if "towers" in parts:
        notes["towers"] = "layers of towers and across, forward and backward, for a token of the sequence"
    if "index_scores" in parts:
        notes["index_scores"] = "forward of every key before a token, backward of the picked ones"
    for name, note in notes.items():
        yield f"  {name.replace('_', ' '):<20}{units.show(parts[name], 'FLOP', 4):>14}{parts[name] / parts['whole']:>8.1%}   {note}"
    rule = 6.0 * number(parameters_at_tokens(job.model, plan.seq_len), at)
    of = "active parameters" if active_parameters(job.model) < total else "parameters"
    why = f"N all {of}, of which an embedding multiplies nothing; no attention"
    yield f"  {'the rule 6 N':<20}{units.show(rule, 'FLOP', 4):>14}{rule / parts['whole']:>8.1%}   {why}"
    whole, by_rule = (units.show(tokens * flop, "FLOP", 4) for flop in (parts["whole"], rule))
    yield f"  a step: D = {tokens:,.0f} tokens, {whole}; by the rule {by_rule}"
    mfu, mfu_by_rule = (flop * rate / (gpus * peak.value) for flop in (parts["whole"], rule))
    flop = units.show(parts["whole"], "FLOP", 4)
    yield f"  MFU = {flop} x {rate:,.0f} tokens/s / ({gpus:,.0f} x {peak.text}) = {mfu:.2%}; by the rule {mfu_by_rule:.2%}"


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
        yield f"{pad}    = {formula_text(term.law)}   [{law_name(term)}]"
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
