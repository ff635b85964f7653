"""Every published job with a known plan against the best plan of an open question, and the figures that watch the search.

A job is a model on a number of one accelerator with its batch, sequence, precision and stack. Of several measured plans of a job the
fastest is the published one. R is its predicted step time over that of the best plan, both with the constants that ship. Where another run
of the job was measured faster whose plan is not wholly known, ``ratio_run`` is R times what it took of the published plan's measured time:
what of R no measurement confirms. A published layout (``planner.published``) that runs of the job had is left out of its search, or R would
be 1 because the plan is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.as_data import plan_data
from ironlaw.estimate.answer.estimate import Estimate, answer, estimate
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.reproduce import asked_data
from ironlaw.estimate.evidence.support import ceiling_data, support_data
from ironlaw.estimate.legality.rules import broken
from ironlaw.estimate.planner.published import without_runs
from ironlaw.terms import scalar
from ironlaw.validate.argued import Evidence, argue, changes_of
from ironlaw.validate.bubbles import bubble_error
from ironlaw.validate.fill import Apart
from ironlaw.validate.plans import PLAN, TELLS, as_printed, jobs_of, pairs_of, plan_known, slope
from ironlaw.validate.predict import Prepared, times

LEAST_GPUS = 16  # of a job that is compared
LARGE = 64  # accelerators from which a job counts in the ratios
FAR = 1.25  # a ratio above this is counted apart


def compare_jobs(
    prepared: Prepared, page: Callable[[Estimate], str], folders: tuple[str, ...] = (), predicted: Any = None
) -> list[dict[str, Any]]:
    """One row for each published job: its fastest measured plan against the best plan of the same question without a plan.

    ``page`` prints an estimate: what rests on no measured run, or is above the highest measured, must stand there. ``predicted``: held-out
    step times [s], by which pairs of measured plans test a change; by default those with the constants that ship.
    """
    seconds = times(prepared)
    evidence = Evidence(prepared, seconds if predicted is None else predicted)
    return [_compare(evidence, seconds, question, members, page, folders) for question, members in distinct_jobs(prepared)]


def distinct_jobs(prepared: Prepared) -> list[tuple[dict[str, Any], list[int]]]:
    """The options of every job on LEAST_GPUS accelerators or more, without a plan, and the runs that measured it."""
    jobs: dict[str, tuple[dict[str, Any], list[int]]] = {}
    for i, run in enumerate(prepared.runs):
        if plan_known(run) and run.asked[0]["gpus"] >= LEAST_GPUS:
            question = {name: value for name, value in run.asked[0].items() if name not in (*PLAN, "space")}
            jobs.setdefault(repr(sorted(question.items(), key=lambda item: item[0])), (question, []))[1].append(i)
    return list(jobs.values())


def _compare(
    evidence: Evidence,
    seconds: Any,
    question: Mapping[str, Any],
    members: Sequence[int],
    page: Callable[[Estimate], str],
    folders: tuple[str, ...],
) -> dict[str, Any]:
    """One job as plain data; without a best plan where no plan of the question is legal."""
    prepared = evidence.prepared
    i = min(members, key=lambda member: float(prepared.measured[member]))
    run, (published, at) = prepared.runs[i], evidence.places[i]
    row: dict[str, Any] = {
        "id": run.id,
        "family": run.family,
        "model": run.cells.get("model_name", ""),
        "on": published.cluster.accelerator.name,
        "gpus": int(question["gpus"]),
        "mixture": Apart.MIXTURE in run.apart,
        "plans_measured": len(members),
        "published": plan_data(published, at),
        "measured_s": float(prepared.measured[i]),
        "published_s": float(seconds[i]),
    }
    try:
        with without_runs({prepared.runs[member].id for member in members}):
            found = answer(question, folders)
    except IronlawError as error:
        return {**row, **dict.fromkeys(_OF_BEST), "refused": str(error)}
    group, place = found.place_of(0)
    best, faster = scalar(group.step.tree, place), evidence.faster(i)
    ratio = float(seconds[i]) / best if math.isfinite(best) else None
    row |= {
        "best": plan_data(group, place),
        "best_s": best,
        "ratio": ratio,
        "ratio_run": ratio and ratio * (faster["ratio"] if faster else 1.0),
        "faster_run": faster and faster["run"],
        "fits": bool(scalar(group.memory.fits, place)),
        "mfu": scalar(group.throughput["mfu"], place),
        "refused": refusal(group, place),
        **_beyond_evidence(group, place, page(found)),
        "bubble_error": bubble_error(group, place),
    }
    far = row["gpus"] >= LARGE and row["ratio"] is not None and row["ratio"] > FAR
    return {**row, "argument": argue(row, changes_of((published, at), (group, place)), i, evidence, folders) if far else None}


_OF_BEST = (
    "best", "best_s", "ratio", "ratio_run", "faster_run", "fits", "mfu", "never_measured", "unnamed", "ceiling", "ceiling_unnamed",
    "bubble_error", "argument",
)  # fmt: skip


def _beyond_evidence(group: Group, at: int, printed: str) -> dict[str, Any]:
    """The values of a best plan that no run of its kind measured, the ceiling that it is above, and whether its page says so."""
    never, ceiling = support_data(group, at)["never_measured"], ceiling_data(group, at)
    over = ceiling if ceiling is not None and ceiling["above"] else None
    return {
        "never_measured": never,
        "unnamed": [value for value in never if value not in printed],
        "ceiling": over and {name: over[name] for name in ("mfu", "run")},
        "ceiling_unnamed": over is not None and not (over["run"] in printed and f"{over['mfu']:.1%}" in printed),
    }


def refusal(group: Group, at: int) -> str:
    """Why a chosen plan is refused if someone gives it, its stack named; "" where it runs."""
    asked = asked_data(group, at)
    try:
        again, place = estimate(catalog=group.folders, **{**asked["given"], **asked["plan"]}).place_of(0)
    except IronlawError as error:
        return str(error)
    return "; ".join(broken(again.job, again.plan, {**again.rules, "fits": True}, place))


# --- figures


def summary(rows: Sequence[Mapping[str, Any]], prepared: Prepared, predicted: Any) -> dict[str, Any]:
    """The figures over all jobs; ratios over those on LARGE accelerators or more. ``predicted``: held-out step times [s]."""
    large = [row for row in rows if row["gpus"] >= LARGE and row["ratio"] is not None]
    ratios, of_runs = (np.array([row[name] for row in large]) for name in ("ratio", "ratio_run"))
    mixture = np.array([row["mixture"] for row in large], dtype=bool)
    pairs = pairs_of(prepared, predicted, ())
    printed = as_printed(pairs)
    measured = list(jobs_of(prepared, ()).values())
    errors = [abs(row["bubble_error"]) for row in rows if row["bubble_error"] is not None]
    return {
        "jobs": len(rows),
        "jobs_64": len(large),
        "ratio_median": _median(ratios),
        "ratio_median_dense": _median(ratios[~mixture]),
        "ratio_median_mixtures": _median(ratios[mixture]),
        "ratio_run_median_dense": _median(of_runs[~mixture]),
        "ratio_run_median_mixtures": _median(of_runs[mixture]),
        "ratio_above_1_25": float(np.mean(ratios > FAR)) if large else None,
        "above_1_25": sum(row["argument"] is not None for row in large),
        "argued": sum(row["argument"] is not None and row["argument"]["argued"] for row in large),
        "refused": sum(bool(row["refused"]) for row in rows),
        "never_measured": sum(bool(row["never_measured"]) for row in rows),
        "never_measured_unnamed": sum(bool(row["unnamed"]) for row in rows),
        "above_ceiling": sum(row["ceiling"] is not None for row in rows),
        "above_ceiling_unnamed": sum(bool(row["ceiling_unnamed"]) for row in rows),
        "slope": slope(pairs),
        "slope_families": slope(pairs, by_family=True),
        "slope_printed": slope(printed),
        "slope_printed_families": slope(printed, by_family=True),
        "slope_far": slope([pair for pair in pairs if abs(pair.predicted) >= math.log1p(TELLS)]),
        "jobs_measured": len(measured),
        "pairs": len(pairs),
        "regret": _mean(_losses(prepared.measured, measured, predicted)),
        "regret_random": _mean(float(np.mean(prepared.measured[job]) / np.min(prepared.measured[job]) - 1.0) for job in measured),
        "bubble_error_max": max(errors, default=None),
    }


def _losses(measured: Any, jobs: Sequence[Sequence[int]], predicted: Any) -> Iterator[float]:
    """Of every job: the measured time of the plan predicted fastest, over the fastest measured, less 1."""
    for job in jobs:
        times_of_job = measured[list(job)]
        yield float(times_of_job[int(np.argmin(predicted[list(job)]))] / np.min(times_of_job) - 1.0)


def _median(values: Any) -> float | None:
    return float(np.median(values)) if len(values) else None


def _mean(values: Iterator[float]) -> float | None:
    found = list(values)
    return float(np.mean(found)) if found else None
