"""Choose the plan of a question: the axes that are given, and for those left open the fastest legal candidate that fits.

Every open axis has a few usual values. The same ``memory`` and ``step`` that answer the question evaluate all combinations at
once. The fastest legal plan that fits wins; plans that keep some memory free come first, and of equals the simplest. If none
fits, the plan that needs least memory wins; if none is legal, the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.estimate import rules
from ironlaw.estimate.bind.question import Bound, framework_of
from ironlaw.estimate.memory.total import memory
from ironlaw.estimate.pipeline.schedules import one_chunk, schedule_of
from ironlaw.estimate.step import step
from ironlaw.job import Job
from ironlaw.plan import BY_RULE, Plan, flags
from ironlaw.question.asked import Row
from ironlaw.question.defaults import CHUNKS, EXPERT_RANKS, HEADROOM, MICRO_BATCHES, OFFLOADS, OVERLAPS, RECOMPUTES

MESH = ("tp", "pp", "vpp", "ep", "dp_replicate", "dp_shard", "zero", "micro_batch_size", "recompute", "sp")
_BLOCK = 16384  # candidates per evaluation


def recompute_columns(how: str, selective: tuple[str, ...]) -> tuple[float, float, float, float]:
    """A recompute option as fractions: whole layers, and of the others attention, GEMMs, memory-bound operators.

    >>> recompute_columns("every:2", ("attention",))
    (0.5, 0.0, 0.0, 0.0)
    """
    head, _, tail = how.partition(":")
    if head == "full":
        return (1.0, 0.0, 0.0, 0.0)
    if head == "every":
        return (1.0 / int(tail), 0.0, 0.0, 0.0)
    if head == "share":
        return (float(tail), 0.0, 0.0, 0.0)
    if head == "none":
        return (0.0, 0.0, 0.0, 0.0)
    operators = tuple(tail.split(",")) if tail else selective
    linear = 1.0 if "linear" in operators else 0.5 if "half-linear" in operators else 0.0
    return (0.0, float("attention" in operators), linear, float("elementwise" in operators))


@dataclass(frozen=True)
class OpenRow:
    """A row of a question, and the axes of its mesh that were not given."""

    row: Row
    derived: tuple[str, ...] = ()  # axes that the others decide: not given, and filled by ``close_axes``

    def open_axes(self, model: Model) -> tuple[str, ...]:
        """The axes that are left to the tool; a dense model has no experts to place."""
        return tuple(n for n in MESH if (getattr(self.row, n) is None or n in self.derived) and (n != "ep" or model.num_experts))


def close_axes(row: Row, schedule: str | None) -> OpenRow:
    """Fill the axes of a row that the other axes decide: one chunk where nothing interleaves, and the last free one of tp and pp."""
    filled: dict[str, Any] = {}
    if row.vpp is None and (one_chunk(schedule) or row.pp == 1.0):
        filled["vpp"] = 1.0
    left = [axis for axis in ("tp", "pp", "dp_replicate", "dp_shard") if getattr(row, axis) is None]
    if left in (["tp"], ["pp"]):
        others = row.cp
        for value in (row.tp, row.pp, row.dp_replicate, row.dp_shard):
            others *= value or 1.0
        filled[left[0]] = max((row.gpus or 1.0) // others, 1.0)
    return OpenRow(row._replace(**filled), tuple(filled))


class Candidate(NamedTuple):
    """One combination of values of the axes that may be open; names are columns of a Plan."""

    tp: float
    pp: float
    vpp: float
    dp_replicate: float
    dp_shard: float
    sp: float
    zero: float
    micro_batch_size: float
    ep: float
    recompute_layers: float
    recompute_attention: float
    recompute_linear: float
    recompute_elementwise: float


def given_columns(job: Job, rows: Sequence[Row]) -> dict[str, list[float]]:
    """The columns of a Plan that no candidate varies, one value for each row."""
    columns = {name: [float(getattr(row, name)) for row in rows] for name in ("gpus", "cp", "etp", "global_batch_size", "seq_len")}
    on = [flags("overlap", OVERLAPS, job.framework.overlap if row.overlap is None else row.overlap) for row in rows]
    away = [flags("offload", OFFLOADS, row.offload or ()) for row in rows]
    columns |= {name: [row_flags[name] for row_flags in column] for column in (on, away) for name in column[0]}
    for name in ("first_stage_layers", "last_stage_layers"):
        columns[name] = [BY_RULE if getattr(row, name) is None else getattr(row, name) for row in rows]
    return columns


@dataclass(eq=False, repr=False)
class Pool:
    """Candidates that one framework would run, with the name of what each recomputes and the number of its row."""

    listed: list[Candidate] = field(default_factory=list)
    recompute: list[str] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)

    def add(self, other: Pool, owner: int) -> None:
        """Add the candidates of another pool for the row numbered ``owner``."""
        self.listed += other.listed
        self.recompute += other.recompute
        self.owner += [owner] * len(other.listed)

    def plan(self, job: Job, rows: Sequence[Row]) -> Plan:
        """All candidates as one plan of columns."""
        table = np.array(self.listed, dtype=np.float64).reshape(-1, len(Candidate._fields)).T
        owner = np.array(self.owner, dtype=np.int64)
        given = {name: np.array(values)[owner] for name, values in given_columns(job, rows).items()}
        return Plan(**dict(zip(Candidate._fields, table, strict=True)), **given)


def candidates_of(job: Job, cluster: Cluster, row: Row, divisors: Callable[[float, float], list[float]]) -> Pool:
    """All combinations of candidate values for one row's open axes, simplest first."""
    pool = Pool()
    gpus, cp = row.gpus or 1.0, row.cp
    domain = int(cluster.node.scale_up_size.value)
    recomputes = [row.recompute] if row.recompute else list(RECOMPUTES)
    fractions = {how: recompute_columns(how, job.framework.selective_recompute) for how in recomputes}
    micros = _values(row.micro_batch_size, MICRO_BATCHES)
    for pp in _values(row.pp, divisors(gpus / cp, job.model.num_hidden_layers)):
        for tp in _values(row.tp, [t for t in divisors(gpus / cp / pp, job.model.num_attention_heads) if t <= domain]):
            sp = float(tp > 1 if row.sp is None else row.sp)
            eps = _values(row.ep, _expert_parallel(job, gpus / pp / row.etp))
            for replicate, shard, zero in _data_parallel(job, row, gpus / (tp * pp * cp), pp):
                for vpp in _values(row.vpp, _chunk_counts(job, pp)):
                    for ep, micro, how in product(eps, micros, recomputes):
                        pool.listed.append(Candidate(tp, pp, vpp, replicate, shard, sp, zero, micro, ep, *fractions[how]))
                        pool.recompute.append(how)
    pool.owner = [0] * len(pool.listed)
    return pool


def _values(given: float | None, usual: Iterable[float]) -> list[float]:
    return [float(given)] if given is not None else [float(v) for v in usual]


def _all_divisors(number: float, also: float) -> list[float]:
    """Every divisor of ``number`` up to ``also``."""
    if number != int(number) or number > 1e7:
        return [1.0]
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return [float(d) for d in sorted({*small, *(int(number) // d for d in small)}) if d <= also] or [1.0]


def _usual_divisors(number: float, also: float) -> list[float]:
    """Powers of two (and three times them) that divide ``number`` and do not exceed ``also``."""
    usual = sorted({float(a * 2**b) for a in (1, 3) for b in range(15)})
    return [v for v in usual if number >= v and number % v == 0 and v <= also] or [1.0]


def _chunk_counts(job: Job, pp: float) -> list[float]:
    """Chunk counts that split a stage's layers evenly, or at least leave none empty where the stages are uneven."""
    if not schedule_of(job).takes_chunks:
        return [1.0]
    layers = np.floor(job.model.num_hidden_layers / pp)
    even = job.model.num_hidden_layers % pp == 0
    usual = [v for v in CHUNKS if v == 1 or (pp > 1 and v <= layers and (not even or layers % v == 0))]
    return [v for v in usual if v > 1 or not schedule_of(job).needs_chunks]


def _expert_parallel(job: Job, ranks: float) -> list[float]:
    """Usual expert-parallel sizes: powers of two that divide the experts and the ranks of a stage."""
    if not job.model.num_experts:
        return [1.0]
    return [v for v in EXPERT_RANKS if job.model.num_experts % v == 0 and ranks % v == 0]


def _data_parallel(job: Job, row: Row, dp: float, pp: float) -> list[tuple[float, float, float]]:
    """(dp_replicate, dp_shard, zero) that give ``dp`` ranks and agree with the given values."""
    default = float(job.framework.default_zero)
    if row.zero is not None:
        stages = [row.zero]
    else:
        stages = [min(default, 1.0)] if pp > 1 else sorted({default, 3.0})
    splits = []
    for stage in stages:
        zero, replicate, shard = stage, row.dp_replicate, row.dp_shard
        if replicate is None and shard is None:
            replicate, shard = (dp, 1.0) if zero == 0 else (1.0, dp)
        if replicate is None:
            replicate = dp / float(shard or 1.0)
        if shard is None:
            shard = dp / float(replicate)
        if zero == 0 and shard > 1 and row.zero is None:
            zero = 1.0
        splits.append((float(replicate), float(shard), zero))
    return splits


def preference(job: Job, cluster: Cluster, plan: Plan) -> tuple[Any, Any, Any]:
    """Three columns by candidate: illegal; 0 fits with headroom, 1 fits, 2 fits without slack for the allocator, 3 does not fit; a score.

    The score is the step time where a candidate fits, else its device memory.
    """
    legal = np.broadcast_to(rules.legal(rules.legality(job, plan)), (plan.rows,))
    unfit, score = np.full(plan.rows, 3.0), np.full(plan.rows, np.inf)
    for start in range(0, plan.rows, _BLOCK):
        index = start + np.flatnonzero(legal[start : start + _BLOCK])
        if index.size == 0:
            continue
        with np.errstate(all="ignore"):
            needed = memory(job, cluster, plan.take(index))
            tight = needed.device > (1.0 - HEADROOM) * needed.capacity
            squeezed = needed.device > (1.0 - 1e-9) * needed.capacity
            unfit[index], score[index] = np.where(needed.fits, 1.0 * tight + squeezed, 3.0), needed.device
            inside = index[needed.fits]
            if inside.size:
                times = step(job, cluster, plan.take(inside)).tree.value
                score[inside] = np.where(np.isfinite(times), times, np.inf)
    return ~legal, unfit, score


@dataclass(frozen=True, eq=False, repr=False)
class Placed:
    """The chosen plans of one framework: columns, the row of the question each answers, its recompute name, its chosen axes."""

    framework: str
    plan: Plan
    index: Any
    recompute: tuple[str, ...]
    chosen: tuple[tuple[str, ...], ...]


def place(bound: Bound) -> list[Placed]:
    """Choose a plan for every row: a legal one before others, then one that fits, then the fastest, then the simplest."""
    distinct: dict[Row, int] = {}
    owners = [distinct.setdefault(row, len(distinct)) for row in bound.asked.rows]
    opened = [close_axes(row, bound.asked.schedule) for row in distinct]
    rows = [open_row.row for open_row in opened]
    pools: dict[str, Pool] = {}
    for owner, row in enumerate(distinct):
        name = framework_of(bound, row)
        _add_candidates(pools.setdefault(name, Pool()), bound.job(name), bound.cluster, rows[owner], owner)
    placed = []
    for name, pool in pools.items():
        plan = pool.plan(bound.job(name), rows)
        best = _pick_best(bound.job(name), bound.cluster, plan, np.array(pool.owner))
        index = [i for i, owner in enumerate(owners) if owner in best]
        taken = [best[owners[i]] for i in index]
        chosen = tuple(opened[owners[i]].open_axes(bound.model) for i in index)
        recompute = tuple(pool.recompute[at] for at in taken)
        placed.append(Placed(name, plan.take(taken), np.array(index, dtype=np.int64), recompute, chosen))
    return placed


def _add_candidates(pool: Pool, job: Job, cluster: Cluster, row: Row, owner: int) -> None:
    """Add one row's candidates to a pool: from usual divisors, or from all divisors where no usual one is legal."""
    filled = False
    for divisors in (_usual_divisors, _all_divisors):
        candidates = candidates_of(job, cluster, row, divisors)
        if candidates.listed:
            filled = True
            pool.add(candidates, owner)
            if np.any(rules.legal(rules.legality(job, candidates.plan(job, [row])))):
                return
    if not filled:  # the given axes leave no combination: keep them, and let the rules say which they break
        closed = row._replace(tp=row.tp or 1.0, pp=row.pp or 1.0, vpp=row.vpp or 1.0, ep=row.ep or 1.0)
        pool.add(candidates_of(job, cluster, closed, _usual_divisors), owner)


def _pick_best(job: Job, cluster: Cluster, plan: Plan, owner: Any) -> dict[int, int]:
    """The best candidate of each row: legal before not, fitting before not, then the best score, then the first."""
    contested = np.flatnonzero(np.bincount(owner)[owner] > 1)
    illegal, unfit, score = (np.zeros(owner.size) for _ in range(3))
    if contested.size:
        illegal[contested], unfit[contested], score[contested] = preference(job, cluster, plan.take(contested))
    order = np.lexsort((np.arange(owner.size), score, unfit, illegal, owner))
    first = order[np.flatnonzero(np.diff(owner[order], prepend=-1))]
    return {int(owner[at]): int(at) for at in first}
