"""Which layers a pipeline stage holds: classes of equal stages, so that no plan needs an axis of stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ironlaw.plan import Job, Plan


@dataclass(frozen=True, eq=False, repr=False)
class Stage:
    """A class of equal stages: columns of its first stage's index and layer, its layers, and how many stages it stands for."""

    name: str
    index: Any
    start: Any  # the first of its layers, counted from 0
    layers: Any
    count: Any
    embedding: Any  # 1 where it holds the embedding
    head: Any  # 1 where it holds the output layer and the loss
    shadowed: bool = False  # never slower nor fuller than the first class: as many layers, no more in flight, no embedding


def stages(job: Job, plan: Plan) -> list[Stage]:
    """The classes of equal stages of every plan.

    Layers that do not divide: the remainder goes to the middle stages, one each; what is left, to the first. With
    ``count_embedding`` the embedding and the loss take a layer's place each. An explicit list of layers wins.
    """
    if job.layers_per_stage:
        return _explicit(job, plan)
    one = np.ones_like(plan.pp)
    single = np.where(plan.pp == 1, 1.0, 0.0)
    counted = 1.0 if job.count_embedding else 0.0
    slots = job.model.num_hidden_layers + 2.0 * counted
    base = np.floor(slots / plan.pp)
    remainder = slots - base * plan.pp
    middles = np.maximum(plan.pp - 2.0, 0.0)
    longer = np.minimum(remainder, middles)
    first = base + (remainder - longer) - counted - single * counted
    uneven = job.count_embedding or job.model.first_k_dense_replace or job.model.frozen_layers
    uneven = uneven or job.model.wide_layers_at_start or job.model.wide_layers_at_end
    alike = not uneven and not np.any(remainder)
    made = [
        Stage("first", 0.0 * one, 0.0 * one, first, one, one, single),
        Stage("longer middle", one, first, base + one, longer, 0.0 * one, 0.0 * one),
        Stage("middle", 1.0 + longer, first + longer * (base + one), base, middles - longer, 0.0 * one, 0.0 * one, alike),
        Stage("last", plan.pp - 1.0, job.model.num_hidden_layers - (base - counted), base - counted, 1.0 - single, 0.0 * one, one),
    ]
    return made[:1] + [stage for stage in made[1:] if (stage.count > 0).any()]  # a class no plan of the batch has costs nothing


def _explicit(job: Job, plan: Plan) -> list[Stage]:
    one = np.ones_like(plan.pp)
    last = len(job.layers_per_stage) - 1
    return [
        Stage(f"stage {i}", i * one, sum(job.layers_per_stage[:i]) * one, layers * one, one, one * (i == 0), one * (i == last))
        for i, layers in enumerate(job.layers_per_stage)
    ]


def offloaded_share(job: Job, stage: Stage) -> Any:
    """Of a stage's layers, the share whose activations go to the host."""
    if not job.offload_layers:
        return 1.0
    return np.minimum(job.offload_layers / np.maximum(stage.layers, 1.0), 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Pace:
    """The class of stages that sets the pace, by row: an index into ``classes``."""

    classes: tuple[Stage, ...]
    which: Any

    def of(self, read: Callable[[Stage], Any]) -> Any:
        """``read`` of the pace-setting class of every row. Each class is read at its own shape, then one is picked."""
        return self.pick([read(stage) for stage in self.classes])

    def pick(self, values: Sequence[Any]) -> Any:
        """Of one value a class, the pace-setting class's in every row."""
        chosen = values[0]
        for mask, value in zip(self._masks, values[1:], strict=True):
            chosen = np.where(mask, value, chosen)
        return chosen

    def stacked(self, values: Sequence[Any]) -> Any:
        """One value a class on an axis in front of all others: a law that takes them is called once for all classes."""
        column = np.stack(np.broadcast_arrays(*values))
        return column.reshape((len(values), *(1,) * (np.ndim(self.which) + 1 - column.ndim), *column.shape[1:]))

    @cached_property
    def _masks(self) -> list[Any]:
        return [self.which == i for i in range(1, len(self.classes))]


def slowest(classes: list[Stage], times: list[Any]) -> Pace:
    """The class with the largest of ``times`` in every row; the first of equals."""
    running = [(stage, time) for stage, time in zip(classes, times, strict=True) if not stage.shadowed]
    best, which = np.where(classes[0].count > 0, times[0], -1.0), 0.0 * times[0]
    for i, (stage, time) in enumerate(running[1:], 1):
        better = (stage.count > 0) & (time > best)
        best, which = np.where(better, time, best), np.where(better, float(i), which)
    return Pace(tuple(stage for stage, _ in running), which)
