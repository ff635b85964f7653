"""Fields of ``config.json`` that many model types spell alike: attention, experts, windows."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.model import LayerGroup
from ironlaw.errors import InputError, UnsupportedError, quote

Kwargs = dict[str, Any]  # keywords of a Model


def multi_head(f: Fields, hidden: int, heads: int) -> Kwargs:
    """Attention with one key-value head for each query head, each hidden / heads wide."""
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": _divide_by_heads(f, hidden, heads),
    }


def llama_fields(f: Fields, tie: bool, head_dim: int | None = None) -> Kwargs:
    """The fields that Llama-like types spell alike; ``tie`` and ``head_dim`` are the type's defaults (None: hidden / heads)."""
    hidden, heads = f.size("hidden_size"), f.size("num_attention_heads")
    kv_heads = f.size("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise InputError(f"{f.where}: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    explicit = head_dim is not None or f.config.get("head_dim") is not None
    return {
        "hidden_size": hidden,
        "num_hidden_layers": f.size("num_hidden_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": f.size("head_dim", default=head_dim) if explicit else _divide_by_heads(f, hidden, heads),
        "intermediate_size": f.size("intermediate_size"),
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": f.size("max_position_embeddings"),
        "tie_word_embeddings": f.flag("tie_word_embeddings", tie),
        "gated_mlp": True,
        "hidden_act": activation(f.text("hidden_activation", "hidden_act", default="silu")),
        "dropout": f.any_dropout("attention_dropout"),
    }


def _divide_by_heads(f: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise InputError(f"{f.where}: hidden size {hidden} is not a multiple of {heads} attention heads and no head_dim is given")
    return hidden // heads


def with_llama_names(f: Fields, **names: str) -> Fields:
    """The same fields under Llama's names; ``names`` maps each of these to the name that the file uses."""
    f.ignore(*names.values())
    return f.with_defaults({name: f.config.get(other) for name, other in names.items() if f.config.get(other) is not None})


def activation(name: str) -> str:
    """The activation function without its variants."""
    return "gelu" if name.startswith("gelu") else {"swish": "silu"}.get(name, name)


def latent_attention(f: Fields) -> Kwargs:
    """Multi-head latent attention in DeepSeek's fields, and the fields that Llama-like types spell alike."""
    if f.flag("attention_bias", False):
        raise f.refuse("attention_bias", "latent attention with biases")
    f.ignore("qk_head_dim")  # the sum of its two parts
    nope, rope = f.size("qk_nope_head_dim"), f.count("qk_rope_head_dim")
    f.ignore("head_dim")  # the part with position alone, in some files
    return llama_fields(f.with_values({"head_dim": nope + rope}), tie=False) | {
        "head_dim": nope + rope,  # width over which a query and a key are multiplied
        "q_lora_rank": f.count("q_lora_rank"),
        "kv_lora_rank": f.size("kv_lora_rank"),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": f.size("v_head_dim"),
    }


def attention_bias(f: Fields) -> Kwargs:
    """One field for the biases of all four projections of attention."""
    bias = f.flag("attention_bias", False)
    return {"query_key_value_bias": bias, "attention_output_bias": bias}


def linear_biases(f: Fields, name: str, default: bool = False) -> Kwargs:
    """One field for the biases of all linear layers."""
    bias = f.flag(name, default)
    return {"query_key_value_bias": bias, "attention_output_bias": bias, "mlp_bias": bias}


# --- layers that differ --------------------------------------------------------------------------------------------


def local_window(f: Fields, local_layers: int) -> Kwargs:
    """Window and count of local layers: from ``layer_types`` where the file lists them, else ``local_layers``."""
    listed = layer_kinds(f, "layer_types", ("full_attention", "sliding_attention"))
    if listed:
        local_layers = listed.count("sliding_attention")
    if f.config.get("sliding_window") is None or local_layers == 0:
        return {}
    return {"sliding_window": f.size("sliding_window"), "sliding_window_layers": local_layers}


def window_except_every(f: Fields, every: int, *names: str) -> Kwargs:
    """Every n-th layer is global and the others local; n is under one of ``names``, else ``every``."""
    layers = f.size("num_hidden_layers")
    return local_window(f, layers - layers // f.size(*names, default=every))


def qwen_window(f: Fields) -> Kwargs:
    """Layers after the first ``max_window_layers`` are local."""
    layer_kinds(f, "layer_types", ("full_attention", "sliding_attention"))
    f.ignore("sliding_window")  # present even where use_sliding_window is false
    if not f.flag("use_sliding_window", False):
        return {}
    layers = f.size("num_hidden_layers")
    full = min(layers, f.size("max_window_layers")) if f.config.get("max_window_layers") != 0 else 0
    return local_window(f, layers - full)


def layer_kinds(f: Fields, name: str, known: tuple[str, ...]) -> list[str]:
    """The kind of each layer as listed under ``name``, all among ``known``; empty where the file has no such list."""
    f.ignore(name)
    listed: Any = f.config.get(name)
    if listed is None:
        return []
    layers = f.size("num_hidden_layers")
    if not isinstance(listed, list) or len(listed) != layers:
        raise f.wrong(name, f"a list of {layers} strings")
    refuse_other_kinds(f, name, listed, known)
    return listed


def refuse_other_kinds(f: Fields, name: str, listed: Any, known: Any) -> None:
    """Refuse a list of layers or a pattern that has an entry outside ``known``."""
    for kind in listed:
        if not isinstance(kind, str) or kind not in known:
            raise UnsupportedError(f"{f.where}: not modelled: a layer of kind {quote(kind)} (field '{f.prefix}{name}')")


def sizes_by_layer(f: Fields, *names: str) -> list[Kwargs]:
    """The sizes ``names`` that ``per_layer_config`` gives each layer, as transformers 5 saves them; no others are understood."""
    listed, layers = f.inner("per_layer_config"), f.size("num_hidden_layers")
    sizes: list[Kwargs] = [{} for _ in range(layers)]
    for key, value in listed.config.items():
        if not key.isdecimal() or int(key) >= layers or not isinstance(value, dict):
            raise listed.wrong(key, f"an object under the number of one of {layers} layers")
        layer = listed.child(value, key)
        sizes[int(key)] = {name: layer.size(name) for name in names if value.get(name) is not None}
    return sizes


def group_layers(layers: list[dict[str, Any]]) -> tuple[LayerGroup, ...]:
    """Groups of equal layers, in the order of each group's first layer."""
    counted = Counter(tuple(sorted(layer.items())) for layer in layers)
    return tuple(LayerGroup(count=count, **dict(layer)) for layer, count in counted.items())


# --- mixtures of experts -------------------------------------------------------------------------------------------

EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")


def routed(
    f: Fields, number: str, inner: int, experts: int | None = None, per_token: int | None = None, per: str = "num_experts_per_tok"
) -> Kwargs:
    """Experts ``inner`` wide, counted by the fields ``number`` and ``per``; ``experts`` and ``per_token`` are the type's defaults."""
    f.ignore("moe_router_dtype")
    others = () if f.config.get(number) is not None else EXPERT_COUNTS  # transformers 5 writes one of them under another name
    count, chosen = f.size(number, *others, default=experts), f.size(per, default=per_token)
    f.ignore(*(name for name in EXPERT_COUNTS if f.config.get(name) == count))  # the same number under another name
    if chosen > count:
        raise f.contradict(per, f"there are {count} experts")
    return {"num_experts": count, "num_experts_per_tok": chosen, "moe_intermediate_size": inner}


def expert_groups(f: Fields) -> Kwargs:
    """Groups of experts, and how many of them a token's experts may come from."""
    count, chosen = f.count("n_group", default=1) or 1, f.count("topk_group", default=1) or 1
    if chosen > count:
        raise f.contradict("topk_group", f"there are {count} groups")
    return {"n_group": count, "topk_group": chosen}


def shared_experts(f: Fields) -> Kwargs:
    """Shared experts as wide as routed ones."""
    return {"shared_expert_intermediate_size": f.count("n_shared_experts") * f.size("moe_intermediate_size")}


def dense_first(f: Fields) -> Kwargs:
    """Dense layers at the front, all others routed."""
    dense, layers = f.count("first_k_dense_replace"), f.size("num_hidden_layers")
    f.ignore("moe_layer_freq", "decoder_sparse_step")
    freq = f.config.get("moe_layer_freq")
    for name, listed in (("mlp_layer_types", layer_kinds(f, "mlp_layer_types", ("dense", "sparse"))), ("moe_layer_freq", freq)):
        if isinstance(listed, list) and listed:
            front = next((i for i, kind in enumerate(listed) if kind in ("sparse", 1)), len(listed))
            ordered = len(listed) == layers and all(kind in ("sparse", 1) for kind in listed[front:])
            if not ordered or any(kind not in ("dense", 0) for kind in listed[:front]):
                raise f.refuse(name, "dense layers elsewhere than at the front")
            dense = front
    if not isinstance(freq, list) and freq not in (None, 1):
        raise f.refuse("moe_layer_freq", "dense layers between routed ones")
    if dense > layers:
        raise f.contradict("first_k_dense_replace", f"there are {layers} layers")
    return {"first_k_dense_replace": dense}


def qwen_placement(f: Fields) -> Kwargs:
    """Every ``decoder_sparse_step``-th layer is routed, but for a list of dense ones at the front."""
    step = f.size("decoder_sparse_step", default=1)
    f.ignore("mlp_only_layers")
    listed: Any = f.config.get("mlp_only_layers") or []
    if not isinstance(listed, list):
        raise f.wrong("mlp_only_layers", "a list of layers")
    if listed and (step != 1 or listed != list(range(len(listed)))):
        raise f.refuse("mlp_only_layers", "dense layers elsewhere than at the front")
    return {"moe_layer_freq": step, "first_k_dense_replace": len(listed)}


def qwen_experts(f: Fields, inner: int, experts: int, per_token: int, shared: int) -> Kwargs:
    """Qwen's routed experts and a gated shared expert; the numbers are the type's defaults."""
    return (
        routed(f, "num_experts", f.size("moe_intermediate_size", default=inner), experts, per_token)
        | qwen_placement(f)
        | {"shared_expert_intermediate_size": f.size("shared_expert_intermediate_size", default=shared), "shared_expert_gate": True}
    )
