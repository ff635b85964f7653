"""How a page sets texts in columns, and prints shares: one writer for the tables of every page."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

BETWEEN = "  "  # columns


def set_line(cells: Sequence[str], widths: Sequence[int], left: Collection[int] = (0,), indent: str = "") -> str:
    """One row: the columns of ``left`` begin at their left, the others end at their right.

    >>> set_line(["a", "1"], [3, 4])
    'a       1'
    """
    placed = (c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in enumerate(zip(cells, widths, strict=True)))
    return f"{indent}{BETWEEN.join(placed)}".rstrip()


def set_rows(rows: Sequence[Sequence[str]], left: Collection[int] = (0,), indent: str = "") -> list[str]:
    """Rows under each other, the header as the first; a column is as wide as its longest cell.

    >>> set_rows([("family", "runs"), ("nemo", "12")])
    ['family  runs', 'nemo      12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [set_line(row, widths, left, indent) for row in rows]


def percent(value: float | None, signed: bool = False, digits: int = 1) -> str:
    """A share in per cent, as pages of validation print it; a dash where there is none.

    >>> percent(0.0312), percent(-0.1, signed=True), percent(0.8, digits=0), percent(None)
    ('3.1 %', '-10.0 %', '80 %', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    return f"{100 * value:{'+' if signed else ''}.{digits}f} %"


def ratio(value: float | None) -> str:
    """A ratio with two decimals; a dash where there is none.

    >>> ratio(1.016), ratio(None)
    ('1.02', '-')
    """
    return "-" if value is None else f"{value:.2f}"
