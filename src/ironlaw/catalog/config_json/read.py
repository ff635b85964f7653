"""Read a Hugging Face ``config.json`` into a Model.

A field that is not read and may change the number of parameters is refused, never guessed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.model_types import DENSE, ENCODER_DECODERS, ENCODERS, NOT_MODELLED, READERS, TWO_STACKS
from ironlaw.catalog.config_json.unread import refuse_unread
from ironlaw.catalog.model import Model, Tower
from ironlaw.errors import InputError, UnsupportedError, quote
from ironlaw.files import is_folder, read_text

SIZE_LIMIT = 5_000_000  # bytes; real configs have a few kilobytes
STORAGE = ("quantization_config", "compression_config")  # how released weights are stored, not how they are trained
TEXT_CONFIGS = ("text_config", "llm_config", "language_config")
FLAT = {"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2"}  # type -> type of its language model, where the file has no text_config
TOWERS = ("vision_config", "audio_config", "speech_config")
# fields beside text_config that say how towers and projectors feed the language model begin with one of these words
_OF_TOWERS = "audio downsample image media mm multimodal out projection projector select spatial speech video vision visual vit "
OF_TOWERS = frozenset(_OF_TOWERS.split())


def load_config(path: str | Path) -> dict[str, Any]:
    """The object in ``path``, a ``config.json`` or a folder that contains one. Raises InputError, one line."""
    file = Path(path)
    file = file / "config.json" if is_folder(file) else file
    text = read_text(file, "a config.json", SIZE_LIMIT)
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        end = " (the file ends early)" if error.pos >= len(text.rstrip()) else ""
        raise InputError(f"{file}: line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}{end}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not a usable JSON file: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{file}: is {quote(config)}, expected a JSON object")
    return config


def model_from_config(config: dict[str, Any], where: str, name: str) -> tuple[Model, list[str]]:
    """The Model that ``config`` describes, and what it leaves out (a vision tower, the storage format of released weights).

    Parameters: config, as read by load_config; where, the file to name in errors; name, the model's name.
    Raises InputError for a field that is missing or wrong, UnsupportedError for what ironlaw does not model.

    >>> config = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
    >>> model, left_out = model_from_config(config, "config.json", "small")
    >>> model.intermediate_size, left_out
    (3072, [])
    """
    if not isinstance(config, dict):
        raise InputError(f"{where}: is {quote(config)}, expected a JSON object")
    _refuse_type(config, where)
    text, left_out, outer = _find_language_model(config, where)
    _refuse_type(text.config, where)
    model_type = text.text("model_type")
    if model_type not in READERS:
        from ironlaw.catalog.config_json.near import unknown_type

        raise unknown_type(text.config, where, text.prefix)
    try:
        kwargs = READERS[model_type](text)
    except InputError:
        if model_type in DENSE:  # a field may be missing because the model is of another architecture
            refuse_unread(text, rare_only=True)
        raise
    refuse_unread(text)
    read, unread = _read_towers(outer, kwargs["hidden_size"])
    kwargs["towers"] = (*read, *kwargs.get("towers", ()))
    if outer is not text:
        unread += _copies(outer, text)
        refuse_unread(outer)
    return Model(name=name, title=name, family=model_type, **kwargs), left_out + unread + text.left_out


def _refuse_type(config: dict[str, Any], where: str) -> None:
    """Refuse an architecture that no Model describes, by its ``model_type``, or by the class name of a diffusion model."""
    if "model_type" not in config and isinstance(name := config.get("_class_name"), str):
        raise UnsupportedError(f"{where}: {quote(name)} is a model of the diffusers library; diffusion is not modelled")
    stated = config.get("model_type")
    model_type = stated if isinstance(stated, str) else ""
    if model_type in TWO_STACKS:
        return
    advice = "ironlaw models decoders, and of the others the types listed in docs/how-to/add-a-model.md"
    if config.get("is_encoder_decoder") is True or model_type in ENCODER_DECODERS:
        raise UnsupportedError(f"{where}: model_type {quote(stated)} is an encoder-decoder, {advice}")
    if model_type in ENCODERS:
        raise UnsupportedError(f"{where}: model_type {quote(stated)} is an encoder, {advice}")
    if model_type in NOT_MODELLED:
        raise UnsupportedError(f"{where}: not modelled: {NOT_MODELLED[model_type]} (model_type {model_type!r})")


def _find_language_model(config: dict[str, Any], where: str) -> tuple[Fields, list[str], Fields]:
    """The fields of the language model, what the file says of storage alone, and the fields of the file that has the towers."""
    outer = Fields(config, where)
    inside = next((name for name in TEXT_CONFIGS if config.get(name) is not None), None)
    if inside is None:
        towers = [name for name in TOWERS if config.get(name)]
        flat = FLAT.get(outer.text("model_type", default=""))
        if not flat:
            if towers:
                raise outer.refuse(towers[0], "a tower in a config without text_config")
            return outer, _storage(config), outer
        # language model and tower share one object, of which the first reads all but the tower
        text = Fields({key: value for key, value in config.items() if key not in TOWERS} | {"model_type": flat}, where)
        outer.ignore(*text.config)
        return text, _storage(config), outer
    text = outer.inner(inside)
    lines = _storage(config | text.config)
    inner, tied = text.config.get("tie_word_embeddings"), config.get("tie_word_embeddings")
    if tied is not None:  # transformers 5 ties the embeddings that the outer file ties
        text = text.with_values({"tie_word_embeddings": tied})
        if inner is not None and inner != tied:
            lines.append(f"{inside}.tie_word_embeddings {inner} (the outer field, {tied}, counts, as in transformers 5)")
    return text, lines, outer


def _read_towers(outer: Fields, text_width: int) -> tuple[list[Tower], list[str]]:
    """The towers of a file, and a line for each: a job has none unless the question gives it images or audio."""
    read, lines = [], []
    for name in TOWERS:
        outer.ignore(name)
        if not outer.config.get(name):
            continue
        from ironlaw.catalog.config_json import towers

        fields, kind = outer.inner(name), name.removesuffix("_config")
        model_type = fields.text("model_type", default=outer.text("model_type", default=""))
        lines.append(f"{kind} tower ({model_type or 'unnamed'})")
        reader = towers.reader_of(model_type)
        try:
            tower = reader(fields, outer, text_width) if reader else None
        except InputError:  # without a tower a question that gives it images is refused
            tower = None
        if tower is None:
            fields.ignore(*fields.config)  # left out whole
        else:
            read.append(tower)
    return read, lines


def _copies(outer: Fields, text: Fields) -> list[str]:
    """Accept fields beside the language model that belong to the towers, or repeat a size of its own; a line for each other size."""
    outer.ignore("model_type", "tie_word_embeddings")
    lines, towers = [], [name for name in TOWERS if outer.config.get(name)]
    for name, value in outer.config.items():
        plain = not isinstance(value, dict)
        if plain and towers and name.partition("_")[0] in OF_TOWERS:
            outer.ignore(name)
        elif plain and name in text.read and name in text.config and name not in outer.read:
            outer.ignore(name)
            if value is not None and value != text.config[name]:
                lines.append(f"{name} {quote(value)} beside the language model, which has {quote(text.config[name])}")
    return lines


def _storage(config: dict[str, Any]) -> list[str]:
    return [f"{name} (released weights' storage)" for name in STORAGE if config.get(name)]
