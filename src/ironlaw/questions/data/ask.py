"""Answer ``ironlaw data``: whether storage, workers that prepare batches and the copy to the accelerator keep up with the step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.errors import QuestionError
from ironlaw.law import dataloading
from ironlaw.question.assumptions import Assumptions
from ironlaw.questions.answer import Answer, Column, Table, need, read
from ironlaw.questions.asked_run import estimate_plan, refuse_unused
from ironlaw.questions.data.input_stages import STAGES, InputPipeline, Step, bind_pipeline, checkpoint_stage, list_stages
from ironlaw.questions.data.options import OPTIONS
from ironlaw.questions.data.timeline import draw_timeline
from ironlaw.terms import Term, leaf, scalar

ORDERS = (Column("order", "stages"), Column("seconds", "per step", "s"), Column("fed", "time with a batch", "%"))
WORKERS = (
    Column("workers", "workers", "1"), Column("process", "prepare", "s"), Column("fed", "time with a batch", "%"),
    Column("batches", "batches ahead", "1"), Column("memory", "host memory of a node", "B"),
)  # fmt: skip
ENOUGH = 0.999  # accelerators count as fed from this share of the time with a batch


@dataclass(frozen=True, eq=False, repr=False)
class Supply:
    """How long the step waits for its batches."""

    time: Term  # between two batches
    waiting: Term  # of a step
    fed: Term  # share of the time in which a batch is there


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about the input pipeline; not feasible where accelerators wait for data."""
    values = read(options, OPTIONS, "data")
    notes: Assumptions = []
    step = _bind_step(values, folders, notes)
    pipeline = bind_pipeline(values, step, notes)
    supply = _compute_supply(pipeline, pipeline.workers, values.get("stages", "overlapped"))
    memory = pipeline.memory(pipeline.workers)
    stages, written = list_stages(pipeline), []
    slowest = max(stages, key=lambda row: row["seconds"])
    if step.group is not None:
        row, write = checkpoint_stage(values, step, step.group, notes)
        stages, written = [*stages, row], [write]
    enough = scalar(supply.fed) > ENOUGH
    lines = _say_supply(pipeline, supply, memory, slowest["stage"], enough)
    tables = [
        Table("stages", "Stages of one accelerator's batches (rates are its share)", STAGES, stages),
        Table("orders", "Overlapped stages, or all stages before the step", ORDERS, _order_rows(pipeline)),
        Table("by_workers", "By number of workers per accelerator", WORKERS, _worker_rows(pipeline, values.get("stages", "overlapped"))),
    ]
    if values.get("timeline"):
        times = {"storage": scalar(pipeline.fetch), "workers": pipeline.process_time(pipeline.workers)}
        sentence, table = draw_timeline({**times, "transfer": scalar(pipeline.transfer), "step": step.seconds})
        lines.append(sentence)
        tables.append(table)
    fetch = [pipeline.fetch] if math.isfinite(pipeline.storage_rate) else []  # storage that is not counted has no rate to explain
    return Answer(
        title=step.title,
        headline=lines,
        tables=tables,
        terms=[supply.fed, supply.waiting, supply.time, *fetch, pipeline.transfer, pipeline.needed, memory, *pipeline.terms, *written],
        values={"step_seconds": step.seconds, "workers": pipeline.workers, "slowest": slowest["stage"]},
        assumptions=notes,
        warnings=list(dict.fromkeys([*(step.group.warnings if step.group else ()), *pipeline.warnings])),
        feasible=enough,
        folders=folders,
    )


def _bind_step(values: Mapping[str, Any], folders: tuple[str, ...], notes: Assumptions) -> Step:
    """The step of an estimate, or the one given by --step-time and --batch."""
    if "model" not in values:
        return _given_step(values, folders)
    if clash := [name for name in ("step_time", "batch") if name in values]:
        flag = clash[0].replace("_", "-")
        raise QuestionError(f"give MODEL (the step is estimated) or --step-time with --batch, not both: --{flag} is given")
    group = estimate_plan(values, folders)
    notes += group.assumptions
    gpus = scalar(group.plan.gpus)
    device, node = group.cluster.accelerator, group.cluster.node
    return Step(
        title=f"Input pipeline of {group.job.model.title} on {gpus:,.0f} {device.title}",
        seconds=scalar(group.step.tree),
        samples=scalar(group.plan.global_batch_size) / gpus,
        seq_len=scalar(group.plan.seq_len),
        gpus=gpus,
        per_node=values.get("accelerators_per_node", min(node.accelerators.value, gpus)),
        link=values.get("transfer_rate", device.c2c_bandwidth or device.pcie_bandwidth),
        group=group,
    )


def _given_step(values: Mapping[str, Any], folders: tuple[str, ...]) -> Step:
    """The step that --step-time and --batch describe, without an estimate."""
    if "step_time" not in values:
        raise QuestionError("missing step: give MODEL, or --step-time with --batch")
    need(values, "batch")
    refuse_unused(values, ("on", "gpus", "node", "seq_len"), "--step-time")
    per_node, link = 1.0, None
    if "on" in values:
        device = load.record("accelerators", values["on"], folders)
        node = load.record("nodes", values.get("node", device.usual_node), folders)
        per_node, link = node.accelerators.value, device.c2c_bandwidth or device.pcie_bandwidth
    per_node = values.get("accelerators_per_node", per_node)
    gpus = values.get("gpus", per_node)
    seconds = values["step_time"]
    title = f"Input pipeline of a {units.show(seconds, 's', 4)} step with {values['batch']:,.0f} samples per accelerator"
    link = values.get("transfer_rate", link)
    return Step(title, seconds, values["batch"], values.get("seq_len"), gpus, min(per_node, gpus), link, None)


def _compute_supply(pipeline: InputPipeline, workers: float, order: str) -> Supply:
    """How long the step waits with so many workers, for overlapped or serial stages."""
    overlapped = 1.0 if order == "overlapped" else 0.0
    fetch, transfer, step_time = scalar(pipeline.fetch), scalar(pipeline.transfer), pipeline.step.seconds
    process = pipeline.process_time(workers)
    time = leaf("supply time", dataloading.supply_time, "s", fetch=fetch, process=process, transfer=transfer, overlapped=overlapped)
    waiting = leaf("waiting", dataloading.waiting, "s", supply_time=scalar(time), step_time=step_time, overlapped=overlapped)
    return Supply(time, waiting, leaf("fed", dataloading.fed, "1", step_time=step_time, waited=scalar(waiting)))


def _say_supply(pipeline: InputPipeline, supply: Supply, memory: Term, slowest: str, enough: bool) -> list[str]:
    """The headline: how often a batch is ready, the time of a step, and the workers."""
    late, count = scalar(supply.waiting), scalar(pipeline.needed)
    keep_up = f"{count:,.0f} {'worker keeps' if count == 1 else 'workers keep'} up" if count else "no preparation: any worker keeps up"
    return [
        f"accelerators have a batch {scalar(supply.fed):.1%} of the time; slowest: {slowest}{', fast enough' if enough else ''}",
        f"a step takes {units.show(pipeline.step.seconds + late, 's', 4)}, {units.show(late, 's', 4) if late else 'none'} of it waiting"
        " for data",
        f"{keep_up} for each accelerator, {pipeline.workers:,.0f} counted; their batches take"
        f" {units.show(scalar(memory), 'B')} of a node's memory",
    ]


def _worker_rows(pipeline: InputPipeline, order: str) -> list[dict[str, Any]]:
    """The pipeline with 1 to 16 workers, with those it has, and with those it needs."""
    trial = sorted({1.0, 2.0, 4.0, 8.0, 16.0, pipeline.workers, max(scalar(pipeline.needed), 1.0)})
    return [
        {
            "workers": workers,
            "process": pipeline.process_time(workers),
            "fed": scalar(_compute_supply(pipeline, workers, order).fed.value),
            "batches": pipeline.batches_ahead(workers),
            "memory": scalar(pipeline.memory(workers).value),
        }
        for workers in trial
    ]


def _order_rows(pipeline: InputPipeline) -> list[dict[str, Any]]:
    """The step with overlapped stages and with serial ones."""
    rows = []
    for order in ("overlapped", "serial"):
        supply = _compute_supply(pipeline, pipeline.workers, order)
        rows.append({"order": order, "seconds": pipeline.step.seconds + scalar(supply.waiting), "fed": scalar(supply.fed)})
    return rows
