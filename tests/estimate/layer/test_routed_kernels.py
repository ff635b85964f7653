"""What a routed layer's kernels and a state's scan move and launch, by counts made by hand from the frameworks' code."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.law import experts, traffic
from ironlaw.terms import BOUNDS
from made_stacks import without_limits

SHAPE = {
    "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 2048,
    "vocab_size": 32000, "gated_mlp": True, "tie_word_embeddings": False, "num_experts": 16, "num_experts_per_tok": 4,
    "moe_intermediate_size": 512,
}  # fmt: skip
ASK = {
    "on": "h100-sxm", "gpus": 8, "global_batch_size": 64, "seq_len": 4096, "tp": 1, "pp": 1, "vpp": 1, "ep": 4, "zero": 1,
    "micro_batch_size": 1, "recompute": "none", "framework": "megatron",
}  # fmt: skip
TOKENS, HIDDEN, ROWS = 4096, 1024, 4096 * 4


def group(model=SHAPE, **changes):
    (found,) = ironlaw.estimate(model, **{**ASK, **changes}).groups
    return found


def moved(name: str, where: str = "forward", **changes) -> float:
    return first(group(**changes).step.tree["routed layers"][where][name].inputs["traffic"])


def first(column) -> float:
    return float(np.ravel(column)[0])


def test_rows_cross_hbm_as_often_as_the_kernels_read_and_write_them():
    """Permuted, sorted by expert on the rank that has four of them, sorted back, summed: 2 tokens and 6 rows, each way."""
    for where in ("forward", "backward"):
        assert moved("permute and unpermute", where) == 2 * HIDDEN * (2 * TOKENS + 6 * ROWS)
    assert moved("permute and unpermute", ep=16, gpus=16) == 2 * HIDDEN * (2 * TOKENS + 2 * ROWS)  # one expert a rank: nothing to sort


def test_a_row_sent_once_to_a_rank_is_copied_for_each_expert_there():
    distinct = 4 * (1 - (3 / 4) ** 4)  # ranks of four that hold one of a token's four experts
    assert moved("permute and unpermute", moe_dispatcher="deepep") == pytest.approx(2 * HIDDEN * (2 * distinct * TOKENS + 2 * ROWS))


def test_narrow_formats_copy_rows_to_padded_places_where_the_router_does_not_pad():
    narrow = {"precision": "fp8"}
    assert moved("permute and unpermute", **narrow) == 2 * HIDDEN * (2 * TOKENS + 10 * ROWS)
    assert moved("permute and unpermute", framework="nemo", **narrow) == 2 * HIDDEN * (2 * TOKENS + 6 * ROWS)


def test_scattered_rows_use_the_measured_share_of_hbm_bandwidth():
    for device, fraction in (("h100-sxm", 0.57), ("h200-sxm", 0.45), ("b200-sxm", 0.8)):
        layer = group(on=device)
        share = layer.cluster.systems.bandwidth_sustained.value
        leaves = layer.step.tree["routed layers"]["forward"]
        assert leaves["permute and unpermute"].inputs["bandwidth_fraction"].value == pytest.approx(fraction * share), device
        assert leaves["routing scores"].inputs["bandwidth_fraction"].value == pytest.approx(0.8 * share)


def test_maxtext_sorts_its_rows_and_sums_them_without_a_second_sort(tmp_path):
    maxtext = without_limits(tmp_path, "maxtext")  # on any accelerator
    assert moved("permute and unpermute", **maxtext, ep=1) == 2 * HIDDEN * (2 * TOKENS + 5 * ROWS)
    assert moved("permute and unpermute", "backward", **maxtext, ep=1) == 2 * HIDDEN * (2 * TOKENS + 7 * ROWS)


def test_scores_and_maps_are_moved_by_many_small_kernels():
    leaf = group().step.tree["routed layers"]["forward"]["routing scores"]
    assert leaf.inputs["traffic"] == 116 * TOKENS * 16
    assert leaf.inputs["launch"] == pytest.approx((40 - 4) * 3e-6)
    back = group().step.tree["routed layers"]["backward"]["routing scores"]
    assert back.inputs["launch"] == pytest.approx((40 - 4) / 2 * 3e-6)


def test_a_weight_gradient_is_added_to_the_stored_one():
    """Megatron reads and writes four bytes a weight, NeMo two; a stack that writes it apart only writes it."""
    weights, rows_in, rows_out = 4 * 1024 * 1024, ROWS * 1024 * 2, ROWS * 1024 * 2
    for framework, each, zero in (("megatron", 8, 1), ("nemo", 4, 1), ("torchtitan", 2, 2)):
        assert moved("experts in wgrad", "backward", framework=framework, zero=zero) == weights * each + rows_in + rows_out


def test_experts_launched_one_by_one_share_four_streams():
    launch = group().cluster.experts("bf16").launch.value
    for local, ep, gpus in ((16, 1, 8), (8, 2, 8), (2, 8, 8)):
        leaf = group(ep=ep, gpus=gpus).step.tree["routed layers"]["forward"]["experts in gemm"]
        assert first(leaf.inputs["launch"]) == pytest.approx(launch * max(local / 4, 1.0))
    alone = group(ep=1, grouped_experts=False).step.tree["routed layers"]["forward"]["experts in gemm"]
    assert first(alone.inputs["launch"]) == pytest.approx(launch * 16)


def test_a_tile_of_two_experts_is_computed_twice(tmp_path):
    """DeepSeek-V3 on MaxText: 393,216 rows are 768 tiles of 512, and 255 of them hold two experts."""
    assert float(experts.straddling_rows(49152 * 8, 256, 512)) == (768 + 255) * 512
    assert float(experts.padded_rows(49152 * 8, 256, 512)) == 768 * 512
    leaf = group(**without_limits(tmp_path, "maxtext"), ep=1).step.tree["routed layers"]["forward"]["experts out gemm"]
    assert leaf.inputs["flop"] == 2 * (ROWS / 512 + 15) * 512 * HIDDEN * 512


def test_the_scan_of_a_state_is_bound_by_bytes_between_its_kernels():
    """Qwen3-Next: 32 heads of 128 and 128, chunks of 64: 2,560 elements of two bytes a token and head forward."""
    (found,) = ironlaw.estimate("qwen3-next-80b-a3b", **{**ASK, "gpus": 128, "global_batch_size": 256, "pp": 4, "vpp": 1, "ep": 32}).groups
    layer = found.step.tree["linear-attention routed layers"]
    scan = layer["forward"]["state scan"]
    assert scan.inputs["traffic"] == 4096 * 32 * 2560 * 2
    assert layer["backward"]["state scan"].inputs["traffic"] == 4096 * 32 * 5760 * 2
    assert BOUNDS[int(first(scan.bound))] == "hbm"
    both = 2 * 16 * 128  # queries and keys
    assert layer["forward"]["convolution and gates"].inputs["traffic"] == 2 * 4096 * (4 * 8192 + 5 * both + 2 * 4096 + 9 * 4096)


def test_recomputing_attention_leaves_scans_alone():
    ask = {**ASK, "gpus": 128, "global_batch_size": 256, "pp": 4, "vpp": 1, "ep": 32}
    (found,) = ironlaw.estimate("qwen3-next-80b-a3b", **{**ask, "recompute": "selective"}).groups
    assert found.step.tree["linear-attention routed layers"]["recompute"].value == 0.0
    assert found.step.tree["routed layers"]["recompute"].value > 0.0


def test_longer_chunks_move_fewer_states_and_larger_squares():
    sizes = [float(traffic.delta_rule_scan(1, 4096, 32, 128, 128, c, 2)) for c in (16, 64, 256)]
    assert sizes[1] < sizes[0] and sizes[1] < sizes[2]
    assert float(traffic.delta_rule_scan_backward(1, 4096, 32, 128, 128, 64, 2)) > float(
        traffic.delta_rule_scan(1, 4096, 32, 128, 128, 64, 2)
    )


def test_a_host_that_waits_for_counts_starts_every_layer_without_a_lead():
    """Forward is too short for its launches, backward has time to spare: only with tokens dropped does the one help the other."""
    small = {**SHAPE, "moe_intermediate_size": 256}
    waits, drops = (group(small, capacity_factor=c).step.tree["routed layers"]["host dispatch"].value[0] for c in (None, 1.0))
    assert waits > drops > 0.0
    waits, drops = (group(small, capacity_factor=c, seq_len=1024).step.tree["routed layers"]["host dispatch"].value[0] for c in (None, 1.0))
    assert waits == pytest.approx(drops)  # where neither has time to spare, nothing changes
