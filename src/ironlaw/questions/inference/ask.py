"""Serving to first order: the cache, the time of a prompt, the time of a token, and what holds them back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.errors import ValueRangeError
from ironlaw.question import options as words
from ironlaw.question.options import Option
from ironlaw.questions.answer import Answer, Column, Table, need, read

if TYPE_CHECKING:
    from ironlaw.terms import Term

OPTIONS: dict[str, Option] = {
    "model": words.OPTIONS["model"],
    "on": words.OPTIONS["on"],
    "gpus": Option(words.whole, "accelerators that hold one copy together, by tensor parallelism (default: 1)"),
    "batch": Option(words.whole, "sequences decoded together (default: 1)", "N"),
    "prompt": Option(words.whole, "tokens of a prompt (default: 1024)", "TOKENS"),
    "generate": Option(words.whole, "tokens generated for each (default: 256)", "TOKENS"),
    "weight_dtype": Option(words.one_of(("bf16", "fp8", "int4")), "what weights are stored in (default: bf16)", "NAME"),
    "cache_dtype": Option(words.one_of(("bf16", "fp8")), "what keys and values are stored in (default: bf16)", "NAME"),
    "price": words.OPTIONS["price"],
    "node": words.OPTIONS["node"],
}
BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5}


def inference(model: Any = None, on: str | None = None, **options: Any) -> Answer:
    """Serve a model to first order: ``inference("llama-3-70b", on="h100-sxm", gpus=8, batch=32)``."""
    return ask({"model": model, "on": on, **options})


def ask(given: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The Answer of options as they were given."""
    values = read(given, OPTIONS, "inference")
    need(values, "model", "on")
    from dataclasses import replace

    from ironlaw.estimate.bind.money import bind_price
    from ironlaw.estimate.bind.question import bind_question
    from ironlaw.question.asked import asked_of
    from ironlaw.question.assumptions import assume

    bound = bind_question(asked_of(values, ("model", "on", "node", "price")), folders)
    bound = replace(bound, model=bound.model.replace(num_nextn_predict_layers=0))  # layers for further tokens stay out of serving
    for name, value in (
        ("gpus", 1.0),
        ("batch", 1.0),
        ("prompt", 1024.0),
        ("generate", 256.0),
        ("weight_dtype", "bf16"),
        ("cache_dtype", "bf16"),
    ):
        if name not in values:
            values[name] = value
            assume(bound.assumptions, name, value, "default")
    if bound.model.num_attention_heads % values["gpus"]:
        raise ValueRangeError(f"--gpus {values['gpus']:g} does not divide num_attention_heads {bound.model.num_attention_heads}")
    price = bind_price(values.get("price"), bound.cluster, folders, bound.assumptions)
    terms = serve(bound, values)
    by = {term.name: _one(term) for term in terms}
    device = bound.cluster.accelerator
    capacity = float((device.memory_usable or device.memory_capacity).value)
    held = by["weights"] / values["gpus"] + by["cache"] / cache_ways(bound.model, values["gpus"])
    rate = values["batch"] / by["one token"]
    whole = by["prompt"] + values["generate"] * by["one token"]
    cost = price.value * values["gpus"] * whole / (values["batch"] * values["generate"])
    verdict = "fits" if held <= capacity else "does not fit"
    headline = [
        f"{verdict}: {held / 2**30:.1f} of {capacity / 2**30:.1f} GiB on each accelerator, weights and cache",
        f"prompts of {values['prompt']:g} tokens take {_milliseconds(by['prompt'])} ({values['batch']:g} together), bound by"
        f" {_bound(terms, 'prompt')}",
        f"then {rate:,.0f} tokens/s, {rate / values['batch']:,.1f} for each sequence, bound by {_bound(terms, 'one token')}",
        f"{cost * 1e6:,.2f} USD for a million generated tokens",
    ]
    columns = (Column("part", "part"), Column("value", "time", "s"))
    rows = [{"part": t.name, "value": _one(t)} for t in _times(terms)]
    times = Table("parts", "Times", columns, rows)
    return Answer(
        f"{bound.model.name} served by {values['gpus']:g} x {device.name}, to first order",
        headline,
        (times, _most(values, by, capacity, cache_ways(bound.model, values["gpus"]))),
        terms,
        {"tokens_per_second": rate, "usd_per_million_tokens": cost * 1e6, "fits": held <= capacity, "seconds": whole},
        [item for item in bound.assumptions if item["name"] not in ("optimizer", "count_embedding", "cp", "etp", "precision", "fabric")],
        [f"left out: {item}" for item in bound.left_out]
        + ["first order: no queueing, no paging, no speculation; kernels hold what training kernels of their size hold"],
        held <= capacity,
        folders,
    )  # fmt: skip


def _one(term: Term) -> float:
    """The one value of a term."""
    import numpy as np

    return float(np.ravel(term.value)[0])


def serve(bound: Any, values: Mapping[str, Any]) -> list[Term]:
    """Weights, cache, the pass over the prompts and the pass of one token, each with its parts."""
    from ironlaw.estimate.layer.counts import active_parameters, attending_layers, attention_width, matmul_parameters, total_parameters
    from ironlaw.law import inference as law
    from ironlaw.law import states
    from ironlaw.terms import leaf

    model, gpus, batch, prompt = bound.model, values["gpus"], values["batch"], values["prompt"]
    stored, kept = BYTES[values["weight_dtype"]], BYTES[values["cache_dtype"]]
    layers, width, matmul = attending_layers(model), attention_width(model), float(matmul_parameters(model))
    weights = leaf("weights", states.state, "B", parameters=float(total_parameters(model)), bytes_per_parameter=stored, shards=1.0)
    length = prompt + values["generate"]
    cache = _cache(model, batch * length, layers, kept, law)
    met = _met(float(total_parameters(model)), float(active_parameters(model)), model, batch)
    first = {"tokens": batch * prompt, "attended": prompt / 2.0}
    later = {"tokens": batch, "attended": prompt + values["generate"] / 2.0}
    shared = {"matmul_parameters": matmul, "num_hidden_layers": layers, "attention_width": width}
    flop = leaf("operations of the prompt", law.forward_flop, "FLOP", **first, **shared)
    step = leaf("operations of a token", law.forward_flop, "FLOP", **later, **shared)
    half = _one(cache) * (prompt + values["generate"] / 2.0) / length  # what the cache holds on average while tokens come
    return [
        weights,
        cache,
        _pass(bound, "prompt", _one(flop) / gpus, _one(weights) / gpus, batch * prompt, gpus),
        _pass(bound, "one token", _one(step) / gpus, met * stored / gpus + half / cache_ways(model, gpus), batch, gpus),
        flop,
        step,
    ]


def _met(every: float, active: float, model: Any, batch: float) -> float:
    """Parameters that a batch of tokens reads: of routed experts those that some token goes to, if each picks at random."""
    from ironlaw.estimate.layer.counts import visited

    if not model.num_experts:
        return every
    share = visited(model) / model.num_experts
    routed = (every - active) / (1.0 - share) if share < 1.0 else 0.0
    return every - routed * float((1.0 - share) ** batch)


def cache_ways(model: Any, gpus: float) -> float:
    """Ways the cache is split over heads: as many as there are heads of keys and values; a latent stays whole on every rank."""
    return 1.0 if model.kv_lora_rank else min(gpus, float(model.num_key_value_heads))


def _one_group(gpus: float) -> Any:
    """The plan of one tensor-parallel group and nothing else."""
    from dataclasses import fields

    import numpy as np

    from ironlaw.plan import BY_RULE, Plan

    one = np.ones(1)
    ends = {"first_stage_layers": BY_RULE, "last_stage_layers": BY_RULE}
    return Plan(**{f.name: one for f in fields(Plan)} | {"gpus": gpus * one, "tp": gpus * one} | ends)


def _cache(model: Any, tokens: float, layers: float, kept: float, law: Any) -> Term:
    from ironlaw.estimate.layer.counts import cached_heads, index_share
    from ironlaw.terms import leaf, total

    each = {"tokens": tokens, "layers": layers, "bytes_per_element": kept}
    if model.kv_lora_rank:
        latent = {"kv_lora_rank": float(model.kv_lora_rank), "qk_rope_head_dim": float(model.qk_rope_head_dim)}
        cache = leaf("cache", law.latent_kv_cache, "B", **each, **latent)
        if not model.index_topk:
            return cache
        index = leaf(
            "keys of the indexer", law.latent_kv_cache, "B", **each, kv_lora_rank=float(model.index_head_dim), qk_rope_head_dim=0.0
        )
        return total("cache", [cache, total("keys of the indexer", [index], times=index_share(model))])
    heads = {"num_key_value_heads": cached_heads(model), "head_dim": float(model.head_dim)}
    return leaf("cache", law.kv_cache, "B", **each, **heads)


def _pass(bound: Any, name: str, flop: float, moved: float, tokens: float, gpus: float) -> Term:
    """One pass over the model: the roof it meets first, and the sums between accelerators that share a layer."""
    import numpy as np

    from ironlaw.estimate import wires
    from ironlaw.estimate.layer.sizes import kernel
    from ironlaw.terms import total

    cluster, model = bound.cluster, bound.model
    constants = cluster.gemm("bf16")
    run = kernel(cluster, "kernels", np.atleast_1d(flop), np.atleast_1d(moved), "bf16", constants)
    plan = _one_group(gpus)
    size = np.atleast_1d(tokens * model.hidden_size * 2.0)
    reduce = wires.collective(cluster, plan, "sums over heads and width", "all_reduce", plan.tp, size, 1.0)
    return total(name, [run, total("between accelerators", [reduce], times=2.0 * model.num_hidden_layers)])


def _bound(terms: list[Term], name: str) -> str:
    from ironlaw.terms import shares

    booked = shares(next(t for t in terms if t.name == name))
    return max(booked, key=lambda roof: float(booked[roof][0]))


def _times(terms: list[Term]) -> list[Term]:
    return [node for term in terms if term.name in ("prompt", "one token") for node in (term, *term.parts)]


def _most(values: Mapping[str, Any], by: Mapping[str, float], capacity: float, ways: float) -> Table:
    """How many sequences of this length fit beside the weights."""
    room = capacity - by["weights"] / values["gpus"]
    one = by["cache"] / values["batch"]
    row = {"cache": one / (values["prompt"] + values["generate"]), "sequence": one, "most": max(room * ways // one, 0.0) if one else None}
    columns = (Column("cache", "cache a token", "B"), Column("sequence", "a sequence", "B"), Column("most", "sequences that fit", "1"))
    return Table("cache_room", "The cache", columns, [row])


def _milliseconds(seconds: float) -> str:
    """A time in milliseconds, and from ten seconds on in what reads better."""
    return f"{seconds * 1e3:,.1f} ms" if seconds < 10.0 else units.show(seconds, "s", 4)
