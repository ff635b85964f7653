"""Operators that several kinds of layer have in common are computed once, and roofs only when they are read."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.estimate.layer.sizes import Shapes, once_for_sizes
from ironlaw.law import kernels
from ironlaw.terms import BOUNDS


@pytest.fixture(scope="module")
def group():
    answer = ironlaw.estimate("deepseek-v3", on="h800-sxm", gpus=2048, tp=1, pp=16, ep=64, zero=1, micro_batch_size=1, recompute="full")
    return answer.groups[0]


def test_kinds_of_layer_share_their_attention(group):
    names = ("dense layers at the front", "routed layers", "multi-token-prediction layers")
    kinds = [node for node in group.step.tree.walk() if node.name in names]
    assert len(kinds) == 3
    for operator in ("forward/flash attention", "backward/flash attention", "forward/query up gemm"):
        assert len({id(kind[operator]) for kind in kinds}) == 1
    experts = {id(kind["forward/experts in gemm"]) for kind in kinds[1:]}
    assert len(experts) == 1


def test_recomputation_repeats_the_forward_pass(group):
    (layer,) = (node for node in group.step.tree.walk() if node.name == "routed layers")
    forward = {id(part) for part in layer["forward"].parts}
    again = {id(leaf) for part in layer["recompute"].parts for leaf in part.parts}
    assert forward == again


def test_the_roof_of_a_kernel_is_the_one_that_its_law_names(group):
    for node in group.step.tree.walk():
        if node.law is kernels.kernel_time:
            given = {name: getattr(value, "value", value) for name, value in node.inputs.items() if name != "launch"}
            roof = np.where(kernels.memory_bound(**given), BOUNDS.index("hbm"), BOUNDS.index("compute"))
            np.testing.assert_array_equal(node.bound, roof)


def test_a_law_is_called_once_for_the_same_arguments(group):
    calls = []

    @once_for_sizes
    def law(cluster, job, plan, s, *more):
        calls.append(more)
        return len(calls)

    job, plan, cluster = group.job, group.plan, group.cluster
    s, other = Shapes.of(job, plan), Shapes.of(job, plan)
    assert law(cluster, job, plan, s) == law(cluster, job, plan, s) == 1
    assert law(cluster, job, plan, s, True) == 2
    assert law(cluster, job, plan, other) == 3
