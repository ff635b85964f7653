"""Tensor parallelism of one layer: its collectives, which of them are waited for, and what runs beside a product.

Attention and MLP are a block each: a product split by columns, whose input all ranks need, and one split by rows, whose output
they sum. Without sequence parallelism an all-reduce sums, forward behind the second product and backward behind the first.
With it a gather stands before the first and a scatter behind the second, and backward the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.estimate import wires
from ironlaw.estimate.layer import casts
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.products import LAST_PRODUCTS
from ironlaw.estimate.layer.sizes import INPUT_GRADIENT, OUTPUT, WEIGHT_GRADIENT, operator_of
from ironlaw.estimate.network.sharding import Overlapped, exposed
from ironlaw.job import Job
from ironlaw.law import overlap
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf, total

BLOCKS = (  # products split by columns, and by rows
    (("query-key-value", "query up", "key-value up", "state in"), ("attention output", "state out")),
    (("mlp in", "shared expert in"), ("mlp out", "shared expert out")),
)

_PLURAL = {
    "all-reduce": "all-reduces",
    "all-gather": "all-gathers",
    "all-gather of gradients": "all-gathers of gradients",
    "reduce-scatter": "reduce-scatters",
}


@dataclass(frozen=True)
class Products:
    """Times of a block's products: forward, input gradient and weight gradient of the first, forward and input gradient of the second."""

    first: Any
    second: Any
    first_dgrad: Any
    first_wgrad: Any
    second_dgrad: Any
    summed_again: bool  # where the layer is recomputed: not behind a last product that a compiler drops


def blocks(job: Job, forward: Term, backward: Term) -> list[Products]:
    """The blocks of a layer whose products tensor parallelism splits; routed experts take their tokens from the sequence-parallel share."""
    made = []
    for first, second in BLOCKS:
        if any(operator_of(part).name in second for part in forward.parts):
            made.append(
                Products(
                    first=_time(forward, first, OUTPUT),
                    second=_time(forward, second, OUTPUT),
                    first_dgrad=_time(backward, first, INPUT_GRADIENT),
                    first_wgrad=_time(backward, first, WEIGHT_GRADIENT),
                    second_dgrad=_time(backward, second, INPUT_GRADIENT),
                    summed_again=not job.framework.compiled_recompute or not set(second) & set(LAST_PRODUCTS),
                )
            )
    return made


def _time(term: Term, names: tuple[str, ...], computes: str) -> Any:
    """The time in which products compute one of their results, over the products of these names."""
    value: Any = 0.0
    for part in term.parts:
        operator = operator_of(part)
        if operator.name in names and operator.computes == computes:
            value = value + part.value
    return value


def collectives(cluster: Cluster, job: Job, plan: Plan) -> dict[str, Term]:
    """The collectives over the activations of a block; what is gathered may have been cast before, sums are taken wide."""
    elements = plan.tokens * job.model.hidden_size
    made = {
        "all-reduce": ("all_reduce", job.precision.activation_bytes),
        "all-gather": ("all_gather", casts.sent_bytes(job, backward=False)),
        "all-gather of gradients": ("all_gather", casts.sent_bytes(job, backward=True)),
        "reduce-scatter": ("reduce_scatter", job.precision.activation_bytes),
    }
    return {
        name: wires.collective(cluster, plan, name, operation, plan.tp, elements * size, 1.0) for name, (operation, size) in made.items()
    }


def parallel(cluster: Cluster, job: Job, plan: Plan, kind: Kind, forward: Term, backward: Term) -> Term:
    """What shows of a layer's tensor-parallel collectives, over all passes of a micro-batch.

    ``async_tensor`` stacks run the sum of the first product's input gradient beside its weight gradient, and with sequence
    parallelism gather its input again beside its input gradient (Megatron-LM, core/tensor_parallel/layers.py). Where ``overlap``
    names tp the others are cut into pieces that run beside their product, over scale-up links alone.
    """
    made = collectives(cluster, job, plan)
    found = blocks(job, forward, backward)
    back = 1.0 if kind.trained else 0.0
    again = plan.recompute_layers * back
    beside = np.where((plan.overlap_tp > 0) & (plan.tp <= wires.domain_ranks(cluster, plan)), 1.0, 0.0)
    on, off = np.where(plan.sp > 0, 1.0, 0.0), np.where(plan.sp > 0, 0.0, 1.0)
    late = 0.0 if job.framework.async_tensor else back
    count, repeated = float(len(found)), float(sum(block.summed_again for block in found))
    summed = count * (1.0 + late) + repeated * again
    waited = {
        "all-reduce": off * summed,
        "all-gather": on * count * (1.0 + again),
        "all-gather of gradients": on * count * back,
        "reduce-scatter": on * summed,
    }
    parts = [total(_PLURAL[name], [made[name]], times=times * (1.0 - beside)) for name, times in waited.items()]
    if job.framework.async_tensor and kind.trained:
        parts.append(total("beside weight and input gradients", _beside(cluster, job, made, found, on, off)))
    if np.any(beside > 0):
        pieces = _in_pieces(cluster, job, plan, made, found, {"on": on, "off": off, "again": again, "back": back})
        parts.append(total("in pieces beside products", pieces, times=beside))
    return total("tensor parallel", parts)


def _beside(cluster: Cluster, job: Job, made: dict[str, Term], found: list[Products], on: Any, off: Any) -> list[Term]:
    """Whole collectives beside a product that does not need them; with no weight gradient no input is gathered again."""
    parts = []
    for block in found:
        parts.append(
            exposed(cluster, "all-reduce beside a weight gradient", block.first_wgrad, made["all-reduce"].value, off, _key("all-reduce"))
        )
        parts.append(
            exposed(
                cluster,
                "reduce-scatter beside a weight gradient",
                block.first_wgrad,
                made["reduce-scatter"].value,
                on,
                _key("reduce-scatter"),
            )
        )
        if not job.lora_rank:
            parts.append(
                exposed(cluster, "all-gather beside an input gradient", block.first_dgrad, made["all-gather"].value, on, _key("all-gather"))
            )
    return parts


def _key(collective: str) -> Overlapped:
    return Overlapped("tensor", (collective,))


def _in_pieces(cluster: Cluster, job: Job, plan: Plan, made: dict[str, Term], found: list[Products], runs: dict[str, Any]) -> list[Term]:
    """Collectives that wait for a product, or it for them, cut into as many pieces as there are ranks.

    Copy engines hand gathered pieces on (Transformer Engine, initialize_ub: ring_exchange, use_ce); what is summed behind a product
    there (pipeline), kernels send. PyTorch's symmetric memory copies both.
    """
    copies = Sourced(0.0, "1", "0: copy engines move the pieces", cluster.systems.overlap_slowdown.source)
    kernels = cluster.overlap_slowdown if job.framework.async_tensor else copies
    launch = _launch(cluster, job)
    piece = partial(leaf, law=overlap.in_pieces, unit="s", bound="network", share=cluster.systems.tp_exposed, pieces=plan.tp, launch=launch)
    on, off, again, back = (runs[name] for name in ("on", "off", "again", "back"))
    parts = []
    for b in found:
        summed = 1.0 + again * float(b.summed_again)
        rows = [
            ("all-reduce", b.second, kernels, off * summed),
            ("all-gather", b.first, copies, on * (1.0 + again)),
            ("reduce-scatter", b.second, kernels, on * summed),
            ("all-gather of gradients", b.second_dgrad, copies, on * back),
        ]
        if not job.framework.async_tensor:
            rows += [("all-reduce", b.first_dgrad, copies, off * back), ("reduce-scatter", b.first_dgrad, copies, on * back)]
        for name, compute, slowdown, times in rows:
            sent = made[name].value
            parts.append(piece(f"{name} in pieces", key=_key(name), times=times, compute=compute, communication=sent, slowdown=slowdown))
    return parts


def _launch(cluster: Cluster, job: Job) -> Sourced:
    """What each piece of a product costs beside its work: a launch, and filling and draining the device; of the 16-bit product."""
    wide = cluster.gemm(job.precision.wide)
    if wide.fill is None:
        return wide.launch
    both = wide.launch.value + wide.fill.value
    return Sourced(both, "s", f"{wide.launch.text} to launch, {wide.fill.text} to fill", wide.launch.source, wide.launch.note)
