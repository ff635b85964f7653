"""Layers of the first and the last pipeline stage to try: fewer than the other stages have, where that shortens a step.

The first stage has the embedding; the last has the output layer, the loss and the layers for further tokens. With equal layers the other
stages wait for the slowest. How many layers the last stage gives away depends on how long its extra work takes beside a layer, which the
laws say for every combination of tensor, context and expert ranks: experts of a few columns take longer than their FLOPs say.

What is tried for a mesh depends on the mesh and the job alone: not on other meshes of the search, and not on values of recomputation,
sequence parallelism and overlap that the question gives. So the axes of a plan that was found, given by hand, have the same splits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.pipeline.stages import stages, unpaired_stages
from ironlaw.estimate.planner.grid import Task, usable_choices
from ironlaw.estimate.planner.layers import placement_of_rows, time_rows
from ironlaw.estimate.planner.mesh import check_number, plan_of
from ironlaw.estimate.planner.space import ENDS
from ironlaw.estimate.step.step import heads_of
from ironlaw.job import Job
from ironlaw.plan import BY_RULE, plan_with

Ends = tuple[float, float]
RULE: Ends = (BY_RULE, BY_RULE)
_MOST_LAYERS = 1e4  # that the work of the last stage may be worth


def balanced_rows(task: Task, columns: dict[str, Any]) -> dict[str, Any]:
    """Mesh rows, each once for every split of its layers that is tried (``splits``); ``task`` has no mesh yet.

    Where the layers of the first stage are listed, only those of the last are tried.
    """
    rows = columns["pp"].size
    piped = np.flatnonzero(columns["pp"] > 1.0)
    if not piped.size or task.job.layers_per_stage or task.job.count_embedding:
        return columns
    listed = task.space.of(ENDS[0])
    (least, most, embedding), which = ends_in_layers(task, {name: column[piped] for name, column in columns.items()})
    split = np.ones(rows, dtype=bool)
    split[piped] = False
    of_row, ends = [np.flatnonzero(split)], [np.full((rows - piped.size, 2), BY_RULE)]
    for pp in np.unique(columns["pp"][piped]):
        own = np.flatnonzero(columns["pp"][piped] == pp)
        used, numbers = np.unique(which[own], return_inverse=True)
        chunks, number = np.unique(columns["vpp"][piped[own]], return_inverse=True)
        tried, wanted = splits(task.job, float(pp), chunks, least[used], most[used], embedding[used])
        at, option = np.nonzero(wanted[number, numbers])
        of_row.append(piped[own[at]])
        ends.append(tried[option])
        check_number(sum(len(of) for of in of_row), columns["gpus"][0])
    index, both = np.concatenate(of_row), np.concatenate(ends)
    order = np.argsort(index, kind="stable")
    index, both = index[order], both[order]
    if listed is not None:
        both[:, 0] = columns[ENDS[0]][index]
    return {name: column[index] for name, column in columns.items()} | dict(zip(ENDS, both.T, strict=True))


def ends_in_layers(task: Task, columns: dict[str, Any]) -> tuple[tuple[Any, Any, Any], Any]:
    """How many layers of a middle stage take as long as what the end stages have beside layers, for rows with a pipeline.

    Of the last stage, which has the output layers, the loss and the layers for further tokens, the least and the most of the choices; of
    the embedding of the first the least. Each for every combination of what a layer reads, and the number of the combination of every row.
    """
    choices = usable_choices(task.replace(space=task.open_space or task.space), columns)
    plan = plan_of(columns, task.global_batch_size, task.seq_len)
    seconds, which = time_rows(task, plan, placement_of_rows(task, columns), choices, sharded=False)
    times = seconds.layers
    with np.errstate(all="ignore"):
        body = [kind for kind in times if kind.place == "spread"] or [kind for kind in times if kind.place == "front"]
        layer = _total(body, times) / sum(kind.count for kind in body)
        loss = heads_of(task.job) * seconds.head + _total([kind for kind in times if kind.place == "end"], times)
        last, first = (np.nan_to_num(time / layer).clip(0.0, _MOST_LAYERS) for time in (loss, seconds.embedding))
    last, first = (work.reshape(-1, work.shape[-1]) for work in (last, first))
    return (last.min(axis=0), last.max(axis=0), first.min(axis=0)), which


def _total(some: list[Kind], of_kind: dict[Kind, Any]) -> Any:
    return sum((kind.count * of_kind[kind] for kind in some), start=0.0)


def splits(job: Job, pp: float, chunks: Any, least: Any, most: Any, embedding: Any) -> tuple[Any, Any]:
    """Splits of layers on ``pp`` stages as pairs (first stage, last stage), and which are tried, by number of chunks and by work.

    The work of the last stage beside its layers is between ``least`` and ``most`` layers, that of the first is ``embedding``. Tried are the
    rule for all stages, and the layers of the last stage with which the slowest stage has least work, for every work between the two; where
    that work is longer than a chunk, the most layers with which the last chunk is no longer than a longest chunk of the other stages; and,
    where they are as fast, stages for which the embedding and the loss count as one layer each (Megatron's
    ``--account-for-embedding-in-pipeline-split``). A stage has a layer, the embedding or the loss for every chunk. Of splits that are as
    fast the one with most layers on the last stage is tried: the first stage, which has the most micro-batches in flight, has fewest.
    """
    layers = float(job.model.num_hidden_layers)
    given_away = np.arange(min(np.ceil(layers / pp), layers - 1.0) + 1.0)[::-1]
    tried = np.array([RULE, _count_ends(job, pp), *((BY_RULE, n) for n in given_away)])
    plan = plan_with(pp=np.full(len(tried), pp), first_stage_layers=tried[:, 0], last_stage_layers=tried[:, 1])
    classes = stages(job, plan)
    slots = [s.layers + s.embedding * (tried[:, 0] >= 0.0) + s.head * (tried[:, 1] >= 0.0) for s in classes]
    fewest = np.min([np.where(s.count > 0, slot, np.inf) for s, slot in zip(classes, slots, strict=True)], axis=0)
    room = (fewest >= chunks[:, None])[:, None, :]

    def pace(work: Any) -> Any:
        """Layers of the slowest stage, by chunks, work of the last stage, and split."""
        loads = (s.layers + work[:, None] * s.head + embedding[:, None] * s.embedding for s in classes)
        slowest = np.max([np.where(s.count > 0, load, 0.0) for s, load in zip(classes, loads, strict=True)], axis=0)
        return np.where(room, slowest, np.inf)

    options, wanted = np.arange(len(tried)), np.zeros((chunks.size, least.size, len(tried)), dtype=bool)
    paces = pace(least), pace(most)
    of_least, of_most = (2 + one[..., 2:].argmin(axis=-1)[..., None] for one in paces)
    for one in paces:
        shortest = one[..., 2:].min(axis=-1)
        wanted |= (shortest < one[..., 0])[..., None] & (options >= of_least) & (options <= of_most)
        wanted[..., 1] |= (one[..., 1] < one[..., 0]) & (one[..., 1] <= shortest)
    longest = np.max([np.where((s.count > 0) & (s.head == 0), s.layers, 0.0) for s in classes], axis=0) / chunks[:, None]
    last = np.floor(classes[-1].layers / chunks[:, None])
    for work in (least, most):
        heavy = (chunks > 1.0)[:, None] & (work >= layers / pp / chunks[:, None])
        even = room & heavy[..., None] & (last[:, None] + work[:, None] <= np.ceil(longest)[:, None]) & (options >= 2)
        wanted |= even & (options == even.argmax(axis=-1)[..., None])
    wanted &= room
    wanted[..., 0] = True
    same = _layers_of_classes(classes)
    for option in range(1, len(tried)):
        for earlier in range(option):
            if same[option] == same[earlier]:
                wanted[..., option] &= ~wanted[..., earlier]
    return tried, wanted


def _layers_of_classes(classes: list[Any]) -> list[tuple[float, ...]]:
    """What tells splits apart: the layers and the number of the stages of every class."""
    columns = [np.where(s.count > 0, value, 0.0) for s in classes for value in (s.count, s.layers)]
    return [tuple(split) for split in np.stack(np.broadcast_arrays(*columns), axis=1).tolist()]


def _count_ends(job: Job, pp: float) -> Ends:
    """Layers of the first and last stage where the embedding and the loss count as one layer each."""
    named = {s.name: s for s in unpaired_stages(job.replace(count_embedding=True), plan_with(pp=np.array([pp])))}
    return float(named["first"].layers[0]), float(named["last"].layers[0])
