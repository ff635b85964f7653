"""Logs of JSON lines: an object a line with a step, and a time, a time stamp or a rate. The table lists the keys that are read.

    {"step": 120, "loss": 2.31, "step_time": 1.25, "mfu": 0.41}
    {"_step": 10, "_timestamp": 1700000000.0, "_runtime": 90.2, "train/loss": 2.3}
    {"step": 3, "data": {"perf/time_per_step": 80.2, "perf/throughput": 1234.5}}

The time of a step is its own, else the time since the line before, over the steps between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ironlaw.measure.logs.formats import add_step, fields_of, json_keys, with_rates_alone
from ironlaw.measure.logs.log import Log, Notes, Rows

NAME = "json-lines"
_NEVER = re.compile(rb"(?!)")
_KEYS = json_keys()
_STEP = b"|".join(re.escape(name).encode() for name in _KEYS["step"])
SIGNS = (
    *([_NEVER] * 4),
    re.compile(rb'(?:^|\n)[ \t]*\{[^\n]{0,4000}?"(?:' + _STEP + rb')": ?\d{1,12}(?:\.0)?[,}][^\n]{0,8000}\}[ \t]*\r?(?:\n|$)'),
)
DEEP = 3  # levels of objects


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a log of JSON objects."""
    rows, fields = Rows(notes), fields_of(_KEYS["fields"])
    for line in text:
        values = _numbers(line)
        step = _first(values, _KEYS["step"])
        if step is None or step != int(step):
            notes.skipped["a line without a step"] += bool(line.strip())
            continue
        found: dict[str, float] = {}
        for entry in fields:
            if entry.gives not in found and (value := values.get(entry.before)) is not None:
                found[entry.gives] = value * entry.scale
        when = _first(values, _KEYS["elapsed"])
        add_step(rows, int(step), None, when if when is not None else _first(values, _KEYS["clock"]), found)
    return with_rates_alone(rows.log(NAME))


def _first(values: Mapping[str, float], names: Iterable[str]) -> float | None:
    """The value of the first of the names that is there."""
    return next((values[name] for name in names if name in values), None)


def _numbers(line: str) -> dict[str, float]:
    """The numbers of an object by their whole name, and by the name within the object around them; {} for another line.

    >>> _numbers('{"step": 3, "data": {"timing_s/step": 80.0, "ok": true}}')
    {'step': 3.0, 'timing_s/step': 80.0, 'data/timing_s/step': 80.0}
    """
    if not line.lstrip().startswith("{"):
        return {}
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    found: dict[str, float] = {}
    _collect(data, "", found, DEEP)
    return found


def _collect(data: Mapping[str, Any], before: str, found: dict[str, float], levels: int) -> None:
    """Add the numbers of an object and of those inside it."""
    for name, value in data.items():
        if isinstance(value, bool):
            continue
        if isinstance(value, int | float) and abs(value) < 1e30:
            found.setdefault(name, float(value))
            if before:
                found.setdefault(before + name, float(value))
        elif isinstance(value, dict) and levels > 1:
            _collect(value, f"{before}{name}/", found, levels - 1)
