"""Memory of the output layer and the loss: all logits at once, or a chunk of them at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.layer.counts import output_width
from ironlaw.estimate.layer.sizes import Shapes, of_predictions
from ironlaw.estimate.memory.activations import hidden_state
from ironlaw.estimate.pipeline.schedules import schedule_of
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job
from ironlaw.law import activations
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf, total


def logits(job: Job, plan: Plan, s: Shapes, stage: Stage) -> Term:
    """On the stage that computes the loss: logits, their softmax and gradient, and the inputs of the last norm and the projection."""
    s = of_predictions(job.model, plan, s)
    copies = job.framework.norm_copies
    wide = 0.0 if copies is None else copies.value / job.precision.activation_bytes
    inputs = hidden_state("inputs of norm and projection", job, plan, s, 2.0 + wide)
    parts = chunked(job, plan, s) if job.chunked_logits else [scores(job, plan, "logits", s.tokens, logit_bytes(job))]
    alive = (1.0 + job.model.num_nextn_predict_layers) * np.where(
        (plan.pp > 1) & schedule_of(job).forwards_first, plan.num_microbatches, 1.0
    )  # one set a head; the logits of all micro-batches where no backward runs before all forwards
    return total("logits and loss", [inputs, *parts], times=np.ceil(stage.head) * alive)


def scores(job: Job, plan: Plan, name: str, tokens: Any, size: Any, vocabulary: float | None = None) -> Term:
    """Logits of one rank, ``size`` bytes of memory for each in a 2-byte type."""
    return leaf(
        name,
        activations.logits,
        "B",
        tokens=tokens,
        vocab_size=output_width(job.model) if vocabulary is None else vocabulary,
        tp=plan.tp,
        bytes_per_logit=size * job.precision.activation_bytes / 2.0,
    )


def chunked(job: Job, plan: Plan, s: Shapes) -> list[Term]:
    """The logits of one chunk, what is kept of all logits, and the whole gradient of the output layer to which chunks add."""
    f, model = job.framework, job.model
    tokens: Any = s.tokens
    if f.chunk_parts is not None:
        tokens = s.tokens / f.chunk_parts.value
    elif f.chunk_as_hidden:
        tokens = s.tokens * min(1.0, model.hidden_size / output_width(model))
    elif f.chunk_tokens is not None:
        tokens = np.minimum(s.tokens, f.chunk_tokens.value)
    columns = output_width(model) if f.chunk_vocabulary is None else min(output_width(model), f.chunk_vocabulary.value)
    assert f.chunk_memory is not None
    terms = [scores(job, plan, "logits of a chunk", tokens, f.chunk_memory.value, columns)]
    if f.whole_memory is not None:
        terms.append(scores(job, plan, "logits", s.tokens, f.whole_memory.value))
    if f.head_gradient_bytes is not None and (f.head_gradient_frozen or not job.lora_rank):
        size = f.head_gradient_bytes.value
        table = {"tokens": output_width(model) / plan.tp, "hidden_size": model.hidden_size, "tp": 1.0, "sp": 0.0, "bytes_per_element": size}
        terms.append(leaf("gradient of the output layer", activations.checkpoint, "B", **table))
    return terms


def logit_bytes(job: Job) -> Any:
    """Bytes alive for each logit, in 2-byte elements."""
    compiled = job.framework.fused_loss_memory
    return (compiled if job.fused_loss and compiled is not None else job.framework.logit_memory).value


def deferred_logits(job: Job, plan: Plan, s: Shapes, stage: Stage) -> list[Term]:
    """Gradients of logits and inputs of the projection, kept until the pipeline drains, when the weight gradient is computed."""
    if not job.deferred_wgrad:
        return []
    waiting = np.ceil(stage.head) * np.where(plan.pp > 1, np.minimum(job.deferred_wgrad, plan.num_microbatches), 0.0)
    gradients = scores(job, plan, "gradients of logits", s.tokens, 2.0)
    return [total("deferred weight gradient", [hidden_state("inputs of the projection", job, plan, s), gradients], times=waiting)]
