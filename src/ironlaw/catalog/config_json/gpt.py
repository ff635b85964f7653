"""Readers of dense families built as GPT-2 and GPT-3 are: layer norms, plain MLPs, mostly biases. One small function for each.

A field that is absent takes the default that ``transformers`` documents for that type.
"""

from __future__ import annotations

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import Kwargs, activation, llama_fields, multi_head


def _gpt(f: Fields, hidden: int, heads: int, layers: int, inner: int, positions: int, tie: bool = True, bias: bool = True) -> Kwargs:
    """The fields of all models built so: one key-value head for each query head, layer norms and plain MLPs."""
    return multi_head(f, hidden, heads) | {
        "num_hidden_layers": layers,
        "intermediate_size": inner,
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": positions,
        "tie_word_embeddings": f.flag("tie_word_embeddings", tie),
        "gated_mlp": False,
        "norm": "layernorm",
        "query_key_value_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": bias,
    }


def gpt2(f: Fields) -> Kwargs:
    hidden, heads, layers = f.size("n_embd", "hidden_size"), f.size("n_head", "num_attention_heads"), f.size("n_layer", "num_hidden_layers")
    return _gpt(f, hidden, heads, layers, f.size("n_inner", default=4 * hidden), f.size("n_positions", "n_ctx")) | {
        "hidden_act": activation(f.text("activation_function", default="gelu_new")),
        "position_embedding": "learned",
        "dropout": f.any_dropout("resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.1),
    }


def opt(f: Fields) -> Kwargs:
    """OPT: learned positions; only models with norms before the blocks, biases and norm weights."""
    hidden, heads, layers = f.size("hidden_size"), f.size("num_attention_heads"), f.size("num_hidden_layers")
    if f.size("word_embed_proj_dim", default=hidden) != hidden:
        raise f.refuse("word_embed_proj_dim", "embeddings narrower than the model")
    if not f.flag("do_layer_norm_before", True):
        raise f.refuse("do_layer_norm_before", "norms after the blocks instead of before them")
    for name in ("enable_bias", "layer_norm_elementwise_affine"):
        if not f.flag(name, True):
            raise f.refuse(name, "OPT without biases or without norm weights")
    return _gpt(f, hidden, heads, layers, f.size("ffn_dim"), f.size("max_position_embeddings")) | {
        "hidden_act": activation(f.text("activation_function", default="relu")),
        "position_embedding": "learned",
        "dropout": f.any_dropout("dropout", default=0.1),
    }


def bloom(f: Fields) -> Kwargs:
    """BLOOM: ALiBi positions and a norm after the embedding."""
    hidden, heads, layers = (
        f.size("hidden_size", "n_embed"),
        f.size("n_head", "num_attention_heads"),
        f.size("n_layer", "num_hidden_layers"),
    )
    return _gpt(f, hidden, heads, layers, f.size("n_inner", default=4 * hidden), f.size("seq_length", default=2048)) | {
        "hidden_act": "gelu",
        "position_embedding": "alibi",
        "embedding_norm": True,
        "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
    }


def mpt(f: Fields) -> Kwargs:
    """MPT: ALiBi or learned positions, with or without biases."""
    f.ignore("attn_config", "ffn_config", "init_config")
    hidden, attention = f.size("d_model"), f.inner("attn_config")
    if attention.text("attn_type", default="multihead_attention") != "multihead_attention":
        raise attention.refuse("attn_type", "attention other than multihead_attention")
    for name in ("qk_ln", "qk_gn", "rope"):
        if attention.flag(name, False):
            raise attention.refuse(name, "MPT with norms of q and k or with rotary positions")
    ffn = f.inner("ffn_config")
    if ffn.text("ffn_type", default="mptmlp") != "mptmlp":
        raise ffn.refuse("ffn_type", "a feed-forward block other than mptmlp")
    alibi, bias = attention.flag("alibi", True), not f.flag("no_bias")
    if not alibi and not f.flag("learned_pos_emb", True):
        raise f.refuse("learned_pos_emb", "neither alibi nor learned positions")
    inner = f.size("expansion_ratio", default=4) * hidden
    return _gpt(f, hidden, f.size("n_heads"), f.size("n_layers"), inner, f.size("max_seq_len"), bias=bias) | {
        "hidden_act": "gelu",
        "norm": "layernorm" if bias else "layernorm-no-bias",
        "position_embedding": "alibi" if alibi else "learned",
        "dropout": f.any_dropout("resid_pdrop", "emb_pdrop"),
    }


def gpt_neox(f: Fields) -> Kwargs:
    bias = f.flag("attention_bias", True)
    return llama_fields(f, tie=False) | {
        "gated_mlp": False,
        "norm": "layernorm",
        "query_key_value_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": True,
        "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
    }


def falcon(f: Fields) -> Kwargs:
    """Falcon: one shared key-value head, or several in the newer decoder; attention and MLP in parallel or not."""
    hidden, heads = f.size("hidden_size"), f.size("num_attention_heads", "n_head")
    new, bias = f.flag("new_decoder_architecture", False), f.flag("bias", False)
    shared = f.flag("multi_query", True)
    f.ignore("num_kv_heads", "n_head_kv")  # used by the newer decoder alone
    kv_heads = f.size("num_kv_heads", "n_head_kv", default=heads) if new else (1 if shared else heads)
    parallel = f.flag("parallel_attn", True)
    norms = f.size("num_ln_in_parallel_attn", default=2 if new else 1) if new or parallel else 2
    layers, inner = f.size("num_hidden_layers", "n_layer"), f.size("ffn_hidden_size", default=4 * hidden)
    return _gpt(f, hidden, heads, layers, inner, f.size("max_position_embeddings", default=2048), bias=bias) | {
        "num_key_value_heads": kv_heads,
        "hidden_act": activation(f.text("activation", default="gelu")),
        "norms_per_layer": norms,
        "position_embedding": "alibi" if f.flag("alibi", False) else "rope",
        "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
    }


def gpt_bigcode(f: Fields) -> Kwargs:
    f.ignore("num_key_value_heads")
    return gpt2(f) | ({"num_key_value_heads": 1} if f.flag("multi_query", True) else {})


def gptj(f: Fields) -> Kwargs:
    f.ignore("n_ctx")
    hidden, heads, layers = f.size("n_embd", "hidden_size"), f.size("n_head", "num_attention_heads"), f.size("n_layer", "num_hidden_layers")
    inner, positions = f.size("n_inner", default=4 * hidden), f.size("n_positions", default=2048)
    return _gpt(f, hidden, heads, layers, inner, positions, tie=False, bias=False) | {
        "hidden_act": activation(f.text("activation_function", default="gelu_new")),
        "norms_per_layer": 1,
        "mlp_bias": True,
        "output_bias": True,
        "dropout": f.any_dropout("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    }


def gpt_neo(f: Fields) -> Kwargs:
    """GPT-Neo: global and local attention layers in turn."""
    hidden, heads, layers = f.size("hidden_size"), f.size("num_heads"), f.size("num_layers")
    f.ignore("attention_layers", "attention_types")
    window = f.size("window_size", default=256)
    listed = f.config.get("attention_layers")
    local = listed.count("local") if isinstance(listed, list) else layers // 2
    inner, positions = f.size("intermediate_size", default=4 * hidden), f.size("max_position_embeddings")
    return _gpt(f, hidden, heads, layers, inner, positions) | {
        "query_key_value_bias": False,
        "hidden_act": activation(f.text("activation_function", default="gelu_new")),
        "position_embedding": "learned",
        "sliding_window": window if local else 0,
        "sliding_window_layers": local,
        "dropout": f.any_dropout("resid_dropout", "embed_dropout", "attention_dropout"),
    }


def xglm(f: Fields) -> Kwargs:
    hidden, heads, layers = f.size("d_model"), f.size("attention_heads"), f.size("num_layers")
    return _gpt(f, hidden, heads, layers, f.size("ffn_dim"), f.size("max_position_embeddings")) | {
        "hidden_act": activation(f.text("activation_function", default="gelu")),
        "position_embedding": "none",  # a sine of the position, which has no weights
        "dropout": f.any_dropout("dropout", "attention_dropout", "activation_dropout"),
    }
