"""What readers of ``config.json`` share: the fields that many model types spell the same."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.config_json.fields import Fields, shown
from ironlaw.errors import InputError, UnsupportedError

Kwargs = dict[str, Any]

BIASED: Kwargs = {
    "gated_mlp": False,
    "norm": "layernorm",
    "query_key_value_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
}


def multi_head(f: Fields, hidden: int, heads: int) -> Kwargs:
    """Attention with as many key-value heads as query heads, hidden / heads wide each."""
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": _divided(f, hidden, heads),
    }


def rotary(f: Fields, tie: bool, head_dim: int | None = None) -> Kwargs:
    """The fields that every Llama-like type spells the same; ``head_dim`` is the type's default, None for hidden / heads."""
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
        "head_dim": f.size("head_dim", default=head_dim) if explicit else _divided(f, hidden, heads),
        "intermediate_size": f.size("intermediate_size"),
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": f.size("max_position_embeddings"),
        "tie_word_embeddings": f.flag("tie_word_embeddings", tie),
        "gated_mlp": True,
        "hidden_act": act(f.text("hidden_activation", "hidden_act", default="silu")),
        "dropout": f.any_dropout("attention_dropout"),
    }


def attention_bias(f: Fields) -> Kwargs:
    """One field for the biases of all four projections."""
    bias = f.flag("attention_bias", False)
    return {"query_key_value_bias": bias, "attention_output_bias": bias}


def qwen_window(f: Fields) -> Kwargs:
    """The window of the layers behind the first ``max_window_layers``."""
    f.weightless("layer_types", "sliding_window")  # which state a window that is switched off, too
    if not f.flag("use_sliding_window", False):
        return {}
    layers = f.size("num_hidden_layers")
    full = min(layers, f.size("max_window_layers")) if f.config.get("max_window_layers") != 0 else 0
    return layer_types(f, layers - full)


def layer_types(f: Fields, local_layers: int) -> Kwargs:
    """Window and count of local layers: from ``layer_types`` where the file lists them, else ``local_layers``."""
    listed = kinds_listed(f, "layer_types", ("full_attention", "sliding_attention"))
    if listed:
        local_layers = listed.count("sliding_attention")
    if f.config.get("sliding_window") is None or local_layers == 0:
        return {}
    return {"sliding_window": f.size("sliding_window"), "sliding_window_layers": local_layers}


def kinds_listed(f: Fields, name: str, known: tuple[str, ...], layers: int | None = None) -> list[str]:
    """What the file says of each layer under ``name``, every word among ``known``; empty where it says nothing."""
    f.weightless(name)
    listed: Any = f.config.get(name)
    if listed is None:
        return []
    layers = f.size("num_hidden_layers") if layers is None else layers
    if not isinstance(listed, list) or len(listed) != layers:
        raise InputError(f"{f.where}: field '{f.prefix}{name}' is expected to be a list of {layers} texts")
    for kind in listed:
        if kind not in known:
            raise UnsupportedError(f"{f.where}: field '{f.prefix}{name}' holds {shown(kind)}, which is not understood")
    return listed


def pattern(f: Fields, every: int, *names: str) -> Kwargs:
    """Windows where all layers are local but one in so many; the number under one of ``names``, else ``every``."""
    layers = f.size("num_hidden_layers")
    return layer_types(f, layers - layers // f.size(*names, default=every))


def biased(f: Fields, name: str, default: bool = False) -> Kwargs:
    """One field for the biases of all linear layers."""
    bias = f.flag(name, default)
    return {"query_key_value_bias": bias, "attention_output_bias": bias, "mlp_bias": bias}


def tensors_of_rotary(f: Fields, **names: str) -> Fields:
    """The same fields under the names of Llama, for files that spell them otherwise."""
    f.weightless(*names.values())
    return f.with_defaults({name: f.config.get(other) for name, other in names.items() if f.config.get(other) is not None})


def _divided(f: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise InputError(f"{f.where}: hidden size {hidden} is not a multiple of {heads} attention heads and no head_dim is given")
    return hidden // heads


def act(name: str) -> str:
    """The activation function without its variants."""
    return "gelu" if name.startswith("gelu") else {"swish": "silu"}.get(name, name)
