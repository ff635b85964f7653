"""Mixtures of experts and latent attention: published counts, total and active, and the configs that are read or refused."""

import json

import pytest

import paths
from ironlaw.catalog import load
from ironlaw.catalog.config_json.read import load_config, model_from_config
from ironlaw.errors import InputError, UnsupportedError
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.law import parameters

CONFIGS = paths.DATA / "hf_configs" / "experts"
MODELS = {name: load.record("models", name) for name in load.names("models")}
# layers that differ and indexers are counted in published_parameters.csv
OTHER = {name for name, m in MODELS.items() if m.one_block_layers or m.linear_attention_layers or m.layer_groups or m.index_topk}
EXPERTS = [name for name, m in MODELS.items() if m.num_experts and name not in OTHER]
DIMENSIONS = [
    name
    for name in load.record("models", "deepseek-v3").fields
    if name not in ("name", "title", "family", "source", "published_parameters", "published_active_parameters", "towers")
]

# A published total too coarse, or of another convention, to compare; the record says which.
NO_TOTAL = {"kimi-k2", "llama-4-scout", "glm-4.5", "glm-4.5-air"}
# Active parameters are all parameters but the routed experts a token does not visit. Cards differ in whether the tables count:
# those of Mixtral, Qwen and Llama 4 count both, these leave the input embedding out (1), or both tables (2).
TABLES_NOT_COUNTED = {
    "deepseek-v2": 1,
    "deepseek-v2-lite": 1,
    "deepseek-v3": 1,
    "gpt-oss-20b": 1,
    "gpt-oss-120b": 1,
    "kimi-k2": 1,
    "glm-4.5": 2,
    "glm-4.5-air": 2,
    "minimax-m2.5": 2,
}


def attention(model):
    if model.kv_lora_rank:
        return parameters.latent_attention(
            model.hidden_size,
            model.num_attention_heads,
            model.q_lora_rank,
            model.kv_lora_rank,
            model.qk_nope_head_dim,
            model.qk_rope_head_dim,
            model.v_head_dim,
        )
    each_head = model.qk_norm_heads * model.head_dim * (model.num_attention_heads + model.num_key_value_heads - 2)
    gate = model.attention_output_gate * model.hidden_size * model.num_attention_heads * model.head_dim
    return (
        each_head
        + gate
        + model.attention_sinks * model.num_attention_heads
        + parameters.attention(
            model.hidden_size,
            model.num_attention_heads,
            model.num_key_value_heads,
            model.head_dim,
            model.query_key_value_bias,
            model.attention_output_bias,
            model.qk_norm,
        )
    )


def routed_mlp(model, experts):
    count = parameters.router(model.hidden_size, model.num_experts, model.router_bias)
    count = count + experts * parameters.expert(model.hidden_size, model.moe_intermediate_size, model.gated_mlp, model.expert_bias)
    if model.shared_expert_intermediate_size:
        count = count + parameters.mlp(model.hidden_size, model.shared_expert_intermediate_size, model.gated_mlp, model.mlp_bias)
    return count + model.shared_expert_gate * model.hidden_size


def counted(model, experts=None):
    """All parameters with ``experts`` of each routed layer, every one by default; further-token layers are not among them."""
    experts = model.num_experts if experts is None else experts
    routed = (model.num_hidden_layers - model.first_k_dense_replace) // model.moe_layer_freq if model.num_experts else 0
    dense = model.num_hidden_layers - routed
    norm = parameters.norm(model.hidden_size, {"layernorm": 2}.get(model.norm, 1))
    count = model.num_hidden_layers * (attention(model) + model.norms_per_layer * norm)
    count = count + dense * parameters.mlp(model.hidden_size, model.intermediate_size, model.gated_mlp, model.mlp_bias)
    count = count + (routed * routed_mlp(model, experts) if routed else 0)
    tables = (2 - model.tie_word_embeddings) * parameters.embedding(model.vocab_size, model.hidden_size)
    return float(count + tables + norm + model.output_bias * model.vocab_size)


def further_token_layer(model):
    """One layer that predicts a further token: two states joined to one, then a routed layer."""
    norms = (model.norms_per_layer + 3) * parameters.norm(model.hidden_size, 1)
    return float(attention(model) + routed_mlp(model, model.num_experts) + norms + 2 * model.hidden_size**2)


def table(model):
    return float(parameters.embedding(model.vocab_size, model.hidden_size))


def last_digit(text):
    """What one more in the last digit of a published figure is worth: half of it is rounding, all of it cutting off.

    >>> last_digit("12.9 B parameters")
    100000000.0
    """
    number, prefix = text.split()[:2]
    return {"B": 1e9, "M": 1e6}[prefix] * 10.0 ** -len(number.partition(".")[2])


@pytest.mark.parametrize("name", EXPERTS)
def test_a_catalogued_model_has_its_published_total(name):
    model = load.record("models", name)
    assert (model.published_parameters is None) == (name in NO_TOTAL)
    if model.published_parameters is not None:
        assert counted(model) == pytest.approx(model.published_parameters.value, rel=0.005)


@pytest.mark.parametrize("name", EXPERTS)
def test_a_catalogued_model_has_its_published_active_count(name):
    model, tables = load.record("models", name), TABLES_NOT_COUNTED.get(name, 0)
    published = model.published_active_parameters
    says = ("both embedding tables counted", "the input embedding not counted", "neither embedding table counted")
    assert published.note.startswith(says[tables])
    active = counted(model, model.num_experts_per_tok) - tables * table(model)
    assert active == pytest.approx(published.value, abs=last_digit(published.text))


@pytest.mark.parametrize(
    ("name", "total"), [("mixtral-8x7b", 46_702_792_704), ("qwen-3-30b-a3b", 30_532_122_624), ("qwen-3-235b-a22b", 235_093_634_560)]
)
def test_counts_of_loaded_checkpoints_are_exact(name, total):
    assert counted(load.record("models", name)) == total


def test_gpt_oss_has_the_parts_its_card_lists():
    """Table 1 of the model card: MLP 114.71 B, attention 0.96 B, embedding and unembedding 1.16 B."""
    model = load.record("models", "gpt-oss-120b")
    assert round(36 * float(routed_mlp(model, 128)) / 1e9, 2) == 114.71
    assert round(36 * float(attention(model)) / 1e9, 2) == 0.96
    assert round(2 * table(model) / 1e9, 2) == 1.16


def test_deepseek_v3_has_the_prediction_layer_of_its_readme():
    """README_WEIGHTS.md: 11.5 B parameters of its own."""
    assert further_token_layer(load.record("models", "deepseek-v3")) == pytest.approx(11.5e9, rel=0.01)


def test_glm_has_its_published_total_by_the_convention_of_its_paper():
    """Table 1 of the paper: the layer for a further token included, embedding and output layer not."""
    model = load.record("models", "glm-4.5")
    assert counted(model) + further_token_layer(model) - 2 * table(model) == pytest.approx(355e9, rel=0.005)


@pytest.mark.parametrize("name", EXPERTS)
def test_the_estimate_counts_as_this_file_does(name):
    model = load.record("models", name)
    assert float(total_parameters(model)) == pytest.approx(counted(model), rel=1e-12)
    assert float(active_parameters(model)) == pytest.approx(counted(model, model.num_experts_per_tok), rel=1e-12)


@pytest.mark.parametrize("name", EXPERTS)
def test_a_catalogued_model_is_consistent(name):
    model = load.record("models", name)
    assert 0 < model.num_experts_per_tok <= model.num_experts
    assert 0 <= model.first_k_dense_replace < model.num_hidden_layers
    assert (model.num_hidden_layers - model.first_k_dense_replace) % model.moe_layer_freq == 0
    assert model.shared_expert_intermediate_size % model.moe_intermediate_size == 0
    if model.kv_lora_rank:
        assert model.head_dim == model.qk_nope_head_dim + model.qk_rope_head_dim
        assert model.num_key_value_heads == model.num_attention_heads


def test_latent_attention_is_its_matrices_and_the_norms_of_its_latents():
    v3 = (7168, 128, 1536, 512, 128, 64, 128)
    assert float(parameters.latent_attention(*v3)) == float(parameters.latent_attention_matmul(*v3)) + 1536 + 512
    lite = (2048, 16, 0, 512, 128, 64, 128)
    assert float(parameters.latent_attention(*lite)) == float(parameters.latent_attention_matmul(*lite)) + 512


def test_one_expert_is_a_dense_block():
    assert float(parameters.experts(4096, 1, 14336, 1, 0)) == float(parameters.mlp(4096, 14336, 1, 0))
    assert float(parameters.expert(2880, 2880, 1, 1)) == float(parameters.mlp(2880, 2880, 1, 1))


# --- config.json ---------------------------------------------------------------------------------------------------

STORAGE = "quantization_config (released weights' storage)"
LEFT_OUT = {
    "deepseek-v3": [STORAGE],
    "deepseek-v3.2": [STORAGE],
    "gpt-oss-20b": [STORAGE],
    "gpt-oss-120b": [STORAGE],
    "kimi-k2": [STORAGE],
    "kimi-k2.5": [STORAGE, "vision tower (unnamed)"],
    "gemma-4-26b-a4b": ["vision tower (gemma4_vision)"],
    "mimo-v2-flash": [STORAGE],
    "minimax-m2.5": [STORAGE],
    "qwen-3-vl-30b-a3b": ["vision tower (qwen3_vl_moe)"],
}
FILES = sorted(path.stem for path in CONFIGS.glob("*.json"))
FAMILIES = CONFIGS.parent / "families"  # whose counts test_published_counts has


def read(name, change=None):
    folder = CONFIGS if name in FILES else FAMILIES
    config = load_config(folder / f"{name}.json")
    return model_from_config(config | (change or {}), f"{name}.json", name)


def test_minicpm_with_and_without_experts():
    """MiniCPM 2B by hand: 40 layers of 4 x 2304^2 + 3 x 2304 x 5760 and two norms; 8 experts have 7 more MLPs and a router."""
    config = {
        "model_type": "minicpm", "hidden_size": 2304, "num_hidden_layers": 40, "num_attention_heads": 36, "num_key_value_heads": 36,
        "intermediate_size": 5760, "vocab_size": 122753, "max_position_embeddings": 4096, "scale_emb": 12, "dim_model_base": 256,
        "scale_depth": 1.4,
    }  # fmt: skip
    dense = 40 * (4 * 2304**2 + 3 * 2304 * 5760 + 2 * 2304) + 2304 + 122753 * 2304
    assert float(total_parameters(model_from_config(config, "config.json", "x")[0])) == dense
    mixture = model_from_config(config | {"num_experts": 8, "num_experts_per_tok": 2}, "config.json", "x")[0]
    assert float(total_parameters(mixture)) == dense + 40 * (7 * 3 * 2304 * 5760 + 8 * 2304)


@pytest.mark.parametrize("name", FILES)
def test_every_config_is_read(name):
    model, left_out = read(name)
    assert left_out == LEFT_OUT.get(name, [])
    if not model.layer_groups and not model.index_topk:  # those have their published counts in published_parameters.csv
        assert float(total_parameters(model)) == pytest.approx(counted(model), rel=1e-12)


@pytest.mark.parametrize("name", EXPERTS)
def test_a_config_reads_as_the_catalogued_model(name):
    model, known = read(name)[0], load.record("models", name)
    assert {key: getattr(model, key) for key in DIMENSIONS} == {key: getattr(known, key) for key in DIMENSIONS}


def test_every_catalogued_model_has_a_config():
    assert set(EXPERTS) <= {*FILES, *(path.stem for path in FAMILIES.glob("*.json"))}


def test_the_text_tower_of_a_multimodal_model_is_the_language_model():
    vision, text = read("qwen-3-vl-30b-a3b")[0], read("qwen-3-30b-a3b")[0]
    assert counted(vision) == counted(text)
    assert counted(read("kimi-k2.5")[0]) == counted(read("kimi-k2")[0])


def test_a_dense_model_may_have_a_prediction_layer():
    model = read("mimo-7b")[0]
    assert (model.num_experts, model.num_nextn_predict_layers) == (0, 1)


def test_prediction_modules_are_counted_where_they_are_used():
    assert read("minimax-m2.5")[0].num_nextn_predict_layers == 3
    assert read("minimax-m2.5", {"use_mtp": False})[0].num_nextn_predict_layers == 0


def test_dense_layers_named_by_a_list_are_at_the_front():
    assert read("qwen-3-30b-a3b", {"mlp_only_layers": [0, 1]})[0].first_k_dense_replace == 2
    assert read("qwen-3-30b-a3b", {"decoder_sparse_step": 2})[0].moe_layer_freq == 2


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("qwen-3-30b-a3b", {"mlp_only_layers": [5]}, "mlp_only_layers"),
        ("qwen-3-30b-a3b", {"shared_expert_intermediate_size": 512}, "shared_expert_intermediate_size"),
        ("qwen-3-30b-a3b", {"kv_lora_rank": 512}, "kv_lora_rank"),
        ("mixtral-8x7b", {"n_shared_experts": 1}, "n_shared_experts"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ("deepseek-v3", {"moe_layer_freq": 2}, "moe_layer_freq"),
        ("deepseek-v3", {"moe_layer_freq": [0, 1]}, "moe_layer_freq"),
        ("deepseek-v3", {"first_k_dense_replace": 62}, "first_k_dense_replace"),
        ("deepseek-v3", {"attention_bias": True}, "attention_bias"),
        ("deepseek-v3", {"index_n_heads": 64}, "index_n_heads"),
        ("minimax-m2.5", {"shared_intermediate_size": 1536}, "shared_intermediate_size"),
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "layer_types"),
    ],
)
def test_a_variant_that_is_not_modelled_is_refused_by_name(name, change, says):
    with pytest.raises(UnsupportedError, match=says):
        read(name, change)


@pytest.mark.parametrize("value", ["8", -1, True, 1.5, [8], {}])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("deepseek-v3", "n_routed_experts"),
        ("deepseek-v3", "q_lora_rank"),
        ("deepseek-v3", "num_nextn_predict_layers"),
        ("deepseek-v3", "first_k_dense_replace"),
        ("mixtral-8x7b", "num_local_experts"),
    ],
)
def test_a_wrong_number_names_field_and_file(name, field, value):
    with pytest.raises(InputError) as caught:
        read(name, {field: value})
    assert field in str(caught.value) and f"{name}.json" in str(caught.value)


def test_excerpts_have_fields_only():
    for name in FILES:
        assert len(json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))) < 60


@pytest.mark.parametrize(
    ("name", "groups", "limit"),
    [("deepseek-v2", 8, 3), ("deepseek-v2-lite", 1, 1), ("deepseek-v3", 8, 4), ("kimi-k2", 1, 1), ("glm-4.5", 1, 1)],
)
def test_groups_of_experts_are_those_of_the_papers(name, groups, limit):
    """DeepSeek-V2, section 2.2.2: 8 devices, at most 3; DeepSeek-V3, section 4.2: 8 nodes, at most 4."""
    assert (MODELS[name].n_group, MODELS[name].topk_group) == (groups, limit)
    read, _ = model_from_config(load_config(CONFIGS / f"{name}.json"), "here", name)
    assert (read.n_group, read.topk_group) == (groups, limit)


def test_a_router_that_ignores_its_groups_is_not_limited():
    config = load_config(CONFIGS / "deepseek-v2.json")
    read, _ = model_from_config({**config, "topk_method": "greedy"}, "here", "v2")
    assert (read.n_group, read.topk_group) == (1, 1)


def test_more_groups_than_there_are_is_refused():
    config = load_config(CONFIGS / "deepseek-v3.json")
    with pytest.raises(UnsupportedError, match="topk_group"):
        model_from_config({**config, "topk_group": 9}, "here", "v3")
