"""MLPerf training logs: lines with ``:::MLLOG`` and one JSON object, among other text.

    :::MLLOG {"namespace": "", "time_ms": 1721026606541, "event_type": "INTERVAL_START", "key": "block_start", "value": null,
    "metadata": {"file": "...", "lineno": 129, "samples_count": 2688}}                           (one line)

A row is a block of training from block_start to block_stop, without evaluation. Its time is per iteration if the log has the batch size,
else per sample. Times are whole milliseconds of the host clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ironlaw.cautions.table import caution
from ironlaw.measure.logs.log import Log, Notes, Rows, ranked, whole

NAME = "mlperf"
SIGNS = (re.compile(rb':::MLLOG \{"'),)
_SAID = ("global_batch_size", "max_sequence_length", "submission_platform", "submission_benchmark", "gradient_accumulation_steps",
         "tensor_parallelism", "pipeline_parallelism", "context_parallelism", "number_of_ranks", "number_of_nodes")  # fmt: skip
_NAMES = {"max_sequence_length": "seq_length", "tensor_parallelism": "tensor_model_parallel_size",
          "pipeline_parallelism": "pipeline_model_parallel_size", "context_parallelism": "context_parallel_size",
          "number_of_ranks": "world_size"}  # fmt: skip


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of an MLPerf log."""
    blocks = _Blocks(notes)
    for whole_line in text:
        at = whole_line.find(":::MLLOG ")
        if at < 0:
            continue
        event = _event(whole_line[at + 9 :])
        if event is None:
            notes.skipped["an MLLOG line that is not one JSON object"] += 1
            continue
        blocks.add_event(event, ranked(whole_line)[0])
    batch = whole(notes.arguments.get("global_batch_size", ""))
    rows = Rows(notes)
    for samples, samples_so_far, seconds, rank in blocks.finished:
        rows.add(samples_so_far // (batch or 1), seconds / (samples / (batch or 1)), rank=rank)
    if blocks.finished and not batch:
        notes.warn(caution("times-per-sample"))
    return rows.log(NAME, averages=True, per="iteration" if batch else "sample")


def _event(text: str) -> dict[str, Any] | None:
    """The JSON object at the start of ``text``; None where there is none."""
    try:
        event, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _milliseconds(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15 else None


class _Blocks:
    """Collect blocks of training from events."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.finished: list[tuple[int, int, float, int | None]] = []  # samples, samples at the end, seconds, rank
        self.block_start: tuple[int, int | None] | None = None  # milliseconds, samples so far
        self.run_start: int | None = None  # milliseconds

    def add_event(self, event: dict[str, Any], rank: int | None) -> None:
        """Add one event: start or end a block of training or the run, or note a setting of the job."""
        key, when = event.get("key"), _milliseconds(event.get("time_ms"))
        metadata = event.get("metadata")
        fields = metadata if isinstance(metadata, dict) else {}
        samples = _milliseconds(fields.get("samples_count"))
        if key in _SAID:
            self.notes.argument(_NAMES.get(str(key), str(key)), str(event.get("value"))[:200])
        elif when is None:
            return
        elif key == "block_start":
            self.block_start = (when, samples)
        elif key == "block_stop" and self.block_start is not None:
            self._end_block(self.block_start, when, samples, rank)
        elif key == "run_start":
            self.run_start = when
        elif key == "run_stop" and self.run_start is not None and when > self.run_start:
            self.notes.claims["run_seconds"] = (when - self.run_start) / 1e3
            if fields.get("status") not in (None, "success"):
                self.notes.warn(caution("ended-badly", status=str(fields.get("status"))[:40]))
        elif key == "tracked_stats":
            self._note_statistics(event.get("value"))

    def _end_block(self, block_start: tuple[int, int | None], when: int, samples: int | None, rank: int | None) -> None:
        """Add the block of training that ends now, if its samples and times are known."""
        start, before = block_start
        self.block_start = None
        if samples is None or before is None or samples <= before or when <= start:
            self.notes.skipped["a block without a count of samples"] += 1
            return
        self.finished.append((samples - before, samples, (when - start) / 1e3, rank))

    def _note_statistics(self, value: object) -> None:
        """Store the throughput and the step time that the log states."""
        if not isinstance(value, dict):
            return
        for name, claim in (("throughput", "samples_per_second"), ("train_step_time", "step_time")):
            rate = value.get(name)
            if isinstance(rate, int | float) and 0 < rate < 1e15:
                self.notes.claims[claim] = float(rate)
