"""The pairs test: of runs that differ in one column alone, the measured ratio of step times beside the predicted one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ironlaw.validate.fill import Apart
from ironlaw.validate.predict import Prepared
from ironlaw.validate.runs import Run

LEAST = 2  # pairs of a family that differ in the same way, to be listed
_CELLS = ("software", "interconnect", "compile", "moe_dispatch", "model_name", "year")  # columns besides options in which runs agree
_SAME = ("space",)  # options that say nothing of the run


class Change(NamedTuple):
    """Two values of one column in a family, from the first to the second, and log ratios of the step times of its pairs."""

    column: str
    family: str
    first: str
    second: str
    measured: list[float]
    predicted: list[float]

    def data(self) -> dict[str, Any]:
        """Geometric mean ratios of step times, second value over first, and how far the predicted one is off."""
        measured, predicted = float(np.exp(np.mean(self.measured))), float(np.exp(np.mean(self.predicted)))
        return {
            "column": self.column,
            "family": self.family,
            "from": self.first,
            "to": self.second,
            "pairs": len(self.measured),
            "measured_ratio": measured,
            "predicted_ratio": predicted,
            "error": predicted / measured - 1.0,
        }


def facts_of(run: Run) -> dict[str, str]:
    """What identifies a run: its options and the columns that are no options, as text."""
    options = {name: _text(value) for name, value in run.asked[0].items() if name not in _SAME}
    return options | {name: run.cells.get(name, "") for name in _CELLS}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return repr(sorted(value.items()))
    if isinstance(value, (frozenset, set)):
        return ",".join(sorted(map(str, value))) or "none"
    return f"{value:.15g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def changes(prepared: Prepared, predicted: Any) -> list[Change]:
    """Every pair of values of one column between which runs of a family were measured with all else equal."""
    groups: dict[tuple[str, str, frozenset[tuple[str, str]]], list[tuple[str, int]]] = {}
    for i, run in enumerate(prepared.runs):
        facts = facts_of(run) if Apart.EARLY not in run.apart else {}
        for column, value in facts.items():
            rest = frozenset(item for item in facts.items() if item[0] != column)
            groups.setdefault((run.family, column, rest), []).append((value, i))
    found: dict[tuple[str, str, str, str], Change] = {}
    for (family, column, _), members in groups.items():
        for k, one in enumerate(members):
            for other in members[:k]:
                if one[0] != other[0]:
                    (first, i), (second, j) = in_order(one, other)
                    change = found.setdefault((column, family, first, second), Change(column, family, first, second, [], []))
                    change.measured.append(math.log(prepared.measured[j] / prepared.measured[i]))
                    change.predicted.append(math.log(predicted[j] / predicted[i]))
    return list(found.values())


def in_order(*values: tuple[str, int]) -> Sequence[tuple[str, int]]:
    """Values of a column by size where all are numbers, else by the alphabet.

    >>> in_order(("16", 0), ("8", 1)), in_order(("none", 0), ("full", 1))
    ([('8', 1), ('16', 0)], [('full', 1), ('none', 0)])
    """
    try:
        return sorted(values, key=lambda item: float(item[0]))
    except ValueError:
        return sorted(values)


def list_changes(prepared: Prepared, predicted: Any) -> list[dict[str, Any]]:
    """The changes of LEAST pairs or more, by column and family, the most frequent first."""
    rows = [change.data() for change in changes(prepared, predicted) if len(change.measured) >= LEAST]
    return sorted(rows, key=lambda row: (row["column"], row["family"], -row["pairs"], row["from"], row["to"]))


def sum_by_column(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each column: families, changes, pairs, median |error| of the predicted ratio, and changes in the measured direction."""
    columns: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        columns.setdefault(row["column"], []).append(row)
    return [
        {
            "column": column,
            "families": len({row["family"] for row in of_it}),
            "changes": len(of_it),
            "pairs": sum(row["pairs"] for row in of_it),
            "median_abs_error": float(np.median([abs(row["error"]) for row in of_it])),
            "right": sum((row["measured_ratio"] - 1.0) * (row["predicted_ratio"] - 1.0) > 0.0 for row in of_it),
        }
        for column, of_it in sorted(columns.items(), key=lambda item: -sum(row["pairs"] for row in item[1]))
    ]
