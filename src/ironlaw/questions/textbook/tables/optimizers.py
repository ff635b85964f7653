"""Bytes that each optimizer stores and moves for a parameter, its operations, and the memory of a model with it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.optimizer import Optimizer
from ironlaw.cautions.record import Sentence
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.bind.cluster import find_precision
from ironlaw.estimate.bind.optimizer import bind_optimizer
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.layer.updates import SHAPES, kept_on_rank
from ironlaw.estimate.pipeline.stages import stages
from ironlaw.law import states
from ironlaw.question.defaults import OPTIMIZER
from ironlaw.question.read import read_options
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.terms import Term, leaf, scalar, total

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
SIDE = 4096.0  # of the square matrix for which states that grow with its sides are shown by parameter
DEFAULT = "bf16"
ONE = {
    "on": "h100-sxm", "gpus": 1, "tp": 1, "pp": 1, "ep": 1, "zero": 0, "micro_batch_size": 1, "global_batch_size": 1, "seq_len": 128,
    "recompute": "none", "framework": "fsdp",
}  # fmt: skip


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
    precision = find_precision("precision", values.get("precision", DEFAULT), folders)
    size = precision.parameter_bytes
    rows = [_row(rule, size, precision.master_weights) for rule in _usable(precision.master_weights, folders)]
    by_parameter = [
        {**row._asdict(), "static": row.static, "multiple": 1.0 + row.states / 4.0, "textbook": TEXTBOOK.get(row.optimizer)} for row in rows
    ]
    kept = next(row for row in rows if row.optimizer == OPTIMIZER).static
    headline = [
        Sentence(f"{OPTIMIZER} keeps {kept:g} bytes per parameter in {precision.name}, without activations", "kept", {"bytes": kept}),
        Sentence("sharding divides states and master weights by the ranks that share them (ZeRO 1)", "sharding"),
    ]
    tables = [Table("optimizers", f"Bytes per parameter, with {size:g}-byte weights and gradients", BY_PARAMETER, by_parameter)]
    terms: list[Term] = []
    if "model" in values or "parameters" in values:
        name, count, group = _count(values, folders)
        every = [_of_model(row, count, _states(row, count, group, folders)) for row in rows]
        terms = [term for _, term in every]
        tables.append(Table("memory", f"Static memory of {name}, before sharding", OF_MODEL, [row for row, _ in every]))
        adam = next(row for row, _ in every if row["optimizer"] == OPTIMIZER)
        text = f"{name}: {adam['gigabytes']:,.4g} GB with {OPTIMIZER}, {adam['states'] / 1e9:,.4g} GB of it states"
        headline.insert(0, Sentence(text, "of-model", {"bytes": adam["gigabytes"] * 1e9, "states": adam["states"]}))
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
    return Row(rule.name, size, size, master, _per_parameter(rule), traffic, rule.flop.value, source)


def _per_parameter(rule: Optimizer) -> float:
    """Bytes of the states of a parameter in a square matrix of 4,096 by 4,096."""
    held = 0.0
    for state in rule.states.values():
        held += state.bytes.value * float(SHAPES[state.shape].elements(rule, SIDE, SIDE, 0.0)) / SIDE**2
    return held


def _count(values: dict[str, Any], folders: tuple[str, ...]) -> tuple[str, float, Group | None]:
    """The parameters that are asked about, with their name; of a model an estimate on one accelerator, which has its matrices."""
    if "parameters" in values:
        return units.show(values["parameters"], "parameter", 4), float(values["parameters"]), None
    group = answer(read_options({"model": values["model"], **ONE}), folders).groups[0]
    count = float(total_parameters(group.job.model))
    return f"{group.job.model.name} ({units.show(count, 'parameter', 4)})", count, group


def _states(row: Row, parameters: float, group: Group | None, folders: tuple[str, ...]) -> list[Term]:
    """The states of a number of parameters, or of a model by class of parameter and shape of state."""
    if group is None or group.asked is None:
        return [leaf("states", states.state, "B", parameters=parameters, bytes_per_parameter=row.states, shards=1.0)]
    job = group.job.replace(optimizer=bind_optimizer(group.asked.replace(optimizer=row.optimizer), folders))
    (stage,) = stages(job, group.plan)
    terms = []
    for kept in kept_on_rank(job, group.plan, stage):
        elements = scalar(kept.common + kept.routed)
        terms.append(leaf(kept.name, states.state, "B", parameters=elements, bytes_per_parameter=kept.size, shards=1.0))
    return terms


def _of_model(row: Row, parameters: float, kept: list[Term]) -> tuple[dict[str, Any], Term]:
    """The memory of a model with one optimizer, and its Term."""
    sizes = {"weights": row.weights, "gradients": row.gradients, "master": row.master}
    parts = [leaf(name, states.state, "B", parameters=parameters, bytes_per_parameter=size, shards=1.0) for name, size in sizes.items()]
    parts.append(total("states", kept))
    term = total(f"static memory with {row.optimizer}", parts)
    amounts = {part.name: float(part.value) for part in parts}
    every = float(term.value)
    return {"optimizer": row.optimizer, **amounts, "static": every, "gigabytes": every / 1e9}, term
