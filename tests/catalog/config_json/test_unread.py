"""Fields and types that are not read: refused by name, unless they have no parameters."""

import pytest

import paths
from ironlaw.catalog.config_json.read import load_config, model_from_config
from ironlaw.errors import InputError, UnsupportedError
from ironlaw.estimate.layer.counts import total_parameters

CONFIGS = paths.DATA / "hf_configs"
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
        ("total_ut_steps", 4),
        ("value_embeds", True),
        ("foo", 3),
        ("foo", [1, 2]),
        ("use_qk_norm", True),
        ("n_registers", 4),
        ("num_key_value_heads_per_layer", [8] * 32),
        ("add_cross_attention", True),
    ],
)
@pytest.mark.parametrize("base", ["llama", "phi-4", "dots.llm1", "granite-4.0-h-small"])
def test_an_unknown_field_is_refused_by_name(base, field, value):
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
        {"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "context_window_size": 8192, "max_sequence_length": 8192},
        {"sliding_window": 4096, "layer_types": ["full_attention"] * 32, "trained_by": "a team", "use_fused_rope": True},
        {"output_attentions": False, "id2label": {"0": "a"}, "quantization_config": {"bits": 4}, "_name_or_path": "x"},
    ],
)
def test_a_field_without_weights_is_no_reason_to_refuse(harmless):
    plain, more = (model_from_config(c, "config.json", "x")[0] for c in (LLAMA, LLAMA | harmless))
    assert float(total_parameters(plain)) == float(total_parameters(more))


# Qwen3-VL 8B as published, with another network or a looped depth beside its language model, in it, or in its tower
NETWORKS = [
    ("talker_config", {"hidden_size": 1024}),
    ("sound_config", {"num_hidden_layers": 12}),
    ("dit_config", {"depth": 24}),
    ("action_expert_config", {"width": 1024}),
    ("depth_decoder_config", {"num_layers": 4}),
    ("perceiver_config", {"resampler_depth": 3}),
    ("qformer_config", {"hidden_size": 768}),
    ("num_loops", 4),
    ("mtp_num_hidden_layers", 1),
    ("num_experts", 8),
]


@pytest.mark.parametrize(("field", "value"), NETWORKS, ids=[name for name, _ in NETWORKS])
@pytest.mark.parametrize("place", ["", "text_config", "vision_config"])
def test_a_network_is_refused_at_every_depth(place, field, value):
    config = load_config(CONFIGS / "towers" / "qwen3-vl-8b.json")
    changed = config | ({place: config[place] | {field: value}} if place else {field: value})
    with pytest.raises(UnsupportedError, match=f"'{place + '.' if place else ''}{field}'"):
        model_from_config(changed, "config.json", "x")


def test_a_field_inside_an_object_that_is_read_is_refused():
    config = load_config(CONFIGS / "families" / "dbrx.json")
    with pytest.raises(UnsupportedError, match=r"'ffn_config\.num_memory_experts'"):
        model_from_config(config | {"ffn_config": config["ffn_config"] | {"num_memory_experts": 2}}, "config.json", "x")


def test_a_copy_of_a_size_beside_the_language_model_is_no_network():
    config = load_config(CONFIGS / "towers" / "qwen3-vl-8b.json")
    model, left_out = model_from_config(config | {"vocab_size": 1000, "image_seq_length": 256}, "config.json", "x")
    assert float(total_parameters(model)) == float(total_parameters(model_from_config(config, "config.json", "x")[0]))
    assert "vocab_size 1000 beside the language model, which has 151936" in left_out


@pytest.mark.parametrize("outer", [True, False])
def test_the_outer_file_says_whether_embeddings_are_tied(outer):
    """As transformers 5 does: Qwen3-VL 8B has 151,936 rows of 4,096 in an output layer that is not tied."""
    config = load_config(CONFIGS / "towers" / "qwen3-vl-8b.json")
    config |= {"tie_word_embeddings": outer, "text_config": config["text_config"] | {"tie_word_embeddings": not outer}}
    model, left_out = model_from_config(config, "config.json", "x")
    untied = model_from_config(config | {"tie_word_embeddings": False}, "config.json", "x")[0]
    assert model.tie_word_embeddings is outer
    assert float(total_parameters(untied) - total_parameters(model)) == (151936 * 4096 if outer else 0)
    assert f"text_config.tie_word_embeddings {not outer} (the outer field, {outer}, counts, as in transformers 5)" in left_out


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("llama", {}, "llama has all its fields"),
        ("llama", {"num_memory_experts": 8}, "nearest to llama, which does not have 'num_memory_experts' = 8"),
        ("families/dots.llm1", {"engram_size": 4}, "nearest to dots1, which does not have 'engram_size' = 4"),
        ("towers/qwen3-vl-8b", {}, "qwen3_vl_text has all its fields"),
    ],
)
def test_an_unknown_type_is_refused_with_the_family_that_comes_nearest(name, change, says):
    """The type's name has two more letters, so that it is the file's fields that are told apart."""
    config = LLAMA if name == "llama" else load_config(CONFIGS / f"{name}.json")
    place = "text_config" if "text_config" in config else ""
    text = config[place] if place else config
    changed = text | change | {"model_type": f"x{text['model_type']}x"}
    with pytest.raises(UnsupportedError, match=says):
        model_from_config({**config, place: changed} if place else changed, "config.json", "x")


def test_a_type_whose_parts_no_family_has_is_refused():
    with pytest.raises(UnsupportedError, match="no family reads its fields"):
        model_from_config({"model_type": "x", "hidden_size": 8}, "config.json", "x")


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


def test_a_refused_field_names_types_that_read_it():
    from ironlaw.catalog.config_json.model_types import READERS
    from ironlaw.catalog.config_json.unread import COMMON, RARE, READ_WITH

    assert set(READ_WITH) <= set(RARE.values()) | set(COMMON.values())
    for near in READ_WITH.values():
        named = near.partition(";")[0].partition(" (")[0].replace(" or ", ", ").split(", ")
        assert set(named) <= set(READERS)
