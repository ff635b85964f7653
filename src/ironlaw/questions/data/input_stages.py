"""The stages of an input pipeline before the step: their sizes, rates and times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.errors import QuestionError
from ironlaw.estimate.bind.records import Assumptions, assume
from ironlaw.questions.asked_run import one
from ironlaw.terms import Term, leaf

if TYPE_CHECKING:
    from ironlaw.estimate.answer import Group


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """What one accelerator asks for in a step."""

    title: str
    seconds: float
    samples: float
    seq_len: float | None  # tokens of a sample; None: no text
    gpus: float
    per_node: float
    link: Any  # rate of the copy to the accelerator
    group: Group | None


class Pipe:
    """The stages before the step, for one accelerator: their sizes, rates and times."""

    def __init__(self, values: Mapping[str, Any], step: Step, notes: Assumptions, warnings: list[str]) -> None:
        from ironlaw.law import collectives, traffic
        from ironlaw.law import dataloading as law

        self.law, self.step, self.values = law, step, values
        self.terms: list[Term] = []
        tokens = step.samples * step.seq_len if step.seq_len else 0.0
        stored, held = self._sizes(notes)
        self.stored = one(traffic.elementwise(step.samples, stored, 1))
        self.batch = one(traffic.elementwise(step.samples, held, 1))
        self.rate = self._storage(notes, warnings)
        self.fetch = leaf("fetch", collectives.point_to_point, "s", size=self.stored, bandwidth=self.rate, latency=0.0)
        if step.link is None:
            raise QuestionError("the question lacks the link to the accelerator: give --on, or --transfer-rate such as 16GB/s")
        self.transfer = leaf("transfer", collectives.point_to_point, "s", size=self.batch, bandwidth=step.link, latency=0.0)
        split = 0.0
        if "token_rate" in values:
            if not tokens:
                raise QuestionError("--token-rate needs tokens: give --seq-len, or MODEL")
            term = leaf("tokenisation of one worker", law.tokenise_time, "s", tokens=tokens, token_rate=values["token_rate"], workers=1.0)
            self.terms.append(term)
            split = one(term.value)
        self.one_worker = step.samples * values.get("transform_time", 0.0) + split
        self.needed = leaf("workers needed", law.workers_needed, "1", transform_time=self.one_worker, step_time=step.seconds)
        self.workers = self._workers(notes, warnings)
        if "prefetch_factor" not in values:
            assume(notes, "prefetch_factor", "2 batches a worker", "default")

    def _sizes(self, notes: Assumptions) -> tuple[float, float]:
        """Bytes of a sample in storage and in host memory."""
        values, length = self.values, self.step.seq_len
        if "sample_size" in values:
            stored = values["sample_size"]
        elif length:
            each = values.get("bytes_per_token", 4.0)
            if "bytes_per_token" not in values:
                assume(notes, "bytes_per_token", "4 B in storage", "default")
            stored = each * length
        else:
            raise QuestionError("the question lacks the size of a sample: give --sample-size, or --seq-len for tokens")
        if "memory_size" in values:
            return stored, values["memory_size"]
        if length:
            assume(notes, "memory_size", "8 B a token", "default")
            return stored, 8.0 * length
        assume(notes, "memory_size", "that of --sample-size", "default")
        return stored, stored

    def _storage(self, notes: Assumptions, warnings: list[str]) -> float:
        """What storage gives one accelerator [B/s]; without end where nothing of it is said."""
        values, step = self.values, self.step
        disk, network = values.get("disk", math.inf), values.get("storage_network", math.inf)
        if "shared_storage" in values:
            network = min(network, values["shared_storage"] * step.per_node / step.gpus)
        if math.isinf(min(disk, network)):
            useless = [name for name in ("sustained", "access_factor") if name in values]
            if useless:
                raise QuestionError(f"--{useless[0].replace('_', '-')} has no effect without --disk, --storage-network or --shared-storage")
            warnings.append("storage is not counted: give --disk, --storage-network or --shared-storage")
            return math.inf
        if "sustained" not in values:
            assume(notes, "sustained", "0.5 of the datasheet's rate", "default")
        if "access_factor" not in values:
            assume(notes, "access_factor", "1, sequential", "default")
        term = leaf(
            "storage rate of a node", self.law.storage_rate, "B/s", disk=disk, network=network,
            sustained_fraction=values.get("sustained", 0.5), access_factor=values.get("access_factor", 1.0),
        )  # fmt: skip
        self.terms.append(term)
        return one(term.value) / step.per_node

    def _workers(self, notes: Assumptions, warnings: list[str]) -> float:
        """Workers given, or those that keep up and find a core."""
        needed, step = max(one(self.needed.value), 1.0), self.step
        most = max(math.floor(self.values["cores"] / step.per_node), 1.0) if "cores" in self.values else math.inf
        if "workers" in self.values:
            if self.values["workers"] > most:
                crowd = self.values["workers"] * step.per_node
                warnings.append(f"{crowd:,.0f} workers of a node share {self.values['cores']:,.0f} cores: they will be slower")
            return float(self.values["workers"])
        assume(notes, "workers", f"{min(needed, most):g} for each accelerator", "chosen")
        return min(needed, most)

    def process(self, workers: float) -> float:
        """Time of so many workers for a batch [s]."""
        return 1.0 / one(self.law.workers_rate(workers, self.one_worker)) if self.one_worker else 0.0

    def ahead(self, workers: float) -> float:
        """Batches of one accelerator that wait or are in work."""
        return one(self.law.batches_ahead(workers, self.values.get("prefetch_factor", 2.0)))

    def memory(self, workers: float) -> Term:
        """Host memory of a node for the batches of all its accelerators."""
        size = self.batch * self.step.per_node
        return leaf(
            "host memory", self.law.buffer_memory, "B", prefetch=self.ahead(workers), processing=0.0, in_transfer=0.0, size=size
        )  # the workers' batches in work are among those ahead

    def rows(self, values: Mapping[str, Any], notes: Assumptions) -> Iterator[dict[str, Any]]:
        """The three stages, then what is written: checkpoints of the same storage."""
        step, link = self.step, getattr(self.step.link, "value", self.step.link)
        known = self.rate if math.isfinite(self.rate) else None
        need_of = self.stored * step.per_node / step.seconds
        yield self._row("storage", self.stored, known, one(self.fetch.value), f"a node must read {units.show(need_of, 'B/s')} to keep up")
        yield self._row(
            "workers", self.batch, None, self.process(self.workers), f"one worker takes {units.show(self.one_worker, 's')} for a batch"
        )
        yield self._row("transfer", self.batch, link, one(self.transfer.value), "host to accelerator")
        if step.group is not None:
            yield self._checkpoint(values, notes)

    def _row(self, stage: str, size: float, rate: float | None, seconds: float, note: str) -> dict[str, Any]:
        return {"stage": stage, "size": size, "rate": rate, "seconds": seconds, "of_step": seconds / self.step.seconds, "note": note}

    def _checkpoint(self, values: Mapping[str, Any], notes: Assumptions) -> dict[str, Any]:
        """A checkpoint by accelerator: the time of one, in which nothing is read; --checkpoint-every spreads it over steps."""
        from ironlaw.estimate.failures import checkpoint_size, storage_bandwidth
        from ironlaw.estimate.layer.counts import total_parameters
        from ironlaw.law import goodput

        group = self.step.group
        assert group is not None
        size = checkpoint_size(float(total_parameters(group.job.model)))
        rate = storage_bandwidth(dict(values), group.cluster, self.step.gpus)
        if "checkpoint_bandwidth" not in values:
            assume(notes, "checkpoint_bandwidth", f"{group.cluster.systems.checkpoint_bandwidth.text} for each accelerator", "default")
        written = leaf("checkpoint write", goodput.write_time, "s", size=size, bandwidth=rate)
        self.terms.append(written)
        once = f"one takes {units.show(one(written.value), 's')}"
        if "checkpoint_every" not in values:  # without it nobody knows its share of a step
            note = f"{once}; give --checkpoint-every"
            return {"stage": "checkpoint", "size": None, "rate": rate / self.step.gpus, "seconds": None, "of_step": None, "note": note}
        every = values["checkpoint_every"]
        seconds = one(written.value) / every
        return self._row("checkpoint", size / self.step.gpus / every, rate / self.step.gpus, seconds, f"{once}, every {every:g} steps")
