"""Models from dimensions: what is refused."""

import pytest

from ironlaw.catalog.config_json.dimensions import model_from_dimensions
from ironlaw.errors import IronlawError


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
