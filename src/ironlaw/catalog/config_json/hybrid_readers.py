"""Readers of models whose layers do not all attend: Mamba-2 (Nemotron-H) and the gated delta rule (Qwen3-Next, Qwen3.5).

A Model counts the layers of each kind; the order in which a file lists them is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ironlaw.catalog.config_json.fields import Fields, shown
from ironlaw.catalog.config_json.moe_readers import groups, qwen_placement, routed
from ironlaw.catalog.config_json.shared import Kwargs, act, kinds_listed, rotary
from ironlaw.errors import InputError, UnsupportedError

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


def _nemotron_h(f: Fields) -> Kwargs:
    blocks = _blocks(f, "layers_block_type", "hybrid_override_pattern")
    if f.count("num_hidden_layers", default=len(blocks)) != len(blocks):
        raise InputError(f"{f.where}: num_hidden_layers is {f.size('num_hidden_layers')}, the pattern of layers has {len(blocks)}")
    head_dim = f.size("head_dim", "attention_head_dim", default=128)
    f = f.with_defaults({"head_dim": head_dim, "num_hidden_layers": len(blocks)})
    bias, mlp_bias = f.flag("attention_bias", False), f.flag("mlp_bias", False)
    dense: Kwargs = {"mlp_bias": mlp_bias} if "mlp" in blocks else {}
    return (
        rotary(f, tie=False)
        | _mamba(f)
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
            "hidden_act": act(f.text("mlp_hidden_act", default="relu2")),
            "position_embedding": "none",
            "query_key_value_bias": bias,
            "attention_output_bias": bias,
            "dropout": f.any_dropout("attention_dropout", "hidden_dropout"),
            "num_nextn_predict_layers": _further_layers(f),
        }
    )


def _qwen3_next(f: Fields) -> Kwargs:
    return _delta_rule(f) | _qwen_experts(f, experts=512, per_token=10)


def _qwen3_5(f: Fields) -> Kwargs:
    f.weightless("mlp_only_layers")  # there is nothing but dense layers
    return _delta_rule(f)


def _qwen3_5_moe(f: Fields) -> Kwargs:
    f = f.with_defaults({"intermediate_size": f.size("moe_intermediate_size", default=512)})
    return _delta_rule(f) | _qwen_experts(f, experts=256, per_token=8)


HYBRID_READERS: dict[str, Callable[[Fields], Kwargs]] = {
    "nemotron_h": _nemotron_h,
    "qwen3_5_moe_text": _qwen3_5_moe,
    "qwen3_5_text": _qwen3_5,
    "qwen3_next": _qwen3_next,
}


def _blocks(f: Fields, listed: str, pattern: str) -> list[str]:
    """What each layer is, from a list of names or, where there is none, a text of one letter a layer."""
    f.weightless(listed, pattern)
    name = listed if f.config.get(listed) is not None else pattern
    given: Any = f.config.get(name)
    if given is None:
        raise InputError(f"{f.where}: required field '{f.prefix}{pattern}' (or '{listed}') is missing")
    if not isinstance(given, list if name == listed else str) or not given:
        raise InputError(f"{f.where}: field '{f.prefix}{name}' is {shown(given)}, one entry a layer is expected")
    for entry in given:
        if not isinstance(entry, str) or entry not in BLOCKS:
            raise UnsupportedError(f"{f.where}: field '{f.prefix}{name}' holds {shown(entry)}, which is not understood")
    return [BLOCKS[entry] for entry in given]


def _mamba(f: Fields) -> Kwargs:
    f.weightless("mamba_hidden_act", "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "mamba_chunk_size", "use_mamba_kernels")
    for name in ("use_bias", "mamba_proj_bias"):
        if f.flag(name, False):
            raise f.refuse(name, "Mamba projections with biases")
    if not f.flag("use_conv_bias", True):
        raise f.refuse("use_conv_bias", "a convolution without bias")
    if f.config.get("sliding_window"):
        raise f.refuse("sliding_window", "a window beside state-space layers")
    return {
        "mamba_num_heads": f.size("mamba_num_heads", default=128),
        "mamba_head_dim": f.size("mamba_head_dim", default=64),
        "ssm_state_size": f.size("ssm_state_size", default=128),
        "mamba_n_groups": f.size("n_groups", "mamba_n_groups", default=8),
        "conv_kernel": f.size("conv_kernel", "mamba_d_conv", default=4),
    }


def _block_experts(f: Fields, blocks: list[str], bias: bool) -> Kwargs:
    """Experts of the residual stream's width or of a latent's; a router with a correction for each."""
    f.weightless("moe_shared_expert_overlap", "n_shared_experts", "moe_shared_expert_intermediate_size", "moe_latent_size")
    if "moe" not in blocks:
        f.weightless("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
        return {}
    if f.count("n_shared_experts", default=1) != 1:
        raise f.refuse("n_shared_experts", "Nemotron-H has one shared expert a layer, of moe_shared_expert_intermediate_size")
    return (
        routed(f, "n_routed_experts", f.size("moe_intermediate_size"))
        | groups(f)
        | {
            "shared_expert_intermediate_size": f.size("moe_shared_expert_intermediate_size"),
            "router_bias": True,
            "expert_bias": bias,
            "mlp_bias": bias,
            "moe_latent_size": f.count("moe_latent_size"),
        }
    )


def _further_layers(f: Fields) -> int:
    """Layers for further tokens: attention and experts behind it, which together are one."""
    f.weightless("mtp_layers_block_type", "mtp_hybrid_override_pattern")
    further = f.count("num_nextn_predict_layers")
    if further:
        for name in ("mtp_layers_block_type", "mtp_hybrid_override_pattern"):
            if f.config.get(name) not in (None, "*E", ["attention", "moe"], ["full_attention", "moe"]):
                raise f.refuse(name, "a further token from other blocks than attention and experts")
    return further


def _delta_rule(f: Fields) -> Kwargs:
    """Layers of the gated delta rule, and between them layers of attention whose output passes a gate."""
    f.weightless("mamba_ssm_dtype")
    for name in ("attention_bias", "use_sliding_window", "mtp_use_dedicated_embeddings"):
        if f.flag(name, False):
            raise f.refuse(name, "not in a layer whose attention has a gate" if name == "attention_bias" else "it is not modelled")
    return rotary(f, tie=False, head_dim=256) | {
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
    """Layers that do not attend: from ``layer_types`` where the file lists them, else all but every so many."""
    layers, every = f.size("num_hidden_layers"), f.size("full_attention_interval", default=4)
    listed = kinds_listed(f, "layer_types", ("linear_attention", "full_attention"))
    return listed.count("linear_attention") if listed else layers - layers // every


def _qwen_experts(f: Fields, experts: int, per_token: int) -> Kwargs:
    inner = f.size("moe_intermediate_size", default=512)
    return (
        routed(f, "num_experts", inner, experts=experts, per_token=per_token)
        | qwen_placement(f)
        | {"shared_expert_intermediate_size": f.size("shared_expert_intermediate_size", default=512), "shared_expert_gate": True}
    )
