"""How well runs are predicted with the framework record that a stranger's stack would get, beside their own records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.validate.fit import Fit, held_out_times
from ironlaw.validate.predict import prepare
from ironlaw.validate.runs import RUNS, read_runs
from ironlaw.validate.score import Scored, Summary, headline, score
from ironlaw.validate.widths import shipped_half_widths


def score_generic(fit: Fit, record: Mapping[str, Any], path: Path = RUNS, folders: tuple[str, ...] = ()) -> Scored:
    """The runs of a table with generic records, each family with constants and bands learned without it."""
    runs, unread = read_runs(path, folders, generic=True)
    prepared, unplanned = prepare(runs, folders)
    return score(
        prepared, held_out_times(prepared, fit), [*unread, *unplanned], shipped_half_widths(prepared, record, folders, generic=True)
    )


def by_family(own: Scored, generic: Scored) -> list[dict[str, Any]]:
    """Errors of each family, and of its rows outside the headline, with both kinds of record; over the rows that both can predict.

    ``rows_changed`` counts the rows whose record is not the generic one already.
    """
    theirs = {run.id: i for i, run in enumerate(generic.prepared.runs)}
    pairs = [(i, theirs[run.id]) for i, run in enumerate(own.prepared.runs) if run.id in theirs]
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for i, j in pairs:
        run = own.prepared.runs[i]
        groups.setdefault((run.family, ", ".join(run.apart) or "headline"), []).append((i, j))
    return [_compare(key, members, own, generic) for key, members in groups.items()]


def _compare(key: tuple[str, str], members: list[tuple[int, int]], own: Scored, generic: Scored) -> dict[str, Any]:
    """One group: rows, and its errors with its own records and with the generic one."""
    mine, theirs = (np.array([pair[k] for pair in members]) for k in (0, 1))
    changed = sum(own.prepared.runs[i].cells["framework"] != generic.prepared.runs[j].cells["framework"] for i, j in members)
    return {
        "family": key[0],
        "apart": key[1],
        "n": len(members),
        "rows_changed": changed,
        "own": _figures(own.summary(key[0], mine)),
        "generic": _figures(generic.summary(key[0], theirs)),
    }


def _figures(summary: Summary) -> dict[str, float]:
    return {name: getattr(summary, name) for name in ("median_abs_error", "p90_abs_error", "bias")}


def data(own: Scored, generic: Scored) -> dict[str, Any]:
    """The answer of ``--generic`` as plain data."""
    return {"headline": headline(generic), "own_headline": headline(own), "families": by_family(own, generic)}
