"""The kinds of layer a model mixes, and how many of each a pipeline stage holds.

A dense model has one kind. A mixture of experts may start with dense layers and route the rest, or route one layer in several;
layers that predict further tokens come last, on the stage with the output layer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ironlaw.catalog.model import LayerGroup, Model, Tower
from ironlaw.estimate.layer.mixer import Mixer
from ironlaw.estimate.layer.mixers import MIXERS
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.precision import FURTHER


class Kind(Frozen):
    """Layers that are alike: their number in the model, their mixer and MLP, and their place among the layers."""

    name: str
    count: float
    mlp: str = "dense"  # dense | routed | none
    place: str = "spread"  # front | spread | end | tower: with the embedding, on the first stage
    first: float = 0.0  # the zone of the model's layers that it shares with kinds mixed into it: from this layer
    last: float = 0.0  # to before this one
    mixer: Mixer = MIXERS["attention"]
    trained: bool = True  # False: forward only, no activations kept
    wide: bool = False  # True: kept wide where the others compute in a narrow format
    alike: float = 0.0  # layers of this kind and of its wide or narrow counterpart together; 0: there is no counterpart
    sizes: tuple[tuple[str, Any], ...] = ()  # sizes that differ from the model's, by field of a Model
    tower: Tower | None = None  # the tower that the layer belongs to, whose sizes and tokens it has

    @property
    def routed(self) -> bool:
        """True where the MLP is a mixture of experts."""
        return self.mlp == "routed"

    @property
    def has_mlp(self) -> bool:
        """True where the layer has an MLP, dense or routed."""
        return self.mlp != "none"

    @property
    def attends_along(self) -> bool:
        """True where a token of the sequence attends to the sequence: not in a tower, and not across to what a tower made."""
        return self.mixer.attends and not self.mixer.crosses and self.tower is None

    @property
    def blocks(self) -> float:
        """Residual blocks of a layer: mixer and MLP, or one of them."""
        return self.mixer.blocks + float(self.has_mlp)


@lru_cache(256)
def kinds(model: Model) -> tuple[Kind, ...]:
    """The kinds of layer of a model, those at the front first, those for further tokens last."""
    if model.layer_groups:
        listed = [_group(group, model) for group in model.layer_groups]
    else:
        listed = _single_blocks(model) if model.one_block_layers else _mixed(_by_mlp(model), model)
    listed = _frozen([_zoned(kind, listed, model) for kind in listed], float(model.frozen_layers))
    if model.wide_layers_at_start or model.wide_layers_at_end:
        listed = _kept_wide(listed, model)
    if model.num_nextn_predict_layers:
        mlp = "routed" if model.num_experts else "dense"
        mixer = next((kind.mixer for kind in listed if kind.mixer.attends), MIXERS["attention"])
        wide = FURTHER in model.wide_parts
        listed.append(Kind("multi-token-prediction layers", float(model.num_nextn_predict_layers), mlp, "end", mixer=mixer, wide=wide))
    if model.products:
        listed.append(Kind("patches", 1.0, "none", "tower", mixer=MIXERS["products"], wide=True))
    for tower in model.towers:
        listed += _of_tower(tower) if tower.items else []
    return tuple(k for k in listed if k.count > 0)


@lru_cache(1024)
def sized(model: Model, kind: Kind) -> Model:
    """The model with the sizes of layers of a kind; the model itself where all layers have one size."""
    if kind.tower is not None:
        return tower_model(model, kind.tower)
    return model.replace(**dict(kind.sizes)) if kind.sizes else model


def layer_of_kind(job: Job, plan: Plan, s: Shapes, kind: Kind) -> tuple[Job, Shapes]:
    """The job and the sizes for layers of a kind; ``job`` and ``s`` unchanged where all layers have one size."""
    if kind.tower is not None:  # no adapter beside a tower, and each item is a document of its own
        job = job.replace(lora_rank=0.0, document_length=0.0)
        plan = plan_of_kind(plan, kind)
    elif not kind.sizes:
        return job, s
    job_of_kind = job.replace(model=sized(job.model, kind))
    return job_of_kind, Shapes.of(job_of_kind, plan)


def plan_of_kind(plan: Plan, kind: Kind) -> Plan:
    """The plan with the tokens that layers of a kind compute on: a tower has items in place of sequences."""
    tower = kind.tower
    if tower is None:
        return plan
    return plan.replace(micro_batch_size=plan.micro_batch_size * tower.items, seq_len=0.0 * plan.seq_len + tower.tokens)


@lru_cache(1024)
def tower_model(model: Model, tower: Tower) -> Model:
    """A tower's layers as a model: every field that a tower does not have is the default."""
    own = {name: getattr(tower, name) for name in Tower.fields if name in Model.fields and name != "name"}
    own["num_key_value_heads"] = tower.num_key_value_heads or tower.num_attention_heads
    return Model(
        name=model.name,
        title=model.title,
        source=model.source,
        **own,
        vocab_size=model.vocab_size,
        max_position_embeddings=max(int(tower.tokens), 1),
        tie_word_embeddings=True,
        bidirectional=True,
    )


def _of_tower(tower: Tower) -> list[Kind]:
    """The layers of a tower, which stay in the wide precision, and the products before and behind them."""
    shared: dict[str, Any] = {"place": "tower", "trained": not tower.frozen, "wide": True, "tower": tower}
    ends = Kind(f"{tower.name} input and output", 1.0, "none", mixer=MIXERS["products"], **shared)
    layers = Kind(f"{tower.name} layers", float(tower.num_hidden_layers), **shared)
    return [layers, ends] if tower.products or tower.other_parameters else [layers]


def values_of(model: Model, field: str) -> tuple[int, ...]:
    """The values that a size takes in a model's layers."""
    return tuple(sorted({getattr(sized(model, kind), field) for kind in kinds(model)}))


_OWN = ("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "compress_ratio")


def _group(group: LayerGroup, model: Model) -> Kind:
    """The kind of a group of layers, named by the sizes that differ from the model's."""
    sizes = {field: getattr(group, field) for field in _OWN if getattr(group, field) not in (0, getattr(model, field))}
    words = [f"{_SHORT[field]} {value}" for field, value in sizes.items()]
    words += [f"window {group.sliding_window}"] if group.sliding_window else []
    words += [f"picking {group.index_topk}"] if group.index_topk else []
    words += ["shared keys and values"] if group.kv_shared else []
    mlp = {"routed": "routed ", "none": "MLP-free "}.get(group.mlp, "")
    name = f"{MIXERS[group.mixer].prefix}{mlp}layers" + (f" ({', '.join(words)})" if words else "")
    sizes |= {"sliding_window": group.sliding_window, "sliding_window_layers": model.num_hidden_layers if group.sliding_window else 0}
    sizes |= {"attention_k_eq_v": group.attention_k_eq_v, "attention_sinks": group.attention_sinks, "kv_shared": group.kv_shared}
    sizes |= {"index_topk": group.index_topk}
    if MIXERS[group.mixer].windowed:  # its window is the model's
        sizes = {field: value for field, value in sizes.items() if not field.startswith("sliding_window") and field != "attention_sinks"}
    if MIXERS[group.mixer].crosses:
        source = model.towers[-1]
        sizes |= {"source_tokens": source.tokens * source.items, "source_size": source.hidden_size}
    return Kind(name, float(group.count), group.mlp, mixer=MIXERS[group.mixer], sizes=tuple(sizes.items()))


_SHORT = {
    "num_attention_heads": "heads", "num_key_value_heads": "key-value heads", "head_dim": "head_dim", "intermediate_size": "MLP",
    "compress_ratio": "entries of",
}  # fmt: skip


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


def _zoned(kind: Kind, listed: list[Kind], model: Model) -> Kind:
    """A kind with its zone of the model's layers: the front, or all layers after it."""
    front = sum(k.count for k in listed if k.place == "front")
    return kind.replace(last=front) if kind.place == "front" else kind.replace(first=front, last=float(model.num_hidden_layers))


def _frozen(listed: list[Kind], layers: float) -> list[Kind]:
    """Split each kind where training begins: the first ``layers`` layers are not trained, in proportion to the kinds of their zone."""
    if not layers:
        return listed
    frozen, trained = [], []
    for kind in listed:
        cut = min(max(layers, kind.first), kind.last)
        below = kind.count * (cut - kind.first) / (kind.last - kind.first) if kind.last > kind.first else 0.0
        frozen.append(kind.replace(name=f"frozen {kind.name}", count=below, last=cut, trained=False))
        trained.append(kind.replace(count=kind.count - below, first=cut))
    return [*frozen, *trained]


def _kept_wide(listed: list[Kind], model: Model) -> list[Kind]:
    """Split each kind into layers that stay wide, at the start and the end of the model, and the others."""
    split = []
    for kind in (k for k in listed if k.count > 0):
        wide = float(_wide_layers(kind, model, 0.0, float(model.num_hidden_layers)))
        split.append(kind.replace(count=kind.count - wide, alike=kind.count))
        split.append(kind.replace(name=f"wide {kind.name}", count=wide, wide=True, alike=kind.count))
    return split


def _wide_layers(kind: Kind, model: Model, start: Any, layers: Any) -> Any:
    """Layers of a kind and its counterpart that stay wide among ``layers`` layers from ``start`` on."""
    low, high = np.maximum(start, kind.first), np.minimum(start + layers, kind.last)
    at_start = np.maximum(np.minimum(high, model.wide_layers_at_start) - low, 0.0)
    at_end = np.maximum(high - np.maximum(low, model.num_hidden_layers - model.wide_layers_at_end), 0.0)
    return (at_start + at_end) * ((kind.alike or kind.count) / (kind.last - kind.first))


def _mixed(listed: list[Kind], model: Model) -> list[Kind]:
    """Split each spread kind into attention layers and linear-attention layers, in the model's proportion."""
    spread = sum(kind.count for kind in listed if kind.place == "spread")
    linear = min(model.linear_attention_layers / spread, 1.0) if spread else 0.0
    if not linear:
        return listed
    split = []
    for kind in listed:
        if kind.place != "spread":
            split.append(kind)
            continue
        split.append(kind.replace(count=kind.count * (1.0 - linear)))
        split.append(kind.replace(name=f"linear-attention {kind.name}", count=kind.count * linear, mixer=MIXERS["linear"]))
    return split


def _single_blocks(model: Model) -> list[Kind]:
    """Layers that are one block each."""
    return [
        Kind("mamba layers", float(model.mamba_layers), "none", mixer=MIXERS["mamba"]),
        Kind("attention layers", float(model.attention_layers), "none"),
        Kind("mlp layers", float(model.mlp_layers), mixer=MIXERS["none"]),
        Kind("routed layers", float(model.routed_layers), "routed", mixer=MIXERS["none"]),
    ]


def layers_of(stage: Stage, kind: Kind, model: Model) -> Any:
    """Layers of ``kind`` on a stage: its layers in the kind's zone, times the kind's share of that zone. The stage keeps the count."""
    counted = stage.found.get((kind, model))
    if counted is None:
        counted = stage.found[kind, model] = _count_layers(stage, kind, model)
    return counted


def _count_layers(stage: Stage, kind: Kind, model: Model) -> Any:
    if kind.place == "tower":
        return stage.embedding * kind.count
    if kind.place == "end":
        return (stage.head if stage.further is None else stage.further) * kind.count
    everywhere = not kind.first and kind.last == model.num_hidden_layers
    if stage.halves is not None and (kind.alike or not everywhere):
        one, other = (layers_of(half, kind, model) for half in stage.halves)
        return 0.5 * (one + other)
    share = (kind.alike or kind.count) / (kind.last - kind.first)
    layers = stage.layers * share
    if not everywhere:
        inside = np.minimum(stage.start + stage.layers, kind.last) - np.maximum(stage.start, kind.first)
        layers = np.maximum(inside, 0.0) * share
    if not kind.alike:
        return layers
    wide = _wide_layers(kind, model, stage.start, stage.layers)
    return wide if kind.wide else layers - wide
