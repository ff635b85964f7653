"""Measured times by size, as ``roofline --scaling`` takes them: written in the command, or columns of a CSV file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw.errors import InputError, UnknownNameError, ValueRangeError
from ironlaw.files import read_csv, with_headers
from ironlaw.question.kinds import kind
from ironlaw.question.readers import duration, positive
from ironlaw.units import shorten

COLUMNS = ("size", "time", "p99", "allocated", "reserved")
FORM = "SIZE:TIME[|TIME..][:ALLOCATED[:RESERVED]], such as 1:10ms,1.5:14ms, or a CSV file with columns size and time"
MOST_BYTES, MOST_LINES = 16_000_000, 100_000  # of a CSV file


@dataclass(frozen=True)
class SizedTimes:
    """What was measured at one size: times of steps, and the peaks of the allocator."""

    size: float
    times: tuple[float, ...]
    p99: float | None = None  # given; None: of the times
    allocated: float | None = None
    reserved: float | None = None


@kind("str", "Sequence[Any]", gives="Any", metavar="LIST|FILE", samples=("1:50ms,2:95ms",))
def read_sized_times(value: Any, flag: str) -> tuple[SizedTimes, ...]:
    """Measurements by size, smallest first: a text, the path of a CSV file, or pairs from Python; at least two sizes."""
    if isinstance(value, str) and value.strip().lower().endswith(".csv"):
        points = _read_file(value.strip(), flag)
    else:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)):
            raise ValueRangeError(f"{flag} is {shorten(value)}, must be {FORM}")
        points = [_read_item(item, flag) for item in items]
    merged = _merge(points)
    if len(merged) < 2:
        raise ValueRangeError(f"{flag} must have at least two different sizes: {FORM}")
    return merged


def _merge(points: Iterable[SizedTimes]) -> tuple[SizedTimes, ...]:
    """One entry for each size: all its times, and the highest of its peaks."""
    by_size: dict[float, list[SizedTimes]] = {}
    for point in points:
        by_size.setdefault(point.size, []).append(point)
    return tuple(
        SizedTimes(
            size, tuple(time for point in same for time in point.times), _highest(point.p99 for point in same),
            _highest(point.allocated for point in same), _highest(point.reserved for point in same),
        )
        for size, same in sorted(by_size.items())
    )  # fmt: skip


def _highest(values: Iterable[float | None]) -> float | None:
    """The highest of the values that are known."""
    return max((value for value in values if value is not None), default=None)


def _read_item(item: Any, flag: str) -> SizedTimes:
    """One item of the list: a text with colons, a pair of size and seconds, or a measurement that was read before."""
    if isinstance(item, SizedTimes):
        return item
    if not isinstance(item, str):
        if not isinstance(item, (list, tuple)) or len(item) != 2:
            raise ValueRangeError(f"{flag} has {shorten(item)}, must be pairs of a size and seconds")
        size, seconds = item
        return SizedTimes(positive("1")(size, flag), (duration(f"{seconds}s", flag),))
    fields = [field.strip() for field in item.split(":")]
    if not 2 <= len(fields) <= 4:
        raise ValueRangeError(f"{flag} is {shorten(item)}, must be {FORM}")
    times = tuple(duration(time.strip(), flag) for time in fields[1].split("|"))
    memory = [positive("B")(field, flag) for field in fields[2:]]
    return _checked(SizedTimes(positive("1")(fields[0], flag), times, None, *memory), flag)


def _checked(point: SizedTimes, where: str) -> SizedTimes:
    """Refuse an allocator that reserves less than it gives out."""
    if point.allocated is not None and point.reserved is not None and point.reserved < point.allocated:
        raise ValueRangeError(f"{where}: at size {point.size:g} less is reserved than allocated: give ALLOCATED first, then RESERVED")
    return point


def _read_file(path: str, flag: str) -> list[SizedTimes]:
    """The lines of a CSV file: columns size and time; p99, allocated and reserved where they were recorded."""
    lines = read_csv(os.path.expanduser(path), f"the file of {flag}", MOST_BYTES)
    headers = [header.strip().lower() for header in lines[0][1]] if lines else []
    for header in headers:
        if header and header not in COLUMNS:
            raise UnknownNameError("column", header, COLUMNS, path)
    if len(lines) > MOST_LINES:
        raise InputError(f"{flag} {path}: more than {MOST_LINES:,} lines")
    return [_read_line(with_headers(headers, cells), f"line {number} of {path}") for number, cells in lines[1:]]


def _read_line(given: Mapping[str, str], where: str) -> SizedTimes:
    """One line of a CSV file."""
    if given.get(""):
        raise InputError(f"{where}: has more cells than the header")
    if missing := [name for name in ("size", "time") if not given.get(name)]:
        raise InputError(f"{where}: the column {missing[0]} is empty or missing")
    memory = {name: positive("B")(given[name], f"{name} in {where}") for name in ("allocated", "reserved") if given.get(name)}
    p99 = duration(given["p99"], f"p99 in {where}") if given.get("p99") else None
    size, time = positive("1")(given["size"], f"size in {where}"), duration(given["time"], f"time in {where}")
    return _checked(SizedTimes(size, (time,), p99, **memory), where)
