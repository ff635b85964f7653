"""Families of models: counts of released configs, totals and active, and what layers of their own sizes mean for an estimate.

``BUILT`` are parameters of the model that huggingface/transformers 5.23.0 builds from the same fields, counted tensor by tensor on the
meta device (read 2026-11-22): an independent count. ``CARDS`` are the rounded figures of model cards, for families whose code is not
in that library.
"""

import json

import numpy as np
import pytest

import ironlaw
import paths
from ironlaw.catalog import load
from ironlaw.catalog.config_json.dimensions import model_from_dimensions
from ironlaw.catalog.config_json.read import READERS, load_config, model_from_config
from ironlaw.catalog.model import LayerGroup
from ironlaw.errors import InputError, IronlawError, UnsupportedError
from ironlaw.estimate import rules
from ironlaw.estimate.layer.counts import active_parameters, cached_heads, matmul_parameters, total_parameters, visited
from ironlaw.law import masks, parameters

CONFIGS = paths.DATA / "hf_configs"
BUILT = {
    "apertus-70b": 70_599_864_480,
    "apertus-8b": 8_053_338_176,
    "bamba-9b": 9_780_235_392,
    "command-a": 111_057_580_032,
    "command-r-plus": 103_810_674_688,
    "command-r-v01": 34_980_831_232,
    "dbrx": 131_596_523_520,
    "dots.llm1": 142_774_373_888,
    "ernie-4.5-21b-a3b": 21_825_437_888,
    "ernie-4.5-300b-a47b": 299_484_163_264,
    "falcon-180b": 179_522_565_120,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "gemma-3-270m": 268_098_176,
    "glm-4-32b": 32_566_081_536,
    "glm-4-9b": 9_399_951_360,
    "glm-4.7-flash": 29_943_390_976,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neo-2.7b": 2_651_307_520,
    "granite-3.1-3b-a800m": 3_298_793_472,
    "granite-3.1-8b": 8_170_848_256,
    "granite-4.0-h-small": 32_207_337_984,
    "hunyuan-7b": 7_504_568_320,
    "hunyuan-a13b": 80_393_183_232,
    "internlm3-8b": 8_804_241_408,
    "minicpm3-4b": 4_073_875_968,
    "ministral-8b": 8_019_808_256,
    "mistral-large-2411": 122_610_069_504,
    "mistral-small-24b": 23_572_403_200,
    "olmo-2-13b": 13_716_198_400,
    "olmo-3-32b": 32_233_522_176,
    "olmoe-1b-7b": 6_919_161_856,
    "phi-2": 2_779_683_840,
    "phi-3.5-moe": 41_873_153_344,
    "phi-4": 14_659_507_200,
    "seed-oss-36b": 36_151_104_512,
    "smollm3-3b": 3_075_098_624,
    "solar-open-100b": 102_651_793_408,
    "stablelm-2-1.6b": 1_644_515_328,
    "stablelm-2-12b": 12_143_185_920,
    "starcoder": 15_517_456_384,
    "starcoder2-15b": 15_957_889_024,
    "trinity-mini": 26_123_974_400,
    "vaultgemma-1b": 1_038_741_120,
    "xglm-7.5b": 7_492_771_840,
    "yi-34b": 34_388_917_248,
}
# total as its card says it, in parameters, and what one more in its last digit is worth
CARDS = {
    "arctic": (480e9, 10e9),
    "baichuan2-13b": (13e9, 1e9),
    "chatglm3-6b": (6e9, 1e9),
    "exaone-3.5-7.8b": (7.8e9, 0.1e9),
    "exaone-4.0-32b": (32.0e9, 0.1e9),
    "internlm2-20b": (20e9, 1e9),
    "ling-1t": (1e12, 1e12),
    "ling-flash-2.0": (103e9, 1e9),
    "ling-mini-2.0": (16.26e9, 0.01e9),
    "longcat-flash": (560e9, 10e9),
    "openelm-270m": (0.27e9, 0.01e9),
    "qwen-72b": (72e9, 1e9),
}
# active parameters: the card's figure, what its last digit is worth, and how many of the two tables it leaves out
ACTIVE = {
    "arctic": (17e9, 1e9, 0),
    "dbrx": (36e9, 1e9, 0),
    "dots.llm1": (14e9, 1e9, 0),
    "ernie-4.5-300b-a47b": (47e9, 1e9, 0),
    "granite-3.1-3b-a800m": (0.8e9, 0.1e9, 0),
    "granite-4.0-h-small": (9e9, 1e9, 0),
    "hunyuan-a13b": (13e9, 1e9, 0),
    "ling-flash-2.0": (6.1e9, 0.1e9, 0),
    "ling-mini-2.0": (1.43e9, 0.01e9, 0),
    "longcat-flash": (27e9, 1e9, 1),
    "olmoe-1b-7b": (1.3e9, 0.1e9, 0),
    "phi-3.5-moe": (6.6e9, 0.1e9, 0),
    "solar-open-100b": (12e9, 1e9, 0),
    "trinity-mini": (3e9, 1e9, 0),
}
# of the configs of test_moe_parameters and test_hybrid_parameters: layers of different sizes, indexers, experts in a latent
FURTHER = {
    "experts/deepseek-v3.2": (671.88e9, None),  # README_WEIGHTS.md of V3: 671 B, and 61 indexers of 13.96 M (worked out below)
    "experts/gemma-4-26b-a4b": (25_233_141_760, 3.8e9),  # built as above; 25.2 B and 3.8 B active on its card
    "experts/glm-5": (744e9, None),  # its card
    "experts/mimo-v2-flash": (308_778_768_832, 15e9),  # built as above; 309 B and 15 B active on its card
    "experts/nemotron-super-49b": (49_867_145_216, None),  # tensors of its checkpoint
    "hybrids/nemotron-3-super-120b-a12b": (120.6e9, 12.7e9),  # its report
    "hybrids/nemotron-3-ultra-550b-a55b": (550e9, 55e9),  # its card
}
ASK = {"on": "h100-sxm", "gpus": 64, "seq_len": 4096, "global_batch_size": 64, "tp": 1, "pp": 1, "micro_batch_size": 1}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


def read(name, change=None):
    folder = "" if "/" in name else "families/"
    config = load_config(CONFIGS / f"{folder}{name}.json") | (change or {})
    return model_from_config(config, f"{name}.json", name)[0]


# --- counts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT)
def test_a_config_counts_what_its_class_holds(name):
    """To a part in a hundred thousand: what is left are numbers a head or an expert, buffers of one and parameters of the other."""
    assert float(total_parameters(read(name))) == pytest.approx(BUILT[name], rel=1e-5)


@pytest.mark.parametrize("name", CARDS)
def test_a_config_counts_what_its_card_says(name):
    published, digit = CARDS[name]
    assert float(total_parameters(read(name))) == pytest.approx(published, abs=digit)


@pytest.mark.parametrize("name", ACTIVE)
def test_a_config_has_the_active_count_of_its_card(name):
    published, digit, tables = ACTIVE[name]
    model = read(name)
    active = float(active_parameters(model)) - tables * model.vocab_size * model.hidden_size
    assert active == pytest.approx(published, abs=digit)


@pytest.mark.parametrize("name", FURTHER)
def test_layers_of_their_own_sizes_count_as_published(name):
    total, active = FURTHER[name]
    model = read(name)
    assert float(total_parameters(model)) == pytest.approx(total, rel=0.005)
    if active is not None:
        assert float(active_parameters(model)) == pytest.approx(active, rel=0.035)


def test_every_excerpt_has_a_count():
    assert {path.stem for path in (CONFIGS / "families").glob("*.json")} == set(BUILT) | set(CARDS)


def test_an_indexer_adds_its_matrices_and_the_norm_of_its_key():
    """DeepSeek-V3.2 over V3: queries from the latent 1536 x 64 x 128, a key 7168 x 128, weights 7168 x 64, a norm 2 x 128; 61 layers."""
    one = 1536 * 64 * 128 + 7168 * 128 + 7168 * 64 + 2 * 128
    assert float(parameters.indexer(7168, 1536, 64, 128)) == one
    new, old = read("experts/deepseek-v3.2"), read("experts/deepseek-v3")
    assert float(total_parameters(new) - total_parameters(old)) == 61 * one
    assert float(matmul_parameters(new) - matmul_parameters(old)) == 62 * (one - 256)  # and the layer for a further token


def test_layers_that_share_an_indexer_hold_none():
    """GLM-5.2: of 78 layers those called full have one."""
    types = ["full", "full", "full"] + ["shared", "shared", "shared", "full"] * 18 + ["shared"] * 3
    shared, own = read("experts/glm-5", {"indexer_types": types}), read("experts/glm-5")
    one = float(parameters.indexer(6144, 2048, 32, 128))
    assert float(total_parameters(own) - total_parameters(shared)) == pytest.approx((78 - 21) * one, rel=1e-9)


# --- laws ----------------------------------------------------------------------------------------------------------


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


# --- estimates -----------------------------------------------------------------------------------------------------


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


def test_picked_keys_bound_the_core_and_the_indexer_sees_all():
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


def test_choices_that_compute_nothing_take_their_share():
    """LongCat-Flash: 12 choices of 768, of which 256 are empty: 8 experts on average, as its report says."""
    assert visited(read("longcat-flash")) == pytest.approx(8.0)
    all_real, some_empty = dims(**MIXTURE), dims(**MIXTURE, zero_expert_num=64)
    rows = [np.ravel(asked(m).step.tree["experts in gemm"].inputs["flop"])[0] for m in (all_real, some_empty)]
    assert rows[1] == pytest.approx(rows[0] / 2)


def grouped(change=(), **sizes):
    """A dense model whose layers are given as groups."""
    model = model_from_dimensions(dims())
    return model.replace(layer_groups=(LayerGroup(count=24, **sizes), *change))


def test_a_group_with_the_models_own_sizes_changes_nothing(monkeypatch):
    """The one law: layers listed as a group are the layers."""
    plain, listed = model_from_dimensions(dims()), grouped()
    assert float(total_parameters(plain)) == float(total_parameters(listed))
    assert float(matmul_parameters(plain)) == float(matmul_parameters(listed))
    assert cached_heads(plain) == cached_heads(listed)
    answers = []
    for model in (plain, listed):
        monkeypatch.setattr("ironlaw.estimate.bind.question.bind_model", lambda *_a, model=model: (model, []))
        group = asked("custom")
        answers.append((group.step.tree.value[0], group.memory.device[0], group.throughput["mfu_causal"].value[0]))
    assert answers[0] == pytest.approx(answers[1], rel=1e-12)


def test_openelm_counts_layer_by_layer():
    """Heads of 64, MLPs a multiple of 256 wide; the first and the last of its sixteen layers by hand."""
    model = read("openelm-270m")
    groups = model.layer_groups
    assert sum(group.count for group in groups) == 16
    assert (groups[0].num_attention_heads, groups[0].num_key_value_heads, groups[0].intermediate_size) == (12, 3, 768)  # 0.5 x 1280
    assert (groups[-1].num_attention_heads, groups[-1].intermediate_size) == (20, 5120)


def test_blocks_that_are_missing_cost_nothing():
    model = read("experts/nemotron-super-49b")
    kinds = {(g.mixer, g.mlp): 0 for g in model.layer_groups}
    for group in model.layer_groups:
        kinds[group.mixer, group.mlp] += group.count
    assert kinds == {("attention", "dense"): 49, ("none", "dense"): 31}
    assert cached_heads(model) == 8.0
    short = asked(str(CONFIGS / "experts" / "nemotron-super-49b.json"), tp=8)
    assert not [
        t for t in short.step.tree.parts[0].parts if t.name.startswith("attention-free") and any("flash" in p.name for p in t.parts)
    ]


@pytest.mark.parametrize("name", [*BUILT, *CARDS, *FURTHER])
def test_every_config_answers(name):
    folder = "" if "/" in name else "families/"
    answer = ironlaw.estimate(str(CONFIGS / f"{folder}{name}.json"), on="h200-sxm", gpus=512, tp=1, pp=1, zero=3, recompute="full",
                              seq_len=4096, global_batch_size=512, micro_batch_size=1)  # fmt: skip
    assert 0.0 < float(answer.step_seconds[0]) < 1e4
    assert 0.01 < float(answer.mfu[0]) < 0.8
    assert np.isfinite(answer.device_bytes[0])


def test_tensor_parallel_must_divide_the_heads_of_every_layer():
    group = asked(str(CONFIGS / "families" / "openelm-270m.json"), tp=8)
    assert not group.legal[0]
    assert "tp 8 does not divide num_attention_heads 12, 16, 20" in rules.broken(group.job, group.plan, group.rules, 0)


# --- what is not modelled ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_memory_experts", 8),
        ("attn_lowrank_rank", 64),
        ("foo_layer_types", ["full_attention"] * 32),
        ("residual_adapter_dim", 16),
        ("ffn_dim_multiplier", 1.3),
        ("engram_size", 1000),
        ("super_config", {"a": 1}),
        ("num_loops", 4),
        ("use_qk_norm", True),
        ("n_registers", 4),
        ("num_key_value_heads_per_layer", [8] * 32),
        ("add_cross_attention", True),
    ],
)
@pytest.mark.parametrize("base", ["llama", "phi-4", "dots.llm1", "granite-4.0-h-small"])
def test_a_field_nobody_has_seen_is_refused_by_name(base, field, value):
    config = LLAMA if base == "llama" else load_config(CONFIGS / "families" / f"{base}.json")
    if base == "dots.llm1" and field == "use_qk_norm":
        pytest.skip("which that family knows")
    with pytest.raises(UnsupportedError, match=field) as caught:
        model_from_config(config | {field: value}, "some/config.json", "x")
    assert "some/config.json" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "harmless",
    [
        {"rope_scaling": {"type": "yarn"}, "rms_norm_eps": 1e-5, "pretraining_tp": 2, "rope_theta": 1e6},
        {"num_memory_experts": 0, "adapter_dim": None, "foo_layer_types": []},
        {"output_attentions": False, "id2label": {"0": "a"}, "quantization_config": {"bits": 4}, "_name_or_path": "x"},
    ],
)
def test_a_field_without_weights_is_no_reason_to_refuse(harmless):
    plain, more = (model_from_config(c, "config.json", "x")[0] for c in (LLAMA, LLAMA | harmless))
    assert float(total_parameters(plain)) == float(total_parameters(more))


def test_an_unknown_type_is_named_with_what_is_near():
    with pytest.raises(UnsupportedError, match=r"unknown model_type 'llama5'; nearest known: .*llama"):
        model_from_config(LLAMA | {"model_type": "llama5"}, "config.json", "x")


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("experts/glm-5", {"index_topk_freq": 4}, "index_topk_freq"),
        ("experts/deepseek-v3.2", {"q_lora_rank": None}, "q_lora_rank"),
        ("experts/nemotron-super-49b", {"block_configs": [{"attention": {"replace_with_linear": True}}] * 80}, "replace_with_linear"),
        ("longcat-flash", {"zero_expert_type": "drop"}, "zero_expert_type"),
        ("arctic", {"moe_layer_frequency": 2}, "moe_layer_frequency"),
        ("hunyuan-a13b", {"moe_topk": [8] * 31 + [4]}, "moe_topk"),
        ("hunyuan-a13b", {"use_cla": True}, "use_cla"),
        ("ernie-4.5-21b-a3b", {"moe_layer_interval": 2}, "moe_layer_interval"),
        ("phi-2", {"qk_layernorm": True}, "qk_layernorm"),
        ("granite-4.0-h-small", {"mamba_conv_bias": False}, "mamba_conv_bias"),
        ("granite-4.0-h-small", {"layer_types": ["conv"] * 40}, "layer_types"),
        ("dots.llm1", {"mlp_layer_types": ["sparse", "dense"] * 31}, "mlp_layer_types"),
    ],
)
def test_a_variant_that_is_not_modelled_is_refused_by_name(name, change, says):
    with pytest.raises(UnsupportedError, match=says):
        read(name, change)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("experts/nemotron-super-49b", {"block_configs": [1, None]}, "block_configs"),
        ("openelm-270m", {"num_query_heads": [12] * 15}, "num_query_heads"),
        ("openelm-270m", {"ffn_multipliers": [float("nan")] * 16}, "ffn_multipliers"),
        ("bamba-9b", {"attn_layer_indices": [99]}, "attn_layer_indices"),
        ("bamba-9b", {"num_hidden_layers": 10**11}, "num_hidden_layers"),
        ("dots.llm1", {"n_routed_experts": "128"}, "n_routed_experts"),
        ("longcat-flash", {"zero_expert_num": -1}, "zero_expert_num"),
    ],
)
def test_a_wrong_value_is_named(name, change, says):
    with pytest.raises(InputError, match=says) as caught:
        read(name, change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kv_lora_rank": 64}, "kv_lora_rank needs qk_nope_head_dim"),
        ({"linear_attention_layers": 5}, "linear_attention_layers needs linear_num_key_heads"),
        ({"linear_attention_layers": 99, "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 64,
          "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4}, "linear_attention_layers 99 exceeds"),
        ({"index_topk": 64}, "index_topk needs kv_lora_rank"),
        ({"moe_latent_size": 64}, "moe_latent_size needs num_experts"),
        ({"mamba_layers": 2}, "mamba_layers needs one_block_layers"),
        ({"layer_groups": "x"}, "unknown model field 'layer_groups'"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0, must be a whole number from 1"),
    ],
)  # fmt: skip
def test_a_dimension_that_needs_another_says_which(given, says):
    with pytest.raises(IronlawError, match=says):
        model_from_dimensions(dims(**given))


# --- towers --------------------------------------------------------------------------------------------------------


def test_a_tower_beside_the_fields_of_the_language_model_is_left_out():
    """Qwen2.5-VL writes both into one object: 7.6 B is its language model, as of Qwen2.5 7B."""
    config = load_config(CONFIGS / "families" / "yi-34b.json") | {"model_type": "qwen2_5_vl", "vision_config": {"model_type": "qwen2_5_vl"}}
    config |= {
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
    }
    model, left_out = model_from_config(config | {"vocab_size": 152064}, "config.json", "x")
    assert left_out == ["vision tower (qwen2_5_vl)"]
    assert float(total_parameters(model)) == float(total_parameters(load.record("models", "qwen-2.5-7b")))


@pytest.mark.parametrize("name", ["text_config", "llm_config", "language_config"])
def test_the_language_model_may_stand_under_other_names(name):
    model, left_out = model_from_config({name: LLAMA, "vision_config": {"model_type": "vit"}}, "config.json", "x")
    assert (model.num_hidden_layers, left_out) == (32, ["vision tower (vit)"])


def test_the_page_lists_every_type_that_is_read():
    page = (paths.ROOT / "docs" / "how-to" / "add-a-model.md").read_text(encoding="utf-8")
    assert [name for name in READERS if f"`{name}`" not in page] == []


def test_excerpts_hold_fields_alone():
    for path in (CONFIGS / "families").glob("*.json"):
        assert len(json.loads(path.read_text(encoding="utf-8"))) < 40
