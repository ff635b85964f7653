"""Logs of MaxText: one line a step, with its time and rates per device.

    completed step: 1, seconds: 6.101, TFLOP/s/device: 240.500, Tokens/s/device: 5371.200, total_weights: 2097152, loss: 9.950

``total_weights`` counts the tokens of the step that have a loss, on all devices. The first step includes compilation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ironlaw.measure.logs.log import Log, Notes, Rows, clock, number, ranked

NAME = "maxtext"
SIGNS = (re.compile(rb"completed step: \d+, seconds: [\d.]+, TFLOP/s/device: "),)
_STEP = re.compile(r"completed step: (\d{1,12}), seconds: ([\d.]{1,20})")
_FIELD = re.compile(r"\b(TFLOP/s/device|Tokens/s/device|total_weights|loss): ([\d.eE+-]{1,30}|nan)")
_DEVICES = re.compile(r"\bNum_devices: (\d{1,9})\b")


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a MaxText log."""
    rows = Rows(notes)
    for whole_line in text:
        rank, line = ranked(whole_line)
        if match := _STEP.search(line):
            _step(int(match[1]), number(match[2]), line, rank, rows)
        elif match := _DEVICES.search(line):
            notes.argument("world_size", match[1])
    return rows.log(NAME)


def _step(step: int, seconds: float | None, line: str, rank: int | None, rows: Rows) -> None:
    """Add one step line as a row."""
    fields = dict(_FIELD.findall(line))
    tokens = number(fields.get("total_weights"))
    if seconds is None or seconds <= 0:
        rows.notes.skipped["a step line without its time"] += 1
        return
    rows.add(
        step,
        seconds,
        rank=rank,
        clock=clock(line),
        unusual="loss is nan" if fields.get("loss") == "nan" else "",
        tokens_per_second=number(fields.get("Tokens/s/device")),
        tflops=number(fields.get("TFLOP/s/device")),
        loss=number(fields.get("loss")),
    )
    if tokens and tokens > 0:
        rows.notes.argument("tokens_per_iteration", f"{tokens:.0f}")
