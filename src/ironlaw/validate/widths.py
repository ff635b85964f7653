"""Learn how wide an error band must be from how far a run is from the published ones, with whole publishers left out.

Every published run counts twice: with its stack's record, and with the record that an unknown stack gets. Its error is the one that a
stranger meets, since constants and evidence are without its publisher. The half-width is ``sum of coefficient * multiple`` over
``estimate.answer.bands.PARTS``; the coefficients minimise the interval score of 80 % bands, which is a quantile regression:

    minimise   mean over runs of  0.8 max(0, |e| - w) + 0.2 max(0, w - |e|)   +   PENALTY * sum of coefficients but the base

with coefficients of at least LEAST, and equal weights of publishers (Koenker and Bassett, Regression Quantiles, 1978; Gneiting and
Raftery, 2007, section 6.2). Twelve publishers tell a base from a slope with the distance badly. LEAST says what is known without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.estimate.answer.bands import PARTS, coefficients, multiples, offloads, place_of, unsupported
from ironlaw.estimate.evidence.distance import NAMES, SIZES, TRAITS
from ironlaw.estimate.evidence.published_runs import Evidence, read_evidence
from ironlaw.validate.fill import Apart
from ironlaw.validate.fit import COVERAGE, weighted_quantile
from ironlaw.validate.predict import Prepared
from ironlaw.validate.runs import Run
from ironlaw.validate.score import interval_scores
from ironlaw.validate.stack import Known

PENALTY = 0.003  # of a coefficient in log half-width: a part that hardly improves the score stays out
ROUNDS = 200  # of reweighting; the coefficients change by less than _STEP long before
_STEP, _SMOOTH = 1e-5, 1e-3  # in log half-width
LEAST = {
    "base": 0.05,  # half-width in log that every question has: repeated steps differ by 2 to 8 %
    "distance": 0.1,  # for a device of another generation: the middle error of a device's matrix products if only the others were measured
    # 80 % quantile of |log(measured / predicted ratio of the step with and without it)|: 7 pairs of one publisher, 3 of another
    # (Megatron-Bridge over EFA, github.com/awslabs/awsome-distributed-ai, read 2026-11-27; the nemo rows that ship); see the test
    "overlap of experts": 0.16,
}
NEW_FAMILIES = ("prime-rl", "simumax-b200", "torchtune")  # added after the laws were first fitted
UNKNOWN_FACTS = {Apart.NO_PRECISION, Apart.NO_PARALLELISM, Apart.NO_RECOMPUTE, Apart.NO_CUDA_GRAPHS, Apart.NO_VPP, Apart.UNREAD}


@dataclass(frozen=True)
class Rows:
    """Runs as a regression sees them: multiples of PARTS, absolute log error, publisher, and whether the generic record was used."""

    multiple: Any  # [runs, parts]
    error: Any
    family: Any
    generic: Any
    banded: Any  # False where no published run of another kind supports a band

    def take(self, rows: Any) -> Rows:
        """Some of the rows."""
        return Rows(self.multiple[rows], self.error[rows], self.family[rows], self.generic[rows], self.banded[rows])

    @property
    def weights(self) -> Any:
        """Equal weights of publishers, and of a publisher's rows with its record and with the generic one."""
        keys = np.array([f"{family} {generic}" for family, generic in zip(self.family, self.generic, strict=True)])
        names, counts = np.unique(keys, return_counts=True)
        size = dict(zip(names.tolist(), counts.tolist(), strict=True))
        return np.array([1.0 / size[key] for key in keys.tolist()])


def stack_stated(run: Run) -> bool:
    """False where the generic record stands in for the stack that a run names, or does not name."""
    return run.stack is not Known.GENERIC


def evidence_of(prepared: Prepared, predicted: Any) -> Evidence:
    """The scored runs as evidence: of each publisher and place the run with the median error. Runs called early are none."""
    members: dict[tuple[Any, ...], list[int]] = {}
    places = [place_of(*_row(prepared, i), stack_stated(run)) for i, run in enumerate(prepared.runs)]
    for i, (run, place) in enumerate(zip(prepared.runs, places, strict=True)):
        if Apart.EARLY not in run.apart:
            members.setdefault((run.family, run.cells.get("model_name", ""), *place.values()), []).append(i)
    chosen = []
    for rows in members.values():
        order = sorted(rows, key=lambda i: predicted[i] / prepared.measured[i])
        chosen.append((order[(len(order) - 1) // 2], len(rows)))
    at = [i for i, _ in chosen]
    columns = {name: [places[i][name] for i in at] for name in (*NAMES, *SIZES)}
    return Evidence(
        {
            "id": np.array([prepared.runs[i].id for i in at]),
            "family": np.array([prepared.runs[i].family for i in at]),
            "model": np.array([_row(prepared, i)[0].job.model.name for i in at]),
        },
        {n: np.array(c, dtype=bool if n in TRAITS else np.float64 if n in SIZES else None) for n, c in columns.items()},
        {
            "measured_s": prepared.measured[at],
            "predicted_s": np.asarray(predicted)[at],
            "runs": np.array([float(n) for _, n in chosen]),
            "offloaded": np.array([float(offloads(*_row(prepared, i))) for i in at]),
        },
    )


def _row(prepared: Prepared, i: int) -> tuple[Any, int]:
    estimate, row = prepared.answers[i]
    return estimate.place_of(row)


def multiples_of(prepared: Prepared, evidence: Evidence, generic: bool = False) -> tuple[Any, Any]:
    """(multiples of PARTS [runs, parts], which runs have a band), with each run's own publisher left out of the evidence."""
    rows, banded = [], []
    for i, run in enumerate(prepared.runs):
        group, at = _row(prepared, i)
        found = multiples(
            group, at, evidence, without=run.family, stated=stack_stated(run) and not generic, unknown=bool(UNKNOWN_FACTS & set(run.apart))
        )
        rows.append([found[name] for name in PARTS])
        banded.append(not unsupported(group, at, evidence))
    return np.array(rows, dtype=np.float64).reshape(-1, len(PARTS)), np.array(banded, dtype=bool)


def rows_of(prepared: Prepared, predicted: Any, evidence: Evidence, generic: bool = False) -> Rows:
    """The rows of a regression. Runs that their source calls early have no weight in it and are left out by ``learn``."""
    multiple, banded = multiples_of(prepared, evidence, generic)
    error = np.abs(np.log(np.asarray(predicted) / prepared.measured))
    usable = banded & np.isfinite(error) & np.array([Apart.EARLY not in run.apart for run in prepared.runs], dtype=bool)
    return Rows(multiple, error, prepared.families, np.full(len(error), generic), usable)


def join(*parts: Rows) -> Rows:
    """Rows one below the other."""
    return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in Rows.__dataclass_fields__))


# --- the regression ------------------------------------------------------------------------------------------------------


def quantile_regression(multiple: Any, error: Any, weights: Any, level: float, penalty: float, least: Any = 0.0) -> Any:
    """Coefficients of at least ``least``, one for all or one each, whose sums the share ``level`` of the errors does not exceed.

    The absolute values are majorised by parabolas and minimised one coordinate after the other until nothing moves (Hunter and Lange,
    Quantile regression via an MM algorithm, 2000). Deterministic.

    >>> x = np.ones((5, 1))
    >>> [round(float(quantile_regression(x, np.arange(5.0), np.ones(5), q, 0.0)[0]), 1) for q in (0.5, 0.79)]
    [2.0, 3.0]
    """
    weights = weights / weights.sum()
    low = np.broadcast_to(np.asarray(least, dtype=np.float64), multiple.shape[1:])
    found = low.copy()
    found[0] = max(low[0], weighted_quantile(error, weights, level))
    cost = penalty * np.array([0.0] + [1.0] * (len(found) - 1))
    slope = (level - 0.5) * (multiple.T @ weights) - cost
    for _ in range(ROUNDS):
        before = found.copy()
        curve = weights / (2.0 * (_SMOOTH + np.abs(error - multiple @ found)))
        matrix = (multiple * curve[:, None]).T @ multiple
        right = (multiple * curve[:, None]).T @ error + slope
        for _ in range(ROUNDS):
            last = found.copy()
            for k in np.flatnonzero(np.diag(matrix) > 0.0):
                found[k] = max(low[k], found[k] + (right[k] - matrix[k] @ found) / matrix[k, k])
            if np.abs(found - last).max() < 0.01 * _STEP:
                break
        if np.abs(found - before).max() < _STEP:
            break
    return found


def learn(rows: Rows) -> Any:
    """The coefficients of PARTS."""
    rows = rows.take(rows.banded)
    least = np.array([LEAST.get(name, 0.0) for name in PARTS])
    return quantile_regression(rows.multiple, rows.error, rows.weights, COVERAGE, PENALTY, least)


def learn_without(rows: Rows) -> dict[str, Any]:
    """For each publisher, the coefficients learned without it."""
    return {family: learn(rows.take(rows.family != family)) for family in dict.fromkeys(rows.family.tolist())}


def half_widths(multiple: Any, banded: Any, families: Any, found: Any, without: Mapping[str, Any]) -> Any:
    """Half-widths of runs, nan where they have no band; a publisher in ``without`` by the coefficients learned without it."""
    by_row = np.array([without.get(str(family), found) for family in families]).reshape(-1, multiple.shape[1])
    return np.where(banded, (multiple * by_row).sum(axis=1), np.nan)


def shipped_half_widths(prepared: Prepared, record: Mapping[str, Any], folders: tuple[str, ...] = (), generic: bool = False) -> Any:
    """Half-widths of runs by the record that ships: a publisher's by what was learned without it and without its runs as evidence."""
    multiple, banded = multiples_of(prepared, read_evidence(), generic)
    without = {family: unnamed(found) for family, found in record.get("bands_held_out", {}).items()}
    return half_widths(multiple, banded, prepared.families, unnamed(coefficients(folders)), without)


def named(found: Any) -> dict[str, float]:
    """Coefficients by the names of PARTS, as they are written."""
    return {name: round(float(value), 4) for name, value in zip(PARTS, found, strict=True)}


def unnamed(by_name: Mapping[str, float]) -> Any:
    """The inverse of ``named``."""
    return np.array([by_name.get(name, 0.0) for name in PARTS])


# --- how good the bands are ----------------------------------------------------------------------------------------------


def rank_correlation(a: Any, b: Any, weights: Any) -> float:
    """Spearman's rank correlation with weights; ties have their mean rank.

    >>> round(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]), np.ones(3)), 2)
    0.5
    """
    ranks = []
    for values in (a, b):
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        last = np.cumsum(counts)
        ranks.append((last - (counts - 1) / 2.0)[inverse])
    centred = [rank - np.average(rank, weights=weights) for rank in ranks]
    below = np.sqrt(np.prod([np.average(rank**2, weights=weights) for rank in centred]))
    return float(np.average(centred[0] * centred[1], weights=weights) / below) if below > 0.0 else 0.0


def constant_widths(rows: Rows) -> Any:
    """Half-widths of one width for every run, learned without its publisher: what the law must beat."""
    out = np.full(rows.error.size, np.nan)
    for family in dict.fromkeys(rows.family.tolist()):
        others = rows.banded & (rows.family != family)
        if others.any():
            out[rows.family == family] = weighted_quantile(rows.error[others], rows.take(others).weights, COVERAGE)
    return out


def judge(rows: Rows, half_width: Any, groups: Mapping[str, Any]) -> dict[str, Any]:
    """Coverage, width and interval score of held-out bands by group, and how well the width ranks with the error."""
    constant, weights = constant_widths(rows), rows.weights
    table = []
    for name, mask in groups.items():
        own = mask & rows.banded & np.isfinite(half_width)
        if not own.any():
            continue
        inside = rows.error[own] <= half_width[own]
        scores = [
            float(np.average(interval_scores(np.expm1(rows.error[own]), w[own], 1.0 - COVERAGE), weights=weights[own]))
            for w in (half_width, constant)
        ]
        table.append(
            {
                "group": name,
                "n": int(own.sum()),
                "families": len(set(rows.family[own].tolist())),
                "coverage": float(inside.mean()),
                "family_coverage": float(np.average(inside, weights=weights[own])),
                "median_half_width": float(np.median(half_width[own])),
                "interval_score": scores[0],
                "constant_interval_score": scores[1],
            }
        )
    usable = rows.banded & np.isfinite(half_width)
    families = list(_by_publisher(rows, half_width, usable))
    return {
        "groups": table,
        "spearman_runs": rank_correlation(half_width[usable], rows.error[usable], weights[usable]),
        "spearman_publishers": _rank_publishers(np.array(families)) if len(families) > 1 else None,
    }


def _rank_publishers(pairs: Any) -> float:
    return rank_correlation(pairs[:, 0], pairs[:, 1], np.ones(len(pairs)))


def _by_publisher(rows: Rows, half_width: Any, usable: Any) -> Iterator[tuple[float, float]]:
    """(median half-width, 80 % quantile of the errors) of each publisher, with its record and with the generic one."""
    for family in dict.fromkeys(rows.family.tolist()):
        for generic in (False, True):
            own = usable & (rows.family == family) & (rows.generic == generic)
            if own.any():
                yield float(np.median(half_width[own])), float(np.quantile(rows.error[own], COVERAGE))


def groups_of(*prepared: Prepared) -> dict[str, Any]:
    """The groups in which bands are judged: masks over the runs with their record, then those with the generic one."""
    dense = [p.counts for p in prepared]
    mixture = [np.array([Apart.MIXTURE in run.apart for run in p.runs], dtype=bool) for p in prepared]
    adapters = [np.array([Apart.ADAPTERS in run.apart for run in p.runs], dtype=bool) for p in prepared]
    every = [np.ones(len(p.runs), dtype=bool) for p in prepared]
    new = [np.isin(p.families, NEW_FAMILIES) for p in prepared]
    kinds = {"dense with nothing unknown": dense, "mixtures": mixture, "adapters": adapters, "new families": new, "all": every}
    return {
        f"{name}, {record}": np.concatenate([mask & (k == at) for k, mask in enumerate(masks)])
        for name, masks in kinds.items()
        for at, record in enumerate(("with its record", "generic record")[: len(prepared)])
    }
