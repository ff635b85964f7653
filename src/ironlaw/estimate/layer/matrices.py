"""The weights of a model by class: matrices with their sizes, embedding and output layer, vectors.

Some optimizers treat a matrix as a whole: they keep sums of its rows and columns, square factors, or multiply it by itself. A matrix
here is one that a checkpoint has: queries, keys and values are three, and so are gate and up where the stack does not fuse them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.estimate.layer.counts import embedding_parameters, expert_width, stage_replicated, stage_tables, table_parameters
from ironlaw.estimate.layer.kinds import Kind, kinds, layers_of, sized
from ironlaw.estimate.layer.products import linear_shapes
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.layer.trained import stage_trained
from ironlaw.estimate.pipeline.stages import Stage
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.plan import Plan

INWARD = ("attention output", "state out", "mlp out", "shared expert out")  # tensor parallelism splits the columns of these
ENTIRE = ("query down", "key-value down", "further-token projection")  # and splits nothing of these


class Matrix(Frozen):
    """Alike matrices of a layer: their number, rows (outputs), columns (inputs), and which side tensor parallelism splits."""

    name: str
    count: float
    rows: float
    columns: float
    split: str  # rows | columns | "": each rank has the whole matrix
    routed: bool = False

    @property
    def parameters(self) -> float:
        """Weights of all of them."""
        return self.count * self.rows * self.columns

    def on_rank(self, plan: Plan) -> tuple[Any, Any, Any]:
        """(Count, rows, columns) on one rank of a plan."""
        ways = plan.etp if self.routed else plan.tp
        rows = self.rows / ways if self.split == "rows" else self.rows
        columns = self.columns / ways if self.split == "columns" else self.columns
        return self.count / plan.ep if self.routed else self.count, rows, columns


def layer_matrices(job: Job, kind: Kind) -> tuple[Matrix, ...]:
    """The matrices of one layer of a kind."""
    model = job.model
    found = _beside_experts(job, kind)
    if not kind.routed:
        return found
    width, inner, experts = float(expert_width(model)), float(model.moe_intermediate_size), float(model.num_experts)
    found += _gated("expert in", experts, inner, width, job, routed=True)
    found += (Matrix("expert out", experts, width, inner, "columns", True),)
    found += (Matrix("router", 1.0, experts + model.zero_expert_num, float(model.hidden_size), ""),)
    if model.moe_latent_size:
        found += (Matrix("projection to the experts' width", 2.0, float(model.hidden_size), width, ""),)
    return found


def _beside_experts(job: Job, kind: Kind) -> tuple[Matrix, ...]:
    """The matrices of a layer's linear layers outside its routed experts."""
    job = job.replace(model=sized(job.model, kind))
    whole, found = Shapes.whole(job), ()
    for name, (_, n, k) in linear_shapes(job, whole, kind).items():
        found += _parts(name, float(n), float(k), job, whole)
    return found


def _parts(name: str, rows: float, columns: float, job: Job, whole: Shapes) -> tuple[Matrix, ...]:
    """The matrices of one product: a fused one is cut into its parts."""
    if name == "query-key-value":
        one, both = float(whole.kv_heads * whole.head_dim), 1.0 if job.model.attention_k_eq_v else 2.0
        return (Matrix("queries", 1.0, rows - both * one, columns, "rows"), Matrix("keys and values", both, one, columns, "rows"))
    if name in ("mlp in", "shared expert in"):
        return _gated(name, 1.0, rows / (2.0 if job.model.gated_mlp else 1.0), columns, job)
    split = "columns" if name in INWARD else "" if name in ENTIRE else "rows"
    return (Matrix(name, 1.0, rows, columns, split),)


def _gated(name: str, count: float, rows: float, columns: float, job: Job, routed: bool = False) -> tuple[Matrix, ...]:
    """A matrix into an MLP, with its gate: one matrix where the stack fuses them, else two."""
    parts = 2.0 if job.model.gated_mlp else 1.0
    if job.framework.fused_projections:
        return (Matrix(name, count, parts * rows, columns, "rows", routed),)
    return (Matrix(name, parts * count, rows, columns, "rows", routed),)


class Class(Frozen):
    """The trained parameters of a class on one pipeline stage: outside experts, in them, and of the former those on every tensor rank."""

    common: Any
    routed: Any
    entire: Any


def classes(job: Job, stage: Stage) -> dict[str, Class]:
    """The trained parameters of a stage by class; adapters are all matrices."""
    common, routed = stage_trained(job, stage)
    nothing = 0.0 * common
    if job.lora_rank:
        return {"matrices": Class(common, routed, nothing), "tables": Class(*3 * (nothing,)), "vectors": Class(*3 * (nothing,))}
    model = job.model
    tables = stage_tables(model, stage)
    positions = stage.embedding * (embedding_parameters(model) - table_parameters(model))
    if model.frozen_layers and not model.tie_word_embeddings:
        tables, positions = tables - stage.embedding * embedding_parameters(model), 0.0 * positions
    matrices, inside, whole = _summed(job, stage)
    vectors = np.maximum(common - tables - matrices, 0.0)
    on_every_rank = np.maximum(stage_replicated(model, stage) - positions - whole, 0.0)
    return {
        "matrices": Class(matrices, np.minimum(inside, routed), whole),
        "tables": Class(tables, nothing, positions),
        "vectors": Class(vectors, routed - np.minimum(inside, routed), np.minimum(on_every_rank, vectors)),
    }


def _summed(job: Job, stage: Stage) -> tuple[Any, Any, Any]:
    """Weights of a stage's trained matrices: outside experts, in them, and of the former those that tensor ranks do not split."""
    common: Any = 0.0 * stage.layers
    routed: Any = 0.0 * stage.layers
    entire: Any = 0.0 * stage.layers
    for layers, matrix in stage_matrices(job, stage):
        if matrix.routed:
            routed = routed + layers * matrix.parameters
        else:
            common = common + layers * matrix.parameters
            entire = entire + layers * (0.0 if matrix.split else matrix.parameters)
    return common, routed, entire


def stage_matrices(job: Job, stage: Stage) -> list[tuple[Any, Matrix]]:
    """The trained matrices of the layers of a stage, each with the number of layers that have it."""
    return [
        (layers_of(stage, kind, job.model), matrix) for kind in kinds(job.model) if kind.trained for matrix in layer_matrices(job, kind)
    ]


def table_matrices(job: Job, stage: Stage) -> list[tuple[Any, Matrix]]:
    """Embedding and output layer as matrices that tensor parallelism splits by rows of the vocabulary, with how many a stage has."""
    model = job.model
    table = Matrix("embedding or output layer", 1.0, float(model.vocab_size), float(model.hidden_size), "rows")
    return [(np.floor(stage_tables(model, stage) / table_parameters(model)), table)]
