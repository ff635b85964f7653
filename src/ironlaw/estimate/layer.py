"""One transformer layer for one micro-batch on one rank, as Term trees: forward, backward, recompute.

Each operator is a leaf of ``max(FLOP/(e P), bytes/(b BW)) + launch`` with the constants of the device's calibration
record. Shapes are those of one model-parallel rank: heads, the wide MLP dimension divided by ``tp``, tokens by ``cp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.catalog.records import AttentionConstants
from ironlaw.estimate import tiers
from ironlaw.law import flops, kernels, traffic
from ironlaw.plan import Cluster, Job, Plan
from ironlaw.terms import BOUNDS, Term, leaf, total

_COMPUTE, _HBM = float(BOUNDS.index("compute")), float(BOUNDS.index("hbm"))
FLASH_BACKWARD_FLOP = 2.5  # five GEMMs of the score size instead of two: the scores are computed again
UNFUSED_BACKWARD_FLOP = 2.0


@dataclass(frozen=True)
class Shapes:
    """Per-rank sizes of one layer, columns over the plans."""

    tokens: Any
    sequence_tokens: Any  # tokens of the norms and residuals
    hidden: float
    heads: Any
    kv_heads: Any
    head_dim: float
    ffn: Any
    wide: Any  # columns of the MLP's first GEMM: gate and up together

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
            kv_heads=np.maximum(model.num_key_value_heads / plan.tp, 1.0),
            head_dim=float(model.head_dim),
            ffn=ffn,
            wide=ffn * (2.0 if model.gated_mlp else 1.0),
        )


def kernel(cluster: Cluster, name: str, flop: Any, moved: Any, peak: str, constants: Any, efficiency: Any = None) -> Term:
    """A leaf that runs at the roof its FLOPs and bytes meet first."""
    rates = {
        "peak": cluster.accelerator.peak[peak],
        "bandwidth": cluster.accelerator.hbm_bandwidth,
        "efficiency": (constants.efficiency if efficiency is None else efficiency),
        "bandwidth_fraction": constants.bandwidth_fraction,
    }
    if cluster.clock is not None:
        rates["efficiency"] = getattr(rates["efficiency"], "value", rates["efficiency"]) * cluster.clock
    slow = kernels.memory_bound(flop, moved, **{k: getattr(v, "value", v) for k, v in rates.items()})
    bound = np.where(slow, _HBM, _COMPUTE)
    return leaf(name, kernels.kernel_time, "s", bound, flop=flop, traffic=moved, launch=constants.launch, **rates)


def gemm(cluster: Cluster, job: Job, name: str, m: Any, n: Any, k: Any, wide: bool = False) -> Term:
    """The leaf of one GEMM of (m, k) by (k, n), narrow operands and a wide result; ``wide`` keeps all of it wide."""
    p = job.precision
    operand = p.activation_bytes if wide else p.operand_bytes
    moved = traffic.gemm(m, n, k, operand, operand, p.activation_bytes)
    peak, constants = (p.wide, p.wide) if wide else (p.peak, p.gemm)
    return kernel(cluster, name, flops.gemm(m, n, k), moved, peak, cluster.gemm(constants))


def elementwise(cluster: Cluster, name: str, moved: Any, kernels_run: float = 1.0) -> Term:
    """The leaf of a memory-bound group that moves ``moved`` bytes in ``kernels_run`` kernels."""
    constants = cluster.elementwise
    return leaf(
        name,
        kernels.memory_time,
        "s",
        "hbm",
        traffic=moved,
        bandwidth=cluster.accelerator.hbm_bandwidth,
        bandwidth_fraction=constants.bandwidth_fraction,
        launch=constants.launch.value * kernels_run,
    )


def linear_shapes(s: Shapes) -> dict[str, tuple[Any, Any, Any]]:
    """The layer's GEMMs forward, by name: (m, n, k)."""
    return {
        "query-key-value": (s.tokens, (s.heads + 2.0 * s.kv_heads) * s.head_dim, s.hidden),
        "attention output": (s.tokens, s.hidden, s.heads * s.head_dim),
        "mlp in": (s.tokens, s.wide, s.hidden),
        "mlp out": (s.tokens, s.hidden, s.ffn),
    }


def linear_forward(cluster: Cluster, job: Job, s: Shapes) -> list[Term]:
    """The layer's GEMMs, forward."""
    return [gemm(cluster, job, f"{name} gemm", *mnk) for name, mnk in linear_shapes(s).items()]


def linear_backward(cluster: Cluster, job: Job, s: Shapes) -> list[Term]:
    """dgrad is (m, n) by (n, k); wgrad (k, m) by (m, n)."""
    made = []
    for name, (m, n, k) in linear_shapes(s).items():
        made.append(gemm(cluster, job, f"{name} dgrad", m, k, n))
        made.append(gemm(cluster, job, f"{name} wgrad", k, n, m))
    return made


def mean_key_length(job: Job, plan: Plan) -> Any:
    """Keys a causal query sees, averaged over local and global layers."""
    model = job.model
    share = model.sliding_window_layers / model.num_hidden_layers
    everywhere = flops.attended_length(plan.seq_len, 0.0)
    if share == 0.0:
        return everywhere
    return share * flops.attended_length(plan.seq_len, model.sliding_window) + (1.0 - share) * everywhere


def flash_constants(cluster: Cluster, job: Job) -> AttentionConstants:
    """The constants of the attention kernel generation this framework runs on this architecture."""
    known = cluster.calibration.attention
    wanted = job.framework.flash_generation.get(cluster.accelerator.architecture, "")
    return known.get(wanted) or next(iter(known.values()))


def attention(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> list[Term]:
    """The attention core: one flash kernel, or batched GEMMs with the scores moved through HBM."""
    e = job.precision.activation_bytes
    if job.flash:
        c = flash_constants(cluster, job)
        flop = flops.attention_core(plan.micro_batch_size, plan.seq_len / plan.cp, mean_key_length(job, plan), s.heads, s.head_dim)
        moved = traffic.flash_attention(plan.micro_batch_size, plan.seq_len / plan.cp, s.heads, s.kv_heads, s.head_dim, e)
        efficiency = kernels.saturating_efficiency(plan.seq_len / plan.cp, c.forward_efficiency.value, c.saturation_length.value)
        if backward:
            flop, moved = flop * FLASH_BACKWARD_FLOP, moved * FLASH_BACKWARD_FLOP
            efficiency = efficiency * FLASH_BACKWARD_FLOP / c.backward_time_ratio.value
        wide = job.precision.wide
        return [kernel(cluster, "flash attention", flop, moved, wide, cluster.gemm(wide), efficiency)]
    ratio = job.framework.backward_traffic_ratio.value if backward else 1.0
    flop = flops.attention_core(plan.micro_batch_size, plan.seq_len / plan.cp, plan.seq_len, s.heads, s.head_dim)
    scores = plan.micro_batch_size * (plan.seq_len / plan.cp) * plan.seq_len * s.heads
    gemm_scores = 2.0 * e * scores * (2.0 if backward else 1.0)  # the batched GEMMs write the scores and read them
    softmax = (job.framework.score_bytes.value * (e / 2.0) * ratio) * scores
    return [
        kernel(
            cluster,
            "attention batched gemms",
            flop * (UNFUSED_BACKWARD_FLOP if backward else 1.0),
            gemm_scores,
            job.precision.wide,
            cluster.gemm(job.precision.wide),
        ),
        elementwise(cluster, "attention mask, softmax, dropout", softmax, 3.0),
    ]


def memory_bound(cluster: Cluster, job: Job, s: Shapes, backward: bool = False) -> list[Term]:
    """Norms, residual additions, rotary embedding, the MLP's activation function, and casts of narrow formats."""
    model, f = job.model, job.framework
    ratio = (f.backward_traffic_ratio.value if backward else 1.0) * job.precision.activation_bytes / 2.0
    state = s.sequence_tokens * s.hidden
    groups = [
        elementwise(cluster, "norms", ratio * f.norm_bytes.value * model.norms_per_layer * state, model.norms_per_layer),
        elementwise(cluster, "residuals", ratio * f.residual_bytes.value * 2.0 * state, 2.0),
        elementwise(cluster, "activation function", ratio * f.activation_bytes.value * s.tokens * s.wide),
    ]
    if model.position_embedding == "rope":
        rotated = s.tokens * (s.heads + s.kv_heads) * s.head_dim
        groups.append(elementwise(cluster, "rotary embedding", ratio * f.rotary_bytes.value * rotated))
    if model.qk_norm:
        normed = s.tokens * (s.heads + s.kv_heads) * s.head_dim
        groups.append(elementwise(cluster, "query and key norms", ratio * f.norm_bytes.value * normed, 2.0))
    if job.precision.cast_bytes:
        groups.append(elementwise(cluster, "casts", job.precision.cast_bytes * cast_elements(s, backward), 4.0))
    return groups


def cast_elements(s: Shapes, backward: bool) -> Any:
    """Elements quantised in one pass: each linear layer's input forward, its output's gradient backward."""
    shapes = linear_shapes(s).values()
    columns = [n if backward else k for _, n, k in shapes]
    return s.tokens * (columns[0] + columns[1] + columns[2] + columns[3])


def tensor_parallel(cluster: Cluster, job: Job, plan: Plan) -> Term:
    """Collectives of one pass over a layer: two all-reduces of its activations, or their two halves when sp is on.

    A reduce-scatter and an all-gather move what one all-reduce moves; they are timed apart where the tier's record does so.
    """
    size = plan.tokens * job.model.hidden_size * job.precision.activation_bytes
    reduce = tiers.collective(cluster, "all-reduce", "all_reduce", plan.tp, size, 1.0)
    gather = tiers.collective(cluster, "all-gather", "all_gather", plan.tp, size, 1.0)
    scatter = tiers.collective(cluster, "reduce-scatter", "reduce_scatter", plan.tp, size, 1.0)
    off, on = np.where(plan.sp > 0, 0.0, 2.0), np.where(plan.sp > 0, 2.0, 0.0)
    parts = [total(f"{t.name}s", [t], times=n) for t, n in ((reduce, off), (gather, on), (scatter, on))]
    return total("tensor parallel", parts)


def context_parallel(cluster: Cluster, job: Job, plan: Plan, s: Shapes, backward: bool = False) -> Term:
    """Ring attention: keys and values go round; backward their gradients go with them."""
    block = 2.0 * s.kv_heads * s.head_dim * s.tokens * job.precision.activation_bytes
    return tiers.ring_pass(cluster, "keys and values round the ring", plan.cp, block * (2.0 if backward else 1.0), plan.tp)


def forward(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> Term:
    """One pass forward, without its collectives."""
    parts = [*linear_forward(cluster, job, s), *attention(cluster, job, plan, s), *memory_bound(cluster, job, s)]
    return total("forward", parts)


def backward(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> Term:
    """One pass backward, without its collectives."""
    parts = [
        *linear_backward(cluster, job, s),
        *attention(cluster, job, plan, s, backward=True),
        *memory_bound(cluster, job, s, backward=True),
    ]
    return total("backward", parts)


def recompute(cluster: Cluster, job: Job, plan: Plan, s: Shapes) -> Term:
    """What is computed a second time: whole layers, and in the others the operators the plan names."""
    rest = 1.0 - plan.recompute_layers
    linear = plan.recompute_layers + rest * plan.recompute_linear
    core = plan.recompute_layers + rest * plan.recompute_attention
    bytes_bound = plan.recompute_layers + rest * plan.recompute_elementwise
    return total(
        "recompute",
        [
            total("linear layers again", linear_forward(cluster, job, s), times=linear),
            total("attention core again", attention(cluster, job, plan, s), times=core),
            total("memory-bound operators again", memory_bound(cluster, job, s), times=bytes_bound),
        ],
    )
