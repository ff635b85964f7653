"""Whether the input pipeline keeps up with the step: storage, workers that prepare batches, the copy to the accelerator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.errors import QuestionError
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, duration, none_or_more, one_of, positive, switch, whole
from ironlaw.questions.answer import Answer, Column, Table, need, read
from ironlaw.questions.asked_run import amount, estimated, one, share, with_unit, without_effect

if TYPE_CHECKING:
    from ironlaw.estimate.bind.records import Assumptions
    from ironlaw.questions.data.input_stages import Step
    from ironlaw.terms import Term

OWN: dict[str, Option] = {
    "step_time": Option(duration, "time of a step that waits for nothing, instead of MODEL, such as 10ms", "TIME"),
    "batch": Option(whole, "samples of one accelerator in a step, with --step-time", "N"),
    "sample_size": Option(positive("B"), "bytes of one sample in storage (default: its tokens)", "BYTES"),
    "memory_size": Option(positive("B"), "bytes of one sample in host memory (default: 8 a token, or --sample-size)", "BYTES"),
    "bytes_per_token": Option(positive("B"), "bytes of one token in storage (default 4: an index, not text)", "BYTES"),
    "transform_time": Option(with_unit("s", "30ms"), "time of one worker to decode and transform one sample, such as 30ms", "TIME"),
    "token_rate": Option(amount, "tokens one worker makes of text in a second (default: tokens are stored ready)", "N"),
    "workers": Option(whole, "workers of one accelerator (default: what it needs)", "N"),
    "cores": Option(whole, "processor cores of a node: a limit to its workers", "N"),
    "prefetch_factor": Option(none_or_more, "batches every worker keeps ready (default 2, as PyTorch)", "N"),
    "accelerators_per_node": Option(whole, "accelerators that share a host (default: the node's; 1 without --on)", "N"),
    "disk": Option(positive("B/s"), "datasheet rate of a node's own disks, sequential, such as 3.5GB/s", "RATE"),
    "storage_network": Option(positive("B/s"), "rate of a node's network to storage", "RATE"),
    "shared_storage": Option(positive("B/s"), "what a shared file system gives all nodes together", "RATE"),
    "sustained": Option(share, "share of a datasheet rate that storage holds (default 0.5)", "SHARE"),
    "access_factor": Option(share, "1 for sequential reads, about 0.1 for small random ones (default 1)", "SHARE"),
    "transfer_rate": Option(positive("B/s"), "rate of the copy to one accelerator (default: its C2C or PCIe link's)", "RATE"),
    "timeline": Option(switch, "draw three batches, one after the other and beside each other (default off)", "on|off"),
    "stages": Option(one_of(("overlapped", "serial")), "overlapped, or serial: one after the other, the step too", "HOW"),
}
NOT_HERE = ("price", "grid", "pue", "mttf", "restart_time")  # of money and failures: they would say nothing
OPTIONS: dict[str, Option] = {**{name: option for name, option in ESTIMATE.items() if name not in NOT_HERE}, **OWN}
STAGES = (
    Column("stage", "stage"),
    Column("size", "bytes a step", "B"),
    Column("rate", "rate", "B/s"),
    Column("seconds", "time a step", "s"),
    Column("of_step", "of the step", "%"),
    Column("note", "what it is"),
)
ORDERS = (Column("order", "stages"), Column("seconds", "a step", "s"), Column("fed", "accelerators fed", "%"))
WORKERS = (
    Column("workers", "workers", "1"),
    Column("process", "prepare", "s"),
    Column("fed", "accelerators fed", "%"),
    Column("batches", "batches ahead", "1"),
    Column("memory", "host memory of a node", "B"),
)


def data(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Whether batches come in time: ``data(step_time="10ms", batch=1, transform_time="30ms", sample_size="1MB", on="h100-sxm")``."""
    from ironlaw.catalog import load

    return ask({"model": model, "on": on, **options}, load.given_folders(catalog))


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The Answer of a question about the input pipeline; not feasible where accelerators wait for data."""
    from ironlaw.law import dataloading as law
    from ironlaw.questions.data.input_stages import Pipe
    from ironlaw.terms import leaf

    values = read(options, OPTIONS, "data")
    notes: Assumptions = []
    warnings: list[str] = []
    step = _step(values, folders, notes)
    pipe = Pipe(values, step, notes, warnings)
    overlapped = values.get("stages", "overlapped") == "overlapped"
    fetch, transfer = one(pipe.fetch.value), one(pipe.transfer.value)

    def fed(workers: float, beside: bool = overlapped) -> tuple[Term, Term, Term]:
        order = 1.0 if beside else 0.0
        process = pipe.process(workers)
        supply = leaf("supply time", law.supply_time, "s", fetch=fetch, process=process, transfer=transfer, overlapped=order)
        waited = leaf("waiting", law.waiting, "s", supply_time=one(supply.value), step_time=step.seconds, overlapped=order)
        return supply, waited, leaf("fed", law.fed, "1", step_time=step.seconds, waited=one(waited.value))

    supply, waited, part = fed(pipe.workers)
    memory = pipe.memory(pipe.workers)
    stages = list(pipe.rows(values, notes))
    slowest = max(stages[:3], key=lambda row: row["seconds"])
    enough = one(part.value) > 0.999
    late, count = one(waited.value), one(pipe.needed.value)
    keep = f"{count:,.0f} {'worker keeps' if count == 1 else 'workers keep'} up" if count else "nothing is prepared: any worker keeps up"
    lines = [
        f"accelerators have a batch {one(part.value):.1%} of the time; slowest: {slowest['stage']}{', fast enough' if enough else ''}",
        f"a step takes {units.show(step.seconds + late, 's', 4)}, {units.show(late, 's', 4) if late else 'none'} of it waiting for data",
        f"{keep} for each accelerator, {pipe.workers:,.0f} counted; their batches take"
        f" {units.show(one(memory.value), 'B')} of a node's memory",
    ]
    trial = sorted({1.0, 2.0, 4.0, 8.0, 16.0, pipe.workers, max(one(pipe.needed.value), 1.0)})
    rows = [
        {
            "workers": n,
            "process": pipe.process(n),
            "fed": one(fed(n)[2].value),
            "batches": pipe.ahead(n),
            "memory": one(pipe.memory(n).value),
        }
        for n in trial
    ]
    orders = []
    for name in ("overlapped", "serial"):
        _, late_so, part_so = fed(pipe.workers, name == "overlapped")
        orders.append({"order": name, "seconds": step.seconds + one(late_so.value), "fed": one(part_so.value)})
    tables = [
        Table("stages", "What a step of one accelerator takes from the pipeline; rates are its share", STAGES, stages),
        Table("orders", "The same stages beside each other, or one after the other and before the step", ORDERS, orders),
        Table("by_workers", "With other numbers of workers for each accelerator", WORKERS, rows),
    ]
    if values.get("timeline"):
        from ironlaw.questions.data.timeline import drawn

        times = {"storage": fetch, "workers": pipe.process(pipe.workers), "transfer": transfer, "step": step.seconds}
        told, table = drawn(times)
        lines.append(told)
        tables.append(table)
    fetched = [pipe.fetch] if math.isfinite(pipe.rate) else []  # a storage that nothing is said of has no rate to show
    terms = [part, waited, supply, *fetched, pipe.transfer, pipe.needed, memory, *pipe.terms]
    extra = {"step_seconds": step.seconds, "workers": pipe.workers, "slowest": slowest["stage"]}
    return Answer(step.title, lines, tables, terms, extra, notes, warnings, feasible=enough, folders=folders)


def _step(values: Mapping[str, Any], folders: tuple[str, ...], notes: Assumptions) -> Step:
    """The step of an estimate, or the one that was given."""
    from ironlaw.questions.data.input_stages import Step

    if "model" in values:
        clash = [name for name in ("step_time", "batch") if name in values]
        if clash:
            raise QuestionError(
                f"give MODEL (the step is estimated) or --step-time with --batch, not both: --{clash[0].replace('_', '-')} is given"
            )
        group = estimated(values, folders)
        notes += group.assumptions
        gpus = one(group.plan.gpus)
        samples, seq_len = one(group.plan.global_batch_size) / gpus, one(group.plan.seq_len)
        device, node = group.cluster.accelerator, group.cluster.node
        per_node = values.get("accelerators_per_node", min(node.accelerators.value, gpus))
        title = f"Input pipeline of {group.job.model.title} on {gpus:,.0f} {device.title}"
        link = device.c2c_bandwidth or device.pcie_bandwidth
        return Step(title, one(group.step.tree.value), samples, seq_len, gpus, per_node, values.get("transfer_rate", link), group)
    if "step_time" not in values:
        raise QuestionError("the question lacks a step: give MODEL, or --step-time with --batch")
    need(values, "batch")
    without_effect(values, ("on", "gpus", "node", "seq_len"), "--step-time")
    per_node, link = 1.0, None
    if "on" in values:
        from ironlaw.catalog import load

        device = load.record("accelerators", values["on"], folders)
        node = load.record("nodes", values.get("node", device.usual_node), folders)
        per_node, link = node.accelerators.value, device.c2c_bandwidth or device.pcie_bandwidth
    per_node = values.get("accelerators_per_node", per_node)
    gpus, link = values.get("gpus", per_node), values.get("transfer_rate", link)
    title = (
        f"Input pipeline of a step of {units.show(values['step_time'], 's', 4)} with {values['batch']:,.0f} samples for each accelerator"
    )
    return Step(title, values["step_time"], values["batch"], values.get("seq_len"), gpus, min(per_node, gpus), link, None)
