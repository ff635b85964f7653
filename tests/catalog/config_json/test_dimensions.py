"""Models from dimensions: what is assumed, and what is refused."""

import pytest

import ironlaw
from ironlaw.catalog.config_json.dimensions import model_from_dimensions
from ironlaw.errors import IronlawError
from ironlaw.estimate.layer.counts import total_parameters


def dims(**changes):
    """The dimensions of a small model, as a question gives them."""
    base = {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000}
    return {**base, "intermediate_size": 8192, "gated_mlp": True, **changes}


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


# deepseek-coder-33b: 62 layers of 2 x 7168 x 128 x (56 + 8) for attention, 3 x 7168 x 19200 for a gated MLP, two norms; two tables, a norm
CODER = {"hidden_size": 7168, "num_hidden_layers": 62, "num_attention_heads": 56, "num_key_value_heads": 8, "intermediate_size": 19200,
         "vocab_size": 32256}  # fmt: skip
TABLE = 7168 * 32256
GATED = 62 * (2 * 7168 * 128 * (56 + 8) + 3 * 7168 * 19200 + 2 * 7168) + 2 * TABLE + 7168


def count(**more):
    return float(total_parameters(model_from_dimensions(CODER | more)))


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ({"hidden_act": "silu"}, GATED),
        ({"hidden_act": "swiglu"}, GATED),
        ({"gated_mlp": True}, GATED),
        ({"model_type": "llama"}, GATED),
        ({"hidden_act": "swiglu", "tie_word_embeddings": True}, GATED - TABLE),
        ({"hidden_act": "geglu"}, GATED - TABLE),
        ({"hidden_act": "silu", "gated_mlp": False, "norm": "rmsnorm"}, GATED - TABLE - 62 * 7168 * 19200),
    ],
)
def test_an_activation_says_whether_the_mlp_is_gated(given, counted):
    assert count(**given) == counted


def test_dimensions_of_a_family_are_read_as_its_file():
    """Qwen2 has biases of queries, keys and values, and an unknown field is refused as in a file."""
    assert count(model_type="qwen2", max_position_embeddings=4096) == GATED + 62 * 128 * (56 + 2 * 8)
    with pytest.raises(IronlawError, match="num_memory_experts"):
        count(model_type="qwen2", num_memory_experts=2)
    written = ",".join(f"{name}={value}" for name, value in CODER.items())
    model = model_from_dimensions(f"{written},model_type=llama,tie_word_embeddings=on,rope_theta=1e6")
    assert float(total_parameters(model)) == GATED - TABLE


def test_a_gate_that_is_off_contradicts_swiglu():
    with pytest.raises(IronlawError, match="gated_mlp is off, but hidden_act swiglu has a gate"):
        count(hidden_act="swiglu", gated_mlp=False)


def test_the_answer_says_what_it_assumed_of_dimensions():
    answer = ironlaw.estimate(CODER | {"hidden_act": "silu"}, on="h100-sxm", gpus=8, tp=1, pp=1, zero=3, global_batch_size=8)
    assumed = {item["name"]: item["value"] for item in answer.to_dict()["assumptions"] if item["origin"] == "default"}
    assert assumed["model gated_mlp"] is True
    assert assumed["model tie_word_embeddings"] is False
    assert "model intermediate_size" not in assumed
