"""Rates and utilisations of a step: tokens and model FLOPs per second, MFU and HFU by their conventions.

``mfu`` counts the attention that the model computes: under its masks and windows, over its picked keys, inside its documents.
``mfu_full_square`` counts all pairs of tokens of a sequence, as many publications do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.estimate.documents.columns import computed, sequences_of
from ironlaw.estimate.documents.keys import keys_seen
from ironlaw.estimate.layer import adapters
from ironlaw.estimate.layer.attention import index_flop, index_share, scored_keys
from ironlaw.estimate.layer.counts import (
    attending_layers,
    attention_width,
    head_weights,
    matmul_parameters,
    matmul_per_layer,
    parameters_at_tokens,
    weights_of_modules,
)
from ironlaw.estimate.layer.kinds import Kind, kinds, plan_of_kind, sized
from ironlaw.estimate.layer.sequence import attended_span, mean_key_length
from ironlaw.estimate.layer.sizes import core_head_dim
from ironlaw.estimate.layer.sources import source_weights
from ironlaw.estimate.step.step import Step
from ironlaw.job import Job
from ironlaw.law import flops, lengths
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf, total


def throughput(job: Job, cluster: Cluster, plan: Plan, timed: Step) -> dict[str, Term]:
    """Tokens and model FLOPs per second; MFU and HFU with attention as computed and as the full square, MFU by 6N; of the dense peak."""
    seconds = timed.tree.value
    job, plan = computed(job, plan)
    tokens = plan.global_batch_size * plan.seq_len
    per_token = flop_of_token(job)
    beside = beside_sequence(job, plan)
    seen = model_key_length(job.model, lambda model: mean_key_length(job.replace(model=model), plan))
    flop, full = (
        _with_towers(leaf(name, flops.model_per_token, "FLOP", **per_token, key_length=keys), *more)
        for name, keys, more in (
            ("model FLOP per token", seen, (beside, index_scores(job, plan))),
            ("model FLOP per token, full square", plan.seq_len, (beside,)),
        )
    )
    peak = cluster.accelerator.peak[job.precision.peak]
    rate = leaf("tokens per second", _per_second, "token/s", amount=tokens, seconds=seconds)
    again, again_full = (recomputed_per_token(job, plan, keys) for keys in (seen, plan.seq_len))

    def share_of_peak(name: str, per: Any) -> Term:
        return leaf(name, utilisation, "1", flop_per_token=per, tokens_per_second=rate.value, gpus=plan.gpus, peak=peak)

    return {
        "tokens_per_second": rate,
        "tokens_per_second_per_gpu": leaf("tokens per second and GPU", _per_gpu, "token/s", amount=rate.value, gpus=plan.gpus),
        "model_flop_per_second_per_gpu": leaf("model FLOP/s per GPU", _per_gpu, "FLOP/s", amount=rate.value * flop.value, gpus=plan.gpus),
        "mfu": share_of_peak("MFU", flop.value),
        "mfu_6n": share_of_peak("MFU (6N)", flops.per_token(parameters_at_tokens(job.model, plan.seq_len))),
        "mfu_full_square": share_of_peak("MFU (full square)", full.value),
        "hfu": share_of_peak("HFU", flop.value + again),
        "hfu_full_square": share_of_peak("HFU (full square)", full.value + again_full),
        **real_rates(job, plan, rate, per_token, peak),
    }


def below_peak(job: Job, cluster: Cluster, mfu: Any) -> Any:
    """True where the model's FLOPs take no less than their time at the peak; that of the fastest format, where experts have their own."""
    peak = cluster.accelerator.peak
    named = peak[job.precision.peak].value
    fastest = max(named, *(peak[p.peak].value for p in (job.precision, job.expert_formats) if p.peak in peak))
    return ~(np.asarray(mfu) * named > fastest)  # of a plan without a time nothing is said


def real_rates(job: Job, plan: Plan, rate: Term, per_token: dict[str, Any], peak: Any) -> dict[str, Term]:
    """Of documents of many lengths: the share of padding, real tokens per second, and the MFU of what the documents need."""
    sequences = sequences_of(job, plan)
    if sequences is None:
        return {}
    padding = leaf("padding", lengths.padding_share, "1", real_tokens=sequences.real, computed_tokens=sequences.computed)
    real = leaf("real tokens per second", lengths.real_rate, "token/s", tokens_per_second=rate.value, padding_share=padding.value)
    seen = model_key_length(job.model, lambda model: sequences.real_keys(partial(keys_seen, model)))
    flop = leaf("model FLOP per real token", flops.model_per_token, "FLOP", **per_token, key_length=seen)
    share = {"flop_per_token": flop.value, "tokens_per_second": real.value, "gpus": plan.gpus, "peak": peak}
    return {"padding": padding, "real_tokens_per_second": real, "mfu_real": leaf("MFU of real tokens", utilisation, "1", **share)}


def flop_of_token(job: Job) -> dict[str, Any]:
    """What the model FLOP of one token follow from: parameters that multiply it, in six FLOP each, and the layers that attend."""
    model = job.model
    matmul, share = matmul_parameters(model), 1.0
    if job.lora_rank:  # frozen weights have no weight gradient: four FLOPs each instead of six
        share = 2.0 / 3.0
        matmul = matmul * share + sum(k.count * adapters.visited(job, k) for k in kinds(model))
    frozen = [k for k in kinds(model) if not k.trained and k.tower is None]
    if frozen:  # untrained layers run forward only: two FLOPs a weight instead of six
        matmul = matmul - (share - 1.0 / 3.0) * sum(k.count * matmul_per_layer(model, k) for k in frozen)
    idle = sum(k.count for k in frozen if k.attends_along)
    return {
        "matmul_parameters": matmul,
        "num_hidden_layers": attending_layers(model) - (2.0 / 3.0) * idle,
        "attention_width": attention_width(model),
    }


def flop_by_part(job: Job, plan: Plan) -> dict[str, Term]:
    """The model FLOP of one token, by part: ``whole``, of which weights and attention, each ``forward`` and ``backward``.

    Forward, a parameter is one multiply-add; backward it is one for the gradient of its input and one for its own gradient: 2 and 4 FLOP.
    """
    every = flop_of_token(job)
    beside = beside_sequence(job, plan)
    keys = model_key_length(job.model, lambda model: mean_key_length(job.replace(model=model), plan))
    whole = leaf("model FLOP per token", flops.model_per_token, "FLOP", **every, key_length=keys)
    weights = leaf("weights", flops.per_token, "FLOP", parameters=every["matmul_parameters"])
    forward = leaf("weights forward", flops.forward_per_token, "FLOP", parameters=matmul_parameters(job.model))
    scores = leaf(
        "attention forward", flops.attention_core, "FLOP", times=attending_layers(job.model), batch=1.0, seq_len=1.0,
        key_length=keys, num_attention_heads=every["attention_width"], head_dim=1.0,
    )  # fmt: skip
    outside: dict[str, Term] = {} if beside is None else {"towers": beside}
    scored = index_scores(job, plan)
    outside |= {} if scored is None else {"index_scores": scored}
    return {
        "whole": _with_towers(whole, beside, scored),
        **outside,
        "forward": forward,
        "backward": leaf("weights backward", _less, "FLOP", every=weights.value, forward=forward.value),
        "attention_forward": scores,
        "attention_backward": leaf("attention backward", _less, "FLOP", every=whole.value - weights.value, forward=scores.value),
    }


def beside_sequence(job: Job, plan: Plan) -> Term | None:
    """Model FLOP of towers and of cross-attention for a token of the sequence, forward and backward; None for a model without either."""
    parts = []
    for kind in kinds(job.model):
        if kind.tower is not None or kind.mixer.crosses:
            forward = leaf(f"{kind.name} forward", _flop_of_kind, "FLOP", **_sizes_beside(job, plan, kind))
            parts.append(total(kind.name, [forward], times=kind.count * (3.0 if kind.trained else 1.0), key=kind))
    return total("towers and cross-attention", parts) if parts else None


def _sizes_beside(job: Job, plan: Plan, kind: Kind) -> dict[str, Any]:
    """What the forward FLOP of one layer beside the sequence follow from, for a token of the sequence."""
    model, tower = sized(job.model, kind), kind.tower
    scored = model.num_attention_heads * core_head_dim(model) * kind.mixer.attends
    if tower is None:  # the four projections are counted for every token of the sequence; keys and values are of the source
        weights = (model.source_tokens / plan.seq_len - 1.0) * source_weights(model)
        return {"tokens": 1.0, "weights": weights, "attention_width": scored, "key_length": model.source_tokens}
    local = job.replace(model=model, document_length=0.0)
    keys = mean_key_length(local, plan_of_kind(plan, kind))
    tokens = tower.tokens * tower.items / plan.seq_len
    return {"tokens": tokens, "weights": matmul_per_layer(job.model, kind), "attention_width": scored, "key_length": keys}


def _flop_of_kind(tokens: Any, weights: Any, attention_width: Any, key_length: Any) -> Any:
    """Two operations a weight and four a key and channel: ``tokens (2 weights + 4 attention_width key_length)``."""
    return tokens * (2.0 * weights + 4.0 * attention_width * key_length)


def index_scores(job: Job, plan: Plan) -> Term | None:
    """FLOP of the indexers' scores for a token, forward over all keys before it, backward over the picked ones; None without an indexer."""
    span, parts = attended_span(job, plan), []
    for kind in kinds(job.model):
        model = sized(job.model, kind)
        if kind.attends_along and model.index_topk:
            for backward in (False, True)[: 2 if kind.trained else 1]:
                keys = scored_keys(model, span, backward)
                sizes = {"model": model, "batch": 1.0, "length": 1.0, "keys": keys, "backward": backward}
                name = f"{kind.name} index scores {'backward' if backward else 'forward'}"
                parts.append(leaf(name, index_flop, "FLOP", times=kind.count * index_share(model), **sizes))
    return total("index scores", parts) if parts else None


def _with_towers(flop: Term, *beside: Term | None) -> Term:
    """The FLOP of the sequence, with those beside it."""
    more = [term for term in beside if term is not None]
    return total(flop.name, [flop, *more]) if more else flop


def _less(every: Any, forward: Any) -> Any:
    """What is left for the backward pass: ``every - forward``."""
    return every - forward


def model_key_length(model: Model, keys: Callable[[Model], Any]) -> Any:
    """Keys that a query sees, mean of the attending layers by their width, as model FLOPs count them; ``keys``: of layers of one kind."""
    if not model.layer_groups:
        return keys(model)
    seen: Any = 0.0
    width = 0.0
    for kind in kinds(model):
        if kind.attends_along:
            local = sized(model, kind)
            part = kind.count * local.num_attention_heads * local.head_dim
            seen, width = seen + part * keys(local), width + part
    return seen / width if width else keys(model)


def recomputed_per_token(job: Job, plan: Plan, key_length: Any) -> Any:
    """FLOPs computed a second time, per token: the forward share of what the plan recomputes; attention over ``key_length`` keys."""
    repeated = recomputed(job.model, key_length, plan.recompute_layers, plan.recompute_attention, plan.recompute_linear)
    repeated = repeated + (1.0 - plan.recompute_layers) * recomputed_modules(job.model, plan)
    beside = beside_sequence(job, plan)
    return repeated if beside is None else repeated + plan.recompute_layers * _trained_forward(beside)


def _trained_forward(beside: Term) -> Any:
    """Forward FLOP of the trained layers beside the sequence."""
    return sum(part.value / 3.0 for part in beside.parts if isinstance(part.key, Kind) and part.key.trained)


def recomputed(model: Model, key_length: Any, whole_layers: Any, attention: Any, linear: Any) -> Any:
    """FLOPs computed a second time, per token: ``2 (P - head) linear + 4 L w k core`` of the share of layers that recompute each."""
    other_layers = 1.0 - whole_layers
    matrices = 2.0 * (matmul_parameters(model) - head_weights(model))
    scores = 4.0 * attending_layers(model) * attention_width(model) * key_length
    return matrices * (whole_layers + other_layers * linear) + scores * (whole_layers + other_layers * attention)


def recomputed_modules(model: Model, plan: Plan) -> Any:
    """FLOPs of the modules that a plan computes a second time, per token: two for each weight that a token meets in them."""
    repeated: Any = 0.0
    for column, weights in weights_of_modules(model).items():
        share = getattr(plan, column)
        if column == "recompute_shared":
            share = np.maximum(share - plan.recompute_moe, 0.0)
        repeated = repeated + 2.0 * weights * np.maximum(share - plan.recompute_linear, 0.0)
    return repeated


def _per_second(amount: Any, seconds: Any) -> Any:
    """A rate: ``amount / seconds``."""
    return amount / seconds


def _per_gpu(amount: Any, gpus: Any) -> Any:
    """A share: ``amount / gpus``."""
    return amount / gpus


def utilisation(flop_per_token: Any, tokens_per_second: Any, gpus: Any, peak: Any) -> Any:
    """FLOPs computed over FLOPs at peak: ``flop_per_token tokens_per_second / (gpus peak)``."""
    return flop_per_token * tokens_per_second / (gpus * peak)
