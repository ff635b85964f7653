"""Frozen weights beside adapters: stored in the type they are multiplied in, in fp8, or in four or eight bits that every use unpacks."""

from __future__ import annotations

from typing import Any

from ironlaw.cluster import Cluster
from ironlaw.errors import QuestionError
from ironlaw.estimate.layer import experts, uneven
from ironlaw.estimate.layer.counts import expert_width
from ironlaw.estimate.layer.kinds import Kind
from ironlaw.estimate.layer.products import linear_shapes
from ironlaw.estimate.layer.sizes import Shapes, elementwise
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.precision import Precision
from ironlaw.terms import Term

# bytes of a weight with its scales: fp8 has one a tensor; nf4 one byte for 64 weights and four for 256 of those bytes
# (Dettmers et al., QLoRA, NeurIPS 2023, sections 3 and appendix A, https://arxiv.org/abs/2305.14314: double quantisation); gptq a scale
# of two bytes and a zero of four bits for 128 weights (AutoGPTQ, qlinear: scales and qzeros by group, https://github.com/AutoGPTQ/AutoGPTQ);
# mxfp4 a scale of a byte for 32 (OCP Microscaling Formats 1.0); int8 one scale a row (Dettmers et al., LLM.int8(), NeurIPS 2022,
# https://arxiv.org/abs/2208.07339)
STORED = {"fp8": 1.0, "nf4": 0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0), "gptq": 0.5 + 2.5 / 128.0, "mxfp4": 0.5 + 1.0 / 32.0, "int8": 1.0}
PACKED = ("nf4", "gptq", "mxfp4", "int8")  # unpacked to 16 bits before each product
BITSANDBYTES = "nf4"  # the format that this library packs 16-bit weights to as they are loaded; others are read packed


def refuse(stored: str, lora_rank: float, precision: Precision) -> None:
    """Raise QuestionError for a storage format that the precision cannot multiply from."""
    if not stored:
        return
    if not lora_rank:
        raise QuestionError(f"--frozen-weights {stored}: the format applies to weights that adapters leave frozen; give --lora-rank")
    if stored == "fp8" and precision.known_as != "fp8":
        raise QuestionError(f"--frozen-weights fp8: products read the stored fp8 weights; give --precision fp8, not {precision.name}")
    if stored in PACKED and precision.narrow:
        raise QuestionError(
            f"--frozen-weights {stored}: products read weights unpacked to 16 bits; give --precision bf16 or fp16, not {precision.name}"
        )


def packed(job: Job) -> bool:
    """True where frozen weights have four or eight bits, which every product unpacks to 16."""
    return job.frozen_weights in PACKED


def unpacked_bytes(job: Job) -> float:
    """Bytes for each weight of a packed product while it runs: its copies in 16 bits."""
    copies = job.framework.unpacked_copies
    return job.precision.parameter_bytes * (1.0 if copies is None else copies.value)


def stored_bytes(job: Job) -> float:
    """Bytes of a layer's weight as it is stored and gathered."""
    stated = job.framework.nf4_bytes
    if stated is not None and job.frozen_weights == BITSANDBYTES:
        return stated.value
    return STORED.get(job.frozen_weights, job.precision.parameter_bytes)


def weights(job: Job, plan: Plan, s: Shapes, kind: Kind) -> Any:
    """Weights of one layer that matrix products of one rank read."""
    count: Any = 0.0
    for _, n, k in linear_shapes(job, s, kind).values():
        count = count + n * k
    if kind.routed:
        narrow = job.model.moe_intermediate_size / plan.etp
        count = count + uneven.held_experts(job, plan) * expert_width(job.model) * (experts.width(job, plan) + narrow)
    return count


def dequantised(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """Time to unpack weights to 16 bits before each product, forward and again backward (bitsandbytes, MatMul4Bit; AutoGPTQ's kernels of
    training do the same). Left out: LLM.int8()'s forward products in int8, with columns of outliers apart."""
    if not packed(job):
        return []
    size = stored_bytes(job) + job.precision.parameter_bytes
    return [elementwise(cluster, "frozen weights unpacked", size * weights(job, plan, s, kind), len(linear_shapes(job, s, kind)))]


def transposed(cluster: Cluster, job: Job, plan: Plan, s: Shapes, kind: Kind) -> list[Term]:
    """Time to transpose fp8 weights, stored in one orientation, before each backward product where the device needs it."""
    if job.frozen_weights != "fp8" or cluster.accelerator.fp8_one_layout:
        return []
    return [elementwise(cluster, "frozen weights transposed", 2.0 * weights(job, plan, s, kind), len(linear_shapes(job, s, kind)))]
