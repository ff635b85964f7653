"""What a list of plans without their breakdown says of each: error bands, the roof that binds, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ironlaw.estimate.answer.as_data import bound_data
from ironlaw.estimate.answer.bands import banded, widened
from ironlaw.estimate.answer.group import Group
from ironlaw.search.answer import Choice, SearchResult, to_choices
from ironlaw.search.setting import Setting
from ironlaw.search.sweep import preferred_plans

BANDED = ("time", "cost", "energy", "carbon")  # objectives that are the time of a run at a fixed rate: one error moves all of them


def outlines(result: SearchResult, choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Of each plan the band of its step, ``[lo, hi, coverage]``, those of its objectives, and the roof with most of its step."""
    return [_outline(choice, *estimate.place_of(row)) for choice, (estimate, row) in zip(choices, result.explained(choices), strict=True)]


def _outline(choice: Choice, group: Group, at: int) -> dict[str, Any]:
    """Bands and bound of one plan."""
    width, bound = widened(group, at), bound_data(group, at, False)["by"]
    if width is None:
        return {"band": None, "bands": None, "bound": bound}
    totals = {name: float(value) for name, value in choice.setting.objectives(choice.seconds).items()}
    bands = {name: banded(totals[name], *width) if np.isfinite(totals[name]) else None for name in BANDED}
    return {"band": banded(choice.seconds, *width), "bands": bands, "bound": bound}


def size_outlines(result: SearchResult, settings: Sequence[Setting]) -> list[dict[str, Any]]:
    """The outline of the best plan of every setting that was searched, with its memory; None for values of the others."""
    searched = [s for s in settings if s.swept and np.isfinite(s.best)]
    best = {id(s): to_choices(s, preferred_plans(s.swept, 1))[0] for s in searched}
    found = dict(zip(best, outlines(result, list(best.values())), strict=True))
    nothing = {"band": None, "bands": None, "bound": None, "device_bytes": None}
    return [{**found[id(s)], "device_bytes": best[id(s)].device} if id(s) in best else nothing for s in settings]
