"""Answer ``ironlaw goodput``: failures by size and component, and the time checkpoints, restarts and repeated work take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.cautions.record import Caution, Sentence, without
from ironlaw.cautions.table import caution
from ironlaw.cluster import Cluster
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.bind.failures import FAILURE_OPTIONS, bind_failures
from ironlaw.estimate.step.failures import Failures, Saved, failures_of
from ironlaw.law import goodput as law
from ironlaw.law import overlap
from ironlaw.question.asked import asked_of
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.defaults import MANY_ACCELERATORS
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.asked_run import estimate_plan
from ironlaw.questions.goodput.published import CHECKS, check_published, time_per_failure
from ironlaw.terms import Term, leaf, plain, scalar

SIZES = (
    Column("gpus", "GPUs", "1"), Column("mttf", "failure every", "s"), Column("failures", "failures", "1"),
    Column("useful", "useful time", "s"), Column("seconds", "with failures", "s"), Column("goodput", "goodput", "%"),
    Column("checkpoints", "checkpoints", "%"), Column("restarts", "restarts", "%"), Column("again", "repeated work", "%"),
    Column("stragglers", "stragglers", "%"),
)  # fmt: skip
SPARES = Column("spares", "spare nodes", "1")
CHECKPOINTS = (
    Column("gpus", "GPUs", "1"), Column("checkpoint_time", "write", "s"), Column("young", "Young", "s"), Column("daly", "Daly", "s"),
    Column("interval", "used", "s"),
)  # fmt: skip
COMPONENTS = (
    Column("component", "component"), Column("seen", "Llama 3", "1"), Column("share", "share", "%"),
    Column("gpu_hours", "GPU-hours per failure", "1"), Column("expected", "expected here", "1"),
)  # fmt: skip
SITES = (
    Column("site", "site"), Column("gpu_hours", "GPU-hours per failure", "1"), Column("mttf", "failure every", "s"),
    Column("goodput", "goodput", "%"),
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Size:
    """The run on one count of accelerators."""

    gpus: float
    useful: float  # time without failures [s]
    failures: Failures
    stragglers: float  # share of a step; ``useful`` includes it
    fits: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """The run at every size, smallest first."""

    cluster: Cluster
    sizes: list[Size]
    assumptions: Assumptions
    warnings: list[Caution]


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about failures; QuestionError where its options contradict each other."""
    run = _bind_run(values, folders)
    largest = run.sizes[-1]
    spares = _count_spares(values, run)
    rows = [_size_row(size) for size in run.sizes]
    lines = [_size_sentence(size) for size in run.sizes]
    if spares:
        rows = [{**row, "spares": scalar(term)} for row, term in zip(rows, spares, strict=True)]
        words = f"{rows[-1]['spares']:,.0f} spare nodes are enough for {largest.gpus:,.0f} accelerators,"
        told = {"spares": rows[-1]["spares"], "gpus": largest.gpus, "one_in": values.get("shortage_odds", 100.0)}
        lines.append(Sentence(f"{words} except one time in {told['one_in']:g}", "spares", told))
    tables = [
        Table("sizes", "The run by size (useful time includes stragglers)", (*SIZES, SPARES) if spares else SIZES, rows),
        Table("checkpoints", "Checkpoint interval that loses least time", CHECKPOINTS, [_checkpoint_row(size) for size in run.sizes]),
        Table("components", "Failures by component, as in Llama 3's 54 days", COMPONENTS, _component_rows(largest, folders)),
        Table("sites", f"With the failure rates of other sites, on {largest.gpus:,.0f} accelerators", SITES, _site_rows(largest, folders)),
        Table("checks", "These laws with default inputs, against published runs", CHECKS, check_published(run.cluster, folders)),
    ]
    fits = any(size.fits for size in run.sizes)
    if not fits:
        lines.insert(
            0, Sentence("no: the plan does not fit in memory at any of these sizes; if it did, the run would take:", "does-not-fit")
        )
    finishes = any(not math.isnan(scalar(size.failures.goodput)) for size in run.sizes)
    if not finishes:
        lines.insert(
            0, Sentence("no: at each of these sizes the run fails sooner than it restarts and writes a checkpoint", "never-finishes")
        )
    return Answer(
        title=f"Failures of a run on {', '.join(f'{size.gpus:,.0f}' for size in run.sizes)} {run.cluster.accelerator.title}",
        headline=lines,
        tables=tables,
        terms=[*largest.failures.trees(), *(term for size in run.sizes[:-1] for term in _terms_with_size(size)), *spares],
        assumptions=run.assumptions,
        warnings=[*run.warnings, *_list_warnings(values, largest)],
        feasible=fits and finishes,
        folders=folders,
    )


def _list_warnings(values: Mapping[str, Any], largest: Size) -> list[Caution]:
    """Warnings on the failure rate of large jobs, and on what is not validated."""
    warnings = []
    if "mttf" not in values and largest.gpus >= MANY_ACCELERATORS:
        warnings.append(caution("single-machine-failures"))
    warnings.append(caution("goodput-not-validated"))
    return warnings


def _bind_run(values: dict[str, Any], folders: tuple[str, ...]) -> Run:
    """The run at every size: estimated, or of the same useful time at each."""
    return _estimate_run(values, folders) if "model" in values else _run_of_given_time(values, folders)


def _estimate_run(values: dict[str, Any], folders: tuple[str, ...]) -> Run:
    """The run at every size, from an estimate of each."""
    sizes, assumptions, warnings = [], [], []
    for gpus in values["gpus"]:
        group = estimate_plan({**values, "gpus": gpus}, folders)
        assert group.run is not None
        tree = group.step.tree
        stragglers = scalar(tree["stragglers"].value) / scalar(tree)
        fits = bool(group.memory.fits[0])
        sizes.append(Size(gpus, scalar(group.run.failures.seconds.inputs["seconds"]), group.run.failures, stragglers, fits))
        if not fits:
            warnings.append(caution("does-not-fit-at", gpus=gpus))
    assumptions += group.assumptions
    warnings += without(group.warnings, "independent-failures")
    return Run(group.cluster, sizes, assumptions, warnings)


def _run_of_given_time(values: dict[str, Any], folders: tuple[str, ...]) -> Run:
    """The run at every size with the useful time of --work."""
    assumptions: Assumptions = []
    cluster = cluster_of(values, folders, assumptions)
    sizes: list[Size] = []
    rates = bind_failures(asked_of(values, FAILURE_OPTIONS), cluster, assumptions)
    for gpus in values["gpus"]:
        failures = failures_of(rates, gpus, values["work"], 1.0, Saved(values["parameters"]))
        domains = max(gpus / cluster.node.scale_up_size.value, 1.0)
        late = scalar(overlap.scale_loss(1.0, domains, cluster.systems.scale_loss.value))
        sizes.append(Size(gpus, values["work"], failures, late / (1.0 + late)))
    return Run(cluster, sizes, assumptions, [])


def _size_sentence(size: Size) -> Sentence:
    """Failures, goodput and time of the run at one size."""
    failures = size.failures
    goodput, every = scalar(failures.goodput), units.show(scalar(failures.mttf), "s")
    if math.isnan(goodput):
        return Sentence(f"{size.gpus:,.0f}: a failure every {every}: the run never finishes", "size-never-finishes", {"gpus": size.gpus})
    words = (
        f"{size.gpus:,.0f}: a failure every {every} ({scalar(failures.count):,.0f} in the run), goodput {goodput:.1%},"
        f" {units.show(size.useful, 's')} of useful time take {units.show(scalar(failures.seconds), 's')}"
    )
    told = {"gpus": size.gpus, "mttf": scalar(failures.mttf), "failures": scalar(failures.count), "goodput": goodput}
    return Sentence(words, "size", {**told, "useful_seconds": size.useful, "seconds": scalar(failures.seconds)})


def _terms_with_size(size: Size) -> list[Term]:
    """The terms of a smaller size, with the size in their names."""
    return [Term(f"{term.name} of {size.gpus:,.0f}", term.value, term.unit, term.law, term.inputs) for term in size.failures.trees()]


def _size_row(size: Size) -> dict[str, Any]:
    """Shares of the run's time; what is neither useful, checkpoint nor restart is repeated work."""
    failures = size.failures
    wall, restart = scalar(failures.seconds), plain(failures.seconds.inputs["restart_time"])
    checkpoints = size.useful / scalar(failures.interval) * scalar(failures.checkpoint_time) / wall
    restarts = math.nan if math.isnan(wall) else float(law.restart_share(restart, scalar(failures.mttf)))
    return {
        "gpus": size.gpus, "mttf": scalar(failures.mttf), "failures": scalar(failures.count), "useful": size.useful, "seconds": wall,
        "goodput": scalar(failures.goodput), "checkpoints": checkpoints, "restarts": restarts,
        "again": 1.0 - scalar(failures.goodput) - checkpoints - restarts, "stragglers": size.stragglers,
    }  # fmt: skip


def _checkpoint_row(size: Size) -> dict[str, Any]:
    """The time of a checkpoint, and the intervals between two by each law."""
    written, mttf = scalar(size.failures.checkpoint_time), scalar(size.failures.mttf)
    return {
        "gpus": size.gpus, "checkpoint_time": written, "young": float(law.checkpoint_interval_young(written, mttf)),
        "daly": float(law.checkpoint_interval_daly(written, mttf)), "interval": scalar(size.failures.interval),
    }  # fmt: skip


def _count_spares(values: dict[str, Any], run: Run) -> list[Term]:
    """Spare nodes at every size; none where no repair time is given."""
    if "repair_time" not in values:
        return []
    if "shortage_odds" not in values:
        assume(run.assumptions, "shortage_odds", "100", "default")
    mttf = run.sizes[-1].failures.mttf.inputs["mttf_per_accelerator"]
    return [
        leaf(
            f"spares of {size.gpus:,.0f}", law.spares, "1", gpus=size.gpus, mttf_per_accelerator=mttf,
            repair_time=values["repair_time"], one_in=values.get("shortage_odds", 100.0),
        )
        for size in run.sizes
    ]  # fmt: skip


def _component_rows(size: Size, folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Llama 3's failures by component, and how many this run expects at the same shares."""
    log = load.record("failures", "llama-3-405b", folders)
    assert log.failures is not None
    assert log.time is not None
    seen = {name: item.value for name, item in log.causes.items()}
    seen["all others"] = log.failures.value - sum(seen.values())
    rows = []
    for name, count in seen.items():
        share = count / log.failures.value
        rows.append({
            "component": name, "seen": count, "share": share, "gpu_hours": log.gpus.value * log.time.value / count / 3600.0,
            "expected": scalar(size.failures.count) * share,
        })  # fmt: skip
    return rows


def _site_rows(size: Size, folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """The same run at the failure rate of every site that published a count."""
    restart = plain(size.failures.seconds.inputs["restart_time"])
    written = scalar(size.failures.checkpoint_time)
    rows = []
    for name in load.names("failures", folders):
        log = load.record("failures", name, folders)
        rate = time_per_failure(log)
        if rate is None:
            continue
        mttf = float(law.cluster_mttf(rate, size.gpus))
        every = min(float(law.checkpoint_interval_daly(written, mttf)), size.useful)
        wall = law.time_with_failures(size.useful, every, written, restart, mttf)
        rows.append({"site": log.title, "gpu_hours": rate / 3600.0, "mttf": mttf, "goodput": float(law.goodput(size.useful, wall))})
    return rows
