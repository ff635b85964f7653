"""The published runs behind an error band, and what would narrow it: lines of a page, and the table of --explain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ironlaw import units
from ironlaw.estimate.answer.bands import PARTS


def width_words(half_width: float) -> str:
    """A half-width in log as the ends of a band in per cent.

    >>> width_words(0.1)
    '-10 % to +11 %'
    """
    return f"{100.0 * math.expm1(-half_width):+.0f} % to {100.0 * math.expm1(half_width):+.0f} %"


def nearest_lines(band: dict[str, Any] | None, runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each of the nearest published runs, and one that says what would narrow the band."""
    for run in runs:
        yield f"  {run_words(run)}"
    if band is not None and band["narrower"]:
        ways = "; ".join(f"{way['what']} ({width_words(way['half_width'])})" for way in band["narrower"])
        yield f"  the band is {width_words(band['half_width'])}; narrower with {ways}"


def run_words(run: dict[str, Any]) -> str:
    """A published run in a line: what ran, measured, predicted without its publisher, and how it differs from the question."""
    return (
        f"{run['id']}: {run['model']} on {run['gpus']:,} x {run['accelerator']}, {run['format']}, {run['stack'] or 'unknown stack'}:"
        f" measured {units.show(run['measured_seconds'], 's')}, predicted {units.show(run['predicted_seconds'], 's')}"
        f" ({100.0 * run['error']:+.1f} %); {difference_words(run)}"
    )


def difference_words(run: dict[str, Any]) -> str:
    """What a published run has in common with the question, and what it has not."""
    same = f"same {', '.join(run['same'])}" if run["same"] else ""
    differs = f"differs: {', '.join(run['differs'])}" if run["differs"] else ""
    return "; ".join(words for words in (same, differs) if words)


def band_table(band: dict[str, Any], runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """How the half-width of a band is made up, for --explain."""
    yield f"error band: {width_words(band['half_width'])}, half-width in log {band['half_width']:.4f}, for {band['coverage']:.0%} of runs"
    for name, width in band["parts"].items():
        yield f"  {name:<24}{width:>8.4f}   {PARTS[name]}"
    total = sum(band["parts"].values())
    if abs(total - band["half_width"]) > 1e-9:
        yield f"  {'times':<24}{band['half_width'] / total:>8.4f}   what your own runs leave of it"
    yield from nearest_lines(band, runs)
