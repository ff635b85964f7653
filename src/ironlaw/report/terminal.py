"""Parts that pages share: emphasis, bars, short forms of values, and tables in Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

from ironlaw import units

_BAR = 24  # characters of a full bar


class Ink:
    """ANSI emphasis, or none."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def bold(self, text: str) -> str:
        """Bold."""
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    def dim(self, text: str) -> str:
        """Faint."""
        return f"\x1b[2m{text}\x1b[0m" if self.colour else text

    def good(self, text: str) -> str:
        """Green."""
        return f"\x1b[32m{text}\x1b[0m" if self.colour else text

    def bad(self, text: str) -> str:
        """Red."""
        return f"\x1b[31m{text}\x1b[0m" if self.colour else text


def bar(share: float) -> str:
    """A share of 1 as a bar of blocks, in eighths; of number signs where standard output cannot write blocks."""
    eighths = round(share * _BAR * 8)
    full, rest = divmod(max(eighths, 0), 8)
    if not _writes_blocks(getattr(sys.stdout, "encoding", None) or "utf-8"):
        return "#" * min(round(max(share, 0.0) * _BAR), _BAR)
    return "█" * min(full, _BAR) + (" ▏▎▍▌▋▊▉"[rest].strip() if full < _BAR else "")


@cache
def _writes_blocks(encoding: str) -> bool:
    """Whether standard output can write block characters."""
    try:
        "█▏▎▍▌▋▊▉".encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def short(value: Any) -> str:
    """A value as a person writes it: on or off, whole numbers without a decimal point."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def dollars(usd: float | None) -> str:
    """A sum of money; None means that no price is known."""
    return "no price known" if usd is None else f"{short_number(usd)} USD"


def short_number(value: float) -> str:
    """A number without decimals from 100 on, with three digits below.

    >>> short_number(1234.5), short_number(12.345), short_number(0.00123)
    ('1,234', '12.3', '0.00123')
    """
    return f"{value:,.0f}" if abs(value) >= 99.95 or value == 0.0 else f"{value:.3g}"


def long_time(days: float) -> str:
    """A time in days from two days on, and in hours or seconds below.

    >>> long_time(23.04), long_time(0.5), long_time(1e-5)
    ('23.0 days', '12 h', '864 ms')
    """
    return f"{days:,.1f} days" if days >= 2.0 else units.show(days * 86400.0, "s")


def markdown_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]], text_columns: int = 1) -> list[str]:
    """A table in Markdown; numbers, after the first ``text_columns``, are aligned to the right."""
    marks = tuple("---" if k < text_columns else "---:" for k in range(len(header)))
    return [f"| {' | '.join(row)} |" for row in (header, marks, *rows)]
