"""Context parallelism: what its methods send, hold and leave uneven, against counts by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.errors import QuestionError
from ironlaw.launch.megatron.options import options_from_arguments
from ironlaw.law import masks

METHODS = ("ring", "all-to-all", "all-gather", "all-to-all+ring")
SHAPE = {
    "hidden_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 14336, "vocab_size": 32000, "gated_mlp": True, "tie_word_embeddings": False,
}  # fmt: skip
ASK = {
    "on": "h100-sxm", "framework": "megatron", "gpus": 16, "tp": 2, "pp": 1, "cp": 4, "zero": 1, "micro_batch_size": 1,
    "global_batch_size": 8, "seq_len": 65536, "recompute": "none",
}  # fmt: skip


def group(**changes: Any) -> Any:
    (found,) = ironlaw.estimate(SHAPE, **{**ASK, **changes}).groups
    return found


def leaf(name: str, **changes: Any) -> Any:
    return group(**changes).step.tree[name]


def seconds(**changes: Any) -> float:
    return float(ironlaw.estimate(SHAPE, **{**ASK, **changes}).step_seconds[0])


def held(**changes: Any) -> float:
    return float(ironlaw.estimate(SHAPE, **{**ASK, **changes}).allocated_bytes[0])


def test_the_last_rank_of_a_plain_ring_does_nearly_twice_the_mean():
    """Rank i of n has i whole blocks and half of its own: the last n - 1/2, the mean n/2."""
    for n in (1, 2, 4, 16, 64):
        blocks = [i + 0.5 for i in range(n)]
        assert float(masks.causal_imbalance(n, 65536, 0)) == pytest.approx(max(blocks) / (sum(blocks) / n))


@pytest.mark.parametrize("window", [0, 100, 1000, 3000, 4096])
def test_the_imbalance_is_that_of_counted_pairs(window):
    length, n = 4096, 8
    keys = [min(i + 0.5, window) if 0 < window < length else i + 0.5 for i in range(length)]
    pieces = np.array(keys).reshape(n, -1).sum(axis=1)
    assert float(masks.causal_imbalance(n, length, window)) == pytest.approx(pieces[-1] / pieces.mean(), rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_with_one_context_rank_all_methods_agree(method):
    alone = {"cp": 1, "gpus": 4}
    assert seconds(**alone, cp_method=method, cp_balance="off") == seconds(**alone)
    assert held(**alone, cp_method=method) == held(**alone)


def test_attention_is_shared_evenly_by_every_method_with_two_chunks():
    work = {m: float(leaf("flash attention", cp_method=m, cp_inner=2).inputs["flop"][0]) for m in METHODS}
    assert set(work.values()) == {4.0 * 1 * (65536 / 4) * (65536 / 2) * (32 / 2) * 128}


def test_without_balance_ranks_wait_for_the_rank_with_the_last_tokens():
    def flop(method: str, **more: Any) -> float:
        return float(leaf("flash attention", cp_method=method, cp_balance="off", **more).inputs["flop"][0])

    even = float(leaf("flash attention").inputs["flop"][0])
    assert flop("ring") == pytest.approx(even * (2.0 - 1.0 / 4.0))
    assert flop("all-gather") == flop("ring")
    assert flop("all-to-all") == even  # every rank sees all tokens of its heads
    assert flop("all-to-all+ring", cp_inner=2) == pytest.approx(even * (2.0 - 1.0 / 2.0))
    # documents of a rank's own length: nobody's last tokens see more than another's
    packed = {"document_length": 65536 // 4}
    assert flop("ring", **packed) == float(leaf("flash attention", **packed).inputs["flop"][0])
    for method in METHODS:
        how = {"cp_method": method, "cp_inner": 2}
        assert seconds(**how) <= seconds(**how, cp_balance="off")


def test_bytes_of_each_method_counted_by_hand():
    tokens, heads, kv, width, e = 65536 / 4, 16, 4, 128, 2
    block = 2 * kv * width * tokens * e
    g = group()
    job, cluster, plan = g.job, g.cluster, g.plan
    from ironlaw.estimate.layer.sizes import Shapes
    from ironlaw.estimate.network import context

    s = Shapes.of(job, plan)
    assert float(context.ring(cluster, job, plan, s).inputs["size"][0]) == block
    assert float(context.ring(cluster, job, plan, s, backward=True).inputs["size"][0]) == 2 * block  # their gradients travel along
    assert float(leaf("keys and values to all", cp_method="all-gather").inputs["size"][0]) == 4 * block
    assert float(leaf("gradients to their owners", cp_method="all-gather").inputs["size"][0]) == 4 * block
    assert float(leaf("heads for tokens", cp_method="all-to-all").inputs["size"][0]) == (2 * heads + 2 * kv) * width * tokens * e


def test_the_gather_of_keys_is_fully_exposed():
    tree = group(cp_method="all-gather").step.tree
    gather, scatter = tree["keys and values to all"].value[0], tree["gradients to their owners"].value[0]
    assert tree["context parallel"].value[0] == pytest.approx(2.0 * gather + scatter)  # forward; and again backward, with gradients
    full = group(cp_method="all-gather", recompute="full").step.tree
    assert full["context parallel"].value[0] == pytest.approx(3.0 * gather + scatter)


def test_two_levels_cost_between_ring_and_all_to_all():
    """With an inner group of 2 of 4, all-to-all trades inside pairs, and the ring passes each pair's tokens to the other."""
    g = group(cp_method="all-to-all+ring", cp_inner=2)
    swap = g.step.tree["heads for tokens"]
    assert float(swap.inputs["inner_ranks"][0]) == 2.0
    assert float(swap.inputs["outer_ranks"][0]) == 1.0
    from ironlaw.estimate.layer.sizes import Shapes
    from ironlaw.estimate.network import context

    hop = context.ring(g.cluster, g.job, g.plan, Shapes.of(g.job, g.plan))
    assert float(hop.inputs["n"][0]) == 2.0
    assert float(hop.inputs["size"][0]) == 2 * 4 * 128 * (65536 / 4) * 2


def test_the_inner_group_keeps_to_key_heads_and_domain():
    from ironlaw.estimate.layer.sequence import head_ranks

    def inner(**changes: Any) -> float:
        g = group(cp_method="all-to-all+ring", **changes)
        return float(head_ranks(g.job, g.plan)[0])

    assert inner(gpus=16, cp=8) == 4.0  # 8 key heads over tp 2; 8 accelerators of a node over tp 2
    assert inner(gpus=32, tp=1, cp=16) == 8.0
    assert inner(gpus=32, tp=1, cp=16, scale_up_size=4) == 4.0
    assert inner(gpus=16, cp=8, cp_inner=2) == 2.0
    assert inner(gpus=128, tp=8, cp=16, scale_up_size=72) == 1.0  # one key head a rank
    assert inner(gpus=128, tp=1, cp=128, scale_up_size=72) == 8.0  # 9 in 72 would divide neither
    assert inner(gpus=128, tp=2, cp=64, scale_up_size=34) == 4.0  # not 17


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cp_method": "all-to-all", "cp": 8}, "does not divide num_attention_heads 32 and num_key_value_heads 8"),
        ({"cp_method": "all-to-all+ring", "cp": 8, "cp_inner": 8}, "does not divide num_attention_heads"),
        ({"cp_method": "all-to-all+ring", "cp_inner": 4}, "needs an inner group of more than 1 and fewer than cp ranks"),
        ({"cp_method": "all-to-all+ring", "cp": 8, "cp_inner": 3}, "needs an inner group of more than 1 and fewer than cp ranks"),
    ],
)
def test_ranks_that_do_not_divide_the_heads_are_refused(changes, words):
    found = ironlaw.estimate(SHAPE, **{**ASK, **changes})
    assert not found.legal[0]
    from ironlaw.estimate.legality.rules import broken

    (g,) = found.groups
    assert any(words in text for text in broken(g.job, g.plan, g.rules, 0))


def test_one_chunk_a_rank_needs_half_the_divisors():
    assert not ironlaw.estimate(SHAPE, **{**ASK, "seq_len": 65536 + 8}).legal[0]
    assert ironlaw.estimate(SHAPE, **{**ASK, "seq_len": 65536 + 8}, cp_balance="off").legal[0]


def test_buffers_for_keys_and_values_of_other_ranks_by_hand():
    """At two stages, the first of which computes no loss: keys and values of all ranks, by hand."""
    two = {"pp": 2, "vpp": 1}
    length, heads, kv, width, e = 65536, 16, 4, 128, 2

    def beside(method: str) -> float:
        (g,) = ironlaw.estimate(SHAPE, **{**ASK, **two, "cp_method": method}).groups
        assert g.memory.stage_names[int(g.memory.which[0])] == "first"
        return float(g.memory.tree["attention over context ranks"].value[0])

    assert beside("all-gather") == 4 * kv * width * length * e
    assert beside("ring") == (2 * kv + heads) * width * length * e
    assert held(**two, cp_method="all-gather") < held(**two, cp_method="ring")
    assert held(**two, cp_method="all-to-all") < held(**two, cp_method="all-gather")


def test_the_stage_with_the_loss_holds_the_larger_of_logits_and_keys():
    (g,) = ironlaw.estimate(SHAPE, **ASK).groups
    tree = g.memory.tree
    beside, ring = tree["attention over context ranks"].value[0], tree["keys, values and partial outputs of the ring"].value[0]
    assert beside == pytest.approx(max(ring - tree["logits and loss"].value[0], 0.0))


def test_a_million_tokens_are_answered_and_explained():
    for method in ("ring", "all-gather", "all-to-all+ring"):
        found = ironlaw.estimate(
            "llama-3-8b", on="h100-sxm", gpus=512, tp=2, pp=1, cp=64, seq_len=1048576, global_batch_size=4, cp_method=method
        )
        row = found.row(explain=True)
        assert found.fits[0]
        assert np.isfinite(found.step_seconds[0])
        told = str(row["step"]["tree"])
        assert "law.collectives" in told
        assert row["plan"]["cp_method"] == method


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"cp_comm_type": "p2p"}, {}),
        ({"cp_comm_type": "allgather"}, {"cp_method": "all-gather"}),
        ({"cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": ["2", "4"]}, {"cp_method": "all-to-all+ring", "cp_inner": 2}),
    ],
)
def test_megatron_arguments_of_context_methods_are_read(more, wanted):
    made, rules = options_from_arguments({**MEGATRON, **more}, gpus=16, on="h100-sxm")
    assert {k: v for k, v in made.items() if k in ("cp_method", "cp_inner")} == wanted
    assert not any("approximated" in rule for rule in rules)


def test_two_levels_need_two_sizes():
    with pytest.raises(QuestionError, match="two sizes"):
        options_from_arguments({**MEGATRON, "cp_comm_type": "a2a+p2p"}, gpus=16, on="h100-sxm")


MEGATRON = {
    "num_layers": 8, "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 65536, "max_position_embeddings": 65536,
    "micro_batch_size": 1, "global_batch_size": 8, "vocab_size": 32000, "bf16": True, "context_parallel_size": 8,
    "tensor_model_parallel_size": 2,
}  # fmt: skip
