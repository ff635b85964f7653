"""Trained parameters: all of a model, all but its first layers, or low-rank adapters beside its linear layers."""

from __future__ import annotations

from typing import Any

from ironlaw.estimate.layer import adapters
from ironlaw.estimate.layer.counts import common_parameters, embedding_parameters, routed_parameters, stage_common, stage_routed
from ironlaw.estimate.layer.kinds import Kind, kinds, layers_of
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job


def layer_trained(job: Job, kind: Kind) -> tuple[Any, Any]:
    """Parameters of one layer that get gradients: (outside its experts, in them)."""
    if not kind.trained:
        return 0.0, 0.0
    if job.lora_rank:
        return adapters.parameters(job, kind)
    return common_parameters(job.model, kind), routed_parameters(job.model, kind)


def adapter_parameters(job: Job) -> float:
    """Parameters of the adapters of a whole model, without those beside layers for further tokens."""
    return float(sum(kind.count * sum(layer_trained(job, kind)) for kind in kinds(job.model) if kind.place != "end"))


def stage_trained(job: Job, stage: Stage) -> tuple[Any, Any]:
    """Parameters of a stage that get gradients and states: (outside its experts, in them)."""
    model = job.model
    if job.lora_rank:
        beside: Any = 0.0 * stage.layers
        inside: Any = 0.0 * stage.layers
        for kind in kinds(model):
            layers, trained = layers_of(stage, kind, model), layer_trained(job, kind)
            beside, inside = beside + layers * trained[0], inside + layers * trained[1]
        return beside, inside
    common, routed = stage_common(model, stage), stage_routed(model, stage)
    for kind in kinds(model):
        if not kind.trained:
            frozen = layers_of(stage, kind, model)
            common, routed = common - frozen * common_parameters(model, kind), routed - frozen * routed_parameters(model, kind)
    if model.frozen_layers and not model.tie_word_embeddings:  # no gradient reaches the embedding
        common = common - stage.embedding * embedding_parameters(model)
    return common, routed
