"""What makes a plan legal: each rule a named bool column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.kinds import values_of
from ironlaw.estimate.stages import stages
from ironlaw.plan import Job, Plan


def legality(job: Job, plan: Plan) -> dict[str, Any]:
    """One bool column per rule, true where the plan keeps it; each has the shape of the axes it reads."""
    model = job.model
    smallest: Any = np.inf
    fewest: Any = np.inf
    for stage in stages(job, plan):
        smallest = np.where(stage.count > 0, np.minimum(smallest, stage.layers), smallest)
        slots = stage.layers + (stage.embedding + stage.head if job.count_embedding else 0.0)
        fewest = np.where(stage.count > 0, np.minimum(fewest, slots), fewest)
    by_ring = (plan.cp == 1) | (job.cp_method != "all-to-all")
    paired = _divides(2.0, plan.pp) & (plan.num_microbatches >= 2.0 * plan.pp)
    return {
        "gpus_factor": (plan.gpus == plan.tp * plan.pp * plan.cp * plan.dp) & _whole(plan.dp_replicate) & _whole(plan.dp_shard),
        "tp_divides_heads": _divide_all(plan.tp, values_of(model, "num_attention_heads")),
        "tp_divides_kv_heads": _divide_all(plan.tp, values_of(model, "num_key_value_heads"), multiples=True),
        "tp_divides_intermediate_size": _divide_all(plan.tp, values_of(model, "intermediate_size")),
        "ep_divides_experts": _experts_divide(model, plan),
        "ep_divides_ranks": _divides(plan.expert_ways, plan.tp * plan.cp * plan.dp) & _nests(plan),
        "sequence_divides": _divides(plan.tp * np.where(plan.cp > 1, 2.0 * plan.cp, 1.0), plan.seq_len),
        "cp_divides_heads": (by_ring | _divide_all(plan.tp * plan.cp, values_of(model, "num_attention_heads"))),
        "stages_paired": ((plan.pp == 1) | (job.schedule != "dualpipe") | paired),
        "micro_batches_whole": _divides(plan.micro_batch_size * plan.dp, plan.global_batch_size),
        "stages_have_layers": smallest >= 1.0,
        "chunks_have_layers": ((plan.vpp == 1) | ((plan.pp > 1) & (fewest >= plan.vpp))),
        "interleaving_groups_whole": ((plan.vpp == 1) | _groups_whole(job, plan)),
        "zero_has_shards": ((plan.zero > 0) | (plan.dp_shard == 1)),
    }


RULES = {
    "gpus_factor": "gpus = tp * pp * cp * dp_replicate * dp_shard, all whole",
    "tp_divides_heads": "tp divides num_attention_heads",
    "tp_divides_kv_heads": "tp divides num_key_value_heads, or is a multiple of it",
    "tp_divides_intermediate_size": "tp divides intermediate_size",
    "ep_divides_experts": "ep divides num_experts and etp moe_intermediate_size; a dense model has ep 1 and etp 1",
    "ep_divides_ranks": "ep * etp divides tp * cp * dp, and divides or is a multiple of tp * cp * dp_shard",
    "sequence_divides": "tp divides seq_len; with cp > 1, 2 tp cp does (each rank takes two chunks to balance the causal mask)",
    "cp_divides_heads": "with cp by all-to-all, tp * cp divides num_attention_heads",
    "stages_paired": "dualpipe pairs stages: pp is 1, or even with at least 2 pp micro-batches",
    "micro_batches_whole": "micro_batch_size * dp divides global_batch_size",
    "stages_have_layers": "every pipeline stage has a layer",
    "chunks_have_layers": "vpp > 1 needs pp > 1 and a layer for every chunk",
    "interleaving_groups_whole": "the interleaved schedule needs micro-batches in multiples of pp, or of a microbatch_group of at least pp",
    "zero_has_shards": "zero 0 shards nothing, so dp_shard is 1",
    "fits": "device memory is at most the usable capacity",
}


_BROKEN = {
    "tp_divides_heads": "tp {tp:g} does not divide num_attention_heads {num_attention_heads}",
    "tp_divides_kv_heads": "tp {tp:g} neither divides num_key_value_heads {num_key_value_heads} nor is a multiple of it",
    "tp_divides_intermediate_size": "tp {tp:g} does not divide intermediate_size {intermediate_size}",
    "gpus_factor": "{gpus:g} gpus do not factor: tp {tp:g} * pp {pp:g} * cp {cp:g}"
    " leaves dp_replicate {dp_replicate:.4g} * dp_shard {dp_shard:.4g}",
    "ep_divides_experts": "ep {ep:g} and etp {etp:g} do not divide the experts: {model.num_experts} of width {model.moe_intermediate_size}",
    "ep_divides_ranks": "ep {ep:g} * etp {etp:g} does not divide tp * cp * dp, {tp:g} * {cp:g} * {dp:g}",
    "sequence_divides": "seq_len {seq_len:g} is no multiple of {sequence_ways:g}: tp {tp:g}, times 2 cp with cp {cp:g} above 1",
    "cp_divides_heads": "tp {tp:g} * cp {cp:g} by all-to-all does not divide num_attention_heads {num_attention_heads}",
    "stages_paired": "dualpipe needs an even pp and at least 2 pp micro-batches, there are pp {pp:g} and {num_microbatches:g}",
    "micro_batches_whole": "micro_batch_size {micro_batch_size:g} * dp {dp:g} does not divide global_batch_size {global_batch_size:g}",
    "stages_have_layers": "pp {pp:g} leaves a stage without a layer: {model.name} has {model.num_hidden_layers}",
    "chunks_have_layers": "vpp {vpp:g} needs pp > 1 and a layer for every chunk of every stage",
    "interleaving_groups_whole": "interleaving needs micro-batches in multiples of pp {pp:g}, or of a microbatch_group of at least pp,"
    " there are {num_microbatches:g}",
    "zero_has_shards": "zero 0 shards nothing, dp_shard is {dp_shard:g}: give zero 1 or more, or dp_replicate",
}


def broken(job: Job, plan: Plan, rules: Mapping[str, Any], at: int) -> list[str]:
    """What a row breaks, each with its values; a mesh that does not factor is told alone."""
    found = [name for name in _BROKEN if not np.ravel(rules[name])[at]]
    if "gpus_factor" in found:
        found = [name for name in found if name in ("gpus_factor", "tp_divides_heads")]
    values = {n: float(np.broadcast_to(getattr(plan, n), (plan.rows,))[at]) for n in (*_AXES, "dp", "num_microbatches")}
    values["sequence_ways"] = values["tp"] * (2.0 * values["cp"] if values["cp"] > 1 else 1.0)
    sizes = {field: _listed(values_of(job.model, field)) for field in ("num_attention_heads", "num_key_value_heads", "intermediate_size")}
    return [_BROKEN[name].format(model=job.model, **sizes, **values) for name in found]


def _listed(numbers: tuple[int, ...]) -> str:
    """The sizes that layers have; of many the first three."""
    return ", ".join(map(str, numbers[:3])) + (", ..." if len(numbers) > 3 else "")


_AXES = tuple(f.name for f in fields(Plan))


def legal(rules: dict[str, Any]) -> Any:
    """True where every rule but ``fits`` holds."""
    result = np.True_
    for name, column in rules.items():
        if name != "fits":
            result = result & column
    return result


def _experts_divide(model: Model, plan: Plan) -> Any:
    if not model.num_experts:
        return plan.expert_ways == 1.0
    return _divides(plan.ep, model.num_experts) & _divides(plan.etp, model.moe_intermediate_size)


def _nests(plan: Plan) -> Any:
    inside = plan.tp * plan.cp * plan.dp_shard / plan.expert_ways
    return _whole(np.maximum(inside, 1.0 / inside))


def _groups_whole(job: Job, plan: Plan) -> Any:
    group = job.microbatch_group or plan.pp
    return (group >= plan.pp) & _divides(group, plan.num_microbatches)


def _whole(number: Any) -> Any:
    return (number == np.floor(number)) & (number >= 1.0)


def _divide_all(divisor: Any, numbers: tuple[int, ...], multiples: bool = False) -> Any:
    """True where the divisor divides the number of every kind of layer, or with ``multiples`` is a multiple of it."""
    result: Any = np.True_
    for number in numbers:
        result = result & (_divides(np.minimum(divisor, number), np.maximum(number, divisor)) if multiples else _divides(divisor, number))
    return result


def _divides(divisor: Any, number: Any) -> Any:
    return _whole(number / divisor)
