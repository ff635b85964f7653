"""Readers of models that attend to a part of the keys: compressed entries (DeepSeek-V4), picked blocks (MiniMax-M3), windows (Step 3.5)."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import (
    Kwargs,
    activation,
    dense_first,
    expert_groups,
    group_layers,
    latent_attention,
    layer_kinds,
    llama_fields,
    local_window,
    routed,
    shared_experts,
    sizes_by_layer,
    with_llama_names,
)

SPARSE_RATIO = 4  # of DeepSeek-V4: entries of this many tokens are picked by an indexer (modeling_deepseek_v4.py); others are all seen
RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": SPARSE_RATIO, "heavily_compressed_attention": 128}
SWIGLU = {"swigluoai": "silu"}  # a clipped product of silu and gate: the operations of silu


def deepseek_v4(f: Fields) -> Kwargs:
    """DeepSeek-V4: compressed attention, grouped low-rank outputs, hyper-connections; every layer is routed."""
    f = f.with_defaults({"intermediate_size": f.size("moe_intermediate_size"), "num_key_value_heads": 1})
    if f.flag("attention_bias", False):
        raise f.refuse("attention_bias", "compressed attention with biases")
    if f.size("num_key_value_heads") != 1:
        raise f.refuse("num_key_value_heads", "compressed attention with more than one key-value head")
    fields = llama_fields(f, tie=False, head_dim=512)
    f.ignore("hc_eps", "hc_sinkhorn_iters", "compress_rope_theta", "num_hash_layers", "mlp_layer_types", "expert_dtype")
    if tables := f.count("num_hash_layers"):
        f.left_out.append(f"num_hash_layers {tables} (a table of tokens picks their experts: timed as the other routed layers)")
    groups, heads = f.size("o_groups"), fields["num_attention_heads"]
    if heads % groups:
        raise f.contradict("o_groups", f"there are {heads} heads")
    ratios = _ratios(f)
    picking = {"index_n_heads": f.size("index_n_heads"), "index_head_dim": f.size("index_head_dim")} if SPARSE_RATIO in ratios else {}
    picked = f.size("index_topk") if SPARSE_RATIO in ratios else 0
    f.ignore("index_n_heads", "index_head_dim", "index_topk")
    layers = [
        {"mixer": "compressed", "mlp": "routed", "compress_ratio": ratio, "index_topk": picked if ratio == SPARSE_RATIO else 0}
        for ratio in ratios
    ]
    return (
        fields
        | routed(f, "n_routed_experts", f.size("moe_intermediate_size"))
        | shared_experts(f)
        | expert_groups(f)
        | picking
        | {
            "router_bias": f.text("topk_method", default="noaux_tc") == "noaux_tc",
            "q_lora_rank": f.size("q_lora_rank"),
            "qk_rope_head_dim": f.size("qk_rope_head_dim", default=64),
            "o_lora_rank": f.size("o_lora_rank"),
            "o_groups": groups,
            "sliding_window": f.size("sliding_window"),
            "attention_sinks": True,
            "hc_mult": f.count("hc_mult"),
            "num_nextn_predict_layers": f.count("num_nextn_predict_layers"),
            "layer_groups": group_layers(layers),
        }
    )


def _ratios(f: Fields) -> list[int]:
    """Tokens that an entry stands for, of each layer; a list may go on with the layers for further tokens."""
    f.ignore("compress_ratios", "compress_rates", "layer_types")
    layers, listed = f.size("num_hidden_layers"), f.config.get("compress_ratios")
    if listed is None:
        kinds = layer_kinds(f, "layer_types", tuple(RATIOS))
        if not kinds:
            raise f.missing("compress_ratios", instead="layer_types")
        rates: Any = f.config.get("compress_rates") or {}
        known = RATIOS | {name: rate for name, rate in rates.items() if name in RATIOS} if isinstance(rates, dict) else RATIOS
        listed = [known[kind] for kind in kinds]
    if not isinstance(listed, list) or len(listed) < layers or not all(isinstance(r, int) and 0 <= r < 10**6 for r in listed):
        raise f.wrong("compress_ratios", f"a list of at least {layers} whole numbers, 0 for a window alone")
    return [int(ratio) for ratio in listed[:layers]]


def minimax_m3(f: Fields) -> Kwargs:
    """MiniMax M3: grouped attention to blocks of keys that an indexer picks, dense layers at the front."""
    inner = f.size("moe_intermediate_size", default=f.size("intermediate_size"))
    f = f.with_values({"intermediate_size": f.size("dense_intermediate_size", default=12288), "hidden_act": _activation(f)})
    if f.flag("attention_output_gate", False):
        raise f.refuse("attention_output_gate", "MiniMax M3 with a gate on the output of attention")
    norms = f.flag("use_qk_norm", True)
    if f.text("qk_norm_type", default="per_head") != "per_head":
        raise f.refuse("qk_norm_type", "MiniMax M3 with norms of queries and keys over the layer")
    f.ignore("swiglu_alpha", "rotary_dim", "use_gemma_norm", "num_mtp_modules", "shared_intermediate_size", "n_shared_experts")
    if modules := f.count("num_mtp_modules"):
        f.left_out.append(f"num_mtp_modules {modules} (num_nextn_predict_layers says how many layers predict further tokens)")
    dense, sparse = dense_first(f)["first_k_dense_replace"], _picking_layers(f)
    layers = [
        ({"index_topk": sparse.picked} if sparse.layers[i] else {}) | ({} if i < dense else {"mlp": "routed"})
        for i in range(f.size("num_hidden_layers"))
    ]
    return (
        llama_fields(f, tie=False, head_dim=128)
        | routed(f, "num_local_experts", inner, experts=128, per_token=4)
        | sparse.sizes
        | {
            "qk_norm": norms,
            "router_bias": f.flag("use_routing_bias", True),
            "shared_expert_intermediate_size": f.count("n_shared_experts", default=1) * f.size("shared_intermediate_size", default=inner),
            "num_nextn_predict_layers": f.count("num_nextn_predict_layers"),
            "layer_groups": group_layers(layers),
        }
    )


class _Picking:
    """Which layers have an indexer that picks blocks of keys, its sizes, and the keys that it picks."""

    def __init__(self, layers: list[bool], sizes: Kwargs, picked: int) -> None:
        self.layers, self.sizes, self.picked = layers, sizes, picked


def _picking_layers(f: Fields) -> _Picking:
    """The indexer of MiniMax M3 in the spelling of its checkpoint, or of ``transformers``."""
    count = f.size("num_hidden_layers")
    own, names = f.inner("sparse_attention_config"), ("index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks")
    own.ignore("sparse_attention_freq", "sparse_disable_index_value", "sparse_init_block", "sparse_local_block")
    f.ignore("layer_types", "index_local_blocks", *names)
    if own.config:
        if not own.flag("use_sparse_attention", True):
            return _Picking([False] * count, {}, 0)
        if own.text("sparse_score_type", default="max") != "max":
            raise own.refuse("sparse_score_type", "blocks picked by other than their largest score")
        flags: Any = own.config.get("sparse_attention_freq")
        values: Any = own.config.get("sparse_disable_index_value") or flags
        for name, listed in (("sparse_attention_freq", flags), ("sparse_disable_index_value", values)):
            if not isinstance(listed, list) or len(listed) != count or any(item not in (0, 1) for item in listed):
                raise own.wrong(name, f"a list of {count} zeros and ones")
        if any(picks and not alone for picks, alone in zip(flags, values, strict=True)):
            raise own.refuse("sparse_disable_index_value", "an indexer with values")
        spelled = ("sparse_num_index_heads", "sparse_index_dim", "sparse_block_size", "sparse_topk_blocks")
        n, width, block, top = (own.size(name) for name in spelled)
    else:
        flags = [kind == "minimax_m3_sparse" for kind in layer_kinds(f, "layer_types", ("minimax_m3_sparse", "full_attention"))]
        if not any(flags):
            return _Picking([False] * count, {}, 0)
        n, width, block, top = (f.size(name, default=usual) for name, usual in zip(names, (4, 128, 128, 16), strict=True))
    return _Picking([bool(flag) for flag in flags], {"index_n_heads": n, "index_head_dim": width, "index_block_size": block}, top * block)


def _activation(f: Fields) -> str:
    name = activation(f.text("hidden_act", default="silu"))
    return SWIGLU.get(name, name)


def step3p5(f: Fields) -> Kwargs:
    """Step 3.5 and 3.7: most layers see a window, with more heads; a gate of one number a head."""
    f = with_llama_names(
        f, num_key_value_heads="num_attention_groups", num_experts="moe_num_experts", num_experts_per_tok="moe_top_k",
        max_position_embeddings="max_seq_len",
    )  # fmt: skip
    layers = f.size("num_hidden_layers")
    f.ignore("layer_types", "attention_other_setting", "moe_layers_enum", "moe_every_n_layer", "moe_layer_offset", "share_expert_dims")
    f.ignore("att_impl_type", "use_rope_layers", "yarn_only_types", "partial_rotary_factors", "swiglu_limits", "swiglu_limits_shared")
    f.ignore(
        "need_fp32_gate", "norm_expert_weight", "n_shared_experts", "moe_router_activation", "use_moe", "use_mfa", "sink", "zero_centered"
    )
    f.ignore("mtp_layer_types", "mtp_mlp_layer_types", "mlp_layer_types", "num_sliding_attention_heads", "n_routed_experts")
    listed: Any = f.config.get("layer_types")
    if not isinstance(listed, list) or len(listed) < layers or any(k not in ("full_attention", "sliding_attention") for k in listed):
        raise f.wrong("layer_types", f"a list of at least {layers} of full_attention and sliding_attention")
    inner = f.size("moe_intermediate_size")
    fields = llama_fields(f.with_defaults({"num_key_value_heads": 8}), tie=False, head_dim=128)
    window = _other_heads(f, fields) | ({"sliding_window": f.size("sliding_window", default=512)} if "sliding_attention" in listed else {})
    by_layer = sizes_by_layer(f, "num_attention_heads")
    sparse = _routed_layers(f, layers)
    everywhere = {name: fields[name] for name in ("num_attention_heads", "num_key_value_heads")}
    sizes = [
        (window if kind == "sliding_attention" else everywhere) | ({"mlp": "routed"} if i in sparse else {}) | by_layer[i]
        for i, kind in enumerate(listed[:layers])
    ]
    return (
        fields
        | routed(f, "num_experts", inner, experts=288, per_token=8)
        | {
            "qk_norm": True,
            "attention_head_gate": f.flag("use_head_wise_attn_gate", True),
            "router_bias": f.flag("use_moe_router_bias", True),
            "shared_expert_intermediate_size": f.size("share_expert_dim", default=inner),
            "num_nextn_predict_layers": f.count("num_nextn_predict_layers"),
            "layer_groups": group_layers(sizes),
        }
    )


def _other_heads(f: Fields, fields: Kwargs) -> Kwargs:
    """Heads of the layers that see a window."""
    names = ("num_attention_heads", "num_key_value_heads", "head_dim")
    if f.config.get("per_layer_config") is not None:  # which says how many heads each layer has
        return {name: fields[name] for name in names}
    if f.config.get("attention_other_setting") is None:
        f.left_out.append(
            "attention_other_setting is absent: layers with a window have the heads of the others (Step-3.5-Flash has 96 there)"
        )
        return {name: fields[name] for name in names}
    other = f.inner("attention_other_setting")
    return {
        "num_attention_heads": other.size("num_attention_heads", default=fields["num_attention_heads"]),
        "num_key_value_heads": other.size("num_attention_groups", default=fields["num_key_value_heads"]),
        "head_dim": other.size("head_dim", default=fields["head_dim"]),
    }


def _routed_layers(f: Fields, layers: int) -> set[int]:
    """The layers with experts: a list of numbers, text or not, or else all behind the dense ones at the front."""
    listed: Any = f.config.get("moe_layers_enum")
    if kinds := layer_kinds(f, "mlp_layer_types", ("dense", "sparse")):
        f.ignore("first_k_dense_replace")
        return {i for i, kind in enumerate(kinds) if kind == "sparse"}
    if listed is None:
        return set(range(f.count("first_k_dense_replace", default=3), layers))
    f.ignore("first_k_dense_replace")
    parts = listed.split(",") if isinstance(listed, str) else listed
    try:
        return {int(part) for part in parts}
    except (TypeError, ValueError):
        raise f.wrong("moe_layers_enum", "a list of layers") from None


def _indexer(f: Fields) -> Kwargs:
    """The sizes of an indexer, and how many layers have one."""
    layer_kinds(f, "layer_types", ("indexed_attention", "deepseek_sparse_attention", "linear_attention"))
    indexers = layer_kinds(f, "indexer_types", ("full", "shared"))
    sizes = {name: f.size(name) for name in ("index_n_heads", "index_head_dim", "index_topk")}
    return sizes | {"index_layers": indexers.count("full") if "shared" in indexers else 0}


def _latent_experts(f: Fields) -> Kwargs:
    """Latent attention to the keys that an indexer picks, and experts in DeepSeek's fields."""
    f = f.with_defaults({"n_group": 1, "topk_group": 1})
    experts = routed(f, "n_routed_experts", f.size("moe_intermediate_size")) | dense_first(f) | shared_experts(f) | expert_groups(f)
    return latent_attention(f) | experts | {"num_nextn_predict_layers": f.count("num_nextn_predict_layers")}


def axk2(f: Fields) -> Kwargs:
    """A.X K2: a gate of attention's output from the latent of queries, and gates of low rank on most norms."""
    fields, rank = _latent_experts(f) | _indexer(f), f.count("gated_norm_rank")
    hidden, layers, latent = fields["hidden_size"], fields["num_hidden_layers"], fields["q_lora_rank"]
    gates, queries = (fields["num_attention_heads"] * fields[name] for name in ("v_head_dim", "head_dim"))
    more = 2 * latent * (queries + gates) - latent * queries - hidden * gates  # one product of the latent twice, not a product each
    f.left_out.append(f"gated_norm_rank {rank} (takes no time; the gate of attention's output is timed as one from the hidden state)")
    normed = 2 * layers - fields["first_k_dense_replace"]
    return fields | {"attention_output_gate": True, "other_parameters": layers * more + normed * 2 * rank * hidden}


def hy_v4(f: Fields) -> Kwargs:
    """Hunyuan 4: sinks and a gate of attention's output, and hyper-connections without a matrix that mixes the streams."""
    fields, streams = _latent_experts(f) | _indexer(f), f.count("hc_mult")
    layers, hidden = fields["num_hidden_layers"], fields["hidden_size"]
    f.ignore("hc_eps", "hc_magnitude", "learnable_sink_init", "swiglu_limit")
    f.left_out.append(f"hc_mult {streams} (hyper-connections are timed as those of DeepSeek-V4, which also mix the streams)")
    mixing = 2 * layers * (streams * streams * (streams * hidden + 1) + 1) if streams else 0
    return fields | {"attention_output_gate": True, "hc_mult": streams, "other_parameters": layers * fields["num_attention_heads"] - mixing}


def glm5_next(f: Fields) -> Kwargs:
    """GLM-5.3: Kimi Delta Attention, latent attention with an indexer in every fourth layer, hyper-connections."""
    f = f.with_values({"head_dim": f.size("qk_nope_head_dim") + f.count("qk_rope_head_dim")})
    listed = layer_kinds(f, "layer_types", ("linear_attention", "indexed_attention"))
    sparse = layer_kinds(f, "mlp_layer_types", ("dense", "sparse"))
    for name, kinds in (("layer_types", listed), ("mlp_layer_types", sparse)):
        if not kinds:
            raise f.missing(name)
    fields, picking = _latent_experts(f), _indexer(f)
    hidden, streams, pooled = fields["hidden_size"], f.count("hc_mult"), f.count("index_kpool")
    f.ignore("hc_eps", "hc_sinkhorn_iters", "index_kpool_always_select_tail", "linear_lower_bound", "swiglu_limit")
    width, heads = f.size("linear_head_dim"), f.size("linear_num_heads")
    picked = {"index_topk": picking.pop("index_topk")}
    if picking.pop("index_layers"):
        raise f.refuse("indexer_types", "layers that share an indexer beside layers of linear attention")
    layers = [
        ({"mixer": "kda"} if mixer == "linear_attention" else picked) | ({"mlp": "routed"} if mlp == "sparse" else {})
        for mixer, mlp in zip(listed, sparse, strict=True)
    ]
    pooling = listed.count("indexed_attention") * picking["index_head_dim"] * (pooled + hidden) if pooled else 0
    return (
        fields
        | picking
        | {
            "index_block_size": pooled,
            "first_k_dense_replace": 0,
            "linear_num_key_heads": heads,
            "linear_num_value_heads": heads,
            "linear_key_head_dim": width,
            "linear_value_head_dim": width,
            "linear_conv_kernel_dim": f.size("linear_conv_kernel_dim", default=4),
            "linear_gate_rank": width,
            "hc_mult": streams,
            "other_parameters": pooling - (streams * (streams * hidden + 1) + 1 if streams else 0),  # the last sum has no weights
            "layer_groups": group_layers(layers),
        }
    )


def mistral_large4(f: Fields) -> Kwargs:
    """Mistral Large 4: the indexer's queries come from the hidden state; heads without position are as wide as those with it."""
    layers = f.size("num_hidden_layers")
    rotated: Any = f.config.get("no_rope_layers") or [1] * layers
    f.ignore("no_rope_layers", "kv_source_layers")
    sources = f.config.get("kv_source_layers")
    if not isinstance(rotated, list) or len(rotated) != layers or any(item not in (0, 1) for item in rotated):
        raise f.wrong("no_rope_layers", f"a 0 or 1 for each of {layers} layers")
    if sources is not None and sources != list(range(layers)):
        raise f.refuse("kv_source_layers", "keys and values shared across layers")
    fields = _latent_experts(f) | _indexer(f)
    hidden, latent, rope = fields["hidden_size"], fields["kv_lora_rank"], fields["qk_rope_head_dim"]
    heads, index_heads = fields["num_attention_heads"], fields["index_n_heads"]
    still = rotated.count(0)  # their keys and values come from the latent alone
    f.left_out.append(f"no_rope_layers {still} (timed as the layers with rotary positions)")
    more = still * rope * (latent * heads - hidden) + layers * (2 * hidden + 2 * heads + 2 * index_heads)
    return fields | {"other_parameters": more + rope // 2}


def muse_spark(f: Fields) -> Kwargs:
    """Muse Spark: experts on a narrower stream with norms on both sides, gated attention, gates on the residual additions."""
    f = f.with_defaults({"first_k_dense_replace": 0})
    latent, layers = f.size("moe_hidden_size"), f.size("num_hidden_layers")
    f.ignore("layer_rope_theta", "output_multiplier", "qk_scale_factor", "residual_gate_temperature", "post_norm_eps")
    fields = llama_fields(f, tie=False, head_dim=64)
    return (
        fields
        | routed(f, "num_local_experts", f.size("moe_intermediate_size"), experts=256, per_token=8)
        | dense_first(f)
        | local_window(f, 0)
        | {
            "attention_output_gate": True,
            "norms_per_layer": 3,
            "moe_latent_size": latent,
            "moe_latent_norm": True,
            "other_parameters": layers * (2 * fields["hidden_size"] + latent),  # two gates of the stream, a norm before the experts
        }
    )
