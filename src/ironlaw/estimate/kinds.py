"""The kinds of layer a model mixes, and how many of each a pipeline stage holds.

A dense model has one kind. A mixture of experts may start with dense layers and route the rest, or route every so many;
layers that predict further tokens stand at the end, on the stage with the output layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ironlaw.catalog.records import Model
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
    found = _single_blocks(model) if model.one_block_layers else _mixed(_by_mlp(model), model)
    if model.frozen_layers:
        found = _frozen(found, model)
    if model.num_nextn_predict_layers:
        mlp = "routed" if model.num_experts else "dense"
        found.append(Kind("layers for further tokens", float(model.num_nextn_predict_layers), mlp, "end"))
    return tuple(k for k in found if k.count > 0)


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
        return (stage.head if stage.further is None else stage.further) * kind.count
    if stage.halves is not None and any(k.place == "front" for k in kinds(model)):
        one, other = (layers_of(half, kind, model) for half in stage.halves)
        return 0.5 * (one + other)
    front = next((k.count for k in kinds(model) if k.place == "front"), 0.0)
    in_front = np.clip(front - stage.start, 0.0, stage.layers)
    if kind.place == "front":
        return in_front
    return (stage.layers - in_front) * (kind.count / (model.num_hidden_layers - front))
