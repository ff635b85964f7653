"""What makes a plan legal: each rule a named bool column."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.layer.context_methods import method_of
from ironlaw.estimate.layer.kinds import kinds, values_of
from ironlaw.estimate.layer.sequence import head_ranks, key_heads
from ironlaw.estimate.layer.untrained import reference_job, reference_plan, sequences_of_example
from ironlaw.estimate.legality.abilities import broken_ability, can_run
from ironlaw.estimate.network import overlapped_experts
from ironlaw.estimate.pipeline.schedules import microbatch_group, schedule_of
from ironlaw.estimate.pipeline.stages import stages
from ironlaw.job import Job
from ironlaw.plan import Plan


def legality(job: Job, plan: Plan, known: Collection[str] | None = None) -> dict[str, Any]:
    """One bool column per rule, true where the plan keeps it; each has the shape of the axes it reads.

    ``known``: the axes of the plan that are set, where the choices are still open.
    """
    model = job.model
    teachable: Any = np.True_
    if job.teacher is not None:
        teachable = legal(legality(reference_job(job), reference_plan(job, plan)))
    smallest: Any = np.inf
    fewest: Any = np.inf
    placed: Any = 0.0
    by_rule = np.maximum(plan.first_stage_layers, plan.last_stage_layers) < 0.0
    given = not np.all(by_rule)
    for stage in stages(job, plan):
        shortest, slots = stage.layers, stage.layers
        if job.count_embedding:
            slots = slots + (stage.embedding + stage.head)
        elif given:  # a first or last stage with given layers may hold the embedding or the loss alone, and so may a chunk
            ends = stage.embedding * (plan.first_stage_layers >= 0.0) + stage.head * (plan.last_stage_layers >= 0.0)
            shortest = slots = slots + np.where(plan.pp > 1, ends, 0.0)
        elif job.layers_per_stage:
            shortest = shortest + stage.embedding + stage.head
        smallest = np.where(stage.count > 0, np.minimum(smallest, shortest), smallest)
        fewest = np.where(stage.count > 0, np.minimum(fewest, slots), fewest)
        placed = placed + np.maximum(stage.count, 0.0) * stage.layers
    traded = head_ranks(job, plan)
    heads_divide = _divide_all(plan.tp * traded, values_of(model, "num_attention_heads")) & _divides(plan.tp * traded, key_heads(job))
    in_levels = (traded > 1.0) & (traded < plan.cp) & _divides(traded, plan.cp)
    stages_per_rank = schedule_of(job).stages_per_rank
    coupled = _divides(stages_per_rank, plan.pp) & (plan.num_microbatches >= stages_per_rank * plan.pp)
    return {
        "gpus_factor": (plan.gpus == plan.tp * plan.pp * plan.cp * plan.dp) & _is_whole(plan.dp_replicate) & _is_whole(plan.dp_shard),
        "tp_divides_heads": _divide_all(plan.tp, values_of(model, "num_attention_heads")),
        "tp_divides_kv_heads": _divide_all(plan.tp, values_of(model, "num_key_value_heads"), multiples=True),
        "tp_divides_output_groups": _divides(plan.tp, model.o_groups) if model.o_groups else np.True_,
        "cp_splits_attention": (plan.cp == 1) | (not model.o_lora_rank),
        "tp_divides_intermediate_size": _divide_all(plan.tp, values_of(model, "intermediate_size")),
        "ep_divides_experts": _experts_divide(model, plan),
        "ep_divides_ranks": _divides(plan.expert_ways, plan.tp * plan.cp * plan.dp) & _nests(plan),
        "sequence_divides": _divides(plan.tp * np.where(plan.cp > 1, chunks_of(job) * plan.cp, 1.0), plan.seq_len),
        "cp_divides_heads": ((plan.cp == 1) | np.equal(traded, 1.0) | heads_divide),
        "cp_is_one": (plan.cp == 1) | (not one_context_rank(model)),
        "pp_is_one": (plan.pp == 1) | (not has_source(model)),
        "cp_has_two_levels": ((plan.cp == 1) | (not method_of(job).has_two_levels) | in_levels),
        "stages_paired": ((plan.pp == 1) | (stages_per_rank == 1.0) | coupled),
        "examples_whole": _divides(sequences_of_example(job), plan.micro_batch_size),
        "micro_batches_whole": _divides(plan.micro_batch_size * plan.dp, plan.global_batch_size),
        "stages_have_layers": smallest >= 1.0,
        "stages_hold_all_layers": (by_rule | ((plan.pp > 1) & np.equal(placed, float(model.num_hidden_layers)))),
        "chunks_have_layers": ((plan.vpp == 1) | ((plan.pp > 1) & (fewest >= plan.vpp))),
        "interleaving_groups_whole": ((plan.vpp == 1) | _groups_whole(job, plan)),
        "micro_batches_pair": overlapped_experts.may_pair(job, plan),
        "zero_has_shards": ((plan.zero > 0) | (plan.dp_shard == 1)),
        "parameters_sharded": (plan.offload_parameters == 0) | (plan.zero == 3) | (plan.dp * plan.cp == 1),
        "host_has_optimizer": np.maximum(plan.offload_parameters, plan.offload_nvme) <= plan.offload_optimizer,
        "teacher_follows": teachable,
        "stack_can": can_run(job, plan, known),
    }


RULES = {
    "gpus_factor": "gpus = tp * pp * cp * dp_replicate * dp_shard, all whole",
    "tp_divides_heads": "tp divides num_attention_heads",
    "tp_divides_kv_heads": "tp divides num_key_value_heads, or is a multiple of it",
    "tp_divides_output_groups": "tp divides o_groups, the groups of heads of compressed attention's output",
    "cp_splits_attention": "cp is 1 where attention is compressed",
    "tp_divides_intermediate_size": "tp divides intermediate_size",
    "ep_divides_experts": "ep divides num_experts and etp moe_intermediate_size; a dense model has ep 1 and etp 1",
    "ep_divides_ranks": "ep * etp divides tp * cp * dp, and divides or is a multiple of tp * cp * dp_shard",
    "sequence_divides": "tp divides seq_len; with cp > 1, 2 tp cp does (each rank takes two chunks to balance the causal mask;"
    " one with cp_balance off)",
    "cp_divides_heads": "with all-to-all, tp times the all-to-all ranks divides num_attention_heads and num_key_value_heads",
    "cp_is_one": "cp is 1 for an encoder, an encoder-decoder and a model with a tower: context parallelism is not modelled for them",
    "pp_is_one": "pp is 1 for an encoder-decoder: a pipeline is not modelled for it",
    "cp_has_two_levels": "all-to-all+ring has an inner group of more than one rank and fewer than cp, which divides cp",
    "stages_paired": "dualpipe pairs stages: pp is 1, or even with at least 2 pp micro-batches",
    "examples_whole": "a micro-batch holds whole examples: with --objective dpo two answers, so micro_batch_size is even",
    "micro_batches_whole": "micro_batch_size * dp divides global_batch_size",
    "stages_have_layers": "every pipeline stage has a layer, or, where its layers are given, the embedding or the loss alone",
    "stages_hold_all_layers": "the stages hold all layers: first_stage_layers, last_stage_layers and the rest in between, with pp > 1",
    "chunks_have_layers": "vpp > 1 needs pp > 1 and a layer for every chunk",
    "interleaving_groups_whole": "the interleaved schedule needs micro-batches in multiples of pp, or of a microbatch_group of at least pp",
    "micro_batches_pair": "overlap ep needs the conditions under which Megatron Core pairs micro-batches: ep > 1, vpp > 1 with a pipeline, "
    "no layer or expert recomputed in full, at most one multi-token-prediction layer, a two-byte model",
    "zero_has_shards": "zero 0 shards nothing, so dp_shard is 1",
    "parameters_sharded": "parameters in the host need zero 3, or one data-parallel rank",
    "host_has_optimizer": "parameters in the host, or states on NVMe, need the optimizer in the host",
    "teacher_follows": "the teacher can run on the ranks of the plan: tp divides its heads, it has a layer for every stage, ep divides its"
    " experts",
    "stack_can": "the framework has what the plan uses: its record's table `can`, printed by `ironlaw catalog show FRAMEWORK`",
    "below_peak": "the model's FLOPs take at least their time at the peak: a shorter step is an error of a constant or of a correction",
    "fits": "device memory is at most the usable capacity, without the share that `--margin` takes, and offloaded bytes at most the host's",
}


_BROKEN = {
    "tp_divides_heads": "tp {tp:g} does not divide num_attention_heads {num_attention_heads}",
    "tp_divides_kv_heads": "tp {tp:g} neither divides num_key_value_heads {num_key_value_heads} nor is a multiple of it",
    "tp_divides_output_groups": "tp {tp:g} does not divide o_groups {model.o_groups} of compressed attention",
    "cp_splits_attention": "cp {cp:g}: context parallelism of compressed attention is not modelled; --recompute full, --tp and --pp take"
    " less memory a rank",
    "tp_divides_intermediate_size": "tp {tp:g} does not divide intermediate_size {intermediate_size}",
    "gpus_factor": "{gpus:g} gpus do not factor: tp {tp:g} * pp {pp:g} * cp {cp:g}"
    " leaves dp_replicate {dp_replicate:.4g} * dp_shard {dp_shard:.4g}",
    "ep_divides_experts": "ep {ep:g} and etp {etp:g} do not divide the experts: {model.num_experts} of width {model.moe_intermediate_size}",
    "ep_divides_ranks": "ep {ep:g} * etp {etp:g} does not divide tp * cp * dp, {tp:g} * {cp:g} * {dp:g}",
    "sequence_divides": "seq_len {seq_len:g} is no multiple of {sequence_ways:g}: tp {tp:g}, times the chunks of cp {cp:g}",
    "cp_divides_heads": "tp {tp:g} times {head_ranks:g} all-to-all ranks does not divide num_attention_heads"
    " {num_attention_heads} and num_key_value_heads {num_key_value_heads}: --cp-method ring or all-gather has no such limit",
    "cp_is_one": "cp {cp:g} is not modelled for {model.name}, whose layers do not all see one causal sequence:"
    " give cp 1 (tp, dp_replicate, dp_shard, zero work)",
    "pp_is_one": "pp {pp:g} is not modelled for {model.name}, an encoder-decoder: give pp 1 (tp, dp_replicate, dp_shard, zero work)",
    "cp_has_two_levels": "all-to-all+ring of cp {cp:g} needs an inner group of more than 1 and fewer than cp ranks that divides cp,"
    " got {head_ranks:g}: give --cp-inner, or use ring or all-to-all",
    "stages_paired": "dualpipe needs an even pp and at least 2 pp micro-batches, there are pp {pp:g} and {num_microbatches:g}",
    "examples_whole": "micro_batch_size {micro_batch_size:g} holds no whole examples of {job.objective.name}, which have"
    " {job.objective.sequences} sequences each",
    "micro_batches_whole": "micro_batch_size {micro_batch_size:g} * dp {dp:g} does not divide global_batch_size {global_batch_size:g}",
    "stages_have_layers": "pp {pp:g} leaves a stage without a layer: {model.name} has {model.num_hidden_layers}",
    "stages_hold_all_layers": "first_stage_layers {first_stage_layers:g} and last_stage_layers {last_stage_layers:g} (-1: even)"
    " do not place the {model.num_hidden_layers} layers of {model.name} on pp {pp:g}",
    "chunks_have_layers": "vpp {vpp:g} needs pp > 1 and a layer for every chunk of every stage{count_ends}",
    "interleaving_groups_whole": "interleaving needs micro-batches in multiples of pp {pp:g}, or of a microbatch_group of at least pp,"
    " there are {num_microbatches:g}",
    "micro_batches_pair": "{missing}",
    "zero_has_shards": "zero 0 shards nothing, dp_shard is {dp_shard:g}: give zero 1 or more, or dp_replicate",
    "parameters_sharded": "--offload parameters gathers weights from the host layer by layer, which needs zero 3; zero is {zero:g}",
    "host_has_optimizer": "the optimizer updates parameters in the host, and states on NVMe, there: offload optimizer too",
    "stack_can": "{lacking}",
    "below_peak": "the predicted step is shorter than the model's FLOPs take at the device's peak: a constant, or a correction, is wrong",
    "teacher_follows": "the teacher {job.teacher.name} cannot run with tp {tp:g}, pp {pp:g}, ep {ep:g}: its heads, layers or experts do not"
    " divide",
}


def broken(job: Job, plan: Plan, rules: Mapping[str, Any], at: int) -> list[str]:
    """What a row breaks, a sentence for each rule."""
    return [says for _, says in broken_rules(job, plan, rules, at)]


def broken_rules(job: Job, plan: Plan, rules: Mapping[str, Any], at: int) -> list[tuple[str, str]]:
    """The rules that a row breaks, each with a sentence of its values. A mesh that does not factor hides those that follow from it."""
    names = [name for name in _BROKEN if name in rules and not np.ravel(rules[name])[at]]
    if not names:
        return []
    if "gpus_factor" in names:
        names = [name for name in names if name in ("gpus_factor", "tp_divides_heads")]
    values = {n: float(np.broadcast_to(getattr(plan, n), (plan.rows,))[at]) for n in (*_AXES, "dp", "num_microbatches")}
    values["sequence_ways"] = values["tp"] * (chunks_of(job) * values["cp"] if values["cp"] > 1 else 1.0)
    values["head_ranks"] = float(np.broadcast_to(head_ranks(job, plan), (plan.rows,))[at])
    sizes = {
        field: _list_sizes(values_of(job.model, field)) for field in ("num_attention_heads", "num_key_value_heads", "intermediate_size")
    }
    missing = overlapped_experts.unmet_condition(job, plan, values, at) if "micro_batches_pair" in names else ""
    counted = (job.model.num_hidden_layers + 2.0) / (values["pp"] * values["vpp"])
    splits = values["pp"] > 1.0 and not job.count_embedding and counted.is_integer()
    hint = f": --count-embedding on counts embedding and loss as layers, {counted:g} for each chunk" if splits else ""
    lacking = broken_ability(job, plan, at) if "stack_can" in names else ""
    return [
        (name, _BROKEN[name].format(model=job.model, job=job, missing=missing, lacking=lacking, count_ends=hint, **sizes, **values))
        for name in names
    ]


def has_source(model: Model) -> bool:
    """True for an encoder-decoder: a layer attends across to what an encoder made."""
    return any(kind.mixer.crosses for kind in kinds(model))


def one_context_rank(model: Model) -> bool:
    """True where tokens see later tokens, or where a tower has tokens of its own."""
    return model.bidirectional or any(kind.tower is not None for kind in kinds(model))


def _list_sizes(numbers: tuple[int, ...]) -> str:
    """The sizes that layers have; of many the first three."""
    return ", ".join(map(str, numbers[:3])) + (", ..." if len(numbers) > 3 else "")


def chunks_of(job: Job) -> float:
    """Chunks of a sequence per context rank: two, one from either end, where the causal mask is balanced."""
    return 2.0 if job.cp_balance else 1.0


_AXES = tuple(Plan.fields)


def legal(rules: dict[str, Any]) -> Any:
    """True where every rule but ``fits`` holds."""
    result = np.True_
    for name, column in rules.items():
        if name != "fits":
            result = result & column
    return result


def _experts_divide(model: Model, plan: Plan) -> Any:
    """True where the ranks divide the experts and their widths."""
    if not model.num_experts:
        return plan.expert_ways == 1.0
    return _divides(plan.ep, model.num_experts) & _divides(plan.etp, model.moe_intermediate_size)


def _nests(plan: Plan) -> Any:
    """True where the ranks of an expert are a whole part, or a whole multiple, of a data-parallel group."""
    inside = plan.tp * plan.cp * plan.dp_shard / plan.expert_ways
    return _is_whole(np.maximum(inside, 1.0 / inside))


def _groups_whole(job: Job, plan: Plan) -> Any:
    """True where a group of micro-batches has at least one for each stage, and groups divide the micro-batches."""
    group = microbatch_group(job, plan)
    return (group >= plan.pp) & _divides(group, plan.num_microbatches)


def _is_whole(number: Any) -> Any:
    return (number == np.floor(number)) & (number >= 1.0)


def _divide_all(divisor: Any, numbers: tuple[int, ...], multiples: bool = False) -> Any:
    """True where the divisor divides the number of every kind of layer, or with ``multiples`` is a multiple of it."""
    result: Any = np.True_
    for number in numbers:
        result = result & (_divides(np.minimum(divisor, number), np.maximum(number, divisor)) if multiples else _divides(divisor, number))
    return result


def _divides(divisor: Any, number: Any) -> Any:
    return _is_whole(number / divisor)
