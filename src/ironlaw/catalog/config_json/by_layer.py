"""Readers of models whose layers differ in size or kind: the file's lists become groups of equal layers.

The order of the layers is dropped; a pipeline stage has each group in proportion.
"""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import (
    Kwargs,
    activation,
    attention_bias,
    group_layers,
    latent_attention,
    layer_kinds,
    llama_fields,
    routed,
    sizes_by_layer,
    with_llama_names,
)
from ironlaw.catalog.model import LayerGroup


def nemotron_nas(f: Fields) -> Kwargs:
    """Puzzle models: blocks with fewer key-value heads, narrower MLPs, or without one of the two."""
    hidden, heads, layers = f.size("hidden_size"), f.size("num_attention_heads"), f.size("num_hidden_layers")
    f.ignore("block_configs")
    listed = f.config.get("block_configs")
    if not isinstance(listed, list) or len(listed) != layers:
        raise f.wrong("block_configs", f"a list of {layers} objects")
    blocks = [_block(f.child(item if isinstance(item, dict) else {}, f"block_configs[{i}]"), hidden, heads)
             for i, item in enumerate(listed)]  # fmt: skip
    widest = max((layer.get("intermediate_size", 0) for layer in blocks), default=0) or hidden
    most = max((layer.get("num_key_value_heads", 0) for layer in blocks), default=0) or heads
    f = f.with_defaults({"intermediate_size": widest, "num_key_value_heads": most})
    return llama_fields(f, tie=False) | attention_bias(f) | {"mlp_bias": f.flag("mlp_bias", False), "layer_groups": group_layers(blocks)}


def _block(f: Fields, hidden: int, heads: int) -> dict[str, Any]:
    """The fields of one Puzzle block that differ from those of the model."""
    attention, ffn = f.inner("attention"), f.inner("ffn")
    for part in (attention, ffn):
        for name in ("replace_with_linear", "sparsify", "num_sink_tokens", "window_length", "moe", "mamba"):
            if part.config.get(name):
                raise part.refuse(name, "a block other than attention and MLP")
    sizes: dict[str, Any] = {}
    if attention.flag("no_op", False):
        sizes["mixer"] = "none"
    else:
        group = attention.size("n_heads_in_group")
        if heads % group:
            raise attention.contradict("n_heads_in_group", f"there are {heads} heads")
        sizes["num_key_value_heads"] = heads // group
    if ffn.flag("no_op", False):
        sizes["mlp"] = "none"
    elif ffn.config.get("intermediate_size") is not None:
        sizes["intermediate_size"] = ffn.size("intermediate_size")
    else:
        sizes["intermediate_size"] = -(-int(2 * ffn.number("ffn_mult") * hidden / 3) // 256) * 256
    return sizes


def openelm(f: Fields) -> Kwargs:
    """OpenELM: heads and width of the MLP grow from layer to layer."""
    layers, hidden = f.size("num_transformer_layers"), f.size("model_dim")
    divisor, head_dim = f.size("ffn_dim_divisor", default=256), f.size("head_dim")
    f.ignore("num_gqa_groups", "qkv_multipliers")
    queries, keys = (f.numbers(name, layers, whole=True) for name in ("num_query_heads", "num_kv_heads"))
    widths = [_round_width(item * hidden, divisor) for item in f.numbers("ffn_multipliers", layers)]
    layer_sizes = [
        {"num_attention_heads": int(query), "num_key_value_heads": int(key), "intermediate_size": width}
        for query, key, width in zip(queries, keys, widths, strict=True)
    ]
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": int(max(queries)),
        "num_key_value_heads": int(max(keys)),
        "head_dim": head_dim,
        "intermediate_size": max(widths),
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": f.size("max_context_length", default=2048),
        "tie_word_embeddings": f.flag("share_input_output_layers", True),
        "gated_mlp": f.flag("ffn_with_glu", True),
        "hidden_act": activation(f.text("activation_fn_name", default="swish")),
        "qk_norm": f.flag("normalize_qk_projections", True),
        "layer_groups": group_layers(layer_sizes),
    }


def _round_width(width: float, divisor: int) -> int:
    """``width`` to the nearest multiple of ``divisor``, but never less than nine tenths of it."""
    nearest = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * width else nearest


def gemma4(f: Fields) -> Kwargs:
    """Gemma 4: global layers have wider heads, fewer key-value heads, and may use the keys as values."""
    second = f.count("hidden_size_per_layer_input")
    f.ignore("vocab_size_per_layer_input")
    if f.text("use_bidirectional_attention", default="vision") != "vision":  # vision: tokens of images alone
        raise f.refuse("use_bidirectional_attention", "attention in both directions")
    layers, heads = f.size("num_hidden_layers"), f.size("num_attention_heads")
    fields = llama_fields(f, tie=True, head_dim=256)
    kv_heads, keys_are_values = fields["num_key_value_heads"], f.flag("attention_k_eq_v", False)
    global_kv_heads = f.size("num_global_key_value_heads", default=kv_heads) if keys_are_values else kv_heads
    f.ignore("num_global_key_value_heads")
    mixture = f.flag("enable_moe_block", False)
    mlp: Kwargs = {"mlp": "routed"} if mixture else {}
    by_layer = sizes_by_layer(f, "num_key_value_heads", "head_dim", "intermediate_size")
    wider = fields["head_dim"] if f.config.get("per_layer_config") is not None else 512
    global_layer = {
        "num_attention_heads": heads,
        "num_key_value_heads": global_kv_heads,
        "head_dim": f.size("global_head_dim", default=wider),
        "attention_k_eq_v": keys_are_values,
    } | mlp
    local_layer = {"sliding_window": f.size("sliding_window", default=512)} | mlp
    shared = f.count("num_kv_shared_layers")
    if shared >= layers:
        raise f.contradict("num_kv_shared_layers", f"there are {layers} layers, and the first has no keys to share")
    reused: Kwargs = {"kv_shared": True}
    if f.flag("use_double_wide_mlp", False):  # layers without keys and values of their own have an MLP twice as wide
        reused["intermediate_size"] = 2 * fields["intermediate_size"]
    listed = layer_kinds(f, "layer_types", ("sliding_attention", "full_attention"))
    listed = listed or ["full_attention" if (i + 1) % 6 == 0 or i == layers - 1 else "sliding_attention" for i in range(layers)]
    experts: Kwargs = {}
    if mixture:  # the dense MLP runs beside the experts, each with separate norms
        experts = routed(f, "num_experts", f.size("moe_intermediate_size", "expert_intermediate_size"), per="top_k_experts")
        experts |= {"shared_expert_intermediate_size": fields["intermediate_size"], "router_bias": True}
    else:
        f.ignore("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
    return (
        fields
        | attention_bias(f)
        | experts
        | {
            "hidden_act": "gelu",
            "qk_norm": True,
            "norms_per_layer": 7 if mixture else 4,
            "hidden_size_per_layer_input": second,
            "vocab_size_per_layer_input": f.size("vocab_size_per_layer_input", default=fields["vocab_size"]) if second else 0,
            "layer_groups": group_layers(
                [
                    (global_layer if kind == "full_attention" else local_layer) | (reused if i >= layers - shared else {}) | by_layer[i]
                    for i, kind in enumerate(listed)
                ]
            ),
        }
    )


def mimo_v2(f: Fields) -> Kwargs:
    """MiMo-V2: most layers see a window, with more key-value heads and a sink each; values are narrower than keys."""
    f = f.with_defaults({"n_shared_experts": f.count("n_shared_experts")})
    f.ignore("hybrid_layer_pattern", "sliding_window_size", "attention_chunk_size", "hybrid_block_size", "moe_layer_freq")
    local = _layer_flags(
        f, "hybrid_layer_pattern", layer_kinds(f, "layer_types", ("full_attention", "sliding_attention")), "sliding_attention"
    )
    sparse = _layer_flags(f, "moe_layer_freq", layer_kinds(f, "mlp_layer_types", ("dense", "sparse")), "sparse")
    fields = llama_fields(f, tie=False, head_dim=192)
    heads, kv_heads, key_width = fields["num_attention_heads"], fields["num_key_value_heads"], fields["head_dim"]
    value_width = f.size("v_head_dim", default=key_width)
    for name, value in (("swa_head_dim", key_width), ("swa_v_head_dim", value_width)):
        if f.size(name, default=value) != value:
            raise f.refuse(name, "local layers with heads of another width")
    if (key_width + value_width) % 2:
        raise f.refuse("v_head_dim", "key and value widths whose mean is not a whole number")
    local_layer = {
        "num_attention_heads": f.size("swa_num_attention_heads", default=heads),
        "num_key_value_heads": f.size("swa_num_key_value_heads", default=8),
        "sliding_window": f.size("sliding_window"),
        "attention_sinks": f.flag("add_swa_attention_sink_bias", True),
    }
    global_layer = {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "attention_sinks": f.flag("add_full_attention_sink_bias", False),
    }
    layer_sizes = [
        (local_layer if is_local else global_layer) | ({"mlp": "routed"} if is_sparse else {})
        for is_local, is_sparse in zip(local, sparse, strict=True)
    ]
    inner = f.size("moe_intermediate_size")
    return (
        fields
        | attention_bias(f)
        | routed(f, "n_routed_experts", inner)
        | {
            "head_dim": (key_width + value_width) // 2,  # every cost has one product with keys and one with values
            "shared_expert_intermediate_size": f.count("n_shared_experts") * inner,
            "router_bias": f.text("topk_method", default="noaux_tc") == "noaux_tc",
            "layer_groups": group_layers(layer_sizes),
        }
    )


def _layer_flags(f: Fields, name: str, listed: list[str], yes: str) -> list[bool]:
    """True or false for each layer: from a list of words where the file has one, else from ones and zeros under ``name``."""
    if listed:
        return [kind == yes for kind in listed]
    layers, flags = f.size("num_hidden_layers"), f.config.get(name)
    if not isinstance(flags, list) or len(flags) != layers or any(item not in (0, 1) for item in flags):
        raise f.wrong(name, f"a list of {layers} zeros and ones")
    return [bool(item) for item in flags]


def longcat(f: Fields) -> Kwargs:
    """LongCat: a layer is two attentions, two dense MLPs and experts beside them; a Model counts each of the five as a layer."""
    f = with_llama_names(f, intermediate_size="ffn_hidden_size", moe_intermediate_size="expert_ffn_hidden_size")
    layers = f.size("num_layers", "num_hidden_layers")
    f = f.with_values({"num_hidden_layers": 5 * layers})
    if f.count("zero_expert_num") and f.text("zero_expert_type", default="identity") != "identity":
        raise f.refuse("zero_expert_type", "experts without weights other than the identity")
    f.ignore("attention_method")
    f.left_out.append(f"num_layers {layers} (each counts as five: two attentions, two MLPs, experts)")
    return (
        latent_attention(f)
        | routed(f, "n_routed_experts", f.size("moe_intermediate_size"), per="moe_topk")
        | {
            "zero_expert_num": f.count("zero_expert_num"),
            "router_bias": True,
            "layer_groups": (
                LayerGroup(count=2 * layers, mlp="none"),
                LayerGroup(count=2 * layers, mixer="none"),
                LayerGroup(count=layers, mixer="none", mlp="routed"),
            ),
        }
    )
