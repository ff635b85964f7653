"""The three hard limits of one machine: memory, wall clock and data; and the number of machines by sizes alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.errors import IronlawError, QuestionError
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.bind.model import bind_model, plain_model
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.what_if.near_counts import why_impossible
from ironlaw.law import collectives, scaling
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.optimize.rules_of_thumb import SIZES, describe_sizes, recommend_scale
from ironlaw.questions.roofline.tiers import STORED, bind_storage
from ironlaw.terms import Term, leaf, scalar

DEADLINE = 14.0 * 86400.0  # two weeks, the usual patience of a project
TOKEN_BYTES = 4.0  # of a stored token, an index
LIMITS = (
    Column("machine", "machine"), Column("gpus", "GPUs", "1"), Column("memory", "memory", "B"), Column("capacity", "of", "B"),
    Column("memory_limit", "memory"), Column("seconds", "run takes", "s"), Column("deadline", "may take", "s"),
    Column("time_limit", "wall clock"), Column("stream", "data read once", "s"), Column("data_limit", "data"), Column("why_not", ""),
)  # fmt: skip
RULES = (Column("scale", "scale"), Column("parameters", "parameters below", "parameter"), Column("dataset", "data below", "B"))
REACHED, HELD = "reached", "ok"


@dataclass(frozen=True)
class Machine:
    """One accelerator or one machine: what training needs there, and the limits it reaches."""

    row: dict[str, Any]
    reached: tuple[str, ...]
    terms: tuple[Term, ...] = field(default=())


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Whether one accelerator or one machine is enough for MODEL, --tokens and --dataset; feasible where one machine is."""
    need(values, "model", "on")
    notes: Assumptions = []
    asked = {name: values.pop(name) for name in ("deadline", "dataset", "sizes", *STORED) if name in values}
    model = plain_model(bind_model(values["model"], folders)[0])
    parameters = float(total_parameters(model))
    if "tokens" not in values:
        values["tokens"] = float(scaling.rule_tokens(parameters, 20.0))
        assume(notes, "tokens", f"{units.show(values['tokens'], 'token', 4)}, 20 for each parameter", "default")
    tokens = values["tokens"]
    if "deadline" not in asked:
        assume(notes, "deadline", "14 days", "default")
    if "dataset" not in asked:
        assume(notes, "dataset", f"{units.show(TOKEN_BYTES * tokens, 'B', 4)}, {TOKEN_BYTES:g} B for each token of the run", "default")
    dataset = asked.get("dataset", TOKEN_BYTES * tokens)
    cluster = cluster_of({name: values[name] for name in ("on", "node", "fabric") if name in values}, folders, [])
    storage = bind_storage(asked, notes)
    stream = leaf("reading the data once", collectives.point_to_point, "s", size=dataset, bandwidth=storage.value, latency=0.0)
    counts = {"one accelerator": 1.0, "one machine": float(values.pop("gpus", cluster.node.accelerators.value))}
    if counts["one machine"] > cluster.node.accelerators.value:
        raise QuestionError(f"textbook limits is of one machine: --gpus is at most {cluster.node.accelerators.value:g}, those of the node")
    limits = {"deadline": asked.get("deadline", DEADLINE), "stream": scalar(stream)}
    machines = [_judge_machine(name, count, values, limits, folders) for name, count in counts.items()]
    sizes = asked.get("sizes", SIZES)
    scale = recommend_scale(parameters, dataset, sizes)
    rows = [machine.row for machine in machines]
    tables = [
        Table("limits", "Hard limits of one accelerator and of one machine", filled_columns(LIMITS, rows), rows),
        Table("sizes", "By sizes alone (simplified): the first row that holds", RULES, describe_sizes(sizes)),
    ]
    by_sizes = f"by sizes alone (simplified), {units.show(parameters, 'parameter', 4)} and {units.show(dataset, 'B', 4)}: {scale}"
    told = {"parameters": parameters, "dataset": dataset, "scale": scale}
    headline = [*_write_verdict(machines, limits), Sentence(by_sizes, "by-sizes", told)]
    title = f"One machine or several: {model.title} for {units.show(tokens, 'token', 4)} on {cluster.accelerator.name}"
    data = {"scale": scale, "reached": {machine.row["machine"]: list(machine.reached) for machine in machines}}
    terms = [stream, storage, *machines[-1].terms]
    return Answer(title, headline, tables, terms, data, notes, (), not machines[-1].reached, folders)


def _judge_machine(name: str, gpus: float, values: Mapping[str, Any], limits: Mapping[str, float], folders: tuple[str, ...]) -> Machine:
    """Memory, time and data of one machine against their limits."""
    start: dict[str, Any] = {"machine": name, "gpus": gpus, "deadline": limits["deadline"], "stream": limits["stream"]}
    try:
        estimate: Estimate = answer({**values, "gpus": gpus}, folders)
        data = estimate.row(0)
        if data["step"]["seconds"] is None:
            raise QuestionError(f"no such plan: {why_impossible(estimate)}")
    except IronlawError as error:
        return Machine({**start, "why_not": str(error)}, ("plan",))
    seconds, memory = data["run"]["days"] * 86400.0, data["memory"]
    reached = {
        "memory": not memory["fits"],
        "wall clock": seconds > limits["deadline"],
        "data": limits["stream"] > min(seconds, limits["deadline"]),
    }
    words = {what: REACHED if is_reached else HELD for what, is_reached in reached.items()}
    row = {
        **start, "memory": memory["device"], "capacity": memory["capacity_bytes"], "memory_limit": words["memory"], "seconds": seconds,
        "time_limit": words["wall clock"], "data_limit": words["data"], "why_not": "",
    }  # fmt: skip
    return Machine(row, tuple(what for what, is_reached in reached.items() if is_reached), (estimate.groups[0].memory.tree,))


def _write_verdict(machines: Sequence[Machine], limits: Mapping[str, float]) -> list[Sentence]:
    """Which is enough, and which limits are reached."""
    single, node = machines
    if not single.reached:
        return [Sentence("one accelerator is enough: no limit is reached", "accelerator")]
    reached = f"one accelerator reaches its limit of {' and '.join(single.reached)}"
    if not node.reached:
        text = f"one machine of {node.row['gpus']:,.0f} is enough; {reached}"
        return [Sentence(text, "machine", {"gpus": node.row["gpus"], "reached": list(single.reached)})]
    text = f"several machines: one machine of {node.row['gpus']:,.0f} reaches its limit of {' and '.join(node.reached)}"
    lines = [Sentence(text, "machines", {"gpus": node.row["gpus"], "reached": list(node.reached)})]
    if "wall clock" in node.reached:
        many = math.ceil(node.row["seconds"] / limits["deadline"])
        text = (
            f"the run takes {units.show(node.row['seconds'], 's', 4)} there, {units.show(limits['deadline'], 's', 4)} are allowed:"
            f" {many:,.0f} machines at the same rate each, without their communication (ironlaw solve counts it)"
        )
        told = {"seconds": node.row["seconds"], "deadline": limits["deadline"], "machines": many}
        lines.append(Sentence(text, "wall-clock", told))
    if "data" in node.reached:
        text = f"reading the data once takes {units.show(limits['stream'], 's', 4)} on one machine: stream it to several"
        lines.append(Sentence(text, "data", {"seconds": limits["stream"]}))
    if "memory" in node.reached:
        text = "memory: ironlaw optimize MODEL --gpus N tries what frees some; adapters (--lora-rank) need less of it"
        lines.append(Sentence(text, "memory"))
    return lines
