"""The model of a question: its record, with the changes that options make."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.config_json.dimensions import assumed_dimensions, model_from_dimensions
from ironlaw.catalog.model import Model
from ironlaw.errors import CatalogError, InputError, QuestionError, UnknownNameError, UnsupportedError, ValueRangeError, quote
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.estimate.layer.mixers import MIXERS
from ironlaw.files import is_folder, is_there, read_text
from ironlaw.law import scaling
from ironlaw.precision import Precision
from ironlaw.question import defaults
from ironlaw.question.asked import Asked
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.trainer_files import trainer_of
from ironlaw.question.words import Interpreted, PerParameter


def bind_model(named: Any, folders: tuple[str, ...] = ()) -> tuple[Model, list[str]]:
    """The model a question names: a catalogue name, a config.json, or dimensions; and the parts of it that are not modelled."""
    named = os.fspath(named) if isinstance(named, os.PathLike) else named
    if not isinstance(named, (str, Mapping)):
        raise ValueRangeError(f"model is {quote(named)}, must be a name")
    if not isinstance(named, str) or _is_dimensions(named):
        return model_from_dimensions(named), []
    path = Path(os.path.expanduser(named))
    if path.suffix in (".yaml", ".yml") and is_there(path) and (known := trainer_of(read_text(path, "a model"))):
        raise InputError(f"{named}: {known}")
    if path.suffix == ".json" or (is_there(path) and ("/" in named or is_folder(path))):
        from ironlaw.catalog.config_json import read

        config = read.load_config(path)
        if "model_type" not in config and (known := trainer_of("\n".join(f"{key}:" for key in config))):
            raise InputError(f"{named}: {known}")
        name = path.parent.resolve().name if path.name == "config.json" else path.stem
        return read.model_from_config(config, str(path), name)
    try:
        model = load.record("models", named, folders)
    except UnknownNameError:
        if "/" in named:
            where = "no such file or folder, and no model of the catalogue has this name"
            raise InputError(f"{named}: {where} (a model is a catalogue name, owner/name, a config.json, or dimensions)") from None
        if listed := defaults.OPERATOR_LISTS.get(load.fold_name(named)):
            raise UnsupportedError(
                f"{named} is no language model, so it has no estimate; its FLOPs, bytes, memory and least times:"
                f" ironlaw roofline --census {listed} --on ACCELERATOR --batch N"
            ) from None
        raise
    if unknown := next((group.mixer for group in model.layer_groups if group.mixer not in MIXERS), None):
        raise CatalogError(f"model {model.name}: layer_groups: mixer is {quote(unknown)}, expected one of {', '.join(MIXERS)}")
    if not isfinite(float(total_parameters(model)) + float(active_parameters(model))):
        raise CatalogError(f"model {model.name}: its sizes give no number of parameters; is one of them 0 that must be more?")
    if model.num_experts and not 1 <= model.num_experts_per_tok <= model.num_experts:
        raise CatalogError(f"model {model.name}: num_experts_per_tok is {model.num_experts_per_tok}, must be from 1 to {model.num_experts}")
    return model, []


def assumed_of(named: Any) -> dict[str, Any]:
    """What a model from dimensions has that was not given; empty for any other."""
    return assumed_dimensions(named) if _is_dimensions(named) else {}


def _is_dimensions(named: Any) -> bool:
    return isinstance(named, Mapping) or named.startswith("hidden_size=") or ("=" in named and "," in named)


def plain_model(model: Model) -> Model:
    """A model as it is computed: one expert that every token visits is a dense MLP of its width."""
    if model.num_experts != 1 or model.shared_expert_intermediate_size:
        return model
    return model.replace(num_experts=0, num_experts_per_tok=0, intermediate_size=model.moe_intermediate_size)


def with_tokens(options: Mapping[str, Any], folders: tuple[str, ...]) -> dict[str, Any]:
    """Options whose tokens of a run are a count: tokens per parameter are multiplied by the parameters of the question."""
    asked = options.get("tokens")
    if not isinstance(asked, PerParameter):
        return dict(options)
    if "parameters" in options:
        return {**options, "tokens": count_tokens(asked, float(options["parameters"]))}
    if "model" not in options:
        raise QuestionError(f"{asked.written} is tokens per parameter: give MODEL, or tokens such as 1.4T")
    return {**options, "tokens": count_tokens(asked, float(total_parameters(plain_model(bind_model(options["model"], folders)[0]))))}


def count_tokens(asked: float | PerParameter, parameters: float) -> float:
    """Tokens of a run: as asked, or the tokens per parameter times the parameters."""
    if not isinstance(asked, PerParameter):
        return asked
    count = float(scaling.rule_tokens(parameters, asked.tokens))
    shown = units.show(count, "token"), units.show(parameters, "parameter")
    return Interpreted.of(count, asked.written, f"read as {shown[0]}, {asked.tokens:g} for each of {shown[1]}")


def trained_model(asked: Asked, model: Model, precision: Precision, assumptions: Assumptions) -> Model:
    """A model with the layers that the question freezes, adds for further tokens, or keeps in bf16."""
    model = plain_model(model)
    if asked.frozen_layers:
        model = _freeze(model, int(asked.frozen_layers))
    if asked.mtp_layers is not None:
        model = model.replace(num_nextn_predict_layers=int(asked.mtp_layers))
    start, end = int(asked.bf16_layers_at_start), int(asked.bf16_layers_at_end)
    if precision.narrow:
        model = model.replace(wide_parts=precision.wide_parts)
        if not {"bf16_layers_at_start", "bf16_layers_at_end"} & asked.given.keys():
            start, end = (round(share * model.num_hidden_layers) for share in (precision.wide_at_start, precision.wide_at_end))
            if start or end:
                assume(assumptions, "layers in bf16", f"first {start}, last {end}, as {precision.name}", "default")
    return _keep_wide(model, precision, start, end) if start or end else model


def _freeze(model: Model, layers: int) -> Model:
    """A model whose first ``layers`` layers are not trained."""
    if layers >= model.num_hidden_layers:
        raise ValueRangeError(
            f"--frozen-layers {layers} leaves none of the {model.num_hidden_layers} layers to train (--lora-rank trains adapters)"
        )
    return model.replace(frozen_layers=layers)


def _keep_wide(model: Model, precision: Precision, start: int, end: int) -> Model:
    """A model whose first and last layers stay in bf16 where the precision is narrow."""
    if not precision.narrow:
        raise QuestionError(f"--bf16-layers-at-start and --bf16-layers-at-end need a narrow precision such as fp8, got {precision.name}")
    if start + end > model.num_hidden_layers:
        raise ValueRangeError(
            f"{start} layers in bf16 at the start and {end} at the end are more than the model's {model.num_hidden_layers}"
        )
    if model.frozen_layers:
        raise UnsupportedError("--bf16-layers-at-start and --bf16-layers-at-end do not go with --frozen-layers in this version")
    return model.replace(wide_layers_at_start=start, wide_layers_at_end=end)
