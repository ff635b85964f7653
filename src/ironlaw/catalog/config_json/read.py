"""A Hugging Face ``config.json`` becomes a Model, or one line that names the field and the file.

What would change the count of parameters and is not understood is refused, never guessed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ironlaw.catalog.config_json.fields import Fields, shown
from ironlaw.catalog.config_json.hybrid_readers import HYBRID_READERS
from ironlaw.catalog.config_json.layer_readers import LAYER_READERS
from ironlaw.catalog.config_json.moe_readers import MOE_READERS
from ironlaw.catalog.config_json.more_moe_readers import MORE_MOE_READERS
from ironlaw.catalog.config_json.more_readers import MORE_DENSE_READERS
from ironlaw.catalog.config_json.readers import DENSE_READERS
from ironlaw.catalog.config_json.unread import refuse_unread
from ironlaw.catalog.model import Model
from ironlaw.errors import InputError, UnsupportedError, nearest_names

PLAIN = DENSE_READERS | MORE_DENSE_READERS
READERS = DENSE_READERS | MORE_DENSE_READERS | MOE_READERS | MORE_MOE_READERS | HYBRID_READERS | LAYER_READERS
SIZE_LIMIT = 5_000_000  # bytes; real configs hold a few kilobytes

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
STORAGE = ("quantization_config", "compression_config")  # how released weights are stored, not how they are trained
TEXTS = ("text_config", "llm_config", "language_config")
FLAT = {"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2"}  # which type their language model has where no text_config says so
TOWERS = ("vision_config", "audio_config", "speech_config")


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
    """The Model that ``config`` describes, and what of it is left out (a vision tower, the storage format of released weights).

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
    model_type = text.text("model_type")
    if model_type not in READERS:
        refuse_unread(text, rare_only=True)
        near = ", ".join(nearest_names(model_type, READERS)) or f"any of {len(READERS)}, which docs/how-to/add-a-model.md lists"
        raise UnsupportedError(f"{where}: model_type {model_type!r} is not understood; nearest understood: {near}")
    try:
        kwargs = READERS[model_type](text)
    except InputError:
        if model_type in PLAIN:  # what is missing may be due to what is there: a field of another architecture
            refuse_unread(text, rare_only=True)
        raise
    refuse_unread(text)
    return Model(name=name, title=name, family=model_type, **kwargs), left_out + text.left_out


def _refuse_encoders(config: dict[str, Any], where: str) -> None:
    named = config.get("model_type")
    model_type = named if isinstance(named, str) else ""
    advice = "ironlaw models decoder-only transformers"
    if config.get("is_encoder_decoder") is True or model_type in ENCODER_DECODERS:
        raise UnsupportedError(f"{where}: model_type {shown(named)} is an encoder-decoder, {advice}")
    if model_type in ENCODERS:
        raise UnsupportedError(f"{where}: model_type {shown(named)} is an encoder, {advice}")


def _text_tower(config: dict[str, Any], where: str) -> tuple[Fields, list[str]]:
    """The fields of the language model, and the towers beside it."""
    outer = Fields(config, where)
    inside = next((name for name in TEXTS if config.get(name) is not None), None)
    if inside is None:
        towers = [name for name in TOWERS if config.get(name)]
        flat = FLAT.get(outer.text("model_type", default=""))
        if towers and not flat:
            raise outer.refuse(towers[0], "a tower beside the language model, and no text_config")
        left_out = _storage(config) + _towers(outer)
        if flat:  # the fields of the language model stand beside those of the tower
            outer = Fields({key: value for key, value in config.items() if key not in TOWERS} | {"model_type": flat}, where)
        return outer, left_out
    text = outer.inner(inside)
    if "tie_word_embeddings" not in text.config and "tie_word_embeddings" in config:
        text.config = text.config | {"tie_word_embeddings": config["tie_word_embeddings"]}
    return text, _storage(config | text.config) + _towers(outer)


def _towers(outer: Fields) -> list[str]:
    made = []
    for name in TOWERS:
        if outer.config.get(name):
            kind = outer.inner(name).text("model_type", default="") or "unnamed"
            made.append(f"{name.removesuffix('_config')} tower ({kind})")
    return made


def _storage(config: dict[str, Any]) -> list[str]:
    return [f"{name} (released weights' storage)" for name in STORAGE if config.get(name)]


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
