"""Tensor-parallel collectives beside their products: by hand, in the limits, and for every model that ships."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.cautions.record import sentences

ASK = {"on": "h100-sxm", "gpus": 8, "tp": 8, "pp": 1, "zero": 1, "global_batch_size": 8, "micro_batch_size": 1, "recompute": "none"}


def tree(model="llama-3-8b", **changes):
    answer = ironlaw.estimate(model, **{**ASK, **changes})
    assert answer.legal[0], sentences(answer.row()["warnings"])
    return answer.groups[0].step.tree


def one(value) -> float:
    return float(np.ravel(getattr(value, "value", value))[0])


def times(node, name: str) -> float:
    return one(node[name].times)


@pytest.mark.parametrize(
    ("framework", "recompute", "waited"),
    [  # two blocks a layer: gathers forward, of gradients, and sums that stand in the way
        ("megatron", "none", (2, 2, 2)),  # two sums of input gradients stand beside weight gradients
        ("megatron", "full", (4, 2, 4)),
        ("torchtitan", "none", (2, 2, 4)),
        ("torchtitan", "full", (4, 2, 6)),
        ("torchtitan-compile", "full", (4, 2, 5)),  # the compiler drops the last product of what is recomputed, and the sum behind it
    ],
)
def test_a_layer_waits_for_as_many_collectives_as_its_code_has(framework, recompute, waited):
    node = tree(framework=framework, recompute=recompute, overlap="none")["tensor parallel"]
    assert tuple(times(node, name) for name in ("all-gathers", "all-gathers of gradients", "reduce-scatters")) == waited
    assert times(node, "all-reduces") == 0.0


def test_without_sequence_parallelism_the_sum_of_an_input_gradient_hides():
    """Megatron-LM, core/tensor_parallel/layers.py: with allreduce_dgrad the all-reduce runs beside the weight gradient."""
    node = tree(framework="megatron", sp="off", overlap="none")["tensor parallel"]
    assert times(node, "all-reduces") == 2.0
    beside = node["all-reduce beside a weight gradient"]
    assert 0.0 < one(beside.value) < one(node["all-reduces/all-reduce"].value)
    assert times(tree(framework="megatron-legacy", sp="off", overlap="none")["tensor parallel"], "all-reduces") == 4.0


def test_pieces_by_hand():
    """A gather beside the product it feeds: nothing but its share and seven more kernels shows where the product is longer."""
    timed = tree(framework="megatron", overlap="tp")
    piece = timed["all-gather in pieces"]
    compute, sent, share, launch = (one(piece.inputs[name]) for name in ("compute", "communication", "share", "launch"))
    assert compute == pytest.approx(one(timed["forward/query-key-value gemm"].value))
    by_hand = max(compute, sent) - compute + share * sent + 7 * launch
    assert one(piece.value) == pytest.approx(by_hand, rel=1e-12)


def test_an_adapter_has_no_weight_gradient_to_hide_behind():
    node = tree(framework="generic", lora_rank=16, overlap="none")["tensor parallel"]
    shown = node["reduce-scatter beside a weight gradient"]
    assert one(shown.value) == pytest.approx(one(node["reduce-scatters/reduce-scatter"].value))
    assert all(part.name != "all-gather beside an input gradient" for part in node.walk())


@pytest.mark.parametrize("name", load.names("models", ()))
def test_every_model_has_its_blocks(name):
    """As many gathers forward as a kind of layer has blocks that tensor parallelism splits: routed experts alone are none."""
    from ironlaw.estimate.layer import passes
    from ironlaw.estimate.layer.kinds import kinds, layer_of_kind
    from ironlaw.estimate.layer.sizes import Shapes
    from ironlaw.estimate.network import tensor

    model = load.record("models", name, ())
    answer = ironlaw.estimate(name, on="h100-sxm", gpus=8, tp=1, pp=1, global_batch_size=8, micro_batch_size=1)
    (group,) = answer.groups
    for kind in kinds(model):
        job, shapes = layer_of_kind(group.job, group.plan, Shapes.of(group.job, group.plan), kind)
        layer = (group.cluster, job, group.plan, shapes, kind)
        both = passes.forward(passes.forward_operators(*layer)), passes.backward(*layer)
        alone = kind.routed and not model.shared_expert_intermediate_size
        assert len(tensor.blocks(job, group.plan, *both)) == kind.blocks - float(alone), kind.name


def test_gradients_are_accumulated_where_no_product_adds_them():
    """Megatron's products add them; an eager stack reads what is new and reads and writes the sum, but for the first micro-batch."""
    plan = {"tp": 1, "gpus": 1, "global_batch_size": 4, "zero": 0}
    fused = tree(framework="megatron", **plan)
    assert one(fused["layers/gradient accumulation"].value) == one(fused["output layer and loss/gradient accumulation"].value) == 0.0
    looked_up = fused["embedding/gradient accumulation"]  # no product makes the gradient of an embedding
    assert one(looked_up.inputs["traffic"]) == (2 + 2 * 4) * 128_256 * 4_096
    added = tree(framework="internevo", **plan)["layers/gradient accumulation"]
    assert times(tree(framework="internevo", **plan), "layers/gradient accumulation") == 0.75
    assert one(added.inputs["traffic"]) == pytest.approx((2 + 2 * 2) * 218_112_000, rel=1e-3)  # parameters of a layer of Llama 3 8B
    assert one(tree(framework="internevo", **{**plan, "global_batch_size": 1})["layers/gradient accumulation"].value) == 0.0


def test_hand_overs_of_warm_up_and_flush_wait():
    """Three of four chunks of eight stages, each way: 24 hand-overs forward and 24 back that nothing hides."""
    plan = {"gpus": 16, "tp": 2, "pp": 8, "vpp": 4, "global_batch_size": 64}
    shown = tree(**plan, overlap="pp")["pipeline fill and drain transfers"]
    hop = one(tree(**plan, overlap="pp")["stage to stage/hand-over"].value)
    assert one(shown.value) == pytest.approx(2 * 24 * hop, rel=1e-9)
    groups = tree(**plan, overlap="pp", microbatch_group=16)["pipeline fill and drain transfers"]
    assert one(groups.value) == pytest.approx(2 * 48 * hop, rel=1e-9)
    assert all(part.name != "pipeline fill and drain transfers" for part in tree(**plan, overlap="none").parts)
    assert all(part.name != "pipeline fill and drain transfers" for part in tree(**{**plan, "vpp": 1}, overlap="pp").parts)
