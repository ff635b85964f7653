"""What of a model a job trains: all of it, all but its first layers, or low-rank adapters beside its linear layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ironlaw.estimate.counts import common_parameters, embedding_parameters, routed_parameters, stage_common, stage_routed
from ironlaw.estimate.kinds import Kind, kinds, layers_of, sized
from ironlaw.estimate.layer import adapted_shapes
from ironlaw.estimate.parts import Shapes
from ironlaw.estimate.stages import Stage
from ironlaw.plan import Job


def adapter_parameters(job: Job, kind: Kind) -> Any:
    """Low-rank adapters of one layer: rank times input and output of every linear layer that has one."""
    job = replace(job, model=sized(job.model, kind))
    ends: Any = 0.0
    for _, n, k in adapted_shapes(job, Shapes.whole(job), kind).values():
        ends = ends + n + k
    return job.lora_rank * ends


def layer_trained(job: Job, kind: Kind) -> tuple[Any, Any]:
    """Parameters of one layer that get gradients: (outside its experts, in them)."""
    if not kind.trained:
        return 0.0, 0.0
    if job.lora_rank:
        return adapter_parameters(job, kind), 0.0
    return common_parameters(job.model, kind), routed_parameters(job.model, kind)


def stage_trained(job: Job, stage: Stage) -> tuple[Any, Any]:
    """Parameters of a stage that get gradients and states: (outside its experts, in them)."""
    model = job.model
    if job.lora_rank:
        count: Any = 0.0 * stage.layers
        for kind in kinds(model):
            count = count + layers_of(stage, kind, model) * adapter_parameters(job, kind)
        return count, 0.0 * stage.layers
    common, routed = stage_common(model, stage), stage_routed(model, stage)
    for kind in kinds(model):
        if not kind.trained:  # nothing behind them reaches the embedding either
            held = layers_of(stage, kind, model)
            common, routed = common - held * common_parameters(model, kind), routed - held * routed_parameters(model, kind)
            common = common - stage.embedding * (0.0 if model.tie_word_embeddings else 1.0) * embedding_parameters(model)
    return common, routed
