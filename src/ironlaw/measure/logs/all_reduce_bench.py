"""Output of ``all_reduce_bench.py`` (bigscience, ml-engineering): one block for each call on a rank.

    3:
     duration: 0.0484 sec
     algo throughput: 1323624408929.4016 bps, 1323.6244 Gbps
     busbw: 992.7183  Gbps

Rates are Gbit/s, not GByte/s. The "algo throughput" counts sent and received bytes: it is twice the algbw of nccl-tests. Ranks print their
blocks in any order, some between the lines of others; such mixed blocks give a wrong size and are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ironlaw.cautions.table import caution
from ironlaw.measure.logs.log import ROWS, Calls, Log, Notes, Rows, number

NAME = "all-reduce-bench"
SIGNS = (re.compile(rb"duration: [\d.]+ sec\r?\n ?algo throughput: [\d.]+ bps"), re.compile(rb"\n\d+ data size: [\d.]+ GB\r?\n"))
_RANK = re.compile(r"^(\d{1,6}):$")
_LINE = re.compile(r"^\s*(duration|algo throughput|busbw): ([\d.]+)\s+(sec|bps|Gbps)")
_SIZE = re.compile(r"^\d+ data size: ([\d.]+) GB")
_SAME = 5e-3  # durations are printed to 0.1 ms
_SCALE = {"sec": 1.0, "bps": 1 / 8, "Gbps": 1e9 / 8}


@dataclass
class _Blocks:
    ranks: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    rows: list[tuple[float, float, float]] = field(default_factory=list)  # seconds, algorithm, bus


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of the benchmark."""
    blocks, size, rank = _Blocks(), 0.0, -1
    headers = defaultdict[int, int](int)  # blocks that a rank began: a cut block is a call too
    block: dict[str, float] = {}
    for line in text:
        if header := _RANK.match(line.strip()):
            if block:
                notes.skipped["a block that is cut"] += 1
            rank, block = int(header[1]), {}
            headers[rank] += 1
        elif part := _LINE.match(line):
            block[part[1]] = (number(part[2]) or 0.0) * _SCALE[part[3]]
            if len(block) == 3 and len(blocks.rows) < ROWS:
                _add_block(blocks, rank, headers[rank] - 1, block, size, notes)
                block = {}
        elif size_line := _SIZE.match(line):
            size = (number(size_line[1]) or 0.0) * 1e9  # the script divides by 1e9
        else:
            notes.device(line)
    return _log(blocks, size, notes)


def _add_block(blocks: _Blocks, rank: int, call: int, block: dict[str, float], size: float, notes: Notes) -> None:
    """Add the block of one call, unless its values contradict each other."""
    seconds, both_ways, bus = block["duration"], block["algo throughput"], block["busbw"]
    if min(seconds, both_ways, bus) <= 0 or rank < 0:
        notes.skipped["a block with a zero or without a rank"] += 1
    elif size and abs(seconds * both_ways / (2.0 * size) - 1.0) > _SAME:
        notes.skipped["a block with lines of two ranks"] += 1
    else:
        blocks.ranks.append(rank)
        blocks.numbers.append(call)
        blocks.rows.append((seconds, both_ways / 2.0, bus))


def _log(blocks: _Blocks, size: float, notes: Notes) -> Log:
    """Make the log of the benchmark's calls; sizes follow from throughput and duration where the output has none."""
    table = np.array(blocks.rows, np.float64).reshape(-1, 3)
    sizes = np.full(len(table), size) if size else table[:, 0] * table[:, 1]
    if len(table) and not size:
        notes.warn(caution("size-computed"))
    if len(table):
        ranks = max(blocks.ranks) + 1
        notes.argument("world_size", str(ranks))
        notes.warn(caution("both-directions"))
    calls = Calls(
        collective="all_reduce",
        rank=np.array(blocks.ranks, np.int64),
        number=np.array(blocks.numbers, np.int64),
        size=sizes,
        seconds=table[:, 0],
        algorithm_bandwidth=table[:, 1],
        bus_bandwidth=table[:, 2],
        in_place=np.ones(len(table), np.bool_),
    )
    return Rows(notes).log(NAME, calls=calls)
