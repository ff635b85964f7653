"""The runs of every job on every pool: the best plan, time, cost and power at the counts of accelerators that it may have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ironlaw.errors import InputError, IronlawError, QuestionError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.bind.model import with_tokens
from ironlaw.estimate.bind.money import price_if_known
from ironlaw.estimate.bind.question import bind_question, with_batch
from ironlaw.estimate.fabric.placement import slices_of
from ironlaw.estimate.layer.counts import active_parameters
from ironlaw.estimate.what_if.node_loss import Counts, Used
from ironlaw.law.flops import per_token
from ironlaw.precision import precision_of
from ironlaw.question.asked import asked_of
from ironlaw.question.assumptions import Assumptions
from ironlaw.questions.fleet.read import Job, Pool, Reservation
from ironlaw.questions.fleet.schedule import Mode
from ironlaw.terms import scalar

ROUND = (1.0, 1.5)  # times powers of two, of nodes: the counts that a job may have
MOST_COUNTS = 10  # of a job in a pool: the largest


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """One job on one count of accelerators of a pool."""

    job: int
    pool: int
    held: float  # of the pool: whole racks where a job takes whole racks
    used: Used

    @property
    def group(self) -> Group:
        """The estimate."""
        return self.used.group

    @cached_property
    def seconds(self) -> float:
        """Time of the run with failures, without them where the run hardly gets on."""
        run = self.group.run
        assert run is not None
        wall = scalar(run.failures.seconds)
        return scalar(run.seconds) if math.isnan(wall) else wall

    @property
    def power(self) -> float:
        """Rated power with PUE [W]."""
        assert self.group.run is not None
        return scalar(self.group.run.power)

    @property
    def mode(self) -> Mode:
        """The run as the schedule sees it."""
        return Mode(self.pool, self.held, self.seconds, self.power)


@dataclass(frozen=True)
class Size:
    """The accelerators of a pool, and what a job takes of them at least."""

    gpus: float
    rack: float  # accelerators that a job takes together; 1 where it takes any number

    def held(self, gpus: float) -> float:
        """Accelerators of the pool that a job of ``gpus`` takes."""
        return math.ceil(gpus / self.rack) * self.rack


def size_of(pool: Pool, folders: tuple[str, ...]) -> Size:
    """The size of a pool: its accelerators, or its racks, of which a job then takes whole ones."""
    if pool.racks is None:
        return Size(pool.gpus or 0.0, 1.0)
    domain = float(cluster_of(pool.options, folders, []).node.scale_up_size.value)
    held = pool.racks * domain
    return Size(held if pool.gpus is None else min(held, pool.gpus), domain)


class Rates:
    """The runs of all jobs; a job on a pool is searched once for every count."""

    def __init__(self, reservation: Reservation, folders: tuple[str, ...]) -> None:
        self.reservation, self.folders = reservation, folders
        self.sizes = tuple(size_of(pool, folders) for pool in reservation.pools)
        self.batches: dict[int, float] = {}
        self._options = [with_tokens(job.options, folders) for job in reservation.jobs]
        self._counts: dict[tuple[int, int], Counts] = {}
        self._runs: dict[Any, list[Run]] = {}

    def runs(self, job: int, more: float = 1.0) -> list[Run]:
        """The runs of a job on its pools, of which each has ``more`` times its accelerators."""
        found: list[Run] = []
        for pool in self.reservation.jobs[job].pools:
            key = (job, pool, more)
            if key not in self._runs:
                self._runs[key] = self._runs_on(job, pool, more * self.sizes[pool].gpus)
            found += self._runs[key]
        return found

    def unit_of(self, pool: int) -> float:
        """Accelerators of a pool that are added together: a rack where jobs take whole racks, else a node."""
        if self.sizes[pool].rack > 1.0:
            return self.sizes[pool].rack
        return float(cluster_of(self.reservation.pools[pool].options, self.folders, []).node.accelerators.value)

    def price(self, pool: int) -> float:
        """The price of one accelerator of a pool [USD/s]; nan where none is known."""
        options = self.reservation.pools[pool].options
        return float(price_if_known(options.get("price"), cluster_of(options, self.folders, []), self.folders, []).value)

    def assumptions(self, job: int) -> Assumptions:
        """What the estimates of a job assume beside what the file gives."""
        found = next((run for run in self.runs(job)), None)
        return [] if found is None else list(found.group.assumptions)

    def _runs_on(self, job: int, pool: int, capacity: float) -> list[Run]:
        size, counts = self.sizes[pool], self._bind(job, pool)
        tried = self._tried(job, pool, capacity)
        batch = self.batches[job]
        useful = counts.useful(tried, lambda _: batch)
        runs = [Run(job, pool, size.held(used.gpus), used) for used in useful]
        return [run for run in runs if run.held <= capacity]

    def _tried(self, job: int, pool: int, capacity: float) -> list[float]:
        """The counts of a job: those that it lists, or round ones, of which none is so small that the reservation ends first."""
        one, node = self.reservation.jobs[job], self._bind(job, pool).bound.cluster.node
        if one.counts:
            return [n for n in one.counts if n <= capacity]
        slices = [float(chips) for chips in slices_of(node) if chips <= capacity]
        whole = float(node.accelerators.value)
        if slices and capacity <= slices_of(node)[-1]:
            rounded = {chips for chips in slices if math.log2(chips).is_integer()} | {slices[-1]}
        else:
            rounded = {whole * part * 2.0**power for part in ROUND for power in range(18)}
            rounded = {n for n in rounded if n % whole == 0.0} | {whole / 2.0**power for power in range(5)}
            rounded |= {math.floor(capacity / whole) * whole if capacity >= whole else math.floor(capacity)}
        least = self._fewest(job, pool)
        fitting = sorted(n for n in rounded if 1.0 <= n <= capacity and n.is_integer())
        return [n for n in fitting if n >= least][-MOST_COUNTS:] or fitting[-1:]

    def _fewest(self, job: int, pool: int) -> float:
        """Accelerators that finish the job within the reservation at their dense peak: with fewer none can."""
        bound = self._bind(job, pool).bound
        assert bound.asked.precision is not None
        formats = {bound.asked.precision, bound.asked.expert_precision} - {""}
        peak = max(bound.cluster.accelerator.peak[precision_of(name, bound.folders).peak].value for name in formats)
        flop = float(per_token(active_parameters(bound.model)))
        return (bound.asked.tokens or 0.0) * flop / (peak * self.reservation.seconds)

    def _bind(self, job: int, pool: int) -> Counts:
        if (job, pool) not in self._counts:
            try:
                bound = with_batch(bind_question(asked_of(self._asked(job, pool)), self.folders))
                if job not in self.batches:
                    self.batches[job] = self._batch(job, pool, bound.asked.rows[0].global_batch_size)
            except IronlawError as error:  # which names no job
                kind = InputError if error.exit_status == InputError.exit_status else QuestionError
                where = f"job {self.reservation.jobs[job].name!r} in pool {self.reservation.pools[pool].name!r}"
                raise kind(f"{where}: {error}") from None
            bound = bound.replace(asked=bound.asked.replace(global_batch_tokens=None))
            self._counts[job, pool] = Counts(bound, bound.asked.rows[0])
        return self._counts[job, pool]

    def _batch(self, job: int, pool: int, given: float | None) -> float:
        """The batch of a job, the same at every count: as given, or that of an estimate of all accelerators of its first pool."""
        if given is not None:
            return given
        one = self.reservation.jobs[job]
        most = max((n for n in one.counts if n <= self.sizes[pool].gpus), default=self.sizes[pool].gpus)
        estimate = answer({**self._asked(job, pool), "gpus": most}, self.folders)
        return scalar(estimate.groups[0].plan.global_batch_size)

    def _asked(self, job: int, pool: int) -> dict[str, Any]:
        """The options of an estimate of a job in a pool."""
        return {**self._options[job], **self.reservation.pools[pool].options, "gpus": self.sizes[pool].gpus}


def row_of(run: Run, jobs: Sequence[Job], pools: Sequence[Pool]) -> Mapping[str, Any]:
    """One row of the table of counts."""
    return {
        "job": jobs[run.job].name, "pool": pools[run.pool].name, "gpus": run.used.gpus, "held_gpus": run.held,
        "tokens_per_second": run.used.rate, "seconds": run.seconds, "gpu_hours": run.used.gpus * run.seconds / 3600.0, "watts": run.power,
    }  # fmt: skip
