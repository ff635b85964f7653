"""Readers of mixtures of experts and of latent attention, one small function a ``model_type``.

Where a field has no place in a Model and holds no parameters, the reader says so (``weightless``); where it holds few, or changes
only what attention sees, it is named in ``left_out``. Experts of unequal size or placed by a pattern are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import Kwargs, attention_bias, kinds_listed, layer_types, qwen_window, rotary


def _mixtral(f: Fields) -> Kwargs:
    inner = f.size("intermediate_size")
    return (
        rotary(f, tie=False) | routed(f, "num_local_experts", inner, experts=8, per_token=2) | layer_types(f, f.size("num_hidden_layers"))
    )


def _qwen2_moe(f: Fields) -> Kwargs:
    return (
        rotary(f, tie=False)
        | {"query_key_value_bias": f.flag("qkv_bias", True)}
        | qwen_window(f)
        | routed(f, "num_experts", f.size("moe_intermediate_size", default=1408), experts=60, per_token=4)
        | qwen_placement(f)
        | {"shared_expert_intermediate_size": f.size("shared_expert_intermediate_size", default=5632), "shared_expert_gate": True}
    )


def _qwen3_moe(f: Fields) -> Kwargs:
    if f.count("shared_expert_intermediate_size"):
        raise f.refuse("shared_expert_intermediate_size", "Qwen3 has no shared expert")
    if not f.flag("use_qk_norm", True):
        raise f.refuse("use_qk_norm", "Qwen3 without norms of queries and keys")
    return (
        rotary(f, tie=False)
        | attention_bias(f)
        | {"qk_norm": True}
        | qwen_window(f)
        | routed(f, "num_experts", f.size("moe_intermediate_size", default=768), experts=128, per_token=8)
        | qwen_placement(f)
    )


def _deepseek_v2(f: Fields) -> Kwargs:
    return _deepseek(f, topk_method="greedy")


def _deepseek_v3(f: Fields) -> Kwargs:
    return _deepseek(f, topk_method="noaux_tc")


def _deepseek_v32(f: Fields) -> Kwargs:
    """Latent attention to the keys that an indexer picks."""
    kinds_listed(f, "layer_types", ("deepseek_sparse_attention", "indexed_attention"))
    picking = kinds_listed(f, "indexer_types", ("full", "shared"))
    f.weightless("index_topk_freq", "index_topk_pattern", "index_skip_topk_offset", "index_share_for_mtp_iteration")
    for name in () if picking else ("index_topk_freq", "index_topk_pattern"):
        if f.config.get(name) not in (None, 1):
            raise f.refuse(name, "layers that share the indexer of another, and no indexer_types says which")
    made = _deepseek_v3(f)
    if not made["q_lora_rank"]:
        raise f.refuse("q_lora_rank", "an indexer works on the queries' latent, and there is none")
    sizes = {name: f.size(name) for name in ("index_n_heads", "index_head_dim", "index_topk")}
    return made | sizes | {"index_layers": picking.count("full") if "shared" in picking else 0}


def _deepseek(f: Fields, topk_method: str) -> Kwargs:
    if f.flag("attention_bias", False):
        raise f.refuse("attention_bias", "latent attention with biases")
    f.weightless("qk_head_dim")  # the sum of its two parts
    nope, rope = f.size("qk_nope_head_dim"), f.size("qk_rope_head_dim")
    experts: Kwargs = {}
    if f.count("n_routed_experts"):
        experts = routed(f, "n_routed_experts", f.size("moe_intermediate_size")) | dense_first(f) | shared_experts(f)
        method = f.text("topk_method", default=topk_method)
        experts |= {"router_bias": method == "noaux_tc"} | ({} if method == "greedy" else groups(f))
    return (
        rotary(f, tie=False, head_dim=nope + rope)
        | experts
        | {
            "head_dim": nope + rope,  # what a query and a key multiply over
            "q_lora_rank": f.count("q_lora_rank"),
            "kv_lora_rank": f.size("kv_lora_rank"),
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": rope,
            "v_head_dim": f.size("v_head_dim"),
            "num_nextn_predict_layers": f.count("num_nextn_predict_layers"),
        }
    )


def glm4_moe(f: Fields) -> Kwargs:
    """Grouped attention with experts in DeepSeek's fields."""
    return (
        rotary(f, tie=False)
        | {"query_key_value_bias": f.flag("attention_bias", False), "qk_norm": f.flag("use_qk_norm", False)}
        | routed(f, "n_routed_experts", f.size("moe_intermediate_size"))
        | dense_first(f)
        | shared_experts(f)
        | groups(f)
        | {"router_bias": True, "num_nextn_predict_layers": f.count("num_nextn_predict_layers")}
    )


def _minimax_m2(f: Fields) -> Kwargs:
    if f.count("shared_intermediate_size"):
        raise f.refuse("shared_intermediate_size", "MiniMax M2 with a shared expert")
    norms = f.flag("use_qk_norm", True)
    each = norms and f.text("qk_norm_type", default="per_layer") == "per_layer"
    further = f.count("num_mtp_modules") * f.count("mtp_transformer_layers", default=1)
    inner = f.size("intermediate_size")
    return (
        rotary(f, tie=False, head_dim=128)
        | {"qk_norm": norms, "qk_norm_heads": each, "num_nextn_predict_layers": further if f.flag("use_mtp", False) else 0}
        | routed(f, "num_local_experts", inner)
        | {"router_bias": f.flag("use_routing_bias", False)}
    )


def _gpt_oss(f: Fields) -> Kwargs:
    layers, inner = f.size("num_hidden_layers"), f.size("intermediate_size")
    f.weightless("experts_per_token")  # the older spelling, beside num_experts_per_tok
    return (
        rotary(f, tie=False, head_dim=64)
        | {"query_key_value_bias": f.flag("attention_bias", True), "attention_output_bias": f.flag("attention_bias", True)}
        | layer_types(f, layers - layers // 2)
        | routed(f, "num_local_experts", inner, experts=128, per_token=4)
        | {"router_bias": True, "expert_bias": True, "attention_sinks": True}
    )


def _llama4(f: Fields) -> Kwargs:
    inner, step = f.size("intermediate_size"), f.size("interleave_moe_layer_step", default=1)
    f.weightless("use_qk_norm")
    layers = f.size("num_hidden_layers")
    placed = f.config.get("moe_layers")
    if placed is not None and placed != list(range(step - 1, layers, step)):
        raise f.refuse("moe_layers", "experts placed by a list")
    f.weightless("moe_layers")
    return (
        rotary(f, tie=False, head_dim=128)
        | attention_bias(f)  # use_qk_norm: its norms of q and k hold no weights
        | {"intermediate_size": f.size("intermediate_size_mlp", default=16384)}
        | routed(f, "num_local_experts", inner, experts=16, per_token=1)
        | {"moe_layer_freq": step, "shared_expert_intermediate_size": inner}
        | _chunks(f, layers)
    )


def _chunks(f: Fields, layers: int) -> Kwargs:
    """Layers with rotary positions attend inside chunks, the others to everything."""
    f.weightless("no_rope_layers")
    chunk, every = f.count("attention_chunk_size"), f.count("no_rope_layer_interval", default=4)
    listed, rotated = kinds_listed(f, "layer_types", ("chunked_attention", "full_attention")), f.config.get("no_rope_layers")
    if not chunk:
        return {}
    if listed:
        local = listed.count("chunked_attention")
    elif rotated:
        if not isinstance(rotated, list) or len(rotated) != layers:
            raise f.refuse("no_rope_layers", f"a 0 or 1 for each of {layers} layers is expected")
        local = sum(1 for item in rotated if item)
    else:
        local = layers - layers // every if every else layers
    return {"attention_chunk_size": chunk, "sliding_window_layers": local}


MOE_READERS: dict[str, Callable[[Fields], Kwargs]] = {
    "deepseek_v32": _deepseek_v32,
    "glm4_moe_lite": _deepseek_v3,
    "glm_moe_dsa": _deepseek_v32,
    "minicpm3": _deepseek_v3,
    "youtu": _deepseek_v3,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "glm4_moe": glm4_moe,
    "glm4v_moe_text": glm4_moe,
    "gpt_oss": _gpt_oss,
    "kimi_k2": _deepseek_v3,
    "llama4_text": _llama4,
    "minimax_m2": _minimax_m2,
    "mistral4": _deepseek_v2,
    "mixtral": _mixtral,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "qwen3_vl_moe_text": _qwen3_moe,
}


SPELLINGS = ("num_experts", "num_local_experts", "n_routed_experts")


def routed(
    f: Fields, number: str, inner: int, experts: int | None = None, per_token: int | None = None, per: str = "num_experts_per_tok"
) -> Kwargs:
    """Experts of one layer; ``experts`` and ``per_token`` are the type's defaults."""
    f.weightless("moe_router_dtype")
    count, chosen = f.size(number, default=experts), f.size(per, default=per_token)
    f.weightless(*(name for name in SPELLINGS if f.config.get(name) == count))  # the same number under another name
    if chosen > count:
        raise f.refuse(per, f"there are {count} experts")
    return {"num_experts": count, "num_experts_per_tok": chosen, "moe_intermediate_size": inner}


def groups(f: Fields) -> Kwargs:
    """Groups of experts, of which a token's experts lie in some."""
    count, chosen = f.count("n_group", default=1) or 1, f.count("topk_group", default=1) or 1
    if chosen > count:
        raise f.refuse("topk_group", f"there are {count} groups")
    return {"n_group": count, "topk_group": chosen}


def dense_first(f: Fields) -> Kwargs:
    """Dense layers at the front, all others routed."""
    dense, layers = f.count("first_k_dense_replace"), f.size("num_hidden_layers")
    f.weightless("moe_layer_freq", "decoder_sparse_step")
    freq = f.config.get("moe_layer_freq")
    for name, listed in (("mlp_layer_types", kinds_listed(f, "mlp_layer_types", ("dense", "sparse"))), ("moe_layer_freq", freq)):
        if isinstance(listed, list) and listed:
            front = next((i for i, kind in enumerate(listed) if kind in ("sparse", 1)), len(listed))
            ordered = len(listed) == layers and all(kind in ("sparse", 1) for kind in listed[front:])
            if not ordered or any(kind not in ("dense", 0) for kind in listed[:front]):
                raise f.refuse(name, "dense layers elsewhere than at the front")
            dense = front
    if not isinstance(freq, list) and freq not in (None, 1):
        raise f.refuse("moe_layer_freq", "experts only in some layers behind the dense ones")
    if dense > layers:
        raise f.refuse("first_k_dense_replace", f"there are {layers} layers")
    return {"first_k_dense_replace": dense}


def shared_experts(f: Fields) -> Kwargs:
    """Shared experts are as wide as routed ones."""
    return {"shared_expert_intermediate_size": f.count("n_shared_experts") * f.size("moe_intermediate_size")}


def qwen_placement(f: Fields) -> Kwargs:
    """Every ``decoder_sparse_step``-th layer is routed, but for a list of dense ones at the front."""
    step = f.size("decoder_sparse_step", default=1)
    f.weightless("mlp_only_layers")
    listed: Any = f.config.get("mlp_only_layers") or []
    if listed and (step != 1 or listed != list(range(len(listed)))):
        raise f.refuse("mlp_only_layers", "dense layers elsewhere than at the front")
    return {"moe_layer_freq": step, "first_k_dense_replace": len(listed)}
