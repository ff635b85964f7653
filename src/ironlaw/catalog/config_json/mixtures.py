"""Readers of mixtures of experts and of latent attention: one small function for each architecture.

Experts of unequal size, or in layers that follow no rule, are refused. An absent field takes the default of ``transformers``.
"""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.config_json import llama
from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import (
    Kwargs,
    attention_bias,
    dense_first,
    expert_groups,
    latent_attention,
    layer_kinds,
    llama_fields,
    local_window,
    multi_head,
    qwen_experts,
    qwen_placement,
    qwen_window,
    routed,
    shared_experts,
    window_except_every,
)


def mixtral(f: Fields) -> Kwargs:
    inner = f.size("intermediate_size")
    return llama.mistral(f) | routed(f, "num_local_experts", inner, experts=8, per_token=2)


def qwen2_moe(f: Fields) -> Kwargs:
    return (
        llama_fields(f, tie=False)
        | {"query_key_value_bias": f.flag("qkv_bias", True)}
        | qwen_window(f)
        | qwen_experts(f, inner=1408, experts=60, per_token=4, shared=5632)
    )


def qwen3_moe(f: Fields) -> Kwargs:
    """Qwen3 with experts: norms of queries and keys, no shared expert."""
    if f.count("shared_expert_intermediate_size"):
        raise f.refuse("shared_expert_intermediate_size", "Qwen3 with a shared expert")
    if not f.flag("use_qk_norm", True):
        raise f.refuse("use_qk_norm", "Qwen3 without norms of queries and keys")
    return (
        llama_fields(f, tie=False)
        | attention_bias(f)
        | {"qk_norm": True}
        | qwen_window(f)
        | routed(f, "num_experts", f.size("moe_intermediate_size", default=768), experts=128, per_token=8)
        | qwen_placement(f)
    )


def deepseek_v2(f: Fields) -> Kwargs:
    return _deepseek(f, topk_method="greedy")


def deepseek_v3(f: Fields) -> Kwargs:
    return _deepseek(f, topk_method="noaux_tc")


def deepseek_v32(f: Fields) -> Kwargs:
    """DeepSeek-V3.2: latent attention to the keys that an indexer picks."""
    layer_kinds(f, "layer_types", ("deepseek_sparse_attention", "indexed_attention"))
    indexers = layer_kinds(f, "indexer_types", ("full", "shared"))
    f.ignore("index_topk_freq", "index_topk_pattern", "index_skip_topk_offset", "index_share_for_mtp_iteration")
    for name in () if indexers else ("index_topk_freq", "index_topk_pattern"):
        if f.config.get(name) not in (None, 1):
            raise f.refuse(name, "layers that share an indexer, without indexer_types")
    fields = deepseek_v3(f)
    if not fields["q_lora_rank"]:
        raise f.refuse("q_lora_rank", "an indexer without compressed queries")
    sizes = {name: f.size(name) for name in ("index_n_heads", "index_head_dim", "index_topk")}
    return fields | sizes | {"index_layers": indexers.count("full") if "shared" in indexers else 0}


def _deepseek(f: Fields, topk_method: str) -> Kwargs:
    experts: Kwargs = {}
    if f.count("n_routed_experts"):
        experts = routed(f, "n_routed_experts", f.size("moe_intermediate_size")) | dense_first(f) | shared_experts(f)
        method = f.text("topk_method", default=topk_method)
        experts |= {"router_bias": method == "noaux_tc"} | ({} if method == "greedy" else expert_groups(f))
    return latent_attention(f) | experts | {"num_nextn_predict_layers": f.count("num_nextn_predict_layers")}


def glm4_moe(f: Fields) -> Kwargs:
    """Grouped attention, and experts in DeepSeek's fields."""
    return (
        llama_fields(f, tie=False)
        | {"query_key_value_bias": f.flag("attention_bias", False), "qk_norm": f.flag("use_qk_norm", False)}
        | routed(f, "n_routed_experts", f.size("moe_intermediate_size"))
        | dense_first(f)
        | shared_experts(f)
        | expert_groups(f)
        | {"router_bias": True, "num_nextn_predict_layers": f.count("num_nextn_predict_layers")}
    )


def minimax_m2(f: Fields) -> Kwargs:
    """MiniMax M2: experts in every layer, norms of queries and keys over the layer or over each head."""
    if f.count("shared_intermediate_size"):
        raise f.refuse("shared_intermediate_size", "MiniMax M2 with a shared expert")
    norms = f.flag("use_qk_norm", True)
    per_head = norms and f.text("qk_norm_type", default="per_layer") == "per_layer"
    predicting = f.count("num_mtp_modules") * f.count("mtp_transformer_layers", default=1)
    inner = f.size("intermediate_size")
    return (
        llama_fields(f, tie=False, head_dim=128)
        | {"qk_norm": norms, "qk_norm_heads": per_head, "num_nextn_predict_layers": predicting if f.flag("use_mtp", False) else 0}
        | routed(f, "num_local_experts", inner)
        | {"router_bias": f.flag("use_routing_bias", False)}
    )


def gpt_oss(f: Fields) -> Kwargs:
    layers, inner = f.size("num_hidden_layers"), f.size("intermediate_size")
    f.ignore("experts_per_token")  # the older spelling, beside num_experts_per_tok
    return (
        llama_fields(f, tie=False, head_dim=64)
        | {"query_key_value_bias": f.flag("attention_bias", True), "attention_output_bias": f.flag("attention_bias", True)}
        | local_window(f, layers - layers // 2)
        | routed(f, "num_local_experts", inner, experts=128, per_token=4)
        | {"router_bias": True, "expert_bias": True, "attention_sinks": True}
    )


def llama4(f: Fields) -> Kwargs:
    """Llama 4: a shared expert, experts in every n-th layer, attention inside chunks."""
    inner, step = f.size("intermediate_size"), f.size("interleave_moe_layer_step", default=1)
    f.ignore("use_qk_norm", "moe_layers")  # Llama 4's norms of queries and keys have no weights
    layers = f.size("num_hidden_layers")
    if f.config.get("moe_layers") not in (None, list(range(step - 1, layers, step))):
        raise f.refuse("moe_layers", "experts in layers that follow no rule")
    return (
        llama_fields(f, tie=False, head_dim=128)
        | attention_bias(f)
        | {"intermediate_size": f.size("intermediate_size_mlp", default=16384)}
        | routed(f, "num_local_experts", inner, experts=16, per_token=1)
        | {"moe_layer_freq": step, "shared_expert_intermediate_size": inner}
        | _chunks(f, layers)
    )


def _chunks(f: Fields, layers: int) -> Kwargs:
    """Layers with rotary positions attend inside chunks, the others to everything."""
    f.ignore("no_rope_layers")
    chunk, every = f.count("attention_chunk_size"), f.count("no_rope_layer_interval", default=4)
    listed, rotated = layer_kinds(f, "layer_types", ("chunked_attention", "full_attention")), f.config.get("no_rope_layers")
    if not chunk:
        return {}
    if listed:
        local = listed.count("chunked_attention")
    elif rotated:
        if not isinstance(rotated, list) or len(rotated) != layers:
            raise f.contradict("no_rope_layers", f"a 0 or 1 for each of {layers} layers is expected")
        local = sum(1 for item in rotated if item)
    else:
        local = layers - layers // every if every else layers
    return {"attention_chunk_size": chunk, "sliding_window_layers": local}


def solar_open(f: Fields) -> Kwargs:
    f = f.with_defaults({"intermediate_size": f.config.get("intermediate_size") or f.size("moe_intermediate_size"), "head_dim": 128})
    return glm4_moe(f)


def dots1(f: Fields) -> Kwargs:
    return glm4_moe(f) | attention_bias(f) | {"qk_norm": True} | qwen_window(f)


def _named_experts(f: Fields, experts: int, per_token: int) -> Kwargs:
    """Experts in ``num_experts`` and ``num_shared_experts``, dense layers at the front, a correction for each expert."""
    inner = f.size("moe_intermediate_size")
    shared = f.count("num_shared_experts", "n_shared_experts", default=1)
    return (
        routed(f, "num_experts", inner, experts=experts, per_token=per_token)
        | dense_first(f)
        | {"shared_expert_intermediate_size": shared * f.size("moe_shared_expert_intermediate_size", default=inner)}
        | {"router_bias": True, "num_nextn_predict_layers": f.count("num_nextn_predict_layers")}
    )


def bailing_moe(f: Fields) -> Kwargs:
    """Ling and Ring."""
    bias = f.flag("use_bias", False)
    return (
        llama_fields(f, tie=False)
        | {"query_key_value_bias": bias or f.flag("use_qkv_bias", False), "attention_output_bias": bias}
        | {"qk_norm": f.flag("use_qk_norm", False)}
        | qwen_window(f)
        | _named_experts(f, 64, 6)
        | {"router_bias": f.flag("moe_router_enable_expert_bias", False)}
    )


def exaone_moe(f: Fields) -> Kwargs:
    return llama.exaone4(f) | _named_experts(f, 64, 8)


def hy_v3(f: Fields) -> Kwargs:
    return llama_fields(f, tie=False, head_dim=128) | attention_bias(f) | {"qk_norm": f.flag("qk_norm", True)} | _named_experts(f, 192, 8)


def afmoe(f: Fields) -> Kwargs:
    """Trinity: gated attention, norms before and after both blocks."""
    f = f.with_defaults({"first_k_dense_replace": f.count("num_dense_layers", default=1)})
    return (
        llama_fields(f, tie=False, head_dim=128)
        | attention_bias(f)
        | {"qk_norm": True, "attention_output_gate": True, "norms_per_layer": 4}
        | window_except_every(f, 4, "global_attn_every_n_layers")
        | _named_experts(f, 64, 6)
    )


def ernie_moe(f: Fields) -> Kwargs:
    """ERNIE 4.5 with experts: dense layers only at the front."""
    layers = f.size("num_hidden_layers")
    start, end = f.count("moe_layer_start_index", default=1), f.config.get("moe_layer_end_index")
    f.ignore("moe_layer_end_index")
    if f.size("moe_layer_interval", default=1) != 1:
        raise f.refuse("moe_layer_interval", "dense layers between routed ones")
    if end not in (None, -1, layers - 1):
        raise f.refuse("moe_layer_end_index", "dense layers after the routed ones")
    inner = f.size("moe_intermediate_size")
    return (
        llama.ernie4_5(f)
        | routed(f, "moe_num_experts", inner, per_token=6, per="moe_k")
        | {"first_k_dense_replace": start, "router_bias": f.flag("moe_use_aux_free", True)}
        | {"shared_expert_intermediate_size": f.count("moe_num_shared_experts") * inner}
        | {"num_nextn_predict_layers": f.count("num_nextn_predict_layers")}
    )


def hunyuan_moe(f: Fields) -> Kwargs:
    """Hunyuan with experts: a size may be listed for each layer, and all must be equal."""
    f = f.with_values(
        {name: _equal_in_all_layers(f, name) for name in ("num_experts", "moe_topk", "num_shared_expert", "moe_intermediate_size")}
    )
    inner = f.size("moe_intermediate_size", default=f.size("intermediate_size"))
    for name in ("use_cla", "use_mla"):
        if f.flag(name, False):
            raise f.refuse(name, "Hunyuan with keys and values shared across layers, or with latent attention")
    f.ignore("cla_share_factor", "use_mixed_mlp_moe", "attention_head_dim", "dense_list")
    f.ignore("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")  # used with use_mla alone
    shared = f.count("num_shared_expert", default=1) if f.config.get("use_mixed_mlp_moe", True) else 0
    return (
        llama.hunyuan(f)
        | routed(f, "num_experts", inner, per_token=1, per="moe_topk")
        | {
            "first_k_dense_replace": f.count("moe_layer_num_skipped"),
            "shared_expert_intermediate_size": shared * f.size("intermediate_size"),
        }
    )


def _equal_in_all_layers(f: Fields, name: str) -> Any:
    """A size that is given once, or once for each layer with the same value."""
    value = f.config.get(name)
    if isinstance(value, list):
        if not value or any(item != value[0] for item in value):
            raise f.refuse(name, "layers of different sizes")
        return value[0]
    return value


def olmoe(f: Fields, experts: int = 64, per_token: int = 8) -> Kwargs:
    return llama.olmo2(f) | routed(f, "num_experts", f.size("intermediate_size"), experts, per_token)


def granite_moe(f: Fields) -> Kwargs:
    inner = f.size("intermediate_size")
    return (
        llama.llama(f)
        | routed(f, "num_local_experts", inner, experts=8, per_token=2)
        | {"shared_expert_intermediate_size": f.count("shared_intermediate_size")}
    )


def phimoe(f: Fields) -> Kwargs:
    return (
        llama_fields(f, tie=False)
        | attention_bias(f)
        | {"norm": "layernorm", "output_bias": f.flag("lm_head_bias", False)}
        | routed(f, "num_local_experts", f.size("intermediate_size"), experts=16, per_token=2)
        | local_window(f, f.size("num_hidden_layers"))
    )


def mellum(f: Fields) -> Kwargs:
    f.ignore("sliding_window")  # without layer_types no layer is local
    return (
        llama_fields(f, tie=False, head_dim=128)
        | attention_bias(f)
        | {"qk_norm": True}
        | routed(f, "num_local_experts", f.size("moe_intermediate_size"), experts=64, per_token=8)
        | dense_first(f)
        | local_window(f, 0)
    )


def dbrx(f: Fields) -> Kwargs:
    """DBRX: experts in every layer, layer norms without biases."""
    attention, ffn = f.inner("attn_config"), f.inner("ffn_config")
    attention.ignore("clip_qkv")
    hidden, heads = f.size("d_model"), f.size("n_heads")
    inner, experts = ffn.size("ffn_hidden_size"), ffn.size("moe_num_experts")
    chosen = ffn.size("moe_top_k")
    if chosen > experts:
        raise ffn.contradict("moe_top_k", f"there are {experts} experts")
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


def arctic(f: Fields) -> Kwargs:
    """Each layer has, beside its experts, a dense MLP as wide as the residual stream with a separate norm."""
    if not f.flag("parallel_attn_mlp_res", True) or f.size("moe_layer_frequency", default=2) != 1:
        raise f.refuse("moe_layer_frequency", "Arctic without its dense MLP, or with layers that have no experts")
    f.ignore("use_residual", "moe_eval_capacity_factor", "moe_train_capacity_factor", "moe_min_capacity", "moe_token_dropping")
    f.ignore("enable_expert_tensor_parallelism")
    return (
        llama_fields(f, tie=False)
        | {"norms_per_layer": 3, "shared_expert_intermediate_size": f.size("hidden_size")}
        | routed(f, "num_local_experts", f.size("intermediate_size"), experts=128, per_token=2)
    )


def cohere2_moe(f: Fields) -> Kwargs:
    """Command A+: attention and experts read one norm, dense layers may stand at the front."""
    inner = f.size("intermediate_size")
    dense = f.size("prefix_dense_intermediate_size", default=inner)
    f.ignore("prefix_dense_sliding_window_pattern", "shared_expert_combination_strategy")
    return (
        llama.cohere2(f.with_defaults({"head_dim": 128}))
        | {"intermediate_size": dense}
        | routed(f, "num_experts", inner, experts=8, per_token=2)
        | dense_first(f)
        | {"shared_expert_intermediate_size": f.count("num_shared_experts") * inner}
    )


def granite_moe_swa(f: Fields) -> Kwargs:
    """Granite with experts, a sink for each head, and layers that see a window."""
    return granite_moe(f) | {name: value for name, value in llama.granite_swa(f).items() if "window" in name or "sinks" in name}


def deepseek_v1(f: Fields) -> Kwargs:
    """DeepSeekMoE: grouped attention, experts of DeepSeek with a router that has no correction."""
    return (
        llama_fields(f, tie=False)
        | attention_bias(f)
        | routed(f, "n_routed_experts", f.size("moe_intermediate_size"))
        | dense_first(f)
        | shared_experts(f)
    )


def minicpm(f: Fields) -> Kwargs:
    """MiniCPM, dense or with experts as wide as the dense MLP; its multipliers have no parameters."""
    experts = routed(f, "num_experts", f.size("intermediate_size"), per_token=2) if f.count("num_experts") else {}
    f.ignore("scale_emb")
    return llama_fields(f, tie=True) | experts


def ernie_vl_moe(f: Fields) -> Kwargs:
    """The language model of ERNIE 4.5 VL: ``moe_intermediate_size`` lists the widths of experts for text and for images."""
    widths: Any = f.config.get("moe_intermediate_size")
    if isinstance(widths, list):
        if len(widths) != 2 or not all(isinstance(width, int) and width > 0 for width in widths):
            raise f.wrong("moe_intermediate_size", "a list of two whole numbers above 0: experts for text, experts for images")
        f.left_out.append(f"moe_intermediate_size {widths[1]} (experts for tokens of images)")
        f = f.with_values({"moe_intermediate_size": widths[0]})
    fields, dense = ernie_moe(f), dense_first(f)
    return fields | ({} if f.config.get("mlp_layer_types") is None else dense) | {"router_bias": True}


def qwen3_omni(f: Fields) -> Kwargs:
    """The thinker of Qwen3-Omni: heads as wide as hidden size over heads, rounded down."""
    heads = f.size("num_attention_heads", default=28)
    return qwen3_moe(f.with_defaults({"head_dim": f.size("hidden_size") // heads}))
