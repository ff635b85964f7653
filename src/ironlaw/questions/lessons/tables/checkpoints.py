"""Activation memory by recompute interval: the simple form and the exact one."""

from __future__ import annotations

from typing import Any

from ironlaw.estimate.bind.model import bind_model
from ironlaw.law import activations
from ironlaw.question import defaults
from ironlaw.questions.answer import Answer, Column, Table, need
from ironlaw.terms import leaf

COLUMNS = (
    Column("interval", "layers per segment", "1"), Column("checkpoints", "checkpoints", "1"), Column("simple", "simple form", "B"),
    Column("exact", "exact form", "B"), Column("again", "forward recomputed (simple form)", "%"),
)  # fmt: skip


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Memory of activations with one checkpoint for every so many layers, and the share of a forward pass computed again."""
    need(values, "model")
    model, _ = bind_model(values["model"], folders)
    layers = float(model.num_hidden_layers)
    length = float(values.get("seq_len", defaults.seq_len(model.max_position_embeddings)))
    batch = float(values.get("micro_batch_size", 1.0))
    layer = leaf(
        "one layer", activations.korthikanti_layer, "B", batch=batch, seq_len=length, hidden_size=float(model.hidden_size),
        num_attention_heads=float(model.num_attention_heads), tp=1.0, sp=0.0,
    )  # fmt: skip
    boundary = leaf(
        "one checkpoint", activations.checkpoint, "B", tokens=batch * length, hidden_size=float(model.hidden_size), tp=1.0, sp=0.0,
        bytes_per_element=2.0,
    )  # fmt: skip
    optimal = float(activations.optimal_interval(layers))
    rows = []
    for interval in sorted({1.0, 2.0, 4.0, 8.0, float(round(optimal)), layers}):
        segments = -(-layers // interval)
        rows.append({
            "interval": interval,
            "checkpoints": segments,
            "simple": float(activations.checkpointed_simple(layers, interval, layer.value)),
            "exact": float(activations.checkpointed_exact(layers, interval, layer.value, boundary.value)),
            "again": float(activations.recomputed_layers(layers, segments) / layers) if interval < layers else 0.0,
        })  # fmt: skip
    best = min(rows, key=lambda row: row["exact"])
    headline = [
        f"the square-root rule says {optimal:.2f} layers per segment; it belongs to the simple form, in which a checkpoint is as large as"
        " a layer",
        f"in the exact form {best['interval']:g} per segment need least: a checkpoint is {boundary.value / layer.value:.1%} of a layer",
    ]
    title = f"Recomputation of {model.name} in segments, one sequence of {length:g} tokens without flash attention"
    return Answer(title, headline, (Table("checkpoints", "Memory of activations", COLUMNS, rows),), (layer, boundary), folders=folders)
