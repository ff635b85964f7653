"""Layers that differ: indexers, chunks, latents of experts, and groups of layers, in counts and in estimates."""

import numpy as np
import pytest

import ironlaw
import paths
from ironlaw.catalog.config_json.dimensions import model_from_dimensions
from ironlaw.catalog.config_json.read import load_config, model_from_config
from ironlaw.catalog.model import LayerGroup
from ironlaw.estimate.layer.cached import cached_elements
from ironlaw.estimate.layer.counts import matmul_parameters, total_parameters, visited
from ironlaw.estimate.legality import rules
from ironlaw.law import masks, parameters

CONFIGS = paths.DATA / "hf_configs"
ASK = {"on": "h100-sxm", "gpus": 64, "seq_len": 4096, "global_batch_size": 64, "tp": 1, "cp": 1, "pp": 1, "micro_batch_size": 1}


def read(name, change=None):
    folder = "" if "/" in name else "families/"
    config = load_config(CONFIGS / f"{folder}{name}.json") | (change or {})
    return model_from_config(config, f"{name}.json", name)[0]


def test_an_indexer_adds_its_matrices_and_the_norm_of_its_key():
    """DeepSeek-V3.2 over V3: queries from the latent 1536 x 64 x 128, a key 7168 x 128, weights 7168 x 64, a norm 2 x 128; 61 layers."""
    one = 1536 * 64 * 128 + 7168 * 128 + 7168 * 64 + 2 * 128
    assert float(parameters.indexer(7168, 1536, 64, 128)) == one
    new, old = read("experts/deepseek-v3.2"), read("experts/deepseek-v3")
    assert float(total_parameters(new) - total_parameters(old)) == 61 * one
    assert float(matmul_parameters(new) - matmul_parameters(old)) == 62 * (one - 256)  # and the layer for a further token


def test_layers_that_share_an_indexer_have_none():
    """GLM-5.2: of 78 layers those called full have one."""
    types = ["full", "full", "full"] + ["shared", "shared", "shared", "full"] * 18 + ["shared"] * 3
    shared, own = read("experts/glm-5", {"indexer_types": types}), read("experts/glm-5")
    one = float(parameters.indexer(6144, 2048, 32, 128))
    assert float(total_parameters(own) - total_parameters(shared)) == pytest.approx((78 - 21) * one, rel=1e-9)


def test_a_chunk_of_the_whole_sequence_is_full_attention():
    assert masks.chunked_length(8192.0, 8192.0) == masks.attended_length(8192.0, 0.0)
    assert masks.chunked_length(8192.0, 10000.0) == masks.attended_length(8192.0, 0.0)


def test_chunks_are_counted_query_by_query():
    """With the exact count of a causal mask, (i mod c) + 1 keys, less the half that the convention drops."""
    keys = [(i % 300) + 1 for i in range(1000)]
    assert float(masks.chunked_length(1000.0, 300.0)) == pytest.approx(sum(keys) / 1000 - 0.5)


def test_llama_4_reads_its_chunks():
    for name in ("llama-4-scout", "llama-4-maverick"):
        model = read(f"experts/{name}")
        assert (model.attention_chunk_size, model.sliding_window_layers) == (8192, 36)  # every fourth layer sees all


def asked(model, **changes):
    """Step, memory and flash attention of a model given as a record."""
    (group,) = ironlaw.estimate(model, **{**ASK, **changes}).groups
    return group


def dims(**changes):
    """The dimensions of a small model, as a question gives them."""
    base = {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000}
    return {**base, "intermediate_size": 8192, "gated_mlp": True, **changes}


MIXTURE = {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 1024}
LATENT = {"q_lora_rank": 512, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64}


def step(model, **changes):
    return float(asked(model, **changes).step.tree.value[0])


def test_long_sequences_cost_less_in_chunks():
    chunked, full = dims(attention_chunk_size=8192), dims()
    long = {"seq_len": 65536, "gpus": 64, "global_batch_size": 64}
    assert step(chunked) == step(full)  # 4,096 tokens stay inside one chunk
    assert step(chunked, **long) < 0.8 * step(full, **long)


def test_picked_keys_bound_the_core_but_not_the_indexer():
    picked, all_keys = dims(**LATENT, index_topk=2048, index_n_heads=16, index_head_dim=64), dims(**LATENT)
    # the core of picked keys works in the latent, 256 + 32 / 2 wide for each head, the other with 80
    for length in (8192, 65536):
        cores = [asked(m, seq_len=length).step.tree["flash attention"].inputs["flop"] for m in (picked, all_keys)]
        seen = float(masks.attended_length(float(length), 2048.0)) / (length / 2)
        assert float(np.ravel(cores[0])[0]) / float(np.ravel(cores[1])[0]) == pytest.approx(seen * 272 / 80)
    (near, far) = (asked(picked, seq_len=n).step.tree["index scores"].inputs["flop"] for n in (8192, 65536))
    assert float(np.ravel(far)[0]) == pytest.approx(64 * float(np.ravel(near)[0]))  # with the square of the length


def test_rows_in_a_latent_are_sent_narrow():
    wide, narrow = dims(**MIXTURE), dims(**MIXTURE, moe_latent_size=512)
    sent = [asked(m, ep=8).step.tree["expert parallel"].value[0] for m in (wide, narrow)]
    assert sent[1] < 0.5 * sent[0]
    assert float(total_parameters(model_from_dimensions(narrow))) == pytest.approx(
        float(total_parameters(model_from_dimensions(wide))) - 24 * 64 * 3 * 1024 * (2048 - 512) + 24 * 2 * 2048 * 512
    )


def test_zero_experts_take_their_share_of_rows():
    """LongCat-Flash: 12 choices of 768, of which 256 are empty: 8 experts on average, as its report says."""
    assert visited(read("longcat-flash")) == pytest.approx(8.0)
    all_real, some_empty = dims(**MIXTURE), dims(**MIXTURE, zero_expert_num=64)
    rows = [np.ravel(asked(m).step.tree["experts in gemm"].inputs["flop"])[0] for m in (all_real, some_empty)]
    assert rows[1] == pytest.approx(rows[0] / 2)


def grouped(change=(), **sizes):
    """A dense model whose layers are given as groups."""
    model = model_from_dimensions(dims())
    return model.replace(layer_groups=(LayerGroup(count=24, **sizes), *change))


def test_a_group_with_the_models_sizes_changes_nothing(monkeypatch):
    """The one law: layers listed as a group are the layers."""
    plain, listed = model_from_dimensions(dims()), grouped()
    assert float(total_parameters(plain)) == float(total_parameters(listed))
    assert float(matmul_parameters(plain)) == float(matmul_parameters(listed))
    assert cached_elements(plain, 4096.0) == cached_elements(listed, 4096.0)
    answers = []
    for model in (plain, listed):
        monkeypatch.setattr("ironlaw.estimate.bind.question.bind_model", lambda *_a, model=model: (model, []))
        group = asked("custom")
        answers.append((group.step.tree.value[0], group.memory.device[0], group.throughput["mfu"].value[0]))
    assert answers[0] == pytest.approx(answers[1], rel=1e-12)


def test_openelm_counts_layer_by_layer():
    """Heads of 64, MLPs a multiple of 256 wide; the first and the last of its sixteen layers by hand."""
    model = read("openelm-270m")
    groups = model.layer_groups
    assert sum(group.count for group in groups) == 16
    assert (groups[0].num_attention_heads, groups[0].num_key_value_heads, groups[0].intermediate_size) == (12, 3, 768)  # 0.5 x 1280
    assert (groups[-1].num_attention_heads, groups[-1].intermediate_size) == (20, 5120)


def test_missing_blocks_cost_nothing():
    model = read("experts/nemotron-super-49b")
    kinds = {(g.mixer, g.mlp): 0 for g in model.layer_groups}
    for group in model.layer_groups:
        kinds[group.mixer, group.mlp] += group.count
    assert kinds == {("attention", "dense"): 49, ("none", "dense"): 31}
    assert cached_elements(model, 100.0) == 100 * 49 * 2 * 8 * 128
    short = asked(str(CONFIGS / "experts" / "nemotron-super-49b.json"), tp=8)
    assert not [
        t for t in short.step.tree.parts[0].parts if t.name.startswith("attention-free") and any("flash" in p.name for p in t.parts)
    ]


def test_tensor_parallel_must_divide_the_heads_of_every_layer():
    group = asked(str(CONFIGS / "families" / "openelm-270m.json"), tp=8)
    assert not group.legal[0]
    assert "tp 8 does not divide num_attention_heads 12, 16, 20" in rules.broken(group.job, group.plan, group.rules, 0)
