"""Three batches through the stages of an input pipeline, drawn: one after the other, and beside each other."""

from __future__ import annotations

from collections.abc import Mapping

from ironlaw import units
from ironlaw.questions.answer import Column, Table

BATCHES, WIDTH = 3, 72
COLUMNS = (Column("order", "stages"), Column("stage", "stage"), Column("bar", "batches 1 to 3"), Column("ends", "ends", "s"))
Span = tuple[str, int, float, float]  # stage, batch, from, to


def serial(times: Mapping[str, float], batches: int = BATCHES) -> list[Span]:
    """Every stage of a batch waits for the one before, and a batch for the whole batch before it."""
    found, now = [], 0.0
    for batch in range(1, batches + 1):
        for stage, took in times.items():
            found.append((stage, batch, now, now + took))
            now += took
    return found


def overlapped(times: Mapping[str, float], batches: int = BATCHES) -> list[Span]:
    """A stage takes a batch as soon as the stage before is done with it and its own batch before is out."""
    found, free = [], dict.fromkeys(times, 0.0)
    for batch in range(1, batches + 1):
        ready = 0.0
        for stage, took in times.items():
            start = max(ready, free[stage])
            ready = free[stage] = start + took
            found.append((stage, batch, start, ready))
    return found


def drawn(times: Mapping[str, float]) -> tuple[str, Table]:
    """A sentence with both times, and the bars at one scale; a stage too short to see is one mark wide."""
    spans = {"serial": serial(times), "overlapped": overlapped(times)}
    ends = {order: max(span[3] for span in found) for order, found in spans.items()}
    scale = WIDTH / max(ends.values())
    rows = [
        {
            "order": order,
            "stage": stage,
            "bar": _bar([span for span in found if span[0] == stage], scale, ends[order]),
            "ends": max(span[3] for span in found if span[0] == stage),
        }
        for order, found in spans.items()
        for stage, took in times.items()
        if took > 0.0
    ]
    each, slowest = sum(times.values()), max(times.values())
    told = (
        f"three batches take {units.show(ends['serial'], 's', 4)} one after the other and {units.show(ends['overlapped'], 's', 4)} beside "
        f"each other; each further one {units.show(each, 's', 4)} and {units.show(slowest, 's', 4)}"
    )
    return told, Table("timeline", "Three batches, at one scale (a dot waits)", COLUMNS, rows)


def _bar(spans: list[Span], scale: float, end: float) -> str:
    line = ["."] * max(round(end * scale), 1)
    for _, batch, start, stop in spans:
        first = min(int(round(start * scale, 6)), len(line) - 1)
        for at in range(first, min(max(int(round(stop * scale, 6)), first + 1), len(line))):
            line[at] = str(batch)
    return "".join(line)
