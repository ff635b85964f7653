"""Tasks: one job on one cluster with its legal mesh rows, for every combination of values that need another job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.abilities import ANY, Can, has
from ironlaw.catalog.model import Model
from ironlaw.catalog.records import Bands, Framework
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.estimate.bind.objective import runs_passes_of
from ironlaw.estimate.bind.question import Bound
from ironlaw.estimate.evidence.support import has_runs
from ironlaw.estimate.legality.abilities import form_of, has_overlap
from ironlaw.estimate.pipeline.schedules import one_chunk
from ironlaw.estimate.planner.bounds import may_take
from ironlaw.estimate.planner.ends import balanced_rows
from ironlaw.estimate.planner.grid import Task
from ironlaw.estimate.planner.layers import LAYER_CHOICES, LayerTables, jobs_alike
from ironlaw.estimate.planner.mesh import NO_ROWS, mesh_rows
from ironlaw.estimate.planner.published import published_axes
from ironlaw.estimate.planner.space import ENDS, VARIANTS, Space, context_ranks, read_space
from ironlaw.job import Job
from ironlaw.question import defaults
from ironlaw.question.defaults import OFFLOADS, OVERLAPS
from ironlaw.question.words import layers_named


def methods_of(space: Space, seq_len: float) -> tuple[str, ...]:
    """The methods of context parallelism to try: the first alone where cp is fixed at 1 or sequences are short."""
    methods = space.of("cp_method")
    if methods != "by length":
        return methods or (defaults.CP_METHOD,)
    many = space.of("cp") not in (None, (1.0,)) and seq_len >= defaults.LONG_SEQUENCE
    return space.methods if many else space.methods[:1]


def offered(space: Space, bound: Bound, job: Job, seldom: bool = False) -> Space:
    """The space that ships without what the stack, model, objective or device does not have, and, unless ``seldom``, what few run on it.

    Values that the question gives stay, and so does a space of the user's: the rule ``stack_can`` has the last word.
    """
    if space.own:
        return space
    framework = job.framework
    can = framework.able.replace(seldom=()) if seldom else framework.able
    own = (defaults.DISPATCHERS[0], *(bound.cluster.accelerator.dispatchers if bound.model.num_experts else ()))
    dispatchers = defaults.DISPATCHERS if can.dispatchers == ANY or "ep" in _missing_axes(can) else can.dispatchers
    known = {
        "schedule": can.schedules,
        "moe_dispatcher": dispatchers[:1]
        if "ep" in _missing_axes(can)
        else tuple(name for name in dispatchers if name in own) or dispatchers[:1],
        "cuda_graphs": can.cuda_graphs if can.cuda_graphs == ANY else (defaults.CUDA_GRAPH, *can.cuda_graphs),
        "gradient_dtype": can.gradient_dtypes,
        "weights_dtype": framework.weights_dtypes or ANY,
    }
    tried = {axis: list(values) for axis, values in space.values.items() if isinstance(values, tuple) and axis not in space.given}
    tried |= {axis: [1.0] for axis in _missing_axes(can) & space.values.keys() - space.given}
    for axis, names in known.items():
        if axis in tried:
            tried[axis] = [name for name in tried[axis] if has(names, name) and f"{axis} {name}" not in can.seldom]
    if "schedule" in tried:
        tried["schedule"] = [name for name in tried["schedule"] if runs_passes_of(job.objective, name)]
    for axis, holds in {
        "zero": lambda stage: stage in can.zero and f"zero {stage:g}" not in can.seldom,
        "recompute": lambda how: has(can.recompute, form_of(how)),
        "sp": lambda on: can.sp if on else not (can.sp_with_experts and bound.model.num_experts),
        **{f"overlap_{n.replace('-', '_')}": _may_be(_proposes(framework, can, n, bound.model)) for n in OVERLAPS},
        **{f"offload_{n}": _may_be(has(can.offload, n) and f"offload {n}" not in can.seldom) for n in OFFLOADS},
    }.items():
        if axis in tried:
            tried[axis] = [value for value in tried[axis] if holds(value)]
    unequal = ENDS if can.stages == "any" else ()
    given = space.given | space.values.keys() - tried.keys() - set(ENDS)
    values = {axis: values for axis, values in space.values.items() if axis in given or axis in unequal}
    values |= {axis: tuple(kept) for axis, kept in tried.items() if kept and (axis not in ENDS or axis in unequal)}
    return replace(space, values=values, methods=tuple(m for m in defaults.CP_METHODS if has(can.cp, m)) or defaults.CP_METHODS[:1])


def _proposes(framework: Framework, can: Can, overlap: str, model: Model) -> bool:
    """True where a stack overlaps by habit, or has an overlap of a model that people run."""
    return overlap in framework.overlap or (has_overlap(can, overlap, model) and f"overlap {overlap}" not in can.seldom)


def _may_be(there: bool) -> Callable[[float], bool]:
    """Whether a switch may have a value: on only where the stack has it."""
    return lambda on: there or not on


def _missing_axes(can: Can) -> set[str]:
    """The axes of the mesh that are 1 in every plan of a stack: those that it lacks, and those that few people run."""
    lacks = {"tp": not can.tp, "pp": not can.pp, "cp": not can.cp, "ep": not can.ep, "etp": not can.etp}
    missing = {axis for axis, gone in lacks.items() if gone or axis in can.seldom}
    return missing | {"vpp"} if can.chunks == "one" or "pp" in missing else missing


def variants_of(space: Space, seq_len: float, given: Collection[str] = ()) -> list[dict[str, Any]]:
    """Every combination of the values of axes that need another job or another cluster, but of those that are ``given``.

    An axis whose only value is the default of a question is left out; the default schedule, which interleaves, has no name.
    """
    varied = {axis: space.of(axis) for axis in VARIANTS if space.of(axis) and axis not in given}
    if not space.own:
        usual = ((defaults.SCHEDULE,), (defaults.DISPATCHER,))
        varied = {axis: values for axis, values in varied.items() if axis in space.given or values not in usual}
        if "schedule" in varied and "schedule" not in space.given:
            varied["schedule"] = tuple(None if name == defaults.SCHEDULE else name for name in varied["schedule"])
    if varied.get("cp_method") == "by length":
        varied["cp_method"] = methods_of(space, seq_len)
        if len(varied["cp_method"]) == 1:
            del varied["cp_method"]
    return [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]


def usable_space(space: Space, bound: Bound, gpus: float, seq_len: float) -> Space:
    """A space without the values that this job or this number of accelerators cannot have."""
    values, model, schedule = dict(space.values), bound.model, bound.asked.schedule
    hows = values.get("recompute")
    if hows:
        possible = [how for how in hows if layers_named(how) <= model.num_hidden_layers]
        if not possible:
            raise ValueRangeError(f"--recompute {hows[0]}: {model.name} has only {model.num_hidden_layers} layers")
        values["recompute"] = tuple(possible)
    if values.get("cp") == "by length":
        values["cp"] = context_ranks(seq_len, gpus)
    methods = methods_of(space, seq_len)
    if bound.asked.cp_method in methods[1:]:  # with one rank the methods are alike: the first method has those plans
        values["cp"] = tuple(ranks for ranks in values.get("cp", ()) if ranks > 1.0)
    if not space.own and not space.given & {"moe_dispatcher"} and bound.asked.moe_dispatcher != defaults.DISPATCHER:
        values["ep"] = tuple(ranks for ranks in values["ep"] if ranks > 1.0)  # with one rank the dispatchers are alike
    if "vpp" in values and one_chunk(schedule):
        if 1.0 not in values["vpp"]:
            raise QuestionError(f"--schedule {schedule} has one chunk per rank, vpp is fixed at {values['vpp'][0]:g}: use interleaved")
        values["vpp"] = (1.0,)
    return replace(space, values=values)


def price_of(job: Job, folders: tuple[str, ...]) -> float:
    """What a value that no published run of a job's kind measured must be faster by: the difference below which order is noise.

    1 where there is no run of its kind, which tells no two plans apart. Plans of a space that a question gives are compared by time alone.
    """
    record: Bands = load.record("bands", "default", folders)
    return 1.0 + record.told_apart.value if has_runs(job) else 1.0


def task_of(
    space: Space,
    bound: Bound,
    job: Job,
    sizes: Mapping[str, float],
    others: Sequence[Task] = (),
    within: float = np.inf,
    tables: LayerTables | None = None,
) -> Task:
    """A task with the legal mesh rows of a usable space; ``sizes`` are the number of accelerators, the batch and the sequence length.

    The rows are those of another task of these sizes whose job has another dispatcher alone, which sends alike: layers are as long, so
    stages have the same splits. Where it is known that plans which take more than ``within`` seconds are not wanted, rows all of whose
    plans do are left out. ``tables``: times of layers that tasks share.
    """
    margin, price = bound.margin(job.framework.name), 1.0 if space.own else price_of(job, bound.folders)
    published = published_axes(bound, job, sizes, space) if price > 1.0 else ()
    batch, seq_len, opened = sizes["global_batch_size"], sizes["seq_len"], _open_space(space, bound, job)
    task = Task(job, bound.cluster, NO_ROWS, space, batch, seq_len, margin, price, published, opened, tables)
    alike = (other.mesh for other in others if other.space == space and jobs_alike(other.job, job))
    keep = partial(may_take, task, within) if np.isfinite(within) else None
    return task.replace(mesh=next(alike, None) or mesh_rows(space, job, **sizes, balance=partial(balanced_rows, task), keep=keep))


def _open_space(space: Space, bound: Bound, job: Job) -> Space | None:
    """A usable space with all values of the choices that layers read, also where the question gives one; None where it gives none."""
    fixed = space.given & {"recompute", *LAYER_CHOICES}
    if space.own or not fixed:
        return None
    shipped = read_space(None)
    values = {axis: tuple(dict.fromkeys((*space.values[axis], *shipped.values[axis]))) for axis in fixed}
    return offered(replace(space, values={**space.values, **values}, given=space.given - fixed), bound, job)
