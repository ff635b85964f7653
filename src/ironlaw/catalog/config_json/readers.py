"""One small function a ``model_type``: from the fields of its ``config.json`` to the keywords of a Model.

A field that a file leaves out takes the default that ``transformers`` documents for that type.
"""

from __future__ import annotations

from collections.abc import Callable

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import BIASED, Kwargs, act, attention_bias, layer_types, multi_head, pattern, qwen_window, rotary


def _gpt2(f: Fields) -> Kwargs:
    hidden = f.size("n_embd", "hidden_size")
    return (
        multi_head(f, hidden, f.size("n_head", "num_attention_heads"))
        | BIASED
        | {
            "num_hidden_layers": f.size("n_layer", "num_hidden_layers"),
            "intermediate_size": f.size("n_inner", default=4 * hidden),
            "vocab_size": f.size("vocab_size"),
            "max_position_embeddings": f.size("n_positions", "n_ctx"),
            "tie_word_embeddings": f.flag("tie_word_embeddings", True),
            "hidden_act": act(f.text("activation_function", default="gelu_new")),
            "position_embedding": "learned",
            "dropout": f.any_dropout("resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.1),
        }
    )


def _opt(f: Fields) -> Kwargs:
    hidden = f.size("hidden_size")
    if f.size("word_embed_proj_dim", default=hidden) != hidden:
        raise f.refuse("word_embed_proj_dim", "embeddings narrower than the model")
    if not f.flag("do_layer_norm_before", True):
        raise f.refuse("do_layer_norm_before", "norms after the blocks and none at the end")
    for name in ("enable_bias", "layer_norm_elementwise_affine"):
        if not f.flag(name, True):
            raise f.refuse(name, "OPT without biases or without norm weights")
    return (
        multi_head(f, hidden, f.size("num_attention_heads"))
        | BIASED
        | {
            "num_hidden_layers": f.size("num_hidden_layers"),
            "intermediate_size": f.size("ffn_dim"),
            "vocab_size": f.size("vocab_size"),
            "max_position_embeddings": f.size("max_position_embeddings"),
            "tie_word_embeddings": f.flag("tie_word_embeddings", True),
            "hidden_act": act(f.text("activation_function", default="relu")),
            "position_embedding": "learned",
            "dropout": f.any_dropout("dropout", default=0.1),
        }
    )


def _bloom(f: Fields) -> Kwargs:
    hidden = f.size("hidden_size", "n_embed")
    return (
        multi_head(f, hidden, f.size("n_head", "num_attention_heads"))
        | BIASED
        | {
            "num_hidden_layers": f.size("n_layer", "num_hidden_layers"),
            "intermediate_size": f.size("n_inner", default=4 * hidden),
            "vocab_size": f.size("vocab_size"),
            "max_position_embeddings": f.size("seq_length", default=2048),
            "tie_word_embeddings": f.flag("tie_word_embeddings", True),
            "hidden_act": "gelu",
            "position_embedding": "alibi",
            "embedding_norm": True,
            "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
        }
    )


def _mpt(f: Fields) -> Kwargs:
    f.weightless("attn_config", "ffn_config", "init_config")
    hidden, attention = f.size("d_model"), f.inner("attn_config")
    if attention.text("attn_type", default="multihead_attention") != "multihead_attention":
        raise attention.refuse("attn_type", "only multihead_attention is")
    for name in ("qk_ln", "qk_gn", "rope"):
        if attention.flag(name, False):
            raise attention.refuse(name, "MPT with norms of q and k or with rotary positions")
    ffn = f.inner("ffn_config")
    if ffn.text("ffn_type", default="mptmlp") != "mptmlp":
        raise ffn.refuse("ffn_type", "only mptmlp is")
    alibi, bias = attention.flag("alibi", True), not f.flag("no_bias")
    if not alibi and not f.flag("learned_pos_emb", True):
        raise f.refuse("learned_pos_emb", "neither alibi nor learned positions")
    return multi_head(f, hidden, f.size("n_heads")) | {
        "num_hidden_layers": f.size("n_layers"),
        "intermediate_size": f.size("expansion_ratio", default=4) * hidden,
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": f.size("max_seq_len"),
        "tie_word_embeddings": f.flag("tie_word_embeddings", True),
        "gated_mlp": False,
        "hidden_act": "gelu",
        "norm": "layernorm" if bias else "layernorm-no-bias",
        "position_embedding": "alibi" if alibi else "learned",
        "query_key_value_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": bias,
        "dropout": f.any_dropout("resid_pdrop", "emb_pdrop"),
    }


def _gpt_neox(f: Fields) -> Kwargs:
    bias = f.flag("attention_bias", True)
    return rotary(f, tie=False) | {
        "gated_mlp": False,
        "norm": "layernorm",
        "query_key_value_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": True,
        "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
    }


def _llama(f: Fields) -> Kwargs:
    return rotary(f, tie=False) | attention_bias(f) | {"mlp_bias": f.flag("mlp_bias", False)} | layer_types(f, 0)


def _nemotron(f: Fields) -> Kwargs:
    return _llama(f) | {"gated_mlp": False, "norm": "layernorm", "hidden_act": act(f.text("hidden_act", default="relu2"))}


def _mistral(f: Fields) -> Kwargs:
    return rotary(f, tie=False) | layer_types(f, f.size("num_hidden_layers"))


def _phi3(f: Fields) -> Kwargs:
    return _mistral(f) | {"dropout": f.any_dropout("resid_pdrop", "embd_pdrop", "attention_dropout")}


def _qwen2(f: Fields) -> Kwargs:
    return rotary(f, tie=False) | {"query_key_value_bias": True} | qwen_window(f)


def _mimo(f: Fields) -> Kwargs:
    f.weightless("attention_bias")  # the layers are those of Qwen2, whose biases are fixed
    return _qwen2(f) | {"num_nextn_predict_layers": f.count("num_nextn_predict_layers")}


def _qwen3(f: Fields) -> Kwargs:
    return rotary(f, tie=False, head_dim=128) | attention_bias(f) | {"qk_norm": True} | qwen_window(f)


def _gemma(f: Fields) -> Kwargs:
    return rotary(f, tie=True, head_dim=256) | attention_bias(f) | {"hidden_act": "gelu"}


def _gemma2(f: Fields) -> Kwargs:
    layers = f.size("num_hidden_layers")
    return _gemma(f) | {"norms_per_layer": 4} | layer_types(f, layers - layers // 2)


def _gemma3(f: Fields) -> Kwargs:
    defaults = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072}
    f = f.with_defaults(defaults)
    return _gemma(f) | {"norms_per_layer": 4, "qk_norm": True} | pattern(f, 6, "sliding_window_pattern", "_sliding_window_pattern")


DENSE_READERS: dict[str, Callable[[Fields], Kwargs]] = {
    "bloom": _bloom,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mimo": _mimo,
    "mistral": _mistral,
    "mpt": _mpt,
    "nemotron": _nemotron,
    "opt": _opt,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_5_vl_text": _qwen2,
    "qwen2_vl_text": _qwen2,
    "qwen3": _qwen3,
    "qwen3_vl_text": _qwen3,
}
