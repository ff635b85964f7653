"""Readers of hybrids of attention with Mamba-2 (Nemotron-H, Bamba, Granite 4) or a gated delta rule (Qwen3-Next, Qwen3.5).

A Model counts the layers of each kind; their order is dropped.
"""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import (
    Kwargs,
    activation,
    attention_bias,
    expert_groups,
    group_layers,
    layer_kinds,
    llama_fields,
    qwen_experts,
    refuse_other_kinds,
    routed,
)
from ironlaw.errors import InputError

BLOCKS = {
    "M": "mamba",
    "mamba": "mamba",
    "linear_attention": "mamba",
    "*": "attention",
    "attention": "attention",
    "full_attention": "attention",
    "-": "mlp",
    "mlp": "mlp",
    "E": "moe",
    "moe": "moe",
}
MIXERS = ("mamba", "attention", "linear_attention", "full_attention")


def nemotron_h(f: Fields) -> Kwargs:
    """Nemotron-H: each layer is one block: Mamba-2, attention, MLP or experts."""
    blocks = _blocks(f)
    if f.count("num_hidden_layers", default=len(blocks)) != len(blocks):
        raise InputError(f"{f.where}: num_hidden_layers is {f.size('num_hidden_layers')}, but the pattern of layers has {len(blocks)}")
    head_dim = f.size("head_dim", "attention_head_dim", default=128)
    f = f.with_defaults({"head_dim": head_dim, "num_hidden_layers": len(blocks)})
    bias, mlp_bias = f.flag("attention_bias", False), f.flag("mlp_bias", False)
    dense: Kwargs = {"mlp_bias": mlp_bias} if "mlp" in blocks else {}
    return (
        llama_fields(f, tie=False)
        | _nemotron_mamba(f)
        | dense
        | _block_experts(f, blocks, mlp_bias)
        | {
            "one_block_layers": True,
            "norms_per_layer": 1,
            "mamba_layers": blocks.count("mamba"),
            "attention_layers": blocks.count("attention"),
            "mlp_layers": blocks.count("mlp"),
            "routed_layers": blocks.count("moe"),
            "gated_mlp": False,
            "hidden_act": activation(f.text("mlp_hidden_act", default="relu2")),
            "position_embedding": "none",
            "query_key_value_bias": bias,
            "attention_output_bias": bias,
            "dropout": f.any_dropout("attention_dropout", "hidden_dropout"),
            "num_nextn_predict_layers": _predicting_layers(f),
        }
    )


def qwen3_next(f: Fields) -> Kwargs:
    return _delta_rule(f) | qwen_experts(f, inner=512, experts=512, per_token=10, shared=512)


def qwen3_5(f: Fields) -> Kwargs:
    f.ignore("mlp_only_layers")  # every layer is dense
    return _delta_rule(f)


def qwen3_5_moe(f: Fields) -> Kwargs:
    f = f.with_defaults({"intermediate_size": f.size("moe_intermediate_size", default=512)})
    return _delta_rule(f) | qwen_experts(f, inner=512, experts=256, per_token=8, shared=512)


def _blocks(f: Fields) -> list[str]:
    """The kind of each layer, from a list of names or else from a pattern of one letter a layer."""
    f.ignore("layers_block_type", "hybrid_override_pattern")
    name, kind = ("layers_block_type", list) if f.config.get("layers_block_type") is not None else ("hybrid_override_pattern", str)
    pattern: Any = f.config.get(name)
    if pattern is None:
        raise f.missing("hybrid_override_pattern", instead="layers_block_type")
    if not isinstance(pattern, kind) or not pattern:
        raise f.wrong(name, "one entry for each layer")
    refuse_other_kinds(f, name, pattern, BLOCKS)
    return [BLOCKS[entry] for entry in pattern]


def _nemotron_mamba(f: Fields) -> Kwargs:
    """The sizes of Mamba-2 layers in the spelling of Nemotron-H."""
    f.ignore("mamba_hidden_act", "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "mamba_chunk_size", "use_mamba_kernels")
    f.ignore("expand")  # heads and their width are given
    for name in ("use_bias", "mamba_proj_bias"):
        if f.flag(name, False):
            raise f.refuse(name, "Mamba projections with biases")
    if not f.flag("use_conv_bias", True):
        raise f.refuse("use_conv_bias", "a convolution without bias")
    if f.config.get("sliding_window"):
        raise f.refuse("sliding_window", "a sliding window in a model with state-space layers")
    return {
        "mamba_num_heads": f.size("mamba_num_heads", default=128),
        "mamba_head_dim": f.size("mamba_head_dim", default=64),
        "ssm_state_size": f.size("ssm_state_size", default=128),
        "mamba_n_groups": f.size("n_groups", "mamba_n_groups", default=8),
        "conv_kernel": f.size("conv_kernel", "mamba_d_conv", default=4),
    }


def _block_experts(f: Fields, blocks: list[str], bias: bool) -> Kwargs:
    """Experts on the residual stream or on a latent, and a router with a correction for each expert."""
    f.ignore("moe_shared_expert_overlap", "n_shared_experts", "moe_shared_expert_intermediate_size", "moe_latent_size")
    if "moe" not in blocks:
        f.ignore("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
        return {}
    if f.count("n_shared_experts", default=1) != 1:
        raise f.refuse("n_shared_experts", "Nemotron-H with other than one shared expert")
    return (
        routed(f, "n_routed_experts", f.size("moe_intermediate_size"))
        | expert_groups(f)
        | {
            "shared_expert_intermediate_size": f.size("moe_shared_expert_intermediate_size"),
            "router_bias": True,
            "expert_bias": bias,
            "mlp_bias": bias,
            "moe_latent_size": f.count("moe_latent_size"),
        }
    )


def _predicting_layers(f: Fields) -> int:
    """Layers that predict further tokens; attention with experts after it is one layer."""
    f.ignore("mtp_layers_block_type", "mtp_hybrid_override_pattern")
    layers = f.count("num_nextn_predict_layers")
    if layers:
        for name in ("mtp_layers_block_type", "mtp_hybrid_override_pattern"):
            if f.config.get(name) not in (None, "*E", ["attention", "moe"], ["full_attention", "moe"]):
                raise f.refuse(name, "multi-token prediction by blocks other than attention and experts")
    return layers


def _delta_rule(f: Fields) -> Kwargs:
    """Layers of the gated delta rule, and between them attention with a gate on its output."""
    f.ignore("mamba_ssm_dtype")
    for name in ("attention_bias", "use_sliding_window", "mtp_use_dedicated_embeddings"):
        if f.flag(name, False):
            raise f.refuse(name, f"{name} in a model with a gated delta rule")
    return llama_fields(f, tie=False, head_dim=256) | {
        "qk_norm": True,
        "attention_output_gate": f.flag("attn_output_gate", True),
        "linear_attention_layers": _linear_layers(f),
        "linear_num_key_heads": f.size("linear_num_key_heads", default=16),
        "linear_num_value_heads": f.size("linear_num_value_heads", default=32),
        "linear_key_head_dim": f.size("linear_key_head_dim", default=128),
        "linear_value_head_dim": f.size("linear_value_head_dim", default=128),
        "linear_conv_kernel_dim": f.size("linear_conv_kernel_dim", default=4),
        "num_nextn_predict_layers": f.count("mtp_num_hidden_layers"),
    }


def _linear_layers(f: Fields) -> int:
    """Layers without attention: counted in ``layer_types`` where the file lists them, else all but every n-th."""
    layers, every = f.size("num_hidden_layers"), f.size("full_attention_interval", default=4)
    listed = layer_kinds(f, "layer_types", ("linear_attention", "full_attention"))
    return listed.count("linear_attention") if listed else layers - layers // every


def _granite_mamba(f: Fields, layers: list[dict[str, Any]]) -> Kwargs:
    """The sizes of Mamba-2 layers in the spelling of Bamba and Granite, if there are such layers."""
    if f.flag("mamba_proj_bias", False):
        raise f.refuse("mamba_proj_bias", "Mamba projections with biases")
    if not f.flag("mamba_conv_bias", True):
        raise f.refuse("mamba_conv_bias", "a convolution without bias")
    f.ignore("mamba_chunk_size", "mamba_expand")
    heads, inner = f.size("mamba_n_heads", default=128), f.size("mamba_expand", default=2) * f.size("hidden_size")
    width = inner // heads if f.config.get("mamba_d_head") in (None, "auto") else f.size("mamba_d_head")
    f.ignore("mamba_d_head")
    sizes = {
        "mamba_num_heads": heads,
        "mamba_head_dim": width,
        "ssm_state_size": f.size("mamba_d_state", default=256),
        "mamba_n_groups": f.size("mamba_n_groups", default=1),
        "conv_kernel": f.size("mamba_d_conv", default=4),
    }
    return sizes if any(layer.get("mixer") == "mamba" for layer in layers) else {}


def granite_hybrid(f: Fields) -> Kwargs:
    """Granite 4: each layer is Mamba-2 or attention, followed by an MLP or experts."""
    layers, shared = f.size("num_hidden_layers"), f.count("shared_intermediate_size", default=1024)
    listed = layer_kinds(f, "layer_types", MIXERS) or layer_kinds(f, "layers_block_type", MIXERS) or ["mamba"] * layers
    f.ignore("layers_block_type", "layer_types")
    experts: Kwargs = {}
    if f.count("num_local_experts", default=8):
        experts = routed(f, "num_local_experts", f.size("intermediate_size"), experts=8, per_token=2)
        experts["shared_expert_intermediate_size"] = shared
    else:
        f.ignore("num_experts_per_tok")
        f = f.with_values({"intermediate_size": shared})
    layer_sizes = [_mixer(kind) | ({"mlp": "routed"} if experts else {}) for kind in listed]
    position = {} if f.text("position_embedding_type", default="rope") == "rope" else {"position_embedding": "none"}
    return (
        llama_fields(f, tie=False)
        | attention_bias(f)
        | experts
        | position
        | _granite_mamba(f, layer_sizes)
        | {"layer_groups": group_layers(layer_sizes)}
    )


def _mixer(kind: str) -> dict[str, Any]:
    return {"mixer": "mamba"} if kind in ("mamba", "linear_attention") else {}


def bamba(f: Fields) -> Kwargs:
    layers = f.size("num_hidden_layers")
    f.ignore("attn_layer_indices", "layers_block_type")
    attending = f.config.get("attn_layer_indices") or []
    if not isinstance(attending, list) or any(item not in range(layers) for item in attending):
        raise f.wrong("attn_layer_indices", f"a list of layers below {layers}")
    listed = layer_kinds(f, "layer_types", MIXERS) or ["attention" if i in attending else "mamba" for i in range(layers)]
    layer_sizes = [_mixer(kind) for kind in listed]
    fields = llama_fields(f, tie=False) | attention_bias(f) | {"mlp_bias": f.flag("mlp_bias", False)}
    return fields | _granite_mamba(f, layer_sizes) | {"layer_groups": group_layers(layer_sizes)}


def falcon_h1(f: Fields) -> Kwargs:
    """Falcon-H1: in each layer attention and Mamba-2 read one norm, an MLP follows; a Model counts two layers."""
    layers = f.size("num_hidden_layers")
    for name in ("projectors_bias", "mamba_proj_bias", "mlp_bias"):
        if f.flag(name, False):
            raise f.refuse(name, "Falcon-H1 with biases in its projections")
    if not f.flag("mamba_conv_bias", True):
        raise f.refuse("mamba_conv_bias", "a convolution without bias")
    f.ignore("mamba_chunk_size", "mamba_expand", "mamba_d_head", "mamba_norm_before_gate", "mamba_use_mlp", "mlp_expansion_factor")
    f.ignore("attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier", "ssm_multipliers")
    f.ignore("mlp_multipliers", "lm_head_multiplier")
    fields = llama_fields(f, tie=False)
    heads, hidden = f.size("mamba_n_heads", default=128), fields["hidden_size"]
    inner = f.size("mamba_d_ssm", default=f.size("mamba_expand", default=2) * hidden)
    normed = f.flag("mamba_rms_norm", False)
    f.left_out.append(f"num_hidden_layers {layers} (each counts as two: attention, then Mamba-2 with the MLP)")
    return (
        fields
        | attention_bias(f)
        | {
            "num_hidden_layers": 2 * layers,
            "mamba_num_heads": heads,
            "mamba_head_dim": inner // heads,
            "ssm_state_size": f.size("mamba_d_state", default=256),
            "mamba_n_groups": f.size("mamba_n_groups", default=1),
            "conv_kernel": f.size("mamba_d_conv", default=4),
            "other_parameters": -layers * (hidden + (0 if normed else inner)),  # one norm for both mixers, none behind the scan
            "layer_groups": group_layers([{"mlp": "none"}] * layers + [{"mixer": "mamba"}] * layers),
        }
    )


def olmo_hybrid(f: Fields) -> Kwargs:
    """OLMo Hybrid: the gated delta rule in three layers of four, attention with norms of whole queries and keys in the fourth."""
    f.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor", "linear_allow_neg_eigval")
    fields = llama_fields(f, tie=False)
    heads, hidden = fields["num_attention_heads"], fields["hidden_size"]
    return (
        fields
        | attention_bias(f)
        | _delta_sizes(f, key_heads=heads, value_heads=heads, key_width=int(0.75 * hidden / heads), value_width=int(1.5 * hidden / heads))
        | {"qk_norm": True, "qk_norm_heads": True, "linear_attention_layers": _linear_layers(f)}
    )


def lara_mini(f: Fields) -> Kwargs:
    """Lara 4 Mini: the gated delta rule, windows and full attention in turn, experts and a shared expert in every layer."""
    f = f.with_defaults({"intermediate_size": f.size("moe_intermediate_size", default=512)})
    mixers: dict[str, dict[str, Any]] = {
        "linear_attention": {"mixer": "linear"},
        "sliding_attention": {"sliding_window": f.size("sliding_window", default=512)},
    }
    listed = layer_kinds(f, "layer_types", (*mixers, "full_attention"))
    if not listed:
        raise f.missing("layer_types")
    return (
        llama_fields(f, tie=True, head_dim=128)
        | attention_bias(f)
        | _delta_sizes(f, key_heads=8, value_heads=16, key_width=128, value_width=128)
        | routed(f, "num_experts", f.size("moe_intermediate_size", default=512), experts=128, per_token=4)
        | {"qk_norm": True, "shared_expert_intermediate_size": f.size("shared_expert_intermediate_size", default=512)}
        | {"layer_groups": group_layers([mixers.get(kind, {}) | {"mlp": "routed"} for kind in listed])}
    )


def _delta_sizes(f: Fields, key_heads: int, value_heads: int, key_width: int, value_width: int) -> Kwargs:
    """The sizes of a gated delta rule; the numbers are the type's defaults."""
    return {
        "linear_num_key_heads": f.size("linear_num_key_heads", default=key_heads),
        "linear_num_value_heads": f.size("linear_num_value_heads", default=value_heads),
        "linear_key_head_dim": f.size("linear_key_head_dim", default=key_width),
        "linear_value_head_dim": f.size("linear_value_head_dim", default=value_width),
        "linear_conv_kernel_dim": f.size("linear_conv_kernel_dim", default=4),
    }


def lfm2(f: Fields) -> Kwargs:
    """LFM2: gated short convolutions and attention with norms of queries and keys; the width of the MLP may be two thirds of the field."""
    width = f.size("block_ff_dim", "intermediate_size")
    f.ignore("full_attn_idxs", "block_multiple_of", "block_ffn_dim_multiplier", "block_norm_eps", "block_use_swiglu", "block_dim")
    f.ignore("block_use_xavier_init", "block_mlp_init_scale", "block_out_init_scale", "conv_dim", "conv_dim_out", "conv_use_xavier_init")
    f.ignore("block_auto_adjust_ff_dim", "conv_L_cache", "num_heads", "use_pos_enc", "theta")
    if f.flag("block_auto_adjust_ff_dim", True):
        multiple = f.size("block_multiple_of", default=256)
        scaled = int(f.number("block_ffn_dim_multiplier") * int(2 * width / 3)) if _given(f, "block_ffn_dim_multiplier") else 2 * width // 3
        width = -(-scaled // multiple) * multiple
    f = f.with_values({"intermediate_size": width})
    return _short_convolutions(f, _lfm_mixers(f, "full_attn_idxs"))


def lfm3(f: Fields) -> Kwargs:
    """LFM3: LFM2 with windows, a gate of one number a head, and norms before and behind both blocks."""
    return _short_convolutions(f, _lfm_mixers(f, "")) | {
        "attention_head_gate": f.flag("use_attention_gate", True),
        "norms_per_layer": 4 if f.flag("use_sandwich_norm", True) else 2,
    }


def lfm2_moe(f: Fields) -> Kwargs:
    """LFM2 with experts behind its first layers."""
    mixers = _lfm_mixers(f, "full_attn_idxs")
    dense = f.count("num_dense_layers", default=2)
    sizes = [mixer | ({} if i < dense else {"mlp": "routed"}) for i, mixer in enumerate(mixers)]
    return _short_convolutions(f, sizes) | routed(f, "num_experts", f.size("moe_intermediate_size"), experts=32, per_token=4)


def _given(f: Fields, name: str) -> bool:
    return f.config.get(name) is not None


def _lfm_mixers(f: Fields, numbered: str) -> list[dict[str, Any]]:
    """The mixer of each layer, from ``layer_types`` or from the numbers of the layers that attend."""
    layers = f.size("num_hidden_layers")
    listed = layer_kinds(f, "layer_types", ("conv", "full_attention", "sliding_attention"))
    f.ignore(numbered, "sliding_window")
    if not listed:
        attending: Any = f.config.get(numbered)
        if not isinstance(attending, list) or any(item not in range(layers) for item in attending):
            raise f.missing("layer_types")
        listed = ["full_attention" if i in attending else "conv" for i in range(layers)]
    window = {"sliding_window": f.size("sliding_window")} if "sliding_attention" in listed else {}
    mixers: dict[str, dict[str, Any]] = {"conv": {"mixer": "conv"}, "sliding_attention": window}
    return [mixers.get(kind, {}) for kind in listed]


def _short_convolutions(f: Fields, sizes: list[dict[str, Any]]) -> Kwargs:
    """What LFM2 and LFM3 have in common."""
    if f.flag("conv_bias", False):
        raise f.refuse("conv_bias", "a short convolution with biases")
    f = f.with_defaults({"tie_word_embeddings": f.config.get("tie_embedding", True)})
    f.ignore("tie_embedding", "use_expert_bias", "routed_scaling_factor", "num_dense_layers")
    return llama_fields(f, tie=True) | {
        "qk_norm": True,
        "conv_kernel": f.size("conv_L_cache", default=3),
        "layer_groups": group_layers(sizes),
    }
