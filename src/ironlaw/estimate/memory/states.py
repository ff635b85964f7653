"""Weights, gradients, master weights and optimizer states of a stage on one rank, each sharded from its ZeRO stage on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ironlaw.cluster import Cluster
from ironlaw.estimate.layer import uneven
from ironlaw.estimate.layer.casts import cast_copy_bytes, gathered_bytes, job_of_experts, keeps_weights
from ironlaw.estimate.layer.counts import (
    head_parameters,
    stage_common,
    stage_linear,
    stage_replicated,
    stage_routed,
    stage_tables,
    tied_parameters,
)
from ironlaw.estimate.layer.frozen_weights import stored_bytes
from ironlaw.estimate.layer.trained import stage_trained
from ironlaw.estimate.layer.updates import kept_on_rank, largest_matrices, largest_states
from ironlaw.estimate.pipeline.schedules import schedule_of
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.job import Job
from ironlaw.law import states
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf, total

WHOLE = ("gathered weights", "gathered linear weights")  # terms of weights that ZeRO 3 gathered and that stay whole
Counts = tuple[Any, Any, Any]  # parameters outside the experts, in the experts, and of the former those that tp does not split


def model_states(job: Job, cluster: Cluster, plan: Plan, stage: Stage, gradients: Any = None) -> list[Term]:
    """Weights, gradients, master weights and optimizer states, each sharded from its ZeRO stage on.

    ``gradients`` is 0 where the peak is at a moment without gradients; None counts them everywhere.

    Only narrow linear layers have cast copies; where weights are gathered as they were cast, no wide weight is kept beside them.
    """
    optimizer = job.optimizer
    f, precision = job.framework, job.precision
    stored = f.parameter_bytes if stores_masters(job) else precision.parameter_bytes
    if job.lora_rank and f.frozen_bytes is not None:
        stored = f.frozen_bytes
    adapter = f.adapter_bytes or precision.parameter_bytes
    whole = whole_gradients(job, plan)
    separate_master = precision.master_weights and f.parameter_bytes is None
    on_device = 1.0 - plan.offload_optimizer * job.offload_fraction
    replicated = stage_replicated(job.model, stage)
    linear, experts, down = stage_linear(job.model, stage)
    wide = (stage_common(job.model, stage), stage_routed(job.model, stage), replicated)
    all_weights = wide
    of_experts = job_of_experts(job)
    if keeps_weights(job) and job.fp8_param_gather:
        wide = (wide[0] - linear, wide[1] - (experts if of_experts is job else 0.0), replicated - down)
    trained = (*stage_trained(job, stage), 0.0 if job.lora_rank else replicated)
    sets = (*(job.lora_sets * count for count in trained[:2]), trained[2]) if job.lora_rank else trained
    state = partial(_sharded_state, job, plan, stage)
    if job.frozen_weights:
        weights = frozen_weights(job, plan, stage)
    else:
        weights = [
            state("weights", stored, 3.0, wide),
            state(
                "low-precision copies of weights",
                cast_copy_bytes(job, cluster),
                3.0,
                (linear, experts, down),
                of_experts=cast_copy_bytes(of_experts, cluster),
            ),
        ]
    if job.lora_rank:
        weights.append(state("weights of adapters", adapter, 3.0, sets))
        separate_master = separate_master and f.adapter_bytes is None
    here: Any = 1.0
    if np.any(plan.offload_parameters > 0):
        here = 1.0 - plan.offload_parameters
        weights = [part.repeated(here) for part in weights]
    return [
        *(part.of_kind("weights") for part in weights),
        state("gradients", f.gradient_bytes.value, 2.0, sets, times=here * (1.0 if gradients is None else gradients)).of_kind("gradients"),
        state("whole gradients", precision.parameter_bytes, 4.0, sets, times=whole).of_kind("gradients"),
        *_whole_beside_pipeline(job, plan, state, all_weights, (linear, experts, down), sets, 1.0 if gradients is None else gradients),
        state("master weights", on_device * optimizer.master_bytes if separate_master else 0.0, 1.0, trained).of_kind("optimizer"),
        optimizer_states(job, plan, stage, on_device * (1.0 - pages(job)), trained).of_kind("optimizer"),
    ]


def pages(job: Job) -> float:
    """1 where the optimizer's states are pages, which the device holds only as far as nothing else needs its memory."""
    return float(job.optimizer.matrices.paged)


def paged_states(job: Job, plan: Plan, stage: Stage) -> Term:
    """The states of an optimizer that pages them, of a stage on one rank; nothing where the host has them anyway."""
    trained = (*stage_trained(job, stage), 0.0 if job.lora_rank else stage_replicated(job.model, stage))
    return optimizer_states(job, plan, stage, pages(job) * (1.0 - plan.offload_optimizer * job.offload_fraction), trained)


def stores_masters(job: Job) -> bool:
    """True where the stored weights are the master weights; frozen weights, and weights the optimizer updates directly, need none."""
    stored = job.framework.parameter_bytes
    needed = job.precision.master_weights and job.optimizer.master_bytes > 0.0 and not job.lora_rank
    return stored is not None and stored.value > job.precision.parameter_bytes and needed


def whole_gradients(job: Job, plan: Plan) -> Any:
    """1 where gradients of several micro-batches are summed on every rank before they are reduced: FSDP's ``no_sync``."""
    accumulates = (plan.zero == 3) & (plan.shard_ranks > 1) & (plan.num_microbatches > 1)
    return np.where(accumulates, 1.0, 0.0) if job.framework.whole_gradients else 0.0


def keeps_gathered(job: Job, plan: Plan) -> Any:
    """1 where the weights that ZeRO 3 gathered stay whole until the step ends: FSDP2 beside a pipeline (``reshard_after_forward``)."""
    kept = (plan.zero == 3) & (plan.shard_ranks > 1) & (plan.pp > 1)
    return np.where(kept, 1.0, 0.0) if job.framework.whole_with_pp else 0.0


def _whole_beside_pipeline(
    job: Job, plan: Plan, state: Callable[..., Term], wide: Counts, linear: Counts, sets: Counts, gradients: Any
) -> list[Term]:
    """What FSDP2 keeps whole beside a pipeline: the weights that it gathered once a step, and gradients summed over micro-batches.

    ``wide`` are all weights and ``linear`` those of them that may be gathered in a narrow format.
    """
    if not job.framework.whole_with_pp:
        return []
    sharded = (plan.zero >= 2) & (plan.shard_ranks > 1) & (plan.pp > 1)
    gathered = keeps_gathered(job, plan)
    summed = np.where(sharded & (plan.num_microbatches > 1), 1.0, 0.0) * gradients
    others = (wide[0] - linear[0], wide[1] - linear[1], wide[2] - linear[2])
    narrow, of_experts = gathered_bytes(job), gathered_bytes(job_of_experts(job))
    return [
        state(WHOLE[0], job.precision.parameter_bytes, 4.0, others, times=gathered).of_kind("weights"),
        state(WHOLE[1], narrow, 4.0, linear, times=gathered, of_experts=of_experts).of_kind("weights"),
        state("gradients of micro-batches", job.framework.gradient_reduce_bytes.value, 4.0, sets, times=summed).of_kind("gradients"),
    ]


def _sharded_state(
    job: Job,
    plan: Plan,
    stage: Stage,
    name: str,
    size: Any,
    from_stage: float,
    counts: tuple[Any, Any, Any],
    times: Any = None,
    of_experts: Any = None,
) -> Term:
    """A state of ``size`` bytes a parameter on one rank, sharded from ZeRO stage ``from_stage`` on; ``of_experts`` in experts, if other.

    ``counts`` are parameters outside the experts, in the experts, and of the former those that tensor parallelism does not split. The
    two ranks that run a pipeline stage share its optimizer states.
    """
    common_count, routed_count, entire = counts
    copies = _copies_a_rank(job, plan) if from_stage > 1.0 else 1.0
    entire = np.minimum(entire, common_count)
    local = copies * ((common_count - entire) / plan.tp + entire)
    shards = states.zero_shards(from_stage, plan.zero, plan.shard_ranks)
    largest, largest_expert = largest_matrices(job, plan, stage) if from_stage == 1.0 else (0.0, 0.0)
    shards = _at_most_matrices(shards, local, largest)
    common = leaf(name, states.state, "B", times=times, parameters=local, bytes_per_parameter=size, shards=shards)
    if not job.model.num_experts:
        return common
    shards = states.zero_shards(from_stage, plan.zero, plan.expert_shard_ranks)
    parameters = copies * routed_count / plan.expert_ways * uneven.copies(job, plan)
    size = size if of_experts is None else of_experts
    shards = _at_most_matrices(shards, parameters, largest_expert)
    inside = leaf(f"{name}, experts", states.state, "B", times=times, parameters=parameters, bytes_per_parameter=size, shards=shards)
    return total(name, [common, inside])


def _copies_a_rank(job: Job, plan: Plan) -> Any:
    """Pipeline stages whose weights one rank stores."""
    return np.where(plan.pp > 1, schedule_of(job).stages_per_rank, 1.0)


def _at_most_matrices(shards: Any, parameters: Any, largest: Any) -> Any:
    """``shards``, but no more than whole matrices of the ``largest`` size allow."""
    return np.minimum(shards, np.maximum(parameters / np.maximum(largest, 1.0), 1.0))


def frozen_weights(job: Job, plan: Plan, stage: Stage) -> list[Term]:
    """Frozen weights beside adapters, as they are stored; embedding and output layer keep the type of the precision."""
    copies_a_rank = _copies_a_rank(job, plan)
    tables = stage_tables(job.model, stage)
    shards, expert_shards = (states.zero_shards(3.0, plan.zero, ranks) for ranks in (plan.shard_ranks, plan.expert_shard_ranks))
    wide, small = job.precision.parameter_bytes, stored_bytes(job)
    layers = stage_common(job.model, stage) - tables
    if job.framework.packed_output:  # an output layer apart from the embedding is packed as the layers are
        packed = stage.head * (head_parameters(job.model) - tied_parameters(job.model))
        tables, layers = tables - packed, layers + packed
    terms = [
        leaf("weights of layers", states.state, "B", parameters=copies_a_rank * layers / plan.tp, bytes_per_parameter=small, shards=shards),
        leaf(
            "weights of embedding and output layer", states.state, "B", parameters=tables / plan.tp, bytes_per_parameter=wide, shards=shards
        ),
    ]
    if job.model.num_experts:
        routed = copies_a_rank * stage_routed(job.model, stage) / plan.expert_ways * uneven.copies(job, plan)
        terms.append(leaf("weights of experts", states.state, "B", parameters=routed, bytes_per_parameter=small, shards=expert_shards))
    return [total("weights", terms)]


def loaded_bytes(job: Job, plan: Plan, stage: Stage) -> Any:
    """Bytes of a stage's weights on one rank in the type in which they are loaded, before four-bit formats are made of them."""
    count = stage_common(job.model, stage) / plan.tp
    if job.model.num_experts:
        count = count + stage_routed(job.model, stage) / plan.expert_ways * uneven.copies(job, plan)
    return count * job.precision.parameter_bytes


def optimizer_states(job: Job, plan: Plan, stage: Stage, on_device: Any, trained: tuple[Any, Any, Any]) -> Term:
    """The states of the optimizer; where it treats classes of parameters differently, by class and by the shape of the state."""
    if job.optimizer.alike:
        return _sharded_state(job, plan, stage, "optimizer states", on_device * job.optimizer.matrices.state_bytes, 1.0, trained)
    every = kept_on_rank(job, plan, stage)
    ranks = plan.shard_ranks, plan.expert_shard_ranks
    sizes = sum(kept.common * kept.size for kept in every), sum(kept.routed * kept.size for kept in every)
    groups = zip(ranks, sizes, largest_states(job, plan, stage), strict=True)
    common, routed = (_at_most_matrices(states.zero_shards(1.0, plan.zero, n), size, largest) for n, size, largest in groups)
    parts = []
    for kept in every:
        size = on_device * kept.size
        one = leaf(kept.name, states.state, "B", parameters=kept.common, bytes_per_parameter=size, shards=common)
        inside = f"{kept.name}, experts"
        experts = leaf(inside, states.state, "B", parameters=kept.routed, bytes_per_parameter=size, shards=routed)
        parts += [one, experts] if job.model.num_experts else [one]
    return total("optimizer states", parts)


def optimizer_parameters(job: Job, plan: Plan, stage: Stage) -> Any:
    """Parameters of a stage whose optimizer states one accelerator updates, on the device or in the host."""
    common, routed = stage_trained(job, stage)
    parameters = common / plan.tp / states.zero_shards(1.0, plan.zero, plan.shard_ranks)
    if job.model.num_experts:
        routed = routed * uneven.copies(job, plan)
        parameters = parameters + routed / plan.expert_ways / states.zero_shards(1.0, plan.zero, plan.expert_shard_ranks)
    return parameters
