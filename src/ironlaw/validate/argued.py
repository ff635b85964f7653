"""Argue every published job whose best plan is predicted far faster than the published one, from measured runs alone.

A line says which change of the plan gains how much, whether pairs of measured plans tested that change on such a stack and model, whether
another run of the same job was measured faster, whether the published plan waits for its pipeline, and whether it stands in a series that
varies the job and not the plan. Nothing here names a run: the same rules hold for every table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.bands import gain_slope, likely_ratio
from ironlaw.estimate.answer.estimate import estimate
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.reproduce import asked_data
from ironlaw.estimate.evidence.support import model_kind, stack_kind
from ironlaw.terms import scalar
from ironlaw.validate.plans import Pair, pairs_of, slope
from ironlaw.validate.predict import Prepared

# what one word of a line changes: options of a plan, and what else may differ in a pair that tests them, because it follows or is small
CHANGES = {
    "recomputation": (("recompute",), ("micro_batch_size", "sp")),
    "the pipeline": (("pp", "vpp", "schedule", "first_stage_layers", "last_stage_layers", "layers_per_stage", "microbatch_group"), ()),
    "tensor parallelism": (("tp", "sp"), ()),
    "context parallelism": (("cp", "cp_method"), ()),
    "the placement of experts": (("ep", "etp"), ("pp",)),
    "the micro-batch": (("micro_batch_size",), ()),
    "sharding": (("zero", "dp_replicate"), ("micro_batch_size",)),
    "overlap": (("overlap",), ("vpp",)),
    "what is in host memory": (("offload", "offload_layers"), ("recompute",)),
}
_FOLLOW = ("dp_shard", "dp_replicate")  # ranks that are left
LEAST_PAIRS = 2  # that test a change
IN_ORDER = 2 / 3  # of them predicted in the measured order
FASTER = 0.95  # measured time of another run of the job over the published one
IDLE = 0.2  # share of a step in which a rank waits for the pipeline
SERIES = 3  # jobs of a publisher with one layout
SMALL = 1.02  # a change that gains less is not named
USUAL = "by rule"  # an option that a plan does not set


class Change(NamedTuple):
    """One change between the published plan and the best one, and the predicted ratio of step times without and with it."""

    name: str
    published: str
    best: str
    ratio: float | None  # None where no plan has this change alone

    def data(self) -> dict[str, Any]:
        """The change as plain data."""
        return self._asdict()


def changes_of(published: tuple[Group, int], best: tuple[Group, int]) -> list[Change]:
    """What differs, largest predicted gain first: the best plan with the published value, else the published plan with the best one's."""
    old, new = (_options(*place) for place in (published, best))
    found = []
    for name, (axes, _) in CHANGES.items():
        differ = [axis for axis in axes if old.get(axis) != new.get(axis)]
        if differ:
            was, now = (", ".join(f"{axis} {options.get(axis, USUAL)}" for axis in differ) for options in (old, new))
            back, forth = (_seconds(base, axes, source) for base, source in ((new, old), (old, new)))
            ratio = None
            if back is not None:
                ratio = back / scalar(best[0].step.tree, best[1])
            elif forth is not None:
                ratio = scalar(published[0].step.tree, published[1]) / forth
            found.append(Change(name, was, now, ratio))
    return sorted(found, key=lambda change: -(change.ratio or 0.0))


def _options(group: Group, at: int) -> dict[str, Any]:
    """The options of a row without the ranks that are left to data parallelism."""
    asked = asked_data(group, at)
    options = {**asked["given"], **asked["plan"]}
    return {name: value for name, value in options.items() if name not in ("dp_shard", "space")}


def _seconds(base: Mapping[str, Any], axes: Sequence[str], source: Mapping[str, Any]) -> float | None:
    """The step time of a plan with some axes of another one [s]; None where that is no plan."""
    options = {name: value for name, value in base.items() if name not in axes} | {name: source[name] for name in axes if name in source}
    if "dp_replicate" not in axes and options.get("zero") != 0.0:
        options.pop("dp_replicate", None)
    try:
        group, at = estimate(**options).place_of(0)
    except IronlawError:
        return None
    seconds = scalar(group.step.tree, at)
    return seconds if bool(np.broadcast_to(group.legal, group.index.shape)[at]) and math.isfinite(seconds) else None


# --- what runs measured of it


def tests_of(name: str, pairs: Sequence[Pair], stack: str, model: str) -> list[Pair]:
    """The pairs of measured plans on such a stack and model that differ in what a change changes, and in nothing that it does not bring."""
    axes, along = CHANGES[name]
    allowed = {*axes, *along, *_FOLLOW}
    alike = (pair for pair in pairs if (pair.stack, pair.model) == (stack, model))
    return [pair for pair in alike if set(pair.differ) <= allowed and set(pair.differ) & set(axes)]


def _tested(change: Change, pairs: Sequence[Pair], place: tuple[Group, int]) -> dict[str, Any]:
    """How many pairs tested a change, on its own kind of stack and model, how many are in order, and their slope."""
    job = place[0].job
    found = tests_of(change.name, pairs, stack_kind(job), model_kind(job))
    right = sum(pair.right for pair in found)
    return {"pairs": len(found), "right": right, "slope": slope(found)}


def _job_key(group: Group, at: int) -> tuple[Any, ...]:
    """What two runs of one job share: the model's shape, the device, their number, batch, length and format."""
    model, plan = group.job.model, group.plan
    shape = (model.num_hidden_layers, model.hidden_size, model.num_attention_heads, model.num_experts, model.intermediate_size)
    sizes = tuple(float(np.broadcast_to(getattr(plan, name), (plan.rows,))[at]) for name in ("gpus", "global_batch_size", "seq_len"))
    return (*map(str, shape), group.cluster.accelerator.name, *sizes, group.job.precision.peak)


def _series_key(group: Group, at: int) -> tuple[Any, ...]:
    """What the runs of a series share: the model's depth and width, and the layout."""
    model, plan = group.job.model, group.plan
    layout = tuple(float(np.broadcast_to(getattr(plan, name), (plan.rows,))[at]) for name in ("tp", "pp", "ep", "zero"))
    return (str(model.num_hidden_layers), str(model.hidden_size), group.cluster.accelerator.name, group.recompute[at], *layout)


def idle_share(plan: Mapping[str, Any]) -> float:
    """The share of its passes that a rank of a pipeline with equal chunks waits: ``b / (1 + b), b = (pp - 1) / (vpp micro-batches)``.

    >>> round(idle_share({"pp": 8, "vpp": 1, "num_microbatches": 8}), 3), idle_share({"pp": 1, "vpp": 1, "num_microbatches": 8})
    (0.467, 0.0)
    """
    bubble = (plan["pp"] - 1.0) / (plan["vpp"] * plan["num_microbatches"])
    return float(bubble / (1.0 + bubble))


class Evidence:
    """The measured runs of a table, by what lines ask of them."""

    def __init__(self, prepared: Prepared, predicted: Any) -> None:
        self.prepared, self.pairs = prepared, pairs_of(prepared, predicted, ())
        self.places = [answered.place_of(row) for answered, row in prepared.answers]
        self.jobs: dict[tuple[Any, ...], list[int]] = {}
        self.series: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
        for i, (run, place) in enumerate(zip(prepared.runs, self.places, strict=True)):
            key = _job_key(*place)
            self.jobs.setdefault(key, []).append(i)
            self.series.setdefault((run.family, *_series_key(*place)), set()).add(key)

    def faster(self, i: int) -> dict[str, Any] | None:
        """The fastest run of the same job, if it is clearly faster than run ``i``, whatever is known of its plan.

        A run that drops rows of its experts does less work than one that drops none.
        """
        measured, own = self.prepared.measured, self._capacity(i)
        alike = [k for k in self.jobs[_job_key(*self.places[i])] if self._capacity(k) in (0.0, own)]
        j = min(alike, key=lambda k: float(measured[k]))
        ratio = float(measured[j] / measured[i])
        return {"run": self.prepared.runs[j].id, "seconds": float(measured[j]), "ratio": ratio} if ratio <= FASTER else None

    def _capacity(self, i: int) -> float:
        """The capacity factor of run ``i``; 0 where no rows are dropped."""
        return float(self.prepared.runs[i].asked[0].get("capacity_factor") or 0.0)

    def jobs_in_series(self, i: int) -> int:
        """How many jobs the publisher of run ``i`` ran with its layout."""
        return len(self.series[(self.prepared.runs[i].family, *_series_key(*self.places[i]))])


def argue(row: Mapping[str, Any], changes: Sequence[Change], i: int, evidence: Evidence, folders: tuple[str, ...] = ()) -> dict[str, Any]:
    """What speaks for and against the gain of one job over its published plan, run ``i``."""
    main = changes[0] if changes and changes[0].ratio is not None else None
    tested = None if main is None else _tested(main, evidence.pairs, evidence.places[i])
    idle, jobs = idle_share(row["published"]), evidence.jobs_in_series(i)
    facts = {
        "changes": [change.data() for change in changes],
        "tested": tested,
        "faster_run": evidence.faster(i),
        "idle": idle if idle >= IDLE and idle_share(row["best"]) <= idle / 2.0 else None,
        "series": jobs if jobs >= SERIES else None,
        "likely_ratio": float(likely_ratio(row["ratio"], gain_slope(folders))),
    }
    measured = list(_reasons(facts, main))
    series = [f"its publisher ran {jobs} jobs with this layout, a series that was not tuned for each"] if facts["series"] else []
    # that a plan was not tuned does not make likely a rate that nobody reached
    argued = bool(measured or (series and not row["ceiling"]))
    return {**facts, "argued": argued, "text": _text(row, facts, [*measured, *series], argued)}


def _reasons(facts: Mapping[str, Any], main: Change | None) -> Iterator[str]:
    """What is measured, or counted, that makes the published plan slower than the best one."""
    if faster := facts["faster_run"]:
        yield f"{faster['run']}, the same job, was measured at {faster['ratio']:.2f} of its time"
    if facts["idle"] is not None:
        yield f"its ranks wait for the pipeline {facts['idle']:.0%} of their passes"
    if main is not None and (t := facts["tested"])["pairs"] >= LEAST_PAIRS and t["right"] >= IN_ORDER * t["pairs"]:
        yield (
            f"of {t['pairs']} measured pairs on such stacks that differ in {main.name} {t['right']} are in the predicted order, and they"
            f" gain {t['slope']:.2f} of what is predicted"
        )


def _doubts(row: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[str]:
    """What speaks against the gain."""
    if row["ceiling"]:
        yield f"its MFU of {row['mfu']:.1%} is above the highest measured, {row['ceiling']['mfu']:.1%}"
    if row["never_measured"]:
        yield f"never measured: {', '.join(row['never_measured'])}"
    if facts["tested"] is not None and not facts["tested"]["pairs"]:
        yield "no pair of measured plans on such a stack tests the largest change"


def _text(row: Mapping[str, Any], facts: Mapping[str, Any], reasons: Sequence[str], argued: bool) -> str:
    """The line of one job."""
    alone = [c for c in facts["changes"] if c["ratio"] is not None and c["ratio"] > SMALL]
    gains = "; ".join(f"{c['name']} x{c['ratio']:.2f} ({c['published']} -> {c['best']})" for c in alone[:3])
    said = [f"R {row['ratio']:.2f}, likely {facts['likely_ratio']:.2f}", f"Gains by {gains or 'changes that only gain together'}"]
    said += [] if argued else ["Open: no measured run decides"]
    said += [f"For it: {'; '.join(reasons)}"] if reasons else []
    doubts = list(_doubts(row, facts))
    said += [f"Against it: {'; '.join(doubts)}"] if doubts else []
    return ". ".join(said) + "."
