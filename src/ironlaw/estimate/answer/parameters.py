"""The parameters of a job as plain data: in all and active, by kind of layer and by part of a layer."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.estimate.layer.counts import (
    active_parameters,
    embedding_parameters,
    expert_parameters,
    head_parameters,
    layer_parts,
    tied_parameters,
    total_parameters,
    visited,
)  # fmt: skip
from ironlaw.estimate.layer.kinds import Kind, kinds
from ironlaw.estimate.layer.trained import adapter_parameters
from ironlaw.job import Job


def parameters_data(job: Job) -> dict[str, Any]:
    """The counts of a model. Layers for further tokens are listed and, as in published counts, not in the totals."""
    model = job.model
    rows = [_kind_data(model, kind) for kind in kinds(model)]
    total = float(total_parameters(model))
    published = {"published": model.published_parameters, "published_active": model.published_active_parameters}
    return {
        "total": total,
        "active": float(active_parameters(model)),
        "trained": trained_parameters(job),
        **{name: float(count.value) for name, count in published.items() if count is not None},
        "kinds": rows,
        "embedding": float(embedding_parameters(model)),
        "output_layer": float(head_parameters(model) - tied_parameters(model)),
        "tied": bool(model.tie_word_embeddings),
    }


def _kind_data(model: Model, kind: Kind) -> dict[str, Any]:
    """One kind of layer: how many, the parameters of one and of all, and of one by part."""
    parts = {name: float(count) for name, count in layer_parts(model, kind).items() if count}
    common = sum(parts.values())
    expert = float(expert_parameters(model)) if kind.routed else 0.0
    one, active = common + model.num_experts * expert, common + visited(model) * expert
    data = {
        "name": kind.name,
        "layers": kind.count,
        "of_one": one,
        "active_of_one": active,
        "total": kind.count * one,
        "active": kind.count * active,
        "counted": kind.place != "end",
        "parts": parts,
    }
    if kind.routed:
        data["experts"] = {"number": float(model.num_experts), "visited": visited(model), "of_one": expert}
    return data


def trained_parameters(job: Job) -> float:
    """Parameters that are trained: all, all but frozen layers and the embedding before them, or those of adapters."""
    model, total = job.model, float(total_parameters(job.model))
    if job.lora_rank:
        return adapter_parameters(job)
    counted = [kind for kind in kinds(model) if kind.place != "end"]
    if all(kind.trained for kind in counted):
        return total
    frozen = sum(float(_kind_data(model, kind)["total"]) for kind in counted if not kind.trained)
    return total - frozen - (0.0 if model.tie_word_embeddings or not model.frozen_layers else float(embedding_parameters(model)))
