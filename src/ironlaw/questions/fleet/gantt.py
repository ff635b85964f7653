"""A chart of a schedule in text: one line a job, time to the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 64  # characters of the time axis
TICKS = 4  # days that are written below it


class Bar(NamedTuple):
    """One job in the chart."""

    name: str
    where: str  # its accelerators
    start: float
    end: float
    deadline: float | None


def chart(bars: Sequence[Bar], days: float) -> list[str]:
    """The lines of a chart of ``days``: ``=`` where a job runs, ``!`` at a deadline, ``|`` at the end of the reservation.

    >>> for line in chart([Bar("a", "8", 0.0, 30.0, 45.0), Bar("b", "16", 30.0, 60.0, None)], 60.0):
    ...     print(line)
    a   8 ================================                !               |
    b  16                                 ================================|
          0               15              30              45              60 days
    """
    longest = max([days, *(bar.end for bar in bars)])
    names, places = (max((len(text) for text in texts), default=0) for texts in ([b.name for b in bars], [b.where for b in bars]))
    lines = []
    for bar in bars:
        line = [" "] * (WIDTH + 1)
        first = _place(bar.start, longest)
        for at in range(first, max(_place(bar.end, longest), first + 1)):
            line[at] = "="
        line[_place(days, longest)] = "|"
        if bar.deadline is not None and bar.deadline <= longest:
            line[_place(bar.deadline, longest)] = "!"
        lines.append(f"{bar.name.ljust(names)}  {bar.where.rjust(places)} {''.join(line)}".rstrip())
    axis = [" "] * (WIDTH + 16)
    for tick in range(TICKS + 1):
        text = f"{longest * tick / TICKS:.4g}" + (" days" if tick == TICKS else "")
        at = WIDTH * tick // TICKS
        axis[at : at + len(text)] = text
    return [*lines, " " * (names + places + 3) + "".join(axis).rstrip()]


def _place(day: float, longest: float) -> int:
    return round(WIDTH * day / longest)
