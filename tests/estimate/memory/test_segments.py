"""Recomputation in segments: one checkpoint for K layers, whose activations are in memory together during their backward pass."""

from __future__ import annotations

import numpy as np
import pytest

from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.law import activations
from ironlaw.question.read import read_options
from made_stacks import without_limits

LAYERS = 240
DEEP = f"hidden_size=1024,num_hidden_layers={LAYERS},num_attention_heads=8,head_dim=128,intermediate_size=4096,vocab_size=1024"
ONE = {
    "model": DEEP, "on": "h100-sxm", "gpus": 1, "tp": 1, "pp": 1, "zero": 0, "seq_len": 2048, "micro_batch_size": 1,
    "global_batch_size": 4, "framework": "megatron",
}  # fmt: skip
PLANS = (
    ONE,
    {**ONE, "gpus": 8, "tp": 2, "pp": 4, "vpp": 3, "global_batch_size": 32},
    {**ONE, "gpus": 4, "tp": 2, "pp": 2, "framework": "torchtitan-compile"},
    {**ONE, "offload": "activations"},
)


def group(folders=(), **options):
    return answer(read_options({**ONE, **options}), folders).groups[0]


def held(name, **options):
    """Bytes of one part of the activations."""
    return float(np.ravel(group(**options).memory.tree["allocated"]["activations"][name].value)[0])


def in_all(**options):
    """Bytes of checkpoints and of the segment that is computed again."""
    return held("checkpoints", **options) + held("layer being recomputed", **options)


@pytest.mark.parametrize("plan", PLANS, ids=("one rank", "pipeline", "compiled", "offloaded"))
def test_segments_of_one_layer_are_full_recomputation(plan):
    full, one = (group(**plan, recompute=how) for how in ("full", "segments:1"))
    assert full.step.tree.value == one.step.tree.value
    assert full.memory.device == one.memory.device and full.memory.host == one.memory.host


@pytest.mark.parametrize("segment", [1, 2, 5, 7, 60, 240])
def test_checkpoints_and_one_segment_are_the_law(segment):
    layer, checkpoint = held("layer being recomputed", recompute="full"), held("checkpoints", recompute="full") / LAYERS
    law = activations.checkpointed_exact(LAYERS, segment, layer, checkpoint)
    assert in_all(recompute=f"segments:{segment}") == pytest.approx(float(law), rel=1e-12)


def test_memory_is_convex_in_the_interval_and_least_at_the_law_of_the_best_one():
    divisors = [k for k in range(1, LAYERS + 1) if LAYERS % k == 0]
    sizes = np.array([in_all(recompute=f"segments:{k}") for k in divisors])
    slopes = np.diff(sizes) / np.diff(divisors)
    assert np.all(np.diff(slopes) > 0.0)
    layer, checkpoint = held("layer being recomputed", recompute="full"), held("checkpoints", recompute="full") / LAYERS
    best = float(activations.optimal_interval(LAYERS, layer, checkpoint))
    assert best > 1.5
    assert divisors[int(np.argmin(sizes))] == min(divisors, key=lambda k: abs(np.log(k / best)))


def test_every_micro_batch_in_flight_keeps_its_checkpoints_and_only_one_has_a_segment_computed_again():
    plan = {**ONE, "gpus": 4, "pp": 4, "vpp": 1, "global_batch_size": 32}
    one = held("checkpoints", **{**plan, "global_batch_size": 1}, recompute="segments:4")
    assert held("checkpoints", **plan, recompute="segments:4") == 4 * one
    assert held("checkpoints", **plan, recompute="full") == 4 * held("checkpoints", **plan, recompute="segments:4")
    assert held("layer being recomputed", **plan, recompute="segments:4") == 4 * held("layer being recomputed", **plan, recompute="full")


def test_a_segment_ends_with_the_chunk_of_its_stage():
    plan = {**ONE, "gpus": 4, "pp": 4, "vpp": 3, "global_batch_size": 32}  # 20 layers a chunk
    sizes = [group(**plan, recompute=f"segments:{k}").memory.device for k in (20, 21, 240)]
    assert sizes[0] == sizes[1] == sizes[2]


def test_all_layers_run_forward_again_and_a_compiler_drops_only_the_last_product_of_a_segment(tmp_path):
    def seconds(like, how):
        stack = without_limits(tmp_path, like)
        found = group((stack["catalog"],), gpus=4, tp=2, pp=2, framework=stack["framework"], recompute=how)
        return float(np.ravel(found.step.tree.value)[0])

    assert seconds("megatron", "segments:8") == pytest.approx(seconds("megatron", "full"), rel=1e-12)
    compiled = [seconds("torchtitan-compile", how) for how in ("none", "full", "segments:2", "segments:8")]
    assert compiled == sorted(compiled) and compiled[1] < compiled[2] < compiled[3]


def test_a_segment_is_at_most_the_model():
    with pytest.raises(IronlawError, match="has only 240 layers"):
        group(recompute="segments:241")
    with pytest.raises(IronlawError, match="segments:4"):
        group(recompute="segment:4")
