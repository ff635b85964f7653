"""Readers of dense families that spell their fields as Llama does: one small function for each architecture.

A field that is absent takes the default that ``transformers`` documents for that type.
"""

from __future__ import annotations

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import (
    Kwargs,
    activation,
    attention_bias,
    linear_biases,
    llama_fields,
    local_window,
    qwen_window,
    window_except_every,
    with_llama_names,
)


def llama(f: Fields, tie: bool = False, head_dim: int | None = None) -> Kwargs:
    return llama_fields(f, tie, head_dim) | attention_bias(f) | {"mlp_bias": f.flag("mlp_bias", False)} | local_window(f, 0)


def nemotron(f: Fields) -> Kwargs:
    return llama(f) | {"gated_mlp": False, "norm": "layernorm", "hidden_act": activation(f.text("hidden_act", default="relu2"))}


def mistral(f: Fields) -> Kwargs:
    return llama_fields(f, tie=False) | local_window(f, f.size("num_hidden_layers"))


def phi3(f: Fields) -> Kwargs:
    return mistral(f) | {"dropout": f.any_dropout("resid_pdrop", "embd_pdrop", "attention_dropout")}


def qwen2(f: Fields) -> Kwargs:
    return llama_fields(f, tie=False) | {"query_key_value_bias": True} | qwen_window(f)


def mimo(f: Fields) -> Kwargs:
    f.ignore("attention_bias")  # the layers are Qwen2's, whose biases are fixed
    return qwen2(f) | {"num_nextn_predict_layers": f.count("num_nextn_predict_layers")}


def qwen3(f: Fields) -> Kwargs:
    return llama_fields(f, tie=False, head_dim=128) | attention_bias(f) | {"qk_norm": True} | qwen_window(f)


def gemma(f: Fields) -> Kwargs:
    """Gemma; with ``use_bidirectional_attention`` (PaliGemma, EmbeddingGemma) every token sees all."""
    both = {"bidirectional": f.flag("use_bidirectional_attention", False)}
    return llama_fields(f, tie=True, head_dim=256) | attention_bias(f) | {"hidden_act": "gelu"} | both


def gemma2(f: Fields) -> Kwargs:
    layers = f.size("num_hidden_layers")
    return gemma(f) | {"norms_per_layer": 4} | local_window(f, layers - layers // 2)


def gemma3(f: Fields) -> Kwargs:
    f = f.with_defaults({"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072})
    return (
        gemma(f) | {"norms_per_layer": 4, "qk_norm": True} | window_except_every(f, 6, "sliding_window_pattern", "_sliding_window_pattern")
    )


def cwm(f: Fields) -> Kwargs:
    return llama(f, head_dim=128) | window_except_every(f, 4, "sliding_window_pattern")


def hyperclovax(f: Fields) -> Kwargs:
    return llama(f) | {"norms_per_layer": 4 if f.flag("use_post_norm", False) else 2}


def apertus(f: Fields) -> Kwargs:
    if not f.flag("qk_norm", True):
        raise f.refuse("qk_norm", "Apertus without norms of queries and keys")
    return llama(f) | {"gated_mlp": False, "qk_norm": True, "hidden_act": activation(f.text("hidden_act", default="xielu"))}


def arcee(f: Fields) -> Kwargs:
    return llama(f) | {"gated_mlp": False, "hidden_act": activation(f.text("hidden_act", default="relu2"))}


def jais2(f: Fields) -> Kwargs:
    bias, mlp = f.flag("attention_bias", True), f.flag("mlp_bias", True)
    return llama_fields(f, tie=False) | {
        "gated_mlp": False,
        "norm": "layernorm",
        "query_key_value_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": mlp,
        "hidden_act": activation(f.text("hidden_act", default="relu2")),
    }


def cohere(f: Fields) -> Kwargs:
    normed = f.flag("use_qk_norm", False)
    norms = {"norm": "layernorm-no-bias", "norms_per_layer": 1, "qk_norm": normed, "qk_norm_heads": normed}
    return llama_fields(f, tie=True) | attention_bias(f) | norms


def cohere2(f: Fields) -> Kwargs:
    norms = {"norm": "layernorm-no-bias", "norms_per_layer": 1}
    return llama_fields(f, tie=True) | attention_bias(f) | norms | window_except_every(f, 4, "sliding_window_pattern")


def ernie4_5(f: Fields) -> Kwargs:
    return llama_fields(f, tie=True, head_dim=128) | linear_biases(f, "use_bias")


def exaone(f: Fields) -> Kwargs:
    f = with_llama_names(f, num_hidden_layers="num_layers", hidden_act="activation_function")
    return llama_fields(f, tie=False)


def exaone4(f: Fields) -> Kwargs:
    fields = llama_fields(f, tie=False) | {"qk_norm": True}
    if isinstance(f.config.get("sliding_window_pattern"), str):  # a letter for each layer, repeated: L local, G global
        layers = fields["num_hidden_layers"]
        local = (f.text("sliding_window_pattern") * layers)[:layers].count("L")
        return fields | local_window(f, local)
    return fields | window_except_every(f, 4, "sliding_window_pattern")


def glm(f: Fields) -> Kwargs:
    return llama_fields(f, tie=False, head_dim=128) | {"query_key_value_bias": f.flag("attention_bias", False)}


def glm4(f: Fields) -> Kwargs:
    return glm(f) | {"norms_per_layer": 4}


def chatglm(f: Fields) -> Kwargs:
    """ChatGLM: its own field names, grouped or multi-head attention, optional biases."""
    f = with_llama_names(
        f, num_hidden_layers="num_layers", intermediate_size="ffn_hidden_size", vocab_size="padded_vocab_size",
        max_position_embeddings="seq_length", head_dim="kv_channels", num_key_value_heads="multi_query_group_num",
    )  # fmt: skip
    if not f.flag("multi_query_attention", False):
        f = f.with_values({"num_key_value_heads": f.size("num_attention_heads")})
    f.ignore("post_layer_norm", "prefix_projection")
    return llama_fields(f, tie=False) | {
        "query_key_value_bias": f.flag("add_qkv_bias", False) or f.flag("add_bias_linear", False),
        "attention_output_bias": f.flag("add_bias_linear", False),
        "mlp_bias": f.flag("add_bias_linear", False),
        "norm": "rmsnorm" if f.flag("rmsnorm", True) else "layernorm",
        "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
    }


def hunyuan(f: Fields) -> Kwargs:
    return llama_fields(f, tie=False) | attention_bias(f) | {"qk_norm": f.flag("use_qk_norm", True)}


def internlm(f: Fields) -> Kwargs:
    bias = f.flag("bias", False)
    return llama_fields(f, tie=False) | {"query_key_value_bias": bias, "attention_output_bias": bias}


def internlm3(f: Fields) -> Kwargs:
    bias = f.flag("bias", False)
    return llama_fields(f, tie=False) | {"query_key_value_bias": f.flag("qkv_bias", False), "attention_output_bias": bias, "mlp_bias": bias}


def baichuan(f: Fields) -> Kwargs:
    alibi = f.config.get("max_position_embeddings") is None  # only the 13B model, which has ALiBi, omits this field
    f = with_llama_names(f, max_position_embeddings="model_max_length")
    return llama_fields(f, tie=False) | ({"position_embedding": "alibi"} if alibi else {})


def ministral3(f: Fields) -> Kwargs:
    return llama_fields(f, tie=True, head_dim=128) | local_window(f, f.size("num_hidden_layers"))


def olmo(f: Fields) -> Kwargs:
    return llama_fields(f, tie=False) | attention_bias(f) | {"norm": "no-weights"}


def olmo2(f: Fields) -> Kwargs:
    return llama_fields(f, tie=False) | attention_bias(f) | {"qk_norm": True, "qk_norm_heads": True} | local_window(f, 0)


def olmo3(f: Fields) -> Kwargs:
    return olmo2(f) | window_except_every(f, 4, "sliding_window_pattern")


def phi(f: Fields) -> Kwargs:
    """Phi: plain MLP, one layer norm for attention and MLP, biases everywhere."""
    if f.flag("qk_layernorm", False):
        raise f.refuse("qk_layernorm", "Phi with norms of queries and keys")
    return llama_fields(f, tie=False) | {
        "gated_mlp": False,
        "norm": "layernorm",
        "norms_per_layer": 1,
        "query_key_value_bias": True,
        "attention_output_bias": True,
        "mlp_bias": True,
        "output_bias": True,
        "hidden_act": activation(f.text("hidden_act", default="gelu_new")),
        "dropout": f.any_dropout("resid_pdrop", "embd_pdrop", "attention_dropout"),
    }


def qwen(f: Fields) -> Kwargs:
    """The first Qwen: ``intermediate_size`` is the width of gate and up together, and only q, k and v have biases."""
    f = with_llama_names(f, max_position_embeddings="seq_length", head_dim="kv_channels")
    if not f.flag("no_bias", True):
        raise f.refuse("no_bias", "Qwen with biases in all linear layers")
    gate_and_up = f.size("intermediate_size")
    if gate_and_up % 2:
        raise f.contradict("intermediate_size", "gate and up are half of it each")
    return llama_fields(f, tie=False) | {"intermediate_size": gate_and_up // 2, "query_key_value_bias": True}


def seed_oss(f: Fields) -> Kwargs:
    return llama_fields(f, tie=False, head_dim=128) | {
        "query_key_value_bias": f.flag("attention_bias", True),
        "attention_output_bias": f.flag("attention_out_bias", False),
        "mlp_bias": f.flag("mlp_bias", False),
        "dropout": f.any_dropout("attention_dropout", "residual_dropout"),
    }


def smollm3(f: Fields) -> Kwargs:
    local = f.size("num_hidden_layers") if f.flag("use_sliding_window", False) else 0
    return llama(f, tie=True) | local_window(f, local)


def stablelm(f: Fields) -> Kwargs:
    normed = f.flag("qk_layernorm", False)
    return llama_fields(f, tie=False) | {
        "norm": "layernorm",
        "norms_per_layer": 1 if f.flag("use_parallel_residual", False) else 2,
        "query_key_value_bias": f.flag("use_qkv_bias", False),
        "qk_norm": normed,
        "qk_norm_heads": normed,
        "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
    }


def starcoder2(f: Fields) -> Kwargs:
    """StarCoder2: plain MLP, layer norms, optional biases and a sliding window."""
    return (
        llama_fields(f, tie=True)
        | linear_biases(f, "use_bias", True)
        | {
            "gated_mlp": False,
            "norm": "layernorm",
            "hidden_act": activation(f.text("hidden_act", default="gelu_pytorch_tanh")),
            "dropout": f.any_dropout("residual_dropout", "embedding_dropout", "attention_dropout"),
        }
        | local_window(f, f.size("num_hidden_layers"))
    )


def vaultgemma(f: Fields) -> Kwargs:
    layers = f.size("num_hidden_layers")
    return gemma(f) | local_window(f, layers - layers // 2)


def granite_swa(f: Fields) -> Kwargs:
    """Granite with a sink for each head, and layers that see a window."""
    return llama(f, tie=True) | _every_fourth_is_full(f) | {"attention_sinks": True}


def _every_fourth_is_full(f: Fields) -> Kwargs:
    """Windows of Granite: layer 0 sees all, and every fourth after it."""
    layers = f.size("num_hidden_layers")
    f.ignore("layer_rope_theta")
    return local_window(f, layers - -(-layers // 4))


def orion(f: Fields) -> Kwargs:
    return llama_fields(f, tie=False) | {"norm": "layernorm"}


def plain_nemotron(f: Fields) -> Kwargs:
    """The language model of Cosmos 3 Edge: a plain MLP of squared ReLU, norms without biases."""
    return llama(f, head_dim=128) | {"gated_mlp": False, "hidden_act": activation(f.text("hidden_act", default="relu2"))}


def glm_ocr(f: Fields) -> Kwargs:
    """GLM-OCR: GLM-4 with heads as wide as hidden size over heads."""
    return llama_fields(f, tie=False) | {"query_key_value_bias": f.flag("attention_bias", False), "norms_per_layer": 4}
