"""Read the memory timeline of torch's profiler: bytes of tensors by category over time.

``profile.export_memory_timeline`` writes JSON, plain or gzipped, in two forms: raw, a list of [time in ns, action, bytes, category], and
plotted, [times in us, bytes by category at each time]. Categories are in the order of torch's ``_memory_profiler.py``. Bytes are signed:
freed bytes are negative, and a new version of a tensor takes its bytes from the category of the old version.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.errors import InputError
from ironlaw.measure.events import Column
from ironlaw.measure.read.limits import open_bytes

CATEGORIES = ("parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown")
MOST = 128 << 20  # bytes of JSON; in memory they take up to 24 times as much


@dataclass(frozen=True)
class Timeline:
    """The peak of a timeline, by category."""

    path: str
    form: str  # "raw" or "plotted"
    entries: int
    peak: int  # [B] of all categories at one time
    peak_time: int | None  # [ns] on the clock of the file; None if the peak is before the timeline
    at_peak: dict[str, int]  # [B] by category
    peaks: dict[str, int]  # [B] highest level of each category, at different times
    end: dict[str, int]  # [B] left after the last entry

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {f"{name}_ns" if name == "peak_time" else name: value for name, value in asdict(self).items()}


def recognise(head: bytes) -> bool:
    """Whether a file with this beginning may be a timeline: a list of lists of numbers."""
    text = head[:200].replace(b" ", b"").replace(b"\n", b"")
    return text.startswith(b"[[") and not text.strip(b"[]0123456789,-")


def read_timeline(path: str | Path) -> Timeline:
    """Read the timeline in ``path``, in either form."""
    form, times, levels = read_levels(path)
    totals = levels.sum(axis=1)
    top = int(totals.argmax())

    def named(row: Column) -> dict[str, int]:
        return dict(zip(CATEGORIES, row.tolist(), strict=True))

    return Timeline(
        str(path),
        form,
        len(times),
        int(totals[top]),
        int(times[top]) if times[top] >= 0 else None,
        named(levels[top]),
        named(levels.max(axis=0)),
        named(levels[-1]),
    )


def read_levels(path: str | Path) -> tuple[str, Column, Column]:
    """Read form, times in ns (negative: before the timeline) and bytes by category after every entry."""
    with open_bytes(path) as stream:
        text = stream.read(MOST + 1)
    if len(text) > MOST:
        raise InputError(f"{path}: more than {MOST} bytes of JSON; record fewer steps")
    try:
        rows = json.loads(text)
    except RecursionError:
        raise InputError(f"{path}: JSON nested too deeply for a memory timeline; export it again") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}; export the timeline again") from None
    if isinstance(rows, list) and len(rows) == 2 and all(isinstance(part, list) for part in rows) and _is_nested(rows[1]):
        return "plotted", *_read_plotted(path, rows[0], rows[1])
    return "raw", *_read_raw(path, rows)


def _is_nested(part: list[Any]) -> bool:
    return bool(part) and isinstance(part[0], list)


def _read_numbers(path: str | Path, rows: Any, width: int, what: str) -> Column:
    """``rows`` as int64; InputError unless each is a list of ``width`` whole numbers."""
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{path}: not a memory timeline: no list of {what}; give a file from export_memory_timeline")
    for i, row in enumerate(rows):
        if type(row) is not list or len(row) != width or any(type(x) is not int or abs(x) >> 62 for x in row):
            raise InputError(f"{path}: entry {i} of the memory timeline is {row!r:.60}, not {what}; export it again")
    return np.array(rows, np.int64)


def _read_raw(path: str | Path, rows: Any) -> tuple[Column, Column]:
    """The times and the bytes by category of a timeline of single allocations."""
    table = _read_numbers(path, rows, 4, "[time, action, bytes, category]")
    times, sizes, categories = table[:, 0], table[:, 2], table[:, 3]
    known = (categories >= 0) & (categories < len(CATEGORIES))
    if not known.all():
        first = int(np.flatnonzero(~known)[0])
        raise InputError(f"{path}: category {categories[first]} in entry {first} of the memory timeline; known: 0 to {len(CATEGORIES) - 1}")
    _check_sums(path, sizes)
    levels = np.zeros((len(table), len(CATEGORIES)), np.int64)
    levels[np.arange(len(table)), categories] = sizes
    np.cumsum(levels, axis=0, out=levels)
    return times, levels


def _read_plotted(path: str | Path, times: list[Any], sizes: list[Any]) -> tuple[Column, Column]:
    """The times and the bytes by category of a timeline in the form for plotting."""
    levels = _read_numbers(path, sizes, len(CATEGORIES) + 1, f"bytes of {len(CATEGORIES)} categories after a zero")[:, 1:]
    if len(times) != len(levels):
        raise InputError(f"{path}: {len(times)} times and {len(levels)} rows of bytes in the memory timeline; export it again")
    _check_sums(path, levels)
    at = _read_numbers(path, [[t] for t in times], 1, "times in us")[:, 0]
    if np.any(np.abs(at) > (1 << 62) // 1000):
        raise InputError(f"{path}: a time of the memory timeline is out of range; export it again")
    return np.where(at < 0, at, at * 1000), levels


def _check_sums(path: str | Path, sizes: Column) -> None:
    """Refuse sizes whose sums could overflow int64; the sum in float is exact enough to decide."""
    if float(np.sum(np.abs(sizes), dtype=np.float64, axis=-1).max() if sizes.ndim > 1 else np.abs(sizes).sum(dtype=np.float64)) > 2.0**62:
        raise InputError(f"{path}: bytes of the memory timeline are out of range; export it again")
