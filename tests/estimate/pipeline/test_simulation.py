"""A step of a pipeline, event by event: the bubbles that papers state, and what holds of every schedule."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.estimate.pipeline.orders import BACKWARD, FORWARD, INPUT, KINDS, WEIGHT, Order
from ironlaw.estimate.pipeline.schedules import SCHEDULES
from ironlaw.estimate.pipeline.simulation import Timeline, simulate

NAMES = [*SCHEDULES, "interleaved, larger groups"]


def order_of(name: str) -> Order:
    return SCHEDULES[name.partition(",")[0]].order


def step(name: str, stages: int, micro_batches: int, times: Any = (1.0, 2.0, 1.0), chunks: int = 1) -> Timeline:
    """A step of equal chunks: ``times`` of forward, backward and weight gradients of a stage."""
    held = 2 if order_of(name).both_ways else chunks
    forward, backward, weight = (np.full((stages, held), time / chunks) for time in times)
    return simulate(order_of(name), forward, backward, micro_batches, weight)


@pytest.mark.parametrize(("stages", "micro_batches"), [(4, 8), (8, 8), (8, 32), (4, 2)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_one_chunk_waits_as_gpipe_states(name, stages, micro_batches):
    """Huang et al., 2019, section 2.3: (p - 1) / (m + p - 1) of a step."""
    found = step(name, stages, micro_batches)
    assert 1.0 - found.busy.max() / found.seconds == pytest.approx((stages - 1) / (micro_batches + stages - 1))


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), [(4, 2, 8), (8, 4, 16), (16, 6, 32), (4, 3, 4)])
def test_chunks_divide_the_bubble(stages, chunks, micro_batches):
    """Narayanan et al., 2021, section 2.2.2: (p - 1) (F + B) / v."""
    found = step("interleaved", stages, micro_batches, chunks=chunks)
    assert found.seconds - 3.0 * micro_batches == pytest.approx((stages - 1) * 3.0 / chunks)


@pytest.mark.parametrize("times", [(1.0, 2.0, 1.0), (2.0, 3.5, 1.5), (1.0, 3.0, 1.0)])
def test_weight_gradients_fill_a_bubble(times):
    """Qi et al., 2024, table 1: ZB-H1 waits (p - 1) (F + B - W) where backward apart from weight gradients takes B."""
    forward, backward, weight = times
    found = step("zero-bubble", 8, 32, times)
    assert found.seconds - 32 * (forward + backward) == pytest.approx(7 * (forward + (backward - weight) - weight))


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 8), (8, 20), (16, 64)])
def test_two_directions_wait_as_deepseek_states(stages, micro_batches):
    """DeepSeek-V3, table 2: (p / 2 - 1) (F&B + B - 3 W), with F = 1, B = 2, W = 1 and F&B = F + B."""
    found = step("dualpipe", stages, micro_batches)
    assert found.seconds - 3.0 * micro_batches == pytest.approx((stages / 2 - 1) * (3.0 + 2.0 - 3.0))


def uneven(name: str, random: np.random.Generator, chunks: int = 0) -> dict[str, Any]:
    """Ranks and chunks of any length, on an even number of ranks."""
    schedule = SCHEDULES[name.partition(",")[0]]
    stages = int(random.choice([2, 4, 6]))
    held = 2 if schedule.order.both_ways else chunks or (3 if schedule.needs_chunks else 1)
    group = stages + 2 if "larger" in name else stages
    forward, backward = random.uniform(0.2, 2.0, (2, stages, held))
    return {
        "forward": forward, "backward": 2.0 * backward, "weight": backward * random.uniform(0.1, 1.0), "micro_batches": 3 * group,
        "group": group, "hand_over": float(random.uniform(0.0, 0.3)),
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_pass_runs_once_and_none_overlap(name):
    random = np.random.default_rng(1)
    for _ in range(5):
        asked = uneven(name, random)
        found = simulate(order_of(name), **asked)
        stages, held = asked["forward"].shape
        passes = set(zip(found.stage, found.chunk, found.micro_batch, found.kind, strict=True))
        assert len(passes) == len(found.start), "no pass runs twice"
        each = stages * held * asked["micro_batches"] / (2 if order_of(name).both_ways else 1)
        assert np.count_nonzero(found.kind == FORWARD) == each
        assert np.count_nonzero(found.kind == BACKWARD) + np.count_nonzero(found.kind == INPUT) == each
        assert np.count_nonzero(found.kind == WEIGHT) == np.count_nonzero(found.kind == INPUT)
        for rank in range(stages):
            own = found.stage == rank
            assert np.all(found.start[own][1:] >= found.end[own][:-1] - 1e-9)
        whole = asked["forward"] + asked["backward"]
        assert found.busy == pytest.approx(each / stages / held * whole.sum(axis=1))
        assert found.seconds >= found.busy.max() - 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_every_pass_has_what_it_needs(name):
    random = np.random.default_rng(2)
    asked = uneven(name, random)
    found, (stages, held) = simulate(order_of(name), **asked), asked["forward"].shape
    ends: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    starts: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    kinds = np.where(found.kind == INPUT, BACKWARD, found.kind)
    places = zip(found.stage, found.chunk, found.micro_batch, kinds, found.start, found.end, strict=True)
    for stage, chunk, micro_batch, kind, start, end in places:
        way, at = (chunk, stage if chunk == 0 else stages - 1 - stage) if order_of(name).both_ways else (0, chunk * stages + stage)
        starts[int(kind), int(micro_batch)][int(at)], ends[int(kind), int(micro_batch)][int(at)] = start, end
        assert way in (0, 1)
    last = stages - 1 if order_of(name).both_ways else stages * held - 1
    for i in range(asked["micro_batches"]):
        forward, backward = starts[FORWARD, i], starts[BACKWARD, i]
        for at in range(1, last + 1):
            assert forward[at] >= ends[FORWARD, i][at - 1] + asked["hand_over"] - 1e-9
            assert backward[at - 1] >= ends[BACKWARD, i][at] + asked["hand_over"] - 1e-9
        assert backward[last] >= ends[FORWARD, i][last] - 1e-9
        assert all(start >= ends[BACKWARD, i][at] - 1e-9 for at, start in starts[WEIGHT, i].items())


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_more_micro_batches_wait_no_larger_share(name):
    random = np.random.default_rng(3)
    for _ in range(3):
        asked = uneven(name, random)
        stages, shares = len(asked["forward"]), []
        for rounds in (2, 3, 4, 6, 9):
            found = simulate(order_of(name), **{**asked, "micro_batches": rounds * stages, "group": stages, "hand_over": 0.0})
            shares.append(1.0 - found.busy.max() / found.seconds)
        assert np.all(np.diff(shares) <= 1e-9), shares


def test_many_plans_at_once_are_each_alone():
    random = np.random.default_rng(4)
    forward, backward = random.uniform(0.5, 1.5, (2, 4, 2, 3))
    order = order_of("interleaved")
    together = simulate(order, forward, backward, 8, hand_over=np.array([0.0, 0.1, 0.2]))
    for plan in range(3):
        alone = simulate(order, forward[..., plan], backward[..., plan], 8, hand_over=0.1 * plan)
        assert np.array_equal(together.end[:, plan], alone.end)
        assert together.seconds[plan] == alone.seconds


def test_a_step_that_no_order_has_is_refused():
    with pytest.raises(ValueError, match="even number of at least 8"):
        step("dualpipe", 4, 7)


def test_kinds_of_passes_have_names():
    assert [KINDS[kind] for kind in (FORWARD, BACKWARD, INPUT, WEIGHT)] == ["forward", "backward", "input gradients", "weight gradients"]


def test_a_last_stage_that_has_the_loss_alone_has_a_time():
    """Where it is the slowest, the passes share its time as those of a layer do."""
    alone = ironlaw.estimate("gpt-2", on="gb200", gpus=30, pp=3, tp=1, first_stage_layers=6, last_stage_layers=0, micro_batch_size=32,
                             global_batch_size=1280, recompute="none", zero=1)  # fmt: skip
    assert alone.legal[0] and np.isfinite(alone.step_seconds[0])
    assert 0.0 < alone.groups[0].step.forward_share.item() < 1.0
