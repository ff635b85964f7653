"""The Job: one model trained by one framework in one precision with one optimizer, in plain values."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.catalog.optimizer import CLASSES, Optimizer
from ironlaw.catalog.records import Framework, Objective
from ironlaw.frozen import Frozen
from ironlaw.precision import Precision
from ironlaw.question.fields import OfJob


class Documents(Frozen):
    """The documents of a training set: how long they are, and how they become the sequences of a batch."""

    lengths: Any  # their distribution, a Histogram
    title: str  # what it is, for a page
    packing: str  # a row of estimate/documents/packing
    balance: str  # a row of estimate/documents/slowest
    cp_by_length: bool  # a micro-batch is split over the context ranks that its longest document needs


class Optimizers(Frozen):
    """The optimizer of a job: the record of each class of parameters. ``narrow`` replaces the named one where weights are not fp32."""

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

    def on_narrow_weights(self) -> Optimizers:
        """The records where weights are 16-bit and have no fp32 copy: moments have the type of the weights."""
        return self.replace(**{part: self.narrow for part in CLASSES if self.of(part).name == self.name})

    @property
    def alike(self) -> bool:
        """True where all parameters are updated alike, one by one: no class differs, and no state has another shape than the weight."""
        plain = not (self.matrices.product or self.matrices.exchange or self.matrices.shards != "elements")
        return plain and len(self.records) == 1 and all(state.shape == "parameter" for state in self.matrices.states.values())

    @property
    def master_bytes(self) -> float:
        """Bytes of a master weight, which are those of the optimizer of the matrices."""
        return float(self.matrices.master_bytes.value)


class Job(OfJob):
    """One model trained by one framework in one precision with one optimizer: options as they are, see ``OfJob``, and what follows."""

    model: Model
    framework: Framework
    precision: Precision
    optimizer: Optimizers
    flash: bool
    expert_load: Any  # the loads of experts (estimate/layer/uneven.ExpertLoad); None: expert_imbalance says how uneven they are
    expert_precision: str  # of the products of routed experts; "": precision
    expert_formats: Precision  # the precision of that name
    mtp_stage: int | None  # stage, from 0, of the multi-token-prediction layers; None: the stage with the loss
    cp_method: str  # ring | all-to-all | all-gather | all-to-all+ring
    cp_domain: float  # accelerators of a scale-up domain; the inner group does not leave it
    documents: Documents | None  # documents of many lengths, where their distribution is given
    lora_targets: tuple[str, ...]  # operators that have an adapter: qkv or q, k, v; proj; fc1 or gate, up; fc2; experts; router
    chunked_logits: bool  # the output layer and the loss hold a chunk of the logits at a time
    fp8_scaling: str  # current | delayed: where the scale of a tensor in fp8 comes from
    fp8_param_gather: bool  # weights of narrow linear layers are kept and gathered in the narrow format
    objective: Objective | None  # None: the next token of every sequence
    teacher: Model | None  # the model whose outputs a distillation reads
    schedule: str  # a row of estimate.pipeline.schedules; the default interleaves where vpp > 1
