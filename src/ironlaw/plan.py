"""What is asked, in plain values: the Job that is trained, the Cluster it runs on, the Plan that places it.

A Plan is columns: every field is a float64 array, and all broadcast together. One plan is a column of length one.
``gpus = tp * pp * cp * dp_replicate * dp_shard``; what an axis shards is told in ``AXES``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.catalog.records import (
    Accelerator,
    Calibration,
    ElementwiseConstants,
    Fabric,
    Framework,
    GemmConstants,
    Node,
    Systems,
)
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import CatalogError

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
    """The flag columns of a set of names: 1 for those that are on.

    >>> flags("offload", ("optimizer", "activations"), {"optimizer"})
    {'offload_optimizer': 1.0, 'offload_activations': 0.0}
    """
    return {f"{prefix}_{name.replace('-', '_')}": float(name in on) for name in names}


@dataclass(frozen=True)
class Precision:
    """What is stored, computed and moved in what.

    ``gemm`` names the linear layers' calibration constants and ``peak`` their roof; attention and the output projection stay in
    ``wide``. ``operand_bytes`` counts a GEMM operand with its scales. Where a format is ``narrow`` its operands are cast from
    ``wide``: ``weight_bytes`` is a cast weight in one orientation, ``scale_reads`` how often a tensor is read to find its scales
    before it is cast, and ``one_scale`` says that a tensor has one, so that both orientations hold the same numbers.
    What a training stack keeps and sends narrow is in its framework record.
    """

    name: str
    gemm: str
    peak: str
    wide: str
    parameter_bytes: float
    activation_bytes: float
    operand_bytes: float
    master_weights: bool
    narrow: bool = False
    weight_bytes: float = 0.0
    scale_reads: float = 0.0
    one_scale: bool = False


def _wide(name: str, size: float, master: bool) -> Precision:
    return Precision(name, name, name, name, size, size, size, master)


def _narrow(name: str, gemm: str, peak: str, operand: float, weight: float, scale_reads: float = 0.0, one_scale: bool = False) -> Precision:
    """Linear layers in eight or four bits over a bf16 model."""
    return Precision(name, gemm, peak, "bf16", 2.0, 2.0, operand, True, True, weight, scale_reads, one_scale)


PRECISIONS = {
    p.name: p
    for p in (
        _wide("fp32", 4.0, master=False),
        _wide("tf32", 4.0, master=False),
        _wide("fp16", 2.0, master=True),
        _wide("bf16", 2.0, master=True),
        # Transformer Engine's recipes: a scale of the whole tensor needs its largest element first, that of a block comes with the cast;
        # weights by block have a scale for 128 x 128
        _narrow("fp8", "fp8", "fp8", 1.0, 1.0, scale_reads=1.0, one_scale=True),
        _narrow("fp8-row", "fp8", "fp8", 1.0, 1.0),
        _narrow("fp8-block", "fp8-block", "fp8", 1.0 + 4.0 / 128.0, 1.0 + 4.0 / 128.0**2),
        _narrow("mxfp8", "mxfp8", "fp8", 1.0 + 1.0 / 32.0, 1.0 + 1.0 / 32.0),
        _narrow("nvfp4", "nvfp4", "nvfp4", 0.5 + 1.0 / 16.0, 0.5 + 1.0 / 16.0, scale_reads=1.0),
    )
}


@dataclass(frozen=True, eq=False, repr=False)
class Job:
    """One model trained by one framework in one precision with one optimizer."""

    model: Model
    framework: Framework
    precision: Precision
    optimizer: str
    flash: bool
    count_embedding: bool = False
    expert_imbalance: float = 1.0  # rows of the busiest expert rank over the mean
    moe_dispatcher: str = "alltoall"  # alltoall | deepep | hybridep: the last two send a row once to each domain
    dispatch_precision: str = "wide"  # wide | fp8 (rows and their gradients) | fp8-forward: what rows are in on their way to experts
    capacity_factor: float = 0.0  # rows an expert is padded or cut to, over the mean; 0: dropless
    layers_per_stage: tuple[int, ...] = ()
    mtp_stage: int | None = None  # of layers_per_stage, the one with the layers for further tokens; None: that with the loss
    cp_method: str = "ring"  # ring | all-to-all | all-gather | all-to-all+ring
    cp_inner: float = 0.0  # with all-to-all+ring: ranks that trade heads; 0: as many as divide the heads and share a domain
    cp_domain: float = 8.0  # accelerators of a scale-up domain, which the inner group keeps to
    cp_balance: bool = True  # a context rank has a chunk from either end of the sequence; False: one piece
    document_length: float = 0.0  # tokens of a packed document; 0: a sequence is one
    offload_layers: float = 0.0  # of a stage, whose activations are offloaded; 0: all
    offload_fraction: float = 1.0  # of the optimizer's states that offloading moves to the host
    offload_overlap: bool = False  # the host updates tensor by tensor, beside the copies of others
    lora_rank: float = 0.0  # 0: everything is trained
    lora_targets: tuple[str, ...] = ()  # operators that have an adapter: qkv or q, k, v; proj; fc1 or gate, up; fc2; experts; router
    frozen_weights: str = ""  # how adapters' frozen layers are stored: fp8 | nf4; "": as the precision stores weights
    attention_kernel: str = ""  # generation of the flash kernel; "": the framework's on this architecture
    cuda_graphs: str = "none"  # none | partial (all but routed experts) | full: launches the host does not make
    microbatch_group: float = 0.0  # micro-batches a chunk runs before the next one's turn; 0: pp
    deferred_wgrad: float = 0.0  # micro-batches whose output layer's weight gradient waits for the pipeline to drain
    fused_loss: bool = False
    fp8_scaling: str = "current"  # current | delayed: where the scale of a tensor in fp8 comes from
    fp8_param_gather: bool = False  # weights of narrow linear layers are kept and gathered in the narrow format
    delay_wgrad_compute: bool = False  # with overlap ep: weight gradients computed beside the all-to-all, apart from the rest of backward
    grouped_experts: bool = True  # one grouped product for a rank's experts; False: one after the other
    schedule: str = "1f1b"  # 1f1b (interleaved where vpp > 1) | gpipe | zero-bubble | dualpipe


BY_RULE = -1.0  # layers of a stage that nobody gave
OWN_ENGINES = ("ici-torus", "neuronlink-torus")  # links whose collectives need no compute units: TPU, Trainium


@dataclass(frozen=True, eq=False, repr=False)
class Cluster:
    """One kind of accelerator in one kind of node on one fabric, with the calibration records of each tier."""

    accelerator: Accelerator
    node: Node
    fabric: Fabric
    calibration: Calibration
    reference: Accelerator  # the device the calibration was measured on
    scale_up: Calibration
    scale_out: Calibration
    systems: Systems
    clock: Any = None  # fraction of the reference's clock this part's power limit sustains; None: the reference itself

    def gemm(self, precision: str) -> GemmConstants:
        """The GEMM constants of a precision."""
        return self.calibration.gemm[precision]

    def experts(self, precision: str) -> GemmConstants:
        """The constants of grouped products of a precision: a dense product's where none were measured."""
        return self.calibration.experts.get(precision) or self.gemm(precision)

    @property
    def row_bandwidth(self) -> Sourced:
        """Fraction of HBM bandwidth that copies of rows to experts and back reach: an element-wise kernel's where none were measured.

        That of bf16: in narrow formats the measured operator's casts are in it.
        """
        measured = self.calibration.experts.get("bf16")
        known = None if measured is None else measured.rows_bandwidth_fraction
        return self.elementwise.bandwidth_fraction if known is None else known

    @property
    def overlap_slowdown(self) -> Sourced:
        """What computation loses beside a collective: nothing where engines of their own move the data, not the compute units."""
        if self.node.scale_up in OWN_ENGINES:
            return Sourced(0.0, "1", f"0: {self.node.scale_up} moves data by engines of its own", self.systems.overlap_slowdown.source)
        return self.systems.overlap_slowdown

    @property
    def elementwise(self) -> ElementwiseConstants:
        """The constants of memory-bound kernels."""
        if self.calibration.elementwise is None:
            raise CatalogError(f"calibration record {self.calibration.name} lacks elementwise, which every device needs")
        return self.calibration.elementwise


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
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
    # 1 where it runs beside computation, 0 where computation waits for it
    overlap_grad_reduce: Any
    overlap_param_gather: Any
    overlap_tp: Any
    overlap_pp: Any
    overlap_ep: Any  # the all-to-all of experts beside the computation of another micro-batch
    # 1 where it is held in host memory
    offload_optimizer: Any
    offload_activations: Any
    # layers of the first and of the last pipeline stage; below 0 where the rule for all stages has them
    first_stage_layers: Any = BY_RULE
    last_stage_layers: Any = BY_RULE

    @property
    def dp(self) -> Any:
        """Data-parallel ranks, replicas and shards together."""
        return self.dp_replicate * self.dp_shard

    @cached_property
    def shard_ranks(self) -> Any:
        """Ranks that ZeRO shards over: context-parallel ranks hold the same weights, so they share in it."""
        return self._where_sharded(self.dp_shard * self.cp)

    def _where_sharded(self, ranks: Any) -> Any:
        """``ranks`` where a ZeRO stage is on, else 1; without the axis of stages where all of them are on."""
        return ranks if np.all(self.zero > 0) else np.where(self.zero > 0, ranks, 1.0)

    @cached_property
    def wires(self) -> dict[Any, Any]:
        """What collectives of this plan have found out about their wires, by operation, group and stride."""
        return {}

    @cached_property
    def expert_ways(self) -> Any:
        """Ways one copy of the experts is split."""
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
        """Ways the norms and residuals of a micro-batch are split within its tensor-parallel group."""
        return np.where(self.sp > 0, self.tp, 1.0)

    @property
    def rows(self) -> int:
        """How many plans these columns are."""
        return int(np.broadcast(*(getattr(self, f.name) for f in fields(self))).size)

    def take(self, index: Any) -> Plan:
        """The plans at ``index`` of a plan of one-dimensional columns."""
        n = self.rows
        return replace(self, **{f.name: np.broadcast_to(getattr(self, f.name), (n,))[index] for f in fields(self)})


def column(value: Any) -> Any:
    """A float64 array of at least one dimension."""
    return np.atleast_1d(np.asarray(value, dtype=np.float64))
