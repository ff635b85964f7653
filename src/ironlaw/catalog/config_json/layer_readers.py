"""Readers of models whose layers differ in size or in what they are made of: lists in the file become groups of equal layers.

The order in which a file lists its layers is not kept; a pipeline stage holds each group in proportion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.moe_readers import routed
from ironlaw.catalog.config_json.shared import Kwargs, act, attention_bias, kinds_listed, rotary, tensors_of_rotary
from ironlaw.catalog.model import LayerGroup
from ironlaw.errors import InputError


def groups(layers: list[dict[str, Any]]) -> tuple[LayerGroup, ...]:
    """Equal layers together, in the order in which their first stands."""
    counted = Counter(tuple(sorted(layer.items())) for layer in layers)
    return tuple(LayerGroup(count=count, **dict(layer)) for layer, count in counted.items())


def _nemotron_nas(f: Fields) -> Kwargs:
    """Puzzle models: blocks with fewer heads of keys and values, narrower MLPs, or without one of the two."""
    hidden, heads, layers = f.size("hidden_size"), f.size("num_attention_heads"), f.size("num_hidden_layers")
    f.weightless("block_configs")
    listed = f.config.get("block_configs")
    if not isinstance(listed, list) or len(listed) != layers:
        raise InputError(f"{f.where}: field '{f.prefix}block_configs' is expected to be a list of {layers} objects")
    found = [_block(Fields(item if isinstance(item, dict) else {}, f.where, f"{f.prefix}block_configs[{i}]."), hidden, heads)
             for i, item in enumerate(listed)]  # fmt: skip
    widest = max((layer.get("intermediate_size", 0) for layer in found), default=0) or hidden
    most = max((layer.get("num_key_value_heads", 0) for layer in found), default=0) or heads
    f = f.with_defaults({"intermediate_size": widest, "num_key_value_heads": most})
    return rotary(f, tie=False) | attention_bias(f) | {"mlp_bias": f.flag("mlp_bias", False), "layer_groups": groups(found)}


def _block(f: Fields, hidden: int, heads: int) -> dict[str, Any]:
    """One block of a Puzzle model."""
    attention, ffn = f.inner("attention"), f.inner("ffn")
    for part in (attention, ffn):
        for name in ("replace_with_linear", "sparsify", "num_sink_tokens", "window_length", "moe", "mamba"):
            if part.config.get(name):
                raise part.refuse(name, "a block of another kind than attention and MLP")
    made: dict[str, Any] = {}
    if attention.flag("no_op", False):
        made["mixer"] = "none"
    else:
        group = attention.size("n_heads_in_group")
        if heads % group:
            raise attention.refuse("n_heads_in_group", f"there are {heads} heads")
        made["num_key_value_heads"] = heads // group
    if ffn.flag("no_op", False):
        made["mlp"] = "none"
    elif ffn.config.get("intermediate_size") is not None:
        made["intermediate_size"] = ffn.size("intermediate_size")
    else:
        made["intermediate_size"] = _upwards(int(2 * _number(ffn, "ffn_mult") * hidden / 3), 256)
    return made


def _upwards(width: int, step: int) -> int:
    return -(-width // step) * step


def _number(f: Fields, name: str) -> float:
    value = f.config.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < 1e6:
        raise InputError(f"{f.where}: field '{f.prefix}{name}' is {value!r}, a number above 0 is expected")
    return float(value)


def _openelm(f: Fields) -> Kwargs:
    """Heads and width of the MLP grow from layer to layer."""
    layers, hidden = f.size("num_transformer_layers"), f.size("model_dim")
    divisor, head_dim = f.size("ffn_dim_divisor", default=256), f.size("head_dim")
    f.weightless("num_gqa_groups", "qkv_multipliers")
    queries, keys = (_a_layer(f, name, layers, 1) for name in ("num_query_heads", "num_kv_heads"))
    widths = [_rounded(item * hidden, divisor) for item in _a_layer(f, "ffn_multipliers", layers, 0)]
    found = [
        {"num_attention_heads": int(a), "num_key_value_heads": int(k), "intermediate_size": w}
        for a, k, w in zip(queries, keys, widths, strict=True)
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
        "hidden_act": act(f.text("activation_fn_name", default="swish")),
        "qk_norm": f.flag("normalize_qk_projections", True),
        "layer_groups": groups(found),
    }


def _a_layer(f: Fields, name: str, layers: int, whole: int) -> list[float]:
    """A number for each layer."""
    f.weightless(name)
    listed: Any = f.config.get(name)
    good = isinstance(listed, list) and len(listed) == layers
    if not good or any(
        isinstance(v, bool) or not isinstance(v, (int, float)) or not 0 < v < 1e6 or (whole and v != int(v)) for v in listed
    ):
        raise InputError(f"{f.where}: field '{f.prefix}{name}' is expected to be a list of {layers} numbers above 0")
    return [float(v) for v in listed]


def _rounded(width: float, divisor: int) -> int:
    """To the nearest multiple, never less than nine tenths."""
    near = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return near + divisor if near < 0.9 * width else near


def _gemma4(f: Fields) -> Kwargs:
    """Global layers have wider heads, fewer of them for keys, and may take their keys for values."""
    if f.count("hidden_size_per_layer_input"):
        raise f.refuse("hidden_size_per_layer_input", "per-layer embeddings")
    for name in ("num_kv_shared_layers", "use_double_wide_mlp"):
        if f.config.get(name):
            raise f.refuse(name, "key-value sharing across layers")
    f.weightless("vocab_size_per_layer_input", "num_kv_shared_layers", "use_double_wide_mlp")
    if f.text("use_bidirectional_attention", default="vision") != "vision":  # which concerns tokens of images alone
        raise f.refuse("use_bidirectional_attention", "attention in both directions")
    layers, heads = f.size("num_hidden_layers"), f.size("num_attention_heads")
    own = rotary(f, tie=True, head_dim=256)
    alike = f.flag("attention_k_eq_v", False)
    wide = f.size("global_head_dim", default=512)
    fewer = f.size("num_global_key_value_heads", default=own["num_key_value_heads"]) if alike else own["num_key_value_heads"]
    f.weightless("num_global_key_value_heads")
    mixture = f.flag("enable_moe_block", False)
    mlp: Kwargs = {"mlp": "routed"} if mixture else {}
    everywhere = {"num_attention_heads": heads, "num_key_value_heads": fewer, "head_dim": wide, "attention_k_eq_v": alike} | mlp
    window = {"sliding_window": f.size("sliding_window", default=512)} | mlp
    listed = kinds_listed(f, "layer_types", ("sliding_attention", "full_attention"))
    listed = listed or ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(layers)]
    experts: Kwargs = {}
    if mixture:  # the dense MLP runs beside the experts, each with norms of its own
        experts = routed(f, "num_experts", f.size("moe_intermediate_size", "expert_intermediate_size"), per="top_k_experts")
        experts |= {"shared_expert_intermediate_size": own["intermediate_size"], "router_bias": True}
    else:
        f.weightless("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
    return (
        own
        | attention_bias(f)
        | experts
        | {
            "hidden_act": "gelu",
            "qk_norm": True,
            "norms_per_layer": 7 if mixture else 4,
            "layer_groups": groups([everywhere if kind == "full_attention" else window for kind in listed]),
        }
    )


def _mimo_v2(f: Fields) -> Kwargs:
    """Most layers see a window, with more heads of keys and a sink each; values are narrower than keys."""
    layers = f.size("num_hidden_layers")
    f = f.with_defaults({"n_shared_experts": f.count("n_shared_experts")})
    f.weightless("hybrid_layer_pattern", "sliding_window_size", "attention_chunk_size", "hybrid_block_size", "moe_layer_freq")
    local = _bits(f, "hybrid_layer_pattern", kinds_listed(f, "layer_types", ("full_attention", "sliding_attention")), "sliding_attention")
    sparse = _bits(f, "moe_layer_freq", kinds_listed(f, "mlp_layer_types", ("dense", "sparse")), "sparse")
    own = rotary(f, tie=False, head_dim=192)
    heads, keys = own["num_attention_heads"], own["num_key_value_heads"]
    narrow = f.size("v_head_dim", default=own["head_dim"])
    for name, value in (("swa_head_dim", own["head_dim"]), ("swa_v_head_dim", narrow)):
        if f.size(name, default=value) != value:
            raise f.refuse(name, "local layers whose heads are of another width")
    if (own["head_dim"] + narrow) % 2:
        raise f.refuse("v_head_dim", "the mean of key and value widths is no whole number")
    near = {
        "num_attention_heads": f.size("swa_num_attention_heads", default=heads),
        "num_key_value_heads": f.size("swa_num_key_value_heads", default=8),
        "sliding_window": f.size("sliding_window"),
        "attention_sinks": f.flag("add_swa_attention_sink_bias", True),
    }
    far = {"num_attention_heads": heads, "num_key_value_heads": keys, "attention_sinks": f.flag("add_full_attention_sink_bias", False)}
    found = [(near if local[i] else far) | ({"mlp": "routed"} if sparse[i] else {}) for i in range(layers)]
    inner = f.size("moe_intermediate_size")
    return (
        own
        | attention_bias(f)
        | routed(f, "n_routed_experts", inner)
        | {
            "head_dim": (own["head_dim"] + narrow) // 2,  # the mean of keys and values, which every product with both adds up to
            "shared_expert_intermediate_size": f.count("n_shared_experts") * inner,
            "router_bias": f.text("topk_method", default="noaux_tc") == "noaux_tc",
            "layer_groups": groups(found),
        }
    )


def _bits(f: Fields, name: str, listed: list[str], yes: str) -> list[bool]:
    """A yes or no for each layer: from a list of words where the file has one, else from ones and zeros under ``name``."""
    if listed:
        return [kind == yes for kind in listed]
    layers, given = f.size("num_hidden_layers"), f.config.get(name)
    if not isinstance(given, list) or len(given) != layers or any(item not in (0, 1) for item in given):
        raise InputError(f"{f.where}: field '{f.prefix}{name}' is expected to be a list of {layers} zeros and ones")
    return [bool(item) for item in given]


def _mamba_sizes(f: Fields) -> Kwargs:
    """Mamba-2 in the spelling of Bamba and Granite."""
    if f.flag("mamba_proj_bias", False):
        raise f.refuse("mamba_proj_bias", "Mamba projections with biases")
    if not f.flag("mamba_conv_bias", True):
        raise f.refuse("mamba_conv_bias", "a convolution without bias")
    f.weightless("mamba_chunk_size", "mamba_expand")
    heads, inner = f.size("mamba_n_heads", default=128), f.size("mamba_expand", default=2) * f.size("hidden_size")
    given = f.config.get("mamba_d_head")
    width = inner // heads if given in (None, "auto") else f.size("mamba_d_head")
    f.weightless("mamba_d_head")
    return {
        "mamba_num_heads": heads,
        "mamba_head_dim": width,
        "ssm_state_size": f.size("mamba_d_state", default=256),
        "mamba_n_groups": f.size("mamba_n_groups", default=1),
        "conv_kernel": f.size("mamba_d_conv", default=4),
    }


def _granite_hybrid(f: Fields) -> Kwargs:
    """Granite 4: every layer an MLP or experts behind Mamba-2 or attention."""
    layers, shared = f.size("num_hidden_layers"), f.count("shared_intermediate_size", default=1024)
    listed = kinds_listed(f, "layer_types", _MIXERS) or kinds_listed(f, "layers_block_type", _MIXERS) or ["mamba"] * layers
    f.weightless("layers_block_type", "layer_types")
    experts: Kwargs = {}
    if f.count("num_local_experts", default=8):
        experts = routed(f, "num_local_experts", f.size("intermediate_size"), experts=8, per_token=2)
        experts["shared_expert_intermediate_size"] = shared
    else:
        f.weightless("num_experts_per_tok")
        f = f.with_values({"intermediate_size": shared})
    found = [_mixer(kind) | ({"mlp": "routed"} if experts else {}) for kind in listed]
    position = {} if f.text("position_embedding_type", default="rope") == "rope" else {"position_embedding": "none"}
    return rotary(f, tie=False) | attention_bias(f) | experts | position | _mamba_of(f, found) | {"layer_groups": groups(found)}


_MIXERS = ("mamba", "attention", "linear_attention", "full_attention")


def _mixer(kind: str) -> dict[str, Any]:
    return {"mixer": "mamba"} if kind in ("mamba", "linear_attention") else {}


def _mamba_of(f: Fields, found: list[dict[str, Any]]) -> Kwargs:
    """The sizes of the Mamba layers, if there are any."""
    sizes = _mamba_sizes(f)
    return sizes if any(layer.get("mixer") == "mamba" for layer in found) else {}


def _bamba(f: Fields) -> Kwargs:
    layers = f.size("num_hidden_layers")
    f.weightless("attn_layer_indices", "layers_block_type")
    attending = f.config.get("attn_layer_indices") or []
    if not isinstance(attending, list) or any(item not in range(layers) for item in attending):
        raise InputError(f"{f.where}: field '{f.prefix}attn_layer_indices' is expected to be a list of layers below {layers}")
    listed = kinds_listed(f, "layer_types", _MIXERS) or ["attention" if i in attending else "mamba" for i in range(layers)]
    found = [_mixer(kind) for kind in listed]
    made = rotary(f, tie=False) | attention_bias(f) | {"mlp_bias": f.flag("mlp_bias", False)}
    return made | _mamba_of(f, found) | {"layer_groups": groups(found)}


def _longcat(f: Fields) -> Kwargs:
    """A layer is two attentions, two dense MLPs and experts beside them; each of the five counts as a layer here."""
    f = tensors_of_rotary(f, intermediate_size="ffn_hidden_size", moe_intermediate_size="expert_ffn_hidden_size")
    layers = f.size("num_layers", "num_hidden_layers")
    f = f.with_values({"num_hidden_layers": 5 * layers})
    if f.flag("attention_bias", False):
        raise f.refuse("attention_bias", "latent attention with biases")
    if f.count("zero_expert_num") and f.text("zero_expert_type", default="identity") != "identity":
        raise f.refuse("zero_expert_type", "experts without weights that are not the identity")
    f.weightless("qk_head_dim", "attention_method")
    nope, rope = f.size("qk_nope_head_dim"), f.size("qk_rope_head_dim")
    f.left_out.append(f"num_layers {layers} (each counts as five: two attentions, two MLPs, experts)")
    return (
        rotary(f, tie=False, head_dim=nope + rope)
        | routed(f, "n_routed_experts", f.size("moe_intermediate_size"), per="moe_topk")
        | {
            "head_dim": nope + rope,
            "q_lora_rank": f.count("q_lora_rank"),
            "kv_lora_rank": f.size("kv_lora_rank"),
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": rope,
            "v_head_dim": f.size("v_head_dim"),
            "zero_expert_num": f.count("zero_expert_num"),
            "router_bias": True,
            "layer_groups": (
                LayerGroup(count=2 * layers, mlp="none"),
                LayerGroup(count=2 * layers, mixer="none"),
                LayerGroup(count=layers, mixer="none", mlp="routed"),
            ),
        }
    )


LAYER_READERS: dict[str, Callable[[Fields], Kwargs]] = {
    "bamba": _bamba,
    "gemma4_text": _gemma4,
    "granitemoehybrid": _granite_hybrid,
    "longcat_flash": _longcat,
    "mimo_v2_flash": _mimo_v2,
    "nemotron-nas": _nemotron_nas,
    "openelm": _openelm,
}
