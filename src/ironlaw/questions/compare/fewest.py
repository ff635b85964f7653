"""The fewest accelerators that reach a rate by ``estimate``, and the round counts below a limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ironlaw.estimate.answer import Estimate, answer
from ironlaw.question.defaults import MOST_ACCELERATORS
from ironlaw.questions.compare.sizing import first_count
from ironlaw.terms import scalar

ROUND = (1, 3, 5, 7)  # times powers of two: the counts of nodes that are tried, as meshes divide them well


def counts(node: int, least: float = 1.0, most: float = MOST_ACCELERATORS) -> list[float]:
    """Round counts from ``least`` to ``most``: parts of a node, then 1, 3, 5, 7 times powers of two of nodes.

    >>> counts(8, 4, 64)
    [4.0, 8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0, 64.0]
    """
    parts = {node / 2**i for i in range(1, 5) if node % 2**i == 0}
    whole_nodes = {float(node * odd * 2**i) for odd in ROUND for i in range(18)}
    return sorted(n for n in parts | whole_nodes if least <= n <= most)


def rounded_down(limit: float, node: int) -> dict[str, float]:
    """The usual counts at or below a limit: whole nodes, a round count, a power of two.

    >>> rounded_down(694, 8)
    {'whole nodes': 688.0, 'a round count': 640.0, 'a power of two': 512.0}
    """
    usual = {"whole nodes": float(limit // node * node), "a round count": max(counts(node, 1.0, limit), default=0.0)}
    if limit >= 1:
        usual["a power of two"] = 2.0 ** math.floor(math.log2(limit))
    return {name: count for name, count in usual.items() if count >= 1}


def fewest(options: dict[str, Any], rate: float, node: int, least: float, folders: tuple[str, ...]) -> Estimate | None:
    """The estimate at the fewest round count of accelerators whose plan fits and reaches ``rate`` tokens a second; None: no count does.

    ``least`` is a lower limit, from the peak.
    """
    estimates: dict[float, Estimate] = {}

    def reaches(gpus: float) -> bool:
        estimates[gpus] = answer({**options, "gpus": gpus}, folders)
        return bool(estimates[gpus].fits[0] and estimates[gpus].tokens_per_second[0] >= rate)

    count = first_count(round_counts(options, node, least), reaches)
    return None if count is None else estimates[count]


def round_counts(options: Mapping[str, Any], node: int, least: float = 1.0) -> list[float]:
    """The round counts from ``least`` on that the given axes divide."""
    return [n for n in counts(node, least) if _divides(options, n)]


def describe_plan(estimate: Estimate) -> str:
    """The plan of an estimate of one row as text, without degrees of 1.

    >>> import ironlaw
    >>> describe_plan(ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, dp_shard=8, zero=3, micro_batch_size=1, recompute="none"))
    'dp_shard 8, zero 3, micro-batch 1, recompute none, megatron'
    """
    group, at = estimate.place_of(0)

    def degree(name: str) -> float:
        return scalar(getattr(group.plan, name))

    mesh = [f"{axis} {degree(axis):g}" for axis in ("tp", "pp", "vpp", "cp", "ep", "dp_replicate", "dp_shard") if degree(axis) > 1.0]
    words = [f"zero {degree('zero'):g}", f"micro-batch {degree('micro_batch_size'):g}", f"recompute {group.recompute[at]}"]
    return ", ".join([" ".join(mesh) or "one rank", *words, group.job.framework.name])


def _divides(options: Mapping[str, Any], gpus: float) -> bool:
    """True where the given degrees divide this many accelerators."""
    given: float = math.prod(options.get(axis, 1.0) for axis in ("tp", "pp", "cp", "dp_replicate", "dp_shard"))
    return bool(gpus % given == 0.0)
