"""Lengths of documents from a file, within limits: JSON, JSONL, CSV, or a plain file with one length a line.

length,count        a histogram (CSV with or without this heading)
low,high,count      buckets; the lengths of a bucket are taken as equally likely
length              one document a line; JSONL has a number, or an object with one of the keys of FIELDS
{"512": 3, ...}     JSON: counts by length; also [512, 640, ...], [[512, 3], ...] and [[0, 512, 3], ...]
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ironlaw.errors import InputError
from ironlaw.estimate.documents.histogram import LONGEST, Histogram
from ironlaw.files import read_json, read_text

MOST_BYTES = 64_000_000
MOST_ROWS = 4_000_000
FIELDS = ("length", "n_tokens", "num_tokens", "token_count")  # of a line of JSONL
HEADINGS = ({"length"}, {"length", "count"}, {"low", "high", "count"}, {"low", "high", "share"}, {"length", "share"})
IN_BUCKET = 32  # lengths that stand for a bucket, each for an equal part of it


def read_file(path: Path) -> Histogram:
    """The distribution of lengths in a file; InputError names the file, the line and the value that is wrong."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        rows = _of_json(read_json(path, "a lengths file", MOST_BYTES), str(path))
    else:
        lines = read_text(path, "a lengths file", MOST_BYTES).splitlines()
        rows = _of_jsonl(lines, str(path)) if suffix == ".jsonl" else _of_lines(lines, str(path))
    return histogram_of(rows, str(path))


def histogram_of(rows: Iterable[tuple[str, tuple[float, ...]]], where: str) -> Histogram:
    """The distribution of rows of one, two or three numbers: a length; a length and a count; a bucket and a count.

    >>> histogram_of([("line 1", (0.0, 64.0, 2.0))], "made").mean
    32.0
    """
    pairs: list[tuple[float, float]] = []
    for number, (place, row) in enumerate(rows):
        if number >= MOST_ROWS:
            raise InputError(f"{where}: more than {MOST_ROWS:,} rows of lengths: give a histogram, length,count")
        if len(row) == 3:
            pairs += _in_bucket(*row, f"{where}, {place}")
        else:
            pairs.append((_length(row[0], f"{where}, {place}"), _count(row[1], f"{where}, {place}") if len(row) == 2 else 1.0))
    if not sum(count for _, count in pairs) > 0.0:
        raise InputError(f"{where}: no document has a length")
    return Histogram.of(pairs)


def _length(value: float, place: str) -> float:
    if not (1.0 <= value <= LONGEST and value == int(value)):
        raise InputError(f"{place}: length {value:g} must be a whole number from 1 to {LONGEST:g}")
    return value


def _count(value: float, place: str) -> float:
    if not 0.0 <= value <= 1e18:
        raise InputError(f"{place}: count {value:g} must be from 0 to 1e18")
    return value


def _in_bucket(low: float, high: float, count: float, place: str) -> list[tuple[float, float]]:
    """The lengths that stand for a bucket from ``low`` to ``high``."""
    if not 0.0 <= low < high <= LONGEST:
        raise InputError(f"{place}: bucket {low:g} to {high:g} must go up, from 0 to {LONGEST:g}")
    share = _count(count, place) / IN_BUCKET
    return [(max(float(round(low + (high - low) * (part + 0.5) / IN_BUCKET)), 1.0), share) for part in range(IN_BUCKET)]


def _number(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InputError(f"{place}: {str(value)[:40]!r} is no number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise InputError(f"{place}: {str(value)[:40]!r} is no number") from None
    if not math.isfinite(number):
        raise InputError(f"{place}: {str(value)[:40]!r} is not finite")
    return number


def _of_lines(lines: list[str], where: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Rows of a CSV or of a plain file; a heading, blank lines and lines that begin with # are skipped."""
    for number, line in enumerate(lines, 1):
        text = line.strip().lstrip("\ufeff")
        if not text or text.startswith("#"):
            continue
        cells = [cell.strip() for cell in text.split(",")]
        if {cell.lower() for cell in cells} in HEADINGS:
            continue
        if len(cells) > 3:
            raise InputError(f"{where}, line {number}: {len(cells)} columns; expected length, length,count or low,high,count")
        yield f"line {number}", tuple(_number(cell, f"{where}, line {number}") for cell in cells)


def _of_jsonl(lines: list[str], where: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Rows of a file with a JSON value a line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{where}, line {number}"
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{place}: not JSON: {str(error)[:80]}") from None
        if isinstance(item, dict):
            key = next((name for name in FIELDS if name in item), None)
            if key is None:
                raise InputError(f"{place}: has none of the keys {', '.join(FIELDS)}")
            item = item[key]
        yield f"line {number}", (_number(item, place),)


def _of_json(tree: Any, where: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Rows of a JSON file: counts by length, or a list of lengths, pairs or buckets."""
    if isinstance(tree, dict):
        tree = [[length, count] for length, count in tree.items()]
    if not isinstance(tree, list):
        raise InputError(f"{where}: expected a list of lengths, or an object of counts by length")
    for number, item in enumerate(tree, 1):
        place = f"{where}, item {number}"
        cells = item if isinstance(item, list) else [item]
        if not 1 <= len(cells) <= 3:
            raise InputError(f"{place}: {len(cells)} numbers; expected a length, [length, count] or [low, high, count]")
        yield f"item {number}", tuple(_number(cell, place) for cell in cells)
