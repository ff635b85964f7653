"""The kinds of layer a model mixes, and how many of each a pipeline stage holds.

A dense model has one kind. A mixture of experts may start with dense layers and route the rest, or route every so many;
layers that predict further tokens stand at the end, on the stage with the output layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.catalog.records import Model
from ironlaw.estimate.stages import Stage


@dataclass(frozen=True)
class Kind:
    """Layers that are alike: how many the model has, whether their MLP is routed, and where they stand."""

    name: str
    count: float
    routed: bool = False
    place: str = "spread"  # front | spread | end


def kinds(model: Model) -> tuple[Kind, ...]:
    """The kinds of layer of a model, those at the front first."""
    if not model.num_experts:
        found = [Kind("layers", float(model.num_hidden_layers))]
    else:
        front = min(model.first_k_dense_replace, model.num_hidden_layers)
        behind = model.num_hidden_layers - front
        routed = behind // model.moe_layer_freq
        found = [
            Kind("dense layers at the front", float(front), place="front"),
            Kind("dense layers", float(behind - routed)),
            Kind("routed layers", float(routed), routed=True),
        ]
    if model.num_nextn_predict_layers:
        found.append(Kind("layers for further tokens", float(model.num_nextn_predict_layers), bool(model.num_experts), "end"))
    return tuple(k for k in found if k.count > 0)


def layers_of(stage: Stage, kind: Kind, model: Model) -> Any:
    """Layers of ``kind`` a stage holds: front ones where the stage starts early enough, spread ones in proportion."""
    if kind.place == "end":
        return stage.head * kind.count
    front = next((k.count for k in kinds(model) if k.place == "front"), 0.0)
    in_front = np.clip(front - stage.start, 0.0, stage.layers)
    if kind.place == "front":
        return in_front
    return (stage.layers - in_front) * (kind.count / (model.num_hidden_layers - front))
