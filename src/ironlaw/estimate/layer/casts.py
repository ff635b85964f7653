"""Narrow formats of linear layers: which tensors are cast when, in how many orientations, and which casts are kept or sent.

A product reads both operands along its inner extent, so input, weight and output gradient are each needed by rows for one product
and by columns for another. A framework that keeps the cast input casts both orientations at once; one that keeps the wide input
casts each orientation where it is used. The framework record has these facts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.estimate.layer.counts import stage_linear
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.products import SHARED_EXPERTS
from ironlaw.estimate.layer.sizes import Operator, elementwise, transformed
from ironlaw.estimate.pipeline.stages import Pace, Stage
from ironlaw.job import Job
from ironlaw.law import formats, states, traffic
from ironlaw.plan import Plan
from ironlaw.precision import GRADIENT, INPUT, INPUT_GRADIENT, OUTPUT, PRECISIONS, SHARED, WEIGHT, WEIGHT_GRADIENT
from ironlaw.terms import Term

CAST = Operator("cast")  # the key of kernels that cast
Products = dict[str, tuple[Any, Any, Any]]
GATHERED_INPUTS = ("query-key-value", "query up", "key-value up", "attention gate", "mlp in", "shared expert in", "state in")
BEHIND_NORMS = ("query-key-value", "mlp in")  # products in one module with the norm before them; elsewhere a router lies between
GATHERED_GRADIENTS = ("attention output", "mlp out", "shared expert out", "state out")


def job_of_kind(job: Job, kind: Kind) -> Job:
    """The job for one kind of layer: layers that are kept wide compute in the wide precision."""
    return wide_job(job) if kind.wide else job


@lru_cache(256)
def wide_job(job: Job) -> Job:
    """The job with all products in the wide precision, those of experts too."""
    wide = PRECISIONS[job.precision.wide]
    return job.replace(precision=wide, expert_precision="", expert_formats=wide, fp8_param_gather=False)


@lru_cache(256)
def job_of_experts(job: Job) -> Job:
    """The job for the products of routed experts: in their own precision where they have one; its weights are gathered wide."""
    if not job.expert_precision or job.expert_precision == job.precision.name:
        return job
    return job.replace(precision=job.expert_formats, fp8_param_gather=False)


def job_of_shared(job: Job) -> Job:
    """The job for shared experts, which a recipe may keep wide."""
    return wide_job(job) if SHARED in job.model.wide_parts else job


def narrow_shapes(job: Job, shapes: Products) -> Products:
    """The products of a layer whose operands are cast: without shared experts where these stay wide."""
    if job_of_shared(job) is job:
        return shapes
    return {name: mnk for name, mnk in shapes.items() if name not in SHARED_EXPERTS}


def scale_reads(job: Job) -> float:
    """How often a tensor is read for its scales before it is cast; never with delayed scaling, which takes them from earlier steps."""
    return 0.0 if delayed(job) else job.precision.scale_reads


def fuses_casts(job: Job) -> bool:
    """True in compiled stacks: the kernel that writes a tensor finds its scale, and one kernel writes both orientations."""
    return job.framework.fused_scales is not None and job.framework.fused_scales.value > 0


def fused_norms(job: Job, shapes: Products) -> float:
    """Norms of a layer that write the cast input of the next product; needs delayed scaling, where the scale is known before."""
    record = job.framework.fused_norms
    if record is None or not delayed(job):
        return 0.0
    return record.value * sum(name in BEHIND_NORMS for name in shapes)


def delayed(job: Job) -> bool:
    """True where scales come from earlier steps."""
    return job.precision.narrow and job.precision.one_scale and (job.precision.scaling or job.fp8_scaling) == "delayed"


def layouts(job: Job, cluster: Cluster, tensor: str = WEIGHT) -> float:
    """Orientations in which a cast tensor is stored: one for each narrow product that reads it.

    One is enough for all where the tensor has one scale and the device multiplies either way.
    """
    one_copy = job.precision.one_scale and job.framework.one_layout and cluster.accelerator.fp8_one_layout
    return min(job.precision.uses(tensor), 1.0) if one_copy else job.precision.uses(tensor)


def keeps_inputs(job: Job) -> bool:
    """True where the weight gradient of a linear layer reads the cast input, so that the wide input is not kept."""
    return _framework_does(job, job.framework.narrow_inputs) and job.precision.product(WEIGHT_GRADIENT).narrow


def casts_once(job: Job) -> bool:
    """True where one kernel casts a tensor in all orientations that its products need."""
    return keeps_inputs(job) or _framework_does(job, job.framework.casts_once)


def _framework_does(job: Job, record: Sourced | None) -> bool:
    """True where the framework record says that it does this with the job's format."""
    known = job.precision.one_scale or not job.framework.narrow_with_one_scale
    return job.precision.narrow and known and record is not None and record.value > 0


def keeps_weights(job: Job) -> bool:
    """True where cast weights stay from one micro-batch to the next."""
    casts = job.precision.uses(WEIGHT) > 0.0
    return casts and job.framework.narrow_weights is not None and job.framework.narrow_weights.value > 0


def cast_copy_bytes(job: Job, cluster: Cluster) -> Any:
    """Bytes of all cast copies of a weight that are kept, with the source of that fact."""
    p, count, record = job.precision, layouts(job, cluster), job.framework.narrow_weights
    if p.rounded_weights:
        return p.parameter_bytes  # autograd keeps the rounded weight for the gradient of the input
    if record is None or not keeps_weights(job):
        return 0.0
    return Sourced(p.weight_bytes * count, "B", f"{p.weight_bytes:.4g} B, copies {count:g}", record.source, record.note)


def input_bytes(job: Job) -> float:
    """Bytes kept for an element of a linear layer's input, where no other operator keeps it."""
    return job.precision.operand_bytes + job.precision.mask_bytes if keeps_inputs(job) else job.precision.activation_bytes


def keeps_cast_copies(job: Job) -> bool:
    """True where a cast copy is kept of a tensor that another operator keeps wide: in Megatron with delayed scaling alone."""
    return keeps_inputs(job) and delayed(job)


def gathers_cast(job: Job, backward: bool = False) -> bool:
    """True where sequence parallelism gathers a pass's tensors after they were cast, which its first product reads narrow."""
    narrow = job.precision.product(INPUT_GRADIENT if backward else OUTPUT).narrow
    return narrow and _framework_does(job, job.framework.narrow_sequence)


def sent_bytes(job: Job, backward: bool) -> float:
    """Bytes of an element that sequence parallelism gathers.

    An output gradient is gathered in both orientations where they differ, unless the wide tensor is no larger than both.
    """
    p, uses = job.precision, job.precision.uses(GRADIENT if backward else INPUT)
    if not gathers_cast(job, backward):
        return p.activation_bytes
    return min(p.activation_bytes, p.operand_bytes * (uses if backward and not p.one_scale else 1.0))


def gathered_bytes(job: Job) -> float:
    """Bytes of a narrow layer's weight as data-parallel ranks gather it."""
    if not job.fp8_param_gather or not job.precision.narrow:
        return job.precision.parameter_bytes
    return job.framework.param_gather[job.precision.known_as].value


def casts(cluster: Cluster, job: Job, plan: Plan, shapes: Products, backward: bool) -> list[Term]:
    """Casts of one pass over a layer's linear layers outside its experts: inputs or output gradients, and weights where they are used."""
    p = job.precision
    if not p.narrow:
        return []
    gathered = GATHERED_GRADIENTS if backward else GATHERED_INPUTS
    moved: Any = 0.0
    rotated: Any = 0.0
    weights: Any = 0.0
    shapes = narrow_shapes(job, shapes)
    for name, (m, n, k) in shapes.items():
        split = plan.sequence_shards if gathers_cast(job, backward) and name in gathered else 1.0
        fused = not backward and name in BEHIND_NORMS and fused_norms(job, shapes) > 0.0
        width = n if backward else k
        moved = moved + activation_cast_bytes(cluster, job, m, width, split, backward, fused)
        rotated = rotated + rotated_elements(job, m * width / split, m * k, backward)
        if backward and not casts_once(job) and not job.lora_rank and p.product(WEIGHT_GRADIENT).narrow:
            ranks = plan.sequence_shards if gathers_cast(job) and name in GATHERED_INPUTS else 1.0
            moved = moved + np.where(_transposed_after_gather(job, ranks), 2.0 * p.operand_bytes * m * k, cast_bytes(job, m * k, 1.0))
        if backward and not job.lora_rank:
            moved = moved + turned_back_bytes(job, m * k, n * k)
        weights = weights + n * k
    terms = [] if p.rounded_weights else [cast_kernels(cluster, job, "casts", moved, rotated, len(shapes) * kernels_of_cast(job))]
    return terms + weight_casts(cluster, job, plan, "weight casts", weights, plan.shard_ranks, backward)


def kernels_of_cast(job: Job) -> float:
    """Kernels that cast one tensor: those that find its scales, the cast, and a second cast of the transformed orientation."""
    return 1.0 + scale_reads(job) + (job.precision.hadamard_reads if casts_once(job) else 0.0)


def cast_kernels(
    cluster: Cluster, job: Job, name: str, moved: Any, rotated: Any, kernels_run: float, key: Operator | None = None, times: Any = None
) -> Term:
    """The term of kernels that cast: memory bound; with random Hadamard transforms of ``rotated`` elements, also limited by their FLOPs."""
    p = job.precision
    if not p.hadamard:
        return elementwise(cluster, name, moved, kernels_run, key=key or CAST, times=times)
    return transformed(cluster, name, moved, formats.hadamard_flop(rotated, p.hadamard), p.wide, kernels_run, key or CAST, times)


def rotated_elements(job: Job, cast: Any, inputs: Any, backward: bool) -> Any:
    """Elements that one pass transforms before a cast: of the tensor that it casts first, and of the inputs that backward casts again."""
    p = job.precision
    if not p.hadamard:
        return 0.0
    if backward:
        again = 0.0 if casts_once(job) or job.lora_rank else float((INPUT, WEIGHT_GRADIENT) in p.rotated)
        return p.rotations(GRADIENT) * cast + again * inputs
    return (p.rotations(INPUT) if casts_once(job) else float((INPUT, OUTPUT) in p.rotated)) * cast


def turned_back_bytes(job: Job, inputs: Any, weights: Any) -> Any:
    """Bytes moved to transform gradients back after their product: each read and written wide, an input's with its mask."""
    p = job.precision
    moved: Any = 0.0
    if INPUT in p.rotated_back:
        moved = moved + (2.0 * p.activation_bytes + p.mask_bytes) * inputs
    if WEIGHT in p.rotated_back:
        moved = moved + 2.0 * p.activation_bytes * weights
    return moved


def cast_bytes(job: Job, elements: Any, orientations: float) -> Any:
    """Bytes of one cast of an activation."""
    reads = 0.0 if fuses_casts(job) else scale_reads(job)
    return traffic.cast(elements, job.precision.activation_bytes, job.precision.operand_bytes, reads, orientations)


def activation_cast_bytes(cluster: Cluster, job: Job, rows: Any, width: Any, split: Any, backward: bool, fused: bool = False) -> Any:
    """Bytes moved to cast a tensor whose rows are cast on ``split`` ranks before they are gathered.

    A tensor with one scale is transposed after the gather: read and written in the narrow format. A tensor that a norm has already
    written cast (``fused``) is only transposed.
    """
    p, elements, first = job.precision, rows * width, INPUT_GRADIENT if backward else OUTPUT
    orientations = layouts(job, cluster, GRADIENT if backward else INPUT)
    if job.lora_rank:  # frozen weights have no gradient to read the other orientation
        orientations = float(p.product(first).narrow)
    if fused:
        return 2.0 * (orientations - 1.0) * p.operand_bytes * elements
    needed = orientations if backward or casts_once(job) else float(p.product(first).narrow)  # an input cast again later: by rows now
    if needed == 0.0:
        return 0.0 * elements
    one_kernel = casts_once(job) or fuses_casts(job)
    before_gather = cast_bytes(job, elements / split, needed) if one_kernel else needed * cast_bytes(job, elements / split, 1.0)
    if one_kernel and needed > 1.0:
        before_gather = before_gather + p.hadamard_reads * p.activation_bytes * elements / split
    if needed == 1.0 or not p.one_scale:
        return before_gather
    gathered = cast_bytes(job, elements / split, 1.0) + 2.0 * p.operand_bytes * elements
    return np.where(_transposed_after_gather(job, split), gathered, before_gather)


def _transposed_after_gather(job: Job, split: Any) -> Any:
    """True where a tensor has one scale and was gathered after its cast: its other orientation is made from the gathered one."""
    return (np.asarray(split) > 1.0) & job.precision.one_scale


def weight_casts(
    cluster: Cluster, job: Job, plan: Plan, name: str, weights: Any, ranks: Any, backward: bool, key: Operator | None = None
) -> list[Term]:
    """Weight casts in one pass of a micro-batch: at every use, or where casts are kept only when ZeRO 3 gathers them again."""
    p = job.precision
    if job.frozen_weights:  # stored as they are multiplied
        return []
    if p.rounded_weights:
        rounding = traffic.cast(weights, p.parameter_bytes, p.parameter_bytes, 0.0, 1.0)
        return [] if backward else [elementwise(cluster, name, rounding, 1.0, key=key or CAST)]
    gathered_again = (plan.zero == 3) & (ranks > 1.0)
    if keeps_weights(job):
        if backward or not np.any(gathered_again):
            return []
        moved, rotated = whole_weights(cluster, job, weights), p.rotations(WEIGHT) * weights
        return [cast_kernels(cluster, job, name, moved, rotated, 2.0, key, np.where(gathered_again, 1.0, 0.0))]
    if not p.product(INPUT_GRADIENT if backward else OUTPUT).narrow:
        return []
    shards = np.where(gathered_again & job.fp8_param_gather, ranks, 1.0)
    wide = job.framework.parameter_bytes.value if job.framework.parameter_bytes is not None else p.parameter_bytes
    reads = 0.0 if backward and fuses_casts(job) else scale_reads(job)  # a compiler finds them once for both passes
    cast_whole = traffic.cast(weights, p.parameter_bytes, p.weight_bytes, reads, 1.0)
    cast_shard = traffic.cast(weights / shards, wide, p.weight_bytes, 0.0, 1.0) + (2.0 * p.weight_bytes * weights if backward else 0.0)
    rotated = weights * float((WEIGHT, INPUT_GRADIENT if backward else OUTPUT) in p.rotated)
    return [cast_kernels(cluster, job, name, np.where(shards > 1.0, cast_shard, cast_whole), rotated, 2.0, key)]


def whole_weights(cluster: Cluster, job: Job, weights: Any) -> Any:
    """Bytes moved to cast weights in all orientations that are kept; weights that are gathered narrow are only transposed."""
    p, both = job.precision, layouts(job, cluster)
    if gathered_bytes(job) < p.parameter_bytes:
        return 2.0 * (both - 1.0) * p.weight_bytes * weights
    again = p.hadamard_reads if both > 1.0 and p.rotations(WEIGHT) else 0.0  # two transforms are two casts
    return traffic.cast(weights, p.parameter_bytes, p.weight_bytes, scale_reads(job) + again, both)


def kept_weights(cluster: Cluster, job: Job, plan: Plan, pace: Pace) -> list[Term]:
    """Weight casts once a step, for casts that are kept for all its micro-batches.

    Shards that are gathered narrow are first read for their scales. Weights that ZeRO 3 gathers are cast with every gather instead;
    where they are gathered narrow and not kept, their scales are found once a step.
    """
    routed = job_of_experts(job)
    if routed is job:
        return _kept_weights(cluster, job, plan, pace, 1.0, 1.0)
    return [*_kept_weights(cluster, job, plan, pace, 1.0, 0.0), *_kept_weights(cluster, routed, plan, pace, 0.0, 1.0)]


def _kept_weights(cluster: Cluster, job: Job, plan: Plan, pace: Pace, share: float, expert_share: float) -> list[Term]:
    """The casts of ``share`` of the weights outside experts and ``expert_share`` of those inside, in the job's precision."""
    if job.frozen_weights or job.precision.uses(WEIGHT) == 0.0:
        return []
    if not keeps_weights(job):
        return _scales(cluster, job, plan, pace) if job.fp8_param_gather else []
    not_gathered = np.where((plan.zero == 3) & (plan.shard_ranks > 1.0), 0.0, 1.0)
    kept_experts = np.where((plan.zero == 3) & (plan.expert_shard_ranks > 1.0), 0.0, 1.0) if job.model.num_experts else not_gathered

    def counts(stage: Stage) -> tuple[Any, Any]:
        """Weights of a stage on one rank, outside experts and in them."""
        common, routed, entire = stage_linear(job.model, stage)
        dense = share * not_gathered * ((common - entire) / plan.tp + entire)
        return dense, expert_share * kept_experts * (routed / plan.expert_ways)

    def local(stage: Stage) -> Any:
        """Bytes moved for the weights of a stage on one rank."""
        dense, experts = counts(stage)
        moved = whole_weights(cluster, job, dense + experts)
        if job.fp8_param_gather:
            shard = dense / states.zero_shards(1.0, plan.zero, plan.shard_ranks)
            shard = shard + experts / states.zero_shards(1.0, plan.zero, plan.expert_shard_ranks)
            moved = moved + scale_reads(job) * 4.0 * shard  # of the fp32 master weights
        return moved

    rotations = job.precision.rotations(WEIGHT)
    rotated = rotations * pace.of(lambda stage: sum(counts(stage))) if rotations else 0.0
    times = np.maximum(not_gathered, kept_experts)
    return [cast_kernels(cluster, job, "weight casts", pace.of(local), rotated, 2.0, times=times)]


def _scales(cluster: Cluster, job: Job, plan: Plan, pace: Pace) -> list[Term]:
    """Reads of all weight shards for their scales, once a step, where ZeRO 3 gathers them narrow."""
    wide = job.framework.parameter_bytes.value if job.framework.parameter_bytes is not None else job.precision.parameter_bytes

    def shards(stage: Stage) -> Any:
        """Weights of a stage that one rank shards."""
        common, routed, entire = stage_linear(job.model, stage)
        dense, experts = (common - entire) / plan.tp + entire, routed / plan.expert_ways
        shard = np.where(plan.shard_ranks > 1.0, dense / plan.shard_ranks, 0.0)
        return shard + np.where(plan.expert_shard_ranks > 1.0, experts / plan.expert_shard_ranks, 0.0)

    read = scale_reads(job) * wide * pace.of(shards)
    return [elementwise(cluster, "weight casts", read, 1.0, times=np.where((plan.zero == 3) & (read > 0.0), 1.0, 0.0))]
