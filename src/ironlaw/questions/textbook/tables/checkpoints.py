"""Activation memory by recompute interval: the textbook's simple form, the exact form, and the estimate of a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.errors import QuestionError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.reproduce import asked_data
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.memory.activations import hidden_state
from ironlaw.estimate.memory.total import Layers
from ironlaw.estimate.what_if.near_counts import no_such_plan
from ironlaw.law import activations
from ironlaw.question.assumptions import assume
from ironlaw.question.forms import need
from ironlaw.question.read import read_options
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.terms import Term, leaf, scalar, total

ON, FRAMEWORK = "h100-sxm", "megatron"
COLUMNS = (
    Column("how", "--recompute"), Column("interval", "layers per segment", "1"), Column("checkpoints", "checkpoints", "1"),
    Column("simple", "simple form", "B"), Column("exact", "exact form", "B"),
    Column("again", "forward recomputed, simple form", "%"), Column("all_again", "exact form", "%"),
    Column("device", "device memory, by estimate", "B"), Column("fits", "fits"), Column("seconds", "step, by estimate", "s"),
)  # fmt: skip


class Layer(NamedTuple):
    """What a layer keeps of one micro-batch, and what its checkpoint does."""

    kept: Term
    checkpoint: Term
    textbook: Term  # s b h (34 + 5 a s / h), with attention that is not fused


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Memory of one micro-batch's activations with one checkpoint for every so many layers, and the forward passes computed again."""
    need(values, "model")
    timed = "on" in values and "gpus" in values
    group = _whole_layers(values, folders)
    layer = _sizes(group)
    plan, model = group.plan, group.job.model
    layers = float(math.ceil(model.num_hidden_layers / scalar(plan.pp)))
    kept, boundary = scalar(layer.kept), scalar(layer.checkpoint)
    root, best = (float(activations.optimal_interval(layers, kept, size)) for size in (kept, boundary))
    intervals = sorted({1.0, 2.0, 4.0, 8.0, float(round(root)), max(float(round(best)), 1.0), layers})
    rows = [_without(layers, kept), *(_row(layers, k, kept, boundary) for k in intervals if k <= layers)]
    if timed:
        rows = [{**row, **_estimated(group, row["how"], folders)} for row in rows]
    least = min(rows[1:], key=lambda row: row["exact"])
    attention = "with flash attention" if group.job.flash else "without flash attention"
    stage = "" if layers == model.num_hidden_layers else f" on each of {scalar(plan.pp):g} stages"
    texts = (
        f"a layer keeps {units.show(kept, 'B', 4)} of a micro-batch, its checkpoint {units.show(boundary, 'B', 4)}"
        f" ({boundary / kept:.1%}); all {layers:g} layers{stage} keep {units.show(layers * kept, 'B', 4)}",
        f"the square-root rule says {root:.2f} layers per segment; it belongs to the simple form, in which a checkpoint is as large as"
        " a layer",
        f"the exact best interval is sqrt(layers x checkpoint / layer) = {best:.2f}: {least['interval']:g} per segment need least,"
        f" {units.show(least['exact'], 'B', 4)}",
    )
    told = (
        ("layer", {"layer": float(kept), "checkpoint": float(boundary), "layers": float(layers)}),
        ("square-root", {"interval": float(root)}),
        ("exact", {"interval": float(least["interval"]), "bytes": float(least["exact"])}),
    )
    headline = [Sentence(text, code, said) for text, (code, said) in zip(texts, told, strict=True)]
    sequences = f"{scalar(plan.micro_batch_size):g} x {scalar(plan.seq_len):,.0f} tokens"
    title = f"Recomputation of {model.name} in segments: a micro-batch of {sequences}, tp {scalar(plan.tp):g}, {group.job.precision.name}"
    warnings = [caution("forms-have-one-micro-batch")] if timed else []
    return Answer(
        f"{title}, {attention}",
        headline,
        (Table("checkpoints", "Memory of activations", filled_columns(COLUMNS, rows), rows),),
        layer,
        assumptions=group.assumptions,
        warnings=warnings,
        folders=folders,
    )


def _whole_layers(values: Mapping[str, Any], folders: tuple[str, ...]) -> Group:
    """The plan that is asked about, without recomputation; what is left open is one rank, one sequence and the usual stack."""
    asked = {"on": ON, "framework": FRAMEWORK, **values, "recompute": "none"}
    if "on" in values and "gpus" in values:
        asked = {**values, "recompute": "none"}
    else:
        for name in ("tp", "pp", "cp", "micro_batch_size"):
            asked.setdefault(name, 1.0)
        asked.setdefault("gpus", asked["tp"] * asked["pp"] * asked["cp"])
        if "global_batch_tokens" not in asked:
            ranks = asked["gpus"] / (asked["tp"] * asked["pp"] * asked["cp"])
            asked.setdefault("global_batch_size", max(math.floor(ranks), 1.0) * asked["micro_batch_size"])
        asked.setdefault("vpp", 1.0)
        asked.setdefault("zero", 1.0)
        asked.setdefault("ep", 1.0)
        asked.setdefault("offload", frozenset())
    estimate = answer(asked, folders)
    if estimate.rows > 1:
        raise QuestionError("textbook checkpoints takes one plan: give one value for every option")
    group, at = estimate.place_of(0)
    if not group.legal[at]:
        raise no_such_plan(estimate)
    if "on" not in values:
        group = group.replace(assumptions=[])
        assume(group.assumptions, "framework", asked["framework"], "given" if "framework" in values else "default")
    return group


def _sizes(group: Group) -> Layer:
    """The layer that keeps most, its checkpoint, and the textbook's layer."""
    job, plan = group.job, group.plan
    kept = [total(f"one layer, {kind.name}", parts) for kind, parts in Layers.of(job, plan).saved.items()]
    largest = max(kept, key=scalar)
    one = Term("one layer", largest.value, "B", largest.law, largest.inputs, largest.parts)
    textbook = leaf(
        "one layer, textbook", activations.korthikanti_layer, "B", batch=plan.micro_batch_size, seq_len=plan.seq_len / plan.cp,
        hidden_size=float(job.model.hidden_size), num_attention_heads=float(job.model.num_attention_heads), tp=plan.tp, sp=plan.sp,
    )  # fmt: skip
    return Layer(one, hidden_state("one checkpoint", job, plan, Shapes.of(job, plan)), textbook)


def _without(layers: float, kept: float) -> dict[str, Any]:
    """The row without recomputation: every layer keeps all."""
    return {
        "how": "none", "interval": None, "checkpoints": 0.0, "simple": layers * kept, "exact": layers * kept, "again": 0.0,
        "all_again": 0.0,
    }  # fmt: skip


def _row(layers: float, interval: float, kept: float, boundary: float) -> dict[str, Any]:
    """The row of one interval. In the simple form the layers that are checkpoints keep all, in the exact one all layers run again."""
    segments = float(math.ceil(layers / interval))
    return {
        "how": "full" if interval == 1.0 else f"segments:{interval:g}",
        "interval": interval,
        "checkpoints": segments,
        "simple": float(activations.checkpointed_simple(layers, interval, kept)),
        "exact": float(activations.checkpointed_exact(layers, interval, kept, boundary)),
        "again": float(activations.recomputed_layers(layers, segments) / layers),
        "all_again": 1.0,
    }


def _estimated(group: Group, how: str, folders: tuple[str, ...]) -> dict[str, Any]:
    """Device memory and step of the held plan with another recomputation."""
    asked = asked_data(group, 0)
    held = read_options({**asked["given"], **asked["plan"], "recompute": how})
    held.pop("global_batch_tokens", None)
    held["global_batch_size"] = scalar(group.plan.global_batch_size)
    changed = answer(held, folders).groups[0]
    return {"device": scalar(changed.memory.device), "fits": bool(changed.memory.fits[0]), "seconds": scalar(changed.step.tree)}
