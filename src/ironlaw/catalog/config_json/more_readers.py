"""More dense readers: families that share most with Llama or GPT, each with what it has of its own.

A field that a file leaves out takes the default that ``transformers`` documents for that type.
"""

from __future__ import annotations

from collections.abc import Callable

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.readers import DENSE_READERS
from ironlaw.catalog.config_json.shared import (
    BIASED,
    Kwargs,
    act,
    attention_bias,
    biased,
    layer_types,
    multi_head,
    pattern,
    rotary,
    tensors_of_rotary,
)

NO_BIAS = {"query_key_value_bias": False, "attention_output_bias": False}


def _llama_like(f: Fields) -> Kwargs:
    return rotary(f, tie=False) | attention_bias(f) | {"mlp_bias": f.flag("mlp_bias", False)} | layer_types(f, 0)


def _wide_heads(f: Fields) -> Kwargs:
    return rotary(f, tie=False, head_dim=128) | attention_bias(f) | {"mlp_bias": f.flag("mlp_bias", False)} | layer_types(f, 0)


def _tied_llama(f: Fields) -> Kwargs:
    return rotary(f, tie=True) | attention_bias(f) | {"mlp_bias": f.flag("mlp_bias", False)} | layer_types(f, 0)


def _cwm(f: Fields) -> Kwargs:
    return _wide_heads(f) | pattern(f, 4, "sliding_window_pattern")


def _hyperclovax(f: Fields) -> Kwargs:
    return _llama_like(f) | {"norms_per_layer": 4 if f.flag("use_post_norm", False) else 2}


def _apertus(f: Fields) -> Kwargs:
    if not f.flag("qk_norm", True):
        raise f.refuse("qk_norm", "Apertus without norms of queries and keys")
    return _llama_like(f) | {"gated_mlp": False, "qk_norm": True, "hidden_act": act(f.text("hidden_act", default="xielu"))}


def _arcee(f: Fields) -> Kwargs:
    return _llama_like(f) | {"gated_mlp": False, "hidden_act": act(f.text("hidden_act", default="relu2"))}


def _jais2(f: Fields) -> Kwargs:
    bias, mlp = f.flag("attention_bias", True), f.flag("mlp_bias", True)
    return rotary(f, tie=False) | {
        "gated_mlp": False,
        "norm": "layernorm",
        "query_key_value_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": mlp,
        "hidden_act": act(f.text("hidden_act", default="relu2")),
    }


def _cohere(f: Fields) -> Kwargs:
    normed = f.flag("use_qk_norm", False)
    one = {"norm": "layernorm-no-bias", "norms_per_layer": 1, "qk_norm": normed, "qk_norm_heads": normed}
    return rotary(f, tie=True) | attention_bias(f) | one


def _cohere2(f: Fields) -> Kwargs:
    one = {"norm": "layernorm-no-bias", "norms_per_layer": 1}
    return rotary(f, tie=True) | attention_bias(f) | one | pattern(f, 4, "sliding_window_pattern")


def _ernie(f: Fields) -> Kwargs:
    return rotary(f, tie=True, head_dim=128) | biased(f, "use_bias")


def _exaone(f: Fields) -> Kwargs:
    f = tensors_of_rotary(f, num_hidden_layers="num_layers", hidden_act="activation_function")
    return rotary(f, tie=False)


def _exaone4(f: Fields) -> Kwargs:
    if isinstance(f.config.get("sliding_window_pattern"), str):  # a letter a layer: L local, G global
        word: str = f.text("sliding_window_pattern")
        layers = f.size("num_hidden_layers")
        local = (word * layers)[:layers].count("L")
        return rotary(f, tie=False) | {"qk_norm": True} | layer_types(f, local)
    return rotary(f, tie=False) | {"qk_norm": True} | pattern(f, 4, "sliding_window_pattern")


def _falcon(f: Fields) -> Kwargs:
    hidden, heads = f.size("hidden_size"), f.size("num_attention_heads", "n_head")
    new, bias = f.flag("new_decoder_architecture", False), f.flag("bias", False)
    shared = f.flag("multi_query", True)
    f.weightless("num_kv_heads", "n_head_kv")  # which only the newer decoder reads
    kv_heads = f.size("num_kv_heads", "n_head_kv", default=heads) if new else (1 if shared else heads)
    parallel = f.flag("parallel_attn", True)
    norms = f.size("num_ln_in_parallel_attn", default=2 if new else 1) if new or parallel else 2
    return multi_head(f, hidden, heads) | {
        "num_key_value_heads": kv_heads,
        "num_hidden_layers": f.size("num_hidden_layers", "n_layer"),
        "intermediate_size": f.size("ffn_hidden_size", default=4 * hidden),
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": f.size("max_position_embeddings", default=2048),
        "tie_word_embeddings": f.flag("tie_word_embeddings", True),
        "gated_mlp": False,
        "hidden_act": act(f.text("activation", default="gelu")),
        "norm": "layernorm",
        "norms_per_layer": norms,
        "position_embedding": "alibi" if f.flag("alibi", False) else "rope",
        "query_key_value_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": bias,
        "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
    }


def _glm(f: Fields) -> Kwargs:
    return rotary(f, tie=False, head_dim=128) | {"query_key_value_bias": f.flag("attention_bias", False)}


def _glm4(f: Fields) -> Kwargs:
    return _glm(f) | {"norms_per_layer": 4}


def _chatglm(f: Fields) -> Kwargs:
    f = tensors_of_rotary(
        f, num_hidden_layers="num_layers", intermediate_size="ffn_hidden_size", vocab_size="padded_vocab_size",
        max_position_embeddings="seq_length", head_dim="kv_channels", num_key_value_heads="multi_query_group_num",
    )  # fmt: skip
    if not f.flag("multi_query_attention", False):
        f = f.with_values({"num_key_value_heads": f.size("num_attention_heads")})
    f.weightless("post_layer_norm", "prefix_projection")
    return rotary(f, tie=False) | {
        "query_key_value_bias": f.flag("add_qkv_bias", False) or f.flag("add_bias_linear", False),
        "attention_output_bias": f.flag("add_bias_linear", False),
        "mlp_bias": f.flag("add_bias_linear", False),
        "norm": "rmsnorm" if f.flag("rmsnorm", True) else "layernorm",
        "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
    }


def _gpt_bigcode(f: Fields) -> Kwargs:
    gpt2 = DENSE_READERS["gpt2"](f)
    f.weightless("num_key_value_heads")
    return gpt2 | {"num_key_value_heads": 1 if f.flag("multi_query", True) else gpt2["num_attention_heads"]}


def _gpt_j(f: Fields) -> Kwargs:
    f.weightless("n_ctx")
    hidden = f.size("n_embd", "hidden_size")
    return multi_head(f, hidden, f.size("n_head", "num_attention_heads")) | {
        "num_hidden_layers": f.size("n_layer", "num_hidden_layers"),
        "intermediate_size": f.size("n_inner", default=4 * hidden),
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": f.size("n_positions", default=2048),
        "tie_word_embeddings": f.flag("tie_word_embeddings", False),
        "gated_mlp": False,
        "hidden_act": act(f.text("activation_function", default="gelu_new")),
        "norm": "layernorm",
        "norms_per_layer": 1,
        "mlp_bias": True,
        "output_bias": True,
        "dropout": f.any_dropout("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    }


def _gpt_neo(f: Fields) -> Kwargs:
    hidden, layers = f.size("hidden_size"), f.size("num_layers")
    f.weightless("attention_layers", "attention_types")
    window = f.size("window_size", default=256)
    listed = f.config.get("attention_layers")
    local = listed.count("local") if isinstance(listed, list) else layers // 2
    return multi_head(f, hidden, f.size("num_heads")) | {
        "num_hidden_layers": layers,
        "intermediate_size": f.size("intermediate_size", default=4 * hidden),
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": f.size("max_position_embeddings"),
        "tie_word_embeddings": f.flag("tie_word_embeddings", True),
        "gated_mlp": False,
        "hidden_act": act(f.text("activation_function", default="gelu_new")),
        "norm": "layernorm",
        "position_embedding": "learned",
        "attention_output_bias": True,
        "mlp_bias": True,
        "sliding_window": window if local else 0,
        "sliding_window_layers": local,
        "dropout": f.any_dropout("resid_dropout", "embed_dropout", "attention_dropout"),
    }


def _hunyuan(f: Fields) -> Kwargs:
    return rotary(f, tie=False) | attention_bias(f) | {"qk_norm": f.flag("use_qk_norm", True)}


def _internlm(f: Fields) -> Kwargs:
    bias = f.flag("bias", False)
    return rotary(f, tie=False) | {"query_key_value_bias": bias, "attention_output_bias": bias}


def _internlm3(f: Fields) -> Kwargs:
    bias = f.flag("bias", False)
    return rotary(f, tie=False) | {"query_key_value_bias": f.flag("qkv_bias", False), "attention_output_bias": bias, "mlp_bias": bias}


def _baichuan(f: Fields) -> Kwargs:
    alibi = f.config.get("max_position_embeddings") is None  # 13B has ALiBi and states the length it was trained at alone
    f = tensors_of_rotary(f, max_position_embeddings="model_max_length")
    return rotary(f, tie=False) | ({"position_embedding": "alibi"} if alibi else {})


def _ministral(f: Fields) -> Kwargs:
    return rotary(f, tie=False) | layer_types(f, f.size("num_hidden_layers"))


def _ministral3(f: Fields) -> Kwargs:
    return rotary(f, tie=True, head_dim=128) | layer_types(f, f.size("num_hidden_layers"))


def _olmo(f: Fields) -> Kwargs:
    return rotary(f, tie=False) | attention_bias(f) | {"norm": "no-weights"}


def _olmo2(f: Fields) -> Kwargs:
    return rotary(f, tie=False) | attention_bias(f) | {"qk_norm": True, "qk_norm_heads": True} | layer_types(f, 0)


def _olmo3(f: Fields) -> Kwargs:
    return _olmo2(f) | pattern(f, 4, "sliding_window_pattern")


def _phi(f: Fields) -> Kwargs:
    if f.flag("qk_layernorm", False):
        raise f.refuse("qk_layernorm", "Phi with norms of queries and keys")
    return (
        rotary(f, tie=False)
        | BIASED
        | {
            "norms_per_layer": 1,
            "output_bias": True,
            "hidden_act": act(f.text("hidden_act", default="gelu_new")),
            "dropout": f.any_dropout("resid_pdrop", "embd_pdrop", "attention_dropout"),
        }
    )


def _qwen(f: Fields) -> Kwargs:
    """The first Qwen: ``intermediate_size`` counts gate and up together, and only the input projection has a bias."""
    f = tensors_of_rotary(f, max_position_embeddings="seq_length", head_dim="kv_channels")
    if not f.flag("no_bias", True):
        raise f.refuse("no_bias", "Qwen with biases in all linear layers")
    both = f.size("intermediate_size")
    if both % 2:
        raise f.refuse("intermediate_size", "gate and up are one half of it each")
    return rotary(f, tie=False) | {"intermediate_size": both // 2, "query_key_value_bias": True}


def _seed_oss(f: Fields) -> Kwargs:
    return rotary(f, tie=False, head_dim=128) | {
        "query_key_value_bias": f.flag("attention_bias", True),
        "attention_output_bias": f.flag("attention_out_bias", False),
        "mlp_bias": f.flag("mlp_bias", False),
        "dropout": f.any_dropout("attention_dropout", "residual_dropout"),
    }


def _smollm3(f: Fields) -> Kwargs:
    local = f.size("num_hidden_layers") if f.flag("use_sliding_window", False) else 0
    return _tied_llama(f) | layer_types(f, local)


def _stablelm(f: Fields) -> Kwargs:
    normed = f.flag("qk_layernorm", False)
    return rotary(f, tie=False) | {
        "norm": "layernorm",
        "norms_per_layer": 1 if f.flag("use_parallel_residual", False) else 2,
        "query_key_value_bias": f.flag("use_qkv_bias", False),
        "qk_norm": normed,
        "qk_norm_heads": normed,
        "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
    }


def _starcoder2(f: Fields) -> Kwargs:
    return (
        rotary(f, tie=True)
        | biased(f, "use_bias", True)
        | {
            "gated_mlp": False,
            "norm": "layernorm",
            "hidden_act": act(f.text("hidden_act", default="gelu_pytorch_tanh")),
            "dropout": f.any_dropout("residual_dropout", "embedding_dropout", "attention_dropout"),
        }
        | layer_types(f, f.size("num_hidden_layers"))
    )


def _vaultgemma(f: Fields) -> Kwargs:
    layers = f.size("num_hidden_layers")
    return DENSE_READERS["gemma"](f) | layer_types(f, layers - layers // 2)


def _xglm(f: Fields) -> Kwargs:
    return (
        multi_head(f, f.size("d_model"), f.size("attention_heads"))
        | BIASED
        | {
            "num_hidden_layers": f.size("num_layers"),
            "intermediate_size": f.size("ffn_dim"),
            "vocab_size": f.size("vocab_size"),
            "max_position_embeddings": f.size("max_position_embeddings"),
            "tie_word_embeddings": f.flag("tie_word_embeddings", True),
            "hidden_act": act(f.text("activation_function", default="gelu")),
            "position_embedding": "none",  # a sine of the position is added, which no weight is spent on
            "dropout": f.any_dropout("dropout", "attention_dropout", "activation_dropout"),
        }
    )


MORE_DENSE_READERS: dict[str, Callable[[Fields], Kwargs]] = {
    "Yi": _llama_like,
    "apertus": _apertus,
    "arcee": _arcee,
    "baichuan": _baichuan,
    "chatglm": _chatglm,
    "codegen": _gpt_j,
    "cohere": _cohere,
    "cohere2": _cohere2,
    "cwm": _cwm,
    "ernie4_5": _ernie,
    "exaone": _exaone,
    "exaone4": _exaone4,
    "falcon": _falcon,
    "glm": _glm,
    "glm4": _glm4,
    "glm4v_text": _glm4,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neo": _gpt_neo,
    "gptj": _gpt_j,
    "granite": _llama_like,
    "helium": _wide_heads,
    "hunyuan_v1_dense": _hunyuan,
    "hyperclovax": _hyperclovax,
    "internlm": _internlm,
    "internlm2": _internlm,
    "internlm3": _internlm3,
    "iquestcoder": _wide_heads,
    "jais2": _jais2,
    "ministral": _ministral,
    "ministral3": _ministral3,
    "olmo": _olmo,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "phi": _phi,
    "qwen": _qwen,
    "seed_oss": _seed_oss,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
    "vaultgemma": _vaultgemma,
    "xglm": _xglm,
}
