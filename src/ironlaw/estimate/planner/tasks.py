"""Tasks: one job on one cluster with its legal mesh rows, for every combination of values that need another job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from ironlaw.catalog.records import Framework
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.estimate.bind.question import Bound
from ironlaw.estimate.pipeline.schedules import one_chunk
from ironlaw.estimate.planner.grid import Task
from ironlaw.estimate.planner.mesh import mesh_rows
from ironlaw.estimate.planner.space import VARIANTS, Space, context_ranks
from ironlaw.frozen import same_but
from ironlaw.job import Job
from ironlaw.question import defaults
from ironlaw.question.defaults import OVERLAPS
from ironlaw.question.words import layers_named

DEEP_EP = ("hopper", "blackwell")  # architectures that DeepEP and HybridEP run on


def methods_of(space: Space, seq_len: float) -> tuple[str, ...]:
    """The methods of context parallelism to try: the default alone where cp is fixed at 1 or sequences are short."""
    methods = space.of("cp_method")
    if methods != "by length":
        return methods or (defaults.CP_METHOD,)
    many = space.of("cp") not in (None, (1.0,)) and seq_len >= defaults.LONG_SEQUENCE
    return defaults.CP_METHODS if many else defaults.CP_METHODS[:1]


def offered(space: Space, bound: Bound, framework: Framework) -> Space:
    """The space that ships without what the framework, the model or the device does not have; a space of the user's as it is."""
    if space.own:
        return space
    overlaps = {f"overlap_{name.replace('-', '_')}" for name in (*framework.overlap, *framework.may_overlap)}
    routed, modern = bool(bound.model.num_experts), bound.cluster.accelerator.architecture in DEEP_EP
    has = {
        "schedule": framework.schedules,
        "moe_dispatcher": framework.dispatchers if routed and modern else framework.dispatchers[:1],
        "cuda_graphs": (defaults.CUDA_GRAPH, *framework.cuda_graphs),
        "gradient_dtype": framework.gradient_dtypes,
        "weights_dtype": framework.weights_dtypes,
        "vpp": () if "interleaved" in framework.schedules else (1.0,),
        **{f"overlap_{name.replace('-', '_')}": (0.0,) for name in OVERLAPS if f"overlap_{name.replace('-', '_')}" not in overlaps},
    }
    open_axes = {axis: set(values) for axis, values in has.items() if values and axis in space.values and axis not in space.given}
    values = {axis: tuple(v for v in space.values[axis] if v in having) for axis, having in open_axes.items()}
    return replace(space, values={**space.values, **{axis: kept for axis, kept in values.items() if kept}})


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


def task_of(space: Space, bound: Bound, job: Job, sizes: Mapping[str, float], others: Sequence[Task] = ()) -> Task:
    """A task with the legal mesh rows of a usable space; ``sizes`` are the number of accelerators, the batch and the sequence length.

    The rows are those of another task of these sizes whose job has another dispatcher alone: no rule reads it.
    """
    alike = (task for task in others if task.space == space and same_but(task.job, job, "moe_dispatcher"))
    mesh = next((task.mesh for task in alike), None) or mesh_rows(space, job, **sizes)
    return Task(job, bound.cluster, mesh, space, sizes["global_batch_size"], sizes["seq_len"], bound.margin(job.framework.name))
