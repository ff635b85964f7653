"""Published layouts near a job: which there are, their axes on its sizes, and which plans of a search have them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import gcd
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.records import Layout
from ironlaw.divisors import divisors
from ironlaw.estimate.bind.question import Bound
from ironlaw.estimate.evidence.support import NEAR, NEAR_LENGTH, model_kind, stack_kind
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.planner.space import ENDS, Space
from ironlaw.job import Job
from ironlaw.plan import BY_RULE
from ironlaw.question.defaults import OVERLAPS

SHOWN = 2
AXES = ("tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch_size", "zero", "recompute")
_left_out: ContextVar[frozenset[str]] = ContextVar("left_out", default=frozenset())  # runs whose layouts are not used


@contextmanager
def without_runs(runs: Collection[str]) -> Iterator[None]:
    """Answer as if layouts that any of these runs had were not published: a run is not scored by its own layout."""
    token = _left_out.set(frozenset(runs))
    try:
        yield
    finally:
        _left_out.reset(token)


def layouts_near(bound: Bound, job: Job, sizes: Mapping[str, float], fixed: Mapping[str, Collection[Any]]) -> list[Layout]:
    """The published layouts nearest to a job: of its kind of model within NEAR of its parameters, on its kind of device and stack.

    Those on the device itself, where there are any; sequences are within NEAR_LENGTH. The nearest in parameters come first, then those that
    ran in the job's precision, then the nearest number of accelerators. ``fixed``: the values that are allowed, by axis.
    """
    accelerator = bound.cluster.accelerator
    if accelerator.architecture not in load.names("layouts", bound.folders):
        return []
    parameters, kind = float(np.ravel(total_parameters(bound.model))[0]), model_kind(job)
    listed: tuple[Layout, ...] = load.record("layouts", accelerator.architecture, bound.folders).layout
    alike = [
        layout
        for layout in listed
        if layout.kind == kind
        and apart(layout.parameters.value, parameters) <= np.log(NEAR)
        and apart(layout.seq_len, sizes["seq_len"]) <= np.log(NEAR_LENGTH)
        and _engine(layout.framework, bound.folders) == stack_kind(job)
        and all(getattr(layout, axis) in values for axis, values in fixed.items() if axis in AXES)
        and not _left_out.get() & {*layout.runs}
    ]
    alike = [layout for layout in alike if layout.on == accelerator.name] or alike
    return sorted(alike, key=partial(_distance, parameters, job.precision.name, sizes["gpus"]))[:SHOWN]


def _distance(parameters: float, precision: str, gpus: float, layout: Layout) -> tuple[Any, ...]:
    """How far a layout's runs are from a job, what counts most first."""
    counts = min(apart(count, gpus) for count in layout.gpus)
    return round(apart(layout.parameters.value, parameters), 2), precision not in layout.precisions, counts


def apart(value: float, other: float) -> float:
    """The absolute log ratio of two sizes."""
    return abs(float(np.log(value / other)))


def _engine(framework: str, folders: tuple[str, ...]) -> str:
    """What splits the work of a framework."""
    return load.record("frameworks", framework, folders).engine or framework


def axes_on(job: Job, sizes: Mapping[str, float], layout: Layout) -> dict[str, Any]:
    """The axes of a layout on a job: chunks that divide its layers, as near the published number as there are, and a micro-batch that
    divides the sequences of a data-parallel rank."""
    axes = {name: float(getattr(layout, name)) for name in AXES[:-1] if name not in ("ep", "etp") or job.model.num_experts}
    layers = job.model.num_hidden_layers + (2.0 if layout.count_embedding else 0.0)
    if layout.vpp > 1 and layers % layout.pp == 0 and layers % (layout.pp * layout.vpp):
        axes["vpp"] = float(min(divisors(int(layers // layout.pp)), key=lambda chunks: apart(chunks, layout.vpp)))
    ranks = sizes["gpus"] / (axes["tp"] * axes["pp"] * axes["cp"])
    sequences = sizes["global_batch_size"] / ranks
    if sequences.is_integer():
        axes["micro_batch_size"] = float(gcd(int(sequences), layout.micro_batch_size))
    return axes | ({"recompute": layout.recompute} if layout.recompute else {})


def _overlaps_of(job: Job, layout: Layout, axes: Mapping[str, Any]) -> dict[str, float]:
    """The overlaps of a layout on a job that its stack does not have by default; off where there are no two ranks that they are for."""
    more = [name for name in OVERLAPS if name not in job.framework.overlap and name in axes]
    return {f"overlap_{name}": float(name in layout.overlap and axes[name] > 1.0) for name in more}


def given_values(space: Space) -> dict[str, tuple[Any, ...]]:
    """The values of the axes that a question fixes in a space; an axis that has a word for its values is open."""
    return {axis: values for axis in space.given if isinstance(values := space.of(axis), tuple) and values}


def published_axes(bound: Bound, job: Job, sizes: Mapping[str, float], space: Space) -> tuple[Mapping[str, Any], ...]:
    """The axes of the published layouts near a job that a plan of a space must have to be one of them; none in a space of the user's.

    Stages are equal where the layers divide; where they do not, those of a layout are not published.
    """
    if space.own or job.layers_per_stage:
        return ()
    near = ((layout, axes_on(job, sizes, layout)) for layout in layouts_near(bound, job, sizes, given_values(space)))
    return tuple(axes | _ends_of(job, layout, axes) | _overlaps_of(job, layout, axes) for layout, axes in near)


def _ends_of(job: Job, layout: Layout, axes: Mapping[str, Any]) -> dict[str, float]:
    """The layers of the end stages of a layout on a job; nothing where its stages are unequal."""
    counted = layout.count_embedding and not job.count_embedding
    layers, parts = job.model.num_hidden_layers + 2.0 * (counted or job.count_embedding), axes["pp"] * axes["vpp"]
    if axes["pp"] == 1.0 or layers % parts:
        return {}
    return dict.fromkeys(ENDS, layers / axes["pp"] - 1.0 if counted else BY_RULE)


def is_published(published: Collection[Mapping[str, Any]], columns: Mapping[str, Any]) -> Any:
    """True for the rows of some columns that have all axes of a published layout, of those that there are columns of."""
    found: Any = np.zeros(len(columns["tp"]), dtype=bool)
    for axes in published:
        same: Any = np.True_
        for axis, value in axes.items():
            if axis in columns:
                same = same & (columns[axis] == value)
        found = found | same
    return found
