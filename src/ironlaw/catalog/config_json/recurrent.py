"""Readers of models whose layers mostly scan a state: Kimi Linear and K3, MiniMax-01, Mamba, Falcon Mamba, Jamba."""

from __future__ import annotations

import math
from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import (
    Kwargs,
    activation,
    attention_bias,
    dense_first,
    expert_groups,
    group_layers,
    latent_attention,
    layer_kinds,
    llama_fields,
    routed,
    with_llama_names,
)

CHANNELS_OF_A_HEAD = 64  # Mamba-1 has no heads; ranks split its channels, here counted in heads of this many


def kimi_linear(f: Fields) -> Kwargs:
    """Kimi Linear and Kimi K3: Kimi Delta Attention, latent attention in every fourth layer, experts on the stream or on a latent."""
    f = with_llama_names(f, num_experts_per_tok="num_experts_per_token")
    f.ignore("head_dim", "mla_use_nope", "activation_situ_beta", "activation_situ_linear_beta", "use_grouped_topk", "v_head_dim")
    f.ignore("num_expert_group", "topk_group", "moe_renormalize", "model_max_length")
    layers = f.size("num_hidden_layers")
    f = f.with_defaults({"max_position_embeddings": f.count("model_max_length", default=1048576)})
    fields, linear = latent_attention(f), f.inner("linear_attn_config")
    f.ignore("linear_attn_config")
    scanning = _numbered(linear, "kda_layers", layers)
    attending = _numbered(linear, "full_attn_layers", layers)
    if scanning | attending != set(range(1, layers + 1)) or scanning & attending:
        raise linear.contradict("kda_layers", f"with full_attn_layers it must name each of {layers} layers once")
    linear.ignore("gate_lower_bound")
    heads, width = linear.size("num_heads"), linear.size("head_dim")
    if heads != fields["num_attention_heads"]:
        raise linear.contradict("num_heads", f"latent attention has {fields['num_attention_heads']} heads")
    dense, step = dense_first(f)["first_k_dense_replace"], f.size("moe_layer_freq", default=1)
    if step != 1:
        raise f.refuse("moe_layer_freq", "dense layers between routed ones")
    sizes = [({"mixer": "kda"} if i + 1 in scanning else {}) | ({"mlp": "routed"} if i >= dense else {}) for i in range(layers)]
    inner, latent = f.size("moe_intermediate_size"), f.count("routed_expert_hidden_size")
    return (
        fields
        | routed(f, "num_experts", inner)
        | expert_groups(f.with_defaults({"n_group": f.count("num_expert_group", default=1)}))
        | {
            "hidden_act": {"situ": "silu"}.get(fields["hidden_act"], fields["hidden_act"]),
            "position_embedding": "none" if f.flag("mla_use_nope", False) else "rope",
            "attention_output_gate": f.flag("mla_use_output_gate", False),
            "linear_num_key_heads": heads,
            "linear_num_value_heads": heads,
            "linear_key_head_dim": width,
            "linear_value_head_dim": width,
            "linear_conv_kernel_dim": linear.size("short_conv_kernel_size", default=4),
            "linear_gate_rank": 0 if linear.flag("use_full_rank_gate", False) else width,
            "shared_expert_intermediate_size": f.count("num_shared_experts", default=1) * inner,
            "router_bias": True,
            "moe_latent_size": latent,
            "moe_latent_norm": f.flag("latent_moe_use_norm", False),
            "attn_res_block_size": f.count("attn_res_block_size"),
            "num_nextn_predict_layers": f.count("num_nextn_predict_layers"),
            "layer_groups": group_layers(sizes),
        }
    )


def _numbered(f: Fields, name: str, layers: int) -> set[int]:
    """A list of layers, counted from 1."""
    listed: Any = f.config.get(name)
    f.ignore(name)
    if not isinstance(listed, list) or any(not isinstance(i, int) or not 1 <= i <= layers for i in listed):
        raise f.wrong(name, f"a list of layers from 1 to {layers}")
    return set(listed)


def minimax_01(f: Fields) -> Kwargs:
    """MiniMax-Text-01 and M1: lightning attention, softmax attention in every eighth layer, experts in every layer."""
    layers = f.size("num_hidden_layers")
    f.ignore("attn_type_list", "layer_types", "shared_moe_mode", "rotary_dim", "postnorm", "block_size")
    f.ignore(*(f"layernorm_{kind}_attention_{part}" for kind in ("full", "linear") for part in ("alpha", "beta")))
    f.ignore("layernorm_mlp_alpha", "layernorm_mlp_beta")
    f.ignore(*(f"{kind}_attn_{part}_factor" for kind in ("full", "linear") for part in ("alpha", "beta")))
    f.ignore("mlp_alpha_factor", "mlp_beta_factor")
    if any(f.config.get("shared_intermediate_size") or [] if isinstance(f.config.get("shared_intermediate_size"), list)
           else [f.config.get("shared_intermediate_size")]):  # fmt: skip
        raise f.refuse("shared_intermediate_size", "MiniMax-01 with a shared expert")
    f.ignore("shared_intermediate_size")
    listed: Any = f.config.get("attn_type_list")
    if listed is None:
        listed = [int(kind == "full_attention") for kind in layer_kinds(f, "layer_types", ("linear_attention", "full_attention"))]
    if not isinstance(listed, list) or len(listed) != layers or any(item not in (0, 1) for item in listed):
        raise f.wrong("attn_type_list", f"a list of {layers} zeros and ones")
    fields = llama_fields(f, tie=False, head_dim=128)
    heads, width = fields["num_attention_heads"], fields["head_dim"]
    sizes = [({} if attends else {"mixer": "lightning"}) | {"mlp": "routed"} for attends in listed]
    return (
        fields
        | routed(f, "num_local_experts", f.size("intermediate_size"), experts=32, per_token=2)
        | {
            "linear_num_key_heads": heads,
            "linear_num_value_heads": heads,
            "linear_key_head_dim": width,
            "linear_value_head_dim": width,
            "layer_groups": group_layers(sizes),
        }
    )


def mamba_1(f: Fields) -> Kwargs:
    """Mamba and Falcon Mamba: every layer is one block with the selective scan."""
    f = with_llama_names(f, hidden_size="d_model", num_hidden_layers="n_layer")
    f.ignore(
        "ssm_cfg", "rms_norm", "fused_add_norm", "pad_vocab_size_multiple", "time_step_init_scheme", "time_step_floor", "time_step_max"
    )
    f.ignore("time_step_min", "time_step_scale", "mixer_rms_eps", "use_mambapy", "use_falcon_mambapy", "use_cache", "expand")
    f.ignore("intermediate_size")
    if f.flag("use_bias", False):
        raise f.refuse("use_bias", "Mamba projections with biases")
    if not f.flag("use_conv_bias", True):
        raise f.refuse("use_conv_bias", "a convolution without bias")
    hidden, layers = f.size("hidden_size"), f.size("num_hidden_layers")
    inner = f.size("intermediate_size", default=f.size("expand", default=2) * hidden)
    stated: Any = f.config.get("time_step_rank")
    f.ignore("time_step_rank")
    rank = math.ceil(hidden / 16) if stated in (None, "auto") else f.size("time_step_rank")
    heads = inner // CHANNELS_OF_A_HEAD if inner % CHANNELS_OF_A_HEAD == 0 else 1
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": inner // heads,
        "intermediate_size": inner,
        "vocab_size": _padded(f.size("vocab_size"), f.config.get("pad_vocab_size_multiple")),
        "max_position_embeddings": 2048,
        "tie_word_embeddings": f.flag("tie_word_embeddings", True),
        "gated_mlp": False,
        "hidden_act": activation(f.text("hidden_act", default="silu")),
        "position_embedding": "none",
        "ssm_state_size": f.size("state_size", default=16),
        "conv_kernel": f.size("conv_kernel", default=4),
        "mamba_intermediate_size": inner,
        "time_step_rank": rank,
        "layer_groups": group_layers([{"mixer": "mamba_1", "mlp": "none"}] * layers),
    }


def _padded(rows: int, multiple: Any) -> int:
    """Rows of a table, to the next multiple that the file asks for."""
    return -(-rows // multiple) * multiple if isinstance(multiple, int) and not isinstance(multiple, bool) and multiple > 1 else rows


def jamba(f: Fields) -> Kwargs:
    """Jamba: Mamba-1, attention in one layer of a period, experts in every second layer."""
    layers = f.size("num_hidden_layers")
    f.ignore("layers_block_type", "num_logits_to_keep", "use_mamba_kernels", "mamba_proj_bias")
    if f.flag("mamba_proj_bias", False):
        raise f.refuse("mamba_proj_bias", "Mamba projections with biases")
    if not f.flag("mamba_conv_bias", True):
        raise f.refuse("mamba_conv_bias", "a convolution without bias")
    attends, first = f.size("attn_layer_period", default=8), f.count("attn_layer_offset", default=4)
    every, offset = f.size("expert_layer_period", default=2), f.count("expert_layer_offset", default=1)
    fields, experts = llama_fields(f, tie=False), f.size("num_experts", default=16)
    mixture: Kwargs = {}
    if experts > 1:
        mixture = routed(f, "num_experts", fields["intermediate_size"], experts=16, per_token=2)
    else:
        f.ignore("num_experts_per_tok")
    rank = f.config.get("mamba_dt_rank")
    f.ignore("mamba_dt_rank")
    sizes = [
        ({} if i % attends == first else {"mixer": "mamba_1"}) | ({"mlp": "routed"} if mixture and i % every == offset else {})
        for i in range(layers)
    ]
    hidden = fields["hidden_size"]
    return (
        fields
        | attention_bias(f)
        | mixture
        | {
            "position_embedding": "none",
            "ssm_state_size": f.size("mamba_d_state", default=16),
            "conv_kernel": f.size("mamba_d_conv", default=4),
            "mamba_intermediate_size": f.size("mamba_expand", default=2) * hidden,
            "time_step_rank": math.ceil(hidden / 16) if rank in (None, "auto") else f.size("mamba_dt_rank"),
            "mamba_norms": True,
            "layer_groups": group_layers(sizes),
        }
    )
