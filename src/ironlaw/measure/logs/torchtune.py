"""Logs of torchtune's disk and console loggers: one line a step, with the rate and the memory of one device.

    Step 2 | loss:1.48 lr:2e-05 tokens_per_second_per_gpu:2772.771 peak_memory_active:38.10 peak_memory_alloc:38.10
    peak_memory_reserved:42.50                                                                    (one line)

The three peaks are in GiB: bytes in active blocks, bytes of live tensors, bytes that the allocator has reserved. A line has no step time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace

from ironlaw.measure.logs.log import Log, Notes, Rows, number, ranked

NAME = "torchtune"
SIGNS = (re.compile(rb"Step \d+ \| loss:\S+ [^\n]{0,400}tokens_per_second_per_gpu:"),)
_STEP = re.compile(r"\bStep (\d{1,12}) \| (.*)$")
_FIELD = re.compile(r"\b(loss|tokens_per_second_per_gpu|peak_memory_active|peak_memory_alloc|peak_memory_reserved):([\d.eE+-]{1,30}|nan)")
MEMORY = {
    "peak_memory_active": "memory_active_max", "peak_memory_alloc": "memory_allocated_max", "peak_memory_reserved": "memory_reserved_max",
}  # fmt: skip


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a torchtune log."""
    rows = Rows(notes)
    for whole_line in text:
        rank, line = ranked(whole_line)
        if match := _STEP.search(line):
            _step(int(match[1]), dict(_FIELD.findall(match[2])), rank, rows)
    log = rows.log(NAME)
    return replace(log, aside=tuple("" if why.startswith("no time") else why for why in log.aside))


def _step(step: int, fields: dict[str, str], rank: int | None, rows: Rows) -> None:
    """Add one step line as a row, and keep the largest of its peaks."""
    claims = rows.notes.claims
    for name, claim in MEMORY.items():
        value = number(fields.get(name))
        if value is not None and value > 0:
            claims[claim] = max(claims.get(claim, 0.0), value * 2.0**30)
    reserved = number(fields.get("peak_memory_reserved"))
    rows.add(
        step,
        math.nan,
        rank=rank,
        unusual="loss is nan" if fields.get("loss") == "nan" else "",
        tokens_per_second=number(fields.get("tokens_per_second_per_gpu")),
        loss=number(fields.get("loss")),
        memory=None if reserved is None else reserved * 2.0**30,
    )
