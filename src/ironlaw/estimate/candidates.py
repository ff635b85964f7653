"""The plan: what the user gave, and for what was left open the fastest legal candidate that fits.

Candidates of an open axis are few and usual. All combinations are evaluated at once by the same
``memory`` and ``step`` that answer the question; the fastest that is legal and fits is taken, with a little memory to
spare where that can be had, the simplest among equals (fewest shards first). Where none fits, the one that needs least
memory; where none is legal, the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.estimate import rules
from ironlaw.estimate.memory.total import memory
from ironlaw.estimate.pipeline.schedules import schedule_of
from ironlaw.estimate.step import step
from ironlaw.job import Job
from ironlaw.plan import BY_RULE, Plan, flags
from ironlaw.question import defaults
from ironlaw.question.defaults import CHUNKS, EXPERT_RANKS, HEADROOM, MICRO_BATCHES, OFFLOADS, OVERLAPS, RECOMPUTES

MESH = ("tp", "pp", "vpp", "ep", "dp_replicate", "dp_shard", "zero", "micro_batch_size", "recompute", "sp")
_BLOCK = 16384  # candidates per evaluation
DEFAULT_BATCH_TOKENS = defaults.BATCH_TOKENS
DEFAULT_SEQ_LEN = defaults.SEQ_LEN


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


def open_axes(given: dict[str, Any], model: Model) -> list[str]:
    """The axes of a row that are left to the tool; a dense model has no experts to place."""
    derived = given.get("derived", ())
    return [n for n in MESH if (given.get(n) is None or n in derived) and (n != "ep" or model.num_experts)]


_COLUMNS = (
    "tp", "pp", "vpp", "dp_replicate", "dp_shard", "sp", "zero", "micro_batch_size",
    "recompute_layers", "recompute_attention", "recompute_linear", "recompute_elementwise", "ep",
    "gpus", "cp", "etp", "global_batch_size", "seq_len",
    "overlap_grad_reduce", "overlap_param_gather", "overlap_tp", "overlap_pp", "overlap_ep", "offload_optimizer", "offload_activations",
    "first_stage_layers", "last_stage_layers",
)  # fmt: skip


@dataclass(eq=False, repr=False)
class Pool:
    """Candidates of many rows that one framework would run: values by ``_COLUMNS``, recompute names, and whose they are."""

    framework: str
    listed: list[list[float]]
    how: list[str]
    owner: list[int]
    made: Plan | None = None

    def extend(self, other: Pool) -> None:
        """Add the candidates of another pool."""
        self.listed += other.listed
        self.how += other.how
        self.owner += other.owner
        self.made = other.made if len(self.listed) == len(other.listed) else None  # the first to come brings its plan along

    def plan(self) -> Plan:
        """All candidates as one plan of columns, made once."""
        if self.made is None:
            columns = np.array(self.listed, dtype=np.float64).reshape(-1, len(_COLUMNS)).T
            self.made = Plan(**dict(zip(_COLUMNS, columns, strict=True)))
        return self.made


def enumerate_row(
    pool: Pool,
    job: Job,
    cluster: Cluster,
    given: dict[str, Any],
    owner: int,
    flat_only: bool | None,
    divisors: Callable[[float, float], list[float]],
) -> None:
    """Add all combinations of candidate values for one row's open axes, simplest first.

    ``flat_only``: True keeps tp = pp = 1, False drops it, None keeps all.
    """
    gpus, cp = given["gpus"], given["cp"]
    domain = int(cluster.node.scale_up_size.value)
    on = given.get("overlap")
    constants = [given[name] for name in _COLUMNS[13:18]]
    constants += flags("overlap", OVERLAPS, job.framework.overlap if on is None else on).values()
    constants += flags("offload", OFFLOADS, given.get("offload") or ()).values()
    constants += [BY_RULE if given.get(name) is None else given[name] for name in _COLUMNS[-2:]]
    recomputes: list[str] = [given["recompute"]] if given.get("recompute") else list(RECOMPUTES)
    fractions = {how: recompute_columns(how, job.framework.selective_recompute) for how in recomputes}
    micros = _axis(given, "micro_batch_size", MICRO_BATCHES)
    for pp in _axis(given, "pp", divisors(gpus / cp, job.model.num_hidden_layers)):
        for tp in _axis(given, "tp", [t for t in divisors(gpus / cp / pp, job.model.num_attention_heads) if t <= domain]):
            if flat_only is not None and flat_only != (tp == 1 and pp == 1):
                continue
            sp = given["sp"] if given.get("sp") is not None else float(tp > 1)
            eps = _axis(given, "ep", _expert_parallel(job, gpus / pp / given["etp"]))
            for replicate, shard, zero in _data_parallel(job, given, gpus / (tp * pp * cp), pp):
                for vpp in _axis(given, "vpp", _chunks(job, pp)):
                    for ep, micro, how in product(eps, micros, recomputes):
                        pool.listed.append([tp, pp, vpp, replicate, shard, sp, zero, micro, *fractions[how], ep, *constants])
                        pool.how.append(how)
                        pool.owner.append(owner)


def _axis(given: dict[str, Any], name: str, usual: Any) -> list[float]:
    value = given.get(name)
    return [float(value)] if value is not None else [float(v) for v in usual]


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


def _chunks(job: Job, pp: float) -> list[float]:
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


def _data_parallel(job: Job, given: dict[str, Any], dp: float, pp: float) -> list[tuple[float, float, float]]:
    """(dp_replicate, dp_shard, zero) that give ``dp`` ranks under what is given."""
    default = float(job.framework.default_zero)
    if given.get("zero") is not None:
        stages = [float(given["zero"])]
    else:
        stages = [min(default, 1.0)] if pp > 1 else sorted({default, 3.0})
    made = []
    for stage in stages:
        zero, replicate, shard = stage, given.get("dp_replicate"), given.get("dp_shard")
        if replicate is None and shard is None:
            replicate, shard = (dp, 1.0) if zero == 0 else (1.0, dp)
        if replicate is None:
            replicate = dp / float(shard or 1.0)
        if shard is None:
            shard = dp / float(replicate)
        if zero == 0 and shard > 1 and given.get("zero") is None:
            zero = 1.0
        made.append((float(replicate), float(shard), zero))
    return made


def preference(job: Job, cluster: Cluster, plan: Plan) -> tuple[Any, Any, Any]:
    """By candidate: illegal; 0 fits with headroom, 1 fits, 2 fits without the allocator's slack, 3 does not; and a score.

    The score is the step time where a candidate fits, else its device memory.
    """
    legal = np.broadcast_to(rules.legal(rules.legality(job, plan)), (plan.rows,))
    unfit, score = np.full(plan.rows, 3.0), np.full(plan.rows, np.inf)
    for start in range(0, plan.rows, _BLOCK):
        index = start + np.flatnonzero(legal[start : start + _BLOCK])
        if index.size == 0:
            continue
        with np.errstate(all="ignore"):
            held = memory(job, cluster, plan.take(index))
            tight = held.device > (1.0 - HEADROOM) * held.capacity
            squeezed = held.device > (1.0 - 1e-9) * held.capacity
            unfit[index], score[index] = np.where(held.fits, 1.0 * tight + squeezed, 3.0), held.device
            inside = index[held.fits]
            if inside.size:
                times = step(job, cluster, plan.take(inside)).tree.value
                score[inside] = np.where(np.isfinite(times), times, np.inf)
    return ~legal, unfit, score


@dataclass(frozen=True, eq=False, repr=False)
class Placed:
    """The plans one framework runs: columns, where each row stands in the question, its recompute name, its open axes."""

    framework: str
    plan: Plan
    index: Any
    recompute: tuple[str, ...]
    chosen: tuple[tuple[str, ...], ...]


def place(jobs: Callable[[str], Job], cluster: Cluster, rows: list[dict[str, Any]], framework: str | None) -> list[Placed]:
    """A plan for every row. With no framework given, pipelines and tensor parallel run on megatron, the rest on fsdp."""
    distinct: dict[Any, int] = {}
    owners = [distinct.setdefault(tuple(row.items()), len(distinct)) for row in rows]
    pools: dict[str, Pool] = {}
    for key, owner in distinct.items():
        _fill(pools, jobs, cluster, dict(key), owner, framework)
    picked = _pick(list(pools.values()), jobs, cluster, len(distinct))
    placed = []
    for number, pool in enumerate(pools.values()):
        index = np.array([i for i, owner in enumerate(owners) if picked[owner][0] == number], dtype=np.int64)
        if index.size:
            taken = [picked[owners[i]][1] for i in index]
            chosen = tuple(tuple(open_axes(rows[i], jobs(pool.framework).model)) for i in index)
            placed.append(Placed(pool.framework, pool.plan().take(taken), index, tuple(pool.how[t] for t in taken), chosen))
    return placed


def _fill(
    pools: dict[str, Pool], jobs: Callable[[str], Job], cluster: Cluster, given: dict[str, Any], owner: int, framework: str | None
) -> None:
    """Add one row's candidates to the pools of the frameworks that may run it."""
    tries: list[tuple[str, bool | None]]
    if framework is not None:
        tries = [(framework, None)]
    elif cluster.accelerator.usual_framework:
        tries = [(cluster.accelerator.usual_framework, None)]
    elif given["gpus"] == 1:
        tries = [("fsdp", None)]
    else:
        tries = [("fsdp", True), ("megatron", False)]
    before = sum(len(p.how) for p in pools.values())
    for divisors in (_usual_divisors, _all_divisors):
        kept = False
        for name, flat_only in tries:
            job, trial = jobs(name), Pool(name, [], [], [])
            enumerate_row(trial, job, cluster, given, owner, flat_only, divisors)
            if trial.how:
                kept |= bool(np.any(rules.legal(rules.legality(job, trial.plan()))))
                pools.setdefault(name, Pool(name, [], [], [])).extend(trial)
        if kept:
            return
    if sum(len(p.how) for p in pools.values()) == before:
        # the given axes leave no combination: keep them, and let the rules say which they break
        name = framework or "megatron"
        closed = {**given, **{axis: given.get(axis) or 1.0 for axis in ("tp", "pp", "vpp", "ep")}}
        enumerate_row(pools.setdefault(name, Pool(name, [], [], [])), jobs(name), cluster, closed, owner, None, _usual_divisors)


def _pick(pools: list[Pool], jobs: Callable[[str], Job], cluster: Cluster, rows: int) -> list[tuple[int, int]]:
    """(pool, candidate) of each row: legal before not, fitting before not, then the best score, then the simplest."""
    counts = np.zeros(rows, dtype=np.int64)
    for pool in pools:
        np.add.at(counts, pool.owner, 1)
    best: dict[int, tuple[Any, int, int]] = {}
    for number, pool in enumerate(pools):
        if not pool.how:
            continue
        owner = np.array(pool.owner)
        contested = np.flatnonzero(counts[owner] > 1)
        illegal, unfit, score = (np.zeros(owner.size) for _ in range(3))
        if contested.size:
            illegal[contested], unfit[contested], score[contested] = preference(jobs(pool.framework), cluster, pool.plan().take(contested))
        order = np.lexsort((np.arange(owner.size), score, unfit, illegal, owner))
        first = order[np.flatnonzero(np.diff(owner[order], prepend=-1))]
        for at in first:
            rank = (illegal[at], unfit[at], score[at], number)
            if int(owner[at]) not in best or rank < best[int(owner[at])][0]:
                best[int(owner[at])] = (rank, number, int(at))
    return [best[row][1:] for row in range(rows)]
