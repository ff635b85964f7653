"""Configs with a vision tower: the language model is read, the tower is left out."""

import pytest

import paths
from ironlaw.catalog import load
from ironlaw.catalog.config_json.read import load_config, model_from_config
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
def test_the_language_model_may_have_other_names(name):
    model, left_out = model_from_config({name: LLAMA, "vision_config": {"model_type": "vit"}}, "config.json", "x")
    assert (model.num_hidden_layers, left_out) == (32, ["vision tower (vit)"])
