"""Memory of the last pipeline stage, worked by hand from the sizes of a small model."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.estimate.memory.total import last_stage_memory
from ironlaw.law import pipeline


def ask(**options):
    """The only group of an estimate, and the tree of its last stage."""
    group = ironlaw.estimate(**options).groups[0]
    return group, last_stage_memory(group.job, group.cluster, group.plan)


def model(**more):
    return {
        "hidden_size": 512,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "intermediate_size": 2048,
        "vocab_size": 50304,
        "tie_word_embeddings": False,
        "norm": "rmsnorm",
        **more,
    }


def plan(**more):
    return {
        "on": "h100-sxm",
        "gpus": 8,
        "framework": "megatron",
        "tp": 1,
        "cp": 1,
        "pp": 1,
        "vpp": 1,
        "zero": 0,
        "recompute": "none",
        "micro_batch_size": 4,
        "global_batch_size": 64,
        "seq_len": 1024,
        **more,
    }


def part(tree, name):
    return float(np.ravel(tree["allocated"][name].value)[0])


def test_the_last_stage_is_the_one_with_the_loss():
    _, tree = ask(model=model(), **plan(pp=4))
    states = 3 * (4 * 512**2 + 2 * 512 * 2048 + 2 * 512) + 50304 * 512 + 512
    assert part(tree, "weights") == 2 * states
    assert part(tree, "logits and loss") > 0
    _, alone = ask(model=model(), **plan())
    held = ironlaw.estimate(model=model(), **plan()).groups[0].memory.tree
    assert part(alone, "logits and loss") == part(held, "logits and loss"), "with one stage, the last is the fullest"


@pytest.mark.parametrize(("device", "size", "grouped"), [("a100-sxm-80gb", 2 * 32 + 4, 16), ("h100-sxm", 2 * 32 + 32, 128)])
def test_workspaces_follow_the_device(device, size, grouped):
    """Two threads launch, each with a cuBLAS workspace; Transformer Engine has one, and four streams more for grouped products."""
    _, tree = ask(model=model(), **plan(on=device))
    assert part(tree, "library workspace") == size * 2**20
    mixture = model(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=1024)
    _, tree = ask(model=mixture, **plan(on=device, ep=8, etp=1))
    assert part(tree, "workspace of grouped products") == grouped * 2**20
    _, tree = ask(model=mixture, **plan(on=device, ep=8, etp=1, grouped_experts=False))
    assert "workspace of grouped products" not in [p.name for p in tree["allocated"].parts]


def test_four_hidden_states_are_in_transit_between_stages():
    _, tree = ask(model=model(), **plan(pp=2))
    assert part(tree, "hidden states in transit") == 4 * (4 * 1024 * 512 * 2)
    _, tree = ask(model=model(), **plan())
    assert part(tree, "hidden states in transit") == 0
    _, tree = ask(model=model(), **plan(pp=2, tp=2, sp=True))
    assert part(tree, "hidden states in transit") == 4 * (4 * 1024 * 512 * 2) / 2


def test_logits_wait_for_their_weight_gradient():
    """Each micro-batch that waits keeps a 2-byte gradient of its logits and the projection's input."""
    _, without = ask(model=model(), **plan(pp=2))
    for asked, waiting in ((1, 1), (2, 2), (1000, 16 / 4)):
        _, tree = ask(model=model(), **plan(pp=2, deferred_wgrad=asked))
        more = float(tree["allocated"].value[0] - without["allocated"].value[0])
        assert more == pytest.approx(waiting * (4 * 1024 * 50304 * 2 + 4 * 1024 * 512 * 2))


def test_a_compiled_loss_keeps_one_more_fp32_copy():
    _, without = ask(model=model(), **plan())
    _, tree = ask(model=model(), **plan(fused_loss=True))
    assert part(tree, "logits and loss") - part(without, "logits and loss") == 4 * 1024 * 50304 * 4


def test_muon_leaves_the_tables_to_adamw_and_splits_no_matrix():
    """Zero 0: weights 2, gradients 4, master 4, momentum 4 a parameter, and 4 more for embedding, output layer and norms (AdamW)."""
    _, tree = ask(model=model(), **plan(optimizer="muon"))
    layers, tables = 12 * (4 * 512**2 + 2 * 512 * 2048 + 2 * 512), 2 * 50304 * 512 + 512
    norms = 12 * 2 * 512
    states = ("weights", "gradients", "master weights", "optimizer states")
    assert sum(part(tree, name) for name in states) == 14 * (layers + tables) + 4 * (tables + norms)
    _, tree = ask(model=model(), **plan(optimizer="muon", zero=1))
    assert part(tree, "master weights") == pytest.approx(4 * 50304 * 512, rel=1e-6), "the output layer stays whole, an eighth is less"
    _, tree = ask(model=model(), **plan(zero=1))
    assert part(tree, "master weights") == pytest.approx(4 * (layers + tables) / 8, rel=1e-9)


def test_prediction_layers_bring_the_embedding_to_the_last_stage():
    _, without = ask(model=model(), **plan(pp=2))
    _, tree = ask(model=model(num_nextn_predict_layers=1), **plan(pp=2))
    layer = 4 * 512**2 + 2 * 512 * 2048 + 2 * 512
    assert part(tree, "weights") - part(without, "weights") == 2 * (50304 * 512 + layer + 2 * 512**2 + 3 * 512)
    tied = model(num_nextn_predict_layers=1, tie_word_embeddings=True)
    _, same = ask(model=tied, **plan(pp=2))
    assert part(same, "weights") == part(tree, "weights") - 2 * 50304 * 512, "a tied output layer is the embedding"


def test_latents_and_down_projections_are_whole_on_every_rank():
    """DeepSeek's latents: h (q + c + r) weights and their norms on each tp rank; t (2 q + 2 c + r) elements kept."""
    latent = model(
        num_key_value_heads=8, head_dim=192, q_lora_rank=256, kv_lora_rank=128, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
    )
    _, one = ask(model=latent, **plan())
    _, two = ask(model=latent, **plan(tp=2, sp=False))
    whole = 12 * (512 * (256 + 128 + 64) + 256 + 128 + 2 * 512) + 512
    assert 2 * part(two, "weights") - part(one, "weights") == 2 * whole
    layers = one["allocated"]["activations"]["saved layers"]
    assert float(np.ravel(layers["latents"].value)[0]) == 4 * 1024 * (2 * 256 + 2 * 128 + 64) * 2


def test_the_chunk_with_the_loss_holds_one_micro_batch():
    """Six layers and two tables in eight chunks of four stages: the last rank has one layer, for which four micro-batches wait."""
    options = plan(gpus=4, pp=4, vpp=2, count_embedding=True, global_batch_size=32)
    _, tree = ask(model=model(num_hidden_layers=6), **options)
    kept = tree["allocated"]["activations"]["saved layers"]
    assert float(np.ravel(kept.times)[0]) == pytest.approx(4.0)
    _, even = ask(model=model(num_hidden_layers=8), **{**options, "count_embedding": False})
    kept = even["allocated"]["activations"]["saved layers"]
    assert float(np.ravel(kept.times)[0]) == pytest.approx(2 * 2.5), "two layers, (4 + 1) / 2 micro-batches"


def test_larger_groups_keep_more_micro_batches():
    """Eight micro-batches in groups of 8 instead of 4: the last rank's warm-up is (v - 1) 8 chunks instead of (v - 1) 4."""
    options = plan(gpus=4, pp=4, vpp=3, global_batch_size=32)
    times = []
    for group in (None, 4, 8):
        _, tree = ask(model=model(), **options, **({"microbatch_group": group} if group else {}))
        times.append(float(np.ravel(tree["allocated"]["activations"]["saved layers"].times)[0]))
    assert times[0] == times[1] == pytest.approx(3 * (2 * 4 + 1) / 3)
    assert times[2] == pytest.approx(3 * (2 * 8 + 1) / 3)
    assert float(pipeline.in_flight_interleaved(4, 3, 3, 8, 8)) == pytest.approx(17 / 3)


def test_groups_of_micro_batches_must_be_whole_and_reach_through_the_pipeline():
    options = plan(gpus=4, pp=4, vpp=3)
    assert ironlaw.estimate(model=model(), **{**options, "global_batch_size": 40, "microbatch_group": 5}).legal[0]
    assert not ironlaw.estimate(model=model(), **{**options, "global_batch_size": 40}).legal[0]
    assert not ironlaw.estimate(model=model(), **{**options, "global_batch_size": 24, "microbatch_group": 3}).legal[0]


def test_experts_keep_what_their_kernels_need():
    """Plain experts scale behind the activation: three wide tensors. Gated ones do it inside, and keep the rows once."""
    mixture = model(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=1024)
    rows = 4 * 1024 * 2
    _, plain = ask(model=mixture, **plan(ep=8, etp=1))
    kept = plain["allocated"]["activations"]["saved routed layers"]
    assert float(np.ravel(kept["experts"].value)[0]) == rows * 1024 * 2 * 3
    _, gated = ask(model={**mixture, "gated_mlp": True}, **plan(ep=8, etp=1))
    kept = gated["allocated"]["activations"]["saved routed layers"]
    assert float(np.ravel(kept["experts"].value)[0]) == rows * 1024 * 2 * 3
    assert float(np.ravel(kept["rows of experts"].value)[0]) == rows * 512 * 2


def test_a_compiler_gathers_a_matrix_at_a_time():
    """MaxText: two 2-byte copies and a 4-byte gradient of the largest matrix, not of a layer; here the table is smaller."""
    small = model(vocab_size=1024)
    options = plan(on="tpu-v5p", framework="maxtext", zero=3)
    _, tree = ask(model=small, **options)
    assert part(tree, "gather buffers") == 512 * 2048 * (2 + 2 + 4)
    _, layers = ask(model=small, **plan(framework="torchtitan", zero=3))
    assert part(layers, "gather buffers") == (4 * 512**2 + 2 * 512 * 2048 + 2 * 512) * (2 + 2 + 4)
    assert float(np.ravel(tree.value)[0]) == float(np.ravel(tree["allocated"].value)[0]), "no context, no communicators, no slack"


def test_slack_ends_at_the_capacity_of_the_device():
    """What the allocator keeps unused it gives back before it fails: only what must be held decides whether a plan fits."""
    loose = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=64, framework="fsdp", micro_batch_size=1, recompute="full").groups[0].memory
    assert loose.reserved[0] == pytest.approx(1.1 * loose.allocated[0])
    batches = np.arange(1.0, 129.0)
    dense = {"framework": "fsdp", "recompute": "none", "seq_len": 512, "zero": 3, "tp": 1, "pp": 1}
    found = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=64, micro_batch_size=batches, global_batch_size=64 * batches, **dense)
    held = found.groups[0].memory
    beside = held.device - held.reserved
    full = (held.allocated + beside <= held.capacity) & (1.1 * held.allocated + beside > held.capacity)
    assert full.any(), "a batch whose slack does not fit"
    np.testing.assert_allclose(held.device[full], held.capacity, rtol=1e-12)
    np.testing.assert_array_equal(found.fits, held.allocated + beside <= held.capacity)
    assert np.all(np.diff(held.device) >= 0)
