"""Tensor parallelism of one layer: its collectives, which of them are waited for, and which run beside a product.

Attention and MLP are one block each: a product split by columns, whose input all ranks need, and a product split by rows, whose
output they sum. Without sequence parallelism an all-reduce sums: forward after the second product, backward after the first.
With it a gather precedes the first product and a scatter follows the second; backward the other way round.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer import casts
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.passes import inside_segment
from ironlaw.estimate.layer.products import LAST_PRODUCTS
from ironlaw.estimate.layer.sizes import Operator, Shapes, once_for_sizes, operator_of
from ironlaw.estimate.network.sharding import Overlapped, Waits, exposed
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.law import overlap
from ironlaw.plan import Plan
from ironlaw.precision import INPUT_GRADIENT, OUTPUT, WEIGHT_GRADIENT
from ironlaw.terms import Term, leaf, total

BLOCKS = (  # products split by columns, and by rows
    (("query-key-value", "query up", "key-value up", "attention gate", "state in"), ("attention output", "state out")),
    (("mlp in", "shared expert in"), ("mlp out", "shared expert out")),
)

_BESIDE_GRADIENTS, _IN_PIECES = "overlapped with backward", "overlapped with GEMMs"
_PLURAL = {
    "all-reduce": "all-reduces",
    "all-gather": "all-gathers",
    "all-gather of gradients": "all-gathers of gradients",
    "reduce-scatter": "reduce-scatters",
}


class Products(Frozen):
    """Times of a block's products: forward, input gradient and weight gradient of the first, forward and input gradient of the second."""

    first: Any
    second: Any
    first_dgrad: Any
    first_wgrad: Any
    second_dgrad: Any
    summed_again: Any  # share of recomputed layers that run the sum too: not after a last product that a compiler drops


def blocks(job: Job, plan: Plan, forward: Term, backward: Term) -> list[Products]:
    """The blocks of a layer whose products tensor parallelism splits: not routed experts, which take the rank's own tokens."""
    split = []
    ahead, back = ([(operator_of(part), part.value) for part in term.parts if operator_of(part).computes] for term in (forward, backward))
    for first, second in BLOCKS:
        if any(operator.name in second for operator, _ in ahead):
            split.append(
                Products(
                    first=_time(ahead, first, OUTPUT),
                    second=_time(ahead, second, OUTPUT),
                    first_dgrad=_time(back, first, INPUT_GRADIENT),
                    first_wgrad=_time(back, first, WEIGHT_GRADIENT),
                    second_dgrad=_time(back, second, INPUT_GRADIENT),
                    summed_again=_summed_again(job, plan, second),
                )
            )
    return split


def _summed_again(job: Job, plan: Plan, second: tuple[str, ...]) -> Any:
    """The share of recomputed layers in which the sum behind a block's second product runs again."""
    if not job.framework.compiled_recompute or not set(second) & set(LAST_PRODUCTS):
        return 1.0
    return inside_segment(plan)


def _time(products: list[tuple[Operator, Any]], names: tuple[str, ...], computes: str) -> Any:
    """The time in which products compute one of their results, over the products of these names."""
    value: Any = 0.0
    for operator, time in products:
        if operator.name in names and operator.computes == computes:
            value = value + time
    return value


@once_for_sizes
def collectives(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> dict[str, Term]:
    """The collectives over the activations of a block; gathered tensors may have been cast before, sums are in the wide type."""
    elements = s.tokens * s.hidden
    sent = {
        "all-reduce": ("all_reduce", job.precision.activation_bytes),
        "all-gather": ("all_gather", casts.sent_bytes(job, backward=False)),
        "all-gather of gradients": ("all_gather", casts.sent_bytes(job, backward=True)),
        "reduce-scatter": ("reduce_scatter", job.precision.activation_bytes),
    }
    return {
        name: group_links.collective(cluster, plan, name, operation, plan.tp, elements * size, 1.0)
        for name, (operation, size) in sent.items()
    }


def tensor_parallel(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind, forward: Term, backward: Term) -> Term:
    """Exposed time of a layer's tensor-parallel collectives, over all passes of a micro-batch.

    ``async_tensor`` stacks run the sum of the first product's input gradient beside its weight gradient, and with sequence
    parallelism gather its input again beside its input gradient (Megatron-LM, core/tensor_parallel/layers.py). With overlap tp the
    other collectives are cut into pieces that run beside their product; that works over scale-up links alone.
    """
    if not np.any(plan.tp > 1):
        return total("tensor parallel", [])
    sent = collectives(cluster, job, plan, s)
    products = blocks(job, plan, forward, backward)
    trained = 1.0 if kind.trained else 0.0
    recomputed = plan.recompute_layers * trained
    beside = np.where((plan.overlap_tp > 0) & (plan.tp <= group_links.domain_ranks(cluster, plan)), 1.0, 0.0)
    on, off = np.where(plan.sp > 0, 1.0, 0.0), np.where(plan.sp > 0, 0.0, 1.0)
    waits_backward = 0.0 if job.framework.async_tensor else trained
    count, repeated = float(len(products)), sum(block.summed_again for block in products)
    summed = count * (1.0 + waits_backward) + repeated * recomputed
    waited = {
        "all-reduce": off * summed,
        "all-gather": on * count * (1.0 + recomputed),
        "all-gather of gradients": on * count * trained,
        "reduce-scatter": on * summed,
    }
    parts = [total(_PLURAL[name], [sent[name]], times=times * (1.0 - beside)) for name, times in waited.items()]
    if job.framework.async_tensor and kind.trained:
        parts.append(total(_BESIDE_GRADIENTS, _beside(cluster, job, sent, products, on, off)))
    if np.any(beside > 0):
        pieces = _in_pieces(cluster, job, plan, sent, products, (on, off), (trained, recomputed))
        parts.append(total(_IN_PIECES, pieces, times=beside))
    return total("tensor parallel", parts)


def launched(job: Job, plan: Plan, kind: Kind, forward: Term) -> tuple[Any, Any]:
    """Collectives over tensor-parallel ranks that the host starts in a layer's forward pass, and in its other passes.

    A block has one all-reduce a pass, or with sequence parallelism a gather and a scatter; ``async_tensor`` stacks then gather the input
    once more backward. A collective in pieces is started by one call.
    """
    names = {operator_of(part).name for part in forward.parts}
    split = [second for _, second in BLOCKS if names & set(second)]
    count, repeated = float(len(split)), sum(_summed_again(job, plan, second) for second in split)
    on, group = np.where(plan.sp > 0, 1.0, 0.0), np.where(plan.tp > 1, 1.0, 0.0)
    if not kind.trained:
        return group * count * (1.0 + on), 0.0
    gathered_again = 1.0 if job.framework.async_tensor and not job.lora_rank else 0.0
    later = count * (1.0 + on * (1.0 + gathered_again)) + plan.recompute_layers * (count * on + repeated)
    return group * count * (1.0 + on), group * later


def waits_beside_products(term: Term, passes: Any) -> Waits:
    """Of the time of a layer's tensor-parallel collectives, what those add that run beside a product, over ``passes`` passes."""
    beside = {part.key: part.value for part in term.parts}
    gradients, pieces = beside.get(_BESIDE_GRADIENTS, 0.0), beside.get(_IN_PIECES, 0.0) / passes
    return Waits(forward=pieces, backward=gradients + (passes - 1.0) * pieces)


def _beside(cluster: Cluster, job: Job, sent: dict[str, Term], products: list[Products], on: Any, off: Any) -> list[Term]:
    """Whole collectives beside a product that does not need them; with no weight gradient no input is gathered again."""
    parts = []
    for block in products:
        rows = [("all-reduce", "a weight gradient", block.first_wgrad, off), ("reduce-scatter", "a weight gradient", block.first_wgrad, on)]
        rows += [] if job.lora_rank else [("all-gather", "an input gradient", block.first_dgrad, on)]
        for name, product, compute, times in rows:
            parts.append(exposed(cluster, f"{name} beside {product}", compute, sent[name].value, times, _key(name)))
    return parts


def _key(collective: str) -> Overlapped:
    return Overlapped("tensor", (collective,))


def _in_pieces(
    cluster: Cluster,
    job: Job,
    plan: Plan,
    sums: dict[str, Term],
    split: list[Products],
    sequence_parallel: tuple[Any, Any],
    passes: tuple[Any, Any],
) -> list[Term]:
    """Collectives next to a product, cut into as many pieces as there are ranks, so that pieces of both run at once.

    ``sequence_parallel`` is 1 where it is on and where it is off; ``passes`` are 1 where the layer is trained and where recomputed.
    Copy engines pass gathered pieces on (Transformer Engine, initialize_ub: ring_exchange, use_ce); sums after a product use
    kernels (pipeline). PyTorch's symmetric memory copies both.
    """
    copies = Sourced(0.0, "1", "0: copy engines move the pieces", cluster.systems.overlap_slowdown.source)
    kernels = cluster.overlap_slowdown if job.framework.async_tensor else copies
    launch = _launch(cluster, job)
    piece = partial(leaf, law=overlap.in_pieces, unit="s", bound="network", share=cluster.systems.tp_exposed, pieces=plan.tp, launch=launch)
    (on, off), (trained, recomputed) = sequence_parallel, passes
    parts = []
    for b in split:
        summed = 1.0 + recomputed * b.summed_again
        rows = [
            ("all-reduce", b.second, kernels, off * summed),
            ("all-gather", b.first, copies, on * (1.0 + recomputed)),
            ("reduce-scatter", b.second, kernels, on * summed),
            ("all-gather of gradients", b.second_dgrad, copies, on * trained),
        ]
        if not job.framework.async_tensor:
            rows += [("all-reduce", b.first_dgrad, copies, off * trained), ("reduce-scatter", b.first_dgrad, copies, on * trained)]
        for name, compute, slowdown, times in rows:
            sent = sums[name].value
            parts.append(piece(f"{name} in pieces", key=_key(name), times=times, compute=compute, communication=sent, slowdown=slowdown))
    return parts


def _launch(cluster: Cluster, job: Job) -> Sourced:
    """The fixed time of one piece of a 16-bit product: its launch, and filling and draining the device."""
    wide = cluster.gemm(job.precision.wide)
    if wide.fill is None:
        return wide.launch
    both = wide.launch.value + wide.fill.value
    return Sourced(both, "s", f"{wide.launch.text} to launch, {wide.fill.text} to fill", wide.launch.source, wide.launch.note)
