"""More readers of mixtures of experts: families built on a dense one, or on the fields of GLM and DeepSeek.

A field that a file leaves out takes the default that ``transformers`` documents for that type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.moe_readers import dense_first, glm4_moe, routed
from ironlaw.catalog.config_json.more_readers import MORE_DENSE_READERS
from ironlaw.catalog.config_json.readers import DENSE_READERS
from ironlaw.catalog.config_json.shared import Kwargs, attention_bias, layer_types, multi_head, pattern, qwen_window, rotary


def _solar_open(f: Fields) -> Kwargs:
    f = f.with_defaults({"intermediate_size": f.config.get("intermediate_size") or f.size("moe_intermediate_size"), "head_dim": 128})
    return glm4_moe(f)


def _dots1(f: Fields) -> Kwargs:
    return glm4_moe(f) | attention_bias(f) | {"qk_norm": True} | qwen_window(f)


def _named_experts(f: Fields, experts: int, per_token: int) -> Kwargs:
    """Experts under ``num_experts`` and ``num_shared_experts``, dense layers at the front, a correction for each expert."""
    inner = f.size("moe_intermediate_size")
    shared = f.count("num_shared_experts", "n_shared_experts", default=1)
    return (
        routed(f, "num_experts", inner, experts=experts, per_token=per_token)
        | dense_first(f)
        | {"shared_expert_intermediate_size": shared * f.size("moe_shared_expert_intermediate_size", default=inner)}
        | {"router_bias": True, "num_nextn_predict_layers": f.count("num_nextn_predict_layers")}
    )


def _bailing_moe(f: Fields) -> Kwargs:
    """Ling and Ring."""
    bias = f.flag("use_bias", False)
    return (
        rotary(f, tie=False)
        | {"query_key_value_bias": bias or f.flag("use_qkv_bias", False), "attention_output_bias": bias}
        | {"qk_norm": f.flag("use_qk_norm", False)}
        | qwen_window(f)
        | _named_experts(f, 64, 6)
        | {"router_bias": f.flag("moe_router_enable_expert_bias", False)}
    )


def _exaone_moe(f: Fields) -> Kwargs:
    return dense_reader("exaone4")(f) | _named_experts(f, 64, 8)


def _hy_v3(f: Fields) -> Kwargs:
    return rotary(f, tie=False, head_dim=128) | attention_bias(f) | {"qk_norm": f.flag("qk_norm", True)} | _named_experts(f, 192, 8)


def _afmoe(f: Fields) -> Kwargs:
    """Trinity: gated attention, norms before and behind both blocks."""
    f = f.with_defaults({"first_k_dense_replace": f.count("num_dense_layers", default=1)})
    return (
        rotary(f, tie=False, head_dim=128)
        | attention_bias(f)
        | {"qk_norm": True, "attention_output_gate": True, "norms_per_layer": 4}
        | pattern(f, 4, "global_attn_every_n_layers")
        | _named_experts(f, 64, 6)
    )


def _ernie_moe(f: Fields) -> Kwargs:
    layers = f.size("num_hidden_layers")
    start, end = f.count("moe_layer_start_index", default=1), f.config.get("moe_layer_end_index")
    f.weightless("moe_layer_end_index")
    if f.size("moe_layer_interval", default=1) != 1:
        raise f.refuse("moe_layer_interval", "experts only in some layers behind the dense ones")
    if end not in (None, -1, layers - 1):
        raise f.refuse("moe_layer_end_index", "dense layers behind the routed ones")
    inner = f.size("moe_intermediate_size")
    return (
        dense_reader("ernie4_5")(f)
        | routed(f, "moe_num_experts", inner, per_token=6, per="moe_k")
        | {"first_k_dense_replace": start, "router_bias": f.flag("moe_use_aux_free", True)}
        | {"shared_expert_intermediate_size": f.count("moe_num_shared_experts") * inner}
        | {"num_nextn_predict_layers": f.count("num_nextn_predict_layers")}
    )


def _hunyuan_moe(f: Fields) -> Kwargs:
    """Hunyuan states some sizes once a layer; they must be the same everywhere."""
    f = f.with_values({name: _same(f, name) for name in ("num_experts", "moe_topk", "num_shared_expert", "moe_intermediate_size")})
    inner = f.size("moe_intermediate_size", default=f.size("intermediate_size"))
    for name in ("use_cla", "use_mla"):
        if f.flag(name, False):
            raise f.refuse(name, "Hunyuan with keys and values shared across layers, or with latent attention")
    f.weightless("cla_share_factor", "use_mixed_mlp_moe", "attention_head_dim", "dense_list")
    f.weightless("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")  # of use_mla
    shared = f.count("num_shared_expert", default=1) if f.config.get("use_mixed_mlp_moe", True) else 0
    return (
        dense_reader("hunyuan_v1_dense")(f)
        | routed(f, "num_experts", inner, per_token=1, per="moe_topk")
        | {
            "first_k_dense_replace": f.count("moe_layer_num_skipped"),
            "shared_expert_intermediate_size": shared * f.size("intermediate_size"),
        }
    )


def _same(f: Fields, name: str) -> Any:
    """A size that is stated once, or once a layer with the same value."""
    value = f.config.get(name)
    if isinstance(value, list):
        if not value or any(item != value[0] for item in value):
            raise f.refuse(name, "layers of different sizes")
        return value[0]
    return value


def _olmoe(f: Fields) -> Kwargs:
    return dense_reader("olmo2")(f) | routed(f, "num_experts", f.size("intermediate_size"), experts=64, per_token=8)


def _flex_olmo(f: Fields) -> Kwargs:
    return dense_reader("olmo2")(f) | routed(f, "num_experts", f.size("intermediate_size"), experts=7, per_token=5)


def _granite_moe(f: Fields) -> Kwargs:
    inner = f.size("intermediate_size")
    return (
        dense_reader("granite")(f)
        | routed(f, "num_local_experts", inner, experts=8, per_token=2)
        | {"shared_expert_intermediate_size": f.count("shared_intermediate_size")}
    )


def _phimoe(f: Fields) -> Kwargs:
    return (
        rotary(f, tie=False)
        | attention_bias(f)
        | {"norm": "layernorm", "output_bias": f.flag("lm_head_bias", False)}
        | routed(f, "num_local_experts", f.size("intermediate_size"), experts=16, per_token=2)
        | layer_types(f, f.size("num_hidden_layers"))
    )


def _mellum(f: Fields) -> Kwargs:
    f.weightless("sliding_window")  # of the layers that layer_types calls local, if any
    return (
        rotary(f, tie=False, head_dim=128)
        | attention_bias(f)
        | {"qk_norm": True}
        | routed(f, "num_local_experts", f.size("moe_intermediate_size"), experts=64, per_token=8)
        | dense_first(f)
        | layer_types(f, 0)
    )


def _dbrx(f: Fields) -> Kwargs:
    attention, ffn = f.inner("attn_config"), f.inner("ffn_config")
    f.weightless("attn_config", "ffn_config")
    hidden, heads = f.size("d_model"), f.size("n_heads")
    inner, experts = ffn.size("ffn_hidden_size"), ffn.size("moe_num_experts")
    chosen = ffn.size("moe_top_k")
    if chosen > experts:
        raise ffn.refuse("moe_top_k", f"there are {experts} experts")
    return multi_head(f, hidden, heads) | {
        "num_key_value_heads": attention.size("kv_n_heads", default=1),
        "num_hidden_layers": f.size("n_layers"),
        "intermediate_size": inner,
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": f.size("max_seq_len"),
        "tie_word_embeddings": f.flag("tie_word_embeddings", False),
        "gated_mlp": True,
        "norm": "layernorm-no-bias",
        "num_experts": experts,
        "num_experts_per_tok": chosen,
        "moe_intermediate_size": inner,
        "dropout": f.any_dropout("resid_pdrop", "emb_pdrop"),
    }


def _arctic(f: Fields) -> Kwargs:
    """A dense MLP as wide as the residual stream runs beside the experts of every layer, with a norm of its own."""
    if not f.flag("parallel_attn_mlp_res", True) or f.size("moe_layer_frequency", default=2) != 1:
        raise f.refuse("moe_layer_frequency", "Arctic without its dense MLP, or with layers that have no experts")
    f.weightless("use_residual", "moe_eval_capacity_factor", "moe_train_capacity_factor", "moe_min_capacity", "moe_token_dropping")
    f.weightless("enable_expert_tensor_parallelism")
    return (
        rotary(f, tie=False)
        | {"norms_per_layer": 3, "shared_expert_intermediate_size": f.size("hidden_size")}
        | routed(f, "num_local_experts", f.size("intermediate_size"), experts=128, per_token=2)
    )


def dense_reader(name: str) -> Callable[[Fields], Kwargs]:
    """The reader of a dense family, for the mixtures built on it."""
    return (DENSE_READERS | MORE_DENSE_READERS)[name]


MORE_MOE_READERS: dict[str, Callable[[Fields], Kwargs]] = {
    "afmoe": _afmoe,
    "arctic": _arctic,
    "bailing_moe": _bailing_moe,
    "bailing_moe_v2": _bailing_moe,
    "dbrx": _dbrx,
    "dots1": _dots1,
    "ernie4_5_moe": _ernie_moe,
    "exaone_moe": _exaone_moe,
    "flex_olmo": _flex_olmo,
    "granitemoe": _granite_moe,
    "granitemoeshared": _granite_moe,
    "hunyuan_v1_moe": _hunyuan_moe,
    "hy_v3": _hy_v3,
    "mellum": _mellum,
    "olmoe": _olmoe,
    "phimoe": _phimoe,
    "solar_open": _solar_open,
}
