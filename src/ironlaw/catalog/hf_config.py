"""A Hugging Face ``config.json`` becomes a Model, or one line that names the field and the file.

One small function a ``model_type``, in ``READERS``. What would change the count of parameters and is not understood is
refused, never guessed. A field that a file leaves out takes the default that ``transformers`` documents for that type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ironlaw.catalog.records import Model
from ironlaw.errors import InputError, UnsupportedError

SIZE_LIMIT = 5_000_000  # bytes; real configs hold a few kilobytes
LARGEST_COUNT = 10**12

ENCODERS = frozenset(
    [
        "albert",
        "beit",
        "bert",
        "bert-generation",
        "camembert",
        "clip",
        "convbert",
        "data2vec-text",
        "deberta",
        "deberta-v2",
        "deit",
        "dinov2",
        "distilbert",
        "electra",
        "ernie",
        "esm",
        "flaubert",
        "funnel",
        "hubert",
        "layoutlm",
        "layoutlmv3",
        "longformer",
        "modernbert",
        "mpnet",
        "nomic_bert",
        "perceiver",
        "roberta",
        "roformer",
        "siglip",
        "squeezebert",
        "swin",
        "vit",
        "wav2vec2",
        "wavlm",
        "xlm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xlnet",
    ]
)
ENCODER_DECODERS = frozenset(
    [
        "bart",
        "blenderbot",
        "encoder-decoder",
        "fsmt",
        "led",
        "longt5",
        "m2m_100",
        "marian",
        "mbart",
        "mt5",
        "mvp",
        "nllb-moe",
        "pegasus",
        "pegasus_x",
        "plbart",
        "prophetnet",
        "seamless_m4t",
        "speech_to_text",
        "switch_transformers",
        "t5",
        "t5gemma",
        "trocr",
        "udop",
        "umt5",
        "vision-encoder-decoder",
        "whisper",
    ]
)
# A field whose name holds one of these, and whose value is not empty, zero or false, changes what the model consists of.
FOREIGN = {
    "expert": "a mixture of experts",
    "moe": "a mixture of experts",
    "lora_rank": "latent attention (MLA)",
    "qk_rope_head_dim": "latent attention (MLA)",
    "mamba": "a state-space layer",
    "ssm_": "a state-space layer",
    "state_size": "a state-space layer",
    "linear_attn": "linear attention",
    "linear_num_": "linear attention",
    "linear_conv_": "linear attention",
    "full_attention_interval": "linear attention",
    "hybrid_override_pattern": "a hybrid of layers",
    "layers_block_type": "a hybrid of layers",
    "block_configs": "layers of different sizes",
    "nextn_predict": "multi-token prediction",
    "mtp_num": "multi-token prediction",
    "cross_attention": "cross-attention",
    "kv_shared_layers": "key-value sharing across layers",
    "per_layer_input": "per-layer embeddings",
    "attn_output_gate": "gated attention output",
    "bidirectional": "attention in both directions",
    "quantization_config": "quantised weights",
}
TOWERS = ("vision_config", "audio_config", "speech_config")
Kwargs = dict[str, Any]


def load_config(path: str | Path) -> dict[str, Any]:
    """The object in ``path``, a ``config.json`` or a folder that contains one. Raises InputError, one line."""
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    text = _read_text(file)
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        end = " (the file ends early)" if error.pos >= len(text.rstrip()) else ""
        raise InputError(f"{file}: line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}{end}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not a usable JSON file: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{file}: a JSON object is expected, this is {_kind(config)}")
    return config


def model_from_config(config: dict[str, Any], where: str, name: str) -> tuple[Model, list[str]]:
    """The Model that ``config`` describes, and what of it is left out (the vision tower of a multimodal model).

    Parameters: config, as read by load_config; where, the file named in errors; name, the model's name.
    Raises InputError for a field that is missing or wrong, UnsupportedError for what ironlaw does not model.

    >>> config = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
    >>> model, left_out = model_from_config(config, "config.json", "small")
    >>> model.intermediate_size, left_out
    (3072, [])
    """
    if not isinstance(config, dict):
        raise InputError(f"{where}: a JSON object is expected, this is {_kind(config)}")
    _refuse_encoders(config, where)
    text, left_out = _text_tower(config, where)
    _refuse_encoders(text.config, where)
    _refuse_foreign(text)
    model_type = text.text("model_type")
    if model_type not in READERS:
        raise UnsupportedError(f"{where}: model_type {model_type!r} is not understood; understood: {', '.join(sorted(READERS))}")
    kwargs = READERS[model_type](text)
    return Model(name=name, title=name, family=model_type, **kwargs), left_out


class Fields:
    """The fields of one config, each read with its type checked; errors name the field, the value and the file."""

    def __init__(self, config: dict[str, Any], where: str, prefix: str = "") -> None:
        self.config, self.where, self.prefix = config, where, prefix

    def size(self, *names: str, default: int | None = None) -> int:
        """A whole number above zero, under the first of ``names`` that the file has."""
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise InputError(f"{self.where}: required field '{self.prefix}{names[0]}' is missing")
            return default
        whole = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        if isinstance(value, bool) or not whole or not 0 < value <= LARGEST_COUNT or value != int(value):
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {_shown(value)}, a whole number above 0 is expected")
        return int(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self.config.get(name)
        if value is None:
            if default is None:
                raise InputError(f"{self.where}: required field '{self.prefix}{name}' is missing")
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {_shown(value)}, true or false is expected")
        return value

    def text(self, *names: str, default: str | None = None) -> str:
        """A string, under the first of ``names`` that the file has."""
        name, value = self._find(names)
        if value is None and default is not None:
            return default
        if value is None:
            raise InputError(f"{self.where}: required field '{self.prefix}{names[0]}' is missing")
        if not isinstance(value, str):
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {_shown(value)}, a text is expected")
        return value

    def any_dropout(self, *names: str, default: float = 0.0) -> bool:
        """Whether one of the dropout rates is above zero."""
        rates = [self._rate(name, default) for name in names]
        return any(rate > 0.0 for rate in rates)

    def inner(self, name: str) -> Fields:
        """The object under ``name``; an absent one is empty."""
        value = self.config.get(name)
        if value is not None and not isinstance(value, dict):
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {_shown(value)}, an object is expected")
        return Fields(value or {}, self.where, f"{self.prefix}{name}.")

    def refuse(self, name: str, because: str) -> UnsupportedError:
        """The error for a field that is understood and not modelled."""
        return UnsupportedError(f"{self.where}: field '{self.prefix}{name}' = {_shown(self.config.get(name))} is not understood: {because}")

    def _find(self, names: tuple[str, ...]) -> tuple[str, Any]:
        present = [name for name in names if self.config.get(name) is not None]
        return (present[0], self.config[present[0]]) if present else (names[0], None)

    def _rate(self, name: str, default: float) -> float:
        value = self.config.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
            raise InputError(f"{self.where}: field '{self.prefix}{name}' is {_shown(value)}, a rate from 0 to 1 is expected")
        return float(value)


# --- one function a model_type -------------------------------------------------------------------------------------


def _gpt2(f: Fields) -> Kwargs:
    hidden = f.size("n_embd", "hidden_size")
    return (
        _multi_head(f, hidden, f.size("n_head", "num_attention_heads"))
        | _BIASED
        | {
            "num_hidden_layers": f.size("n_layer", "num_hidden_layers"),
            "intermediate_size": f.size("n_inner", default=4 * hidden),
            "vocab_size": f.size("vocab_size"),
            "max_position_embeddings": f.size("n_positions", "n_ctx"),
            "tie_word_embeddings": f.flag("tie_word_embeddings", True),
            "hidden_act": _act(f.text("activation_function", default="gelu_new")),
            "position_embedding": "learned",
            "dropout": f.any_dropout("resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.1),
        }
    )


def _opt(f: Fields) -> Kwargs:
    hidden = f.size("hidden_size")
    if f.size("word_embed_proj_dim", default=hidden) != hidden:
        raise f.refuse("word_embed_proj_dim", "embeddings narrower than the model")
    if not f.flag("do_layer_norm_before", True):
        raise f.refuse("do_layer_norm_before", "norms after the blocks and none at the end")
    for name in ("enable_bias", "layer_norm_elementwise_affine"):
        if not f.flag(name, True):
            raise f.refuse(name, "OPT without biases or without norm weights")
    return (
        _multi_head(f, hidden, f.size("num_attention_heads"))
        | _BIASED
        | {
            "num_hidden_layers": f.size("num_hidden_layers"),
            "intermediate_size": f.size("ffn_dim"),
            "vocab_size": f.size("vocab_size"),
            "max_position_embeddings": f.size("max_position_embeddings"),
            "tie_word_embeddings": f.flag("tie_word_embeddings", True),
            "hidden_act": _act(f.text("activation_function", default="relu")),
            "position_embedding": "learned",
            "dropout": f.any_dropout("dropout", default=0.1),
        }
    )


def _bloom(f: Fields) -> Kwargs:
    hidden = f.size("hidden_size", "n_embed")
    return (
        _multi_head(f, hidden, f.size("n_head", "num_attention_heads"))
        | _BIASED
        | {
            "num_hidden_layers": f.size("n_layer", "num_hidden_layers"),
            "intermediate_size": f.size("n_inner", default=4 * hidden),
            "vocab_size": f.size("vocab_size"),
            "max_position_embeddings": f.size("seq_length", default=2048),
            "tie_word_embeddings": f.flag("tie_word_embeddings", True),
            "hidden_act": "gelu",
            "position_embedding": "alibi",
            "embedding_norm": True,
            "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
        }
    )


def _mpt(f: Fields) -> Kwargs:
    hidden, attention = f.size("d_model"), f.inner("attn_config")
    if attention.text("attn_type", default="multihead_attention") != "multihead_attention":
        raise attention.refuse("attn_type", "only multihead_attention is")
    for name in ("qk_ln", "qk_gn", "rope"):
        if attention.flag(name, False):
            raise attention.refuse(name, "MPT with norms of q and k or with rotary positions")
    ffn = f.inner("ffn_config")
    if ffn.text("ffn_type", default="mptmlp") != "mptmlp":
        raise ffn.refuse("ffn_type", "only mptmlp is")
    alibi, bias = attention.flag("alibi", True), not f.flag("no_bias")
    if not alibi and not f.flag("learned_pos_emb", True):
        raise f.refuse("learned_pos_emb", "neither alibi nor learned positions")
    return _multi_head(f, hidden, f.size("n_heads")) | {
        "num_hidden_layers": f.size("n_layers"),
        "intermediate_size": f.size("expansion_ratio", default=4) * hidden,
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": f.size("max_seq_len"),
        "tie_word_embeddings": f.flag("tie_word_embeddings", True),
        "gated_mlp": False,
        "hidden_act": "gelu",
        "norm": "layernorm" if bias else "layernorm-no-bias",
        "position_embedding": "alibi" if alibi else "learned",
        "query_key_value_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": bias,
        "dropout": f.any_dropout("resid_pdrop", "emb_pdrop"),
    }


def _gpt_neox(f: Fields) -> Kwargs:
    bias = f.flag("attention_bias", True)
    return _rotary(f, tie=False) | {
        "gated_mlp": False,
        "norm": "layernorm",
        "query_key_value_bias": bias,
        "attention_output_bias": bias,
        "mlp_bias": True,
        "dropout": f.any_dropout("hidden_dropout", "attention_dropout"),
    }


def _llama(f: Fields) -> Kwargs:
    return _rotary(f, tie=False) | _attention_bias(f) | {"mlp_bias": f.flag("mlp_bias", False)} | _layer_types(f, 0)


def _nemotron(f: Fields) -> Kwargs:
    return _llama(f) | {"gated_mlp": False, "norm": "layernorm", "hidden_act": _act(f.text("hidden_act", default="relu2"))}


def _mistral(f: Fields) -> Kwargs:
    return _rotary(f, tie=False) | _layer_types(f, f.size("num_hidden_layers"))


def _phi3(f: Fields) -> Kwargs:
    return _mistral(f) | {"dropout": f.any_dropout("resid_pdrop", "embd_pdrop", "attention_dropout")}


def _qwen2(f: Fields) -> Kwargs:
    return _rotary(f, tie=False) | {"query_key_value_bias": True} | _qwen_window(f)


def _qwen3(f: Fields) -> Kwargs:
    return _rotary(f, tie=False, head_dim=128) | _attention_bias(f) | {"qk_norm": True} | _qwen_window(f)


def _gemma(f: Fields) -> Kwargs:
    return _rotary(f, tie=True, head_dim=256) | _attention_bias(f) | {"hidden_act": "gelu"}


def _gemma2(f: Fields) -> Kwargs:
    layers = f.size("num_hidden_layers")
    return _gemma(f) | {"norms_per_layer": 4} | _layer_types(f, layers - layers // 2)


def _gemma3(f: Fields) -> Kwargs:
    defaults = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072}
    present = {key: value for key, value in f.config.items() if value is not None}
    f = Fields(defaults | present, f.where, f.prefix)
    layers = f.size("num_hidden_layers")
    windowed = _layer_types(f, layers - layers // f.size("sliding_window_pattern", "_sliding_window_pattern", default=6))
    return _gemma(f) | {"norms_per_layer": 4, "qk_norm": True} | windowed


READERS: dict[str, Callable[[Fields], Kwargs]] = {
    "bloom": _bloom,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _mistral,
    "mpt": _mpt,
    "nemotron": _nemotron,
    "opt": _opt,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_5_vl_text": _qwen2,
    "qwen3": _qwen3,
    "qwen3_vl_text": _qwen3,
}


# --- what they share -----------------------------------------------------------------------------------------------

_BIASED: Kwargs = {
    "gated_mlp": False,
    "norm": "layernorm",
    "query_key_value_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
}


def _multi_head(f: Fields, hidden: int, heads: int) -> Kwargs:
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": _divided(f, hidden, heads),
    }


def _rotary(f: Fields, tie: bool, head_dim: int | None = None) -> Kwargs:
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
        "hidden_act": _act(f.text("hidden_activation", "hidden_act", default="silu")),
        "dropout": f.any_dropout("attention_dropout"),
    }


def _attention_bias(f: Fields) -> Kwargs:
    bias = f.flag("attention_bias", False)
    return {"query_key_value_bias": bias, "attention_output_bias": bias}


def _qwen_window(f: Fields) -> Kwargs:
    if not f.flag("use_sliding_window", False):
        return {}
    layers = f.size("num_hidden_layers")
    full = min(layers, f.size("max_window_layers")) if f.config.get("max_window_layers") != 0 else 0
    return _layer_types(f, layers - full)


def _layer_types(f: Fields, local_layers: int) -> Kwargs:
    """Window and count of local layers: from ``layer_types`` where the file lists them, else ``local_layers``."""
    listed = f.config.get("layer_types")
    if listed is not None:
        local_layers = _count_local(f, listed)
    if f.config.get("sliding_window") is None or local_layers == 0:
        return {}
    return {"sliding_window": f.size("sliding_window"), "sliding_window_layers": local_layers}


def _count_local(f: Fields, listed: Any) -> int:
    layers = f.size("num_hidden_layers")
    if not isinstance(listed, list) or len(listed) != layers:
        raise InputError(f"{f.where}: field '{f.prefix}layer_types' is expected to be a list of {layers} texts")
    for kind in listed:
        if kind not in ("full_attention", "sliding_attention"):
            raise UnsupportedError(f"{f.where}: field '{f.prefix}layer_types' holds {_shown(kind)}, which is not understood")
    return listed.count("sliding_attention")


def _divided(f: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise InputError(f"{f.where}: hidden size {hidden} is not a multiple of {heads} attention heads and no head_dim is given")
    return hidden // heads


def _act(name: str) -> str:
    return "gelu" if name.startswith("gelu") else {"swish": "silu"}.get(name, name)


def _refuse_encoders(config: dict[str, Any], where: str) -> None:
    named = config.get("model_type")
    model_type = named if isinstance(named, str) else ""
    advice = "ironlaw models decoder-only transformers"
    if config.get("is_encoder_decoder") is True or model_type in ENCODER_DECODERS:
        raise UnsupportedError(f"{where}: model_type {_shown(named)} is an encoder-decoder, {advice}")
    if model_type in ENCODERS:
        raise UnsupportedError(f"{where}: model_type {_shown(named)} is an encoder, {advice}")


def _text_tower(config: dict[str, Any], where: str) -> tuple[Fields, list[str]]:
    """The fields of the language model, and the towers beside it."""
    outer = Fields(config, where)
    if config.get("text_config") is None:
        towers = [name for name in TOWERS if config.get(name)]
        if towers:
            raise outer.refuse(towers[0], "a tower beside the language model, and no text_config")
        return outer, []
    text = outer.inner("text_config")
    for name in ("tie_word_embeddings", "quantization_config"):
        if name not in text.config and name in config:
            text.config = text.config | {name: config[name]}
    left_out = []
    for name in TOWERS:
        if config.get(name):
            kind = outer.inner(name).text("model_type", default="unnamed")
            left_out.append(f"{name.removesuffix('_config')} tower ({kind})")
    return text, left_out


def _refuse_foreign(f: Fields) -> None:
    for key, value in f.config.items():
        for part, meaning in FOREIGN.items():
            if part in key and value not in (None, 0, "", False, [], {}):
                raise f.refuse(key, f"it announces {meaning}")


def _read_text(file: Path) -> str:
    try:
        if not file.is_file():
            raise InputError(f"{file}: no such file")
        if file.stat().st_size > SIZE_LIMIT:
            raise InputError(f"{file}: larger than {SIZE_LIMIT // 1_000_000} MB, this is no config.json")
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{file}: not a text file in UTF-8") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from None


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number", type(None): "null"}
    return names.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) > LARGEST_COUNT**2:
        return "a number of astronomical size"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
