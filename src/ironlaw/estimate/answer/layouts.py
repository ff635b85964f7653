"""What most teams run: published layouts of a question's kind of model, device and stack, and what each would take on the question's job.

A layout fixes how the model is split, the micro-batch, ZeRO, recomputation, and what its runs overlapped beside the stack's habits. What
it leaves open is chosen, as for every other plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ironlaw import units
from ironlaw.catalog.records import Layout
from ironlaw.catalog.sourced import watch_sources
from ironlaw.estimate.answer.bands import gain_slope, likely_ratio, told_apart
from ironlaw.estimate.bind.question import Bound
from ironlaw.estimate.legality.rules import broken, legal, legality
from ironlaw.estimate.memory.total import memory
from ironlaw.estimate.planner.published import axes_on, given_values, layouts_near
from ironlaw.estimate.planner.rows import close_by_rule, given_axes, plan_of_rows
from ironlaw.estimate.planner.space import ENDS, Space
from ironlaw.estimate.planner.tasks import offered
from ironlaw.estimate.step.step import step
from ironlaw.job import Job
from ironlaw.question.defaults import OVERLAPS
from ironlaw.question.fields import Row

FEWER = 3  # layers that an end stage may have less than a middle one, for the embedding and the loss
MOST_REPLICAS = 8  # powers of two of groups that shard, which are tried where the layout shards weights


class Timed(NamedTuple):
    """A published layout on a job: its axes as they are used there, and its step [s], or why it has none."""

    layout: Layout
    axes: Mapping[str, Any]
    seconds: float | None = None
    overlap: frozenset[str] = frozenset()  # of the plan that was timed
    keeps_margin: bool = True
    why_not: str = ""


def layouts_data(
    bound: Bound, job: Job, row: Row, space: Space, best: Mapping[str, Any], seconds: float, fastest: float | None = None
) -> list[dict[str, Any]]:
    """The published layouts nearest to a row as plain data, each against the ``best`` plan, which takes ``seconds``.

    ``fastest`` is the time of the fastest plan, where the best is another one.

    ``row`` has its batch and what the question gives of the plan; a layout that differs from this, or from the space, is left out.
    """
    with watch_sources(None):
        timed = [time_layout(bound, job, row, space, layout) for layout in layouts_of(bound, job, row, space)]
    slope, noise = gain_slope(bound.folders), told_apart(bound.folders)
    own = {*job.framework.overlap}  # switches that plans of a search leave off where they do nothing
    return [_data(one, best, {*one.overlap} - own == {*best["overlap"]} - own, seconds, slope, noise, fastest or seconds) for one in timed]


def _data(
    timed: Timed, best: Mapping[str, Any], overlaps_alike: bool, seconds: float, slope: float, noise: float, fastest: float
) -> dict[str, Any]:
    """A timed layout as plain data."""
    layout, source = timed.layout, timed.layout.source
    longer = None if timed.seconds is None else max(timed.seconds / seconds, 1.0) - 1.0
    same = overlaps_alike and longer is not None and all(best[axis] == value for axis, value in timed.axes.items())
    return {
        "name": layout.name,
        "title": layout.title,
        "accelerator": layout.on,
        "gpus": list(layout.gpus),
        "framework": layout.framework,
        "overlap": list(layout.overlap),
        "plan": dict(timed.axes),
        "step_seconds": timed.seconds,
        "longer": longer,
        "likely_longer": None if longer is None else float(likely_ratio(1.0 + longer, slope)) - 1.0,
        "keeps_margin": timed.keeps_margin,
        "tie": longer is not None and longer < noise and timed.keeps_margin,
        "same": same,
        "slower_than_fastest": seconds / fastest - 1.0 if same and fastest < seconds else None,
        "why_not": timed.why_not or None,
        "source": {"title": source.title, "url": source.url, "read": source.read, "grade": source.grade},
    }


def layouts_of(bound: Bound, job: Job, row: Row, space: Space) -> list[Layout]:
    """The published layouts nearest to a row (``planner.published``) that have what the question fixes of the plan and of the space."""
    fixed = {**{axis: (value,) for axis, value in given_axes(bound.asked, row).items()}, **given_values(space)}
    return layouts_near(bound, job, _sizes(row), fixed)


def _sizes(row: Row) -> dict[str, float]:
    """The sizes of a row that has its batch."""
    return {name: getattr(row, name) or 1.0 for name in ("gpus", "global_batch_size", "seq_len")}


def time_layout(bound: Bound, job: Job, row: Row, space: Space, layout: Layout) -> Timed:
    """The step of a layout on a row's job: of the fastest plan with its axes that keeps memory free, or fits; or why there is none."""
    axes = axes_on(job, _sizes(row), layout)
    gpus, ranks = row.gpus or 1.0, axes["tp"] * axes["pp"] * axes["cp"]
    if gpus % ranks:
        shown = {name: value if isinstance(value, str) else int(value) for name, value in axes.items()}
        return Timed(layout, shown, why_not=f"{gpus:,.0f} accelerators are no multiple of its tp x pp x cp, {ranks:,.0f}")
    own = job.replace(count_embedding=True) if layout.count_embedding else job
    rows = list(_open_rows(bound, own, row, space, axes, layout.overlap))
    plan = plan_of_rows(own, rows)
    rules = {name: np.broadcast_to(column, (plan.rows,)) for name, column in legality(own, plan).items()}
    shown = {name: value if isinstance(value, str) else int(value) for name, value in axes.items()}
    runs = np.flatnonzero(legal(rules))
    if not runs.size:
        return Timed(layout, shown, why_not="; ".join(broken(own, plan, rules, 0)))
    with np.errstate(all="ignore"):
        needed = np.broadcast_to(memory(own, bound.cluster, plan.take(runs)).device, runs.shape)
    for keeps, room in ((True, bound.room(own.framework.name)), (False, bound.cluster.room)):
        kept = runs[needed <= room]
        if kept.size:
            with np.errstate(all="ignore"):
                seconds = np.broadcast_to(step(own, bound.cluster, plan.take(kept)).tree.value, kept.shape)
            at = int(np.argmin(seconds))
            found = rows[kept[at]]
            return Timed(layout, {**shown, "recompute": found.recompute}, float(seconds[at]), found.overlap or frozenset(), keeps)
    least, most = (units.show(size, "B", 4) for size in (float(needed.min()), bound.cluster.accelerator.usable_memory))
    return Timed(layout, shown, why_not=f"it does not fit: {least} of {most} per accelerator")


def _open_rows(bound: Bound, job: Job, row: Row, space: Space, axes: Mapping[str, Any], more: Collection[str]) -> Iterator[Row]:
    """The plans that have a layout's axes, with every value of what it leaves open: replicas, perhaps recomputation and end stages.

    They overlap what the stack does by default and ``more``, or what the question fixes.
    """
    narrowed = offered(space.narrowed(given_axes(bound.asked, row)), bound, job)
    values = narrowed.values
    used = {"grad-reduce": True, "param-gather": True, "tp": axes["tp"] > 1.0, "pp": axes["vpp"] > 1.0, "ep": axes.get("ep", 1.0) > 1.0}
    on = {*job.framework.overlap, *more}
    fixed = {name: values[axis] for name in OVERLAPS if (axis := f"overlap_{name.replace('-', '_')}") in narrowed.given}
    tried = [fixed.get(name, (float(name in on),)) if used[name] else (0.0,) for name in OVERLAPS]
    ranks = (row.gpus or 1.0) / (axes["tp"] * axes["pp"] * axes["cp"])
    split = axes["zero"] == 3.0 and row.dp_replicate is None and ranks.is_integer()
    replicas = [float(2**n) for n in range(MOST_REPLICAS) if ranks % 2**n == 0.0] if split else [row.dp_replicate]
    hows = [axes["recompute"]] if "recompute" in axes else values.get("recompute", ("none",))
    for switches, copies, how, ends in product(list(product(*tried)), replicas, hows, _ends(job, row, axes, values)):
        overlap = frozenset(name for name, flag in zip(OVERLAPS, switches, strict=True) if flag)
        yield close_by_rule(job, row._replace(**{**axes, "recompute": how, "dp_replicate": copies, "overlap": overlap, **ends}))


def _ends(job: Job, row: Row, axes: Mapping[str, Any], values: Mapping[str, Any]) -> list[dict[str, float | None]]:
    """The layers of the first and the last stage to try: by rule, and up to FEWER less than a stage has where stages are unequal."""
    given = {end: getattr(row, end) for end in ENDS}
    layers, stages = job.model.num_hidden_layers + 2.0 * job.count_embedding, axes["pp"]
    if layers % (stages * axes["vpp"]) == 0.0 or any(v is not None for v in given.values()) or not values.get(ENDS[1]):
        return [given]
    some = [float(n) for n in range(int(layers // stages) - FEWER, int(layers // stages) + 2) if n > 0]
    return [given, *({ENDS[0]: first, ENDS[1]: last} for first, last in product(some, some))]
