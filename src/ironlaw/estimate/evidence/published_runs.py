"""The published runs behind a band: one table, written by ``ironlaw validate fit``, read when an answer needs it.

A line stands for the runs of one publisher at one place (model, stack, device, format, accelerators, sequence): the run with the median
error, predicted with constants that were fitted without its publisher.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ironlaw.catalog.load import SHIPPED
from ironlaw.errors import CatalogError
from ironlaw.estimate.evidence.distance import NAMES, SIZES, TRAITS, Positions, differences, distance, take
from ironlaw.files import read_shipped, write_file

TABLE = SHIPPED / "bands" / "evidence.csv"
PUBLISHERS = 3  # nearest publishers whose distances are averaged, and of which the answer names a run each
_TEXTS = ("id", "family", "model")
_NUMBERS = ("measured_s", "predicted_s", "runs", "offloaded")
COLUMNS = (*_TEXTS, *NAMES, *SIZES, *_NUMBERS)


class Evidence(NamedTuple):
    """Scored runs as columns: names, where they are, measured and predicted step times [s], and runs that a line stands for."""

    texts: dict[str, Any]
    places: dict[str, Any]
    numbers: dict[str, Any]

    @property
    def families(self) -> Any:
        """The publisher of every run."""
        return self.texts["family"]

    def has(self, trait: str) -> bool:
        """True where a published run is of this kind."""
        return bool(np.any(self.numbers[trait] if trait in self.numbers else self.places[trait]))


class Near(NamedTuple):
    """A published run near a question: its line in the evidence, and its distance."""

    at: int
    gap: float


@cache
def read_evidence(path: Path = TABLE) -> Evidence:
    """The table that ships. Raises CatalogError where it is not one."""
    try:
        header, *rows = csv.reader(io.StringIO(read_shipped(path), newline=""))
    except (OSError, ValueError, csv.Error) as error:
        raise CatalogError(f"{path}: cannot be read: {error}") from None
    if tuple(header) != COLUMNS or not rows:
        raise CatalogError(f"{path}: not a table of evidence: run ironlaw validate fit")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    places = {
        name: np.array(columns[name]) == "1" if name in TRAITS else np.array(columns[name], dtype=np.float64 if name in SIZES else None)
        for name in (*NAMES, *SIZES)
    }
    numbers = {name: np.array(columns[name], dtype=np.float64) for name in _NUMBERS}
    return Evidence({name: np.array(columns[name]) for name in _TEXTS}, places, numbers)


def write_evidence(evidence: Evidence, path: Path = TABLE) -> None:
    """Write the table, one line for each family and place."""
    columns = {**evidence.texts, **evidence.places, **evidence.numbers}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for at in range(len(evidence.families)):
        writer.writerow(_cell(columns[name][at]) for name in COLUMNS)
    write_file(path, text.getvalue().encode())


def _cell(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    return f"{float(value):.6g}" if isinstance(value, (float, np.floating)) else str(value)


def nearest(place: Positions, evidence: Evidence, without: str = "") -> list[Near]:
    """The nearest run of each of the PUBLISHERS nearest publishers; ``without`` is a publisher to leave out."""
    gaps = np.broadcast_to(distance(place, evidence.places), evidence.families.shape)
    order = np.argsort(gaps, kind="stable")
    families = evidence.families[order]
    _, first = np.unique(families, return_index=True)
    found = [int(i) for i in np.sort(first) if families[i] != without]
    return [Near(int(order[i]), float(gaps[order[i]])) for i in found[:PUBLISHERS]]


def mean_gap(near: Sequence[Near]) -> float:
    """Mean distance of the nearest publishers: small only where several publishers ran something like it."""
    return float(np.mean([run.gap for run in near])) if near else 0.0


def near_data(place: Positions, near: Sequence[Near], evidence: Evidence) -> list[dict[str, Any]]:
    """The nearest published runs as plain data: what ran, measured, predicted, held-out error, and why it is near."""
    rows = []
    for run in near:
        there = take(evidence.places, run.at)
        same, other = differences(place, there)
        measured, predicted = (float(evidence.numbers[name][run.at]) for name in ("measured_s", "predicted_s"))
        rows.append(
            {
                "id": str(evidence.texts["id"][run.at]),
                "family": str(evidence.texts["family"][run.at]),
                "model": str(evidence.texts["model"][run.at]),
                "stack": str(there["stack"]),
                "accelerator": str(there["device"]),
                "gpus": int(there["gpus"]),
                "format": str(there["format"]),
                "measured_seconds": measured,
                "predicted_seconds": predicted,
                "error": predicted / measured - 1.0,
                "runs": int(evidence.numbers["runs"][run.at]),
                "distance": run.gap,
                "same": same,
                "differs": other,
            }
        )
    return rows
