"""Rows of a question: which axes they give, what follows from them by rule, and the columns of a Plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.bind.question import Bound
from ironlaw.estimate.pipeline.schedules import one_chunk
from ironlaw.estimate.planner.space import ENDS, MESH, VARIANTS, Space
from ironlaw.job import Job
from ironlaw.plan import BY_RULE, RECOMPUTE, Plan, flags, recompute_columns
from ironlaw.question import defaults
from ironlaw.question.asked import Asked
from ironlaw.question.defaults import OFFLOADS, OVERLAPS
from ironlaw.question.fields import Row

LAYOUT = ("tp", "pp", "vpp", "ep", "zero", "micro_batch_size", "recompute")  # a plan is given where these are: the rest has rules
RULED = ("cp", "etp", "sp", "overlap", "offload", *ENDS)
LAYOUT_AXES = ("tp", "pp", "vpp", "ep", "dp_replicate", "dp_shard", "zero", "micro_batch_size", "recompute", "sp")
OPEN_AXES = (*LAYOUT_AXES, "cp", "etp", "overlap", "offload", *ENDS)  # an answer says what was chosen in this order


def columns_of(axis: str) -> tuple[str, ...]:
    """The axes of a space that set one option."""
    names = {"overlap": OVERLAPS, "offload": OFFLOADS}.get(axis)
    return tuple(flags(axis, names, ())) if names else (axis,)


def given_axes(asked: Asked, row: Row) -> dict[str, Any]:
    """The axes of the search that a row gives, with their values."""
    given: dict[str, Any] = {name: getattr(asked, name) for name in VARIANTS if name in asked.given}
    for name in (*MESH, "zero", "recompute"):
        if getattr(row, name) is not None:
            given[name] = getattr(row, name)
    if row.sp is not None:
        given["sp"] = float(row.sp)
    for prefix, names, on in (("overlap", OVERLAPS, row.overlap), ("offload", OFFLOADS, row.offload)):
        if on is not None:
            given |= flags(prefix, names, on)
    return given


def with_implied(row: Row, schedule: str | None) -> Row:
    """A row with the axes that the other axes decide.

    They are the last free one of tp and pp; all that are free where the others use up the accelerators; and one chunk without interleaving.
    """
    axes = ("tp", "pp", "cp", "dp_replicate", "dp_shard")
    free = [axis for axis in axes if getattr(row, axis) is None]
    left = (row.gpus or 1.0) / prod(getattr(row, axis) or 1.0 for axis in axes)
    implied: dict[str, Any] = {}
    if left == 1.0:
        implied = dict.fromkeys(free, 1.0)
    elif [axis for axis in free if axis != "cp"] in (["tp"], ["pp"]):
        implied = {"cp": row.cp or defaults.CP, free[0]: max(np.floor(left), 1.0)}
    if row.vpp is None and (one_chunk(schedule) or 1.0 in (row.pp, implied.get("pp"))):
        implied["vpp"] = 1.0
    return row._replace(**implied)


def is_given(row: Row, model: Model) -> bool:
    """True where a row gives a whole plan, so that nothing is searched; a dense model has no experts to place."""
    return all(getattr(row, axis) is not None for axis in LAYOUT if axis != "ep" or model.num_experts)


def row_of_space(space: Space, row: Row, schedule: str | None) -> Row:
    """A row with the mesh that a space fixes, and the axes that the mesh decides."""
    fixed = {name: space.values[name][0] for name in space.given if not space.varies(name)}
    return with_implied(row._replace(**{n: v for n, v in fixed.items() if n in (*MESH, "zero", "recompute")}), schedule)


def given_space(space: Space, bound: Bound, job: Job, gpus: float) -> Space:
    """A space in which a plan is fixed, as that plan alone: the axes that it leaves out follow their rules.

    Chunks are searched where they alone are open: a plan without interleaving has no reason to give them.
    """
    row = row_of_space(space, Row(gpus=gpus), bound.asked.schedule)
    if not is_given(row._replace(vpp=row.vpp or 1.0), job.model):
        return space
    fixed = {name: space.values[name][0] for name in space.given if not space.varies(name)}
    ruled = {name for axis in RULED for name in columns_of(axis)} - fixed.keys()
    others = replace(space, values={axis: values for axis, values in space.values.items() if axis not in ruled})
    ruled_values = given_axes(bound.asked, close_by_rule(job, row))
    if row.vpp is None:
        del ruled_values["vpp"]
    return others.narrowed({**ruled_values, **fixed})


def close_by_rule(job: Job, row: Row) -> Row:
    """A row with every axis that is left open at its default: what is not split has 1, data parallel takes the rest of the ranks."""
    closed: dict[str, Any] = {
        name: 1.0 if getattr(row, name) is None else getattr(row, name) for name in ("tp", "pp", "vpp", "ep", "micro_batch_size")
    }
    closed |= {"cp": row.cp or defaults.CP, "etp": row.etp or defaults.ETP, "recompute": row.recompute or "none"}
    zero = float(job.framework.default_zero) if row.zero is None else row.zero
    ranks = (row.gpus or 1.0) / (closed["tp"] * closed["pp"] * closed["cp"])
    replicate, shard = row.dp_replicate, row.dp_shard
    if replicate is None and shard is None:
        replicate, shard = (ranks, 1.0) if zero == 0 else (1.0, ranks)
    elif replicate is None:
        replicate = ranks / float(shard or 1.0)
    elif shard is None:
        shard = ranks / float(replicate)
    return row._replace(
        **closed,
        zero=1.0 if zero == 0 and (shard or 1.0) > 1.0 and row.zero is None else zero,
        dp_replicate=replicate,
        dp_shard=shard,
        sp=closed["tp"] > 1.0 and job.framework.able.sp if row.sp is None else row.sp,
        overlap=frozenset(job.framework.overlap) if row.overlap is None else row.overlap,
        offload=row.offload or frozenset(),
    )


def row_of(row: Row, values: Mapping[str, Any]) -> Row:
    """A row with the values of a plan that a search found."""
    numbers = {name: float(values[name]) for name in (*MESH, "zero") if name not in ENDS}
    return row._replace(
        **numbers,
        **{name: None if values[name] < 0.0 else float(values[name]) for name in ENDS},
        sp=bool(values["sp"]) and bool(values["tp"] > 1.0 or row.sp),
        recompute=str(values["recompute"]),
        overlap=frozenset(name for name in OVERLAPS if values[f"overlap_{name.replace('-', '_')}"]),
        offload=frozenset(name for name in OFFLOADS if values[f"offload_{name}"]),
    )


def plan_of_rows(job: Job, rows: Sequence[Row]) -> Plan:
    """The columns of closed rows."""
    names = ("gpus", "global_batch_size", "seq_len", "zero", *(axis for axis in MESH if axis not in ENDS))
    columns = {name: [float(getattr(row, name)) for row in rows] for name in names}
    columns["sp"] = [float(row.sp or 0.0) for row in rows]
    for prefix, all_names in (("overlap", OVERLAPS), ("offload", OFFLOADS)):
        on = [flags(prefix, all_names, getattr(row, prefix)) for row in rows]
        columns |= {name: [row_flags[name] for row_flags in on] for name in on[0]}
    for name in ENDS:
        columns[name] = [BY_RULE if getattr(row, name) is None else getattr(row, name) for row in rows]
    recomputed = np.array([recompute_columns(str(row.recompute), job.framework.selective_recompute) for row in rows]).T
    fractions = dict(zip(RECOMPUTE, recomputed, strict=True))
    return Plan(**fractions, **{name: np.array(column, dtype=np.float64) for name, column in columns.items()})
