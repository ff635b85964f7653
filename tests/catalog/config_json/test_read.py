"""Hugging Face configs: what is read, and the one line that is said of what is not."""

import json

import pytest

import paths
from ironlaw.catalog import load
from ironlaw.catalog.config_json.read import SIZE_LIMIT, load_config, model_from_config
from ironlaw.errors import InputError, UnsupportedError
from ironlaw.estimate.layer.counts import total_parameters as counted

CONFIGS = paths.DATA / "hf_configs"
DIMENSIONS = (
    "hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim intermediate_size vocab_size "
    "max_position_embeddings tie_word_embeddings gated_mlp hidden_act norm norms_per_layer embedding_norm qk_norm "
    "position_embedding query_key_value_bias attention_output_bias mlp_bias dropout sliding_window sliding_window_layers"
).split()
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


def read(config, name="x"):
    return model_from_config(config, "some/config.json", name)[0]


@pytest.mark.parametrize(
    ("file", "name"),
    [("llama-3-70b.json", "llama-3-70b"), ("gpt2.json", "gpt-2"), ("folder", "qwen-3-0.6b"), ("gemma-3-4b.json", "gemma-3-4b")],
)
def test_a_config_reads_as_the_catalogued_model(file, name):
    model, _ = model_from_config(load_config(CONFIGS / file), file, name)
    known = load.record("models", name)
    assert {key: getattr(model, key) for key in DIMENSIONS} == {key: getattr(known, key) for key in DIMENSIONS}


def test_the_vision_tower_is_named_as_left_out():
    _, left_out = model_from_config(load_config(CONFIGS / "gemma-3-4b.json"), "gemma-3-4b.json", "gemma")
    assert left_out == ["vision tower (siglip_vision_model)"]


OTHERS = {
    "bloom-560m": {"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880},
    "opt-1.3b": {
        "model_type": "opt",
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "ffn_dim": 8192,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 2048,
    },
    "mpt-30b": {
        "model_type": "mpt",
        "d_model": 7168,
        "n_layers": 48,
        "n_heads": 64,
        "expansion_ratio": 4,
        "max_seq_len": 8192,
        "vocab_size": 50432,
        "no_bias": True,
        "attn_config": {"alibi": True, "qk_ln": False, "attn_type": "multihead_attention"},
    },
    "mistral-7b": LLAMA | {"model_type": "mistral", "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": 4096},
    "qwen-2.5-0.5b": {
        "model_type": "qwen2",
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "max_window_layers": 24,
        "sliding_window": 32768,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
    },
    "gemma-2-2b": {
        "model_type": "gemma2",
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "intermediate_size": 9216,
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
        "sliding_window": 4096,
    },
    "nemotron-4-15b": {
        "model_type": "nemotron",
        "hidden_size": 6144,
        "num_hidden_layers": 32,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "intermediate_size": 24576,
        "vocab_size": 256000,
        "max_position_embeddings": 4096,
        "hidden_act": "relu2",
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_family_reads_as_the_catalogued_model(name):
    model, known = read(OTHERS[name]), load.record("models", name)
    assert {key: getattr(model, key) for key in DIMENSIONS} == {key: getattr(known, key) for key in DIMENSIONS}


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (  # Pythia 6.9B: EleutherAI/pythia README, 6,444,163,072 non-embedding and two tables of 50,432 rows
            LLAMA | {"model_type": "gpt_neox", "num_key_value_heads": 32, "intermediate_size": 16384, "vocab_size": 50432},
            6_444_163_072 + 2 * 50432 * 4096,
        ),
        (  # Phi-3 mini: microsoft/Phi-3-mini-4k-instruct, safetensors.total of the Hugging Face model API
            LLAMA
            | {
                "model_type": "phi3",
                "hidden_size": 3072,
                "num_key_value_heads": 32,
                "intermediate_size": 8192,
                "vocab_size": 32064,
                "sliding_window": 2047,
            },
            3_821_079_552,
        ),
    ],
)
def test_families_outside_the_catalogue_have_their_published_count(config, count):
    assert counted(read(config)) == count


def test_qwen_keeps_its_first_layers_global():
    windowed = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}
    assert read(LLAMA | windowed).sliding_window_layers == 12


def test_listed_layer_types_win():
    listed = ["sliding_attention"] * 3 + ["full_attention"] * 29
    model = read(LLAMA | {"model_type": "mistral", "sliding_window": 128, "layer_types": listed})
    assert (model.sliding_window, model.sliding_window_layers) == (128, 3)


def test_explicit_head_dim_wins():
    assert read(LLAMA | {"head_dim": 256}).head_dim == 256


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_local_experts": 8}, "num_local_experts"),
        ({"n_routed_experts": 64}, "n_routed_experts"),
        ({"kv_lora_rank": 512}, "kv_lora_rank"),
        ({"mamba_d_state": 128}, "mamba_d_state"),
        ({"linear_num_value_heads": 32}, "linear_num_value_heads"),
        ({"num_nextn_predict_layers": 1}, "num_nextn_predict_layers"),
        ({"add_swa_attention_sink_bias": True}, "add_swa_attention_sink_bias"),
        ({"model_type": "never_heard_of"}, "never_heard_of"),
        ({"model_type": "rwkv"}, "not modelled: RWKV"),
        ({"state_size": 16}, "not modelled: Mamba-1 (field 'state_size' = 16)"),
        ({"model_type": "deberta-v2"}, "is an encoder"),
        ({"model_type": "marian", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "mistral", "sliding_window": 4096, "layer_types": ["linear_attention"] * 32}, "layer_types"),
        ({"vision_config": {"hidden_size": 1}}, "vision_config"),
        (OTHERS["opt-1.3b"] | {"word_embed_proj_dim": 512}, "word_embed_proj_dim"),
        (OTHERS["opt-1.3b"] | {"do_layer_norm_before": False}, "do_layer_norm_before"),
        (OTHERS["mpt-30b"] | {"attn_config": {"qk_ln": True}}, "attn_config.qk_ln"),
        (OTHERS["mpt-30b"] | {"attn_config": {"attn_type": "multiquery_attention"}}, "attn_config.attn_type"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(change, says):
    with pytest.raises(UnsupportedError) as caught:
        read(LLAMA | change)
    assert says in str(caught.value) and "some/config.json" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("switched_off", [None, 0, False, [], {}])
def test_a_foreign_field_that_is_off_is_accepted(switched_off):
    assert read(LLAMA | {"num_local_experts": switched_off}).num_hidden_layers == 32


WRONG_SIZES = ["4096", -1, 0, float("nan"), float("inf"), True, 4096.5, [4096], {}, 10**30, 10**5000]


@pytest.mark.parametrize("value", WRONG_SIZES, ids=range(len(WRONG_SIZES)))
def test_a_wrong_size_names_field_and_file(value):
    with pytest.raises(InputError) as caught:
        read(LLAMA | {"hidden_size": value})
    assert "'hidden_size'" in str(caught.value) and "some/config.json" in str(caught.value)
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


@pytest.mark.parametrize("field", [key for key in LLAMA if key != "num_key_value_heads"])
@pytest.mark.parametrize("absent", ["removed", "null"])
def test_a_missing_field_names_field_and_file(field, absent):
    config = {key: value for key, value in LLAMA.items() if key != field} | ({field: None} if absent == "null" else {})
    with pytest.raises(InputError, match=f"some/config.json: required field '{field}' is missing"):
        read(config)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"attention_dropout": "a lot"}, "attention_dropout"),
        ({"hidden_act": 3}, "hidden_act"),
        ({"model_type": 7}, "model_type"),
        ({"model_type": []}, "model_type"),
        ({"num_attention_heads": 33, "num_key_value_heads": 33}, "33 attention heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads 5"),
        ({"text_config": []}, "text_config"),
        ({"text_config": {"model_type": "llama"}}, "'text_config.hidden_size'"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": 3}, "'mlp_only_layers' is 3, expected a list"),
    ],
)
def test_a_contradiction_names_the_field(change, says):
    with pytest.raises(InputError) as caught:
        read(LLAMA | change)
    assert says in str(caught.value)


def test_an_encoder_file_is_unsupported():
    with pytest.raises(UnsupportedError, match="'albert' is an encoder, ironlaw models decoders"):
        model_from_config(load_config(CONFIGS / "bert.json") | {"model_type": "albert"}, "bert.json", "bert")


def test_the_storage_of_released_weights_is_accepted():
    model, left_out = model_from_config(LLAMA | {"quantization_config": {"quant_method": "fp8"}}, "some/config.json", "x")
    assert model.num_hidden_layers == 32
    assert left_out == ["quantization_config (released weights' storage)"]


def test_a_truncated_file_names_line_and_column():
    with pytest.raises(InputError, match=r"truncated\.json: line 4, column 3: not valid JSON"):
        load_config(CONFIGS / "truncated.json")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not valid JSON"),
        (b"[1, 2]", "is [1, 2], expected a JSON object"),
        (b"null", "is null, expected a JSON object"),
        (b"12", "is 12, expected a JSON object"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"[" * 100_000, "config.json"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "config.json"),
        (b" " * (SIZE_LIMIT + 1), "5,000,001 bytes is too large for a config.json"),
    ],
    ids=["empty", "list", "null", "number", "binary", "deep", "huge-number", "large"],
)
def test_a_file_that_is_not_a_config_is_refused(tmp_path, content, says):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_config(tmp_path)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_and_an_empty_folder(tmp_path):
    for path in (tmp_path, tmp_path / "none.json", "nul\0byte"):
        with pytest.raises(InputError):
            load_config(path)


def test_a_byte_order_mark_is_accepted(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8-sig")
    assert load_config(tmp_path)["hidden_size"] == 4096


def test_a_path_may_be_text():
    assert load_config(str(CONFIGS / "gpt2.json"))["n_embd"] == 768


def test_a_diffusion_model_is_refused_by_its_class():
    with pytest.raises(UnsupportedError, match="'DiTTransformer2DModel' is a model of the diffusers library; diffusion is not modelled"):
        model_from_config({"_class_name": "DiTTransformer2DModel", "num_layers": 28}, "config.json", "dit")
