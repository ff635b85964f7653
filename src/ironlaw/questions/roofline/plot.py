"""The roofline as text of at most 80 columns: the roof of every format, its ridge, and the points under their own roofs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ironlaw import units
from ironlaw.questions.answer import Column, Table

WIDTH, HEIGHT, MARGIN = 62, 12, 13  # of the drawing; MARGIN columns on its left name the rates
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPACE = 0.5  # decades on either side of the outermost points and ridges
LEAST_INTENSITY = 1e-3  # a point below is drawn there


@dataclass(frozen=True)
class PlotPoint:
    """One operator of a drawing: its name, intensity [FLOP/B], rate [FLOP/s], and the format whose peak limits it."""

    name: str
    intensity: float
    rate: float
    roof: str


def plot_table(peaks: dict[str, float], bandwidth: float, points: Sequence[PlotPoint], title: str = "Roofline") -> Table:
    """The drawing as a table of lines. ``peaks``: peak rate of each format that a point has [FLOP/s]."""
    lines = [{"line": line} for line in draw_roofline(peaks, bandwidth, points)]
    return Table("plot", title, (Column("line", "FLOP/s over FLOP/B, both logarithmic"),), lines)


def draw_roofline(peaks: dict[str, float], bandwidth: float, points: Sequence[PlotPoint]) -> list[str]:
    """Lines of text: ``/`` the HBM roof, ``-`` the peak of each format, ``+`` its ridge, letters the points, ``*`` several of them."""
    axes = _Axes.around(peaks, bandwidth, points)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    highest = max(peaks.values())
    for column in range(WIDTH):
        intensity = axes.intensity(column)
        for peak in peaks.values():
            if intensity * bandwidth > peak:
                grid[axes.row(peak)][column] = "-"
        if intensity * bandwidth <= highest:
            for row in range(axes.row(intensity * bandwidth), axes.row(axes.intensity(column - 1) * bandwidth)):
                grid[row][column] = "/"  # a steep roof has several rows in a column
            grid[axes.row(intensity * bandwidth)][column] = "/"
    for peak in peaks.values():
        grid[axes.row(peak)][axes.column(peak / bandwidth)] = "+"
    for letter, point in zip(LETTERS, points, strict=False):
        row, column = axes.row(point.rate), axes.column(point.intensity)
        grid[row][column] = "*" if grid[row][column] in LETTERS + "*" else letter
    labels = {axes.row(peak): units.show(peak, "FLOP/s", 3) for _, peak in sorted(peaks.items(), key=lambda item: item[1])}
    body = [f"{labels.get(row, ''):>{MARGIN}} |{''.join(cells)}".rstrip() for row, cells in enumerate(grid)]
    start, end = (_show_intensity(axes.intensity(column)) for column in (0, WIDTH - 1))
    foot = [" " * MARGIN + " +" + "-" * WIDTH, " " * (MARGIN + 2) + start + end.rjust(WIDTH - len(start))]
    return [*body, *foot, *_legend(peaks, bandwidth, points)]


def _legend(peaks: dict[str, float], bandwidth: float, points: Sequence[PlotPoint]) -> Iterator[str]:
    """The roofs with their ridges, and the points with their rates."""
    yield f"/ HBM roof {units.show(bandwidth, 'B/s', 4)}"
    for name, peak in sorted(peaks.items(), key=lambda item: -item[1]):
        yield f"- {name} roof {units.show(peak, 'FLOP/s', 4)}, ridge + at {_show_intensity(peak / bandwidth)}"
    several = len(peaks) > 1
    for letter, point in zip(LETTERS, points, strict=False):
        under = f", {point.roof} roof" if several else ""
        yield f"{letter} {point.name}: {_show_intensity(point.intensity)}, {units.show(point.rate, 'FLOP/s', 3)}{under}"
    if len(points) > len(LETTERS):
        yield f"{len(points) - len(LETTERS)} more points are not drawn"


def _show_intensity(intensity: float) -> str:
    return f"{intensity:,.0f} FLOP/B" if intensity >= 100.0 else f"{intensity:.3g} FLOP/B"


@dataclass(frozen=True)
class _Axes:
    """Logarithmic axes; decades are counted from 1 FLOP/B and 1 FLOP/s."""

    low: float
    high: float
    bottom: float
    top: float

    @staticmethod
    def around(peaks: dict[str, float], bandwidth: float, points: Sequence[PlotPoint]) -> _Axes:
        """Axes that hold all ridges and points."""
        at = [math.log10(peak / bandwidth) for peak in peaks.values()]
        at += [math.log10(max(point.intensity, LEAST_INTENSITY)) for point in points]
        low, high = min(at) - SPACE, max(at) + SPACE
        rates = [math.log10(peak) for peak in peaks.values()] + [math.log10(point.rate) for point in points]
        return _Axes(low, high, min(*rates, math.log10(bandwidth) + low), max(rates))

    def intensity(self, column: int) -> float:
        """FLOP/B of a column."""
        return float(10 ** (self.low + (self.high - self.low) * column / (WIDTH - 1)))

    def column(self, intensity: float) -> int:
        """The column of an intensity."""
        share = (math.log10(max(intensity, LEAST_INTENSITY)) - self.low) / (self.high - self.low)
        return round(share * (WIDTH - 1))

    def row(self, rate: float) -> int:
        """The row of a rate; a rate below the drawing is in its last row."""
        share = (self.top - math.log10(rate)) / (self.top - self.bottom)
        return min(round(share * (HEIGHT - 1)), HEIGHT - 1)
