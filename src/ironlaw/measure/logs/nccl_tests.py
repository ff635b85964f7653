"""Output of nccl-tests and rccl-tests: one row per size, out of place and in place, each a mean over calls after warm-up.

#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
 1048576        262144     float     sum      -1    27.76   37.78   66.11       0    27.49   38.15   66.76       0
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from ironlaw.cautions.table import caution
from ironlaw.measure.logs.log import ROWS, Calls, Log, Notes, Rows, number, ranked, whole

NAME = "nccl-tests"
SIGNS = (
    re.compile(rb"#\s+size\s+count(?:\s+\(elements\))?\s+type\s+redop"),
    re.compile(rb"# nThread \d+ nGpus \d+ minBytes \d+ maxBytes \d+"),
    re.compile(
        rb"\n {0,20}\d{1,15} {1,20}\d{1,15} {1,12}(?:float|half|bfloat16|u?int\d{1,2}|double) {1,12}(?:sum|prod|max|min|avg|none) {1,12}"
        rb"(?:-?\d{1,6} {1,12})?[\d.]{1,12} {1,12}[\d.]{1,12} {1,12}[\d.]{1,12}"
    ),
)
_ROW = re.compile(r"^\s*(\d{1,15})\s+(\d{1,15})\s+([a-z]\w*)\s+(\w+)\s+(\S.*)$")
_DEVICE = re.compile(r"^#?\s*Rank\s+(\d{1,6})\s.{0,200}?device\s+\d{1,4} \[[^\]]{0,40}\] (.{1,200})$")
_TEST = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv|scatter|gather|hypercube)_perf")
_WARM_UP = re.compile(r"warmup iters: *(\d+) +iters: *(\d+)")


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of the test."""
    measurements: list[tuple[float, float, float, float, bool]] = []  # size, seconds, algorithm, bus, in place
    collective, ranks = "", 0
    for whole_line in text:
        line = ranked(whole_line)[1]
        if row := _ROW.match(line):
            _row(row, measurements, notes)
        elif device := _DEVICE.match(line.rstrip()):
            ranks = max(ranks, int(device[1]) + 1)
            notes.device_name = notes.device_name or device[2][:200]
        else:
            if test := _TEST.search(line):
                collective = collective or test[1]
            if warm_up := _WARM_UP.search(line):
                notes.argument("warmup_iters", warm_up[1])
                notes.argument("iters", warm_up[2])
    if ranks:
        notes.argument("world_size", str(ranks))
    return Rows(notes).log(NAME, calls=_calls(collective, measurements))


def _row(row: re.Match[str], measurements: list[tuple[float, float, float, float, bool]], notes: Notes) -> None:
    """Read one line of results: the measurement out of place and the one in place."""
    cells = row[5].split()
    if len(cells) in (5, 9) and whole(cells[0].removeprefix("-")) is not None:  # a column with the root precedes the times
        cells = cells[1:]
    if len(cells) not in (4, 8) or len(measurements) >= ROWS:
        notes.skipped["a row that is cut or interleaved"] += 1
        return
    for in_place, part in ((False, cells[:4]), (True, cells[4:])):
        values = [number(v) for v in part[:3]]
        if not part:
            continue
        if any(v is None for v in values) or not values[0]:
            notes.skipped["a row without a time"] += 1
            continue
        if part[3] not in ("0", "N/A") and (number(part[3]) or 0.0) > 1e-3:
            notes.warn(caution("wrong-results", size=row[1], count=part[3]))
        time, algorithm, bus = (float(v or 0.0) for v in values)
        measurements.append((float(row[1]), time * 1e-6, algorithm * 1e9, bus * 1e9, in_place))


def _calls(collective: str, measurements: list[tuple[float, float, float, float, bool]]) -> Calls:
    """The measurements as columns; no rank is known, because each is a mean over ranks."""
    table = np.array([f[:4] for f in measurements], np.float64).reshape(-1, 4)
    return Calls(
        collective=collective,
        rank=np.full(len(table), -1, np.int64),
        number=np.zeros(len(table), np.int64),
        size=table[:, 0],
        seconds=table[:, 1],
        algorithm_bandwidth=table[:, 2],
        bus_bandwidth=table[:, 3],
        in_place=np.array([f[4] for f in measurements], np.bool_),
    )
