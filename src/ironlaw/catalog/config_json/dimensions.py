"""A Model from the dimensions in a question: ``hidden_size=4096,num_hidden_layers=32,...`` or a table of them.

What is not given is as in GPT, or as in Llama where the activation is SiLU: 72 of the catalogue's 74 models with SiLU have a gate, and
62 of these a separate output layer. With a ``model_type`` the dimensions are read as a ``config.json`` of that family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.model import Model
from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError

WHERE = "the model's dimensions"
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
NO_DIMENSIONS = ("source", "published_parameters", "published_active_parameters", "layer_groups", "frozen_layers")
BLOCKS = ("mamba_layers", "attention_layers", "mlp_layers", "routed_layers")
LINEAR = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim")
MAMBA = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "mamba_n_groups", "conv_kernel")
NEEDS = {  # a dimension -> the dimensions it needs beside it
    "num_experts": ("num_experts_per_tok", "moe_intermediate_size"),
    "moe_latent_size": ("num_experts",),
    "zero_expert_num": ("num_experts",),
    "shared_expert_intermediate_size": ("num_experts",),
    "kv_lora_rank": ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    "q_lora_rank": ("kv_lora_rank",),
    "index_topk": ("kv_lora_rank", "q_lora_rank", "index_n_heads", "index_head_dim"),
    "index_layers": ("index_topk",),
    "linear_attention_layers": LINEAR,
    "mamba_layers": ("one_block_layers", *MAMBA),
    "attention_layers": ("one_block_layers",),
    "mlp_layers": ("one_block_layers",),
    "routed_layers": ("one_block_layers", "num_experts"),
    "qk_norm_heads": ("qk_norm",),
}
WORDS = {
    "norm": ("rmsnorm", "layernorm", "layernorm-no-bias", "no-weights"),
    "position_embedding": ("rope", "learned", "alibi", "none"),
    "hidden_act": ("silu", "gelu", "relu", "relu2", "swiglu", "geglu"),
}


GATED = {"swiglu": "silu", "geglu": "gelu"}  # activations that name their gate -> the activation


def model_from_dimensions(dimensions: str | Mapping[str, Any]) -> Model:
    """The model with these dimensions; defaults as in GPT: plain MLP of width 4 h, as many key as query heads, tied embedding.

    >>> model_from_dimensions("hidden_size=64,num_hidden_layers=2,num_attention_heads=4,vocab_size=100,hidden_act=silu").gated_mlp
    True
    """
    return _complete(dimensions)[0]


def assumed_dimensions(dimensions: str | Mapping[str, Any]) -> dict[str, Any]:
    """The dimensions that change parameters and were not given, as ``model_from_dimensions`` takes them."""
    return _complete(dimensions)[1]


def _complete(dimensions: str | Mapping[str, Any]) -> tuple[Model, dict[str, Any]]:
    """The model, and what was assumed of it."""
    table = _split_pairs(dimensions) if isinstance(dimensions, str) else dimensions
    if "model_type" in table:
        return _of_family(table), {}
    for key in table:
        if key not in Model.fields or key in NO_DIMENSIONS:
            alias = load.aliases()["columns"].get(load.fold_name(str(key)))
            offered = [name for name in Model.fields if name not in NO_DIMENSIONS]
            raise UnknownNameError("model field", str(key), [alias] if alias in Model.fields else offered, WHERE)
    if missing := [name for name in NEEDED if name not in table]:
        raise QuestionError(f"{WHERE}: missing {', '.join(missing)}")
    values = {key: _read_dimension(key, item, Model.fields[key].type) for key, item in table.items()}
    hidden, heads = values["hidden_size"], values["num_attention_heads"]
    key_heads = values.setdefault("num_key_value_heads", heads)
    if "head_dim" not in values and hidden % heads:
        raise ValueRangeError(f"num_attention_heads {heads} does not divide hidden_size {hidden}: give head_dim")
    if heads % key_heads:
        raise ValueRangeError(f"num_key_value_heads {key_heads} does not divide num_attention_heads {heads}")
    stated = values.get("hidden_act")
    if stated in GATED:
        if values.get("gated_mlp") is False:
            raise QuestionError(f"{WHERE}: gated_mlp is off, but hidden_act {stated} has a gate: give one of them")
        values["hidden_act"] = GATED[stated]
    gated = values.get("gated_mlp", stated in GATED or stated == "silu")
    act = values.get("hidden_act", "silu" if gated else "gelu")
    defaults = {
        "head_dim": hidden // heads,
        "intermediate_size": 4 * hidden,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": not (gated and act == "silu"),
        "gated_mlp": gated,
        "hidden_act": act,
        "norm": "rmsnorm" if gated else "layernorm",
        "name": "custom",
        "title": "custom model",
    }
    if values.get("sliding_window") or values.get("attention_chunk_size"):
        defaults["sliding_window_layers"] = values["num_hidden_layers"]
    assumed = {name: defaults[name] for name in ("gated_mlp", "tie_word_embeddings", "intermediate_size", "norm") if name not in values}
    values = defaults | values
    _check_dimensions(values)
    return Model(**values), assumed


def _of_family(table: Mapping[str, Any]) -> Model:
    """The model of a family, with its dimensions in the spelling of the family's ``config.json``."""
    from ironlaw.catalog.config_json.read import model_from_config

    config = {"max_position_embeddings": 2048} | {name: _plain(value) for name, value in table.items()}
    return model_from_config(config, WHERE, "custom")[0].replace(title="custom model")


def _plain(value: Any) -> Any:
    """A value of a table as a JSON file has it."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "on", "false", "off"):
        return value.lower() in ("true", "on")
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return value


def _split_pairs(text: str) -> dict[str, str]:
    """``a=1,b=2`` as a table."""
    table: dict[str, str] = {}
    for item in text.split(","):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise QuestionError(f"{WHERE}: {item!r} in {text!r} is not a field=value pair")
        if key in table:
            raise QuestionError(f"{WHERE}: {key} is given twice")
        table[key] = value
    return table


def _read_dimension(name: str, value: Any, kind: str) -> Any:
    if kind == "bool":
        return units.parse_switch(value, name)
    if kind == "int":
        return int(units.parse_whole(value, name, least=1 if name in (*NEEDED, "num_key_value_heads", "head_dim") else 0))
    if name in WORDS and str(value) not in WORDS[name]:
        raise UnknownNameError(name, str(value), WORDS[name], WHERE)
    return str(value)


def _check_dimensions(values: Mapping[str, Any]) -> None:
    """Refuse a dimension without those it needs, and a count larger than what it is part of."""
    for name, needed in NEEDS.items():
        missing = [other for other in needed if not values.get(other)]
        if values.get(name) and missing:
            raise QuestionError(f"{WHERE}: {name} needs {', '.join(missing)}")
    layers = values["num_hidden_layers"]
    for name in ("sliding_window_layers", "linear_attention_layers", "first_k_dense_replace", "index_layers"):
        if values.get(name, 0) > layers:
            raise ValueRangeError(f"{name} {values[name]} exceeds num_hidden_layers {layers}")
    if values.get("num_experts") and values["num_experts_per_tok"] > values["num_experts"]:
        raise ValueRangeError(f"num_experts_per_tok {values['num_experts_per_tok']} exceeds num_experts {values['num_experts']}")
    blocks = sum(values.get(name, 0) for name in BLOCKS)
    if values.get("one_block_layers") and blocks != layers:
        raise ValueRangeError(f"with one_block_layers, {', '.join(BLOCKS)} must add up to num_hidden_layers {layers}, not to {blocks}")
