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
from ironlaw.estimate.answer.as_data import waterfall_data
from ironlaw.estimate.answer.bands import step_band
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.step.waterfall import LOSSES
from ironlaw.estimate.what_if.measured_run import MFU_NAMES
from ironlaw.law import activations
from ironlaw.question.defaults import USUAL_MFU
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.plan_words import describe_plan
from ironlaw.questions.remedies import LOSS_REMEDIES
from ironlaw.questions.solve.by_hand import BUFFERS, HandMemory, count_memory, gigabytes, list_remedies, remedies_table, tabulate_states
from ironlaw.questions.solve.workload import Workload
from ironlaw.terms import scalar

NEAR = 1.25  # beyond this factor of the usual MFU a plan is too good, or time is lost
STEPS = (Column("step", "step"), Column("finding", "finding"), Column("ok", "ok"))
MEMORY = (Column("part", "part"), Column("by_hand", "by hand", "decimal B"), Column("estimate", "estimate", "decimal B"))
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
    plan: str


@dataclass(frozen=True)
class Checks:
    """The numbers of the steps: by hand, and as the estimate predicts them."""

    memory: HandMemory
    mfu: float | None
    mfu_name: str
    best_interval: float
    least_at_best_interval: float
    predicted: Predicted | None
    why_not: str  # why the estimate predicts nothing
    remedies: list[dict[str, Any]]

    def data(self) -> dict[str, Any]:
        """The checks as plain data for JSON."""
        memory = self.memory
        return {
            **{name: float(term.value) for name, term in memory.terms.items()},
            "capacity": memory.usable,
            "capacity_as_sold": memory.sold,
            "mfu": self.mfu,
            "by_hand": memory.total,
            "by_hand_fits": memory.fits,
            "by_hand_plan": memory.describe(),
            "best_interval": self.best_interval,
            "least_at_best_interval": self.least_at_best_interval,
            **(vars(self.predicted) if self.predicted else {}),
        }


def check(values: dict[str, Any], workload: Workload, estimate: Estimate | None, gpus: float, mfu: float | None) -> Checks:
    """The numbers of the five steps; an estimate without a legal plan predicts nothing."""
    predicts = estimate if estimate is not None and estimate.legal[0] else None
    memory = count_memory(values, workload, predicts, gpus)
    workload.record(*memory.terms.values())
    layers = workload.model.num_hidden_layers
    interval = float(activations.optimal_interval(layers, 1.0, 1.0))  # a checkpoint counted as large as a layer
    predicted = _predict(predicts) if predicts is not None else None
    return Checks(
        memory=memory,
        mfu=mfu,
        mfu_name=workload.mfu_name,
        best_interval=interval,
        least_at_best_interval=float(activations.checkpointed_simple(layers, interval, memory["layer"])),
        predicted=predicted,
        why_not="" if predicted else workload.why_no_mfu(gpus),
        remedies=list_remedies(values, workload, predicts, memory),
    )


def tables(checks: Checks, workload: Workload) -> list[Table]:
    """Five steps, states, memory part by part, remedies, four errors, causes of a low MFU."""
    title = f"Memory of one GPU, part by part (by hand: {checks.memory.describe()}; GB are 10^9 bytes)"
    return [
        Table("steps", "The five steps", STEPS, list(_list_steps(checks))),
        tabulate_states(workload, checks.memory),
        Table("memory", title, MEMORY, _tabulate_memory(checks)),
        remedies_table(checks.remedies),
        Table("errors", "The usual errors", ERRORS, list(_list_errors(checks))),
        Table(
            "causes", "Where a step loses time, by estimate", CAUSES, _list_causes(checks.predicted, workload) if checks.predicted else []
        ),
    ]


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
        plan=describe_plan(estimate),
    )


def _list_steps(checks: Checks) -> Iterator[dict[str, Any]]:
    """List the five steps: memory by hand and by estimate, compute, communication, bottleneck, sanity; none is left out."""
    predicted, mfu, memory = checks.predicted, checks.mfu, checks.memory
    yield {"step": "1 memory by hand", "finding": memory.verdict(), "ok": memory.fits}
    if predicted:
        remedy = "" if predicted.fits else "; more tp or pp, recompute, a smaller micro-batch or sequence, more GPUs"
        room = (
            f"{units.show(predicted.device, 'B')} of {units.show(predicted.capacity, 'B')}: {'fits' if predicted.fits else 'does not fit'}"
        )
        yield {"step": "1 memory by estimate", "finding": f"{room} ({predicted.plan}){remedy}", "ok": predicted.fits}
    else:
        yield {"step": "1 memory by estimate", "finding": f"not estimated: {checks.why_not}", "ok": None}
    if mfu:
        text = f"{1 / mfu:.2f} times as long as at the peak ({checks.mfu_name} {mfu:.1%})"
        yield {"step": "2 compute", "finding": text, "ok": mfu <= 1.0}
    else:
        yield {"step": "2 compute", "finding": "no MFU: give --mfu", "ok": None}
    if predicted:
        network = predicted.network
        yield {"step": "3 communication", "finding": f"{network:.1%} of the step is exposed communication", "ok": network < 0.5}
        finding = f"{predicted.bound}-bound, compute takes {predicted.compute:.1%} of the step"
        yield {"step": "4 bottleneck", "finding": finding, "ok": True}
    else:
        yield {"step": "3 communication", "finding": f"not estimated: {checks.why_not}", "ok": None}
        yield {"step": "4 bottleneck", "finding": f"not estimated: {checks.why_not}", "ok": None}
    yield _check_sanity(checks, mfu) if mfu else {"step": "5 sanity", "finding": "no MFU: give --mfu", "ok": None}


def _check_sanity(checks: Checks, mfu: float) -> dict[str, Any]:
    """The MFU against that of tuned runs, and the band in which published steps lie around such predictions."""
    low, high = USUAL_MFU
    predicted = checks.predicted
    where = "below" if mfu < low else "above" if mfu > high else "within"
    ok = low / NEAR <= mfu <= high * NEAR
    text = f"{checks.mfu_name} {mfu:.1%} is {where} the usual {low:.0%} to {high:.0%}{'' if ok else ': check'}"
    if predicted and predicted.band:
        least, most, coverage = predicted.band
        text += f"; {coverage:.0%} of published steps lie from {least / predicted.step - 1:+.0%} to {most / predicted.step - 1:+.0%}"
    return {"step": "5 sanity", "finding": text, "ok": ok}


def _tabulate_memory(checks: Checks) -> list[dict[str, Any]]:
    """Memory part by part, by hand and by the estimate, and whether each fits."""
    hand, predicted = checks.memory, checks.predicted
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
    rows.insert(3, {"part": "static", "by_hand": hand["static"], "estimate": sum(row["estimate"] for row in rows[:3]) if parts else None})
    rows.insert(4, {"part": "one layer's activations", "by_hand": hand["layer"], "estimate": None})
    rows.append({"part": "buffers and the rest", "by_hand": BUFFERS, "estimate": rest})
    rows.append({"part": "total", "by_hand": hand.total, "estimate": predicted.device if predicted else None})
    rows.append({"part": "memory of the device", "by_hand": hand.usable, "estimate": predicted.capacity if predicted else None})
    return rows


def _list_causes(predicted: Predicted, workload: Workload) -> list[dict[str, Any]]:
    """The parts of a step, longest first after the model's FLOPs at the peak; each with what helps."""
    losses = sorted(((key, predicted.waterfall[key]) for key in LOSSES), key=lambda item: -item[1])
    return [
        {
            "cause": f"{MFU_NAMES['mfu']}: FLOPs of the {workload.counted / 1e9:.4g} B parameters at the peak",
            "share": predicted.predicted_mfu,
            "fix": "a faster device, lower precision",
        },
        *({"cause": LOSSES[key], "share": share, "fix": LOSS_REMEDIES[key]} for key, share in losses if abs(share) > 0.0005),
    ]


def _list_errors(checks: Checks) -> Iterator[dict[str, Any]]:
    """The wrong answers for this run: without optimizer states, without activations, at 100 % MFU, without communication."""
    hand, mfu, predicted = checks.memory, checks.mfu, checks.predicted
    static, bare = hand["static"], hand["static"] - hand["optimizer"]
    yield {
        "error": "forgetting optimizer states",
        "consequence": f"{gigabytes(bare)} instead of {gigabytes(static)}: {static / bare:.0f}x too little",
        "fix": "count 12 bytes a parameter for Adam",
    }
    missing = predicted.parts.get("activations", hand["activations"]) if predicted else hand["activations"]
    yield {
        "error": "ignoring activations",
        "consequence": f"{gigabytes(missing)} missing",
        "fix": "count batch x sequence x width; recompute if they do not fit",
    }
    if mfu and math.isfinite(mfu):
        yield {"error": "100% MFU", "consequence": f"{1 / mfu:.2f}x too fast", "fix": "take the predicted MFU"}
    if predicted:
        share = predicted.network
        text = f"{share:.1%} of the step missing: {1 / (1 - share):.2f}x too fast"
        yield {"error": "ignoring communication", "consequence": text, "fix": "add the exposed part of each collective"}
