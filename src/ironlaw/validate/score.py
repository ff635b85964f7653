"""Score predictions: errors by group, coverage of bands, and two baselines without a model of the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.validate.fill import Apart
from ironlaw.validate.fit import COVERAGE
from ironlaw.validate.predict import Prepared
from ironlaw.validate.runs import Skipped
from ironlaw.validate.stack import Known


@dataclass(frozen=True)
class Summary:
    """Errors of a group of rows: medians and quantiles of predicted / measured - 1, and coverage of its bands."""

    key: str
    n: int
    median_abs_error: float
    p90_abs_error: float
    worst: float
    bias: float
    band_coverage: float | None
    band_width: float | None
    interval_score: float | None

    def data(self) -> dict[str, Any]:
        """The summary as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Scored:
    """Predictions of runs, their measurements, and half-widths of bands in log (nan: no band)."""

    prepared: Prepared
    predicted: Any
    half_width: Any
    coverage: float
    skipped: tuple[Skipped, ...]

    @cached_property
    def error(self) -> Any:
        """Predicted over measured, minus 1."""
        return self.predicted / self.prepared.measured - 1.0

    def summary(self, key: str, mask: Any) -> Summary:
        """Errors of the rows of ``mask``."""
        e, w = self.error[mask], self.half_width[mask]
        if e.size == 0:
            none = float("nan")
            return Summary(key, 0, none, none, none, none, None, None, None)
        banded = np.isfinite(w)
        covered = np.abs(np.log1p(e[banded])) <= w[banded]
        return Summary(
            key,
            int(e.size),
            float(np.median(np.abs(e))),
            float(np.quantile(np.abs(e), 0.9)),
            float(e[np.argmax(np.abs(e))]),
            float(np.median(e)),
            float(np.mean(covered)) if banded.any() else None,
            float(np.median(2.0 * np.sinh(w[banded]))) if banded.any() else None,
            float(np.mean(interval_scores(e[banded], w[banded], 1.0 - self.coverage))) if banded.any() else None,
        )

    def groups(self, by: str) -> list[Summary]:
        """A summary for every value of ``by``: family, device, precision, support, apart, or a column of the table."""
        members: dict[str, list[int]] = {}
        for i in range(len(self.prepared.runs)):
            members.setdefault(group_key(self.prepared, i, by), []).append(i)
        return [self.summary(key, rows) for key, rows in members.items()]


def interval_scores(error: Any, half_width: Any, miss: float) -> Any:
    """Width of a band plus a penalty for its miss, in log: ``2 w + 2/miss max(0, |e| - w)`` (Gneiting and Raftery, 2007, section 6.2)."""
    return 2.0 * half_width + 2.0 / miss * np.maximum(0.0, np.abs(np.log1p(error)) - half_width)


GROUPINGS = ("family", "stack", "device", "support", "apart")  # and the columns of the table


def group_key(prepared: Prepared, i: int, by: str) -> str:
    """The group of a run."""
    run = prepared.runs[i]
    if by == "family":
        return run.family + "".join(f", {a}" for a in run.apart)
    if by == "device":
        return prepared.hardware[i]
    if by == "support":
        return prepared.support[i] or "none"
    if by == "apart":
        return ", ".join(run.apart) or "headline"
    if by == "stack":
        return run.cells.get("framework", "") + ("" if run.stack is Known.NAME else f", {run.stack}")
    return run.cells.get(by, "") or "blank"


def score(prepared: Prepared, predicted: Any, skipped: Sequence[Skipped], half_width: Any = None, coverage: float = COVERAGE) -> Scored:
    """Predictions with the half-widths of their bands in log; None: no run has a band."""
    widths = np.full(len(prepared.runs), np.nan) if half_width is None else np.asarray(half_width, dtype=np.float64)
    return Scored(prepared, predicted, widths, coverage, tuple(skipped))


def headline(scored: Scored) -> dict[str, float | None]:
    """The figures of dense pre-training rows with a known plan: medians over families first."""
    p = scored.prepared
    rows = p.counts
    families = [f for f in dict.fromkeys(p.families.tolist()) if (rows & (p.families == f)).any()]
    summaries = [scored.summary(f, rows & (p.families == f)) for f in families]
    pooled = scored.summary("all", rows)
    coverages = [s.band_coverage for s in summaries if s.band_coverage is not None]
    return {
        "family_median_abs_error": float(np.median([s.median_abs_error for s in summaries])) if summaries else None,
        "pooled_median_abs_error": _finite(pooled.median_abs_error),
        "p90_abs_error": _finite(pooled.p90_abs_error),
        "bias": _finite(pooled.bias),
        "band_coverage": float(np.mean(coverages)) if coverages else None,
        "band_width": pooled.band_width,
        "interval_score": pooled.interval_score,
    }


def mixtures(scored: Scored) -> Summary:
    """Errors of mixtures of experts with known recompute; no constant is fitted on mixtures."""
    return scored.summary("mixtures", np.array([r.apart == (Apart.MIXTURE,) for r in scored.prepared.runs], dtype=bool))


TENTHS = tuple(0.1 * k for k in range(11))


def deciles(scored: Scored) -> list[dict[str, Any]]:
    """Predicted over measured step time: its quantiles over the headline, over mixtures, and over all scored runs."""
    p = scored.prepared
    mixture = np.array([Apart.MIXTURE in run.apart for run in p.runs], dtype=bool)
    groups = {"headline": p.counts, "mixtures": mixture, "all": np.ones(len(p.runs), dtype=bool)}
    return [
        {"group": name, "n": int(mask.sum()), "ratio": [float(q) for q in np.quantile(scored.error[mask] + 1.0, TENTHS)]}
        for name, mask in groups.items()
        if mask.any()
    ]


FAR = 5.0  # factor; no published run is so far from its prediction, but milliseconds or a cluster's rate are


def far_apart(scored: Scored) -> list[Caution]:
    """A sentence for each row whose measurement and prediction differ by ``FAR`` times or more: a unit may be wrong."""
    times = np.exp(np.abs(np.log(scored.predicted / scored.prepared.measured)))
    return [
        caution("far-apart", line=run.line, id=run.id, measured=scored.prepared.measured[i], predicted=scored.predicted[i], times=times[i])
        for i, run in enumerate(scored.prepared.runs)
        if times[i] >= FAR
    ]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def skip_counts(skipped: Sequence[Skipped]) -> dict[str, int]:
    """How many rows were skipped for each reason, most frequent first."""
    return dict(Counter(s.reason for s in skipped).most_common())


# --- baselines -----------------------------------------------------------------------------------------------------------


def efficiency(prepared: Prepared) -> Any:
    """Measured MFU of every run: time at the peak over measured time."""
    return prepared.ideal / prepared.measured


def by_device(prepared: Prepared) -> Any:
    """Step times by one efficiency per device and precision: the median MFU of other families' headline runs on it.

    Where no other family used the device, the median over all devices of other families.
    """
    mfu, families, counts = efficiency(prepared), prepared.families, prepared.counts
    hardware = np.array(prepared.hardware)
    out = np.full(mfu.size, np.nan)
    for family, device in dict.fromkeys(zip(families.tolist(), hardware.tolist(), strict=True)):
        others = counts & (families != family)
        same_device = others & (hardware == device)
        use = same_device if same_device.any() else others
        of_family = (families == family) & (hardware == device)
        if use.any():
            out[of_family] = prepared.ideal[of_family] / np.median(mfu[use])
    return out


def by_level(prepared: Prepared) -> Any:
    """Step times by the family's own median MFU on that device."""
    mfu = efficiency(prepared)
    keys = np.array([f"{f} {h}" for f, h in zip(prepared.families, prepared.hardware, strict=True)])
    median = {k: np.median(mfu[keys == k]) for k in dict.fromkeys(keys.tolist())}
    return prepared.ideal / np.array([median[k] for k in keys.tolist()])


BASELINES: Mapping[str, Callable[[Prepared], Any]] = {"one efficiency a device": by_device, "the family's own level": by_level}


def baseline_data(scored: Scored) -> dict[str, Any]:
    """Each baseline's headline and family medians, and the share of families with 10 rows or more where ironlaw is better."""
    p, rows = scored.prepared, scored.prepared.counts
    by_name: dict[str, Any] = {}
    for name, law in BASELINES.items():
        error = np.abs(law(p) / p.measured - 1.0)
        medians, wins = {}, []
        for family in dict.fromkeys(p.families.tolist()):
            mask = rows & (p.families == family) & np.isfinite(error)
            if not mask.any():
                continue
            medians[family] = float(np.median(error[mask]))
            if mask.sum() >= 10:
                wins.append(float(np.median(np.abs(scored.error[mask]))) < medians[family])
        by_name[name] = {
            "family_median_abs_error": float(np.median(list(medians.values()))) if medians else None,
            "families": medians,
            "families_of_10_beaten": float(np.mean(wins)) if wins else None,
        }
    return by_name
