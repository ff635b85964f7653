"""The five steps of an estimate by hand with their numbers, and the four usual errors, each checked.

By hand means short arithmetic: 16 bytes a parameter, 34 + 5 a s / h bytes of activations, 6 FLOP. The numbers of the
estimate are in the next column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.estimate.answer import Estimate
from ironlaw.estimate.as_data import waterfall_data
from ironlaw.estimate.bands import step_band
from ironlaw.estimate.waterfall import LOSSES
from ironlaw.law import activations, states
from ironlaw.question.defaults import USUAL_MFU
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.remedies import LOSS_REMEDIES
from ironlaw.questions.solve.workload import Workload
from ironlaw.terms import Term, leaf, scalar

NEAR = 1.25  # beyond this factor of the usual MFU a plan is too good, or time is lost
BUFFERS = 5e9  # bytes that a count by hand allows for temporary buffers
STEPS = (Column("step", "step"), Column("finding", "finding"), Column("ok", "ok"))
MEMORY = (Column("part", "part"), Column("by_hand", "by hand", "B"), Column("estimate", "estimate", "B"))
ERRORS = (Column("error", "error"), Column("consequence", "consequence here"), Column("fix", "what to do"))
CAUSES = (Column("cause", "cause"), Column("share", "share of the step", "%"), Column("fix", "what helps"))


@dataclass(frozen=True)
class Predicted:
    """What the estimate predicts of the same run."""

    device: float  # bytes
    capacity: float
    fits: bool
    step: float
    band: list[float] | None
    compute: float
    network: float
    bound: str
    predicted_mfu: float
    shares: dict[str, float]
    waterfall: dict[str, float]  # losses from the peak to the MFU, and the MFU
    parts: dict[str, float]  # bytes by name


@dataclass(frozen=True)
class Checks:
    """The numbers of the steps: by hand, and as the estimate predicts them."""

    hand: dict[str, float]  # bytes by name
    capacity: float
    mfu: float | None
    best_interval: float
    least_at_best_interval: float
    predicted: Predicted | None

    @property
    def total(self) -> float:
        """Memory by hand [B]."""
        return self.hand["static"] + self.hand["activations"] + BUFFERS

    def data(self) -> dict[str, Any]:
        """The checks as plain data for JSON."""
        return {
            **self.hand,
            "capacity": self.capacity,
            "mfu": self.mfu,
            "by_hand": self.total,
            "best_interval": self.best_interval,
            "least_at_best_interval": self.least_at_best_interval,
            **(vars(self.predicted) if self.predicted else {}),
        }


def check(values: dict[str, Any], workload: Workload, estimate: Estimate | None, gpus: float, mfu: float | None) -> Checks:
    """The numbers of the five steps; an estimate without a legal plan predicts nothing."""
    predicts = estimate if estimate is not None and estimate.legal[0] else None
    terms = count_memory_by_hand(values, workload, predicts, gpus)
    workload.record(*terms.values())
    hand = {name: float(term.value) for name, term in terms.items()}
    layers = workload.model.num_hidden_layers
    interval = float(activations.optimal_interval(layers, 1.0, 1.0))
    least = float(activations.checkpointed_simple(layers, interval, hand["layer"]))
    return Checks(hand, workload.capacity, mfu, interval, least, _predict(predicts) if predicts is not None else None)


def tables(checks: Checks, gpus: float) -> list[Table]:
    """Five steps, memory part by part, four errors, causes of a low MFU."""
    return [
        Table("steps", "The five steps", STEPS, list(_list_steps(checks, gpus))),
        Table(
            "memory", "Memory of one GPU (by hand, everything is sharded over all GPUs, as ZeRO 3 does)", MEMORY, _tabulate_memory(checks)
        ),
        Table("errors", "The usual errors", ERRORS, list(_list_errors(checks))),
        Table("causes", "Where a step loses time, by estimate", CAUSES, _list_causes(checks.predicted) if checks.predicted else []),
    ]


def count_memory_by_hand(values: dict[str, Any], workload: Workload, estimate: Estimate | None, gpus: float) -> dict[str, Term]:
    """Static memory sharded over all ranks (ZeRO 3) and activations; degrees that are not given come from the estimate's plan.

    Flash attention stores no scores, which is the formula without heads.
    """
    model, plan = workload.model, estimate.place_of(0)[0].plan if estimate is not None else None

    def degree(name: str) -> float:
        return float(values.get(name) or (scalar(getattr(plan, name)) if plan is not None else 1.0))

    tp, pp, batch = degree("tp"), degree("pp"), degree("micro_batch_size")
    sequence_parallel = float(values.get("sp", tp > 1.0))
    terms = {
        name: leaf(f"{title} by hand", states.state, "B", parameters=workload.parameters, bytes_per_parameter=size, shards=gpus)
        for name, title, size in (
            ("weights", "weights", 2.0),
            ("gradients", "gradients", 2.0),
            ("optimizer", "optimizer states", 12.0),
            ("static", "static memory", 16.0),
        )
    }
    terms["layer"] = leaf(
        "activations of a layer by hand",
        activations.korthikanti_layer,
        "B",
        batch=batch,
        seq_len=workload.seq_len,
        hidden_size=model.hidden_size,
        num_attention_heads=0.0 if values.get("flash_attention", True) else model.num_attention_heads,
        tp=tp,
        sp=sequence_parallel,
    )
    layers, interval = model.num_hidden_layers / pp, values.get("checkpoint_layers")
    stored = {"layers": layers, "interval": interval or layers, "per_layer": terms["layer"].value}
    if interval:
        terms["activations"] = leaf("activations by hand", activations.checkpointed_simple, "B", **stored)
        boundary = activations.checkpoint(batch * workload.seq_len, model.hidden_size, tp, sequence_parallel, 2.0)
        terms["exact"] = leaf("activations with checkpoints counted", activations.checkpointed_exact, "B", **stored, boundary=boundary)
        segment = {**stored, "layers": interval}
        terms["window"] = leaf("activations of a recomputed segment", activations.checkpointed_exact, "B", **segment, boundary=0.0)
    else:  # one segment of all layers, without a checkpoint
        terms["activations"] = leaf("activations by hand", activations.checkpointed_exact, "B", **stored, boundary=0.0)
    return terms


def _predict(estimate: Estimate) -> Predicted:
    """What the estimate predicts of the run: memory, step time, its error band, bound and MFU."""
    group, at = estimate.place_of(0)
    shares = {name: scalar(column) for name, column in group.shares.items()}
    step = float(estimate.step_seconds[0])
    return Predicted(
        device=float(estimate.device_bytes[0]),
        capacity=float(group.memory.capacity),
        fits=bool(estimate.fits[0]),
        step=step,
        band=step_band(group, at, step),
        compute=shares["compute"],
        network=shares["network"],
        bound=max(shares, key=lambda name: shares[name]),
        predicted_mfu=float(estimate.mfu[0]),
        shares=shares,
        waterfall=waterfall_data(group, at),
        parts={node.name: scalar(node) for node in group.memory.tree.walk()},
    )


def _list_steps(checks: Checks, gpus: float) -> Iterator[dict[str, Any]]:
    """List the five steps: memory, compute, communication, bottleneck, sanity."""
    predicted, mfu = checks.predicted, checks.mfu
    used, capacity = (predicted.device, predicted.capacity) if predicted else (checks.total, checks.capacity)
    fits = predicted.fits if predicted else used <= capacity
    remedy = "" if fits else "; more tp or pp, recompute, a smaller micro-batch or sequence, more GPUs"
    room = f"{units.show(used, 'B')} of {units.show(capacity, 'B')} on each of {gpus:,.0f}{remedy}"
    yield {"step": "1 memory", "finding": room, "ok": bool(fits)}
    if mfu:
        yield {"step": "2 compute", "finding": f"{1 / mfu:.2f} times as long as at the peak (MFU {mfu:.1%})", "ok": mfu <= 1.0}
    if predicted:
        network = predicted.network
        yield {"step": "3 communication", "finding": f"{network:.1%} of the step is exposed communication", "ok": network < 0.5}
        finding = f"{predicted.bound}-bound, compute takes {predicted.compute:.1%} of the step"
        yield {"step": "4 bottleneck", "finding": finding, "ok": True}
    if mfu:
        yield _check_sanity(predicted, mfu)


def _check_sanity(predicted: Predicted | None, mfu: float) -> dict[str, Any]:
    """The MFU against that of tuned runs, and the band in which published steps lie around such predictions."""
    low, high = USUAL_MFU
    where = "below" if mfu < low else "above" if mfu > high else "within"
    ok = low / NEAR <= mfu <= high * NEAR
    text = f"MFU {mfu:.1%} is {where} the usual {low:.0%} to {high:.0%}{'' if ok else ': check'}"
    if predicted and predicted.band:
        least, most, coverage = predicted.band
        text += f"; {coverage:.0%} of published steps lie from {least / predicted.step - 1:+.0%} to {most / predicted.step - 1:+.0%}"
    return {"step": "5 sanity", "finding": text, "ok": ok}


def _tabulate_memory(checks: Checks) -> list[dict[str, Any]]:
    """Memory part by part, by hand and by the estimate."""
    hand, predicted = checks.hand, checks.predicted
    parts = predicted.parts if predicted else {}

    def estimated(*names: str) -> float | None:
        return sum(parts.get(name, 0.0) for name in names) if parts else None

    rows: list[dict[str, Any]] = [
        {"part": "weights", "by_hand": hand["weights"], "estimate": estimated("weights")},
        {"part": "gradients", "by_hand": hand["gradients"], "estimate": estimated("gradients")},
        {"part": "optimizer states", "by_hand": hand["optimizer"], "estimate": estimated("master weights", "optimizer states")},
        {"part": "activations", "by_hand": hand["activations"], "estimate": estimated("activations")},
    ]
    rest = predicted.device - sum(row["estimate"] or 0.0 for row in rows) if predicted else None
    if "exact" in hand:
        rows.append({"part": "  with the real size of checkpoints", "by_hand": hand["exact"], "estimate": None})
        rows.append({"part": "  one recomputed segment", "by_hand": hand["window"], "estimate": None})
    rows.append({"part": "buffers and the rest", "by_hand": BUFFERS, "estimate": rest})
    rows.append({"part": "total", "by_hand": checks.total, "estimate": predicted.device if predicted else None})
    return rows


def _list_causes(predicted: Predicted) -> list[dict[str, Any]]:
    """The parts of a step, longest first after the model's FLOPs at the peak; each with what helps."""
    losses = sorted(((key, predicted.waterfall[key]) for key in LOSSES), key=lambda item: -item[1])
    return [
        {"cause": "model FLOPs at the peak", "share": predicted.predicted_mfu, "fix": "a faster device, lower precision"},
        *({"cause": LOSSES[key], "share": share, "fix": LOSS_REMEDIES[key]} for key, share in losses if abs(share) > 0.0005),
    ]


def _list_errors(checks: Checks) -> Iterator[dict[str, Any]]:
    """The wrong answers for this run: without optimizer states, without activations, at 100 % MFU, without communication."""
    hand, mfu, predicted = checks.hand, checks.mfu, checks.predicted
    static, bare = hand["static"], hand["static"] - hand["optimizer"]
    yield {
        "error": "forgetting optimizer states",
        "consequence": f"{units.show(bare, 'B')} instead of {units.show(static, 'B')}: {static / bare:.0f}x too little",
        "fix": "count 12 bytes a parameter for Adam",
    }
    missing = predicted.parts.get("activations", hand["activations"]) if predicted else hand["activations"]
    yield {
        "error": "ignoring activations",
        "consequence": f"{units.show(missing, 'B')} missing",
        "fix": "count batch x sequence x width; recompute if they do not fit",
    }
    if mfu and math.isfinite(mfu):
        yield {"error": "100% MFU", "consequence": f"{1 / mfu:.2f}x too fast", "fix": "take the predicted MFU"}
    if predicted:
        share = predicted.network
        text = f"{share:.1%} of the step missing: {1 / (1 - share):.2f}x too fast"
        yield {"error": "ignoring communication", "consequence": text, "fix": "add the exposed part of each collective"}
