"""One validation from file to figures: read, bind, predict each family with constants fitted without it, score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.errors import IronlawError, QuestionError, nearest_names
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.answer.table import read_table
from ironlaw.validate import generic as generic_module
from ironlaw.validate import others
from ironlaw.validate import peaks as peak_module
from ironlaw.validate.fit import Fit, held_out_times, memory_coverage, memory_spreads, read_record
from ironlaw.validate.fits import shipped_memories
from ironlaw.validate.generic import score_generic
from ironlaw.validate.predict import Prepared, prepare, times
from ironlaw.validate.runs import RUNS, Run, read_runs
from ironlaw.validate.score import GROUPINGS, Scored, baseline_data, deciles, headline, mixtures, score, skip_counts
from ironlaw.validate.shipped import link
from ironlaw.validate.widths import shipped_half_widths

SCHEMA_VERSION = 1
EXACT = tuple(f"megatron-papers-{n:03d}" for n in range(11, 19))
CALCULON = 0.0365  # mean error on these eight points, on which it was tuned (SC23, `calculon llm-validation`)


@dataclass(frozen=True)
class Validation:
    """Runs scored with constants fitted without their family, and with the shipped ones."""

    held_out: Scored
    in_sample: Scored
    rows: int
    fit: Fit
    record: dict[str, Any]
    memory: dict[str, Any] | None
    generic: Scored | None = None  # the same runs with the record that a stranger's stack would get


def validate(
    path: Path = RUNS, memory: bool = False, folders: tuple[str, ...] = (), peaks: Path | None = None, generic: bool = False
) -> Validation:
    """Score the runs of a table; with ``memory`` the measured peaks too, with ``generic`` also with the generic framework records."""
    measured = peak_module.read_peaks(peaks) if memory else None  # first, so that a wrong file is an error before the runs are scored
    runs, unread = read_runs(path, folders)
    prepared, unplanned = prepare(runs, folders)
    fit, record = read_record()
    skipped = [*unread, *unplanned]
    half_width = shipped_half_widths(prepared, record, folders)
    held_out = score(prepared, held_out_times(prepared, fit), skipped, half_width)
    in_sample = score(prepared, times(prepared), skipped, half_width)
    return Validation(
        held_out,
        in_sample,
        len(runs) + len(unread),
        fit,
        record,
        memory_summary(held_out, measured) if measured is not None else None,
        score_generic(fit, record, path, folders) if generic else None,
    )


def check_grouping(path: Path, by: str) -> None:
    """Refuse a key to group by that is neither in GROUPINGS nor a column of the table."""
    columns = list(read_table(path)[0][1])
    if by not in (*GROUPINGS, *columns) or not by:
        near = nearest_names(by, (*GROUPINGS, *columns)) if by else []
        known = f"nearest: {', '.join(near)}" if near else f"give {', '.join(GROUPINGS)} or a column of {path.name}"
        raise QuestionError(f"--by {by!r}: no such column in {path.name}; {known}")


def memory_summary(scored: Scored, measured: Any = None) -> dict[str, Any]:
    """Errors of the measured peaks (None: the shipped table) and of the runs' memory columns."""
    peaks, skipped = peak_module.peaks(peak_module.read_peaks() if measured is None else measured)
    p = scored.prepared
    ran = peak_module.ran_and_fits((run.cells, e, row) for run, (e, row) in zip(p.runs, p.answers, strict=True))
    runs = run_memories(p)
    return {**peak_module.summary(peaks, skipped, [memory for _, memory in runs], ran), "coverage": memory_coverage(lent_memories(p))}


def spreads(p: Prepared) -> dict[str, tuple[float, float, int, int]]:
    """Spreads of memory: those of pre-training runs, and of the trainers in the shipped table of fits, pooled with all runs.

    The table has many rows of one publisher, all near their prediction: what other frameworks borrow is learned without it.
    """
    runs = lent_memories(p)
    lent = memory_spreads(runs)
    return {**lent, **{group: found for group, found in memory_spreads([*runs, *shipped_memories()]).items() if group not in lent}}


def lent_memories(p: Prepared) -> list[tuple[str, peak_module.RunMemory]]:
    """(family, memory) of the runs whose spread a framework without rows borrows: those of families outside the shipped table of fits."""
    families = {family for family, _ in shipped_memories()}
    return [(family, memory) for family, memory in run_memories(p) if family not in families]


def run_memories(p: Prepared) -> list[tuple[str, peak_module.RunMemory]]:
    """(family, memory) of the runs that state their memory."""
    memories = []
    for run, (estimate, row) in zip(p.runs, p.answers, strict=True):
        try:
            memories.append((run.family, peak_module.run_memory(run.cells, estimate, row)))
        except IronlawError:
            continue
    return memories


def exact_points(scored: Scored) -> float | None:
    """Mean held-out error of the eight A100 points on which other tools report their error."""
    errors = [abs(float(e)) for run, e in zip(scored.prepared.runs, scored.error, strict=True) if run.id in EXACT]
    return sum(errors) / len(errors) if len(errors) == len(EXACT) else None


def data(validation: Validation, by: str = "family") -> dict[str, Any]:
    """The answer of ``ironlaw validate --json``."""
    scored = validation.held_out
    return {
        "schema_version": SCHEMA_VERSION,
        "rows": validation.rows,
        "scored": len(scored.prepared.runs),
        "skipped": skip_counts(scored.skipped),
        "skipped_rows": [{"id": s.id, "line": s.line, "reason": s.reason} for s in scored.skipped],
        "headline": headline(scored),
        "mixtures": mixtures(scored).data() if mixtures(scored).n else None,
        "in_sample": headline(validation.in_sample),
        "memory": validation.memory,
        "generic": None if validation.generic is None else generic_module.data(scored, validation.generic),
        "groups": [{**s.data(), **_parts_of_key(s.key, by)} for s in scored.groups(by)],
        "baselines": baseline_data(scored),
        "bands": validation.record.get("bands"),
        "own_runs": validation.record.get("own_runs"),
        "deciles": deciles(scored),
        "other_tools": others.shipped(scored),
        "predictions": predictions(scored),
        "constants": dict(validation.fit.values),
    }


def _parts_of_key(key: str, by: str) -> dict[str, Any]:
    """The family of a group, and why its rows are outside the headline; nothing where rows are grouped by something else.

    >>> _parts_of_key("nemo, mixture of experts", "family")
    {'family': 'nemo', 'caveats': ['mixture of experts']}
    """
    family, *caveats = key.split(", ")
    return {"family": family, "caveats": caveats} if by == "family" else {}


def _facts(run: Run, estimate: Estimate, row: int) -> dict[str, Any]:
    """What ran, on what, when and where that was read."""
    group, at = estimate.place_of(row)
    year = run.cells.get("year", "")
    return {
        "family": run.family,
        "model": run.cells.get("model_name") or group.job.model.name,
        "accelerator": group.cluster.accelerator.name,
        "gpus": int(np.broadcast_to(group.plan.gpus, group.index.shape)[at]),
        "format": group.job.precision.name,
        "software": run.cells.get("software") or None,
        "date": year or None,
        "url": link(run.cells.get("url_or_repo_path", "")),
    }


def predictions(scored: Scored) -> list[dict[str, Any]]:
    """Every scored row: predicted, measured, error, band, and the rules applied."""
    p, rows = scored.prepared, []
    for i, run in enumerate(p.runs):
        seconds, w = float(scored.predicted[i]), float(scored.half_width[i])
        band = None if math.isnan(w) else [seconds * math.exp(-w), seconds * math.exp(w)]
        rows.append(
            {
                "id": run.id,
                "line": run.line,
                **_facts(run, *p.answers[i]),
                "predicted_s": seconds,
                "measured_s": float(p.measured[i]),
                "error": float(scored.error[i]),
                "band": band,
                "support": p.support[i] or None,
                "apart": list(run.apart),
                "stack": {"record": run.cells.get("framework", ""), "found": str(run.stack)},
                "rules": list(run.rules),
            }
        )
    return rows
