"""The time of the optimizer's update: states read and written, matrix products, and what ranks send each other for them.

    optimizer = states + matrix products of whole matrices + exchanges of whole matrices

A rank that shares states with others does its share of the products, and at least those of one matrix. The exchanges are between the
reduction of gradients and the update, which waits for them: nothing hides them. An all-reduce of whole gradients, which stands in for
the reduce-scatter where ZeRO 1 gives ranks whole matrices, is in ``network/sharding``, where it hides behind the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ironlaw.catalog.optimizer import CLASSES, Exchange, MatrixProduct, Optimizer
from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer.matrices import Matrix
from ironlaw.estimate.layer.sizes import kernel, memory_roof
from ironlaw.estimate.layer.updates import matrices_of, rank_of, traffic_of_update
from ironlaw.estimate.memory.states import optimizer_parameters
from ironlaw.estimate.pipeline.stages import Pace
from ironlaw.job import Job
from ironlaw.law import flops, kernels, states, traffic
from ironlaw.law._domain import ratio
from ironlaw.plan import Plan
from ironlaw.precision import PRECISIONS
from ironlaw.terms import Term, fold, leaf, total


def optimizer(job: Job, cluster: Cluster, plan: Plan, pace: Pace) -> Term:
    """The update: every state read and written once, times the framework's passes; products and exchanges of optimizers that have them."""
    more = [*products(job, cluster, plan, pace), *exchanges(job, cluster, plan, pace)]
    if not more:
        return elementwise_update("optimizer", job, cluster, plan, pace)
    return total("optimizer", [elementwise_update("states read and written", job, cluster, plan, pace), *more])


def elementwise_update(name: str, job: Job, cluster: Cluster, plan: Plan, pace: Pace) -> Term:
    """Gradient norm and update of every parameter of a rank."""
    parameters = pace.of(lambda stage: optimizer_parameters(job, plan, stage))
    on_device = traffic_of_update(job, pace) * job.framework.optimizer_passes.value
    # where the host updates, the device reads gradients for their norm and writes weights
    offloaded = job.framework.gradient_bytes.value + job.precision.parameter_bytes
    touched = np.where(plan.offload_optimizer > 0, offloaded * job.offload_fraction + on_device * (1.0 - job.offload_fraction), on_device)
    constants = cluster.elementwise
    memory = memory_roof(cluster, constants.bandwidth_fraction, sustains=True)
    return leaf(
        name,
        kernels.memory_time,
        "s",
        "hbm",
        traffic=traffic.optimizer_step(parameters, touched),
        bandwidth=memory.bandwidth,
        bandwidth_fraction=memory.fraction,
        launch=constants.launch,
    )


def _whole_matrices(job: Job, pace: Pace, part: str) -> list[tuple[Any, Matrix]]:
    """The matrices of a class, each with the number of layers that have it on the stage that sets the pace."""
    by_stage = [matrices_of(job, stage, part) for stage in pace.classes]
    return [(pace.pick([layers for layers, _ in same]), same[0][1]) for same in zip(*by_stage, strict=True)]


def products(job: Job, cluster: Cluster, plan: Plan, pace: Pace) -> list[Term]:
    """The matrix products of an update, a term for each kind of product; of a rank that shares states, its share of them."""
    found = [
        (product, rule, layers, matrix)
        for part in CLASSES
        for rule in [job.optimizer.of(part)]
        if rule.product
        for layers, matrix in _whole_matrices(job, pace, part)
        for product in rule.product
    ]
    if not found:
        return []
    names = dict.fromkeys(product.name for product, *_ in found)
    terms = []
    for routed, ranks in ((False, plan.shard_ranks), (True, plan.expert_shard_ranks)):
        of_group = [row for row in found if row[3].routed is routed]
        if of_group:
            timed = {name: [_timed(job, cluster, plan, *row) for row in of_group if row[0].name == name] for name in names}
            parts = [total(name, rows) for name, rows in timed.items()]
            share = _share(plan, ranks, fold(parts), _longest(timed))
            terms.append(total("matrix products of the update, experts" if routed else "matrix products of the update", parts, times=share))
    return terms


def _timed(job: Job, cluster: Cluster, plan: Plan, product: MatrixProduct, rule: Optimizer, layers: Any, matrix: Matrix) -> Term:
    """One product of all matrices that are alike, on all ranks that share them together."""
    count, rows, columns = matrix.on_rank(plan)
    small, large = np.minimum(rows, columns), np.maximum(rows, columns)
    longest = np.inf if rule.largest_side is None or not product.squares else rule.largest_side.value
    block = np.inf if rule.block is None or not product.squares else rule.block.value
    blocks = np.ceil(small / np.minimum(block, small)) * np.ceil(large / np.minimum(block, large))
    sides = {"m": np.minimum(block, small), "n": np.minimum(block, large), "r": rank_of(rule, rows, columns, job.optimizer.rank)}
    of_square = {"m": small, "n": large, "r": small}[product.rows if product.rows == product.columns else product.inner]
    steps = 1.0 if product.every is None else product.every.value
    number = layers * count * blocks * np.where(of_square <= longest, 1.0, 0.0) * (product.times.value / steps)
    size = tuple(sides[letter] for letter in (product.rows, product.columns, product.inner))
    return total(matrix.name, [_multiply(job, cluster, matrix.name, product.precision, size)], times=number)


def _multiply(job: Job, cluster: Cluster, name: str, precision: str, size: Sequence[Any]) -> Term:
    """One product in a format; in the wide format of the job where the device or its calibration has not that one."""
    known = precision in cluster.accelerator.peak and precision in cluster.calibration.gemm
    form = PRECISIONS[precision if known else job.precision.wide]
    element = form.activation_bytes
    m, n, k = size
    moved = traffic.gemm(m, n, k, element, element, element)
    return kernel(cluster, name, flops.gemm(m, n, k), moved, form.peak, cluster.gemm(form.gemm))


def _longest(timed: dict[str, list[Term]]) -> Any:
    """The products of the one matrix that takes longest."""
    each = [sum(one.parts[0].value * np.where(one.times > 0, 1.0, 0.0) for one in same) for same in zip(*timed.values(), strict=True)]
    longest = each[0]
    for one in each[1:]:
        longest = np.maximum(longest, one)
    return longest


def _share(plan: Plan, ranks: Any, whole: Any, longest: Any) -> Any:
    """The share of all products that the busiest of ``ranks`` does: its part, and at least one matrix."""
    shards = states.zero_shards(1.0, plan.zero, ranks)
    return np.minimum(np.maximum(1.0 / shards, np.nan_to_num(ratio(longest, whole))), 1.0)


def exchanges(job: Job, cluster: Cluster, plan: Plan, pace: Pace) -> list[Term]:
    """What ranks that share states send each other for the update of whole matrices, by the plan's ZeRO stage."""
    terms = []
    for part in CLASSES:
        for row in job.optimizer.of(part).exchange:
            needed = np.isin(plan.zero, [float(stage) for stage in row.zero])
            if np.any(needed):
                terms.append(total(row.name, _sent(job, cluster, plan, pace, part, row), times=np.where(needed, row.times.value, 0.0)))
    return [total("whole matrices sent", terms)] if terms else []


def _sent(job: Job, cluster: Cluster, plan: Plan, pace: Pace, part: str, row: Exchange) -> list[Term]:
    """One exchange of all matrices of a class: those outside experts, and those in them."""
    size = job.framework.gradient_reduce_bytes.value if row.bytes is None else row.bytes.value
    common: Any = 0.0
    routed: Any = 0.0
    for layers, matrix in _whole_matrices(job, pace, part):
        count, rows, columns = matrix.on_rank(plan)
        moved = layers * count * rows * columns * size
        common, routed = (common, routed + moved) if matrix.routed else (common + moved, routed)
    groups = [("matrices", plan.shard_ranks, common, plan.tp), ("matrices of experts", plan.expert_shard_ranks, routed, plan.expert_ways)]
    return [_send(cluster, plan, row.operation, *group) for group in groups[: 2 if job.model.num_experts else 1]]


def _send(cluster: Cluster, plan: Plan, operation: str, name: str, ranks: Any, size: Any, stride: Any) -> Term:
    """A collective of ``size`` bytes in all; of an all-to-all each rank sends its share."""
    if operation == "all_to_all":
        return group_links.all_to_all(cluster, plan, name, ranks, size / ranks, stride)
    return group_links.collective(cluster, plan, name, operation, ranks, size, stride)
