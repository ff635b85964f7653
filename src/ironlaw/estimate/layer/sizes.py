"""Sizes of a layer on one rank, and the terms of its kernels, each limited by the roof it meets first.

Each operator is a leaf of ``max(FLOP/(e P) + fill, bytes/(b BW)) + launch`` with the constants of the device's calibration
record. Shapes are of one model-parallel rank: heads, the wide MLP dimension divided by ``tp``, tokens by ``cp``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.catalog.records import Framework
from ironlaw.catalog.sourced import Sourced, sustain
from ironlaw.cluster import Cluster
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.law import flops, kernels, traffic
from ironlaw.plan import Plan
from ironlaw.precision import PRECISIONS
from ironlaw.terms import BOUNDS, Term, leaf, plain

P = ParamSpec("P")
T = TypeVar("T")
_COMPUTE, _HBM = float(BOUNDS.index("compute")), float(BOUNDS.index("hbm"))


class Operator(NamedTuple):
    """The key of an operator of a layer. Code finds an operator's term by it; the label is for people."""

    name: str
    computes: str = ""  # of a matrix product: OUTPUT, INPUT_GRADIENT or WEIGHT_GRADIENT
    behind_dispatch: bool = False  # it computes on rows that were dispatched, or belongs to a shared expert


_NO_OPERATOR = Operator("")


def operator_of(term: Term) -> Operator:
    """The operator that a term times; one without a name for any other term."""
    return term.key if isinstance(term.key, Operator) else _NO_OPERATOR


class Shapes(Frozen):
    """Per-rank sizes of one layer, columns over the plans."""

    tokens: Any
    sequence_tokens: Any  # tokens of the norms and residuals
    hidden: float
    heads: Any
    kv_heads: Any
    head_dim: float  # of queries and keys and of values, averaged
    ffn: Any
    wide: Any  # columns of the MLP's first GEMM: gate and up together
    sequences: Any = 1.0  # of a micro-batch

    @cached_property
    def found(self) -> dict[Any, Any]:
        """What ``once_for_sizes`` has computed for layers with these sizes."""
        return {}

    @classmethod
    def whole(cls, job: Job) -> Shapes:
        """The sizes of a layer that is not sharded, for one token."""
        model = job.model
        key_heads = model.num_attention_heads if model.kv_lora_rank else model.num_key_value_heads
        ffn = float(model.intermediate_size)
        wide = ffn * (2.0 if model.gated_mlp else 1.0)
        return cls(1.0, 1.0, float(model.hidden_size), float(model.num_attention_heads), float(key_heads), core_head_dim(model), ffn, wide)

    @classmethod
    def of(cls, job: Job, plan: Plan) -> Shapes:
        """The sizes of one rank of every plan."""
        model = job.model
        ffn = model.intermediate_size / plan.tp
        return cls(
            tokens=plan.tokens,
            sequence_tokens=plan.tokens / plan.sequence_shards,
            hidden=float(model.hidden_size),
            heads=model.num_attention_heads / plan.tp,
            kv_heads=np.maximum((model.num_attention_heads if model.kv_lora_rank else model.num_key_value_heads) / plan.tp, 1.0),
            head_dim=core_head_dim(model),
            ffn=ffn,
            wide=ffn * (2.0 if model.gated_mlp else 1.0),
            sequences=plan.micro_batch_size,
        )


def of_predictions(model: Model, plan: Plan, s: Shapes) -> Shapes:
    """The sizes of the output layer: of every token, or of one token of a sequence where a sequence has one class."""
    if model.head != "class":
        return s
    return s.replace(tokens=plan.micro_batch_size, sequence_tokens=plan.micro_batch_size / plan.sequence_shards)


def once_for_sizes(law: Callable[P, T]) -> Callable[P, T]:
    """Call ``law(cluster, job, plan, s, ...)`` once for all layers with the sizes ``s``, which keep what it returned.

    The kinds of layer of a model have most of their operators in common. An evaluation makes its own sizes, so nothing outlives it.
    """

    @wraps(law)
    def call(*args: P.args, **named: P.kwargs) -> T:
        found: dict[Any, Any] = args[3].found  # type: ignore[attr-defined]
        key = (law, *args[:3], *args[4:], *named.items())
        if key not in found:
            found[key] = law(*args, **named)
        return cast("T", found[key])

    return call


def core_head_dim(model: Model) -> float:
    """Mean of a head's query-key and value dimensions."""
    if model.kv_lora_rank:
        return (model.qk_nope_head_dim + model.qk_rope_head_dim + model.v_head_dim) / 2.0
    return float(model.head_dim)


class MemoryRoof(NamedTuple):
    """The memory roof of a kernel: the device's bandwidth, and the share of it that the kernel reaches inside a step."""

    bandwidth: Sourced
    fraction: Sourced


def memory_roof(cluster: Cluster, fraction: Sourced, sustains: bool) -> MemoryRoof:
    """The memory roof of a kernel that reaches a ``fraction`` of the bandwidth alone.

    A kernel that ``sustains`` keeps the share that it reaches alone. The optimizer's update does: it is one long stream at the end of a
    step, beside which nothing runs. Matrix products and attention do: their constants are fitted over both roofs together, and what a
    step takes from them is ``compute_sustained`` of their efficiency. All other memory-bound kernels keep ``bandwidth_sustained`` of it.
    """
    inside = fraction if sustains else sustain(fraction, cluster.systems.bandwidth_sustained)
    return MemoryRoof(cluster.accelerator.hbm_bandwidth, inside)


def kernel(
    cluster: Cluster,
    name: str,
    flop: Any,
    moved: Any,
    peak: str,
    constants: Any,
    efficiency: Any = None,
    launches: Any = None,
    key: Hashable = None,
) -> Term:
    """The term of a kernel, limited by the roof that its FLOPs and bytes meet first.

    A given ``efficiency`` includes the time to fill the device. ``launches``: kernels that follow each other, if more than one.
    """
    memory = memory_roof(cluster, constants.bandwidth_fraction, sustains=True)
    rates = {
        "peak": cluster.accelerator.peak[peak],
        "bandwidth": memory.bandwidth,
        "efficiency": sustained(cluster, constants.efficiency if efficiency is None else efficiency),
        "bandwidth_fraction": memory.fraction,
        "fill": constants.fill if efficiency is None and constants.fill is not None else 0.0,
    }

    def bound() -> Any:
        slow = kernels.memory_bound(flop, moved, **{name: plain(rate) for name, rate in rates.items()})
        return np.where(slow, _HBM, _COMPUTE)

    launch = constants.launch if launches is None else constants.launch.value * launches
    return leaf(name, kernels.kernel_time, "s", bound, key=key, flop=flop, traffic=moved, launch=launch, **rates)


def sustained(cluster: Cluster, benchmarked: Any) -> Any:
    """The efficiency of a kernel inside a step, lower than alone: the device is hot, shared with other kernels, and power limited.

    A device with a fixed clock, and separate engines for collectives, loses nothing.
    """
    if cluster.accelerator.fixed_clock:
        return benchmarked
    share = cluster.systems.compute_sustained
    factor = share.value * (1.0 if cluster.clock is None else cluster.clock)
    if not isinstance(benchmarked, Sourced):
        return benchmarked * factor
    text = f"{benchmarked.text} alone, {share.text} of it sustained" + ("" if cluster.clock is None else f" at {cluster.clock:.3f} clock")
    return Sourced(benchmarked.value * factor, benchmarked.unit, text, benchmarked.source, benchmarked.note)


def gemm(
    cluster: Cluster,
    job: Job,
    name: str,
    m: Any,
    n: Any,
    k: Any,
    wide: bool = False,
    result: float | None = None,
    key: Operator | None = None,
    stated: str = "",
) -> Term:
    """The term of one GEMM of (m, k) by (k, n) with narrow operands and a wide result; with ``wide`` all three are wide.

    ``result``: bytes moved for an element of the result, if it is not written once in the type of activations. ``stated``: a format
    that the stack computes this product in whatever the precision; a device that lacks it uses the wide one.
    """
    p = PRECISIONS[stated] if stated in cluster.accelerator.peak else job.precision
    product = p.product("" if key is None else key.computes)
    operand = p.operand_bytes if product.narrow and not wide else p.activation_bytes
    moved = traffic.gemm(m, n, k, operand, operand, p.activation_bytes if result is None else result)
    peak, constants = (p.wide, p.wide) if wide else (product.peak, product.gemm)
    return kernel(cluster, name, flops.gemm(m, n, k), moved, peak, cluster.gemm(constants), key=key)


def elementwise(
    cluster: Cluster,
    name: str,
    moved: Any,
    kernels_run: float = 1.0,
    fraction: Sourced | None = None,
    times: Any = None,
    key: Hashable = None,
) -> Term:
    """The term of memory-bound kernels that move ``moved`` bytes in ``kernels_run`` launches, ``times`` over.

    ``fraction`` is the share of HBM's bandwidth they reach, if it differs from other kernels'.
    """
    constants = cluster.elementwise
    memory = memory_roof(cluster, fraction or constants.bandwidth_fraction, sustains=False)
    return leaf(
        name,
        kernels.memory_time,
        "s",
        "hbm",
        times,
        key,
        traffic=moved,
        bandwidth=memory.bandwidth,
        bandwidth_fraction=memory.fraction,
        launch=constants.launch.value * kernels_run,
    )


def transformed(
    cluster: Cluster, name: str, moved: Any, flop: Any, peak: str, kernels_run: float, key: Hashable = None, times: Any = None
) -> Term:
    """The term of memory-bound kernels that also multiply ``flop`` FLOPs by small matrices, at the rate of wide products."""
    constants, gemms = cluster.elementwise, cluster.gemm(peak)
    memory = memory_roof(cluster, constants.bandwidth_fraction, sustains=False)
    return leaf(
        name,
        kernels.transformed_time,
        "s",
        "hbm",
        times,
        key,
        transform_flop=flop,
        traffic=moved,
        peak=cluster.accelerator.peak[peak],
        bandwidth=memory.bandwidth,
        efficiency=sustained(cluster, gemms.efficiency),
        bandwidth_fraction=memory.fraction,
        launch=constants.launch.value * kernels_run,
    )


def host_time(framework: Framework, cluster: Cluster) -> Any:
    """Host time to launch one operator: the framework's record, longer on slow processors and in a legacy stack."""
    base = framework.host_time_per_operator
    value, text = base.value, base.text
    slower = {
        "on this host": cluster.node.host_time_ratio,
        "in a legacy stack": cluster.systems.legacy_host_time if framework.legacy else None,
    }
    for where, ratio in slower.items():
        if ratio is not None:
            value, text = value * ratio.value, f"{text}, {ratio.text} times that {where}"
    return Sourced(value, base.unit, text, base.source, base.note)
