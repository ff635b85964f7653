"""Hybrids of attention with Mamba-2 or a gated delta rule: published counts, and the configs that are read or refused."""

import json

import numpy as np
import pytest

import paths
from ironlaw.catalog import load
from ironlaw.catalog.config_json.read import load_config, model_from_config
from ironlaw.errors import InputError, UnsupportedError
from ironlaw.law import flops, parameters

CONFIGS = paths.DATA / "hf_configs" / "hybrids"
FILES = sorted(path.stem for path in CONFIGS.glob("*.json"))
MODELS = {name: load.record("models", name) for name in load.names("models")}
HYBRIDS = [name for name, m in MODELS.items() if m.one_block_layers or m.linear_attention_layers]
DIMENSIONS = [
    name
    for name in MODELS["deepseek-v3"].fields
    if name not in ("name", "title", "family", "source", "published_parameters", "published_active_parameters", "towers")
]
NO_TOTAL = {"nemotron-h-56b": "56 B", "nemotron-h-8b": "8 B"}  # published, too coarse for 0.5 %
# the first counts as Nemotron 3 Nano does, the others are in test_published_counts.py
NOT_CATALOGUED = {"nemotron-3.5-lightning-30b-a3b", "nemotron-3-super-120b-a12b", "nemotron-3-ultra-550b-a55b"}
REFUSED: dict[str, str] = {}
MAMBA = ("hidden_size", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "mamba_n_groups", "conv_kernel")
LINEAR = (
    "hidden_size",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)


def of(model, names):
    return [getattr(model, name) for name in names]


def attention(model):
    projections = parameters.attention(
        model.hidden_size,
        model.num_attention_heads,
        model.num_key_value_heads,
        model.head_dim,
        model.query_key_value_bias,
        model.attention_output_bias,
        model.qk_norm,
    )
    return projections + model.attention_output_gate * model.hidden_size * model.num_attention_heads * model.head_dim


def dense_mlp(model, width):
    return parameters.mlp(model.hidden_size, width, model.gated_mlp, model.mlp_bias)


def routed_mlp(model, experts):
    count = parameters.router(model.hidden_size, model.num_experts, model.router_bias) + model.shared_expert_gate * model.hidden_size
    count = count + experts * parameters.expert(model.hidden_size, model.moe_intermediate_size, model.gated_mlp, model.expert_bias)
    return count + dense_mlp(model, model.shared_expert_intermediate_size)


def counted(model, experts=None):
    """All parameters with ``experts`` of each routed layer, every one by default; further-token layers are not among them."""
    experts, layers = model.num_experts if experts is None else experts, model.num_hidden_layers
    if model.one_block_layers:
        mamba, attending, dense, routed, norms = (model.mamba_layers, model.attention_layers, model.mlp_layers, model.routed_layers, 1)
        assert mamba + attending + dense + routed == layers
    else:
        mamba, attending, norms = 0, layers - model.linear_attention_layers, 2
        routed = layers if model.num_experts else 0
        dense = layers - routed
    count = attending * attention(model) + norms * layers * parameters.norm(model.hidden_size, 1)
    count = count + (mamba * parameters.mamba(*of(model, MAMBA)) if mamba else 0)
    if model.linear_attention_layers:
        count = count + model.linear_attention_layers * parameters.linear_attention(*of(model, LINEAR))
    count = count + (dense * dense_mlp(model, model.intermediate_size) if dense else 0)
    count = count + (routed * routed_mlp(model, experts) if routed else 0)
    tables = (2 - model.tie_word_embeddings) * parameters.embedding(model.vocab_size, model.hidden_size)
    return float(count + tables + parameters.norm(model.hidden_size, 1))


def last_digit(text):
    """What one more in the last digit of a published figure is worth: half of it is rounding, all of it cutting off.

    >>> last_digit("31.6 B parameters")
    100000000.0
    """
    return 1e9 * 10.0 ** -len(text.split()[0].partition(".")[2])


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_catalogued_model_has_its_published_total(name):
    model = MODELS[name]
    assert (model.published_parameters is None) == (name in NO_TOTAL)
    if name in NO_TOTAL:
        assert counted(model) == pytest.approx(float(NO_TOTAL[name].split()[0]) * 1e9, abs=last_digit(NO_TOTAL[name]) / 2)
    else:
        assert counted(model) == pytest.approx(model.published_parameters.value, rel=0.005)


@pytest.mark.parametrize("name", [name for name in HYBRIDS if MODELS[name].num_experts])
def test_a_catalogued_model_has_its_published_active_count(name):
    published = MODELS[name].published_active_parameters
    assert published.note.startswith("both embedding tables counted")
    assert counted(MODELS[name], MODELS[name].num_experts_per_tok) == pytest.approx(published.value, abs=last_digit(published.text))


def test_nemotron_3_nano_has_its_published_active_count_without_a_table():
    """The report: 3.6 B active with embeddings, 3.2 B without; the second figure is one table less."""
    model = MODELS["nemotron-3-nano-30b-a3b"]
    table = float(parameters.embedding(model.vocab_size, model.hidden_size))
    assert round((counted(model, 6) - table) / 1e9, 1) == 3.2


def test_nemotron_h_4b_has_the_size_of_its_checkpoint():
    """Two files of 4.99 and 3.98 GB in bf16, https://huggingface.co/nvidia/Nemotron-H-4B-Base-8K/tree/main."""
    change = {"hidden_size": 3072, "intermediate_size": 12288, "mamba_num_heads": 112}
    assert counted(read("nemotron-h-8b", change)[0]) == pytest.approx((4.99e9 + 3.98e9) / 2, rel=0.002)


@pytest.mark.parametrize("name", HYBRIDS)
def test_the_estimate_counts_as_this_file_does(name):
    from ironlaw.estimate.layer.counts import active_parameters, total_parameters

    model = MODELS[name]
    assert float(total_parameters(model)) == pytest.approx(counted(model), rel=1e-12)
    assert float(active_parameters(model)) == pytest.approx(counted(model, model.num_experts_per_tok), rel=1e-12)


# --- the laws ------------------------------------------------------------------------------------------------------


def test_only_matrices_are_matmul_parameters():
    nano = (2688, 64, 64, 128, 8)
    channels = 64 * 64 + 2 * 8 * 128
    assert float(parameters.mamba(*nano, 4)) == float(parameters.mamba_matmul(*nano)) + 5 * channels + 3 * 64 + 64 * 64
    next_80b = (2048, 16, 32, 128, 128)
    convolution = 4 * (2 * 16 + 32) * 128
    assert (
        float(parameters.linear_attention(*next_80b, 4))
        == float(parameters.linear_attention_matmul(*next_80b)) + convolution + 2 * 32 + 128
    )


def test_a_chunk_of_one_token_is_the_recurrence():
    """Mamba-2: the state is scaled and added to, then read: 4 n p, and what stands inside a chunk of one."""
    per_token = float(flops.mamba_scan(1, 1, 1, 64, 128, 1))
    assert per_token == 2 * (128 + 64 + 2 * 128 * 64 + 128 * 64)
    assert float(flops.delta_rule_scan(1, 1, 1, 128, 128, 1)) == pytest.approx(6 * 128**2 + 2 * 5 * 128, rel=1e-4)


def test_a_scan_goes_with_tokens_and_not_with_their_square():
    for scan in (flops.mamba_scan, flops.delta_rule_scan):
        np.testing.assert_allclose(scan(1, 2.0**20, 32, 128, 128, 64), 2.0**10 * scan(1, 2.0**10, 32, 128, 128, 64))
        assert scan(1, 65536, 32, 128, 128, 64) < flops.attention_core(1, 65536, 32768, 32, 128)


def test_heads_of_a_group_share_their_scores():
    own, shared = flops.mamba_scan(1, 4096, 128, 64, 128, 128), flops.mamba_scan(1, 4096, 128, 64, 128, 128, 8)
    assert own - shared == 2 * 4096 * 128 * 128 * (128 - 8)
    assert flops.mamba_scan(1, 4096, 128, 64, 128, 128, 128) == own


# --- config.json ---------------------------------------------------------------------------------------------------


def read(name, change=None, inner=None):
    config = load_config(CONFIGS / f"{name}.json") | (change or {})
    if inner is not None:
        config["text_config"] = config["text_config"] | inner
    return model_from_config(config, f"{name}.json", name)


@pytest.mark.parametrize("name", FILES)
def test_every_config_is_read_or_refused_by_the_field(name):
    if name in REFUSED:
        with pytest.raises(UnsupportedError) as caught:
            read(name)
        assert REFUSED[name] in str(caught.value) and f"{name}.json" in str(caught.value) and "\n" not in str(caught.value)
    else:
        vision = {"qwen-3.5-27b": "qwen3_5"}.get(name, "qwen3_5_moe")
        assert read(name)[1] == ([f"vision tower ({vision})"] if name.startswith("qwen-3.5") else [])


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_config_reads_as_the_catalogued_model(name):
    model, known = read(name)[0], MODELS[name]
    assert {key: getattr(model, key) for key in DIMENSIONS} == {key: getattr(known, key) for key in DIMENSIONS}


def test_every_config_is_catalogued_or_named_here():
    assert set(FILES) == set(HYBRIDS) | set(REFUSED) | NOT_CATALOGUED


def test_layers_are_counted_by_kind():
    """The project page of Nemotron-H: 54 Mamba-2, 54 MLP and 10 attention layers."""
    model = read("nemotron-h-56b")[0]
    assert (model.mamba_layers, model.mlp_layers, model.attention_layers, model.routed_layers) == (54, 54, 10, 0)
    model = read("nemotron-3-nano-30b-a3b")[0]
    assert (model.mamba_layers, model.mlp_layers, model.attention_layers, model.routed_layers) == (23, 0, 6, 23)


def test_a_list_of_layers_and_a_pattern_of_letters_are_equal():
    listed, spelt = read("nemotron-3.5-lightning-30b-a3b")[0], read("nemotron-3-nano-30b-a3b")[0]
    assert counted(listed) == counted(spelt)
    assert (listed.num_nextn_predict_layers, spelt.num_nextn_predict_layers) == (1, 0)


def test_an_interval_and_a_list_of_layers_are_equal():
    listed, interval = read("qwen-3.5-35b-a3b")[0], read("qwen-3.5-35b-a3b", inner={"layer_types": None})[0]
    assert listed.linear_attention_layers == interval.linear_attention_layers == 30


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("nemotron-h-56b", {"use_bias": True}, "use_bias"),
        ("nemotron-h-56b", {"mamba_proj_bias": True}, "mamba_proj_bias"),
        ("nemotron-h-56b", {"use_conv_bias": False}, "use_conv_bias"),
        ("nemotron-h-56b", {"sliding_window": 4096}, "sliding_window"),
        ("nemotron-h-56b", {"hybrid_override_pattern": "M|" * 59}, "hybrid_override_pattern"),
        ("nemotron-h-56b", {"linear_num_key_heads": 16}, "linear_num_key_heads"),
        ("nemotron-h-56b", {"kv_lora_rank": 512}, "kv_lora_rank"),
        ("nemotron-3-nano-30b-a3b", {"n_shared_experts": 2}, "n_shared_experts"),
        ("nemotron-3.5-lightning-30b-a3b", {"mtp_layers_block_type": ["mamba", "moe"]}, "mtp_layers_block_type"),
        ("qwen-3-next-80b-a3b", {"attention_bias": True}, "attention_bias"),
        ("qwen-3-next-80b-a3b", {"use_sliding_window": True}, "use_sliding_window"),
        ("qwen-3-next-80b-a3b", {"mlp_only_layers": [5]}, "mlp_only_layers"),
        ("qwen-3-next-80b-a3b", {"layer_types": ["sliding_attention"] * 48}, "layer_types"),
        ("qwen-3-next-80b-a3b", {"mamba_num_heads": 16}, "mamba_num_heads"),
    ],
)
def test_a_variant_that_is_not_modelled_is_refused_by_name(name, change, says):
    with pytest.raises(UnsupportedError, match=says):
        read(name, change)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("nemotron-h-56b", {"num_hidden_layers": 117}, "num_hidden_layers"),
        ("nemotron-h-56b", {"hybrid_override_pattern": None}, "hybrid_override_pattern"),
        ("nemotron-h-56b", {"hybrid_override_pattern": ""}, "hybrid_override_pattern"),
        ("nemotron-h-56b", {"hybrid_override_pattern": ["M"]}, "hybrid_override_pattern"),
        ("nemotron-h-56b", {"layers_block_type": "M"}, "layers_block_type"),
        ("nemotron-h-56b", {"mamba_num_heads": "256"}, "mamba_num_heads"),
        ("qwen-3-next-80b-a3b", {"linear_num_value_heads": -1}, "linear_num_value_heads"),
        ("qwen-3-next-80b-a3b", {"layer_types": ["full_attention"]}, "layer_types"),
        ("qwen-3-next-80b-a3b", {"full_attention_interval": 0}, "full_attention_interval"),
    ],
)
def test_a_wrong_value_names_field_and_file(name, change, says):
    with pytest.raises(InputError, match=says) as caught:
        read(name, change)
    assert f"{name}.json" in str(caught.value)


@pytest.mark.parametrize(
    "field", ["full_attention_interval", "linear_num_key_heads", "ssm_state_size", "mamba_num_heads", "attn_output_gate"]
)
def test_other_model_types_still_refuse_these_fields(field):
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32} | {field: 4}
    with pytest.raises(UnsupportedError, match=field):
        model_from_config(config, "config.json", "x")


def test_excerpts_have_fields_only():
    for name in FILES:
        assert len(json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))) < 60
