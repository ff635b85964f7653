"""Answer ``ironlaw data``: whether storage, workers that prepare batches and the copy to the accelerator keep up with the step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.cautions.record import Sentence
from ironlaw.law import dataloading
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.asked_run import estimate_plan
from ironlaw.questions.data.input_stages import STAGES, InputPipeline, Step, bind_pipeline, checkpoint_stage, list_stages
from ironlaw.questions.data.timeline import draw_timeline
from ironlaw.terms import Term, leaf, scalar

ORDERS = (
    Column("order", "stages"), Column("supply", "from batch to batch", "s"), Column("seconds", "step", "s"),
    Column("fed", "time with a batch", "%"),
)  # fmt: skip
BUFFERS = (Column("buffer", "buffer"), Column("batches", "batches", "1"), Column("memory", "host memory of a node", "B"))
WORKERS = (
    Column("workers", "workers", "1"), Column("process", "prepare", "s"), Column("fed", "time with a batch", "%"),
    Column("batches", "batches in memory", "1"), Column("memory", "host memory of a node", "B"),
)  # fmt: skip
WORTH_SAYING = 1.001  # times the overlapped step: what a serial one takes at least to be compared with it
ENOUGH = 0.999  # accelerators count as fed from this share of the time with a batch


@dataclass(frozen=True, eq=False, repr=False)
class Supply:
    """How long the step waits for its batches."""

    time: Term  # between two batches
    waiting: Term  # of a step
    fed: Term  # share of the time in which a batch is there


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about the input pipeline; not feasible where accelerators wait for data."""
    notes: Assumptions = []
    step = _bind_step(values, folders, notes)
    pipeline = bind_pipeline(values, step, notes)
    order = values.get("stages", "overlapped" if pipeline.prefetch else "serial")
    supply = _compute_supply(pipeline, pipeline.workers, order)
    memory = pipeline.memory(pipeline.workers)
    stages, written = list_stages(pipeline), []
    slowest = max(stages, key=lambda row: row["seconds"])
    if step.group is not None:
        row, write = checkpoint_stage(values, step, step.group, notes)
        stages, written = [*stages, row], [write]
    enough = scalar(supply.fed) > ENOUGH
    orders = _order_rows(pipeline)
    lines = [
        *_say_supply(pipeline, supply, slowest["stage"], enough),
        Sentence(_say_workers(pipeline, slowest["stage"], order, enough), "workers", {"workers": pipeline.workers}),
    ]
    lines += [*_say_storage(values, pipeline), *_say_orders(orders)]
    workers, buffers = _worker_rows(pipeline, order), _buffer_rows(pipeline)
    tables = [
        Table("stages", "Stages of one accelerator's batches (rates are its share)", filled_columns(STAGES, stages), stages),
        Table("orders", "Overlapped stages, or all stages before the step", ORDERS, orders),
        Table("by_workers", "By number of workers per accelerator", filled_columns(WORKERS, workers), workers),
        Table("buffers", "Batches of one accelerator in host memory", filled_columns(BUFFERS, buffers), buffers),
    ]
    if values.get("timeline"):
        stage_times = {"storage": scalar(pipeline.fetch), "workers": pipeline.process_time(pipeline.workers)}
        sentence, table = draw_timeline({**stage_times, "transfer": scalar(pipeline.transfer), "step": step.seconds})
        lines.append(sentence)
        tables.append(table)
    counted = math.isfinite(pipeline.storage_rate) or "fetch_time" in values  # storage that is not counted has nothing to explain
    times = [*([pipeline.fetch] if counted else []), pipeline.transfer, pipeline.needed, *([memory] if memory else [])]
    return Answer(
        title=step.title,
        headline=lines,
        tables=tables,
        terms=[supply.fed, supply.waiting, supply.time, *times, *pipeline.terms, *written],
        values={"step_seconds": step.seconds, "workers": pipeline.workers, "slowest": slowest["stage"]},
        assumptions=notes,
        warnings=list(dict.fromkeys([*(step.group.warnings if step.group else ()), *pipeline.warnings])),
        feasible=enough,
        folders=folders,
    )


def _bind_step(values: Mapping[str, Any], folders: tuple[str, ...], notes: Assumptions) -> Step:
    """The step of an estimate, or the one given by --step-time and --batch."""
    if "model" not in values:
        return _given_step(values, folders, notes)
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


def _given_step(values: Mapping[str, Any], folders: tuple[str, ...], notes: Assumptions) -> Step:
    """The step that --step-time and --batch describe, without an estimate."""
    samples = values.get("batch")
    if samples is None:
        if not ("fetch_time" in values and "transfer_time" in values and "sample_size" not in values):
            need(values, "batch")
        samples = 1.0
        assume(notes, "batch", "1: all times are of a batch", "default")
    per_node, link = 1.0, None
    if "on" in values:
        device = load.record("accelerators", values["on"], folders)
        node = load.record("nodes", values.get("node", device.usual_node), folders)
        per_node, link = node.accelerators.value, device.c2c_bandwidth or device.pcie_bandwidth
    per_node = values.get("accelerators_per_node", per_node)
    gpus = values.get("gpus", per_node)
    seconds = values["step_time"]
    title = f"Input pipeline of a {units.show(seconds, 's', 4)} step"
    if "batch" in values:
        title += f" with {samples:,.0f} {'sample' if samples == 1 else 'samples'} per accelerator"
    link = values.get("transfer_rate", link)
    return Step(title, seconds, samples, values.get("seq_len"), gpus, min(per_node, gpus), link, None)


def _compute_supply(pipeline: InputPipeline, workers: float, order: str) -> Supply:
    """How long the step waits with so many workers, for overlapped or serial stages."""
    overlapped = 1.0 if order == "overlapped" else 0.0
    fetch, transfer, step_time = scalar(pipeline.fetch), scalar(pipeline.transfer), pipeline.step.seconds
    process = pipeline.process_time(workers)
    time = leaf("supply time", dataloading.supply_time, "s", fetch=fetch, process=process, transfer=transfer, overlapped=overlapped)
    waiting = leaf("waiting", dataloading.waiting, "s", supply_time=scalar(time), step_time=step_time, overlapped=overlapped)
    return Supply(time, waiting, leaf("fed", dataloading.fed, "1", step_time=step_time, waited=scalar(waiting)))


def _say_supply(pipeline: InputPipeline, supply: Supply, slowest: str, enough: bool) -> list[str]:
    """The headline: how often a batch is ready, and the time of a step."""
    late = scalar(supply.waiting)
    step = pipeline.step.seconds + late
    fed = f"accelerators have a batch {scalar(supply.fed):.1%} of the time; slowest: {slowest}{', fast enough' if enough else ''}"
    takes = f"a step takes {units.show(step, 's', 4)}, {units.show(late, 's', 4) if late else 'none'} of it waiting for data"
    return [
        Sentence(fed, "supply", {"fed": scalar(supply.fed), "slowest": slowest, "enough": enough}),
        Sentence(takes, "step", {"seconds": step, "waiting_seconds": late}),
    ]


def _say_workers(pipeline: InputPipeline, slowest: str, order: str, enough: bool) -> str:
    """How many workers keep up, whether another stage holds them back, and the memory of their batches."""
    count, memory = scalar(pipeline.needed), pipeline.memory(pipeline.workers)
    if order == "serial":
        line = "every step waits for its batch, as stages are serial, however many workers there are"
    elif not count:
        line = "no preparation: any worker keeps up"
    elif enough or slowest == "workers":
        line = f"{count:,.0f} {'worker keeps' if count == 1 else 'workers keep'} up for each accelerator"
    else:
        line = (
            f"{count:,.0f} {'worker' if count == 1 else 'workers'} for each accelerator would keep up, but {slowest} does not: more workers"
        )
        line += " change nothing"
    line += f"; {pipeline.workers:,.0f} counted"
    return line if memory is None else f"{line}, their batches take {units.show(scalar(memory), 'B')} of a node's memory"


def _say_storage(values: Mapping[str, Any], pipeline: InputPipeline) -> list[str]:
    """The rates of storage: by datasheet, sustained, and with this access; no sentence where it has no rate."""
    if not math.isfinite(pipeline.storage_rate):
        return []
    rate, access = pipeline.storage_rate * pipeline.step.per_node, values.get("access_factor", 1.0)
    sustained = rate / access
    sheet = units.show(sustained / values.get("sustained", defaults.SUSTAINED), "B/s", 4)
    line = f"storage of a node: {sheet} by datasheet, {units.show(sustained, 'B/s', 4)} sustained"
    return [line if access == 1.0 else f"{line}, {units.show(rate, 'B/s', 4)} with access factor {access:g}"]


def _say_orders(rows: list[dict[str, Any]]) -> list[str]:
    """What overlap gains over serial stages, as less time and as more speed."""
    beside, after = (row["seconds"] for row in rows)
    if after < beside * WORTH_SAYING:
        return []
    return [
        f"overlapped stages take {1.0 - beside / after:.1%} less time than serial ones ({units.show(after, 's', 4)} to"
        f" {units.show(beside, 's', 4)}), {after / beside:.3g} times the speed"
    ]


def _buffer_rows(pipeline: InputPipeline) -> list[dict[str, Any]]:
    """The batches that wait, are prepared and are copied, and their memory."""
    buffers = {"prefetched": "prefetch", "in preparation": "processing", "in transfer": "in_transfer"}
    counts = pipeline.buffers(pipeline.workers)
    size = None if pipeline.batch is None else pipeline.batch * pipeline.step.per_node
    rows = [
        {"buffer": title, "batches": counts[name], "memory": None if size is None else counts[name] * size}
        for title, name in buffers.items()
    ]
    memory = pipeline.memory(pipeline.workers)
    return [*rows, {"buffer": "together", "batches": sum(counts.values()), "memory": None if memory is None else scalar(memory)}]


def _worker_rows(pipeline: InputPipeline, order: str) -> list[dict[str, Any]]:
    """The pipeline with 1 to 16 workers, with those it has, and with those it needs."""
    trial = sorted({1.0, 2.0, 4.0, 8.0, 16.0, pipeline.workers, max(scalar(pipeline.needed), 1.0)})
    return [
        {
            "workers": workers,
            "process": pipeline.process_time(workers),
            "fed": scalar(_compute_supply(pipeline, workers, order).fed.value),
            "batches": sum(pipeline.buffers(workers).values()),
            "memory": None if (memory := pipeline.memory(workers)) is None else scalar(memory),
        }
        for workers in trial
    ]


def _order_rows(pipeline: InputPipeline) -> list[dict[str, Any]]:
    """The step with overlapped stages and with serial ones."""
    rows = []
    for order in ("overlapped", "serial"):
        supply = _compute_supply(pipeline, pipeline.workers, order)
        seconds = pipeline.step.seconds + scalar(supply.waiting)
        rows.append({"order": order, "supply": scalar(supply.time), "seconds": seconds, "fed": scalar(supply.fed)})
    return rows
