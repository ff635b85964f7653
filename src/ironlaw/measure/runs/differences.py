"""Compare two stored runs: the parts of the window and of the step, ranked by their difference in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from ironlaw.measure.runs import saved_diagnosis, store
from ironlaw.measure.runs.saved_diagnosis import BESIDE, TERMS, WALL

NS = 1e-9


def compare_runs(a: str, b: str, path: str | Path | None = None) -> dict[str, Any]:
    """Compare run ``b`` with run ``a``, as plain data: step times, parts of the window for each step, and settings that differ."""
    (run_a, first), (run_b, second) = store.load_run(a, path), store.load_run(b, path)
    values = [saved_diagnosis.values_by_step(store.load_samples(run.id, path)) for run in (run_a, run_b)]
    windows, counts = zip(*(window_parts(diagnosis) for diagnosis in (first, second)), strict=True)
    by_step = all(counts)
    per = counts if by_step else (1.0, 1.0)
    terms = [_difference_row(name, [w.get(name) for w in windows], per) for name in TERMS]
    total = _difference_row(WALL, [w.get(WALL) for w in windows], per)
    rows = sorted((r for r in terms if r is not None), key=lambda r: -abs(r["difference"]))
    return {
        "a": run_a,
        "b": run_b,
        "step": {"a": _summarise_steps(values[0]), "b": _summarise_steps(values[1]), "difference": _step_difference(values)},
        "window": {
            "of": "one step, mean over ranks" if by_step else "the whole window, mean over ranks",
            "wall": total,
            "terms": rows,
            "beside": [r for r in (_difference_row(name, [w.get(name) for w in windows], per) for name in BESIDE) if r is not None],
        },
        "steps": _step_rows(values),
        "roof": {"a": run_a.roof, "b": run_b.roof},
        "settings_that_differ": [key for key in run_a.settings if run_a.settings[key] != run_b.settings.get(key)],
    }


def window_parts(diagnosis: Mapping[str, Any]) -> tuple[dict[str, float], float]:
    """The mean over files of each part of the window [s], and of the number of steps in it (0 where a file marks no steps)."""
    entries = [e for e in diagnosis["files"] if e.get("window")]
    parts = {}
    for name in (WALL, *TERMS, *BESIDE):
        values = [e["window"].get(f"{name}_us") for e in entries]
        if values and None not in values:
            parts[name] = fmean(saved_diagnosis.nanoseconds(v, "us", name) for v in values) * NS
    counts = [len(e.get("steps") or ()) for e in entries]
    return parts, fmean(counts) if counts and all(counts) else 0.0


def _difference_row(name: str, seconds: Sequence[float | None], steps: Sequence[float]) -> dict[str, Any] | None:
    """One part in two runs, in seconds per step, and its difference; None where a run lacks it."""
    if seconds[0] is None or seconds[1] is None:
        return None
    a, b = seconds[0] / steps[0], seconds[1] / steps[1]
    return {"term": name, "a": a, "b": b, "difference": b - a, "ratio": b / a if a > 0 else None}


def _step_rows(values: list[dict[str, list[float]]]) -> list[dict[str, Any]]:
    """The medians of each part of a step, where both runs have parts for each step; the largest difference first."""
    medians = [saved_diagnosis.medians(p) for p in values]
    rows = [_difference_row(name, [m[name] * NS for m in medians], [1.0, 1.0]) for name in TERMS if all(name in m for m in medians)]
    return sorted((r for r in rows if r is not None), key=lambda r: -abs(r["difference"]))


def _summarise_steps(pace: Mapping[str, list[float]]) -> dict[str, Any] | None:
    """The number of steps of a run, and the median, quartiles, least and most of their times [s]."""
    walls = pace.get(WALL, [])
    if not walls:
        return None
    low, middle, high = quantiles(walls, n=4, method="inclusive") if len(walls) > 1 else walls * 3
    return {
        "count": len(walls),
        "median": middle * NS,
        "quartiles": [low * NS, high * NS],
        "least": min(walls) * NS,
        "most": max(walls) * NS,
    }


def _step_difference(values: list[dict[str, list[float]]]) -> dict[str, float | None] | None:
    """The median step of the second run less that of the first [s], and as a share of the first."""
    a, b = (saved_diagnosis.medians(p).get(WALL) for p in values)
    if a is None or b is None:
        return None
    return {"seconds": (b - a) * NS, "shift": (b - a) / a if a > 0 else None}
