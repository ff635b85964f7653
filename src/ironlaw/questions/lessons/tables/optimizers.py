"""Bytes that each optimizer stores and moves for a parameter, its operations, and the memory of a model with it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.optimizer import Optimizer
from ironlaw.errors import QuestionError
from ironlaw.estimate.bind.cluster import find_precision
from ironlaw.estimate.bind.model import bind_model
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.law import states
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.terms import Term, leaf, total

BY_PARAMETER = (
    Column("optimizer", "optimizer"), Column("weights", "weights", "1"), Column("gradients", "gradients", "1"),
    Column("master", "master", "1"), Column("states", "states", "1"), Column("static", "all static", "1"),
    Column("multiple", "weights and states, over fp32 weights", "1"), Column("traffic", "traffic per step", "1"),
    Column("flop", "FLOP per step", "1"), Column("textbook", "operations, training chapter", "1"), Column("source", "source"),
)  # fmt: skip
OF_MODEL = (
    Column("optimizer", "optimizer"), Column("weights", "weights", "B"), Column("gradients", "gradients", "B"),
    Column("master", "master", "B"), Column("states", "states", "B"), Column("static", "all static", "B"), Column("gigabytes", "GB", "1"),
)  # fmt: skip
TEXTBOOK = {"sgd": 2.0, "momentum": 3.0, "rmsprop": 4.0, "adamw": 5.0}  # operations per parameter as the training chapter counts them
SHARE = 0.25  # rank of GaLore over the width, as in its paper (1,024 of 4,096 for LLaMA 7B)
GALORE = "Zhao et al., GaLore, ICML 2024: rank a quarter of the width, square matrices, 2-byte projector; without a master copy"
DEFAULT = "bf16"


class Row(NamedTuple):
    """Bytes of one parameter, and what a step moves and computes for it; None where that is not counted."""

    optimizer: str
    weights: float
    gradients: float
    master: float
    states: float
    traffic: float | None
    flop: float | None
    source: str

    @property
    def static(self) -> float:
        """Bytes of a parameter that stay between steps."""
        return self.weights + self.gradients + self.master + self.states


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """What each optimizer stores, moves and computes; with a model or a number of parameters also the memory."""
    if "model" in values and "parameters" in values:
        raise QuestionError("give MODEL or --parameters, not both")
    precision = find_precision("precision", values.get("precision", DEFAULT), folders)
    size = precision.parameter_bytes
    rows = [_row(rule, size, precision.master_weights) for rule in _usable(precision.master_weights, folders)]
    rows += [_galore("galore", 2.0), _galore("8-bit galore", 1.0)] if size == 2.0 else []
    by_parameter = [
        {**row._asdict(), "static": row.static, "multiple": 1.0 + row.states / 4.0, "textbook": TEXTBOOK.get(row.optimizer)} for row in rows
    ]
    headline = [
        f"adamw keeps {rows[[row.optimizer for row in rows].index('adamw')].static:g} bytes per parameter in {precision.name},"
        " without activations",
        "sharding divides states and master weights by the ranks that share them (ZeRO 1)",
    ]
    tables = [Table("optimizers", f"Bytes per parameter, with {size:g}-byte weights and gradients", BY_PARAMETER, by_parameter)]
    terms: list[Term] = []
    if "model" in values or "parameters" in values:
        name, count = _count(values, folders)
        every = [_of_model(row, count) for row in rows]
        terms = [term for _, term in every]
        tables.append(Table("memory", f"Static memory of {name}, before sharding", OF_MODEL, [row for row, _ in every]))
        adam = next(row for row, _ in every if row["optimizer"] == "adamw")
        headline.insert(0, f"{name}: {adam['gigabytes']:,.4g} GB with adamw, {adam['states'] / 1e9:,.4g} GB of it states")
    return Answer("Optimizers", headline, tables, terms, folders=folders)


def _usable(has_master: bool, folders: tuple[str, ...]) -> list[Optimizer]:
    """The optimizers of a precision: those without a master copy are made for weights that other precisions copy."""
    records = [load.record("optimizers", name, folders) for name in load.names("optimizers", folders)]
    return [rule for rule in records if has_master or rule.master_bytes.value]


def _row(rule: Optimizer, size: float, has_master: bool) -> Row:
    """One optimizer beside weights of so many bytes."""
    master = rule.master_bytes.value if has_master else 0.0
    # the table of the law counts a 2-byte gradient in and a 2-byte weight out beside an fp32 master; wide weights are their own master
    traffic = rule.traffic.value if has_master else rule.traffic.value - 4.0 + size
    source = rule.flop.source.title.partition(",")[0] if rule.flop.source else ""
    return Row(rule.name, size, size, master, rule.state_bytes, traffic, rule.flop.value, source)


def _galore(name: str, moment_bytes: float) -> Row:
    """Adam on gradients projected to a low rank, with moments of so many bytes and a projector of two."""
    elements = float(states.low_rank_states(1.0, 1.0, SHARE))
    return Row(name, 2.0, 2.0, 0.0, elements * moment_bytes + SHARE * (2.0 - moment_bytes), None, None, GALORE)


def _count(values: dict[str, Any], folders: tuple[str, ...]) -> tuple[str, float]:
    """The parameters that are asked about, with their name."""
    if "parameters" in values:
        return units.show(values["parameters"], "parameter", 4), float(values["parameters"])
    model, _ = bind_model(values["model"], folders)
    count = float(total_parameters(model))
    return f"{model.name} ({units.show(count, 'parameter', 4)})", count


def _of_model(row: Row, parameters: float) -> tuple[dict[str, Any], Term]:
    """The memory of a model with one optimizer, and its Term."""
    sizes = {"weights": row.weights, "gradients": row.gradients, "master": row.master, "states": row.states}
    parts = [leaf(name, states.state, "B", parameters=parameters, bytes_per_parameter=size, shards=1.0) for name, size in sizes.items()]
    term = total(f"static memory with {row.optimizer}", parts)
    amounts = {name: float(part.value) for name, part in zip(sizes, parts, strict=True)}
    every = float(term.value)
    return {"optimizer": row.optimizer, **amounts, "static": every, "gigabytes": every / 1e9}, term
