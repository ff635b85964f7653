"""Two kept runs side by side: the parts of the window and of the step, ranked by the seconds between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from ironlaw.measure.runs import recorded, store
from ironlaw.measure.runs.recorded import BESIDE, TERMS, WALL

NS = 1e-9


def compared(a: str, b: str, path: str | Path | None = None) -> dict[str, Any]:
    """``b`` against ``a`` as plain data: what a step takes, the parts of the window a step, and what the two have not in common."""
    (one, first), (other, second) = store.shown(a, path), store.shown(b, path)
    paces = [recorded.paces(store.samples(kept.id, path)) for kept in (one, other)]
    windows, counts = zip(*(window_parts(diagnosis) for diagnosis in (first, second)), strict=True)
    by_step = all(counts)
    per = counts if by_step else (1.0, 1.0)
    terms = [_row(name, [w.get(name) for w in windows], per) for name in TERMS]
    total = _row(WALL, [w.get(WALL) for w in windows], per)
    rows = sorted((r for r in terms if r is not None), key=lambda r: -abs(r["difference"]))
    return {
        "a": one,
        "b": other,
        "step": {"a": _spread(paces[0]), "b": _spread(paces[1]), "difference": _difference(paces)},
        "window": {
            "of": "a step, the mean over ranks" if by_step else "the whole window, the mean over ranks",
            "wall": total,
            "terms": rows,
            "beside": [r for r in (_row(name, [w.get(name) for w in windows], per) for name in BESIDE) if r is not None],
        },
        "steps": _steps(paces),
        "roof": {"a": one.roof, "b": other.roof},
        "settings_that_differ": [key for key in one.settings if one.settings[key] != other.settings.get(key)],
    }


def window_parts(diagnosis: Mapping[str, Any]) -> tuple[dict[str, float], float]:
    """The mean over files of each part of their windows [s], and of how many steps are in them: 0 where a file does not say."""
    entries = [e for e in diagnosis["files"] if e.get("window")]
    found = {}
    for name in (WALL, *TERMS, *BESIDE):
        values = [e["window"].get(f"{name}_us") for e in entries]
        if values and None not in values:
            found[name] = fmean(recorded.nanoseconds(v, "us", name) for v in values) * NS
    counts = [len(e.get("steps") or ()) for e in entries]
    return found, fmean(counts) if counts and all(counts) else 0.0


def _row(name: str, pair: Sequence[float | None], per: Sequence[float]) -> dict[str, Any] | None:
    if pair[0] is None or pair[1] is None:
        return None
    a, b = pair[0] / per[0], pair[1] / per[1]
    return {"term": name, "a": a, "b": b, "difference": b - a, "ratio": b / a if a > 0 else None}


def _steps(paces: list[dict[str, list[float]]]) -> list[dict[str, Any]]:
    """The medians of each part of a step, where both runs have them by step, ranked by seconds."""
    medians = [recorded.medians(p) for p in paces]
    rows = [_row(name, [m[name] * NS for m in medians], [1.0, 1.0]) for name in TERMS if all(name in m for m in medians)]
    return sorted((r for r in rows if r is not None), key=lambda r: -abs(r["difference"]))


def _spread(pace: Mapping[str, list[float]]) -> dict[str, Any] | None:
    """The steps of a run: how many, the median and the quartiles [s]."""
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


def _difference(paces: list[dict[str, list[float]]]) -> dict[str, float | None] | None:
    """How much later the median step of the second run is [s], and over the first's."""
    a, b = (recorded.medians(p).get(WALL) for p in paces)
    if a is None or b is None:
        return None
    return {"seconds": (b - a) * NS, "shift": (b - a) / a if a > 0 else None}
