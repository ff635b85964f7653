"""The Plan: how a job is laid out over accelerators, as columns.

Every field is a float64 array, and all broadcast together. One plan is a column of length one.
``gpus = tp * pp * cp * dp_replicate * dp_shard``; ``AXES`` lists what each axis shards.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cached_property
from typing import Any

import numpy as np

from ironlaw.frozen import Frozen

AXES = {
    "tp": "tensor parallel: shards heads, the MLP's width and the vocabulary",
    "pp": "pipeline parallel: shards the layers into stages",
    "vpp": "model chunks per pipeline rank (interleaved schedule)",
    "cp": "context parallel: shards the sequence",
    "ep": "expert parallel: shards the experts over ranks of tp, cp and data parallel",
    "etp": "tensor parallel inside an expert: shards its width",
    "dp_replicate": "data parallel: replicates weights, shards the batch",
    "dp_shard": "data parallel: shards the batch and, by zero, states, gradients, weights",
}


def flags(prefix: str, names: tuple[str, ...], on: Collection[str]) -> dict[str, float]:
    """The flag columns of a set of names: 1 for every name that is on.

    >>> flags("offload", ("optimizer", "activations"), {"optimizer"})
    {'offload_optimizer': 1.0, 'offload_activations': 0.0}
    """
    return {f"{prefix}_{name.replace('-', '_')}": float(name in on) for name in names}


RECOMPUTE_MODULES = {  # parts of a layer that selective recomputation may name, and their columns
    "up-projection": "recompute_up",
    "mlp": "recompute_mlp",
    "moe": "recompute_moe",
    "shared-experts": "recompute_shared",
}
RECOMPUTE = (
    *("recompute_layers", "recompute_attention", "recompute_linear", "recompute_elementwise", "recompute_segment"),
    *RECOMPUTE_MODULES.values(),
)


def recompute_columns(how: str, selective: tuple[str, ...]) -> tuple[float, ...]:
    """A recompute option as the columns of RECOMPUTE: fractions of whole layers, and of the others attention, GEMMs, memory-bound
    operators; the layers of a segment, which share one checkpoint; last the modules of RECOMPUTE_MODULES.

    >>> recompute_columns("every:2", ("attention",))[:5], recompute_columns("segments:4", ("attention",))[:5]
    ((0.5, 0.0, 0.0, 0.0, 1.0), (1.0, 0.0, 0.0, 0.0, 4.0))
    >>> recompute_columns("selective:up-projection,mlp", ("attention",))
    (0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0)
    """
    head, _, tail = how.partition(":")
    layers, segment = 0.0, 1.0
    operators: tuple[str, ...] = ()
    if head in ("full", "segments"):
        layers, segment = 1.0, float(tail or 1.0)
    elif head == "every":
        layers = 1.0 / int(tail)
    elif head == "share":
        layers = float(tail)
    elif head != "none":
        operators = tuple(tail.split(",")) if tail else selective
    linear = 1.0 if "linear" in operators else 0.5 if "half-linear" in operators else 0.0
    modules = (float(name in operators) for name in RECOMPUTE_MODULES)
    return (layers, float("attention" in operators), linear, float("elementwise" in operators), segment, *modules)


BY_RULE = -1.0  # layers of the first or last stage where none are given: split by the rule for all stages


class Plan(Frozen):
    """Columns of plans. Flags and ZeRO stages are numbers, so that one call may mix them."""

    gpus: Any
    tp: Any
    pp: Any
    vpp: Any
    cp: Any
    ep: Any
    etp: Any
    dp_replicate: Any
    dp_shard: Any
    sp: Any  # 1 where sequence parallel
    zero: Any
    micro_batch_size: Any
    global_batch_size: Any
    seq_len: Any
    recompute_layers: Any  # fraction of the layers recomputed in full
    recompute_attention: Any  # of the other layers: 1 where the attention core is recomputed
    recompute_linear: Any  # of the other layers: fraction of the GEMMs recomputed
    recompute_elementwise: Any  # of the other layers: 1 where norms and activations are recomputed
    # 1 where this communication runs beside computation, 0 where computation waits for it
    overlap_grad_reduce: Any
    overlap_param_gather: Any
    overlap_tp: Any
    overlap_pp: Any
    overlap_ep: Any  # all-to-all of experts beside the computation of another micro-batch
    # 1 where these bytes are in host memory
    offload_optimizer: Any
    offload_activations: Any
    # layers of the first and the last pipeline stage; below 0: split evenly
    first_stage_layers: Any = BY_RULE
    last_stage_layers: Any = BY_RULE
    offload_parameters: Any = 0.0  # weights and gradients, with the optimizer
    offload_nvme: Any = 0.0  # states of the optimizer, on NVMe of the host
    recompute_segment: Any = 1.0  # of the layers recomputed in full: neighbours that share one checkpoint
    # of the other layers: 1 where this module is recomputed
    recompute_up: Any = 0.0  # the up-projections of latent attention
    recompute_mlp: Any = 0.0  # the MLP of dense layers
    recompute_moe: Any = 0.0  # router, dispatch, routed and shared experts
    recompute_shared: Any = 0.0  # shared experts

    @property
    def dp(self) -> Any:
        """Data-parallel ranks, replicas and shards together."""
        return self.dp_replicate * self.dp_shard

    @cached_property
    def shard_ranks(self) -> Any:
        """Ranks that ZeRO shards over: context-parallel ranks hold the same weights, so they share in it."""
        return self._where_sharded(self.dp_shard * self.cp)

    def _where_sharded(self, ranks: Any) -> Any:
        """``ranks`` where ZeRO is on, else 1. Where it is on in every row, the result does not have the axis of ZeRO stages."""
        return ranks if np.all(self.zero > 0) else np.where(self.zero > 0, ranks, 1.0)

    @cached_property
    def expert_ways(self) -> Any:
        """The number of parts that one copy of the experts is split into."""
        return self.ep * self.etp

    @property
    def expert_ranks(self) -> Any:
        """Ranks that hold the same experts and reduce their gradients together."""
        return self.tp * self.cp * self.dp / self.expert_ways

    @cached_property
    def expert_shard_ranks(self) -> Any:
        """Ranks that ZeRO shards the experts over."""
        return self._where_sharded(np.maximum(self.tp * self.cp * self.dp_shard / self.expert_ways, 1.0))

    @property
    def expert_replicas(self) -> Any:
        """Ranks that hold the same shard of the same experts."""
        return self.expert_ranks / self.expert_shard_ranks

    @property
    def num_microbatches(self) -> Any:
        """Micro-batches per step and data-parallel rank."""
        return self.global_batch_size / (self.micro_batch_size * self.dp)

    @property
    def tokens(self) -> Any:
        """Tokens of one micro-batch on one rank."""
        return self.micro_batch_size * self.seq_len / self.cp

    @property
    def sequence_shards(self) -> Any:
        """The number of parts that norms and residuals of a micro-batch are split into within its tensor-parallel group."""
        return np.where(self.sp > 0, self.tp, 1.0)

    @cached_property
    def rows(self) -> int:
        """The number of plans in these columns."""
        return math.prod(np.broadcast_shapes(*(np.shape(getattr(self, name)) for name in self.fields)))  # numpy 1 broadcasts 32 arrays

    def take(self, index: Any) -> Plan:
        """The plans at ``index`` of a plan of one-dimensional columns."""
        n = self.rows
        return self.replace(**{name: np.broadcast_to(getattr(self, name), (n,))[index] for name in self.fields})


def plan_with(**columns: Any) -> Plan:
    """The plan with these columns and 1 in all others; the layers of stages follow the rule."""
    ones = np.ones_like(next(iter(columns.values())))
    names = [name for name in Plan.fields if not name.endswith("_stage_layers")]
    return Plan(**{**dict.fromkeys(names, ones), **columns})


def column(value: Any) -> Any:
    """A float64 array of at least one dimension."""
    return np.atleast_1d(np.asarray(value, dtype=np.float64))
