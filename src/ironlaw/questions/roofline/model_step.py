"""Every operator of a model's training step, from the tree of its estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.catalog.records import Accelerator
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.errors import QuestionError
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.answer.estimate import answer as estimate_of
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer.passes import PASSES
from ironlaw.estimate.step.step import MICRO_BATCHES
from ironlaw.estimate.what_if.measured_run import MeasuredRun, measured_run
from ironlaw.law import activations, kernels
from ironlaw.question.assumptions import assume
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.roofline import roofs
from ironlaw.questions.roofline.overlapped import COLUMNS as OVERLAPPED
from ironlaw.questions.roofline.overlapped import list_overlapped
from ironlaw.questions.roofline.plot import PlotPoint, plot_table
from ironlaw.questions.roofline.roofs import show
from ironlaw.questions.throughput import describe_measured, tabulate_suspects
from ironlaw.terms import BOUNDS, Term, leaf, scalar, total

OPERATORS = (
    Column("operator", "operator"), Column("where", "where"), Column("count", "count", "1"), Column("flop", "FLOPs", "FLOP"),
    Column("bytes", "HBM bytes", "B"), Column("wire_bytes", "wire bytes", "B"), Column("intensity", "FLOP/B", "1"),
    Column("time", "time", "s"), Column("share", "of step", "%"), Column("roof", "roof"), Column("link", "link"),
)  # fmt: skip
ROOFS = (
    Column("roof", "roof"), Column("time", "time", "s"), Column("share", "of step", "%"), Column("amount", "FLOPs or bytes"),
    Column("count", "operations", "1"),
)  # fmt: skip
BATCHES = (
    Column("batch", "micro-batch", "1"), Column("memory", "memory", "B"), Column("memory_share", "of capacity", "%"),
    Column("intensity", "FLOP/B", "1"), Column("step", "step", "s"), Column("tokens_per_second", "tokens/s", "1"),
    Column("mfu", "MFU", "%"), *(Column(name, name, "%") for name in ("compute", "hbm", "network", "dispatch")),
)  # fmt: skip
NOT_OF_ESTIMATE = ("optimizer", "batch", "measured", "samples_per_second", "tokens_per_second", "baseline", "tolerance", "plot")
DRAWN = 12  # operators of a drawing, the longest
PINNED = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "zero", "global_batch_size")


@dataclass(frozen=True)
class StepOperator:
    """All runs of an operator in a step, on the accelerator of the slowest stage."""

    operator: str
    where: str
    count: float
    flop: float
    moved: float  # through HBM [B]
    wire: float  # sent by an accelerator [B]
    time: float
    roof: str
    link: str = ""  # of a collective: scale-up, or nic where it leaves the domain
    peak: float = 0.0  # rate of its format [FLOP/s]; 0 where it has no FLOPs

    def plus(self, other: StepOperator) -> StepOperator:
        """Add the runs of another place in the step."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("count", "flop", "moved", "wire", "time")}
        return replace(self, **sums)

    def row(self, step: float) -> dict[str, Any]:
        """The operator's row of the table; its share is of a step of ``step`` seconds."""
        return {
            "operator": self.operator,
            "where": self.where,
            "count": self.count,
            "flop": self.flop or None,
            "bytes": self.moved or None,
            "wire_bytes": self.wire or None,
            "intensity": float(kernels.intensity(self.flop, self.moved)) if self.flop else None,
            "time": self.time,
            "share": self.time / step,
            "roof": self.roof,
            "link": self.link or None,
        }


def answer(_question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The operators of a step; a comparison of micro-batch sizes where several are given."""
    need(values, "on", "gpus")
    if "batch" in values and values.get("plot"):
        raise QuestionError("--plot draws the operators of one step: give --micro-batch-size instead of --batch")
    asked = {name: value for name, value in values.items() if name not in NOT_OF_ESTIMATE}
    if "optimizer" in values:
        if len(values["optimizer"]) > 1:
            raise QuestionError("with MODEL, --optimizer takes a name without a number: MODEL sets the parameters")
        asked["optimizer"] = values["optimizer"][0]
    if "batch" in values:
        asked = _pin_plan(asked, values["batch"], folders)
    estimates = estimate_of(asked, folders)
    group, at = estimates.place_of(0)
    if not bool(np.all(estimates.legal)):
        broken = [name for name, column in group.rules.items() if name != "fits" and not np.all(column)]
        rule = f"the rule {', '.join(broken)}" if broken else "a rule: the micro-batch must divide the batch"
        raise QuestionError(f"this plan breaks {rule} (ironlaw estimate says why)")
    return _compare_batches(estimates, values, folders) if "batch" in values else _list_step(group, at, values, folders)


def _pin_plan(asked: dict[str, Any], batches: tuple[float, ...], folders: tuple[str, ...]) -> dict[str, Any]:
    """The question with all batches under the plan of the largest, so that only the batch differs."""
    group, at = estimate_of({**asked, "micro_batch_size": max(batches)}, folders).place_of(0)
    plan = {name: scalar(getattr(group.plan, name), at) for name in PINNED}
    options = {"sp": scalar(group.plan.sp, at) > 0, "recompute": group.recompute[at], "framework": group.job.framework.name}
    return {**plan, **options, **asked, "micro_batch_size": list(batches)}


def list_operators(tree: Term, at: int = 0, nic: float = math.inf) -> list[StepOperator]:
    """The leaves of a step's tree, longest first; their times add up to the step. ``nic`` is the rate of a NIC [B/s]."""
    merged: dict[tuple[str, str, str, str], StepOperator] = {}
    for node, times, where in _walk_leaves(tree, at, 1.0, ()):
        time = scalar(node.value, at) * times
        if not time:
            continue
        runs = times * scalar(node.times, at)
        given = {name: scalar(value, at) for name, value in node.inputs.items()}
        operator = StepOperator(
            node.name, where, runs, given.get("flop", 0.0) * runs, given.get("traffic", 0.0) * runs,
            group_links.bytes_sent(given) * runs, time, _roof(node, at), _find_link(given, nic), given.get("peak", 0.0),
        )  # fmt: skip
        key = (operator.operator, operator.where, operator.roof, operator.link)
        merged[key] = merged[key].plus(operator) if key in merged else operator
    return sorted(merged.values(), key=lambda operator: -operator.time)


def _find_link(given: dict[str, float], nic: float) -> str:
    """The link of a collective or message, by its ranks outside the domain or by its rate."""
    if "size" not in given:
        return ""
    leaves_domain = given["outer_ranks"] > 1.0 if "outer_ranks" in given else given.get("bandwidth", 0.0) <= nic
    return "nic" if leaves_domain else "scale-up"


def _walk_leaves(node: Term, at: int, times: float, path: tuple[Term, ...]) -> Iterator[tuple[Term, float, str]]:
    """Every leaf, how often it runs, and where in the step."""
    if not node.parts:
        yield node, times, _find_place(path)
        return
    for part in node.parts:
        yield from _walk_leaves(part, at, times * scalar(node.times, at), (*path, part))


def _find_place(path: tuple[Term, ...]) -> str:
    """Where in a step a leaf is: its pass in a layer, or its section."""
    above = [node for node in path[:-1] if node.key != MICRO_BATCHES]
    return next((node.name for node in above if node.key in PASSES), above[0].name if above else "step")


def _roof(node: Term, at: int) -> str:
    return node.bound if isinstance(node.bound, str) else BOUNDS[int(scalar(node.bound, at))] if node.bound is not None else "-"


def _list_step(group: Group, at: int, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The operators of one step with its roofs, and the judgement of a measured step."""
    tree = group.step.tree
    operators = list_operators(tree, at, group_links.nic_rate(group.cluster).value)
    overlapped = list_overlapped(group, at)
    step = scalar(tree, at)
    accelerator, job = group.cluster.accelerator, group.job
    flop = _sum_operators("FLOP of a step", "FLOP", operators, "flop")
    moved = _sum_operators("HBM bytes of a step", "B", operators, "moved")
    wire = _sum_operators("wire bytes of a step", "B", operators, "wire")
    intensity = leaf("intensity", kernels.intensity, "FLOP/B", flop=flop.value, traffic=moved.value)
    peak = accelerator.peak[job.precision.peak]
    ridge = leaf("ridge point", kernels.ridge_point, "FLOP/B", peak=peak, bandwidth=accelerator.hbm_bandwidth)
    links = {name: sum(operator.wire for operator in operators if operator.link == name) for name in ("scale-up", "nic")}
    sent = sum(operator.count for operator in operators if operator.wire)
    overlapped_bytes = sum(row["wire_bytes"] or 0.0 for row in overlapped)
    over = " and ".join(f"{units.show(size, 'B', 4)} over {name}" for name, size in links.items() if size) or "nothing over wires"
    headline = [
        Sentence(
            f"step {units.show(step, 's', 4)} on each accelerator of the slowest stage: {show(flop)}, {show(moved)} through HBM, "
            f"{show(intensity)} (ridge {show(ridge)})",
            "step",
            {
                "seconds": step,
                "flop": scalar(flop),
                "bytes": scalar(moved),
                "intensity": scalar(intensity),
                "ridge": scalar(ridge),
                "peak": peak.value,
            },
        ),
        f"{over} in {sent:,.0f} collectives and hand-overs without overlap; "
        + (f"{units.show(overlapped_bytes, 'B', 4)} in collectives that can overlap" if overlapped_bytes else "no collective can overlap"),
    ]
    terms = [leaf("step", _as_estimated, "s", seconds=step), flop, moved, wire, intensity, ridge]
    warnings, feasible, found = list(group.warnings), True, None
    if not scalar(group.memory.fits, at):
        warnings.append(caution("does-not-fit-on", accelerator=accelerator.name))
    sequences = scalar(group.plan.global_batch_size, at)
    measured = roofs.measured_step(values, sequences, sequences * scalar(group.plan.seq_len, at))
    if measured is not None:
        run = measured_run(group, at, step=measured)
        feasible = run.of_peak <= 1.0
        headline += _compare_measured(run, moved, group)
        terms += run.utilisation.values()
        found = run.data()
        warnings += [] if feasible else [caution("above-peak")]
    lines, passes = roofs.compare_with_baseline(values)
    headline, feasible = [*headline, *lines], feasible and passes
    rows = [operator.row(step) for operator in operators]
    tables = [
        *([tabulate_suspects(found["suspects"])] if found and found["suspects"] and feasible else []),
        Table("roofs", "Time by roof", ROOFS, _roof_rows(operators, step, scalar(wire))),
        Table("hidden", "Collectives that overlap computation", OVERLAPPED, overlapped),
        Table("operators", "Operators of a step, longest first", filled_columns(OPERATORS, rows), rows),
    ]
    if values.get("plot"):
        tables.append(_draw_step(operators, accelerator, step))
    return Answer(
        title=f"{job.model.name} on {scalar(group.plan.gpus, at):.0f} {accelerator.name}: the roofs of a step",
        headline=headline,
        tables=tables,
        terms=terms,
        values={"collectives": sent, "wire_bytes": links, "hidden_wire_bytes": overlapped_bytes, "measured": found},
        assumptions=group.assumptions,
        warnings=warnings,
        feasible=feasible,
        folders=folders,
    )


def _draw_step(operators: Sequence[StepOperator], accelerator: Accelerator, step: float) -> Table:
    """The longest operators that have FLOPs at the rates of the estimate, each under the roof of its own format."""
    formats = {rate.value: name for name, rate in accelerator.peak.items()}  # of equal rates the last name, bf16 after fp16
    with_flop = [operator for operator in operators if operator.flop and operator.moved and operator.peak]
    points = [
        PlotPoint(
            f"{operator.operator}, {operator.where} ({operator.time / step:.1%})", operator.flop / operator.moved,
            operator.flop / operator.time, formats.get(operator.peak, "fp32"),
        )
        for operator in with_flop[:DRAWN]
    ]  # fmt: skip
    drawn = sum(operator.time for operator in with_flop[:DRAWN]) / step
    peaks = {point.roof: accelerator.peak[point.roof].value for point in points}
    title = f"Roofline of the {len(points)} longest operators with FLOPs, {drawn:.0%} of the step, at the estimate's rates"
    return plot_table(peaks, accelerator.hbm_bandwidth.value, points, title)


def _roof_rows(operators: Sequence[StepOperator], step: float, wire: float) -> list[dict[str, Any]]:
    """A row for each roof: its time, and the FLOPs or bytes that take it."""
    rows = []
    for roof in BOUNDS:
        bound = [operator for operator in operators if operator.roof == roof]
        time = sum(operator.time for operator in bound)
        if not time:
            continue
        amounts = {
            "compute": (sum(operator.flop for operator in bound), "FLOP"),
            "hbm": (sum(operator.moved for operator in bound), "B"),
            "network": (wire, "B"),
        }
        amount, unit = amounts.get(roof, (0.0, ""))
        rows.append({
            "roof": roof, "time": time, "share": time / step, "amount": units.show(amount, unit, 4) if amount else "-",
            "count": sum(operator.count for operator in bound),
        })  # fmt: skip
    return rows


def _sum_operators(name: str, unit: str, operators: Sequence[StepOperator], field: str) -> Term:
    parts = [Term(f"{o.operator}, {o.where}", getattr(o, field), unit) for o in operators if getattr(o, field)]
    return total(name, parts, unit=unit)


def _as_estimated(seconds: Any) -> Any:
    """The step of the estimate (``ironlaw estimate --explain`` has its tree): ``seconds``."""
    return seconds


def _compare_measured(run: MeasuredRun, moved: Term, group: Group) -> list[str]:
    """Sentences on a measured step or throughput against the estimate, and the share of the HBM roof that it reaches."""
    sentences = describe_measured(run)
    if run.of_peak > 1.0:
        return sentences
    share = scalar(moved) / run.step / group.cluster.accelerator.hbm_bandwidth.value
    return [*sentences, f"{run.step / run.predicted:.3g} times the estimate; HBM at {share:.0%} of its roof by the estimate's bytes"]


def _compare_batches(estimates: Estimate, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Micro-batch sizes side by side, under one plan."""
    for name in ("measured", "samples_per_second", "tokens_per_second", "baseline"):
        if name in values:
            raise QuestionError(f"--{name.replace('_', '-')} is the time of one step: give --micro-batch-size instead of --batch")
    rows = [_batch_row(estimates, row, batch) for row, batch in enumerate(values["batch"])]
    best = max((row for row in rows if row["fits"]), key=lambda row: row["tokens_per_second"], default=None)
    headline = ["none of these batches fits"]
    if best is not None:
        headline = [f"fastest that fits: {best['batch']:.0f} at {best['tokens_per_second']:,.0f} tokens/s"]
    terms: list[Term] = []
    if len(rows) > 1:
        low, high = min(rows, key=lambda r: r["batch"]), max(rows, key=lambda r: r["batch"])
        slope = leaf(
            "memory of a sequence", _memory_per_sequence, "B", low=low["allocated"], high=high["allocated"],
            sequences=high["batch"] - low["batch"],
        )  # fmt: skip
        fixed = low["allocated"] - low["batch"] * scalar(slope)
        whole = leaf("memory", activations.batch_memory, "B", batch=high["batch"], per_sequence=slope.value, fixed=fixed)
        headline.append(
            f"each further sequence takes {show(slope)}; {units.show(fixed, 'B', 4)} do not grow: weights, gradients and states"
        )
        terms = [slope, whole]
    group, _ = estimates.place_of(0)
    notes = list(group.assumptions)
    assume(notes, "plan", f"that of micro-batch {max(values['batch']):.0f} for all", "chosen")
    title = f"{group.job.model.name} on {group.cluster.accelerator.name}: micro-batch sizes"
    tables = [Table("batches", "By micro-batch size", BATCHES, rows)]
    return Answer(title, headline, tables, terms, {}, notes, group.warnings, best is not None, folders)


def _batch_row(estimates: Estimate, row: int, batch: float) -> dict[str, Any]:
    """A row for one micro-batch size: memory, step time, MFU, and the share of each roof."""
    group, at = estimates.place_of(row)
    operators = list_operators(group.step.tree, at)
    memory = float(estimates.device_bytes[row])
    return {
        "batch": batch,
        "memory": memory,
        "memory_share": memory / group.cluster.accelerator.memory_capacity.value,
        "allocated": float(estimates.allocated_bytes[row]),
        "fits": bool(estimates.fits[row]),
        "intensity": float(kernels.intensity(sum(o.flop for o in operators), sum(o.moved for o in operators))),
        "step": float(estimates.step_seconds[row]),
        "tokens_per_second": float(estimates.tokens_per_second[row]),
        "mfu": float(estimates.mfu[row]),
        **{name: scalar(group.shares[name], at) for name in BOUNDS},
    }


def _memory_per_sequence(low: Any, high: Any, sequences: Any) -> Any:
    """Bytes per further sequence, from two batch sizes: ``(high - low) / sequences``."""
    return (high - low) / sequences
