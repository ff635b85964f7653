"""What the stack decides of a product: the formats of the output layer, and kernels that add the bias of experts."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.step.step import operators, step
from ironlaw.precision import PRECISIONS

ASK = {
    "on": "h100-sxm", "gpus": 8, "global_batch_size": 64, "seq_len": 4096, "tp": 1, "pp": 1, "vpp": 1, "zero": 1, "micro_batch_size": 1,
    "recompute": "none", "framework": "megatron",
}  # fmt: skip


def group(model, **changes):
    (found,) = ironlaw.estimate(model, **{**ASK, **changes}).groups
    return found


def first(column) -> float:
    return float(np.ravel(column)[0])


def gpt_oss(**changes):
    """One rank of gpt-oss-120b, whose experts have biases, on 8 H100 with 16 experts each."""
    return group("gpt-oss-120b", **{"ep": 8, "gpus": 8, "global_batch_size": 8, "zero": 1, **changes})


def layer(found):
    return next(term for term in found.step.tree["micro-batches"].parts if term.name.startswith("routed"))


def named(term, name):
    return [part for part in term.parts if part.name == name]


def test_the_bias_of_an_experts_output_moves_what_the_loop_over_experts_reads_and_writes():
    """Megatron Core, TEGroupedMLP._apply_bias: 4 + 10 + 8 + 6 bytes an element forward, 6 + 10 + 12 + 12 backward."""
    routed = layer(gpt_oss())
    elements = 4096 * 4 * 2880
    (forward,) = named(routed["forward"], "bias of experts")
    (backward,) = named(routed["backward"], "bias of experts")
    assert first(forward.inputs["traffic"]) == 28 * elements
    assert first(backward.inputs["traffic"]) == 40 * elements


@pytest.mark.parametrize("changes", [{"framework": "torchtitan", "zero": 2}, {"cuda_graphs": "full"}])
def test_no_kernel_adds_the_bias_where_the_product_does_or_where_a_graph_holds_the_step(changes):
    routed = layer(gpt_oss(**changes))
    assert not named(routed["forward"], "bias of experts")
    assert not named(routed["backward"], "bias of experts")


def test_a_bias_of_experts_makes_a_step_slower_and_launches_two_more_kernels_for_each_expert():
    found = gpt_oss()
    job = found.job.replace(model=found.job.model.replace(expert_bias=False))
    assert first(found.step.tree.value) > first(step(job, found.cluster, found.plan).tree.value)
    kind = next(kind for kind in kinds(job.model) if kind.routed)
    assert first(operators(found.job, found.plan, kind)) - first(operators(job, found.plan, kind)) == 2 * 128 / 8


def head(framework, **changes):
    found = group("llama-3-8b", **{"framework": framework, "gpus": 1, "global_batch_size": 2, "zero": 0, **changes})
    return {term.name: term for term in found.step.tree["micro-batches"]["output layer and loss"].parts[0].parts}


def test_the_reinforcement_trainer_computes_logits_in_tf32_and_again_in_the_backward_pass():
    """prime-rl, lm_head.py: hidden and weight are cast to fp32 before the product; both gradients multiply 16-bit numbers."""
    terms = head("prime-rl")
    h100 = load.record("accelerators", "h100-sxm", ())
    assert first(terms["output gemm"].inputs["peak"].value) == h100.peak["tf32"].value
    assert first(terms["output gemm again"].value) == first(terms["output gemm"].value)
    assert first(terms["output dgrad"].inputs["peak"].value) == h100.peak["bf16"].value


def test_the_fine_tuning_trainer_computes_logits_and_their_gradients_in_tf32():
    terms = head("prime-rl-sft")
    assert "output gemm again" not in terms
    assert {terms[name].inputs["peak"].text for name in ("output gemm", "output dgrad", "output wgrad")} == {"494.5 TFLOP/s"}


def test_other_stacks_compute_three_products_of_the_output_layer_in_the_type_of_activations():
    terms = head("fsdp")
    assert [name for name in terms if name.startswith("output")] == ["output gemm", "output dgrad", "output wgrad"]
    assert terms["output gemm"].inputs["peak"].text == "989 TFLOP/s"


@pytest.mark.parametrize(
    ("precision", "launches"), [("bf16", 1.0), ("fp8-block", 5 / 3), ("fp8", 7 / 3), ("mxfp8", 11 / 3), ("nvfp4", 13 / 3)]
)
def test_an_experts_product_is_launched_with_its_casts_and_the_kernels_that_order_scales(precision, launches):
    """Transformer Engine: forward a cast and a product, backward a cast and two; mxfp8 orders two tensors of scales for each product."""
    found = gpt_oss(framework="nemo", on="b200-sxm", precision=precision, cuda_graphs="full")
    graphs = found.job.replace(cuda_graphs="none", model=found.job.model.replace(expert_bias=False))
    kind = next(kind for kind in kinds(graphs.model) if kind.routed)
    routed = first(operators(graphs, found.plan, kind))
    alone = first(
        operators(graphs.replace(framework=graphs.framework.replace(expert_launches={}), precision=PRECISIONS["bf16"]), found.plan, kind)
    )
    assert routed - alone == pytest.approx(2 * 128 / 8 * (launches - 1.0), rel=1e-3)


def test_a_stack_without_fp32_weights_moves_fourteen_bytes_of_a_weight_and_its_moments_in_an_update():
    """torchtune, bf16: 2 of the gradient; weight and two moments of 2 bytes read and written. Its fused kernel moves 1.2 times as much."""
    moved = {}
    for framework, passes in (("torchtune", 1.2), ("fsdp", 3.0)):
        found = group("llama-3-8b", framework=framework, gpus=1, global_batch_size=1, zero=0)
        update = found.step.tree["optimizer"].inputs["traffic"]
        moved[framework] = first(update) / first(total_parameters(found.job.model)) / passes
    assert moved == {"torchtune": pytest.approx(14.0), "fsdp": pytest.approx(28.0)}
