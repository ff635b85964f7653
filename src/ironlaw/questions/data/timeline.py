"""Draw three batches through the stages of an input pipeline, serial and overlapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ironlaw import units
from ironlaw.questions.answer import Column, Table

BATCHES, WIDTH = 3, 72
COLUMNS = (Column("order", "stages"), Column("stage", "stage"), Column("bar", "batches 1 to 3"), Column("ends", "ends", "s"))


class Span(NamedTuple):
    """One batch in one stage, from start to end [s]."""

    stage: str
    batch: int
    start: float
    end: float


def serial(times: Mapping[str, float], batches: int = BATCHES) -> list[Span]:
    """One stage at a time: a stage waits for the stage before it, a batch for the batch before it."""
    spans, now = [], 0.0
    for batch in range(1, batches + 1):
        for stage, time in times.items():
            spans.append(Span(stage, batch, now, now + time))
            now += time
    return spans


def overlapped(times: Mapping[str, float], batches: int = BATCHES) -> list[Span]:
    """All stages at once: a stage starts a batch after the previous stage has finished this batch, and itself the previous batch."""
    spans, free = [], dict.fromkeys(times, 0.0)
    for batch in range(1, batches + 1):
        ready = 0.0
        for stage, time in times.items():
            start = max(ready, free[stage])
            ready = free[stage] = start + time
            spans.append(Span(stage, batch, start, ready))
    return spans


def draw_timeline(times: Mapping[str, float]) -> tuple[str, Table]:
    """Write a sentence with the serial and the overlapped time, and draw bars at one scale; the shortest stage is one mark wide."""
    orders = {"serial": serial(times), "overlapped": overlapped(times)}
    ends = {order: max(span.end for span in spans) for order, spans in orders.items()}
    scale = WIDTH / max(ends.values())
    rows = []
    for order, spans in orders.items():
        for stage, time in times.items():
            if time > 0.0:
                stage_spans = [span for span in spans if span.stage == stage]
                bar = _bar(stage_spans, scale, ends[order])
                rows.append({"order": order, "stage": stage, "bar": bar, "ends": max(span.end for span in stage_spans)})
    serial_time, slowest = sum(times.values()), max(times.values())
    sentence = (
        f"three batches take {units.show(ends['serial'], 's', 4)} one after the other and {units.show(ends['overlapped'], 's', 4)}"
        f" overlapped; each further batch {units.show(serial_time, 's', 4)} and {units.show(slowest, 's', 4)}"
    )
    return sentence, Table("timeline", "Three batches at one scale (a dot is waiting)", COLUMNS, rows)


def _bar(spans: list[Span], scale: float, end: float) -> str:
    """A line of text with the number of each batch where it is in a stage."""
    line = ["."] * max(round(end * scale), 1)
    for span in spans:
        first = min(int(round(span.start * scale, 6)), len(line) - 1)
        for at in range(first, min(max(int(round(span.end * scale, 6)), first + 1), len(line))):
            line[at] = str(span.batch)
    return "".join(line)
