"""How often a run fails at several sizes, by which components, and what checkpoints and restarts leave of its time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, at_least_one, duration, tokens, whole
from ironlaw.questions.answer import Answer, Column, Table, need, read
from ironlaw.questions.asked_run import estimated, one, without_effect

if TYPE_CHECKING:
    from ironlaw.cluster import Cluster
    from ironlaw.estimate.bind.records import Assumptions
    from ironlaw.estimate.failures import Failures
    from ironlaw.terms import Term

MOST_SIZES = 50


def sizes(value: Any, flag: str) -> tuple[float, ...]:
    """A comma list of counts, each once, in order."""
    items = value if isinstance(value, (list, tuple)) else str(value).split(",") if isinstance(value, str) else [value]
    found = tuple(sorted({whole(item, flag) for item in items}))
    if not 0 < len(found) <= MOST_SIZES:
        raise ValueRangeError(f"{flag} lists {len(found)} sizes, must be from 1 to {MOST_SIZES}")
    return found


OPTIONS: dict[str, Option] = {
    **ESTIMATE,
    "gpus": Option(sizes, "accelerators in all: one count, or a comma list such as 1024,4096,16384", "LIST"),
    "tokens": replace(ESTIMATE["tokens"], help="tokens of the whole run, such as 15T"),
    "parameters": Option(tokens, "parameters a checkpoint holds, with --work instead of MODEL, such as 405B", "N"),
    "work": Option(duration, "time of the run without failures, at every size, instead of MODEL and --tokens, such as 54days", "TIME"),
    "repair_time": Option(duration, "time a machine is away after a failure: asks for spares", "TIME"),
    "one_in": Option(at_least_one, "one time in how many a spare may be lacking (default 100)", "N"),
}
RUN = (
    Column("gpus", "GPUs", "1"),
    Column("mttf", "failure every", "s"),
    Column("failures", "failures", "1"),
    Column("useful", "work", "s"),
    Column("seconds", "with failures", "s"),
    Column("goodput", "goodput", "%"),
    Column("checkpoints", "lost writing", "%"),
    Column("restarts", "restarting", "%"),
    Column("again", "doing again", "%"),
    Column("stragglers", "stragglers", "%"),
)
CHECKPOINTS = (
    Column("gpus", "GPUs", "1"),
    Column("checkpoint_time", "write", "s"),
    Column("young", "Young", "s"),
    Column("daly", "Daly", "s"),
    Column("interval", "used", "s"),
)
CAUSES = (
    Column("component", "component"),
    Column("seen", "seen", "1"),
    Column("share", "share", "%"),
    Column("gpu_hours", "GPU-hours for each", "1"),
    Column("expected", "expected here", "1"),
)
SITES = (
    Column("site", "where"),
    Column("gpu_hours", "GPU-hours for each failure", "1"),
    Column("mttf", "failure every", "s"),
    Column("goodput", "goodput", "%"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Size:
    """The run on one count of accelerators."""

    gpus: float
    useful: float
    failures: Failures
    stragglers: float  # share of a step; it is in ``useful`` already
    fits: bool = True


def goodput(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What failures make of a run: ``goodput("llama-3.1-405b", on="h100-sxm", gpus=[4096, 16384], tokens="15.6T", tp=8, pp=16)``."""
    from ironlaw.catalog import load

    return ask({"model": model, "on": on, **options}, load.given_folders(catalog))


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The Answer of a question about failures; QuestionError where it contradicts itself."""
    from ironlaw.question.defaults import MANY_ACCELERATORS
    from ironlaw.questions.goodput.published import CHECKS, checks

    values = read(options, OPTIONS, "goodput")
    need(values, "on", "gpus")
    notes: Assumptions = []
    warnings: list[str] = []
    cluster, runs = _runs(values, folders, notes, warnings)
    largest = runs[-1]
    lines = [_sentence(size) for size in runs]
    terms = [*largest.failures.trees(), *(term for size in runs[:-1] for term in _named(size))]
    mttf = largest.failures.mttf.inputs["mttf_per_accelerator"]
    rows = [_row(size) for size in runs]
    columns: tuple[Column, ...] = RUN
    if "repair_time" in values:
        columns = (*RUN, Column("spares", "spares", "1"))
        terms += _spares(values, runs, rows, mttf, notes)
        lines.append(
            f"{rows[-1]['spares']:,.0f} spare nodes suffice for {largest.gpus:,.0f} but one time in {values.get('one_in', 100.0):g}"
        )
    elif "one_in" in values:
        raise QuestionError("--one-in has no effect without --repair-time: give both")
    if "mttf" not in values and largest.gpus >= MANY_ACCELERATORS:
        warnings.append(
            "the rate of single machines is optimistic for large jobs: on Meta's RSC 1,024 GPUs ran 7.9 h between failures where"
            " independent nodes say 28.8 h; give --mttf measured in jobs of this size"
        )
    warnings.append("goodput is not validated: no published run gives its rate, restart time, interval and goodput together")
    tables = [
        Table("sizes", "The run by size; stragglers are in the work already, as a share of each step", columns, rows),
        Table("checkpoints", "Work between checkpoints that loses least", CHECKPOINTS, [_checkpoint(size) for size in runs]),
        Table("components", "Failures by component, as in Llama 3's 54 days", CAUSES, list(_causes(largest, folders))),
        Table(
            "sites",
            f"At {largest.gpus:,.0f} accelerators with the rates of others",
            SITES,
            list(_sites(largest, folders)),
        ),
        Table("checks", "What is checked of these laws, with defaults, and what is not", CHECKS, checks(cluster, folders)),
    ]
    title = f"Failures of a run on {', '.join(f'{s.gpus:,.0f}' for s in runs)} {cluster.accelerator.title}"
    fits = any(size.fits for size in runs)
    if not fits:
        lines.insert(0, "no: the plan does not fit in memory at any of these sizes; what its run would be:")
    ends = any(not math.isnan(one(size.failures.goodput.value)) for size in runs)
    if not ends:
        lines.insert(0, "no: it fails faster than it restarts and saves, at any of these sizes")
    return Answer(title, lines, tables, terms, {}, notes, warnings, fits and ends, folders)


def _runs(values: dict[str, Any], folders: tuple[str, ...], notes: Assumptions, warnings: list[str]) -> tuple[Cluster, list[Size]]:
    """The run at every size: estimated, or the same work at each."""
    given = [name for name in ("work", "parameters") if name in values]
    if "model" in values and given:
        raise QuestionError(f"give MODEL (the work is estimated) or --work with --parameters, not both: --{given[0]} is given too")
    if "model" in values:
        need(values, "tokens")
        return _estimated(values, folders, notes, warnings)
    if len(given) < 2:
        raise QuestionError("the question lacks a run: give MODEL with --tokens, or --work with --parameters")
    return _same_work(values, folders, notes)


def _estimated(values: dict[str, Any], folders: tuple[str, ...], notes: Assumptions, warnings: list[str]) -> tuple[Cluster, list[Size]]:
    runs: list[Size] = []
    for gpus in values["gpus"]:
        group = estimated({**values, "gpus": gpus}, folders)
        assert group.run is not None
        tree = group.step.tree
        late = one(tree["stragglers and jitter"].value) / one(tree.value)
        runs.append(Size(gpus, one(group.run.failures.seconds.inputs["seconds"]), group.run.failures, late, bool(group.memory.fits[0])))
        if not runs[-1].fits:
            warnings.append(f"on {gpus:,.0f} accelerators the plan does not fit in memory: see ironlaw estimate")
    notes += group.assumptions
    warnings += [text for text in group.warnings if not text.startswith("failures are counted")]
    return group.cluster, runs


def _same_work(values: dict[str, Any], folders: tuple[str, ...], notes: Assumptions) -> tuple[Cluster, list[Size]]:
    from ironlaw.estimate.bind.records import bind_cluster, bind_precision
    from ironlaw.estimate.failures import failures_of
    from ironlaw.law import overlap

    if "checkpoint_every" in values:
        raise QuestionError("--checkpoint-every counts steps, and --work has none: give MODEL with --tokens")
    without_effect(values, ("on", "gpus", "node", "fabric", "scale_up_size", "mttf", "restart_time", "checkpoint_bandwidth"), "--work")
    cluster = bind_cluster({"precision": bind_precision(values["on"], folders), **values}, folders, notes)
    runs: list[Size] = []
    for gpus in values["gpus"]:
        found = failures_of(values, cluster, gpus, values["work"], 1.0, values["parameters"], [] if runs else notes)
        domains = max(gpus / cluster.node.scale_up_size.value, 1.0)
        late = one(overlap.scale_loss(1.0, domains, cluster.systems.scale_loss.value))
        runs.append(Size(gpus, values["work"], found, late / (1.0 + late)))
    return cluster, runs


def _sentence(size: Size) -> str:
    found = size.failures
    share, every = one(found.goodput.value), units.show(one(found.mttf.value), "s")
    if math.isnan(share):
        return f"{size.gpus:,.0f}: a failure every {every}: never finishes in any useful time"
    return (
        f"{size.gpus:,.0f}: a failure every {every} ({one(found.count.value):,.0f} in all), goodput {share:.1%},"
        f" {units.show(size.useful, 's')} of work take {units.show(one(found.seconds.value), 's')}"
    )


def _named(size: Size) -> Iterator[Term]:
    """The terms of a smaller size, by names of their own."""
    from ironlaw.terms import Term

    for term in size.failures.trees():
        yield Term(f"{term.name} of {size.gpus:,.0f}", term.value, term.unit, term.law, term.inputs)


def _row(size: Size) -> dict[str, Any]:
    """What the time of the run went into; what is neither work, checkpoint nor restart is work done again."""
    from ironlaw.law import goodput as law

    found = size.failures
    wall, restart = one(found.seconds.value), found.seconds.inputs["restart_time"]
    written = size.useful / one(found.interval.value) * one(found.checkpoint_time.value) / wall
    restarts = float(law.restart_share(getattr(restart, "value", restart), one(found.mttf.value)))
    restarts = math.nan if math.isnan(wall) else restarts
    return {
        "gpus": size.gpus, "mttf": one(found.mttf.value), "failures": one(found.count.value), "useful": size.useful, "seconds": wall,
        "goodput": one(found.goodput.value), "checkpoints": written, "restarts": restarts,
        "again": 1.0 - one(found.goodput.value) - written - restarts, "stragglers": size.stragglers,
    }  # fmt: skip


def _checkpoint(size: Size) -> dict[str, Any]:
    from ironlaw.law import goodput as law

    written, mttf = one(size.failures.checkpoint_time.value), one(size.failures.mttf.value)
    return {
        "gpus": size.gpus, "checkpoint_time": written, "young": float(law.checkpoint_interval_young(written, mttf)),
        "daly": float(law.checkpoint_interval_daly(written, mttf)), "interval": one(size.failures.interval.value),
    }  # fmt: skip


def _spares(values: dict[str, Any], runs: list[Size], rows: list[dict[str, Any]], mttf: Any, notes: Assumptions) -> list[Term]:
    """Spares of every size into its row; the terms."""
    from ironlaw.estimate.bind.records import assume
    from ironlaw.law import goodput as law
    from ironlaw.terms import leaf

    if "one_in" not in values:
        assume(notes, "one_in", "100", "default")
    made = []
    for size, row in zip(runs, rows, strict=True):
        term = leaf(
            f"spares of {size.gpus:,.0f}", law.spares, "1", gpus=size.gpus, mttf_per_accelerator=mttf,
            repair_time=values["repair_time"], one_in=values.get("one_in", 100.0),
        )  # fmt: skip
        row["spares"] = one(term.value)
        made.append(term)
    return made


def _causes(size: Size, folders: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Llama 3's components, and how many of each this run would see if its machines failed alike."""
    from ironlaw.catalog import load

    log = load.record("failures", "llama-3-405b", folders)
    assert log.failures is not None
    assert log.time is not None
    known = {name: item.value for name, item in log.causes.items()}
    known["all others"] = log.failures.value - sum(known.values())
    for name, seen in known.items():
        share = seen / log.failures.value
        yield {
            "component": name, "seen": seen, "share": share, "gpu_hours": log.gpus.value * log.time.value / seen / 3600.0,
            "expected": one(size.failures.count.value) * share,
        }  # fmt: skip


def _sites(size: Size, folders: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The same run at the rate of every site whose failures were counted."""
    from ironlaw.catalog import load
    from ironlaw.law import goodput as law
    from ironlaw.questions.goodput.published import rate_of

    for name in load.names("failures", folders):
        log = load.record("failures", name, folders)
        rate = rate_of(log)
        if rate is None:
            continue
        found, mttf = size.failures.seconds.inputs, float(law.cluster_mttf(rate, size.gpus))
        written = one(size.failures.checkpoint_time.value)
        every = min(float(law.checkpoint_interval_daly(written, mttf)), size.useful)
        wall = law.time_with_failures(size.useful, every, written, getattr(found["restart_time"], "value", found["restart_time"]), mttf)
        yield {"site": log.title, "gpu_hours": rate / 3600.0, "mttf": mttf, "goodput": float(law.goodput(size.useful, wall))}
