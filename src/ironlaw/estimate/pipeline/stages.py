"""Layers of each pipeline stage, as classes of equal stages, so that no plan needs an axis of stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.pipeline.schedules import schedule_of
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.plan import Plan


class Stage(Frozen):
    """A class of equal stages, as columns over the plans."""

    name: str
    index: Any  # of its first stage
    start: Any  # the first layer of its first stage, counted from 0
    layers: Any  # of each stage
    count: Any  # stages of the class
    embedding: Any  # 1 where it holds the embedding
    head: Any  # 1 where it holds the output layer and the loss
    shadowed: bool = False  # never slower nor fuller than the first class: as many layers, no more in flight, and no embedding
    further: Any = None  # 1 where it holds the layers for further tokens; None: where the output layer is
    halves: tuple[Stage, Stage] | None = None  # the two stages of one rank, of which this is the mean: DualPipe

    @cached_property
    def found(self) -> dict[Any, Any]:
        """What ``once_for_stage`` has counted."""
        return {}


def once_for_stage(count: Callable[[Model, Stage], Any]) -> Callable[[Model, Stage], Any]:
    """Call ``count(model, stage)`` once; the stage keeps what it returned. An evaluation makes its own stages, so nothing outlives it."""

    @wraps(count)
    def call(model: Model, stage: Stage) -> Any:
        if (count, model) not in stage.found:
            stage.found[count, model] = count(model, stage)
        return stage.found[count, model]

    return call


def stages(job: Job, plan: Plan) -> list[Stage]:
    """The classes of equal stages of every plan.

    Where layers do not divide, the middle stages take one more each, and the first takes what is left over. With
    ``count_embedding`` the embedding and the loss count as one layer each. Where the layers of the first or the last stage are given,
    the other stages share the rest by the same rule. An explicit list of layers replaces the rule.
    """
    classes = unpaired_stages(job, plan)
    return pair_stages(classes, plan) if schedule_of(job).stages_per_rank > 1.0 and np.any(plan.pp > 1) else classes


def unpaired_stages(job: Job, plan: Plan) -> list[Stage]:
    """The classes of equal stages, also where a rank runs two of them."""
    return _explicit(job, plan) if job.layers_per_stage else _by_rule(job, plan)


def _by_rule(job: Job, plan: Plan) -> list[Stage]:
    """Four classes by the rule of ``stages``: first, middle with one more layer than ``base``, other middle, last."""
    one = np.ones_like(plan.pp)
    single = np.where(plan.pp == 1, 1.0, 0.0)
    counted = 1.0 if job.count_embedding else 0.0  # layers that the embedding, and the loss, count as
    at_first, at_last = plan.first_stage_layers, plan.last_stage_layers
    given = bool(np.any(np.maximum(at_first, at_last) >= 0.0))
    slots: Any = job.model.num_hidden_layers + 2.0 * counted
    sharers = plan.pp  # stages whose number of layers is not given
    if given:
        slots = slots - np.maximum(at_first, 0.0) - np.maximum(at_last, 0.0)
        sharers = np.maximum(plan.pp - (at_first >= 0.0) - (at_last >= 0.0), 1.0)
    base = np.floor(slots / sharers)
    remainder = slots - base * sharers
    middles = np.maximum(plan.pp - 2.0, 0.0)
    longer = np.minimum(remainder, middles)
    first, last = base + (remainder - longer) - counted - single * counted, base - counted
    if given:
        first, last = np.where(at_first >= 0.0, at_first, first), np.where(at_last >= 0.0, at_last, last)
    plain = not given and not job.count_embedding and not np.any(remainder)
    uneven = job.model.first_k_dense_replace or job.model.frozen_layers or job.model.wide_layers_at_start or job.model.wide_layers_at_end
    alike = plain and not uneven
    classes = [
        Stage("first", 0.0 * one, 0.0 * one, first, one, one, single),
        Stage("longer middle", one, first, base + one, longer, 0.0 * one, 0.0 * one),
        Stage("middle", 1.0 + longer, first + longer * (base + one), base, middles - longer, 0.0 * one, 0.0 * one, alike),
        Stage("last", plan.pp - 1.0, job.model.num_hidden_layers - last, last, 1.0 - single, 0.0 * one, one),
    ]
    classes = [part for stage in classes for part in _split_at_front(job, stage)]
    return classes[:1] + [stage for stage in classes[1:] if (stage.count > 0).any()]  # a class no plan of the batch has costs nothing


def _split_at_front(job: Job, stage: Stage) -> list[Stage]:
    """A class of middle stages, and before it those that reach into the layers at the front, which differ from the rest.

    A class is counted as its first stage. A first stage of fewer layers than the model's front, such as the dense layers of a mixture,
    would make all middle stages such layers.
    """
    model = job.model
    front = max(model.first_k_dense_replace, model.frozen_layers, model.wide_layers_at_start)
    if not front or "middle" not in stage.name or schedule_of(job).stages_per_rank > 1.0:
        return [stage]
    reach = np.clip(np.ceil((front - stage.start) / np.maximum(stage.layers, 1.0)), 0.0, stage.count)
    if not np.any(reach > 0.0):
        return [stage]
    rest = stage.replace(index=stage.index + reach, start=stage.start + reach * stage.layers, count=stage.count - reach)
    return [stage.replace(name=f"{stage.name} at the front", count=reach), rest]


def _explicit(job: Job, plan: Plan) -> list[Stage]:
    """One class for each stage, where the question lists the layers of every stage."""
    one = np.ones_like(plan.pp)
    listed = job.layers_per_stage
    last = len(listed) - 1
    further = last if job.mtp_stage is None else job.mtp_stage
    return [
        Stage(f"stage {i}", i * one, sum(listed[:i]) * one, n * one, one, one * (i == 0), one * (i == last), further=one * (i == further))
        for i, n in enumerate(listed)
    ]


def pair_stages(classes: list[Stage], plan: Plan) -> list[Stage]:
    """The classes of ranks that run two stages each, one from either end of the pipeline, as the mean of the two (DualPipe).

    Half of the micro-batches enter at each end, so a rank spends half of a stage's time on each of its two stages.
    """
    if len(classes) > 1 and not any(c.name in ("middle", "longer middle", "last") for c in classes):  # an explicit list
        pairs = [_mean(a, b, 2.0 * a.count, plan) for a, b in zip(classes, classes[::-1], strict=True)]
        return pairs[: (len(pairs) + 1) // 2]
    named = {c.name: c for c in classes}
    first, last = named["first"], named.get("last", named["first"])
    pairs = [_mean(first, last, np.where(plan.pp > 1, 2.0, 1.0), plan)]
    long, short = named.get("longer middle"), named.get("middle")
    longer = long.count if long is not None else 0.0 * plan.pp
    middles = longer + (short.count if short is not None else 0.0)
    long, short = long or short, short or long
    if long is None or short is None:
        return pairs
    both, mixed, neither = np.maximum(2.0 * longer - middles, 0.0), 2.0 * np.minimum(longer, middles - longer), middles - 2.0 * longer
    for a, b, count in ((long, long, both), (long, short, mixed), (short, short, np.maximum(neither, 0.0))):
        if np.any(count > 0.0):
            pairs.append(_mean(a, b, count, plan))
    return pairs


def _mean(a: Stage, b: Stage, count: Any, plan: Plan) -> Stage:
    """The mean of two stages that one rank runs; without a pipeline the first alone."""

    other = b.replace(start=np.where(plan.pp > 1, b.start, a.start), layers=np.where(plan.pp > 1, b.layers, a.layers))

    def half(name: str) -> Any:
        one, two = getattr(a, name), getattr(b, name)
        return np.where(plan.pp > 1, 0.5 * (one + two), one)

    return Stage(
        name=a.name if a.name == b.name else f"{a.name} and {b.name}",
        index=a.index,
        start=a.start,
        layers=half("layers"),
        count=count,
        embedding=half("embedding"),
        head=half("head"),
        further=None if a.further is None else half("further"),
        halves=(a, other),
    )


def offloaded_share(job: Job, stage: Stage) -> Any:
    """The share of a stage's layers whose activations are offloaded to the host."""
    if not job.offload_layers:
        return 1.0
    return np.minimum(job.offload_layers / np.maximum(stage.layers, 1.0), 1.0)


class Pace(Frozen):
    """The class of stages that sets the pace, by row: an index into ``classes``."""

    classes: tuple[Stage, ...]
    which: Any

    def of(self, read: Callable[[Stage], Any]) -> Any:
        """``read(stage)`` for the class that sets the pace in each row; evaluated for every class, then picked."""
        return self.pick([read(stage) for stage in self.classes])

    def pick(self, values: Sequence[Any]) -> Any:
        """From one value for each class, the value of the class that sets the pace in each row."""
        chosen = values[0]
        for mask, value in zip(self._masks, values[1:], strict=True):
            chosen = np.where(mask, value, chosen)
        return chosen

    def stacked(self, values: Sequence[Any]) -> Any:
        """One value for each class, stacked on a new first axis, so that a law is called once for all classes."""
        column = np.stack(np.broadcast_arrays(*values))
        return column.reshape((len(values), *(1,) * (np.ndim(self.which) + 1 - column.ndim), *column.shape[1:]))

    @cached_property
    def _masks(self) -> list[Any]:
        """For each class but the first, the rows in which it sets the pace."""
        return [self.which == i for i in range(1, len(self.classes))]


def slowest(classes: list[Stage], times: list[Any]) -> Pace:
    """The class with the largest of ``times`` in every row; the first of equals."""
    running = [(stage, time) for stage, time in zip(classes, times, strict=True) if not stage.shadowed]
    best, which = np.where(classes[0].count > 0, times[0], -1.0), 0.0 * times[0]
    for i, (stage, time) in enumerate(running[1:], 1):
        better = (stage.count > 0) & (time > best)
        best, which = np.where(better, time, best), np.where(better, float(i), which)
    return Pace(tuple(stage for stage, _ in running), which)
