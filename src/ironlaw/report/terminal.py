"""Parts that pages share: emphasis, bars, short forms of values, and tables in Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
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


def variant_words(variant: Mapping[str, Any], context_ranks: float) -> list[str]:
    """The options of a plan's job that a search varied; the method of context parallelism only where there is any.

    >>> variant_words({"precision": "bf16", "cuda_graphs": "full", "gradient_dtype": "bf16", "cp_method": "ring"}, 1)
    ['bf16', 'graphs full', 'gradients bf16']
    """
    named = {"cuda_graphs": "graphs ", "gradient_dtype": "gradients ", "weights_dtype": "weights "}
    return [f"{named.get(name, '')}{value}" for name, value in variant.items() if name != "cp_method" or context_ranks > 1]


def short(value: Any) -> str:
    """A value as a person writes it: on or off, whole numbers without a decimal point."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def likelihood(probability: float) -> str:
    """A probability in percent, without claiming certainty.

    >>> likelihood(0.983), likelihood(0.9996), likelihood(0.001)
    ('98%', 'over 99%', 'under 1%')
    """
    if probability >= 0.995:
        return "over 99%"
    return "under 1%" if probability < 0.005 else f"{probability:.0%}"


def dollars(usd: float | None) -> str:
    """A sum of money; None means that no price is known."""
    return "no price known" if usd is None else f"{units.amount(usd)} USD"


def markdown_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]], text_columns: int = 1) -> list[str]:
    """A table in Markdown; numbers, after the first ``text_columns``, are aligned to the right."""
    marks = tuple("---" if k < text_columns else "---:" for k in range(len(header)))
    return [f"| {' | '.join(row)} |" for row in (header, marks, *rows)]
