"""Mesh rows: every layout of a number of accelerators over the axes that change the shapes of a step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from ironlaw.divisors import divisors
from ironlaw.errors import SpaceError
from ironlaw.estimate.legality import rules
from ironlaw.estimate.pipeline.schedules import schedule_of
from ironlaw.estimate.planner.space import ENDS, Space
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.plan import BY_RULE, Plan

COLUMNS = ("gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "micro_batch_size", *ENDS)
ORDER = ("gpus", "tp", "pp", "cp", "dp_replicate", "dp_shard", "micro_batch_size", "vpp", "ep", "etp", *ENDS)  # the first varies slowest
MOST_ROWS = 3_000_000
FEW, MANY = 1 << 12, 5 << 12  # rows above which it pays to ask whether they are wanted: before their layers are split, and without


class Mesh(Frozen):
    """Legal mesh rows as columns by name, and the number of rows that each rule rejected."""

    columns: dict[str, Any]
    rejected: dict[str, int]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.columns["gpus"].size)


NO_ROWS = Mesh({name: np.empty(0) for name in COLUMNS}, {})  # of a task whose rows are not yet made


def mesh_rows(
    space: Space,
    job: Job,
    gpus: float,
    global_batch_size: float,
    seq_len: float,
    balance: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    keep: Callable[[dict[str, Any]], Any] | None = None,
) -> Mesh:
    """The legal rows of one number of accelerators; ``balance`` splits the layers of rows whose last stage the space balances.

    ``keep`` is true for the rows that are wanted, however their layers are split; the others are left out before they are split.
    """
    blocks: list[Any] = [np.empty((0, len(ORDER)))]
    ends = _end_layers(space)
    rows = 0
    for tp, cp in product(_values_to_try(space, "tp", gpus), _values_to_try(space, "cp", gpus)):
        if gpus % (tp * cp):
            continue
        for pp in _values_to_try(space, "pp", gpus / (tp * cp), float(job.model.num_hidden_layers)):
            if job.layers_per_stage and pp != len(job.layers_per_stage):
                continue
            dp = gpus / (tp * cp * pp)
            if dp != int(dp) or global_batch_size % dp:
                continue
            blocks.append(_inner_rows(space, job, (gpus, tp, pp, cp), dp, global_batch_size, ends))
            rows += len(blocks[-1])
            check_number(rows, gpus)
    columns = {name: np.concatenate([block[:, ORDER.index(name)] for block in blocks]) for name in COLUMNS}
    del blocks  # a space with millions of rows takes most of its memory here
    balanced = balance is not None and space.of("last_stage_layers") == "balanced"
    if keep is not None and rows > (FEW if balanced else MANY):
        wanted = keep(columns)
        columns = {name: column[wanted] for name, column in columns.items()}
    if balance is not None and balanced and columns["gpus"].size:
        columns = balance(columns)
    legal, rejected = _check_rules(space, job, columns, global_batch_size, seq_len)
    return Mesh({name: column[legal] for name, column in columns.items()}, rejected)


def _end_layers(space: Space) -> list[tuple[float, float]]:
    """Layers of the first and last stage to try: by the rule for all stages where the space does not list them."""
    listed = (() if space.of(axis) == "balanced" else space.of(axis) for axis in ENDS)
    return list(product(*(values or (BY_RULE,) for values in listed)))


def _inner_rows(space: Space, job: Job, outer: tuple[float, ...], dp: float, batch: float, ends: list[tuple[float, float]]) -> Any:
    """The rows of one choice of tp, pp and cp: replicas and shards, micro-batches, chunks, experts."""
    _, tp, pp, cp = outer
    shards, chunks = space.of("dp_shard"), [v for v in _values_to_try(space, "vpp", 1.0) if v == 1 or pp > 1]
    if not schedule_of(job).takes_chunks:
        chunks = [v for v in chunks if v == 1]
    replicas = _values_to_try(space, "dp_replicate", dp)
    if space.of("dp_replicate") is None and 0.0 in (space.of("zero") or (float(job.framework.default_zero),)):
        replicas = tuple(dict.fromkeys((1.0, dp)))  # without ZeRO all ranks are replicas
    split = [(r, dp / r) for r in replicas if dp % r == 0 and (shards in (None, "all") or dp / r in shards)]
    micros = [m for m in _values_to_try(space, "micro_batch_size", batch / dp) if (batch / dp) % m == 0]
    ranks, count = tp * cp * dp, job.model.num_experts
    experts = list(product(_values_to_try(space, "ep", 1.0), _values_to_try(space, "etp", 1.0)))
    # a dense model has 1 of each: the rules reject any other
    experts = [(ep, etp) for ep, etp in experts if count % ep == 0 and ranks % (ep * etp) == 0] if count else [min(experts)]
    # interleaving needs whole groups of pp micro-batches; the rules check the rest
    run = [(m, v) for m, v in product(micros, chunks) if v == 1 or job.microbatch_group or (batch / dp / m) % pp == 0]
    check_number(len(split) * len(run) * len(experts) * len(ends), outer[0])  # before the list takes all memory
    axes = [np.array(pairs).reshape(-1, 2) for pairs in (split, run, experts, ends)]  # every combination, the last varying fastest
    table = np.empty((*(len(pairs) for pairs in axes), len(ORDER)))
    table[..., : len(outer)] = outer
    for at, pairs in enumerate(axes):
        table[..., len(outer) + 2 * at : len(outer) + 2 * at + 2] = pairs.reshape(*(-1 if axis == at else 1 for axis in range(4)), 2)
    return table.reshape(-1, len(ORDER))


def check_number(rows: int, gpus: float) -> None:
    """Raise SpaceError where a count of accelerators has more than MOST_ROWS mesh rows."""
    if rows > MOST_ROWS:
        raise SpaceError(f"more than {MOST_ROWS:,} mesh rows at {gpus:g} gpus: narrow the space (--fix, --forbid, --space)")


def _values_to_try(space: Space, axis: str, number: float, most: float = np.inf) -> tuple[float, ...] | list[float]:
    """The values of an axis, for a word the values of ``number`` that it stands for; 1 for an axis that is not varied."""
    values = space.of(axis)
    if values is None:
        return (1.0,)
    if values == "all":
        return [v for v in divisors(int(number)) if v <= most]
    if values == "powers of two":
        return [2.0**power for power in range(int(number).bit_length())]
    return [v for v in values if v <= most]


def _check_rules(space: Space, job: Job, columns: dict[str, Any], global_batch_size: float, seq_len: float) -> tuple[Any, dict[str, int]]:
    """Which rows break no rule and are not forbidden, and how many each rule rejects."""
    rows = columns["gpus"].size
    legal, rejected = np.ones(rows, dtype=bool), {}
    plan = plan_of(columns, global_batch_size, seq_len)
    for name, column in rules.legality(job, plan, COLUMNS).items():
        rejected[name] = rows - int(np.count_nonzero(np.broadcast_to(column, (rows,))))
        legal &= column
    for rule in space.forbidden:
        if rule.axis in columns:
            legal &= ~rule.holds(columns[rule.axis])
    return legal, {name: count for name, count in rejected.items() if count}


def plan_of(columns: dict[str, Any], global_batch_size: float, seq_len: float, **choices: Any) -> Plan:
    """The Plan of mesh columns and choices; a choice that is missing is off, zero is 1."""
    off = dict.fromkeys(
        (
            "recompute_layers", "recompute_attention", "recompute_linear", "recompute_elementwise", "overlap_grad_reduce",
            "overlap_param_gather", "overlap_tp", "overlap_pp", "overlap_ep", "offload_optimizer",
            "offload_activations", "offload_parameters", "offload_nvme",
        ),
        0.0,
    )  # fmt: skip
    off |= dict.fromkeys(ENDS, BY_RULE)
    named = {**off, "sp": 1.0 * (columns["tp"] > 1), "zero": 1.0, **columns, **choices}
    return Plan(global_batch_size=np.float64(global_batch_size), seq_len=np.float64(seq_len), **named)
