"""The plan of a row as text."""

from __future__ import annotations

from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.terms import scalar


def describe_plan(estimate: Estimate, framework: bool = True) -> str:
    """The plan of an estimate of one row as text, without degrees of 1; ``framework``: with its framework at the end.

    >>> import ironlaw
    >>> describe_plan(ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, dp_shard=8, zero=3, micro_batch_size=1, recompute="none"))
    'dp_shard 8, zero 3, micro-batch 1, recompute none, megatron'
    """
    group, at = estimate.place_of(0)

    def degree(name: str) -> float:
        return scalar(getattr(group.plan, name))

    mesh = [f"{axis} {degree(axis):g}" for axis in ("tp", "pp", "vpp", "cp", "ep", "dp_replicate", "dp_shard") if degree(axis) > 1.0]
    words = [f"zero {degree('zero'):g}", f"micro-batch {degree('micro_batch_size'):g}", f"recompute {group.recompute[at]}"]
    return ", ".join([" ".join(mesh) or "one rank", *words, *([group.job.framework.name] if framework else [])])
