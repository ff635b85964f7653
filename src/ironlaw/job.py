"""The Job: one model trained by one framework in one precision with one optimizer, in plain values."""

from __future__ import annotations

from ironlaw.catalog.model import Model
from ironlaw.catalog.optimizer import CLASSES, Optimizer
from ironlaw.catalog.records import Framework
from ironlaw.frozen import Frozen


class Precision(Frozen):
    """A precision: the formats in which parameters, activations and GEMM operands are stored, computed and moved.

    ``gemm`` names the linear layers' calibration constants and ``peak`` their roof; attention and the output projection stay in
    ``wide``. ``operand_bytes`` counts a GEMM operand with its scales. Where a format is ``narrow`` its operands are cast from
    ``wide``: ``weight_bytes`` is a cast weight in one orientation, ``scale_reads`` how often a tensor is read to find its scales
    before it is cast, and ``one_scale`` says that a tensor has one, so that both orientations hold the same numbers.
    The framework record says what it stores and sends in the narrow format.
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


def _narrow_precision(
    name: str, gemm: str, peak: str, operand: float, weight: float, scale_reads: float = 0.0, one_scale: bool = False
) -> Precision:
    """A precision with linear layers in eight or four bits over a bf16 model."""
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
        _narrow_precision("fp8", "fp8", "fp8", 1.0, 1.0, scale_reads=1.0, one_scale=True),
        _narrow_precision("fp8-row", "fp8", "fp8", 1.0, 1.0),
        _narrow_precision("fp8-block", "fp8-block", "fp8", 1.0 + 4.0 / 128.0, 1.0 + 4.0 / 128.0**2),
        _narrow_precision("mxfp8", "mxfp8", "fp8", 1.0 + 1.0 / 32.0, 1.0 + 1.0 / 32.0),
        _narrow_precision("nvfp4", "nvfp4", "nvfp4", 0.5 + 1.0 / 16.0, 0.5 + 1.0 / 16.0, scale_reads=1.0),
    )
}


class Optimizers(Frozen):
    """The optimizer of a job: the record of each class of parameters. ``narrow`` holds in a stack without fp32 weights."""

    name: str
    matrices: Optimizer
    tables: Optimizer
    vectors: Optimizer
    narrow: Optimizer
    rank: float  # of a projection, over the smaller side of a matrix; 0: no optimizer of these projects

    def of(self, part: str) -> Optimizer:
        """The record that updates a class of parameters."""
        record: Optimizer = getattr(self, part)
        return record

    @property
    def records(self) -> tuple[Optimizer, ...]:
        """The records in use, each once."""
        return tuple(dict.fromkeys(self.of(part) for part in CLASSES))

    @property
    def alike(self) -> bool:
        """True where all parameters are updated alike, one by one: no class differs, and no state has another shape than the weight."""
        plain = not (self.matrices.product or self.matrices.exchange or self.matrices.shards != "elements")
        return plain and len(self.records) == 1 and all(state.shape == "parameter" for state in self.matrices.states.values())

    @property
    def master_bytes(self) -> float:
        """Bytes of a master weight, which are those of the optimizer of the matrices."""
        return float(self.matrices.master_bytes.value)


class Job(Frozen):
    """One model trained by one framework in one precision with one optimizer. Defaults are in ``question/defaults``."""

    model: Model
    framework: Framework
    precision: Precision
    optimizer: Optimizers
    flash: bool
    count_embedding: bool
    expert_imbalance: float  # load of the busiest expert rank over the mean
    moe_dispatcher: str  # alltoall | deepep | hybridep: the last two send a row once to each domain
    expert_precision: str  # of the products of routed experts; "": precision
    dispatch_precision: str  # wide | fp8 (rows and their gradients) | fp8-forward: format of rows sent to experts
    capacity_factor: float  # rows an expert is padded or cut to, over the mean; 0: dropless
    layers_per_stage: tuple[int, ...]
    mtp_stage: int | None  # stage, from 0, of the multi-token-prediction layers; None: the stage with the loss
    cp_method: str  # ring | all-to-all | all-gather | all-to-all+ring
    cp_inner: float  # with all-to-all+ring: ranks that trade heads; 0: as many as divide the heads and share a domain
    cp_domain: float  # accelerators of a scale-up domain; the inner group does not leave it
    cp_balance: bool  # a context rank has a chunk from either end of the sequence; False: one piece
    document_length: float  # tokens of a packed document; 0: a sequence is one document
    offload_layers: float  # layers of a stage whose activations are offloaded; 0: all
    offload_fraction: float  # share of the optimizer's states that offloading moves to the host
    offload_overlap: bool  # the host updates one tensor while others are copied
    lora_rank: float  # 0: everything is trained
    lora_sets: float  # sets of adapters in memory, of which one is trained
    lora_targets: tuple[str, ...]  # operators that have an adapter: qkv or q, k, v; proj; fc1 or gate, up; fc2; experts; router
    frozen_weights: str  # how adapters' frozen layers are stored: fp8 | nf4; "": as the precision stores weights
    attention_kernel: str  # generation of the flash kernel; "": the framework's on this architecture
    cuda_graphs: str  # none | partial (attention, dense MLPs, Mamba) | full | a list of modules: what runs as a captured graph
    microbatch_group: float  # micro-batches a chunk runs before the next one's turn; 0: pp
    deferred_wgrad: float  # micro-batches whose output layer's weight gradient waits for the pipeline to drain
    fused_loss: bool
    optimizer_in_backward: bool  # each weight is updated where its gradient is made, and the gradient freed
    chunked_logits: bool  # the output layer and the loss hold a chunk of the logits at a time
    fp8_scaling: str  # current | delayed: where the scale of a tensor in fp8 comes from
    fp8_param_gather: bool  # weights of narrow linear layers are kept and gathered in the narrow format
    delay_wgrad_compute: bool  # with overlap ep: weight gradients computed beside the all-to-all, apart from the rest of backward
    grouped_experts: bool  # one grouped product for a rank's experts; False: one after the other
    schedule: str  # 1f1b (interleaved where vpp > 1) | gpipe | zero-bubble | dualpipe
