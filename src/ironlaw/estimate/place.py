"""The plan: what the user gave, and for what was left open the fastest legal candidate that fits.

Candidates of an open axis are few and usual. All combinations are evaluated at once by the same
``memory`` and ``step`` that answer the question; the fastest that is legal and fits is taken, the simplest among equals
(fewest shards first). Where none fits, the one that needs least memory; where none is legal, the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ironlaw.estimate import rules
from ironlaw.estimate.memory import memory
from ironlaw.estimate.step import step
from ironlaw.plan import Cluster, Job, Plan, column

MESH = ("tp", "pp", "vpp", "dp_replicate", "dp_shard", "zero", "micro_batch_size", "recompute", "sp")
MICRO_BATCHES = (1.0, 2.0, 4.0, 8.0)
CHUNKS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0)
RECOMPUTES = ("none", "selective", "full")
DEFAULT_BATCH_TOKENS = 4 * 1024 * 1024
DEFAULT_SEQ_LEN = 8192


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
    if head == "none":
        return (0.0, 0.0, 0.0, 0.0)
    operators = tuple(tail.split(",")) if tail else selective
    linear = 1.0 if "linear" in operators else 0.5 if "half-linear" in operators else 0.0
    return (0.0, float("attention" in operators), linear, float("elementwise" in operators))


def default_batch(gpus: float, seq_len: float) -> float:
    """Sequences per step when none are given: about 4 Mi tokens, a whole number for every GPU or every 128th of them."""
    sequences = float(np.ceil(DEFAULT_BATCH_TOKENS / seq_len))
    unit = gpus if gpus <= sequences else gpus / np.gcd(int(gpus), 128)
    return float(np.ceil(sequences / unit) * unit)


def open_axes(given: dict[str, Any]) -> list[str]:
    """The axes of a row that are left to the tool."""
    return [name for name in MESH if given.get(name) is None]


def candidates(job: Job, cluster: Cluster, given: dict[str, Any], flat_only: bool | None = None) -> tuple[Plan, list[str]]:
    """All combinations of candidate values for one row's open axes, simplest first, and the recompute name of each.

    ``flat_only``: True keeps tp = pp = 1, False drops it, None keeps all.
    """
    gpus, cp = given["gpus"], given["cp"]
    domain = int(cluster.node.scale_up_size.value)
    listed: list[list[float]] = []
    how: list[str] = []
    recomputes: list[str] = [given["recompute"]] if given.get("recompute") else list(RECOMPUTES)
    for pp in _axis(given, "pp", _divisors(gpus / cp, job.model.num_hidden_layers)):
        for tp in _axis(given, "tp", [t for t in _divisors(gpus / cp / pp, job.model.num_attention_heads) if t <= domain]):
            if flat_only is not None and flat_only != (tp == 1 and pp == 1):
                continue
            dp = gpus / (tp * pp * cp)
            for replicate, shard, zero in _data_parallel(job, given, dp, pp):
                for vpp in _axis(given, "vpp", _chunks(job, pp)):
                    for micro in _axis(given, "micro_batch_size", MICRO_BATCHES):
                        for recompute in recomputes:
                            sp = given["sp"] if given.get("sp") is not None else float(tp > 1)
                            fractions = recompute_columns(recompute, job.framework.selective_recompute)
                            listed.append([tp, pp, vpp, replicate, shard, sp, zero, micro, *fractions])
                            how.append(recompute)
    return _plan(given, np.array(listed, dtype=np.float64).reshape(-1, 12).T), how


def _plan(given: dict[str, Any], c: Any) -> Plan:
    def constant(name: str) -> Any:
        return np.full(c.shape[1], given[name], dtype=np.float64)

    return Plan(
        gpus=constant("gpus"), tp=c[0], pp=c[1], vpp=c[2], cp=constant("cp"), ep=constant("ep"), dp_replicate=c[3], dp_shard=c[4],
        sp=c[5], zero=c[6], micro_batch_size=c[7], global_batch_size=constant("global_batch_size"), seq_len=constant("seq_len"),
        recompute_layers=c[8], recompute_attention=c[9], recompute_linear=c[10], recompute_elementwise=c[11],
    )  # fmt: skip


def _axis(given: dict[str, Any], name: str, usual: Any) -> list[float]:
    value = given.get(name)
    return [float(value)] if value is not None else [float(v) for v in usual]


def _divisors(number: float, also: float) -> list[float]:
    """Powers of two (and three times them) that divide ``number`` and do not exceed ``also``."""
    usual = sorted({float(a * 2**b) for a in (1, 3) for b in range(15)})
    return [v for v in usual if number >= v and number % v == 0 and v <= also] or [1.0]


def _chunks(job: Job, pp: float) -> list[float]:
    """Chunk counts that split a stage's layers evenly, or at least leave none empty where the stages are uneven."""
    layers = np.floor(job.model.num_hidden_layers / pp)
    even = job.model.num_hidden_layers % pp == 0
    return [v for v in CHUNKS if v == 1 or (pp > 1 and v <= layers and (not even or layers % v == 0))]


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


def best_of(job: Job, cluster: Cluster, plan: Plan) -> tuple[int, float, bool, bool]:
    """The index of the candidate to take, its step time, whether it fits, and whether it is legal."""
    kept = rules.legal(rules.legality(job, plan))
    if not kept.any():
        return 0, np.inf, False, False
    index = np.flatnonzero(kept)
    needed = memory(job, cluster, plan.take(index))
    if not needed.fits.any():
        return int(index[np.argmin(needed.device)]), np.inf, False, True
    index = index[needed.fits]
    times = step(job, cluster, plan.take(index)).tree.value
    times = np.where(np.isfinite(times), times, np.inf)
    chosen = int(np.argmin(times))
    return int(index[chosen]), float(times[chosen]), True, True


@dataclass(frozen=True)
class Placed:
    """A row's plan (columns of length one), the framework that runs it and what was chosen."""

    plan: Plan
    framework: str
    recompute: str
    chosen: tuple[str, ...]


def place(jobs: Callable[[str], Job], cluster: Cluster, given: dict[str, Any], framework: str | None) -> Placed:
    """The plan of one row. With no framework given, pipelines and tensor parallel run on megatron, the rest on fsdp."""
    tries: list[tuple[str, bool | None]]
    if framework is not None:
        tries = [(framework, None)]
    elif given["gpus"] == 1:
        tries = [("fsdp", None)]
    else:
        tries = [("fsdp", True), ("megatron", False)]
    options: list[tuple[tuple[bool, bool, float], int, Placed]] = []
    for name, flat_only in tries:
        plan, how = candidates(jobs(name), cluster, given, flat_only)
        if not how:
            continue
        index, time, fits, legal = best_of(jobs(name), cluster, plan) if len(how) > 1 else (0, 0.0, True, True)
        options.append(((not legal, not fits, time), len(options), Placed(plan.take([index]), name, how[index], tuple(open_axes(given)))))
    if not options:  # the given axes leave no combination: keep them and let the rules say which they break
        name = framework or "megatron"
        plan, how = candidates(jobs(name), cluster, {**given, "tp": given.get("tp") or 1.0, "pp": given.get("pp") or 1.0})
        return Placed(plan.take([0]), name, how[0], tuple(open_axes(given)))
    return min(options, key=lambda o: (o[0], o[1]))[2]


def stack(plans: list[Plan]) -> Plan:
    """Plans of length one as one plan of columns."""
    first = plans[0]
    return replace(first, **{f.name: column([getattr(p, f.name).item() for p in plans]) for f in fields(first)})
