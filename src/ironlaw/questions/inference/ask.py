"""Serve a model to first order: memory of the key-value cache, time of a prompt and of a token, what binds, cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.catalog.model import Model
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.cluster import Cluster
from ironlaw.errors import UnsupportedError, ValueRangeError
from ironlaw.estimate.bind.cluster import bind_precision
from ironlaw.estimate.bind.money import bind_price
from ironlaw.estimate.bind.question import Bound, bind_question
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer.attention import index_share
from ironlaw.estimate.layer.cached import cached_layers, seen_by_width
from ironlaw.estimate.layer.counts import active_parameters, attending_layers, attention_width, matmul_parameters, total_parameters, visited
from ironlaw.estimate.layer.sizes import kernel
from ironlaw.law import inference as law
from ironlaw.law import masks, states
from ironlaw.plan import plan_with
from ironlaw.question.asked import asked_of
from ironlaw.question.assumptions import assume
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.inference.options import BYTES, DEFAULTS
from ironlaw.terms import Term, leaf, scalar, shares, total

SIXTEEN_BITS = ("bf16", "fp16")
OF_TRAINING = ("optimizer", "count_embedding", "cp", "etp", "precision", "schedule", "fabric")  # assumptions that serving does not use
TIMES = (Column("part", "part"), Column("value", "time", "s"))
CACHE = (Column("cache", "cache per token", "B"), Column("sequence", "per sequence", "B"), Column("most", "sequences that fit", "1"))


@dataclass(frozen=True)
class Serving:
    """The Terms of serving one batch."""

    weights: Term
    cache: Term
    prompt: Term  # time of the pass over all prompts
    token: Term  # time of the pass that generates one token of every sequence
    prompt_flop: Term
    token_flop: Term

    def terms(self) -> list[Term]:
        """All Terms, in the order of the fields."""
        return list(vars(self).values())


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    need(values, "model", "on")
    bound = bind_question(asked_of(values, ("model", "on", "node", "price")), folders)
    if bound.model.bidirectional or any(tower.items for tower in bound.model.towers):
        raise UnsupportedError(f"{bound.model.name}: serving is modelled for decoders of text; ironlaw estimate has its training")
    bound = bound.replace(model=bound.model.replace(num_nextn_predict_layers=0))  # serving does not run the multi-token-prediction layers
    multiplied = _multiplied_type(values, bound.cluster, folders)
    for name, value in {**DEFAULTS, "weight_dtype": multiplied, "cache_dtype": multiplied}.items():
        if name not in values:
            values[name] = value
            assume(bound.assumptions, name, value, "default")
    gpus, batch = values["gpus"], values["batch"]
    if bound.model.num_attention_heads % gpus:
        raise ValueRangeError(f"--gpus {gpus:g} does not divide num_attention_heads {bound.model.num_attention_heads}")
    price = bind_price(values.get("price"), bound.cluster, folders, bound.assumptions)
    serving = serve(bound, values, multiplied)
    prompt, token = scalar(serving.prompt), scalar(serving.token)
    weights, cache, shards = scalar(serving.weights), scalar(serving.cache), cache_shards(bound.model, gpus)
    device = bound.cluster.accelerator
    capacity = device.usable_memory
    memory = weights / gpus + cache / shards
    rate = batch / token
    seconds = prompt + values["generate"] * token
    usd = price.value * gpus * seconds / (batch * values["generate"])
    fits, bounds = memory <= capacity, (_binding_roof(serving.prompt), _binding_roof(serving.token))
    headline = [
        Sentence(
            f"{'fits' if fits else 'does not fit'}: {memory / 2**30:.1f} of {capacity / 2**30:.1f} GiB on each accelerator,"
            " weights and cache",
            "fits" if fits else "does-not-fit", {"bytes": memory, "capacity_bytes": capacity},
        ),
        Sentence(
            f"prompts of {values['prompt']:g} tokens take {units.show(prompt, 's', 4)} ({batch:g} together), bound by {bounds[0]}",
            "prompt", {"tokens": values["prompt"], "seconds": prompt, "batch": batch, "bound": bounds[0]},
        ),
        Sentence(
            f"then {rate:,.0f} tokens/s, {rate / batch:,.1f} per sequence, bound by {bounds[1]}",
            "generation", {"tokens_per_second": rate, "batch": batch, "bound": bounds[1]},
        ),
        Sentence(f"{usd * 1e6:,.2f} USD per million generated tokens", "price", {"usd_per_token": usd}),
    ]  # fmt: skip
    times = [{"part": node.name, "value": scalar(node)} for term in (serving.prompt, serving.token) for node in (term, *term.parts)]
    per_sequence = cache / batch
    room = capacity - weights / gpus
    cache_row = {
        "cache": per_sequence / (values["prompt"] + values["generate"]),
        "sequence": per_sequence,
        "most": max(room * shards // per_sequence, 0.0) if per_sequence else None,
    }
    return Answer(
        title=f"{bound.model.name} served by {gpus:g} x {device.name}, to first order",
        headline=headline,
        tables=(Table("parts", "Times", TIMES, times), Table("cache_room", "The key-value cache", CACHE, [cache_row])),
        terms=serving.terms(),
        values={"tokens_per_second": rate, "usd_per_million_tokens": usd * 1e6, "fits": memory <= capacity, "seconds": seconds},
        assumptions=[item for item in bound.assumptions if item["name"] not in OF_TRAINING],
        warnings=[*(caution("left-out", item=item) for item in bound.left_out), caution("first-order-serving")],
        feasible=memory <= capacity,
        folders=folders,
    )


def _multiplied_type(values: Mapping[str, Any], cluster: Cluster, folders: tuple[str, ...]) -> str:
    """The 16-bit type in which the device multiplies: that of the weights, or its own where they are stored narrower."""
    device, asked = cluster.accelerator, values.get("weight_dtype")
    if asked not in SIXTEEN_BITS:
        return bind_precision(values["on"], folders)
    if asked not in device.peak or asked not in cluster.calibration.gemm:
        usable = [name for name in SIXTEEN_BITS if name in device.peak and name in cluster.calibration.gemm]
        raise UnsupportedError(f"--weight-dtype {asked}: {device.name} has no such matrix rate; it has {', '.join(usable)}")
    return str(asked)


def serve(bound: Bound, values: Mapping[str, Any], multiplied: str) -> Serving:
    """Weights, cache, the pass over the prompts and the pass of one token, each with its parts; products run in ``multiplied``."""
    model, gpus, batch, prompt = bound.model, values["gpus"], values["batch"], values["prompt"]
    weight_bytes, cache_bytes = BYTES[values["weight_dtype"]], BYTES[values["cache_dtype"]]
    parameters, layers = float(total_parameters(model)), attending_layers(model)
    weights = leaf("weights", states.state, "B", parameters=parameters, bytes_per_parameter=weight_bytes, shards=1.0)
    length, mean_length = prompt + values["generate"], prompt + values["generate"] / 2.0
    cache = _count_cache(model, batch, length, cache_bytes)
    read_parameters = _parameters_read(parameters, float(active_parameters(model)), model, batch)
    windows = {part.window for part in cached_layers(model) if part.window}
    near = {window: float(masks.attended_length(prompt, window)) for window in windows}
    first = {"tokens": batch * prompt, "attended": seen_by_width(model, prompt / 2.0, near)}
    later = {"tokens": batch, "attended": seen_by_width(model, mean_length, {window: min(window, mean_length) for window in windows})}
    shared = {"matmul_parameters": float(matmul_parameters(model)), "num_hidden_layers": layers, "attention_width": attention_width(model)}
    prompt_flop = leaf("operations of the prompt", law.forward_flop, "FLOP", **first, **shared)
    token_flop = leaf("operations of a token", law.forward_flop, "FLOP", **later, **shared)
    mean_cache = scalar(_count_cache(model, batch, mean_length, cache_bytes))  # while tokens are generated
    token_bytes = read_parameters * weight_bytes / gpus + mean_cache / cache_shards(model, gpus)
    return Serving(
        weights=weights,
        cache=cache,
        prompt=_time_pass(bound, "prompt", scalar(prompt_flop) / gpus, scalar(weights) / gpus, batch * prompt, gpus, multiplied),
        token=_time_pass(bound, "one token", scalar(token_flop) / gpus, token_bytes, batch, gpus, multiplied),
        prompt_flop=prompt_flop,
        token_flop=token_flop,
    )


def _parameters_read(parameters: float, active: float, model: Model, batch: float) -> float:
    """Parameters that a batch of tokens reads: of the routed experts, only the visited ones, if each token picks at random."""
    if not model.num_experts:
        return parameters
    share = visited(model) / model.num_experts
    routed = (parameters - active) / (1.0 - share) if share < 1.0 else 0.0
    return parameters - routed * float((1.0 - share) ** batch)


def cache_shards(model: Model, gpus: float) -> float:
    """Shards of the cache: at most one per key-value head; a latent is whole on every rank."""
    return 1.0 if model.kv_lora_rank else min(gpus, float(model.num_key_value_heads))


def _count_cache(model: Model, batch: float, length: float, element: float) -> Term:
    """The key-value cache of a batch, of all tokens or those in a window or chunk; with the keys of the indexer where there is one."""
    if model.o_lora_rank:
        raise UnsupportedError(f"the cache of {model.name}'s compressed attention is not modelled; ironlaw estimate answers its training")
    if not model.kv_lora_rank:
        kept = [part for part in cached_layers(model) if part.heads]
        parts = [
            leaf(
                f"{part.layers:g} layers, {f'window {part.window:g}' if part.window else 'all tokens'}" if len(kept) > 1 else "cache",
                law.kv_cache, "B", tokens=batch * part.kept(length), layers=part.layers, num_key_value_heads=part.heads,
                head_dim=part.head_dim, bytes_per_element=element,
            )
            for part in kept
        ]  # fmt: skip
        return parts[0] if len(parts) == 1 else total("cache", parts)
    shared = {"tokens": batch * length, "layers": attending_layers(model), "bytes_per_element": element}
    latent = {"kv_lora_rank": float(model.kv_lora_rank), "qk_rope_head_dim": float(model.qk_rope_head_dim)}
    cache = leaf("cache", law.latent_kv_cache, "B", **shared, **latent)
    if not model.index_topk:
        return cache
    keys = {"kv_lora_rank": float(model.index_head_dim), "qk_rope_head_dim": 0.0}
    index = leaf("keys of the indexer", law.latent_kv_cache, "B", **shared, **keys)
    return total("cache", [cache, total("keys of the indexer", [index], times=index_share(model))])


def _time_pass(bound: Bound, name: str, flop: float, moved: float, tokens: float, gpus: float, multiplied: str) -> Term:
    """One pass over the model: the roof that binds, and the all-reduces between the accelerators that share a layer."""
    cluster, model = bound.cluster, bound.model
    kernels = kernel(cluster, "kernels", np.atleast_1d(flop), np.atleast_1d(moved), multiplied, cluster.gemm(multiplied))
    plan = plan_with(gpus=np.atleast_1d(gpus), tp=np.atleast_1d(gpus))
    size = np.atleast_1d(tokens * model.hidden_size * 2.0)
    reduce = group_links.collective(cluster, plan, "sums over heads and width", "all_reduce", plan.tp, size, 1.0)
    return total(name, [kernels, total("between accelerators", [reduce], times=2.0 * model.num_hidden_layers)])


def _binding_roof(term: Term) -> str:
    """The roof with the largest share of a time."""
    booked = shares(term)
    return max(booked, key=lambda roof: float(booked[roof][0]))
