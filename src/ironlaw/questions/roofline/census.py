"""Every operator of a model's training step, from the tree of its estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.errors import QuestionError
from ironlaw.estimate import wires
from ironlaw.estimate.answer import Estimate, Group, estimate
from ironlaw.estimate.layer.passes import PASSES
from ironlaw.estimate.step import MICRO_BATCHES
from ironlaw.law import activations, kernels, run
from ironlaw.question.assumptions import assume
from ironlaw.questions.answer import Answer, Column, Table, need
from ironlaw.questions.roofline import hidden, roofs
from ironlaw.terms import BOUNDS, Term, leaf, plain, total

ROWS = (
    Column("operator", "operator"),
    Column("where", "where"),
    Column("count", "count", "1"),
    Column("flop", "FLOPs", "FLOP"),
    Column("bytes", "HBM bytes", "B"),
    Column("wire_bytes", "wire bytes", "B"),
    Column("intensity", "FLOP/B", "1"),
    Column("time", "time", "s"),
    Column("share", "of step", "%"),
    Column("roof", "roof"),
    Column("link", "link"),
)
ROOFS = (
    Column("roof", "roof"),
    Column("time", "time", "s"),
    Column("share", "of step", "%"),
    Column("amount", "moved or done"),
    Column("count", "operations", "1"),
)
BATCHES = (
    Column("batch", "micro-batch", "1"),
    Column("memory", "memory", "B"),
    Column("memory_share", "of capacity", "%"),
    Column("intensity", "FLOP/B", "1"),
    Column("step", "step", "s"),
    Column("tokens_per_second", "tokens/s", "1"),
    Column("mfu", "MFU", "%"),
    *(Column(name, name, "%") for name in ("compute", "hbm", "network", "dispatch")),
)


@dataclass(frozen=True)
class Item:
    """An operator of a step on the accelerator that sets the pace: all its runs together."""

    operator: str
    where: str
    count: float
    flop: float
    moved: float  # through HBM
    wire: float  # bytes an accelerator sends
    time: float
    roof: str
    link: str = ""  # of a collective: scale-up, or nic where it leaves the domain


def answer(question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The census of a step; a comparison of micro-batch sizes where several are asked."""
    del question
    need(values, "on", "gpus")
    if "batch" in values and "micro_batch_size" in values:
        raise QuestionError("give --batch (sizes to compare) or --micro-batch-size, not both")
    asked = {name: value for name, value in values.items() if name not in _OWN}
    if "optimizer" in values:
        if len(values["optimizer"]) > 1:
            raise QuestionError("with a MODEL --optimizer is a name alone: the model says how many parameters")
        asked["optimizer"] = values["optimizer"][0]
    if "batch" in values:
        asked = _pinned(asked, values["batch"], folders)
    found = estimate(catalog=folders, **asked)
    group, at = found.place_of(0)
    if not bool(np.all(found.legal)):
        broken = [name for name, column in group.rules.items() if name != "fits" and not np.all(column)]
        raise QuestionError(
            f"this plan cannot be: {', '.join(broken) or 'a micro-batch does not divide the batch'} (ironlaw estimate says more)"
        )
    if "batch" in values:
        return _batches(found, values, folders)
    return _census(group, at, values, folders)


_OWN = ("optimizer", "batch", "measured", "samples_per_second", "baseline", "tolerance")


def _pinned(asked: dict[str, Any], batches: tuple[float, ...], folders: tuple[str, ...]) -> dict[str, Any]:
    """The question for all batches under one plan: that of the largest, so that nothing but the batch differs."""
    group, at = estimate(catalog=folders, **asked, micro_batch_size=max(batches)).place_of(0)
    plan = {name: _at(getattr(group.plan, name), at) for name in _MESH}
    how = {"sp": _at(group.plan.sp, at) > 0, "recompute": group.recompute[at], "framework": group.job.framework.name}
    return {**plan, **how, **asked, "micro_batch_size": list(batches)}


_MESH = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "zero", "global_batch_size")


def items(tree: Term, at: int = 0, nic: float = math.inf) -> list[Item]:
    """The leaves of a step's tree with what they run, largest first; their times add up to the step. ``nic`` is a NIC's rate."""
    merged: dict[tuple[str, str, str, str], Item] = {}
    for node, times, where in _leaves(tree, at, 1.0, ()):
        time = _at(node.value, at) * times
        if not time:
            continue
        runs = times * (_at(node.times, at))
        given = {name: _at(plain(value), at) for name, value in node.inputs.items()}
        wire = wires.bytes_sent(given)
        new = Item(
            operator=node.name,
            where=where,
            count=runs,
            flop=given.get("flop", 0.0) * runs,
            moved=given.get("traffic", 0.0) * runs,
            wire=wire * runs,
            time=time,
            roof=_roof(node, at),
            link=_link(given, nic),
        )
        key = (new.operator, new.where, new.roof, new.link)
        old = merged.get(key)
        merged[key] = new if old is None else replace(old, **{f: getattr(old, f) + getattr(new, f) for f in _SUMMED})
    return sorted(merged.values(), key=lambda item: -item.time)


_SUMMED = ("count", "flop", "moved", "wire", "time")


def _link(given: dict[str, float], nic: float) -> str:
    """The link a collective or message uses: by its ranks outside the domain, or by its rate."""
    if "size" not in given:
        return ""
    leaves = given["outer_ranks"] > 1.0 if "outer_ranks" in given else given.get("bandwidth", 0.0) <= nic
    return "nic" if leaves else "scale-up"


def _leaves(node: Term, at: int, times: float, path: tuple[Term, ...]) -> Iterator[tuple[Term, float, str]]:
    if not node.parts:
        yield node, times, _place(path)
        return
    for part in node.parts:
        yield from _leaves(part, at, times * _at(node.times, at), (*path, part))


def _place(path: tuple[Term, ...]) -> str:
    """Where of a step a leaf is: its pass in a layer, or its section."""
    above = [node for node in path[:-1] if node.key != MICRO_BATCHES]
    return next((node.name for node in above if node.key in PASSES), above[0].name if above else "step")


def _roof(node: Term, at: int) -> str:
    return node.bound if isinstance(node.bound, str) else BOUNDS[int(_at(node.bound, at))] if node.bound is not None else "-"


def _at(value: Any, at: int) -> float:
    array = np.ravel(plain(value))
    return float(array[at if array.size > 1 else 0])


def _census(group: Group, at: int, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    tree = group.step.tree
    found = items(tree, at, wires.nic_rate(group.cluster).value)
    step = _at(tree.value, at)
    rows = [
        {
            "operator": i.operator,
            "where": i.where,
            "count": i.count,
            "flop": i.flop or None,
            "bytes": i.moved or None,
            "wire_bytes": i.wire or None,
            "intensity": float(kernels.intensity(i.flop, i.moved)) if i.flop else None,
            "time": i.time,
            "share": i.time / step,
            "roof": i.roof,
            "link": i.link or None,
        }
        for i in found
    ]
    flop = _sum("FLOP of a step", "FLOP", found, "flop")
    moved = _sum("HBM bytes of a step", "B", found, "moved")
    wire = _sum("wire bytes of a step", "B", found, "wire")
    links = {name: sum(i.wire for i in found if i.link == name) for name in ("scale-up", "nic")}
    over = " and ".join(f"{units.show(size, 'B', 4)} over {name}" for name, size in links.items() if size) or "nothing over wires"
    sent = sum(i.count for i in found if i.wire)
    beside = hidden.rows(group, at)
    more = sum(row["wire_bytes"] or 0.0 for row in beside)
    accelerator, job = group.cluster.accelerator, group.job
    peak = accelerator.peak[job.precision.peak]
    per_byte = leaf("intensity", kernels.intensity, "FLOP/B", flop=flop.value, traffic=moved.value)
    ridge = leaf("ridge point", kernels.ridge_point, "FLOP/B", peak=peak, bandwidth=accelerator.hbm_bandwidth)
    model = leaf("step", _as_is, "s", seconds=step)
    headline = [
        f"step {units.show(step, 's', 4)} on each accelerator of the slowest stage: {_show(flop)}, {_show(moved)} through HBM, "
        f"{_show(per_byte)} (ridge {_show(ridge)})",
        f"{over} in {sent:,.0f} collectives and hand-overs that are waited for; "
        + (f"{units.show(more, 'B', 4)} in those that can run beside computation" if more else "none can run beside computation"),
    ]
    terms = [model, flop, moved, wire, per_byte, ridge]
    summary = []
    for roof in BOUNDS:
        mine = [i for i in found if i.roof == roof]
        time = sum(i.time for i in mine)
        if not time:
            continue
        amount = {
            "compute": (sum(i.flop for i in mine), "FLOP"),
            "hbm": (sum(i.moved for i in mine), "B"),
            "network": (wire.value, "B"),
        }.get(roof)
        summary.append(
            {
                "roof": roof,
                "time": time,
                "share": time / step,
                "amount": units.show(float(amount[0]), amount[1], 4) if amount and amount[0] else "-",
                "count": sum(i.count for i in mine),
            }
        )
    warnings = list(group.warnings)
    if not _at(group.memory.fits, at):
        warnings.append(f"this plan does not fit into the memory of {accelerator.name} (ironlaw estimate says by how much)")
    possible = True
    measured = _measured(values, group, at)
    if measured is not None:
        told, more, possible = _judge(measured, group, at, flop, moved, step)
        headline, terms = [*headline, told], [*terms, *more]
        warnings += [] if possible else ["a measured step above the peak is impossible"]
    if "baseline" in values:
        text, passes = roofs.regression(values)
        headline, possible = [*headline, text], possible and passes
    shown = tuple(c for c in ROWS if any(row.get(c.key) is not None for row in rows))
    tables = [Table("roofs", "Time by roof", ROOFS, summary), Table("hidden", "Beside computation", hidden.COLUMNS, beside)]
    tables.append(Table("operators", "Operators of a step, longest first", shown, rows))
    title = f"{job.model.name} on {_at(group.plan.gpus, at):.0f} {accelerator.name}: the roofs of a step"
    return Answer(
        title,
        headline,
        tables,
        terms,
        {"collectives": sent, "wire_bytes": links, "hidden_wire_bytes": more},
        group.assumptions,
        warnings,
        possible,
        folders,
    )


def _sum(name: str, unit: str, found: list[Item], field: str) -> Term:
    parts = [Term(f"{i.operator}, {i.where}", getattr(i, field), unit) for i in found if getattr(i, field)]
    return total(name, parts, unit=unit)


def _as_is(seconds: Any) -> Any:
    """The step of the estimate (``ironlaw estimate --explain`` has its tree): ``seconds``."""
    return seconds


def _measured(values: dict[str, Any], group: Group, at: int) -> float | None:
    """The measured step: given, or what a rate of sequences says."""
    if "measured" in values and "samples_per_second" in values:
        raise QuestionError("give --measured or --samples-per-second, not both")
    if "samples_per_second" in values:
        return _at(group.plan.global_batch_size, at) / float(values["samples_per_second"])
    return values.get("measured")


def _judge(measured: float, group: Group, at: int, flop: Term, moved: Term, step: float) -> tuple[str, list[Term], bool]:
    """What a measured step says: the model's FLOPs against the peak, and the estimate's bytes against the bandwidth."""
    accelerator, tokens = group.cluster.accelerator, _at(group.plan.global_batch_size * group.plan.seq_len, at)
    per_token = _at(group.throughput["model_flop_per_second_per_gpu"].value, at) * _at(group.plan.gpus, at) * step / tokens
    peak = accelerator.peak[group.job.precision.peak]
    used = leaf("measured MFU", run.mfu, "1", model_flop=per_token * tokens, seconds=measured, gpus=_at(group.plan.gpus, at), peak=peak)
    causal = float(used.value) * _at(group.throughput["mfu_causal"].value, at) / _at(group.throughput["mfu"].value, at)
    bytes_share = float(moved.value) / measured / accelerator.hbm_bandwidth.value
    terms = [used]
    told = f"measured step {units.show(measured, 's', 4)}, {measured / step:.3g} times the estimate: MFU {float(used.value):.1%}"
    share = float(flop.value) / measured / peak.value  # with what the plan recomputes, on the slowest stage
    if max(causal, share) > 1.0:
        return (
            f"{told}: impossible, {max(causal, share):.0%} of the peak by the operations this plan must do; wrong is the rate, the number "
            "of accelerators, the model or the precision",
            terms,
            False,
        )
    return f"{told}, HBM at {bytes_share:.0%} of its roof by the estimate's bytes", terms, True


def _batches(found: Estimate, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Micro-batch sizes side by side: what grows with them and what does not."""
    for name in ("measured", "samples_per_second", "baseline"):
        if name in values:
            raise QuestionError(f"--{name.replace('_', '-')} is of one step: give --micro-batch-size instead of --batch")
    rows = []
    for row, batch in enumerate(values["batch"]):
        group, at = found.place_of(row)
        capacity = group.cluster.accelerator.memory_capacity.value
        mine = items(group.step.tree, at)
        rows.append(
            {
                "batch": batch,
                "memory": float(found.device_bytes[row]),
                "memory_share": float(found.device_bytes[row]) / capacity,
                "allocated": float(found.allocated_bytes[row]),
                "fits": bool(found.fits[row]),
                "intensity": float(kernels.intensity(sum(i.flop for i in mine), sum(i.moved for i in mine))),
                "step": float(found.step_seconds[row]),
                "tokens_per_second": float(found.tokens_per_second[row]),
                "mfu": float(found.mfu[row]),
                **{name: _at(group.shares[name], at) for name in BOUNDS},
            }
        )
    best = max((row for row in rows if row["fits"]), key=lambda row: row["tokens_per_second"], default=None)
    headline = (
        ["none of these batches fits"]
        if best is None
        else [f"fastest that fits: {best['batch']:.0f} at {best['tokens_per_second']:,.0f} tokens/s"]
    )
    terms: list[Term] = []
    if len(rows) > 1:
        low, high = min(rows, key=lambda r: r["batch"]), max(rows, key=lambda r: r["batch"])
        each = leaf(
            "memory of a sequence", _slope, "B", low=low["allocated"], high=high["allocated"], sequences=high["batch"] - low["batch"]
        )
        once = low["allocated"] - low["batch"] * float(each.value)
        whole = leaf("memory", activations.batch_memory, "B", batch=high["batch"], per_sequence=each.value, fixed=once)
        headline.append(
            f"a sequence more keeps {_show(each)}; {units.show(once, 'B', 4)} do not grow with the batch: "
            "weights, gradients and states are held once"
        )
        terms = [each, whole]
    group, _ = found.place_of(0)
    notes = list(group.assumptions)
    assume(notes, "plan", f"that of micro-batch {max(values['batch']):.0f} for all", "chosen")
    title = f"{group.job.model.name} on {group.cluster.accelerator.name}: micro-batch sizes"
    return Answer(
        title,
        headline,
        [Table("batches", "By micro-batch size", BATCHES, rows)],
        terms,
        {},
        notes,
        group.warnings,
        best is not None,
        folders,
    )


def _slope(low: Any, high: Any, sequences: Any) -> Any:
    """Memory from one batch to another: ``(high - low) / sequences``."""
    return (high - low) / sequences


def _show(term: Term) -> str:
    return units.show(float(term.value), term.unit, 4)
