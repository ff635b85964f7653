"""The kinds of layer a model mixes, and how many of each a pipeline stage holds.

A dense model has one kind. A mixture of experts may start with dense layers and route the rest, or route every so many;
layers that predict further tokens stand at the end, on the stage with the output layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ironlaw.catalog.model import LayerGroup, Model
from ironlaw.estimate.stages import Stage


@dataclass(frozen=True)
class Kind:
    """Layers that are alike: how many the model has, what mixes their tokens, what MLP they have, where they stand."""

    name: str
    count: float
    mlp: str = "dense"  # dense | routed | none
    place: str = "spread"  # front | spread | end
    mixer: str = "attention"  # attention | linear | mamba | none
    trained: bool = True  # False: forward only, nothing kept for a backward
    sizes: tuple[tuple[str, Any], ...] = ()  # what these layers have of their own, by field of a Model

    @property
    def routed(self) -> bool:
        """True where the MLP is a mixture of experts."""
        return self.mlp == "routed"

    @property
    def blocks(self) -> float:
        """Residual blocks of a layer: mixer and MLP, or one of them."""
        return float(self.mixer != "none") + float(self.mlp != "none")


@lru_cache(256)
def kinds(model: Model) -> tuple[Kind, ...]:
    """The kinds of layer of a model, those at the front first, those for further tokens last."""
    if model.layer_groups:
        found = [_group(group, model) for group in model.layer_groups]
    else:
        found = _single_blocks(model) if model.one_block_layers else _mixed(_by_mlp(model), model)
    if model.frozen_layers:
        found = _frozen(found, model)
    if model.num_nextn_predict_layers:
        mlp = "routed" if model.num_experts else "dense"
        found.append(Kind("layers for further tokens", float(model.num_nextn_predict_layers), mlp, "end"))
    return tuple(k for k in found if k.count > 0)


@lru_cache(1024)
def sized(model: Model, kind: Kind) -> Model:
    """The model with the sizes that layers of a kind have; the model itself where all its layers have the same."""
    return model.replace(**dict(kind.sizes)) if kind.sizes else model


def values_of(model: Model, field: str) -> tuple[int, ...]:
    """The values that a size takes in a model's layers."""
    found = {getattr(sized(model, kind), field) for kind in kinds(model)}
    return tuple(sorted(found))


_OWN = ("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")


def _group(group: LayerGroup, model: Model) -> Kind:
    """Layers with sizes of their own, named by what sets them apart."""
    own = {field: getattr(group, field) for field in _OWN if getattr(group, field) not in (0, getattr(model, field))}
    words = [f"{_SHORT[field]} {value}" for field, value in own.items()]
    words += [f"window {group.sliding_window}"] if group.sliding_window else []
    parts = {"linear": "linear-attention ", "mamba": "mamba ", "none": "attention-free "}.get(group.mixer, "")
    parts += {"routed": "routed ", "none": "MLP-free "}.get(group.mlp, "")
    name = f"{parts}layers" + (f" ({', '.join(words)})" if words else "")
    own |= {"sliding_window": group.sliding_window, "sliding_window_layers": model.num_hidden_layers if group.sliding_window else 0}
    own |= {"attention_k_eq_v": group.attention_k_eq_v, "attention_sinks": group.attention_sinks}
    return Kind(name, float(group.count), group.mlp, mixer=group.mixer, sizes=tuple(own.items()))


_SHORT = {"num_attention_heads": "heads", "num_key_value_heads": "key-value heads", "head_dim": "head_dim", "intermediate_size": "MLP"}


def _by_mlp(model: Model) -> list[Kind]:
    """Dense or routed, by the model's rule; a model of one expert is dense."""
    if not model.num_experts:
        return [Kind("layers", float(model.num_hidden_layers))]
    front = min(model.first_k_dense_replace, model.num_hidden_layers)
    behind = model.num_hidden_layers - front
    routed = behind // model.moe_layer_freq
    return [
        Kind("dense layers at the front", float(front), place="front"),
        Kind("dense layers", float(behind - routed)),
        Kind("routed layers", float(routed), "routed"),
    ]


def _frozen(found: list[Kind], model: Model) -> list[Kind]:
    """The first layers of a model of one kind, untrained; the rest as they were."""
    (kind,) = (k for k in found if k.count > 0)
    frozen = float(min(model.frozen_layers, model.num_hidden_layers))
    rest = replace(kind, count=kind.count - frozen)
    return [replace(kind, name="frozen layers", count=frozen, place="front", trained=False), rest]


def _mixed(found: list[Kind], model: Model) -> list[Kind]:
    """Each spread kind split into layers that attend and layers that keep a state instead, in the model's proportion."""
    spread = sum(kind.count for kind in found if kind.place == "spread")
    linear = min(model.linear_attention_layers / spread, 1.0) if spread else 0.0
    if not linear:
        return found
    made = []
    for kind in found:
        if kind.place != "spread":
            made.append(kind)
            continue
        made.append(replace(kind, count=kind.count * (1.0 - linear)))
        made.append(replace(kind, name=f"linear-attention {kind.name}", count=kind.count * linear, mixer="linear"))
    return made


def _single_blocks(model: Model) -> list[Kind]:
    """Layers that are one block each."""
    return [
        Kind("mamba layers", float(model.mamba_layers), "none", mixer="mamba"),
        Kind("attention layers", float(model.attention_layers), "none"),
        Kind("mlp layers", float(model.mlp_layers), mixer="none"),
        Kind("routed layers", float(model.routed_layers), "routed", mixer="none"),
    ]


def layers_of(stage: Stage, kind: Kind, model: Model) -> Any:
    """Layers of ``kind`` a stage holds: front ones where the stage starts early enough, spread ones in proportion."""
    if kind.place == "end":
        return stage.head * kind.count
    front = next((k.count for k in kinds(model) if k.place == "front"), 0.0)
    in_front = np.clip(front - stage.start, 0.0, stage.layers)
    if kind.place == "front":
        return in_front
    return (stage.layers - in_front) * (kind.count / (model.num_hidden_layers - front))
