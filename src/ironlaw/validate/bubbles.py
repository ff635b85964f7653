"""The law of the bubble against an event simulation: of the plan of an answer, and of random layouts of every schedule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.pipeline.bubbles import Loads, both_directions
from ironlaw.estimate.pipeline.hand_overs import WARM_UP_AND_FLUSH
from ironlaw.estimate.pipeline.schedules import SCHEDULES, Schedule
from ironlaw.estimate.pipeline.simulation import simulate
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.estimate.step.step import MICRO_BATCHES, micro_batch
from ironlaw.estimate.step.timeline import timeline
from ironlaw.plan import Plan, plan_with
from ironlaw.terms import scalar

STAGES, CHUNKS = (2, 4, 6, 8, 12, 16), (2, 3, 4, 5, 6, 8)  # of random layouts
MOST_ROUNDS = 8  # micro-batches of a random layout, over its stages


class Layout(NamedTuple):
    """A pipeline with its micro-batches: a plan of one row, and what a micro-batch takes on each stage."""

    schedule: Schedule
    plan: Plan
    loads: Loads


class Errors(NamedTuple):
    """How far the law is from the simulation, at most."""

    step: float  # of the passes of a step
    bubble: float  # of the bubble, where it is at least a hundredth of the step


def bubble_error_max(layouts: int = 500, seed: int = 0) -> float:
    """The largest |law / simulation - 1| of the passes of a step, over so many random layouts."""
    return max(errors.step for errors in bubble_errors(layouts, seed).values())


def bubble_errors(layouts: int = 500, seed: int = 0) -> dict[str, Errors]:
    """The largest errors of each schedule over its share of so many random layouts."""
    random, found = np.random.default_rng(seed), {}
    for name, schedule in SCHEDULES.items():
        pairs = [law_and_simulation(random_layout(schedule, random)) for _ in range(-(-layouts // len(SCHEDULES)))]
        law, simulated, busy = np.array(pairs).T
        large = simulated - busy > 0.01 * simulated
        bubbles = np.abs(law - simulated)[large] / (simulated - busy)[large]
        found[name] = Errors(float(np.max(np.abs(law / simulated - 1.0))), float(np.max(bubbles, initial=0.0)))
    return found


def random_layout(schedule: Schedule, random: np.random.Generator) -> Layout:
    """A layout that a plan may have: stages by the rule, or with fewer layers at an end; embedding, loss, and layers for further tokens.

    A layer takes a second. The embedding takes up to 0.2 layers, the loss 0.2 to 3, a layer for a further token one more with its loss.
    Recomputation makes backward passes up to three times as long as forward passes. Hand-overs beside chunks take up to a tenth of a layer.
    """
    stages = int(random.choice(STAGES))
    chunks = int(random.choice(CHUNKS)) if schedule.needs_chunks else 1
    layers = _random_layers(stages, chunks, random)
    paired = int(schedule.stages_per_rank)
    micro_batches = stages * int(random.integers(paired, MOST_ROUNDS + 1))
    if chunks == 1:
        micro_batches += paired * int(random.integers(0, stages))
    loss = random.uniform(0.2, 3.0)
    further = 1.0 + loss if random.random() < 0.3 else 0.0
    ends = np.zeros((2, stages))
    ends[0, 0], ends[1, -1] = random.uniform(0.0, 0.2), loss + further
    forward = 1.0 / (1.0 + random.uniform(1.8, 3.2))
    loads = Loads(
        [_stage(i, layers) for i in range(stages)],
        [np.array([held + sum(ends[:, i])]) for i, held in enumerate(layers)],
        [ends[0, i : i + 1] for i in range(stages)],
        [ends[1, i : i + 1] for i in range(stages)],
        np.array([forward]),
        np.array([random.uniform(0.25, 0.5) * 2.0 * forward]),
        np.array([random.uniform(0.0, 0.1) if chunks > 1 and random.random() < 0.5 else 0.0]),
        group=float(stages),
    )
    one = np.ones(1)
    plan = plan_with(pp=stages * one, vpp=chunks * one, micro_batch_size=one, global_batch_size=micro_batches * one)
    return Layout(schedule, plan, loads)


def _random_layers(stages: int, chunks: int, random: np.random.Generator) -> list[int]:
    """Layers of each stage: as equal as they come, the last and perhaps the first with up to three fewer, or embedding and loss counted."""
    total, how = int(random.integers(stages * chunks, 3 * stages * chunks + 1)), int(random.integers(3))
    fewer = {0: (0, 0), 1: (0, int(random.integers(0, 4))), 2: (1, 1)}[how]
    slots = total + sum(fewer)
    layers = [slots // stages + (1 <= i <= slots % stages) for i in range(stages)]
    layers[0] += slots - sum(layers)
    layers[0], layers[-1] = max(layers[0] - fewer[0], chunks - 1, 1), max(layers[-1] - fewer[1], chunks - 1, 0)
    return layers


def _stage(at: int, layers: list[int]) -> Stage:
    one = np.ones(1)
    last = len(layers) - 1
    return Stage(f"stage {at}", at * one, sum(layers[:at]) * one, layers[at] * one, one, one * (at == 0), one * (at == last))


def law_and_simulation(layout: Layout) -> tuple[float, float, float]:
    """The passes of a step by the law, by the simulation, and the time that the busiest rank computes."""
    schedule, plan, loads = layout
    hand_over = float(loads.hand_over[0])
    stages, chunks, micro_batches = (int(column[0]) for column in (plan.pp, plan.vpp, plan.num_microbatches))
    transit = 2.0 * stages * hand_over + 2.0 * (chunks - 1) * stages * hand_over  # fill and drain, and warm-up and flush
    law = float(np.ravel(schedule.passes(plan, loads))[0]) + transit
    forward, backward, weight = (one[..., 0] for one in loads.passes(stages, chunks))
    if schedule.order.both_ways:
        forward, backward, weight = (both_directions(one) for one in (forward, backward, weight))
    found = simulate(schedule.order, forward, backward, micro_batches, weight, hand_over)
    return law, float(found.seconds), float(found.busy.max())


def bubble_error(group: Group, at: int) -> float | None:
    """The law of the bubble less an event simulation of the plan of one row, as a share of its step; None without a pipeline.

    What passes that run alone take longer, because no other micro-batch hides their experts, is left out of both.
    """
    if float(np.ravel(np.broadcast_to(group.plan.pp, (group.plan.rows,)))[at]) == 1.0:
        return None
    plan = group.plan.take(np.array([at]))
    tree, alone = group.step.tree, micro_batch(group.job, group.cluster, plan).alone
    law = sum(scalar(term, at) for term in tree.parts if term.key in (MICRO_BATCHES, WARM_UP_AND_FLUSH) or term.name == "pipeline bubble")
    return (law - float(np.ravel(alone)[0]) - float(timeline(group.job, group.cluster, plan).seconds)) / scalar(tree, at)
