"""The input pipeline of one accelerator: storage, workers that prepare batches, the copy to the accelerator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import MissingOptionError, NoEffectError, QuestionError
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.bind.failures import FAILURE_OPTIONS, bind_failures
from ironlaw.estimate.step.failures import checkpoint_size, saved_by
from ironlaw.law import collectives, dataloading, goodput, traffic
from ironlaw.question import defaults
from ironlaw.question.asked import asked_of
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.options import flag
from ironlaw.questions.answer import Column
from ironlaw.terms import Term, leaf, plain, scalar

STAGES = (
    Column("stage", "stage"), Column("size", "bytes per step", "B"), Column("rate", "rate", "B/s"), Column("seconds", "time per step", "s"),
    Column("of_step", "of the step", "%"), Column("note", "note"),
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """The step that one accelerator needs batches for."""

    title: str
    seconds: float
    samples: float
    seq_len: float | None  # tokens of a sample; None: samples are not text
    gpus: float
    per_node: float
    link: Any  # bandwidth of the copy to the accelerator [B/s]
    group: Group | None  # the estimate behind the step, where there is one


@dataclass(frozen=True, eq=False, repr=False)
class InputPipeline:
    """The stages before the step, for one accelerator."""

    step: Step
    stored: float | None  # bytes of a batch in storage; None: unknown, as its times are given
    batch: float | None  # bytes of a batch in host memory
    storage_rate: float  # infinite where storage has no rate: it is not counted, or its time is given [B/s]
    fetch: Term
    transfer: Term
    one_worker: float  # time of one worker for a batch [s]
    needed: Term  # workers that keep up with the step
    workers: float  # workers that are counted
    prefetch: float  # batches that a worker prefetches
    terms: list[Term]  # of tokenisation and storage
    warnings: list[Caution]

    def process_time(self, workers: float) -> float:
        """Time between two batches of so many workers [s]."""
        return 1.0 / scalar(dataloading.workers_rate(workers, self.one_worker)) if self.one_worker else 0.0

    def buffers(self, workers: float) -> dict[str, float]:
        """Batches of one accelerator in host memory: those that workers prefetched, those in preparation, and the one in transfer.

        A worker has at most its prefetch factor of batches unfinished or waiting; without a prefetch one batch is made on demand.
        """
        ahead = scalar(dataloading.batches_ahead(workers, self.prefetch)) or 1.0
        in_work = min(workers, ahead)
        return {"prefetch": ahead - in_work, "processing": in_work, "in_transfer": 1.0}

    def memory(self, workers: float) -> Term | None:
        """Host memory of a node for the batches of all its accelerators; None where the size of a batch is unknown."""
        if self.batch is None:
            return None
        return leaf("host memory", dataloading.buffer_memory, "B", **self.buffers(workers), size=self.batch * self.step.per_node)


def bind_pipeline(values: Mapping[str, Any], step: Step, notes: Assumptions) -> InputPipeline:
    """The pipeline that the options describe, for a step."""
    sizes = _sample_sizes(values, step, notes)
    stored, batch = (None if size is None else scalar(traffic.elementwise(step.samples, size, 1)) for size in sizes)
    storage, warnings = _bind_storage(values, step, notes)
    rate = math.inf if storage is None else scalar(storage) / step.per_node
    if "fetch_time" in values:
        fetch = leaf("fetch", _given, "s", time=values["fetch_time"])
    else:
        fetch = leaf("fetch", collectives.point_to_point, "s", size=stored or 0.0, bandwidth=rate, latency=0.0)
    if "transfer_time" in values:
        transfer = leaf("transfer", _given, "s", time=values["transfer_time"])
    elif step.link is None:
        raise MissingOptionError("missing link to the accelerator: give --on, --transfer-rate such as 16GB/s, or --transfer-time")
    else:
        transfer = leaf("transfer", collectives.point_to_point, "s", size=batch, bandwidth=step.link, latency=0.0)
    terms = [] if storage is None else [storage]
    tokenise = 0.0
    if "token_rate" in values:
        if not step.seq_len:
            raise QuestionError("--token-rate needs tokens: give --seq-len, or MODEL")
        tokens, name = step.samples * step.seq_len, "tokenisation of one worker"
        terms.append(leaf(name, dataloading.tokenise_time, "s", tokens=tokens, token_rate=values["token_rate"], workers=1.0))
        tokenise = scalar(terms[-1].value)
    one_worker = step.samples * values.get("transform_time", 0.0) + tokenise
    needed = leaf("workers needed", dataloading.workers_needed, "1", transform_time=one_worker, step_time=step.seconds)
    workers = values.get("workers")
    most = max(math.floor(values["cores"] / step.per_node), 1.0) if "cores" in values else math.inf
    if workers is None:
        workers = min(max(scalar(needed), 1.0), most)
        assume(notes, "workers", f"{workers:g} for each accelerator", "chosen")
    elif workers > most:
        warnings.append(caution("workers-share-cores", workers=workers * step.per_node, cores=values["cores"]))
    if "prefetch_factor" not in values:
        assume(notes, "prefetch_factor", "2 batches a worker", "default")
    prefetch = values.get("prefetch_factor", 2.0)
    return InputPipeline(
        step=step, stored=stored, batch=batch, storage_rate=rate, fetch=fetch, transfer=transfer, one_worker=one_worker, needed=needed,
        workers=float(workers), prefetch=prefetch, terms=terms, warnings=warnings,
    )  # fmt: skip


def _given(time: Any) -> Any:
    """A time of the question: ``time``."""
    return time


def _sample_sizes(values: Mapping[str, Any], step: Step, notes: Assumptions) -> tuple[float | None, float | None]:
    """Bytes of a sample in storage and in host memory; None where the times of a batch are given and no size is."""
    length = step.seq_len
    if "sample_size" in values:
        stored = values["sample_size"]
    elif length:
        if "bytes_per_token" not in values:
            assume(notes, "bytes_per_token", "4 B in storage", "default")
        stored = values.get("bytes_per_token", 4.0) * length
    elif "fetch_time" in values and "transfer_time" in values:
        return None, values.get("memory_size")
    else:
        raise MissingOptionError("missing size of a sample: give --sample-size, --seq-len for tokens, or --fetch-time and --transfer-time")
    if "memory_size" in values:
        return stored, values["memory_size"]
    assume(notes, "memory_size", "8 B a token" if length else "that of --sample-size", "default")
    return stored, 8.0 * length if length else stored


def _bind_storage(values: Mapping[str, Any], step: Step, notes: Assumptions) -> tuple[Term | None, list[Caution]]:
    """Read rate of a node; None with a warning where no storage is given."""
    if "fetch_time" in values:
        return None, []
    disk, network = values.get("disk", math.inf), values.get("storage_network", math.inf)
    if "shared_storage" in values:
        network = min(network, values["shared_storage"] * step.per_node / step.gpus)
    if math.isinf(min(disk, network)):
        if unused := [name for name in ("sustained", "access_factor") if name in values]:
            raise NoEffectError(f"{flag(unused[0])} has no effect without --disk, --storage-network or --shared-storage")
        return None, [caution("storage-not-counted")]
    if "sustained" not in values:
        assume(notes, "sustained", f"{defaults.SUSTAINED:g} of the datasheet's rate", "default")
    if "access_factor" not in values:
        assume(notes, "access_factor", "1, sequential", "default")
    fractions = {"sustained_fraction": values.get("sustained", defaults.SUSTAINED), "access_factor": values.get("access_factor", 1.0)}
    return leaf("storage rate of a node", dataloading.storage_rate, "B/s", disk=disk, network=network, **fractions), []


def list_stages(pipeline: InputPipeline) -> list[dict[str, Any]]:
    """Rows of storage, workers and transfer."""
    step, rate = pipeline.step, pipeline.storage_rate
    must_read = "as given"
    if "bandwidth" in pipeline.fetch.inputs and pipeline.stored is not None:
        must_read = f"to keep up, a node must read {units.show(pipeline.stored * step.per_node / step.seconds, 'B/s')}"
    link = plain(step.link) if "bandwidth" in pipeline.transfer.inputs else None
    return [
        _stage_row(
            "storage", step, pipeline.stored, rate if math.isfinite(rate) else None, scalar(pipeline.fetch),
            must_read,
        ),
        _stage_row(
            "workers", step, pipeline.batch, None, pipeline.process_time(pipeline.workers),
            f"one worker takes {units.show(pipeline.one_worker, 's')} per batch",
        ),
        _stage_row("transfer", step, pipeline.batch, link, scalar(pipeline.transfer), "host to accelerator"),
    ]  # fmt: skip


def _stage_row(stage: str, step: Step, size: float | None, rate: float | None, seconds: float, note: str) -> dict[str, Any]:
    return {"stage": stage, "size": size, "rate": rate, "seconds": seconds, "of_step": seconds / step.seconds, "note": note}


def checkpoint_stage(values: Mapping[str, Any], step: Step, group: Group, notes: Assumptions) -> tuple[dict[str, Any], Term]:
    """Row and write time of a checkpoint, during which the same storage reads nothing; --checkpoint-every spreads it over steps."""
    size = float(checkpoint_size(*saved_by(group.job)))
    rate = bind_failures(asked_of(values, FAILURE_OPTIONS), group.cluster, []).storage_bandwidth(step.gpus)
    if "checkpoint_bandwidth" not in values and not any(note["name"] == "checkpoint_bandwidth" for note in notes):
        assume(notes, "checkpoint_bandwidth", f"{group.cluster.systems.checkpoint_bandwidth.text} for each accelerator", "default")
    written = leaf("checkpoint write", goodput.write_time, "s", size=size, bandwidth=rate)
    write = f"one takes {units.show(scalar(written), 's')}"
    share = rate / step.gpus
    if "checkpoint_every" not in values:
        note = f"{write}; give --checkpoint-every"
        return {"stage": "checkpoint", "size": None, "rate": share, "seconds": None, "of_step": None, "note": note}, written
    every = values["checkpoint_every"]
    note = f"{write}, every {every:g} steps"
    return _stage_row("checkpoint", step, size / step.gpus / every, share, scalar(written) / every, note), written
